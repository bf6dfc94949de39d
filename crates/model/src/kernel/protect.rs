//! `mprotect`, and the page-table changes of `UFFDIO_WRITEPROTECT`.
//!
//! A private writable mapping gets read-only PTEs, so that copy-on-write stays possible. Newer
//! kernels then make exclusive pages writable again by themselves. On x86 a changed write bit is
//! flushed in either direction ([`FlushRules`]).

use crate::addr::{MmId, PageRange, Vpn};
use crate::arch::{Arch, FlushRules, ProtectRule};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::fault::anon::zero_page_pte;
use crate::kernel::fault::outcome::Attempt;
use crate::kernel::flush::{Change, FlushRequest, flush_tlb_mm_range};
use crate::kernel::gather::Gather;
use crate::kernel::huge::protect::change_huge_pmd;
use crate::kernel::huge::split::{split_at_borders, split_huge_pmd};
use crate::kernel::mlock::populate_vma_page_range;
use crate::kernel::numa_scan::sampled;
use crate::kernel::table::{pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::uffd::holes_are_clean;
use crate::kernel::unmap_batch::flush_tlb_batched_pending;
use crate::kernel::vma_lock::new_vma_start_write;
use crate::kernel::zap::by_table;
use crate::machine::frames::FrameFlags;
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::policy::{
    AnonExclusive, HugeUnprotect, Mutant, ProtectCharge, ProtectFlush, ProtectRestore, ProtectRun,
    SoftDirtyProtect, UffdNone, UffdRestore,
};
use crate::program::Prot;
use crate::pte::{Marker, MigrationPte, MigrationRight, PresentPte, Pte, PteFlags, SwapPte};
use crate::site::Site;

/// Changes the protection of `range`, mapping by mapping. A hole ends the call, after the mappings
/// before it have been changed.
///
/// Source: mm/mprotect.c:do_mprotect_pkey, mprotect_fixup, change_pte_range (5.10 to 7.3).
pub fn mprotect(env: &mut impl Env, mm: MmId, range: PageRange, prot: Prot) -> Result<(), Errno> {
    env.lock(Lock::MmapWrite(mm));
    let result = match env.policies().protect_flush {
        // 5.10 flushes once for each mapping. Later kernels use one gather for the call.
        ProtectFlush::WholeRange => each_mapping(env, mm, range, prot, |env, part| {
            change_protection_whole(env, mm, part, To::Prot);
        }),
        ProtectFlush::PerPte | ProtectFlush::Taken => {
            let mut gather = Gather::open(env, mm);
            let result = each_mapping(env, mm, range, prot, |env, part| {
                change_protection(env, &mut gather, part, To::Prot);
            });
            gather.finish(env);
            result
        }
    };
    env.unlock(Lock::MmapWrite(mm));
    result
}

/// Changes one mapping after the other, and the PTEs of each with `change_ptes`. Mappings that have
/// the protection already are left alone.
fn each_mapping<E: Env>(
    env: &mut E,
    mm: MmId,
    range: PageRange,
    prot: Prot,
    mut change_ptes: impl FnMut(&mut E, PageRange),
) -> Result<(), Errno> {
    let charge = env.policies().protect_charge;
    let mut rest = range;
    while !rest.is_empty() {
        new_vma_start_write(env, mm, |space| {
            let vma = space.vma(rest.start).filter(|vma| vma.prot != prot)?.cut(rest);
            Some(protected(&vma, prot, charge))
        });
        vma_splits(env, mm, rest, prot);
        match env.step(Site::ChangeProtectionRange, |w, at| mprotect_fixup(w, at, mm, rest, prot)) {
            Mapping::Hole => return Err(Errno::Enomem),
            Mapping::Same(part) => rest.start = part.end,
            Mapping::Changed(part) => {
                change_ptes(env, part);
                populate_locked(env, mm, part, prot);
                rest.start = part.end;
            }
        }
    }
    Ok(())
}

/// Copies the pages of a locked private mapping that permits stores from now on, before anybody
/// stores.
///
/// Source: mm/mprotect.c:mprotect_fixup (5.10 to 7.3).
fn populate_locked(env: &mut impl Env, mm: MmId, part: PageRange, prot: Prot) {
    if prot != Prot::ReadWrite || !env.config().locks_memory {
        return;
    }
    let locked = env.step(Site::ChangeProtectionRange, |w, _| {
        w.mms[mm.index()].vma(part.start).is_some_and(|vma| vma.is_locked() && !vma.shared)
    });
    if locked {
        // An error is left to the next store there.
        let _ = populate_vma_page_range(env, mm, part, Attempt::Held);
    }
}

/// Splits the huge pages at the borders of the change, in the next mapping that the call finds.
fn vma_splits(env: &mut impl Env, mm: MmId, rest: PageRange, prot: Prot) {
    if !env.config().huge_pages {
        return;
    }
    let borders = env.step(Site::ChangeProtectionRange, |w, _| {
        let vma = w.mms[mm.index()].vma(rest.start).filter(|vma| vma.prot != prot);
        vma.map(|vma| (vma.range, vma.range.intersect(rest)))
    });
    if let Some((vma, part)) = borders {
        split_at_borders(env, mm, vma, part);
    }
}

/// What a call finds next.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Mapping {
    /// Nothing is mapped.
    Hole,
    /// These pages have the protection already.
    Same(PageRange),
    /// These pages have the protection now.
    Changed(PageRange),
}

