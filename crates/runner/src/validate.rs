//! Checks a program before anything runs: every index must point to something, and every CPU must
//! exist. After this the executor may use indices without checks.

use crate::wire::{Failure, FailureKind};
use needless_model::addr::ProcessId;
use needless_model::call::CallExpr;
use needless_model::program::{
    Backing, Expr, FileSpec, MAX_FILE_PAGES, MAX_WRITE_PAGES, Op, OpKind, Order, PROGRAM_VERSION,
    Program, RangeExpr, Thread,
};

/// The deepest nesting that is accepted. Deeper programs would need an unbounded stack.
const DEEPEST: usize = 64;

/// Checks `program` for a machine with CPUs `0..cpus` and `nodes` NUMA nodes.
pub fn check(program: &Program, cpus: usize, nodes: usize) -> Result<(), Failure> {
    if program.version != PROGRAM_VERSION {
        return Err(bad(format!(
            "the program has version {}, the runner understands {PROGRAM_VERSION}",
            program.version
        )));
    }
    if let Some(wanted) = program.machine.nodes.filter(|wanted| usize::from(*wanted) > nodes) {
        let has = match nodes {
            1 => "one NUMA node".to_owned(),
            nodes => format!("{nodes} NUMA nodes"),
        };
        let what = format!(
            "the scenario needs {wanted} NUMA nodes; this machine has {has}: booted kernels have as many as asked for (-t kernel:6.12)"
        );
        return Err(Failure::new(FailureKind::Unsupported, what));
    }
    if program.threads.is_empty() {
        return Err(bad("the program has no threads"));
    }
    for (index, thread) in program.threads.iter().enumerate() {
        if thread.cpu.index() >= cpus {
            return Err(Failure::new(
                FailureKind::Unsupported,
                format!(
                    "thread `{}` needs {}; this machine has {cpus} CPUs",
                    thread.name, thread.cpu
                ),
            ));
        }
        if thread.process.index() >= program.processes.len() {
            return Err(bad("a thread belongs to a process that does not exist"));
        }
        check_body(program, index, &thread.body, 0)?;
    }
    check_processes(program)?;
    if let Some(text) = program.model_only() {
        return Err(Failure::new(
            FailureKind::Unsupported,
            format!("`{text}` runs in the model only; no kernel can be asked for it"),
        ));
    }
    let threads = program.threads.len();
    if program.barriers.iter().flat_map(|b| &b.threads).any(|t| t.index() >= threads) {
        return Err(bad("a barrier names a thread that does not exist"));
    }
    if program.ops().filter(|op| matches!(op.kind, OpKind::Rounds { .. })).count() > 1 {
        return Err(bad("there is more than one `rounds`"));
    }
    check_areas(program)
}

/// Checks the processes. Each one but the first has exactly one thread.
fn check_processes(program: &Program) -> Result<(), Failure> {
    if program.threads[0].process != ProcessId::FIRST {
        return Err(bad("the first thread is not the first process's"));
    }
    for number in 1..program.processes.len() {
        let own = |thread: &&Thread| thread.process.index() == number;
        if program.threads.iter().filter(own).count() != 1 {
            return Err(bad("a process that is forked has one thread"));
        }
    }
    Ok(())
}

fn bad(what: impl Into<String>) -> Failure {
    Failure::new(FailureKind::BadRequest, what)
}

/// Whether one call may write this number of pages.
fn can_write(pages: u64) -> bool {
    (1..=MAX_WRITE_PAGES).contains(&pages)
}

fn check_areas(program: &Program) -> Result<(), Failure> {
    if let Some(file) = program.files.iter().find(|f| f.pages == 0 || f.pages > MAX_FILE_PAGES) {
        return Err(bad(format!("file `{}` has {} pages", file.name, file.pages)));
    }
    if let Some(file) = program.files.iter().find(|file| !can_write(file.write_pages)) {
        let FileSpec { name, write_pages, .. } = file;
        return Err(bad(format!("file `{name}` is written by {write_pages} pages at once")));
    }
    for (index, area) in program.areas.iter().enumerate() {
        if area.range.is_empty() || area.range.end.0 > 1 << 51 {
            return Err(bad(format!("area `{}` is empty or out of reach", area.name)));
        }
        if program.areas[..index].iter().any(|other| other.range.overlaps(area.range)) {
            return Err(bad(format!("area `{}` overlaps another", area.name)));
        }
        if let Backing::File(mapping) = area.backing {
            let file = program.files.get(usize::from(mapping.file));
            let end = mapping.first.checked_add(area.range.pages());
            if file.zip(end).is_none_or(|(file, end)| end > file.pages) {
                return Err(bad(format!("area `{}` maps what its file does not have", area.name)));
            }
        }
    }
    Ok(())
}

