//! Threads: what each action is in the kernel, and what a load or store does on a real processor.

use crate::access::{Went, go};
use crate::env::CheckEnv;
use crate::judge::{MAX_FAULTS, no_progress, protected, taken_away};
use crate::shadow::Value;
use crate::unroll::{Act, Action};
use needless_model::addr::MmId;
use needless_model::call::Call;
use needless_model::env::Env;
use needless_model::kernel::exit::exit_process;
use needless_model::kernel::fault::{Fault, Outcome, exc_page_fault, retry_page_fault};
use needless_model::kernel::lru::lru_add_drain;
use needless_model::kernel::rmap::Place;
use needless_model::kernel::sigsegv;
use needless_model::kernel::switch::{enter_lazy, switch_mm};
use needless_model::kernel::{call, call_again};
use needless_model::site::Site;
use needless_model::wait::{Ended, Wait};

/// Runs a thread, which names pages of `space`, from action `from` on, until it is done, got a
/// signal, or is left behind. A signal ends the process, if it was forked.
pub fn run(env: &mut CheckEnv<'_>, space: MmId, acts: &[Act], from: usize) {
    let mut gone = false;
    for (index, act) in acts.iter().enumerate().skip(from) {
        if gone && act.action != Action::Exit {
            continue;
        }
        env.begin(index as u32, act.op);
        if env.is_left() {
            return;
        }
        gone = !perform(env, space, &act.action);
    }
}

/// Does one action; false if the thread got a signal and is gone. That a system call fails is one
/// of the things that may happen.
fn perform(env: &mut CheckEnv<'_>, space: MmId, action: &Action) -> bool {
    match *action {
        Action::Access { page, store } => return access(env, (space, page), store),
        Action::Barrier(barrier) => env.barrier(barrier),
        Action::Sleep { wakes } => {
            env.step(Site::EnterLazyTlb, |w, at| enter_lazy(w, at.cpu));
            if wakes {
                env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, space));
            }
        }
        Action::Drain => lru_add_drain(env),
        Action::Begin => {
            env.wait(Wait::Fork(space));
            env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, space));
        }
        Action::Exit => exit_process(env, space),
        Action::Call(asked) => {
            env.begin_call(space, asked.purpose());
            let mut done = call(env, space, asked);
            while let Ok(Ended::Blocked(wait, rest)) = done
                && !env.is_left()
            {
                env.wait(wait);
                done = call_again(env, space, rest, wait);
            }
            if let Call::Protect { pages, prot } = asked {
                let prot = done.is_ok().then_some(prot);
                env.observe(|w, at| protected(w, at, space, pages, prot));
            }
        }
    }
    env.observe(taken_away);
    true
}

/// One load or store; false if it raised a signal.
fn access(env: &mut CheckEnv<'_>, (mm, page): Place, store: Option<Value>) -> bool {
    let write = store.is_some();
    let most = env.most_faults().unwrap_or(MAX_FAULTS);
    let mut faults = 0;
    while !env.is_left() {
        match env.access(page, write, |w, at, way| go(w, at, (mm, page), store, way)) {
            Went::Through => return true,
            Went::OnlyWalked => {}
            Went::Faulted if faults == most => {
                env.step(Site::ExcPageFault, |w, at| no_progress(w, at, page, most));
                return false;
            }
            Went::Faulted => {
                faults += 1;
                if !fault(env, Fault::new(mm, page, write)) {
                    return false;
                }
            }
        }
    }
    false
}

/// One fault, with all that it waits for; false if it raised a signal.
fn fault(env: &mut CheckEnv<'_>, fault: Fault) -> bool {
    let access = fault;
    let mut outcome = exc_page_fault(env, fault);
    while let Outcome::Blocked(wait, fault) = outcome
        && !env.is_left()
    {
        env.wait(wait);
        outcome = retry_page_fault(env, fault, wait);
    }
    match outcome {
        Outcome::Signal => sigsegv::handle(env, access).unwrap_or(false),
        outcome => outcome == Outcome::Served,
    }
}
