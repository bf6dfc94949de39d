//! `PAGEMAP_SCAN`.

use crate::sys::{bytes, pointer};
use linux_raw_sys::general::{
    PAGE_IS_WRITTEN, PM_SCAN_CHECK_WPASYNC, PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};
use needless_model::addr::PageRange;
use rustix::ioctl::{Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

// include/uapi/linux/fs.h
const PAGEMAP_SCAN: rustix::ioctl::Opcode = opcode::read_write::<pm_scan_arg>(b'f', 16);

/// Room for more regions than the kernel tells in one go (512).
const REGIONS: usize = 1024;

/// Looks for pages that were written; `protect`: and protects them. Nothing is allocated.
pub fn scan(pages: PageRange, protect: bool) -> io::Result<()> {
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
        // SAFETY: the kernel writes as many regions as there is room for, and nobody reads them.
        unsafe { ioctl(&pagemap, Updater::<PAGEMAP_SCAN, _>::new(&mut request)) }?;
        if request.walk_end <= scanned {
            return Err(io::Error::other("the kernel stopped where it began"));
        }
        scanned = request.walk_end;
    }
    Ok(())
}
