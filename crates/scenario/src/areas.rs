//! Declares areas and gives them addresses.
//!
//! `map` declares an area. `mremap … to=` declares its destination if no `map` does. An area
//! without `at=` begins at a GiB of its own, with unused memory behind it. Nothing else uses its
//! last-level page tables or their parent, so only this area decides what its `munmap` frees.
//! `table="shared"` gives an area a neighbour: a page in the same last-level page table that stays
//! mapped. `table="alone"`, the default, promises that no other area is in its page tables.

use crate::document::{Node, Value};
use crate::error::{Problem, finish};
use crate::expr::{self, PagesAst};
use crate::mapped_files::Files;
use crate::params::new_name;
use crate::scope::Scope;
use miette::SourceSpan;
use needless_model::addr::{PageRange, Vpn};
use needless_model::arch::Arch;
use needless_model::program::{Area, Backing};
use std::collections::BTreeMap;

/// Where areas may lie on an architecture. Addresses and sizes are in bytes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Layout {
    /// The first address that areas get by default, and the address where these areas have to end.
    /// Libraries and the stack lie behind that end.
    base: u64,
    base_end: u64,
    /// The lowest address that `at=` may use, and the address past the highest one.
    user: (u64, u64),
    page_shift: u8,
    /// The size that one last-level page table maps.
    table: u64,
    /// The size that one table of last-level tables maps.
    spacing: u64,
}

impl Layout {
    /// Follows from the sizes of the architecture's pages and tables. By default, areas begin at
    /// seven eighths of the user's half (of the half that four levels have) and end a sixty-fourth
    /// before its end.
    pub fn of(arch: &Arch) -> Layout {
        let bytes = |pages: u64| pages << arch.page_shift;
        let half = bytes(arch.user_pages()).min(1 << 47);
        let low = bytes(1).max(0x1_0000).min(half / 2);
        Layout {
            // An address space this small has neither libraries nor a stack.
            base: if half < 1 << 32 { 0 } else { half / 8 * 7 },
            base_end: half / 64 * 63,
            user: (low, half - bytes(1)),
            page_shift: arch.page_shift,
            table: bytes(arch.table_pages(1)),
            spacing: bytes(arch.table_pages(2)),
        }
    }

    const fn page(&self) -> u64 {
        1 << self.page_shift
    }

    const fn address(&self, page: Vpn) -> u64 {
        page.0 << self.page_shift
    }

    const fn range(&self, at: u64, pages: u64) -> PageRange {
        PageRange::new(Vpn(at >> self.page_shift), pages)
    }

    /// Grows the range to multiples of `unit` bytes.
    fn spread(&self, range: PageRange, unit: u64) -> PageRange {
        let pages = unit >> self.page_shift;
        PageRange {
            start: Vpn(range.start.0 / pages * pages),
            end: Vpn(range.end.0.next_multiple_of(pages)),
        }
    }
}

/// The largest number of pages in one area.
const MAX_PAGES: i64 = 1 << 35;
/// The largest number of areas in one scenario.
const MAX_AREAS: usize = 256;

/// The areas of a scenario: first the ones it names, then their neighbours.
#[derive(Debug, Default)]
pub(crate) struct Areas {
    /// All areas, with their addresses.
    pub list: Vec<Area>,
    /// How many of the areas the scenario names. The rest are neighbours.
    pub named: usize,
    by_name: BTreeMap<String, u16>,
}

impl Areas {
    /// Finds the area of this name and returns its index.
    pub fn index(&self, name: &str) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// The names of areas that the scenario gives.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.list[..self.named].iter().map(|a| a.name.as_str())
    }
}

