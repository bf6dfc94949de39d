//! Seeds of random scenarios that were run as evidence.
//!
//! A range of seeds counts as evidence once: searching for mistakes afterwards tunes the model to
//! what the range showed. So ranges are noted in a file before they are run, and the next run takes
//! the next range.

use needless_files::NotRead;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The first seed that is taken from such a file. Seeds from here on draw from all classes.
const FIRST: u64 = needless_scenario::random::OF_EVERYTHING;

/// The largest size of such a file, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// The lines above the ranges.
const HEAD: &str = "# Seeds of random scenarios that were run as evidence (docs/agreement.md). `needless agree --seeds` takes
# the next ones and notes them here before they run; no range is run twice. Seeds below 1000000 are for
# development.
# first\tlast\tday\tkernels
";

/// Takes the next `count` seeds of the file. Writes them there with `note` before anything runs.
pub fn take(path: &Path, count: u64, note: &str) -> io::Result<RangeInclusive<u64>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Opening a pipe must not wait. It is refused when it is read.
    let mut file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    file.lock()?;
    let taken = ranges(&mut file)?;
    let first = taken.iter().map(|range| range.end() + 1).fold(FIRST, u64::max);
    let last = first.checked_add(count.max(1) - 1).ok_or_else(|| invalid("no seeds are left"))?;
    let head = if taken.is_empty() && file.stream_position()? == 0 { HEAD } else { "" };
    file.write_all(format!("{head}{first}\t{last}\t{note}\n").as_bytes())?;
    file.sync_all()?;
    Ok(first..=last)
}

/// The ranges of the file, which is read to its end.
fn ranges(file: &mut File) -> io::Result<Vec<RangeInclusive<u64>>> {
    let text = needless_files::read_open_text(file, MOST_BYTES).map_err(NotRead::into_io)?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(invalid("the last line is not complete"));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let range = |(number, line): (usize, &str)| {
        let mut seeds = line.split('\t').map(str::parse);
        match (seeds.next(), seeds.next()) {
            (Some(Ok(first)), Some(Ok(last))) if first <= last => Ok(first..=last),
            _ => Err(invalid(&format!("line {} is no range of seeds: `{line}`", number + 1))),
        }
    };
    lines.map(range).collect()
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn no_range_is_taken_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seeds.tsv");
        assert_eq!(take(&path, 10, "a day\tlive").unwrap(), FIRST..=FIRST + 9);
        assert_eq!(take(&path, 1, "a day\tlive").unwrap(), FIRST + 10..=FIRST + 10);
        // Lines that somebody wrote by hand count, in any order.
        let mut text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# Seeds") && text.lines().count() == 6, "{text}");
        text += "12000000\t12000999\nby hand";
        fs::write(&path, &text).unwrap();
        assert!(take(&path, 5, "").is_err(), "the last line is not complete");
        fs::write(&path, format!("{HEAD}12000000\t12000999\tby hand\n1000000\t1000001\t-\n"))
            .unwrap();
        assert_eq!(take(&path, 5, "").unwrap(), 12_001_000..=12_001_004);
    }

    #[test]
    fn a_line_that_is_no_range_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seeds.tsv");
        for line in ["1000000", "x\t7", "9\t8", ""] {
            fs::write(&path, format!("1000000\t1000001\t-\n{line}\n")).unwrap();
            let error = take(&path, 1, "").unwrap_err().to_string();
            assert!(error.contains("line 2"), "{line}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2, "nothing was noted");
        }
    }
}