impl Learnt for Mapping {
    fn nothing() -> Mapping {
        Mapping::Hole
    }
}

/// Gives the new protection to the part of `rest` that the mapping at its start covers.
fn mprotect_fixup<M: Mode>(
    w: &mut World<M>,
    at: At,
    mm: MmId,
    rest: PageRange,
    prot: Prot,
) -> Mapping {
    w.mmap_assert_write_locked(at, mm);
    let (rule, charge) = ((&w.policies).into(), w.policies.protect_charge);
    let Some(vma) = w.mms[mm.index()].vma(rest.start).map(|vma| vma.cut(rest)) else {
        return Mapping::Hole;
    };
    if vma.prot == prot {
        return Mapping::Same(vma.range);
    }
    let changed = protected(&vma, prot, charge);
    let becomes = w.mms[mm.index()].merged(changed, rule).range;
    w.vma_assert_write_locked(at, mm, becomes);
    w.insert_vma(mm, changed);
    Mapping::Changed(vma.range)
}

/// The mapping with its new protection.
const fn protected(vma: &Vma, prot: Prot, charge: ProtectCharge) -> Vma {
    Vma { prot, charged: charged(vma, prot, charge), ..*vma }
}

/// Whether the mapping counts as committed memory with its new protection (mprotect_fixup). Two
/// mappings do not merge if only one of them counts. Only anonymous memory can stop counting.
const fn charged(vma: &Vma, prot: Prot, rule: ProtectCharge) -> bool {
    let anonymous = vma.file.is_none() && vma.anon_vma.is_none();
    let unfaulted = matches!(rule, ProtectCharge::DropUnfaulted) && anonymous;
    !vma.shared && (matches!(prot, Prot::ReadWrite) || vma.charged && !unfaulted)
}

/// The change that a call makes to the entries of a mapping.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// They get the mapping's protection.
    Prot,
    /// userfaultfd protects them from stores (`MM_CP_UFFD_WP`).
    UffdWp,
    /// userfaultfd no longer protects them (`MM_CP_UFFD_WP_RESOLVE`).
    NotUffdWp,
    /// They permit no access until the next use (`MM_CP_PROT_NUMA`).
    Sampled,
}

/// Changes the entries of `range`, which lies in one mapping, with a flush of its own: by a gather,
/// or in 5.10 of the whole range. Returns whether it changed any entry.
pub(super) fn change_protection_alone(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    to: To,
) -> bool {
    match env.policies().protect_flush {
        ProtectFlush::WholeRange => change_protection_whole(env, mm, range, to),
        ProtectFlush::PerPte | ProtectFlush::Taken => {
            let mut gather = Gather::open(env, mm);
            let changed = change_protection(env, &mut gather, range, to);
            gather.finish(env);
            changed
        }
    }
}

/// Changes the entries of `range` with the caller's gather. Returns whether it changed any.
fn change_protection(env: &mut impl Env, gather: &mut Gather, range: PageRange, to: To) -> bool {
    let mut any = false;
    let mut rules = env.arch().flushes;
    if env.policies().protect_flush == ProtectFlush::Taken {
        rules.protect = ProtectRule::WriteTaken;
    }
    let spares_no_access = env.policies().mutant == Mutant::NoAccessUnflushed;
    let forgets = forgets_flush(env, to);
    let huge_writable =
        to == To::NotUffdWp && env.policies().huge_unprotect == HugeUnprotect::IfWritable;
    change_range(env, gather.mm(), range, to, |pages, changed| {
        any |= changed != Changed::Nothing;
        let Changed::Translation(old, new) = changed else { return };
        let spared = spares_no_access && new.protnone() && !old.writable() || forgets;
        let anyway = huge_writable && pages.pages() > 1 && old.writable();
        if (needs_flush(&rules, old, new) || anyway) && !spared {
            gather.changed_pages(pages, Change::of(old, new, Change::Granted));
        }
    });
    gather.end_vma(env, Site::ChangeProtectionRange);
    any
}

