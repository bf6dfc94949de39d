//! The text form of a [`Sequence`]: printing with repeats folded, and reading.
//!
//! Reading accepts everything that printing produces. It also accepts the suffixes `~recvA/B` and
//! `!norecv` about receives, and drops them. A text that expands to more than [`MAX_TOKENS`] tokens
//! is refused.

use crate::event::Tlbi;
use crate::sequence::{FaultToken, LocalPart, SYNC, Sequence, Token};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The most tokens that a text may expand to.
pub const MAX_TOKENS: usize = 1 << 20;

/// The deepest allowed nesting of groups.
const MAX_DEPTH: usize = 16;

/// The longest group that printing looks for, in tokens.
const MAX_PERIOD: usize = 64;

/// Why a text is not a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotationError {
    /// The text contains a word that is no token.
    #[error(
        "`{0}` is not a token; expected R, W, WP, RP, IPI:MM(n), IPI:BATCH(n), loc:MM(n), send(n), TLBI:vale1is(n), SYNC, to(n) or a mark"
    )]
    UnknownToken(String),
    /// The brackets do not match.
    #[error("the brackets of a group do not match")]
    Unbalanced,
    /// The groups are nested too deeply.
    #[error("groups are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// A repeat count has nothing before it, or is no number.
    #[error("`{0}` is not a repeat count")]
    BadRepeat(String),
    /// The text expands to too many tokens.
    #[error("the sequence has more than {MAX_TOKENS} tokens")]
    TooLong,
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("(none)") } else { f.write_str(&fold(&self.0)) }
    }
}

/// The tokens with repeats folded. Each fold takes the group that covers most tokens.
fn fold(tokens: &[Token]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (period, count) = longest_repeat(&tokens[at..]);
        let group = &tokens[at..at + period];
        parts.push(match (group, count) {
            ([token], 1) => token.to_string(),
            // A mark ends in `:`, so its repeat count needs brackets.
            ([token], _) if !matches!(token, Token::Mark(_)) => format!("{token}x{count}"),
            _ => format!("({})x{count}", fold(group)),
        });
        at += period * count;
    }
    parts.join(" ")
}

/// The period and count of the repeat at the start that covers the most tokens.
fn longest_repeat(tokens: &[Token]) -> (usize, usize) {
    let mut best = (1, 1);
    for period in 1..=MAX_PERIOD.min(tokens.len() / 2) {
        let count = 1 + tokens[period..]
            .chunks_exact(period)
            .take_while(|chunk| *chunk == &tokens[..period])
            .count();
        if count > 1 && period * count > best.0 * best.1 {
            best = (period, count);
        }
    }
    best
}

impl FromStr for Sequence {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Sequence, NotationError> {
        if text.trim() == "(none)" {
            return Ok(Sequence::default());
        }
        let mut reader = Reader { rest: text };
        let tokens = reader.group(0)?;
        if reader.rest.is_empty() { Ok(Sequence(tokens)) } else { Err(NotationError::Unbalanced) }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// The tokens up to the end, or up to the bracket that closes the group.
    fn group(&mut self, depth: usize) -> Result<Vec<Token>, NotationError> {
        if depth > MAX_DEPTH {
            return Err(NotationError::TooDeep);
        }
        let mut tokens: Vec<Token> = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() || self.rest.starts_with(')') {
                return Ok(tokens);
            }
            let element = if let Some(inside) = self.rest.strip_prefix('(') {
                self.rest = inside;
                let inner = self.group(depth + 1)?;
                self.rest = self.rest.strip_prefix(')').ok_or(NotationError::Unbalanced)?;
                inner
            } else if let Some(after) = self.rest.strip_prefix(['¦', '|']) {
                self.rest = after;
                vec![Token::Mark(self.mark_name())]
            } else {
                vec![self.token()?]
            };
            let count = self.suffixes()?;
            if element.len().saturating_mul(count) > MAX_TOKENS - tokens.len() {
                return Err(NotationError::TooLong);
            }
            // An empty group stays empty for any repeat count.
            let count = if element.is_empty() { 0 } else { count };
            tokens.extend(element.iter().cycle().take(element.len() * count).cloned());
        }
    }

    /// The word after a mark sign, if it ends in a colon. Marks need not have a name.
    fn mark_name(&mut self) -> String {
        let rest = self.rest.trim_start();
        let word = rest.split([' ', '(', ')']).next().unwrap_or_default();
        let Some(name) = word.strip_suffix(':') else { return String::new() };
        self.rest = &rest[word.len()..];
        name.to_owned()
    }

    fn token(&mut self) -> Result<Token, NotationError> {
        let word = self.rest.split(' ').next().unwrap_or_default();
        let unknown = || NotationError::UnknownToken(word.to_owned());
        const FAULTS: [(&str, FaultToken); 4] = [
            ("WP", FaultToken::Wp),
            ("RP", FaultToken::Rp),
            ("W", FaultToken::W),
            ("R", FaultToken::R),
        ];
        if let Some((name, fault)) = FAULTS.iter().find(|(name, _)| self.rest.starts_with(name)) {
            self.rest = &self.rest[name.len()..];
            return Ok(Token::Fault(*fault));
        }
        if let Some(rest) = self.rest.strip_prefix(SYNC) {
            self.rest = rest;
            return Ok(Token::TableSync);
        }
        let (head, rest) = self.rest.split_once('(').ok_or_else(unknown)?;
        let (inside, rest) = rest.split_once(')').ok_or_else(unknown)?;
        let status = || inside.parse().ok().map(Token::PageStatus);
        let token = if head == "to" { status() } else { flush(head, inside) };
        let token = token.ok_or_else(unknown)?;
        self.rest = rest;
        Ok(token)
    }

