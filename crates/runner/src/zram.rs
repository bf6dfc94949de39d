//! A zram device that the runner adds, and its removal.
//!
//! The device is new (`hot_add`), so no existing device is touched.

use needless_model::addr::PAGE_SIZE;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONTROL: &str = "/sys/class/zram-control";

/// A failed action on a device.
pub struct DeviceError {
    /// The action, in words.
    pub what: String,
    /// The error of the system call.
    pub error: io::Error,
}

/// Makes an error of the action `what`.
pub(crate) fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> DeviceError {
    move |error| DeviceError { what: what.into(), error }
}

/// A zram device.
pub struct Zram {
    number: u32,
    module_loaded: bool,
}

impl Zram {
    /// Adds a device of `size_bytes`. Leaves nothing behind if that fails.
    pub fn add(size_bytes: u64) -> Result<Zram, DeviceError> {
        Zram::hot_add()?.sized(size_bytes)
    }

    /// Adds a device without a size.
    pub fn hot_add() -> Result<Zram, DeviceError> {
        let module_loaded = load_module()?;
        let hot_add = Path::new(CONTROL).join("hot_add");
        let number = fs::read_to_string(hot_add)
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .map_err(at("adding a zram device"))?;
        Ok(Zram { number, module_loaded })
    }

    /// A device that was added earlier.
    pub fn known(number: u32, module_loaded: bool) -> Zram {
        Zram { number, module_loaded }
    }

    /// Gives the device its size. Removes it if that fails.
    pub fn sized(self, size_bytes: u64) -> Result<Zram, DeviceError> {
        match self.prepare(size_bytes) {
            Ok(()) => Ok(self),
            Err(error) => {
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// The number of the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the module was loaded for it.
    pub fn module_loaded(&self) -> bool {
        self.module_loaded
    }

    /// The path of the device.
    pub fn device(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    /// Removes the device, which must no longer be in use.
    pub fn remove(self) -> Result<(), DeviceError> {
        patiently(|| fs::write(self.setting("reset"), "1")).map_err(at("resetting zram"))?;
        patiently(|| fs::write(Path::new(CONTROL).join("hot_remove"), self.number.to_string()))
            .map_err(at("removing the zram device"))?;
        if self.module_loaded {
            let _ = modprobe(&["-r", "zram"]);
        }
        Ok(())
    }

    fn prepare(&self, size_bytes: u64) -> Result<(), DeviceError> {
        fs::write(self.setting("disksize"), whole_pages(size_bytes).to_string())
            .map_err(at(format!("setting the zram device's size to {size_bytes}")))?;
        self.make_node().map_err(at("the zram device's node"))
    }

    fn setting(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }

    /// Makes the device node if devtmpfs does not.
    fn make_node(&self) -> io::Result<()> {
        let device = self.device();
        if Path::new(&device).exists() {
            return Ok(());
        }
        let numbers = fs::read_to_string(self.setting("dev"))?;
        let (major, minor) = numbers
            .trim()
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .ok_or_else(|| io::Error::other("a strange device number"))?;
        let path = CString::new(device)?;
        // SAFETY: `path` is a valid C string.
        let status = unsafe {
            libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(major, minor))
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The size that a device gets for `size_bytes`.
pub fn whole_pages(size_bytes: u64) -> u64 {
    size_bytes / PAGE_SIZE * PAGE_SIZE
}

/// Loads the zram module if it is a module and not loaded yet. Returns whether it did.
fn load_module() -> Result<bool, DeviceError> {
    if Path::new(CONTROL).exists() {
        return Ok(false);
    }
    modprobe(&["zram", "num_devices=0"]).map_err(at("loading the zram module"))?;
    if Path::new(CONTROL).exists() {
        return Ok(true);
    }
    Err(at("zram")(io::Error::new(io::ErrorKind::NotFound, "this kernel has none")))
}

fn modprobe(arguments: &[&str]) -> io::Result<()> {
    let status = Command::new("modprobe")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("modprobe failed")) }
}

/// Tries an action again for a while: another process (udev, a probe of block devices) may hold the
/// device for a moment.
pub(crate) fn patiently(mut action: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..100 {
        match action() {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EBUSY | libc::EINTR | libc::EAGAIN)
                ) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
    action()
}