fn check_body(program: &Program, thread: usize, body: &[Op], depth: usize) -> Result<(), Failure> {
    if depth > DEEPEST {
        return Err(bad("operations are nested too deeply"));
    }
    for op in body {
        if !check_op(program, thread, &op.kind) {
            return Err(Failure {
                op: Some(op.id),
                ..bad("an operation names something that does not exist")
            });
        }
        check_body(program, thread, op.kind.body(), depth + 1)?;
    }
    Ok(())
}

fn check_op(program: &Program, thread: usize, kind: &OpKind) -> bool {
    let expr = |e: &Expr| check_expr(e, program.slots, 0);
    let area = |a: u16| usize::from(a) < program.areas.len();
    let range = |r: &RangeExpr| area(r.area) && expr(&r.first) && expr(&r.pages);
    match kind {
        // The first process is the runner's own.
        OpKind::Call(CallExpr::Exec) => program.threads[thread].process != ProcessId::FIRST,
        OpKind::Call(call) => {
            let own = program.threads[thread].process.index();
            let others = (1..program.processes.len()).filter(|other| *other != own);
            check_call(call, &others.collect::<Vec<_>>(), range, area, expr)
        }
        OpKind::Touch { range: r, order, .. } => {
            range(r)
                && match order {
                    Order::Ascending { stride } => expr(stride),
                    Order::Random { count, .. } => expr(count),
                }
        }
        OpKind::Spin | OpKind::Measure { .. } => true,
        OpKind::Serve { answer } => {
            answer.try_map(|number| area(*number).then_some(()).ok_or(())).is_ok()
        }
        OpKind::Sleep { duration_ns } => duration_ns.as_ref().is_none_or(expr),
        OpKind::Barrier { barrier } => program
            .barriers
            .get(usize::from(*barrier))
            .is_some_and(|b| b.threads.iter().any(|t| t.index() == thread)),
        OpKind::Repeat { slot, count, .. } => *slot < program.slots && expr(count),
        OpKind::ForEach { slot, range: r, stride, .. } => {
            *slot < program.slots && range(r) && expr(stride)
        }
        OpKind::Rounds { slot, .. } => thread == 0 && *slot < program.slots,
        OpKind::Mark { mark } => usize::from(*mark) < program.marks.len(),
    }
}

/// Whether all parts of a call are valid.
fn check_call(
    call: &CallExpr,
    others: &[usize],
    range: impl Fn(&RangeExpr) -> bool,
    area: impl Fn(u16) -> bool,
    expr: impl Fn(&Expr) -> bool,
) -> bool {
    let right = |right: bool| right.then_some(()).ok_or(());
    let named = match call {
        CallExpr::Fork { process } | CallExpr::Wait { process } => Some(process.index()),
        CallExpr::Map { .. }
        | CallExpr::Unmap { .. }
        | CallExpr::Protect { .. }
        | CallExpr::Remap { .. }
        | CallExpr::Advise { .. }
        | CallExpr::AdviseRanges { .. }
        | CallExpr::Mlock { .. }
        | CallExpr::Munlock { .. }
        | CallExpr::ClearRefs { .. }
        | CallExpr::Pagemap { .. }
        | CallExpr::Sigaction
        | CallExpr::UffdRegister { .. }
        | CallExpr::UffdUnregister { .. }
        | CallExpr::UffdProtect { .. }
        | CallExpr::UffdFill { .. }
        | CallExpr::UffdMove { .. }
        | CallExpr::UffdAnswer { .. }
        | CallExpr::PagemapScan { .. }
        | CallExpr::Reclaim { .. }
        | CallExpr::Khugepaged { .. }
        | CallExpr::SplitDeferred
        | CallExpr::Sync { .. }
        | CallExpr::Writeback { .. }
        | CallExpr::Switch { .. }
        | CallExpr::Exec
        | CallExpr::Pin { .. }
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
        | CallExpr::SyncFile { .. } => None,
    };
    let writes = match call {
        CallExpr::WriteFile { file, .. } => can_write(file.write_pages),
        _ => true,
    };
    writes
        && named.is_none_or(|named| others.contains(&named))
        && call.try_map(|r| right(range(r)), |a| right(area(*a)), |n, _| right(expr(n))).is_ok()
}

