//! Parts of scenarios that the model does not support.

use super::{Advice, Backing, FileSpec, OpKind, Program, RangeExpr, ThpMode};
use crate::call::{CallExpr, Gup, PinAccess};
use crate::kernels::KernelRow;
use crate::machine::nodes::MAX_NODES;
use crate::numa::{Balancing, NumaNeeds};
use crate::policy::{AnonFolios, FileFolios, MemoryTiers};
use crate::userfaultfd::Answer;

/// A part of a scenario that the model does not support.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The operation that needs it ([`super::Op::id`]); `None` if the machine does.
    pub op: Option<u32>,
    /// The name of the unsupported thing, for messages.
    pub what: &'static str,
}

/// A request that every kernel refuses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The operation with the request ([`super::Op::id`]).
    pub op: u32,
    /// The request, and the kernels' answer.
    pub what: &'static str,
    /// A suggestion for the scenario's author.
    pub help: &'static str,
}

/// The name of a call about NUMA nodes that is not modelled.
fn of_nodes(call: &CallExpr) -> Option<&'static str> {
    Some(match call {
        CallExpr::MigratePages { .. } => {
            "migrate_pages (on a real kernel, it moves the runner's own pages, too)"
        }
        CallExpr::ReclaimMemory { .. } => "memory.reclaim (`memory-reclaim`)",
        _ => return None,
    })
}

impl Program {
    /// The first part of the scenario, or of the row's machine, that is not modelled.
    pub fn not_modelled(&self, row: &KernelRow) -> Option<Lacking> {
        if let Some(what) = self.not_with_nodes(row) {
            return Some(Lacking { op: None, what });
        }
        let mthp = self.has_mthp(row);
        if let Some(what) = mthp.then(|| self.not_with_mthp()).flatten() {
            return Some(Lacking { op: None, what });
        }
        self.ops().find_map(|op| {
            let what = match &op.kind {
                OpKind::Call(CallExpr::Mlock { .. }) if mthp => {
                    Some("mlock with large folios (`mthp`)")
                }
                OpKind::Call(
                    CallExpr::UffdMove { .. }
                    | CallExpr::UffdAnswer { answer: Answer::Move { .. } },
                )
                | OpKind::Serve { answer: Answer::Move { .. } }
                    if mthp =>
                {
                    Some("UFFDIO_MOVE with large folios (`mthp`)")
                }
                OpKind::Call(CallExpr::Khugepaged { .. }) if mthp => {
                    Some("khugepaged with large folios (`mthp`), which it can make since 7.2")
                }
                OpKind::Call(call) => of_nodes(call).or_else(|| self.not_of_objects(call)),
                _ => None,
            };
            Some(Lacking { op: Some(op.id), what: what? })
        })
    }

