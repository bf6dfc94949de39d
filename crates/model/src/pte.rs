//! The architecture-neutral page-table entry.
//!
//! Kernel operations see only this type; a codec per architecture turns it into bits.

use crate::addr::Pfn;
use serde::{Deserialize, Serialize};

/// A page-table entry of the last level.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pte {
    /// Nothing.
    #[default]
    None,
    /// The page is in swap.
    Swap(SwapPte),
    /// A translation.
    Present(PresentPte),
}

/// A swap entry in a PTE.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SwapPte {
    /// The swap slot.
    pub slot: u32,
    /// The page was exclusive to this address space (`pte_swp_exclusive`, 5.19 and later).
    pub exclusive: bool,
    /// Carried over from the page's PTE.
    pub soft_dirty: bool,
}

/// A present PTE.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PresentPte {
    /// The frame.
    pub pfn: Pfn,
    /// Stores allowed.
    pub writable: bool,
    /// Set by the processor at the first access.
    pub accessed: bool,
    /// Set by the processor at the first store.
    pub dirty: bool,
    /// No user access (`PROT_NONE`): the processor treats the entry as not present.
    pub protnone: bool,
    /// The zero page or another frame without `struct page` life cycle (`pte_special`).
    pub special: bool,
    /// Written since soft-dirty was last cleared.
    pub soft_dirty: bool,
}

impl Pte {
    /// The translation, if there is one.
    pub const fn present(self) -> Option<PresentPte> {
        match self {
            Pte::Present(pte) => Some(pte),
            _ => None,
        }
    }

    /// Whether there is nothing.
    pub const fn is_none(self) -> bool {
        matches!(self, Pte::None)
    }
}
