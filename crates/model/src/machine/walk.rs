//! The processor's page walk. Simulator and checker share this code.
//!
//! Source: Intel SDM volume 3, 4.6 (access rights), 4.8 (accessed and dirty flags) and 4.10.2 (what
//! is cached); Arm ARM D8.5 (hardware management of the Access flag and dirty state, and its
//! absence).

use super::page_table::PageTable;
use crate::addr::{Span, Vpn};
use crate::arch::AccessedDirty;
use crate::pte::{PresentPte, PteFlags};

/// A walk that allows an access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Walked {
    /// The pages of the translation.
    pub pages: Span,
    /// The entry before the walk.
    pub old: PresentPte,
    /// The entry after the walk.
    pub new: PresentPte,
    /// The translation that the TLB caches.
    pub cached: PresentPte,
}

/// The walk for an access to `page`; `None` if the access faults.
#[inline]
pub fn walk(table: &PageTable, rule: AccessedDirty, page: Vpn, write: bool) -> Option<Walked> {
    let (pte, pages) = table.walk(page);
    let old = pte.filter(|pte| !pte.protnone() && (!write || pte.writable()))?;
    let new = old.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, write);
    let sets_bits = rule == AccessedDirty::Hardware || new == old;
    sets_bits.then_some(Walked { pages, old, new, cached: held(new, rule) })
}

/// The translation that a walk finding `pte` may cache, as far as it decides what an access may do.
/// Where the kernel sets the accessed and the dirty bit, an entry without the accessed bit is not
/// cached, and a clean entry allows no store.
#[inline]
pub fn cacheable(pte: Option<PresentPte>, rule: AccessedDirty) -> Option<PresentPte> {
    let pte = pte.filter(|pte| !pte.protnone())?;
    let cached = rule == AccessedDirty::Hardware || pte.accessed();
    cached.then_some(held(pte, rule))
}

/// The translation that a TLB holds for a present entry.
#[inline]
fn held(pte: PresentPte, rule: AccessedDirty) -> PresentPte {
    let writable = match rule {
        AccessedDirty::Hardware => pte.writable(),
        AccessedDirty::Fault => pte.writable() && pte.dirty(),
    };
    let entry = PresentPte::new(pte.pfn).with(PteFlags::WRITABLE, writable);
    entry.with(PteFlags::DIRTY, writable && pte.dirty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Pfn;
    use crate::arch::{TINY, TINY_FAULTS};
    use crate::machine::room::Room;
    use crate::pte::Pte;

    fn table(flags: &[PteFlags]) -> (PageTable, Option<PresentPte>) {
        let (mut table, page) = (PageTable::new(TINY), Vpn(5));
        let pte = flags.iter().fold(PresentPte::new(Pfn(8)), |pte, flag| pte.with(*flag, true));
        table.allocate(page, 2, &Room::UNBOUNDED);
        // This is a huge page of four.
        table.set_huge(page, 2, Pte::Present(pte), 0).unwrap();
        (table, Some(pte))
    }

    #[test]
    fn who_sets_accessed_and_dirty() {
        let (hardware, fault) = (TINY.accessed_dirty, TINY_FAULTS.accessed_dirty);
        let (fresh, pte) = table(&[PteFlags::WRITABLE]);
        for write in [false, true] {
            let walked = walk(&fresh, hardware, Vpn(7), write).unwrap();
            assert_eq!(walked.pages, Span::around(Vpn(4), 2));
            assert_eq!((walked.new.accessed(), walked.new.dirty()), (true, write));
            assert_eq!(walk(&fresh, fault, Vpn(7), write), None);
        }
        assert!(cacheable(pte, hardware).is_some() && cacheable(pte, fault).is_none());

        let (clean, pte) = table(&[PteFlags::WRITABLE, PteFlags::ACCESSED]);
        let read = walk(&clean, fault, Vpn(4), false).unwrap();
        assert_eq!(read.old, read.new);
        assert_eq!(walk(&clean, fault, Vpn(4), true), None);
        let may_store = |rule| cacheable(pte, rule).is_some_and(PresentPte::writable);
        assert!(may_store(hardware) && !may_store(fault));
    }

    #[test]
    fn rights() {
        let rule = TINY.accessed_dirty;
        let (read_only, _) = table(&[]);
        assert!(walk(&read_only, rule, Vpn(4), false).is_some());
        assert_eq!(walk(&read_only, rule, Vpn(4), true), None);
        let (none, pte) = table(&[PteFlags::WRITABLE, PteFlags::PROTNONE]);
        assert_eq!((walk(&none, rule, Vpn(4), false), cacheable(pte, rule)), (None, None));
        assert_eq!(walk(&read_only, rule, Vpn(8), false), None);
    }
}
