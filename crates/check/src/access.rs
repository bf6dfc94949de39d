//! A load or store on a real processor: through any cached translation that allows it, by way of a
//! walk, or into a fault.

use crate::judge::violate;
use crate::property::Property;
use crate::shadow::{CheckWorld, Value};
use crate::tlb::Entry;
use needless_model::addr::{MmId, ObjectId, Pfn, Vpn};
use needless_model::env::Learnt;
use needless_model::kernel::pagemap_scan::is_written;
use needless_model::kernel::rmap::Place;
use needless_model::kernel::soft_dirty::is_soft_dirty;
use needless_model::machine::frames::FrameFlags;
use needless_model::machine::walk::{Walked, walk};
use needless_model::machine::world::{At, process_of};
use needless_model::program::Access;
use needless_model::pte::Pte;

/// What became of an access.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Went {
    /// It was performed.
    Through,
    /// The processor set accessed or dirty; the access is still to come.
    OnlyWalked,
    /// It was refused.
    Faulted,
}

impl Learnt for Went {
    fn nothing() -> Went {
        Went::OnlyWalked
    }
}

/// A way that is open to the processor.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Through this cached translation.
    Cached(Entry),
    /// A walk that sets accessed or dirty. What it caches is used in a step of its own.
    Walk(Walked),
    /// Explicit mode: a walk whose result is used at once and not cached.
    Uncached(Walked),
    /// Into a fault: the PTE does not allow the access, or a cached translation that does not is
    /// not walked again.
    Fault,
}

/// The ways that are open to an access now. A store needs a dirty translation, since setting the
/// dirty bit walks again. What the PTE allows needs no way of its own once its bits are set: the
/// may-cache set holds it.
///
/// Source: Intel SDM volume 3, 4.8 (accessed and dirty flags), 4.10.4.3 (optional invalidation:
/// spurious faults).
pub fn ways(w: &CheckWorld, at: At, (mm, page): Place, write: bool) -> Vec<Way> {
    let asid = w.cpus[at.cpu.index()].asid;
    let cached = w.tlbs.entries(at.cpu, asid, page);
    let allows = |entry: &Entry| !write || entry.writable && entry.dirty;
    let refuses = |entry: &Entry| write && !entry.writable;
    let mut ways: Vec<Way> = cached.iter().copied().filter(allows).map(Way::Cached).collect();
    let walked = walk(&w.mms[mm.index()].table, w.arch.accessed_dirty, page, write);
    match walked {
        Some(walked) if w.tlbs.explicit => ways.push(Way::Uncached(walked)),
        Some(walked) if walked.new != walked.old => ways.push(Way::Walk(walked)),
        Some(_) | None => {}
    }
    if walked.is_none() || cached.iter().any(refuses) {
        ways.push(Way::Fault);
    }
    ways
}

/// Goes way number `way`.
pub fn go(w: &mut CheckWorld, at: At, place: Place, store: Option<Value>, way: usize) -> Went {
    let (mm, _) = place;
    match ways(w, at, place, store.is_some()).get(way) {
        Some(Way::Cached(entry)) => {
            perform(w, at, place, *entry, store);
            Went::Through
        }
        Some(Way::Walk(walked)) => {
            w.walked(at, mm, *walked);
            Went::OnlyWalked
        }
        Some(Way::Uncached(walked)) => {
            w.walked(at, mm, *walked);
            perform(w, at, place, Entry::made_by(*walked), store);
            Went::Through
        }
        Some(Way::Fault) | None => {
            w.ghost.exercised.add(Property::Progress);
            Went::Faulted
        }
    }
}

