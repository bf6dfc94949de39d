//! Columns on their way to a table.

use crate::{TABLES_VERSION, TableError, key};
use arrow_array::builder::{ListBuilder, StringBuilder, UInt64Builder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    UInt64Array,
};
use arrow_schema::{Field, Schema};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// What a column is called, in what it counts, and what it tells.
#[derive(Copy, Clone, Debug)]
pub struct Column<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its unit; `None`: it is no quantity.
    pub unit: Option<&'a str>,
    /// What it tells.
    pub doc: &'a str,
}

/// A column that is no quantity.
pub(crate) const fn named<'a>(name: &'a str, doc: &'a str) -> Column<'a> {
    Column { name, unit: None, doc }
}

/// A column that counts or measures something.
pub(crate) const fn counted<'a>(name: &'a str, unit: &'a str, doc: &'a str) -> Column<'a> {
    Column { name, unit: Some(unit), doc }
}

/// The values of a column, of one type.
#[derive(Clone, Debug)]
pub enum Cells {
    /// A column of texts.
    Texts(Vec<Option<String>>),
    /// Numbers that are never negative.
    Numbers(Vec<Option<u64>>),
    /// Numbers that may be.
    Integers(Vec<Option<i64>>),
    /// Yes or no.
    Flags(Vec<Option<bool>>),
}

/// A table of columns that are made elsewhere; `kind` says what a row is.
pub fn table(kind: &str, columns: Vec<(Column<'_>, Cells)>) -> Result<RecordBatch, TableError> {
    let mut made = Columns::default();
    for (column, cells) in columns {
        match cells {
            Cells::Texts(values) => made.texts(column, values),
            Cells::Numbers(values) => made.numbers(column, values),
            Cells::Integers(values) => made.integers(column, values),
            Cells::Flags(values) => made.flags(column, values),
        }
    }
    made.finish(kind, None)
}

/// Columns of equal length.
#[derive(Default)]
pub(crate) struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    pub(crate) fn texts<T: AsRef<str>>(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Option<T>>,
    ) {
        self.add(column, Arc::new(values.into_iter().collect::<StringArray>()));
    }

    pub(crate) fn numbers(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Option<u64>>,
    ) {
        self.add(column, Arc::new(values.into_iter().collect::<UInt64Array>()));
    }

    pub(crate) fn integers(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Option<i64>>,
    ) {
        self.add(column, Arc::new(values.into_iter().collect::<Int64Array>()));
    }

    pub(crate) fn flags(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Option<bool>>,
    ) {
        self.add(column, Arc::new(values.into_iter().collect::<BooleanArray>()));
    }

    /// Lists of numbers; `None` is no list at all.
    pub(crate) fn number_lists(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Option<Vec<u64>>>,
    ) {
        let mut lists = ListBuilder::new(UInt64Builder::new());
        for list in values {
            let known = list.is_some();
            list.into_iter().flatten().for_each(|value| lists.values().append_value(value));
            lists.append(known);
        }
        self.add(column, Arc::new(lists.finish()));
    }

    /// Lists of texts.
    pub(crate) fn text_lists<'a>(
        &mut self,
        column: Column<'_>,
        values: impl IntoIterator<Item = Vec<&'a str>>,
    ) {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for list in values {
            list.into_iter().for_each(|value| lists.values().append_value(value));
            lists.append(true);
        }
        self.add(column, Arc::new(lists.finish()));
    }

    fn add(&mut self, column: Column<'_>, array: ArrayRef) {
        let Column { name, unit, doc } = column;
        let unit = unit.map(|unit| (key::UNIT.to_owned(), unit.to_owned()));
        let doc = (key::DOC.to_owned(), doc.to_owned());
        let metadata: HashMap<String, String> = unit.into_iter().chain([doc]).collect();
        // Whatever is never null here may be unknown in another run.
        let field = Field::new(name, array.data_type().clone(), true);
        self.fields.push(field.with_metadata(metadata));
        self.arrays.push(array);
    }

    /// The table; `document` is what has no row.
    pub(crate) fn finish(
        self,
        kind: &str,
        document: Option<&Value>,
    ) -> Result<RecordBatch, TableError> {
        let mut metadata = HashMap::from([
            (key::TABLE.to_owned(), kind.to_owned()),
            (key::VERSION.to_owned(), TABLES_VERSION.to_string()),
        ]);
        if let Some(document) = document {
            metadata.insert(key::DOCUMENT.to_owned(), document.to_string());
        }
        let rows = self.arrays.first().map_or(0, |array| array.len());
        let schema = Arc::new(Schema::new_with_metadata(self.fields, metadata));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(schema, self.arrays, &options)?)
    }
}
