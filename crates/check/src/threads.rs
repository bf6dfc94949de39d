//! Threads: what each action is in the kernel, and what a load or store does on a real processor.

use crate::access::{Went, go};
use crate::env::CheckEnv;
use crate::judge::{protected, taken_away, violate};
use crate::property::Property;
use crate::shadow::Value;
use crate::unroll::{Act, Action};
use needless_model::addr::Vpn;
use needless_model::env::Env;
use needless_model::kernel::fault::{Fault, Outcome, exc_page_fault};
use needless_model::kernel::lru::lru_add_drain;
use needless_model::kernel::madvise::madvise;
use needless_model::kernel::map::{mmap, munmap};
use needless_model::kernel::protect::mprotect;
use needless_model::kernel::reclaim::shrink_range;
use needless_model::kernel::remap::mremap;
use needless_model::kernel::switch::{enter_lazy, run_others, switch_mm};
use needless_model::site::Site;

/// Faults that one access may take before it counts as no progress.
const MAX_FAULTS: u32 = 6;

/// Runs a thread from action `from` on, until it is done, got a signal, or is left behind.
pub fn run(env: &mut CheckEnv<'_>, acts: &[Act], from: usize) {
    for (index, act) in acts.iter().enumerate().skip(from) {
        env.begin(index as u32, act.op);
        if env.is_left() || !perform(env, &act.action) {
            return;
        }
    }
}

/// Does one action; false if the thread got a signal and is gone. That a system call fails is one of
/// the things that may happen.
fn perform(env: &mut CheckEnv<'_>, action: &Action) -> bool {
    env.begin_call(action.purpose());
    match action {
        Action::Access { page, store } => return access(env, *page, *store),
        Action::Barrier(barrier) => env.barrier(*barrier),
        Action::Sleep { wakes } => {
            env.step(Site::EnterLazyTlb, |w, at| enter_lazy(w, at.cpu));
            if *wakes {
                env.step(Site::SwitchMm, |w, at| switch_mm(w, at, at.cpu, at.mm));
            }
        }
        Action::Drain => lru_add_drain(env),
        Action::Map(range, prot) => _ = mmap(env, *range, *prot),
        Action::Unmap(range) => _ = munmap(env, *range),
        Action::Protect(range, prot) => {
            let done = mprotect(env, *range, *prot).is_ok();
            env.observe(|w, at| protected(w, at, *range, done.then_some(*prot)));
        }
        Action::Remap(from, to) => _ = mremap(env, *from, *to),
        Action::Advise(range, advice) => _ = madvise(env, *range, *advice),
        Action::Reclaim(range) => shrink_range(env, *range),
        Action::Switch(others) => run_others(env, *others),
    }
    env.observe(taken_away);
    true
}

/// One load or store; false if it raised a signal.
fn access(env: &mut CheckEnv<'_>, page: Vpn, store: Option<Value>) -> bool {
    let write = store.is_some();
    let mut faults = 0;
    while !env.is_left() {
        match env.access(page, write, |w, at, way| go(w, at, page, store, way)) {
            Went::Through => return true,
            Went::OnlyWalked => {}
            Went::Faulted if faults == MAX_FAULTS => {
                env.step(Site::ExcPageFault, |w, at| {
                    let name = w.ghost.name(page);
                    let what =
                        format!("the access to {name} still faults after {MAX_FAULTS} tries");
                    violate(w, Some(at.cpu), Property::Progress, page, what);
                });
                return false;
            }
            Went::Faulted => {
                faults += 1;
                if exc_page_fault(env, Fault { page, write }) != Outcome::Served {
                    return false;
                }
            }
        }
    }
    false
}
