//! The row for a real kernel, chosen by its release, processor and settings.

use super::{KernelRow, ROWS, Row, stable};
use crate::arch::{ARM64, ARM64_A72};
use crate::program::{Mthp, MthpMode, Program, ThpMode};
use std::collections::BTreeMap;

/// The key of the environment that says how the processor caches huge pages, if that was measured.
pub const HUGE_TLB: &str = "cpu.huge-tlb";
/// The value of [`HUGE_TLB`] for a processor that caches at least some huge pages as translations
/// of single pages.
pub const PIECES: &str = "pieces";

/// The key of the environment that says what a kernel has beyond its release, in the syntax of a
/// row's name: `+pending-cleared`, `,reuse=mapcount`.
pub const CHANGE: &str = "kernel.change";
/// The key of the environment that lists a kernel's patches for which no row is known. It is set if
/// no row was named for the kernel.
pub const NOT_MODELLED: &str = "kernel.not-modelled";

impl KernelRow {
    /// The row for a real kernel, its processor and its settings, and whether the row describes
    /// this very kernel.
    pub fn of_real(release: &str, environment: &BTreeMap<String, String>) -> (KernelRow, bool) {
        KernelRow::held_against(None, release, environment)
    }

    /// The row that a real kernel is compared with, and whether it describes this very kernel. A
    /// `named` row counts as the kernel's own. Otherwise it is the row of the kernel's release,
    /// with what the environment says that the kernel has beyond it ([`CHANGE`]).
    pub fn held_against(
        named: Option<&KernelRow>,
        release: &str,
        environment: &BTreeMap<String, String>,
    ) -> (KernelRow, bool) {
        let (row, own_row) = match named {
            Some(row) => (row.clone(), true),
            None => {
                let (row, own_row) = KernelRow::of_release(release);
                match environment.get(CHANGE) {
                    Some(change) if own_row => (row.with_change(change), true),
                    _ => (row, own_row),
                }
            }
        };
        (row.on_machine(environment), own_row)
    }

    /// The row with what a kernel has beyond its release; the unchanged row if it cannot have that.
    #[must_use]
    pub fn with_change(self, change: &str) -> KernelRow {
        KernelRow::parse(&format!("{}{change}", self.name)).unwrap_or(self)
    }

    /// The row with the properties that the machine decides, unless the row's name sets them.
    fn on_machine(self, environment: &BTreeMap<String, String>) -> KernelRow {
        let says = |name, value| environment.get(name).is_some_and(|found| found == value);
        let named = self.name.clone();
        let open = |option: &str| !named.split(',').any(|part| part.starts_with(option));
        let mut row = self;
        if says("machine", "aarch64") {
            // QEMU has two processors. No file says whether the hardware sets the accessed and the
            // dirty bit.
            let part = environment.get("cpu.CPU-part").map(String::as_str);
            row = row.on_arm64(if part == Some("0xd08") { "cortex-a72" } else { "max" });
        } else if open("la57=") {
            row = row.on_la57(says("cpu.flag.la57", "yes"));
        }
        let generations = environment.get("vm.lru_gen").map(|on| on.trim_start_matches("0x"));
        let mglru = generations.is_some_and(|on| on.chars().any(|digit| digit != '0'));
        if open("mglru=") && !mglru {
            row = row.without_mglru();
        }
        if open("soft-dirty=") && says("config.MEM_SOFT_DIRTY", "n") {
            row = row.without_soft_dirty();
        }
        row
    }

