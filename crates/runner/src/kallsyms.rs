//! Filters of tracepoints that name a function of the kernel, and where it lies for kernels that know functions by their
//! address alone.

use crate::environment::series;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What empties a CPU's LRU batches for others (mm/swap.c:lru_add_drain_all, 5.10 to 7.3).
pub const DRAIN: &str = "lru_add_drain_per_cpu";

/// The first kernel that looks the name up itself (kernel/trace/trace_events_filter.c: parse_pred, `.function`).
const KNOWS_NAMES: (u32, u32) = (6, 3);

/// Lets calls of one of the kernel's functions through.
///
/// Before 6.3 the kernel takes the address, which it may hide: then nothing comes through.
pub fn function_is(field: &str, name: &str) -> String {
    match series() >= KNOWS_NAMES {
        true => format!("{field}.function == {name}"),
        false => format!("{field} == {:#x}", address(name).unwrap_or(0)),
    }
}

/// Looks a function up for all processes that this one starts, where filters need its address.
///
/// # Safety
/// There is one thread.
pub unsafe fn remember(name: &str) {
    if series() < KNOWS_NAMES
        && let Some(at) = address(name)
    {
        // SAFETY: nobody else reads the environment meanwhile.
        unsafe { std::env::set_var(variable(name), at.to_string()) };
    }
}

/// In which variable a process leaves what it has looked up.
fn variable(name: &str) -> String {
    format!("NEEDLESS_ADDRESS_OF_{name}")
}

/// Where a function of the kernel's image begins; none if that is hidden. It does not change while the kernel runs, and
/// the file has more than a hundred thousand lines, which the kernel makes anew for each reader (in an emulator
/// that takes a second): it is read once.
fn address(name: &str) -> Option<u64> {
    static KNOWN: Mutex<BTreeMap<String, Option<u64>>> = Mutex::new(BTreeMap::new());
    let remembered = || std::env::var(variable(name)).ok()?.parse().ok();
    let read = || look_up(&std::fs::read_to_string("/proc/kallsyms").ok()?, name);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(name.to_owned()).or_insert_with(|| remembered().or_else(read))
}

/// The address in lines as `/proc/kallsyms` has them; 0 is what it shows to who may not know.
fn look_up(symbols: &str, name: &str) -> Option<u64> {
    let of_name = |line: &&str| line.split_ascii_whitespace().nth(2) == Some(name);
    let address = symbols.lines().find(of_name)?.split(' ').next()?;
    u64::from_str_radix(address, 16).ok().filter(|address| *address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_found_by_its_whole_name() {
        let symbols = "ffffffff81000000 T lru_add_drain\nffffffff81000010 t lru_add_drain_per_cpu\n\
            ffffffffc0000000 t f\t[zram]\n0000000000000000 t hidden\n";
        let at = |name| look_up(symbols, name);
        assert_eq!(at(DRAIN), Some(0xffff_ffff_8100_0010));
        assert_eq!(at("f"), Some(0xffff_ffff_c000_0000));
        assert_eq!((at("lru_add"), at("hidden")), (None, None));
    }
}
