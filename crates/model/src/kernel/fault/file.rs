//! A fault on a page of a file that is not mapped here. Shared memory is a file, too. The page
//! belongs to the file, and every mapping of the file finds it there.
//!
//! A read also maps pages around it that are in the page cache ([`super::fault_around`]). They are
//! writable if stores go to the file and its file system need not know of them: a later store then
//! does not fault. A store to a private mapping copies the page at once. A store to a shared
//! mapping marks the page dirty, and the file system is asked first if it wants to be
//! ([`page_mkwrite`]). Newer kernels map as much of a large folio as they can (`map-folio`). At the
//! end, a thread that dirties many pages is throttled ([`super::dirty`]).
//!
//! Source: mm/memory.c:do_fault, do_read_fault, do_cow_fault, do_shared_fault, finish_fault,
//! do_page_mkwrite (5.10 to 7.3).

use super::anon::vmf_anon_prepare;
use super::cow::{copied, copy_page};
use super::dirty::fault_dirty_shared_page;
use super::fault_around::do_fault_around;
use super::filemap::filemap_fault;
use super::new_page::{map_new_page, new_pte};
use super::outcome::{Fault, Served, Unserved};
use super::shmem::shmem_fault;
use crate::addr::{ObjectId, PageRange, Pfn, Vpn};
use crate::env::{Env, Lock};
use crate::event::FaultClass;
use crate::kernel::alloc::with_frames;
use crate::kernel::deferred::{Before, flush_owed_before};
use crate::kernel::flush::{FlushRequest, flush_by_rule};
use crate::kernel::mlock_batch::folio_add_rmap;
use crate::kernel::table::{pte_alloc_tells, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::uffd::fault::{note_first_store, store_begins};
use crate::kernel::uffd::holes_are_clean;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{EndAround, MapFolio, Mutant, Prefault, ReadFaultDirty};
use crate::program::Prot;
use crate::pte::{PresentPte, Pte, PteFlags};
use crate::site::Site;
use crate::verdict::{Judgement, Reason, Verdict};

/// Serves a fault on a page of a file that is not mapped here. `seen` is empty, or the marker of a
/// page that userfaultfd write-protects. In the second case the new PTE is write-protected as well,
/// and a store to the page faults again.
pub fn do_fault(
    env: &mut impl Env,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    file: ObjectId,
) -> Result<Served, Unserved> {
    let Fault { mm, page, write, .. } = fault;
    let asks = vma.on_disk && env.policies().end_around == EndAround::Passed;
    let new_table = env
        .step(Site::DoFault, |w, at| Some(pte_alloc_tells(w, at, mm, page, 1)? && asks && !write));
    let new_table = new_table.ok_or(Unserved::OutOfMemory)?;
    match (write, vma.shared) {
        (false, _) => do_read_fault(env, (fault, seen), vma, file, new_table),
        (true, false) => do_cow_fault(env, (fault, seen), vma, file),
        (true, true) => do_shared_fault(env, (fault, seen), vma, file),
    }
}

/// A page of a file, and the folio that it belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePage {
    /// The page's frame.
    pub frame: Pfn,
    /// The folio's first frame.
    pub folio: Pfn,
}

impl FilePage {
    /// The page in this frame, with its folio.
    pub fn of<M: Mode>(w: &World<M>, frame: Pfn) -> FilePage {
        FilePage { frame, folio: w.frames.folio(frame).0 }
    }

    /// Whether the file still has the page there, in the same folio. Callers ask once they have
    /// locked the folio.
    pub fn is_at<M: Mode>(self, w: &World<M>, (file, index): (ObjectId, u64)) -> bool {
        w.objects.page(file, index) == Some(self.frame) && FilePage::of(w, self.frame) == self
    }
}

/// Returns the file's page, with a reference and locked, and whether it was read while the fault
/// held its locks.
fn page_of(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    file: ObjectId,
) -> Result<(FilePage, bool), Unserved> {
    let index = vma.index(fault.page);
    match vma.on_disk {
        true => filemap_fault(env, fault, file, index),
        false => shmem_fault(env, fault, vma.uffd, (file, index)),
    }
}

