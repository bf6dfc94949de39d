//! Architectures: a row of geometry and hardware rules, plus a PTE codec.
//!
//! Everything is a run-time value, so that one run can compare several architectures. The geometry
//! is derived from `index_bits`; the made-up architecture [`TINY`] has four-entry tables and keeps
//! generic code honest (and the checker's worlds small).

pub mod x86_64;

use crate::pte::Pte;

/// A row of hardware and architecture-code rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// Its name.
    pub name: &'static str,
    /// Page-table levels.
    pub levels: u32,
    /// Whether the kernel is built for one more level, which is folded into the uppermost one.
    pub folded_level: bool,
    /// Bits of the page number that index one table.
    pub index_bits: u32,
    /// Most pages that a ranged flush invalidates one by one; more flush everything.
    pub flush_ceiling: u64,
    /// Address-space identifiers per CPU that the kernel hands out (x86: PCIDs).
    pub asids: usize,
    /// How PTEs are stored.
    pub codec: PteCodec,
}

/// x86-64 with 4-level tables and PCID, and a kernel that knows 5 levels (`CONFIG_X86_5LEVEL`, as
/// distributions have it).
///
/// Sources: Intel SDM volume 3, 4.5 (geometry) and 4.10.1 (PCID); Linux 5.10 to 7.3
/// arch/x86/mm/tlb.c (`tlb_single_page_flush_ceiling` 33, `TLB_NR_DYN_ASIDS` 6).
pub const X86_64: Arch = Arch {
    name: "x86-64",
    levels: 4,
    folded_level: true,
    index_bits: 9,
    flush_ceiling: 33,
    asids: 6,
    codec: PteCodec::X86_64,
};

/// x86-64 with 5-level tables (LA57).
///
/// Source: Intel SDM volume 3, 4.5.
pub const X86_64_LA57: Arch = Arch { name: "x86-64", levels: 5, folded_level: false, ..X86_64 };

/// A made-up architecture with the rules of x86-64 and four-entry tables of three levels.
pub const TINY: Arch = Arch {
    name: "tiny",
    levels: 3,
    folded_level: false,
    index_bits: 2,
    flush_ceiling: 2,
    asids: 2,
    codec: PteCodec::X86_64,
};

impl Arch {
    /// Entries in a table.
    pub const fn entries(&self) -> usize {
        1 << self.index_bits
    }

    /// Pages that one table of `level` spans (level 1 is the last level).
    pub const fn table_pages(&self, level: u32) -> u64 {
        1 << (self.index_bits * level)
    }

    /// Pages in the user half of an address space.
    pub const fn user_pages(&self) -> u64 {
        1 << (self.index_bits * self.levels - 1)
    }
}

/// How a PTE is stored in 64 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PteCodec {
    /// The layout of x86-64.
    X86_64,
}

impl PteCodec {
    /// The stored form. [`Pte::None`] is always 0.
    #[inline]
    pub fn encode(self, pte: Pte) -> u64 {
        match self {
            PteCodec::X86_64 => x86_64::encode(pte),
        }
    }

    /// The neutral form.
    #[inline]
    pub fn decode(self, bits: u64) -> Pte {
        match self {
            PteCodec::X86_64 => x86_64::decode(bits),
        }
    }
}
