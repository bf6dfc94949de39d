//! Reads from `/proc/self/pagemap` which pages count as written since the soft-dirty bits were
//! cleared.

use needless_model::addr::{PageRange, Vpn};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The soft-dirty bit of a page's entry (Documentation/admin-guide/mm/soft-dirty.rst).
const SOFT_DIRTY: u64 = 1 << 55;

/// The number of pages whose entries are read at once.
const CHUNK: usize = 512;

/// Whether this kernel has soft-dirty bits.
static THERE: OnceLock<bool> = OnceLock::new();

/// Finds out whether this kernel has soft-dirty bits.
pub fn prepare() -> io::Result<()> {
    let there = has_soft_dirty()?;
    THERE.get_or_init(|| there);
    Ok(())
}

/// Whether this kernel has soft-dirty bits. A new mapping has the bit set although nothing has
/// touched it.
///
/// # Errors
/// If a page cannot be mapped, or `/proc/self/pagemap` cannot be read.
pub fn has_soft_dirty() -> io::Result<bool> {
    let size = 4096;
    let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the mapping is new; nothing else refers to it.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut there = false;
    let page = PageRange::one(Vpn::containing(at as u64));
    let read = read(page, |_| there = true);
    // SAFETY: `at` and `size` are those of the mapping above.
    unsafe { libc::munmap(at, size) };
    read.map(|()| there)
}

/// Reports the pages that count as written. Allocates nothing. Fails with `ENOTTY` if this kernel
/// has no soft-dirty bits.
pub fn soft_dirty(pages: PageRange, told: impl Fn(PageRange)) -> io::Result<()> {
    if THERE.get() != Some(&true) {
        return Err(io::Error::from_raw_os_error(libc::ENOTTY));
    }
    let mut run: Option<PageRange> = None;
    read(pages, |page| match &mut run {
        Some(run) if run.end == page => run.end = page.add(1),
        _ => {
            if let Some(run) = run.replace(PageRange::one(page)) {
                told(run);
            }
        }
    })?;
    run.into_iter().for_each(told);
    Ok(())
}

/// Calls `set` for each page whose bit is set.
fn read(pages: PageRange, mut set: impl FnMut(Vpn)) -> io::Result<()> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut entries = [0_u8; CHUNK * 8];
    let mut next = pages.start;
    while next < pages.end {
        let count = (pages.end.since(next) as usize).min(CHUNK);
        let room = &mut entries[..count * 8];
        pagemap.read_exact_at(room, next.0 * 8)?;
        for (at, entry) in room.as_chunks::<8>().0.iter().enumerate() {
            if u64::from_ne_bytes(*entry) & SOFT_DIRTY != 0 {
                set(next.add(at as u64));
            }
        }
        next = next.add(count as u64);
    }
    Ok(())
}
