//! `PAGEMAP_SCAN`: reports the pages that were written since they were protected, and protects them
//! in the same call.
//!
//! A page that userfaultfd does not protect counts as written, whether or not it is there. From 7.3
//! on, such a page counts only where userfaultfd watches stores. Each table in which the call
//! protected a page is flushed, from the first such page to the end of the scan in this table,
//! whatever changed (policy `scan-flush`).
//!
//! Source: fs/proc/task_mmu.c:do_pagemap_scan, pagemap_scan_pmd_entry, pagemap_scan_thp_entry,
//! pagemap_scan_pte_hole (6.12, 7.2).

use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range};
use crate::kernel::huge::split::split_huge_pmd;
use crate::kernel::huge::{invalid, pmd_trans_huge_lock, pmd_unlock};
use crate::kernel::protect::{To, change_protection_alone, protected_hole};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::uffd::holes_are_clean;
use crate::kernel::zap::by_table;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{Mutant, ScanFlush, ScanHoles, ScanUnwatched, UffdAsync, UffdFeatures};
use crate::pte::{MigrationPte, Pte, SwapPte};
use crate::site::Site;
use smallvec::SmallVec;

/// The number of regions that one walk reports: the number of pages in 2 MiB (`PAGEMAP_WALK_SIZE`).
const REGIONS: usize = 512;

/// Scans `range` for pages that were written. `protect`: also protects them (`PM_SCAN_WP_MATCHING`,
/// `PM_SCAN_CHECK_WPASYNC`).
pub fn pagemap_scan(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    protect: bool,
) -> Result<(), Errno> {
    if env.policies().uffd_features != UffdFeatures::Asynchronous {
        return Err(Errno::Enotty);
    }
    let mut rest = range;
    while !rest.is_empty() {
        env.lock(Lock::MmapRead(mm));
        let mut scan = Scan { mm, protect, regions: SmallVec::new(), stopped: None };
        if protect {
            env.step(Site::PagemapScan, |w, at| w.ghost.protecting(at.thread, mm, rest));
        }
        let walked = scan.walk(env, rest);
        if protect {
            env.step(Site::PagemapScan, |w, at| w.ghost.protected(at.thread, walked.is_ok()));
        }
        env.unlock(Lock::MmapRead(mm));
        for region in &scan.regions {
            let told = EventKind::Told { page: region.start, pages: region.pages() as u32 };
            env.record(Site::PagemapScan, told, None);
        }
        walked?;
        // The scan continues where there was no room for another region.
        rest.start = scan.stopped.unwrap_or(rest.end);
    }
    Ok(())
}

/// A walk through page tables, with its findings.
struct Scan {
    mm: MmId,
    protect: bool,
    /// Regions of written pages, in address order.
    regions: SmallVec<[PageRange; 4]>,
    /// The page for which there was no room.
    stopped: Option<Vpn>,
}

/// What the walk finds next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// There is no further mapping.
    Nothing,
    /// A part of a mapping that must not be protected.
    NotAllowed,
    /// A part of a mapping, and whether userfaultfd watches stores there.
    Part(PageRange, bool),
}

impl Learnt for Next {
    fn nothing() -> Next {
        Next::Nothing
    }
}

impl Scan {
    /// Walks mapping by mapping, as long as there is room.
    fn walk(&mut self, env: &mut impl Env, range: PageRange) -> Result<(), Errno> {
        let (arch, mut rest) = (*env.arch(), range);
        loop {
            match env.step(Site::PagemapScan, |w, at| self.next(w, at, rest)) {
                Next::Nothing => return Ok(()),
                Next::NotAllowed => return Err(Errno::Eperm),
                Next::Part(vma, false)
                    if env.policies().scan_unwatched == ScanUnwatched::Nothing =>
                {
                    rest.start = vma.end;
                }
                Next::Part(vma, watched) => {
                    for part in by_table(&arch, vma) {
                        self.table(env, part, watched);
                        if self.stopped.is_some() {
                            return Ok(());
                        }
                    }
                    rest.start = vma.end;
                }
            }
        }
    }

    /// The next part of a mapping in `rest`.
    ///
    /// Source: fs/proc/task_mmu.c:pagemap_scan_test_walk.
    fn next<M: Mode>(&self, w: &mut World<M>, at: At, rest: PageRange) -> Next {
        w.mmap_assert_locked(at, self.mm);
        let space = &w.mms[self.mm.index()];
        let Some(vma) = space.vmas_in(rest).next().filter(|_| !rest.is_empty()) else {
            return Next::Nothing;
        };
        let allowed = vma.uffd.write_protect && space.uffd.features.asynchronous;
        if self.protect && !allowed {
            return Next::NotAllowed;
        }
        Next::Part(vma.range, vma.uffd.write_protect)
    }

