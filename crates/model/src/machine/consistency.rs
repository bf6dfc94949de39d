//! Checks that the model agrees with itself: page tables with mappings, counts with page tables,
//! swap slots with swap PTEs, and that no thread has left work unfinished.

use super::frames::FrameFlags;
use super::mm::Mm;
use super::tlb::Tlbs;
use super::world::{Mode, Task, World};
use crate::addr::Vpn;
use crate::program::Prot;
use crate::pte::{MigrationPte, MigrationRight, Pte};

/// The first contradiction, if there is one. It is for moments when no thread is inside the kernel.
/// The mappings and references of every frame, the references to every swap slot, and every
/// deferred flush must be accounted for.
pub fn contradiction<M: Mode>(w: &World<M>) -> Option<String> {
    if w.tlbs.contradicts_itself() {
        return Some("two ways to tell what a CPU may hold give different answers".to_owned());
    }
    unfinished(w).or_else(|| miscounted(w))
}

/// A gather that is still open, or a deferred flush that was forgotten.
fn unfinished<M: Mode>(w: &World<M>) -> Option<String> {
    let mut spaces = w.spaces().map(|mm| &w.mms[mm.index()]);
    if spaces.clone().any(|mm| mm.open_gathers != 0) {
        return Some("a gather is still open".to_owned());
    }
    if spaces.clone().any(|mm| mm.has_detached()) {
        return Some("a mapping that was removed is still found".to_owned());
    }
    let huge = |mm: &Mm| mm.table.huge_entries().count();
    if spaces.any(|mm| mm.deposited as usize != huge(mm)) {
        return Some("the number of deposited page tables is not that of huge pages".to_owned());
    }
    let owes = |task: &Task| task.unmap_batch.flush_required || task.deferring.is_some();
    let forgot = w.tasks.iter().any(|task| owes(task));
    forgot.then(|| "a thread has not flushed what it unmapped".to_owned())
}

/// A PTE outside all mappings, or one that grants more than its mapping.
fn misplaced(mm: &Mm, page: Vpn, pte: Pte) -> Option<String> {
    let Some(vma) = mm.vma(page) else {
        return Some(format!("the PTE of {page} is set, but nothing is mapped there"));
    };
    if let Pte::Present(pte) = pte
        && pte.writable()
        && vma.protects(pte.uffd_wp())
    {
        return Some(format!("the PTE of {page} grants stores, but userfaultfd protects it"));
    }
    let granted = match pte {
        Pte::Present(pte) if pte.protnone() => Prot::None,
        Pte::Present(pte) if pte.writable() => Prot::ReadWrite,
        Pte::Present(_) => Prot::Read,
        Pte::Migration(MigrationPte { right: MigrationRight::Write, .. }) => Prot::ReadWrite,
        Pte::Migration(_) => Prot::Read,
        Pte::Swap(_) | Pte::None | Pte::Table(_) | Pte::Marker(_) => return None,
    };
    let too_much = match vma.prot {
        Prot::None => granted != Prot::None,
        Prot::Read => granted == Prot::ReadWrite,
        Prot::ReadWrite => false,
    };
    too_much.then(|| format!("the PTE of {page} grants more than its mapping"))
}

fn miscounted<M: Mode>(w: &World<M>) -> Option<String> {
    // By frame: the mappings of it, and the references to the folio that begins with it. By slot:
    // the references to it.
    let (mut maps, mut held) = (vec![0u32; w.frames.end()], vec![0u32; w.frames.end()]);
    let mut named = vec![0u32; w.swap.slots()];
    let entries = w.spaces().flat_map(|mm| {
        let entries = w.mms[mm.index()].table.entries();
        entries.map(move |(pages, pte)| (mm, pages, pte))
    });
    for (mm, pages, page, pte) in entries
        .flat_map(|(mm, pages, pte)| pages.range().iter().map(move |page| (mm, pages, page, pte)))
    {
        if let Some(what) = misplaced(&w.mms[mm.index()], page, pte) {
            return Some(what);
        }
        match pte {
            Pte::Present(pte) if !pte.special() => {
                let pfn = pte.pfn.of_page(pages, page);
                maps[pfn.0 as usize] += 1;
                if page == pages.start {
                    held[w.frames.folio(pfn).0.0 as usize] += 1;
                }
                let frame = w.frames.get(pfn);
                if !frame.flags.has(FrameFlags::ALLOCATED) {
                    return Some(format!("the PTE of {page} maps frame {}, which is free", pfn.0));
                }
                let vma = w.mms[mm.index()].vma(page);
                let finds = vma.is_some_and(|vma| {
                    vma.index(page) == frame.index && vma.may_have(frame.object, &w.objects)
                });
                if !finds {
                    let frame = pfn.0;
                    return Some(format!("no walk from frame {frame} finds its mapping at {page}"));
                }
            }
            Pte::Swap(swap) => named[swap.slot as usize] += 1,
            Pte::Present(_) | Pte::None | Pte::Table(_) | Pte::Migration(_) | Pte::Marker(_) => {}
        }
    }
    let batched = w.cpus.iter().flat_map(|cpu| cpu.batched());
    let named_once =
        batched.chain(w.objects.pages()).chain(w.frames.huge_zero()).chain(w.deferred.kept());
    let named_once = named_once.map(|frame| (frame, 1));
    let pinned = w.pins.held().map(|pin| (pin.frame, pin.weight()));
    for (frame, references) in named_once.chain(pinned) {
        held[w.frames.folio(frame).0.0 as usize] += references;
    }
    let frames = w.frames.iter().find_map(|(pfn, frame)| {
        let mapped = maps[pfn.0 as usize];
        let swap_cache = frame.flags.has(FrameFlags::SWAP_CACHE);
        let (folio, order) = w.frames.folio(pfn);
        let refs = held[folio.0 as usize] + (u32::from(swap_cache) << order);
        if frame.maps != mapped {
            return Some(format!("frame {} counts {} mappings of {mapped}", pfn.0, frame.maps));
        }
        if frame.refs != refs {
            return Some(format!("frame {} counts {} references of {refs}", pfn.0, frame.refs));
        }
        (swap_cache != w.swap.slot_of(pfn).is_some())
            .then(|| format!("frame {} and the swap cache do not agree", pfn.0))
    });
    w.objects.slots().for_each(|slot| named[slot as usize] += 1);
    frames.or_else(|| w.swap.contradiction(&named))
}
