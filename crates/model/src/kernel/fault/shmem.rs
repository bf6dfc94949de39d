//! The page cache of files in memory: tmpfs, and shared memory, which is one without a name.
//!
//! A page that is not there is made, of zeros: nothing has to be waited for, unless userfaultfd is to be asked first, about what is not there or about what is
//! there and not mapped.
//!
//! Source: mm/shmem.c:shmem_fault, shmem_getpage_gfp (5.10), shmem_get_folio_gfp (6.1 to 7.3).

use super::file::{FilePage, page_in};
use super::outcome::{Fault, Unserved};
use crate::addr::{ObjectId, Pfn};
use crate::env::{Env, Lock};
use crate::event::EventKind;
use crate::kernel::lru::folio_add_new;
use crate::kernel::uffd::fault::handle_userfault;
use crate::machine::frames::FrameFlags;
use crate::machine::world::Ghost;
use crate::policy::Mutant;
use crate::site::Site;
use crate::userfaultfd::{Told, Watch};

/// The file's page, with a reference and locked: what is there, else a new one of zeros, unless the file ends before it.
pub fn shmem_fault(
    env: &mut impl Env,
    fault: Fault,
    watch: Watch,
    (object, index): (ObjectId, u64),
) -> Result<FilePage, Unserved> {
    loop {
        let frame = shmem_get_folio(env, fault, watch, (object, index))?;
        env.lock(Lock::Folio(frame));
        let there = env.step(Site::ShmemGetFolio, |w, at| {
            let there = w.objects.page(object, index) == Some(frame);
            let ends = index >= w.objects.size(object);
            if there && ends && w.frames.get(frame).maps == 0 {
                // Nobody else looks for a page that was made behind the end.
                w.objects.remove_page(object, index);
                w.frames.update(frame, |f| (f.object, f.index) = Default::default());
                w.put_frame(at, frame);
            }
            there && !ends
        });
        if there {
            // A file in memory has folios of one page.
            return Ok(FilePage { frame, folio: frame });
        }
        // The file became smaller, or a hole was punched there meanwhile.
        env.unlock(Lock::Folio(frame));
        env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    }
}

/// The page, with a reference: what is there, else a new one, unless somebody adds one first.
fn shmem_get_folio(
    env: &mut impl Env,
    fault: Fault,
    watch: Watch,
    (object, index): (ObjectId, u64),
) -> Result<Pfn, Unserved> {
    let found = env.step(Site::ShmemGetFolio, |w, _| page_in(w, object, index));
    match found {
        Err(()) => return Err(Unserved::NotAllowed),
        Ok(Some(found)) if watch.minor => {
            env.step(Site::FolioPut, |w, at| w.put_frame(at, found.frame));
            return Err(handle_userfault(env, fault, Told::Minor));
        }
        Ok(Some(found)) => return Ok(found.frame),
        Ok(None) if watch.missing => return Err(handle_userfault(env, fault, Told::Missing)),
        Ok(None) => {}
    }
    let made = env.step(Site::ShmemGetFolio, |w, at| {
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
    });
    made.ok_or(Unserved::OutOfMemory)
}
