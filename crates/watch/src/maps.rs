//! What memory an address of a process belongs to, as far as the kernel reports mappings.

use crate::record::{Mapping, Named};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What kind of memory a mapping is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// Private and without a file.
    Anonymous,
    /// A file's, private.
    PrivateFile,
    /// Shared memory: memfd, tmpfs at its usual place, System V, without a file.
    Shared,
    /// Another file's, shared.
    SharedFile,
    /// Of hugetlb pages.
    Hugetlb,
}

/// Whether a file is shared memory, by its path as the kernel reports it.
fn in_memory(file: &str) -> bool {
    const PLACES: [&str; 4] = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"];
    PLACES.iter().any(|place| file.starts_with(place))
}

/// The mappings of one process. A copy is cheap until one of the two changes.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    by_start: Arc<BTreeMap<u64, Area>>,
    /// Files of which a part may be executed: the program and its libraries.
    images: Arc<FxHashSet<Arc<str>>>,
    /// The first of them that was mapped: the program itself.
    program: Option<Arc<str>>,
    /// Another number whenever a file is mapped, never one that was used before.
    version: u64,
}

/// Versions that were given out.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// What a mapping is named after.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A file, by its path; `image`: it is the program or a library.
    File {
        /// Its path.
        path: Arc<str>,
        /// Whether a part of it may be executed.
        image: bool,
    },
    /// The heap or the first thread's stack.
    Named(Named),
    /// No file and no name: what kind of memory it is.
    Nameless(Memory),
}

/// A part of a file that is mapped.
#[derive(Clone, Debug)]
pub struct Module {
    /// The file's path.
    pub file: Arc<str>,
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
}

#[derive(Clone, Debug)]
struct Area {
    end: u64,
    offset: u64,
    memory: Memory,
    file: Option<Arc<str>>,
    named: Option<Named>,
}

impl Maps {
    /// A number that stays as long as no file is mapped.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What the mapping at an address is named after; none if none was seen.
    pub fn owner(&self, address: u64) -> Option<Owner> {
        let Some((_, area)) = self.area(address) else {
            return self.memory(address).map(|_| Owner::Named(Named::Stack));
        };
        Some(match (&area.file, area.named) {
            (Some(path), _) => {
                let image = self.images.contains(path);
                Owner::File { path: path.clone(), image }
            }
            (None, Some(named)) => Owner::Named(named),
            (None, None) => Owner::Nameless(area.memory),
        })
    }

    /// Whether the dynamic loader's code is at an address.
    pub fn is_loader(&self, address: u64) -> bool {
        let area = self.area(address);
        area.and_then(|(_, area)| area.file.as_deref()).is_some_and(crate::sites::is_loader)
    }

    /// Whether code of the program itself, not of a library, is at an address.
    pub fn is_program(&self, address: u64) -> bool {
        let file = self.area(address).and_then(|(_, area)| area.file.as_ref());
        file.is_some() && file == self.program.as_ref()
    }

    /// The shared mappings of files, from and to.
    pub fn shared_files(&self) -> impl Iterator<Item = (u64, u64)> {
        let shared = self.by_start.iter().filter(|(_, area)| area.memory == Memory::SharedFile);
        shared.map(|(start, area)| (*start, area.end))
    }

    /// A mapping was made; what was there before is gone.
    pub fn map(&mut self, mapping: &Mapping) {
        let memory = match (&mapping.file, mapping.shared) {
            _ if mapping.hugetlb => Memory::Hugetlb,
            (None, true) => Memory::Shared,
            (Some(file), true) if in_memory(file) => Memory::Shared,
            (Some(_), true) => Memory::SharedFile,
            (Some(_), false) => Memory::PrivateFile,
            (None, false) => Memory::Anonymous,
        };
        let file: Option<Arc<str>> = mapping.file.as_deref().map(Arc::from);
        if let Some(file) = &file {
            self.version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
            if mapping.executable && !self.images.contains(file) {
                Arc::make_mut(&mut self.images).insert(file.clone());
                self.program.get_or_insert_with(|| file.clone());
            }
        }
        self.cut(mapping.start, mapping.end);
        let named = mapping.named;
        let area = Area { end: mapping.end, offset: mapping.offset, memory, file, named };
        Arc::make_mut(&mut self.by_start).insert(mapping.start, area);
    }

