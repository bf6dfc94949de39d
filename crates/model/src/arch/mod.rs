//! Architectures: a row of geometry and rules, and a codec for page-table entries.
//!
//! Everything is a run-time value, so one run can compare several architectures. Two made-up
//! architectures keep generic code honest. [`TINY`] has four-entry tables and huge pages of four,
//! which also keeps the checker's worlds small. [`TINY_FAULTS`] has opposite rules about accessed
//! and dirty bits, flushes and faults.

pub mod x86_64;

use crate::addr::{PageRange, Span, Vpn};
use crate::pte::{PresentPte, Pte};

/// The largest number of page-table levels.
pub const MAX_LEVELS: usize = 5;

/// A row of hardware and architecture-code rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// The architecture's name.
    pub name: &'static str,
    /// The size of a base page in bytes, as a power of two (12: 4 KiB).
    pub page_shift: u8,
    /// How many bits of the page number index a table, by level, from the last level up. 0 means
    /// that there is no such level.
    pub index_bits: [u8; MAX_LEVELS],
    /// How many bits a page number has in the user half of the address space.
    pub user_bits: u8,
    /// The uppermost level at which an entry may map a page.
    pub huge_levels: u8,
    /// Whether the kernel is built for one more level, which is folded into the uppermost level.
    pub folded_level: bool,
    /// The most pages that a ranged flush invalidates one by one. A larger flush invalidates
    /// everything.
    pub flush_ceiling: u64,
    /// The address-space identifiers that the kernel assigns (x86: PCIDs).
    pub asids: Asids,
    /// How page-table entries are stored.
    pub codec: PteCodec,
    /// What sets the accessed and the dirty bit.
    pub accessed_dirty: AccessedDirty,
    /// Whether one gather may flush several mappings at once (`MMU_GATHER_MERGE_VMAS`).
    pub merges_vmas: bool,
    /// Whether fault-around maps the surrounding pages as not accessed
    /// (`arch_wants_old_prefaulted_pte`), in kernels that ask this.
    pub prefault_old: bool,
    /// The flushes that changes of a translation need.
    pub flushes: FlushRules,
    /// Whether a fault drops the CPU's own TLB entry for the page. If not, the CPU may fault again
    /// until a flush.
    pub fault_drops: bool,
    /// Whether an entry must be invalid on all CPUs before another frame, or another size, replaces
    /// it.
    pub breaks_before_make: bool,
    /// The code that flushes TLBs and switches address spaces.
    pub tlb_code: TlbCode,
}

/// What sets the accessed bit at the first access, and the dirty bit at the first store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessedDirty {
    /// The processor sets them during the page-table walk.
    Hardware,
    /// The kernel sets them, in a fault that the access takes.
    Fault,
}

/// The flush that each change of one translation needs. (Every architecture flushes a removed right
/// or a replaced frame on every CPU that may have cached the translation.)
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlushRules {
    /// The flush after a fault gives a present entry a new right (`ptep_set_access_flags`).
    pub granted: Flushes,
    /// The flush after a fault finds that the entry already allows the store
    /// (`flush_tlb_fix_spurious_fault`).
    pub spurious: Flushes,
    /// The flush after the accessed bit is cleared (`ptep_clear_flush_young`).
    pub aged: Flushes,
    /// The changes of an entry that `mprotect` flushes (`pte_needs_flush`).
    pub protect: ProtectRule,
}

/// The changes of a present entry that `mprotect` flushes, in kernels that check for this.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProtectRule {
    /// The present bit or the dirty bit was cleared, or the write bit was set or cleared.
    WriteChanged,
    /// The present, dirty or write bit was cleared.
    WriteTaken,
    /// Every entry, even one that did not change.
    All,
}

/// How address-space identifiers are assigned.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asids {
    /// Each CPU has this many identifiers and assigns them in turn.
    PerCpu(usize),
    /// Each address space has one identifier on all CPUs. (The model never runs out of them: 8 or
    /// 16 bits are more than any scenario needs; arch/arm64/mm/context.c:asid_bits.)
    Global,
}

