//! Fault-around: a read fault on a file maps what the page cache has of the pages around it as well.
//!
//! How far it looks is `fault_around_bytes` (debugfs), 64 KiB unless somebody changed it. What is mapped so is young where
//! the mapping's protection has the accessed bit, as x86's has, and writable if stores go to the file.
//!
//! Source: mm/memory.c:do_fault_around, should_fault_around; mm/filemap.c:filemap_map_pages (5.10 to 7.3).

use super::file::set_pte;
use super::outcome::Fault;
use crate::addr::{ObjectId, PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Lock};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::machine::vma::Vma;
use crate::pte::Pte;
use crate::site::Site;
use smallvec::SmallVec;

/// Pages that one read fault looks at (`fault_around_bytes`, 64 KiB).
const FAULT_AROUND: u64 = 16;

/// Pages around a fault, with their frames.
type Around = SmallVec<[(Vpn, Pfn); FAULT_AROUND as usize]>;

/// Maps what the object has of the pages around; whether that serves the fault. Who has a folio locked is passed over, and so is one that reclaim wants:
/// its mark (`PG_reclaim`) is that of readahead as well.
pub fn do_fault_around(env: &mut impl Env, fault: Fault, vma: &Vma, object: ObjectId) -> bool {
    if vma.uffd.disables_fault_around() {
        return false;
    }
    let (mm, window) = (fault.mm, window(env.arch(), vma, fault.page));
    let found = pte_offset_map_lock(env, Site::FilemapMapPages, mm, fault.page, |w, _| {
        let there = |page: Vpn| Some((page, w.objects.page(object, vma.index(page))?));
        let passes = |(_, frame): &(Vpn, Pfn)| !w.frames.is_wanted(*frame);
        window.iter().filter_map(there).filter(passes).collect::<Around>()
    });
    let Some(around) = found else { return false };
    for (page, frame) in around {
        if !env.try_lock(Site::FolioTryLock, Lock::Folio(frame)) {
            continue;
        }
        env.step(Site::FilemapMapPages, |w, at| {
            let index = vma.index(page);
            let there =
                index < w.objects.size(object) && w.objects.page(object, index) == Some(frame);
            if w.pte(mm, page).is_none() && there {
                w.get_frame(frame);
                set_pte(w, at, (fault, Pte::None), vma, (page, frame));
            }
        });
        env.unlock(Lock::Folio(frame));
    }
    let served = env.step(Site::FilemapMapPages, |w, _| !w.pte(mm, fault.page).is_none());
    pte_unmap_unlock(env, mm, fault.page);
    served
}

/// The pages that are looked at: sixteen, from a border of sixteen on, as far as mapping and page table reach. The border
/// is one of addresses, wherever in the file it lies.
fn window(arch: &Arch, vma: &Vma, page: Vpn) -> PageRange {
    let table = arch.table_pages(1);
    let first = Vpn(page.0 / table * table);
    let start = Vpn(page.0 / FAULT_AROUND * FAULT_AROUND).max(first).max(vma.range.start);
    let end = start.add(FAULT_AROUND).min(first.add(table)).min(vma.range.end);
    PageRange { start, end }
}
