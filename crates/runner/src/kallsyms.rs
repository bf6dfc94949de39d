//! Where a function of the kernel lies, for filters of kernels that know functions by their address alone.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// What empties a CPU's LRU batches for others (mm/swap.c, 5.10 to 7.3).
const DRAIN: &str = "lru_add_drain_per_cpu";

/// Where whoever looked it up leaves it for those it starts: an emulated machine takes a second to find it.
const REMEMBERED: &str = "NEEDLESS_LRU_ADD_DRAIN_PER_CPU";

/// Where `lru_add_drain_per_cpu` lies; `None` if the kernel does not say.
pub fn lru_drain() -> Option<u64> {
    match std::env::var(REMEMBERED) {
        Ok(found) => found.parse().ok(),
        Err(_) => look_up(BufReader::new(File::open("/proc/kallsyms").ok()?), DRAIN),
    }
}

/// Looks it up for all processes that this one starts.
///
/// # Safety
/// There is one thread.
pub unsafe fn remember_lru_drain() {
    if let Some(at) = lru_drain() {
        // SAFETY: nobody else reads the environment meanwhile.
        unsafe { std::env::set_var(REMEMBERED, at.to_string()) };
    }
}

/// The symbol's address in lines as `/proc/kallsyms` has them; 0 is what it shows to who may not know.
fn look_up(symbols: impl BufRead, name: &str) -> Option<u64> {
    symbols.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
        if symbol != name {
            return None;
        }
        u64::from_str_radix(address, 16).ok().filter(|at| *at != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_found_by_its_whole_name() {
        let symbols = "ffffffff81000000 T lru_add_drain\nffffffff81000010 t lru_add_drain_per_cpu\n\
            ffffffffc0000000 t f [zram]\n0000000000000000 t hidden\n";
        let at = |name| look_up(symbols.as_bytes(), name);
        assert_eq!(at(DRAIN), Some(0xffff_ffff_8100_0010));
        assert_eq!(at("f"), Some(0xffff_ffff_c000_0000));
        assert_eq!((at("lru_add"), at("hidden")), (None, None));
    }
}