/// Declares and places all areas of the threads' bodies.
pub(crate) fn plan(
    bodies: &[&[Node]],
    files: &Files,
    scope: &Scope,
    layout: &Layout,
) -> Result<Areas, Vec<Problem>> {
    let (mut nodes, mut problems) = (Vec::new(), Vec::new());
    bodies.iter().for_each(|body| gather(body, &mut nodes));
    let mut plans = Plans { plans: Vec::new(), files, layout: *layout };
    for (verb, declare) in [("map", Plans::map as Declare<'_>), ("mremap", Plans::destination)] {
        for node in nodes.iter().filter(|n| n.name == verb) {
            if let Err(problem) = declare(&mut plans, node, scope) {
                problems.push(problem);
            }
        }
    }
    finish(problems, ())?;
    let mut problems = Vec::new();
    let areas = place(&plans.plans, layout, &mut problems);
    finish(problems, areas)
}

/// The first `map` of a body.
pub(crate) fn first_map(body: &[Node]) -> Option<&Node> {
    let mut nodes = Vec::new();
    gather(body, &mut nodes);
    nodes.into_iter().find(|n| n.name == "map")
}

type Declare<'a> = fn(&mut Plans<'a>, &Node, &Scope) -> Result<(), Problem>;

/// All nodes that may declare an area, in the order of the text.
fn gather<'a>(body: &'a [Node], out: &mut Vec<&'a Node>) {
    for node in body {
        if matches!(node.name.as_str(), "map" | "mremap") {
            out.push(node);
        }
        gather(node.children(), out);
    }
}

/// A declared area, before it has an address.
#[derive(Debug)]
struct Plan {
    name: String,
    span: SourceSpan,
    pages: u64,
    at: Option<(u64, SourceSpan)>,
    align: u64,
    shared: bool,
    backing: Backing,
}

struct Plans<'a> {
    plans: Vec<Plan>,
    files: &'a Files,
    layout: Layout,
}

impl Plans<'_> {
    fn find(&self, name: &str) -> Option<&Plan> {
        self.plans.iter().find(|p| p.name == name)
    }

    fn map(&mut self, node: &Node, scope: &Scope) -> Result<(), Problem> {
        let written = &node.args[0];
        let pages = node
            .prop("pages")
            .map(|v| scope.number_in(v, "the number of pages", 1..=MAX_PAGES))
            .transpose()?;
        if let Some(before) = self.find(written.text("an area's name")?) {
            return again(node, before, pages);
        }
        match pages {
            Some(pages) => self.declare(written, pages as u64, node, scope),
            None => Err(Problem::new(node.span, "how many pages?", "the first `map` of this area")
                .help("add pages=N")),
        }
    }

    fn destination(&mut self, node: &Node, scope: &Scope) -> Result<(), Problem> {
        let Some(to) = node.prop("to") else { return Ok(()) };
        if let Some(before) = self.find(to.text("an area's name")?) {
            return again(node, before, None);
        }
        let range = expr::parse_range(&node.args[0])?;
        let source = self.find(&range.area).map_or(0, |plan| plan.pages);
        let pages = match &range.pages {
            PagesAst::All => Some(source as i64),
            PagesAst::One(_) => Some(1),
            PagesAst::Span(first, end) => {
                // Loop variables are unknown here. The help below says so.
                let value = |ast| scope.fold(ast).ok().and_then(|v| v.known());
                value(end).zip(value(first)).and_then(|(e, f)| e.checked_sub(f))
            }
        };
        match pages {
            Some(pages) if (1..=MAX_PAGES).contains(&pages) => {
                self.declare(to, pages as u64, node, scope)
            }
            _ => Err(Problem::new(to.span, "the size of this area is not known", "declared here")
                .help("declare it with `map` before, or move a range of known size from a mapped area")),
        }
    }

    fn declare(
        &mut self,
        written: &Value,
        pages: u64,
        node: &Node,
        scope: &Scope,
    ) -> Result<(), Problem> {
        let name = new_name(written, "an area", scope)?.to_owned();
        if self.plans.len() == MAX_AREAS {
            return Err(Problem::new(written.span, "too many areas", "this one")
                .help(format!("at most {MAX_AREAS}")));
        }
        let align = match node.prop("align") {
            Some(value) => alignment(value, scope, &self.layout)?,
            None => self.layout.page(),
        };
        let address = |value| address(value, align, pages, scope, &self.layout);
        let at = node.prop("at").map(address).transpose()?;
        let shared = node.prop("table").map(is_shared).transpose()?.unwrap_or(false);
        let backing = self.files.backing(node, pages, scope)?;
        self.plans.push(Plan { name, span: written.span, pages, at, align, shared, backing });
        Ok(())
    }
}

