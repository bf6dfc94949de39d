//! The operations that random scenarios are made of.
//!
//! A new operation of the language becomes part of random scenarios by its rows here. A row says
//! how the operation is written, how often it is drawn, what state its pages must be in, and how it
//! changes that state.

use needless_model::call::CallKind;
use needless_model::program::Prot;
use std::sync::LazyLock;
use strum::IntoEnumIterator;

/// An operation that can be drawn.
#[derive(Copy, Clone, Debug)]
pub struct Operation {
    /// The operation's line or lines. `{}` is replaced by the range, `{to}` by the other area,
    /// `{from}` by the same range of the other area, `{file}` by the same range of the file,
    /// `{first}` by the page of the file at which that range begins, and `{all}` by the file's
    /// number of pages.
    pub line: &'static str,
    /// How often the operation is drawn, relative to the others.
    pub weight: u64,
    /// The first kernel that has the operation.
    pub since: (u32, u32),
    /// What the operation's pages must be.
    pub needs: Needs,
    /// What the operation does to its pages.
    pub effect: Effect,
    /// The memory that the operation may be applied to.
    pub of: Of,
    /// The seeds that draw the operation. Earlier seeds never draw it.
    pub drawn: Drawn,
}

/// Which seeds draw an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drawn {
    /// All seeds.
    Always,
    /// The seeds whose files may be on disks.
    WithDisks,
    /// The seeds that also change files by system calls.
    WithFileCalls,
    /// The seeds whose files also leave memory.
    WithDrops,
    /// The seeds that also put guards into mappings and give advice about several ranges at once.
    WithGuards,
    /// The seeds with huge pages.
    WithHugePages,
    /// The seeds with huge pages that give any advice about several ranges at once.
    WithRanges,
    /// The seeds with userfaultfd.
    WithUserfaultfd,
    /// The seeds with userfaultfd in which it also watches files and shared memory, and fills and
    /// moves pages.
    WithWatchedFiles,
    /// The seeds with watched files in which faults are answered by moving pages.
    WithMovedIn,
    /// The seeds that clear and read soft-dirty bits.
    WithSoftDirty,
    /// The seeds that lock memory.
    WithMlock,
    /// The seeds in which pages of files and of shared memory also go to swap or leave memory.
    WithPageout,
    /// The seeds with several NUMA nodes.
    WithNodes,
}

/// The memory that an operation may be applied to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// Any memory.
    All,
    /// Only private anonymous memory.
    Private,
    /// Any memory that is not on a disk.
    InMemory,
    /// Any memory that is neither private and anonymous nor on a disk.
    FileInMemory,
    /// Only memory that processes share, and no file on a disk.
    SharedInMemory,
    /// A shared mapping of a file on a disk.
    SharedOnDisk,
    /// A file on a disk, shared or private.
    OnDisk,
    /// A file, shared or private.
    File,
}

/// What the pages of an operation must be, so that it neither fails nor raises a signal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The pages are mapped.
    Mapped,
    /// The pages are mapped and may be loaded from.
    Readable,
    /// The pages are mapped and may be stored to.
    Writable,
    /// The pages are mapped and may be stored to, and they are exactly those of whole huge pages.
    WholeHuge,
    /// The pages are mapped, and a thread answers the faults that userfaultfd reports. No answer
    /// moves pages.
    Handled,
    /// The pages are mapped in the area that answers move pages to, and so are the same pages of
    /// the other area. Both may be stored to.
    MovedIn,
    /// The pages are mapped, and userfaultfd watches stores there.
    Watched,
    /// The pages are watched, and certainly belong to one mapping.
    WatchedOne,
    /// The pages are watched, certainly belong to one mapping, and may be stored to.
    WatchedWritable,
    /// The pages are watched by a userfaultfd that lets stores go on.
    WatchedAsync,
    /// The pages are mapped, and the userfaultfd lets stores go on.
    Async,
    /// At least some of the pages are mapped.
    SomeMapped,
    /// The pages are the whole area, and none of them is mapped.
    WholeUnmapped,
    /// The pages certainly belong to one mapping, and another area has room for them.
    OneMapping,
    /// The pages are mapped, and another area has room for them.
    Room,
    /// The pages certainly belong to one mapping, and another area has room for them. That area
    /// certainly is another single mapping and is watched. Both may be stored to.
    RoomWatched,
}

