//! What watching can show on this machine, said in advance: the rings are opened on this process
//! and closed again.

use crate::rings::{Missing, PerfError, Rings, Tasks};
use crate::tracefs::Tracefs;

/// What a report would lack here; an error if it would have no events at all.
pub fn missing() -> Result<Vec<Missing>, PerfError> {
    /// The smallest rings that take every record.
    const RING_BYTES: usize = 64 << 10;
    let tracefs = Tracefs::find()?;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    Ok(Rings::open(&Tasks::Running(vec![own]), RING_BYTES, tracefs.path())?.missing)
}
