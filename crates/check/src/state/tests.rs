//! Whatever may decide what happens next is in the key of a state, and in the footprint of the step
//! that changed it.
#![allow(clippy::unwrap_used)]

use super::State;
use crate::access::{Way, ways};
use crate::choice::Choice;
use crate::env::{Next, Standing};
use crate::footprint::{Footprint, Taken};
use crate::judge;
use crate::key::{Key, extend, key_of};
use crate::memo::Memo;
use crate::parts::bit;
use crate::property::{Property, Violation};
use crate::setting::Setting;
use crate::setting::{Options, with_setting};
use crate::shadow::{Contents, begin_call, end_giving_up};
use crate::tlb::Entry;
use needless_model::addr::{
    CpuId, MmId, ObjectId, PageRange, Pfn, PinId, ProcessId, Span, ThreadId, Vpn,
};
use needless_model::arch::TINY;
use needless_model::call::{Gup, PinAccess, Purpose};
use needless_model::env::Lock;
use needless_model::kernels::KernelRow;
use needless_model::machine::cpu::{FolioBatch, MlockStep};
use needless_model::machine::frames::FrameFlags;
use needless_model::machine::lru::Lru;
use needless_model::machine::mm::{Life, Mm};
use needless_model::machine::nodes::{MemPolicy, Near};
use needless_model::machine::pins::Pin;
use needless_model::machine::room::Room;
use needless_model::machine::swap::Swap;
use needless_model::machine::tlb::Tlbs;
use needless_model::machine::unmap_batch::{Batch, Waiting};
use needless_model::machine::vma::{Locking, MergeRule, Vma};
use needless_model::machine::world::{At, Ghost, Task, World, mm_of};
use needless_model::policy::{SoftDirtyMerge, VmaMerge};
use needless_model::program::Prot;
use needless_model::pte::{PresentPte, Pte, PteFlags};
use needless_model::site::Site;
use needless_scenario::{Settings, Source, compile};
use std::collections::BTreeSet;

/// A key for each part of a state. What is new in a state does not compile until it is here.
#[rustfmt::skip]
fn parts(state: &State) -> Vec<(&'static str, Key)> {
    let State { world, threads, choices: _, footprint: _ } = state;
    let World {
        mms, cpus, tasks, deferred, frames, lru, objects, swap, pins, tlbs, ghost, tiers: _,
        policies: _, config: _, arch: _, nodes: _, processes: _, log: _, room: _,
        inconsistency: _,
    } = world;
    let Contents { pages, locks, loaded, just_freed, violation, watch: _, exercised: _ } = ghost;
    let standings: Vec<Standing> = threads.iter().map(|thread| thread.standing).collect();
    vec![
        ("mms", key_of(mms)), ("cpus", key_of(cpus)), ("tasks", key_of(tasks)),
        ("deferred", key_of(deferred)), ("lru", key_of(lru)),
        ("frames", key_of(frames)), ("objects", key_of(objects)), ("swap", key_of(swap)), ("pins", key_of(pins)), ("tlbs", key_of(tlbs)),
        ("pages", key_of(pages)), ("locks", key_of(locks)), ("loaded", key_of(loaded)),
        ("just freed", key_of(just_freed)), ("violation", key_of(violation)),
        ("threads", key_of(&standings)),
    ]
}

/// What a step's footprint has no bit for: locks are noted where they are taken, threads are told
/// apart anyway, and the rest is a step's own.
const NOT_SHARED: [&str; 5] = ["locks", "loaded", "just freed", "violation", "threads"];

const MM: MmId = mm_of(ProcessId::FIRST);
const FRAME: Pfn = Pfn(1);
const SLOT: u32 = 0;
const PAGE: Vpn = Vpn(0);
const MERGE: MergeRule =
    MergeRule { anon_vma: VmaMerge::Any, soft_dirty: SoftDirtyMerge::Changed, inner: true };

