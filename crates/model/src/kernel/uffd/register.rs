//! `UFFDIO_REGISTER` and `UFFDIO_UNREGISTER`.

use crate::addr::{MmId, PageRange, Vpn};
use crate::env::{Env, Learnt, Lock};
use crate::kernel::Errno;
use crate::kernel::protect::{To, change_protection_alone};
use crate::kernel::table::{pte_offset_map_lock, pte_unmap_unlock};
use crate::kernel::vma_flags::change_flags_by;
use crate::machine::vma::{MergeRule, Vma};
use crate::machine::world::{At, Ghost, Mode, World};
use crate::policy::{
    Mutant, Policies, UffdAsync, UffdFeatures, UffdMerge, UffdMode, UffdShared, UffdUnregister,
};
use crate::pte::{Pte, PteFlags};
use crate::site::Site;
use crate::userfaultfd::{Registration, Watch};

const STORES: Watch = Watch { write_protect: true, ..Watch::NONE };

/// Watches the mappings in `range` for these accesses alone, unless they are already watched for
/// them. The range may have holes. Entries that are there stay as they are. If other features are
/// asked for than the userfaultfd has, the call closes it first and makes another one.
///
/// Source: fs/userfaultfd.c:userfaultfd_api, userfaultfd_register (5.10 to 6.18),
/// mm/userfaultfd.c:userfaultfd_register_range (6.12, 7.3), userfaultfd_register (7.3).
pub fn register(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    registration: Registration,
) -> Result<(), Errno> {
    let Registration { mode, features } = registration;
    let has = match env.policies().uffd_features {
        UffdFeatures::WriteProtect => !features.unpopulated,
        UffdFeatures::Unpopulated => !features.asynchronous,
        UffdFeatures::Asynchronous => true,
    };
    if !has {
        return Err(Errno::Einval);
    }
    env.lock(Lock::MmapWrite(mm));
    let mut may = begin(env, mm, range, registration);
    if may == Ok(Begin::CloseFirst) {
        env.unlock(Lock::MmapWrite(mm));
        close(env, mm);
        env.lock(Lock::MmapWrite(mm));
        may = begin(env, mm, range, registration);
    }
    let may = may.map(|_| ());
    if may.is_err() {
        env.unlock(Lock::MmapWrite(mm));
        return may;
    }
    watch(env, Site::UserfaultfdRegister, mm, range, |watched| {
        if watched.includes(mode) { watched } else { mode }
    });
    if env.policies().mutant == Mutant::UffdBitKept
        && env.policies().uffd_async == UffdAsync::Inverted
        && features.asynchronous
    {
        for page in range.iter() {
            let site = Site::UserfaultfdRegister;
            if pte_offset_map_lock(env, site, mm, page, |w, at| keep_bit(w, at, mm, page)).is_some()
            {
                pte_unmap_unlock(env, mm, page);
            }
        }
    }
    env.unlock(Lock::MmapWrite(mm));
    Ok(())
}

/// What a registration has to begin with.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Begin {
    /// Nothing: the userfaultfd has these features, or nobody has used it yet.
    Register,
    /// A userfaultfd with other features watches something, and must be closed first.
    CloseFirst,
}

impl Learnt for Begin {
    fn nothing() -> Begin {
        Begin::Register
    }
}

fn begin(
    env: &mut impl Env,
    mm: MmId,
    range: PageRange,
    registration: Registration,
) -> Result<Begin, Errno> {
    let Registration { mode, features } = registration;
    env.step(Site::UserfaultfdRegister, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let space = &mut w.mms[mm.index()];
        if space.uffd.features != features && space.vmas_in(ALL).any(|vma| vma.uffd.armed()) {
            return Ok(Begin::CloseFirst);
        }
        space.uffd.features = features;
        let mut vmas = space.vmas_in(range).peekable();
        vmas.peek().ok_or(Errno::Einval)?;
        vmas.try_for_each(|vma| may_register(&vma, registration, &w.policies))?;
        if !mode.write_protect {
            w.ghost.let_go(mm, range);
        }
        Ok(Begin::Register)
    })
}

/// Every page.
const ALL: PageRange = PageRange { start: Vpn(0), end: Vpn(u64::MAX) };

/// Sets the bit of the entry and leaves its rights (a mutant): an entry without the inverted bit
/// counts as not written, whatever it grants.
fn keep_bit<M: Mode>(w: &mut World<M>, at: At, mm: MmId, page: Vpn) {
    if let Some(pte) = w.pte(mm, page).present() {
        w.set_pte(at, mm, page, Pte::Present(pte.with(PteFlags::UFFD_WP, true)));
    }
}

