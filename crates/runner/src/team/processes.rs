//! Forked processes: their beginnings, their ends, and their failures.

use super::{Rest, Team};
use crate::sys::Usage;
use crate::wire::{Failure, FailureKind};
use crate::{crash, tracefs};
use needless_model::program::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A process that has the turn hangs if for this long it is not runnable and uses no CPU time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that has the turn, and the time since when it has made no progress.
pub(super) struct Stall {
    thread: usize,
    ticks: u64,
    since: Instant,
}

impl Team {
    /// Whether the process of thread `index` was forked and is not over.
    pub fn lives(&self, index: usize) -> bool {
        !self.members[index].first && self.rest(index) != Rest::Unborn
    }

    /// The task id of the process of thread `index`, if that process lives.
    pub fn pid(&self, index: usize) -> Option<i32> {
        self.lives(index).then(|| self.tid(index))
    }

    /// Whether any process other than the first one lives.
    pub fn any_lives(&self) -> bool {
        (0..self.members.len()).any(|index| self.lives(index))
    }

    /// Whether thread `index` has its CPU to itself.
    pub fn alone_on_cpu(&self, index: usize) -> bool {
        !self.members[index].shares_cpu
    }

    /// Notes that the process of thread `child` is about to be forked.
    pub fn expect(&self, child: usize) {
        self.set_rest(child, Rest::Starting);
    }

    /// Notes that the fork of the process of thread `child` failed.
    pub fn expect_no_more(&self, child: usize) {
        self.set_rest(child, Rest::Unborn);
    }

    /// Sets the task id of the process of thread `child`.
    pub fn is(&self, child: usize, pid: i32) {
        self.members[child].tid.store(pid, Ordering::Release);
    }

    /// Queues a thread for the turn, behind those that wait already.
    pub fn enqueue(&self, child: usize) {
        self.lock().ready.push_back(child);
    }

    /// Adds what the process of thread `me` has used since its last report.
    pub fn uses(&self, me: usize, more: Usage) {
        let member = &self.members[me];
        member.minor_faults.fetch_add(more.minor_faults, Ordering::AcqRel);
        member.major_faults.fetch_add(more.major_faults, Ordering::AcqRel);
        member.involuntary_switches.fetch_add(more.involuntary_switches, Ordering::AcqRel);
    }

    /// Sets whether thread `me` sleeps for a limited time, because its operation says so.
    pub fn naps(&self, me: usize, naps: bool) {
        self.members[me].napping.store(naps, Ordering::Release);
    }

    /// Reports that a process of the scenario cannot go on. The first failure is kept.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().get_or_insert(failure);
    }

    /// Waits until the kernel has torn down the process that gave up its last turn. The kernel
    /// frees its address space before it reports the end (kernel/exit.c:do_exit, 5.10 to 7.3).
    pub(super) fn await_whoever_ends(&self, program: &Program, me: usize) -> Result<(), Failure> {
        let member = &self.members[me];
        let ended = self.ending.swap(0, Ordering::AcqRel);
        let ended = ended.checked_sub(1).map(|child| (self.tid(child as usize), child as usize));
        if let Some((pid, child)) = ended {
            // A thread in the middle of its operations keeps its CPU, unless the process needs that
            // CPU.
            if !await_end(pid, member.first && member.shares_cpu) {
                let seconds = PATIENCE.as_secs();
                let what = format!("has not ended {seconds} s after its last operation");
                return Err(self.of_process(program, child, &what));
            }
            if !member.first {
                self.lock().zombies.push((pid, child));
                return Ok(());
            }
            self.bury(program, (pid, child))?;
        }
        while let Some(zombie) = (me == 0).then(|| self.lock().zombies.pop()).flatten() {
            self.bury(program, zombie)?;
        }
        Ok(())
    }

    /// Waits for a process that has ended, which fails unless its exit status was 0.
    fn bury(&self, program: &Program, (pid, child): (i32, usize)) -> Result<(), Failure> {
        let bad = reap(pid).filter(|status| status.exit_status() != Some(0));
        bad.map_or(Ok(()), |status| {
            let told = self.failure.lock().take();
            Err(told.unwrap_or_else(|| self.of_process(program, child, &how(&status))))
        })
    }

    fn of_process(&self, program: &Program, child: usize, what: &str) -> Failure {
        let name = &program.threads[child].name;
        Failure::new(FailureKind::Signal, format!("process `{name}` {what}"))
    }

    fn tid(&self, index: usize) -> i32 {
        self.members[index].tid.load(Ordering::Acquire)
    }

    /// Checks that the processes still live and go on. Called by thread 0.
    pub fn look_after_processes(&self, program: &Program) -> Result<(), Failure> {
        if let Some(failure) = self.failure.lock().take() {
            return Err(failure);
        }
        for index in (0..self.members.len()).filter(|index| self.lives(*index)) {
            let Some(pid) = Pid::from_raw(self.tid(index)) else { continue };
            if let Some(how) = death(pid).filter(|_| self.lives(index)) {
                return Err(self.failure.lock().take().unwrap_or_else(|| {
                    let how = format!("{how} too early");
                    let had_turn = self.turn.load(Ordering::Acquire) == index as u32;
                    let what = format!("process `{}` {how}", program.threads[index].name);
                    during(program, what, had_turn)
                }));
            }
        }
        self.look_for_a_stall(program)
    }

    /// Checks that the process that has the turn, or is about to begin, goes on.
    fn look_for_a_stall(&self, program: &Program) -> Result<(), Failure> {
        let turn = self.turn.load(Ordering::Acquire) as usize;
        let beginning = || (0..self.members.len()).find(|i| self.rest(*i) == Rest::Starting);
        let has_turn = self.members.get(turn).is_some_and(|member| !member.first);
        let Some(thread) = has_turn.then_some(turn).or_else(beginning) else { return Ok(()) };
        let Some((state, ticks)) = progress(self.tid(thread)) else { return Ok(()) };
        let napping = self.members[thread].napping.load(Ordering::Acquire);
        let mut stall = self.stall.lock();
        let now = Instant::now();
        let (since, goes_on) = match &*stall {
            Some(stall) if stall.thread == thread && stall.ticks == ticks => (stall.since, false),
            _ => (now, true),
        };
        if goes_on || state == b'R' || (napping && state == b'S') {
            *stall = Some(Stall { thread, ticks, since: now });
        } else if now - since > PATIENCE {
            let name = &program.threads[thread].name;
            let state = char::from(state);
            let seconds = PATIENCE.as_secs();
            let what = format!(
                "process `{name}` hangs: it made no progress for {seconds} s (its task is in state {state})"
            );
            return Err(during(program, what, true));
        }
        Ok(())
    }

    /// Kills all processes but the first one.
    pub fn end_all(&self) {
        for index in (0..self.members.len()).filter(|index| self.lives(*index)) {
            if let Some(pid) = Pid::from_raw(self.tid(index)) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                reap(pid.as_raw_nonzero().get());
            }
        }
    }
}

