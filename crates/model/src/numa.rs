//! NUMA in the language of scenarios: memory policies, the status of each page after a move, the
//! machine's nodes, and the kernel's settings for tiers and sampling.

use crate::addr::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The most NUMA nodes that a scenario may have.
pub const MAX_NODES: u16 = 64;

/// The share of number `at` of `of` nodes if `whole` CPUs, or units of memory, are distributed as
/// evenly as possible.
pub const fn share(whole: u32, at: u16, of: u16) -> u32 {
    let (at, of) = (at as u32, of as u32);
    whole * (at + 1) / of - whole * at / of
}

/// The node of each CPU of a machine for a scenario with `cpus` CPUs. Guests have one more CPU, for
/// everything else. Only the first `nodes` nodes have CPUs.
pub fn nodes_of_cpus(cpus: u16, nodes: u16) -> Vec<NodeId> {
    let of =
        |node| std::iter::repeat_n(NodeId(node), share(u32::from(cpus) + 1, node, nodes) as usize);
    (0..nodes).flat_map(of).collect()
}

/// A memory policy of a mapping or of a thread.
///
/// Source: include/uapi/linux/mempolicy.h (5.10 to 7.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mempolicy {
    /// `MPOL_DEFAULT`: for a mapping the thread's policy, for a thread the node of its CPU.
    Default,
    /// `MPOL_LOCAL`: the node of the CPU.
    Local,
    /// `MPOL_BIND` to one node.
    Bind(u16),
    /// `MPOL_PREFERRED` of one node.
    Preferred(u16),
    /// `MPOL_INTERLEAVE` among all nodes of the scenario.
    Interleave,
}

impl Mempolicy {
    /// The policies' words in scenarios, and whether the policy names a node.
    pub const WORDS: [(&'static str, bool); 5] = [
        ("default", false),
        ("local", false),
        ("bind", true),
        ("preferred", true),
        ("interleave", false),
    ];

    /// The policy with that word. Policies that name a node use `node`.
    pub fn named(word: &str, node: u16) -> Option<Mempolicy> {
        Some(match word {
            "default" => Mempolicy::Default,
            "local" => Mempolicy::Local,
            "bind" => Mempolicy::Bind(node),
            "preferred" => Mempolicy::Preferred(node),
            "interleave" => Mempolicy::Interleave,
            _ => return None,
        })
    }

    /// The node that the policy names, if it names one.
    pub const fn node(self) -> Option<u16> {
        match self {
            Mempolicy::Bind(node) | Mempolicy::Preferred(node) => Some(node),
            Mempolicy::Default | Mempolicy::Local | Mempolicy::Interleave => None,
        }
    }
}

/// The status that `move_pages` returns for one page: the node that it is on, or a negative error
/// number.
///
/// Source: mm/migrate.c:do_pages_move, add_page_for_migration (5.10 to 7.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageStatus(pub i32);

impl PageStatus {
    /// There is no page (`ENOENT`; `EFAULT` in 5.10 and 6.1).
    pub const ENOENT: PageStatus = PageStatus(-2);
    /// The page cannot be written to its disk (`EIO`).
    pub const EIO: PageStatus = PageStatus(-5);
    /// The target node has no memory left (`ENOMEM`).
    pub const ENOMEM: PageStatus = PageStatus(-12);
    /// Several processes map the page (`EACCES`).
    pub const EACCES: PageStatus = PageStatus(-13);
    /// The address is not mapped, or the zero page is mapped there (`EFAULT`). In 5.10 and 6.1 it
    /// also means that there is no page.
    pub const EFAULT: PageStatus = PageStatus(-14);
    /// Another user holds the page (`EBUSY`).
    pub const EBUSY: PageStatus = PageStatus(-16);

    /// The call ended before it returned a status for the page. It stops at pages that could not be
    /// moved.
    pub const UNTOLD: PageStatus = PageStatus(i32::MIN);

    const NAMES: [(&'static str, PageStatus); 7] = [
        ("?", PageStatus::UNTOLD),
        ("ENOENT", PageStatus::ENOENT),
        ("EIO", PageStatus::EIO),
        ("ENOMEM", PageStatus::ENOMEM),
        ("EACCES", PageStatus::EACCES),
        ("EFAULT", PageStatus::EFAULT),
        ("EBUSY", PageStatus::EBUSY),
    ];

    /// The status of a page that is on this node.
    pub const fn on(node: u16) -> PageStatus {
        PageStatus(node as i32)
    }
}

impl fmt::Display for PageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PageStatus::NAMES.iter().find(|(_, status)| status == self) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for PageStatus {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PageStatus, Self::Err> {
        match PageStatus::NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, status)) => Ok(*status),
            None => text.parse().map(PageStatus),
        }
    }
}

/// The kernel settings that a scenario needs. `None` leaves a setting unchanged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNeeds {
    /// How many of the nodes are slower memory without CPUs; they are the last ones.
    #[serde(default)]
    pub slow: u16,
    /// Whether reclaim may demote pages (`/sys/kernel/mm/numa/demotion_enabled`).
    #[serde(default)]
    pub demotion: Option<bool>,
    /// The mode of NUMA balancing.
    #[serde(default)]
    pub balancing: Option<Balancing>,
    /// Whether reclaim uses multi-generational LRU (`/sys/kernel/mm/lru_gen/enabled`).
    #[serde(default)]
    pub mglru: Option<bool>,
}

/// The setting `kernel.numa_balancing`.
///
/// Source: include/linux/sched/sysctl.h: NUMA_BALANCING_NORMAL, NUMA_BALANCING_MEMORY_TIERING (6.1
/// to 7.3; 5.10 has 0 and 1).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Balancing {
    /// 0: nothing is sampled.
    Off,
    /// 1: pages move to the node that uses them.
    On,
    /// 2: pages of slow nodes that are used often move to a fast node.
    Tiering,
}

impl Balancing {
    /// All modes, each with its word in scenarios.
    pub const ALL: [(&'static str, Balancing); 3] =
        [("off", Balancing::Off), ("on", Balancing::On), ("tiering", Balancing::Tiering)];

    /// The kernel's number.
    pub const fn number(self) -> &'static str {
        match self {
            Balancing::Off => "0",
            Balancing::On => "1",
            Balancing::Tiering => "2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_node_or_an_errors_name() {
        for (status, text) in [
            (PageStatus::on(0), "0"),
            (PageStatus::on(7), "7"),
            (PageStatus::EBUSY, "EBUSY"),
            (PageStatus(-95), "-95"),
        ] {
            assert_eq!(status.to_string(), text);
            assert_eq!(text.parse(), Ok(status));
        }
        assert!("EWHAT".parse::<PageStatus>().is_err());
    }

    #[test]
    fn each_word_is_a_policy_and_says_whether_it_names_a_node() {
        for (word, names) in Mempolicy::WORDS {
            let policy = Mempolicy::named(word, 3).unwrap();
            assert_eq!(policy.node(), names.then_some(3), "{word}");
        }
        assert_eq!(Mempolicy::named("weighted", 0), None);
    }
}
