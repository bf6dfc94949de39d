//! The architecture-neutral page-table entry, of any level.
//!
//! Kernel operations see only this type. A codec per architecture converts it to bits and back,
//! given the level.

use crate::addr::{Pfn, TableId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A page-table entry.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pte {
    /// An empty entry.
    #[default]
    None,
    /// The table of the level below. It never occurs at the last level.
    Table(TableId),
    /// A translation: of one base page at the last level, of a huge page above it.
    Present(PresentPte),
    /// The page is in swap.
    Swap(SwapPte),
    /// The page is being moved to another frame. Accesses to it wait.
    Migration(MigrationPte),
    /// There is no page, but the entry marks something about its address.
    Marker(Marker),
}

/// A migration entry (include/linux/swapops.h:make_writable_migration_entry and its variants).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MigrationPte {
    /// The frame that the page leaves.
    pub pfn: Pfn,
    /// The rights that the PTE gets back after the migration.
    pub right: MigrationRight,
    /// The accessed bit of the page's PTE (6.1 and later).
    pub accessed: bool,
    /// The dirty bit of the page's PTE (6.1 and later).
    pub dirty: bool,
    /// The soft-dirty bit of the page's PTE.
    pub soft_dirty: bool,
    /// userfaultfd's write-protect bit of the page's PTE.
    pub uffd_wp: bool,
}

/// An entry above the last level that is for a huge page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pmd {
    /// It maps the huge page.
    Mapped(PresentPte),
    /// The huge page is being moved to other frames. Accesses to it wait
    /// (`is_pmd_migration_entry`).
    Migrating(MigrationPte),
}

/// Kinds of migration entry (`SWP_MIGRATION_READ` …).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationRight {
    /// The PTE was read-only.
    Read,
    /// The PTE was read-only, and the page exclusive (5.19 and later).
    ReadExclusive,
    /// The PTE was writable.
    Write,
}

/// The meaning of a marker (include/linux/swapops.h: `PTE_MARKER_UFFD_WP` and its variants).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Marker {
    /// Write-protected by userfaultfd (5.19 and later).
    UffdWp,
    /// The page's contents are lost (`UFFDIO_POISON`, 6.6 and later).
    Poisoned,
    /// A guard page (`MADV_GUARD_INSTALL`, 6.13 and later).
    Guard,
    /// The page's contents are lost, and a scan for written pages has set userfaultfd's
    /// write-protect bit (`pte_swp_mkuffd_wp`).
    PoisonedUffdWp,
    /// A guard page, and a scan for written pages has set userfaultfd's write-protect bit.
    GuardUffdWp,
}

impl Marker {
    /// Whether the marker is a guard, so that accesses end in SIGSEGV.
    pub const fn is_guard(self) -> bool {
        matches!(self, Marker::Guard | Marker::GuardUffdWp)
    }

    /// Whether the marker has userfaultfd's write-protect bit, or exists for it.
    pub const fn uffd_wp(self) -> bool {
        matches!(self, Marker::UffdWp | Marker::PoisonedUffdWp | Marker::GuardUffdWp)
    }

    /// The marker with userfaultfd's write-protect bit (`pte_swp_mkuffd_wp`).
    #[must_use]
    pub const fn uffd_marked(self) -> Marker {
        match self {
            Marker::UffdWp => Marker::UffdWp,
            Marker::Poisoned | Marker::PoisonedUffdWp => Marker::PoisonedUffdWp,
            Marker::Guard | Marker::GuardUffdWp => Marker::GuardUffdWp,
        }
    }
}

/// A swap entry in a PTE.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SwapPte {
    /// The swap slot.
    pub slot: u32,
    /// Whether the page was exclusive to this address space (`pte_swp_exclusive`, 5.19 and later).
    pub exclusive: bool,
    /// The soft-dirty bit of the page's PTE.
    pub soft_dirty: bool,
    /// userfaultfd's write-protect bit of the page's PTE.
    pub uffd_wp: bool,
}

/// A present PTE.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Spelled", into = "Spelled")]
pub struct PresentPte {
    /// The frame that the entry maps.
    pub pfn: Pfn,
    /// The entry's flags.
    pub flags: PteFlags,
}