/// Looks for the file's page of this index and takes a reference to it. `Err` if the file ends
/// before it.
pub(super) fn page_in<M: Mode>(
    w: &mut World<M>,
    at: At,
    file: ObjectId,
    index: u64,
) -> Result<Option<FilePage>, ()> {
    if index >= w.objects.size(file) {
        return Err(());
    }
    let found = w.objects.page(file, index);
    found.into_iter().for_each(|frame| w.get_frame(at, frame));
    Ok(found.map(|frame| FilePage::of(w, frame)))
}

/// Serves a load: maps the pages around it, or else the page alone. `new_table` says that the fault
/// created the page table, and that this matters (`end-around`).
fn do_read_fault(
    env: &mut impl Env,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    file: ObjectId,
    new_table: bool,
) -> Result<Served, Unserved> {
    let served = Served::needed(FaultClass::FileMap);
    if do_fault_around(env, fault, vma, file, new_table) {
        return Ok(served);
    }
    let (page, major) = page_of(env, fault, vma, file)?;
    let mapped = finish_file_fault(env, (fault, seen), vma, page.frame);
    env.unlock(Lock::Folio(page.folio));
    if mapped { Ok(Served { major, ..served }) } else { Ok(raced(env, page.frame)) }
}

/// Serves a store to a private mapping: copies the page before it is mapped here, so nothing has to
/// be flushed. (Kernels allocate the copy's frame before they look for the page. The order shows in
/// no event.)
fn do_cow_fault(
    env: &mut impl Env,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    file: ObjectId,
) -> Result<Served, Unserved> {
    let Fault { mm, page, .. } = fault;
    vmf_anon_prepare(env, fault, vma)?;
    let (FilePage { frame: of_file, folio }, major) = page_of(env, fault, vma, file)?;
    let copy = with_frames(env, Site::DoCowFault, copied(fault), |w, at, door| {
        copy_page(w, at, fault, of_file, &door)
    });
    let mapped = copy.is_some_and(|(new, _)| {
        finish_fault(env, (fault, seen), |w, at| {
            map_new_page(w, at, mm, page, new);
            note_first_store(w, mm, vma);
            let pte = as_seen(new_pte(w, new, vma.prot == Prot::ReadWrite, true), seen.uffd_wp());
            w.set_pte(at, mm, page, Pte::Present(pte));
            w.ghost.copied_from_file(mm, page, new);
        })
    });
    env.unlock(Lock::Folio(folio));
    env.step(Site::FolioPut, |w, at| {
        w.put_frame(at, of_file);
        if let Some((new, _)) = copy.filter(|_| !mapped) {
            w.put_frame(at, new);
        }
    });
    match copy {
        None => Err(Unserved::OutOfMemory),
        Some(_) if mapped => Ok(Served { major, ..Served::needed(FaultClass::CowCopy) }),
        Some(_) => Ok(Served::spurious()),
    }
}

/// Serves a store to a shared mapping: maps the page and marks it dirty.
fn do_shared_fault(
    env: &mut impl Env,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    file: ObjectId,
) -> Result<Served, Unserved> {
    let (page, read) = page_of(env, fault, vma, file)?;
    if vma.on_disk {
        env.unlock(Lock::Folio(page.folio));
        if !page_mkwrite(env, page, (file, vma.index(fault.page))) {
            return Ok(raced(env, page.frame));
        }
    }
    if !finish_file_fault(env, (fault, seen), vma, page.frame) {
        env.unlock(Lock::Folio(page.folio));
        return Ok(raced(env, page.frame));
    }
    let served = fault_dirty_shared_page(env, fault, page, vma.on_disk);
    Ok(Served { major: served.major || read, ..served })
}

/// Notifies the file system of a store to come, with the page unlocked. The file system marks the
/// folio dirty and leaves it locked. Returns false, with the folio unlocked, if the page no longer
/// belongs to the file.
///
/// Source: mm/memory.c:do_page_mkwrite; fs/ext4/inode.c:ext4_page_mkwrite;
/// fs/buffer.c:block_page_mkwrite (5.10 to 7.3).
fn page_mkwrite(env: &mut impl Env, page: FilePage, place: (ObjectId, u64)) -> bool {
    env.lock(Lock::Folio(page.folio));
    let is_there = env.step(Site::DoPageMkwrite, |w, _| {
        let is_there = page.is_at(w, place);
        if is_there {
            w.dirty_folio(page.frame);
        }
        is_there
    });
    if !is_there {
        env.unlock(Lock::Folio(page.folio));
    }
    is_there
}

