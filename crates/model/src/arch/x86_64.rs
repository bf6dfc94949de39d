//! The PTE layout of x86-64, with Linux's software bits.
//!
//! Sources: Intel SDM volume 3, table 4-20 (hardware bits); arch/x86/include/asm/pgtable_types.h
//! (5.10 to 7.3) for `_PAGE_PROTNONE` (the global bit, which means `PROT_NONE` while the present bit is clear),
//! `_PAGE_SPECIAL` and `_PAGE_SOFT_DIRTY`; [`PteFlags`] has them in these places. Swap entries are
//! stored in a layout of our own below the present bit: nothing depends on theirs.

use crate::addr::Pfn;
use crate::pte::{PresentPte, Pte, PteFlags, SwapPte};

const PRESENT: u64 = 1;
const USER: u64 = 1 << 2;
const PFN_SHIFT: u32 = 12;

const SWAP: u64 = 1 << 1;
const SWAP_EXCLUSIVE: u64 = 1 << 3;
const SWAP_SOFT_DIRTY: u64 = 1 << 4;
const SWAP_SHIFT: u32 = 16;

const fn bit(set: bool, mask: u64) -> u64 {
    if set { mask } else { 0 }
}

/// The stored form.
#[inline]
pub fn encode(pte: Pte) -> u64 {
    match pte {
        Pte::None => 0,
        Pte::Swap(swap) => {
            SWAP | bit(swap.exclusive, SWAP_EXCLUSIVE)
                | bit(swap.soft_dirty, SWAP_SOFT_DIRTY)
                | u64::from(swap.slot) << SWAP_SHIFT
        }
        Pte::Present(pte) => {
            let presence = if pte.protnone() { 0 } else { PRESENT | USER };
            presence | pte.flags.bits() | u64::from(pte.pfn.0) << PFN_SHIFT
        }
    }
}

/// The neutral form.
#[inline]
pub fn decode(bits: u64) -> Pte {
    if bits == 0 {
        Pte::None
    } else if bits & (PRESENT | PteFlags::PROTNONE.bits()) != 0 {
        let pfn = Pfn((bits >> PFN_SHIFT) as u32);
        Pte::Present(PresentPte { pfn, flags: PteFlags::from_bits(bits) })
    } else {
        Pte::Swap(SwapPte {
            slot: (bits >> SWAP_SHIFT) as u32,
            exclusive: bits & SWAP_EXCLUSIVE != 0,
            soft_dirty: bits & SWAP_SOFT_DIRTY != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_pte() -> impl Strategy<Value = Pte> {
        let swap = (any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
            |(slot, exclusive, soft_dirty)| Pte::Swap(SwapPte { slot, exclusive, soft_dirty }),
        );
        let present = (any::<u32>(), any::<u64>()).prop_map(|(pfn, bits)| {
            Pte::Present(PresentPte { pfn: Pfn(pfn), flags: PteFlags::from_bits(bits) })
        });
        prop_oneof![Just(Pte::None), swap, present]
    }

    proptest! {
        #[test]
        fn round_trip(pte in any_pte()) {
            prop_assert_eq!(decode(encode(pte)), pte);
        }

        #[test]
        fn only_none_is_zero(pte in any_pte()) {
            prop_assert_eq!(encode(pte) == 0, pte.is_none());
        }
    }
}
