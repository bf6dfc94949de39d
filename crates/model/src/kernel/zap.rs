//! Removes translations (`zap_pte_range`) and page tables (`free_pgtables`).

use crate::addr::{PageRange, Pfn, Vpn};
use crate::arch::Arch;
use crate::env::{Env, Learnt};
use crate::kernel::flush::Change;
use crate::kernel::gather::Gather;
use crate::kernel::huge::zap::zap_huge_pmd;
use crate::kernel::lru::mark_accessed;
use crate::kernel::mlock_batch::folio_remove_rmap;
use crate::kernel::rmap::Place;
use crate::kernel::swap_cache::free_swap_and_cache;
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock, unlink_table};
use crate::kernel::uffd::holes_are_clean;
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{DontneedTables, GatherBatch, Mutant, ZapRmap};
use crate::pte::{Marker, PresentPte, Pte, PteFlags};
use crate::site::Site;

/// The parts of `range` that lie in one last-level table each.
pub fn by_table(arch: &Arch, range: PageRange) -> impl Iterator<Item = PageRange> + use<> {
    let span = arch.table_pages(1);
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = Vpn((start.0 / span + 1) * span).min(range.end);
        let part = PageRange { start, end };
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

/// Which translations are removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Zap {
    /// All of them: the mapping goes.
    Mapping,
    /// All except guards, and the tables that become empty: `MADV_DONTNEED`.
    Advice,
    /// All except guards: something else takes their place, or the file ends there.
    Pages,
    /// Those of a file's pages, or of one of its folios, because these leave the file. Copies stay.
    /// (With a single folio, guards in its place go as well: mm/memory.c:unmap_mapping_folio.)
    File {
        /// The only folio to remove; `None`: all pages of the file.
        only: Option<Pfn>,
    },
}

impl Zap {
    /// Whether userfaultfd's protection goes as well, even on pages of files
    /// (`ZAP_FLAG_DROP_MARKER`).
    const fn drops_markers(self) -> bool {
        match self {
            Zap::Mapping | Zap::File { only: Some(_) } => true,
            Zap::Advice | Zap::Pages | Zap::File { only: None } => false,
        }
    }
}

/// Clears the PTEs of `range`.
///
/// Source: mm/memory.c:zap_pte_range (5.10 to 7.3).
pub fn zap_range(env: &mut impl Env, gather: &mut Gather, range: PageRange, zap: Zap) {
    let arch = *env.arch();
    for part in by_table(&arch, range) {
        if zap_huge_pmd(env, gather, part) {
            continue;
        }
        zap_table(env, gather, part, zap);
        let whole = part.pages() == arch.table_pages(1);
        if zap == Zap::Advice && whole && env.policies().dontneed_tables == DontneedTables::Free {
            free_empty_table(env, gather, part.start);
        }
    }
    gather.end_vma(env, Site::TlbFlushMmu);
}

fn zap_table(env: &mut impl Env, gather: &mut Gather, mut part: PageRange, zap: Zap) {
    let (mm, table) = (gather.mm(), part.start);
    while pte_offset_map_lock(env, Site::ZapPteRange, mm, table, |_, _| ()).is_some() {
        // 1. Under the lock: clear PTE by PTE, until done or the gather is full.
        flush_tlb_batched_pending(env, mm);
        let mut full = false;
        let mut dirty = false;
        let together = takes_runs(env);
        // The number of following pages that are taken together with the last one.
        let mut follow = 0;
        for page in part.iter() {
            part.start = page.add(1);
            let left = PageRange { start: page, ..part };
            let (zapped, run) = env.step(Site::ZapPteRange, |w, at| {
                let run = match follow {
                    0 if together => w.run_of(mm, left, ZAPPED_ALIKE),
                    0 => 1,
                    _ => 0,
                };
                (zap_pte(w, at, (mm, page), zap, run), run)
            });
            follow = (follow + run).saturating_sub(1);
            let entries = run.min(2) as usize;
            match zapped {
                Zapped::Nothing => {}
                Zapped::Special => gather.changed(page, Change::Revoked),
                Zapped::Page(frame, cached) => {
                    if cached {
                        gather.changed(page, Change::Revoked);
                    }
                    full |= gather.remove_entries(frame, entries);
                }
                Zapped::File { frame, was_dirty, mapped } => {
                    gather.changed(page, Change::Revoked);
                    dirty |= was_dirty;
                    if mapped {
                        let locked = env.step(Site::ZapPteRange, |w, _| w.locks(mm, page));
                        gather.delay_rmap(frame, locked);
                    }
                    full |= gather.remove_entries(frame, entries);
                }
            }
            if full && follow == 0 {
                break;
            }
        }
        // Nobody may dirty a shared page that is unmapped and may be written out.
        if full || dirty {
            gather.flush_before_rmaps(env, Site::TlbFlushMmu);
            gather.flush_rmaps(env);
        }
        pte_unmap_unlock(env, mm, table);
        // 2. The gather is full: free what was collected, and come back for the rest.
        if !full && !dirty {
            return;
        }
        gather.flush(env, Site::TlbFlushMmu);
        if part.is_empty() {
            return;
        }
    }
}

