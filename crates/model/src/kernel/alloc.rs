//! The one door through which operations get frames.
//!
//! An operation says who needs the frame, how large it should be and which flags it starts with. It
//! takes the frame in the same step in which it uses it ([`with_frames`]). Some work has to be done
//! before a frame is used again, such as the flush that its old contents are still owed. That work
//! takes many steps, so it belongs here, before that step. Where a row lets an address space have a
//! frame again before that flush, it is taken here as well.
//!
//! Source: mm/page_alloc.c:__alloc_pages, mm/mempolicy.c:alloc_pages_vma, vma_alloc_folio (5.10 to
//! 7.3).

use crate::addr::{MmId, Pfn, Vpn};
use crate::env::{Env, Learnt};
use crate::kernel::deferred::{defers, flush_owed, recyclable, recycle, sole_user};
use crate::machine::frames::FrameFlags;
use crate::machine::nodes::Near;
use crate::machine::world::{At, Mode, World};
use crate::policy::{Mutant, Recycle};
use crate::site::Site;

/// A request for a folio.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The mapping or the CPU that needs the folio; it decides the node.
    pub near: Near,
    /// The largest size, as the logarithm of the number of frames.
    pub order: u8,
    /// The flags that the folio has from the start.
    pub flags: FrameFlags,
    /// The folio whose contents will move there.
    pub copies: Option<Pfn>,
}

impl Request {
    /// A small page for the place `page` of `mm`.
    #[inline(always)]
    pub const fn page(mm: MmId, page: Vpn, flags: FrameFlags) -> Request {
        Request { near: Near::Page(mm, page), order: 0, flags, copies: None }
    }

    /// A small page that belongs to no mapping, such as a file's.
    #[inline(always)]
    pub const fn here(flags: FrameFlags) -> Request {
        Request { near: Near::Here, order: 0, flags, copies: None }
    }

    /// This request for a folio of at most 2^`order` frames.
    #[inline(always)]
    #[must_use]
    pub const fn of_order(self, order: u8) -> Request {
        Request { order, ..self }
    }

    /// The frame that waits for a flush and that the row lets the address space have before.
    #[inline(always)]
    fn recyclable<M: Mode>(self, w: &World<M>, at: At) -> Option<Pfn> {
        match w.policies.recycle {
            Recycle::Never => None,
            Recycle::WithinMm => self.own_waiting(w, at),
        }
    }

    #[cold]
    fn own_waiting<M: Mode>(self, w: &World<M>, at: At) -> Option<Pfn> {
        let user = match self.near {
            Near::Page(mm, _) => Some(mm),
            _ => self.copies.and_then(|folio| sole_user(w, folio)),
        };
        let nodes = w.nodes_near(self.near, 0, at);
        let serves = |frame: &Pfn| nodes.contains(&w.nodes.of_frame(*frame));
        recyclable(w, user).find(serves).filter(|_| self.order == 0)
    }
}

/// The right to take a folio in the step that receives the door.
#[derive(Debug)]
pub struct Door {
    request: Request,
}

impl Door {
    /// Takes a folio of the requested order, with one reference. `None` if there is no memory left.
    #[inline(always)]
    pub fn take<M: Mode>(&self, w: &mut World<M>, at: At) -> Option<Pfn> {
        self.take_of(w, at, self.request.order)
    }

    /// Takes a folio of this order, which is at most the requested one.
    #[inline(always)]
    pub fn take_of<M: Mode>(&self, w: &mut World<M>, at: At, order: u8) -> Option<Pfn> {
        let Request { near, flags, .. } = self.request;
        if let Some(frame) = self.request.of_order(order).recyclable(w, at) {
            return self.take_waiting(w, at, frame);
        }
        w.hand_out(at, near, order, flags)
    }

    /// Takes a frame that waits for a flush, before that flush.
    #[cold]
    fn take_waiting<M: Mode>(&self, w: &mut World<M>, at: At, frame: Pfn) -> Option<Pfn> {
        recycle(w, at, frame);
        // What was freed last is handed out first.
        let near = Near::Only(w.nodes.of_frame(frame));
        let taken = w.hand_out(at, near, 0, self.request.flags);
        if taken != Some(frame) {
            w.impossible(at, "another frame was handed out than the one that is recycled");
        }
        taken
    }

    /// This door, with `flags` added to the requested ones.
    #[inline(always)]
    #[must_use]
    pub fn with(mut self, flags: FrameFlags) -> Door {
        self.request.flags = self.request.flags.and(flags);
        self
    }

    /// The huge zero page. It is created when it is first needed, and never freed.
    pub fn take_huge_zero<M: Mode>(&self, w: &mut World<M>) -> Option<Pfn> {
        w.frames.huge_zero_page(self.request.order, &w.room)
    }
}

/// Runs one step in which the action may take a folio.
#[inline(always)]
pub fn with_frames<E: Env, R: Learnt>(
    env: &mut E,
    site: Site,
    request: Request,
    action: impl FnOnce(&mut World<E::Mode>, At, Door) -> R,
) -> R {
    if defers(env.policies()) {
        flush_before_reuse(env, site, request);
    }
    env.step(site, |w, at| action(w, at, Door { request }))
}

/// Flushes the frames that wait for a flush, if no other memory is left.
fn flush_before_reuse(env: &mut impl Env, site: Site, request: Request) {
    let owes = env.step(site, |w, at| {
        let waiting = w.deferred.kept().len() > 0 && !w.has_free(at, request.near);
        waiting && request.recyclable(w, at).is_none()
    });
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

    /// No operation gets frames in another file of `kernel/`.
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