/// A failure in the current operation, if that is known to be the process's.
fn during(program: &Program, what: String, known: bool) -> Failure {
    let op = crash::running().filter(|_| known);
    let text = op.and_then(|op| program.op_texts.get(op as usize));
    let what = text.map_or_else(|| what.clone(), |text| format!("{what}, in `{text}`"));
    Failure { op, ..Failure::new(FailureKind::Signal, what) }
}

/// How a child died, if it did. It can still be waited for.
fn death(pid: Pid) -> Option<String> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = rustix::process::waitid(WaitId::Pid(pid), options).ok()??;
    Some(how(&status))
}

fn how(status: &WaitIdStatus) -> String {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("no known signal");
            format!("was killed by signal {signal} ({name})")
        }
        (None, Some(status)) => format!("ended with status {status}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Waits for a child and returns how it ended; `None` if that was reported already, or there is no
/// such child.
fn reap(pid: i32) -> Option<WaitIdStatus> {
    let pid = Pid::from_raw(pid)?;
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

/// Waits for the end of a process, asleep or spinning. Returns false if it does not end in time.
fn await_end(pid: i32, asleep: bool) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    let Ok(process) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let mut events = [PollFd::new(&process, PollFlags::IN)];
    let deadline = Instant::now() + PATIENCE;
    let seconds = if asleep { PATIENCE.as_secs() as i64 } else { 0 };
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    while !matches!(poll(&mut events, Some(&timeout)), Ok(1)) {
        if Instant::now() > deadline {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// The state letter of a task.
pub(super) fn state(tid: i32) -> Option<u8> {
    let (room, length) = stat(tid)?;
    tracefs::task_state(&room[..length])
}

/// The state letter of a task, and the ticks of its CPU time.
fn progress(tid: i32) -> Option<(u8, u64)> {
    let (room, length) = stat(tid)?;
    let stat = &room[..length];
    Some((tracefs::task_state(stat)?, tracefs::task_ticks(stat)?))
}

/// Whether a task has left its CPU. Only for such a task does the kernel say where it waits
/// (lib/syscall.c:task_current_syscall, 5.10 to 7.2).
pub(super) fn has_left_its_cpu(tid: i32) -> Option<bool> {
    let (room, length) = of_task(tid, "syscall")?;
    Some(&room[..length] != b"running\n")
}

/// Reads `/proc/TID/stat` of a task. Allocates nothing.
fn stat(tid: i32) -> Option<([u8; 512], usize)> {
    of_task(tid, "stat")
}

fn of_task(tid: i32, file: &str) -> Option<([u8; 512], usize)> {
    let mut path = [0; 32];
    let name = {
        use std::io::Write;
        let mut rest = &mut path[..];
        write!(rest, "/proc/{tid}/{file}").ok()?;
        let left = rest.len();
        let length = path.len() - left;
        std::str::from_utf8(&path[..length]).ok()?
    };
    let mut room = [0; 512];
    let length = File::open(name).ok()?.read_at(&mut room, 0).ok()?;
    Some((room, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_tells_its_state() {
        let me = crate::sys::tid();
        assert_eq!(state(me), Some(b'R'));
        assert_eq!(progress(me).unwrap().0, b'R');
        assert_eq!(state(i32::MAX), None);
    }
}
