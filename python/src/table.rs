//! Tables: Arrow record batches that Python reads without a copy (the PyCapsule interface).

use crate::error::Failure;
use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::DataType;
use needless_model::foreign;
use needless_tables::{Cells, Column, Format, TableError};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A table of results.
#[pyclass(module = "needless", frozen)]
pub struct Table {
    batch: RecordBatch,
}

impl From<RecordBatch> for Table {
    fn from(batch: RecordBatch) -> Table {
        Table { batch }
    }
}

/// A column that Python made: name, unit, description, type, values.
type Made<'py> = (String, Option<String>, String, String, Bound<'py, PyAny>);

#[pymethods]
impl Table {
    /// A table of columns that are made in Python; `kind` says what a row is.
    #[staticmethod]
    fn of(kind: &str, columns: Vec<Made<'_>>) -> PyResult<Table> {
        let cells = |(_, _, _, of, values): &Made<'_>| -> PyResult<Cells> {
            Ok(match of.as_str() {
                "number" => Cells::Numbers(values.extract()?),
                "integer" => Cells::Integers(values.extract()?),
                "flag" => Cells::Flags(values.extract()?),
                _ => Cells::Texts(values.extract()?),
            })
        };
        let made: Vec<Cells> = columns.iter().map(cells).collect::<PyResult<_>>()?;
        let named =
            columns.iter().map(|(name, unit, doc, ..)| Column { name, unit: unit.as_deref(), doc });
        let table = needless_tables::table(kind, named.zip(made).collect());
        Ok(table.map_err(Failure::from)?.into())
    }

    /// The Arrow stream of the table, as the PyCapsule interface asks for it. A schema that is
    /// asked for is not heeded, which the interface allows: readers cast.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let parts = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(parts));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The Arrow schema of the table.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref());
        let schema = schema.map_err(|error| Failure::from(TableError::from(error)))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let kind = self.metadata().remove(needless_tables::key::TABLE).unwrap_or_default();
        let (rows, columns) = (self.batch.num_rows(), self.batch.num_columns());
        format!("<needless.Table {kind}: {rows} rows, {columns} columns>")
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// What the table holds, by key.
    #[getter]
    fn metadata(&self) -> BTreeMap<String, String> {
        let schema = self.batch.schema();
        schema.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// A column's type, unit and description.
    fn field(&self, name: &str) -> PyResult<(String, Option<String>, Option<String>)> {
        let schema = self.batch.schema();
        let Ok(field) = schema.field_with_name(name) else { return Err(no_column(name)) };
        let told = |key: &str| field.metadata().get(key).cloned();
        let unit = told(needless_tables::key::UNIT);
        Ok((field.data_type().to_string(), unit, told(needless_tables::key::DOC)))
    }

    /// The values of a column.
    fn column(&self, py: Python<'_>, name: &str) -> PyResult<Vec<Py<PyAny>>> {
        let Some(array) = self.batch.column_by_name(name) else { return Err(no_column(name)) };
        (0..array.len()).map(|row| cell(py, array, row)).collect()
    }

    /// The rows, each as a dictionary.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let schema = self.batch.schema();
        let row = |at: usize| {
            let row = PyDict::new(py);
            for (field, array) in schema.fields().iter().zip(self.batch.columns()) {
                row.set_item(field.name(), cell(py, array, at)?)?;
            }
            Ok(row)
        };
        (0..self.batch.num_rows()).map(row).collect()
    }

    /// The table as a Parquet file's bytes.
    fn parquet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| needless_tables::bytes(&self.batch, Format::Parquet));
        Ok(PyBytes::new(py, &bytes.map_err(Failure::from)?))
    }

    /// Writes the table to a file, whole or not at all; its name ends with .parquet, .arrow or
    /// .feather.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let Some(format) = Format::of(&path) else {
            return Err(Failure::input(
                format!("`{}` has no ending that names a kind of table", foreign::path(&path)),
                "call it *.parquet, *.arrow or *.feather",
            )
            .into());
        };
        py.detach(|| written(&self.batch, format, &path))
            .map_err(|error| cannot("write", &path, error))
    }
}

fn written(batch: &RecordBatch, format: Format, path: &Path) -> Result<(), TableError> {
    let bytes = needless_tables::bytes(batch, format)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(&bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn cannot(what: &str, path: &Path, error: TableError) -> PyErr {
    let message = format!("cannot {what} `{}`: {error}", foreign::path(path));
    Failure::other(message, None).into()
}

fn no_column(name: &str) -> PyErr {
    PyKeyError::new_err(name.to_owned())
}

fn cell(py: Python<'_>, array: &dyn Array, row: usize) -> PyResult<Py<PyAny>> {
    if array.is_null(row) {
        return Ok(py.None());
    }
    match array.data_type() {
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into_py_any(py),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into_py_any(py),
        DataType::Boolean => array.as_boolean().value(row).into_py_any(py),
        DataType::Utf8 => array.as_string::<i32>().value(row).into_py_any(py),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let items = (0..items.len()).map(|at| cell(py, &items, at));
            items.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
        }
        other => {
            let help = "read the table with pyarrow, polars or DuckDB".to_owned();
            Err(Failure::other(format!("a column has values of type {other}"), Some(help)).into())
        }
    }
}

/// Reads a table that `needless --format parquet` or `arrow`, or `Table.write`, has written.
#[pyfunction]
pub fn read(py: Python<'_>, path: PathBuf) -> PyResult<Table> {
    let table = py.detach(|| needless_tables::read(File::open(&path)?));
    Ok(table.map_err(|error| cannot("read", &path, error))?.into())
}

/// Tables of one kind, one below the other.
#[pyfunction]
pub fn concatenated(py: Python<'_>, tables: Vec<PyRef<'_, Table>>) -> PyResult<Table> {
    let batches: Vec<RecordBatch> = tables.iter().map(|table| table.batch.clone()).collect();
    let table = py.detach(|| needless_tables::concatenated(&batches));
    Ok(table.map_err(Failure::from)?.into())
}
