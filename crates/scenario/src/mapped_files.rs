//! Files: `file` declares one, and `map` names one.

use crate::compile::label;
use crate::document::Node;
use crate::error::{Problem, finish, suggest};
use crate::ops::word_of;
use crate::scope::Scope;
use miette::SourceSpan;
use needless_model::program::{
    Backing, Content, FileMapping, FileSpec, FileSystem, MAX_FILE_PAGES, MAX_LARGE_FILE_PAGES,
    MAX_WRITE_PAGES,
};

/// The largest number of files in one scenario.
const MAX_FILES: usize = 64;

/// The files of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The files in the order of the text.
    pub list: Vec<FileSpec>,
    /// The place of each declaration.
    spans: Vec<SourceSpan>,
}

/// Reads the `file` nodes.
pub(crate) fn read(nodes: &[&Node], scope: &Scope) -> Result<Files, Vec<Problem>> {
    let (mut files, mut problems) = (Files::default(), Vec::new());
    for node in nodes {
        if let Err(problem) = files.declare(node, scope) {
            problems.push(problem);
        }
    }
    finish(problems, files)
}

impl Files {
    fn declare(&mut self, node: &Node, scope: &Scope) -> Result<(), Problem> {
        let written = &node.args[0];
        let name = label(written, "a file")?;
        if let Some(before) = self.find(name) {
            return Err(Problem::new(written.span, format!("two files named `{name}`"), "again")
                .also(self.spans[before], "the first one")
                .help("choose another name"));
        }
        if self.list.len() == MAX_FILES {
            return Err(Problem::new(written.span, "too many files", "this one")
                .help(format!("at most {MAX_FILES}")));
        }
        let (Some(fs), Some(pages)) = (node.prop("fs"), node.prop("pages")) else { return Ok(()) };
        let fs = word_of(fs, "file system", &FileSystem::ALL)?;
        let pages = scope.number_in(pages, "the number of pages", 1..=MAX_FILE_PAGES as i64)?;
        let content = node.prop("content").map(|value| {
            word_of(value, "content", &Content::ALL).map_err(|problem| {
                problem.help("data or holes; fadvise \"FILE\" advice=\"dontneed\" removes pages that nobody maps from memory, so that they are read again")
            })
        });
        let content = content.transpose()?.unwrap_or(Content::Data);
        let write_pages = match node.prop("write-pages") {
            Some(value) => {
                scope.number_in(value, "the pages of a write", 1..=MAX_WRITE_PAGES as i64)? as u64
            }
            None => 1,
        };
        if let Some(value) = node.prop("write-pages").filter(|_| write_pages > 1)
            && pages as u64 > MAX_LARGE_FILE_PAGES
        {
            let message = format!("a file of {pages} pages is written page by page only");
            return Err(Problem::new(value.span, message, "this").help(format!(
                "with write-pages= a file has up to {MAX_LARGE_FILE_PAGES} pages: leave it out, or make the file smaller"
            )));
        }
        let (name, pages) = (name.to_owned(), pages as u64);
        self.list.push(FileSpec { name, pages, fs, content, write_pages });
        self.spans.push(written.span);
        Ok(())
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|file| file.name == name)
    }

    /// The number of the file `name`, which is written at `span`.
    pub fn named(&self, name: &str, span: SourceSpan) -> Result<u16, Problem> {
        self.find(name).map(|number| number as u16).ok_or_else(|| {
            let problem = Problem::new(span, format!("there is no file `{name}`"), "this name");
            problem.help(if self.list.is_empty() {
                format!("declare it in the scenario: file \"{name}\" fs=\"tmpfs\" pages=N")
            } else {
                suggest("files", name, self.list.iter().map(|file| file.name.as_str()))
            })
        })
    }

    /// The backing of an area of `pages` pages, from the node that declares the area.
    pub fn backing(&self, node: &Node, pages: u64, scope: &Scope) -> Result<Backing, Problem> {
        let words = [("anonymous", Backing::Anonymous), ("shared", Backing::Shared)];
        let said = node.prop("backing").map(|value| word_of(value, "backing", &words));
        let said = said.transpose()?;
        let (file, offset) = (node.prop("file"), node.prop("offset"));
        let Some(written) = file else {
            return match offset {
                None => Ok(said.unwrap_or_default()),
                Some(offset) => Err(Problem::new(offset.span, "an offset in which file?", "here")
                    .help("add file=\"NAME\"")),
            };
        };
        if let (Some(Backing::Anonymous), Some(backing)) = (said, node.prop("backing")) {
            return Err(Problem::new(backing.span, "a file is not anonymous memory", "this word")
                .also(written.span, "the file")
                .help(
                    "leave backing= out for a private mapping; backing=\"shared\" for a shared one",
                ));
        }
        let name = written.text("a file's name")?;
        let number = usize::from(self.named(name, written.span)?);
        let size = self.list[number].pages;
        let first = match offset {
            Some(value) => scope.number_in(value, "the offset", 0..=size as i64 - 1)? as u64,
            None => 0,
        };
        if first + pages > size {
            let message = format!("the area needs {pages} pages of `{name}` from page {first} on");
            return Err(Problem::new(written.span, message, "this file")
                .also(self.spans[number], &format!("has {size} pages"))
                .help("map fewer pages, or make the file larger: an access beyond a file's end raises SIGBUS"));
        }
        let fs = self.list[number].fs;
        let mapping = FileMapping { file: number as u16, fs, first, shared: said.is_some() };
        Ok(Backing::File(mapping))
    }
}
