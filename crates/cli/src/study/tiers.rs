//! Machines with fast and slow memory. Each runs once, as many at a time as there are processors.

use super::{LEFT_OUT, Only};
use crate::output::Progress;
use needless_model::tiering::{self, Counts, Rate};
use needless_scenario::study::{Part, Tiers};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The results of a part's machines, by name.
pub struct Machines(BTreeMap<String, (u32, Result<Counts, String>)>);

impl Machines {
    /// Runs the machines of a part.
    pub fn run(part: &Part, only: &Only, progress: &Progress) -> Machines {
        let wanted = |tiers: &&Tiers| only.has(&format!("model:{}", tiers.setup.row.name));
        let mut results: BTreeMap<_, _> = part
            .tiers
            .iter()
            .map(|tiers| (tiers.name.clone(), (tiers.setup.scale, Err(LEFT_OUT.to_owned()))))
            .collect();
        let left: Vec<&Tiers> = part.tiers.iter().filter(wanted).rev().collect();
        let (machines, left) = (left.len(), Mutex::new(left));
        let all: u32 =
            part.tiers.iter().filter(wanted).map(|t| t.setup.warm_ms + t.setup.counted_ms).sum();
        let over = AtomicU32::new(0);
        let workers = thread::available_parallelism().map_or(1, NonZero::get).min(machines);
        let done = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..workers).map(|_| scope.spawn(|| worker(&left, &done, &over))).collect();
            while !threads.iter().all(|thread| thread.is_finished()) {
                progress.now(&format!(
                    "{}: {} machines, {} of {} simulated seconds",
                    part.name,
                    machines,
                    over.load(Relaxed) / 1000,
                    all / 1000
                ));
                thread::park_timeout(Duration::from_millis(200));
            }
        });
        for (name, result) in done.into_inner().unwrap_or_default() {
            if let Some((_, known)) = results.get_mut(&name) {
                *known = result;
            }
        }
        Machines(results)
    }

    /// The rate that a machine reaches in one second.
    pub fn rate(&self, name: &str, rate: Rate) -> Result<f64, String> {
        let (scale, counts) =
            self.0.get(name).ok_or_else(|| format!("there is no machine {name}"))?;
        Ok(rate.of(counts.as_ref().map_err(Clone::clone)?, *scale))
    }
}

type Done = Mutex<Vec<(String, Result<Counts, String>)>>;

/// Runs machines until none is left.
fn worker(left: &Mutex<Vec<&Tiers>>, done: &Done, over: &AtomicU32) {
    while let Some(tiers) = left.lock().ok().and_then(|mut left| left.pop()) {
        let mut told = 0;
        let counts = tiering::run(&tiers.setup, &mut |ms, _| {
            over.fetch_add(ms - told, Relaxed);
            told = ms;
        });
        if let Ok(mut done) = done.lock() {
            done.push((tiers.name.clone(), counts.map_err(|error| error.to_string())));
        }
    }
}
