//! A fault on shared memory: the page is an object's, and whoever maps the object finds it there.
//!
//! A read maps what is there of the pages around it as well, writable if the mapping is: a later store does not
//! fault. A store marks the page dirty; kernels from 5.9 to 5.19 give `mmap_lock` back then and take the fault again,
//! which finds its work done and counts as major.
//!
//! Source: mm/memory.c:do_read_fault, do_shared_fault, do_fault_around, fault_dirty_shared_page (5.10 to 7.3),
//! mm/shmem.c:shmem_fault, mm/filemap.c:filemap_map_pages.

use super::new_page::new_pte;
use super::outcome::{Fault, Served, Unserved};
use crate::addr::{ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::event::{EventKind, FaultClass};
use crate::kernel::flush::flush_by_rule;
use crate::kernel::lru::folio_add_new;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{DirtiedFault, Mutant, ReadFaultDirty};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use smallvec::SmallVec;

/// Pages that one read fault looks at (`fault_around_bytes`, 64 KiB).
const FAULT_AROUND: u64 = 16;

/// Pages around a fault, with their frames.
type Around = SmallVec<[(Vpn, Pfn); FAULT_AROUND as usize]>;

/// Serves a fault on a page of `object` that is not mapped here.
pub fn do_fault(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
) -> Result<Served, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    env.step(Site::DoFault, |w, _| w.mms[mm.index()].table.allocate(page, 1));
    if !write && do_fault_around(env, fault, vma, object) {
        return Ok(Served::needed(FaultClass::FileMap));
    }
    // 1. The page itself, from the object or new, and locked.
    let index = vma.index(page);
    let frame = shmem_get_folio(env, fault, object, index).ok_or(Unserved::OutOfMemory)?;
    env.lock(Lock::Folio(frame));
    // 2. Map it, unless somebody was faster.
    let mapped = pte_offset_map_lock(env, Site::FinishFault, mm, page, |w, at| {
        let free = w.pte(mm, page).is_none();
        if free {
            set_pte(w, at, fault, vma, (page, frame));
        }
        free
    });
    if mapped.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    let mapped = mapped == Some(true);
    // 3. A store makes it dirty.
    let dirtied = write
        && mapped
        && env.step(Site::FaultDirtySharedPage, |w, _| {
            let clean = !w.frames.flags(frame).has(FrameFlags::DIRTY);
            w.frames.set_flags(frame, FrameFlags::DIRTY, true);
            clean
        });
    env.unlock(Lock::Folio(frame));
    if !mapped {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
        return Ok(Served::spurious());
    }
    let class = if write { FaultClass::SharedDirty } else { FaultClass::FileMap };
    let major = dirtied && env.policies().dirtied_fault == DirtiedFault::Major;
    Ok(Served { major, ..Served::needed(class) })
}

/// Maps what the object has of the pages around; whether that serves the fault. Who has a folio locked is passed over.
fn do_fault_around(env: &mut impl Env, fault: Fault, vma: &Vma, object: ObjectId) -> bool {
    let (mm, window) = (fault.mm, window(env.arch(), vma, fault.page));
    let found = pte_offset_map_lock(env, Site::FilemapMapPages, mm, fault.page, |w, _| {
        let there = |page: Vpn| Some((page, w.objects.page(object, vma.index(page))?));
        window.iter().filter_map(there).collect::<Around>()
    });
    let Some(around) = found else { return false };
    for (page, frame) in around {
        if !env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
            continue;
        }
        env.step(Site::FilemapMapPages, |w, at| {
            if w.pte(mm, page).is_none() {
                w.get_frame(frame);
                set_pte(w, at, fault, vma, (page, frame));
            }
        });
        env.unlock(Lock::Folio(frame));
    }
    let served = env.step(Site::FilemapMapPages, |w, _| !w.pte(mm, fault.page).is_none());
    pte_unmap_unlock(env, mm, fault.page);
    served
}