/// How the pages change, as far as later operations depend on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The mapping and the protection stay.
    None,
    /// The pages are mapped with this protection.
    Map(Prot),
    /// The pages are unmapped.
    Unmap,
    /// The pages get another protection.
    Protect(Prot),
    /// The pages get a mapping of their own, unless they are the whole area.
    Split,
    /// Guards replace the pages, or are removed.
    Guard(bool),
    /// userfaultfd begins or stops to watch stores to the pages.
    Watch(bool),
    /// The pages are locked in memory or unlocked.
    Lock(bool),
    /// userfaultfd watches other accesses to the pages, not stores.
    WatchOthers,
    /// The pages become the first pages of the other area.
    Move,
}

const ALWAYS: (u32, u32) = (0, 0);

const fn row(line: &'static str, weight: u64, needs: Needs, effect: Effect) -> Operation {
    Operation { line, weight, since: ALWAYS, needs, effect, of: Of::All, drawn: Drawn::Always }
}

/// An operation on private anonymous memory only.
const fn private(line: &'static str, weight: u64, needs: Needs, effect: Effect) -> Operation {
    Operation { of: Of::Private, ..row(line, weight, needs, effect) }
}

/// An operation on the part of the file that is mapped at the pages.
const fn of_file(line: &'static str, weight: u64) -> Operation {
    let row = row(line, weight, Needs::Mapped, Effect::None);
    Operation { of: Of::File, drawn: Drawn::WithFileCalls, ..row }
}

/// `process_madvise` of several ranges.
const fn ranges(of: Of, line: &'static str, weight: u64, since: (u32, u32)) -> Operation {
    let row = row(line, weight, Needs::Mapped, Effect::None);
    Operation { of, since, drawn: Drawn::WithGuards, ..row }
}

/// `process_madvise` of several ranges with advice that few seeds draw.
const fn advised(line: &'static str, weight: u64, needs: Needs, effect: Effect) -> Operation {
    let row = private(line, weight, needs, effect);
    Operation { since: (6, 13), drawn: Drawn::WithRanges, ..row }
}

/// Advice that installs or removes guards, in any memory.
const fn guards(line: &'static str, guard: bool) -> Operation {
    let row = row(line, 8, Needs::Mapped, Effect::Guard(guard));
    Operation { since: (6, 15), drawn: Drawn::WithGuards, ..row }
}

/// Advice on which pages reclaim should take, in any memory.
const fn takes(line: &'static str, weight: u64) -> Operation {
    let row = row(line, weight, Needs::Mapped, Effect::None);
    Operation { drawn: Drawn::WithPageout, ..row }
}

/// An operation of the first process only, which has the userfaultfd.
const fn uffd(
    line: &'static str,
    weight: u64,
    since: (u32, u32),
    needs: Needs,
    effect: Effect,
) -> Operation {
    Operation { since, drawn: Drawn::WithUserfaultfd, ..private(line, weight, needs, effect) }
}

/// An operation of the first process on memory that a file may back, watched by its userfaultfd.
const fn watched(
    of: Of,
    line: &'static str,
    weight: u64,
    since: (u32, u32),
    (needs, effect): (Needs, Effect),
) -> Operation {
    Operation { of, drawn: Drawn::WithWatchedFiles, ..uffd(line, weight, since, needs, effect) }
}

/// Accesses to private memory that are answered by moving pages of the other area there.
const fn moved_in(line: &'static str, weight: u64) -> Operation {
    let row = uffd(line, weight, (6, 8), Needs::MovedIn, Effect::Watch(false));
    Operation { drawn: Drawn::WithMovedIn, ..row }
}

/// An operation of any process, on kernels that have soft-dirty bits.
const fn soft_dirty(line: &'static str, weight: u64, needs: Needs) -> Operation {
    Operation { drawn: Drawn::WithSoftDirty, ..row(line, weight, needs, Effect::None) }
}

/// `mlock` or `munlock` of pages that can be brought into memory.
const fn mlock(line: &'static str, weight: u64, lock: bool) -> Operation {
    let row = row(line, weight, Needs::Readable, Effect::Lock(lock));
    Operation { drawn: Drawn::WithMlock, ..row }
}

/// An operation on a machine with several NUMA nodes.
const fn nodes(line: &'static str, weight: u64, needs: Needs, effect: Effect) -> Operation {
    Operation { drawn: Drawn::WithNodes, ..row(line, weight, needs, effect) }
}

