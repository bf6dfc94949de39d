//! The simulator's environment: a step runs at once, a lock is always free.

use crate::addr::{MmId, Vpn};
use crate::arch::Arch;
use crate::env::{Context, Env, Learnt, Lock};
use crate::event::{Event, EventKind, FaultClass};
use crate::kernels::Config;
use crate::machine::room::Room;
use crate::machine::sim_tlbs::SimTlbs;
use crate::machine::world::{At, Ghost, Held, Log, Mode, World};
use crate::policy::Policies;
use crate::program::Program;
use crate::site::Site;
use crate::verdict::Verdict;
use std::ops::{Deref, DerefMut};

/// The simulator's representation of the world.
#[derive(Debug)]
pub struct SimMode;

impl Mode for SimMode {
    type Tlbs = SimTlbs;
    type Ghost = NoGhost;
    type Log = SimLog;
    type Held<T: Clone> = Own<T>;
}

/// A part of the world that the simulator owns.
#[derive(Clone, Debug)]
pub struct Own<T>(T);

impl<T: Clone> Held<T> for Own<T> {
    fn new(part: T) -> Own<T> {
        Own(part)
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The simulator's world.
pub type SimWorld = World<SimMode>;

/// The absence of ghost state.
#[derive(Copy, Clone, Debug)]
pub struct NoGhost;

impl Ghost for NoGhost {}

const _: () = assert!(size_of::<NoGhost>() == 0, "ghost state costs the simulator nothing");

/// The number of events that are kept outside rounds, for messages.
const HISTORY: usize = 256;

/// The log: the events of the round, or the last few events outside rounds.
#[derive(Clone, Debug, Default)]
pub struct SimLog {
    /// The events.
    pub events: Vec<Event>,
    /// The numbers of minor and major faults among the events.
    pub faults: (u64, u64),
    /// Whether the round had more events than allowed, so that some are missing.
    pub overflowed: bool,
    /// Whether a round that counts is under way, in which every event is kept.
    recording: bool,
    /// The number of events for which there is space now.
    places: usize,
    /// The most events that are kept of a round.
    most: usize,
    /// The memory that the events may take.
    room: Room,
    next_seq: u64,
    ptes: bool,
}

impl SimLog {
    /// An empty log for rounds with at most `most` events, which take their memory from `room`.
    /// `ptes`: whether PTE changes are recorded, too.
    pub fn new(ptes: bool, most: usize, room: Room) -> SimLog {
        SimLog { ptes, places: HISTORY, most, room, ..SimLog::default() }
    }

    /// Sets whether every event is kept from now on, or only the last few.
    pub fn record(&mut self, every: bool) {
        self.recording = every;
        self.places =
            if every { self.events.capacity().clamp(HISTORY, self.most) } else { HISTORY };
    }

    /// Forgets all events.
    pub fn clear(&mut self) {
        self.events.clear();
        self.faults = (0, 0);
    }

    /// The number of events that a round may have, or the number for which there was memory.
    pub fn most_events(&self) -> usize {
        if self.room.was_refused() { self.events.capacity() } else { self.most }
    }

    /// Makes space for one more event, by growing or else by dropping all events.
    #[cold]
    fn make_place(&mut self) {
        if self.recording
            && self.events.len() < self.most
            && self.room.make(&mut self.events, 1).is_some()
        {
            self.places = self.events.capacity().min(self.most);
        } else {
            self.overflowed |= self.recording;
            self.clear();
        }
    }

    /// Records an event of the scenario itself, which no kernel function caused.
    pub fn emit_marker(&mut self, at: At, kind: EventKind) {
        self.push(at, None, kind, None);
    }

    /// The number of the next event.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Sets the verdict of the split numbered `seq` in hindsight, if the event is still there. If
    /// the split was needless, the flushes after it are marked as caused by it.
    pub fn judge_split(&mut self, seq: u64, verdict: Verdict) {
        let Ok(at) = self.events.binary_search_by_key(&seq, |event| event.seq) else { return };
        self.events[at].verdict = Some(verdict);
        if !verdict.is_needless() {
            return;
        }
        let flushes = self.events[at + 1..].iter_mut().take_while(|event| {
            matches!(
                event.kind,
                EventKind::Flush { .. } | EventKind::Tlbi { .. } | EventKind::Dsb { .. }
            )
        });
        for event in flushes.filter(|event| event.site == Some(Site::SplitHugePmd)) {
            if let Some(verdict) = event.verdict.as_mut().filter(|verdict| !verdict.is_needless()) {
                verdict.caused_by = Some(seq);
            }
        }
    }

    #[inline]
    fn push(
        &mut self,
        at: At,
        site: Option<Site>,
        kind: EventKind,
        verdict: Option<Verdict>,
    ) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.events.len() >= self.places {
            self.make_place();
        }
        // A fault that ends in a signal is not counted for the process
        // (mm/memory.c:mm_account_fault is not reached, or leaves it out).
        if let EventKind::FaultDone { major, class, .. } = kind
            && class != FaultClass::Signal
        {
            self.faults.0 += u64::from(!major);
            self.faults.1 += u64::from(major);
        }
        let (thread, op) = (at.running, Some(at.op));
        self.events.push(Event { seq, time_ns: 0, cpu: at.cpu, thread, op, site, kind, verdict });
        seq
    }
}

impl Log for SimLog {
    #[inline]
    fn emit(&mut self, at: At, kind: EventKind, verdict: Option<Verdict>) -> u64 {
        self.push(at, Some(at.site), kind, verdict)
    }

