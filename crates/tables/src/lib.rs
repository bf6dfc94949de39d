//! Results as Arrow tables: one row for each round, target, event, scenario, or row of `needless
//! stat`.
//!
//! The command writes them as Parquet and Arrow files, and the Python package hands them over
//! without a copy. Both take them from here, so a column has one name, one unit and one description
//! (docs/tables.md).
//!
//! Invariants:
//!
//! - Unknown is null, never zero. A target that did not run has a row that says why.
//! - Each field carries its unit and description as metadata. The table carries what it holds, and
//!   of the JSON document of the same result all that has no row.
//! - The columns of a kind of table do not depend on what a run happened to show, but for the
//!   scenario's parameters (`param_…`), so tables of several runs can be put one below the other.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod columns;
mod events;
mod figures;
mod rounds;
mod scenarios;
mod stat;
mod summary;
mod written;

pub use arrow_array::RecordBatch;
pub use columns::{Cells, Column, table};
pub use events::{Seen, events};
pub use rounds::rounds;
pub use scenarios::scenarios;
pub use stat::stat;
pub use summary::summary;
pub use written::{Format, Writer, bytes, concatenated, read};

/// Version of the tables, raised whenever a column changes its meaning or goes away.
pub const TABLES_VERSION: u32 = 1;

/// The keys of a table's metadata.
pub mod key {
    /// What a row is: `rounds`, `summary`, `events`, `scenarios`, `stat`.
    pub const TABLE: &str = "needless.table";
    /// The version of the tables, [`TABLES_VERSION`](crate::TABLES_VERSION).
    pub const VERSION: &str = "needless.tables_version";
    /// The JSON document of the same result without what the rows hold.
    pub const DOCUMENT: &str = "needless.document";
    /// Of a field: in what it counts.
    pub const UNIT: &str = "unit";
    /// Of a field: what it tells.
    pub const DOC: &str = "doc";
}

/// Why a table cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Columns do not fit together.
    #[error("no table can be made of it: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A Parquet file.
    #[error("Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Tables that are not of one kind.
    #[error("these tables have different columns: {0}")]
    Unlike(String),
}