/// Changes the entries of `range` with one flush of the whole range, if any PTE was touched (5.10).
/// Returns whether it changed any.
fn change_protection_whole(env: &mut impl Env, mm: MmId, range: PageRange, to: To) -> bool {
    env.step(Site::ChangeProtectionRange, |w, _| w.mms[mm.index()].open_gathers += 1);
    let mut touched = None;
    change_range(env, mm, range, to, |_, changed| {
        let change = match changed {
            Changed::Nothing => return,
            Changed::Entry => Change::Granted,
            Changed::Translation(old, new) => Change::of(old, new, Change::Granted),
        };
        touched = touched.max(Some(change));
    });
    if let Some(change) = touched
        && !forgets_flush(env, to)
    {
        let request = FlushRequest::range(Site::ChangeProtectionRange, mm, range);
        flush_tlb_mm_range(env, FlushRequest { change, ..request });
    }
    env.step(Site::ChangeProtectionRange, |w, _| w.mms[mm.index()].open_gathers -= 1);
    touched.is_some()
}

fn forgets_flush(env: &impl Env, to: To) -> bool {
    match env.policies().mutant {
        Mutant::UffdUnflushed => to != To::Prot,
        Mutant::UnprotectUnflushed => to == To::NotUffdWp,
        _ => false,
    }
}

/// What became of an entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Changed {
    /// The entry is as before.
    Nothing,
    /// An entry that is no translation changed.
    Entry,
    /// The first translation became the second.
    Translation(PresentPte, PresentPte),
}

impl Learnt for Changed {
    fn nothing() -> Changed {
        Changed::Nothing
    }
}

/// Rewrites the entries of `range`, and calls `note` for each.
///
/// Source: mm/mprotect.c:change_pmd_range, change_prepare (6.12: pgtable_populate_needed).
fn change_range(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    to: To,
    mut note: impl FnMut(PageRange, Changed),
) {
    let arch: Arch = *env.arch();
    let marks = to == To::UffdWp
        && env.step(Site::ChangeProtectionRange, |w, _| uses_markers(w, mm, range.start));
    for part in by_table(&arch, range) {
        let whole = part == arch.huge_pages(part.start);
        if !whole && env.config().huge_pages && to != To::Prot {
            split_huge_pmd(env, Site::ChangePteRange, mm, part.start);
        } else if whole && let Some((old, new)) = change_huge_pmd(env, mm, part.start, to) {
            note(part, Changed::Translation(old, new));
            continue;
        }
        if marks {
            let made = env.step(Site::ChangePteRange, |w, at| pte_alloc(w, at, mm, part.start, 1));
            if made.is_none() {
                return;
            }
        }
        if pte_offset_map_lock(env, Site::ChangePteRange, mm, part.start, |_, _| ()).is_none() {
            continue;
        }
        flush_tlb_batched_pending(env, mm);
        let together = env.policies().protect_run == ProtectRun::Together;
        let mut alike = part.start;
        for page in part.iter() {
            let changed = env.step(Site::ChangePteRange, |w, at| {
                let run = if together && page == alike {
                    take_together(w, at, mm, page, part.end)
                } else {
                    1
                };
                (change_pte(w, at, mm, page, to), run)
            });
            alike = alike.max(page.add(changed.1));
            note(PageRange::one(page), changed.0);
        }
        pte_unmap_unlock(env, mm, part.start);
    }
}

/// Treats `page` and the following pages of its large folio with equal rights, up to `end`, as one:
/// if one of them is accessed or dirty, all are. Returns the number of pages.
///
/// Source: mm/mprotect.c:mprotect_folio_pte_batch, modify_prot_start_ptes (7.2).
fn take_together<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, end: Vpn) -> u64 {
    let count = w.run_of(mm, PageRange { start: page, end }, PteFlags::default());
    if count == 1 {
        return 1;
    }
    let entries = PageRange::new(page, count)
        .iter()
        .filter_map(|page| Some((page, w.pte(mm, page).present()?)));
    let entries: Vec<(Vpn, PresentPte)> = entries.collect();
    let (young, dirty) = entries.iter().fold((false, false), |(young, dirty), (_, pte)| {
        (young || pte.accessed(), dirty || pte.dirty())
    });
    // pte_mkdirty sets the soft-dirty bit as well (arch/x86/include/asm/pgtable.h).
    let marks = w.config.soft_dirty && entries.iter().skip(1).any(|(_, pte)| pte.dirty());
    for (page, pte) in entries {
        let pte = pte.with(PteFlags::ACCESSED, young).with(PteFlags::DIRTY, dirty);
        let pte = pte.with(PteFlags::SOFT_DIRTY, marks || pte.soft_dirty());
        w.set_pte(at, mm, page, Pte::Present(pte));
    }
    count
}

