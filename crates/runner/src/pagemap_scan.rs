//! The ioctl `PAGEMAP_SCAN`, which reports written pages.

use crate::sys::{bytes, pointer};
use linux_raw_sys::general::{
    PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC, PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};
use needless_model::addr::{PageRange, Vpn};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

// include/uapi/linux/fs.h
const PAGEMAP_SCAN: Opcode = opcode::read_write::<pm_scan_arg>(b'f', 16);

/// Room for more regions than the kernel reports at once (512).
const REGIONS: usize = 1024;

/// The ioctl. Its result is the number of regions.
struct Scan<'a>(&'a mut pm_scan_arg);

// SAFETY: the kernel expects this structure for this number, and changes it.
unsafe impl Ioctl for Scan<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        PAGEMAP_SCAN
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut libc::c_void) -> rustix::io::Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

/// Reports the pages that were written, and protects them if `protect`. Allocates nothing.
pub fn scan(pages: PageRange, protect: bool, told: impl Fn(PageRange)) -> io::Result<()> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut regions = [const { MaybeUninit::<page_region>::uninit() }; REGIONS];
    let start = pointer(pages.start) as u64;
    let end = start + bytes(pages) as u64;
    let flags = if protect { PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC } else { 0 };
    let mut scanned = start;
    while scanned < end {
        let mut request = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: flags.into(),
            start: scanned,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: PAGE_IS_WRITTEN.into(),
            category_anyof_mask: 0,
            return_mask: PAGE_IS_WRITTEN.into(),
        };
        // SAFETY: the kernel writes no more regions than there is room for, and returns their
        // number.
        let found = unsafe { ioctl(&pagemap, Scan(&mut request)) }?;
        for region in regions.iter().take(found) {
            // SAFETY: the kernel has written this region.
            let region = unsafe { region.assume_init_ref() };
            let (start, end) = (Vpn::containing(region.start), Vpn::containing(region.end));
            told(PageRange { start, end });
        }
        if request.walk_end <= scanned {
            return Err(io::Error::other("the kernel stopped where it began"));
        }
        scanned = request.walk_end;
    }
    Ok(())
}
