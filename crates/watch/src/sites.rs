//! Call sites: sampled stacks of whoever flushes, kernel and user, and the functions in them.
//!
//! The kernel walks its own stack. Of the user's it copies the top, which is unwound here with
//! the program's unwind tables, so programs without frame pointers are followed, too. Addresses are
//! kept as places in files, since the process may be gone when the report is written.

use crate::fold::Cause;
use crate::maps::Maps;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use needless_model::foreign;
use object::{Object, ObjectSection, ObjectSegment};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a user stack that a sample copies.
pub const STACK_BYTES: u32 = 16 << 10;

/// Samples per second and CPU, at most.
pub const PER_SECOND: u64 = 49;

/// The registers that unwinding begins with: BP, SP, IP (arch/x86/include/uapi/asm/perf_regs.h).
pub const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// Frames of the user that are kept.
const MOST_FRAMES: usize = 24;

/// Different stacks that are kept.
const MOST_SITES: usize = 1024;

/// Files whose unwind tables are kept.
const MOST_FILES: usize = 256;

thread_local! {
    /// Reads the kernel's symbols once (a tenth of a second), however often it is asked.
    static SYMBOLIZER: Symbolizer = Symbolizer::new();
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Return addresses in the kernel, innermost first.
    pub kernel: Vec<u64>,
    /// BP, SP, IP of user mode; none for a task without.
    pub registers: Option<[u64; 3]>,
    /// The user's stack from SP on.
    pub stack: Vec<u8>,
}

/// A place in a file, or an address without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    file: Option<Arc<str>>,
    offset: u64,
}

/// Samples by stack.
#[derive(Default)]
pub struct Sites {
    /// By cause and user stack: how often, and the kernel stack of the first.
    counts: FxHashMap<(Cause, Vec<Place>), (u64, Vec<u64>)>,
    tables: FxHashMap<Arc<str>, Option<Tables>>,
    samples: u64,
    beyond: u64,
}

impl std::fmt::Debug for Sites {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} samples of {} sites", self.samples, self.counts.len())
    }
}

/// One call site in a report.
#[derive(Clone, Debug, Serialize)]
pub struct CallSite {
    /// What made the kernel flush.
    pub cause: String,
    /// How many samples.
    pub samples: u64,
    /// The user's functions, innermost first.
    pub user: Vec<String>,
    /// The kernel's functions of the first sample, innermost first.
    pub kernel: Vec<String>,
}

/// All call sites, the most frequent first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallSites {
    /// Samples taken.
    pub samples: u64,
    /// Samples per second and CPU, at most.
    pub rate: u64,
    /// Samples of stacks beyond the number that is kept.
    pub beyond: u64,
    /// The sites.
    pub sites: Vec<CallSite>,
}

/// The unwind tables of one file.
struct Tables {
    /// Per loaded part: place in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    sections: ExplicitModuleSectionInfo<Bytes>,
}

type Bytes = Arc<[u8]>;

impl Sites {
    /// Adds a sample of a process with these mappings.
    pub fn sample(&mut self, sample: &Sample, cause: Cause, maps: &Maps) {
        self.samples += 1;
        let user = self.unwind(sample, maps).into_iter().map(|address| match maps.file(address) {
            Some((file, offset)) => Place { file: Some(file), offset },
            None => Place { file: None, offset: address },
        });
        let key = (cause, user.collect::<Vec<_>>());
        if self.counts.len() >= MOST_SITES && !self.counts.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        self.counts.entry(key).or_insert_with(|| (0, sample.kernel.clone())).0 += 1;
    }

    /// Addresses of the user's frames, innermost first; return addresses point into the call.
    fn unwind(&mut self, sample: &Sample, maps: &Maps) -> Vec<u64> {
        let Some([bp, sp, ip]) = sample.registers else { return Vec::new() };
        let mut unwinder: UnwinderX86_64<Bytes> = UnwinderX86_64::new();
        let mut known: Vec<u64> = Vec::new();
        let mut read = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(sp)).map_err(|_| ())?;
            let bytes = sample.stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut cache = CacheX86_64::new();
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = vec![ip];
        let mut address = FrameAddress::from_instruction_pointer(ip);
        while frames.len() < MOST_FRAMES {
            self.add_module(&mut unwinder, &mut known, address.address_for_lookup(), maps);
            match unwinder.unwind_frame(address, &mut registers, &mut cache, &mut read) {
                Ok(Some(next)) if next != 0 => {
                    let Some(of_call) = FrameAddress::from_return_address(next) else { break };
                    address = of_call;
                    frames.push(address.address_for_lookup());
                }
                _ => break,
            }
        }
        frames
    }

    /// Tells the unwinder about the file at an address.
    fn add_module(
        &mut self,
        unwinder: &mut UnwinderX86_64<Bytes>,
        known: &mut Vec<u64>,
        address: u64,
        maps: &Maps,
    ) {
        let Some(module) = maps.module(address).filter(|module| !known.contains(&module.start))
        else {
            return;
        };
        known.push(module.start);
        if self.tables.len() >= MOST_FILES && !self.tables.contains_key(&module.file) {
            return;
        }
        let tables = self.tables.entry(module.file.clone());
        let Some(tables) = tables.or_insert_with(|| Tables::read(&module.file)).as_ref() else {
            return;
        };
        let of_file = |(offset, size, _): &&(u64, u64, u64)| {
            (*offset..offset.saturating_add(*size)).contains(&module.offset)
                || (module.offset..module.offset + (module.end - module.start)).contains(offset)
        };
        let Some((offset, _, virtual_address)) = tables.segments.iter().find(of_file) else {
            return;
        };
        let bias = module
            .start
            .wrapping_sub(module.offset)
            .wrapping_add(*offset)
            .wrapping_sub(*virtual_address);
        let range = module.start..module.end;
        let name = module.file.to_string();
        unwinder.add_module(Module::new(name, range, bias, tables.sections.clone()));
    }

    /// The functions by their names.
    pub fn named(&self) -> CallSites {
        SYMBOLIZER.with(|symbolizer| self.named_by(symbolizer))
    }

    fn named_by(&self, symbolizer: &Symbolizer) -> CallSites {
        let mut rows: Vec<_> = self.counts.iter().collect();
        rows.sort_by(|a, b| (b.1.0, &a.0.0).cmp(&(a.1.0, &b.0.0)));
        let mut known = FxHashMap::default();
        let sites = rows.into_iter().map(|((cause, user), (samples, kernel))| CallSite {
            cause: cause.name(),
            samples: *samples,
            user: user.iter().map(|place| place.name(symbolizer, &mut known)).collect(),
            kernel: kernel_names(kernel, symbolizer),
        });
        let sites = sites.collect();
        CallSites { samples: self.samples, rate: PER_SECOND, beyond: self.beyond, sites }
    }
}