/// The access itself, through `entry`.
fn perform(w: &mut CheckWorld, at: At, (mm, page): Place, entry: Entry, store: Option<Value>) {
    let (frame, dangling) = (entry.frame_of(page), entry.dangling);
    let kind = if store.is_some() { "stores to" } else { "loads from" };
    if !matches!(w.page_entry(mm, page), Pte::Present(pte) if pte.pfn == frame) {
        w.ghost.exercised.add(Property::NoUseAfterFree);
    }
    let name = w.ghost.name(page);
    let home = home(w, (mm, page), frame);
    if dangling && w.ghost.is_asked(Property::NoUseAfterFree) {
        let what = format!(
            "{} {kind} {name} through a cached translation to frame {}, which was freed",
            at.cpu, frame.0
        );
        return violate(w, Some(at.cpu), Property::NoUseAfterFree, page, what);
    }
    if let Some(value) = store {
        match goes_by(w, (mm, page)) {
            None => {}
            Some(false) => w.ghost.exercised.add(Property::ToldOf),
            Some(true) => {
                let what = format!("{} stores to {name}, and nobody is told", at.cpu);
                return violate(w, Some(at.cpu), Property::ToldOf, page, what);
            }
        }
        let (mm, page) = stores_to(w, (mm, page), frame);
        w.frames.set_flags(frame, FrameFlags::ZERO_FILLED, false);
        return w.ghost.store((mm, page, frame), value);
    }
    let (found, expected) = (w.ghost.load(frame), w.ghost.expected(home));
    if w.ghost.watch.loads.contains(&at.op) {
        w.ghost.loaded.insert(at.op, found);
    }
    if writer(expected).is_some_and(|thread| thread != at.thread.0) {
        w.ghost.exercised.add(Property::Coherence);
    }
    if found != expected && !w.ghost.is_fading((mm, page, frame)) {
        let what = format!(
            "{} loads {} from {name} (frame {}), which holds {}",
            at.cpu,
            written(found),
            frame.0,
            written(expected)
        );
        let property = match home.0 == mm {
            true => w.ghost.wrong_value(found, process_of(mm), Property::Coherence),
            false => Property::Coherence,
        };
        violate(w, Some(at.cpu), property, page, what);
    }
}

/// Whether a store to the page, of which nobody is told, will not be found by who looks for what
/// was stored to either; `None`: nobody does.
fn goes_by(w: &CheckWorld, (mm, page): Place) -> Option<bool> {
    let found_by_scan =
        || w.mms[mm.index()].uffd.features.asynchronous && is_written(w.page_entry(mm, page));
    let goes_by_userfaultfd = w.ghost.is_protected((mm, page)).then(|| !found_by_scan());
    let goes_by_soft_dirty = w.ghost.is_tracked(mm).then(|| !is_soft_dirty(w, mm, page));
    goes_by_userfaultfd.max(goes_by_soft_dirty)
}

/// Where the page's contents are kept account of, which a load from `frame` should return: a file's
/// are in one place for all, and so are those of a private mapping until it has a copy of its own.
pub fn home(w: &CheckWorld, (mm, page): Place, frame: Pfn) -> Place {
    let file = w.file_of(mm, page).filter(|_| !w.ghost.has_own((mm, page)));
    file.map_or_else(|| stores_to(w, (mm, page), frame), home_of)
}

/// Where stores to the page, through `frame`, count: what is shared is in one place for all. Where
/// the mapping is gone, and its translations still to be taken away, the frame tells.
fn stores_to(w: &CheckWorld, (mm, page): Place, frame: Pfn) -> Place {
    let unmapped = w.mms[mm.index()].vma(page).is_none();
    let of_frame = || (unmapped && w.is_of_file(frame)).then(|| w.frames.place(frame));
    w.shared_object_of(mm, page).or_else(of_frame).map_or((mm, page), home_of)
}

/// Where stores to an object's page count.
pub const fn home_of((object, index): (ObjectId, u64)) -> Place {
    (MmId(SHARED | object.0), Vpn(index))
}

/// Beyond all address spaces.
const SHARED: u16 = 1 << 15;

/// Stores of one thread that can be told apart.
const STORES: Value = 1000;

/// What operation `op` of a thread stores: another value each; zero stores store zero.
pub fn stored(access: Access, thread: u16, op: u32) -> Value {
    if access == Access::WriteZero { 0 } else { u32::from(thread) * STORES + op % STORES + 1 }
}

/// The thread that stored a value other than zero.
pub fn writer(value: Value) -> Option<u16> {
    value.checked_sub(1).map(|number| (number / STORES) as u16)
}

/// A value in words.
pub fn written(value: Value) -> String {
    match writer(value) {
        None => "zero".to_owned(),
        Some(thread) => {
            format!("what thread {thread} stored in operation {}", (value - 1) % STORES)
        }
    }
}
