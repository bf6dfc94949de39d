//! How a thread answers the faults that userfaultfd reports.

use super::{Lowering, word};
use crate::document::Node;
use crate::error::Problem;
use needless_model::program::Backing;
use needless_model::userfaultfd::Answer;

impl Lowering<'_> {
    /// Reads `by=`, and the areas that the answer needs.
    pub(super) fn answer(&self, node: &Node) -> Result<Answer<u16>, Problem> {
        let words = Answer::ALL.map(|(word, answer)| (word, Some(answer)));
        let words: Vec<(&str, Option<Answer<u16>>)> =
            words.into_iter().chain([("move", None)]).collect();
        let answer = word(node, "by", &words)?;
        let areas = ["from", "to"].into_iter().filter_map(|name| node.prop(name));
        match (answer, areas.into_iter().next()) {
            (None, _) => self.moving(node),
            (Some(answer), None) => Ok(answer),
            (Some(_), Some(area)) => {
                Err(Problem::new(area.span, "nothing is moved", "not used here")
                    .help("from= and to= belong to by=\"move\""))
            }
        }
    }

    /// Reads an answer that moves pages: pages of one area fill another area, each at the same
    /// place.
    fn moving(&self, node: &Node) -> Result<Answer<u16>, Problem> {
        let area = |name: &str| {
            let Some(written) = node.prop(name) else {
                return Err(Problem::new(node.span, format!("`{name}` is missing"), "here").help(
                    "by=\"move\" from=\"AREA\" to=\"AREA\": the pages of the first area fill the second one",
                ));
            };
            let area = self.area(written.text("an area's name")?, written.span)?;
            match self.areas.list[usize::from(area)].backing {
                Backing::Anonymous => Ok((area, written)),
                Backing::Shared | Backing::File(_) => {
                    let what = format!("`{}` is not private memory", self.name(area));
                    Err(Problem::new(written.span, what, "UFFDIO_MOVE is refused here: EINVAL")
                        .help("map it without backing= and file=; by=\"copy\" fills shared memory"))
                }
            }
        };
        let ((from, _), (to, written)) = (area("from")?, area("to")?);
        if from == to {
            return Err(Problem::new(
                written.span,
                "the pages are in this area already",
                "the same area",
            )
            .help("move them from another area"));
        }
        let (pages, room) = (self.size(from), self.size(to));
        if pages < room {
            let what = format!("`{}` has {pages} pages for {room}", self.name(from));
            return Err(Problem::new(node.span, what, "too few")
                .help("make the first area at least as large as the second"));
        }
        Ok(Answer::Move { to, from })
    }
}
