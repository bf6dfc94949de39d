//! A comparison: targets side by side, and what may be said of one by means of another.
//!
//! A real kernel shows less than the model. In rounds whose sequence equals that of the model's
//! row for its release, what the model knows holds for the real round too: such figures are
//! *transferred*, and every report says so. Nothing is transferred into other rounds, into
//! invalid runs, or from a row that is not the kernel's own.

use crate::answer::Avoided;
use crate::steps::Step;
use needless_model::account::{Account, Kind, RoundAccount};
use needless_model::agreement::{Agreement, Side};
use needless_model::counters::{Counted, Counter, FAULTS_BY_CLASS, Fold, What};
use needless_model::program::Program;
use needless_model::run::TargetRun;
use std::collections::{BTreeMap, BTreeSet};

/// Targets side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The program that was run.
    pub program: Program,
    /// The targets in the order in which they were named.
    pub targets: Vec<Target>,
    /// What explains each step from one model row to the next.
    pub steps: Vec<Step>,
    /// What avoids each kind of needless thing that a target did.
    pub avoided: Vec<Avoided>,
}

/// A target with its result.
#[derive(Clone, Debug)]
pub struct Target {
    /// The target as the user named it.
    pub name: String,
    /// A remark on the whole target: `published figures only`.
    pub remark: Option<String>,
    /// The target's result.
    pub outcome: Outcome,
}

/// The result of a target.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The target ran.
    Ran(Box<Ran>),
    /// The target could not run.
    Unavailable {
        /// The reason in words.
        reason: String,
        /// What would help.
        help: Option<String>,
    },
}

/// A target that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The run. A run of the model has only the rounds that were asked for.
    pub run: TargetRun,
    /// The run's account.
    pub account: Account,
    /// The comparison with the model's row for the kernel. Only real kernels have one.
    pub reference: Option<Reference>,
}

/// A comparison of a real kernel with the model's row for it.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The row: `model:6.18`.
    pub row: String,
    /// Whether the row is the kernel's own. Otherwise it is the nearest older one (or the oldest).
    pub own_row: bool,
    /// How far they agree.
    pub agreement: Agreement,
    /// The account of the row's run.
    pub account: Account,
    /// The names of the figures that were transferred from the row.
    pub transferred: BTreeSet<&'static str>,
}

impl Target {
    /// The run, if the target ran.
    pub fn ran(&self) -> Option<&Ran> {
        match &self.outcome {
            Outcome::Ran(ran) => Some(ran),
            Outcome::Unavailable { .. } => None,
        }
    }

    /// How it came out in one word, and why it does not count, if it does not.
    pub fn status(&self) -> (&'static str, Option<&str>) {
        match &self.outcome {
            Outcome::Unavailable { reason, .. } => ("unavailable", Some(reason)),
            Outcome::Ran(ran) => match &ran.run.invalid {
                Some(reason) => ("invalid", Some(reason)),
                None => ("ran", None),
            },
        }
    }
}

impl Ran {
    /// A run of a model.
    pub fn model(program: &Program, run: TargetRun) -> Ran {
        Ran::alone(program, run)
    }

    /// A run that is compared with nothing, such as that of a real kernel for whose architecture
    /// the model has no rows.
    pub fn alone(program: &Program, run: TargetRun) -> Ran {
        Ran { account: Account::of(program, &run), run, reference: None }
    }

    /// A run of a real kernel, compared with the run of the model's row.
    pub fn real(program: &Program, run: TargetRun, model: &TargetRun, own_row: bool) -> Ran {
        let account = Account::of(program, model);
        Ran::against(program, run, model, account, own_row)
    }

    /// A run of a real kernel, compared with the account of the model's run. The model's rounds are
    /// not looked at.
    pub fn against(
        program: &Program,
        run: TargetRun,
        model: &TargetRun,
        model_account: Account,
        own_row: bool,
    ) -> Ran {
        let mut account = Account::of(program, &run);
        let agreement = Agreement::between(
            Side { run: &run, account: &account },
            Side { run: model, account: &model_account },
        );
        let transferred = if own_row && run.invalid.is_none() {
            transfer(&mut account, &model_account, &agreement)
        } else {
            BTreeSet::new()
        };
        let row = model.target.clone();
        let reference = Reference { row, own_row, agreement, account: model_account, transferred };
        Ran { run, account, reference: Some(reference) }
    }

