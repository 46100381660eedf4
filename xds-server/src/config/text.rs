//! Bytes of a file → text that the YAML parser can be trusted with.
//!
//! In: bytes. Out: the text, or why not and where. The parser takes a NUL for the end of the text, and keeps a whole
//! flow collection (`[…]`) as tokens before its first event; so control characters are refused, and the signs that make
//! tokens counted, before it starts. That bounds its memory, whatever the text is.
//!
//! Not here: YAML itself (`tree`).

/// The largest file that is read.
pub(super) const MAX_FILE: usize = 32 << 20;

/// How many signs that make tokens a file may have; each makes a handful.
const MAX_SIGNS: usize = 2_000_000;

/// Why bytes are not read as text, and the byte where that shows.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) offset: usize,
    pub(super) message: String,
}

/// The text without its byte order mark, if it is text that the parser can be trusted with.
pub(super) fn readable(bytes: &[u8]) -> Result<&str, Unreadable> {
    let problem = |offset, message: &str| Unreadable {
        offset,
        message: message.into(),
    };
    if bytes.len() > MAX_FILE {
        let message = format!(
            "the file has more than {} MiB; split the configuration or make it smaller",
            MAX_FILE >> 20
        );
        return Err(problem(0, &message));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        problem(
            e.valid_up_to(),
            "the text is not UTF-8 from here on; save the file as UTF-8",
        )
    })?;
    // The parser takes a NUL for the end of the text: what follows would be lost without a word.
    let control = |b: u8| (b < b' ' && !matches!(b, b'\t' | b'\n' | b'\r')) || b == 0x7f;
    if let Some(offset) = bytes.iter().position(|&b| control(b)) {
        let message = "a control character; remove it, or escape it in a \"double-quoted\" value";
        return Err(problem(offset, message));
    }
    let mut signs = 0usize;
    let mut before = b' ';
    let mut rest = bytes.iter().copied().enumerate().peekable();
    while let Some((offset, b)) = rest.next() {
        let after = rest.peek().map_or(b' ', |&(_, b)| b);
        signs += usize::from(match b {
            b',' | b'[' | b']' | b'{' | b'}' => true,
            b':' | b'?' | b'*' | b'&' | b'!' => {
                before.is_ascii_whitespace() || after.is_ascii_whitespace()
            }
            _ => false,
        });
        before = b;
        if signs > MAX_SIGNS {
            let message = format!(
                "the file has more than {MAX_SIGNS} keys and values up to here; make it smaller"
            );
            return Err(problem(offset, &message));
        }
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Line and column of a byte.
pub(super) fn position(bytes: &[u8], offset: usize) -> (u32, u32) {
    let before = bytes.get(..offset).unwrap_or(bytes);
    let line_start = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |i| i + 1);
    let line = before.iter().filter(|&&b| b == b'\n').count();
    let line_bytes = before.get(line_start..).unwrap_or_default();
    let column = String::from_utf8_lossy(line_bytes).chars().count();
    (from_one(line), from_one(column))
}

/// The parser counts from 0, people from 1.
pub(super) fn from_one(zero_based: usize) -> u32 {
    u32::try_from(zero_based).map_or(u32::MAX, |n| n.saturating_add(1))
}
