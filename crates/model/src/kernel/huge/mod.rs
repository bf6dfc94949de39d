//! Transparent huge pages: entries above the last level that map a large folio as a whole.
//!
//! Each operation first looks here for a huge page in its way ([`pmd_trans_huge_lock`]). If the
//! operation covers all of the huge page, it handles the page as a whole. Otherwise it has the page
//! mapped page by page ([`split`]) and goes on with the PTEs. Scenarios that can have no huge page
//! skip the lookup ([`Config::huge_pages`](crate::kernels::Config::huge_pages)).

pub mod advise;
pub mod age;
mod anon;
pub mod collapse;
mod cow;
pub mod deferred_split;
pub mod fork;
pub mod free;
pub mod khugepaged;
pub mod migrate;
pub mod move_pages;
pub mod protect;
pub mod reclaim;
pub mod remap;
pub mod run;
pub mod split;
pub mod split_folio;
pub mod zap;

use crate::addr::{MmId, Pfn, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::fault::outcome::{Fault, Served, Unserved};
use crate::machine::vma::Vma;
use crate::machine::world::{At, Mode, World};
use crate::pte::{Pmd, PresentPte, PteFlags};
use crate::site::Site;
use crate::wait::Wait;

/// Takes the lock of the table above the last one of `page`. If a huge page is mapped there, passes
/// its entry to `first` in the same step. Otherwise holds no lock and returns `None`.
///
/// Source: include/linux/huge_mm.h:pmd_trans_huge_lock (5.10 to 7.3).
pub fn pmd_trans_huge_lock<E: Env, R>(
    env: &mut E,
    site: Site,
    mm: MmId,
    page: Vpn,
    first: impl FnOnce(&mut World<E::Mode>, At, PresentPte) -> R,
) -> Option<R>
where
    Option<R>: Learnt,
{
    if !env.config().huge_pages {
        return None;
    }
    let lock = Lock::pmd(env.arch(), mm, page);
    env.lock(lock);
    let done = env.step(site, |w, at| match w.pmd(mm, page)? {
        Pmd::Mapped(pmd) => Some(first(w, at, pmd)),
        Pmd::Migrating(_) => {
            w.impossible(
                at,
                "an operation that does not wait for migrations met a huge page that is being moved",
            );
            None
        }
    });
    if done.is_none() {
        env.unlock(lock);
    }
    done
}

/// Gives the lock of [`pmd_trans_huge_lock`] back.
pub fn pmd_unlock(env: &mut impl Env, mm: MmId, page: Vpn) {
    let lock = Lock::pmd(env.arch(), mm, page);
    env.unlock(lock);
}

/// The entry made invalid (`pmd_mkinvalid`): the processor finds nothing there, and the kernel can
/// change it back.
pub const fn invalid(pmd: PresentPte) -> PresentPte {
    pmd.with(PteFlags::PROTNONE, true)
}

/// The PTE of `page`, if it maps a page of the folio. For a huge page, what that PTE would be.
pub fn entry_of<M: Mode>(w: &World<M>, folio: Pfn, mm: MmId, page: Vpn) -> Option<PresentPte> {
    let pte = w.page_entry(mm, page).present().filter(|pte| !pte.special())?;
    (w.frames.folio(pte.pfn).0 == folio).then_some(pte)
}

/// What a fault finds above the last level.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// A table of the last level.
    Table,
    Nothing,
    /// A huge page with this entry.
    Huge(PresentPte),
    /// A huge page that is being migrated.
    Migrating,
}

impl Learnt for Found {
    fn nothing() -> Found {
        Found::Table
    }
}

fn find<M: Mode>(w: &World<M>, mm: MmId, page: Vpn) -> Found {
    match w.pmd(mm, page) {
        Some(Pmd::Mapped(pmd)) => Found::Huge(pmd),
        Some(Pmd::Migrating(_)) => Found::Migrating,
        None if w.mms[mm.index()].table.has_table(page, 1) => Found::Table,
        None => Found::Nothing,
    }
}

/// Serves a fault by a huge page. `None` if the fault goes on as if there were none
/// (`VM_FAULT_FALLBACK`).
///
/// Source: mm/memory.c:__handle_mm_fault (5.10 to 7.3).
pub fn handle_pmd(env: &mut impl Env, fault: Fault, vma: &Vma) -> Result<Option<Served>, Unserved> {
    if !env.config().huge_pages {
        return Ok(None);
    }
    let (found, suits) = env.step(Site::HandleMmFault, |w, _| {
        let suits = vma.may_be_huge(w.config.thp) && is_inside(w, vma, fault.page);
        (find(w, fault.mm, fault.page), suits)
    });
    match found {
        Found::Table => Ok(None),
        Found::Nothing if !suits => Ok(None),
        Found::Nothing => anon::do_huge_pmd_anonymous_page(env, fault, vma),
        Found::Migrating => {
            let wait = Wait::Migration(fault.mm, fault.page);
            Err(Unserved::Blocked { wait, read: false })
        }
        Found::Huge(pmd) if (fault.write || fault.unshare) && !pmd.writable() => {
            cow::wp_huge_pmd(env, fault, vma, pmd)
        }
        Found::Huge(pmd) => Ok(Some(cow::huge_pmd_set_accessed(env, fault, pmd))),
    }
}

/// Whether the mapping contains all of the huge page around `page` (`thp_vma_suitable_order`).
fn is_inside<M: Mode>(w: &World<M>, vma: &Vma, page: Vpn) -> bool {
    let pages = w.huge_span(page).range();
    pages.intersect(vma.range) == pages
}
