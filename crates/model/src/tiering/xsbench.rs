//! XSBench's lookups, as pages: the kernel of a Monte Carlo code for neutrons, with its large data
//! set and unionised grid.
//!
//! A lookup draws an energy and a material. It finds the energy in an array of all nuclides'
//! energies by binary search. It then reads one row of a table at the found position, and for each
//! nuclide of the material one entry of that row and two neighbouring points of the nuclide's own
//! grid. The table is nearly all of the memory, and all its rows are equally likely.
//!
//! Smaller machines have fewer grid points for each nuclide. Rows of the table keep their length,
//! and there are fewer rows.
//!
//! Source: XSBench at ba08e522, openmp-threading (GridInit.c, Materials.c, Simulation.c): sizes,
//! lists and probabilities.

use crate::program::Access;
use crate::rng::SplitMix64;

/// The number of nuclides of the large data set.
const NUCLIDES: u64 = 355;
/// The number of grid points of each nuclide.
const POINTS: u64 = 11_303;
/// The bytes of a grid point: an energy and five cross sections.
const POINT: u64 = 48;
/// The bytes of a row of the table: a number for each nuclide.
const ROW: u64 = NUCLIDES * 4;
/// The bytes of a material's list: as many numbers as the longest list has.
const LIST: u64 = 321 * 4;
const PAGE: u64 = 4096;

/// How often each material is drawn, in thousandths. The program's table has 0.140 for the first
/// material. Its running sum leaves this out, and the remainder returns the first material.
const DRAWN: [u64; 12] = [139, 52, 275, 134, 154, 64, 66, 55, 8, 15, 25, 13];

/// The nuclides of each material, as ranges of numbers.
const FUEL: &[(u16, u16)] = &[
    (58, 61),
    (40, 40),
    (42, 46),
    (1, 3),
    (7, 10),
    (29, 29),
    (57, 57),
    (47, 48),
    (0, 0),
    (62, 62),
    (15, 15),
    (33, 34),
    (52, 56),
    (18, 18),
    (23, 23),
    (41, 41),
    (68, 354),
];
const CLADDING: &[(u16, u16)] = &[(63, 67)];
const WATER: &[(u16, u16)] = &[(24, 24), (41, 41), (4, 5)];
const VESSEL: &[(u16, u16)] =
    &[(19, 22), (35, 39), (25, 25), (27, 32), (26, 26), (49, 51), (11, 14), (6, 6), (16, 17)];
const STEEL: &[(u16, u16)] =
    &[(24, 24), (41, 41), (4, 5), (19, 22), (35, 39), (25, 25), (49, 51), (11, 14)];
const TOP: &[(u16, u16)] = &[(24, 24), (41, 41), (4, 5), (63, 67)];
const MATERIALS: [&[(u16, u16)]; 12] =
    [FUEL, CLADDING, WATER, WATER, VESSEL, STEEL, STEEL, STEEL, STEEL, STEEL, TOP, TOP];

/// The areas, in the order in which the program fills them.
const GRIDS: usize = 0;
const ENERGIES: usize = 1;
const TABLE: usize = 2;
const LISTS: usize = 3;

/// The tables for one size.
#[derive(Clone, Debug)]
pub struct XsBench {
    points: u64,
    /// The nuclides of each material, in the program's order.
    materials: Vec<Vec<u16>>,
    areas: [u64; 4],
}

impl XsBench {
    /// All areas except the table, one bit for each area.
    pub const HOT: u32 = 1 << GRIDS | 1 << ENERGIES | 1 << LISTS;

    /// The large data set, with fewer grid points by the factor `scale`.
    pub fn large(scale: u64) -> XsBench {
        let points = (POINTS / scale).max(2);
        let union = points * NUCLIDES;
        let pages = |bytes: u64| bytes.div_ceil(PAGE);
        let areas = [pages(union * POINT), pages(union * 8), pages(union * ROW), pages(LIST * 12)];
        let list = |ranges: &&[(u16, u16)]| ranges.iter().flat_map(|(a, b)| *a..=*b).collect();
        XsBench { points, materials: MATERIALS.iter().map(list).collect(), areas }
    }

    /// The number of pages of each area.
    pub fn areas(&self) -> &[u64] {
        &self.areas
    }

    /// Does one lookup.
    #[inline]
    pub fn lookup(&self, random: &mut SplitMix64, touch: &mut impl FnMut(usize, u64, Access)) {
        let union = self.points * NUCLIDES;
        let (place, material) = (random.below(union), material(random.below(1000)));
        let mut last = [u64::MAX; 4];
        let mut read = |area: usize, byte: u64| {
            let page = byte / PAGE;
            if last[area] != page {
                last[area] = page;
                touch(area, page, Access::Read);
            }
        };
        // 1. The energy's position among all energies: the last examined one that is not greater.
        let (mut lower, mut length) = (0, union - 1);
        while length > 1 {
            let examined = lower + length / 2;
            read(ENERGIES, examined * 8);
            if examined <= place {
                lower = examined;
                length -= length / 2;
            } else {
                length /= 2;
            }
        }
        // 2. For each nuclide of the material, its entry in the row, then two points of its grid.
        let point = (place / NUCLIDES).min(self.points - 2);
        for &nuclide in &self.materials[material] {
            let nuclide = u64::from(nuclide);
            read(LISTS, material as u64 * LIST);
            read(TABLE, place * ROW + nuclide * 4);
            let grid = (nuclide * self.points + point) * POINT;
            read(GRIDS, grid);
            read(GRIDS, grid + 2 * POINT - 1);
        }
    }
}

/// The material for a number below 1000.
fn material(number: u64) -> usize {
    let mut left = number;
    for (material, drawn) in DRAWN.iter().enumerate() {
        match left.checked_sub(*drawn) {
            None => return material,
            Some(next) => left = next,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_large_as_published() {
        let large = XsBench::large(1);
        assert_eq!(large.areas[..3], [47_023, 7_838, 1_391_075]);
        let counts: Vec<usize> = large.materials.iter().map(Vec::len).collect();
        assert_eq!(counts, [321, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9]);
        assert_eq!(DRAWN.iter().sum::<u64>(), 1000);
        let mean: f64 = DRAWN.iter().zip(&counts).map(|(p, n)| (p * *n as u64) as f64).sum();
        assert!((mean / 1000.0 - 55.38).abs() < 0.02, "{mean}");
    }

    /// Twelve published runs have 68.97 to 70.71 dTLB load misses per lookup. The TLB is far
    /// smaller than the hot part, so each page of a lookup is a miss.
    #[test]
    fn a_lookup_comes_to_seventy_pages() {
        let (large, mut random, mut pages) = (XsBench::large(1), SplitMix64::new(1), 0_u64);
        for _ in 0..20_000 {
            large.lookup(&mut random, &mut |area, page, _| {
                assert!(page < large.areas[area]);
                pages += u64::from(area != LISTS);
            });
        }
        let mean = pages as f64 / 20_000.0;
        assert!((63.0..77.0).contains(&mean), "{mean} pages a lookup");
    }
}
