//! `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE`, `UFFDIO_POISON`: they map something where
//! nothing is mapped yet, and wake the accesses that wait for it.

use crate::addr::{MmId, ObjectId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::alloc::with_frames;
use crate::kernel::fault::anon::zero_page_pte;
use crate::kernel::fault::new_page::{allocate_zeroed, map_new_page, new_pte, zeroed};
use crate::kernel::fault::shmem::shmem_swapin;
use crate::kernel::lru::folio_add_new;
use crate::kernel::mlock_batch::folio_add_rmap;
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::{lock_vma_under_rcu, per_vma};
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{UffdFeatures, UffdShared};
use crate::program::Prot;
use crate::pte::{Marker, Pte};
use crate::site::Site;
use crate::userfaultfd::Fill;

/// Fills the pages of `range`, which must lie in one watched mapping. A page where something is
/// mapped ends the call, but the pages before it are filled.
///
/// Source: mm/userfaultfd.c:__mcopy_atomic (5.10, 6.1), mfill_atomic (6.12, 7.2).
pub fn fill(env: &mut impl Env, mm: MmId, range: PageRange, how: Fill) -> Result<(), Errno> {
    let has = match how {
        Fill::ZeroPage | Fill::Copy => true,
        Fill::Continue => env.policies().uffd_shared != UffdShared::Missing,
        Fill::Poison => env.policies().uffd_features == UffdFeatures::Asynchronous,
    };
    if !has {
        return Err(Errno::Einval);
    }
    let lock = lock_vma_or_mmap(env, mm, range.start);
    let (mut done, mut filled) = (PageRange { start: range.start, end: range.start }, Ok(()));
    for page in range.iter() {
        filled = fill_page(env, mm, (page, range), how);
        if filled.is_err() {
            break;
        }
        done.end = page.add(1);
    }
    env.unlock(lock);
    env.step(Site::WakeUserfault, |w, _| w.mms[mm.index()].uffd.wake(done));
    filled
}

/// Takes the mapping's lock, or `mmap_lock` if the mapping needs an `anon_vma` or its lock is not
/// available.
///
/// Source: mm/userfaultfd.c:uffd_mfill_lock, uffd_lock_vma, find_vma_and_prepare_anon (6.12, 7.2).
pub(super) fn lock_vma_or_mmap(env: &mut impl Env, mm: MmId, page: Vpn) -> Lock {
    let (own, all) = (Lock::VmaOf(mm, page), Lock::MmapRead(mm));
    if per_vma(env) && lock_vma_under_rcu(env, mm, page) {
        let enough = env.step(Site::MfillAtomic, |w, _| {
            let enough = |vma: &Vma| vma.shared || vma.anon_vma.is_some();
            w.mms[mm.index()].vma(page).is_some_and(enough)
        });
        if enough {
            return own;
        }
        env.unlock(own);
    }
    env.lock(all);
    all
}

/// Fills one page of `range`: private memory with a page of its own, a shared mapping with a page
/// of the file.
///
/// Source: mm/userfaultfd.c:mfill_atomic_pte (6.12), mfill_atomic_pte_copy,
/// mfill_atomic_pte_zeropage (7.2).
fn fill_page(
    env: &mut impl Env,
    mm: MmId,
    (page, range): (Vpn, PageRange),
    how: Fill,
) -> Result<(), Errno> {
    env.step(Site::MfillAtomic, |w, at| prepare(w, at, mm, (page, range), how))?;
    let vma = env.step(Site::MfillAtomic, |w, _| w.mms[mm.index()].vma(page).copied());
    let vma = vma.ok_or(Errno::EnoentUnwatched)?;
    match (how, vma.file) {
        (Fill::Poison, _) => install(env, mm, page, |w, _| match w.pte(mm, page) {
            Pte::None => Some(Pte::Marker(Marker::Poisoned)),
            _ => None,
        }),
        (Fill::Continue, Some(file)) => map_file_page(env, mm, (page, &vma), file),
        (Fill::Continue, None) => Err(Errno::Einval),
        (_, Some(file)) if vma.shared => add_file_page(env, mm, (page, &vma), file),
        (Fill::ZeroPage, _) => install(env, mm, page, |w, _| match w.pte(mm, page) {
            Pte::None => Some(Pte::Present(zero_page_pte(&w.policies))),
            _ => None,
        }),
        (Fill::Copy, _) => {
            let frame = with_frames(env, Site::MfillAtomic, zeroed(mm, page), |w, at, door| {
                allocate_zeroed(w, at, page, &door)
            });
            let frame = frame.ok_or(Errno::Enomem)?;
            let writable = vma.prot == Prot::ReadWrite;
            let filled = install(env, mm, page, |w, at| {
                may_replace(w.pte(mm, page)).then(|| {
                    map_new_page(w, at, mm, page, frame);
                    Pte::Present(new_pte(w, frame, writable, true))
                })
            });
            if filled.is_err() {
                env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
            }
            filled
        }
    }
}

/// Checks that one watched mapping has all of `range` and may be filled in this way. Then makes the
/// `anon_vma` and the table that the page needs.
///
/// Source: mm/userfaultfd.c:validate_dst_vma, mfill_file_over_size (6.12, 7.2); find_dst_vma (5.10,
/// 6.1).
fn prepare<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    (page, range): (Vpn, PageRange),
    how: Fill,
) -> Result<(), Errno> {
    let found = w.mms[mm.index()].vma(page).copied();
    let vma = found.filter(|vma| vma.range.intersect(range) == range && vma.uffd.armed());
    let vma = vma.ok_or(Errno::EnoentUnwatched)?;
    if vma.on_disk || how == Fill::Continue && vma.is_anonymous() {
        return Err(Errno::Einval);
    }
    if vma.file.is_some_and(|file| vma.index(page) >= w.objects.size(file)) {
        return Err(Errno::Efault);
    }
    if !vma.shared && vma.anon_vma.is_none() {
        w.prepare_anon_vma(at, mm, page);
    }
    pte_alloc(w, at, mm, page, 1).ok_or(Errno::Enomem)
}

