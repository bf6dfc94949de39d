//! Moves a program into the address space of a small architecture.
//!
//! Areas that shared a last-level table still do if they fit; others get tables of their own.

use needless_model::addr::{PageRange, Vpn};
use needless_model::arch::{Arch, X86_64};
use needless_model::program::Program;

/// `program` with its areas placed in `arch`; `None` if they do not fit.
pub fn place(program: &Program, arch: &Arch) -> Option<Program> {
    let mut placed = program.clone();
    let mut order: Vec<usize> = (0..placed.areas.len()).collect();
    order.sort_by_key(|index| program.areas[*index].range.start);
    let table_of = |page: Vpn| page.0 / X86_64.table_pages(1);
    let span = arch.table_pages(1);
    let (mut next, mut last_table) = (0, None);
    for index in order {
        let old = program.areas[index].range;
        if last_table != Some(table_of(old.start)) {
            next = u64::div_ceil(next, span) * span;
        }
        last_table = Some(table_of(Vpn(old.end.0.saturating_sub(1))));
        placed.areas[index].range = PageRange::new(Vpn(next), old.pages());
        next += old.pages();
    }
    (next <= arch.user_pages()).then_some(placed)
}
