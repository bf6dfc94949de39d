//! `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`: markers in page tables that make an access raise
//! SIGSEGV.
//!
//! A guard is neither a mapping of its own nor a page. It stays when pages are freed, moves with
//! `mremap`, is copied by a fork, and goes with its mapping.
//!
//! Source: mm/madvise.c:madvise_guard_install, madvise_guard_remove;
//! mm/pagewalk.c:walk_pte_range_inner (7.2, 7.3); as seen on 6.18.

use crate::addr::{MmId, PageRange};
use crate::env::Env;
use crate::kernel::Errno;
use crate::kernel::gather::Gather;
use crate::kernel::table::{each_table, pte_alloc, pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::zap::{Zap, by_table, zap_range};
use crate::machine::vma::Vma;
use crate::policy::GuardRegions;
use crate::pte::{Marker, Pte};
use crate::site::Site;

const GUARD: Pte = Pte::Marker(Marker::Guard);

/// Whether the entry is a guard, with or without further marks (`is_guard_pte_marker`).
fn is_guard(entry: Pte) -> bool {
    matches!(entry, Pte::Marker(marker) if marker.is_guard())
}

/// How often pages in the way are removed before the lock is given back
/// (`MAX_MADVISE_GUARD_RETRIES`).
const RETRIES: usize = 3;

/// Puts guards in place of all pages of `range`, which lies in one mapping. It sets guards in empty
/// entries up to the first page. If there is a page, it removes all pages, with a flush of their
/// own, and tries again. Returns whether it finished: others may map pages again in the meantime.
pub fn install(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<bool, Errno> {
    env.step(Site::MadviseGuardInstall, |w, at| {
        let flag = w.policies.guard_regions == GuardRegions::Flag;
        let space = &mut w.mms[mm.index()];
        if flag {
            space.mark_guard(range.start);
        }
        let lacks = |vma: &Vma| vma.anon_vma.is_none() && !(flag && vma.file.is_some());
        if space.vma(range.start).is_some_and(lacks) {
            w.prepare_anon_vma(at, mm, range.start);
        }
    });
    for _ in 0..RETRIES {
        if !meets_page(env, mm, range)? {
            return Ok(true);
        }
        let mut gather = Gather::open(env, mm);
        zap_range(env, &mut gather, range, Zap::Pages);
        gather.finish(env);
    }
    Ok(false)
}

/// Creates tables and sets guards, up to the first page that is mapped or in swap. Returns whether
/// there is such a page.
fn meets_page(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<bool, Errno> {
    let (arch, site) = (*env.arch(), Site::MadviseGuardInstall);
    for part in by_table(&arch, range) {
        // A huge page counts as a page in the way (guard_install_pmd_entry).
        if env.config().huge_pages && env.step(site, |w, _| w.huge_page(mm, part.start).is_some()) {
            return Ok(true);
        }
        // A thread that empties tables may free this one before it is locked.
        loop {
            env.step(site, |w, at| pte_alloc(w, at, mm, part.start, 1)).ok_or(Errno::Enomem)?;
            if pte_offset_map_lock(env, site, mm, part.start, |_, _| ()).is_some() {
                break;
            }
        }
        let page_there = part.iter().any(|page| {
            env.step(site, |w, at| match w.pte(mm, page) {
                Pte::None => {
                    w.set_pte(at, mm, page, GUARD);
                    false
                }
                other => !is_guard(other),
            })
        });
        pte_unmap_unlock(env, mm, part.start);
        if page_there {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the guards in `range`. No TLB holds them, so there is no flush.
pub fn remove(env: &mut impl Env, mm: MmId, range: PageRange) {
    let site = Site::MadviseGuardRemove;
    each_table(env, site, mm, range, |env, part| {
        for page in part.iter() {
            env.step(site, |w, at| {
                if is_guard(w.pte(mm, page)) {
                    w.set_pte(at, mm, page, Pte::None);
                }
            });
        }
    });
}
