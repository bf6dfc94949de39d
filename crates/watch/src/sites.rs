//! Call sites: the user's stack at each watched system call and of sampled faults, and the
//! functions in them.
//!
//! A record of a call carries the top of the user's stack, which is unwound here with the program's
//! unwind tables, so programs without frame pointers are followed, too. A fault's record has the
//! instruction; who called that function is known by the sampled stacks. Addresses are kept as
//! places in files, since the process may be gone when the report is written.

use crate::maps::Maps;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use needless_model::foreign;
use object::{Object, ObjectSection, ObjectSegment};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a user stack that a sampled fault copies.
pub const STACK_BYTES: u32 = 16 << 10;

/// Bytes of a user stack that the record of a system call copies: the frames of an allocator and of
/// whoever called it.
pub const CALL_STACK_BYTES: u32 = 512;

/// Sampled faults per second and CPU, at most.
pub const PER_SECOND: u64 = 49;

/// The registers that unwinding begins with: BP, SP, IP (arch/x86/include/uapi/asm/perf_regs.h).
pub const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// Frames of the user that are kept.
const MOST_FRAMES: usize = 24;

/// Different stacks that are kept.
const MOST_SITES: usize = 8192;

/// Files whose unwind tables are kept.
const MOST_FILES: usize = 256;

/// No program or library that is read is larger.
const MOST_BYTES: u64 = 4 << 30;
/// Processes whose unwinders are kept.
const MOST_UNWINDERS: usize = 64;

/// Stacks whose frames are remembered, so that they are not unwound again.
const MOST_REMEMBERED: usize = 4096;

thread_local! {
    /// Reads the kernel's symbols once (a tenth of a second), however often it is asked.
    static SYMBOLIZER: Symbolizer = Symbolizer::new();
}

/// The user's side of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// BP, SP, IP of user mode; none for a task without.
    pub registers: Option<[u64; 3]>,
    /// The user's stack from SP on.
    pub stack: Vec<u8>,
}

/// A place in a file, or an address of a process that no file holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    file: Option<Arc<str>>,
    offset: u64,
    /// The process; 0 where there is a file, which is the same for all.
    pid: i32,
}

impl Place {
    fn at(address: u64, pid: i32, maps: &Maps) -> Place {
        match maps.file(address) {
            Some((file, offset)) => Place { file: Some(file), offset, pid: 0 },
            None => Place { file: None, offset: address, pid },
        }
    }
}

/// A stack by its number.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(u32);

impl SiteId {
    /// No stack was seen, or there are too many.
    pub const NONE: SiteId = SiteId(0);
}

/// All stacks that were seen.
#[derive(Default)]
pub struct Sites {
    /// By their numbers; the first is [`SiteId::NONE`].
    stacks: Vec<Arc<[Place]>>,
    numbers: FxHashMap<Arc<[Place]>, SiteId>,
    /// Sampled stacks of faults by the instruction that took the fault.
    callers: FxHashMap<Place, FxHashMap<SiteId, u64>>,
    unwinders: FxHashMap<i32, Known>,
    /// By process, instruction and bytes of the stack.
    remembered: FxHashMap<(i32, u64, u64), SiteId>,
    tables: FxHashMap<Arc<str>, Option<Tables>>,
    samples: u64,
    beyond: u64,
}

/// What is known for unwinding stacks of one process.
struct Known {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    modules: Vec<u64>,
    version: u64,
}

impl Default for Known {
    fn default() -> Known {
        let (unwinder, cache) = (UnwinderX86_64::new(), CacheX86_64::new());
        Known { unwinder, cache, modules: Vec::new(), version: 0 }
    }
}

impl std::fmt::Debug for Sites {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} samples, {} sites", self.samples, self.stacks.len())
    }
}

/// One function of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Frame {
    /// Its name; an address in code that no file holds and no map names.
    pub function: String,
    /// Bytes from its beginning; none if the function is not known.
    pub offset: Option<u64>,
    /// The source file's name and the line, if the program has debug information.
    pub line: Option<String>,
    /// The file that holds the code; none if no file does.
    pub object: Option<String>,
}

