//! Holds the model to what real kernels did with random scenarios. `tests/agreed.tsv` has a hash of
//! everything that was compared, for each seed and kernel of a run of `make agree`
//! (docs/agreement.md) in which nothing differed. The model wrote the lines; that run shows that
//! the kernels did what they say.
//!
//! `NEEDLESS_AGREED=write cargo test -p needless-scenario --test agreed` writes the file anew. That
//! is right only after another run of `make agree` without a difference, over the seeds that the
//! file then has.

use crate::common::told;
use needless_model::kernels::KernelRow;
use needless_model::sim::{self, SimOptions};
use needless_scenario::random::{Target, generate};
use needless_scenario::{Settings, Source, compile};
use xxhash_rust::xxh3::xxh3_64;

/// The rows for the kernels of that run, each with its release and the number of CPUs that
/// scenarios could have.
const KERNELS: [(&str, (u32, u32), usize); 6] = [
    ("6.18,mglru=off,soft-dirty=off", (6, 18), 2),
    ("5.10", (5, 10), 3),
    ("6.1,la57=on", (6, 1), 3),
    ("6.12,la57=on", (6, 12), 3),
    ("6.18,la57=on", (6, 18), 3),
    ("7.3,la57=on", (7, 3), 3),
];

/// The first seeds of that run. All kernels ran them.
const SEEDS: std::ops::Range<u64> = 1_070_000..1_071_000;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/agreed.tsv");

fn digest(seed: u64, (row, release, cpus): (&str, (u32, u32), usize)) -> String {
    let text = generate(seed, &Target::new(release, cpus)).text().unwrap();
    let program = compile(&Source::new("random", text), &Settings::default()).unwrap();
    let run = sim::run(&program, &KernelRow::parse(row).unwrap(), &SimOptions::default());
    let told = run.map_or_else(|error| error.to_string(), |run| told(&program, &run));
    format!("{:08x}", xxh3_64(told.as_bytes()) >> 32)
}

fn line(seed: u64) -> String {
    let digests = KERNELS.map(|kernel| digest(seed, kernel));
    format!("{seed}\t{}", digests.join("\t"))
}

#[test]
fn random_scenarios_do_what_they_did_on_real_kernels() {
    let made: Vec<String> = std::thread::scope(|scope| {
        let half = (SEEDS.start + SEEDS.end) / 2;
        let parts = [SEEDS.start..half, half..SEEDS.end];
        let parts = parts.map(|part| scope.spawn(move || part.map(line).collect::<Vec<_>>()));
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    if std::env::var("NEEDLESS_AGREED").is_ok_and(|what| what == "write") {
        let kernels = KERNELS.map(|(row, ..)| row).join("\t");
        return std::fs::write(FILE, format!("# seed\t{kernels}\n{}\n", made.join("\n"))).unwrap();
    }
    let file = std::fs::read_to_string(FILE).unwrap();
    let known: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(known.len(), made.len());
    let differ = |(known, made): (&&str, &String)| {
        let seed = made.split('\t').next().unwrap_or_default().to_owned();
        let rows: Vec<&str> = known
            .split('\t')
            .zip(made.split('\t'))
            .skip(1)
            .zip(KERNELS)
            .filter(|((known, made), _)| known != made)
            .map(|(_, (row, ..))| row)
            .collect();
        (!rows.is_empty()).then(|| format!("{seed} on {}", rows.join(" ")))
    };
    let differing: Vec<String> = known.iter().zip(&made).filter_map(differ).collect();
    assert!(differing.is_empty(), "`needless scenario random SEED` shows each: {differing:#?}");
}
