//! Large folios of anonymous memory that are smaller than a huge page (mTHP), by size.
//!
//! Source: Documentation/admin-guide/mm/transhuge.rst,
//! include/linux/huge_mm.h:thp_vma_allowable_orders (6.12 to 7.3; since 6.8).

use super::ThpMode;
use serde::{Deserialize, Serialize};

/// The modes of `transparent_hugepage/hugepages-SIZE/enabled`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MthpMode {
    /// Mode `always`: all suitable mappings get folios of the size.
    Always,
    /// Mode `inherit`: the mode of huge pages applies.
    Inherit,
    /// Mode `madvise`: only mappings with `MADV_HUGEPAGE` get folios of the size.
    Madvise,
    /// Mode `never`: the size is off.
    #[default]
    Never,
}

impl MthpMode {
    /// All modes, each with the kernel's word.
    pub const ALL: [(&'static str, MthpMode); 4] = [
        ("always", MthpMode::Always),
        ("inherit", MthpMode::Inherit),
        ("madvise", MthpMode::Madvise),
        ("never", MthpMode::Never),
    ];

    /// The mode with that word.
    pub fn named(word: &str) -> Option<MthpMode> {
        MthpMode::ALL.iter().find(|(name, _)| *name == word).map(|(_, mode)| *mode)
    }

    /// The kernel's word.
    pub fn word(self) -> &'static str {
        MthpMode::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// The equivalent mode of huge pages, if the actual mode of huge pages is `thp`.
    pub const fn as_thp(self, thp: ThpMode) -> ThpMode {
        match self {
            MthpMode::Always => ThpMode::Always,
            MthpMode::Inherit => thp,
            MthpMode::Madvise => ThpMode::Madvise,
            MthpMode::Never => ThpMode::Never,
        }
    }
}

/// The mode of each size. The sizes are those of kernels with pages of 4 KiB.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mthp([MthpMode; Mthp::SIZES.len()]);

impl Mthp {
    /// The order of the smallest size. Kernels have no folios of two pages for anonymous memory.
    const SMALLEST: u8 = 2;

    /// The sizes as scenarios name them, from the smallest.
    pub const SIZES: [&'static str; 7] =
        ["16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1024KiB"];

    /// The modes with `mode` for the size of that name; `None` if there is no such size.
    #[must_use]
    pub fn with(mut self, size: &str, mode: MthpMode) -> Option<Mthp> {
        let place = Mthp::SIZES.iter().position(|name| *name == size)?;
        self.0[place] = mode;
        Some(self)
    }

    /// The orders with their modes, from the highest.
    pub fn orders(self) -> impl Iterator<Item = (u8, MthpMode)> {
        (Mthp::SMALLEST..).zip(self.0).collect::<Vec<_>>().into_iter().rev()
    }

    /// The name of the size of this order.
    pub fn size_of(order: u8) -> &'static str {
        let place = order.checked_sub(Mthp::SMALLEST).map(usize::from);
        place.and_then(|place| Mthp::SIZES.get(place)).map_or("", |size| size)
    }

    /// The sizes in KiB, as the kernel names them, with their modes.
    pub fn sizes(self) -> impl Iterator<Item = (u32, MthpMode)> {
        self.orders().map(|(order, mode)| (4 << order, mode))
    }

    /// Reads the notation of [`Mthp::notation`]. Each size may occur once; sizes that do not occur
    /// are off.
    pub fn parse(text: &str) -> Option<Mthp> {
        let mut named = Vec::new();
        text.split('+').try_fold(Mthp::default(), |sizes, part| {
            let (size, word) = part.split_once(':')?;
            let mode = MthpMode::named(word)?;
            if named.contains(&size) {
                return None;
            }
            named.push(size);
            sizes.with(size, mode)
        })
    }

    /// The sizes that are not off, as row options name them: `64KiB:always+16KiB:inherit`. Empty if
    /// all are off.
    pub fn notation(self) -> String {
        let on = self.orders().filter(|(_, mode)| *mode != MthpMode::Never);
        let on = on.map(|(order, mode)| format!("{}:{}", Mthp::size_of(order), mode.word()));
        on.collect::<Vec<_>>().join("+")
    }

    /// Whether all sizes are off.
    pub fn is_off(self) -> bool {
        self == Mthp::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_orders_and_the_highest_comes_first() {
        let mthp = Mthp::default().with("16KiB", MthpMode::Always).unwrap();
        let mthp = mthp.with("1024KiB", MthpMode::Inherit).unwrap();
        let on: Vec<_> = mthp.orders().filter(|(_, mode)| *mode != MthpMode::Never).collect();
        assert_eq!(on, [(8, MthpMode::Inherit), (2, MthpMode::Always)]);
        let named: Vec<String> = mthp.sizes().map(|(kib, _)| format!("{kib}KiB")).collect();
        assert_eq!(named.iter().rev().collect::<Vec<_>>(), Mthp::SIZES.iter().collect::<Vec<_>>());
        assert!(!mthp.is_off() && Mthp::default().is_off());
        assert_eq!(mthp.with("8KiB", MthpMode::Always), None);
    }
}
