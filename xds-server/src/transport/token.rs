//! The admin API's bearer token.
//!
//! In: a file or a variable. Out: a [`Token`] that presented ones are held against, in a time that does not tell how much
//! of them was right.

use std::fmt;
use std::path::Path;

use super::tls::{TlsError, file};

/// The least length: shorter ones can be guessed.
const LEAST: usize = 16;
const MOST: usize = 4_096;

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A token: 16 to 4,096 visible ASCII characters; white space around it does not count.
    ///
    /// # Errors
    /// What would be right.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !(LEAST..=MOST).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "a token has {LEAST} to {MOST} visible ASCII characters, such as `openssl rand -hex 32` prints"
            ));
        }
        Ok(Self(text.into()))
    }

    /// Reads one from a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no token.
    pub fn read(flag: &'static str, path: &Path) -> Result<Self, TlsError> {
        let wrong = |problem| TlsError::File {
            flag,
            path: path.display().to_string(),
            problem,
        };
        let bytes = file(flag, path)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| wrong(error.to_string()))?;
        Self::new(text).map_err(wrong)
    }

    /// Whether this is what stands in an `Authorization` header.
    #[must_use]
    pub fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, given)) = authorization.and_then(|value| value.split_at_checked(7))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && same(self.0.as_bytes(), given)
    }

    /// For a request's header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Tells tokens apart.
    #[must_use]
    pub fn hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(self.0.as_bytes())
    }
}

/// Compares every byte, whatever the first ones say.
fn same(secret: &[u8], given: &[u8]) -> bool {
    let differences = secret
        .iter()
        .zip(given)
        .fold(0u8, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
    secret.len() == given.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_admitted() {
        let token = Token::new("  0123456789abcdef\n").unwrap();
        for (header, admitted) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Bearer ", false),
            ("Bearer", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("", false),
        ] {
            assert_eq!(token.admits(Some(header.as_bytes())), admitted, "{header}");
        }
        assert!(!token.admits(None));
        assert!(token.admits(Some(token.header().as_bytes())));
    }

    #[test]
    fn a_token_is_long_enough_visible_and_never_printed() {
        for bad in [
            "",
            "short",
            "0123456789 abcdef",
            "0123456789abcdé",
            &"x".repeat(4_097),
        ] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
        let token = Token::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
