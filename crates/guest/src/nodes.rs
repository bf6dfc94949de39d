//! The NUMA nodes of a guest: `nodes=2`, or each node by itself,
//! `nodes=1G+1G:latency=40:bandwidth=5G`.
//!
//! A node is described by its memory, and then by options with a colon in front of each: `cpus=N`,
//! `distance=N`, `latency=NS`, `bandwidth=SIZE`. If a node has a latency or bandwidth, the guest's
//! firmware has an HMAT. Kernels since 6.12 at the latest make memory tiers from it
//! (mm/memory-tiers.c:mt_perf_to_adistance).

use needless_model::numa::share;
use needless_model::program::MachineNeeds;
use std::fmt;

/// The most nodes of a guest.
pub const MOST_NODES: u16 = 8;

/// The latency and bandwidth of node 0, and of nodes without figures of their own: nanoseconds, and
/// MiB per second.
const FAST: (u32, u32) = (10, 10 * 1024);
/// The default latency and bandwidth of slower memory: nanoseconds, and MiB per second.
const SLOW: (u32, u32) = (40, 5 * 1024);
/// The default distance between two nodes. (The distance of a node to itself is 10; ACPI 6.5,
/// 5.2.17.)
const FAR: u8 = 20;

/// The NUMA nodes of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// The nodes that the scenario asks for (`machine { nodes 2 slow=1 }`); one if it asks for
    /// none.
    #[default]
    AsAsked,
    /// This number of nodes. CPUs and memory are divided evenly among them.
    Even(u16),
    /// The nodes as described one by one.
    Each(Vec<Node>),
}

/// The description of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its memory, in MiB.
    pub memory_mib: u32,
    /// The number of its CPUs out of all the guest's CPUs, including the extra one. By default the
    /// first node has all remaining CPUs, and other nodes have none.
    pub cpus: Option<u16>,
    /// Its distance from node 0.
    pub distance: Option<u8>,
    /// The duration of an access from node 0's CPUs, in nanoseconds.
    pub latency_ns: Option<u32>,
    /// The amount that node 0's CPUs can read or write, in MiB per second.
    pub bandwidth_mib: Option<u32>,
}

impl Node {
    /// A node without CPUs, whose memory is slower than that of nodes with CPUs.
    fn slow(memory_mib: u32) -> Node {
        let (latency, bandwidth) = SLOW;
        Node {
            memory_mib,
            cpus: Some(0),
            latency_ns: Some(latency),
            bandwidth_mib: Some(bandwidth),
            ..Node::default()
        }
    }

    fn has_figures(&self) -> bool {
        self.latency_ns.is_some() || self.bandwidth_mib.is_some()
    }
}

impl Nodes {
    /// Reads the value of `nodes=`.
    pub(crate) fn parse(text: &str) -> Result<Nodes, String> {
        if let Ok(count) = text.parse() {
            return match (1..=MOST_NODES).contains(&count) {
                true => Ok(Nodes::Even(count)),
                false => Err(format!("nodes is a number from 1 to {MOST_NODES}")),
            };
        }
        let nodes = text.split('+').map(node).collect::<Result<Vec<Node>, String>>()?;
        match nodes.len() <= usize::from(MOST_NODES) {
            true => Ok(Nodes::Each(nodes)),
            false => Err(format!("a guest has at most {MOST_NODES} nodes")),
        }
    }

    /// The nodes of a guest for a scenario. If the target names its nodes, these are used.
    pub fn for_needs(&self, needs: &MachineNeeds, memory_mib: u32, cpus: u16) -> Nodes {
        match (self, needs.nodes.unwrap_or(1)) {
            (Nodes::AsAsked, 1) => Nodes::Even(1),
            (Nodes::AsAsked, count) => {
                let slow = needs.numa.slow;
                let fast = (count - slow).max(1);
                let node = |at: u16| {
                    let memory = share(memory_mib, at, count);
                    match at < fast {
                        true => {
                            let cpus = share(u32::from(cpus) + 1, at, fast) as u16;
                            Node { memory_mib: memory, cpus: Some(cpus), ..Node::default() }
                        }
                        false => Node::slow(memory),
                    }
                };
                Nodes::Each((0..count).map(node).collect())
            }
            (said, _) => said.clone(),
        }
    }

    /// The number of nodes.
    pub fn count(&self) -> u16 {
        match self {
            Nodes::AsAsked => 1,
            Nodes::Even(count) => *count,
            Nodes::Each(nodes) => nodes.len() as u16,
        }
    }

    /// The number of nodes with slower memory and without CPUs.
    pub fn slow(&self) -> u16 {
        let Nodes::Each(nodes) = self else { return 0 };
        let slow = |node: &&Node| node.cpus.unwrap_or(0) == 0 && node.has_figures();
        nodes.iter().skip(1).filter(slow).count() as u16
    }

    /// The memory of all nodes together, if the nodes say it.
    pub fn memory_mib(&self) -> Option<u32> {
        let Nodes::Each(nodes) = self else { return None };
        Some(nodes.iter().map(|node| node.memory_mib).sum())
    }

