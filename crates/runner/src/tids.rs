//! Maps tasks to threads of the scenario. Processes begin while the scenario runs, each time as
//! another task. A record says so ([`Kind::Forked`]) before the task has its first turn.

use crate::log::{Kind, Raw};
use std::collections::HashMap;

/// The number of tasks that memory is set aside for.
const USUAL: usize = 1 << 10;

/// The scenario's threads, by task id.
#[derive(Clone, Debug, Default)]
pub struct Tids {
    threads: HashMap<i32, usize>,
}

impl Tids {
    /// Begins with the threads of the first process. Other threads have the id 0.
    pub fn new(tids: &[i32]) -> Tids {
        let mut threads = HashMap::with_capacity(USUAL);
        // This touches the memory beforehand, as `sys::roomy` does.
        threads.extend((1..=USUAL as i32).map(|tid| (-tid, 0)));
        std::hint::black_box(&mut threads).clear();
        let there = tids.iter().enumerate().filter(|(_, tid)| **tid != 0);
        threads.extend(there.map(|(thread, tid)| (*tid, thread)));
        Tids { threads }
    }

    /// Learns about processes that begin, from their records.
    pub fn learn(&mut self, records: &[Raw]) {
        for record in records.iter().filter(|record| record.kind == Kind::Forked) {
            self.threads.insert(record.value as i32, record.extra as usize);
        }
    }

    /// The thread that this task runs.
    pub fn thread(&self, tid: i32) -> Option<usize> {
        self.threads.get(&tid).copied()
    }

    /// Whether the task is one of the scenario's.
    pub fn ours(&self, tid: i32) -> bool {
        self.threads.contains_key(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_from_its_birth_on() {
        let mut tids = Tids::new(&[10, 0]);
        assert_eq!((tids.thread(10), tids.thread(0)), (Some(0), None));
        let birth = Raw { time: 1, value: 77, extra: 1, tid: 10, cpu: 0, kind: Kind::Forked };
        tids.learn(&[birth, Raw { kind: Kind::Op, value: 5, ..birth }]);
        assert_eq!(tids.thread(77), Some(1));
        assert!(tids.ours(77) && !tids.ours(5));
    }
}
