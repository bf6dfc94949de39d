//! Features that kernels have only from some release on, with their names in messages about a
//! kernel (real or modelled) that lacks them.

use crate::call::{Call, Refs};
use crate::kernels::{Config, KernelRow};
use crate::policy::{
    Collapse, GuardRegions, Policies, Populate, UffdFeatures, UffdShared, VectoredAdvice,
};
use crate::program::Advice;
use crate::userfaultfd::{Answer, Fill};

/// A feature that scenarios use and that a kernel may lack.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The advice `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
    Populate,
    /// The advice `MADV_COLLAPSE`.
    Collapse,
    /// Huge pages of any kind.
    HugePages,
    /// The advice `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`.
    Guards,
    /// `process_madvise` of a process about itself with any advice.
    AdviceOfRanges,
    /// The `process_madvise` system call.
    ProcessMadvise,
    /// The `userfaultfd` system call.
    Userfaultfd,
    /// Write protection by userfaultfd.
    UffdProtect,
    /// Write protection of empty entries in private memory, by markers.
    UffdUnpopulated,
    /// Write protection in asynchronous mode: the kernel notes stores by itself.
    UffdAsync,
    /// Faults on pages that a file has in memory but that are not mapped (minor mode).
    UffdMinor,
    /// Write protection of shared memory by userfaultfd.
    UffdProtectShared,
    /// The ioctl `UFFDIO_CONTINUE`.
    UffdContinue,
    /// The ioctl `UFFDIO_POISON`.
    UffdPoison,
    /// The ioctl `UFFDIO_MOVE`.
    UffdMove,
    /// The ioctl `PAGEMAP_SCAN`.
    PagemapScan,
    /// Soft-dirty bits.
    SoftDirty,
}

impl Feature {
    /// The name of the call or option, and the first kernel that has it.
    pub const fn words(self) -> &'static str {
        match self {
            Feature::Populate => {
                "MADV_POPULATE_READ and MADV_POPULATE_WRITE (5.14 and later have them)"
            }
            Feature::Collapse => "MADV_COLLAPSE (6.1 and later have it)",
            Feature::HugePages => "transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)",
            Feature::Guards => {
                "MADV_GUARD_INSTALL and MADV_GUARD_REMOVE (6.13 and later have them, for files 6.15 and later)"
            }
            Feature::AdviceOfRanges => {
                "process_madvise with this advice (6.13 and later take any advice from a process about itself, 5.10 and later cold and pageout, 6.1 and later also collapse)"
            }
            Feature::ProcessMadvise => "process_madvise (5.10 and later have it)",
            Feature::Userfaultfd => "userfaultfd (CONFIG_USERFAULTFD)",
            Feature::UffdProtect => "UFFD_FEATURE_PAGEFAULT_FLAG_WP (5.7 and later have it)",
            Feature::UffdUnpopulated => "UFFD_FEATURE_WP_UNPOPULATED (6.4 and later have it)",
            Feature::UffdAsync => "UFFD_FEATURE_WP_ASYNC (6.7 and later have it)",
            Feature::UffdMinor => {
                "UFFDIO_REGISTER_MODE_MINOR for shared memory (UFFD_FEATURE_MINOR_SHMEM; 5.14 and later have it)"
            }
            Feature::UffdProtectShared => {
                "UFFDIO_REGISTER_MODE_WP for shared memory (UFFD_FEATURE_WP_HUGETLBFS_SHMEM; 5.19 and later have it)"
            }
            Feature::UffdContinue => "UFFDIO_CONTINUE for shared memory (5.14 and later have it)",
            Feature::UffdPoison => "UFFDIO_POISON (6.6 and later have it)",
            Feature::UffdMove => "UFFDIO_MOVE (6.8 and later have it)",
            Feature::PagemapScan => "PAGEMAP_SCAN (6.7 and later have it)",
            Feature::SoftDirty => "soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)",
        }
    }

    /// The oldest row that has the feature, if rows decide it and not the configuration.
    pub fn oldest_row(self) -> Option<String> {
        let has = |row: &KernelRow| !self.lacks(&row.policies, &row.config);
        KernelRow::all().into_iter().find(has).map(|row| row.name)
    }

    /// What a user can do if a modelled kernel lacks the feature.
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

    /// Whether a kernel with these policies and this configuration lacks the feature.
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
    /// The feature that a modelled kernel lacks, if it refuses the call for that reason.
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
