//! What memory is of: objects.
//!
//! A frame names its object and its index there. The object knows which address spaces map it, and their
//! mappings say at which page ([`super::mm::Mm::pages_of`]): so a walk from a frame looks at the address
//! spaces that may map it and at no other ([`crate::kernel::rmap`]). Anonymous memory is an `anon_vma`'s.

use crate::addr::{MmId, ObjectId};
use smallvec::SmallVec;

/// The address spaces that map an object, in the order in which they began to; none: the number is free.
type MappedBy = SmallVec<[MmId; 2]>;

/// All objects; number 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Objects {
    stored: Vec<MappedBy>,
    free: Vec<ObjectId>,
}

impl Default for Objects {
    fn default() -> Objects {
        Objects { stored: vec![MappedBy::new()], free: Vec::new() }
    }
}

impl Objects {
    /// An object that `mm` maps; `None` if there are too many.
    pub fn create(&mut self, mm: MmId) -> Option<ObjectId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                let id = ObjectId(u16::try_from(self.stored.len()).ok()?);
                self.stored.push(MappedBy::new());
                id
            }
        };
        self.stored[id.index()].push(mm);
        Some(id)
    }

    /// The address spaces that map it.
    pub fn mapped_by(&self, object: ObjectId) -> &[MmId] {
        &self.stored[object.index()]
    }

    /// `mm` has no mapping of it left; without any, it is gone.
    pub fn unlink(&mut self, object: ObjectId, mm: MmId) {
        let mapped_by = &mut self.stored[object.index()];
        let before = mapped_by.len();
        mapped_by.retain(|other| *other != mm);
        if before > 0 && mapped_by.is_empty() {
            self.free.push(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_when_nobody_maps_them() {
        let mut objects = Objects::default();
        let (first, second) = (objects.create(MmId(1)).unwrap(), objects.create(MmId(2)).unwrap());
        assert_eq!(objects.mapped_by(second), [MmId(2)]);
        assert!(objects.mapped_by(ObjectId::default()).is_empty());
        objects.unlink(first, MmId(2));
        assert_eq!(objects.mapped_by(first), [MmId(1)]);
        objects.unlink(first, MmId(1));
        objects.unlink(first, MmId(1));
        assert_eq!(objects.create(MmId(3)), Some(first));
        assert_eq!(objects.create(MmId(3)).map(|id| id.0), Some(3));
    }

    #[test]
    fn numbers_run_out() {
        let mut objects = Objects::default();
        let made = std::iter::from_fn(|| objects.create(MmId(1))).count();
        assert_eq!(made, usize::from(u16::MAX));
    }
}
