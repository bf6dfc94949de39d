//! What areas map: anonymous memory, or files that the scenario makes.

use serde::{Deserialize, Serialize};

/// The most pages that a file has.
pub const MAX_FILE_PAGES: u64 = 1 << 16;

/// The most pages of one write to a file. Larger writes could make a folio that one entry above the
/// last level maps, which is not modelled.
pub const MAX_WRITE_PAGES: u64 = 256;

/// The most pages of a file whose writes have more than one page. A machine with fragmented memory
/// can still allocate folios for so many.
pub const MAX_LARGE_FILE_PAGES: u64 = 1 << 13;

/// A file that a scenario makes for itself alone, before anything else happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// The file's name in the scenario.
    pub name: String,
    /// The file's size in pages.
    pub pages: u64,
    /// The kind of file system that it is on.
    pub fs: FileSystem,
    /// The file's contents when the scenario begins.
    pub content: Content,
    /// The number of pages of each `write` to the file.
    pub write_pages: u64,
}

impl FileSpec {
    /// The folios that writes to the file make if folios can be large, each with its first page and
    /// its order. Each is the largest folio that the rest of the write fills, aligned to its size.
    /// A file without contents has none, because nothing is written.
    ///
    /// Source: mm/filemap.c:generic_perform_write (7.2).
    pub fn large_folios(&self) -> Vec<(u64, u8)> {
        let end = match self.content {
            Content::Data => self.pages,
            Content::Holes => 0,
        };
        let (mut folios, mut first) = (Vec::new(), 0);
        while first < end {
            let write = first / self.write_pages * self.write_pages;
            let order = folio_order(first, (write + self.write_pages).min(end));
            folios.push((first, order));
            first += 1 << order;
        }
        folios
    }

    /// Whether some kernels give the file folios of more than one page.
    pub const fn has_large_folios(&self) -> bool {
        self.fs.is_written_back() && self.largest_folio() > 1
    }

    /// The most pages that a folio of the file can have.
    pub const fn largest_folio(&self) -> u64 {
        1 << self.write_pages.ilog2()
    }
}

/// The order of the largest folio that begins at page `first` of a file and that a write up to
/// `end` fills.
///
/// Source: include/linux/pagemap.h:fgf_set_order, mm/filemap.c:__filemap_get_folio (7.2).
pub fn folio_order(first: u64, end: u64) -> u8 {
    (end - first).ilog2().min(first.trailing_zeros()) as u8
}

/// Kinds of file systems.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileSystem {
    /// Memory only (mm/shmem.c).
    Tmpfs,
    /// A file system on a disk, which has to be notified of the first store to each clean page
    /// (fs/ext4).
    Ext4,
}

impl FileSystem {
    /// All kinds of file system, each with its word in scenarios.
    pub const ALL: [(&'static str, FileSystem); 2] =
        [("tmpfs", FileSystem::Tmpfs), ("ext4", FileSystem::Ext4)];

    /// Whether stored data is eventually written to a disk. The kernel then has to track dirty
    /// pages: a shared mapping may store to a clean page only after a fault, which notifies the
    /// file system (`page_mkwrite`).
    ///
    /// Source: mm/vma.c:vma_wants_writenotify (6.12; mm/mmap.c before);
    /// include/linux/backing-dev.h:mapping_can_writeback.
    pub const fn is_written_back(self) -> bool {
        matches!(self, FileSystem::Ext4)
    }
}

/// What a file holds when the scenario begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content {
    /// Every page was written and is in the page cache.
    Data,
    /// No data: each page is a hole until a store or a fault.
    Holes,
}

impl Content {
    /// Both contents, each with its word in scenarios.
    pub const ALL: [(&'static str, Content); 2] =
        [("data", Content::Data), ("holes", Content::Holes)];
}

/// The memory that a mapping maps.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Backing {
    /// Private anonymous memory.
    #[default]
    Anonymous,
    /// Anonymous memory that processes share (`MAP_SHARED | MAP_ANONYMOUS`).
    Shared,
    /// A file.
    File(FileMapping),
}

/// How a file is mapped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileMapping {
    /// The file's index in [`crate::program::Program::files`].
    pub file: u16,
    /// The kind of file system that it is on.
    pub fs: FileSystem,
    /// The first page of the file that is mapped.
    pub first: u64,
    /// Whether stores go to the file (`MAP_SHARED`), not to a private copy (`MAP_PRIVATE`).
    pub shared: bool,
}

/// A file that a call names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedFile {
    /// The file's index in [`crate::program::Program::files`].
    pub file: u16,
    /// The kind of file system that it is on.
    pub fs: FileSystem,
    /// The file's declared size in pages, which it never exceeds.
    pub pages: u64,
    /// The number of pages of each `write` to the file.
    pub write_pages: u64,
}

impl Backing {
    /// Whether stores are visible to everyone who maps the same memory (`MAP_SHARED`).
    pub const fn is_shared(self) -> bool {
        match self {
            Backing::Anonymous | Backing::File(FileMapping { shared: false, .. }) => false,
            Backing::Shared | Backing::File(FileMapping { shared: true, .. }) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /proc/kpageflags on 6.18 shows these folios for files written like this.
    #[test]
    fn writes_make_folios_as_large_as_their_place_allows() {
        let folios = |pages, write_pages| {
            let (name, fs, content) = (String::new(), FileSystem::Ext4, Content::Data);
            let folios = FileSpec { name, pages, fs, content, write_pages }.large_folios();
            folios.iter().map(|(first, order)| (*first, 1 << order)).collect::<Vec<(u64, u64)>>()
        };
        assert_eq!(folios(3, 1), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(folios(24, 12), [(0, 8), (8, 4), (12, 4), (16, 8)]);
        assert_eq!(folios(48, 64), [(0, 32), (32, 16)]);
        assert_eq!(folios(22, 16), [(0, 16), (16, 4), (20, 2)]);
        assert_eq!(folios(10, 3), [(0, 2), (2, 1), (3, 1), (4, 2), (6, 2), (8, 1), (9, 1)]);
        assert_eq!(folios(33, 32), [(0, 32), (32, 1)]);
    }
}
