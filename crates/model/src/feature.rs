//! What kernels have from some release on: how it is named where a kernel lacks it, a real one or one of the model.

use crate::call::{Call, Refs};
use crate::kernels::{Config, KernelRow};
use crate::policy::{
    Collapse, GuardRegions, Policies, Populate, UffdFeatures, UffdShared, VectoredAdvice,
};
use crate::program::Advice;
use crate::userfaultfd::{Answer, Fill};

/// What a kernel may lack that scenarios ask for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// `MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`
    Populate,
    /// `MADV_COLLAPSE`
    Collapse,
    /// Huge pages of any kind.
    HugePages,
    /// `MADV_GUARD_INSTALL`, `MADV_GUARD_REMOVE`
    Guards,
    /// `process_madvise` of a process about itself, with any advice.
    AdviceOfRanges,
    /// `process_madvise`
    ProcessMadvise,
    /// userfaultfd
    Userfaultfd,
    /// Protection from stores by userfaultfd.
    UffdProtect,
    /// Markers in private memory.
    UffdUnpopulated,
    /// Stores that the kernel notes by itself.
    UffdAsync,
    /// Pages that a file has and that are not mapped.
    UffdMinor,
    /// Protection of shared memory from stores.
    UffdProtectShared,
    /// `UFFDIO_CONTINUE`
    UffdContinue,
    /// `UFFDIO_POISON`
    UffdPoison,
    /// `UFFDIO_MOVE`
    UffdMove,
    /// `PAGEMAP_SCAN`
    PagemapScan,
    /// Soft-dirty bits.
    SoftDirty,
}

impl Feature {
    /// The call or option by its name, and the first kernel that has it.
    pub const fn words(self) -> &'static str {
        match self {
            Feature::Populate => {
                "MADV_POPULATE_READ and MADV_POPULATE_WRITE (5.14 and later have them)"
            }
            Feature::Collapse => "MADV_COLLAPSE (6.1 and later have it)",
            Feature::HugePages => "transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)",
            Feature::Guards => {
                "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE (6.13 and later have them, of files 6.15)"
            }
            Feature::AdviceOfRanges => {
                "process_madvise with this advice (6.13 and later have all of it for a process itself, 5.10 and later cold and pageout, 6.1 and later collapse)"
            }
            Feature::ProcessMadvise => "process_madvise (5.10 and later have it)",
            Feature::Userfaultfd => "userfaultfd (CONFIG_USERFAULTFD)",
            Feature::UffdProtect => "UFFD_FEATURE_PAGEFAULT_FLAG_WP (5.7 and later have it)",
            Feature::UffdUnpopulated => "UFFD_FEATURE_WP_UNPOPULATED (6.4 and later have it)",
            Feature::UffdAsync => "UFFD_FEATURE_WP_ASYNC (6.7 and later have it)",
            Feature::UffdMinor => {
                "UFFDIO_REGISTER_MODE_MINOR of shared memory (UFFD_FEATURE_MINOR_SHMEM; 5.14 and later have it)"
            }
            Feature::UffdProtectShared => {
                "UFFDIO_REGISTER_MODE_WP of shared memory (UFFD_FEATURE_WP_HUGETLBFS_SHMEM; 5.19 and later have it)"
            }
            Feature::UffdContinue => "UFFDIO_CONTINUE of shared memory (5.14 and later have it)",
            Feature::UffdPoison => "UFFDIO_POISON (6.6 and later have it)",
            Feature::UffdMove => "UFFDIO_MOVE (6.8 and later have it)",
            Feature::PagemapScan => "PAGEMAP_SCAN (6.7 and later have it)",
            Feature::SoftDirty => "soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)",
        }
    }

    /// The oldest series of the model that has it, if it is not its configuration that decides.
    pub fn oldest_row(self) -> Option<String> {
        let has = |row: &KernelRow| !self.lacks(&row.policies, &row.config);
        KernelRow::all().into_iter().find(has).map(|row| row.name)
    }

    /// What may be done where a kernel of the model lacks it.
    pub fn remedy(self) -> String {
        match self {
            Feature::SoftDirty => "leave out soft-dirty=off".to_owned(),
            _ => match self.oldest_row() {
                Some(row) => {
                    format!(
                        "{row} is the oldest row that has it (-t model:{row}); or leave the operation out"
                    )
                }
                None => "leave the operation out".to_owned(),
            },
        }
    }

    /// Whether a kernel by these policies lacks it.
    fn lacks(self, policies: &Policies, config: &Config) -> bool {
        let before_async = policies.uffd_features != UffdFeatures::Asynchronous;
        match self {
            Feature::Populate => policies.populate == Populate::No,
            Feature::Collapse => policies.collapse == Collapse::None,
            Feature::Guards => policies.guard_regions == GuardRegions::None,
            Feature::AdviceOfRanges => policies.vectored_advice != VectoredAdvice::OneCall,
            Feature::ProcessMadvise => policies.vectored_advice == VectoredAdvice::None,
            Feature::UffdUnpopulated => policies.uffd_features == UffdFeatures::WriteProtect,
            // No row lies between 6.4 and 6.8.
            Feature::UffdAsync | Feature::UffdPoison | Feature::UffdMove | Feature::PagemapScan => {
                before_async
            }
            Feature::UffdMinor | Feature::UffdContinue => {
                policies.uffd_shared == UffdShared::Missing
            }
            Feature::UffdProtectShared => policies.uffd_shared != UffdShared::All,
            Feature::SoftDirty => !config.soft_dirty,
            Feature::HugePages | Feature::Userfaultfd | Feature::UffdProtect => false,
        }
    }
}

