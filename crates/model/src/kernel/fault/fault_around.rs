//! Fault-around: a read fault on a file also maps nearby pages that are in the page cache.
//!
//! `fault_around_bytes` (debugfs) says how far it looks, by default 64 KiB. Newer kernels map all
//! pages of a large folio that they find there, also those outside that window (`map-folio`),
//! unless the file ends with the folio. The PTEs of nearby pages are young where the mapping's
//! protection includes the accessed bit, as on x86. They are writable if stores go to the file and
//! a first store need not be noted.
//!
//! The page table is linked where the kernel asks whether the first folio that it finds can be
//! mapped by an entry of the level above. Some kernels do not ask that of a folio with which its
//! file ends. They then have no table and map nothing (`end-around`), and the fault goes on with
//! its own page.
//!
//! Source: mm/memory.c:do_fault_around, should_fault_around; mm/filemap.c:filemap_map_pages,
//! next_uptodate_folio (5.10 to 7.3), filemap_map_folio_range (6.12, 7.2), filemap_map_pmd
//! (6.12.118, 7.3).

use super::file::{FilePage, set_pte, whole_folio};
use super::outcome::Fault;
use crate::addr::{ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::vma::Vma;
use crate::machine::world::{Mode, World};
use crate::pte::Pte;
use crate::site::Site;
use smallvec::SmallVec;

/// Pages that one read fault looks at (`fault_around_bytes`, 64 KiB).
const FAULT_AROUND: u64 = 16;

/// What a fault finds around it: for each folio, the first page that it looks at.
type Around = SmallVec<[(Vpn, FilePage); FAULT_AROUND as usize]>;

/// Maps the object's pages around the fault. Returns whether that serves the fault. It skips folios
/// that are locked and folios that reclaim wants: reclaim's mark (`PG_reclaim`) is also the mark of
/// readahead. `new_table` says that the fault found no page table, and that this matters
/// (`end-around`).
pub fn do_fault_around(
    env: &mut impl Env,
    fault: Fault,
    vma: &Vma,
    object: ObjectId,
    new_table: bool,
) -> bool {
    if vma.uffd.disables_fault_around() {
        return false;
    }
    let (mm, window) = (fault.mm, window(env.arch(), vma, fault.page));
    let found = pte_offset_map_lock(env, Site::FilemapMapPages, mm, fault.page, |w, _| {
        let there = |page: Vpn| {
            let frame = w.objects.page(object, vma.index(page))?;
            Some((page, FilePage::of(w, frame)))
        };
        let passes = |(_, page): &(Vpn, FilePage)| !w.frames.is_wanted(page.folio);
        let mut around: Around = window.iter().filter_map(there).filter(passes).collect();
        around.dedup_by_key(|(_, page)| page.folio);
        around
    });
    let Some(around) = found else { return false };
    let mut linked = !new_table;
    for (first, of_file) in around {
        if !env.try_lock(Site::FolioTryLock, Lock::Folio(of_file.folio)) {
            continue;
        }
        linked = env.step(Site::FilemapMapPages, |w, at| {
            if !linked && ends_file(w, object, of_file) {
                return false;
            }
            let pages = mapped_around(w, vma, (first, of_file.frame), object, window.end);
            for page in pages.iter() {
                let frame = w.objects.page(object, vma.index(page));
                if let Some(frame) = frame
                    && w.frames.folio(frame).0 == of_file.folio
                    && w.pte(mm, page).is_none()
                {
                    w.get_frame(at, frame);
                    set_pte(w, at, (fault, Pte::None), vma, (page, frame));
                }
            }
            true
        });
        env.unlock(Lock::Folio(of_file.folio));
        if !linked {
            break;
        }
    }
    let served = env.step(Site::FilemapMapPages, |w, _| !w.pte(mm, fault.page).is_none());
    pte_unmap_unlock(env, mm, fault.page);
    served
}

/// Whether the file ends with this folio, the first one that was found. The page table is not
/// linked then.
fn ends_file<M: Mode>(w: &World<M>, object: ObjectId, found: FilePage) -> bool {
    w.folio_indices(found.frame).end >= w.objects.size(object)
}

/// The pages of a folio to map: all of them, or those in a window that ends at `end`. `first` is
/// the folio's first page in the window. A folio with which the file ends is not mapped whole,
/// although that would do no harm.
fn mapped_around<M: Mode>(
    w: &World<M>,
    vma: &Vma,
    (first, frame): (Vpn, Pfn),
    object: ObjectId,
    end: Vpn,
) -> PageRange {
    let size = w.objects.size(object);
    if let Some(whole) = whole_folio(w, vma, first, frame)
        && vma.index(whole.end) < size
    {
        return whole;
    }
    let left = w.folio_indices(frame).end.min(size).saturating_sub(vma.index(first));
    PageRange { start: first, end: first.add(left).min(end) }
}

/// The pages to look at: an aligned block of sixteen, as far as the mapping and the page table
/// reach. The block is aligned by address, wherever in the file it lies.
fn window(arch: &Arch, vma: &Vma, page: Vpn) -> PageRange {
    let table = arch.table_pages(1);
    let first = Vpn(page.0 / table * table);
    let start = Vpn(page.0 / FAULT_AROUND * FAULT_AROUND).max(first).max(vma.range.start);
    let end = start.add(FAULT_AROUND).min(first.add(table)).min(vma.range.end);
    PageRange { start, end }
}