const PIN: Pin = Pin { frame: FRAME, place: (MM, PAGE), gup: Gup::Pin, access: PinAccess::Write };

const AT: At =
    At { cpu: CpuId(0), thread: ThreadId(0), running: None, op: 0, site: Site::HardwareWalk };

fn mm(state: &mut State) -> &mut Mm {
    &mut state.world.mms[MM.index()]
}

fn task(state: &mut State) -> &mut Task {
    &mut state.world.tasks[1]
}

fn swap(state: &mut State) -> &mut Swap {
    &mut state.world.swap
}

fn standing(state: &mut State) -> &mut Standing {
    &mut state.threads[1].standing
}

/// A translation in the TLB of CPU 0, but for one thing.
fn cache(state: &mut State, change: fn(&mut Entry)) {
    let pte = PresentPte::new(FRAME).with(PteFlags::WRITABLE, true).with(PteFlags::DIRTY, true);
    let mut entry = Entry::of(Span::one(PAGE), Some(pte), TINY.accessed_dirty).unwrap();
    change(&mut entry);
    state.world.tlbs.change(CpuId(0), 1, entry, true);
}

fn purpose(revokes: bool) -> Purpose {
    let range = PageRange::one(PAGE);
    let ranges = |wanted: bool| wanted.then_some(range).into_iter().collect();
    Purpose { revokes: ranges(revokes), gives_up: ranges(!revokes) }
}