/// Maps the file's page. Maps all of its folio if it can, if nothing else is mapped there, and if
/// userfaultfd does not watch the mapping. Returns whether the page was mapped. (Kernels give the
/// table's lock back before they map the page alone instead.)
///
/// Source: mm/memory.c:finish_fault (6.12: the page alone; 7.2).
fn finish_file_fault(
    env: &mut impl Env,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    frame: Pfn,
) -> bool {
    finish_fault(env, (fault, seen), |w, at| {
        let (file, _) = w.frames.place(frame);
        let whole = whole_folio(w, vma, fault.page, frame).filter(|pages| {
            let last = vma.index(pages.end) - 1;
            let free = |page| w.pte(fault.mm, page).is_none();
            last < w.objects.size(file) && !vma.uffd.armed() && pages.iter().all(free)
        });
        let head = frame.0 - whole.map_or(0, |pages| fault.page.since(pages.start) as u32);
        let pages = whole.unwrap_or(PageRange::one(fault.page));
        for (page, frame) in pages.iter().zip((head..).map(Pfn)) {
            if page != fault.page {
                w.get_frame(at, frame);
            }
            set_pte(w, at, (fault, seen), vma, (page, frame));
        }
    })
}

/// Returns where all of the large folio would be mapped, with `frame` at `page`. `None` if kernels
/// do not map folios whole, or if the folio does not lie in the mapping and in one page table.
///
/// Source: mm/filemap.c:filemap_map_folio_range, mm/internal.h:folio_within_vma;
/// mm/memory.c:finish_fault (7.2).
pub(super) fn whole_folio<M: Mode>(
    w: &World<M>,
    vma: &Vma,
    page: Vpn,
    frame: Pfn,
) -> Option<PageRange> {
    let (head, order) = w.frames.folio(frame);
    if order == 0 || w.policies.map_folio == MapFolio::Window {
        return None;
    }
    let start = Vpn(page.0.checked_sub(u64::from(frame.0 - head.0))?);
    let pages = PageRange::new(start, 1 << order);
    let table = w.arch.table_pages(1);
    let one_table = pages.start.0 / table == (pages.end.0 - 1) / table;
    (pages.intersect(vma.range) == pages && one_table).then_some(pages)
}

/// Maps the page by `map`, unless another thread was faster or the table is gone. Returns whether
/// the page was mapped.
fn finish_fault<E: Env>(
    env: &mut E,
    (fault, seen): (Fault, Pte),
    map: impl FnOnce(&mut World<E::Mode>, At),
) -> bool {
    let Fault { mm, page, .. } = fault;
    let mapped = pte_offset_map_lock(env, Site::FinishFault, mm, page, |w, at| {
        let same = w.pte(mm, page) == seen;
        if same {
            map(w, at);
        }
        same
    });
    if mapped.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    mapped == Some(true)
}

/// Ends a fault that was slower than another thread: gives the reference to the page back.
fn raced(env: &mut impl Env, frame: Pfn) -> Served {
    env.step(Site::FolioPut, |w, at| w.put_frame(at, frame));
    Served::spurious()
}

