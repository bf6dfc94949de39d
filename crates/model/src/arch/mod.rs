//! Architectures: a row of geometry and rules, plus a codec for page-table entries.
//!
//! Everything is a run-time value, so that one run can compare several architectures. The made-up
//! architecture [`TINY`] has four-entry tables and huge pages of four: it keeps generic code honest (and the
//! checker's worlds small); [`TINY_FAULTS`] differs from it in every rule.

pub mod x86_64;

use crate::addr::{PageRange, Span, Vpn};
use crate::pte::{PresentPte, Pte};

/// The most levels that a page table has.
pub const MAX_LEVELS: usize = 5;

/// A row of hardware and architecture-code rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// Its name.
    pub name: &'static str,
    /// Bytes in a base page, as a power of two.
    pub page_shift: u8,
    /// Bits of the page number that index a table, by level from the last one up; 0 where there is none.
    pub index_bits: [u8; MAX_LEVELS],
    /// Bits of the page number in a user's half of the address space.
    pub user_bits: u8,
    /// The uppermost level at which an entry may map a page.
    pub huge_levels: u8,
    /// Whether the kernel is built for one more level, which is folded into the uppermost one.
    pub folded_level: bool,
    /// Most pages that a ranged flush invalidates one by one; more flush everything.
    pub flush_ceiling: u64,
    /// Address-space identifiers per CPU that the kernel hands out (x86: PCIDs).
    pub asids: Asids,
    /// How page-table entries are stored.
    pub codec: PteCodec,
    /// Who sets the accessed and the dirty bit.
    pub accessed_dirty: AccessedDirty,
    /// Whether a gather flushes several mappings at once (`MMU_GATHER_MERGE_VMAS`).
    pub merges_vmas: bool,
    /// Whether fault-around maps pages that were not accessed as such (`arch_wants_old_prefaulted_pte`), in kernels that
    /// ask.
    pub prefault_old: bool,
    /// What changes of a translation cost.
    pub flushes: FlushRules,
    /// Whether a fault drops what the CPU's TLB holds of the page. Elsewhere it may fault again until somebody flushes.
    pub fault_drops: bool,
    /// Whether an entry must be invalid on all CPUs before another frame, or another size, comes to its place.
    pub breaks_before_make: bool,
    /// The code that flushes and switches address spaces.
    pub tlb_code: TlbCode,
}

/// Who sets the accessed bit at the first access, and the dirty bit at the first store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AccessedDirty {
    /// The processor, as it walks.
    Hardware,
    /// The kernel, in a fault that the access takes.
    Fault,
}

/// Whom a change of one translation makes the kernel flush. (What takes a right away or puts another frame
/// there is flushed on every CPU that may have it, everywhere.)
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlushRules {
    /// A fault gives a present entry a new right (`ptep_set_access_flags`).
    pub granted: Flushes,
    /// A store finds that its entry allows it already (`flush_tlb_fix_spurious_fault`).
    pub spurious: Flushes,
    /// The accessed bit was taken (`ptep_clear_flush_young`).
    pub aged: Flushes,
    /// Which changes of an entry `mprotect` flushes (`pte_needs_flush`).
    pub protect: ProtectRule,
}

/// Which changes of a present entry `mprotect` flushes, where it asks at all.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProtectRule {
    /// Presence or the dirty bit went, or the write bit changed, either way.
    WriteChanged,
    /// Presence, the dirty or the write bit went.
    WriteTaken,
    /// Any, and none.
    All,
}

/// Address-space identifiers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asids {
    /// Each CPU has so many and hands them out in turn.
    PerCpu(usize),
    /// Each address space has one, the same on all CPUs. (They are used up after so many address spaces as no
    /// scenario has: arch/arm64/mm/context.c:asid_bits, 8 or 16.)
    Global,
}

/// Who flushes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flushes {
    /// Nobody.
    Nobody,
    /// The CPU itself.
    Local,
    /// Every CPU that may have it cached.
    Broadcast,
    /// The same, without waiting until they are done.
    BroadcastUnwaited,
}

/// The architecture's code for TLBs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TlbCode {
    /// arch/x86/mm/tlb.c: generations, interrupts, lazy CPUs.
    X86,
    /// arch/arm64/include/asm/tlbflush.h: an instruction that all CPUs obey, and a barrier that waits for them.
    Arm64(Invalidation),
}

/// What decides how many `TLBI` instructions a flush of arm64 is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Invalidation {
    /// Ranges can be invalidated at once (FEAT_TLBIRANGE).
    pub ranges: bool,
    /// Addresses have 52 bits, where the kernel is built for that (FEAT_LPA2): ranges begin at borders of 64 KiB.
    pub wide: bool,
    /// The kernel is not mapped while user code runs (KPTI), so that user code has an identifier of its own and
    /// each invalidation is there twice (arch/arm64/include/asm/tlbflush.h:__tlbi_user).
    pub twice: bool,
}

