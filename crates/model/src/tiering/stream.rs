//! Streams of accesses: the pages that threads use, by unit of work.

use super::xsbench::XsBench;
use crate::program::Access;
use crate::rng::SplitMix64;

/// The kind of work that threads do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// XSBench's lookups: a hot part, and rows of a table that are used evenly.
    XsBench,
    /// A store of keys and values that is mostly read. Keys follow Zipf's law, and one access in a
    /// hundred is a store.
    KeyValue,
    /// A graph: random nodes and their neighbours. Each visit stores to a counter.
    Graph,
    /// Records that are used evenly. Half of the accesses are stores.
    Writes,
}

impl StreamKind {
    /// All kinds, each with its name and the name of a unit of work.
    pub const ALL: [(&'static str, StreamKind, &'static str); 4] = [
        ("xsbench", StreamKind::XsBench, "lookups"),
        ("key-value", StreamKind::KeyValue, "requests"),
        ("graph", StreamKind::Graph, "visits"),
        ("writes", StreamKind::Writes, "records"),
    ];
}

/// A stream of accesses.
#[derive(Clone, Debug)]
pub struct Stream {
    kind: StreamKind,
    xsbench: Option<Box<XsBench>>,
    areas: Vec<u64>,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { kind: StreamKind::Writes, xsbench: None, areas: Vec::new() }
    }
}

/// The pages of the other streams' memory on the original machine: 5.5 GiB, as for XSBench.
const PAGES: u64 = 1_441_792;

impl Stream {
    /// The stream on a machine that is smaller by the factor `scale`.
    pub fn new(kind: StreamKind, scale: u64) -> Stream {
        let xsbench = (kind == StreamKind::XsBench).then(|| Box::new(XsBench::large(scale)));
        let areas = match &xsbench {
            Some(xsbench) => xsbench.areas().to_vec(),
            // The counters of the graph's nodes are a separate area.
            None if kind == StreamKind::Graph => vec![PAGES / 32 / scale, PAGES / scale],
            None => vec![PAGES / scale],
        };
        Stream { kind, xsbench, areas }
    }

    /// The number of pages of each area, in the order in which the areas are first touched.
    pub fn areas(&self) -> &[u64] {
        &self.areas
    }

    /// The areas whose every page is used hundreds of times a second, one bit for each area.
    pub fn hot(&self) -> u32 {
        self.xsbench.as_ref().map_or(0, |_| XsBench::HOT)
    }

    /// Does one unit of work. `touch` is called with the area, the page in it, and the access.
    #[inline]
    pub fn unit(&mut self, random: &mut SplitMix64, touch: &mut impl FnMut(usize, u64, Access)) {
        match (self.kind, &self.xsbench) {
            (StreamKind::XsBench, Some(xsbench)) => xsbench.lookup(random, touch),
            (StreamKind::KeyValue, _) => {
                let pages = self.areas[0];
                let access = if random.below(100) == 0 { Access::Write } else { Access::Read };
                touch(0, zipf(random, pages), access);
            }
            (StreamKind::Graph, _) => {
                let (counters, nodes) = (self.areas[0], self.areas[1]);
                let node = random.below(nodes);
                touch(1, node, Access::Read);
                touch(1, random.below(nodes), Access::Read);
                touch(0, node * counters / nodes, Access::Write);
            }
            _ => {
                let access = if random.below(2) == 0 { Access::Write } else { Access::Read };
                touch(0, random.below(self.areas[0]), access);
            }
        }
    }
}

/// A page by Zipf's law with exponent 1: the logarithm of its rank is uniformly distributed. Ranks
/// are scattered over the area.
fn zipf(random: &mut SplitMix64, pages: u64) -> u64 {
    let even = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
    let rank = (even * (pages as f64).ln()).exp() as u64 - 1;
    // An odd factor maps the ranks of a power of two one to one. The result is scaled down to the
    // area.
    ((rank.min(pages - 1).wrapping_mul(0x9e37_79b1) & 0xffff_ffff) * pages) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(kind: StreamKind, units: u64) -> Vec<(usize, u64, bool)> {
        let mut stream = Stream::new(kind, 64);
        let (mut random, mut all) = (SplitMix64::new(7), Vec::new());
        for _ in 0..units {
            stream.unit(&mut random, &mut |area, page, access| {
                all.push((area, page, access.is_write()));
            });
        }
        let areas = stream.areas().to_vec();
        assert!(all.iter().all(|(area, page, _)| *page < areas[*area]), "{kind:?}");
        all
    }

    #[test]
    fn streams_keep_to_their_areas_and_store_as_they_say() {
        for (_, kind, _) in StreamKind::ALL {
            let all = touched(kind, 4000);
            let stores = all.iter().filter(|(.., store)| *store).count();
            let share = stores as f64 / all.len() as f64;
            let expected = match kind {
                StreamKind::XsBench => 0.0..0.001,
                StreamKind::KeyValue => 0.004..0.02,
                StreamKind::Graph => 0.33..0.34,
                StreamKind::Writes => 0.45..0.55,
            };
            assert!(expected.contains(&share), "{kind:?}: {share}");
        }
    }

    /// The most used hundredth of the keys gets more than half of the requests.
    #[test]
    fn keys_follow_zipfs_law() {
        let mut counts = std::collections::BTreeMap::new();
        let all = touched(StreamKind::KeyValue, 50_000);
        all.iter().for_each(|(_, page, _)| *counts.entry(*page).or_insert(0) += 1);
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: usize = counts.iter().take(225).sum();
        assert!(hot * 2 > all.len() && hot < all.len() * 3 / 4, "{hot} of {}", all.len());
    }
}
