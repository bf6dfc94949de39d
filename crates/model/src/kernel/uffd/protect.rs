//! `UFFDIO_WRITEPROTECT`: userfaultfd's protection of pages from stores.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::protect::{To, change_protection_alone};
use crate::machine::world::Ghost;
use crate::policy::UffdRanges;
use crate::site::Site;

/// Write-protects the pages of `range`, or ends their protection and wakes the accesses that wait.
/// A mapping that is not watched ends the call, but the pages before it are changed.
///
/// Source: mm/userfaultfd.c:mwriteprotect_range, uffd_wp_range;
/// fs/userfaultfd.c:userfaultfd_writeprotect (5.10 to 7.3).
pub fn write_protect(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    on: bool,
) -> Result<(), Errno> {
    env.lock(Lock::MmapRead(mm));
    env.step(Site::MwriteprotectRange, |w, at| match on {
        true => w.ghost.protecting(at.thread, mm, range),
        false => w.ghost.let_go(mm, range),
    });
    let protected = each_mapping(env, mm, range, on);
    env.step(Site::MwriteprotectRange, |w, at| w.ghost.protected(at.thread, protected.is_ok()));
    env.unlock(Lock::MmapRead(mm));
    if !on && protected.is_ok() {
        env.step(Site::WakeUserfault, |w, _| w.mms[mm.index()].uffd.wake(range));
    }
    protected
}

fn each_mapping(env: &mut impl Env, mm: MmId, range: PageRange, on: bool) -> Result<(), Errno> {
    let one = env.policies().uffd_ranges == UffdRanges::OneMapping;
    let (mut rest, mut found) = (range, Err(Errno::Enoent));
    while let Some((pages, watched)) = env.step(Site::MwriteprotectRange, |w, at| {
        w.mmap_assert_locked(at, mm);
        let vma = w.mms[mm.index()].vmas_in(rest).next().filter(|_| !rest.is_empty())?;
        Some((vma.range, vma.uffd.write_protect))
    }) {
        if !watched || one && pages != range {
            return Err(Errno::Enoent);
        }
        change_protection_alone(env, mm, pages, if on { To::UffdWp } else { To::NotUffdWp });
        (found, rest.start) = (Ok(()), pages.end);
    }
    found
}
