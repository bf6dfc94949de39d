//! Barriers after page-table changes above the last level.
//!
//! Source: arch/arm64/include/asm/pgtable.h:set_pmd, set_pud, set_p4d (5.10, 6.1, 6.12: at once;
//! 7.2, 7.3: queue_pte_barriers, which is at once where a user's tables change); a PTE of a user's
//! page needs none (set_pte).

use crate::event::{Dsb, EventKind};
use crate::machine::world::{At, Log, Mode, World};
use crate::site::Site;

/// Emits the barrier after `tables` tables were linked into those above them: walks must see the
/// links.
pub fn table_linked<M: Mode>(w: &mut World<M>, at: At, tables: u32) {
    dsb(w, at.site(Site::PteAlloc), Dsb::Ishst, tables);
}

/// Emits the barrier, if any, after a table of `level` was taken out of the one above. Only the
/// uppermost level has one: there the kernel waits after every write of an entry, including one
/// that empties it (p4d_clear).
pub fn table_unlinked<M: Mode>(w: &mut World<M>, at: At, level: u32) {
    if level + 1 == w.arch.levels() {
        dsb(w, at, Dsb::Ishst, 1);
    }
}

pub(super) fn dsb<M: Mode>(w: &mut World<M>, at: At, barrier: Dsb, times: u32) {
    if times > 0 {
        w.log.emit(at, EventKind::Dsb { barrier, times }, None);
    }
}