impl Call {
    /// What a kernel of the model lacks, if that is why it refuses the call.
    pub fn lacks(&self, policies: &Policies, config: &Config) -> Option<Feature> {
        let asked: &[Feature] = match *self {
            Call::Advise { advice: Advice::PopulateRead | Advice::PopulateWrite, .. } => {
                &[Feature::Populate]
            }
            Call::Advise { advice: Advice::Collapse, .. } => &[Feature::Collapse],
            Call::Advise { advice: Advice::GuardInstall | Advice::GuardRemove, .. } => {
                &[Feature::Guards]
            }
            Call::AdviseRanges { advice: Advice::Cold | Advice::PageOut, .. } => {
                &[Feature::ProcessMadvise]
            }
            Call::AdviseRanges { advice: Advice::Collapse, .. } => {
                &[Feature::ProcessMadvise, Feature::Collapse]
            }
            Call::AdviseRanges { .. } => &[Feature::ProcessMadvise, Feature::AdviceOfRanges],
            Call::UffdRegister { registration, .. } => {
                match (registration.features.asynchronous, registration.features.unpopulated) {
                    (true, _) => &[Feature::UffdAsync],
                    (false, true) => &[Feature::UffdUnpopulated],
                    (false, false) => match registration.mode {
                        mode if mode.minor && mode.write_protect => {
                            &[Feature::UffdMinor, Feature::UffdProtectShared]
                        }
                        mode if mode.minor => &[Feature::UffdMinor],
                        mode if mode.write_protect => &[Feature::UffdProtectShared],
                        _ => &[],
                    },
                }
            }
            Call::UffdFill { how: Fill::Continue, .. } => &[Feature::UffdContinue],
            Call::UffdFill { how: Fill::Poison, .. } => &[Feature::UffdPoison],
            Call::UffdMove { .. } | Call::UffdAnswer { answer: Answer::Move { .. } } => {
                &[Feature::UffdMove]
            }
            Call::PagemapScan { .. } => &[Feature::PagemapScan],
            Call::Pagemap { .. } | Call::ClearRefs { refs: Refs::SoftDirty } => {
                &[Feature::SoftDirty]
            }
            _ => &[],
        };
        asked.iter().copied().find(|feature| feature.lacks(policies, config))
    }
}
