//! Outstanding flushes: a PTE is cleared, and TLBs may still hold its translation.
//!
//! A task's batch is flushed before its operation ends. The deferred batch belongs to the world. It
//! outlives the operation that filled it, and keeps frames from being reused until every CPU that
//! it names has flushed.
//!
//! Source: include/linux/mm_types_task.h:struct tlbflush_unmap_batch (5.10 to 7.3). No kernel has
//! the deferred batch; MIGRC proposes it (v8, 20240226030613.22366-1-byungchul@sk.com), and others
//! do ([`crate::kernel::deferred`]).

use super::cpuset::CpuSet;
use super::world::{Mode, World};
use crate::addr::{CpuId, MmId, PageRange, Pfn, ThreadId, Vpn};
use crate::env::Learnt;
use smallvec::SmallVec;

/// The batch that a flush is deferred into.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// The batch of the running task (`current->tlb_ubc`).
    Task,
    /// The batch of the folio that the task is unmapping, whose flush may wait (`tlb_ubc_ro`).
    Folio,
    /// The deferred batch of the world.
    Deferred,
}

impl Learnt for Batch {
    fn nothing() -> Batch {
        Batch::Task
    }
}

/// A batch of flushes (`struct tlbflush_unmap_batch`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnmapBatch {
    /// Whether a flush is outstanding.
    pub flush_required: bool,
    /// Whether one of the PTEs was dirty, so that a CPU may still write.
    pub writable: bool,
    /// The CPUs to flush (x86).
    pub cpus: CpuSet,
    /// The pages whose invalidation has to be waited for (arm64).
    pub pages: Invalidated,
    /// The CPU that issued these invalidations.
    pub issuer: Option<CpuId>,
    /// For each address space, its number of unmaps when it was last added to this batch.
    pub covers: Covers,
}

/// Pages whose invalidation was issued, and may still be under way.
pub type Invalidated = SmallVec<[(MmId, Vpn); 1]>;

/// For each address space, the number of the last unmap that is included.
pub type Covers = SmallVec<[(MmId, u32); 1]>;

impl UnmapBatch {
    /// Adds one PTE whose flush is deferred.
    pub fn put_off(&mut self, writable: bool) {
        self.flush_required = true;
        self.writable |= writable;
    }

    /// Adds everything from `other`.
    pub fn join(&mut self, other: UnmapBatch) {
        self.flush_required |= other.flush_required;
        self.writable |= other.writable;
        self.cpus.union(&other.cpus);
        self.pages.extend(other.pages);
        self.issuer = self.issuer.or(other.issuer);
        for (mm, last) in other.covers {
            self.cover(mm, last);
        }
    }

    /// Records that unmaps of `mm` are included, up to number `pending`.
    pub fn cover(&mut self, mm: MmId, pending: u32) {
        match self.covers.iter_mut().find(|(covered, _)| *covered == mm) {
            Some((_, last)) => *last = pending.max(*last),
            None => self.covers.push((mm, pending)),
        }
    }
}

/// Frames that wait for a flush.
pub type Kept = SmallVec<[Pfn; 4]>;

/// The unmaps of a task whose flushes may be left to later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deferring {
    /// The batch of the folio that is being unmapped.
    pub folio: UnmapBatch,
    /// Whether a PTE of that folio has to be flushed with the task's batch.
    pub excluded: bool,
    /// The batch of the list's folios that qualified.
    pub list: UnmapBatch,
}

/// A frame that waits for a flush, with one reference.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// The frame.
    pub frame: Pfn,
    /// The frame that its contents have moved to.
    pub to: Option<Pfn>,
    /// The address space that alone had it mapped, if anybody asks for that.
    pub of: Option<MmId>,
}

/// The world's deferred batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deferred {
    /// The outstanding flushes.
    pub batch: UnmapBatch,
    /// The number of batched flushes that are under way.
    pub flushing: u32,
    /// How many lists of pages have left their flush since the last one that reached all CPUs. Only
    /// a mutant asks, and only then are they counted.
    pub lists: u32,
    /// The addresses where pages were unmapped whose flush is deferred, if that decides when they
    /// can be mapped again.
    pub addresses: SmallVec<[(MmId, PageRange); 1]>,
    /// The frames that wait for a flush, oldest first.
    kept: SmallVec<[Waiting; 4]>,
}

