//! The kernels and machines that random scenarios are drawn for.

use strum::{Display, EnumString};

/// Features that a kernel of any release may have been built without, or that a machine may lack.
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
    /// All of these features.
    pub const ALL: [Optional; 4] =
        [Optional::SoftDirty, Optional::HugePages, Optional::Userfaultfd, Optional::Nodes];
}

/// A kernel and a machine. A seed has one scenario for each target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kernel's series. Operations that came later are not drawn.
    pub release: (u32, u32),
    /// The number of CPUs that a scenario can have.
    pub cpus: usize,
    /// The features that the target lacks.
    pub without: Vec<Optional>,
}

impl Target {
    /// A kernel with everything that its release can have.
    pub const fn new(release: (u32, u32), cpus: usize) -> Target {
        Target { release, cpus, without: Vec::new() }
    }

    /// Whether the target has `feature`.
    pub(super) fn has(&self, feature: Optional) -> bool {
        !self.without.contains(&feature)
    }
}
