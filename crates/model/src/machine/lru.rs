//! The LRU lists: which folios reclaim can find, and in which order.
//!
//! A flag of its frame says whether a folio is on a list. The order of the lists is kept only if a
//! scenario needs it ([`Config::lru_order`](crate::kernels::Config::lru_order)). Then each frame
//! has a link, and its flags and its node decide which list it is on. [`World::lru_add`] and
//! [`World::lru_del`] are the only writers of the flag and of the links. A folio that is taken off
//! with a reference is isolated: it is on no list, and its taker puts it back.
//!
//! Source: include/linux/mm_inline.h:lruvec_add_folio, lruvec_del_folio, folio_lru_list;
//! include/linux/mmzone.h: struct lruvec (6.1 to 7.3; 5.10 has them under other names).

use super::frames::{FrameFlags, ZERO_PAGE};
use super::world::{At, Mode, World};
use crate::addr::{NodeId, Pfn};
use crate::env::Learnt;

/// The lists of a node (`enum lru_list`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Private and shared memory that was not used recently.
    InactiveAnon,
    /// Private and shared memory that was used recently.
    ActiveAnon,
    /// Pages of files that were not used recently.
    InactiveFile,
    /// Pages of files that were used recently.
    ActiveFile,
    /// Locked memory, which reclaim does not look at.
    Unevictable,
}

impl List {
    const COUNT: usize = 5;
}

/// The end of a list that a folio joins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that reclaim reaches last.
    Head,
    /// The end that reclaim takes folios from.
    Tail,
}

/// The value for "no folio". The zero page can stand for it, because it is on no list.
const NONE: Pfn = ZERO_PAGE;

/// A frame's neighbours.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Link {
    /// The neighbour towards the head.
    before: Pfn,
    /// The neighbour towards the tail.
    after: Pfn,
    /// The number of the list, from 1; 0 means that the frame is on no list.
    list: u16,
}

impl Link {
    const OFF: Link = Link { before: NONE, after: NONE, list: 0 };
}

/// The first and the last folio of a list, and their number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Ends {
    head: Pfn,
    tail: Pfn,
    folios: u32,
}

/// The lists of all nodes. It is empty if the order is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lru {
    /// The link of each frame.
    links: Vec<Link>,
    /// The ends of each list, by node and list.
    ends: Vec<Ends>,
}

impl Lru {
    /// Empty lists for this many nodes; `None` if the order is not kept.
    pub fn new(nodes: Option<usize>) -> Lru {
        let ends =
            vec![Ends { head: NONE, tail: NONE, folios: 0 }; nodes.unwrap_or(0) * List::COUNT];
        Lru { links: Vec::new(), ends }
    }

    fn number(node: NodeId, list: List) -> u16 {
        (node.index() * List::COUNT + list as usize + 1) as u16
    }

