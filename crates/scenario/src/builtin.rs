//! The built-in scenarios. Their texts are compiled in, and parsed only when somebody asks for one.
//!
//! Workloads that differ only by numbers share one text. An alias names a text and the values of
//! its parameters.

use crate::{Settings, Source};

/// A built-in scenario.
#[derive(Copy, Clone, Debug)]
pub struct Builtin {
    /// The name by which [`find`] returns it.
    pub name: &'static str,
    /// The scenario's text.
    pub text: &'static str,
}

/// A further name for a built-in text, with fixed values of its parameters.
#[derive(Copy, Clone, Debug)]
pub struct Alias {
    /// The alias itself.
    pub name: &'static str,
    /// The name of the built-in text.
    pub of: &'static str,
    /// Parameters and their values.
    pub presets: &'static [(&'static str, &'static str)],
}

/// Lists built-ins by the names of their files in a folder.
macro_rules! builtins {
    ($folder:literal: $($name:literal)*) => {
        &[$(Builtin {
            name: $name,
            text: include_str!(concat!("../../../", $folder, $name, ".kdl")),
        }),*]
    };
}

/// The built-in texts that `agree` runs. Other lists have the texts of studies, the texts for
/// several nodes and the litmus tests.
pub static ALL: &[Builtin] = builtins! { "scenarios/":
    "cow-reuse" "fault-costs"
    "a_swap_rw" "a_swap_r" "a_swap_w" "a_pageout_empty" "a_pageout_zero"
    "a_zero_rw_1" "a_zero_rw" "a_dontneed_w"
    "z_mprotect" "z_munmap" "z_munmap_freept" "z_munmap_sparse"
    "z_dontneed" "z_dontneed_empty" "z_cold" "z_free" "z_mremap" "z_populate_write"
    "a_fork_exit_write" "a_fork_live_write" "d_fork_childread" "d_child_exit"
    "d_fork_childwrite" "d_fork_parentwrite" "d_fork_childlives" "d_fork_zero" "d_fork_shared"
    "d_fork_swap_write" "d_fork_swap_read" "d_fork_pending" "d_fork_exec"
    "a_privfile_rw" "a_privfile_w" "b_pf3_shm" "b_shm_read_write"
    "b_pf3_ext4" "b_ext4_read_write" "b_ext4_msync" "b_ext4_protect" "b_ext4_private" "b_ext4_fork"
    "f_around" "f_folio_read" "f_folio_write" "f_protect" "f_freept" "f_fork" "f_punch" "f_punch_fork"
    "f_write" "f_truncate" "f_punch_disk" "f_drop" "f_holes" "f_new" "f_freept_disk"
    "thp-zero" "z_thp_dontneed" "z_thp_dontneed_part" "z_thp_mprotect" "z_thp_mprotect_part" "z_thp_mremap"
    "z_thp_munmap_part" "z_thp_populate" "z_thp_split_dontneed" "z_thp_zero_rw" "z_thp_cold" "z_thp_free" "z_thp_pageout" "z_thp_collapse"
    "d_thp_fork" "d_thp_exit" "z_thp_uffd"
    "c_uffd_wp_empty" "c_uffd_wp_preread" "c_uffd_wp_poprd" "c_uffd_wp_unpop" "c_uffd_wp_async" "c_uffd_async_unpop"
    "c_softdirty" "c_uffd_sync" "c_uffd_missing" "c_uffd_swap" "c_uffd_fork" "c_uffd_mremap" "c_pagemap_scan" "c_pagemap_scan_zero"
};

/// Texts that `agree` leaves out of its built-in scenarios: texts of studies, and texts that need
/// operations which only new kernels have.
pub static OF_STUDIES: &[Builtin] = builtins! { "scenarios/": "wp-prices" "fork-touch" "fork-touch-huge" "fork-touch-shared" "track-hole-async" "track-hole-soft-dirty" "fork-server" "refs-cleared"
"fork-save" "fork-exec" "page_fault3" "scavenge" "wp-default" "wp-preread" "wp-populate" "wp-unpopulated" "uffd-snapshot" "uffd-in-turn"
"wp-empty-markers" "wp-dirty" "wp-dirty-markers" "wp-shared" "wp-shared-unpopulated" "wp-ext4"
"track-none" "track-soft-dirty" "track-uffd" "track-uffd-markers" "track-uffd-async" "track-pagemap-scan" "track-mprotect" };