/// Operations other than calls that random scenarios leave out, with the reason.
#[cfg(test)]
pub(super) const LEFT_OUT: [(&str, &str); 1] =
    [("measure", "it times its body, and times are not compared")];

/// The placeholder in operations' lines for the features of the case's userfaultfd.
pub(super) const FEATURES: &str = "{features}";

const READS_WHAT_MOVES: &str = r#"madvise "{}" advice="dontneed"
write "{from}"
uffdio_register "{}" mode="missing" features="{features}"
read "{}"
uffdio_unregister "{}""#;

/// Writes pages that are moved in, twice. The second time only some pages of the range are written.
const WRITES_WHAT_MOVES: &str = r#"madvise "{}" advice="dontneed"
write "{from}"
uffdio_register "{}" mode="missing" features="{features}"
write "{}"
madvise "{}" advice="dontneed"
write "{from}"
touch "{}" access="write" stride=3
uffdio_unregister "{}""#;

const WRITES_WHAT_MOVES_FROM_SWAP: &str = r#"madvise "{}" advice="dontneed"
write "{from}"
madvise "{from}" advice="pageout"
uffdio_register "{}" mode="missing" features="{features}"
write "{}"
uffdio_unregister "{}""#;

/// All operations that are drawn.
pub(super) static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let calls = CallKind::iter().flat_map(call);
    ACCESSES.iter().copied().chain(calls).chain(WAITING.iter().copied()).collect()
});

#[rustfmt::skip]
const ACCESSES: &[Operation] = &[
    row("read \"{}\"", 12, Needs::Readable, Effect::None),
    row("write \"{}\"", 14, Needs::Writable, Effect::None),
    row("write \"{}\" value=\"zero\"", 4, Needs::Writable, Effect::None),
    row("touch \"{}\" access=\"read\" stride=3", 2, Needs::Readable, Effect::None),
    row("touch \"{}\" access=\"write\" stride=2", 3, Needs::Writable, Effect::None),
    row("touch \"{}\" access=\"write-zero\" stride=2", 1, Needs::Writable, Effect::None),
    row("touch \"{}\" access=\"write\" order=\"random\" seed=5 count=12", 2, Needs::Writable, Effect::None),
    row("touch \"{}\" access=\"read\" order=\"random\" seed=9 count=12", 2, Needs::Readable, Effect::None),
];

const WAITING: &[Operation] = &[row("sleep \"200us\"", 1, Needs::Mapped, Effect::None)];