/// Checks a node that names a declared area again: it may say nothing new about the area.
fn again(node: &Node, before: &Plan, pages: Option<i64>) -> Result<(), Problem> {
    let placing = ["at", "align", "table", "backing", "file", "offset"];
    if let Some(prop) = node.props.iter().find(|p| placing.contains(&p.name.as_str())) {
        let message = format!("`{}` is declared already", before.name);
        return Err(Problem::new(prop.span, message, "given again")
            .also(before.span, "declared here")
            .help("give it where the area is declared"));
    }
    match node.prop("pages").zip(pages) {
        Some((value, pages)) if pages as u64 != before.pages => {
            let message = format!("`{}` has {} pages", before.name, before.pages);
            Err(Problem::new(value.span, message, "not the same")
                .also(before.span, "declared here")
                .help("leave pages= out, or choose another name"))
        }
        _ => Ok(()),
    }
}

fn alignment(value: &Value, scope: &Scope, layout: &Layout) -> Result<u64, Problem> {
    let align = scope.number_in(value, "the alignment", layout.page() as i64..=1 << 46)? as u64;
    if align.is_power_of_two() {
        return Ok(align);
    }
    Err(Problem::new(value.span, format!("the alignment is {align}"), "not a power of two")
        .help("for instance \"2M\""))
}

fn address(
    value: &Value,
    align: u64,
    pages: u64,
    scope: &Scope,
    layout: &Layout,
) -> Result<(u64, SourceSpan), Problem> {
    let (low, high) = layout.user;
    let at = scope.number_in(value, "the address", low as i64..=high as i64)? as u64;
    if !at.is_multiple_of(align) {
        return Err(Problem::new(
            value.span,
            format!("the address {at:#x} is not aligned"),
            "here",
        )
        .help(format!("it must be a multiple of {align:#x}")));
    }
    if (high - at) >> layout.page_shift < pages {
        return Err(Problem::new(
            value.span,
            "the area leaves the user's address space",
            "from here",
        )
        .help(format!("it must end at or before {high:#x}")));
    }
    Ok((at, value.span))
}

fn is_shared(value: &Value) -> Result<bool, Problem> {
    match value.text("`alone` or `shared`")? {
        "alone" => Ok(false),
        "shared" => Ok(true),
        other => {
            Err(Problem::new(value.span, format!("unknown table mode `{other}`"), "this word")
                .help("table=\"alone\" or table=\"shared\""))
        }
    }
}

/// Gives every area its address, then every shared one its neighbour.
fn place(plans: &[Plan], layout: &Layout, problems: &mut Vec<Problem>) -> Areas {
    let fixed: Vec<PageRange> =
        plans.iter().filter_map(|p| p.at.map(|(at, _)| layout.range(at, p.pages))).collect();
    let (mut areas, mut cursor) = (Areas::default(), layout.base);
    for plan in plans {
        let range = match plan.at {
            Some((at, _)) => layout.range(at, plan.pages),
            None => default_range(plan, layout, &mut cursor, &fixed),
        };
        if layout.address(range.end) > layout.base_end && plan.at.is_none() {
            let message = format!("no room for `{}`", plan.name);
            problems.push(Problem::new(plan.span, message, "this area").help(format!(
                "areas without at= share the {} TiB from {:#x}",
                (layout.base_end - layout.base) >> 40,
                layout.base
            )));
            return Areas::default();
        }
        areas.by_name.insert(plan.name.clone(), areas.list.len() as u16);
        areas.list.push(Area { name: plan.name.clone(), range, backing: plan.backing });
    }
    areas.named = areas.list.len();
    check_apart(plans, layout, &areas.list, problems);
    for (i, plan) in plans.iter().enumerate().filter(|(_, p)| p.shared) {
        match neighbour(plan, layout, i, &areas.list) {
            Ok(area) => areas.list.push(area),
            Err(problem) => problems.push(problem),
        }
    }
    areas
}

