//! What cannot be seen here: said in the report, never counted as zero.

use needless_model::foreign;
use needless_runner::look::Unseen;
use serde::Serialize;

/// Something that this kernel or this user does not show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What was looked for.
    pub what: String,
    /// Why it is not there.
    pub why: String,
    /// What the report lacks for it.
    pub lacks: String,
    /// What would help, if anything is known.
    pub remedy: Option<String>,
}

impl Missing {
    /// What the report lacks, and why.
    pub fn new(what: &str, why: &dyn ToString, lacks: &str, remedy: Option<&str>) -> Missing {
        let (what, lacks, remedy) = (what.to_owned(), lacks.to_owned(), remedy.map(str::to_owned));
        Missing { what, why: why.to_string(), lacks, remedy }
    }

    /// For a file of the kernel's that cannot be seen.
    pub fn unseen(file: &Unseen, lacks: &str) -> Missing {
        let what = foreign::path(&file.path);
        Missing::new(&what, &file.why, lacks, Some(file.remedy()))
    }

    /// Adds it, unless it has been said.
    pub fn tell(self, missing: &mut Vec<Missing>) {
        if !missing.contains(&self) {
            missing.push(self);
        }
    }
}
