//! A set of CPUs, like `cpumask`.

use crate::addr::CpuId;

const BITS: usize = u64::BITS as usize;

/// A set of CPUs. Up to 64 CPUs take no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    low: u64,
    high: Option<Box<HighWords>>,
}

/// The bits of CPUs from 64 on. There is at least one word, and the last word is not zero, so equal
/// sets have equal words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct HighWords(Vec<u64>);

const fn bit(cpu: CpuId) -> u64 {
    1 << (cpu.index() % BITS)
}

/// The index of the high word with `cpu`'s bit; `None` if the bit is in the low word.
const fn high_word(cpu: CpuId) -> Option<usize> {
    (cpu.index() / BITS).checked_sub(1)
}

impl CpuSet {
    fn high(&self) -> &[u64] {
        self.high.as_deref().map_or(&[], |high| &high.0)
    }

    /// Adds `cpu`.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        match high_word(cpu) {
            None => self.low |= bit(cpu),
            Some(word) => self.high.get_or_insert_default().insert(word, bit(cpu)),
        }
    }

    /// Removes `cpu`.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        match high_word(cpu) {
            None => self.low &= !bit(cpu),
            Some(word) => self.remove_high(word, bit(cpu)),
        }
    }

    #[cold]
    fn remove_high(&mut self, word: usize, bit: u64) {
        self.high = self.high.take().and_then(|high| high.without(word, bit));
    }

    /// Removes the CPUs for which `keep` is false.
    #[inline]
    pub fn retain(&mut self, keep: impl Fn(CpuId) -> bool) {
        let low = Cpus { word: self.low, first: 0, high: [].iter() };
        low.filter(|cpu| !keep(*cpu)).for_each(|cpu| self.low &= !bit(cpu));
        if self.high.is_some() {
            self.retain_high(keep);
        }
    }

    #[cold]
    fn retain_high(&mut self, keep: impl Fn(CpuId) -> bool) {
        let gone: Vec<CpuId> = self.iter().filter(|cpu| !keep(*cpu)).collect();
        gone.into_iter().for_each(|cpu| self.remove(cpu));
    }

    /// Whether `cpu` is in it.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        let word = match high_word(cpu) {
            None => self.low,
            Some(word) => self.high().get(word).copied().unwrap_or(0),
        };
        word & bit(cpu) != 0
    }

    /// Adds all CPUs of `other`.
    #[inline]
    pub fn union(&mut self, other: &CpuSet) {
        self.low |= other.low;
        if let Some(others) = &other.high {
            self.high.get_or_insert_default().union(others);
        }
    }

    /// Whether the set contains a CPU other than `cpu` (`cpumask_any_but`).
    #[inline]
    pub fn any_but(&self, cpu: CpuId) -> bool {
        match high_word(cpu) {
            None => self.low & !bit(cpu) != 0 || self.high.is_some(),
            Some(_) => self.iter().any(|other| other != cpu),
        }
    }

    /// The number of CPUs.
    #[inline]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_none()
    }

    /// The CPUs in ascending order.
    #[inline]
    pub fn iter(&self) -> Cpus<'_> {
        Cpus { word: self.low, first: 0, high: self.high().iter() }
    }
}

// These are kept out of the hot path of machines with few CPUs.
impl HighWords {
    #[cold]
    fn insert(&mut self, word: usize, bit: u64) {
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    #[cold]
    fn without(mut self: Box<HighWords>, word: usize, bit: u64) -> Option<Box<HighWords>> {
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        (!self.0.is_empty()).then_some(self)
    }

    #[cold]
    fn union(&mut self, others: &HighWords) {
        if self.0.len() < others.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&others.0) {
            *word |= more;
        }
    }
}

/// The CPUs of a [`CpuSet`], in ascending order.
#[derive(Clone, Debug)]
pub struct Cpus<'a> {
    /// The remaining bits of the word whose bit 0 is CPU `first`.
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
