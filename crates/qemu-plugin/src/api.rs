//! The part of QEMU's plugin interface that is used here.
//!
//! It is written by hand after include/qemu/qemu-plugin.h of QEMU 7.2 (interface version 1) and its
//! notes on later versions. Version 2 (QEMU 9.0, which takes no older plugin) removed functions
//! that are not used here. Version 3 made `qemu_plugin_insn_data` copy. The functions are looked up
//! in the running QEMU, so one binary serves all versions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

/// The interface version that this plugin asks for. QEMU reads it after the library is loaded.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded, before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // This function is new in version 2.
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

/// QEMU's description of itself: `qemu_info_t`.
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
    /// The most CPUs that the guest can have. Fails if the guest is not a whole arm64 machine.
    pub fn cpus(&self) -> Result<usize, String> {
        // SAFETY: the string is QEMU's own and lives as long as QEMU.
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

/// QEMU's type `qemu_plugin_vcpu_tb_trans_cb_t`.
type Translated = extern "C" fn(id: u64, block: *mut Block);
/// QEMU's type `qemu_plugin_vcpu_udata_cb_t`.
type Executed = extern "C" fn(cpu: c_uint, data: *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback reads no register.
const NO_REGISTERS: c_int = 0;

/// How `qemu_plugin_insn_data` returns the bytes of an instruction.
#[derive(Copy, Clone)]
enum Data {
    /// It returns a pointer: versions 1 and 2.
    Pointer(unsafe extern "C" fn(*const Instruction) -> *const c_void),
    /// It copies them into a buffer: version 3 and later.
    Copy(unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize),
}

/// The functions of QEMU that the plugin calls.
pub struct Api {
    /// QEMU's function `qemu_plugin_register_vcpu_tb_trans_cb`.
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
        // SAFETY: the signatures are those in QEMU's header.
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
        // SAFETY: QEMU passed the block to the callback that calls this.
        let count = unsafe { (self.count)(block) };
        // SAFETY: the index is below the count.
        (0..count).map(move |at| unsafe { (self.instruction)(block, at) })
    }

    /// The word of an instruction; `None` if the instruction has another size.
    pub fn word(&self, instruction: *mut Instruction) -> Option<u32> {
        let mut bytes = [0_u8; 4];
        // SAFETY: the instruction belongs to a block that is being translated. Its data has the
        // size that QEMU reports.
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
        // SAFETY: the instruction belongs to a block that is being translated.
        unsafe { (self.on_execution)(instruction, callback, NO_REGISTERS, data) };
    }
}

/// Looks up a function of QEMU.
///
/// # Safety
/// `F` is a function pointer with the signature of the function `name`.
unsafe fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let missing = || format!("this QEMU has no {}", name.to_string_lossy());
    // SAFETY: `F` has the size of a pointer, and the caller guarantees its signature.
    symbol(name).map(|symbol| unsafe { transmute_copy(&symbol) }).ok_or_else(missing)
}

fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero. The handle stands for the whole process.
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
        // This is the first function that is looked up. The constructor chose the old version
        // because it found no function of QEMU either.
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