    /// Drops the events, which the account does not need.
    pub fn forget_events(&mut self) {
        self.run.rounds.iter_mut().for_each(|round| round.events = Vec::new());
    }

    /// Whether the run counts and every round equals the model's own row; `None` if it is not
    /// known.
    pub fn exact(&self) -> Option<bool> {
        let reference = self.reference.as_ref()?;
        if reference.agreement.undecided.is_some()
            || self.run.invalid.is_some()
            || !reference.own_row
        {
            return None;
        }
        Some(reference.agreement.is_exact())
    }
}

/// Fills what `real` does not know from the equal rounds of `model`; returns the figures' names.
fn transfer(real: &mut Account, model: &Account, agreement: &Agreement) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    if agreement.undecided.is_some() {
        return names;
    }
    // Rounds of one kind that are compared with rounds of one kind stay one kind.
    let (mut kinds, mut made) = (Vec::new(), BTreeMap::new());
    for (at, round) in real.rounds.iter_mut().enumerate() {
        let equal = agreement.differing.binary_search(&at).is_err();
        let from = model.rounds.get(at).filter(|_| equal).map(|from| from.kind);
        let kind = *made.entry((round.kind, from)).or_insert_with(|| {
            let mut account = real.kinds[round.kind].account.clone();
            // If the real round has a spurious fault more, its n-th fault is not the model's n-th.
            if let Some(from) = from.map(|from| &model.kinds[from].account)
                && account.shown_of(from).map(|(sequence, _)| sequence).as_deref()
                    == account.sequence.as_ref()
            {
                transfer_round(&mut account, from, &mut names);
            }
            let (index, first_seq) = (round.index, round.first_seq);
            kinds.push(Kind { account, rounds: 0, first: at, index, first_seq });
            kinds.len() - 1
        });
        kinds[kind].rounds += 1;
        round.kind = kind;
    }
    real.kinds = kinds;
    for name in &names {
        real.unknown.remove(*name);
    }
    names
}

fn transfer_round(to: &mut RoundAccount, from: &RoundAccount, names: &mut BTreeSet<&'static str>) {
    for &counter in Counter::ALL {
        // Interrupts are not part of the sequence, and neither are those that are not shown. So
        // rounds with equal sequences may differ in them.
        let comparable = match counter.fold() {
            Fold::Every(whats) => {
                !whats.contains(&What::Interrupt) && !whats.contains(&What::TableSync)
            }
            Fold::Needless(What::Interrupt) => {
                to.counters.get(Counter::Interrupts) == from.counters.get(Counter::Interrupts)
            }
            Fold::Needless(_) | Fold::Kernel(..) => true,
            Fold::MinorFaults | Fold::MajorFaults | Fold::Cycles => false,
        };
        let known = from.counters.get(counter);
        if comparable && to.counters.get(counter).is_none() && known.is_some() {
            to.counters.set(counter, known);
            names.insert(counter.name());
            for (to, from) in to.processes.iter_mut().zip(&from.processes) {
                to.set(counter, from.get(counter));
            }
        }
    }
    if to.classes.is_none() && from.classes.is_some() {
        to.classes.clone_from(&from.classes);
        names.insert(FAULTS_BY_CLASS);
    }
    transfer_verdicts(&mut to.seen, &from.seen);
}

/// Gives each event of a round (the n-th fault, the n-th flush, …) the verdict of the model's n-th.
fn transfer_verdicts(to: &mut Vec<Counted>, from: &[Counted]) {
    const JUDGED: [What; 6] =
        [What::Fault, What::Copy, What::Shootdown, What::LocalFlush, What::Split, What::Retry];
    for what in JUDGED {
        let mut known = from.iter().filter(|observation| observation.what == what);
        for observation in to.iter_mut().filter(|observation| observation.what == what) {
            let Some(known) = known.next() else { break };
            // A cause is named by its number in the model's own run.
            let verdict =
                known.verdict.map(|v| needless_model::verdict::Verdict { caused_by: None, ..v });
            observation.verdict = observation.verdict.or(verdict);
            observation.site = observation.site.or(known.site);
            observation.class = observation.class.or(known.class);
        }
        to.extend(known.map(|known| Counted {
            verdict:
                known.verdict.map(|v| needless_model::verdict::Verdict { caused_by: None, ..v }),
            ..*known
        }));
    }
}