/// Changes one entry.
///
/// Source: mm/mprotect.c:change_pte_range (5.10 to 7.3).
fn change_pte<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn, to: To) -> Changed {
    let pte = w.pte(mm, page);
    let new = match pte {
        Pte::Present(old) => {
            let new = match to {
                To::Sampled => sampled(w, old),
                _ => changed_present(w, mm, page, old, to),
            };
            let Some(new) = new else { return Changed::Nothing };
            w.set_pte(at, mm, page, Pte::Present(new));
            return Changed::Translation(old, new);
        }
        Pte::Migration(_) | Pte::Swap(_) if w.policies.mutant == Mutant::UffdSwapSkipped => pte,
        Pte::Migration(entry) => Pte::Migration(changed_migration(w, entry, to)),
        Pte::Swap(swap) => Pte::Swap(SwapPte { uffd_wp: to.uffd_wp(swap.uffd_wp), ..swap }),
        Pte::None if to == To::UffdWp && uses_markers(w, mm, page) => protected_hole(w, mm, page),
        Pte::Marker(Marker::UffdWp) if to == To::NotUffdWp => Pte::None,
        Pte::None | Pte::Marker(_) | Pte::Table(_) => pte,
    };
    if new == pte {
        return Changed::Nothing;
    }
    w.set_pte(at, mm, page, new);
    Changed::Entry
}

/// The entry that protects a page that is not there.
pub(super) fn protected_hole<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> Pte {
    let own = w.mms[mm.index()].vma(page).is_some_and(Vma::is_anonymous);
    match w.policies.uffd_none {
        UffdNone::ZeroPage if own => Pte::Present(zero_page_pte(&w.policies).uffd_protected()),
        UffdNone::ZeroPage | UffdNone::Marker => Pte::Marker(Marker::UffdWp),
    }
}

/// The changed translation. The mapping has its new protection already.
fn changed_present<M: Mode>(
    w: &World<M>,
    mm: MmId,
    page: Vpn,
    old: PresentPte,
    to: To,
) -> Option<PresentPte> {
    let vma = w.mms[mm.index()].vma(page)?;
    let prot = vma.prot;
    let drops = to == To::UffdWp && w.policies.mutant == Mutant::UffdBitDropped;
    let applied = if drops { to.applied(old).without(PteFlags::UFFD_WP) } else { to.applied(old) };
    let read_only = applied.with(PteFlags::PROTNONE, prot == Prot::None);
    let writable = prot == Prot::ReadWrite
        && !vma.protects(read_only.uffd_wp())
        && match vma.shared {
            true if has_right_already(w, vma, to) => true,
            _ if !to.restores(w.policies.uffd_restore) => false,
            true => vma.tells_file_system() && can_change_shared_pte_writable(w, vma, old),
            false => !vma.notes_store(old.soft_dirty()) && can_change_pte_writable(w, read_only),
        };
    Some(read_only.with(PteFlags::WRITABLE, writable))
}

/// Whether the protection of the shared mapping permits stores without a further check
/// (`vm_page_prot`). In 6.1, userfaultfd removes its protection by the mapping's flags, as if
/// nobody had to be told of stores.
///
/// Source: mm/userfaultfd.c:uffd_wp_range (6.1: vm_get_page_prot(vm_flags); 6.12, 7.2:
/// vm_page_prot).
fn has_right_already<M: Mode>(w: &World<M>, vma: &Vma, to: To) -> bool {
    let by_flags = to == To::NotUffdWp && w.policies.uffd_restore == UffdRestore::ReadOnly;
    by_flags || !vma.wants_writenotify()
}

/// Changes a migration entry. It loses the right to store: kernels do not check here whether it
/// could keep it.
fn changed_migration<M: Mode>(w: &World<M>, entry: MigrationPte, to: To) -> MigrationPte {
    let right = match entry.right {
        MigrationRight::Write if w.policies.anon_exclusive == AnonExclusive::Yes => {
            MigrationRight::ReadExclusive
        }
        MigrationRight::Write => MigrationRight::Read,
        right => right,
    };
    MigrationPte { right, uffd_wp: to.uffd_wp(entry.uffd_wp), ..entry }
}