    /// Scans one page table, one huge page, or the hole where neither exists.
    fn table(&mut self, env: &mut impl Env, part: PageRange, watched: bool) {
        if self.huge_page(env, part) {
            return;
        }
        let mm = self.mm;
        if pte_offset_map_lock(env, Site::PagemapScan, mm, part.start, |_, _| ()).is_none() {
            let clean = env.policies().uffd_async == UffdAsync::Inverted
                && env.step(Site::PagemapScan, |w, _| is_clean_hole(w, mm, part.start));
            let counts = watched && env.policies().scan_holes == ScanHoles::Written && !clean;
            if counts && self.found(part) > 0 && self.protect {
                change_protection_alone(env, mm, part, To::UffdWp);
            }
            return;
        }
        let (mut protected, mut taken) = (None::<PageRange>, None::<PageRange>);
        for page in part.iter() {
            let written = |w: &World<_>| is_written(w.pte(mm, page)) && !is_clean_hole(w, mm, page);
            if !env.step(Site::PagemapScan, |w, _| written(w)) {
                continue;
            }
            let one = PageRange::one(page);
            if self.found(one) == 0 {
                break;
            }
            if self.protect {
                let takes = env.step(Site::MakeUffdWpPte, |w, at| make_uffd_wp(w, at, mm, page));
                let hull = |range: Option<PageRange>| range.map_or(one, |range| range.hull(one));
                protected = Some(hull(protected));
                taken = if takes { Some(hull(taken)) } else { taken };
            }
        }
        let flushed = match env.policies().scan_flush {
            ScanFlush::Scanned => {
                let end = self.stopped.unwrap_or(part.end);
                protected.map(|pages| PageRange { end, ..pages })
            }
            ScanFlush::Needed => taken,
        };
        if let Some(pages) = flushed
            && env.policies().mutant != Mutant::UffdUnflushed
        {
            let change = if taken.is_some() { Change::Revoked } else { Change::Granted };
            let request = FlushRequest::range(Site::PagemapScan, mm, pages);
            flush_tlb_mm_range(env, request.of(change));
        }
        pte_unmap_unlock(env, mm, part.start);
    }

    /// Scans the huge page there; returns false if there is none. It is found as a whole. If only a
    /// part of it is scanned and has to be protected, it is split into PTEs first, and the result
    /// is false.
    fn huge_page(&mut self, env: &mut impl Env, part: PageRange) -> bool {
        let (mm, site) = (self.mm, Site::PagemapScan);
        let whole = part == env.arch().huge_pages(part.start);
        let looked = pmd_trans_huge_lock(env, site, mm, part.start, |_, _, pmd| {
            is_written(Pte::Present(pmd))
        });
        let Some(written) = looked else { return false };
        let protects = written && self.protect;
        if protects && !whole {
            pmd_unlock(env, mm, part.start);
            split_huge_pmd(env, site, mm, part.start);
            return false;
        }
        if written && self.found(part) > 0 && protects {
            let change = env.step(site, |w, at| protect_huge(w, at, mm, part.start));
            let needed = change == Change::Revoked;
            if needed || env.policies().scan_flush == ScanFlush::Scanned {
                flush_tlb_mm_range(env, FlushRequest::range(site, mm, part).of(change));
            }
        }
        pmd_unlock(env, mm, part.start);
        true
    }

    /// Adds written pages to the findings. Returns for how many of them there was room.
    ///
    /// Source: fs/proc/task_mmu.c:pagemap_scan_output, pagemap_scan_push_range.
    fn found(&mut self, pages: PageRange) -> u64 {
        let full = self.regions.len() == REGIONS;
        match self.regions.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ if full => {
                self.stopped = Some(pages.start);
                return 0;
            }
            _ => self.regions.push(pages),
        }
        pages.pages()
    }
}

impl Learnt for Change {
    fn nothing() -> Change {
        Change::Granted
    }
}

/// Whether the page counts as written: userfaultfd does not protect it.
pub const fn is_written(entry: Pte) -> bool {
    !entry.uffd_wp()
}

/// Whether the page is a hole that counts as not written.
fn is_clean_hole<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> bool {
    let clean = |vma: &Vma| holes_are_clean(w, mm, vma);
    w.pte(mm, page).is_none() && w.mms[mm.index()].vma(page).is_some_and(clean)
}

/// Protects the page of an entry that this call found. Returns whether that took the right to store
/// away. A migration entry keeps its right to store.
///
/// Source: fs/proc/task_mmu.c:make_uffd_wp_pte (6.12, 7.2).
fn make_uffd_wp<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn) -> bool {
    let old = w.pte(mm, page);
    let protected = match old {
        Pte::Present(pte) => Pte::Present(pte.uffd_protected()),
        Pte::Swap(swap) => Pte::Swap(SwapPte { uffd_wp: true, ..swap }),
        Pte::Migration(entry) => Pte::Migration(MigrationPte { uffd_wp: true, ..entry }),
        Pte::None => protected_hole(w, mm, page),
        // A marker that raises a signal keeps doing so. It is not reported again.
        Pte::Marker(marker) => Pte::Marker(marker.uffd_marked()),
        Pte::Table(_) => old,
    };
    w.set_pte(at, mm, page, protected);
    old.present().is_some_and(|pte| pte.writable())
}

/// Protects a huge page.
///
/// Source: fs/proc/task_mmu.c:make_uffd_wp_pmd (6.12, 7.2): pmdp_invalidate_ad, and the entry right
/// after it.
fn protect_huge<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn) -> Change {
    let Some(old) = w.huge_page(mm, page) else { return Change::Granted };
    w.set_pmd(at, mm, page, Pte::Present(invalid(old)));
    let new = old.uffd_protected();
    w.set_pmd(at, mm, page, Pte::Present(new));
    Change::of(old, new, Change::Granted)
}