    /// The row for a scenario on this machine. If the scenario does not set huge pages, the row has
    /// the machine's own setting (`6.12,thp=always`). If the scenario can have huge pages, the row
    /// says how the processor caches them.
    #[must_use]
    pub fn for_scenario(
        mut self,
        program: &Program,
        environment: &BTreeMap<String, String>,
    ) -> KernelRow {
        let named = |option: &str| self.name.split(',').any(|o| o.starts_with(option));
        let said = program.machine.thp.is_some() || named("thp=");
        let sizes_said = program.machine.mthp.is_some() || named("mthp=");
        let held = environment.get(HUGE_TLB).filter(|_| !named("huge-tlb="));
        let own = environment.get("thp.enabled").and_then(|word| ThpMode::named(word));
        if let Some(mode) = own.filter(|mode| !said && *mode != self.config.thp) {
            self.name = format!("{},thp={}", self.name, mode.word());
            self.config.thp = mode;
        }
        if held.is_some_and(|held| held == PIECES) && self.config.for_program(program).huge_pages {
            self.name += ",huge-tlb=pieces";
            self.config.tlb_pieces = true;
        }
        let sizes = own_sizes(environment);
        if !sizes_said && sizes != self.config.mthp {
            self.name = format!("{},mthp={}", self.name, sizes.notation());
            self.config.mthp = sizes;
        }
        self
    }

    /// The row on a processor with 5-level page tables (`6.12,la57=on`) or without them.
    fn on_la57(mut self, la57: bool) -> KernelRow {
        if la57 && !self.config.la57 {
            self.name += ",la57=on";
        }
        self.config.la57 = la57;
        self
    }

    /// The row on arm64, `6.12/arm64,cpu=max`, unless it is one already.
    #[must_use]
    pub fn on_arm64(mut self, processor: &str) -> KernelRow {
        if self.config.other.is_none() {
            let (kernel, options) = self.name.split_once(',').unwrap_or((&self.name, ""));
            let comma = if options.is_empty() { "" } else { "," };
            let (series, added) = kernel.split_at(kernel.find('+').unwrap_or(kernel.len()));
            self.name = format!("{series}/arm64{added},cpu={processor}{comma}{options}");
            let arch = if processor == "cortex-a72" { ARM64_A72 } else { ARM64 };
            self.config.set_other(Some(arch));
        }
        self
    }

    /// The row with multi-generational LRU off, `6.18,mglru=off`.
    fn without_mglru(mut self) -> KernelRow {
        if std::mem::replace(&mut self.config.mglru, false) {
            self.name += ",mglru=off";
        }
        self
    }

    /// The row without soft-dirty bits, `6.18,soft-dirty=off`.
    fn without_soft_dirty(mut self) -> KernelRow {
        if std::mem::replace(&mut self.config.soft_dirty, false) {
            self.name += ",soft-dirty=off";
        }
        self
    }

    /// The row for a release like `6.18.44-amd64`, and whether it describes this very kernel. A
    /// release that names no stable release counts as the newest of its series: `6.12/arm64`, the
    /// target of a kernel that is not booted yet, and `6.1.0-56-amd64`, in which Debian writes 0.
    pub fn of_release(release: &str) -> (KernelRow, bool) {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().and_then(|number| number.parse().ok());
        let (major, minor) = (next().unwrap_or(0), next().unwrap_or(0));
        let stable = next().filter(|patch| *patch != 0 || !release.contains('-'));
        let (row, own) = nearest((major, minor));
        match stable {
            Some(patch) if own && !stable::is_newest(row.release, patch) => {
                (KernelRow::of_patch(row, patch), own)
            }
            _ => (KernelRow::from_table(row, None), own),
        }
    }

    /// The row of release `major.minor`, or the nearest older one (the oldest row if none is
    /// older), and whether the release has this row of its own.
    pub fn nearest(major: u32, minor: u32) -> (KernelRow, bool) {
        let (row, own) = nearest((major, minor));
        (KernelRow::from_table(row, None), own)
    }
}

/// The machine's modes of large folios, by size.
fn own_sizes(environment: &BTreeMap<String, String>) -> Mthp {
    Mthp::SIZES.into_iter().fold(Mthp::default(), |sizes, size| {
        let own = size.strip_suffix("KiB").and_then(|kib| environment.get(&format!("thp.{kib}kB")));
        let mode = own.and_then(|word| MthpMode::named(word));
        mode.and_then(|mode| sizes.with(size, mode)).unwrap_or(sizes)
    })
}

