//! Scenarios: built-in ones, texts, files and random ones; kernel rows.

use crate::error::{Failure, row_of};
use needless_model::arch::X86_64;
use needless_model::kernels::KernelRow;
use needless_model::policy::POLICIES;
use needless_model::program::Program;
use needless_report::policies;
use needless_scenario::random::{self as drawn, Optional, Target};
use needless_scenario::{Litmus, ScenarioError, Settings, builtin as texts};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// A scenario's text, with values for parameters that an alias has.
#[pyclass(module = "needless._needless", frozen)]
pub struct Source {
    pub source: needless_scenario::Source,
}

impl Source {
    /// The scenario made ready to run, after a moment of it was tried. A sweep keeps what is wrong
    /// with one point.
    pub fn compiled(
        &self,
        settings: &BTreeMap<String, String>,
        rounds: Option<u32>,
    ) -> Result<Program, ScenarioError> {
        let settings: Settings = settings.clone().into_iter().collect();
        Ok(needless_scenario::rehearsed(&self.source, &settings, rounds, &X86_64)?.0)
    }

    /// The program, and what the checker is asked about it.
    pub fn program(
        &self,
        settings: &BTreeMap<String, String>,
        rounds: Option<u32>,
    ) -> Result<(Program, Option<Litmus>), Failure> {
        let settings: Settings = settings.clone().into_iter().collect();
        Ok(needless_scenario::rehearsed(&self.source, &settings, rounds, &X86_64)?)
    }
}

#[pymethods]
impl Source {
    #[new]
    #[pyo3(signature = (text, name, presets=None))]
    fn new(
        text: String,
        name: String,
        presets: Option<BTreeMap<String, String>>,
    ) -> PyResult<Source> {
        let presets: Settings = presets.unwrap_or_default().into_iter().collect();
        let source =
            needless_scenario::Source { presets, ..needless_scenario::Source::new(name, text) };
        Ok(Source { source: source.plain().map_err(Failure::from)? })
    }

    /// Loads a built-in scenario by its name, else a file by its path.
    #[staticmethod]
    fn load(name: &str) -> PyResult<Source> {
        Ok(Source { source: needless_scenario::load(name).map_err(Failure::from)? })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.source.name
    }

    #[getter]
    fn text(&self) -> &str {
        &self.source.text
    }

    #[getter]
    fn presets(&self) -> BTreeMap<String, String> {
        self.source.presets.0.clone()
    }

    /// What the scenario says of itself, as JSON.
    fn describe(&self) -> PyResult<String> {
        let described = needless_scenario::describe(&self.source).map_err(Failure::from)?;
        serde_json::to_string(&described).map_err(|error| Failure::other(error, None).into())
    }

    /// The text in its uniform layout.
    fn formatted(&self) -> PyResult<String> {
        Ok(needless_scenario::format(&self.source).map_err(Failure::from)?)
    }

    /// Tries the scenario with these values; gives every parameter's value.
    fn check(
        &self,
        py: Python<'_>,
        settings: BTreeMap<String, String>,
        rounds: Option<u32>,
    ) -> PyResult<BTreeMap<String, i64>> {
        let (program, _) = py.detach(|| self.program(&settings, rounds))?;
        Ok(program.parameters.into_iter().collect())
    }
}

/// The built-in scenarios: name, first sentence, and what they are: `scenario`, `study`, `nodes`,
/// `alias`, `litmus`.
#[pyfunction]
pub fn builtin() -> Vec<(String, String, &'static str)> {
    let of = |texts: &'static [texts::Builtin], kind| {
        texts.iter().map(move |text| (text.name.to_owned(), text.doc().to_owned(), kind))
    };
    let aliases = texts::ALIASES.iter().map(|alias| {
        let set = alias.presets.iter().map(|(name, value)| format!(" {name}={value}"));
        (alias.name.to_owned(), format!("{}:{}", alias.of, set.collect::<String>()), "alias")
    });
    of(texts::ALL, "scenario")
        .chain(of(texts::OF_STUDIES, "study"))
        .chain(of(texts::OF_NODES, "nodes"))
        .chain(aliases)
        .chain(of(texts::LITMUS, "litmus"))
        .collect()
}

/// What random scenarios are drawn for.
pub fn drawn_for(release: (u32, u32), cpus: usize, without: &[String]) -> Result<Target, Failure> {
    let known = || Optional::ALL.map(|feature| feature.to_string()).join(", ");
    let read = |text: &String| {
        let read = text.parse::<Optional>();
        read.map_err(|_| {
            Failure::input(format!("no feature is named `{text}`"), format!("expected {}", known()))
        })
    };
    let without = without.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(Target { without, ..Target::new(release, cpus) })
}

/// The random scenario of a seed.
#[pyfunction]
pub fn random(
    seed: u64,
    release: (u32, u32),
    cpus: usize,
    without: Vec<String>,
) -> PyResult<Source> {
    let case = drawn::generate(seed, &drawn_for(release, cpus, &without)?);
    let text = case.text().unwrap_or_default();
    Ok(Source { source: needless_scenario::Source::new(case.name, text) })
}

/// The kernel rows and the policies in which they differ, as JSON.
#[pyfunction]
pub fn kernels() -> String {
    let every: Vec<usize> = (0..POLICIES.len()).collect();
    policies::json(&[KernelRow::all(), KernelRow::stable()].concat(), &every).to_string()
}

/// What is known to be wrong with a row of the model, if it is a mutant. A name that is not
/// understood is an error.
#[pyfunction]
pub fn check_target(name: &str) -> PyResult<Option<&'static str>> {
    Ok(row_of(name)?.known_wrong())
}
