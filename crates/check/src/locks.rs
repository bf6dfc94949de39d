//! The locks that threads hold.

use crate::shared::Shared;
use needless_model::addr::{MmId, PageRange};
use needless_model::env::Lock;
use smallvec::SmallVec;

/// The locks that a thread holds, in the order of their names: which came first does not matter.
pub type HeldLocks = SmallVec<[Lock; 4]>;

/// The locks held, by thread. Each thread's are a part of their own: a step that only asks for its
/// own locks does not depend on what others hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locks {
    /// By thread.
    pub by_thread: Vec<Shared<HeldLocks>>,
}

impl Locks {
    /// Nobody holds any.
    pub fn new(threads: usize) -> Locks {
        Locks { by_thread: vec![Shared::default(); threads] }
    }

    /// The locks that are held, each with its holder.
    fn all(&self) -> impl Iterator<Item = (Lock, u16)> + '_ {
        let threads = self.by_thread.iter().zip(0..);
        threads.flat_map(|(held, thread)| held.iter().map(move |lock| (*lock, thread)))
    }

    /// Whether somebody holds it.
    pub fn has(&self, lock: &Lock) -> bool {
        self.all().any(|(held, _)| held == *lock)
    }

    /// Whether one that somebody holds keeps `thread` from taking this one. Who has write-locked a
    /// mapping may do so again.
    pub fn exclude(&self, lock: Lock, thread: u16) -> bool {
        let again = |held: Lock, holder: u16| {
            holder == thread && matches!((held, lock), (Lock::VmaWrite(..), Lock::VmaWrite(..)))
        };
        self.all().any(|(held, holder)| held.excludes(lock) && !again(held, holder))
    }

    /// `thread` takes it.
    pub fn take(&mut self, lock: Lock, thread: u16) {
        let held = &mut *self.by_thread[usize::from(thread)];
        held.push(lock);
        held.sort_unstable();
    }

    /// Whether `thread` holds it.
    pub fn held_by(&self, lock: Lock, thread: u16) -> bool {
        self.by_thread[usize::from(thread)].contains(&lock)
    }

    /// Whether nobody holds any.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// `thread` gives it back; whether it held it.
    pub fn release(&mut self, lock: Lock, thread: u16) -> bool {
        let all = &mut *self.by_thread[usize::from(thread)];
        let held = all.iter().position(|held| *held == lock);
        held.into_iter().for_each(|index| _ = all.remove(index));
        // With it go the write locks of mappings (include/linux/mmap_lock.h:vma_end_write_all).
        if let Lock::MmapWrite(mm) = lock {
            all.retain(|held| !matches!(held, Lock::VmaWrite(of, _) if *of == mm));
        }
        held.is_some()
    }

    /// Whether `thread` has write-locked the mapping of these pages.
    pub fn writes_vma(&self, thread: u16, mm: MmId, pages: PageRange) -> bool {
        let covers = |held: &Lock| matches!(held, Lock::VmaWrite(of, locked) if *of == mm && locked.intersect(pages) == pages);
        self.by_thread[usize::from(thread)].iter().any(covers)
    }
}
