//! The locks that threads hold.

use needless_model::addr::{MmId, PageRange};
use needless_model::env::Lock;
use smallvec::SmallVec;

/// Locks held, by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locks(SmallVec<[(Lock, u16); 4]>);

impl Locks {
    /// Whether somebody holds it.
    pub fn has(&self, lock: &Lock) -> bool {
        self.0.iter().any(|(held, _)| held == lock)
    }

    /// Whether one that somebody holds keeps `thread` from taking this one. Who has write-locked a mapping may do
    /// so again.
    pub fn exclude(&self, lock: Lock, thread: u16) -> bool {
        let again = |held: Lock, holder: u16| {
            holder == thread && matches!((held, lock), (Lock::VmaWrite(..), Lock::VmaWrite(..)))
        };
        self.0.iter().any(|(held, holder)| held.excludes(lock) && !again(*held, *holder))
    }

    /// `thread` takes it.
    pub fn take(&mut self, lock: Lock, thread: u16) {
        self.0.push((lock, thread));
        // Who came first does not matter.
        self.0.sort_unstable();
    }

    /// Whether `thread` holds it.
    pub fn held_by(&self, lock: Lock, thread: u16) -> bool {
        self.0.contains(&(lock, thread))
    }

    /// Whether nobody holds any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `thread` gives it back; whether it held it.
    pub fn release(&mut self, lock: Lock, thread: u16) -> bool {
        let held = self.0.iter().position(|held| *held == (lock, thread));
        held.into_iter().for_each(|index| _ = self.0.remove(index));
        // With it go the write locks of mappings (include/linux/mmap_lock.h:vma_end_write_all).
        if let Lock::MmapWrite(mm) = lock {
            let mappings = |held: &Lock| matches!(held, Lock::VmaWrite(of, _) if *of == mm);
            self.0.retain(|(held, holder)| *holder != thread || !mappings(held));
        }
        held.is_some()
    }

    /// Whether `thread` has write-locked the mapping of these pages.
    pub fn writes_vma(&self, thread: u16, mm: MmId, pages: PageRange) -> bool {
        let covers = |held: &Lock| matches!(held, Lock::VmaWrite(of, locked) if *of == mm && locked.intersect(pages) == pages);
        self.0.iter().any(|(held, holder)| *holder == thread && covers(held))
    }
}
