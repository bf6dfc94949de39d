//! Whoever has the userfaultfd reads of an access that waits, and answers.

use super::protect::write_protect;
use crate::addr::{MmId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::fault::anon::zero_page_pte;
use crate::kernel::fault::new_page::{allocate_zeroed, map_new_page, new_pte};
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_lock::{lock_vma_under_rcu, per_vma};
use crate::machine::mm::Waiting;
use crate::machine::world::{At, Mode, World};
use crate::program::Prot;
use crate::pte::{Marker, Pte};
use crate::site::Site;
use crate::userfaultfd::Answer;
use crate::wait::{Ended, Wait};

/// Answers the next access that waits; if none does, one is waited for.
///
/// Source: fs/userfaultfd.c:userfaultfd_ctx_read (5.10 to 7.3).
pub fn answer(env: &mut impl Env, mm: MmId, answer: Answer) -> Result<Ended<()>, Errno> {
    let next = env.step(Site::UserfaultfdRead, |w, _| w.mms[mm.index()].uffd.read());
    let Some(Waiting { page, missing, .. }) = next else {
        return Ok(Ended::Blocked(Wait::UffdEvent(mm), ()));
    };
    if !missing {
        env.record(Site::UserfaultfdRead, EventKind::Told { page, pages: 1 }, None);
    }
    match answer {
        _ if !missing => write_protect(env, mm, PageRange::one(page), false)?,
        Answer::Unprotect => return Err(Errno::Enoent),
        Answer::ZeroPage => fill(env, mm, page, None)?,
        Answer::Copy => {
            let frame = env.step(Site::MfillAtomic, |w, at| allocate_zeroed(w, at, page));
            fill(env, mm, page, Some(frame.ok_or(Errno::Enomem)?))?;
        }
    }
    Ok(Ended::Done)
}

/// Maps the zero page, or this frame, where nothing is yet.
///
/// Source: mm/userfaultfd.c:mfill_atomic, mfill_atomic_pte_zeropage, mfill_atomic_install_pte (6.12, 7.2; __mcopy_atomic in 5.10 and
/// 6.1), uffd_mfill_lock (6.9 and later: the mapping's lock).
fn fill(env: &mut impl Env, mm: MmId, page: Vpn, frame: Option<Pfn>) -> Result<(), Errno> {
    let lock = lock_vma_or_mmap(env, mm, page);
    env.step(Site::MfillAtomic, |w, at| {
        w.prepare_anon_vma(at, mm, page);
        pte_alloc(w, at, mm, page, 1);
    });
    let filled = pte_offset_map_lock(env, Site::MfillAtomic, mm, page, |w, at| {
        install(w, at, mm, page, frame)
    });
    if filled.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    env.unlock(lock);
    if filled != Some(true) {
        if let Some(frame) = frame {
            env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
        }
        return Err(Errno::Eexist);
    }
    env.step(Site::WakeUserfault, |w, _| w.mms[mm.index()].uffd.wake(PageRange::one(page)));
    Ok(())
}

/// Takes the mapping's lock, if it has an `anon_vma`, or `mmap_lock`, to give it one.
///
/// Source: mm/userfaultfd.c:uffd_lock_vma, find_vma_and_prepare_anon (6.12, 7.2).
fn lock_vma_or_mmap(env: &mut impl Env, mm: MmId, page: Vpn) -> Lock {
    let (own, all) = (Lock::VmaOf(mm, page), Lock::MmapRead(mm));
    if per_vma(env) && lock_vma_under_rcu(env, mm, page) {
        let enough = env.step(Site::MfillAtomic, |w, _| {
            w.mms[mm.index()].vma(page).is_some_and(|vma| vma.anon_vma.is_some())
        });
        if enough {
            return own;
        }
        env.unlock(own);
    }
    env.lock(all);
    all
}

fn install<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, frame: Option<Pfn>) -> bool {
    // A copy takes a marker's place, writable; the zero page does not (pte_none_mostly, pte_none).
    let free = match w.pte(mm, page) {
        Pte::None => true,
        Pte::Marker(Marker::UffdWp) => frame.is_some(),
        _ => false,
    };
    let Some(vma) = w.mms[mm.index()].vma(page).copied().filter(|_| free) else { return false };
    let pte = match frame {
        None => Pte::Present(zero_page_pte(&w.policies)),
        Some(frame) => {
            map_new_page(w, at, mm, page, frame);
            Pte::Present(new_pte(w, frame, vma.prot == Prot::ReadWrite, true))
        }
    };
    w.set_pte(at, mm, page, pte);
    true
}
