//! The PTE layout of x86-64, with Linux's software bits.
//!
//! Sources: Intel SDM volume 3, tables 4-15 to 4-20 (hardware bits; above the last level, bit 7
//! distinguishes a page from a table); arch/x86/include/asm/pgtable_types.h (5.10 to 7.3) for
//! `_PAGE_PROTNONE` (the global bit, which means `PROT_NONE` while the present bit is clear),
//! `_PAGE_SPECIAL`, `_PAGE_UFFD_WP` and `_PAGE_SOFT_DIRTY`. [`PteFlags`] has them at the same bits.
//! Entries that are not present have a layout of our own, because nothing depends on Linux's.

use crate::addr::{Pfn, TableId};
use crate::pte::{Marker, MigrationPte, MigrationRight, PresentPte, Pte, PteFlags, SwapPte};

const PRESENT: u64 = 1;
const USER: u64 = 1 << 2;
/// Above the last level: the entry maps a page.
const PAGE_SIZE_BIT: u64 = 1 << 7;
const PFN_SHIFT: u32 = 12;
/// The bits that Linux sets in an entry that names a table (`_PAGE_TABLE`).
const TABLE: u64 =
    PRESENT | USER | PteFlags::WRITABLE.bits() | PteFlags::ACCESSED.bits() | PteFlags::DIRTY.bits();

/// The kinds of entries that are not present, in bits 1 and 2.
const KIND: u64 = 3 << 1;
const SWAP: u64 = 1 << 1;
const MIGRATION: u64 = 2 << 1;
const MARKER: u64 = 3 << 1;
/// Flags of an entry that is not present, in bits 3 to 7 and 9. Bit 8 is for `PROT_NONE`.
const EXCLUSIVE: u64 = 1 << 3;
const SOFT_DIRTY: u64 = 1 << 4;
const WRITABLE: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const UFFD_WP: u64 = 1 << 9;
/// The position of the swap slot, the frame number or the marker.
const OFFSET_SHIFT: u32 = 16;

const fn bit(set: bool, mask: u64) -> u64 {
    if set { mask } else { 0 }
}

/// The stored form in a table of `level`.
#[inline]
pub fn encode(pte: Pte, level: u32) -> u64 {
    match pte {
        Pte::None => 0,
        Pte::Present(pte) => {
            let presence = if pte.protnone() { 0 } else { PRESENT | USER };
            let size = bit(level > 1, PAGE_SIZE_BIT);
            presence | size | pte.flags.bits() | u64::from(pte.pfn.0) << PFN_SHIFT
        }
        Pte::Swap(swap) => {
            SWAP | bit(swap.exclusive, EXCLUSIVE)
                | bit(swap.soft_dirty, SOFT_DIRTY)
                | bit(swap.uffd_wp, UFFD_WP)
                | u64::from(swap.slot) << OFFSET_SHIFT
        }
        Pte::Table(table) => TABLE | u64::from(table.0) << PFN_SHIFT,
        Pte::Migration(pte) => {
            MIGRATION
                | bit(pte.right == MigrationRight::ReadExclusive, EXCLUSIVE)
                | bit(pte.right == MigrationRight::Write, WRITABLE)
                | bit(pte.accessed, ACCESSED)
                | bit(pte.dirty, DIRTY)
                | bit(pte.soft_dirty, SOFT_DIRTY)
                | bit(pte.uffd_wp, UFFD_WP)
                | u64::from(pte.pfn.0) << OFFSET_SHIFT
        }
        Pte::Marker(marker) => MARKER | (marker as u64) << OFFSET_SHIFT,
    }
}

/// The neutral form of what a table of `level` stores.
#[inline]
pub fn decode(bits: u64, level: u32) -> Pte {
    match translation(bits, level) {
        Some(pte) => Pte::Present(pte),
        None if bits == 0 => Pte::None,
        None if bits & PRESENT != 0 => Pte::Table(TableId((bits >> PFN_SHIFT) as u32)),
        None => decode_absent(bits),
    }
}