/// Which CPUs flush.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flushes {
    /// No CPU flushes.
    Nobody,
    /// The CPU itself flushes.
    Local,
    /// Every CPU that may have cached the translation flushes, and the kernel waits for it.
    Broadcast,
    /// Every CPU that may have cached the translation flushes, and the kernel does not wait for it.
    BroadcastUnwaited,
}

/// The architecture's code for TLBs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TlbCode {
    /// arch/x86/mm/tlb.c: generations, interrupts, lazy CPUs.
    X86,
    /// arch/arm64/include/asm/tlbflush.h: an instruction that all CPUs obey, and a barrier that
    /// waits until they have.
    Arm64(Invalidation),
}

/// The properties that decide how many `TLBI` instructions one flush on arm64 takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Invalidation {
    /// Whether one instruction can invalidate a range (FEAT_TLBIRANGE).
    pub ranges: bool,
    /// Whether addresses have 52 bits (FEAT_LPA2), if the kernel is built for them. Ranges then
    /// begin at multiples of 64 KiB.
    pub wide: bool,
    /// Whether the kernel is unmapped while user code runs (KPTI). User code then has an identifier
    /// of its own, and each invalidation is issued twice
    /// (arch/arm64/include/asm/tlbflush.h:__tlbi_user).
    pub twice: bool,
}

/// x86-64 with 4-level tables and PCID, and a kernel that supports 5 levels (`CONFIG_X86_5LEVEL`,
/// as in distributions).
///
/// Sources: Intel SDM volume 3, 4.5 (geometry), 4.8 (accessed and dirty flags), 4.10.1 (PCID) and
/// 4.10.4.1 (page faults); Linux 5.10 to 7.3 arch/x86/mm/tlb.c (`tlb_single_page_flush_ceiling` 33,
/// `TLB_NR_DYN_ASIDS` 6), arch/x86/mm/pgtable.c:ptep_set_access_flags, ptep_clear_flush_young,
/// arch/x86/include/asm/tlbflush.h:flush_tlb_fix_spurious_fault, pte_needs_flush.
pub const X86_64: Arch = Arch {
    name: "x86-64",
    page_shift: 12,
    index_bits: [9, 9, 9, 9, 0],
    user_bits: 35,
    huge_levels: 3,
    folded_level: true,
    flush_ceiling: 33,
    asids: Asids::PerCpu(6),
    codec: PteCodec::X86_64,
    accessed_dirty: AccessedDirty::Hardware,
    merges_vmas: true,
    prefault_old: false,
    flushes: FlushRules {
        granted: Flushes::Nobody,
        spurious: Flushes::Nobody,
        aged: Flushes::Nobody,
        protect: ProtectRule::WriteChanged,
    },
    fault_drops: true,
    breaks_before_make: false,
    tlb_code: TlbCode::X86,
};

/// x86-64 with 5-level tables (LA57).
///
/// Source: Intel SDM volume 3, 4.5.
pub const X86_64_LA57: Arch =
    Arch { index_bits: [9, 9, 9, 9, 9], user_bits: 44, folded_level: false, ..X86_64 };

/// arm64 with pages of 4 KiB, 48-bit addresses, and hardware that sets the accessed and the dirty
/// bit (HAFDBS) and invalidates ranges: QEMU's processor `max`.
///
/// Sources: Arm ARM D8.5, D8.16.1 (break-before-make) and C5.5; Linux 5.10, 6.1, 6.12, 7.3
/// arch/arm64/mm/fault.c:ptep_set_access_flags,
/// arch/arm64/include/asm/pgtable.h:ptep_clear_flush_young (no DSB), pte_needs_flush (only 7.3 has
/// its own), arch/arm64/include/asm/tlbflush.h (MAX_TLBI_OPS, MAX_DVM_OPS: a table's entries). Two
/// of the rules are those of older kernels; rows of 7.2 and later have other ones
/// ([`KernelRow::arch`](crate::kernels::KernelRow::arch)).
pub const ARM64: Arch = Arch {
    name: "arm64",
    user_bits: 36,
    folded_level: false,
    flush_ceiling: 511,
    asids: Asids::Global,
    merges_vmas: false,
    prefault_old: true,
    flushes: FlushRules {
        granted: Flushes::Broadcast,
        spurious: Flushes::Nobody,
        aged: Flushes::BroadcastUnwaited,
        protect: ProtectRule::All,
    },
    fault_drops: false,
    breaks_before_make: true,
    tlb_code: TlbCode::Arm64(Invalidation { ranges: true, wide: true, twice: false }),
    ..X86_64
};

