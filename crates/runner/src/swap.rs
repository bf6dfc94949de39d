//! Swap space on a zram device that the runner adds, and its removal.
//!
//! It has the highest priority that the kernel allows, so that the scenario's pages go there and
//! nowhere else.

use crate::zram::{DeviceError, Zram, at, patiently};
use needless_model::addr::PAGE_SIZE;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `SWAP_FLAG_PREFER` and the highest priority. Source: swapon(2).
const HIGHEST_PRIORITY: i32 = 0x8000 | 0x7fff;

/// A zram device in use as swap space.
pub struct ZramSwap {
    zram: Zram,
}

impl ZramSwap {
    /// Adds a device of `size_bytes` and swaps to it. Leaves nothing behind if that fails.
    pub fn add(size_bytes: u64) -> Result<ZramSwap, DeviceError> {
        ZramSwap::start(Zram::add(size_bytes)?, size_bytes)
    }

    /// Swaps to a device of `size_bytes`. Removes it if that fails.
    pub fn start(zram: Zram, size_bytes: u64) -> Result<ZramSwap, DeviceError> {
        match start(&zram.device(), size_bytes / PAGE_SIZE) {
            Ok(()) => Ok(ZramSwap { zram }),
            Err(error) => {
                let _ = zram.remove();
                Err(error)
            }
        }
    }

    /// Swap space that was started earlier, or whose start failed.
    pub fn on(zram: Zram) -> ZramSwap {
        ZramSwap { zram }
    }

    /// The device's path.
    pub fn device(&self) -> String {
        self.zram.device()
    }

    /// Stops swapping to the device and removes it.
    pub fn remove(self) -> Result<(), DeviceError> {
        if in_use(&self.device()) {
            patiently(|| swapoff(&self.device())).map_err(at("swapoff"))?;
        }
        self.zram.remove()
    }
}

/// Whether any swap space is in use; true if that cannot be read.
pub fn is_in_use() -> bool {
    fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1)
}

/// Whether `/proc/swaps` lists the device; true if the file cannot be read, so that `swapoff`
/// decides.
fn in_use(device: &str) -> bool {
    let first = |line: &str| line.split_whitespace().next() == Some(device);
    fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().any(first))
}

fn start(device: &str, pages: u64) -> Result<(), DeviceError> {
    write_swap_header(Path::new(device), pages).map_err(at(format!("mkswap {device}")))?;
    swapon(device).map_err(at(format!("swapon {device}")))
}

/// Writes the first page of swap space: version 1, its last page, and the signature at its end.
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
