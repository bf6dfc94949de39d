//! A kernel's configuration, and the parts that a guest would miss in it.

use crate::platform::Arch;
use needless_runner::needs::Part;
use std::collections::BTreeMap;

/// Options that are set, without `CONFIG_`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, char>);

impl Config {
    /// Reads the text of a `.config`. For options that are no switch, it only matters whether they
    /// are set.
    pub fn read(text: &str) -> Config {
        let option = |line: &str| {
            let (name, value) = line.trim().strip_prefix("CONFIG_")?.split_once('=')?;
            Some((name.to_owned(), value.chars().next().filter(|first| *first != 'n')?))
        };
        Config(text.lines().filter_map(option).collect())
    }

    /// `y`, `m`, or the first character of another value; `None` if the option is not set.
    pub fn value(&self, option: &str) -> Option<char> {
        self.0.get(option).copied()
    }

    /// All options that are set, in the order of their names.
    pub fn options(&self) -> impl Iterator<Item = (&str, char)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The parts that are absent if the guest loads these modules.
    pub fn absent(&self, arch: Arch, modules: &[String]) -> Vec<Part> {
        let arm = arch == Arch::Arm64;
        let brought = |part: Part| {
            let module = part.module().map(|name| format!("{name}.ko"));
            module.is_some_and(|module| modules.contains(&module))
        };
        let is_absent = |part: &Part| match self.value(part.told_by(arm)) {
            None => true,
            Some('m') => !brought(*part),
            Some(_) => false,
        };
        Part::ALL.into_iter().filter(is_absent).collect()
    }
}

/// Parts with their options, for messages.
pub fn text(parts: &[Part], arch: Arch) -> String {
    let arm = arch == Arch::Arm64;
    parts.iter().map(|part| part.text(arm)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_brought_along_is_absent() {
        let all: String = Part::ALL
            .iter()
            .flat_map(|part| [part.told_by(false), part.told_by(true)])
            .map(|option| format!("CONFIG_{option}=y\n"))
            .collect();
        let zram = "CONFIG_ZRAM=y\n";
        assert!(all.contains(zram));
        let absent = |text: &str, modules: &[&str]| {
            let modules: Vec<String> = modules.iter().map(|name| (*name).to_owned()).collect();
            Config::read(text).absent(Arch::X86_64, &modules)
        };
        assert_eq!(absent(&all, &[]), []);
        for without in ["", "# CONFIG_ZRAM is not set\n", "CONFIG_ZRAM=n\n", "CONFIG_ZRAM=m\n"] {
            assert_eq!(absent(&all.replace(zram, without), &[]), [Part::Zram], "{without}");
        }
        assert_eq!(absent(&all.replace(zram, "CONFIG_ZRAM=m\n"), &["zram.ko"]), []);
        assert_eq!(absent("", &["zram.ko"]).len(), Part::ALL.len());
        assert_eq!(
            text(&[Part::Swap, Part::Dev], Arch::Arm64),
            "swap space (CONFIG_SWAP), /dev (CONFIG_DEVTMPFS)"
        );
    }
}
