//! Tables as files: Parquet, and Arrow's own format (Feather).

use crate::TableError;
use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The kinds of file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet, its pages compressed by Snappy.
    Parquet,
    /// Arrow's file format (Feather version 2), not compressed.
    Arrow,
}

impl Format {
    /// The kind that a file's name asks for by its ending; `None`: neither.
    pub fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Format::Parquet),
            "arrow" | "feather" => Some(Format::Arrow),
            _ => None,
        }
    }
}

/// Takes the parts of a table one after the other.
pub enum Writer<W: Write + Send> {
    /// To a Parquet file.
    Parquet(Box<ArrowWriter<W>>),
    /// To an Arrow file.
    Arrow(Box<FileWriter<W>>),
}

impl<W: Write + Send> Writer<W> {
    /// A writer of tables with this schema.
    pub fn new(out: W, format: Format, schema: &SchemaRef) -> Result<Writer<W>, TableError> {
        Ok(match format {
            Format::Parquet => {
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties(schema)))?;
                Writer::Parquet(Box::new(writer))
            }
            Format::Arrow => Writer::Arrow(Box::new(FileWriter::try_new(out, schema)?)),
        })
    }

    /// Takes the next part.
    pub fn write(&mut self, part: &RecordBatch) -> Result<(), TableError> {
        match self {
            Writer::Parquet(writer) => writer.write(part)?,
            Writer::Arrow(writer) => writer.write(part)?,
        }
        Ok(())
    }

    /// Writes what a reader begins with, which stands at the end.
    pub fn finish(self) -> Result<(), TableError> {
        match self {
            Writer::Parquet(writer) => drop(writer.close()?),
            Writer::Arrow(mut writer) => writer.finish()?,
        }
        Ok(())
    }
}

/// The table's metadata also stands in the file itself, where readers find it that know nothing
/// about Arrow.
fn properties(schema: &Schema) -> WriterProperties {
    let mut pairs: Vec<KeyValue> = schema
        .metadata()
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    // Equal tables are equal files.
    pairs.sort_by(|a, b| a.key.cmp(&b.key));
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(pairs))
        .build()
}

/// The table as a file's bytes.
pub fn bytes(table: &RecordBatch, format: Format) -> Result<Vec<u8>, TableError> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, format, &table.schema())?;
    writer.write(table)?;
    writer.finish()?;
    Ok(bytes)
}

/// Reads a file of either kind, which its first bytes tell.
pub fn read(mut file: File) -> Result<RecordBatch, TableError> {
    let mut magic = [0; 4];
    file.read_exact(&mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    let (schema, parts) = match &magic {
        b"PAR1" => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file)?;
            let schema = reader.schema().clone();
            (schema, reader.build()?.collect::<Result<Vec<_>, _>>()?)
        }
        _ => {
            let reader = FileReader::try_new(file, None)?;
            (reader.schema(), reader.collect::<Result<Vec<_>, _>>()?)
        }
    };
    one(&schema, &parts)
}

fn one(schema: &SchemaRef, parts: &[RecordBatch]) -> Result<RecordBatch, TableError> {
    Ok(arrow_select::concat::concat_batches(schema, parts)?)
}

/// Tables of one kind, one below the other. The metadata is that of the first one.
pub fn concatenated(tables: &[RecordBatch]) -> Result<RecordBatch, TableError> {
    let Some(first) = tables.first() else {
        return Err(TableError::Unlike("there are none".to_owned()));
    };
    let schema = first.schema();
    for table in tables {
        if table.schema().fields() != schema.fields() {
            let of = table.schema();
            let odd = schema.fields().iter().chain(of.fields());
            let odd = odd.filter(|field| {
                [&schema, &of].iter().any(|s| s.field_with_name(field.name()).ok() != Some(*field))
            });
            let names: Vec<&str> = odd.map(|field| field.name().as_str()).collect();
            return Err(TableError::Unlike(names.join(", ")));
        }
    }
    one(&schema, tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Cells, counted, named, table};

    fn small(values: &[u64]) -> RecordBatch {
        let numbers = Cells::Numbers(values.iter().copied().map(Some).collect());
        let names = Cells::Texts(values.iter().map(|value| Some(format!("n{value}"))).collect());
        let number = counted("number", "pages", "how many");
        table("small", vec![(number, numbers), (named("name", "which"), names)]).unwrap()
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let table = small(&[3, 1, 2]);
        for format in [Format::Parquet, Format::Arrow] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes(&table, format).unwrap()).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            let again = read(file).unwrap();
            assert_eq!(again.columns(), table.columns(), "{format:?}");
            assert_eq!(again.schema().fields(), table.schema().fields(), "units are kept");
            assert_eq!(again.schema().metadata()["needless.table"], "small");
        }
    }

    #[test]
    fn equal_tables_are_equal_files() {
        let written = || bytes(&small(&[1, 2]), Format::Parquet).unwrap();
        assert_eq!(written(), written());
    }

    #[test]
    fn only_tables_of_one_kind_go_together() {
        let both = concatenated(&[small(&[1]), small(&[2, 3])]).unwrap();
        assert_eq!(both.num_rows(), 3);
        let other = Cells::Flags(vec![Some(true)]);
        let other = table("other", vec![(named("flag", "whether"), other)]).unwrap();
        let error = concatenated(&[small(&[1]), other]).unwrap_err();
        assert!(error.to_string().contains("flag"), "{error}");
        assert!(concatenated(&[]).is_err());
    }

    #[test]
    fn a_name_tells_the_kind() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!(of("a/rounds.parquet"), Some(Format::Parquet));
        assert_eq!(of("rounds.arrow"), Some(Format::Arrow));
        assert_eq!(of("rounds.jsonl"), None);
    }
}
