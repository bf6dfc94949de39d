//! What the console of a guest that ended shows about the cause, apart from its last lines.

use crate::config;
use crate::platform::Arch;
use needless_model::account::EVENTS;
use needless_runner::needs::{LACKS, Needed, Part};
use std::collections::BTreeMap;

/// The kernel's words when it panics.
const PANIC: &str = "Kernel panic - not syncing: ";

/// Messages of kernels, each with the part whose absence causes it.
const WORDS: [(&str, Part); 4] = [
    // init/do_mounts.c: mount_root_generic
    ("Unable to mount root fs", Part::Initramfs),
    // ENOEXEC: the kernel does not know the format of /init (init/main.c: run_init_process)
    ("Failed to execute /init (error -8)", Part::Programs),
    ("No working init found", Part::Programs),
    // isolcpus= in a kernel where nothing binds tasks elsewhere (kernel/sched/core.c; seen on 7.3)
    ("select_fallback_rq", Part::Isolation),
];

/// The important lines of a console, however many came after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The reason of the first kernel panic.
    pub panic: Option<String>,
    /// Parts that process 1 found missing. It then ends the guest.
    pub absent: Vec<Part>,
    /// Parts whose absence causes such messages.
    likely: Vec<Part>,
}

impl Told {
    /// Reads a line of the console.
    pub fn hear(&mut self, line: &str) {
        if let Some((_, name)) = line.split_once(LACKS) {
            self.absent.extend(Part::by_name(name.trim()));
        }
        for (_, part) in WORDS.iter().filter(|(words, _)| line.contains(words)) {
            if !self.likely.contains(part) {
                self.likely.push(*part);
            }
        }
        if let (None, Some((_, why))) = (&self.panic, line.split_once(PANIC)) {
            self.panic = Some(why.trim().to_owned());
        }
    }

    /// The remedy for a user's own kernel that did not boot.
    pub fn remedy(&self, console_is_empty: bool, arch: Arch) -> String {
        if console_is_empty {
            let console = Part::Console.text(arch == Arch::Arm64);
            return format!(
                "the console is empty, so the cause is unknown: a guest needs {console}; {CONFIG}"
            );
        }
        let likely = match self.likely.is_empty() {
            true => String::new(),
            false => {
                format!("a kernel without {} ends like this; ", config::text(&self.likely, arch))
            }
        };
        format!(
            "{likely}append=ignore_loglevel shows more of the boot, and docs/own-kernels.md has what a guest \
             needs; {CONFIG}"
        )
    }
}

/// Those absent parts that are needed for `needed`, with their options.
pub fn lacking(absent: &[Part], needed: Needed, arch: Arch) -> Option<String> {
    let parts: Vec<Part> = absent.iter().copied().filter(|part| part.needed() == needed).collect();
    (!parts.is_empty()).then(|| config::text(&parts, arch))
}

/// Adds to what cannot be seen the options that would show it. The runner knows only that it is
/// absent.
pub fn explain_unseen(unseen: &mut BTreeMap<String, String>, absent: &[Part], arch: Arch) {
    let mut explain = |name: &str, needed: Needed| {
        let Some(cause) = unseen.get(name).cloned() else { return };
        let Some(parts) = lacking(absent, needed, arch) else { return };
        // Figures with one cause have equal texts.
        for reason in unseen.values_mut().filter(|reason| **reason == cause) {
            *reason = format!("this kernel lacks {parts}");
        }
    };
    explain(EVENTS, Needed::ForEvents);
    explain("final_pages", Needed::ForPages);
}

/// How to get errors before a boot.
const CONFIG: &str = "an image built with CONFIG_IKCONFIG carries its configuration, which is checked before it boots";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_remembered() {
        let mut told = Told::default();
        for line in [
            "[    0.8] VFS: Unable to mount root fs on unknown-block(0,0)",
            "[    0.9] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
            "[    0.9] ---[ end Kernel panic - not syncing: twice",
        ] {
            told.hear(line);
        }
        assert_eq!(
            (told.absent.as_slice(), told.likely.as_slice()),
            (&[][..], &[Part::Initramfs][..])
        );
        assert_eq!(
            told.panic.as_deref(),
            Some("VFS: Unable to mount root fs on unknown-block(0,0)")
        );
        assert!(told.remedy(false, Arch::X86_64).contains("CONFIG_BLK_DEV_INITRD"));
        let mut told = Told::default();
        for part in Part::ALL {
            told.hear(&format!("{LACKS}{}\r", part.name()));
        }
        assert_eq!(told.absent, Part::ALL);
        for (words, part) in WORDS {
            let mut told = Told::default();
            told.hear(words);
            assert_eq!(told.likely, [part]);
        }
        assert!(Told::default().remedy(true, Arch::Arm64).contains("PL011"));
    }

    #[test]
    fn options_are_named_for_what_cannot_be_seen() {
        let seen = |absent: &[Part]| {
            let mut unseen: BTreeMap<String, String> = [
                (EVENTS, "tracefs is not mounted"),
                ("flushes", "tracefs is not mounted"),
                ("cycles", "time means nothing"),
                ("final_pages", "no such file"),
            ]
            .map(|(name, why)| (name.to_owned(), why.to_owned()))
            .into();
            explain_unseen(&mut unseen, absent, Arch::X86_64);
            [EVENTS, "flushes", "cycles", "final_pages"].map(|name| unseen[name].clone())
        };
        let [events, flushes, cycles, pages] = seen(&[Part::Tracepoints, Part::Zram]);
        assert_eq!(events, "this kernel lacks tracepoints (CONFIG_FTRACE, CONFIG_FTRACE_SYSCALLS)");
        assert_eq!((flushes, cycles.as_str()), (events, "time means nothing"));
        assert_eq!(pages, "no such file");
        assert!(seen(&[Part::Pages])[3].contains("CONFIG_PROC_PAGE_MONITOR"));
        assert_eq!(seen(&[])[0], "tracefs is not mounted");
    }
}