    fn link_mut(&mut self, folio: Pfn) -> &mut Link {
        let index = folio.0 as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Link::OFF);
        }
        &mut self.links[index]
    }

    fn link(&self, folio: Pfn) -> Link {
        self.links.get(folio.0 as usize).copied().unwrap_or(Link::OFF)
    }

    /// Inserts the folio, which is on no list, between its neighbours.
    fn insert(&mut self, folio: Pfn, link: Link) {
        *self.link_mut(folio) = link;
        let ends = &mut self.ends[usize::from(link.list) - 1];
        ends.folios += 1;
        match link.before {
            NONE => ends.head = folio,
            before => self.links[before.0 as usize].after = folio,
        }
        let ends = &mut self.ends[usize::from(link.list) - 1];
        match link.after {
            NONE => ends.tail = folio,
            after => self.links[after.0 as usize].before = folio,
        }
    }

    fn add(&mut self, folio: Pfn, number: u16, end: End) {
        let ends = self.ends[usize::from(number) - 1];
        let link = match end {
            End::Head => Link { before: NONE, after: ends.head, list: number },
            End::Tail => Link { before: ends.tail, after: NONE, list: number },
        };
        self.insert(folio, link);
    }

    /// Inserts `folio` directly before `next`, which is on a list.
    fn add_before(&mut self, folio: Pfn, next: Pfn) {
        let Link { before, list, .. } = self.link(next);
        if list != 0 {
            self.insert(folio, Link { before, after: next, list });
        }
    }

    fn del(&mut self, folio: Pfn) {
        let Link { before, after, list } = self.link(folio);
        let Some(number) = usize::from(list).checked_sub(1) else { return };
        *self.link_mut(folio) = Link::OFF;
        match before {
            NONE => self.ends[number].head = after,
            before => self.links[before.0 as usize].after = after,
        }
        match after {
            NONE => self.ends[number].tail = before,
            after => self.links[after.0 as usize].before = before,
        }
        self.ends[number].folios -= 1;
    }

    /// The folios of a list, beginning with the one that reclaim takes next.
    pub fn from_tail(&self, node: NodeId, list: List) -> impl Iterator<Item = Pfn> + '_ {
        let number = usize::from(Lru::number(node, list)) - 1;
        let tail = self.ends.get(number).map_or(NONE, |ends| ends.tail);
        let some = |folio: Pfn| (folio != NONE).then_some(folio);
        std::iter::successors(some(tail), move |folio| some(self.link(*folio).before))
    }

    /// The number of folios on a list.
    pub fn len(&self, node: NodeId, list: List) -> u32 {
        let number = usize::from(Lru::number(node, list)) - 1;
        self.ends.get(number).map_or(0, |ends| ends.folios)
    }

    /// Whether all lists are empty.
    pub fn is_empty(&self) -> bool {
        self.ends.iter().all(|ends| ends.folios == 0)
    }
}

/// The action of reclaim for a folio that it finds on an inactive list.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum References {
    /// Reclaim it.
    Reclaim,
    /// Keep it for one more round, marked as referenced.
    Keep,
    /// Make it active.
    Activate,
}

impl Learnt for References {
    fn nothing() -> References {
        References::Keep
    }
}

impl References {
    /// The action for a folio whose accessed bit is set in this many PTEs. `referenced`: whether
    /// the folio is marked (`PG_referenced`).
    ///
    /// Source: mm/vmscan.c:page_check_references (5.10), folio_check_references (6.1 to 7.3), for
    /// private memory.
    pub const fn check(ptes: u32, referenced: bool) -> References {
        match (ptes, referenced) {
            (0, _) => References::Reclaim,
            (1, false) => References::Keep,
            _ => References::Activate,
        }
    }
}

impl<M: Mode> World<M> {
    /// Adds the folio to the head of its list, and changes its other flags.
    #[inline(always)]
    pub fn lru_add(&mut self, folio: Pfn, change: impl FnOnce(&mut FrameFlags)) {
        self.frames.change_flags(folio, |flags| {
            flags.set(FrameFlags::LRU, true);
            change(flags);
        });
        if self.config.lru_order {
            self.link_on_lru(folio, End::Head);
        }
    }

    /// Removes the folio from its list, and clears its other `flags`.
    #[inline(always)]
    pub fn lru_del(&mut self, folio: Pfn, flags: FrameFlags) {
        self.frames.set_flags(folio, FrameFlags::LRU.and(flags), false);
        if self.config.lru_order {
            self.lru.del(folio);
        }
    }

    /// Moves the folio, if it is on a list, to an end of the list that its flags say now.
    #[inline(always)]
    pub fn lru_move(&mut self, folio: Pfn, end: End) {
        if self.config.lru_order && self.frames.flags(folio).on_lru() {
            self.lru.del(folio);
            self.link_on_lru(folio, end);
        }
    }

    #[cold]
    fn link_on_lru(&mut self, folio: Pfn, end: End) {
        let number = Lru::number(self.nodes.of_frame(folio), self.lru_list(folio));
        self.lru.add(folio, number, end);
    }

    /// The list that the folio belongs to, whether or not it is there (`folio_lru_list`).
    pub fn lru_list(&self, folio: Pfn) -> List {
        let flags = self.frames.flags(folio);
        let (anon, active) = (flags.has(FrameFlags::SWAP_BACKED), flags.has(FrameFlags::ACTIVE));
        match (anon, active) {
            _ if self.frames.mlocked(folio).unevictable => List::Unevictable,
            (true, false) => List::InactiveAnon,
            (true, true) => List::ActiveAnon,
            (false, false) => List::InactiveFile,
            (false, true) => List::ActiveFile,
        }
    }