/// The translation in what a table of `level` stores, if it is one.
#[inline]
pub fn translation(bits: u64, level: u32) -> Option<PresentPte> {
    let there = bits & (PRESENT | PteFlags::PROTNONE.bits()) != 0;
    let maps = there && (level == 1 || bits & PAGE_SIZE_BIT != 0);
    let pfn = Pfn((bits >> PFN_SHIFT) as u32);
    maps.then_some(PresentPte { pfn, flags: PteFlags::from_bits(bits) })
}

fn decode_absent(bits: u64) -> Pte {
    let (has, offset) = (|mask| bits & mask != 0, (bits >> OFFSET_SHIFT) as u32);
    match bits & KIND {
        MIGRATION => Pte::Migration(MigrationPte {
            pfn: Pfn(offset),
            right: match (has(WRITABLE), has(EXCLUSIVE)) {
                (true, _) => MigrationRight::Write,
                (false, true) => MigrationRight::ReadExclusive,
                (false, false) => MigrationRight::Read,
            },
            accessed: has(ACCESSED),
            dirty: has(DIRTY),
            soft_dirty: has(SOFT_DIRTY),
            uffd_wp: has(UFFD_WP),
        }),
        MARKER => Pte::Marker(match offset {
            0 => Marker::UffdWp,
            1 => Marker::Poisoned,
            2 => Marker::Guard,
            3 => Marker::PoisonedUffdWp,
            _ => Marker::GuardUffdWp,
        }),
        _ => {
            let (exclusive, soft_dirty, uffd_wp) = (has(EXCLUSIVE), has(SOFT_DIRTY), has(UFFD_WP));
            Pte::Swap(SwapPte { slot: offset, exclusive, soft_dirty, uffd_wp })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pte(level: u32) -> impl Strategy<Value = Pte> {
        let swap = (any::<u32>(), any::<[bool; 3]>()).prop_map(
            |(slot, [exclusive, soft_dirty, uffd_wp])| {
                Pte::Swap(SwapPte { slot, exclusive, soft_dirty, uffd_wp })
            },
        );
        let present = (any::<u32>(), any::<u64>()).prop_map(|(pfn, bits)| {
            Pte::Present(PresentPte { pfn: Pfn(pfn), flags: PteFlags::from_bits(bits) })
        });
        let rights = [MigrationRight::Read, MigrationRight::ReadExclusive, MigrationRight::Write];
        let right = prop::sample::select(rights.to_vec());
        let migration = (any::<u32>(), right, any::<[bool; 4]>()).prop_map(
            |(pfn, right, [accessed, dirty, soft_dirty, uffd_wp])| {
                let pfn = Pfn(pfn);
                Pte::Migration(MigrationPte { pfn, right, accessed, dirty, soft_dirty, uffd_wp })
            },
        );
        let markers = [
            Marker::UffdWp,
            Marker::Poisoned,
            Marker::Guard,
            Marker::PoisonedUffdWp,
            Marker::GuardUffdWp,
        ];
        let marker = prop::sample::select(markers.to_vec()).prop_map(Pte::Marker);
        let table = any::<u32>().prop_map(move |id| match level {
            1 => Pte::None,
            _ => Pte::Table(TableId(id)),
        });
        prop_oneof![Just(Pte::None), swap, present, migration, marker, table]
    }

    proptest! {
        #[test]
        fn round_trip((level, pte) in (1u32..=3).prop_flat_map(|level| (Just(level), any_pte(level)))) {
            let bits = encode(pte, level);
            prop_assert_eq!(decode(bits, level), pte);
            prop_assert_eq!(translation(bits, level), pte.present());
            prop_assert_eq!(bits == 0, pte.is_none());
        }
    }

    /// The bits are those that an x86-64 processor reads.
    #[test]
    fn the_hardware_bits() {
        let page = PresentPte::new(Pfn(5)).with(PteFlags::WRITABLE, true);
        assert_eq!(encode(Pte::Present(page), 1), 0x5007);
        assert_eq!(encode(Pte::Present(page), 2), 0x5087, "a huge page");
        assert_eq!(encode(Pte::Table(TableId(5)), 2), 0x5067, "a table");
        let none = page.with(PteFlags::PROTNONE, true);
        assert_eq!(encode(Pte::Present(none), 2) & PRESENT, 0);
    }
}
