//! The kernel: one file per operation.
//!
//! Entry point for system calls: [`call()`] dispatches each one to its own file. All drivers of the
//! model use it.
//!
//! A page fault enters in [`fault`], which looks at the PTE and calls one of its files. A system
//! call enters in its own file ([`map`], [`protect`], [`remap`], [`madvise`]) and ends in
//! [`gather`], which flushes and frees. `MADV_PAGEOUT` continues in [`reclaim`], which defers
//! flushes with [`unmap_batch`]. All operations flush through [`flush`], which calls the code of
//! the architecture (`x86`, `arm64`).

pub mod alloc;
mod arm64;
pub mod clear_refs;
mod cut_folio;
pub mod deferred;
pub mod exit;
pub mod fadvise;
pub mod fault;
pub mod file_write;
pub mod flush;
mod flush_verdict;
pub mod fork;
pub mod gather;
pub mod guard;
pub mod gup;
pub mod huge;
pub mod kswapd;
pub mod lru;
pub mod madvise;
pub mod map;
pub mod mempolicy;
pub mod migrate;
pub mod mlock;
pub mod mlock_batch;
pub mod move_pages;
pub mod numa_scan;
pub mod pagemap_scan;
pub mod populate;
pub mod protect;
pub mod punch;
pub mod reclaim;
pub mod remap;
pub mod rmap;
pub mod sigsegv;
pub mod soft_dirty;
pub mod swap_cache;
pub mod switch;
pub mod table;
pub mod table_sync;
pub mod truncate;
pub mod uffd;
pub mod unmap;
pub mod unmap_batch;
pub mod vma_flags;
pub mod vma_lock;
pub mod writeback;
mod x86;
pub mod zap;

use crate::addr::{MmId, NodeId};
use crate::call::{Call, Refs, left_of_ranges, ranges};
use crate::env::Env;
use crate::machine::world::mm_of;
use crate::wait::{Ended, Wait};

/// Carries out the call on the address space `mm`. If it has to wait, returns the rest of the call.
#[inline(always)]
pub fn call(env: &mut impl Env, mm: MmId, call: Call) -> Result<Ended<Call>, Errno> {
    match call {
        Call::Map { area, prot } => map::mmap(env, mm, area, prot)?,
        Call::Unmap { pages } => map::munmap(env, mm, pages)?,
        Call::Protect { pages, prot } => protect::mprotect(env, mm, pages, prot)?,
        Call::Remap { pages, to } => remap::mremap(env, mm, pages, to.pages.start)?,
        Call::Advise { pages, advice } => {
            return Ok(match madvise::madvise(env, mm, pages, advice)? {
                Ended::Done => Ended::Done,
                Ended::Blocked(wait, pages) => Ended::Blocked(wait, Call::Advise { pages, advice }),
            });
        }
        Call::AdviseRanges { pages, each, stride, done, advice } => {
            let all = ranges(pages, each, stride, done);
            return Ok(match madvise::process_madvise(env, mm, all, advice)? {
                Ended::Done => Ended::Done,
                Ended::Blocked(wait, rest) => {
                    let (pages, done) = left_of_ranges(pages, stride, rest.start);
                    Ended::Blocked(wait, Call::AdviseRanges { pages, each, stride, done, advice })
                }
            });
        }
        Call::Mlock { pages, on_fault, locked } => {
            return Ok(match mlock::mlock(env, mm, pages, on_fault, locked)? {
                Ended::Done => Ended::Done,
                Ended::Blocked(wait, pages) => {
                    Ended::Blocked(wait, Call::Mlock { pages, on_fault, locked: true })
                }
            });
        }
        Call::Munlock { pages } => mlock::munlock(env, mm, pages)?,
        Call::ClearRefs { refs: Refs::Accessed } => clear_refs::clear_refs(env, mm),
        Call::ClearRefs { refs: Refs::SoftDirty } => soft_dirty::clear_soft_dirty(env, mm),
        Call::Pagemap { pages } => soft_dirty::pagemap_read(env, mm, pages)?,
        Call::Sigaction => sigsegv::sigaction(env, mm),
        Call::UffdRegister { pages, registration } => {
            uffd::register::register(env, mm, pages, registration)?;
        }
        Call::UffdUnregister { pages } => uffd::register::unregister(env, mm, pages)?,
        Call::UffdProtect { pages, on } => uffd::protect::write_protect(env, mm, pages, on)?,
        Call::UffdFill { pages, how } => uffd::fill::fill(env, mm, pages, how)?,
        Call::UffdMove { pages, to } => {
            uffd::move_pages::move_pages(env, mm, pages, to.pages.start)?
        }
        Call::UffdAnswer { answer } => {
            return Ok(match uffd::answer::answer(env, mm, answer)? {
                Ended::Done => Ended::Done,
                Ended::Blocked(wait, ()) => Ended::Blocked(wait, call),
            });
        }
        Call::PagemapScan { pages, protect } => {
            pagemap_scan::pagemap_scan(env, mm, pages, protect)?;
        }
        Call::Sync { pages } => writeback::msync(env, mm, pages)?,
        Call::Writeback { pages } => writeback::writeback(env, mm, pages),
        Call::WriteFile { file, first, pages } => {
            file_write::pwrite(env, file, first..first + pages)?;
        }
        Call::DropFile { file, first, pages } => {
            fadvise::fadvise_dontneed(env, file, first..first + pages)?;
        }
        Call::Truncate { file, pages } => truncate::ftruncate(env, file, pages)?,
        Call::SyncFile { file } => writeback::fsync(env, file)?,
        Call::MovePages { pages, node } => {
            move_pages::move_pages(env, mm, pages, NodeId(node))?;
        }
        Call::Mbind { pages, policy, moves } => {
            mempolicy::mbind(env, mm, pages, policy, moves)?;
        }
        Call::SetMempolicy { policy } => mempolicy::set_mempolicy(env, policy),
        // `Program::not_modelled` refuses them before a run.
        Call::MigratePages { .. } | Call::ReclaimMemory { .. } => return Err(Errno::Enosys),
        Call::NumaScan { pages } => numa_scan::task_numa_work(env, mm, pages)?,
        Call::SplitDeferred => huge::deferred_split::deferred_split_scan(env),
        Call::Khugepaged { pages } => huge::khugepaged::khugepaged_scan(env, mm, pages),
        Call::Reclaim { pages } => reclaim::shrink_range(env, mm, pages),
        Call::Switch { others } => switch::run_others(env, others),
        Call::Pin { pages, pin, gup, access } => {
            let wanted = gup::Wanted { place: (mm, pages.start), gup, access };
            return Ok(match gup::pin(env, pin, wanted)? {
                Ended::Done => Ended::Done,
                Ended::Blocked(wait, ()) => Ended::Blocked(wait, call),
            });
        }
        Call::Dma { pin, access } => gup::dma(env, pin, access.is_write())?,
        Call::Unpin { pin } => gup::unpin(env, pin)?,
        Call::Fork { process } => fork::fork(env, mm, mm_of(process))?,
        Call::Exec => exit::execve(env, mm),
        Call::Wait { process } => {
            return Ok(match exit::wait4(env, mm_of(process)) {
                Some(wait) => Ended::Blocked(wait, call),
                None => Ended::Done,
            });
        }
    }
    Ok(Ended::Done)
}