/// Serves a store to a shared page that is mapped read-only. Either the page is clean and its file
/// system has to know of the store, or writeback took the write permission
/// ([`crate::kernel::writeback`]). The store makes the page dirty.
///
/// Source: mm/memory.c:wp_page_shared, finish_mkwrite_fault, wp_page_reuse, fault_dirty_shared_page
/// (5.10 to 7.3).
pub fn wp_page_shared(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Result<Served, Unserved> {
    let goes_on = store_begins(env, fault, vma, old)?;
    let Some(old) = goes_on else { return Ok(Served::spurious()) };
    flush_owed_before(env, Before::WriteFault);
    let reused = match vma.tells_file_system() {
        true => told_and_reused(env, fault, vma, old),
        false => {
            // Files in memory have folios of one page.
            let page = FilePage { frame: old.pfn, folio: old.pfn };
            let reused = wp_page_reuse(env, fault, old);
            reused.then(|| env.lock(Lock::Folio(page.folio))).map(|()| page)
        }
    };
    let Some(page) = reused else { return Ok(Served::spurious()) };
    let served = fault_dirty_shared_page(env, fault, page, vma.tells_file_system());
    env.step(Site::FolioPut, |w, at| w.put_frame(at, old.pfn));
    let verdict = Verdict::new(Judgement::Needed, Reason::StoreNoted);
    Ok(Served { verdict, ..served })
}

/// Notifies the file system, then makes the PTE writable. Returns the page if both succeeded. It is
/// then locked and has one more reference.
fn told_and_reused(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    old: PresentPte,
) -> Option<FilePage> {
    let Fault { mm, page, .. } = fault;
    let found = pte_offset_map_lock(env, Site::WpPageShared, mm, page, |w, at| {
        let same = w.pte(mm, page) == Pte::Present(old);
        same.then(|| {
            w.get_frame(at, old.pfn);
            FilePage::of(w, old.pfn)
        })
    });
    if found.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    let of_file = found.flatten()?;
    let told = page_mkwrite(env, of_file, (vma.file.unwrap_or_default(), vma.index(page)));
    let reused = told && wp_page_reuse(env, fault, old);
    if told && !reused {
        env.unlock(Lock::Folio(of_file.folio));
    }
    // Our own reference. If the PTE was changed, `wp_page_reuse` took another one.
    env.step(Site::FolioPut, |w, at| w.put_frame(at, old.pfn));
    reused.then_some(of_file)
}

/// Makes the PTE writable and takes a reference to the page, if the PTE is still `old`.
fn wp_page_reuse(env: &mut impl Env, fault: Fault, old: PresentPte) -> bool {
    let Fault { mm, page, .. } = fault;
    let granted = pte_offset_map_lock(env, Site::WpPageShared, mm, page, |w, at| {
        let same = w.pte(mm, page) == Pte::Present(old);
        if same {
            w.get_frame(at, old.pfn);
            let stored = old
                .with(PteFlags::WRITABLE, true)
                .with(PteFlags::ACCESSED, true)
                .with(PteFlags::DIRTY, true)
                .with(PteFlags::SOFT_DIRTY, w.config.soft_dirty);
            w.set_pte(at, mm, page, Pte::Present(stored));
        }
        same
    });
    if granted == Some(true) {
        let request = FlushRequest::page(Site::WpPageShared, mm, page).granting(true);
        flush_by_rule(env, request, env.arch().flushes.granted);
    }
    if granted.is_some() {
        pte_unmap_unlock(env, mm, page);
    }
    granted == Some(true)
}

/// Maps the file's frame as the mapping allows. The caller has a reference to it. A private page is
/// read-only, because a store copies it first. A shared page is read-only if its first store must
/// be noted.
///
/// Source: mm/memory.c:alloc_set_pte (5.10), do_set_pte (6.1), set_pte_range (6.12; 7.3: the
/// writable PTE of a dirty page is dirty).
pub(super) fn set_pte<M: Mode>(
    w: &mut World<M>,
    at: At,
    (fault, seen): (Fault, Pte),
    vma: &Vma,
    (page, frame): (Vpn, Pfn),
) {
    w.frames.update(frame, |f| f.maps += 1);
    folio_add_rmap(w, at, frame, vma.is_locked());
    let shared = vma.shared || w.policies.mutant == Mutant::PrivateWritable;
    let told = fault.write || !vma.wants_writenotify();
    let writable = vma.prot == Prot::ReadWrite && shared && told;
    let was_dirty = w.policies.read_fault_dirty == ReadFaultDirty::AsFolio
        && w.frames.flags(frame).has(FrameFlags::DIRTY);
    let dirty = fault.write || writable && was_dirty;
    let old = page != fault.page && w.arch.prefault_old && w.policies.prefault == Prefault::AsArch;
    let pte = new_pte(w, frame, writable, dirty);
    let protected = if fault.write {
        note_first_store(w, fault.mm, vma);
        seen.uffd_wp()
    } else {
        seen.uffd_wp() || holes_are_clean(w, fault.mm, vma)
    };
    let pte = as_seen(pte.with(PteFlags::ACCESSED, pte.accessed() && !old), protected);
    w.set_pte(at, fault.mm, page, Pte::Present(pte));
}

/// The entry, write-protected by userfaultfd if it is to be `protected`.
///
/// Source: mm/memory.c:do_set_pte (6.1), set_pte_range (6.12, 7.2): vmf_orig_pte_uffd_wp.
const fn as_seen(pte: PresentPte, protected: bool) -> PresentPte {
    if protected { pte.uffd_protected() } else { pte }
}