    #[inline]
    fn wants_ptes(&self) -> bool {
        self.ptes
    }
}

/// The environment of one operation.
pub struct SimEnv<'w> {
    world: &'w mut SimWorld,
    /// The CPU and thread that run the operation. Each step sets its own site.
    at: At,
    mm: Option<MmId>,
}

impl<'w> SimEnv<'w> {
    /// The environment of thread `thread` of `program`, in operation `op`.
    pub fn of(world: &'w mut SimWorld, program: &Program, thread: usize, op: u32) -> SimEnv<'w> {
        SimEnv::new(world, Context::of(program, thread, op))
    }

    /// The environment of the thread in `context`.
    pub fn new(world: &'w mut SimWorld, context: Context) -> SimEnv<'w> {
        SimEnv { world, at: context.at(Site::HardwareWalk), mm: context.mm }
    }
}

impl Env for SimEnv<'_> {
    type Mode = SimMode;

    #[inline]
    fn context(&self) -> Context {
        let At { cpu, thread, op, .. } = self.at;
        Context { cpu, thread, mm: self.mm, op }
    }

    #[inline]
    fn policies(&self) -> &Policies {
        &self.world.policies
    }

    #[inline]
    fn config(&self) -> &Config {
        &self.world.config
    }

    #[inline]
    fn arch(&self) -> &Arch {
        &self.world.arch
    }

    #[inline(always)]
    fn step<R: Learnt>(&mut self, site: Site, action: impl FnOnce(&mut SimWorld, At) -> R) -> R {
        self.at.site = site;
        action(self.world, self.at)
    }

    #[inline]
    fn record(&mut self, site: Site, kind: EventKind, verdict: Option<Verdict>) -> u64 {
        self.world.log.emit(self.at.site(site), kind, verdict)
    }

    #[cold]
    fn goes_round(&mut self, page: Vpn, faults: u32) {
        let what = format!("{page} still faults after {faults} tries");
        self.world.impossible(self.at.site(Site::FollowPagePte), &what);
    }

    #[inline]
    fn lock(&mut self, _: Lock) {}

    #[inline]
    fn try_lock(&mut self, _: Site, _: Lock) -> bool {
        true
    }

    #[inline]
    fn unlock(&mut self, _: Lock) {}

    #[inline]
    fn downgrade(&mut self, _: MmId) {}
}