    /// Checks that the nodes fit a guest with this number of CPUs for scenarios.
    pub(crate) fn check(&self, cpus: u16) -> Result<(), String> {
        match self {
            Nodes::Even(count) if *count > cpus => Err("there are more nodes than CPUs: give each node's memory, as in nodes=1G+1G, for nodes without CPUs".to_owned()),
            Nodes::Each(nodes) => {
                let rest = |node: &&Node| node.cpus.is_none();
                let named: u16 = nodes.iter().filter_map(|node| node.cpus).sum();
                let all = cpus + 1;
                let first = nodes.first().is_some_and(|node| rest(&node));
                match named.cmp(&all) {
                    std::cmp::Ordering::Greater => Err(format!("the nodes have {named} CPUs, but the guest has {all} (cpus={cpus}, and one for the rest)")),
                    std::cmp::Ordering::Equal if first => Err("no CPU is left for node 0".to_owned()),
                    std::cmp::Ordering::Less if !first => Err(format!("the nodes have {named} CPUs, but the guest has {all} (cpus={cpus}, and one for the rest): leave out cpus= of the first node, which then has the others")),
                    _ if nodes[0].cpus == Some(0) => Err("node 0 needs a CPU".to_owned()),
                    _ => Ok(()),
                }
            }
            Nodes::AsAsked | Nodes::Even(_) => Ok(()),
        }
    }

    /// QEMU's options for the nodes.
    pub(crate) fn command(&self, memory_mib: u32, cpus: u16) -> Vec<String> {
        let all = u32::from(cpus) + 1;
        let nodes: Vec<Node> = match self {
            Nodes::AsAsked | Nodes::Even(1) => return Vec::new(),
            Nodes::Even(count) => {
                let node = |at| Node {
                    memory_mib: share(memory_mib, at, *count),
                    cpus: Some(share(all, at, *count) as u16),
                    ..Node::default()
                };
                (0..*count).map(node).collect()
            }
            Nodes::Each(nodes) => nodes.clone(),
        };
        let named: u32 = nodes.iter().map(|node| u32::from(node.cpus.unwrap_or(0))).sum();
        let mut words = Words(Vec::new());
        let hmat = nodes.iter().any(Node::has_figures);
        if hmat {
            words.add("-machine", "hmat=on".to_owned());
        }
        let mut next = 0;
        for (at, node) in nodes.iter().enumerate() {
            let count = node.cpus.map_or(if at == 0 { all - named } else { 0 }, u32::from);
            let cpus = match count {
                0 if hmat => ",initiator=0".to_owned(),
                0 => String::new(),
                count => format!(",cpus={next}-{}", next + count - 1),
            };
            next += count;
            let size = node.memory_mib;
            words.add("-object", format!("memory-backend-ram,id=m{at},size={size}M"));
            words.add("-numa", format!("node,nodeid={at}{cpus},memdev=m{at}"));
        }
        words.distances(&nodes);
        if hmat {
            words.figures(&nodes);
        }
        words.0
    }
}

/// Options of QEMU's command line.
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, option: &str, value: String) {
        self.0.extend([option.to_owned(), value]);
    }

    /// Adds the distances. The distance of two nodes is that of the farther one from node 0.
    fn distances(&mut self, nodes: &[Node]) {
        if nodes.iter().all(|node| node.distance.is_none() && !node.has_figures()) {
            return;
        }
        let distance = |node: &Node| node.distance.unwrap_or(FAR);
        for (to, node) in nodes.iter().enumerate() {
            for (from, nearer) in nodes[..to].iter().enumerate() {
                let far =
                    if from == 0 { distance(node) } else { distance(node).max(distance(nearer)) };
                self.add("-numa", format!("dist,src={from},dst={to},val={far}"));
            }
        }
    }

    /// Adds latency and bandwidth, as seen from node 0's CPUs.
    fn figures(&mut self, nodes: &[Node]) {
        for (at, node) in nodes.iter().enumerate() {
            let latency = node.latency_ns.unwrap_or(FAST.0);
            let bandwidth = node.bandwidth_mib.unwrap_or(FAST.1);
            let of = format!("hmat-lb,initiator=0,target={at},hierarchy=memory");
            self.add("-numa", format!("{of},data-type=access-latency,latency={latency}"));
            self.add("-numa", format!("{of},data-type=access-bandwidth,bandwidth={bandwidth}M"));
        }
    }
}

fn node(text: &str) -> Result<Node, String> {
    let mut parts = text.split(':');
    let memory = parts.next().unwrap_or_default();
    let memory_mib = size(memory).filter(|mib| (16..=1 << 20).contains(mib)).ok_or_else(|| {
        format!("`{memory}` is no node's memory: write nodes=2, or each node's, as in nodes=1G+1G:latency=40:bandwidth=5G")
    })?;
    let mut node = Node { memory_mib, ..Node::default() };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("`{part}` of a node has no value"));
        };
        match name {
            "cpus" => node.cpus = Some(number(name, value, 0, 64)? as u16),
            "distance" => node.distance = Some(number(name, value, 11, 254)? as u8),
            "latency" => node.latency_ns = Some(number(name, value, 1, 60_000)?),
            "bandwidth" => {
                let mib = size(value).filter(|mib| (1..=1 << 22).contains(mib));
                let wrong = || "bandwidth is a size per second, as in 5G".to_owned();
                node.bandwidth_mib = Some(mib.ok_or_else(wrong)?);
            }
            _ => {
                return Err(format!(
                    "a node has no `{name}`: it has cpus=, distance=, latency= (ns) and bandwidth= (as in 5G)"
                ));
            }
        }
    }
    Ok(node)
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{name} of a node is a number from {least} to {most}"))
}

