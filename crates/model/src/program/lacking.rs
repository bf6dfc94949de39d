//! What a scenario may ask for that the model does not have.

use super::{Advice, Backing, Op, OpKind, Program, ThpMode};
use crate::call::{CallExpr, Gup, PinAccess};

impl Program {
    /// What the scenario asks of the machine that the model does not have.
    pub fn not_modelled(&self) -> Option<&'static str> {
        if self.machine.nodes.is_some_and(|nodes| nodes > 1) {
            return Some("NUMA nodes (`nodes`)");
        }
        self.ops().find_map(|op| match &op.kind {
            OpKind::Call(CallExpr::UffdMove { .. }) if self.may_have_huge_pages() => {
                Some("UFFDIO_MOVE where there may be huge pages")
            }
            OpKind::Call(call) => self.not_of_objects(call),
            _ => None,
        })
    }

    /// Whether faults or advice may make any.
    fn may_have_huge_pages(&self) -> bool {
        let advised = |op: &Op| {
            let advice = match &op.kind {
                OpKind::Call(CallExpr::Advise { advice, .. }) => *advice,
                _ => return false,
            };
            matches!(advice, Advice::HugePage | Advice::Collapse)
        };
        match self.machine.thp {
            Some(ThpMode::Never) => false,
            Some(ThpMode::Madvise) => self.ops().any(advised),
            // Unset: as the machine is.
            Some(ThpMode::Always) | None => true,
        }
    }

    /// What is asked of shared memory or of a file that the model does not have.
    fn not_of_objects(&self, call: &CallExpr) -> Option<&'static str> {
        let (pages, [shared, file]) = match call {
            CallExpr::AdviseRanges {
                advice: Advice::PopulateRead | Advice::PopulateWrite | Advice::Remove,
                ..
            } => return Some("MADV_POPULATE_READ, MADV_POPULATE_WRITE or MADV_REMOVE of ranges"),
            CallExpr::AdviseRanges {
                advice: Advice::HugePage | Advice::NoHugePage | Advice::Collapse,
                ..
            } => return Some("MADV_HUGEPAGE, MADV_NOHUGEPAGE or MADV_COLLAPSE of ranges"),
            CallExpr::Advise { pages, advice } | CallExpr::AdviseRanges { pages, advice, .. } => {
                let what = match advice {
                    Advice::DontNeed
                    | Advice::PopulateRead
                    | Advice::PopulateWrite
                    | Advice::GuardInstall
                    | Advice::GuardRemove => return None,
                    Advice::Remove if self.backing(pages).is_shared() => return None,
                    Advice::Remove => {
                        return Some(
                            "MADV_REMOVE of private memory (kernels refuse it: EINVAL, EACCES)",
                        );
                    }
                    Advice::Free => [
                        "MADV_FREE of shared memory (kernels refuse it: EINVAL)",
                        "MADV_FREE of a file (kernels refuse it: EINVAL)",
                    ],
                    Advice::HugePage | Advice::NoHugePage | Advice::Collapse => {
                        ["huge pages of shared memory", "huge pages of a file"]
                    }
                    Advice::Cold => ["MADV_COLD of shared memory", "MADV_COLD of a file"],
                    Advice::PageOut => ["MADV_PAGEOUT of shared memory", "MADV_PAGEOUT of a file"],
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
            CallExpr::Reclaim { pages } => {
                (pages, ["reclaim of shared memory", "reclaim of a file"])
            }
            CallExpr::Pin { pages, access: PinAccess::Force, gup: Gup::Get, .. }
                if !self.backing(pages).is_shared() =>
            {
                return None;
            }
            CallExpr::Pin { pages, .. } => (
                pages,
                ["pins of shared memory", "pins of a file, but by=\"get\" with access=\"force\""],
            ),
            CallExpr::Writeback { pages } => {
                return match self.backing(pages) {
                    Backing::Shared => None,
                    Backing::Anonymous => Some("writeback of private memory"),
                    Backing::File(file) if file.fs.is_written_back() => None,
                    Backing::File(_) => Some("writeback of a file on tmpfs (it is nowhere else)"),
                };
            }
            CallExpr::UffdRegister { .. }
            | CallExpr::UffdUnregister { .. }
            | CallExpr::UffdProtect { .. }
            | CallExpr::UffdFill { .. }
            | CallExpr::PagemapScan { .. }
            | CallExpr::UffdAnswer { .. }
            | CallExpr::Map { .. }
            | CallExpr::Sync { .. }
            | CallExpr::Unmap { .. }
            | CallExpr::Protect { .. }
            | CallExpr::Mlock { .. }
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
            | CallExpr::SyncFile { .. } => return None,
        };
        match self.backing(pages) {
            Backing::Anonymous => None,
            Backing::Shared => Some(shared),
            Backing::File(_) => Some(file),
        }
    }
}
