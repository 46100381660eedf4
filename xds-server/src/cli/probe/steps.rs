//! What is shown of a probe's steps: bounded, and escaped to printable ASCII.
//!
//! In: steps as they happen. Out: how much of each may be shown, and bytes as text. A peer that trickles, or floods until
//! it is cut off, makes a long story; its beginning tells all.

use std::ascii;

use vitals_prober::oneshot::{Event, Piece};

/// The most steps of one probe that are shown.
const MAX_STEPS: usize = 200;

/// The most bytes from the wire, of one probe, that are shown.
const MAX_BYTES: usize = 16 * 1024;

/// What may still be shown of one probe.
#[derive(Debug)]
pub(super) struct Allowance {
    steps: usize,
    bytes: usize,
    left_out: usize,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Self {
            steps: MAX_STEPS,
            bytes: MAX_BYTES,
            left_out: 0,
        }
    }

    /// Takes a step's part: how many of its bytes are shown, or `None` if nothing is.
    pub(super) fn take(&mut self, event: &Event) -> Option<usize> {
        let Some(steps) = self.steps.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.steps = steps;
        let shown = match event {
            Event::ProxyHeader { bytes: piece } | Event::Sent(piece) | Event::Received(piece) => {
                piece.bytes().len().min(self.bytes)
            }
            Event::Connecting { .. }
            | Event::Connected { .. }
            | Event::TlsEstablished(_)
            | Event::PeerClosed
            | Event::Retrying => 0,
        };
        self.bytes -= shown;
        Some(shown)
    }

    /// How many steps were not shown.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }
}

/// The beginning of a piece.
pub(super) fn head(piece: &Piece, shown: usize) -> &[u8] {
    piece.bytes().get(..shown).unwrap_or_default()
}

/// Bytes as printable ASCII on one line: `\r\n`, `\x00`. Quotes stay as they are.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\'' => text.push(byte.into()),
            _ => text.extend(ascii::escape_default(byte).map(char::from)),
        }
    }
    text
}

/// Bytes as lines of printable ASCII: each ends where one ends on the wire, or where it would become too wide.
pub(super) fn lines(bytes: &[u8], width: usize) -> Vec<String> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .flat_map(|line| {
            let text = escaped(line);
            // ASCII: any cut is a character's end.
            let parts: Vec<_> = text.as_bytes().chunks(width.max(1)).collect();
            parts
                .into_iter()
                .map(|part| String::from_utf8_lossy(part).into_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printable_ascii_whatever_they_are() {
        assert_eq!(escaped(b"a\"'\\\r\n\0\xff"), "a\"'\\\\\\r\\n\\x00\\xff");
        assert_eq!(
            lines(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello", 80),
            ["HTTP/1.1 200 OK\\r\\n", "A: b\\r\\n", "\\r\\n", "hello"]
        );
        assert_eq!(lines(b"abcde", 2), ["ab", "cd", "e"]);
        assert!(lines(b"", 80).is_empty());
        let all: Vec<u8> = (0..=255).collect();
        for line in lines(&all, 30) {
            assert!(line.len() <= 30 && line.bytes().all(|b| (b' '..=b'~').contains(&b)));
        }
    }

    #[test]
    fn a_long_story_is_cut() {
        let mut allowance = Allowance::new();
        for _ in 0..MAX_STEPS {
            assert_eq!(allowance.take(&Event::PeerClosed), Some(0));
        }
        assert_eq!(allowance.take(&Event::PeerClosed), None);
        assert_eq!(allowance.take(&Event::Retrying), None);
        assert_eq!(allowance.left_out(), 2);
    }
}