/// Reads a size such as `512M` or `2G`, in MiB.
pub(crate) fn size(text: &str) -> Option<u32> {
    let unit = match text.chars().last()? {
        'M' | 'm' => 1,
        'G' | 'g' => 1024,
        _ => return None,
    };
    text[..text.len() - 1].parse::<u32>().ok()?.checked_mul(unit)
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nodes::AsAsked => Ok(()),
            Nodes::Even(count) => count.fmt(f),
            Nodes::Each(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(Node::to_string).collect();
                f.write_str(&nodes.join("+"))
            }
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.memory_mib)?;
        if let Some(cpus) = self.cpus {
            write!(f, ":cpus={cpus}")?;
        }
        if let Some(distance) = self.distance {
            write!(f, ":distance={distance}")?;
        }
        if let Some(latency) = self.latency_ns {
            write!(f, ":latency={latency}")?;
        }
        match self.bandwidth_mib {
            Some(bandwidth) => write!(f, ":bandwidth={bandwidth}M"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use needless_model::numa::NumaNeeds;

    fn read(text: &str) -> Nodes {
        Nodes::parse(text).unwrap()
    }

    #[test]
    fn nodes_share_everything_out() {
        let words = Nodes::Even(2).command(1001, 3).join(" ");
        assert!(words.contains("cpus=0-1") && words.contains("cpus=2-3"), "{words}");
        assert!(words.contains("size=500M") && words.contains("size=501M"), "{words}");
        assert!(!words.contains("hmat") && !words.contains("dist"), "{words}");
        assert!(Nodes::Even(1).command(1024, 2).is_empty());
        assert!(Nodes::AsAsked.command(1024, 2).is_empty());
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "2",
            "512M+512M",
            "1024M:cpus=2+512M:cpus=1:distance=30+2048M:latency=40:bandwidth=5120M",
        ] {
            assert_eq!(read(text).to_string(), text);
        }
        assert_eq!(read("1G+2G:bandwidth=5G").to_string(), "1024M+2048M:bandwidth=5120M");
    }

    #[test]
    fn slower_memory_has_no_cpus_and_figures_of_its_own() {
        let nodes = read("512M+512M:latency=40");
        let words = nodes.command(1024, 2).join(" ");
        for part in [
            "-machine hmat=on",
            "node,nodeid=0,cpus=0-2,memdev=m0",
            "node,nodeid=1,initiator=0,memdev=m1",
            "dist,src=0,dst=1,val=20",
            "target=0,hierarchy=memory,data-type=access-latency,latency=10",
            "target=1,hierarchy=memory,data-type=access-latency,latency=40",
            "target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=10240M",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert_eq!((nodes.count(), nodes.slow(), nodes.memory_mib()), (2, 1, Some(1024)));
    }

    #[test]
    fn a_scenario_gets_the_nodes_that_it_asks_for() {
        let numa = NumaNeeds { slow: 1, ..NumaNeeds::default() };
        let needs = MachineNeeds { nodes: Some(3), numa, ..MachineNeeds::default() };
        let nodes = Nodes::AsAsked.for_needs(&needs, 1024, 2);
        assert_eq!(
            nodes.to_string(),
            "341M:cpus=1+341M:cpus=2+342M:cpus=0:latency=40:bandwidth=5120M"
        );
        assert_eq!(nodes.check(2), Ok(()));
        assert_eq!(Nodes::Even(1).for_needs(&needs, 1024, 2), Nodes::Even(1), "the target decides");
        assert_eq!(Nodes::AsAsked.for_needs(&MachineNeeds::default(), 1024, 2), Nodes::Even(1));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "0",
            "9",
            "",
            "1",
            "1T+1G",
            "1G+",
            "1G:cpus",
            "1G:x=1",
            "1G:distance=5",
            "1G:latency=0",
            "1G+é",
        ]
        .into_iter()
        .filter(|text| *text != "1")
        {
            assert!(Nodes::parse(text).is_err(), "{text}");
        }
        let refused = |text: &str| read(text).check(2).unwrap_err();
        assert!(refused("4").contains("more nodes than CPUs"));
        assert!(refused("1G:cpus=2+1G:cpus=2").contains("4 CPUs"));
        assert!(refused("1G:cpus=1+1G:cpus=1").contains("leave out cpus="));
        assert!(refused("1G:cpus=0+1G:cpus=3").contains("node 0"));
        assert!(refused("1G+1G:cpus=3").contains("no CPU is left"));
    }
}
