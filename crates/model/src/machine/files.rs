//! The files that a scenario makes, and which file a page belongs to.

use super::frames::FrameFlags;
use super::nodes::Near;
use super::world::{At, Ghost, Mode, World};
use crate::addr::{CpuId, MmId, ObjectId, PageRange, Pfn, ThreadId, Vpn};
use crate::policy::FileFolios;
use crate::program::{FileSpec, FileSystem};
use crate::pte::{PresentPte, PteFlags};
use crate::site::Site;
use std::ops::Range;

impl<M: Mode> World<M> {
    /// Creates a file of the scenario with its contents. Its pages are on an LRU list, because
    /// batches are drained before a round. They are dirty if the file system has no disk, and clean
    /// if it has one, because they were written back.
    ///
    /// Source: mm/shmem.c:shmem_write_end (5.10 to 7.3).
    pub(super) fn create_file(&mut self, file: &FileSpec) {
        let Some(object) = self.objects.create_file(file.pages) else { return };
        let written = match file.fs {
            FileSystem::Tmpfs => FrameFlags::SWAP_BACKED.and(FrameFlags::DIRTY),
            FileSystem::Ext4 => FrameFlags::default(),
        };
        // The file is written before the scenario begins.
        let (cpu, thread, site) = (CpuId(0), ThreadId(0), Site::FilemapGetFolio);
        let at = At { cpu, thread, running: None, op: 0, site };
        let large =
            file.fs == FileSystem::Ext4 && self.policies.file_folios == FileFolios::AsWritten;
        for (first, order) in file.large_folios() {
            if file.fs.is_written_back() {
                let pages = first..first + (1 << order);
                pages.for_each(|index| self.objects.set_on_disk(object, index, true));
            }
            let run = first..first + (1 << order);
            if large && order > 0 {
                let Some(folio) = self.hand_out(at, Near::Here, order, written) else { return };
                self.lru_add(folio, |_| ());
                self.add_to_page_cache(folio, object, first);
                self.frames.pages_of_folio(folio).for_each(|frame| self.ghost.zeroed(frame));
            } else {
                for index in run {
                    let Some(frame) = self.hand_out(at, Near::Here, 0, written) else { return };
                    self.lru_add(frame, |_| ());
                    self.add_to_page_cache(frame, object, index);
                    self.ghost.zeroed(frame);
                }
            }
        }
    }

    /// Adds a folio to the page cache of `file`, at index `first`. The page cache holds one
    /// reference for each page; the folio's existing reference becomes one of them.
    ///
    /// Source: mm/filemap.c:filemap_add_folio (5.10 to 7.3).
    pub fn add_to_page_cache(&mut self, folio: Pfn, file: ObjectId, first: u64) {
        let pages = self.frames.pages_of_folio(folio);
        let count = pages.clone().count() as u32;
        self.frames.update(folio, |f| {
            (f.object, f.index, f.refs) = (file, first, f.refs + count - 1);
        });
        for (frame, index) in pages.zip(first..) {
            self.objects.set_page(file, index, frame);
        }
    }

    /// Removes the folio from the page cache, which drops its references.
    ///
    /// Source: mm/filemap.c:filemap_remove_folio (5.10 to 7.3).
    pub fn remove_from_page_cache(&mut self, at: At, folio: Pfn) {
        let (file, first) = self.frames.place(folio);
        let pages = self.frames.pages_of_folio(folio).count() as u64;
        (first..first + pages).for_each(|index| self.objects.remove_page(file, index));
        self.frames.update(folio, |f| (f.object, f.index) = Default::default());
        self.put_references(at, folio, pages as u32);
    }

    /// The file indices of the folio that contains this frame.
    pub fn folio_indices(&self, frame: Pfn) -> Range<u64> {
        let (folio, order) = self.frames.folio(frame);
        let (_, first) = self.frames.place(folio);
        first..first + (1 << order)
    }

    /// Marks the folio of a page as dirty after a store. Reclaim no longer waits for it.
    ///
    /// Source: mm/page-writeback.c:set_page_dirty (5.10), folio_mark_dirty (6.1 to 7.2);
    /// fs/ext4/inode.c:ext4_dirty_folio, fs/buffer.c:block_dirty_folio (6.12, 7.2).
    pub fn dirty_folio(&mut self, frame: Pfn) {
        self.frames.set_wanted(frame, false);
        self.set_dirty(frame, true);
    }

    /// Marks the folio as clean.
    pub fn clean_folio(&mut self, frame: Pfn) {
        self.set_dirty(frame, false);
    }

    /// The number of `pages`, from the first one on, that kernels handle as one batch: they map
    /// consecutive frames of one large folio with equal PTEs. The accessed and dirty bits, and the
    /// flags in `ignore`, may differ. 1 if the first page maps no large folio.
    ///
    /// Source: mm/internal.h:folio_pte_batch (6.12), folio_pte_batch_flags (7.2; FPB_RESPECT_WRITE,
    /// FPB_RESPECT_SOFT_DIRTY).
    pub fn run_of(&self, mm: MmId, pages: PageRange, ignore: PteFlags) -> u64 {
        let bare = |page| {
            let pte = self.pte(mm, page).present()?;
            Some(pte.without(PteFlags::ACCESSED).without(PteFlags::DIRTY).without(ignore))
        };
        let large =
            |pte: &PresentPte| !pte.special() && self.frames.flags(pte.pfn).has(FrameFlags::LARGE);
        let Some(first) = bare(pages.start).filter(large) else { return 1 };
        let (head, order) = self.frames.folio(first.pfn);
        let frames = (first.pfn.0..head.0 + (1 << order)).map(Pfn);
        let same =
            |(page, pfn): &(Vpn, Pfn)| bare(*page) == Some(PresentPte { pfn: *pfn, ..first });
        pages.iter().zip(frames).take_while(same).count().max(1) as u64
    }

    fn set_dirty(&mut self, frame: Pfn, dirty: bool) {
        self.frames.set_flags(frame, FrameFlags::DIRTY, dirty);
        if self.frames.flags(frame).has(FrameFlags::LARGE) && self.is_of_file(frame) {
            for page in self.frames.pages_of_folio(frame) {
                self.frames.set_flags(page, FrameFlags::BUFFER_DIRTY, dirty);
            }
        }
    }

    /// The file that stores to the page go to, and the page's index there; `None` for private
    /// memory.
    pub fn shared_object_of(&self, mm: MmId, page: Vpn) -> Option<(ObjectId, u64)> {
        let vma = self.mms[mm.index()].vma(page)?;
        Some((vma.shared_file()?, vma.index(page)))
    }

    /// The file that is mapped at the page, shared or private, and the page's index there.
    pub fn file_of(&self, mm: MmId, page: Vpn) -> Option<(ObjectId, u64)> {
        let vma = self.mms[mm.index()].vma(page)?;
        Some((vma.file?, vma.index(page)))
    }

    /// Whether the page lies behind the end of the file that is mapped there.
    pub fn is_behind_end(&self, mm: MmId, page: Vpn) -> bool {
        self.file_of(mm, page).is_some_and(|(file, index)| index >= self.objects.size(file))
    }

    /// Whether the frame is in the page cache.
    #[inline]
    pub fn is_of_file(&self, frame: Pfn) -> bool {
        self.objects.is_file(self.frames.place(frame).0)
    }
}
