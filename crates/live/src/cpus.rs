//! Chooses which CPUs of this machine a scenario's CPUs 0, 1, … are.
//!
//! These are the CPUs that were asked for, or else the quietest ones. A CPU is quiet if it was idle
//! for a large share of the time (`/proc/stat`: only `idle` and `iowait` count as idle, so
//! interrupts and steal count as busy), over [`INTERVAL`]. Shares are compared in steps of [`STEP`]
//! percent. Among equally quiet CPUs the lowest numbers are chosen, so that a quiet machine gives
//! equal CPUs in every run.

use crate::error::LiveError;
use needless_model::program::Program;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the CPUs are watched.
const INTERVAL: Duration = Duration::from_millis(200);

/// Percent of busy time that make no difference: two ticks in the interval.
const STEP: u64 = 10;

/// The CPUs of a program, and how they were chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The machine's CPUs, in the order of the scenario's numbers.
    pub cpus: Vec<u16>,
    /// How they were chosen, in words.
    pub how: String,
}

/// Chooses CPUs. Watches the machine at most once.
pub struct Chooser {
    asked: Vec<u16>,
    busy: Option<BTreeMap<u16, u64>>,
}

impl Chooser {
    /// Makes a chooser of these CPUs, or of the quietest ones if the list is empty.
    pub fn new(asked: &[u16]) -> Chooser {
        Chooser { asked: asked.to_vec(), busy: None }
    }

    /// The CPUs for `program`.
    ///
    /// # Errors
    /// [`LiveError::BadCpus`] for a bad list, [`LiveError::Unsupported`] if the machine has too
    /// few.
    pub fn choose(&mut self, program: &Program) -> Result<Chosen, LiveError> {
        let usable = Usable::here();
        if !self.asked.is_empty() {
            check(&self.asked, program, &usable)?;
            return Ok(Chosen { cpus: self.asked.clone(), how: "asked for".to_owned() });
        }
        let (needed, has) = (needed(program), usable.both());
        if has.len() < wanted(program) {
            return Err(too_few(program, &usable));
        }
        if has.len() == needed {
            return Ok(Chosen { cpus: has, how: "all that there are".to_owned() });
        }
        let busy = self.busy.get_or_insert_with(|| {
            let before = stat();
            std::thread::sleep(INTERVAL);
            busy_between(&before, &stat())
        });
        Ok(quietest(&has, busy, needed))
    }
}

/// Refuses a list of CPUs that cannot run `program` here.
///
/// # Errors
/// [`LiveError::BadCpus`].
pub fn check_list(asked: &[u16], program: &Program) -> Result<(), LiveError> {
    check(asked, program, &Usable::here())
}

/// The CPUs that are online, and those that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usable {
    online: Vec<u16>,
    allowed: Vec<u16>,
}

impl Usable {
    fn here() -> Usable {
        let allowed = rustix::thread::sched_getaffinity(None);
        let number = |cpu: usize| u16::try_from(cpu).ok();
        let allowed: Vec<u16> = match &allowed {
            Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|&cpu| set.is_set(cpu))
                .filter_map(number)
                .collect(),
            Err(_) => Vec::new(),
        };
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        // If the file is missing, all allowed CPUs count as online: the kernel allows no others.
        let online = online.ok().and_then(|text| parse_list(&text)).unwrap_or(allowed.clone());
        Usable { online, allowed }
    }

    fn both(&self) -> Vec<u16> {
        self.online.iter().copied().filter(|cpu| self.allowed.contains(cpu)).collect()
    }
}

/// The number of CPUs that a program's threads use.
fn needed(program: &Program) -> usize {
    program.threads.iter().map(|thread| thread.cpu.index() + 1).max().unwrap_or(1)
}

/// The number of CPUs that a program's machine must have.
fn wanted(program: &Program) -> usize {
    needed(program).max(usize::from(program.machine.cpus))
}

fn too_few(program: &Program, usable: &Usable) -> LiveError {
    let has = usable.both().len();
    let mut what =
        format!("`{}` needs {} CPUs; this machine has {has}", program.name, wanted(program));
    if usable.online.len() > has {
        what += &format!(" that this process may use ({} online)", usable.online.len());
    }
    LiveError::Unsupported { what }
}

fn check(asked: &[u16], program: &Program, usable: &Usable) -> Result<(), LiveError> {
    let remedy = || format!("CPUs that can be used here: {}", show_list(&usable.both()));
    let bad = |what: String, remedy: String| Err(LiveError::BadCpus { what, remedy });
    if let Some(twice) = twice(asked) {
        let remedy = "name each CPU once: each stands for another CPU of the scenario".to_owned();
        return bad(format!("`cpus=`: CPU {twice} is named twice"), remedy);
    }
    if let Some(cpu) = asked.iter().find(|cpu| !usable.online.contains(cpu)) {
        return bad(format!("`cpus=`: CPU {cpu} is not online, or does not exist"), remedy());
    }
    if let Some(cpu) = asked.iter().find(|cpu| !usable.allowed.contains(cpu)) {
        let what =
            format!("`cpus=`: this process may not use CPU {cpu} (its affinity, or its cpuset)");
        return bad(what, remedy());
    }
    let needed = needed(program);
    if asked.len() < needed {
        let what = format!("`cpus=` names {}; `{}` needs {needed}", asked.len(), program.name);
        return bad(what, remedy());
    }
    Ok(())
}

/// The first CPU that is in a list a second time.
pub fn twice(list: &[u16]) -> Option<u16> {
    list.iter().enumerate().find(|(at, cpu)| list[..*at].contains(cpu)).map(|(_, cpu)| *cpu)
}

