//! What an HTTP answer is held against, whichever version carries it (semantics P4).
//!
//! In: a final status, then the window of the decoded body. Out: a finding as soon as one of them decides.
//!
//! Not here: how status and body are framed (`http1`, `http2`).

use std::borrow::Cow;
use std::net::SocketAddr;

use super::Finding;
use super::tcp::find;
use super::text::quoted;
use crate::check::{MATCH_WINDOW, StatusSet};
use crate::outcome::{ProbeResult, Reason, ReasonCode};

/// What is expected, of whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expect<'a> {
    pub(super) statuses: &'a StatusSet,
    pub(super) response: Option<&'a str>,
    pub(super) peer: SocketAddr,
}

/// What a piece of body has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing decisive.
    More,
    /// The string.
    Found,
    /// The window is full, without the string.
    Full,
}

/// Adds decoded bytes to the window and looks for the string, also across the seam.
pub(super) fn look(window: &mut Vec<u8>, bytes: &[u8], wanted: &[u8]) -> Sight {
    let seam = window.len().saturating_sub(wanted.len());
    let take = bytes.len().min(MATCH_WINDOW.saturating_sub(window.len()));
    window.extend_from_slice(bytes.get(..take).unwrap_or(bytes));
    if find(window.get(seam..).unwrap_or_default(), wanted) {
        Sight::Found
    } else if window.len() >= MATCH_WINDOW {
        Sight::Full
    } else {
        Sight::More
    }
}

impl Expect<'_> {
    fn wanted(&self) -> String {
        quoted(self.response.unwrap_or_default().as_bytes())
    }

    /// The final status is there. No finding: the body decides.
    pub(super) fn status(&self, status: u16) -> Option<Finding> {
        if !self.statuses.contains(status) {
            let text = format!(
                "HTTP {status} from {}; the check expects {}",
                self.peer, self.statuses
            );
            return Some(fail(ReasonCode::StatusMismatch, text));
        }
        if self.response.is_some() {
            return None;
        }
        let text = if status == 200 {
            "HTTP 200, as the check expects"
        } else {
            "the HTTP status is one that the check expects"
        };
        Some((ProbeResult::Pass, Reason::new(ReasonCode::ResponseOk, text)))
    }

    /// The string is there.
    pub(super) fn found() -> Finding {
        let text = "the status and the body are what the check expects";
        (ProbeResult::Pass, Reason::new(ReasonCode::ResponseOk, text))
    }

    /// The window is full, without the string.
    pub(super) fn full(&self, status: u16, window: &[u8]) -> Finding {
        let text = format!(
            "HTTP {status} from {}, but the first {MATCH_WINDOW} bytes of the body do not contain {}; they begin with {}",
            self.peer,
            self.wanted(),
            quoted(window)
        );
        fail(ReasonCode::BodyWindowFull, text)
    }

    /// The body is over, without the string.
    pub(super) fn over(&self, status: u16, window: &[u8]) -> Finding {
        let (peer, wanted) = (self.peer, self.wanted());
        let text = if window.is_empty() {
            format!(
                "HTTP {status} from {peer} with an empty body; the check expects {wanted} in it"
            )
        } else {
            format!(
                "HTTP {status} from {peer}, but its whole body of {} bytes does not contain {wanted}; it begins with {}",
                window.len(),
                quoted(window)
            )
        };
        fail(ReasonCode::BodyMismatch, text)
    }

    /// The connection is over, in the middle of the body.
    pub(super) fn cut_off(&self, status: u16) -> Finding {
        let text = format!(
            "HTTP {status} from {}, but it closed the connection in the middle of the body, before {}",
            self.peer,
            self.wanted()
        );
        fail(ReasonCode::PeerClosed, text)
    }

    /// What has not come, for the text of a deadline.
    pub(super) fn missing(status: u16, seen: usize) -> Cow<'static, str> {
        format!("after HTTP {status} and {seen} bytes of body the expected string did not come")
            .into()
    }
}

/// A failure with its sentence.
pub(super) fn fail(code: ReasonCode, text: String) -> Finding {
    (ProbeResult::Fail, Reason::new(code, text))
}