impl Place {
    fn name(&self, symbolizer: &Symbolizer, known: &mut FxHashMap<Place, String>) -> String {
        if let Some(name) = known.get(self) {
            return name.clone();
        }
        let name = match &self.file {
            None => format!("{:#x}", self.offset),
            Some(file) => {
                let source = Source::Elf(Elf::new(&**file));
                let found = symbolizer.symbolize_single(&source, Input::FileOffset(self.offset));
                match found {
                    Ok(Symbolized::Sym(symbol)) => foreign::line(&symbol.name).into_owned(),
                    _ => {
                        let name = Path::new(&**file).file_name().unwrap_or_default();
                        format!("{}+{:#x}", foreign::path(name), self.offset)
                    }
                }
            }
        };
        known.insert(self.clone(), name.clone());
        name
    }
}

/// The kernel's function that an address lies in; none where names are hidden.
pub fn kernel_name(address: u64) -> Option<String> {
    SYMBOLIZER.with(|symbolizer| kernel_names(&[address], symbolizer).pop())
}

fn kernel_names(addresses: &[u64], symbolizer: &Symbolizer) -> Vec<String> {
    let source = Source::Kernel(Kernel::default());
    let found = symbolizer.symbolize(&source, Input::AbsAddr(addresses)).unwrap_or_default();
    let named = found.into_iter().filter_map(|symbol| match symbol {
        Symbolized::Sym(symbol) => Some(foreign::line(&symbol.name).into_owned()),
        Symbolized::Unknown(_) => None,
    });
    named.collect()
}

impl Tables {
    fn read(path: &str) -> Option<Tables> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size, segment.address())
        });
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            let data = section.uncompressed_data().ok()?;
            Some((range, Bytes::from(&*data)))
        };
        let parts = |found: Option<(std::ops::Range<u64>, Bytes)>| found.unzip();
        let (text_svma, text) = parts(section(".text"));
        let (eh_frame_svma, eh_frame) = parts(section(".eh_frame"));
        let (eh_frame_hdr_svma, eh_frame_hdr) = parts(section(".eh_frame_hdr"));
        let (got_svma, _) = parts(section(".got"));
        let (_, debug_frame) = parts(section(".debug_frame"));
        let sections = ExplicitModuleSectionInfo {
            text_svma,
            text,
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            got_svma,
            debug_frame,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Tables { segments: segments.collect(), sections })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    /// Its name is patched in a copy of this program.
    #[inline(never)]
    fn a_symbol_to_be_patched() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_symbol_of_somebody_elses_program_is_one_visible_line() {
        assert_eq!(a_symbol_to_be_patched(), 7);
        let mut program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let offset = {
            let file = object::File::parse(&*program).unwrap();
            let found = file.symbols().find(|symbol| {
                symbol.name().is_ok_and(|name| name.contains("a_symbol_to_be_patched"))
            });
            let address = found.unwrap().address();
            let text = file.section_by_name(".text").unwrap();
            address - text.address() + text.file_range().unwrap().0
        };
        let (name, hostile) = (b"a_symbol_to_be_patched", b"a_symbol\x1b[2J\x1b]0;t\x07\n||d");
        let found: Vec<usize> = memchr::memmem::find_iter(&program, name).collect();
        for at in found {
            program[at..at + name.len()].copy_from_slice(hostile);
        }
        let folder = tempfile::tempdir().unwrap();
        let name = |file: &str, offset| {
            let path = folder.path().join(file);
            std::fs::write(&path, &program).unwrap();
            let place = Place { file: Some(path.to_str().unwrap().into()), offset };
            place.name(&Symbolizer::new(), &mut FxHashMap::default())
        };
        let symbol = name("program", offset);
        assert!(symbol.contains("a_symbol\\u{1b}[2J\\u{1b}]0;t\\u{7}\\n||d"), "{symbol}");
        let nowhere = name("pro\u{1b}[2J\ngram", 0);
        assert_eq!(nowhere, "pro\\u{1b}[2J\\ngram+0x0");
    }
}