    /// A property of the scenario's machine that the row's kernel does not have, or has but not in
    /// the model.
    pub fn missing_on(&self, row: &KernelRow) -> Option<&'static str> {
        let as_written = row.policies.file_folios == FileFolios::AsWritten;
        if as_written
            && row.config.other.is_some()
            && self.files.iter().any(FileSpec::has_large_folios)
        {
            return Some(
                "large folios of files (`write-pages`) in the model, which has them on x86-64 only",
            );
        }
        match (self.has_mthp(row), row.policies.anon_folios, row.config.other) {
            (false, ..) | (true, AnonFolios::Sized, None) => None,
            (true, AnonFolios::Page, _) => {
                Some("large folios smaller than a huge page (`mthp`; 6.8 and later have them)")
            }
            (true, AnonFolios::Sized, Some(_)) => Some(
                "large folios smaller than a huge page (`mthp`) in the model, which has them on x86-64 only",
            ),
        }
    }

    /// Whether faults may make large folios that are smaller than a huge page.
    pub fn has_mthp(&self, row: &KernelRow) -> bool {
        !self.machine.mthp.unwrap_or(row.config.mthp).is_off()
    }

    /// A part of the scenario that is not modelled together with such folios. With swap space, the
    /// model would have to know which slots lie side by side and are read as one. With more than
    /// two processes, it would have to know which of them a folio records as mapping it (`_mm_ids`:
    /// two).
    fn not_with_mthp(&self) -> Option<&'static str> {
        match self.machine.swap {
            Some(_) => Some("swap space with large folios (`swap` with `mthp`)"),
            None if self.processes.len() > 2 => {
                Some("large folios (`mthp`) with more than two processes")
            }
            None => None,
        }
    }

    /// A part of the scenario that is not modelled with several NUMA nodes, or where `mbind` moves
    /// pages.
    fn not_with_nodes(&self, row: &KernelRow) -> Option<&'static str> {
        let has = |of: fn(&CallExpr) -> bool| {
            self.ops().any(|op| matches!(&op.kind, OpKind::Call(call) if of(call)))
        };
        let nodes = usize::from(self.machine.nodes.unwrap_or(1));
        if nodes <= 1 && !has(|call| matches!(call, CallExpr::Mbind { moves: true, .. })) {
            return None;
        }
        let names_nodes = |call: &CallExpr| {
            matches!(call, CallExpr::Mbind { .. } | CallExpr::SetMempolicy { .. })
        };
        let config = row.config.for_program(self);
        if config.other.is_some() {
            return Some("NUMA nodes (`nodes`) or mbind that moves pages, except on x86-64");
        }
        if let Some(what) = self.not_sampled(row, config.huge_pages, has(names_nodes)) {
            return Some(what);
        }
        let what = match () {
            () if nodes > MAX_NODES && has(names_nodes) => {
                "memory policies with more than 32 NUMA nodes (`nodes`)"
            }
            () if self.areas.iter().any(|area| area.backing != Backing::Anonymous) => {
                "shared memory and files with several NUMA nodes (`nodes`)"
            }
            () if self.has_mthp(row) => {
                "large folios smaller than a huge page (`mthp`) with several NUMA nodes (`nodes`)"
            }
            () if config.huge_pages && self.takes_huge_pages_apart(config.thp) => {
                "huge pages with several NUMA nodes (`nodes`), except with move_pages, set_mempolicy and madvise with `hugepage` (without thp \"always\")"
            }
            () if self.machine.swap.is_some() => "swap space with several NUMA nodes (`nodes`)",
            () if self.processes.len() > 1 => "several processes with several NUMA nodes (`nodes`)",
            () if config.locks_memory => "mlock with several NUMA nodes (`nodes`)",
            () if has(|call| matches!(call, CallExpr::Pin { .. })) => {
                "pins with several NUMA nodes (`nodes`)"
            }
            () => return None,
        };
        Some(match nodes {
            ..=1 => {
                "mbind that moves pages (then=\"move\") with huge pages, files, shared memory, swap space, several processes, mlock or pins"
            }
            _ => what,
        })
    }

    /// A part of the scenario's memory tiers and NUMA balancing that is not modelled.
    fn not_sampled(
        &self,
        row: &KernelRow,
        huge_pages: bool,
        names_nodes: bool,
    ) -> Option<&'static str> {
        let NumaNeeds { slow, balancing, mglru, .. } = self.machine.numa;
        let samples = balancing.is_some_and(|balancing| balancing != Balancing::Off);
        let tiers = slow > 0 || balancing == Some(Balancing::Tiering);
        match () {
            () if tiers && row.policies.memory_tiers == MemoryTiers::ByDevice => {
                Some("memory tiers (`slow`) before 6.12, where all memory is one tier")
            }
            () if mglru == Some(true) && !row.config.mglru => Some(
                "mglru \"on\" with several NUMA nodes in a row that has mglru off; the row with `,mglru=on` has it on",
            ),
            () if slow > 0 && balancing == Some(Balancing::On) => {
                Some("numa-balancing \"on\" with slow nodes; \"tiering\" is modelled")
            }
            () if samples && huge_pages => Some("huge pages that NUMA balancing samples"),
            () if samples && names_nodes => Some("memory policies together with NUMA balancing"),
            () if samples && !self.only_first_acts() => {
                Some("NUMA balancing with more than one active thread")
            }
            () => None,
        }
    }

    /// Whether a call may be about a part of a huge page, or split one.
    fn takes_huge_pages_apart(&self, thp: ThpMode) -> bool {
        self.ops().any(|op| match &op.kind {
            OpKind::Call(
                CallExpr::Map { .. } | CallExpr::MovePages { .. } | CallExpr::SetMempolicy { .. },
            ) => false,
            // The advice applies to mappings before they have huge pages.
            OpKind::Call(CallExpr::Advise { advice: Advice::HugePage, .. }) => {
                thp == ThpMode::Always
            }
            OpKind::Call(_) => true,
            _ => false,
        })
    }

    /// The first request that every kernel refuses, and the model as well.
    pub fn refused(&self) -> Option<Refused> {
        self.ops().find_map(|op| {
            let OpKind::Call(call) = &op.kind else { return None };
            let (what, help) = self.refused_call(call)?;
            Some(Refused { op: op.id, what, help })
        })
    }

    /// The reason for refusing a call, and a suggestion; `None` if it is not refused.
    ///
    /// Source: mm/madvise.c:madvise_free_single_vma, madvise_remove (5.10 to 7.3).
    fn refused_call(&self, call: &CallExpr) -> Option<(&'static str, &'static str)> {
        let (pages, advice) = match call {
            CallExpr::Advise { pages, advice } => (pages, *advice),
            CallExpr::AdviseRanges { pages, advice, .. } => (pages, *advice),
            CallExpr::Writeback { pages } => {
                let what = match self.backing(pages) {
                    Backing::Anonymous => "private memory has no writeback",
                    Backing::File(file) if !file.fs.is_written_back() => {
                        "a file on tmpfs has no writeback: its pages are nowhere else"
                    }
                    Backing::Shared | Backing::File(_) => return None,
                };
                let help = "name a file on ext4, or shared memory, which goes to swap; reclaim writes private memory to swap";
                return Some((what, help));
            }
            _ => return None,
        };
        match (advice, self.backing(pages)) {
            (Advice::Free, Backing::Shared | Backing::File(_)) => Some((
                "EINVAL: MADV_FREE needs private memory without a file",
                "advice=\"dontneed\" unmaps such pages; advice=\"remove\" frees shared pages",
            )),
            (Advice::Remove, backing) if !backing.is_shared() => Some((
                "EINVAL: MADV_REMOVE needs a shared mapping",
                "map the area with backing=\"shared\"; advice=\"dontneed\" frees private pages",
            )),
            _ => None,
        }
    }

    /// The name of operations that are not modelled for a file that may have large folios.
    fn of_large_folios(&self, pages: &RangeExpr) -> Option<&'static str> {
        let Backing::File(file) = self.backing(pages) else { return None };
        self.files[usize::from(file.file)].has_large_folios().then_some(
            "MADV_COLD, MADV_PAGEOUT, reclaim or mlock of a file on ext4 with `write-pages`",
        )
    }

    /// The name of a call that is not modelled for shared memory or for files.
    fn not_of_objects(&self, call: &CallExpr) -> Option<&'static str> {
        let (pages, [shared, file]) = match call {
            CallExpr::Advise { pages, advice } | CallExpr::AdviseRanges { pages, advice, .. } => {
                let what = match advice {
                    Advice::DontNeed
                    | Advice::PopulateRead
                    | Advice::PopulateWrite
                    | Advice::GuardInstall
                    | Advice::GuardRemove => return None,
                    // Where the advice does not apply, it is refused elsewhere.
                    Advice::Remove | Advice::Free => return None,
                    Advice::Cold | Advice::PageOut => return self.of_large_folios(pages),
                    Advice::HugePage | Advice::NoHugePage | Advice::Collapse => {
                        ["huge pages of shared memory", "huge pages of a file"]
                    }
                };
                (pages, what)
            }
            CallExpr::Remap { pages, .. } => {
                (pages, ["mremap of shared memory", "mremap of a file"])
            }
            CallExpr::UffdMove { pages, .. } => (
                pages,
                [
                    "UFFDIO_MOVE of shared memory (kernels refuse it: EINVAL)",
                    "UFFDIO_MOVE of a file (kernels refuse it: EINVAL)",
                ],
            ),
            CallExpr::Pin { pages, access: PinAccess::Force, gup: Gup::Get, .. }
                if !self.backing(pages).is_shared() =>
            {
                return None;
            }
            CallExpr::Pin { pages, .. } => (
                pages,
                [
                    "pins of shared memory",
                    "pins of a file, except by=\"get\" with access=\"force\"",
                ],
            ),
            CallExpr::Reclaim { pages } | CallExpr::Mlock { pages, .. } => {
                return self.of_large_folios(pages);
            }
            CallExpr::Khugepaged { pages } => (
                pages,
                [
                    "khugepaged in shared memory (its setting, shmem_enabled, is off)",
                    "khugepaged in a file (kernels with CONFIG_READ_ONLY_THP_FOR_FS have it)",
                ],
            ),
            CallExpr::SplitDeferred
            | CallExpr::Writeback { .. }
            | CallExpr::UffdRegister { .. }
            | CallExpr::UffdUnregister { .. }
            | CallExpr::UffdProtect { .. }
            | CallExpr::UffdFill { .. }
            | CallExpr::PagemapScan { .. }
            | CallExpr::UffdAnswer { .. }
            | CallExpr::Map { .. }
            | CallExpr::Sync { .. }
            | CallExpr::Unmap { .. }
            | CallExpr::Protect { .. }
            | CallExpr::Munlock { .. }
            | CallExpr::ClearRefs { .. }
            | CallExpr::Pagemap { .. }
            | CallExpr::Sigaction
            | CallExpr::Switch { .. }
            | CallExpr::Fork { .. }
            | CallExpr::Wait { .. }
            | CallExpr::Exec
            | CallExpr::Dma { .. }
            | CallExpr::Unpin { .. }
            | CallExpr::WriteFile { .. }
            | CallExpr::DropFile { .. }
            | CallExpr::Truncate { .. }
            | CallExpr::MovePages { .. }
            | CallExpr::Mbind { .. }
            | CallExpr::MigratePages { .. }
            | CallExpr::SetMempolicy { .. }
            | CallExpr::ReclaimMemory { .. }
            | CallExpr::NumaScan { .. }
            | CallExpr::SyncFile { .. } => return None,
        };
        match self.backing(pages) {
            Backing::Anonymous => None,
            Backing::Shared => Some(shared),
            Backing::File(_) => Some(file),
        }
    }
}
