//! A zram device of our own as swap space, and its removal.
//!
//! The device is new (`hot_add`), so none that was there before is touched. It gets the highest
//! priority that the kernel takes, so that the scenario's pages go there and nowhere else.

use needless_model::addr::PAGE_SIZE;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONTROL: &str = "/sys/class/zram-control";

/// `SWAP_FLAG_PREFER` and the highest priority. Source: swapon(2).
const HIGHEST_PRIORITY: i32 = 0x8000 | 0x7fff;

/// A failure with what was being done.
pub struct SwapError {
    /// What was being done.
    pub what: String,
    /// Why it failed.
    pub error: io::Error,
}

fn at(what: impl Into<String>) -> impl FnOnce(io::Error) -> SwapError {
    move |error| SwapError { what: what.into(), error }
}

/// A zram device in use as swap space.
pub struct ZramSwap {
    number: u32,
    module_loaded: bool,
    swapping: bool,
}

impl ZramSwap {
    /// Adds a device of `size_bytes` and swaps to it. Leaves nothing behind if that fails.
    pub fn add(size_bytes: u64) -> Result<ZramSwap, SwapError> {
        let module_loaded = load_module()?;
        let hot_add = Path::new(CONTROL).join("hot_add");
        let number = fs::read_to_string(hot_add)
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .map_err(at("adding a zram device"))?;
        let mut swap = ZramSwap { number, module_loaded, swapping: false };
        match swap.prepare(size_bytes) {
            Ok(()) => Ok(swap),
            Err(error) => {
                let _ = swap.remove();
                Err(error)
            }
        }
    }

    /// The device's path.
    pub fn device(&self) -> String {
        format!("/dev/zram{}", self.number)
    }

    /// Stops swapping to the device and removes it.
    pub fn remove(self) -> Result<(), SwapError> {
        if self.swapping {
            patiently(|| swapoff(&self.device())).map_err(at("swapoff"))?;
        }
        patiently(|| fs::write(self.setting("reset"), "1")).map_err(at("resetting zram"))?;
        patiently(|| fs::write(Path::new(CONTROL).join("hot_remove"), self.number.to_string()))
            .map_err(at("removing the zram device"))?;
        if self.module_loaded {
            let _ = modprobe(&["-r", "zram"]);
        }
        Ok(())
    }

    fn prepare(&mut self, size_bytes: u64) -> Result<(), SwapError> {
        let pages = size_bytes / PAGE_SIZE;
        fs::write(self.setting("disksize"), (pages * PAGE_SIZE).to_string())
            .map_err(at(format!("setting the zram device's size to {size_bytes}")))?;
        self.make_node().map_err(at("the zram device's node"))?;
        let device = self.device();
        write_swap_header(Path::new(&device), pages).map_err(at(format!("mkswap {device}")))?;
        swapon(&device).map_err(at(format!("swapon {device}")))?;
        self.swapping = true;
        Ok(())
    }

    fn setting(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }

    /// Makes the device node where devtmpfs does not.
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

/// Loads the zram module where it is one and is not there yet; whether it did.
fn load_module() -> Result<bool, SwapError> {
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

/// The first page of swap space: version 1, its last page, and the signature at its end.
/// Source: `union swap_header` in include/linux/swap.h.
fn write_swap_header(device: &Path, pages: u64) -> io::Result<()> {
    let last_page = u32::try_from(pages.saturating_sub(1)).map_err(io::Error::other)?;
    let mut header = vec![0; PAGE_SIZE as usize];
    header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    header[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
    let end = header.len();
    header[end - 10..].copy_from_slice(b"SWAPSPACE2");
    let file = fs::OpenOptions::new().write(true).open(device)?;
    file.write_all_at(&header, 0)?;
    file.sync_all()
}

fn swapon(device: &str) -> io::Result<()> {
    let path = CString::new(device)?;
    // SAFETY: `path` is a valid C string.
    let status = unsafe { libc::swapon(path.as_ptr(), HIGHEST_PRIORITY) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn swapoff(device: &str) -> io::Result<()> {
    let path = CString::new(device)?;
    // SAFETY: `path` is a valid C string.
    let status = unsafe { libc::swapoff(path.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tries again for a while: others (udev, a probe of block devices) may hold the device a moment.
fn patiently(mut action: impl FnMut() -> io::Result<()>) -> io::Result<()> {
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
