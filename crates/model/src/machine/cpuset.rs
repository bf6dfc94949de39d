//! A set of CPUs, as `cpumask`.

use crate::addr::CpuId;

/// Most CPUs in one machine.
pub const MAX_CPUS: usize = 1024;
const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: [u64; WORDS],
    /// Words that may be set: the others are zero. It never shrinks.
    used: u8,
}

impl CpuSet {
    fn used(&self) -> &[u64] {
        &self.words[..usize::from(self.used)]
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
        self.used = self.used.max((cpu.index() / 64 + 1) as u8);
    }

    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }

    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] & (1 << (cpu.index() % 64)) != 0
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        for (word, more) in self.words.iter_mut().zip(other.used()) {
            *word |= more;
        }
        self.used = self.used.max(other.used);
    }

    /// Whether it holds a CPU besides `cpu` (`cpumask_any_but`).
    pub fn any_but(&self, cpu: CpuId) -> bool {
        self.used().iter().enumerate().any(|(index, word)| {
            let own = if index == cpu.index() / 64 { 1 << (cpu.index() % 64) } else { 0 };
            word & !own != 0
        })
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<'_> {
        self.used().iter().enumerate().flat_map(|(index, word)| {
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
    }
}
