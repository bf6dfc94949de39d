//! The page cache of files on disks. What scenarios map of them is in memory when they begin and stays there: nothing has to be read.
//!
//! Source: mm/filemap.c:filemap_fault (5.10 to 7.3).

use crate::addr::{ObjectId, Pfn};
use crate::env::{Env, Lock};
use crate::site::Site;

/// The file's page, with a reference and locked; `None` if it would have to be read, which the model does not do.
pub fn filemap_fault(env: &mut impl Env, file: ObjectId, index: u64) -> Option<Pfn> {
    let frame = env.step(Site::FilemapFault, |w, at| {
        let found = w.objects.page(file, index);
        match found {
            Some(frame) => w.get_frame(frame),
            None => w.impossible(at, "a fault found no page of a file on a disk in the page cache"),
        }
        found
    })?;
    env.lock(Lock::Folio(frame));
    Some(frame)
}
