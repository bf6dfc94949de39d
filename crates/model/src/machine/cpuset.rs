//! A set of CPUs, as `cpumask`.

use crate::addr::CpuId;

const BITS: usize = u64::BITS as usize;

/// A set of CPUs. Up to 64 CPUs take no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    low: u64,
    /// CPUs from 64 on; the last word is never zero, so that equal sets have equal words.
    high: Vec<u64>,
}

const fn bit(cpu: CpuId) -> u64 {
    1 << (cpu.index() % BITS)
}

impl CpuSet {
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.low).chain(self.high.iter().copied())
    }

    /// Adds `cpu`.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        match (cpu.index() / BITS).checked_sub(1) {
            None => self.low |= bit(cpu),
            Some(word) => {
                if word >= self.high.len() {
                    self.high.resize(word + 1, 0);
                }
                self.high[word] |= bit(cpu);
            }
        }
    }

    /// Takes `cpu` out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        match (cpu.index() / BITS).checked_sub(1) {
            None => self.low &= !bit(cpu),
            Some(word) => {
                if let Some(word) = self.high.get_mut(word) {
                    *word &= !bit(cpu);
                }
                while self.high.last() == Some(&0) {
                    self.high.pop();
                }
            }
        }
    }

    /// Whether `cpu` is in it.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let word = match (cpu.index() / BITS).checked_sub(1) {
            None => self.low,
            Some(word) => self.high.get(word).copied().unwrap_or(0),
        };
        word & bit(cpu) != 0
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (word, more) in self.high.iter_mut().zip(&other.high) {
            *word |= more;
        }
    }

    /// Whether it holds a CPU besides `cpu` (`cpumask_any_but`).
    #[inline]
    pub fn any_but(&self, cpu: CpuId) -> bool {
        self.len() > usize::from(self.contains(cpu))
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> Cpus<'_> {
        Cpus { word: self.low, first: 0, high: self.high.iter() }
    }
}

/// The CPUs of a [`CpuSet`], ascending.
#[derive(Clone, Debug)]
pub struct Cpus<'a> {
    /// What is left of the word whose bit 0 is CPU `first`.
    word: u64,
    first: u16,
    high: std::slice::Iter<'a, u64>,
}

impl Iterator for Cpus<'_> {
    type Item = CpuId;

    #[inline]
    fn next(&mut self) -> Option<CpuId> {
        while self.word == 0 {
            self.word = *self.high.next()?;
            self.first += BITS as u16;
        }
        let bit = self.word.trailing_zeros() as u16;
        self.word &= self.word - 1;
        Some(CpuId(self.first + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_and_order() {
        let mut set = CpuSet::default();
        for cpu in [700, 3, 64] {
            set.insert(CpuId(cpu));
        }
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [3, 64, 700]);
        assert!(set.any_but(CpuId(3)));
        set.remove(CpuId(64));
        set.remove(CpuId(700));
        assert!(!set.any_but(CpuId(3)) && set.any_but(CpuId(4)));
        let mut same = CpuSet::default();
        same.insert(CpuId(3));
        assert_eq!(set, same);
    }
}