/// The rows of a call. A call has none if no real kernel can be asked for it, or if it is about
/// processes ([`super::Life`]).
#[rustfmt::skip]
pub(super) fn call(kind: CallKind) -> Vec<Operation> {
    match kind {
        CallKind::Advise => vec![
            row("madvise \"{}\" advice=\"dontneed\"", 6, Needs::Mapped, Effect::None),
            private("madvise \"{}\" advice=\"free\"", 5, Needs::Mapped, Effect::None),
            private("madvise \"{}\" advice=\"cold\"", 5, Needs::Mapped, Effect::None),
            private("madvise \"{}\" advice=\"pageout\"", 10, Needs::Mapped, Effect::None),
            takes("madvise \"{}\" advice=\"cold\"", 8),
            takes("madvise \"{}\" advice=\"pageout\"", 20),
            Operation { since: (5, 14), ..row("madvise \"{}\" advice=\"populate-read\"", 3, Needs::Readable, Effect::None) },
            Operation { since: (5, 14), ..row("madvise \"{}\" advice=\"populate-write\"", 3, Needs::Writable, Effect::None) },
            Operation { drawn: Drawn::WithHugePages, ..private("madvise \"{}\" advice=\"hugepage\"", 12, Needs::Mapped, Effect::Split) },
            Operation { drawn: Drawn::WithHugePages, ..private("madvise \"{}\" advice=\"nohugepage\"", 2, Needs::Mapped, Effect::Split) },
            Operation { since: (6, 1), drawn: Drawn::WithHugePages, ..private("write \"{}\"\nmadvise \"{}\" advice=\"hugepage\"\nmadvise \"{}\" advice=\"collapse\"", 6, Needs::WholeHuge, Effect::Split) },
            Operation { of: Of::SharedInMemory, drawn: Drawn::WithDisks, ..row("madvise \"{}\" advice=\"remove\"", 6, Needs::Writable, Effect::None) },
            Operation { of: Of::SharedOnDisk, drawn: Drawn::WithFileCalls, ..row("madvise \"{}\" advice=\"remove\"", 6, Needs::Writable, Effect::None) },
            guards("madvise \"{}\" advice=\"guard-install\"", true),
            guards("madvise \"{}\" advice=\"guard-remove\"", false),
        ],
        CallKind::AdviseRanges => vec![
            ranges(Of::All, "process_madvise \"{}\" advice=\"dontneed\" stride=2", 6, (6, 13)),
            ranges(Of::All, "process_madvise \"{}\" advice=\"dontneed\" pages=3 stride=5", 4, (6, 13)),
            ranges(Of::Private, "process_madvise \"{}\" advice=\"free\" stride=3", 5, (6, 13)),
            ranges(Of::Private, "process_madvise \"{}\" advice=\"cold\" pages=2 stride=3", 5, (5, 10)),
            ranges(Of::Private, "process_madvise \"{}\" advice=\"pageout\" pages=4 stride=7", 6, (5, 10)),
            Operation { drawn: Drawn::WithPageout, ..ranges(Of::All, "process_madvise \"{}\" advice=\"cold\" pages=2 stride=3", 2, (5, 10)) },
            Operation { drawn: Drawn::WithPageout, ..ranges(Of::All, "process_madvise \"{}\" advice=\"pageout\" pages=4 stride=7", 5, (5, 10)) },
            ranges(Of::All, "process_madvise \"{}\" advice=\"guard-install\" stride=2\nprocess_madvise \"{}\" advice=\"guard-remove\" stride=2", 4, (6, 15)),
            advised("process_madvise \"{}\" advice=\"populate-read\" pages=2 stride=5", 4, Needs::Readable, Effect::None),
            advised("process_madvise \"{}\" advice=\"populate-write\" pages=3 stride=4", 4, Needs::Writable, Effect::None),
            // The ranges become mappings of their own, which merge again.
            advised("process_madvise \"{}\" advice=\"hugepage\" pages=2 stride=7\nmadvise \"{}\" advice=\"hugepage\"", 4, Needs::Mapped, Effect::Split),
            advised("process_madvise \"{}\" advice=\"nohugepage\" pages=3 stride=5\nmadvise \"{}\" advice=\"hugepage\"", 3, Needs::Mapped, Effect::Split),
            advised("write \"{}\"\nmadvise \"{}\" advice=\"hugepage\"\nprocess_madvise \"{}\" advice=\"collapse\" pages=512", 6, Needs::WholeHuge, Effect::Split),
        ],
        CallKind::Protect => vec![
            row("mprotect \"{}\" prot=\"read\"", 5, Needs::Mapped, Effect::Protect(Prot::Read)),
            row("mprotect \"{}\" prot=\"read-write\"", 5, Needs::Mapped, Effect::Protect(Prot::ReadWrite)),
            row("mprotect \"{}\" prot=\"none\"", 2, Needs::Mapped, Effect::Protect(Prot::None)),
        ],
        CallKind::Unmap => vec![row("munmap \"{}\"", 5, Needs::SomeMapped, Effect::Unmap)],
        CallKind::Map => vec![
            row("map \"{}\"", 6, Needs::WholeUnmapped, Effect::Map(Prot::ReadWrite)),
            row("map \"{}\" prot=\"read\"", 2, Needs::WholeUnmapped, Effect::Map(Prot::Read)),
            row("map \"{}\" prot=\"none\"", 1, Needs::WholeUnmapped, Effect::Map(Prot::None)),
        ],
        CallKind::Remap => vec![
            private("mremap \"{}\" to=\"{to}\"", 6, Needs::OneMapping, Effect::Move),
            Operation { since: (6, 17), ..private("mremap \"{}\" to=\"{to}\"", 6, Needs::Room, Effect::Move) },
        ],
        CallKind::Mlock => vec![
            mlock("mlock \"{}\"", 14, true),
            mlock("mlock \"{}\" when=\"on-fault\"", 8, true),
        ],
        CallKind::Munlock => vec![mlock("munlock \"{}\"", 10, false)],
        CallKind::ClearRefs => vec![soft_dirty("clear-refs of=\"soft-dirty\"", 16, Needs::SomeMapped)],
        CallKind::Pagemap => vec![soft_dirty("pagemap \"{}\"", 8, Needs::Mapped)],
        CallKind::Sigaction => vec![],
        CallKind::Sync => vec![Operation { drawn: Drawn::WithDisks, ..row("msync \"{}\"", 8, Needs::Mapped, Effect::None) }],
        CallKind::WriteFile => vec![of_file("pwrite \"{file}\"", 8)],
        CallKind::DropFile => vec![Operation { drawn: Drawn::WithDrops, ..of_file("fadvise \"{file}\" advice=\"dontneed\"", 8) }],
        // The pages behind the new end are touched again.
        CallKind::Truncate => vec![of_file("ftruncate \"data\" pages=\"{first}\"\nftruncate \"data\" pages={all}", 6)],
        CallKind::SyncFile => vec![of_file("fsync \"data\"", 3)],
        CallKind::UffdRegister => vec![
            uffd("uffdio_register \"{}\" mode=\"wp\" features=\"{features}\"", 24, (5, 7), Needs::Mapped, Effect::Watch(true)),
            uffd("uffdio_register \"{}\" mode=\"missing-wp\" features=\"{features}\"", 6, (5, 7), Needs::Handled, Effect::Watch(true)),
            watched(Of::FileInMemory, "uffdio_register \"{}\" mode=\"wp\" features=\"{features}\"", 24, (5, 19), (Needs::Mapped, Effect::Watch(true))),
            watched(Of::FileInMemory, "uffdio_register \"{}\" mode=\"missing-minor-wp\" features=\"{features}\"", 8, (5, 19), (Needs::Handled, Effect::Watch(true))),
            watched(Of::FileInMemory, "uffdio_register \"{}\" mode=\"minor\" features=\"{features}\"", 8, (5, 14), (Needs::Handled, Effect::WatchOthers)),
            watched(Of::InMemory, "uffdio_register \"{}\" mode=\"missing\" features=\"{features}\"", 8, (5, 7), (Needs::Handled, Effect::WatchOthers)),
            watched(Of::OnDisk, "uffdio_register \"{}\" mode=\"wp\" features=\"{features}\"", 24, (6, 7), (Needs::Async, Effect::Watch(true))),
        ],
        CallKind::UffdUnregister => vec![
            uffd("uffdio_unregister \"{}\"", 4, (5, 7), Needs::Mapped, Effect::Watch(false)),
            watched(Of::All, "uffdio_unregister \"{}\"", 2, (5, 7), (Needs::Mapped, Effect::Watch(false))),
            moved_in(READS_WHAT_MOVES, 20),
            moved_in(WRITES_WHAT_MOVES, 12),
            moved_in(WRITES_WHAT_MOVES_FROM_SWAP, 12),
        ],
        CallKind::UffdProtect => vec![
            uffd("uffdio_writeprotect \"{}\" mode=\"protect\"", 24, (5, 7), Needs::WatchedOne, Effect::None),
            uffd("uffdio_writeprotect \"{}\" mode=\"protect\"", 6, (6, 4), Needs::Watched, Effect::None),
            uffd("uffdio_writeprotect \"{}\" mode=\"unprotect\"", 12, (5, 7), Needs::WatchedOne, Effect::None),
            uffd("uffdio_writeprotect \"{}\" mode=\"unprotect\"", 4, (6, 4), Needs::Watched, Effect::None),
            watched(Of::FileInMemory, "uffdio_writeprotect \"{}\" mode=\"protect\"", 24, (5, 19), (Needs::WatchedOne, Effect::None)),
            watched(Of::FileInMemory, "uffdio_writeprotect \"{}\" mode=\"unprotect\"", 12, (5, 19), (Needs::WatchedOne, Effect::None)),
            watched(Of::OnDisk, "uffdio_writeprotect \"{}\" mode=\"protect\"", 24, (6, 7), (Needs::Watched, Effect::None)),
            watched(Of::OnDisk, "uffdio_writeprotect \"{}\" mode=\"unprotect\"", 12, (6, 7), (Needs::Watched, Effect::None)),
        ],
        // Filling a page that is there would be an error, so the pages are dropped first.
        CallKind::UffdFill => vec![
            watched(Of::Private, "madvise \"{}\" advice=\"dontneed\"\nuffdio_fill \"{}\" by=\"copy\"", 6, (5, 7), (Needs::WatchedOne, Effect::None)),
            watched(Of::Private, "madvise \"{}\" advice=\"dontneed\"\nuffdio_fill \"{}\" by=\"zeropage\"", 6, (5, 7), (Needs::WatchedOne, Effect::None)),
            watched(Of::Private, "madvise \"{}\" advice=\"dontneed\"\nuffdio_fill \"{}\" by=\"poison\"\nmadvise \"{}\" advice=\"dontneed\"", 4, (6, 6), (Needs::WatchedOne, Effect::None)),
            watched(Of::SharedInMemory, "madvise \"{}\" advice=\"remove\"\nuffdio_fill \"{}\" by=\"copy\"", 6, (5, 19), (Needs::WatchedWritable, Effect::None)),
            watched(Of::SharedInMemory, "madvise \"{}\" advice=\"remove\"\nuffdio_fill \"{}\" by=\"zeropage\"", 6, (5, 19), (Needs::WatchedWritable, Effect::None)),
            watched(Of::SharedInMemory, "write \"{}\"\nmadvise \"{}\" advice=\"dontneed\"\nuffdio_fill \"{}\" by=\"continue\"", 8, (5, 19), (Needs::WatchedWritable, Effect::None)),
        ],
        CallKind::UffdMove => vec![
            watched(Of::Private, "write \"{}\"\nmadvise \"{to}\" advice=\"dontneed\"\nuffdio_move \"{}\" to=\"{to}\"", 10, (6, 8), (Needs::RoomWatched, Effect::None)),
        ],
        CallKind::PagemapScan => vec![
            uffd("pagemap_scan \"{}\" then=\"protect\"", 16, (6, 7), Needs::WatchedAsync, Effect::None),
            uffd("pagemap_scan \"{}\"", 2, (6, 7), Needs::WatchedAsync, Effect::None),
            watched(Of::All, "pagemap_scan \"{}\" then=\"protect\"", 10, (6, 7), (Needs::WatchedAsync, Effect::None)),
        ],
        CallKind::MovePages => vec![
            nodes("move_pages \"{}\" node=1", 16, Needs::SomeMapped, Effect::None),
            nodes("move_pages \"{}\" node=0", 12, Needs::SomeMapped, Effect::None),
        ],
        // Without a policy the range may have holes.
        CallKind::Mbind => vec![
            nodes("mbind \"{}\" policy=\"bind\" node=1 then=\"move\"", 8, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"bind\" node=0 then=\"move\"", 6, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"bind\" node=1", 4, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"preferred\" node=1 then=\"move\"", 4, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"interleave\"", 6, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"interleave\" then=\"move\"", 2, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"local\" then=\"move\"", 4, Needs::Mapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"default\"", 4, Needs::SomeMapped, Effect::Split),
            nodes("mbind \"{}\" policy=\"default\" then=\"move\"", 6, Needs::SomeMapped, Effect::Split),
        ],
        CallKind::SetMempolicy => vec![
            nodes("set_mempolicy policy=\"bind\" node=1", 3, Needs::SomeMapped, Effect::None),
            nodes("set_mempolicy policy=\"preferred\" node=1", 3, Needs::SomeMapped, Effect::None),
            nodes("set_mempolicy policy=\"interleave\"", 4, Needs::SomeMapped, Effect::None),
            nodes("set_mempolicy policy=\"local\"", 2, Needs::SomeMapped, Effect::None),
            nodes("set_mempolicy policy=\"default\"", 2, Needs::SomeMapped, Effect::None),
        ],
        CallKind::Reclaim
        | CallKind::Khugepaged
        | CallKind::SplitDeferred
        | CallKind::UffdAnswer
        | CallKind::Writeback
        | CallKind::Switch
        | CallKind::Fork
        | CallKind::Wait
        | CallKind::Exec
        | CallKind::Pin
        | CallKind::Dma
        | CallKind::MigratePages
        | CallKind::ReclaimMemory
        | CallKind::NumaScan
        | CallKind::Unpin => vec![],
    }
}

/// The first operation with this effect that is permitted. It brings pages back to an earlier
/// state.
pub(super) fn with_effect(
    effect: Effect,
    permits: impl Fn(&Operation) -> bool,
) -> Option<&'static Operation> {
    OPERATIONS.iter().filter(|operation| operation.effect == effect).find(|op| permits(op))
}