/// Flags of a present PTE. They are at the bits of x86-64, so its codec has nothing to move.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PteFlags(u16);

impl PteFlags {
    /// Stores are allowed.
    pub const WRITABLE: PteFlags = PteFlags(1 << 1);
    /// The page was accessed. The processor sets the flag at the first access.
    pub const ACCESSED: PteFlags = PteFlags(1 << 5);
    /// The page was stored to. The processor sets the flag at the first store.
    pub const DIRTY: PteFlags = PteFlags(1 << 6);
    /// User accesses are not allowed (`PROT_NONE`). The processor treats the entry as not present.
    pub const PROTNONE: PteFlags = PteFlags(1 << 8);
    /// The frame is the zero page, or another frame without a managed `struct page`
    /// (`pte_special`).
    pub const SPECIAL: PteFlags = PteFlags(1 << 9);
    /// userfaultfd has to be asked before a store (`_PAGE_UFFD_WP`).
    pub const UFFD_WP: PteFlags = PteFlags(1 << 10);
    /// The page was written since soft-dirty bits were last cleared.
    pub const SOFT_DIRTY: PteFlags = PteFlags(1 << 11);

    /// The flags of both sets (union).
    #[must_use]
    pub const fn and(self, others: PteFlags) -> PteFlags {
        PteFlags(self.0 | others.0)
    }

    const ALL: u16 = PteFlags::WRITABLE.0
        | PteFlags::ACCESSED.0
        | PteFlags::DIRTY.0
        | PteFlags::PROTNONE.0
        | PteFlags::SPECIAL.0
        | PteFlags::UFFD_WP.0
        | PteFlags::SOFT_DIRTY.0;

    /// The flags among `bits`.
    #[inline]
    pub const fn from_bits(bits: u64) -> PteFlags {
        PteFlags(bits as u16 & PteFlags::ALL)
    }

    /// The flags as bits of a PTE.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

impl PresentPte {
    /// A PTE without any flag.
    pub const fn new(pfn: Pfn) -> PresentPte {
        PresentPte { pfn, flags: PteFlags(0) }
    }

    const fn has(self, flag: PteFlags) -> bool {
        self.flags.0 & flag.0 != 0
    }

    /// Whether [`PteFlags::WRITABLE`] is set.
    pub const fn writable(self) -> bool {
        self.has(PteFlags::WRITABLE)
    }

    /// Whether [`PteFlags::ACCESSED`] is set.
    pub const fn accessed(self) -> bool {
        self.has(PteFlags::ACCESSED)
    }

    /// Whether [`PteFlags::DIRTY`] is set.
    pub const fn dirty(self) -> bool {
        self.has(PteFlags::DIRTY)
    }

    /// Whether [`PteFlags::PROTNONE`] is set.
    pub const fn protnone(self) -> bool {
        self.has(PteFlags::PROTNONE)
    }

    /// Whether [`PteFlags::SPECIAL`] is set.
    pub const fn special(self) -> bool {
        self.has(PteFlags::SPECIAL)
    }

    /// Whether [`PteFlags::UFFD_WP`] is set.
    pub const fn uffd_wp(self) -> bool {
        self.has(PteFlags::UFFD_WP)
    }

    /// Whether [`PteFlags::SOFT_DIRTY`] is set.
    pub const fn soft_dirty(self) -> bool {
        self.has(PteFlags::SOFT_DIRTY)
    }

    /// This entry, with `flag` set if `on`, otherwise unchanged.
    #[must_use]
    pub const fn with(mut self, flag: PteFlags, on: bool) -> PresentPte {
        self.flags.0 |= if on { flag.0 } else { 0 };
        self
    }