impl To {
    /// userfaultfd's protection bit after the change, if it was `before`.
    const fn uffd_wp(self, before: bool) -> bool {
        match self {
            To::Prot | To::Sampled => before,
            To::UffdWp => true,
            To::NotUffdWp => false,
        }
    }

    /// The translation after the change, without the rights that need a check.
    pub fn applied(self, old: PresentPte) -> PresentPte {
        let bare = old.without(PteFlags::WRITABLE).without(PteFlags::PROTNONE);
        let uffd_wp = self.uffd_wp(old.uffd_wp());
        bare.without(PteFlags::UFFD_WP).with(PteFlags::UFFD_WP, uffd_wp)
    }

    /// Whether the change may make entries writable where a fault would do it
    /// (`MM_CP_TRY_CHANGE_WRITABLE`).
    pub fn restores(self, rule: UffdRestore) -> bool {
        match self {
            To::Prot => true,
            To::UffdWp | To::Sampled => false,
            To::NotUffdWp => rule == UffdRestore::AsProtect,
        }
    }
}

/// Whether userfaultfd can protect a page that is not there. For files and shared memory it always
/// can.
///
/// Source: mm/mprotect.c:change_pte_range (6.1: not vma_is_anonymous),
/// include/linux/userfaultfd_k.h:userfaultfd_wp_use_markers (6.12, 7.2).
fn uses_markers<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> bool {
    let space = &w.mms[mm.index()];
    let marks = |vma: &Vma| {
        let marks = space.uffd.features.unpopulated || !vma.is_anonymous();
        marks && !holes_are_clean(w, mm, vma)
    };
    space.vma(page).is_some_and(marks)
}

/// Whether the write-fault handler would make this page writable without any further check.
///
/// Source: mm/mprotect.c:can_change_pte_writable (6.1: dirty only; 6.12: exclusive is enough).
pub(super) fn can_change_pte_writable<M: Mode>(w: &World<M>, pte: PresentPte) -> bool {
    let exclusive = !pte.special() && w.frames.flags(pte.pfn).has(FrameFlags::EXCLUSIVE);
    match w.policies.protect_restore {
        ProtectRestore::Never => false,
        ProtectRestore::IfDirty => exclusive && pte.dirty(),
        ProtectRestore::IfExclusive => exclusive,
    }
}

/// Whether nobody has to be told of a store to this page: the file system knows that the page is
/// dirty, and the soft-dirty bit is set. Kernels check this only for files whose file system is
/// told of stores. For soft-dirty bits alone, the mapping's protection from before the call would
/// have to equal the new one already (vma_wants_writenotify, asked before vma_set_page_prot). So
/// pages of shared memory stay read-only until the next store.
///
/// Source: mm/mprotect.c:change_pte_range (5.10: dirty_accountable, with the test of the mapping's
/// flag the wrong way round), can_change_pte_writable (6.1), can_change_shared_pte_writable (6.12,
/// 7.3).
fn can_change_shared_pte_writable<M: Mode>(w: &World<M>, vma: &Vma, pte: PresentPte) -> bool {
    let noted = match w.policies.soft_dirty_protect {
        SoftDirtyProtect::NewMappings => {
            !vma.soft_dirty || pte.soft_dirty() || !w.config.soft_dirty
        }
        SoftDirtyProtect::Tracked => !vma.notes_store(pte.soft_dirty()),
    };
    pte.dirty() && noted
}

/// Whether `mprotect` flushes. Mostly it does if the TLB can hold a part of `old` that `new`
/// changes.
///
/// Source: arch/x86/include/asm/tlbflush.h:pte_needs_flush (6.1 to 7.3): it flushes if presence or
/// the dirty bit was lost or, by x86's rule, if the write bit changed in either direction; accessed
/// and software bits do not count. arch/arm64/include/asm/tlbflush.h:pte_needs_flush (7.2, 7.3): it
/// compares what the processor looks at, with the same result; 6.1 and 6.12 have no such function
/// there, and always flush.
fn needs_flush(rules: &FlushRules, old: PresentPte, new: PresentPte) -> bool {
    let taken = old.writable() && !new.writable();
    let changed = match rules.protect {
        ProtectRule::All => return true,
        ProtectRule::WriteChanged => old.writable() != new.writable(),
        ProtectRule::WriteTaken => taken,
    };
    !old.protnone()
        && (new.protnone() || old.dirty() && !new.dirty() || changed || old.pfn != new.pfn)
}
