//! The model's memory: bytes for each touched page, from the peak resident set of this process.

use needless_model::kernels::KernelRow;
use needless_model::run::Round;
use needless_model::sim::{SimOptions, run_with};
use needless_scenario::{Settings, Source, compile};

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn main() {
    let pages: u64 = 16 << 20;
    let text = format!(
        "scenario \"memory\" {{\n machine {{ cpus 1 }}\n thread \"main\" cpu=0 {{\n map \"heap\" pages={pages}\n write \"heap\"\n rounds 1 warmup=0 {{ read \"heap[0]\" }}\n}}\n}}"
    );
    let program = compile(&Source::new("memory", text), &Settings::default()).expect("it compiles");
    let row = KernelRow::parse("6.12").expect("a row");
    let before = peak_kib();
    let mut touched = 0;
    run_with(&program, &row, &SimOptions::default(), &mut |_: &Round| touched = peak_kib())
        .expect("it runs");
    let per_page = |kib: u64| ((kib - before) * 1024) as f64 / pages as f64;
    println!(
        "{pages} pages ({} GiB) touched: {:.1} bytes of peak memory each; {:.1} with the free list of exit",
        pages >> 18,
        per_page(touched),
        per_page(peak_kib())
    );
}