/// Whether adjacent pages of a large folio are taken together, even if they differ in rights
/// ([`ZAPPED_ALIKE`]).
///
/// Source: mm/memory.c:zap_present_ptes, mm/internal.h:folio_pte_batch (6.12, 7.2; not in 6.1).
fn takes_runs(env: &mut impl Env) -> bool {
    env.config().large_folios && env.policies().gather_batch == GatherBatch::LeaveOne
}

/// The flags in which pages of a run may differ.
const ZAPPED_ALIKE: PteFlags = PteFlags::WRITABLE.and(PteFlags::SOFT_DIRTY);

/// The contents of a zapped PTE.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Zapped {
    /// Nothing that a TLB could hold.
    Nothing,
    /// A translation without a page of its own.
    Special,
    /// A page, to be freed after the flush, and whether the flush is necessary.
    Page(Pfn, bool),
    /// A page of a file or of shared memory. `was_dirty`: its PTE was dirty. `mapped`: it still
    /// counts as mapped.
    File { frame: Pfn, was_dirty: bool, mapped: bool },
}

impl Learnt for Zapped {
    fn nothing() -> Zapped {
        Zapped::Nothing
    }
}

/// Zaps one PTE. `run`: the number of pages, from this one on, that are taken together; 0 if their
/// run began before it.
fn zap_pte<M: Mode>(w: &mut World<M>, at: At, (mm, page): Place, zap: Zap, run: u64) -> Zapped {
    let pte = w.pte(mm, page);
    if pte.is_none() || !should_zap(w, (mm, page), pte, zap) {
        return Zapped::Nothing;
    }
    if keeps_protection(w, (mm, page), pte, zap) {
        w.set_pte(at, mm, page, Pte::Marker(Marker::UffdWp));
    } else {
        w.set_pte(at, mm, page, Pte::None);
        if zap.drops_markers() {
            w.ghost.let_go(mm, PageRange::one(page));
        }
    }
    if let Pte::Present(pte) = pte
        && !pte.special()
        && w.is_of_file(pte.pfn)
    {
        let rest = PageRange::new(page.add(1), run.saturating_sub(1));
        let young = |page| w.pte(mm, page).present().is_some_and(|pte| pte.accessed());
        let used = run > 0 && pte.accessed() || rest.iter().any(young);
        return zap_file_page(w, at, (mm, page), pte, used);
    }
    w.ghost.discarded(mm, page, w.frame_behind(pte));
    match pte {
        Pte::Present(pte) if pte.special() => Zapped::Special,
        Pte::Present(pte) => {
            let locked = w.locks(mm, page);
            folio_remove_rmap(w, at, pte.pfn, locked);
            Zapped::Page(pte.pfn, pte.accessed() || w.policies.mutant != Mutant::AgedUnflushed)
        }
        Pte::Swap(swap) => {
            free_swap_and_cache(w, at, swap.slot);
            Zapped::Nothing
        }
        // A migration entry maps no page, and what a marker remembers goes.
        Pte::None | Pte::Table(_) | Pte::Migration(_) | Pte::Marker(_) => Zapped::Nothing,
    }
}

/// Whether the zap removes this entry.
///
/// Source: mm/memory.c:should_zap_page, should_zap_cows (5.10: details->check_mapping);
/// zap_drop_markers (7.3): guards go only with their mapping, and so does userfaultfd's protection
/// of a file's missing page.
fn should_zap<M: Mode>(w: &World<M>, place: Place, pte: Pte, zap: Zap) -> bool {
    let stays = match pte {
        Pte::Marker(marker) if marker.is_guard() => true,
        Pte::Marker(Marker::UffdWp) => keeps_protection(w, place, pte, zap),
        _ => false,
    };
    let only = match zap {
        Zap::Mapping => return true,
        Zap::Advice | Zap::Pages => return !stays,
        Zap::File { only } if matches!(pte, Pte::Marker(_)) => return only.is_some(),
        Zap::File { only } => only,
    };
    let of_file = pte.present().filter(|pte| !pte.special() && w.is_of_file(pte.pfn));
    of_file.is_some_and(|pte| only.is_none_or(|folio| folio == w.frames.folio(pte.pfn).0))
}

