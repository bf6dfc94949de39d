//! The userfaultfd's reader learns of an access that waits, and answers it.

use super::fill::fill;
use super::move_pages::move_pages;
use super::protect::write_protect;
use crate::addr::{MmId, PageRange};
use crate::call::Extent;
use crate::env::Env;
use crate::event::EventKind;
use crate::kernel::Errno;
use crate::machine::mm::Waiting;
use crate::site::Site;
use crate::userfaultfd::{Answer, Fill, Told, source};
use crate::wait::{Ended, Wait};

/// Answers the next access that waits. If none waits, the reader waits for one.
///
/// Source: fs/userfaultfd.c:userfaultfd_ctx_read (5.10 to 7.3).
pub fn answer(env: &mut impl Env, mm: MmId, answer: Answer<Extent>) -> Result<Ended<()>, Errno> {
    let next = env.step(Site::UserfaultfdRead, |w, _| w.mms[mm.index()].uffd.read());
    let Some(Waiting { page, told, .. }) = next else {
        return Ok(Ended::Blocked(Wait::UffdEvent(mm), ()));
    };
    if told == Told::Protected {
        env.record(Site::UserfaultfdRead, EventKind::Told { page, pages: 1 }, None);
    }
    let page = PageRange::one(page);
    match (told, answer) {
        (Told::Protected, _) => write_protect(env, mm, page, false)?,
        (Told::Minor, _) => fill(env, mm, page, Fill::Continue)?,
        (Told::Missing, Answer::Nothing) => return Err(Errno::EnoentAnswer),
        (Told::Missing, Answer::ZeroPage) => fill(env, mm, page, Fill::ZeroPage)?,
        (Told::Missing, Answer::Copy) => fill(env, mm, page, Fill::Copy)?,
        (Told::Missing, Answer::Move { to, from }) => {
            let source = source(to.pages, from.pages, page.start).ok_or(Errno::EnoentSource)?;
            move_pages(env, mm, PageRange::one(source), page.start)?;
        }
    }
    Ok(Ended::Done)
}