/// The next free place at or behind `cursor` that avoids all areas with a fixed address.
fn default_range(plan: &Plan, layout: &Layout, cursor: &mut u64, fixed: &[PageRange]) -> PageRange {
    let Layout { table, spacing, .. } = *layout;
    loop {
        let start = cursor.next_multiple_of(plan.align.max(spacing));
        let range = layout.range(start, plan.pages);
        // An unused table behind the area keeps two areas from becoming one mapping.
        let end = (layout.address(range.end) + table).next_multiple_of(spacing);
        let claim = PageRange { end: layout.range(end, 0).start, ..range };
        *cursor = end;
        match fixed.iter().find(|f| layout.spread(**f, spacing).overlaps(claim)) {
            Some(other) if end <= layout.base_end => {
                *cursor = layout.address(other.end) + table;
            }
            _ => return range,
        }
    }
}

/// Checks that areas do not overlap, and that an area that is `alone` shares no page table.
fn check_apart(plans: &[Plan], layout: &Layout, areas: &[Area], problems: &mut Vec<Problem>) {
    for (i, area) in areas.iter().enumerate() {
        for (j, other) in areas.iter().enumerate().filter(|(j, _)| *j != i) {
            let at = plans[i].at.map_or(plans[i].span, |(_, span)| span);
            if j < i && area.range.overlaps(other.range) {
                let message = format!("`{}` overlaps `{}`", area.name, other.name);
                problems.push(
                    Problem::new(at, message, "this area")
                        .also(plans[j].span, "the other one")
                        .help("choose another at=, or leave it out"),
                );
            } else if !plans[i].shared
                && !area.range.overlaps(other.range)
                && layout.spread(area.range, layout.table).overlaps(other.range)
            {
                let message = format!("`{}` shares a page table with `{}`", area.name, other.name);
                problems.push(
                    Problem::new(at, message, "this area is to be alone")
                        .also(plans[j].span, "the other one")
                        .help(format!(
                            "write table=\"shared\" for both, or place them {} apart",
                            size(layout.table)
                        )),
                );
            }
        }
    }
}

/// Places a page in the area's page table. It touches no other area, because adjacent mappings
/// merge.
fn neighbour(plan: &Plan, layout: &Layout, index: usize, areas: &[Area]) -> Result<Area, Problem> {
    let area = &areas[index];
    let table = layout.spread(area.range, layout.table);
    let in_table = layout.table >> layout.page_shift;
    let remedy = format!(
        "an area with table=\"shared\" lies in one {} page table and leaves a page and a gap free in it: at most {} pages",
        size(layout.table),
        in_table - 2
    );
    if table.pages() > in_table {
        let message = format!("`{}` does not lie in one page table", area.name);
        return Err(Problem::new(plan.span, message, "this area").help(remedy));
    }
    let free = |page: &Vpn| {
        let around = PageRange { start: Vpn(page.0 - 1), end: page.add(2) };
        !areas.iter().any(|a| a.range.overlaps(around))
    };
    match table.iter().rev().find(free) {
        Some(page) => Ok(Area::anonymous(format!("{}.neighbour", area.name), PageRange::one(page))),
        None => {
            let message = format!("no room for a neighbour of `{}`", area.name);
            Err(Problem::new(plan.span, message, "this area").help(remedy))
        }
    }
}

