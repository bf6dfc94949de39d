//! `mmap` and `munmap`.

use crate::addr::{MmId, ObjectId, PageRange, Vpn};
use crate::call::Extent;
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::deferred::{Before, flush_owed_at, flush_owed_before};
use crate::kernel::gather::Gather;
use crate::kernel::huge::split::split_outer_borders;
use crate::kernel::lru::lru_add_drain;
use crate::kernel::mlock::munlock_vmas;
use crate::kernel::swap_cache::free_swap_and_cache;
use crate::kernel::vma_lock::{new_vma_start_write, vmas_start_write};
use crate::kernel::zap::{Zap, free_pgtables, zap_range};
use crate::machine::vma::Vma;
use crate::machine::world::{Ghost, Mode, World};
use crate::policy::ZapDrain;
use crate::program::{Backing, Prot};
use crate::site::Site;

/// Maps an area where nothing is mapped yet (`MAP_FIXED_NOREPLACE`). Shared memory gets an object
/// of its own, and does not merge with its neighbours.
pub fn mmap(env: &mut impl Env, mm: MmId, area: Extent, prot: Prot) -> Result<(), Errno> {
    let range = area.pages;
    if prot == Prot::ReadWrite {
        flush_owed_before(env, Before::Map);
    }
    env.lock(Lock::MmapWrite(mm));
    flush_owed_at(env, mm, range);
    new_vma_start_write(env, mm, |_| Some(vma_of(area, prot, ObjectId::default())));
    let result = env.step(Site::MmapRegion, |w, at| {
        w.vma_assert_write_locked(at, mm, range);
        let user = PageRange { start: Vpn(0), end: Vpn(w.arch.user_pages()) };
        if range.is_empty() || range.intersect(user) != range {
            return Err(Errno::Einval);
        }
        if w.mms[mm.index()].vmas_in(range).next().is_some() {
            return Err(Errno::Eexist);
        }
        let object = object_for(w, mm, area.backing)?;
        w.insert_vma(mm, vma_of(area, prot, object));
        w.ghost.let_go(mm, range);
        Ok(())
    });
    env.unlock(Lock::MmapWrite(mm));
    result
}

/// The object to map; none for anonymous memory.
fn object_for<M: Mode>(w: &mut World<M>, mm: MmId, backing: Backing) -> Result<ObjectId, Errno> {
    match backing {
        Backing::Anonymous => Ok(ObjectId::default()),
        Backing::Shared => w.objects.create_shared(mm).ok_or(Errno::Enomem),
        Backing::File(mapping) => {
            let file = w.objects.file(mapping.file).ok_or(Errno::Ebadf)?;
            w.objects.link(file, mm);
            Ok(file)
        }
    }
}

/// The mapping of `area`, backed by `object`.
fn vma_of(area: Extent, prot: Prot, object: ObjectId) -> Vma {
    let range = area.pages;
    match area.backing {
        Backing::Anonymous => Vma::new(range, prot),
        Backing::Shared => Vma::shared(range, prot, object),
        Backing::File(file) => Vma::of_file(range, prot, object, file),
    }
}

/// Unmaps `range`; parts that are not mapped do not matter. Once the mappings are detached, others
/// may fault again.
///
/// Source: mm/mmap.c:__do_munmap (5.10), mm/vma.c:vms_complete_munmap_vmas (6.18):
/// mmap_write_downgrade.
pub fn munmap(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    if range.is_empty() {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapWrite(mm));
    vmas_start_write(env, mm, range);
    split_outer_borders(env, mm, range);
    munlock_vmas(env, mm, range);
    let detached = detach(env, mm, range);
    if detached.vmas.is_empty() {
        env.unlock(Lock::MmapWrite(mm));
        return Ok(());
    }
    env.downgrade(mm);
    unmap_region(env, Gather::open_munmap, mm, &detached);
    env.unlock(Lock::MmapRead(mm));
    Ok(())
}

