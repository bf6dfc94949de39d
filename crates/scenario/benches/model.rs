//! The time that the model takes for TLB hits, faults and rounds. `make bench` runs these benches;
//! docs/performance.md has their results.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use needless_model::kernels::KernelRow;
use needless_model::program::Program;
use needless_model::run::Round;
use needless_model::sim::{SimOptions, run_with};
use needless_scenario::{Settings, Source, compile, load};
use std::hint::black_box;

fn text_program(body: &str) -> Program {
    let text = format!(
        "scenario \"bench\" {{\n machine {{ cpus 1 }}\n thread \"main\" cpu=0 {{\n{body}\n}}\n}}"
    );
    compile(&Source::new("bench", text), &Settings::default()).expect("the bench compiles")
}

fn simulate(program: &Program, row: &KernelRow) {
    let mut rounds = 0;
    run_with(program, row, &SimOptions::default(), &mut |round: &Round| {
        rounds += usize::from(!black_box(round).events.is_empty());
    })
    .expect("the bench runs");
    assert!(rounds > 0);
}

fn tlb_hits(c: &mut Criterion) {
    let row = KernelRow::parse("6.12").expect("a row");
    let mut group = c.benchmark_group("tlb-hits");
    let accesses = 32_000_000;
    group.throughput(Throughput::Elements(accesses)).sample_size(10);
    for (name, access) in [("range-read-L1", "read"), ("range-write-L1", "write")] {
        let program = text_program(&format!(
            "map \"heap\" pages=32\n write \"heap\"\n rounds 1 warmup=0 {{ repeat 1000000 {{ {access} \"heap\" }} }}"
        ));
        group.bench_function(name, |b| b.iter(|| simulate(&program, &row)));
    }
    for (name, pages) in [("random-read-L1", 32), ("random-read-L2", 1024)] {
        let program = text_program(&format!(
            "map \"heap\" pages={pages}\n write \"heap\"\n rounds 1 warmup=0 {{ touch \"heap\" access=\"read\" order=\"random\" seed=1 count={accesses} }}"
        ));
        group.bench_function(name, |b| b.iter(|| simulate(&program, &row)));
    }
}

/// Measures a fault that reuses its page. When mprotect gives write permission back, 5.10 leaves
/// the pages read-only, so each page takes one such fault. The figure is for the whole round, with
/// its two mprotect walks.
fn fault_and_reuse(c: &mut Criterion) {
    let row = KernelRow::parse("5.10").expect("a row");
    let (pages, rounds) = (512, 200);
    let program = text_program(&format!(
        "map \"heap\" pages={pages}\n write \"heap\"\n rounds {rounds} warmup=0 {{ mprotect \"heap\" prot=\"read\"\n mprotect \"heap\" prot=\"read-write\"\n write \"heap\" }}"
    ));
    let mut group = c.benchmark_group("fault");
    group.throughput(Throughput::Elements(pages * rounds)).sample_size(10);
    group.bench_function("reuse-with-two-mprotects", |b| b.iter(|| simulate(&program, &row)));
    // 6.12 makes the pages writable in mprotect: the same round, without any fault.
    let without = KernelRow::parse("6.12").expect("a row");
    group.bench_function("two-mprotects-alone", |b| b.iter(|| simulate(&program, &without)));
    let program = text_program(&format!(
        "map \"heap\" pages={pages}\n rounds {rounds} warmup=0 {{ write \"heap\"\n madvise \"heap\" advice=\"dontneed\" }}"
    ));
    group.bench_function("first-touch-with-dontneed", |b| b.iter(|| simulate(&program, &row)));
}

/// Measures the first touch of 16 GiB with huge pages, page by page. The figure is for one base
/// page.
fn huge_pages(c: &mut Criterion) {
    let row = KernelRow::parse("6.12").expect("a row");
    let pages = 4 << 20;
    let program = text_program(&format!(
        "map \"heap\" pages={pages}\n madvise \"heap\" advice=\"hugepage\"\n rounds 1 warmup=0 {{ write \"heap\" }}"
    ));
    let mut group = c.benchmark_group("huge-pages");
    group.throughput(Throughput::Elements(pages)).sample_size(10);
    group.bench_function("first-touch", |b| b.iter(|| simulate(&program, &row)));
}

fn cow_reuse(c: &mut Criterion) {
    let source = load("cow-reuse").expect("a built-in");
    let rounds = 200_000;
    let settings = [("rounds", rounds.to_string())].into_iter().collect();
    let program = compile(&source, &settings).expect("it compiles");
    let mut group = c.benchmark_group("cow-reuse-rounds");
    group.throughput(Throughput::Elements(rounds)).sample_size(10);
    for name in ["5.10", "6.1", "6.12", "7.3"] {
        let row = KernelRow::parse(name).expect("a row");
        group.bench_function(name, |b| b.iter(|| simulate(&program, &row)));
    }
}

criterion_group!(benches, tlb_hits, fault_and_reuse, huge_pages, cow_reuse);
criterion_main!(benches);
