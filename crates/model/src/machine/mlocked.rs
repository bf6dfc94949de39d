//! The mlock state of a folio, as the LRU uses it.

/// The mlock state of a folio that mappings lock, or locked.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mlocked {
    /// Whether a mapping locks it (`PG_mlocked`).
    pub mlocked: bool,
    /// Whether it belongs to the unevictable list, which reclaim leaves alone (`PG_unevictable`).
    pub unevictable: bool,
    /// The number of mappings that lock it, as far as it was counted (`mlock_count`, 5.18 and
    /// later).
    pub count: u32,
}