/// Writes a size in words: `2 MiB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use needless_model::arch::{TINY, X86_64, X86_64_LA57};

    fn areas(text: &str) -> Result<Areas, Vec<Problem>> {
        laid_out(text, &X86_64)
    }

    fn laid_out(text: &str, arch: &Arch) -> Result<Areas, Vec<Problem>> {
        let nodes = document::read(text).unwrap();
        plan(&[&nodes], &Files::default(), &Scope::default(), &Layout::of(arch))
    }

    const BASE: u64 = 0x7000_0000_0000;
    const TABLE: u64 = 2 << 20;
    const SPACING: u64 = 1 << 30;

    fn starts(text: &str) -> Vec<u64> {
        areas(text).unwrap().list.iter().map(|a| a.range.start.address()).collect()
    }

    #[test]
    fn default_places() {
        assert_eq!(
            starts("map \"a\" pages=1; map \"b\" pages=262144; map \"c\" pages=1"),
            [BASE, BASE + SPACING, BASE + 3 * SPACING]
        );
        assert_eq!(
            starts("map \"a\" pages=1; map \"b\" pages=1 at=\"0x700000400000\""),
            [BASE + SPACING, BASE + 2 * TABLE]
        );
        assert_eq!(
            starts("map \"a\" pages=1; map \"b\" pages=1 align=\"1T\"")[1],
            BASE + (1 << 40)
        );
    }

    /// Architectures with tables of another size, pages of another size, and another user half.
    #[test]
    fn other_architectures() {
        let text = "map \"a\" pages=2; map \"b\" pages=2 table=\"shared\"";
        let large = Arch { page_shift: 16, index_bits: [5, 9, 9, 13, 0], user_bits: 35, ..X86_64 };
        for (arch, table) in [(TINY, 4), (large, 32), (X86_64_LA57, 512)] {
            let list = laid_out(text, &arch).unwrap().list;
            let of = |area: &Area| area.range.start.0 / table;
            assert_eq!(list.len(), 3);
            assert!(list[0].range.start.0.is_multiple_of(arch.table_pages(2)), "{}", arch.name);
            assert_eq!(of(&list[1]), of(&list[2]), "{}: the neighbour's table", arch.name);
            assert_ne!(of(&list[0]), of(&list[1]), "{}", arch.name);
            assert!(list.iter().all(|area| area.range.end.0 <= arch.user_pages()));
        }
    }

    #[test]
    fn neighbours() {
        let both = "map \"a\" pages=4 table=\"shared\"; mremap \"a\" to=\"b\" table=\"shared\"";
        let list = areas(both).unwrap().list;
        let names: Vec<_> = list.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "a.neighbour", "b.neighbour"]);
        assert_eq!(list[1].range.pages(), 4);
        assert_eq!(list[2].range, PageRange::one(Vpn::containing(BASE).add(511)));
        let full = "map \"a\" pages=511 at=\"0x700000001000\" table=\"shared\"";
        assert_eq!(areas(full).unwrap_err().len(), 1);
        assert!(areas("map \"a\" pages=510 table=\"shared\"").is_ok());
    }

    #[test]
    fn refused() {
        for bad in [
            "map \"a\"",
            "map \"a\" pages=0",
            "map \"a b\" pages=1",
            "map \"a\" pages=1; map \"a\" pages=2",
            "map \"a\" pages=1; map \"a\" at=\"1G\"",
            "map \"a\" pages=1 at=\"4097\"",
            "map \"a\" pages=1 at=\"1T+4K\" align=\"2M\"",
            "map \"a\" pages=1 align=\"3M\"",
            "map \"a\" pages=1 table=\"both\"",
            "map \"a\" pages=34359738368",
            "map \"a\" pages=34359738368 at=\"1G\"",
            "map \"a\" pages=2 at=\"1G\"; map \"b\" pages=1 at=\"1G+4K\"",
            "map \"a\" pages=1 at=\"1G\"; map \"b\" pages=1 at=\"1G+8K\" table=\"shared\"",
            "map \"a\" pages=513 table=\"shared\"",
            "mremap \"a\" to=\"b\"",
        ] {
            assert!(areas(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_shared_areas_in_one_table() {
        let list = areas(
            "map \"a\" pages=1 at=\"1G\" table=\"shared\"; map \"b\" pages=1 at=\"1G+8K\" table=\"shared\"",
        )
        .unwrap()
        .list;
        assert_eq!(list[2].range.start.since(list[0].range.start), 511);
        assert_eq!(list[3].range.start.since(list[0].range.start), 509);
    }
}
