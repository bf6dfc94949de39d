//! `fork`: another process gets a copy of the address space. The two share pages until one of them
//! stores.
//!
//! Both sides lose the right to store, and the first store copies ([`super::fault::cow`]). The
//! parent's CPUs may hold the old right in their TLBs, so every fork ends with one flush of the
//! whole address space.
//!
//! Source: kernel/fork.c:dup_mm, dup_mmap (5.10 to 6.12; mm/mmap.c:dup_mmap in 6.18 and 7.3),
//! mm/memory.c:copy_page_range.

use crate::addr::{MmId, ObjectId, PageRange, Vpn};
use crate::env::{Env, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::alloc::{Door, Request, with_frames};
use crate::kernel::exit::unmap_all;
use crate::kernel::fault::new_page::{map_new_page, new_pte};
use crate::kernel::flush::{FlushRequest, flush_tlb_mm_range};
use crate::kernel::gup::needs_cow_for_dma;
use crate::kernel::huge::fork::copy_huge_pmd;
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::vma_start_write;
use crate::kernel::zap::by_table;
use crate::machine::frames::FrameFlags;
use crate::machine::mm::Life;
use crate::machine::vma::{Locking, Vma};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{ForkAccessed, ForkBatch, ForkDirty, ForkShared, Mutant};
use crate::program::Prot;
use crate::pte::{Marker, MigrationPte, MigrationRight, PresentPte, Pte, PteFlags, SwapPte};
use crate::site::Site;
use crate::userfaultfd::Watch;
use crate::verdict::{Judgement, Reason, Verdict};

/// Makes `child`, which no process uses, a copy of `parent`.
pub fn fork(env: &mut impl Env, parent: MmId, child: MmId) -> Result<(), Errno> {
    // 1. Copy the descriptor as it is, with its mark of pending flushes (dup_mm).
    let begun = env.step(Site::DupMm, |w, _| w.begin_copy(parent, child));
    if !begun {
        return Err(Errno::Eagain);
    }
    // 2. Copy each mapping, with both address spaces locked against everybody else.
    env.lock(Lock::MmapWrite(parent));
    env.lock(Lock::MmapWrite(child));
    let (vmas, pins) = env.step(Site::DupMmap, |w, at| {
        w.mmap_assert_locked(at, parent);
        let root = |vma: &Vma| vma.anon_vma.map(|object| w.objects.root(object));
        let vmas = w.mms[parent.index()].vmas().iter().map(|vma| (*vma, root(vma)));
        (vmas.collect::<Vec<(Vma, Option<ObjectId>)>>(), w.pins.any())
    });
    let copied = vmas.iter().all(|(vma, root)| dup_vma(env, (parent, child), vma, *root, pins));
    if !copied {
        unmap_all(env, child);
    }
    env.unlock(Lock::MmapWrite(child));
    // 3. Flush the right to store that the parent's CPUs may hold in their TLBs.
    if env.policies().mutant != Mutant::ForkUnflushed {
        flush_tlb_mm_range(env, FlushRequest::whole(Site::DupMmap, parent));
    }
    env.step(Site::DupMmap, |w, at| w.ghost.forked(at.thread));
    env.unlock(Lock::MmapWrite(parent));
    if !copied {
        env.step(Site::DupMm, |w, at| w.retire(at, child));
        return Err(Errno::Enomem);
    }
    // 4. Let the child run (wake_up_new_task).
    env.step(Site::DupMm, |w, _| w.mms[child.index()].life = Life::Running);
    Ok(())
}

/// Copies one mapping. A mapping without pages of its own needs no copy of its PTEs: the child's
/// faults find zeros as well. `pins`: the scenario has pins. Returns false if there is no memory
/// left.
///
/// Source: mm/memory.c:vma_needs_copy (5.19 and later), copy_page_range; mm/rmap.c:anon_vma_fork.
fn dup_vma(
    env: &mut impl Env,
    (parent, child): (MmId, MmId),
    vma: &Vma,
    root: Option<ObjectId>,
    pins: bool,
) -> bool {
    if env.policies().mutant != Mutant::ForkVmaUnlocked {
        vma_start_write(env, parent, vma.range);
    }
    match root {
        None => {
            env.step(Site::DupMmap, |w, at| fork_vma(w, at, (parent, child), vma));
            let copies = vma.shared && env.policies().fork_shared == ForkShared::Copy;
            !(copies || vma.maybe_guard) || copy_page_range(env, (parent, child), vma, false)
        }
        Some(root) => {
            env.lock(Lock::RmapWrite(root));
            env.step(Site::AnonVmaFork, |w, at| fork_vma(w, at, (parent, child), vma));
            env.unlock(Lock::RmapWrite(root));
            if !pins {
                return copy_page_range(env, (parent, child), vma, false);
            }
            // A pin without a lock checks this sequence count last (57efa1fe5957).
            env.step(Site::CopyPageRange, |w, _| w.mms[parent.index()].write_protect_seq += 1);
            let copied = copy_page_range(env, (parent, child), vma, true);
            env.step(Site::CopyPageRange, |w, _| w.mms[parent.index()].write_protect_seq += 1);
            copied
        }
    }
}

/// Creates the child's mapping: a copy of the parent's, with an object of its own below the
/// parent's.
///
/// Source: mm/rmap.c:anon_vma_fork (5.10 to 7.3). The model does not reuse the objects of processes
/// that are gone; only the number of objects shows that.
fn fork_vma<M: Mode>(w: &mut World<M>, at: At, (parent, child): (MmId, MmId), vma: &Vma) {
    let above = vma.anon_vma;
    let own = above.and_then(|above| w.objects.create(child, Some(above)));
    if above.is_some() && own.is_none() {
        w.impossible(at, "there are more anon_vmas than the model has numbers for");
    }
    w.mmap_assert_write_locked(at, child);
    // A file is the same object. The child finds its pages there on first access (vma_needs_copy).
    if let Some(object) = vma.file {
        w.objects.link_after(object, child, parent);
    }
    // The reader of the userfaultfd does not hear of forks (UFFD_FEATURE_EVENT_FORK), so the child
    // is not watched. The child's mapping locks nothing either.
    let copy = Vma { anon_vma: own, forked: own.is_some(), uffd: Watch::default(), ..*vma };
    let copy = Vma { locking: Locking::None, ..copy };
    w.mms[child.index()].add(copy);
}

/// Gives the child tables where the parent has them, on every level, and copies their PTEs one by
/// one under both page-table locks. Returns false if there is no memory left.
///
/// Source: mm/memory.c:copy_p4d_range, copy_pud_range, copy_pmd_range, copy_pte_range (5.10 to
/// 7.3).
fn copy_page_range(
    env: &mut impl Env,
    (parent, child): (MmId, MmId),
    vma: &Vma,
    pins: bool,
) -> bool {
    let (arch, mut copied) = (*env.arch(), true);
    for part in by_table(&arch, vma.range) {
        if copy_huge_pmd(env, (parent, child), part.start) {
            continue;
        }
        let there = env.step(Site::CopyPteRange, |w, at| {
            let lowest = w.mms[parent.index()].table.lowest_table(part.start);
            pte_alloc(w, at, child, part.start, lowest)?;
            Some(lowest == 1)
        });
        match there {
            Some(true) => {}
            Some(false) => continue,
            None => return false,
        }
        let lock = Lock::page_table(&arch, child, part.start);
        env.lock(lock);
        let locked = pte_offset_map_lock(env, Site::CopyPteRange, parent, part.start, |_, _| ());
        if locked.is_some() {
            copied = copy_ptes(env, (parent, child), vma, part, pins);
            pte_unmap_unlock(env, parent, part.start);
        }
        env.unlock(lock);
        if !copied {
            break;
        }
    }
    copied
}

/// Copies the PTEs of one table. The check whether a page is pinned comes first. Somebody may pin
/// the page between that check and the moment when the right to store ends; then the pin has to
/// notice.
fn copy_ptes(
    env: &mut impl Env,
    (parent, child): (MmId, MmId),
    vma: &Vma,
    part: PageRange,
    pins: bool,
) -> bool {
    if vma.shared {
        copy_shared_ptes(env, (parent, child), vma, part);
        return true;
    }
    for page in part.iter() {
        let pinned = pins
            && env.step(Site::CopyPresentPage, |w, _| {
                let pte = w.pte(parent, page).present();
                pte.is_some_and(|pte| needs_cow_for_dma(w, parent, pte))
            });
        if !pinned {
            env.step(Site::CopyPteRange, |w, at| copy_pte(w, at, parent, child, page));
            continue;
        }
        let request = Request::page(child, page, FrameFlags::SWAP_BACKED);
        let copied = with_frames(env, Site::CopyPresentPage, request, |w, at, door| {
            copy_present_page(w, at, (parent, child), (vma, page), &door)
        });
        if !copied {
            return false;
        }
    }
    true
}

/// Gives the child its own page at once; the parent's stays as it is. (The model does not give the
/// locks back to allocate the page. Nobody could use that: others wait for other locks of the fork,
/// or for the count of forks.)
///
/// Source: mm/memory.c:copy_present_page (5.10 to 7.3).
fn copy_present_page<M: Mode>(
    w: &mut World<M>,
    at: At,
    (parent, child): (MmId, MmId),
    (vma, page): (&Vma, Vpn),
    door: &Door,
) -> bool {
    let Some(pte) = w.pte(parent, page).present() else { return true };
    let Some(new) = door.take(w, at) else { return false };
    let zeros = w.frames.flags(pte.pfn).has(FrameFlags::ZERO_FILLED);
    w.frames.set_flags(new, FrameFlags::ZERO_FILLED, zeros);
    w.ghost.copied(parent, page, pte.pfn, new);
    let verdict = Verdict::new(Judgement::Needed, Reason::OldPageShared);
    w.emit_judged(at, EventKind::Copy { page, from: pte.pfn, to: new }, verdict);
    map_new_page(w, at, child, page, new);
    let copy = new_pte(w, new, vma.prot == Prot::ReadWrite, true);
    w.set_pte(at, child, page, Pte::Present(copy));
    w.ghost.forked_page(at.thread, parent, child, page, None);
    true
}

fn copy_pte<M: Mode>(w: &mut World<M>, at: At, parent: MmId, child: MmId, page: Vpn) {
    let pte = w.pte(parent, page);
    let copy = match pte {
        // Other markers belong to the parent's userfaultfd, which does not watch the child.
        Pte::Marker(marker) if marker.is_guard() => Pte::Marker(Marker::Guard),
        Pte::None | Pte::Table(_) | Pte::Marker(_) => return,
        Pte::Present(pte) => Pte::Present(copy_present_pte(w, at, parent, page, pte)),
        Pte::Swap(swap) => copy_nonpresent_pte(w, at, parent, page, swap),
        Pte::Migration(migration) => {
            let readable = MigrationPte { right: MigrationRight::Read, ..migration };
            if migration != readable {
                w.set_pte(at, parent, page, Pte::Migration(readable));
            }
            Pte::Migration(readable)
        }
    };
    let copy = match w.policies.mutant {
        Mutant::ForkKeepsUffdWp => copy,
        _ => copy.without_uffd_wp(),
    };
    w.set_pte(at, child, page, copy);
    w.ghost.forked_page(at.thread, parent, child, page, w.frame_behind(copy));
}

/// Copies the PTEs of shared memory in one table. Both sides keep the right to store.
fn copy_shared_ptes(env: &mut impl Env, (parent, child): (MmId, MmId), vma: &Vma, part: PageRange) {
    let mut left = part;
    while !left.is_empty() {
        let copied = env
            .step(Site::CopyPteRange, |w, at| copy_shared_run(w, at, (parent, child), vma, left));
        // The checker returns 0 to a thread that it has left behind.
        left.start = left.start.add(copied.max(1));
    }
}

/// Copies a run of PTEs that map consecutive pages of one large folio. All of them are writable in
/// the child if one of them is in the parent. All are soft-dirty in the child if the first one is.
/// (A writable PTE of a file's page means that the file system was told of a store, and it is told
/// of whole folios.) Returns the number of pages.
///
/// Source: mm/memory.c:copy_one_pte (5.10), copy_present_ptes (6.12: any_writable, 7.2:
/// FPB_MERGE_WRITE).
fn copy_shared_run<M: Mode>(
    w: &mut World<M>,
    at: At,
    (parent, child): (MmId, MmId),
    vma: &Vma,
    left: PageRange,
) -> u64 {
    let rights = PteFlags::WRITABLE.and(PteFlags::SOFT_DIRTY);
    let ignored = if vma.soft_dirty { rights } else { PteFlags::WRITABLE };
    let count = match w.policies.fork_batch {
        ForkBatch::Run => w.run_of(parent, left, ignored),
        ForkBatch::Each => 1,
    };
    let run = PageRange::new(left.start, count);
    let first = w.pte(parent, run.start).present();
    let mut ptes = run.iter().filter_map(|page| w.pte(parent, page).present());
    let writable = ptes.any(|pte| pte.writable());
    let soft_dirty = first.is_some_and(|pte| pte.soft_dirty());
    for page in run.iter() {
        copy_shared_pte(w, at, (parent, child), page, (writable, soft_dirty));
    }
    count
}

/// Copies one PTE of shared memory. `writable` and `soft_dirty` are the child's.
///
/// Source: mm/memory.c:copy_one_pte (5.10), __copy_present_ptes (6.12): pte_mkclean if VM_SHARED.
fn copy_shared_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    (parent, child): (MmId, MmId),
    page: Vpn,
    (writable, soft_dirty): (bool, bool),
) {
    let pte = match w.pte(parent, page) {
        Pte::Present(pte) => pte,
        Pte::Marker(marker) if marker.is_guard() => {
            return w.set_pte(at, child, page, Pte::Marker(Marker::Guard));
        }
        _ => return,
    };
    w.get_and_map(at, pte.pfn, |_| ());
    if w.policies.mutant == Mutant::ForkCleansParent {
        w.set_pte(at, parent, page, Pte::Present(pte.without(PteFlags::DIRTY)));
    }
    let copy = match w.policies.fork_dirty {
        ForkDirty::Clear => pte.without(PteFlags::DIRTY),
        ForkDirty::Keep => pte,
    };
    let rights = PteFlags::UFFD_WP.and(PteFlags::WRITABLE).and(PteFlags::SOFT_DIRTY);
    let copy = copy.without(rights);
    let copy = copy.with(PteFlags::WRITABLE, writable).with(PteFlags::SOFT_DIRTY, soft_dirty);
    w.set_pte(at, child, page, Pte::Present(aged(w.policies.fork_accessed, copy)));
}

