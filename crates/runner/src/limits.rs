//! Errors with a cause outside of this project, and their remedies: a limit on this process,
//! exhausted resources of the machine, a missing `/proc`.

use rustix::io::Errno;
use std::io;
use std::path::Path;

/// The error and the remedy if `/proc` is not mounted.
pub const NO_PROC: (&str, &str) = ("/proc is not mounted", "`mount -t proc proc /proc`");

const OPEN_FILES: &str =
    "too few files may be open at once: raise the limit, as in `ulimit -n 1024`";
const ALL_FILES: &str = "the machine has too many files open: raise `sysctl fs.file-max`";
const MEMORY: &str = "memory is used up or limited (`ulimit -v`, a control group's memory.max)";
const PROCESSES: &str =
    "no more processes or threads may be started (`ulimit -u`, a control group's pids.max)";
const SPACE: &str = "the disk is full";
const SIZE: &str = "no file may grow that large: raise the limit, as in `ulimit -f unlimited`";

/// Errors with such a cause, in the system's words, with the remedy. If a text contains another
/// one, it comes before that one.
const CAUSES: [(Errno, &str, &str); 6] = [
    (Errno::NFILE, "Too many open files in system", ALL_FILES),
    (Errno::MFILE, "Too many open files", OPEN_FILES),
    (Errno::NOMEM, "Cannot allocate memory", MEMORY),
    (Errno::AGAIN, "Resource temporarily unavailable", PROCESSES),
    (Errno::NOSPC, "No space left on device", SPACE),
    (Errno::FBIG, "File too large", SIZE),
];

/// Whether `/proc` is mounted.
pub fn has_proc() -> bool {
    Path::new("/proc/self/exe").symlink_metadata().is_ok()
}

/// The remedy for an error number, if its cause is such a limit.
pub fn remedy(errno: Option<i32>) -> Option<&'static str> {
    let cause = CAUSES.iter().find(|(error, ..)| Some(error.raw_os_error()) == errno);
    cause.map(|(.., remedy)| *remedy)
}

/// The remedy for an error. A failed allocation has no error number.
pub fn remedy_of(error: &io::Error) -> Option<&'static str> {
    let memory = error.kind() == io::ErrorKind::OutOfMemory;
    remedy(error.raw_os_error()).or(memory.then_some(MEMORY))
}

/// The system's words, without the name of a temporary file.
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.split_once(" at path \"")) {
        (None, Some((words, _))) => words.to_owned(),
        _ => text,
    }
}

/// The remedy for an error in the words of another program.
pub fn remedy_in(text: &str) -> Option<&'static str> {
    let cause = CAUSES.iter().find(|(_, words, _)| text.contains(words));
    cause.map(|(.., remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_files_name_is_left_out() {
        let made = io::Error::other("Permission denied (os error 13) at path \"/tmp/.tmpX\"");
        assert_eq!(words(&made), "Permission denied (os error 13)");
        let plain = io::Error::from(Errno::ACCESS);
        assert_eq!(words(&plain), plain.to_string());
    }

    #[test]
    fn the_words_are_the_systems() {
        assert_eq!(remedy_of(&io::ErrorKind::OutOfMemory.into()), Some(MEMORY));
        for (errno, words, help) in CAUSES {
            let error = io::Error::from(errno);
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(remedy_of(&error), Some(help));
            assert_eq!(remedy_in(&format!("qemu: {error}")), Some(help));
        }
        assert_eq!(remedy(Some(2)), None);
        assert!(has_proc());
    }
}
