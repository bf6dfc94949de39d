//! What watching can show on this machine, said in advance: the rings are opened on this process
//! and closed again.

use crate::counters;
use crate::missing::Missing;
use crate::present;
use crate::rings::{PerfError, Rings, Tasks};
use crate::session::{Options, Target};
use crate::tracefs::Tracefs;
use crate::tracepoints::Extent;
use crate::unseen;

/// What a report would lack here; an error if it would have no events at all.
pub fn missing() -> Result<Vec<Missing>, PerfError> {
    /// The smallest rings that take every record.
    const RING_BYTES: usize = 64 << 10;
    let tracefs = Tracefs::find()?;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let (target, extent) = (Target::Process(own), Extent::Programs);
    let options = Options { target, ring_bytes: RING_BYTES, extent, waits: false, timeline: None };
    let rings = Rings::open(&Tasks::Running(vec![own]), &options, tracefs.path())?;
    let mut missing = rings.missing.clone();
    missing.extend(unseen::unseen(tracefs.path()));
    present::context(&rings, &mut missing);
    counters::Machine::now(&mut missing);
    Ok(missing)
}
