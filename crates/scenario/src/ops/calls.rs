//! Calls into the kernel: how each is written, and what it becomes.

use super::ranges::{Bounds, Whole};
use super::{Lowering, word};
use crate::document::{Node, Value as Written};
use crate::error::{Problem, suggest};
use crate::expr;
use crate::grammar::{Rule, line};
use crate::scope::Value;
use needless_model::addr::ProcessId;
use needless_model::backing::NamedFile;
use needless_model::call::{
    self, CallExpr, CallKind, EACH, FILE_PAGES, OTHERS, RANGES, Refs, STRIDE,
};
use needless_model::program::{Advice, Expr, FileSpec, Prot, RangeExpr};
use needless_model::userfaultfd::{Features, Fill, Registration, Watch};
use strum::IntoEnumIterator;

/// How a call is written.
#[rustfmt::skip]
pub(crate) const fn rule(kind: CallKind) -> Rule {
    match kind {
        CallKind::Map => line("map", (1, 1), &[], &["pages", "at", "align", "table", "file", "offset", "backing", "prot"],
            ("map \"AREA\" pages=N [at=ADDRESS] [align=BYTES] [table=\"alone|shared\"] [file=\"FILE\" [offset=N]] [backing=\"anonymous|shared\"] [prot=\"none|read|read-write\"]",
             "Maps memory: private and anonymous unless file= or backing= says something else.")),
        CallKind::Unmap => line("munmap", (1, 1), &[], &[],
            ("munmap \"RANGE\"", "Unmaps the pages.")),
        CallKind::Protect => line("mprotect", (1, 1), &["prot"], &[],
            ("mprotect \"RANGE\" prot=\"none|read|read-write\"", "Changes the pages' protection.")),
        CallKind::Remap => line("mremap", (1, 1), &["to"], &["at", "align", "table"],
            ("mremap \"RANGE\" to=\"AREA\" [at=ADDRESS] [align=BYTES] [table=\"alone|shared\"]",
             "Moves the pages to the start of another area.")),
        CallKind::Advise => line("madvise", (1, 1), &["advice"], &[],
            ("madvise \"RANGE\" advice=\"dontneed|free|cold|pageout|populate-read|populate-write|remove|hugepage|nohugepage|collapse|guard-install|guard-remove\"",
             "Gives the kernel advice about the pages.")),
        CallKind::AdviseRanges => line("process_madvise", (1, 1), &["advice"], &["pages", "stride"],
            ("process_madvise \"RANGE\" advice=\"…\" [pages=N] [stride=N]",
             "Gives the kernel advice about several ranges in one call, any advice that madvise takes: ranges of one page each, or of N pages, at every stride-th page.")),
        CallKind::Mlock => line("mlock", (1, 1), &[], &["when"],
            ("mlock \"RANGE\" [when=\"now|on-fault\"]", "Locks the pages in memory: brings all of them into memory now, or locks those that are present, and others once they are (MLOCK_ONFAULT).")),
        CallKind::Munlock => line("munlock", (1, 1), &[], &[],
            ("munlock \"RANGE\"", "Unlocks the pages.")),
        CallKind::ClearRefs => line("clear-refs", (0, 0), &[], &["of"],
            ("clear-refs [of=\"accessed|soft-dirty\"]", "Clears the accessed or the soft-dirty bits of all pages of the process (writes 1 or 4 to /proc/self/clear_refs).")),
        CallKind::Pagemap => line("pagemap", (1, 1), &[], &[],
            ("pagemap \"RANGE\"", "Reads in /proc/self/pagemap which pages were stored to since soft-dirty bits were cleared.")),
        CallKind::Sigaction => line("sigaction", (1, 1), &["by"], &[],
            ("sigaction \"SIGSEGV\" by=\"mprotect\"", "Installs a handler: from now on, a store that the protection forbids raises the signal, and the handler lets the store go on by mprotect of its page.")),
        CallKind::UffdRegister => line("uffdio_register", (1, 1), &["mode"], &["features"],
            ("uffdio_register \"RANGE\" mode=\"missing|minor|wp|missing-minor|missing-wp|minor-wp|missing-minor-wp\" [features=\"none|unpopulated|async\"]",
             "Lets userfaultfd watch accesses to missing pages, accesses to pages that a file in memory has and that are not mapped (minor), or stores to protected pages.")),
        CallKind::UffdUnregister => line("uffdio_unregister", (1, 1), &[], &[],
            ("uffdio_unregister \"RANGE\"", "Ends userfaultfd's watch over the pages.")),
        CallKind::UffdProtect => line("uffdio_writeprotect", (1, 1), &["mode"], &[],
            ("uffdio_writeprotect \"RANGE\" mode=\"protect|unprotect\"",
             "Protects pages that userfaultfd watches from stores, or ends their protection.")),
        CallKind::UffdFill => line("uffdio_fill", (1, 1), &["by"], &[],
            ("uffdio_fill \"RANGE\" by=\"zeropage|copy|continue|poison\"",
             "Maps something where nothing is mapped yet: zeros, a copy of zeros, the file's pages, or a marker that makes accesses raise a signal (UFFDIO_ZEROPAGE, UFFDIO_COPY, UFFDIO_CONTINUE, UFFDIO_POISON).")),
        CallKind::UffdMove => line("uffdio_move", (1, 1), &["to"], &[],
            ("uffdio_move \"RANGE\" to=\"AREA\"",
             "Moves the pages to the start of another area, which userfaultfd watches (UFFDIO_MOVE).")),
        CallKind::UffdAnswer => line("uffd-answer", (0, 0), &["by"], &["from", "to"],
            ("uffd-answer by=\"unprotect|continue|zeropage|copy|move\" [from=\"AREA\" to=\"AREA\"]",
             "Waits for an access that userfaultfd is asked about, and answers as uffd-serve does.")),
        CallKind::PagemapScan => line("pagemap_scan", (1, 1), &[], &["then"],
            ("pagemap_scan \"RANGE\" [then=\"protect\"]",
             "Looks for pages that were written since userfaultfd protected them, and protects them again (PAGEMAP_SCAN).")),
        CallKind::Reclaim => line("reclaim", (1, 1), &[], &[],
            ("reclaim \"RANGE\"",
             "Reclaims the pages as if memory were short: ages them, then writes them to swap.")),
        CallKind::Khugepaged => line("khugepaged", (1, 1), &[], &[],
            ("khugepaged \"RANGE\"",
             "Runs khugepaged over the pages: used pages become huge pages where huge pages are wanted.")),
        CallKind::SplitDeferred => line("split-deferred", (0, 0), &[], &[],
            ("split-deferred",
             "Splits all large folios of which parts are no longer mapped, as if memory were short, and so frees these parts.")),
        CallKind::Sync => line("msync", (1, 1), &[], &[],
            ("msync \"RANGE\"",
             "Writes back the pages of files on disks that were stored to (MS_SYNC): the next store to each of the pages faults.")),
        CallKind::Writeback => line("writeback", (1, 1), &[], &[],
            ("writeback \"RANGE\"",
             "Writes the dirty pages of shared memory back to their file or to swap, as the kernel does by itself: the next store to each faults.")),
        CallKind::WriteFile => line("pwrite", (1, 1), &[], &[],
            ("pwrite \"FILE[RANGE]\"", "Writes whole pages of the file, one after the other.")),
        CallKind::DropFile => line("fadvise", (1, 1), &["advice"], &[],
            ("fadvise \"FILE[RANGE]\" advice=\"dontneed\"",
             "Says that pages of the file need not stay in memory: those that nobody has mapped leave it.")),
        CallKind::Truncate => line("ftruncate", (1, 1), &["pages"], &[],
            ("ftruncate \"FILE\" pages=N",
             "Changes the file's size: pages beyond its new end are removed, even where they are mapped.")),
        CallKind::SyncFile => line("fsync", (1, 1), &[], &[],
            ("fsync \"FILE\"",
             "Writes all dirty pages of the file back to its disk, mapped or not: the next store to each of the pages faults.")),
        CallKind::MovePages => line("move_pages", (1, 1), &["node"], &[],
            ("move_pages \"RANGE\" node=N",
             "Moves the pages to a NUMA node in one call, which returns a status for each page.")),
        CallKind::Mbind => line("mbind", (1, 1), &["policy"], &["node", "then"],
            ("mbind \"RANGE\" policy=\"default|local|bind|preferred|interleave\" [node=N] [then=\"move\"]",
             "Sets the memory policy of the mapping, and moves pages that do not follow it (MPOL_MF_MOVE).")),
        CallKind::MigratePages => line("migrate_pages", (0, 0), &["from", "to"], &[],
            ("migrate_pages from=N to=N", "Moves all pages of the process on one NUMA node to another one.")),
        CallKind::SetMempolicy => line("set_mempolicy", (0, 0), &["policy"], &["node"],
            ("set_mempolicy policy=\"default|local|bind|preferred|interleave\" [node=N]",
             "Sets the memory policy of the thread.")),
        CallKind::ReclaimMemory => line("memory-reclaim", (1, 1), &[], &[],
            ("memory-reclaim N",
             "Reclaims N pages of the process (memory.reclaim of its cgroup): with demotion they go to a slower NUMA node.")),
        CallKind::NumaScan => line("numa-scan", (1, 1), &[], &[],
            ("numa-scan \"RANGE\"",
             "Waits until NUMA balancing has sampled the pages: the next access to each of them is a hint fault.")),
        CallKind::Switch => line("switch", (0, 1), &[], &[],
            ("switch [N]",
             "Lets other processes run on the CPU, N of them one after the other, before the thread goes on.")),
        CallKind::Fork => line("fork", (1, 1), &[], &[],
            ("fork \"PROCESS\"", "Starts the process, with a copy of this one's memory.")),
        CallKind::Wait => line("wait", (1, 1), &[], &[],
            ("wait \"PROCESS\"", "Waits until the process has ended.")),
        CallKind::Exec => line("exec", (0, 0), &[], &[],
            ("exec", "Replaces the process's program by another one, which ends at once.")),
        CallKind::Pin => line("pin", (1, 1), &["as", "access"], &["by"],
            ("pin \"PAGE\" as=\"PIN\" access=\"read|write|force\" [by=\"pin|get\"]",
             "Holds the page as a device does, whatever happens to its mapping.")),
        CallKind::Dma => line("dma", (1, 1), &["access"], &["as"],
            ("dma \"PIN\" access=\"read|write\" [as=\"NAME\"]",
             "A device loads from the page that the pin holds, or stores to it.")),
        CallKind::Unpin => line("unpin", (1, 1), &[], &[],
            ("unpin \"PIN\"", "Releases the page.")),
    }
}