/// Mappings that were taken out of an address space, and their neighbours that stay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Detached {
    vmas: Vec<PageRange>,
    between: (Option<Vpn>, Option<Vpn>),
    /// The roots of the objects whose pages were mapped there. Their locks keep walks from frames
    /// out.
    roots: Vec<ObjectId>,
}

impl Learnt for Detached {
    fn nothing() -> Detached {
        Detached { vmas: Vec::new(), between: (None, None), roots: Vec::new() }
    }
}

/// Takes the mappings of `range` out of the address space, so that no new fault finds them. They
/// are write-locked.
///
/// Source: mm/mmap.c:detach_vmas_to_be_unmapped (5.10), mm/vma.c:vms_gather_munmap_vmas (6.18).
pub fn detach(env: &mut impl Env, mm: MmId, range: PageRange) -> Detached {
    env.step(Site::MmapRegion, |w, at| {
        w.vma_assert_write_locked(at, mm, range);
        let space = &mut w.mms[mm.index()];
        let vmas: Vec<PageRange> = space.vmas_in(range).map(|vma| vma.range).collect();
        let objects = space.detach(range);
        w.ghost.let_go(mm, range);
        let space = &w.mms[mm.index()];
        let between = space.neighbours(range);
        w.link_mappings(mm);
        let mut roots: Vec<ObjectId> = objects.iter().map(|id| w.objects.root(*id)).collect();
        roots.sort_unstable();
        roots.dedup();
        Detached { vmas, between, roots }
    })
}

/// Removes the page tables of detached mappings: first translations, then tables, then one flush,
/// then the pages. Holding `mmap_lock` for reading is enough. `open` opens the gather; it depends
/// on whether the address space lives on.
///
/// Source: mm/mmap.c:unmap_region (5.10, 6.1), mm/vma.c:unmap_region (6.12), vms_clear_ptes (6.18).
pub fn unmap_region<E: Env>(
    env: &mut E,
    open: impl FnOnce(&mut E, MmId) -> Gather,
    mm: MmId,
    detached: &Detached,
) {
    let Detached { vmas, between, roots } = detached;
    let (Some(first), Some(last)) = (vmas.first(), vmas.last()) else { return };
    let whole = PageRange { start: first.start, end: last.end };
    if env.policies().zap_drain == ZapDrain::Yes {
        lru_add_drain(env);
    }
    let mut gather = open(env, mm);
    for vma in vmas {
        zap_range(env, &mut gather, *vma, Zap::Mapping);
    }
    let evicted = unlink_anon_vmas(env, mm, whole, roots);
    free_pgtables(env, &mut gather, vmas, *between);
    gather.finish(env);
    // Shared memory with pages is gone. The release of its pages empties the CPU's LRU batches
    // first (mm/shmem.c:shmem_undo_range, mm/swap.c:__pagevec_release in 5.10,
    // __folio_batch_release from 6.1 to 7.3).
    if evicted {
        lru_add_drain(env);
    }
}

/// Hides the removed mappings in `range` from walks that start at frames. Returns whether shared
/// memory with pages went with them.
///
/// Source: mm/rmap.c:unlink_anon_vmas (5.10 to 7.3).
fn unlink_anon_vmas(env: &mut impl Env, mm: MmId, range: PageRange, roots: &[ObjectId]) -> bool {
    if roots.is_empty() {
        return false;
    }
    roots.iter().for_each(|root| env.lock(Lock::RmapWrite(*root)));
    let evicted = env.step(Site::UnlinkAnonVmas, |w, at| {
        let (evicted, swapped) = w.unlink_anon_vmas(at, mm, range);
        swapped.into_iter().for_each(|slot| free_swap_and_cache(w, at, slot));
        evicted
    });
    roots.iter().for_each(|root| env.unlock(Lock::RmapWrite(*root)));
    evicted
}
