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
use crate::addr::{MmId, Pfn, ThreadId, Vpn};
use smallvec::SmallVec;

/// Which batch a flush is put off into.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// The running task's (`current->tlb_ubc`).
    Task,
    /// The world's deferred one.
    Deferred,
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
    pub pages: SmallVec<[(MmId, Vpn); 1]>,
    /// By address space: its count of unmaps when this batch was last added to.
    pub covers: Covers,
}

/// Up to which unmap of each address space something reaches.
pub type Covers = SmallVec<[(MmId, u32); 1]>;

impl UnmapBatch {
    /// The flush of one more PTE is put off.
    pub fn put_off(&mut self, writable: bool) {
        self.flush_required = true;
        self.writable |= writable;
    }

    /// Unmaps of `mm` are in it, the last of them being number `pending`.
    pub fn cover(&mut self, mm: MmId, pending: u32) {
        match self.covers.iter_mut().find(|(covered, _)| *covered == mm) {
            Some((_, last)) => *last = pending,
            None => self.covers.push((mm, pending)),
        }
    }
}

/// Frames that wait for a flush.
pub type Kept = SmallVec<[Pfn; 4]>;

/// The world's deferred batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deferred {
    /// What is not flushed yet.
    pub batch: UnmapBatch,
    /// Frames that wait for it, in the order in which they came, with a reference each.
    kept: Kept,
}

impl Deferred {
    /// The frame waits; the caller gives its reference away.
    pub fn keep(&mut self, frame: Pfn) {
        self.kept.push(frame);
    }

    /// The frames that wait.
    pub fn kept(&self) -> &[Pfn] {
        &self.kept
    }

    /// These CPUs have flushed everything. Once no CPU is left, nothing is owed: the frames that
    /// waited, whose references the caller drops.
    pub fn flushed(&mut self, cpus: &CpuSet) -> Kept {
        self.batch.cpus.retain(|cpu| !cpus.contains(cpu));
        match self.batch.cpus.is_empty() {
            true => std::mem::take(self).kept,
            false => Kept::new(),
        }
    }
}

impl<M: Mode> World<M> {
    /// The batch.
    pub fn unmap_batch(&self, which: Batch, thread: ThreadId) -> &UnmapBatch {
        match which {
            Batch::Task => &self.tasks[thread.index()].unmap_batch,
            Batch::Deferred => &self.deferred.batch,
        }
    }

    /// The batch, to be changed.
    pub fn unmap_batch_mut(&mut self, which: Batch, thread: ThreadId) -> &mut UnmapBatch {
        match which {
            Batch::Task => &mut self.tasks[thread.index()].unmap_batch,
            Batch::Deferred => &mut self.deferred.batch,
        }
    }

    /// Takes what is in the batch, to flush it, and the frames that wait for that flush: what is
    /// put off from now on waits for the next one.
    pub fn take_unmap_batch(&mut self, which: Batch, thread: ThreadId) -> (UnmapBatch, Kept) {
        match which {
            Batch::Task => {
                (std::mem::take(&mut self.tasks[thread.index()].unmap_batch), Kept::new())
            }
            Batch::Deferred => {
                let Deferred { batch, kept } = std::mem::take(&mut *self.deferred);
                (batch, kept)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::CpuId;

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
        deferred.keep(Pfn(3));
        deferred.keep(Pfn(1));
        assert!(deferred.flushed(&cpus(&[0, 1])).is_empty() && deferred.batch.flush_required);
        assert_eq!(deferred.kept(), [Pfn(3), Pfn(1)]);
        assert!(deferred.flushed(&cpus(&[70])).is_empty());
        assert_eq!(deferred.flushed(&cpus(&[2]))[..], [Pfn(3), Pfn(1)]);
        assert_eq!(deferred, Deferred::default());
    }
}