/// arm64 as in a Cortex-A72: [`ARM64`] without hardware accessed and dirty bits and without range
/// invalidation, and with KPTI.
pub const ARM64_A72: Arch = Arch {
    accessed_dirty: AccessedDirty::Fault,
    prefault_old: false,
    tlb_code: TlbCode::Arm64(Invalidation { ranges: false, wide: false, twice: true }),
    ..ARM64
};

/// riscv64 with 4-level tables (Sv48), whose processor faults when the accessed or the dirty bit
/// has to be set (Svade).
///
/// Sources: The RISC-V Instruction Set Manual II, Svade and Svadu; Linux 6.12
/// arch/riscv/mm/pgtable.c:ptep_set_access_flags (an SFENCE of its own in update_mmu_cache),
/// arch/riscv/include/asm/pgtable.h:ptep_clear_flush_young (no flush).
pub const RISCV64_SVADE: Arch = Arch {
    name: "riscv64-svade",
    folded_level: false,
    accessed_dirty: AccessedDirty::Fault,
    flushes: FlushRules {
        granted: Flushes::Local,
        spurious: Flushes::Local,
        aged: Flushes::Nobody,
        protect: ProtectRule::WriteChanged,
    },
    fault_drops: false,
    ..X86_64
};

/// riscv64 as [`RISCV64_SVADE`], but with a processor that sets the accessed and the dirty bit
/// (Svadu).
pub const RISCV64_SVADU: Arch =
    Arch { name: "riscv64-svadu", accessed_dirty: AccessedDirty::Hardware, ..RISCV64_SVADE };

/// ppc64 with the radix MMU and pages of 4 KiB. POWER9 takes a fault to set the reference bit and
/// the change bit.
///
/// Source: Linux 6.12 arch/powerpc/mm/book3s64/radix_pgtable.c:radix__ptep_set_access_flags (no
/// flush); arch/powerpc/include/asm/book3s/64/radix-4k.h (geometry).
pub const PPC64_RADIX: Arch = Arch {
    name: "ppc64-radix",
    index_bits: [9, 9, 9, 13, 0],
    user_bits: 40,
    huge_levels: 3,
    folded_level: false,
    accessed_dirty: AccessedDirty::Fault,
    flushes: FlushRules {
        granted: Flushes::Nobody,
        spurious: Flushes::Nobody,
        aged: Flushes::Nobody,
        protect: ProtectRule::WriteChanged,
    },
    ..X86_64
};

/// The architectures that rows may name besides x86-64. Except for arm64, the model has only the
/// rule who sets the accessed and the dirty bit, from source.
pub const OTHERS: [Arch; 4] = [ARM64, RISCV64_SVADE, RISCV64_SVADU, PPC64_RADIX];

/// A made-up architecture with the rules of x86-64 and four-entry tables of three levels.
pub const TINY: Arch = Arch {
    name: "tiny",
    index_bits: [2, 2, 2, 0, 0],
    user_bits: 5,
    huge_levels: 2,
    folded_level: false,
    flush_ceiling: 2,
    asids: Asids::PerCpu(2),
    ..X86_64
};

/// [`TINY`] with opposite rules: faults set the accessed and the dirty bit, other CPUs are flushed
/// after a new right and a cleared accessed bit, and a fault leaves the TLB as it is.
pub const TINY_FAULTS: Arch = Arch {
    name: "tiny-faults",
    accessed_dirty: AccessedDirty::Fault,
    flushes: FlushRules {
        granted: Flushes::Broadcast,
        spurious: Flushes::Local,
        aged: Flushes::Broadcast,
        protect: ProtectRule::WriteTaken,
    },
    fault_drops: false,
    ..TINY
};

