//! Reads tracefs: its place, the number of a tracepoint, and the layout of its fields.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The places where tracefs may be mounted.
pub const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// How to get the right to see events, the least privilege first.
pub const PERFMON_REMEDY: &str = "run it as root; or, as root, let a group read tracefs (`mount -t tracefs -o \
     gid=GROUP,mode=750 tracefs /sys/kernel/tracing`, with `-o remount,…` if it is mounted) and give both programs \
     what watching takes (`setcap cap_perfmon,cap_ipc_lock+ep needless`, and the same for needless-runner), or set \
     kernel.perf_event_paranoid to -1";

/// Why a tracepoint cannot be used.
#[derive(Debug, Error)]
pub enum TracefsError {
    /// tracefs is not mounted, or this user may not read it.
    #[error("tracefs is not mounted, or this user may not look into it")]
    NotMounted,
    /// This kernel lacks the tracepoint.
    #[error("this kernel has no tracepoint {0}")]
    NoTracepoint(String),
    /// This kernel has the tracepoint but never issues it.
    #[error("on this architecture kernels have the tracepoint {0} but never issue it")]
    NeverIssued(&'static str),
    /// The tracepoint lacks a field.
    #[error("tracepoint {tracepoint} has no field `{field}`")]
    NoField {
        /// The name of the tracepoint.
        tracepoint: String,
        /// The name of the field.
        field: String,
    },
    /// A file of the tracepoint cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the read.
        error: io::Error,
    },
}

const FLUSH: &str = "tlb:tlb_flush";

/// The folder where tracefs is mounted.
pub fn find() -> Result<PathBuf, TracefsError> {
    PLACES
        .iter()
        .map(Path::new)
        .find(|place| place.join("events").is_dir())
        .map(Path::to_path_buf)
        .ok_or(TracefsError::NotMounted)
}

/// The place of a field in a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The offset of its first byte.
    pub offset: usize,
    /// Its size in bytes: 1, 2, 4 or 8.
    pub size: usize,
    /// Whether it is signed.
    pub signed: bool,
}

impl Field {
    /// The value of the field in a record, sign-extended.
    pub fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut value = [0; 8];
        value.get_mut(..self.size)?.copy_from_slice(bytes);
        let value = u64::from_le_bytes(value);
        let spare = 64 - 8 * self.size as u32;
        Some(if self.signed { ((value << spare) as i64 >> spare) as u64 } else { value })
    }
}

/// A tracepoint: its number and its format.
#[derive(Clone, Debug)]
pub struct Tracepoint {
    /// The name, as `system:name`.
    pub name: String,
    /// The number that perf_event_open takes.
    pub id: u64,
    format: String,
}

impl Tracepoint {
    /// Looks up `system:name`. Every kernel has `tlb:tlb_flush`, because mm/rmap.c defines it. But
    /// only arch/x86/mm/tlb.c issues it (6.1 to 6.12). Elsewhere its silence would look like no
    /// flushes.
    pub fn find(tracefs: &Path, system: &str, name: &str) -> Result<Tracepoint, TracefsError> {
        let full = format!("{system}:{name}");
        if full == FLUSH && !cfg!(target_arch = "x86_64") {
            return Err(TracefsError::NeverIssued(FLUSH));
        }
        let folder = tracefs.join("events").join(system).join(name);
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => TracefsError::NoTracepoint(full.clone()),
                _ => TracefsError::Unreadable { path, error },
            })
        };
        let id = read("id")?.trim().parse();
        let id = id.map_err(|_| TracefsError::NoTracepoint(full.clone()))?;
        let format = read("format")?;
        Ok(Tracepoint { name: full, id, format })
    }

    /// The place of a field in the tracepoint's records.
    pub fn field(&self, field: &str) -> Result<Field, TracefsError> {
        self.format.lines().find_map(|line| parse_field(line, field)).ok_or_else(|| {
            TracefsError::NoField { tracepoint: self.name.clone(), field: field.to_owned() }
        })
    }
}

/// Reads a line such as `field:int reason; offset:8; size:4; signed:1;`. For an array it gives the
/// first element.
fn parse_field(line: &str, wanted: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let last = declaration.split_whitespace().last()?;
    let (name, length) = match last.strip_suffix(']').and_then(|array| array.split_once('[')) {
        Some((name, length)) => (name, length.parse().ok().filter(|length| *length > 0)?),
        None => (last, 1),
    };
    if name != wanted {
        return None;
    }
    let mut field = Field { offset: 0, size: 0, signed: false };
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => field.offset = value.parse().ok()?,
            Some(("size", value)) => field.size = value.parse::<usize>().ok()? / length,
            Some(("signed", value)) => field.signed = value == "1",
            _ => {}
        }
    }
    matches!(field.size, 1 | 2 | 4 | 8).then_some(field)
}

/// The state letter in the text of a `/proc/…/stat` file. The name before it may contain anything.
pub fn task_state(stat: &[u8]) -> Option<u8> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end_of_name + 2).copied()
}

/// The ticks of CPU time in the text of a `/proc/…/stat` file: user and system time.
pub fn task_ticks(stat: &[u8]) -> Option<u64> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 2..)?).ok()?;
    let mut ticks = rest.split(' ').skip(11).map(|field| field.parse::<u64>().ok());
    Some(ticks.next()?? + ticks.next()??)
}

/// Whether the text of a `/proc/…/stat` file belongs to a kernel thread (`PF_KTHREAD`).
pub fn is_kernel_thread(stat: &[u8]) -> Option<bool> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 2..)?).ok()?;
    let flags: u64 = rest.split(' ').nth(6)?.parse().ok()?;
    Some(flags & PF_KTHREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let format = "\tfield:int reason;\toffset:8;\tsize:4;\tsigned:1;\n\
                      \tfield:unsigned long pages;\toffset:16;\tsize:8;\tsigned:0;\n\
                      \tfield:unsigned long args[6];\toffset:24;\tsize:48;\tsigned:0;\n";
        let point = Tracepoint { name: "tlb:tlb_flush".into(), id: 1, format: format.into() };
        let reason = point.field("reason").unwrap();
        assert_eq!(reason, Field { offset: 8, size: 4, signed: true });
        assert_eq!(point.field("pages").unwrap().size, 8);
        assert_eq!(point.field("args").unwrap(), Field { offset: 24, size: 8, signed: false });
        assert!(matches!(point.field("page"), Err(TracefsError::NoField { .. })));
        let mut record = vec![0; 24];
        record[8..12].copy_from_slice(&(-1_i32).to_le_bytes());
        assert_eq!(reason.read(&record), Some(u64::MAX));
        assert_eq!(reason.read(&record[..10]), None);
    }

    #[test]
    fn stat_lines_with_odd_names() {
        let stat = b"12 (a) S (b)) S 2 0 0 0 -1 2129984 0 0";
        assert_eq!(task_state(stat), Some(b'S'));
        assert_eq!(is_kernel_thread(stat), Some(true));
        assert_eq!(is_kernel_thread(b"12 (sh) R 1 0 0 0 -1 4194304 0"), Some(false));
        assert_eq!(task_ticks(b"12 (a b) S 1 0 0 0 -1 0 9 9 9 9 30 4 0 0"), Some(34));
        assert_eq!(task_ticks(stat), None);
        assert_eq!(is_kernel_thread(b""), None);
    }
}