impl Frame {
    /// Whether the C library or the dynamic loader holds it.
    pub fn is_of_libc(&self) -> bool {
        let object = self.object.as_deref().unwrap_or_default();
        is_loader(object)
            || file_name(object).starts_with("libc.")
            || file_name(object).starts_with("libc-")
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file is the dynamic loader, by its name.
pub fn is_loader(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with("ld-") || name.starts_with("ld.so") || name.starts_with("ld64.so")
}

/// The unwind tables of one file.
struct Tables {
    /// Per loaded part: place in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    sections: ExplicitModuleSectionInfo<Bytes>,
}

type Bytes = Arc<[u8]>;

impl Sites {
    /// The stack of a system call of a process with these mappings.
    pub fn of_call(&mut self, sample: &Sample, pid: i32, maps: &Maps) -> SiteId {
        let Some([_, _, ip]) = sample.registers else { return SiteId::NONE };
        let mut hasher = FxHasher::default();
        hasher.write_u64(maps.version());
        hasher.write(&sample.stack);
        let key = (pid, ip, hasher.finish());
        if let Some(known) = self.remembered.get(&key) {
            return *known;
        }
        let site = self.unwound(sample, pid, maps);
        if self.remembered.len() >= MOST_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(key, site);
        site
    }

    /// The stack of which only one instruction is known.
    pub fn of_fault(&mut self, ip: u64, pid: i32, maps: &Maps) -> SiteId {
        self.number(&[Place::at(ip, pid, maps)])
    }

    /// Adds a sampled stack of a fault.
    pub fn sample(&mut self, sample: &Sample, pid: i32, maps: &Maps) {
        self.samples += 1;
        let site = self.unwound(sample, pid, maps);
        let Some(first) = self.stacks.get(site.0 as usize).and_then(|stack| stack.first()) else {
            return;
        };
        *self.callers.entry(first.clone()).or_default().entry(site).or_default() += 1;
    }

    fn unwound(&mut self, sample: &Sample, pid: i32, maps: &Maps) -> SiteId {
        let frames = self.unwind(sample, pid, maps);
        let places: Vec<Place> =
            frames.into_iter().map(|address| Place::at(address, pid, maps)).collect();
        self.number(&places)
    }

    fn number(&mut self, places: &[Place]) -> SiteId {
        if places.is_empty() {
            return SiteId::NONE;
        }
        if let Some(known) = self.numbers.get(places) {
            return *known;
        }
        if self.stacks.len() >= MOST_SITES {
            self.beyond += 1;
            return SiteId::NONE;
        }
        if self.stacks.is_empty() {
            self.stacks.push(Arc::from([]));
        }
        let (number, stack) = (SiteId(self.stacks.len() as u32), Arc::<[Place]>::from(places));
        self.stacks.push(stack.clone());
        self.numbers.insert(stack, number);
        number
    }

    /// Addresses of the user's frames, innermost first; return addresses point into the call.
    fn unwind(&mut self, sample: &Sample, pid: i32, maps: &Maps) -> Vec<u64> {
        let Some([bp, sp, ip]) = sample.registers else { return Vec::new() };
        if self.unwinders.len() >= MOST_UNWINDERS && !self.unwinders.contains_key(&pid) {
            self.unwinders.clear();
        }
        let mut known = self.unwinders.remove(&pid).unwrap_or_default();
        if known.version != maps.version() {
            known = Known { version: maps.version(), ..Known::default() };
        }
        let mut read = |address: u64| {
            let at = usize::try_from(address.wrapping_sub(sp)).map_err(|_| ())?;
            let bytes = sample.stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = vec![ip];
        let mut address = FrameAddress::from_instruction_pointer(ip);
        while frames.len() < MOST_FRAMES {
            let Known { unwinder, modules, .. } = &mut known;
            self.add_module(unwinder, modules, address.address_for_lookup(), maps);
            let Known { unwinder, cache, .. } = &mut known;
            match unwinder.unwind_frame(address, &mut registers, cache, &mut read) {
                Ok(Some(next)) if next != 0 => {
                    let Some(of_call) = FrameAddress::from_return_address(next) else { break };
                    address = of_call;
                    frames.push(address.address_for_lookup());
                }
                _ => break,
            }
        }
        self.unwinders.insert(pid, known);
        frames
    }

    /// Samples of faults, and stacks beyond the number that is kept.
    pub fn counts(&self) -> (u64, u64) {
        (self.samples, self.beyond)
    }

    /// Names stacks. Of a fault the most frequent sampled stack tells who called the function.
    pub fn namer(self) -> Namer {
        Namer { sites: self, frames: FxHashMap::default(), jits: FxHashMap::default() }
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
}

/// Names stacks by the symbols of the files, each place once.
pub struct Namer {
    sites: Sites,
    frames: FxHashMap<Place, Frame>,
    jits: FxHashMap<i32, Vec<(u64, u64, String)>>,
}

impl Namer {
    /// A stack's functions, innermost first.
    pub fn frames(&mut self, site: SiteId) -> Vec<Frame> {
        let Some(stack) = self.sites.stacks.get(site.0 as usize).cloned() else {
            return Vec::new();
        };
        let stack = match &*stack {
            [one] => self.with_callers(one).unwrap_or(stack),
            _ => stack,
        };
        stack.iter().map(|place| self.frame(place)).collect()
    }

    fn with_callers(&self, place: &Place) -> Option<Arc<[Place]>> {
        let stacks = self.sites.callers.get(place)?;
        let (site, _) = stacks.iter().max_by_key(|(site, samples)| (**samples, **site))?;
        self.sites.stacks.get(site.0 as usize).cloned()
    }

    fn frame(&mut self, place: &Place) -> Frame {
        if let Some(known) = self.frames.get(place) {
            return known.clone();
        }
        let frame = match &place.file {
            Some(file) => SYMBOLIZER.with(|symbolizer| in_file(file, place.offset, symbolizer)),
            None => self.of_jit(place),
        };
        self.frames.insert(place.clone(), frame.clone());
        frame
    }

    /// A runtime that compiles while it runs may name its code in a file that perf(1) reads as
    /// well.
    fn of_jit(&mut self, place: &Place) -> Frame {
        let map = self.jits.entry(place.pid).or_insert_with(|| perf_map(place.pid));
        let at = map.partition_point(|(start, ..)| *start <= place.offset);
        match at.checked_sub(1).and_then(|at| map.get(at)) {
            Some((start, size, name)) if place.offset - start < *size => Frame {
                function: name.clone(),
                offset: Some(place.offset - start),
                ..Frame::default()
            },
            _ => Frame { function: format!("{:#x}", place.offset), ..Frame::default() },
        }
    }
}

/// The largest map of a runtime that is read.
const MOST_MAP_BYTES: u64 = 64 << 20;

/// `/tmp/perf-PID.map`: start and size in hexadecimal, and a name, in order of the starts.
fn perf_map(pid: i32) -> Vec<(u64, u64, String)> {
    let path = format!("/tmp/perf-{pid}.map");
    let text = needless_files::read(Path::new(&path), MOST_MAP_BYTES).unwrap_or_default();
    let mut rows: Vec<_> = String::from_utf8_lossy(&text).lines().filter_map(map_row).collect();
    rows.sort();
    rows
}

fn map_row(line: &str) -> Option<(u64, u64, String)> {
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some((number(start)?, number(size)?, foreign::line(name).into_owned()))
}

fn in_file(file: &str, offset: u64, symbolizer: &Symbolizer) -> Frame {
    let source = Source::Elf(Elf::new(file));
    let object = Some(file.to_owned());
    match symbolizer.symbolize_single(&source, Input::FileOffset(offset)) {
        Ok(Symbolized::Sym(symbol)) => Frame {
            line: symbol.code_info.as_ref().and_then(|info| {
                let file = foreign::path(file_name(&info.file.to_string_lossy()));
                info.line.map(|line| format!("{file}:{line}"))
            }),
            function: foreign::line(&symbol.name).into_owned(),
            offset: Some(symbol.offset as u64),
            object,
        },
        _ => {
            let function = format!("{}+{offset:#x}", foreign::path(file_name(file)));
            Frame { function, object, ..Frame::default() }
        }
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
        let data = needless_files::read(Path::new(path), MOST_BYTES).ok()?;
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
            in_file(path.to_str().unwrap(), offset, &Symbolizer::new()).function
        };
        let symbol = name("program", offset);
        assert!(symbol.contains("a_symbol\\u{1b}[2J\\u{1b}]0;t\\u{7}\\n||d"), "{symbol}");
        let nowhere = name("pro\u{1b}[2J\ngram", 1 << 40);
        assert_eq!(nowhere, "pro\\u{1b}[2J\\ngram+0x10000000000");
    }
}
