//! What areas map: anonymous memory, or files that the scenario makes.

use serde::{Deserialize, Serialize};

/// The most pages of a file.
pub const MAX_FILE_PAGES: u64 = 1 << 16;

/// A file that a scenario makes, for itself alone and before anything else happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// Its name in the scenario.
    pub name: String,
    /// Its size.
    pub pages: u64,
    /// On which kind of file system.
    pub fs: FileSystem,
    /// What it holds when the scenario begins.
    pub content: Content,
}

/// Kinds of file systems.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileSystem {
    /// Memory alone (mm/shmem.c).
    Tmpfs,
    /// A file system on a disk, that wants to know of the first store to each clean page (fs/ext4).
    Ext4,
}

impl FileSystem {
    /// Each with the word that scenarios use.
    pub const ALL: [(&'static str, FileSystem); 2] =
        [("tmpfs", FileSystem::Tmpfs), ("ext4", FileSystem::Ext4)];

    /// Whether what was stored is written to a disk one day, so that it has to be known which pages are dirty: shared mappings
    /// may not store to a clean page without a fault, in which the file system is told (`page_mkwrite`).
    ///
    /// Source: mm/vma.c:vma_wants_writenotify (6.12; mm/mmap.c before); include/linux/backing-dev.h:mapping_can_writeback.
    pub const fn is_written_back(self) -> bool {
        matches!(self, FileSystem::Ext4)
    }
}

/// What a file holds when the scenario begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content {
    /// Every page was written, and is in the page cache.
    Data,
    /// Nothing: each page is a hole until it is stored to or faulted in.
    Holes,
}

impl Content {
    /// Both with the word that scenarios use.
    pub const ALL: [(&'static str, Content); 2] =
        [("data", Content::Data), ("holes", Content::Holes)];
}

/// What a mapping's pages belong to.
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
    /// Its index in [`crate::program::Program::files`].
    pub file: u16,
    /// The kind of file system that it is on.
    pub fs: FileSystem,
    /// The page of the file that the mapping begins with.
    pub first: u64,
    /// Whether stores go to the file (`MAP_SHARED`), not to a copy of the process's own (`MAP_PRIVATE`).
    pub shared: bool,
}

/// A file that a call names.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedFile {
    /// Its index in [`crate::program::Program::files`].
    pub file: u16,
    /// The kind of file system that it is on.
    pub fs: FileSystem,
    /// The pages that it was declared with: it never has more.
    pub pages: u64,
}

impl Backing {
    /// Whether stores are everybody's who maps the same (`MAP_SHARED`).
    pub const fn is_shared(self) -> bool {
        match self {
            Backing::Anonymous | Backing::File(FileMapping { shared: false, .. }) => false,
            Backing::Shared | Backing::File(FileMapping { shared: true, .. }) => true,
        }
    }
}
