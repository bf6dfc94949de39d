//! Switches between the address spaces of two processes on one CPU. With PCIDs the CPU keeps the
//! translations of several address spaces, and flushes only those that changed meanwhile
//! (arch/x86/mm/tlb.c: switch_mm_irqs_off, choose_new_asid).

use crate::area::Area;
use crate::child::{Birth, Child, Life, Nursery};
use crate::rounds::Rounds;
use crate::sys::{self, number};
use crate::table::{Expectation, Need, Workload, expect};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

/// The workloads of this group.
pub const WORKLOADS: &[Workload] = &[
    Workload::new(
        "switch_flush",
        "ages a page of a process on the same CPU (process_madvise), which then touches it",
        |rounds| switch(rounds, true),
        Expectation { switches: Some((1, 0)), ..expect(&[], &[]) },
    ),
    Workload::new(
        "switch_keep",
        "the same without ageing the page: the CPU still has what it knew",
        |rounds| switch(rounds, false),
        Expectation { switches: Some((0, 1)), ..expect(&[], &[]) },
    )
    .needs(&[Need::Pcid]),
];

/// A process on the same CPU that touches a page on request.
struct Toucher {
    child: Option<Child>,
    tell: PipeWriter,
    told: PipeReader,
}

impl Toucher {
    fn start(page: Area) -> io::Result<Toucher> {
        let (from, tell) = io::pipe()?;
        let (told, to) = io::pipe()?;
        let life = Life::Echo { from: from.as_raw_fd(), to: to.as_raw_fd(), page: page.address() };
        let child = Nursery::new(life, &[page])?.bear(Birth::Fork)?;
        Ok(Toucher { child: Some(child), tell, told })
    }

    /// Makes the process touch its page, and returns when it has.
    fn touch(&mut self) -> io::Result<()> {
        self.tell.write_all(b"x")?;
        self.told.read_exact(&mut [0])
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        let _ = self.child.take().map(Child::kill);
    }
}

/// A round has two switches, and one of them is this process's. MADV_COLD clears the accessed bit
/// and flushes (mm/madvise.c: madvise_cold_or_pageout_pte_range). No CPU runs that address space,
/// so the flush is deferred to the next switch to it.
fn switch(rounds: &mut Rounds, age: bool) -> io::Result<()> {
    let page = Area::anonymous(0, 1)?;
    page.write(0);
    // Both have the same priority above ordinary tasks. So neither is woken in place of the other,
    // and neither loses the CPU before it waits. As ordinary tasks on a busy machine they sometimes
    // did, with one more switch.
    let _ = sys::real_time();
    let mut toucher = Toucher::start(page)?;
    let child = toucher.child.as_ref().and_then(|child| Pid::from_raw(child.id()));
    let child = child.ok_or_else(|| io::Error::other("a strange process id"))?;
    let process = pidfd_open(child, PidfdFlags::empty())?;
    let range = libc::iovec { iov_base: page.pointer(), iov_len: page.bytes() };
    rounds.each(|_| {
        if age {
            // SAFETY: the range is the other process's, which has no objects in it.
            let aged = unsafe {
                let (call, process) = (libc::SYS_process_madvise, process.as_raw_fd());
                libc::syscall(call, process, &raw const range, 1, libc::MADV_COLD, 0)
            };
            number(aged)?;
        }
        toucher.touch()
    })
}
