//! A fault on a file's page that is not mapped here, shared memory's among them: the page is the file's, and whoever maps
//! the file finds it there.
//!
//! A read maps what is there of the pages around it as well ([`super::fault_around`]), writable if stores go to the file:
//! a later store does not fault. A store to a private mapping copies the page at once. A store to a shared one marks it
//! dirty; kernels from 5.9 to 5.19 give `mmap_lock` back then and take the fault again, which finds its work done and
//! counts as major.
//!
//! Source: mm/memory.c:do_fault, do_read_fault, do_cow_fault, do_shared_fault, finish_fault, fault_dirty_shared_page (5.10
//! to 7.3).

use super::anon::vmf_anon_prepare;
use super::cow::copy_page;
use super::fault_around::do_fault_around;
use super::new_page::{map_new_page, new_pte};
use super::outcome::{Fault, Served, Unserved};
use super::shmem::shmem_fault;
use crate::addr::{ObjectId, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::event::FaultClass;
use crate::kernel::flush::flush_by_rule;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{DirtiedFault, Mutant, ReadFaultDirty};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;

/// Serves a fault on a page of the file `object` that is not mapped here.
pub fn do_fault(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
) -> Result<Served, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    env.step(Site::DoFault, |w, _| w.mms[mm.index()].table.allocate(page, 1));
    match (write, vma.shared) {
        (false, _) => do_read_fault(env, fault, vma, object),
        (true, false) => do_cow_fault(env, fault, vma, object),
        (true, true) => do_shared_fault(env, fault, vma, object),
    }
}

/// A load: what is around is mapped with it, or else the page alone.
fn do_read_fault(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
) -> Result<Served, Unserved> {
    let served = Served::needed(FaultClass::FileMap);
    if do_fault_around(env, fault, vma, object) {
        return Ok(served);
    }
    let frame =
        shmem_fault(env, fault, object, vma.index(fault.page)).ok_or(Unserved::OutOfMemory)?;
    let mapped = finish_fault(env, fault, |w, at| set_pte(w, at, fault, vma, (fault.page, frame)));
    env.unlock(Lock::Folio(frame));
    if mapped { Ok(served) } else { Ok(raced(env, frame)) }
}

/// A store to a private mapping: the page is copied before it was mapped here, and nobody has to be told. (Kernels set
/// the copy's frame aside before they look for the page; which comes first shows in nothing.)
fn do_cow_fault(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
) -> Result<Served, Unserved> {
    let Fault { mm, page, .. } = fault;
    vmf_anon_prepare(env, fault, vma)?;
    let of_file = shmem_fault(env, fault, object, vma.index(page)).ok_or(Unserved::OutOfMemory)?;
    let copy = env.step(Site::DoCowFault, |w, at| copy_page(w, at, fault, of_file));
    let mapped = copy.is_some_and(|(new, _)| {
        finish_fault(env, fault, |w, at| {
            map_new_page(w, at, mm, page, new);
            let pte = new_pte(w, new, vma.prot == Prot::ReadWrite, true);
            w.set_pte(at, mm, page, Pte::Present(pte));
            w.ghost.copied_from_file(mm, page, new);
        })
    });
    env.unlock(Lock::Folio(of_file));
    env.step(Site::FolioPut, |w, at| {
        w.put_frame(at, of_file);
        if let Some((new, _)) = copy.filter(|_| !mapped) {
            w.put_frame(at, new);
        }
    });
    match copy {
        None => Err(Unserved::OutOfMemory),
        Some(_) if mapped => Ok(Served::needed(FaultClass::CowCopy)),
        Some(_) => Ok(Served::spurious()),
    }
}

/// A store to a shared mapping: the page is mapped, and dirty.
fn do_shared_fault(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
) -> Result<Served, Unserved> {
    let frame =
        shmem_fault(env, fault, object, vma.index(fault.page)).ok_or(Unserved::OutOfMemory)?;
    let mapped = finish_fault(env, fault, |w, at| set_pte(w, at, fault, vma, (fault.page, frame)));
    let dirtied = mapped
        && env.step(Site::FaultDirtySharedPage, |w, _| {
            let clean = !w.frames.flags(frame).has(FrameFlags::DIRTY);
            w.frames.set_flags(frame, FrameFlags::DIRTY, true);
            clean
        });
    env.unlock(Lock::Folio(frame));
    if !mapped {
        return Ok(raced(env, frame));
    }
    let major = dirtied && env.policies().dirtied_fault == DirtiedFault::Major;
    Ok(Served { major, ..Served::needed(FaultClass::SharedDirty) })
}

/// Maps the page by `map`, unless somebody was faster or the table is gone; whether it was mapped.
fn finish_fault<E: Env>(
    env: &mut E,
    fault: Fault,
    map: impl FnOnce(&mut World<E::Mode>, At),
) -> bool {
    let Fault { mm, page, .. } = fault;
    let mapped = pte_offset_map_lock(env, Site::FinishFault, mm, page, |w, at| {
        let free = w.pte(mm, page).is_none();
        if free {
            map(w, at);
        }
        free
    });
    if mapped.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    mapped == Some(true)
}

/// Somebody was faster: the reference to the page is given back.
fn raced(env: &mut impl Env, frame: Pfn) -> Served {
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    Served::spurious()
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

/// Maps the file's frame, to which the caller has a reference, as the mapping allows: what is private is copied before it
/// is stored to.
///
/// Source: mm/memory.c:alloc_set_pte (5.10), do_set_pte (6.1), set_pte_range (6.12, 7.3: what is dirty is dirty in the
/// PTE as well, if that is writable).
pub(super) fn set_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    fault: Fault,
    vma: &Vma,
    (page, frame): (Vpn, Pfn),
) {
    w.frames.update(frame, |f| f.maps += 1);
    let shared = vma.shared || w.policies.mutant == Mutant::PrivateWritable;
    let writable = vma.prot == Prot::ReadWrite && shared;
    let was_dirty = w.policies.read_fault_dirty == ReadFaultDirty::AsFolio
        && w.frames.flags(frame).has(FrameFlags::DIRTY);
    let dirty = fault.write || writable && was_dirty;
    let pte = new_pte(w, frame, writable, dirty);
    w.set_pte(at, fault.mm, page, Pte::Present(pte));
}
