//! What mappings lock in memory (`mlock`), as the LRU sees it.

/// What is known of a folio as one that mappings lock, or did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mlocked {
    /// A mapping locks it (`PG_mlocked`).
    pub mlocked: bool,
    /// It is with those that reclaim leaves alone (`PG_unevictable`).
    pub unevictable: bool,
    /// By how many mappings, as far as that was counted (`mlock_count`, 5.18 and later).
    pub count: u32,
}