/// Texts that need several NUMA nodes. `agree` leaves them out: the machine that it runs on may
/// have one.
pub static OF_NODES: &[Builtin] = builtins! { "scenarios/":
    "e_move" "e_move_read" "e_move_holes" "e_move_zero" "e_move_protect" "e_mbind" "e_move_thp"
    "e_hint" "e_hint_write" "e_hint_local"
};

/// Litmus texts, for the checker. Their threads race on purpose. The discrete order of `run` and
/// `agree` shows only one of their interleavings.
pub static LITMUS: &[Builtin] = builtins! { "scenarios/litmus/":
    "mprotect-reclaim" "munmap-reclaim" "pending-flag" "madv-nested" "mremap-move"
    "batched-pending" "pending-join" "migrate-store" "migrate-protect"
    "migrc-upgrade" "migrc-reuse" "migrc-writable" "migrc-chain" "migrc-flushing" "migrc-mprotect"
    "luf-two-mappings" "luf-window" "luf-munmap-remap" "luf-rewrite" "luf-refill"
    "luf-generations" "latr-dontneed" "latr-munmap-remap" "latr-reuse" "fpr-other-process"
    "pageout-read" "pageout-write" "swapin-race" "cow-stale" "zero-cow"
    "lazy-table-free" "lazy-wake" "asid-recycle" "gather-early-free" "gen-skip"
    "free-write" "free-write-seq" "free-drop" "protnone-reclaim" "batch-two"
    "cow-race" "zero-race" "first-touch-race" "first-read-race"
    "dontneed-table-lazy" "nested-table-lazy" "move-aged" "dontneed-aged" "move-table"
    "swap-redirty" "swap-end" "slot-twice" "mprotect-none" "store-freed" "two-pages"
    "switch-back" "switch-reclaim" "switch-table" "switch-move" "lazy-map" "switch-map"
    "cow-reclaim" "dontneed-table" "munmap-touch"
    "reclaim-refault" "refault-flag"
    "fork-isolation" "fork-vmalock" "fork-swapped" "fork-reclaim" "fork-young" "fork-first-read" "fork-dirty"
    "pin-vmsplice" "pin-store" "pin-shared" "pin-fork" "pin-fork-race" "pin-dontneed" "pin-swapped"
    "file-cow" "file-race" "file-private" "file-punch" "disk-writeback" "zap-writeback"
    "file-truncate" "file-write" "file-drop" "file-refault" "shmem-reclaim"
    "guard-nested" "ranges-touch"
    "uffd-none" "uffd-marker" "uffd-preread" "uffd-swapped" "uffd-flush" "uffd-unprotect" "uffd-async" "uffd-zap" "uffd-fork" "uffd-dirtycow" "uffd-missing" "uffd-move" "uffd-move-huge" "uffd-move-part" "uffd-moved-in" "soft-dirty-protect" "soft-dirty-flush"
    "uffd-populate" "uffd-image-read" "uffd-image-populate" "uffd-image-marker" "uffd-image-none" "uffd-async-hole" "uffd-mixed" "uffd-mixed-back" "uffd-async-table" "uffd-scan"
    "uffd-reclaimed" "uffd-migrating" "uffd-stale" "soft-dirty-stale"
    "retry-spurious" "retry-parallel" "retry-skip-ad" "retry-installed" "retry-dirty" "retry-locked" "retry-read" "retry-anon-vma" "fork-cleaned" "fork-writeback"
    "break-before-make" "huge-split" "huge-split-none" "huge-split-reclaim" "huge-zap" "huge-zap-reclaim"
    "huge-zero" "huge-fork" "huge-move"
    "huge-pageout" "huge-part" "huge-collapse" "huge-khugepaged" "huge-pin"
    "table-sync" "table-sync-away" "table-sync-early" "table-walk" "table-free"
};

