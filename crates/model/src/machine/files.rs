//! The files that a scenario makes, and which pages are of one.

use super::frames::FrameFlags;
use super::world::{Ghost, Mode, World};
use crate::addr::{MmId, ObjectId, Pfn, Vpn};
use crate::program::{Content, FileSpec, FileSystem};

impl<M: Mode> World<M> {
    /// A file of the scenario, with what it holds. What was written is dirty where there is nothing that it could be
    /// written back to, clean where it has been, and on the LRU, since batches are drained before a round.
    ///
    /// Source: mm/shmem.c:shmem_write_end (5.10 to 7.3).
    pub(super) fn create_file(&mut self, file: &FileSpec) {
        let Some(object) = self.objects.create_file(file.pages) else { return };
        let pages = match file.content {
            Content::Data => file.pages,
            Content::Holes => 0,
        };
        let written = match file.fs {
            FileSystem::Tmpfs => {
                FrameFlags::SWAP_BACKED.and(FrameFlags::LRU).and(FrameFlags::DIRTY)
            }
            FileSystem::Ext4 => FrameFlags::LRU,
        };
        for index in 0..pages {
            let Some(frame) = self.allocate_frame(written) else { return };
            self.ghost.zeroed(frame);
            self.frames.update(frame, |f| (f.object, f.index) = (object, index));
            self.objects.set_page(object, index, frame);
        }
    }

    /// The file that stores to the page go to, and its index there, if they go to one.
    pub fn shared_object_of(&self, mm: MmId, page: Vpn) -> Option<(ObjectId, u64)> {
        let vma = self.mms[mm.index()].vma(page)?;
        Some((vma.shared_file()?, vma.index(page)))
    }

    /// The file that is mapped at the page, shared or private, and its index there.
    pub fn file_of(&self, mm: MmId, page: Vpn) -> Option<(ObjectId, u64)> {
        let vma = self.mms[mm.index()].vma(page)?;
        Some((vma.file?, vma.index(page)))
    }

    /// Whether the file that is mapped at the page ends before it.
    pub fn is_behind_end(&self, mm: MmId, page: Vpn) -> bool {
        self.file_of(mm, page).is_some_and(|(file, index)| index >= self.objects.size(file))
    }

    /// Whether the frame is in the page cache.
    #[inline]
    pub fn is_of_file(&self, frame: Pfn) -> bool {
        self.objects.is_file(self.frames.place(frame).0)
    }
}
