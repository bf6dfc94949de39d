//! Flushes that are owed: a PTE is cleared, and TLBs may still hold its translation.
//!
//! A task's batch is flushed before its operation ends. The deferred batch is the world's: it
//! outlives the operation that filled it, and keeps frames from being used again until every CPU
//! that it names has flushed.
//!
//! Source: include/linux/mm_types_task.h:struct tlbflush_unmap_batch (5.10 to 7.3). No kernel has
//! the deferred one; MIGRC proposes it (v8, 20240226030613.22366-1-byungchul@sk.com).

use super::cpuset::CpuSet;
use super::world::{Mode, World};
use crate::addr::{CpuId, MmId, Pfn, ThreadId, Vpn};
use crate::env::Learnt;
use smallvec::SmallVec;

/// Which batch a flush is put off into.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// The running task's (`current->tlb_ubc`).
    Task,
    /// That of the folio which the task is unmapping, whose flush may wait (`tlb_ubc_ro`).
    Folio,
    /// The world's deferred one.
    Deferred,
}

impl Learnt for Batch {
    fn nothing() -> Batch {
        Batch::Task
    }
}

/// `struct tlbflush_unmap_batch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UnmapBatch {
    /// Something is put off.
    pub flush_required: bool,
    /// One of the PTEs was dirty, so that a CPU may still write.
    pub writable: bool,
    /// The CPUs to flush (x86).
    pub cpus: CpuSet,
    /// The pages whose invalidation is to be waited for (arm64).
    pub pages: Invalidated,
    /// The CPU that issued them.
    pub issuer: Option<CpuId>,
    /// By address space: its count of unmaps when this batch was last added to.
    pub covers: Covers,
}

/// Pages whose invalidation was issued, and may still be under way.
pub type Invalidated = SmallVec<[(MmId, Vpn); 1]>;

/// Up to which unmap of each address space something reaches.
pub type Covers = SmallVec<[(MmId, u32); 1]>;

impl UnmapBatch {
    /// The flush of one more PTE is put off.
    pub fn put_off(&mut self, writable: bool) {
        self.flush_required = true;
        self.writable |= writable;
    }

    /// What `other` owes is in it as well.
    pub fn join(&mut self, other: UnmapBatch) {
        self.flush_required |= other.flush_required;
        self.writable |= other.writable;
        self.cpus.union(&other.cpus);
        self.pages.extend(other.pages);
        for (mm, last) in other.covers {
            self.cover(mm, last);
        }
    }

    /// Unmaps of `mm` are in it, the last of them being number `pending`.
    pub fn cover(&mut self, mm: MmId, pending: u32) {
        match self.covers.iter_mut().find(|(covered, _)| *covered == mm) {
            Some((_, last)) => *last = pending.max(*last),
            None => self.covers.push((mm, pending)),
        }
    }
}

/// Frames that wait for a flush.
pub type Kept = SmallVec<[Pfn; 4]>;

/// What a task unmaps, as far as the flushes of it may be left to later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deferring {
    /// Of the folio that is being unmapped.
    pub folio: UnmapBatch,
    /// Whether a PTE of that folio has to be flushed with the task's batch.
    pub excluded: bool,
    /// Of the list's folios that qualified.
    pub list: UnmapBatch,
}

/// The world's deferred batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deferred {
    /// What is not flushed yet.
    pub batch: UnmapBatch,
    /// How many batched flushes are under way.
    pub flushing: u32,
    /// How many lists of pages have left their flush since the last one that reached all CPUs. Only a
    /// mutant asks, and only then are they counted.
    pub lists: u32,
    /// Frames that wait for it, in the order in which they came, with a reference each, and where
    /// their contents went.
    kept: SmallVec<[(Pfn, Option<Pfn>); 4]>,
}

impl Deferred {
    /// The frame waits; the caller gives its reference away.
    pub fn keep(&mut self, frame: Pfn, to: Option<Pfn>) {
        self.kept.push((frame, to));
    }

    /// The frame whose contents went to this one does not wait any more: it is the caller's.
    pub fn forget_source_of(&mut self, frame: Pfn) -> Option<Pfn> {
        let at = self.kept.iter().position(|(_, to)| *to == Some(frame))?;
        Some(self.kept.remove(at).0)
    }

    /// The frames that wait.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = Pfn> + '_ {
        self.kept.iter().map(|(frame, _)| *frame)
    }

    /// These CPUs have flushed everything. Once no CPU is left, nothing is owed: the frames that
    /// waited, whose references the caller drops. `strikes`: a flush that does not reach all of them
    /// counts for those that it reaches.
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
        done.kept.into_iter().map(|(frame, _)| frame).collect()
    }
}

impl<M: Mode> World<M> {
    /// The batch.
    pub fn unmap_batch(&self, which: Batch, thread: ThreadId) -> Option<&UnmapBatch> {
        match which {
            Batch::Task => Some(&self.tasks[thread.index()].unmap_batch),
            Batch::Folio => {
                self.tasks[thread.index()].deferring.as_ref().map(|deferring| &deferring.folio)
            }
            Batch::Deferred => Some(&self.deferred.batch),
        }
    }

    /// The batch, to be changed.
    pub fn unmap_batch_mut(&mut self, which: Batch, thread: ThreadId) -> &mut UnmapBatch {
        match which {
            Batch::Task => &mut self.tasks[thread.index()].unmap_batch,
            Batch::Folio => &mut self.tasks[thread.index()].deferring.get_or_insert_default().folio,
            Batch::Deferred => &mut self.deferred.batch,
        }
    }

    /// Takes what is in the task's batch, to flush it; with `owed`, what the machine owes is flushed with it.
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
        deferred.keep(Pfn(3), None);
        deferred.keep(Pfn(1), Some(Pfn(2)));
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