type Change = (&'static str, fn(&mut State));

const CHANGES: &[Change] = &[
    ("mms", |s| _ = mm(s).detach(PageRange::one(PAGE))),
    ("mms", |s| mm(s).insert(Vma::new(PageRange::one(PAGE), Prot::Read), MERGE)),
    ("mms", |s| mm(s).life = Life::None),
    ("mms", |s| mm(s).add(Vma { forked: true, ..Vma::new(PageRange::one(Vpn(9)), Prot::Read) })),
    ("mms", |s| {
        mm(s).add(Vma { locking: Locking::All, ..Vma::new(PageRange::one(Vpn(9)), Prot::Read) })
    }),
    ("mms", |s| {
        mm(s).add(Vma { locking: Locking::OnFault, ..Vma::new(PageRange::one(Vpn(9)), Prot::Read) })
    }),
    ("objects", |s| _ = s.world.objects.create(MM, None)),
    ("objects", |s| _ = s.world.objects.create(MM, Some(ObjectId(1)))),
    ("mms", |s| {
        mm(s).table.allocate(Vpn(8), 1, &Room::UNBOUNDED);
    }),
    ("mms", |s| _ = mm(s).table.set(PAGE, Pte::None, 0)),
    ("mms", |s| _ = mm(s).table.set(PAGE, Pte::Present(PresentPte::new(Pfn(2))), 0)),
    ("mms", |s| mm(s).cpumask.insert(CpuId(7))),
    ("mms", |s| mm(s).tlb_gen += 1),
    ("mms", |s| mm(s).open_gathers += 1),
    ("mms", |s| mm(s).batched.pending += 1),
    ("mms", |s| mm(s).batched.flushed += 1),
    ("mms", |s| mm(s).unloads += 1),
    ("cpus", |s| s.world.cpus[1].loaded = MmId(0)),
    ("cpus", |s| s.world.cpus[1].lazy = true),
    ("cpus", |s| s.world.cpus[1].asid ^= 1),
    ("cpus", |s| s.world.cpus[1].slots[0].mm = None),
    ("cpus", |s| s.world.cpus[1].slots[0].tlb_gen += 1),
    ("cpus", |s| s.world.cpus[1].next_asid += 1),
    ("cpus", |s| s.world.cpus[1].running = Some(ThreadId(9))),
    ("cpus", |s| s.world.cpus[1].lru[FolioBatch::Add as usize].push(FRAME)),
    ("cpus", |s| s.world.cpus[1].lru[FolioBatch::Deactivate as usize].push(FRAME)),
    ("cpus", |s| s.world.cpus[1].lru[FolioBatch::Lazyfree as usize].push(FRAME)),
    ("cpus", |s| s.world.cpus[1].mlock.push((FRAME, MlockStep::Mlock))),
    ("cpus", |s| s.world.cpus[1].mlock.push((FRAME, MlockStep::New))),
    ("cpus", |s| s.world.cpus[1].mlock.push((FRAME, MlockStep::Munlock))),
    ("frames", |s| s.world.frames.change_mlocked(FRAME, |folio| folio.mlocked = true)),
    ("frames", |s| s.world.frames.change_mlocked(FRAME, |folio| folio.unevictable = true)),
    ("frames", |s| s.world.frames.change_mlocked(FRAME, |folio| folio.count = 1)),
    ("tasks", |s| task(s).unmap_batch.flush_required = true),
    ("tasks", |s| task(s).unmap_batch.writable = true),
    ("tasks", |s| task(s).unmap_batch.cpus.insert(CpuId(0))),
    ("tasks", |s| task(s).unmap_batch.cover(MM, 1)),
    ("tasks", |s| task(s).unmap_batch.issuer = Some(CpuId(1))),
    ("tasks", |s| task(s).mempolicy = MemPolicy::Local),
    ("deferred", |s| s.world.unmap_batch_mut(Batch::Deferred, ThreadId(1)).put_off(true)),
    ("deferred", |s| s.world.deferred.keep(Waiting { frame: FRAME, to: None, of: None })),
    ("deferred", |s| s.world.deferred.addresses.push((MmId(1), PageRange::one(Vpn(1))))),
    ("deferred", |s| s.world.deferred.flushing = 1),
    ("deferred", |s| s.world.deferred.lists = 1),
    ("tasks", |s| task(s).deferring = Some(Box::default())),
    ("lru", |s| *s.world.lru = Lru::new(Some(1))),
    ("frames", |s| _ = s.world.frames.update(FRAME, |f| f.refs += 1)),
    ("frames", |s| _ = s.world.frames.update(FRAME, |f| f.maps += 1)),
    ("frames", |s| _ = s.world.frames.update(FRAME, |f| f.object = ObjectId(3))),
    ("frames", |s| _ = s.world.frames.update(FRAME, |f| f.index = 3)),
    ("frames", |s| s.world.lru_add(FRAME, |_| ())),
    ("frames", |s| _ = s.world.frames.allocate(FrameFlags::default(), &Room::UNBOUNDED)),
    ("frames", |s| s.world.frames.release(FRAME)),
    ("swap", |s| _ = swap(s).allocate(Pfn(2), &Room::UNBOUNDED)),
    ("swap", |s| swap(s).count(SLOT, 1)),
    ("swap", |s| swap(s).written(SLOT, true, false)),
    ("swap", |s| swap(s).written(SLOT, false, true)),
    ("swap", |s| swap(s).uncache(FRAME)),
    ("mms", |s| mm(s).has_pinned = true),
    ("mms", |s| mm(s).global_since = Some(1)),
    ("mms", |s| mm(s).write_protect_seq += 1),
    ("mms", |s| mm(s).handles_segv = true),
    ("objects", |s| _ = s.world.objects.create_shared(MM)),
    ("objects", |s| _ = s.world.objects.set_page(ObjectId(1), 0, FRAME)),
    ("pages", |s| s.world.ghost.unmapped_shared(MM, PAGE, FRAME, (ObjectId(2), 0))),
    ("pages", |s| s.world.ghost.tracks(MM, true)),
    ("pins", |s| s.world.pins.hold(PinId(0), PIN)),
    ("pages", |s| s.world.ghost.pinned(PinId(0), PIN)),
    ("tlbs", |s| cache(s, |_| ())),
    ("tlbs", |s| cache(s, |entry| entry.pages = Span::one(Vpn(1)))),
    ("tlbs", |s| cache(s, |entry| entry.frame = Pfn(2))),
    ("tlbs", |s| cache(s, |entry| entry.writable = false)),
    ("tlbs", |s| cache(s, |entry| entry.dirty = false)),
    ("tlbs", |s| cache(s, |entry| entry.dangling = true)),
    ("tlbs", |s| s.world.tlbs.assign(CpuId(0), 1, MmId(0), &Mm::new(s.world.arch))),
    ("pages", |s| s.world.ghost.zeroed(Pfn(2))),
    ("pages", |s| s.world.ghost.migrated(FRAME, Pfn(2))),
    ("pages", |s| s.world.ghost.store((MM, PAGE, FRAME), 7)),
    ("pages", |s| s.world.ghost.store((MM, PAGE, Pfn(2)), 7)),
    ("pages", |s| s.world.ghost.swapped_out(FRAME, SLOT)),
    ("pages", |s| s.world.ghost.discarded(MM, PAGE, Some(FRAME))),
    ("pages", |s| s.world.ghost.moved(MM, PAGE, Vpn(1), Some(FRAME))),
    ("pages", |s| begin_call(&mut s.world, AT, MM, &purpose(true))),
    ("pages", |s| begin_call(&mut s.world, AT, MM, &purpose(false))),
    ("pages", |s| {
        begin_call(&mut s.world, AT, MM, &purpose(false));
        end_giving_up(&mut s.world, AT);
    }),
    ("pages", |s| s.world.ghost.forked_page(ThreadId(0), MM, MmId(2), PAGE, Some(FRAME))),
    ("pages", |s| s.world.ghost.table_unlinked(&s.world.cpus, MM, PAGE, 1)),
    ("pages", |s| {
        s.world.ghost.table_unlinked(&s.world.cpus, MM, PAGE, 1);
        s.world.ghost.table_freed(MM, PAGE, 1);
    }),
    ("locks", |s| s.world.ghost.locks.take(Lock::MmapRead(MM), 0)),
    ("locks", |s| s.world.ghost.locks.take(Lock::MmapRead(MM), 1)),
    ("locks", |s| s.world.ghost.locks.take(Lock::MmapWrite(MM), 0)),
    ("locks", |s| s.world.ghost.locks.take(Lock::Folio(FRAME), 0)),
    ("loaded", |s| _ = s.world.ghost.loaded.insert(1, 7)),
    ("just freed", |s| s.world.ghost.just_freed.push(FRAME)),
    ("violation", |s| {
        let property = Property::Progress;
        let violation = Violation { property, what: String::new(), cpu: None, page: PAGE };
        s.world.ghost.violation = Some(violation);
    }),
    ("threads", |s| standing(s).next = Next::Step(Site::FolioPut)),
    ("threads", |s| standing(s).act += 1),
    ("threads", |s| standing(s).past = extend(Key::default(), &1)),
];

/// A page is mapped to a frame that has a swap slot, too; both CPUs run the address space.
fn state(setting: &Setting<'_>) -> Box<State> {
    let mut state = setting.initial();
    let w = &mut state.world;
    let range = setting.program.areas[0].range;
    w.mms[MM.index()].insert(Vma::new(range, Prot::ReadWrite), (&w.policies).into());
    w.mms[MM.index()].table.allocate(PAGE, 1, &Room::UNBOUNDED);
    assert_eq!(w.hand_out(AT, Near::Here, 0, FrameFlags::SWAP_BACKED), Some(FRAME));
    w.mms[MM.index()].table.set(PAGE, Pte::Present(PresentPte::new(FRAME)), 0);
    w.ghost.locks.take(Lock::MmapRead(MM), 0);
    w.prepare_anon_vma(AT, MM, PAGE);
    assert!(w.ghost.locks.release(Lock::MmapRead(MM), 0));
    let (object, index) = w.object_of(MM, PAGE);
    w.frames.update(FRAME, |f| {
        (f.refs, f.maps, f.object, f.index) = (2, 1, object, index);
        f.flags.set(FrameFlags::SWAP_CACHE, true);
    });
    assert_eq!(w.swap.allocate(FRAME, &Room::UNBOUNDED), Some(SLOT));
    assert_eq!(range.start, PAGE);
    state
}

fn copy(state: &State) -> State {
    State::new(state.world.clone(), state.threads.clone())
}

fn with_state(test: impl FnOnce(&State)) {
    with_setting_and_state(|_, state| test(state));
}

fn with_setting_and_state(test: impl FnOnce(&Setting<'_>, &State)) {
    let text = "scenario \"x\" { machine { cpus 2; swap \"zram\" size=\"1M\" }
                thread \"main\" cpu=0 { map \"heap\" pages=2; rounds 1 { read \"heap\" } }
                thread \"other\" cpu=1 { pin \"heap[0]\" as=\"p\" access=\"read\"; spin } }";
    let program = compile(&Source::new("x", text), &Settings::default()).unwrap();
    let row = KernelRow::parse("6.12").unwrap();
    let tested = with_setting(&program, &row, &Options::default(), |setting| {
        test(&setting, &state(&setting));
        Ok(())
    });
    tested.unwrap();
}

#[test]
fn each_part_is_in_the_key() {
    with_state(|before| {
        let mut changed = BTreeSet::new();
        for (index, (part, change)) in CHANGES.iter().enumerate() {
            let mut after = copy(before);
            assert_eq!(after.key(), before.key());
            change(&mut after);
            let different = parts(before).into_iter().zip(parts(&after)).filter(|(a, b)| a != b);
            let different: Vec<&str> = different.map(|((name, _), _)| name).collect();
            assert_eq!(different, [*part], "change {index}");
            assert_ne!(after.key(), before.key(), "change {index}, of {part}");
            changed.insert(*part);
        }
        assert!(parts(before).iter().all(|(part, _)| changed.contains(part)), "{changed:?}");
    });
}

/// A part that nobody shares is changed where it is.
#[test]
fn a_part_that_is_changed_again_has_another_key() {
    with_state(|before| {
        let mut after = copy(before);
        let mut keys = BTreeSet::new();
        for _ in 0..3 {
            mm(&mut after).tlb_gen += 1;
            keys.insert(format!("{:?}", after.key()));
        }
        assert_eq!(keys.len(), 3);
    });
}

#[test]
fn each_part_is_in_the_footprint() {
    let thread = |thread, footprint| Taken { choice: Choice::Go { thread, way: 0 }, footprint };
    with_state(|before| {
        for (index, (part, change)) in CHANGES.iter().enumerate() {
            let mut after = copy(before);
            change(&mut after);
            let footprint = Footprint::default().and(&before.world, &after.world);
            let commutes = thread(0, footprint).commutes(&thread(1, footprint));
            assert_eq!(commutes, NOT_SHARED.contains(part), "change {index}, of {part}");
        }
    });
}

/// A step is quiet only if it changes what no judge of states looks at.
#[test]
fn what_is_judged_is_not_quiet() {
    with_state(|before| {
        for (index, (part, change)) in CHANGES.iter().enumerate() {
            let mut after = copy(before);
            change(&mut after);
            let footprint = Footprint::default().and(&before.world, &after.world);
            let quiet = NOT_SHARED.contains(part) || *part == "tasks";
            assert_eq!(footprint.is_quiet(), quiet, "change {index}, of {part}");
            let mut judged = copy(&after);
            judge::state(&mut judged.world);
            let looked_at = judged.world.tasks.iter().any(|task| task.was_looked_at());
            assert!(!looked_at, "change {index}, of {part}: a judge looks at a task");
        }
    });
    let quiet = |lock| {
        let mut footprint = Footprint::default();
        footprint.lock(lock);
        footprint.is_quiet()
    };
    assert!(quiet(Lock::MmapRead(MM)) && quiet(Lock::VmaRead(MM, PageRange::one(PAGE))));
    let judged = [Lock::PageTable(MM, PAGE), Lock::Pmd(MM, PAGE), Lock::Folio(FRAME)];
    assert!(!judged.map(quiet).contains(&true));
}

/// What a row has no number for: it is empty between two steps.
const NOT_KEPT: [&str; 2] = ["just freed", "violation"];

/// A row names every part, and who compares two worlds learns which part was looked at.
#[test]
fn each_part_is_in_the_row() {
    with_setting_and_state(|setting, before| {
        let memo = Memo::new(setting, 1);
        let row = memo.row(copy(before));
        assert_eq!(key_of_row(&memo, &row), before.key());
        for (index, (part, change)) in CHANGES.iter().enumerate() {
            let mut after = memo.state(&row);
            change(&mut after);
            if NOT_KEPT.contains(part) {
                continue;
            }
            let differs = memo.store.difference(&mut after.world, &row);
            let key = after.key();
            let changed = memo.row(after);
            let places: Vec<usize> =
                (0..row.len()).filter(|place| row[*place] != changed[*place]).collect();
            assert_eq!(places.len(), 1, "change {index}, of {part}");
            assert_eq!(key_of_row(&memo, &changed), key, "change {index}, of {part}");
            if *part != "threads" {
                assert!(differs.looked_at & bit(places[0]) != 0, "change {index}, of {part}");
                assert_eq!(differs.changed, [(places[0] as u16, changed[places[0]])]);
                assert_eq!(before.key().plus(differs.key), key, "change {index}, of {part}");
            }
        }
    });
}

fn key_of_row(memo: &Memo<'_>, row: &[u32]) -> Key {
    memo.state(row).key()
}

/// What must not be when every thread is done.
const CONTRADICTIONS: &[fn(&mut State)] = &[
    |s| _ = s.world.frames.update(FRAME, |f| f.refs += 1),
    |s| _ = s.world.frames.update(FRAME, |f| f.maps = 0),
    |s| _ = s.world.frames.update(FRAME, |f| f.index = 1),
    |s| _ = s.world.frames.update(FRAME, |f| f.flags.set(FrameFlags::SWAP_CACHE, false)),
    |s| _ = mm(s).table.set(PAGE, Pte::None, 0),
    |s| s.world.frames.release(FRAME),
    |s| s.world.cpus[1].lru[FolioBatch::Add as usize].push(FRAME),
    |s| swap(s).count(SLOT, 1),
    |s| swap(s).uncache(FRAME),
    |s| _ = swap(s).allocate(FRAME, &Room::UNBOUNDED),
    |s| mm(s).open_gathers += 1,
    |s| s.world.pins.hold(PinId(0), PIN),
    |s| task(s).unmap_batch.flush_required = true,
    |s| s.world.ghost.locks.take(Lock::MmapRead(MM), 0),
    |s| {
        mm(s).detach(PageRange::one(PAGE));
        mm(s).unlink(PageRange::one(PAGE));
    },
    |s| {
        reprotect(s, Prot::Read);
        mm(s).table.set(PAGE, writable(), 0);
    },
    |s| reprotect(s, Prot::None),
];

/// What no kernel does with frames, noted at once by who does it.
const MISUSES: &[Change] = &[
    ("a reference was taken to a free frame", |s| {
        s.world.frames.release(FRAME);
        s.world.get_frame(AT, FRAME);
    }),
    ("a reference was taken to a free frame", |s| {
        s.world.frames.release(FRAME);
        s.world.get_and_map(AT, FRAME, |_| ());
    }),
    ("a frame in use was handed out", |s| {
        s.world.frames.release(FRAME);
        s.world.frames.update(FRAME, |f| f.maps = 1);
        s.world.hand_out(AT, Near::Here, 0, FrameFlags::default());
    }),
    ("a frame in use was handed out", |s| {
        let folio = s.world.hand_out(AT, Near::Here, 1, FrameFlags::default()).unwrap();
        s.world.frames.release(folio);
        s.world.frames.update(Pfn(folio.0 + 1), |f| f.maps = 1);
        s.world.hand_out(AT, Near::Here, 1, FrameFlags::default());
    }),
    ("a mapping of a folio was dropped that did not exist", |s| {
        let folio = s.world.hand_out(AT, Near::Here, 1, FrameFlags::default()).unwrap();
        s.world.drop_whole_mapping(AT, folio);
    }),
    ("the last reference to a frame in use was dropped", |s| {
        s.world.put_references(AT, FRAME, 2);
    }),
];

#[test]
fn a_misused_frame_is_noted_at_once() {
    with_state(|before| {
        for (what, misuse) in MISUSES {
            let mut state = copy(before);
            misuse(&mut state);
            let noted = state.world.inconsistency.as_ref().map(|found| found.what.as_str());
            assert_eq!(noted, Some(*what));
        }
    });
}

/// The mapping of the page has another protection, and nothing else is different.
fn reprotect(s: &mut State, prot: Prot) {
    let vma = *mm(s).vma(PAGE).unwrap();
    mm(s).insert(Vma { prot, ..vma }, MERGE);
}

fn writable() -> Pte {
    let pte = PresentPte::new(FRAME).with(PteFlags::WRITABLE, true);
    Pte::Present(pte.with(PteFlags::ACCESSED, true).with(PteFlags::DIRTY, true))
}

/// A store that a cached translation refuses may fault, whatever the PTE allows by now.
#[test]
fn a_cached_translation_refuses_stores() {
    with_state(|before| {
        let mut state = copy(before);
        mm(&mut state).table.set(PAGE, writable(), 0);
        let faults = |s: &State, write| ways(&s.world, AT, (MM, PAGE), write).contains(&Way::Fault);
        assert!(!faults(&state, true));
        cache(&mut state, |entry| (entry.writable, entry.dirty) = (false, false));
        assert!(faults(&state, true) && !faults(&state, false));
    });
}

#[test]
fn counts_are_held_against_page_tables_at_the_end() {
    with_setting_and_state(|setting, end| {
        let mut right = copy(end);
        setting.check_counts(&mut right.world);
        assert_eq!(right.world.inconsistency, None);
        for (index, change) in CONTRADICTIONS.iter().enumerate() {
            let mut wrong = copy(end);
            change(&mut wrong);
            setting.check_counts(&mut wrong.world);
            assert!(wrong.world.inconsistency.is_some(), "contradiction {index}");
        }
    });
}

/// Locks of which one is enough, and what asks for it.
type Asks = (&'static [Lock], fn(&mut State));

#[test]
fn what_asks_for_a_lock_is_refused_without_it() {
    const READ: Lock = Lock::MmapRead(MM);
    const WRITE: Lock = Lock::MmapWrite(MM);
    const TABLE: Lock = Lock::PageTable(MM, PAGE);
    const ASKS: &[Asks] = &[
        (&[TABLE], |s| s.world.set_pte(AT, MM, PAGE, Pte::None)),
        (&[READ, WRITE], |s| s.world.mmap_assert_locked(AT, MM)),
        (&[WRITE], |s| s.world.mmap_assert_write_locked(AT, MM)),
    ];
    let others = [READ, WRITE, TABLE, Lock::Folio(FRAME)];
    with_state(|before| {
        for (index, (enough, ask)) in ASKS.iter().enumerate() {
            for lock in others {
                for thread in [0, 1] {
                    let mut state = copy(before);
                    state.world.ghost.locks.take(lock, thread);
                    ask(&mut state);
                    let allowed = enough.contains(&lock) && thread == AT.thread.0;
                    assert_eq!(state.world.inconsistency.is_none(), allowed, "{index} {lock:?}");
                }
            }
        }
    });
}
