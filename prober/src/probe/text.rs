//! Foreign bytes made fit for a sentence: escaped and bounded.
//!
//! In: bytes from a peer or a check. Out: printable ASCII in quotes. Not for anything that is parsed again.

/// The most bytes of a foreign text that are shown.
pub(super) const SHOWN: usize = 64;

/// The bytes in quotes, escaped; of long ones the beginning.
pub(super) fn quoted(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => format!("\"{}…\"", start.escape_ascii()),
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_escaped_and_bounded() {
        assert_eq!(quoted(b"a\"\r\n\0\xff"), r#""a\"\r\n\x00\xff""#);
        assert_eq!(quoted(&[b'x'; 5000]).chars().count(), SHOWN + 3);
    }
}
