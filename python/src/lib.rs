//! The compiled part of the Python package `needless` (docs/python.md): scenarios, runs of the
//! model, the checker, and results as Arrow tables.
//!
//! Invariants:
//!
//! - Whatever runs the model or the checker gives the GIL back meanwhile.
//! - An error is raised with the text that the command prints, and with its place and remedy as
//!   attributes (`error`).
//! - What a table holds is made by `needless-tables`, what a document holds by `needless-report`,
//!   as for the command.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod checks;
mod error;
mod run;
mod source;
mod sweep;
mod table;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_needless")]
fn exported(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("NEEDLESS_VERSION"))?;
    module.add_class::<table::Table>()?;
    module.add_class::<source::Source>()?;
    module.add_class::<run::Comparison>()?;
    module.add_function(wrap_pyfunction!(table::read, module)?)?;
    module.add_function(wrap_pyfunction!(table::concatenated, module)?)?;
    module.add_function(wrap_pyfunction!(source::builtin, module)?)?;
    module.add_function(wrap_pyfunction!(source::random, module)?)?;
    module.add_function(wrap_pyfunction!(source::kernels, module)?)?;
    module.add_function(wrap_pyfunction!(source::check_target, module)?)?;
    module.add_function(wrap_pyfunction!(run::compare, module)?)?;
    module.add_function(wrap_pyfunction!(run::explain, module)?)?;
    module.add_function(wrap_pyfunction!(checks::check, module)?)?;
    module.add_function(wrap_pyfunction!(checks::litmus, module)?)?;
    module.add_function(wrap_pyfunction!(checks::replay, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::points, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::digests, module)?)?;
    Ok(())
}