/// Lists aliases: `name = text (parameter value …)`.
macro_rules! aliases {
    ($($name:literal = $of:literal ($($key:literal $value:literal),*);)*) => {
        &[$(Alias { name: $name, of: $of, presets: &[$(($key, $value)),*] }),*]
    };
}

/// All aliases. The reference captures use these names.
pub static ALIASES: &[Alias] = aliases! {
    "a_swap_rw_1" = "a_swap_rw" ("pages" "1");
    "a_swap_rw_2" = "a_swap_rw" ("pages" "2");
    "a_swap_rw_8" = "a_swap_rw" ("pages" "8");
    "a_swap_rw_64" = "a_swap_rw" ("pages" "64");
    "a_swap_rw_1_nospin" = "a_swap_rw" ("pages" "1", "spinners" "0");
    "a_swap_rw_1_lazy" = "a_swap_rw" ("pages" "1", "spinners" "0", "sleepers" "1");
    "a_swap_r_1" = "a_swap_r" ("pages" "1");
    "a_swap_r_8" = "a_swap_r" ("pages" "8");
    "a_swap_w_1" = "a_swap_w" ("pages" "1");
    "a_pageout_empty_1" = "a_pageout_empty" ("pages" "1");
    "a_pageout_zero_1" = "a_pageout_zero" ("pages" "1");
    "a_zero_rw_8" = "a_zero_rw" ("pages" "8");
    "a_dontneed_w_1" = "a_dontneed_w" ("pages" "1");
    "z_mprotect_1" = "z_mprotect" ("pages" "1");
    "z_mprotect_33" = "z_mprotect" ("pages" "33");
    "z_mprotect_34" = "z_mprotect" ("pages" "34");
    "z_mprotect_64" = "z_mprotect" ("pages" "64");
    "z_munmap_1" = "z_munmap" ("pages" "1");
    "z_munmap_33" = "z_munmap" ("pages" "33");
    "z_munmap_34" = "z_munmap" ("pages" "34");
    "z_munmap_64" = "z_munmap" ("pages" "64");
    "z_munmap_empty" = "z_munmap" ("pages" "1", "touched" "0");
    "z_munmap_1_nospin" = "z_munmap" ("pages" "1", "spinners" "0");
    "z_munmap_34_nospin" = "z_munmap" ("pages" "34", "spinners" "0");
    "z_munmap_1_lazy" = "z_munmap" ("pages" "1", "spinners" "0", "sleepers" "1");
    "z_munmap_1_freept" = "z_munmap_freept" ("pages" "1");
    "z_munmap_1_freept_lazy" =
        "z_munmap_freept" ("pages" "1", "spinners" "0", "sleepers" "1");
    "z_munmap_sparse_64" = "z_munmap_sparse" ("pages" "64");
    "z_dontneed_1" = "z_dontneed" ("pages" "1");
    "z_dontneed_33" = "z_dontneed" ("pages" "33");
    "z_dontneed_34" = "z_dontneed" ("pages" "34");
    "z_dontneed_64" = "z_dontneed" ("pages" "64");
    "z_thp_dontneed_34" = "z_thp_dontneed" ("huge" "34");
    "z_cold_4" = "z_cold" ("pages" "4");
    "c_uffd_wp_empty_16" = "c_uffd_wp_empty" ("pages" "16");
    "c_uffd_wp_preread_16" = "c_uffd_wp_preread" ("pages" "16");
    "c_uffd_wp_poprd_16" = "c_uffd_wp_poprd" ("pages" "16");
    "c_uffd_wp_unpop_16" = "c_uffd_wp_unpop" ("pages" "16");
    "c_uffd_wp_async_4" = "c_uffd_wp_async" ("pages" "4");
    "c_uffd_async_unpop_4" = "c_uffd_async_unpop" ("pages" "4");
    "c_softdirty_4" = "c_softdirty" ("pages" "4");
    "c_uffd_sync_1" = "c_uffd_sync" ("pages" "1");
    "z_free_4" = "z_free" ("pages" "4");
    "z_mremap_1" = "z_mremap" ("pages" "1");
    "z_mremap_16" = "z_mremap" ("pages" "16");
    "z_populate_write_8" = "z_populate_write" ("pages" "8");
    "d_fork_childread_1" = "d_fork_childread" ("pages" "1");
    "d_fork_childread_16" = "d_fork_childread" ("pages" "16");
    "d_fork_childread_64" = "d_fork_childread" ("pages" "64");
    "d_fork_nospin_16" = "d_fork_childread" ("pages" "16", "spinners" "0");
    "a_privfile_rw_1" = "a_privfile_rw" ("pages" "1");
    "b_pf3_shm_8" = "b_pf3_shm" ("pages" "8");
    "b_shm_read_write_1" = "b_shm_read_write" ("pages" "1");
    "b_shm_read_write_8_fa" = "b_shm_read_write" ("pages" "8");
    "d_child_exit_16" = "d_child_exit" ("pages" "16");
};