/// x86-64 with 4-level tables and PCID, and a kernel that knows 5 levels (`CONFIG_X86_5LEVEL`, as
/// distributions have it).
///
/// Sources: Intel SDM volume 3, 4.5 (geometry), 4.8 (accessed and dirty flags), 4.10.1 (PCID) and 4.10.4.1 (page faults); Linux 5.10 to 7.3
/// arch/x86/mm/tlb.c (`tlb_single_page_flush_ceiling` 33, `TLB_NR_DYN_ASIDS` 6),
/// arch/x86/mm/pgtable.c:ptep_set_access_flags, ptep_clear_flush_young,
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

/// arm64 with pages of 4 KiB, 48-bit addresses, and hardware that sets the accessed and the dirty bit (HAFDBS) and
/// invalidates ranges: QEMU's processor `max`.
///
/// Sources: Arm ARM D8.5, D8.16.1 (break-before-make) and C5.5; Linux 5.10, 6.1, 6.12, 7.3 arch/arm64/mm/fault.c:ptep_set_access_flags,
/// arch/arm64/include/asm/pgtable.h:ptep_clear_flush_young (no DSB), pte_needs_flush (only 7.3 has its own),
/// arch/arm64/include/asm/tlbflush.h (MAX_TLBI_OPS, MAX_DVM_OPS: a table's entries). Two of the rules are those of
/// older kernels: a row of 7.2 and newer has others ([`KernelRow::arch`](crate::kernels::KernelRow::arch)).
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

/// The same without all of these, and with KPTI: a Cortex-A72.
pub const ARM64_A72: Arch = Arch {
    accessed_dirty: AccessedDirty::Fault,
    prefault_old: false,
    tlb_code: TlbCode::Arm64(Invalidation { ranges: false, wide: false, twice: true }),
    ..ARM64
};

/// riscv64 with 4-level tables (Sv48), whose processor faults where the accessed or the dirty bit is to be set (Svade).
///
/// Sources: The RISC-V Instruction Set Manual II, Svade and Svadu; Linux 6.12 arch/riscv/mm/pgtable.c:ptep_set_access_flags
/// (an SFENCE of its own in update_mmu_cache), arch/riscv/include/asm/pgtable.h:ptep_clear_flush_young (no flush).
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

/// The same with a processor that sets them (Svadu).
pub const RISCV64_SVADU: Arch =
    Arch { name: "riscv64-svadu", accessed_dirty: AccessedDirty::Hardware, ..RISCV64_SVADE };

/// ppc64 with the radix MMU and pages of 4 KiB: POWER9 takes a fault for the reference and the change bit.
///
/// Source: Linux 6.12 arch/powerpc/mm/book3s64/radix_pgtable.c:radix__ptep_set_access_flags (no flush);
/// arch/powerpc/include/asm/book3s/64/radix-4k.h (geometry).
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

/// The architectures that rows may name beside x86-64; of all but arm64 only who sets the accessed and the dirty bit,
/// from source.
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

/// The same with every rule the other way round.
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
    /// Identifiers that a CPU can have in use if there are so many address spaces.
    pub const fn slots(self, spaces: usize) -> usize {
        match self {
            Asids::PerCpu(slots) => slots,
            Asids::Global => spaces,
        }
    }
}

impl Arch {
    /// Page-table levels.
    pub const fn levels(&self) -> u32 {
        let mut levels = 0;
        while levels < MAX_LEVELS && self.index_bits[levels] > 0 {
            levels += 1;
        }
        levels as u32
    }

    /// Bits of the page number that index a table of `level` (level 1 is the last level).
    #[inline]
    pub const fn bits(&self, level: u32) -> u32 {
        self.index_bits[level as usize - 1] as u32
    }

    /// Whether the kernel sets an entry's accessed bit for a load (`pmdp_set_access_flags`): x86's leaves that to the processor.
    pub const fn marks_loads(&self) -> bool {
        matches!(self.accessed_dirty, AccessedDirty::Fault)
            || matches!(self.tlb_code, TlbCode::Arm64(_))
    }

    /// Pages that one entry of a table of `level` spans, as a power of two: the order of a page there.
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

    /// Whether its code for flushing and switching is what runs here: that of x86 and of arm64 is modelled. Elsewhere
    /// faults can be told, flushes cannot.
    pub fn flushes_are_its_own(&self) -> bool {
        ![RISCV64_SVADE, RISCV64_SVADU, PPC64_RADIX].iter().any(|other| other.name == self.name)
    }

    /// Its rules on a machine with the small tables of [`TINY`], for the checker.
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

    /// Entries in a table of `level`.
    pub const fn entries(&self, level: u32) -> usize {
        1 << self.bits(level)
    }

    /// Pages that one table of `level` spans.
    #[inline]
    pub const fn table_pages(&self, level: u32) -> u64 {
        1 << (self.order(level) as u32 + self.bits(level))
    }

    /// Pages in the user half of an address space.
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

    /// The neutral form.
    #[inline]
    pub fn decode(self, bits: u64, level: u32) -> Pte {
        match self {
            PteCodec::X86_64 => x86_64::decode(bits, level),
        }
    }

    /// The same, of a translation only: what processors make of an entry.
    #[inline]
    pub fn translation(self, bits: u64, level: u32) -> Option<PresentPte> {
        match self {
            PteCodec::X86_64 => x86_64::translation(bits, level),
        }
    }
}