impl Asids {
    /// How many identifiers a CPU can have in use, given the number of address spaces.
    pub const fn slots(self, spaces: usize) -> usize {
        match self {
            Asids::PerCpu(slots) => slots,
            Asids::Global => spaces,
        }
    }
}

impl Arch {
    /// The number of page-table levels.
    pub const fn levels(&self) -> u32 {
        let mut levels = 0;
        while levels < MAX_LEVELS && self.index_bits[levels] > 0 {
            levels += 1;
        }
        levels as u32
    }

    /// How many bits of the page number index a table of `level` (level 1 is the last level).
    #[inline]
    pub const fn bits(&self, level: u32) -> u32 {
        self.index_bits[level as usize - 1] as u32
    }

    /// Whether the kernel sets an entry's accessed bit for a load (`pmdp_set_access_flags`). On x86
    /// the processor does it.
    pub const fn marks_loads(&self) -> bool {
        matches!(self.accessed_dirty, AccessedDirty::Fault)
            || matches!(self.tlb_code, TlbCode::Arm64(_))
    }

    /// The order of a page that one entry of a table of `level` maps: the number of base pages as a
    /// power of two.
    #[inline]
    pub const fn order(&self, level: u32) -> u8 {
        let (mut order, mut below) = (0, 1);
        while below < level {
            order += self.index_bits[below as usize - 1];
            below += 1;
        }
        order
    }

    /// The pages of the huge page around `page`.
    pub const fn huge_pages(&self, page: Vpn) -> PageRange {
        Span::around(page, self.order(2)).range()
    }

    /// The level at which an entry maps pages of this order.
    pub const fn level_of(&self, order: u8) -> u32 {
        let mut level = 1;
        while level < MAX_LEVELS as u32 && self.order(level) < order {
            level += 1;
        }
        level
    }

    /// Whether the model has this architecture's own code for flushing and switching: x86's and
    /// arm64's. On other architectures the model predicts faults, but not flushes.
    pub fn flushes_are_its_own(&self) -> bool {
        ![RISCV64_SVADE, RISCV64_SVADU, PPC64_RADIX].iter().any(|other| other.name == self.name)
    }

    /// This architecture's rules with the small tables of [`TINY`], for the checker.
    #[must_use]
    pub const fn in_small(self) -> Arch {
        let Arch { name, accessed_dirty, merges_vmas, prefault_old, flushes, .. } = self;
        let Arch { fault_drops, breaks_before_make, .. } = self;
        let asids = match self.asids {
            Asids::Global => Asids::Global,
            Asids::PerCpu(_) => TINY.asids,
        };
        let tlb_code = self.tlb_code;
        Arch {
            name,
            accessed_dirty,
            merges_vmas,
            prefault_old,
            flushes,
            fault_drops,
            breaks_before_make,
            asids,
            tlb_code,
            ..TINY
        }
    }

    /// The number of entries in a table of `level`.
    pub const fn entries(&self, level: u32) -> usize {
        1 << self.bits(level)
    }

    /// The number of pages that one table of `level` spans.
    #[inline]
    pub const fn table_pages(&self, level: u32) -> u64 {
        1 << (self.order(level) as u32 + self.bits(level))
    }

    /// The number of pages in the user half of an address space.
    pub const fn user_pages(&self) -> u64 {
        1 << self.user_bits
    }
}

/// How a page-table entry is stored in 64 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PteCodec {
    /// The layout of x86-64.
    X86_64,
}

impl PteCodec {
    /// The stored form in a table of `level`. [`Pte::None`] is always 0.
    #[inline]
    pub fn encode(self, pte: Pte, level: u32) -> u64 {
        match self {
            PteCodec::X86_64 => x86_64::encode(pte, level),
        }
    }

    /// The neutral form of what a table of `level` stores.
    #[inline]
    pub fn decode(self, bits: u64, level: u32) -> Pte {
        match self {
            PteCodec::X86_64 => x86_64::decode(bits, level),
        }
    }

    /// The translation that a processor reads from an entry; `None` if the entry is no translation.
    #[inline]
    pub fn translation(self, bits: u64, level: u32) -> Option<PresentPte> {
        match self {
            PteCodec::X86_64 => x86_64::translation(bits, level),
        }
    }
}