fn check_expr(expr: &Expr, slots: u8, depth: usize) -> bool {
    match expr {
        Expr::Const(_) => true,
        Expr::Slot(slot) => *slot < slots,
        Expr::Binary(_, left, right) => {
            depth < DEEPEST
                && check_expr(left, slots, depth + 1)
                && check_expr(right, slots, depth + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::addr::{CpuId, PageRange, Vpn};
    use needless_model::program::{Area, Content, FileMapping, FileSystem, Thread};

    fn program(body: Vec<OpKind>) -> Program {
        let body = body.into_iter().map(|kind| Op { id: 0, kind }).collect();
        Program {
            areas: vec![Area::anonymous("a", PageRange::new(Vpn(0x7_0000_0000), 1))],
            threads: vec![Thread::new("main", CpuId(0), body)],
            slots: 1,
            ..Program::default()
        }
    }

    #[test]
    fn dangling_indices_are_refused() {
        let refused = |kind| check(&program(vec![kind]), 2, 1).unwrap_err().kind;
        assert_eq!(refused(OpKind::Mark { mark: 0 }), FailureKind::BadRequest);
        assert_eq!(refused(OpKind::Barrier { barrier: 0 }), FailureKind::BadRequest);
        let sleep = OpKind::Sleep { duration_ns: Some(Expr::Slot(1)) };
        assert_eq!(refused(sleep), FailureKind::BadRequest);
        let two = || OpKind::Rounds { slot: 0, warmup: 0, count: 1, body: vec![] };
        assert_eq!(
            check(&program(vec![two(), two()]), 2, 1).unwrap_err().kind,
            FailureKind::BadRequest
        );
        assert!(check(&program(vec![two()]), 2, 1).is_ok());
    }

    #[test]
    fn a_file_has_what_is_mapped_of_it() {
        let mapping = |file, first| {
            Backing::File(FileMapping { file, fs: FileSystem::Tmpfs, first, shared: false })
        };
        for (file, first, fine) in
            [(0, 7, true), (0, 8, false), (0, u64::MAX, false), (1, 0, false)]
        {
            let mut program = program(vec![]);
            program.files = vec![FileSpec {
                name: "data".to_owned(),
                pages: 8,
                fs: FileSystem::Tmpfs,
                content: Content::Holes,
                write_pages: 1,
            }];
            program.areas[0].backing = mapping(file, first);
            assert_eq!(check(&program, 2, 1).is_ok(), fine, "{file} {first}");
            program.files[0].pages = MAX_FILE_PAGES + 1;
            assert!(check(&program, 2, 1).is_err());
        }
    }

    #[test]
    fn what_only_the_model_runs_is_refused() {
        let refused = |program| check(&program, 2, 1).unwrap_err();
        let (first, pages) = (Expr::Const(0), Expr::Const(1));
        let range = RangeExpr { area: 0, first, pages };
        for call in
            [CallExpr::Switch { others: Expr::Const(1) }, CallExpr::Reclaim { pages: range }]
        {
            assert_eq!(refused(program(vec![OpKind::Call(call)])).kind, FailureKind::Unsupported);
        }
        let mut threads = program(vec![]);
        threads.threads[0].kernel = true;
        assert!(refused(threads).what.contains("kernel-thread main"));
        let dangling = OpKind::Call(CallExpr::Switch { others: Expr::Slot(9) });
        assert_eq!(refused(program(vec![dangling])).kind, FailureKind::BadRequest);
    }

    #[test]
    fn a_missing_cpu_or_node_is_the_machines_fault() {
        let mut program = program(vec![]);
        program.machine.nodes = Some(2);
        assert_eq!(check(&program, 2, 1).unwrap_err().kind, FailureKind::Unsupported);
        assert!(check(&program, 2, 2).is_ok());
        program.threads[0].cpu = CpuId(7);
        assert_eq!(check(&program, 2, 1).unwrap_err().kind, FailureKind::Unsupported);
    }
}