    /// This entry with `flag` cleared.
    #[must_use]
    pub const fn without(mut self, flag: PteFlags) -> PresentPte {
        self.flags.0 &= !flag.0;
        self
    }
}

/// A present PTE with named flags, for files and messages.
#[derive(Debug, Serialize, Deserialize)]
struct Spelled {
    pfn: Pfn,
    writable: bool,
    accessed: bool,
    dirty: bool,
    protnone: bool,
    special: bool,
    #[serde(default)]
    uffd_wp: bool,
    soft_dirty: bool,
}

impl From<PresentPte> for Spelled {
    fn from(pte: PresentPte) -> Spelled {
        Spelled {
            pfn: pte.pfn,
            writable: pte.writable(),
            accessed: pte.accessed(),
            dirty: pte.dirty(),
            protnone: pte.protnone(),
            special: pte.special(),
            uffd_wp: pte.uffd_wp(),
            soft_dirty: pte.soft_dirty(),
        }
    }
}

impl From<Spelled> for PresentPte {
    fn from(pte: Spelled) -> PresentPte {
        PresentPte::new(pte.pfn)
            .with(PteFlags::WRITABLE, pte.writable)
            .with(PteFlags::ACCESSED, pte.accessed)
            .with(PteFlags::DIRTY, pte.dirty)
            .with(PteFlags::PROTNONE, pte.protnone)
            .with(PteFlags::SPECIAL, pte.special)
            .with(PteFlags::UFFD_WP, pte.uffd_wp)
            .with(PteFlags::SOFT_DIRTY, pte.soft_dirty)
    }
}

impl fmt::Debug for PresentPte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Spelled::from(*self).fmt(f)
    }
}

impl PresentPte {
    /// This entry, protected from stores by userfaultfd (`pte_mkuffd_wp`).
    #[must_use]
    pub const fn uffd_protected(self) -> PresentPte {
        self.without(PteFlags::WRITABLE).with(PteFlags::UFFD_WP, true)
    }
}

impl Pte {
    /// This entry without userfaultfd's write-protect bit. A marker that exists only for the bit
    /// becomes an empty entry.
    #[must_use]
    pub const fn without_uffd_wp(self) -> Pte {
        match self {
            Pte::Present(pte) => Pte::Present(pte.without(PteFlags::UFFD_WP)),
            Pte::Swap(swap) => Pte::Swap(SwapPte { uffd_wp: false, ..swap }),
            Pte::Migration(entry) => Pte::Migration(MigrationPte { uffd_wp: false, ..entry }),
            Pte::Marker(Marker::UffdWp) => Pte::None,
            Pte::Marker(Marker::PoisonedUffdWp) => Pte::Marker(Marker::Poisoned),
            Pte::Marker(Marker::GuardUffdWp) => Pte::Marker(Marker::Guard),
            Pte::None | Pte::Table(_) | Pte::Marker(Marker::Poisoned | Marker::Guard) => self,
        }
    }

    /// This entry after `mremap` moved it: it counts as stored to, whatever it contains
    /// (`move_soft_dirty_pte`).
    #[must_use]
    pub const fn soft_dirtied(self) -> Pte {
        match self {
            Pte::Present(pte) => Pte::Present(pte.with(PteFlags::SOFT_DIRTY, true)),
            Pte::Swap(swap) => Pte::Swap(SwapPte { soft_dirty: true, ..swap }),
            Pte::Migration(entry) => Pte::Migration(MigrationPte { soft_dirty: true, ..entry }),
            // Only pagemap would show a marker's soft-dirty bit.
            Pte::None | Pte::Table(_) | Pte::Marker(_) => self,
        }
    }

    /// The translation, if there is one.
    pub const fn present(self) -> Option<PresentPte> {
        match self {
            Pte::Present(pte) => Some(pte),
            _ => None,
        }
    }

    /// Whether userfaultfd write-protects the entry's page.
    pub const fn uffd_wp(self) -> bool {
        match self {
            Pte::Present(pte) => pte.uffd_wp(),
            Pte::Swap(swap) => swap.uffd_wp,
            Pte::Migration(entry) => entry.uffd_wp,
            Pte::Marker(marker) => marker.uffd_wp(),
            Pte::None | Pte::Table(_) => false,
        }
    }

    /// Whether an access ends in SIGBUS because the page's contents are lost.
    pub const fn is_poisoned(self) -> bool {
        matches!(self, Pte::Marker(Marker::Poisoned | Marker::PoisonedUffdWp))
    }

    /// Whether the entry is empty.
    pub const fn is_none(self) -> bool {
        matches!(self, Pte::None)
    }
}