/// The call that is written with this name.
pub(super) fn named(name: &str) -> Option<CallKind> {
    CallKind::iter().find(|kind| rule(*kind).name == name)
}

/// The words for protections.
pub(crate) const PROTS: [(&str, Prot); 3] =
    [("none", Prot::None), ("read", Prot::Read), ("read-write", Prot::ReadWrite)];

impl Lowering<'_> {
    pub(super) fn call(
        &mut self,
        kind: CallKind,
        node: &Node,
        last: bool,
    ) -> Result<CallExpr, Problem> {
        self.may_call(kind, node)?;
        let this: &Self = self;
        let some_pages = || Ok(this.some_pages(&node.args[0])?.expr);
        Ok(match kind {
            CallKind::Map => self.map(node)?,
            CallKind::Unmap => CallExpr::Unmap { pages: some_pages()? },
            CallKind::Protect => {
                CallExpr::Protect { pages: some_pages()?, prot: word(node, "prot", &PROTS)? }
            }
            CallKind::Remap => {
                let (pages, to) = self.elsewhere(node)?;
                CallExpr::Remap { pages, to }
            }
            CallKind::Advise => CallExpr::Advise {
                pages: some_pages()?,
                advice: word(node, "advice", &Advice::ALL.map(|(a, w)| (w, a)))?,
            },
            CallKind::AdviseRanges => self.advise_ranges(node)?,
            CallKind::Mlock => {
                let on_fault = match node.prop("when") {
                    Some(_) => word(node, "when", &[("now", false), ("on-fault", true)])?,
                    None => false,
                };
                CallExpr::Mlock { pages: some_pages()?, on_fault, locked: false }
            }
            CallKind::Munlock => CallExpr::Munlock { pages: some_pages()? },
            CallKind::ClearRefs => CallExpr::ClearRefs {
                refs: match node.prop("of") {
                    Some(_) => word(node, "of", &Refs::ALL)?,
                    None => Refs::Accessed,
                },
            },
            CallKind::Pagemap => CallExpr::Pagemap { pages: some_pages()? },
            CallKind::Sigaction => self.sigaction(node)?,
            CallKind::UffdRegister => self.uffd_register(node)?,
            CallKind::UffdUnregister => CallExpr::UffdUnregister { pages: some_pages()? },
            CallKind::UffdProtect => CallExpr::UffdProtect {
                pages: some_pages()?,
                on: word(node, "mode", &[("protect", true), ("unprotect", false)])?,
            },
            CallKind::UffdFill => {
                CallExpr::UffdFill { pages: some_pages()?, how: word(node, "by", &Fill::ALL)? }
            }
            CallKind::UffdMove => {
                let (pages, to) = self.elsewhere(node)?;
                CallExpr::UffdMove { pages, to }
            }
            CallKind::UffdAnswer => CallExpr::UffdAnswer { answer: self.answer(node)? },
            CallKind::PagemapScan => {
                let protect = match node.prop("then") {
                    Some(_) => word(node, "then", &[("protect", true)])?,
                    None => false,
                };
                CallExpr::PagemapScan { pages: some_pages()?, protect }
            }
            CallKind::Reclaim => CallExpr::Reclaim { pages: some_pages()? },
            CallKind::Khugepaged => CallExpr::Khugepaged { pages: some_pages()? },
            CallKind::SplitDeferred => CallExpr::SplitDeferred,
            CallKind::Sync => CallExpr::Sync { pages: some_pages()? },
            CallKind::Writeback => CallExpr::Writeback { pages: some_pages()? },
            CallKind::WriteFile => {
                let (file, pages) = self.file_range(&node.args[0])?;
                CallExpr::WriteFile { file, first: pages.first.expr, pages: pages.count.expr }
            }
            CallKind::DropFile => {
                word(node, "advice", &[("dontneed", ())])?;
                let (file, pages) = self.file_range(&node.args[0])?;
                CallExpr::DropFile { file, first: pages.first.expr, pages: pages.count.expr }
            }
            CallKind::Truncate => self.truncate(node)?,
            CallKind::SyncFile => CallExpr::SyncFile { file: self.file(&node.args[0])? },
            CallKind::MovePages => self.move_pages(node)?,
            CallKind::Mbind => self.mbind(node)?,
            CallKind::MigratePages => self.migrate_pages(node)?,
            CallKind::SetMempolicy => self.set_mempolicy(node)?,
            CallKind::ReclaimMemory => self.reclaim_memory(node)?,
            CallKind::NumaScan => self.numa_scan(node)?,
            CallKind::Switch => self.switch(node)?,
            CallKind::Fork => CallExpr::Fork { process: self.process(node)? },
            CallKind::Wait => CallExpr::Wait { process: self.process(node)? },
            CallKind::Exec => self.exec(node, last)?,
            CallKind::Pin => self.pin(node)?,
            CallKind::Dma => self.dma(node)?,
            CallKind::Unpin => self.unpin(node)?,
        })
    }

    /// Checks that the process may make the call: only the first process has a userfaultfd.
    fn may_call(&self, kind: CallKind, node: &Node) -> Result<(), Problem> {
        let uffd = matches!(
            kind,
            CallKind::UffdRegister
                | CallKind::UffdUnregister
                | CallKind::UffdProtect
                | CallKind::UffdFill
                | CallKind::UffdMove
                | CallKind::UffdAnswer
                | CallKind::PagemapScan
        );
        if !uffd || self.own_process == ProcessId::FIRST {
            return Ok(());
        }
        let message = format!("`{}` works in the first process only", node.name);
        Err(Problem::new(node.span, message, "in a forked process")
            .help("its userfaultfd does not watch what a fork copies (UFFD_FEATURE_EVENT_FORK is not modelled)"))
    }

    /// Reads `sigaction`: there is one signal, with one handler.
    fn sigaction(&self, node: &Node) -> Result<CallExpr, Problem> {
        let signal = &node.args[0];
        if signal.text("a signal's name")? != "SIGSEGV" {
            return Err(Problem::new(
                signal.span,
                "scenarios do not support this signal",
                "this signal",
            )
            .help("write sigaction \"SIGSEGV\" by=\"mprotect\""));
        }
        word(node, "by", &[("mprotect", ())])?;
        Ok(CallExpr::Sigaction)
    }

    /// Reads `uffdio_register`. The process has one userfaultfd. Naming other features than before
    /// makes another one, if nobody else uses the first one (`check_userfaultfd`).
    fn uffd_register(&mut self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?.expr;
        let mode = word(node, "mode", &Watch::ALL)?;
        let written = node.prop("features");
        let features = match written {
            Some(_) => word(node, "features", &Features::ALL)?,
            None => Features::default(),
        };
        let place = written.map_or(node.span, |written| written.span);
        match self.uffd {
            Some((first, _)) if first == features => {}
            Some((_, span)) => self.other_features = self.other_features.or(Some((place, span))),
            None => self.uffd = Some((features, place)),
        }
        Ok(CallExpr::UffdRegister { pages, registration: Registration { mode, features } })
    }

    fn map(&self, node: &Node) -> Result<CallExpr, Problem> {
        let area = self.area(node.args[0].text("an area's name")?, node.args[0].span)?;
        let prot =
            if node.prop("prot").is_some() { word(node, "prot", &PROTS)? } else { Prot::ReadWrite };
        Ok(CallExpr::Map { area, prot })
    }

    /// Reads ranges of equal numbers of pages. Each follows directly on the one before unless a
    /// stride is given.
    fn advise_ranges(&self, node: &Node) -> Result<CallExpr, Problem> {
        let pages = self.some_pages(&node.args[0])?;
        let number = |name, bounds: call::Bounds, default: Value| match node.prop(name) {
            Some(written) => self.value(written, bounds.what, bounds.least),
            None => Ok(default),
        };
        let each = number("pages", EACH, Value::constant(1))?;
        let stride = number("stride", STRIDE, each.clone())?;
        let (known, every) = (each.known(), stride.known());
        let place = |name| node.prop(name).map_or(node.span, |written| written.span);
        if let (Some(each), Some(every)) = (known, every)
            && each > every
        {
            let message = format!("ranges of {each} pages overlap at every {every}");
            return Err(Problem::new(place("pages"), message, "too many")
                .also(place("stride"), "or too close")
                .help("stride= counts from the start of one range to the start of the next"));
        }
        if let (Some(count), Some(every)) = (pages.count, every)
            && let ranges = (count as u64).div_ceil(every as u64)
            && ranges > RANGES.most as u64
        {
            let message = format!("{} is {ranges}", RANGES.what);
            return Err(Problem::new(pages.span, message, "too many")
                .help(format!("one call takes at most {}", RANGES.most)));
        }
        let advice = word(node, "advice", &Advice::ALL.map(|(a, w)| (w, a)))?;
        Ok(CallExpr::AdviseRanges {
            pages: pages.expr,
            each: each.expr,
            stride: stride.expr,
            done: 0,
            advice,
        })
    }

    /// Reads pages, and another area that has room for them.
    fn elsewhere(&self, node: &Node) -> Result<(RangeExpr, u16), Problem> {
        let pages = self.some_pages(&node.args[0])?;
        let Some(written) = node.prop("to") else {
            return Err(
                Problem::new(node.span, "where to?", "to= is missing").help("add to=\"AREA\"")
            );
        };
        let to = self.area(written.text("an area's name")?, written.span)?;
        if to == pages.expr.area {
            return Err(Problem::new(
                written.span,
                "the pages are in this area already",
                "the same area",
            )
            .help("move them to another area"));
        }
        let room = self.size(to);
        match pages.count {
            Some(count) if count > room => {
                let message = format!("{count} pages do not fit in `{}`", self.name(to));
                Err(Problem::new(pages.span, message, "these pages")
                    .also(written.span, &format!("has {room} pages"))
                    .help("move fewer pages, or map a larger area"))
            }
            _ => Ok((pages.expr, to)),
        }
    }

    /// The process that the node names, which must be another one than its own.
    fn process(&self, node: &Node) -> Result<ProcessId, Problem> {
        let (written, name) = (&node.args[0], node.args[0].text("a process's name")?);
        let known = self.processes.iter().map(String::as_str);
        let Some(number) = known.clone().position(|process| process == name) else {
            let problem =
                Problem::new(written.span, format!("there is no process `{name}`"), "this name");
            return Err(problem.help(if self.processes.is_empty() {
                format!("declare it: process \"{name}\" cpu=N {{ … }}")
            } else {
                suggest("process", name, known)
            }));
        };
        let process = ProcessId(number as u16 + 1);
        if process == self.own_process {
            let what = if node.name == "wait" { "wait for" } else { node.name.as_str() };
            let message = format!("`{name}` cannot {what} itself");
            return Err(
                Problem::new(written.span, message, "its own name").help("name another process")
            );
        }
        Ok(process)
    }

    /// Reads `exec`, after which nothing of the process may be left to do.
    fn exec(&self, node: &Node, last: bool) -> Result<CallExpr, Problem> {
        let (label, help) = if self.own_process == ProcessId::FIRST {
            ("in the first process", "the scenario ends with its first process; fork another one")
        } else if !self.blocks.is_empty() {
            ("inside a block", "make it the last operation of the process")
        } else if !last {
            ("more follows", "what follows is never reached: make this the last operation")
        } else {
            return Ok(CallExpr::Exec);
        };
        Err(Problem::new(node.span, "`exec` must be the last operation of a forked process", label)
            .help(help))
    }

    /// The file that the value names.
    fn file(&self, written: &Written) -> Result<NamedFile, Problem> {
        let number = self.files.named(written.text("a file's name")?, written.span)?;
        Ok(self.named_file(number))
    }

    fn named_file(&self, number: u16) -> NamedFile {
        let FileSpec { fs, pages, write_pages, .. } = self.files.list[usize::from(number)];
        NamedFile { file: number, fs, pages, write_pages }
    }

    /// The file that the value names, and its pages in the range.
    fn file_range(&self, written: &Written) -> Result<(NamedFile, Bounds), Problem> {
        let range = expr::parse_range(written)?;
        let file = self.named_file(self.files.named(&range.area, range.area_span)?);
        let whole = Whole { what: "file", name: &range.area, size: file.pages as i64 };
        let pages = self.bounds(&range, whole)?;
        if pages.count.known() == Some(0) {
            return Err(Problem::new(written.span, "the range is empty", "no pages")
                .help("system calls need at least one page"));
        }
        Ok((file, pages))
    }

    fn truncate(&self, node: &Node) -> Result<CallExpr, Problem> {
        let file = self.file(&node.args[0])?;
        let Some(written) = node.prop("pages") else {
            return Err(
                Problem::new(node.span, "how many pages?", "pages= is missing").help("add pages=N")
            );
        };
        let pages = self.value(written, FILE_PAGES.what, FILE_PAGES.least)?;
        match pages.extremes() {
            Some((_, most)) if most > i128::from(file.pages) => {
                let message = format!("{} is {most}", FILE_PAGES.what);
                Err(Problem::new(written.span, message, "too many").help(format!(
                    "a file has at most as many pages as it was declared with: {}",
                    file.pages
                )))
            }
            _ => Ok(CallExpr::Truncate { file, pages: pages.expr }),
        }
    }

    fn switch(&self, node: &Node) -> Result<CallExpr, Problem> {
        let Some(written) = node.args.first() else {
            return Ok(CallExpr::Switch { others: Expr::Const(1) });
        };
        let others = self.value(written, OTHERS.what, OTHERS.least)?;
        match others.extremes() {
            Some((_, most)) if most > i128::from(OTHERS.most) => {
                let message = format!("{} is {most}", OTHERS.what);
                Err(Problem::new(written.span, message, "too many")
                    .help(format!("at most {}", OTHERS.most)))
            }
            _ => Ok(CallExpr::Switch { others: others.expr }),
        }
    }
}
