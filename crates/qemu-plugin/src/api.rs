//! QEMU's plugin interface, as far as it is used here.
//!
//! Written by hand after include/qemu/qemu-plugin.h of QEMU 7.2 (interface version 1) and its notes
//! on later versions: 2 (QEMU 9.0, which takes no older plugin) removed functions that are not used
//! here, 3 made `qemu_plugin_insn_data` copy. The functions are looked up in the running QEMU, so
//! one binary serves all versions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

/// The interface version that this plugin asks for. QEMU reads it once the library is loaded.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded, before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // New in version 2.
    if symbol(c"qemu_plugin_num_vcpus").is_some() {
        qemu_plugin_version.store(2, Ordering::Relaxed);
    }
}

/// A translated block.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// What QEMU tells about itself: `qemu_info_t`.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    oldest_version: c_int,
    newest_version: c_int,
    is_system: bool,
    cpus: c_int,
    most_cpus: c_int,
}

impl Info {
    /// How many CPUs the guest can have at most; an error if it is none of ours.
    pub fn cpus(&self) -> Result<usize, String> {
        // SAFETY: QEMU's own string, which lives as long as QEMU.
        let target = unsafe { CStr::from_ptr(self.target) };
        if target != c"aarch64" || !self.is_system {
            return Err(format!(
                "it counts whole arm64 machines, not {}",
                target.to_string_lossy()
            ));
        }
        let most = self.most_cpus.max(self.cpus);
        usize::try_from(most).map_err(|_| format!("a machine of {most} CPUs"))
    }
}

/// `qemu_plugin_vcpu_tb_trans_cb_t`
type Translated = extern "C" fn(id: u64, block: *mut Block);
/// `qemu_plugin_vcpu_udata_cb_t`
type Executed = extern "C" fn(cpu: c_uint, data: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback looks at no register.
const NO_REGISTERS: c_int = 0;

/// How `qemu_plugin_insn_data` gives an instruction's bytes.
#[derive(Copy, Clone)]
enum Data {
    /// As a pointer: versions 1 and 2.
    Pointer(unsafe extern "C" fn(*const Instruction) -> *const c_void),
    /// Into a buffer: version 3 and later.
    Copy(unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize),
}

/// QEMU's functions.
pub struct Api {
    /// `qemu_plugin_register_vcpu_tb_trans_cb`
    pub on_translation: unsafe extern "C" fn(u64, Translated),
    count: unsafe extern "C" fn(*const Block) -> usize,
    instruction: unsafe extern "C" fn(*const Block, usize) -> *mut Instruction,
    size: unsafe extern "C" fn(*const Instruction) -> usize,
    data: Data,
    on_execution: unsafe extern "C" fn(*mut Instruction, Executed, c_int, *mut c_void),
}

impl Api {
    /// Looks the functions up in this process, which is QEMU.
    pub fn find(info: &Info) -> Result<Api, String> {
        // SAFETY: the signatures are those of QEMU's header, see above.
        unsafe {
            Ok(Api {
                data: match info.newest_version {
                    ..3 => Data::Pointer(function(c"qemu_plugin_insn_data")?),
                    _ => Data::Copy(function(c"qemu_plugin_insn_data")?),
                },
                on_translation: function(c"qemu_plugin_register_vcpu_tb_trans_cb")?,
                count: function(c"qemu_plugin_tb_n_insns")?,
                instruction: function(c"qemu_plugin_tb_get_insn")?,
                size: function(c"qemu_plugin_insn_size")?,
                on_execution: function(c"qemu_plugin_register_vcpu_insn_exec_cb")?,
            })
        }
    }

    /// The instructions of a block that is being translated.
    pub fn instructions(&self, block: *mut Block) -> impl Iterator<Item = *mut Instruction> {
        // SAFETY: QEMU gave the block to the callback that calls this.
        let count = unsafe { (self.count)(block) };
        // SAFETY: the index is below the count.
        (0..count).map(move |at| unsafe { (self.instruction)(block, at) })
    }

    /// The instruction's word; `None` if it is not of that size.
    pub fn word(&self, instruction: *mut Instruction) -> Option<u32> {
        let mut bytes = [0_u8; 4];
        // SAFETY: the instruction is one of a block that is being translated; its data has the size
        // that QEMU says.
        unsafe {
            if (self.size)(instruction) != bytes.len() {
                return None;
            }
            match self.data {
                Data::Pointer(data) => bytes = *data(instruction).cast::<[u8; 4]>(),
                Data::Copy(data) => {
                    if data(instruction, bytes.as_mut_ptr().cast(), bytes.len()) != bytes.len() {
                        return None;
                    }
                }
            }
        }
        Some(u32::from_le_bytes(bytes))
    }

    /// Calls `callback` with `data` whenever the instruction is about to be executed.
    pub fn on_execution(
        &self,
        instruction: *mut Instruction,
        callback: Executed,
        data: *mut c_void,
    ) {
        // SAFETY: the instruction is one of a block that is being translated.
        unsafe { (self.on_execution)(instruction, callback, NO_REGISTERS, data) };
    }
}

/// A function of QEMU's.
///
/// # Safety
/// `F` is a function pointer with the signature that `name` has.
unsafe fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let missing = || format!("this QEMU has no {}", name.to_string_lossy());
    // SAFETY: of the same size, and the caller's promise.
    symbol(name).map(|symbol| unsafe { transmute_copy(&symbol) }).ok_or_else(missing)
}

fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a null-terminated name; the handle means the whole process.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(target: &'static CStr, is_system: bool) -> Info {
        Info {
            target: target.as_ptr(),
            oldest_version: 0,
            newest_version: 1,
            is_system,
            cpus: 2,
            most_cpus: 3,
        }
    }

    #[test]
    fn only_whole_arm64_machines_are_counted() {
        assert_eq!(info(c"aarch64", true).cpus(), Ok(3));
        assert!(info(c"aarch64", false).cpus().is_err());
        assert!(info(c"x86_64", true).cpus().unwrap_err().contains("x86_64"));
    }

    #[test]
    fn outside_of_qemu_it_says_what_is_missing() {
        // The first one looked for; the loader chose the old version for the same reason.
        let missing = Api::find(&info(c"aarch64", true)).err().unwrap();
        assert!(missing.contains("qemu_plugin_insn_data"), "{missing}");
        assert_eq!(qemu_plugin_version.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_info_has_the_layout_of_qemus() {
        use std::mem::offset_of;
        let places = [
            offset_of!(Info, oldest_version),
            offset_of!(Info, newest_version),
            offset_of!(Info, is_system),
            offset_of!(Info, cpus),
            offset_of!(Info, most_cpus),
        ];
        assert_eq!(places, [8, 12, 16, 20, 24]);
    }
}