/// The pages that are looked at: sixteen, from a border of sixteen on, as far as mapping and page table reach.
fn window(arch: &Arch, vma: &Vma, page: Vpn) -> PageRange {
    let table = arch.table_pages(1);
    let first = Vpn(page.0 / table * table);
    let start = Vpn(page.0 / FAULT_AROUND * FAULT_AROUND).max(first).max(vma.range.start);
    let end = start.add(FAULT_AROUND).min(first.add(table)).min(vma.range.end);
    PageRange { start, end }
}

/// The object's page, with a reference: what is there, else a new one of zeros, unless somebody adds one first.
///
/// Source: mm/shmem.c:shmem_getpage_gfp (5.10), shmem_get_folio_gfp (6.1 to 7.3).
fn shmem_get_folio(env: &mut impl Env, fault: Fault, object: ObjectId, index: u64) -> Option<Pfn> {
    let found = env.step(Site::ShmemGetFolio, |w, _| {
        let found = w.objects.page(object, index)?;
        w.get_frame(found);
        Some(found)
    });
    if found.is_some() {
        return found;
    }
    env.step(Site::ShmemGetFolio, |w, at| {
        let there = w.objects.page(object, index);
        if let Some(found) = there.filter(|_| w.policies.mutant != Mutant::CacheUnchecked) {
            w.get_frame(found);
            return Some(found);
        }
        let new = w.allocate_frame(FrameFlags::SWAP_BACKED.and(FrameFlags::ZERO_FILLED))?;
        w.ghost.zeroed(new);
        w.emit(at, EventKind::Zero { page: fault.page, frame: new });
        w.frames.update(new, |f| (f.object, f.index) = (object, index));
        w.get_frame(new);
        if let Some(old) = w.objects.set_page(object, index, new) {
            w.put_frame(at, old);
        }
        folio_add_new(w, at.site(Site::FolioAddLru), new);
        Some(new)
    })
}

/// A store to a page that writeback made read-only ([`crate::kernel::writeback`]): it is dirty from now on.
///
/// Source: mm/memory.c:wp_page_shared, wp_page_reuse, fault_dirty_shared_page (6.1, 6.12).
pub fn wp_page_shared(env: &mut impl Env, fault: Fault, old: PresentPte) -> Served {
    let Fault { mm, page, .. } = fault;
    let granted = pte_offset_map_lock(env, Site::WpPageShared, mm, page, |w, at| {
        let same = w.pte(mm, page) == Pte::Present(old);
        if same {
            w.get_frame(old.pfn);
            let stored = old
                .with(PteFlags::WRITABLE, true)
                .with(PteFlags::ACCESSED, true)
                .with(PteFlags::DIRTY, true);
            w.set_pte(at, mm, page, Pte::Present(stored));
        }
        same
    });
    if granted == Some(true) {
        flush_by_rule(env, Site::WpPageShared, mm, page, env.arch().flushes.granted);
    }
    if granted.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    if granted != Some(true) {
        return Served::spurious();
    }
    env.lock(Lock::Folio(old.pfn));
    env.step(Site::FaultDirtySharedPage, |w, _| {
        w.frames.set_flags(old.pfn, FrameFlags::DIRTY, true);
    });
    env.unlock(Lock::Folio(old.pfn));
    env.step(Site::FolioPut, |w, at| w.put_frame(at, old.pfn));
    Served::needed(FaultClass::SharedDirty)
}

/// Maps the frame, to which the caller has a reference, as the mapping allows.
///
/// Source: mm/memory.c:alloc_set_pte (5.10), do_set_pte (6.1), set_pte_range (6.12, 7.3: what is dirty is dirty in the
/// PTE as well, if that is writable).
fn set_pte<M: Mode>(w: &mut World<M>, at: At, fault: Fault, vma: &Vma, (page, frame): (Vpn, Pfn)) {
    w.frames.update(frame, |f| f.maps += 1);
    let writable = vma.prot == Prot::ReadWrite;
    let was_dirty = w.policies.read_fault_dirty == ReadFaultDirty::AsFolio
        && w.frames.flags(frame).has(FrameFlags::DIRTY);
    let dirty = fault.write || writable && was_dirty;
    let pte = new_pte(w, frame, writable, dirty);
    w.set_pte(at, fault.mm, page, Pte::Present(pte));
}
