//! How the processor holds huge pages that it has loaded from: whole, or in pieces.
//!
//! A fork makes a huge page read-only. Once the child is gone, its first store gets the right to store back: one entry is
//! changed, without a flush (mm/huge_memory.c:do_huge_pmd_wp_page, 5.10 to 7.3). A processor that holds the page in pieces,
//! as it may (Intel SDM 3A, 4.10.2.3), then faults at each that it loaded before.

use crate::calls::map_anonymous;
use crate::sys::{self, Usage};
use needless_model::addr::{PageRange, Vpn};
use needless_model::kernels::PIECES;
use needless_model::program::Prot;
use std::io::{self, Write};
use std::process::ExitCode;

/// How the process is told to find out.
pub const VERB: &str = "--huge-tlb";

/// Where the memory of scenarios lies, of which this process has none.
const START: Vpn = Vpn::containing(0x7100_0000_0000);

/// Huge pages that are looked at: each may lie in memory that the hypervisor maps in another way.
const HUGE_PAGES: u64 = 8;
const SIZE: u64 = 512;

/// Prints [`PIECES`] or `whole`; nothing where there are no huge pages to be had. In a process of its own, that it leaves
/// nothing behind.
pub fn run() -> ExitCode {
    match faults_after_fork() {
        Ok(faults) => {
            // Entries and the process's own pages, and in pieces some hundred for each huge page.
            let held = faults.map(|faults| if faults > 4 * HUGE_PAGES { PIECES } else { "whole" });
            let _ = write!(io::stdout(), "{}", held.unwrap_or_default());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "how huge pages are cached is not known: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many faults the stores to all pages take after a fork; nothing if they are not huge.
fn faults_after_fork() -> io::Result<Option<u64>> {
    let pages = PageRange::new(START, HUGE_PAGES * SIZE);
    map_anonymous(pages, Prot::ReadWrite)?;
    // SAFETY: the advice changes nothing that is stored there.
    let advised =
        unsafe { libc::madvise(sys::pointer(START), sys::bytes(pages), libc::MADV_HUGEPAGE) };
    if advised != 0 || faults_of_stores(pages) > 4 * HUGE_PAGES {
        return Ok(None);
    }
    // SAFETY: there is one thread, and the child does nothing but end.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: nothing is left to be done.
        0 => unsafe { libc::_exit(0) },
        // SAFETY: nobody wants the status.
        child => unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
    };
    pages.iter().for_each(|page| _ = sys::load(page));
    Ok(Some(faults_of_stores(pages)))
}

fn faults_of_stores(pages: PageRange) -> u64 {
    let before = Usage::now();
    pages.iter().for_each(|page| sys::store(page, 1));
    Usage::now().since(before).minor_faults
}
