//! What random scenarios are drawn for.

use strum::{Display, EnumString};

/// What a kernel may have been built without, or its machine lack, whatever its release.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Optional {
    /// Soft-dirty bits (`CONFIG_MEM_SOFT_DIRTY`).
    SoftDirty,
    /// Transparent huge pages (`CONFIG_TRANSPARENT_HUGEPAGE`).
    HugePages,
    /// userfaultfd (`CONFIG_USERFAULTFD`).
    Userfaultfd,
    /// Several NUMA nodes.
    Nodes,
}

impl Optional {
    /// All of them.
    pub const ALL: [Optional; 4] =
        [Optional::SoftDirty, Optional::HugePages, Optional::Userfaultfd, Optional::Nodes];
}

/// A kernel and a machine. A seed has one scenario for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kernel's series: operations that came later are not drawn.
    pub release: (u32, u32),
    /// CPUs that a scenario can have.
    pub cpus: usize,
    /// What is lacking.
    pub without: Vec<Optional>,
}

impl Target {
    /// A kernel with everything that its release can have.
    pub const fn new(release: (u32, u32), cpus: usize) -> Target {
        Target { release, cpus, without: Vec::new() }
    }

    /// Whether it has `feature`.
    pub(super) fn has(&self, feature: Optional) -> bool {
        !self.without.contains(&feature)
    }
}