/// Whether a marker replaces an entry that userfaultfd protects, because the file may still have
/// the page. No marker is left if the whole mapping goes, or if only one folio is unmapped.
///
/// Source: mm/memory.c:zap_install_uffd_wp_if_needed, zap_drop_file_uffd_wp (6.1, 6.12;
/// zap_drop_markers in 7.2).
fn keeps_protection<M: Mode>(w: &World<M>, place: Place, pte: Pte, zap: Zap) -> bool {
    !zap.drops_markers() && marks_protection(w, place, pte)
}

/// Whether an entry of a file or of shared memory leaves a marker of its protection when it is
/// removed while the file may still have the page.
///
/// Source: include/linux/mm_inline.h:pte_install_uffd_wp_if_needed (6.1 to 7.2).
pub fn marks_protection<M: Mode>(w: &World<M>, (mm, page): Place, pte: Pte) -> bool {
    let watched = |vma: &Vma| !vma.is_anonymous() && vma.protects(pte.uffd_wp());
    let marks = |vma: &Vma| watched(vma) && !holes_are_clean(w, mm, vma);
    let forgets = w.policies.mutant == Mutant::UffdZapForgets;
    pte.uffd_wp() && !forgets && w.mms[mm.index()].vma(page).is_some_and(marks)
}

/// Moves the PTE's dirty and accessed bits to the folio. A run of pages that are taken together
/// marks its folio as used once.
///
/// Source: mm/memory.c:zap_pte_range (5.10, 6.1), zap_present_folio_ptes (6.12, 7.3).
fn zap_file_page<M: Mode>(
    w: &mut World<M>,
    at: At,
    (mm, page): Place,
    pte: PresentPte,
    used: bool,
) -> Zapped {
    let frame = w.frames.get(pte.pfn);
    w.ghost.unmapped_shared(mm, page, pte.pfn, (frame.object, frame.index));
    if pte.dirty() {
        w.dirty_folio(pte.pfn);
    }
    if used {
        mark_accessed(w, at, w.frames.folio(pte.pfn).0);
    }
    let (frame, was_dirty) = (pte.pfn, pte.dirty());
    let mapped = was_dirty && w.policies.zap_rmap == ZapRmap::AfterFlush;
    if !mapped {
        let locked = w.locks(mm, page);
        folio_remove_rmap(w, at, frame, locked);
    }
    Zapped::File { frame, was_dirty, mapped }
}

/// Frees the table if nobody has set a PTE in it in the meantime
/// (mm/memory.c:zap_pte_table_if_empty, 7.3).
fn free_empty_table(env: &mut impl Env, gather: &mut Gather, start: Vpn) {
    let mm = gather.mm();
    let freed = pte_offset_map_lock(env, Site::FreePgtables, mm, start, |w, at| {
        w.mms[mm.index()].table.is_empty(start, 1) && unlink_table(w, at, mm, start, 1)
    });
    if freed.is_some() {
        pte_unmap_unlock(env, mm, start);
    }
    if freed == Some(true) {
        gather.unlinked_table(start, 1);
    }
}

/// The levels at which a table can belong to a scenario alone. A table of the fourth level spans
/// 256 TiB, including the process's program and stack.
const OWN_LEVELS: u32 = 3;

/// The numbers of the spans (of `span` pages each) that the mappings lie in, each once. The
/// mappings are in order.
fn spans(vmas: &[PageRange], span: u64) -> impl Iterator<Item = u64> + use<'_> {
    let mut next = 0;
    vmas.iter().flat_map(move |vma| {
        let first = next.max(vma.start.0 / span);
        next = (vma.end.0 - 1) / span + 1;
        first..next
    })
}

/// Frees the page tables under the mappings `vmas` (in order) that no other mapping can use: those
/// whose span holds no page below `floor` or from `ceiling` on.
///
/// A folded level is never found empty. So it is "freed" each time, even if nothing was ever mapped
/// there.
///
/// Source: mm/memory.c:free_pgd_range, free_p4d_range; arch/x86/include/asm/pgtable.h:pgd_none
/// (5.10 to 7.3).
pub fn free_pgtables(
    env: &mut impl Env,
    gather: &mut Gather,
    vmas: &[PageRange],
    (floor, ceiling): (Option<Vpn>, Option<Vpn>),
) {
    let (arch, mm) = (*env.arch(), gather.mm());
    for level in 1..=OWN_LEVELS.min(arch.levels() - 1) {
        let span = arch.table_pages(level);
        for index in spans(vmas, span) {
            let start = Vpn(index * span);
            let alone = floor.is_none_or(|floor| floor <= start)
                && ceiling.is_none_or(|ceiling| ceiling.0 >= start.0 + span);
            if !alone {
                continue;
            }
            let freed = env.step(Site::FreePgtables, |w, at| unlink_table(w, at, mm, start, level));
            if freed {
                gather.unlinked_table(start, level);
            }
            if arch.folded_level && level == arch.levels() - 1 {
                gather.unlinked_folded_table(start);
            }
        }
    }
}