fn quietest(has: &[u16], busy: &BTreeMap<u16, u64>, needed: usize) -> Chosen {
    // A CPU without known times is chosen last.
    let share = |cpu: &u16| busy.get(cpu).copied().unwrap_or(100);
    let mut order = has.to_vec();
    order.sort_by_key(|cpu| (share(cpu) / STEP, *cpu));
    let (mut cpus, rest) = (order[..needed].to_vec(), &order[needed..]);
    cpus.sort_unstable();
    let shares = |cpus: &[u16]| {
        let words = cpus.iter().map(|cpu| format!("{} %", share(cpu)));
        words.collect::<Vec<_>>().join(", ")
    };
    let how = format!(
        "the quietest of {} over {} ms: busy {}; the others {}",
        show_list(has),
        INTERVAL.as_millis(),
        shares(&cpus),
        shares(rest)
    );
    Chosen { cpus, how }
}

fn stat() -> String {
    std::fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// The busy share of each CPU between two texts of `/proc/stat`, in percent. A CPU whose clock did
/// not move has no share.
fn busy_between(before: &str, after: &str) -> BTreeMap<u16, u64> {
    let (before, after) = (times(before), times(after));
    let share = |(cpu, (busy, all)): (&u16, &(u64, u64))| {
        let (old_busy, old_all) = before.get(cpu)?;
        let all = all.checked_sub(*old_all).filter(|all| *all > 0)?;
        Some((*cpu, busy.saturating_sub(*old_busy) * 100 / all))
    };
    after.iter().filter_map(share).collect()
}

/// The busy ticks and all ticks of each CPU. The time of guests is part of `user` already.
fn times(stat: &str) -> BTreeMap<u16, (u64, u64)> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        Some((cpu, (all - idle, all)))
    };
    // The first line, `cpu  …`, is about all CPUs together.
    stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(line).collect()
}

/// Reads a list in the kernel's form, such as `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().ok()?..=last.parse::<u16>().ok()?);
    }
    Some(cpus)
}

/// Writes a list in the kernel's form.
fn show_list(cpus: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let word = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::addr::CpuId;
    use needless_model::program::Thread;

    /// A program with a thread on each of these CPUs.
    fn program(cpus: &[u16]) -> Program {
        let thread = |&cpu: &u16| Thread::new(format!("t{cpu}"), CpuId(cpu), vec![]);
        let threads = cpus.iter().map(thread).collect();
        Program { name: "p".to_owned(), threads, ..Program::default() }
    }

    fn usable() -> Usable {
        Usable { online: parse_list("0-5,8").unwrap(), allowed: vec![0, 1, 2, 5, 8, 9] }
    }

    #[test]
    fn bad_lists_are_refused_with_a_remedy() {
        let refused =
            |asked: &[u16], threads: &[u16]| match check(asked, &program(threads), &usable()) {
                Err(LiveError::BadCpus { what, remedy }) => format!("{what}; {remedy}"),
                other => panic!("{other:?}"),
            };
        assert!(refused(&[2, 5, 2], &[0]).contains("CPU 2 is named twice"));
        assert!(refused(&[0, 7], &[0, 1]).contains("CPU 7 is not online"));
        assert!(refused(&[9], &[0]).contains("CPU 9 is not online"));
        assert!(refused(&[3], &[0]).contains("may not use CPU 3"));
        let few = refused(&[5], &[0, 1]);
        assert!(few.contains("names 1; `p` needs 2") && few.contains("0-2,5,8"), "{few}");
        assert!(check(&[8, 0], &program(&[0, 1]), &usable()).is_ok());
        assert!(check(&[8, 0, 5], &program(&[0, 1]), &usable()).is_ok(), "more than needed");
    }

    #[test]
    fn the_quietest_are_taken_and_the_lowest_among_equals() {
        let before = "cpu  9 9 9 9\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 0 0 0 100 100 0 0 0\n\
                      cpu2 0 0 0 100 0 0 0 0\ncpu5 0 0 0 100\nintr 1 2\n";
        let after = "cpu  9 9 9 9\ncpu0 110 0 0 110 0 0 0 0 0 0\ncpu1 1 0 0 109 110 0 0 0\n\
                     cpu2 0 0 0 105 0 5 5 5\ncpu5 0 0 0 120\nintr 1 2\n";
        let busy = busy_between(before, after);
        assert_eq!(busy, BTreeMap::from([(0, 50), (1, 5), (2, 75), (5, 0)]));
        let has = [0, 1, 2, 5, 8];
        let chosen = quietest(&has, &busy, 2);
        assert_eq!(chosen.cpus, [1, 5], "a tick more or less is no difference");
        assert!(
            chosen.how.contains("the quietest of 0-2,5,8 over 200 ms: busy 5 %, 0 %"),
            "{chosen:?}"
        );
        assert_eq!(quietest(&has, &busy, 3).cpus, [0, 1, 5]);
        assert_eq!(quietest(&has, &BTreeMap::new(), 2).cpus, [0, 1]);
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("x"), None);
        assert_eq!(show_list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }

    #[test]
    fn a_machine_that_is_too_small_says_so() {
        let many: Vec<u16> = (0..5000).collect();
        let error = Chooser::new(&[]).choose(&program(&many)).unwrap_err();
        assert!(error.to_string().contains("`p` needs 5000 CPUs"), "{error}");
        let here = Chooser::new(&[]).choose(&program(&[0])).unwrap();
        assert_eq!(here.cpus.len(), 1);
        let mut large = program(&[0]);
        large.machine.cpus = 5000;
        let error = Chooser::new(&[]).choose(&large).unwrap_err();
        assert!(error.to_string().contains("`p` needs 5000 CPUs"), "{error}");
    }
}