impl Builtin {
    /// The first `doc` line, found without parsing the text.
    pub fn doc(&self) -> &'static str {
        let line = self.text.lines().find_map(|l| l.trim_start().strip_prefix("doc \""));
        line.and_then(|l| l.split('"').next()).unwrap_or_default()
    }
}

/// The names of [`ALL`], then those of [`ALIASES`].
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    ALL.iter().map(|b| b.name).chain(ALIASES.iter().map(|a| a.name))
}

/// The names of the litmus texts.
pub fn litmus_names() -> impl Iterator<Item = &'static str> + Clone {
    LITMUS.iter().map(|b| b.name)
}

/// Finds the built-in text, alias or litmus text of this name.
pub fn find(name: &str) -> Option<Source> {
    let alias = ALIASES.iter().find(|a| a.name == name);
    let (of, presets) = alias.map_or((name, &[][..]), |a| (a.of, a.presets));
    let builtin =
        ALL.iter().chain(OF_STUDIES).chain(OF_NODES).chain(LITMUS).find(|b| b.name == of)?;
    let presets: Settings = presets.iter().copied().collect();
    Some(Source { presets, ..Source::new(name, builtin.text) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_known() {
        let of_studies = || OF_STUDIES.iter().chain(OF_NODES).map(|b| b.name);
        let all = || names().chain(litmus_names()).chain(of_studies());
        let unique: BTreeSet<_> = all().collect();
        assert_eq!(unique.len(), all().count());
        for name in all() {
            let source = find(name).unwrap();
            let program = crate::compile(&source, &Settings::default())
                .unwrap_or_else(|e| panic!("{name}: {:?}", miette::Report::new(e)));
            assert_eq!(program.name, name);
        }
    }

    #[test]
    fn litmus_texts_have_a_litmus_node() {
        for name in litmus_names() {
            let source = find(name).unwrap();
            let (_, litmus) = crate::litmus(&source, &Settings::default()).unwrap();
            assert!(litmus.is_some(), "{name} has no litmus node");
            assert!(source.text.starts_with("// "), "{name} does not say why it matters");
        }
        assert!(ALL.iter().all(|builtin| !builtin.text.contains("litmus {")));
    }

    #[test]
    fn doc_is_what_the_parser_finds() {
        for builtin in ALL.iter().chain(OF_STUDIES).chain(OF_NODES).chain(LITMUS) {
            let description = crate::describe(&Source::new(builtin.name, builtin.text)).unwrap();
            assert_eq!(builtin.doc(), description.doc);
            assert!(!builtin.doc().is_empty());
        }
    }

    #[test]
    fn texts_are_formatted() {
        for builtin in ALL.iter().chain(OF_STUDIES).chain(OF_NODES).chain(LITMUS) {
            let source = Source::new(builtin.name, builtin.text);
            assert_eq!(crate::format(&source).unwrap(), builtin.text, "{}", builtin.name);
        }
    }
}