/// Closes the userfaultfd, so that another one can be made. Nothing is watched or protected any
/// more, and the accesses that wait go on.
///
/// Source: fs/userfaultfd.c:userfaultfd_release (6.12), mm/userfaultfd.c:userfaultfd_release_all
/// (6.18, 7.3).
fn close(env: &mut impl Env, mm: MmId) {
    env.lock(Lock::MmapWrite(mm));
    let mut rest = ALL;
    while let Some((pages, watched)) = env.step(Site::UserfaultfdRelease, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let next = w.mms[mm.index()].vmas_in(rest).find(|vma| vma.uffd.armed())?;
        Some((next.range, next.uffd))
    }) {
        clear_vma(env, Site::UserfaultfdRelease, mm, (pages, watched));
        rest.start = pages.end;
    }
    env.unlock(Lock::MmapWrite(mm));
    env.step(Site::UserfaultfdRelease, |w, _| w.mms[mm.index()].uffd.waiting.clear());
}

/// Whether the mapping can be watched in this way from now on.
fn may_register(vma: &Vma, registration: Registration, policies: &Policies) -> Result<(), Errno> {
    if !can_userfault(vma, registration, policies.uffd_shared) {
        return Err(Errno::Einval);
    }
    let lets_stores_go = vma.uffd.write_protect && !registration.mode.write_protect;
    match policies.uffd_mode {
        UffdMode::Busy if lets_stores_go => Err(Errno::Ebusy),
        UffdMode::Busy | UffdMode::Replace => Ok(()),
    }
}

/// Whether the mapping's kind of memory can be watched in this way.
///
/// Source: fs/userfaultfd.c:vma_can_userfault (5.10),
/// include/linux/userfaultfd_k.h:vma_can_userfault (6.1, 6.12), mm/userfaultfd.c (7.2).
fn can_userfault(vma: &Vma, registration: Registration, rule: UffdShared) -> bool {
    let Registration { mode, features } = registration;
    if vma.is_anonymous() {
        return !mode.minor;
    }
    if vma.on_disk {
        return features.asynchronous && mode == STORES;
    }
    match rule {
        UffdShared::Missing => mode == Watch { missing: true, ..Watch::NONE },
        UffdShared::Minor => !mode.write_protect,
        UffdShared::All => true,
    }
}

/// Ends the watch over the mappings in `range`. Their pages are no longer protected. Where missing
/// pages were watched, all accesses that wait go on. Elsewhere, they sleep on. Fails if one of the
/// mappings maps a file on a disk and is not watched for stores: nothing else can be watched there.
///
/// Source: fs/userfaultfd.c:userfaultfd_unregister (5.10 to 7.3),
/// mm/userfaultfd.c:userfaultfd_clear_vma (6.12, 7.3).
pub fn unregister(env: &mut impl Env, mm: MmId, range: PageRange) -> Result<(), Errno> {
    env.lock(Lock::MmapWrite(mm));
    let site = Site::UserfaultfdUnregister;
    let may = env.step(site, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let mut vmas = w.mms[mm.index()].vmas_in(range).peekable();
        vmas.peek().is_some() && vmas.all(|vma| !vma.on_disk || vma.uffd == STORES)
    });
    if !may {
        env.unlock(Lock::MmapWrite(mm));
        return Err(Errno::Einval);
    }
    let mut rest = range;
    while let Some((pages, watched)) = env.step(site, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let vma = w.mms[mm.index()].vmas_in(rest).next().filter(|_| !rest.is_empty())?;
        Some((vma.range, vma.uffd))
    }) {
        if watched.armed() {
            if watched.missing {
                env.step(site, |w, _| w.mms[mm.index()].uffd.wake(pages));
            }
            clear_vma(env, site, mm, (pages, watched));
        }
        rest.start = pages.end;
    }
    env.unlock(Lock::MmapWrite(mm));
    Ok(())
}

/// Ends the watch over a mapping, or over the part of it in `pages`.
///
/// Source: mm/userfaultfd.c:userfaultfd_clear_vma (6.12, 7.3).
fn clear_vma(env: &mut impl Env, site: Site, mm: MmId, (pages, watched): (PageRange, Watch)) {
    env.step(site, |w, _| w.ghost.let_go(mm, pages));
    if watched.write_protect && env.policies().uffd_unregister == UffdUnregister::Unprotect {
        change_protection_alone(env, mm, pages, To::NotUffdWp);
    }
    watch(env, site, mm, pages, |_| Watch::default());
}

/// Changes what userfaultfd watches in the mappings in `range`.
fn watch(
    env: &mut impl Env,
    site: Site,
    mm: MmId,
    range: PageRange,
    watched: impl Fn(Watch) -> Watch,
) {
    let policies = env.policies();
    let rule = MergeRule { inner: policies.uffd_merge == UffdMerge::Any, ..policies.into() };
    change_flags_by(env, site, mm, (range, rule), |vma| Vma { uffd: watched(vma.uffd), ..*vma });
}
