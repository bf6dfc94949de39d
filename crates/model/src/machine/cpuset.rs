//! A set of CPUs, as `cpumask`.

use crate::addr::CpuId;
use smallvec::SmallVec;

/// A set of CPUs. Up to 64 CPUs take no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// One bit per CPU; the last word is never zero, so that equal sets have equal words.
    words: SmallVec<[u64; 1]>,
}

impl CpuSet {
    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        let word = cpu.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu.index() % 64);
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let word = self.words.get(cpu.index() / 64);
        word.is_some_and(|word| word & (1 << (cpu.index() % 64)) != 0)
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Whether it holds a CPU besides `cpu` (`cpumask_any_but`).
    pub fn any_but(&self, cpu: CpuId) -> bool {
        self.words.iter().enumerate().any(|(index, word)| {
            let own = if index == cpu.index() / 64 { 1 << (cpu.index() % 64) } else { 0 };
            word & !own != 0
        })
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<'_> {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(CpuId((index * 64) as u16 + bit as u16))
            })
        })
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
