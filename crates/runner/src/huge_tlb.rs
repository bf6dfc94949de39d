//! Finds out whether the processor's TLB holds a huge page whole or in pieces.
//!
//! A fork makes a huge page read-only. Once the child is gone, the first store gets back the right
//! to store: the kernel changes one entry, without a flush (mm/huge_memory.c:do_huge_pmd_wp_page,
//! 5.10 to 7.3). A processor may hold the page in pieces (Intel SDM 3A, 4.10.2.3). It then faults
//! at each piece that it loaded before.

use crate::calls::map_anonymous;
use crate::sys::{self, Usage};
use needless_model::addr::{PageRange, Vpn};
use needless_model::kernels::PIECES;
use needless_model::program::Prot;
use std::io::{self, Write};
use std::process::ExitCode;

/// The argument that makes the process find out.
pub const VERB: &str = "--huge-tlb";

/// The start of scenarios' memory. This process runs no scenario.
const START: Vpn = Vpn::containing(0x7100_0000_0000);

/// The number of huge pages to look at. The hypervisor may map each of them in another way.
const HUGE_PAGES: u64 = 8;
const SIZE: u64 = 512;

/// Prints [`PIECES`] or `whole`, or nothing where no huge pages are available. This runs in a
/// process of its own, so that it leaves nothing behind.
pub fn run() -> ExitCode {
    match faults_after_fork() {
        Ok(faults) => {
            // Whole pages fault once each, beside the process's own faults. Pages in pieces take
            // some hundred faults each.
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

/// How many faults the stores to all pages take after a fork; `None` if the pages are not huge.
fn faults_after_fork() -> io::Result<Option<u64>> {
    let pages = PageRange::new(START, HUGE_PAGES * SIZE);
    map_anonymous(pages, Prot::ReadWrite)?;
    // SAFETY: the advice changes no contents of the memory.
    let advised =
        unsafe { libc::madvise(sys::pointer(START), sys::bytes(pages), libc::MADV_HUGEPAGE) };
    if advised != 0 || faults_of_stores(pages) > 4 * HUGE_PAGES {
        return Ok(None);
    }
    // SAFETY: there is one thread, and the child only ends.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: the child has nothing left to do.
        0 => unsafe { libc::_exit(0) },
        // SAFETY: a null pointer says that the status is not wanted.
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