    /// A mapping moved.
    pub fn moved(&mut self, from: u64, to: u64, length: u64) {
        let Some((start, area)) = self.area(from) else { return };
        let area = Area {
            end: to.saturating_add(length),
            offset: area.offset + (from - start),
            ..area.clone()
        };
        self.cut(to, area.end);
        Arc::make_mut(&mut self.by_start).insert(to, area);
    }

    /// What is at an address. A stack grows without a report: memory below the lowest known part
    /// of one is the stack's.
    pub fn memory(&self, address: u64) -> Option<Memory> {
        match self.area(address) {
            Some((_, area)) => Some(area.memory),
            None => {
                const STACK: u64 = 8 << 20;
                let (start, area) = self.by_start.range(address..).next()?;
                let near = start - address < STACK && area.memory == Memory::Anonymous;
                near.then_some(Memory::Anonymous)
            }
        }
    }

    /// The file at an address and the place in it.
    pub fn file(&self, address: u64) -> Option<(Arc<str>, u64)> {
        let (start, area) = self.area(address)?;
        Some((area.file.clone()?, area.offset + (address - start)))
    }

    /// The file mapped at an address, and which part of it where.
    pub fn module(&self, address: u64) -> Option<Module> {
        let (start, area) = self.area(address)?;
        Some(Module { file: area.file.clone()?, start, end: area.end, offset: area.offset })
    }

    fn area(&self, address: u64) -> Option<(u64, &Area)> {
        let (start, area) = self.by_start.range(..=address).next_back()?;
        (address < area.end).then_some((*start, area))
    }

    /// Takes a range out of the mappings that overlap with it.
    fn cut(&mut self, start: u64, end: u64) {
        let overlaps = |(from, area): (&u64, &Area)| (area.end > start).then_some(*from);
        let old: Vec<u64> = self.by_start.range(..end).rev().map_while(overlaps).collect();
        if old.is_empty() {
            return;
        }
        let areas = Arc::make_mut(&mut self.by_start);
        for from in old {
            let Some(area) = areas.remove(&from) else { continue };
            if from < start {
                areas.insert(from, Area { end: start, ..area.clone() });
            }
            if area.end > end {
                let offset = area.offset + (end - from);
                areas.insert(end, Area { offset, ..area });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, file: Option<&str>) -> Mapping {
        let file = file.map(Into::into);
        Mapping {
            start,
            end,
            offset: 0x1000,
            shared: false,
            hugetlb: false,
            file,
            executable: false,
            named: None,
        }
    }

    #[test]
    fn the_newest_mapping_counts_and_the_rest_of_the_old_stays() {
        let mut maps = Maps::default();
        maps.map(&mapping(0x1000, 0x9000, Some("/lib")));
        let child = maps.clone();
        maps.map(&mapping(0x3000, 0x5000, None));
        assert_eq!(maps.memory(0x2fff), Some(Memory::PrivateFile));
        assert_eq!(maps.memory(0x3000), Some(Memory::Anonymous));
        assert_eq!(maps.memory(0x5000), Some(Memory::PrivateFile));
        let (file, offset) = maps.file(0x5001).unwrap();
        assert_eq!((&*file, offset), ("/lib", 0x5001));
        assert_eq!(child.memory(0x3000), Some(Memory::PrivateFile), "copies are their own");
        assert_eq!(maps.memory(0x9000), None);
    }

    #[test]
    fn what_moved_keeps_its_kind() {
        let mut maps = Maps::default();
        maps.map(&mapping(0x1000, 0x9000, Some("/lib")));
        maps.moved(0x2000, 0x20000, 0x1000);
        assert_eq!(maps.file(0x20010).map(|(_, offset)| offset), Some(0x2010));
    }
}
