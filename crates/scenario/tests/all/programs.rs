//! The programs that scenarios are lowered to.

use needless_model::addr::{CpuId, PageRange, ThreadId};
use needless_model::call::CallExpr;
use needless_model::program::*;
use needless_scenario::{Settings, Source, builtin, check, compile, describe, load};

fn program(body: &str) -> Program {
    let text = format!("scenario \"x\" {{ {body} }}");
    compile(&Source::new("x", text), &Settings::default())
        .unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)))
}

fn named(name: &str, settings: &[(&str, &str)]) -> Program {
    compile(&load(name).unwrap(), &settings.iter().copied().collect()).unwrap()
}

/// The texts of a thread's operations, indented by nesting.
fn outline(program: &Program, thread: usize) -> String {
    fn add(program: &Program, ops: &[Op], depth: usize, out: &mut Vec<String>) {
        for op in ops {
            let text = &program.op_texts[op.id as usize];
            out.push(format!("{}{text}", "  ".repeat(depth)));
            add(program, op.kind.body(), depth + 1, out);
        }
    }
    let mut out = Vec::new();
    add(program, &program.threads[thread].body, 0, &mut out);
    out.join("\n")
}

#[test]
fn cow_reuse() {
    let program = named("cow-reuse", &[("pages", "8"), ("threads", "3")]);
    assert_eq!(program.machine.cpus, 3);
    let swap = SwapNeed { kind: SwapKind::Zram, size_bytes: (64 << 20) + (64 << 10) };
    assert_eq!(program.machine.swap, Some(swap));
    assert_eq!(program.machine.thp, Some(ThpMode::Madvise));
    let threads: Vec<_> = program.threads.iter().map(|t| (t.name.as_str(), t.cpu)).collect();
    assert_eq!(threads, [("main", CpuId(0)), ("spinner-0", CpuId(1)), ("spinner-1", CpuId(2))]);
    let expected = "map heap pages=pages
write heap
rounds rounds warmup=warmup
  madvise heap advice=pageout
  for-each p in=heap
    read heap[p]
    measure
      write heap[p]";
    assert_eq!(outline(&program, 0), expected);
    assert_eq!(program.slots, 2);
    assert_eq!(named("cow-reuse", &[]).threads[1].name, "spinner");
    assert_eq!(named("cow-reuse", &[("threads", "1")]).threads.len(), 1);
}

#[test]
fn neighbours_come_first() {
    let program = named("z_mremap_16", &[]);
    let names: Vec<_> = program.areas.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["heap", "away", "heap.neighbour", "away.neighbour"]);
    let expected = "map heap.neighbour
write heap.neighbour
map away.neighbour
write away.neighbour
map heap pages=pages table=shared
write heap
rounds rounds warmup=warmup
  mremap heap to=away table=shared
  mark back
  mremap away to=heap";
    assert_eq!(outline(&program, 0), expected);
}

#[test]
fn loop_variables_become_slots() {
    let program = program(
        "thread \"t\" cpu=0 { map \"a\" pages=64; rounds 2 as=\"r\" { repeat 4 as=\"i\" { \
         for-each \"p\" in=\"a[i*16..i*16+16]\" stride=4 { read \"a[p]\" }; write \"a[r..r+2]\" } } }",
    );
    let OpKind::Rounds { slot: 0, warmup: 0, count: 2, body } = &program.threads[0].body[1].kind
    else {
        panic!()
    };
    let OpKind::Repeat { slot: 1, count: Expr::Const(4), body } = &body[0].kind else { panic!() };
    let OpKind::ForEach { slot: 2, range, stride: Expr::Const(4), .. } = &body[0].kind else {
        panic!()
    };
    assert_eq!(range.pages, Expr::Const(16));
    let base = program.areas[0].range.start;
    let third = range.resolve(&program.areas, &[0, 2, 0]).unwrap();
    assert_eq!(third, PageRange::new(base.add(32), 16));
    let OpKind::Touch { range, .. } = &body[1].kind else { panic!() };
    assert_eq!((&range.first, &range.pages), (&Expr::Slot(0), &Expr::Const(2)));
    assert_eq!(program.slots, 3);
}

#[test]
fn counted_threads_and_barriers() {
    let program = program(
        "thread \"m\" cpu=0 { barrier \"go\"; rounds 1 { barrier \"end\" } }\n\
         thread \"w\" cpu=\"1+index\" count=2 { barrier \"go\"; sleep \"2ms + index*1ms\"; spin }",
    );
    assert_eq!(program.machine.cpus, 3);
    let all = vec![ThreadId(0), ThreadId(1), ThreadId(2)];
    assert_eq!(program.barriers[0], Barrier { name: "go".to_owned(), threads: all });
    assert_eq!(program.barriers[1].threads, [ThreadId(0)]);
    let sleep = &program.threads[2].body[1].kind;
    assert_eq!(*sleep, OpKind::Sleep { duration_ns: Some(Expr::Const(3_000_000)) });
    let ids: Vec<u32> = program.threads[1..].iter().flat_map(|t| &t.body).map(|o| o.id).collect();
    assert_eq!(ids, [3, 4, 5, 6, 7, 8]);
}

#[test]
fn every_word() {
    let program = program(
        "thread \"t\" cpu=0 { map \"a\" pages=4 prot=\"none\"; mprotect \"a\" prot=\"read-write\"; \
         write \"a\" value=\"zero\"; touch \"a\" access=\"write-zero\" stride=2; \
         touch \"a[1..3]\" access=\"read\" order=\"random\" seed=7 count=9; read \"a[2..2]\"; \
         rounds 1 { mark \"x\"; mark \"y\"; mark \"x\" } }",
    );
    let kinds: Vec<_> = program.threads[0].body.iter().map(|o| &o.kind).collect();
    assert_eq!(*kinds[0], OpKind::Call(CallExpr::Map { area: 0, prot: Prot::None }));
    assert!(matches!(kinds[2], OpKind::Touch { access: Access::WriteZero, .. }));
    let OpKind::Touch { order: Order::Random { count, seed: 7 }, .. } = kinds[4] else { panic!() };
    assert_eq!(*count, Expr::Const(9));
    assert!(matches!(kinds[5], OpKind::Rounds { .. }), "an empty touch is nothing");
    assert_eq!(program.marks, ["x", "y"]);
}

#[test]
fn aliases_and_settings() {
    assert_eq!(named("z_munmap_33", &[]).areas[0].range.pages(), 33);
    assert_eq!(named("z_munmap_33", &[("pages", "32+2")]).areas[0].range.pages(), 34);
    assert_eq!(describe(&load("z_munmap_33").unwrap()).unwrap().parameters[0].value, 33);
    let lazy = named("z_munmap_1_lazy", &[]);
    assert_eq!(lazy.threads[1].name, "sleeper");
    assert_eq!(lazy.threads[1].cpu, CpuId(1));
    assert!(Settings::parse(["a=1", "b"]).is_err());
    assert!(load("no-such-scenario").unwrap_err().problems().next().is_none());
}

#[test]
fn the_same_text_gives_the_same_program() {
    for name in builtin::names() {
        assert_eq!(named(name, &[]), named(name, &[]));
    }
}

#[test]
fn summary_counts_bodies() {
    let summary = check(&load("cow-reuse").unwrap()).unwrap();
    assert_eq!((summary.operations, summary.threads, summary.areas), (9, 2, 1));
}
