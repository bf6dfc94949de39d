//! `MADV_REMOVE`: punches a hole into a file or into shared memory. Its pages go, even if others
//! have them mapped.
//!
//! First, every mapping of the file loses its translations; each mapping has its own gather and its
//! own flush. Then the pages leave the page cache one by one. A fault may bring a page back in
//! between; then that page is unmapped once more, by itself. Private mappings keep their copies of
//! the file's pages. For a file on a disk, older kernels write the dirty pages first, although
//! these are about to go. That takes the right to store from every mapping, with a flush for each
//! page (`punch-dirty`). (In kernels, a fault on memory that is being punched waits, for speed. In
//! the model the fault may come between any two steps.)
//!
//! Source: mm/madvise.c:madvise_remove; mm/shmem.c:shmem_fallocate, shmem_undo_range;
//! fs/ext4/inode.c:ext4_punch_hole; mm/truncate.c:truncate_pagecache_range (5.10 to 7.3).

use crate::addr::{MmId, ObjectId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::truncate::{Cows, truncate_inode_pages, unmap_mapping_range};
use crate::kernel::writeback::write_file_pages;
use crate::policy::PunchDirty;
use crate::site::Site;
use std::ops::Range;

/// Punches holes into the files that `mm` maps in `range`. Returns whether the mappings cover the
/// range without a gap. `mmap_lock` is not held while the file system works.
pub fn remove(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<bool, Errno> {
    let (mut rest, mut covered) = (range, true);
    while !rest.is_empty() {
        env.lock(Lock::MmapRead(mm));
        let found = env.step(Site::MadviseRemove, |w, at| {
            w.mmap_assert_locked(at, mm);
            let vma = w.mms[mm.index()].vmas_in(rest).next()?;
            let first = vma.index(vma.range.start);
            let pages = first..first + vma.range.pages();
            Some((vma.range, vma.shared_file()?, (vma.on_disk, vma.is_locked()), pages))
        });
        env.unlock(Lock::MmapRead(mm));
        let Some((part, file, (on_disk, locked), pages)) = found else { break };
        if locked {
            return Err(Errno::Einval);
        }
        covered &= part.start == rest.start;
        punch_hole(env, file, on_disk, pages);
        rest.start = part.end;
    }
    Ok(covered && rest.is_empty())
}

fn punch_hole(env: &mut impl Env, file: ObjectId, on_disk: bool, pages: Range<u64>) {
    if on_disk && env.policies().punch_dirty == PunchDirty::Written {
        write_file_pages(env, file, pages.clone());
    }
    env.lock(Lock::Inode(file));
    if on_disk {
        env.lock(Lock::InvalidateWrite(file));
    }
    // A file on a disk has nothing behind its end.
    let end = match on_disk {
        true => env.step(Site::TruncateInodePages, |w, _| w.objects.size(file)),
        false => pages.end,
    };
    let pages = pages.start..pages.end.min(end);
    if !pages.is_empty() {
        unmap_mapping_range(env, file, pages.clone(), Cows::Stay);
        truncate_inode_pages(env, file, pages);
    }
    if on_disk {
        env.unlock(Lock::InvalidateWrite(file));
    }
    env.unlock(Lock::Inode(file));
}