/// The table's row of a release, or the nearest older one (the oldest if none is older), and
/// whether the release has this row of its own.
fn nearest(release: (u32, u32)) -> (&'static Row, bool) {
    let row = ROWS.iter().rev().find(|row| row.release <= release).unwrap_or(&ROWS[0]);
    (row, row.release == release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_the_machines_where_a_scenario_says_nothing() {
        let on = |thp: Option<ThpMode>, row: &str, word: &str| {
            let mut program = crate::account::tests::program();
            program.machine.thp = thp;
            let environment = BTreeMap::from([("thp.enabled".to_owned(), word.to_owned())]);
            KernelRow::parse(row).unwrap().for_scenario(&program, &environment).name
        };
        assert_eq!(on(None, "6.12", "always"), "6.12,thp=always");
        assert_eq!(on(None, "6.12", "madvise"), "6.12");
        assert_eq!(on(Some(ThpMode::Madvise), "6.12", "always"), "6.12");
        assert_eq!(on(None, "6.12,thp=madvise", "always"), "6.12,thp=madvise");
    }

    #[test]
    fn pieces_of_huge_pages_are_the_machines_where_there_can_be_huge_pages() {
        let on = |thp: ThpMode, row: &str, held: &str| {
            let mut program = crate::account::tests::program();
            program.machine.thp = Some(thp);
            let environment = BTreeMap::from([(HUGE_TLB.to_owned(), held.to_owned())]);
            let row = KernelRow::parse(row).unwrap().for_scenario(&program, &environment);
            (row.config.tlb_pieces, row.name)
        };
        let own = (true, "6.12,huge-tlb=pieces".to_owned());
        assert_eq!(on(ThpMode::Always, "6.12", PIECES), own);
        assert!(KernelRow::parse(&own.1).unwrap().config.tlb_pieces);
        assert_eq!(on(ThpMode::Always, "6.12", "whole"), (false, "6.12".to_owned()));
        assert_eq!(on(ThpMode::Never, "6.12", PIECES), (false, "6.12".to_owned()));
        assert!(!on(ThpMode::Always, "6.12,huge-tlb=whole", PIECES).0);
    }

    #[test]
    fn sizes_of_large_folios_are_the_machines_where_a_scenario_says_nothing() {
        let on = |mthp: Option<Mthp>, row: &str| {
            let mut program = crate::account::tests::program();
            program.machine.mthp = mthp;
            let words = [("thp.64kB", "always"), ("thp.16kB", "never"), ("thp.2048kB", "inherit")];
            let environment = words.map(|(name, word)| (name.to_owned(), word.to_owned())).into();
            let row = KernelRow::parse(row).unwrap().for_scenario(&program, &environment);
            (row.config.for_program(&program).mthp.notation(), row.name)
        };
        let own = ("64KiB:always".to_owned(), "6.12,mthp=64KiB:always".to_owned());
        assert_eq!(on(None, "6.12"), own);
        assert_eq!(KernelRow::parse(&own.1).unwrap().config.mthp.notation(), own.0);
        assert_eq!(on(Some(Mthp::default()), "6.12"), (String::new(), "6.12".to_owned()));
        assert_eq!(on(None, "6.12,mthp=32KiB:always").0, "32KiB:always");
    }

    #[test]
    fn a_named_row_is_the_kernels_own_and_keeps_what_it_says() {
        let machine: BTreeMap<String, String> =
            [("cpu.flag.la57", "yes"), ("vm.lru_gen", "0x0007")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        let against = |named: &str, environment: &BTreeMap<String, String>| {
            let row = KernelRow::parse(named).ok();
            let (row, own_row) = KernelRow::held_against(row.as_ref(), "6.13.1", environment);
            (row.name, own_row)
        };
        assert_eq!(against("none", &machine), ("6.12,la57=on".to_owned(), false));
        let named = "7.3+pending-cleared";
        assert_eq!(against(named, &machine), (format!("{named},la57=on"), true));
        let said = "7.3,la57=off,mglru=on";
        assert_eq!(against(said, &machine), (said.to_owned(), true));
        assert_eq!(against(said, &BTreeMap::new()), (said.to_owned(), true));
        assert_eq!(against("7.3", &BTreeMap::new()), ("7.3,mglru=off".to_owned(), true));
    }

    #[test]
    fn a_kernel_with_a_known_change_has_the_row_of_that_change() {
        let of = |release: &str, entries: &[(&str, &str)]| {
            let all = entries.iter().chain(&[("vm.lru_gen", "0x0007")]);
            let all = all.map(|&(name, value)| (name.to_owned(), value.to_owned()));
            KernelRow::of_real(release, &all.collect())
        };
        let cleared = [(CHANGE, "+pending-cleared")];
        let (row, own_row) = of("6.12.118-pending-cleared", &cleared);
        assert_eq!((row.name.as_str(), own_row), ("6.12+pending-cleared", true));
        assert_eq!(row, KernelRow::parse("6.12+pending-cleared").unwrap());
        assert_eq!(of("6.12.90-mine", &cleared).0.name, "6.12.90+pending-cleared");
        let mapcount = [(CHANGE, ",reuse=mapcount")];
        let (row, _) = of("5.10.262-mine", &mapcount);
        assert_eq!(row.policies, KernelRow::parse("5.10,reuse=mapcount").unwrap().policies);
        let arm64 = [(CHANGE, "+fork-young"), ("machine", "aarch64"), ("cpu.CPU-part", "0xd08")];
        assert_eq!(of("6.12.118", &arm64).0.name, "6.12/arm64+fork-young,cpu=cortex-a72");
        // 6.13 has no row of its own, so the change does not apply to the nearest row. A named row
        // is not changed either.
        assert_eq!(of("6.13.1", &cleared).0.name, "6.12");
        let named = KernelRow::parse("6.12").unwrap();
        let environment = BTreeMap::from([(CHANGE.to_owned(), "+pending-cleared".to_owned())]);
        let (row, _) = KernelRow::held_against(Some(&named), "6.12.118", &environment);
        assert_eq!(row.policies, named.policies);
        // A change that the row cannot have is ignored.
        assert_eq!(of("6.12.118", &[(CHANGE, "+nothing")]).0.name, "6.12");
    }

    #[test]
    fn a_stable_release_has_what_it_took_in_so_far() {
        use crate::policy::{HugeCold, LazyfreeHuge};
        let of = |release: &str| {
            let (row, own) = KernelRow::of_release(release);
            assert_eq!(own, !release.starts_with("6.13"), "{release}");
            (row.name, row.policies.huge_cold, row.policies.lazyfree_huge)
        };
        let row = |name: &str, cold, lazyfree| (name.to_owned(), cold, lazyfree);
        let newest = row("6.12", HugeCold::Clear, LazyfreeHuge::Split);
        assert_eq!(of("6.12.117+deb13-cloud-amd64"), newest);
        assert_eq!(of("6.13.1"), newest);
        let older = row("6.12.116", HugeCold::Invalidate, LazyfreeHuge::WholeOrSplit);
        assert_eq!(of("6.12.116+deb13-cloud-amd64"), older);
        assert_eq!(of("7.3.3"), row("7.3.3", HugeCold::Invalidate, LazyfreeHuge::Split));
        assert_eq!(of("7.2.12").0, "7.2");
        assert_eq!(of("6.1.0-56-cloud-amd64").0, "6.1");
        assert_eq!(of("5.10.0-46-amd64").0, "5.10");
        // The targets of kernels that are not booted yet name the series alone.
        assert_eq!(of("6.12/arm64"), newest);
        assert_eq!(of("6.12"), newest);
        assert_eq!(of("7.3").0, "7.3");
    }
}