/// The child's PTE with the accessed bit that the policy gives it.
pub(super) fn aged(rule: ForkAccessed, pte: PresentPte) -> PresentPte {
    match rule {
        ForkAccessed::Clear => pte.without(PteFlags::ACCESSED),
        ForkAccessed::Keep => pte,
    }
}

/// Maps the page once more, for the child. From now on neither side may store to it in place.
///
/// Source: mm/memory.c:copy_present_pte (5.10 to 6.6), copy_present_ptes (6.8 and later):
/// pte_mkold, always.
fn copy_present_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    parent: MmId,
    page: Vpn,
    pte: PresentPte,
) -> PresentPte {
    if !pte.special() {
        let keeps = w.policies.mutant == Mutant::ForkExclusive;
        w.get_and_map(at, pte.pfn, |flags| {
            flags.set(FrameFlags::EXCLUSIVE, keeps && flags.has(FrameFlags::EXCLUSIVE));
            flags.set(FrameFlags::CLAIMED, true);
        });
    }
    let protected = pte.without(PteFlags::WRITABLE);
    if pte.writable() && w.policies.mutant != Mutant::ForkUnprotected {
        w.set_pte(at, parent, page, Pte::Present(protected));
    }
    aged(w.policies.fork_accessed, protected)
}

/// Counts one more user of the swap slot. It belongs to neither side alone any more.
///
/// Source: mm/memory.c:copy_nonpresent_pte (5.10 to 7.3).
fn copy_nonpresent_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    parent: MmId,
    page: Vpn,
    swap: SwapPte,
) -> Pte {
    w.swap.count(swap.slot, 1);
    let shared = Pte::Swap(SwapPte { exclusive: false, ..swap });
    if swap.exclusive {
        w.set_pte(at, parent, page, shared);
    }
    shared
}