    /// The suffixes of a token, without a space before them: a repeat count, and remarks about
    /// receives.
    fn suffixes(&mut self) -> Result<usize, NotationError> {
        let end = self.rest.find([' ', '(', ')']).unwrap_or(self.rest.len());
        let (suffix, rest) = self.rest.split_at(end);
        self.rest = rest;
        let suffix = suffix.split(['~', '!']).next().unwrap_or_default();
        if suffix.is_empty() {
            return Ok(1);
        }
        let bad = || NotationError::BadRepeat(suffix.to_owned());
        suffix.strip_prefix('x').and_then(|count| count.parse().ok()).ok_or_else(bad)
    }
}

fn flush(head: &str, inside: &str) -> Option<Token> {
    let part = |batch, pages: &str| Some(LocalPart { batch, pages: pages_of(pages)? });
    let shootdown = |batch| {
        let (local, send) = inside.split_once("/send").unwrap_or((inside, inside));
        Some(Token::Shootdown { send: pages_of(send)?, local: Some(part(batch, local)?) })
    };
    match head {
        "IPI:MM" => shootdown(false),
        "IPI:BATCH" => shootdown(true),
        "loc:MM" => part(false, inside).map(Token::Local),
        "loc:BATCH" => part(true, inside).map(Token::Local),
        head if head.starts_with("TLBI:") => {
            let named = |tlbi: &Tlbi| tlbi.name() == &head["TLBI:".len()..];
            let operation = Tlbi::ALL.into_iter().find(named)?;
            Some(Token::Tlbi(operation, pages_of(inside)?))
        }
        "send" => Some(Token::Shootdown { send: pages_of(inside)?, local: None }),
        _ => None,
    }
}

fn pages_of(text: &str) -> Option<Option<u32>> {
    if text == "ALL" { Some(None) } else { text.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Sequence {
        text.parse().unwrap()
    }

    #[test]
    fn captures_read_as_plain_tokens() {
        let grouped = "IPI:MM(ALL) (IPI:BATCH(ALL) IPI:BATCH(ALL))x4 IPI:MM(8) (R WP)x8";
        assert_eq!(read(grouped).to_string(), "IPI:MM(ALL) IPI:BATCH(ALL)x8 IPI:MM(8) (R WP)x8");
        let nested = "((R WP IPI:MM(1))x7 R WP)x8";
        assert_eq!(read(nested).0.len(), 8 * 23);
        assert_eq!(read(nested).to_string(), nested);
        for text in ["¦ IPI:MM(8)", "(none)", "Rx16 ¦ wp: ¦ un: ¦ dn: IPI:MM(16)", "(¦ w: WP)x3"]
        {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn remarks_about_receives_are_dropped() {
        assert_eq!(read("IPI:MM(ALL)~recv65/66 R"), read("IPI:MM(ALL) R"));
        assert_eq!(read("IPI:BATCH(ALL)x63 IPI:BATCH(ALL)~recv31/65"), read("IPI:BATCH(ALL)x64"));
        assert_eq!(read("IPI:MM(1)!norecv ¦ rw:"), read("IPI:MM(1) | rw:"));
    }

    #[test]
    fn bad_texts_are_refused() {
        let error = |text: &str| text.parse::<Sequence>().unwrap_err();
        assert_eq!(error("R)"), NotationError::Unbalanced);
        assert_eq!(error("(R"), NotationError::Unbalanced);
        assert_eq!(error("Rx99999999"), NotationError::TooLong);
        assert_eq!(error("((Rx1000)x1000)x1000"), NotationError::TooLong);
        assert_eq!(error(&"(".repeat(1000)), NotationError::TooDeep);
        assert_eq!(read("()x18446744073709551615 R"), read("R"));
        assert_eq!(error("Q"), NotationError::UnknownToken("Q".into()));
        assert_eq!(error("RR"), NotationError::BadRepeat("R".into()));
        assert_eq!(error("IPI:MM(x)"), NotationError::UnknownToken("IPI:MM(x)".into()));
    }

    fn token() -> impl Strategy<Value = Token> {
        let pages = prop_oneof![Just(None), (1u32..4).prop_map(Some)];
        prop_oneof![
            Just(Token::Fault(FaultToken::R)),
            Just(Token::Fault(FaultToken::Wp)),
            Just(Token::TableSync),
            (-20..8).prop_map(|status| Token::PageStatus(crate::numa::PageStatus(status))),
            Just(Token::Mark("w".into())),
            Just(Token::Mark(String::new())),
            (any::<bool>(), pages.clone(), pages).prop_map(|(batch, pages, send)| {
                Token::Shootdown { send, local: Some(LocalPart { batch, pages }) }
            }),
        ]
    }

    proptest! {
        #[test]
        fn printing_and_reading_are_inverse(tokens in prop::collection::vec(token(), 0..40)) {
            let sequence = Sequence(tokens);
            prop_assert_eq!(sequence.to_string().parse(), Ok(sequence));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[RWPx0-9()¦|: IMPALloc/~!é]{0,60}") {
            let _ = text.parse::<Sequence>();
        }
    }
}
