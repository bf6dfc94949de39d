//! The one door where operations get frames.
//!
//! An operation says for whom the frame is, how large and what it will be, and takes it in one step
//! with whatever it does about it ([`with_frames`]). What has to be done before a frame is used
//! again, a flush that is owed to its old contents for one, is many steps: it belongs here, before
//! that step.
//!
//! Source: mm/page_alloc.c:__alloc_pages, mm/mempolicy.c:alloc_pages_vma, vma_alloc_folio (5.10 to
//! 7.3).

use crate::addr::{MmId, Pfn, Vpn};
use crate::env::{Env, Learnt};
use crate::kernel::deferred::flush_owed;
use crate::machine::frames::FrameFlags;
use crate::machine::nodes::Near;
use crate::machine::world::{At, Mode, World};
use crate::policy::{DeferFlush, Mutant};
use crate::site::Site;

/// What is asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// For whom.
    pub near: Near,
    /// How many frames at most, as a power of two.
    pub order: u8,
    /// What the folio is from its first moment on.
    pub flags: FrameFlags,
}

impl Request {
    /// A page for this place.
    #[inline(always)]
    pub const fn page(mm: MmId, page: Vpn, flags: FrameFlags) -> Request {
        Request { near: Near::Page(mm, page), order: 0, flags }
    }

    /// A page that is of no mapping: a file's.
    #[inline(always)]
    pub const fn here(flags: FrameFlags) -> Request {
        Request { near: Near::Here, order: 0, flags }
    }

    /// The same, and as large.
    #[inline(always)]
    #[must_use]
    pub const fn of_order(self, order: u8) -> Request {
        Request { order, ..self }
    }
}

/// The right to take a folio in the step that it is given to.
#[derive(Debug)]
pub struct Door {
    request: Request,
}

impl Door {
    /// The folio, with one reference; `None` if there is no memory left.
    #[inline(always)]
    pub fn take<M: Mode>(&self, w: &mut World<M>, at: At) -> Option<Pfn> {
        self.take_of(w, at, self.request.order)
    }

    /// A folio of this order, which is not larger than what was asked for.
    #[inline(always)]
    pub fn take_of<M: Mode>(&self, w: &mut World<M>, at: At, order: u8) -> Option<Pfn> {
        let Request { near, flags, .. } = self.request;
        w.hand_out(at, near, order, flags)
    }

    /// The same, with these flags beside those that were asked for.
    #[inline(always)]
    #[must_use]
    pub fn with(mut self, flags: FrameFlags) -> Door {
        self.request.flags = self.request.flags.and(flags);
        self
    }

    /// The huge zero page. It is made when it is first needed, and stays.
    pub fn take_huge_zero<M: Mode>(&self, w: &mut World<M>) -> Option<Pfn> {
        w.frames.huge_zero_page(self.request.order, &w.room)
    }
}

/// One step, in which a folio may be taken.
#[inline(always)]
pub fn with_frames<E: Env, R: Learnt>(
    env: &mut E,
    site: Site,
    request: Request,
    action: impl FnOnce(&mut World<E::Mode>, At, Door) -> R,
) -> R {
    if env.policies().defer_flush != DeferFlush::Never {
        flush_before_reuse(env, site, request);
    }
    env.step(site, |w, at| action(w, at, Door { request }))
}

/// Frames that wait for a flush are flushed where there is no other memory left.
fn flush_before_reuse(env: &mut impl Env, site: Site, request: Request) {
    let owes = env.step(site, |w, at| w.deferred.kept().len() > 0 && !w.has_free(at, request.near));
    if owes && env.policies().mutant != Mutant::DeferReused {
        env.step(site, |w, _| w.count_moves(|moves| moves.for_memory += 1));
        flush_owed(env, site);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    /// No operation gets frames past this file.
    #[test]
    fn every_operation_asks_here() {
        let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernel");
        let takes = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            [".hand_out(", ".next_free", ".allocate(flags", ".allocate_large(", ".huge_zero_page("]
                .iter()
                .any(|call| text.contains(call))
        };
        let found: Vec<PathBuf> = sources(&kernel).into_iter().filter(takes).collect();
        assert_eq!(found, [kernel.join("alloc.rs")]);
    }
}
