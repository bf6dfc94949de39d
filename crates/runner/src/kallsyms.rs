//! Filters of tracepoints that name a kernel function, and the function's address for kernels whose
//! filters take only addresses.

use crate::environment::series;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The work function that drains a CPU's LRU batches for another CPU (mm/swap.c:lru_add_drain_all,
/// 5.10 to 7.3).
pub const DRAIN: &str = "lru_add_drain_per_cpu";

/// The first kernel whose filters take function names (kernel/trace/trace_events_filter.c:
/// parse_pred, `.function`).
const KNOWS_NAMES: (u32, u32) = (6, 3);

/// Makes a filter that lets through calls of one kernel function.
///
/// Before 6.3 the filter takes the address, which the kernel may hide. Then nothing passes.
pub fn function_is(field: &str, name: &str) -> String {
    match series() >= KNOWS_NAMES {
        true => format!("{field}.function == {name}"),
        false => format!("{field} == {:#x}", address(name).unwrap_or(0)),
    }
}

/// Looks a function up for all processes that this one starts, if filters need its address.
///
/// # Safety
/// There is only one thread.
pub unsafe fn remember(name: &str) {
    if series() < KNOWS_NAMES
        && let Some(at) = address(name)
    {
        // SAFETY: there is no other thread that could read the environment.
        unsafe { std::env::set_var(variable(name), at.to_string()) };
    }
}

/// The environment variable that passes on the address of a function.
fn variable(name: &str) -> String {
    format!("NEEDLESS_ADDRESS_OF_{name}")
}

/// The address of a function of the kernel's image; `None` if the kernel hides it. It does not
/// change while the kernel runs. The file has more than a hundred thousand lines, and the kernel
/// makes them anew for each reader (in an emulator that takes a second). So it is read once.
fn address(name: &str) -> Option<u64> {
    static KNOWN: Mutex<BTreeMap<String, Option<u64>>> = Mutex::new(BTreeMap::new());
    let remembered = || std::env::var(variable(name)).ok()?.parse().ok();
    let read = || look_up(&std::fs::read_to_string("/proc/kallsyms").ok()?, name);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(name.to_owned()).or_insert_with(|| remembered().or_else(read))
}

/// The address in lines as `/proc/kallsyms` has them. The kernel shows 0 to processes that may not
/// know it.
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
