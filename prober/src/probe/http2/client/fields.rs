//! Header blocks of the answer (RFC 9113 §6.2, §8.2, §8.3): put together, decoded, checked, and handed on.
//!
//! In: HEADERS and CONTINUATION of our stream. Out: the fields and the head to the exchange; a step where they decide or
//! are malformed.
//!
//! Names must be lowercase and values free of NUL, CR and LF, as for every client that a server may have. Headers that
//! belong to HTTP/1 connections are not held against it: real clients differ there, and health does not hang on it.

use super::super::frame::{self, Code};
use super::super::hpack::Refused;
use super::{Client, Exchange, FrameHead, State, Step};

/// The largest header block, as it comes.
pub(super) const BLOCK_LIMIT: usize = 32 * 1024;
/// The most interim (1xx) responses before the final one.
const MAX_INTERIM: u8 = 32;

impl Client {
    pub(super) fn headers(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        exchange: &mut impl Exchange,
    ) -> Result<(), Step> {
        let Some(fragment) = fragment(head, payload) else {
            return Err(self.broken(Code::PROTOCOL_ERROR, "HEADERS shorter than their padding"));
        };
        let end = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.fields(fragment, end, exchange);
        }
        self.block = Some((fragment.to_vec(), end));
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        exchange: &mut impl Exchange,
    ) -> Result<(), Step> {
        let Some((mut block, end)) = self.block.take() else {
            return Err(self.broken(Code::PROTOCOL_ERROR, "CONTINUATION of nothing"));
        };
        if block.len() + payload.len() > BLOCK_LIMIT {
            return Err(self.too_large());
        }
        block.extend_from_slice(payload);
        if head.has(frame::END_HEADERS) {
            return self.fields(&block, end, exchange);
        }
        self.block = Some((block, end));
        Ok(())
    }

    /// A whole header block.
    fn fields(
        &mut self,
        block: &[u8],
        end: bool,
        exchange: &mut impl Exchange,
    ) -> Result<(), Step> {
        exchange.begin();
        let mut fields = Fields::default();
        let decoded = self.decoder.block(block, |name, value| {
            if fields.take(name, value) {
                exchange.field(name, value);
            }
        });
        match decoded {
            Ok(()) => {}
            Err(Refused::TooLarge) => return Err(self.too_large()),
            Err(Refused::Broken(problem)) => {
                return Err(self.broken(Code::COMPRESSION_ERROR, problem));
            }
        }
        if let Some(problem) = fields.problem {
            return Err(self.malformed(problem));
        }
        match (self.state, fields.status) {
            (State::Body, None) if end => Err(Step::Done(exchange.over(true))),
            (State::Body, None) => Err(self.malformed("trailers that do not end the stream")),
            (State::Body, Some(_)) => Err(self.malformed("a status in the trailers")),
            (State::First | State::Head, None) => Err(self.malformed("no :status in its head")),
            (State::First | State::Head, Some(status @ (100 | 102..=199))) => {
                self.interim += 1;
                if end {
                    let problem = format!("the interim status {status} ends the stream");
                    return Err(self.malformed(&problem));
                }
                if self.interim > MAX_INTERIM {
                    let problem = format!("more than {MAX_INTERIM} interim (1xx) responses");
                    return Err(self.malformed(&problem));
                }
                Ok(())
            }
            (State::First | State::Head, Some(status)) => {
                self.state = State::Body;
                match exchange.head(status) {
                    Some(finding) => Err(Step::Done(finding)),
                    None if end => Err(Step::Done(exchange.over(true))),
                    None => Ok(()),
                }
            }
        }
    }
}

/// HEADERS without padding and priority.
fn fragment<'a>(head: &FrameHead, payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = payload;
    let mut padding = 0;
    if head.has(frame::PADDED) {
        let (&first, behind) = rest.split_first()?;
        (padding, rest) = (usize::from(first), behind);
    }
    if head.has(frame::PRIORITY) {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

/// What all header blocks have in common (RFC 9113 §8.2, §8.3).
#[derive(Default)]
struct Fields {
    status: Option<u16>,
    /// A field that is no pseudo-header has come.
    regular: bool,
    problem: Option<&'static str>,
}

impl Fields {
    /// Takes note of a field; `true` where it is the exchange's.
    fn take(&mut self, name: &[u8], value: &[u8]) -> bool {
        let problem = match name {
            [] => Some("a header without a name"),
            b":status" if self.status.is_some() => Some("two statuses"),
            [b':', ..] if self.regular => Some("a pseudo-header behind a header"),
            b":status" => {
                self.status = status(value);
                self.status.is_none().then_some("a :status that is none")
            }
            [b':', ..] => Some("a pseudo-header that no answer has"),
            _ if name
                .iter()
                .any(|b| b.is_ascii_uppercase() || *b <= b' ' || *b >= 0x7f) =>
            {
                Some("a header's name with a byte that none has")
            }
            _ if value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n')) => {
                Some("a header's value with NUL, CR or LF")
            }
            _ => {
                self.regular = true;
                return self.problem.is_none();
            }
        };
        self.problem = self.problem.or(problem);
        false
    }
}

fn status(value: &[u8]) -> Option<u16> {
    let digits: &[u8; 3] = value.try_into().ok()?;
    let code = digits.iter().try_fold(0, |code, digit| {
        digit
            .is_ascii_digit()
            .then(|| code * 10 + u16::from(digit - b'0'))
    })?;
    (code >= 100).then_some(code)
}