impl Deferred {
    /// Adds a waiting frame. It takes over the caller's reference.
    pub fn keep(&mut self, waiting: Waiting) {
        self.kept.push(waiting);
    }

    /// Removes a waiting frame. The caller takes over its reference.
    pub fn forget(&mut self, frame: Pfn) {
        if let Some(at) = self.kept.iter().position(|waiting| waiting.frame == frame) {
            self.kept.remove(at);
        }
    }

    /// Removes the waiting frame whose contents moved to this one. The caller takes over its
    /// reference.
    pub fn forget_source_of(&mut self, frame: Pfn) -> Option<Pfn> {
        let at = self.kept.iter().position(|waiting| waiting.to == Some(frame))?;
        Some(self.kept.remove(at).frame)
    }

    /// The waiting frames, and where they come from.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.kept.iter().copied()
    }

    /// The waiting frames.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = Pfn> + '_ {
        self.kept.iter().map(|waiting| waiting.frame)
    }

    /// Records that these CPUs have flushed everything. If no CPU is left, returns the waiting
    /// frames; the caller drops their references. With `strikes`, a flush that reaches only some of
    /// the CPUs counts for those.
    pub fn flushed(&mut self, cpus: &CpuSet, strikes: bool) -> Kept {
        let mut left = self.batch.cpus.clone();
        left.retain(|cpu| !cpus.contains(cpu));
        if !left.is_empty() {
            if strikes {
                self.batch.cpus = left;
            }
            return Kept::new();
        }
        let done =
            std::mem::replace(self, Deferred { flushing: self.flushing, ..Deferred::default() });
        done.kept.into_iter().map(|waiting| waiting.frame).collect()
    }
}

impl<M: Mode> World<M> {
    /// The batch; `None` if it does not exist.
    pub fn unmap_batch(&self, which: Batch, thread: ThreadId) -> Option<&UnmapBatch> {
        match which {
            Batch::Task => Some(&self.tasks[thread.index()].unmap_batch),
            Batch::Folio => {
                self.tasks[thread.index()].deferring.as_ref().map(|deferring| &deferring.folio)
            }
            Batch::Deferred => Some(&self.deferred.batch),
        }
    }

    /// The batch, for changes.
    pub fn unmap_batch_mut(&mut self, which: Batch, thread: ThreadId) -> &mut UnmapBatch {
        match which {
            Batch::Task => &mut self.tasks[thread.index()].unmap_batch,
            Batch::Folio => &mut self.tasks[thread.index()].deferring.get_or_insert_default().folio,
            Batch::Deferred => &mut self.deferred.batch,
        }
    }

    /// Takes the task's batch for a flush. With `owed`, the deferred batch is included.
    pub fn take_unmap_batch(&mut self, owed: bool, thread: ThreadId) -> UnmapBatch {
        let mut batch = std::mem::take(&mut self.tasks[thread.index()].unmap_batch);
        if owed {
            batch.join(self.deferred.batch.clone());
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(ids: &[u16]) -> CpuSet {
        let mut set = CpuSet::default();
        ids.iter().for_each(|id| set.insert(CpuId(*id)));
        set
    }

    /// Frames wait until the last CPU has flushed.
    #[test]
    fn kept_until_every_cpu_has_flushed() {
        let mut deferred = Deferred::default();
        deferred.batch.put_off(false);
        deferred.batch.cpus = cpus(&[0, 2, 70]);
        let waiting = |frame, to| Waiting { frame: Pfn(frame), to, of: None };
        deferred.keep(waiting(3, None));
        deferred.keep(waiting(1, Some(Pfn(2))));
        assert!(deferred.flushed(&cpus(&[0, 1]), true).is_empty() && deferred.batch.flush_required);
        assert_eq!(deferred.kept().collect::<Vec<_>>(), [Pfn(3), Pfn(1)]);
        assert!(deferred.flushed(&cpus(&[70]), true).is_empty());
        // Where parts do not count, one flush has to reach all that are left.
        deferred.batch.cpus.insert(CpuId(5));
        assert!(deferred.flushed(&cpus(&[5]), false).is_empty());
        assert!(deferred.flushed(&cpus(&[2]), false).is_empty());
        assert_eq!(deferred.flushed(&cpus(&[2, 5]), false)[..], [Pfn(3), Pfn(1)]);
        assert_eq!(deferred, Deferred::default());
    }
}