/// Resumes a call that had to wait.
pub fn call_again(
    env: &mut impl Env,
    mm: MmId,
    rest: Call,
    waited: Wait,
) -> Result<Ended<Call>, Errno> {
    waited.end(env);
    call(env, mm, rest)
}

/// Why a system call failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Errno {
    /// Invalid argument.
    #[error("EINVAL: invalid argument")]
    Einval,
    /// The kernel does not have this call.
    #[error("ENOSYS: this kernel has no such system call")]
    Enosys,
    /// Not mapped, or out of memory.
    #[error("ENOMEM: not mapped, or out of memory")]
    Enomem,
    /// Something is mapped there already.
    #[error("EEXIST: something is mapped there already")]
    Eexist,
    /// The process that should start runs already.
    #[error("EAGAIN: the process runs already, or somebody holds one of the pages")]
    Eagain,
    /// The resource is already in use.
    #[error(
        "EBUSY: the pin is held already, or userfaultfd watches the memory for missing pages or stores (unregister it first)"
    )]
    Ebusy,
    /// NUMA balancing found no page there that it could sample.
    #[error(
        "NUMA balancing sampled none of the pages: they are missing, on a fast node (numa-balancing \"tiering\"), or, up to 6.1, in an LRU batch"
    )]
    NoneSampled,
    /// The object does not exist.
    #[error("EBADF: the pin is not held, or there is no such file")]
    Ebadf,
    /// No stores are watched there.
    #[error(
        "ENOENT: userfaultfd does not watch the pages for stores (uffdio_register mode=\"wp\"), or, up to 6.1, they do not lie in one mapping"
    )]
    Enoent,
    /// There is no mapping there that userfaultfd could fill.
    #[error(
        "ENOENT: the pages do not lie in one mapping that a userfaultfd watches (uffdio_register)"
    )]
    EnoentUnwatched,
    /// There is no page to answer the fault with.
    #[error("ENOENT: there is no page to move: the source is empty, or not mapped")]
    EnoentSource,
    /// The answer maps nothing.
    #[error(
        "ENOENT: the page is missing, and this answer maps no page; by=\"zeropage\", \"copy\" or \"move\" maps one"
    )]
    EnoentAnswer,
    /// The kernel does not have this ioctl, or not these bits.
    #[error("ENOTTY: the kernel does not have this request")]
    Enotty,
    /// Protecting these pages is not permitted.
    #[error(
        "EPERM: a scan can protect only memory that a userfaultfd with features=\"async\" watches"
    )]
    Eperm,
    /// The pin does not permit this access.
    #[error("EACCES: the pin is for loads only")]
    Eacces,
    /// The access that the call stands for would have raised a signal.
    #[error("EFAULT: bad address")]
    Efault,
}