/// Adds a new page to the file and maps it.
///
/// Source: mm/shmem.c:shmem_mfill_atomic_pte (5.10, 6.1, 6.12), shmem_mfill_filemap_add (7.2).
fn add_file_page(
    env: &mut impl Env,
    mm: MmId,
    (page, vma): (Vpn, &Vma),
    file: ObjectId,
) -> Result<(), Errno> {
    let index = vma.index(page);
    let frame = with_frames(env, Site::MfillAtomic, zeroed(mm, page), |w, at, door| {
        allocate_zeroed(w, at, page, &door)
    });
    let frame = frame.ok_or(Errno::Enomem)?;
    env.lock(Lock::Folio(frame));
    let added = env.step(Site::MfillAtomic, |w, at| {
        let free = !w.objects.has(file, index);
        if free {
            w.get_frame(at, frame);
            w.add_to_page_cache(frame, file, index);
            folio_add_new(w, at.site(Site::FolioAddLru), frame);
        }
        free
    });
    let filled = if added { map_cached(env, mm, (page, vma), frame) } else { Err(Errno::Eexist) };
    env.unlock(Lock::Folio(frame));
    if filled.is_err() {
        env.step(Site::FolioPut, |w, at| {
            if added {
                w.remove_from_page_cache(at, frame);
            }
            w.put_frame(at, frame);
        });
    }
    filled
}

/// Maps the page that the file has.
///
/// Source: mm/userfaultfd.c:mcontinue_atomic_pte (6.1), mfill_atomic_pte_continue (6.12, 7.2).
fn map_file_page(
    env: &mut impl Env,
    mm: MmId,
    (page, vma): (Vpn, &Vma),
    file: ObjectId,
) -> Result<(), Errno> {
    let index = vma.index(page);
    shmem_swapin(env, page, (file, index)).ok_or(Errno::Enomem)?;
    let found = env.step(Site::MfillAtomic, |w, at| {
        let found = w.objects.page(file, index);
        found.into_iter().for_each(|frame| w.get_frame(at, frame));
        found
    });
    let frame = found.ok_or(Errno::Efault)?;
    env.lock(Lock::Folio(frame));
    let there = env.step(Site::MfillAtomic, |w, _| w.objects.page(file, index) == Some(frame));
    let filled = if there { map_cached(env, mm, (page, vma), frame) } else { Err(Errno::Efault) };
    env.unlock(Lock::Folio(frame));
    if filled.is_err() {
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
    filled
}

/// Maps the file's page, which is locked and has a reference for the mapping. The entry is writable
/// if stores go to the file. An entry that grants no store is dirty all the same, in a private
/// mapping as well. On older kernels the page is dirty instead (`uffd-shared`).
///
/// Source: mm/userfaultfd.c:mfill_atomic_install_pte (6.1 to 7.2);
/// mm/shmem.c:shmem_mfill_atomic_pte (5.10: the page is dirty, not the entry, where no store is
/// allowed).
fn map_cached(
    env: &mut impl Env,
    mm: MmId,
    (page, vma): (Vpn, &Vma),
    frame: Pfn,
) -> Result<(), Errno> {
    let writable = vma.prot == Prot::ReadWrite && vma.shared;
    install(env, mm, page, |w, at| {
        may_replace(w.pte(mm, page)).then(|| {
            let dirty = writable || w.policies.uffd_shared == UffdShared::All;
            if !dirty {
                w.frames.set_flags(frame, FrameFlags::DIRTY, true);
            }
            w.frames.update(frame, |f| f.maps += 1);
            folio_add_rmap(w, at, frame, vma.is_locked());
            Pte::Present(new_pte(w, frame, writable, dirty))
        })
    })
}

/// Whether a page may replace the entry: nothing is there, or a marker (`pte_none_mostly`).
const fn may_replace(entry: Pte) -> bool {
    matches!(entry, Pte::None | Pte::Marker(Marker::UffdWp))
}

/// Sets the entry that `entry` returns, with the lock of its table held. If `entry` returns none,
/// something is mapped there, and the call fails.
fn install<E: Env>(
    env: &mut E,
    mm: MmId,
    page: Vpn,
    entry: impl FnOnce(&mut World<E::Mode>, At) -> Option<Pte>,
) -> Result<(), Errno> {
    let set = pte_offset_map_lock(env, Site::MfillAtomic, mm, page, |w, at| {
        let entry = entry(w, at);
        entry.into_iter().for_each(|entry| w.set_pte(at, mm, page, entry));
        entry.is_some()
    });
    if set.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    if set == Some(true) { Ok(()) } else { Err(Errno::Eexist) }
}
