//! `UFFDIO_REGISTER` and `UFFDIO_UNREGISTER`.

use crate::addr::{MmId, PageRange};
use crate::env::{Env, Lock};
use crate::kernel::Errno;
use crate::kernel::protect::{To, change_protection_alone};
use crate::kernel::vma_flags::change_flags;
use crate::machine::vma::Vma;
use crate::machine::world::Ghost;
use crate::policy::{Policies, UffdFeatures, UffdMode, UffdShared, UffdUnregister};
use crate::site::Site;
use crate::userfaultfd::{Registration, Watch};

const STORES: Watch = Watch { write_protect: true, ..Watch::NONE };

/// Watches the mappings in `range`, which may have holes between them: for these accesses alone, unless they are watched for them already. What
/// they hold stays as it is.
///
/// Source: fs/userfaultfd.c:userfaultfd_api, userfaultfd_register (5.10 to 6.18), mm/userfaultfd.c:userfaultfd_register_range (6.12,
/// 7.3), userfaultfd_register (7.3).
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
    let may = env.step(Site::UserfaultfdRegister, |w, at| {
        w.mmap_assert_write_locked(at, mm);
        let space = &mut w.mms[mm.index()];
        space.uffd.features = features;
        let mut vmas = space.vmas_in(range).peekable();
        vmas.peek().ok_or(Errno::Einval)?;
        vmas.try_for_each(|vma| may_register(&vma, registration, &w.policies))?;
        if !mode.write_protect {
            w.ghost.let_go(mm, range);
        }
        Ok(())
    });
    if may.is_err() {
        env.unlock(Lock::MmapWrite(mm));
        return may;
    }
    change_flags(env, Site::UserfaultfdRegister, mm, range, |vma| {
        let watched = if vma.uffd.includes(mode) { vma.uffd } else { mode };
        Vma { uffd: watched, ..*vma }
    });
    env.unlock(Lock::MmapWrite(mm));
    Ok(())
}

/// Whether the mapping can be watched so from now on.
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

/// Whether what the mapping maps can be watched so.
///
/// Source: fs/userfaultfd.c:vma_can_userfault (5.10), include/linux/userfaultfd_k.h:vma_can_userfault (6.1, 6.12), mm/userfaultfd.c (7.2).
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

/// Watches them no more: what was protected is not, and who waits goes on where missing pages were watched. (Who waits for a
/// protected one sleeps on.) Not if any of them maps a file on a disk and is not watched: it could not be.
///
/// Source: fs/userfaultfd.c:userfaultfd_unregister (5.10 to 7.3), mm/userfaultfd.c:userfaultfd_clear_vma (6.12, 7.3).
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
        let Watch { missing, write_protect: protects, .. } = watched;
        if watched.armed() {
            env.step(site, |w, _| {
                if missing {
                    w.mms[mm.index()].uffd.wake(pages);
                }
                w.ghost.let_go(mm, pages);
            });
            if protects && env.policies().uffd_unregister == UffdUnregister::Unprotect {
                change_protection_alone(env, mm, pages, To::NotUffdWp);
            }
            change_flags(env, site, mm, pages, |vma| Vma { uffd: Watch::default(), ..*vma });
        }
        rest.start = pages.end;
    }
    env.unlock(Lock::MmapWrite(mm));
    Ok(())
}
