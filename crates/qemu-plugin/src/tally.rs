//! The counts, and the lines that are written at marks.
//!
//! Counting takes no lock: a counter has one place for each CPU. Marks are rare and take turns. The
//! line of a mark has what was added since the last mark, whichever CPU made that mark.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often each CPU has executed one instruction.
pub struct Counter {
    name: String,
    by_cpu: Box<[AtomicU64]>,
}

impl Counter {
    /// Counts one execution on `cpu`.
    pub fn add(&self, cpu: usize) {
        if let Some(count) = self.by_cpu.get(cpu) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The counters of all instructions.
pub struct Tally {
    cpus: usize,
    told: Mutex<Told>,
    counters: Mutex<Vec<&'static Counter>>,
}

/// The output, and the counts that were written already.
struct Told {
    out: Box<dyn Write + Send>,
    /// The counts at the last mark, by counter and CPU.
    before: Vec<Vec<u64>>,
}

impl Tally {
    /// Makes an empty tally for a machine of `cpus` CPUs.
    pub fn new(cpus: usize, out: File) -> Tally {
        Tally::to(cpus, Box::new(out))
    }

    fn to(cpus: usize, out: Box<dyn Write + Send>) -> Tally {
        let told = Told { out, before: Vec::new() };
        Tally { cpus, told: told.into(), counters: Mutex::default() }
    }

    /// The counter of the instruction `name`. It is never freed, because translated code refers to
    /// it.
    pub fn counter(&self, name: &str) -> &'static Counter {
        let mut counters = locked(&self.counters);
        if let Some(known) = counters.iter().find(|counter| counter.name == name) {
            return known;
        }
        let by_cpu = (0..self.cpus).map(|_| AtomicU64::new(0)).collect();
        let counter = Box::leak(Box::new(Counter { name: name.to_owned(), by_cpu }));
        counters.push(counter);
        counter
    }

    /// Writes the line of mark `number`, executed on `cpu`.
    pub fn mark(&self, number: usize, cpu: u32) {
        let mut told = locked(&self.told);
        let mut line = format!("{number} {cpu}");
        for (at, counter) in locked(&self.counters).iter().enumerate() {
            if told.before.len() == at {
                told.before.push(vec![0; self.cpus]);
            }
            for (cpu, (count, before)) in
                counter.by_cpu.iter().zip(&mut told.before[at]).enumerate()
            {
                let now = count.load(Ordering::Relaxed);
                let added = now - std::mem::replace(before, now);
                if added > 0 {
                    line += &format!("|{cpu} {added} {}", counter.name);
                }
            }
        }
        line.push('\n');
        // The reader notices a missing line. If there is no reader any more, QEMU ends soon.
        let _ = told.out.write_all(line.as_bytes());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};

    #[test]
    fn marks_tell_what_was_added_since_the_last_one() {
        let (mut reader, writer) = io::pipe().unwrap();
        let tally = Tally::to(2, Box::new(writer));
        let page = tally.counter("tlbi vale1is");
        page.add(0);
        page.add(0);
        page.add(7);
        tally.mark(121, 0);
        let barrier = tally.counter("dsb ish");
        assert!(std::ptr::eq(barrier, tally.counter("dsb ish")));
        barrier.add(1);
        page.add(1);
        tally.mark(122, 1);
        tally.mark(123, 0);
        drop(tally);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "121 0|0 2 tlbi vale1is\n122 1|1 1 tlbi vale1is|1 1 dsb ish\n123 0\n");
    }
}
