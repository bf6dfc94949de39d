//! Does the model agree with itself? Counts against page tables, TLBs against PTEs.

use super::env::SimWorld;
use crate::addr::Pfn;
use crate::machine::frames::FrameFlags;
use crate::machine::world::USER_MM;
use std::collections::BTreeMap;

/// What is wrong, if anything: every frame's mappings and references must be accounted for.
pub(super) fn check(w: &SimWorld) -> Option<String> {
    let mm = &w.mms[USER_MM.index()];
    let mut maps: BTreeMap<Pfn, u32> = BTreeMap::new();
    for page in mm.vmas().iter().flat_map(|vma| vma.range.iter()) {
        if !mm.table.has_leaf(page) {
            continue;
        }
        let Some(pte) = mm.table.get(page).present().filter(|pte| !pte.special()) else { continue };
        *maps.entry(pte.pfn).or_default() += 1;
        let frame = w.frames.get(pte.pfn);
        if frame.page != page {
            return Some(format!("frame {} does not know that it is mapped at {page}", pte.pfn.0));
        }
    }
    let mut batched: BTreeMap<Pfn, u32> = BTreeMap::new();
    for frame in w.cpus.iter().flat_map(|cpu| cpu.batched()) {
        *batched.entry(frame).or_default() += 1;
    }
    w.frames.iter().find_map(|(pfn, frame)| {
        let mapped = maps.get(&pfn).copied().unwrap_or(0);
        let others = batched.get(&pfn).copied().unwrap_or(0)
            + u32::from(frame.flags.has(FrameFlags::SWAP_CACHE));
        if frame.maps != mapped {
            return Some(format!("frame {} counts {} mappings of {mapped}", pfn.0, frame.maps));
        }
        (frame.refs != mapped + others).then(|| {
            format!("frame {} counts {} references of {}", pfn.0, frame.refs, mapped + others)
        })
    })
}