    /// Takes a folio off the LRU for this caller alone, with a reference, and marks it inactive.
    /// False if it is on no list.
    ///
    /// Source: mm/vmscan.c:isolate_lru_page (5.10), folio_isolate_lru (6.1 to 7.3); reclaim_pages,
    /// shrink_active_list (5.10 to 7.3).
    pub fn isolate_lru(&mut self, at: At, folio: Pfn) -> bool {
        if !self.frames.flags(folio).on_lru() {
            return false;
        }
        self.lru_del(folio, FrameFlags::ACTIVE);
        self.get_frame(at, folio);
        true
    }

    /// Removes a frame that is being freed from its list (`__page_cache_release`).
    #[inline(always)]
    pub(super) fn lru_forget(&mut self, frame: Pfn) {
        if self.config.lru_order {
            self.lru.del(frame);
        }
    }

    /// Splits a large folio into small ones. On the lists, the others come before the first one
    /// (`lru_add_page_tail`).
    pub fn split_folio(&mut self, at: At, folio: Pfn) {
        let (head, _) = self.frames.folio(folio);
        if head != folio {
            self.impossible(at, "a folio was split that is a part of another");
        }
        let pages = self.frames.pages_of_folio(folio);
        self.frames.split_folio(folio);
        if self.config.lru_order {
            pages.skip(1).for_each(|page| self.lru.add_before(page, folio));
        }
    }

    /// Splits a large folio of a file into several, with the page `at` as a folio by itself
    /// ([`Frames::split_folio_at`]).
    ///
    /// [`Frames::split_folio_at`]: super::frames::Frames::split_folio_at
    pub fn split_folio_at(&mut self, folio: Pfn, at: Pfn) {
        let pages = self.frames.pages_of_folio(folio);
        self.frames.split_folio_at(folio, at);
        if self.config.lru_order {
            let heads = pages.skip(1).filter(|page| self.frames.folio(*page).0 == *page);
            heads.for_each(|page| self.lru.add_before(page, folio));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn order(lru: &Lru, list: List) -> Vec<u32> {
        let found: Vec<u32> = lru.from_tail(NODE, list).map(|folio| folio.0).collect();
        assert_eq!(found.len(), lru.len(NODE, list) as usize);
        found
    }

    #[test]
    fn who_came_first_is_next_to_be_reclaimed() {
        let mut lru = Lru::new(Some(2));
        let anon = Lru::number(NODE, List::InactiveAnon);
        (1..=4).for_each(|folio| lru.add(Pfn(folio), anon, End::Head));
        assert_eq!(order(&lru, List::InactiveAnon), [1, 2, 3, 4]);
        lru.add(Pfn(5), anon, End::Tail);
        lru.del(Pfn(2));
        assert_eq!(order(&lru, List::InactiveAnon), [5, 1, 3, 4]);
        lru.add_before(Pfn(9), Pfn(3));
        lru.add_before(Pfn(8), Pfn(4));
        assert_eq!(order(&lru, List::InactiveAnon), [5, 1, 3, 9, 4, 8]);
        lru.add(Pfn(2), Lru::number(NODE, List::ActiveFile), End::Head);
        assert_eq!(
            (order(&lru, List::ActiveFile), lru.len(NodeId(0), List::ActiveFile)),
            (vec![2], 0)
        );
        [5, 1, 3, 9, 4, 8, 2].iter().for_each(|folio| lru.del(Pfn(*folio)));
        lru.del(Pfn(7));
        assert!(lru.is_empty());
    }

    /// One use keeps an inactive page; two uses activate it.
    #[test]
    fn what_reclaim_does_with_an_inactive_folio() {
        use References::{Activate, Keep, Reclaim};
        let check = |ptes| [References::check(ptes, false), References::check(ptes, true)];
        assert_eq!([check(0), check(1), check(2)], [[Reclaim; 2], [Keep, Activate], [Activate; 2]]);
    }
}
