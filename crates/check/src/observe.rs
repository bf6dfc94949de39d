//! Observations at the end of runs, as litmus tests make them: did this load return what that store
//! wrote?

use crate::access::{stored, writer};
use crate::shadow::{Loaded, Value};
use crate::unroll::Act;
use needless_model::call::CallExpr;
use needless_model::program::{Op, OpKind, Program, all_ops};

/// One equation of an observation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Equation {
    load: u32,
    value: Value,
}

/// The observations to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching(Vec<(String, Vec<Equation>)>);

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The observation's name.
    pub name: String,
    /// Ends at which it was made.
    pub made: usize,
    /// Ends at which it was not.
    pub not_made: usize,
}

impl Observed {
    /// It was made at so many of these ends.
    pub(crate) fn count(&mut self, made: usize, ends: usize) {
        (self.made, self.not_made) = (made, ends - made);
    }
}

impl Watching {
    /// Adds the observation that each load (an operation of `program`) returned what its store
    /// wrote; `None`: zero.
    pub fn add(&mut self, name: &str, equations: &[(u32, Option<u32>)], program: &Program) {
        let value = |store: Option<u32>| store.map_or(0, |store| value_of(program, store));
        let equations = equations.iter();
        let equations =
            equations.map(|(load, store)| Equation { load: *load, value: value(*store) }).collect();
        self.0.push((name.to_owned(), equations));
    }

    /// The loads that matter.
    pub(crate) fn loads(&self) -> Vec<u32> {
        self.0.iter().flat_map(|(_, equations)| equations.iter().map(|e| e.load)).collect()
    }

    /// Whether an observation asks for a load of the thread, or for what it stores.
    pub(crate) fn mentions(&self, thread: usize, acts: &[Act]) -> bool {
        let equations = self.0.iter().flat_map(|(_, equations)| equations);
        equations.into_iter().any(|equation| {
            let stores = writer(equation.value).is_some_and(|of| usize::from(of) == thread);
            stores || acts.iter().any(|act| act.op == equation.load)
        })
    }

    pub(crate) fn start(&self) -> Vec<Observed> {
        let start = |(name, _): &(String, _)| Observed { name: name.clone(), made: 0, not_made: 0 };
        self.0.iter().map(start).collect()
    }

    /// Which of them are made in a state in which every thread is done.
    pub(crate) fn made(&self, loaded: &Loaded) -> Vec<bool> {
        let holds = |e: &Equation| loaded.get(&e.load) == Some(&e.value);
        self.0.iter().map(|(_, equations)| equations.iter().all(holds)).collect()
    }
}

/// What operation `op` stores.
fn value_of(program: &Program, op: u32) -> Value {
    let threads = program.threads.iter().enumerate();
    let mut ops = threads.flat_map(|(thread, t)| all_ops(&t.body).map(move |op| (thread, op)));
    let value = |(thread, found): (usize, &Op)| match found.kind {
        OpKind::Touch { access, .. } | OpKind::Call(CallExpr::Dma { access, .. })
            if found.id == op =>
        {
            Some(stored(access, thread as u16, op))
        }
        _ => None,
    };
    ops.find_map(value).unwrap_or(0)
}
