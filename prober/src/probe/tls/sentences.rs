//! What rustls says of a peer, as sentences for people.
//!
//! In: rustls' errors, many of which print as the names that they have in its source ("CaUsedAsEndEntity"). Out: words
//! that say what is wrong, and alerts by the names that the RFCs give them. Not here: which reason code an error is
//! (`tls`).

use std::borrow::Cow;

use rustls::{AlertDescription, CertificateError, Error};

/// What is wrong with a certificate, to stand after "is not valid: ".
pub(super) fn certificate(problem: &CertificateError) -> Cow<'static, str> {
    use CertificateError as Cert;
    let sentence = match problem {
        Cert::BadEncoding => "it cannot be read as a certificate",
        Cert::Expired => "it has expired",
        Cert::NotValidYet => "it is not valid yet",
        Cert::Revoked => "it is revoked",
        Cert::UnhandledCriticalExtension => "it has a critical extension that is not known here",
        Cert::UnknownIssuer => "none of the roots has issued it, directly or through others",
        Cert::UnknownRevocationStatus => "nobody can say whether it is revoked",
        Cert::ExpiredRevocationList => "the list of revoked certificates has expired",
        Cert::BadSignature => "its signature is not that of the authority that it names",
        Cert::NotValidForName => "it is for another name",
        Cert::InvalidPurpose => "it is for another purpose than to serve TLS",
        Cert::ApplicationVerificationFailure => "it was refused",
        Cert::Other(other) => return webpki(&other.to_string()),
        // These print as sentences, with their dates and names.
        Cert::ExpiredContext { .. }
        | Cert::NotValidYetContext { .. }
        | Cert::ExpiredRevocationListContext { .. }
        | Cert::NotValidForNameContext { .. }
        | Cert::InvalidPurposeContext { .. } => return problem.to_string().into(),
        other => return words(&name(&format!("{other:?}"))).into(),
    };
    sentence.into()
}

/// The library below rustls prints the names of its source.
fn webpki(name: &str) -> Cow<'static, str> {
    match name {
        "CaUsedAsEndEntity" => {
            "it is an authority's certificate (CA:TRUE), which signs others' and serves nobody; \
             the server needs one of its own (CA:FALSE)"
                .into()
        }
        "EndEntityUsedAsCa" => {
            "a certificate in its chain is no authority's (CA:FALSE) and may sign none".into()
        }
        "UnsupportedCertVersion" => "it is not of version 3".into(),
        other => words(other).into(),
    }
}

/// An alert as the RFCs call it: `handshake_failure`.
pub(super) fn alert(alert: AlertDescription) -> String {
    match alert.as_str() {
        Some(name) => divided(name, '_').to_lowercase(),
        None => format!("number {}", u8::from(alert)),
    }
}

/// What a peer does wrong, to stand after "does not keep to TLS: ".
pub(super) fn problem(error: &Error) -> String {
    match error {
        Error::InappropriateMessage { got_type, .. } => {
            format!(
                "it sends a record of a type that has no place there ({})",
                words(&format!("{got_type:?}"))
            )
        }
        Error::InappropriateHandshakeMessage { got_type, .. } => {
            format!(
                "it sends a handshake message that has no place there ({})",
                words(&format!("{got_type:?}"))
            )
        }
        Error::InvalidMessage(what) => {
            format!(
                "it sends what cannot be read ({})",
                words(&format!("{what:?}"))
            )
        }
        Error::PeerIncompatible(why) => {
            format!(
                "it has nothing in common with this prober ({})",
                words(&format!("{why:?}"))
            )
        }
        Error::PeerMisbehaved(why) => words(&format!("{why:?}")),
        Error::DecryptError => "it sends a record that its key did not seal".into(),
        Error::PeerSentOversizedRecord => "it sends a record of more than 16 KiB".into(),
        Error::NoCertificatesPresented => "it presents no certificate".into(),
        error => error.to_string(),
    }
}

/// The name of a variant without its fields.
fn name(debug: &str) -> String {
    let end = debug.find(|c: char| !c.is_ascii_alphanumeric());
    debug
        .get(..end.unwrap_or(debug.len()))
        .unwrap_or_default()
        .into()
}

/// `TooManyEmptyFragments` as "too many empty fragments"; what is all in capitals stays.
fn words(name: &str) -> String {
    let parts = divided(name, ' ');
    let lower = |word: &str| match word.bytes().any(|b| b.is_ascii_lowercase()) {
        true => word.to_lowercase(),
        false => word.into(),
    };
    parts.split(' ').map(lower).collect::<Vec<_>>().join(" ")
}

/// A name of the source, divided where a word begins.
fn divided(name: &str, by: char) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len() + 8);
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i));
        let after = chars.get(i + 1);
        let begins = c.is_ascii_uppercase()
            && before.is_some_and(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || (b.is_ascii_uppercase() && after.is_some_and(char::is_ascii_lowercase))
            });
        if begins {
            out.push(by);
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use rustls::{InvalidMessage, OtherError, PeerMisbehaved};

    use super::*;

    #[test]
    fn p10_what_is_wrong_with_a_certificate_is_told_in_words() {
        let other = |name: &'static str| {
            CertificateError::Other(OtherError(std::sync::Arc::new(std::io::Error::other(name))))
        };
        for (problem, part) in [
            (CertificateError::UnknownIssuer, "none of the roots"),
            (CertificateError::NotValidForName, "another name"),
            (CertificateError::Expired, "has expired"),
            (
                other("CaUsedAsEndEntity"),
                "an authority's certificate (CA:TRUE)",
            ),
            (
                other("PathLenConstraintViolated"),
                "path len constraint violated",
            ),
        ] {
            let text = certificate(&problem);
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn alerts_have_the_names_of_the_rfcs() {
        for (number, name) in [
            (40, "handshake_failure"),
            (20, "bad_record_mac"),
            (48, "unknown_ca"),
            (115, "unknown_psk_identity"),
            (70, "protocol_version"),
            (200, "number 200"),
        ] {
            assert_eq!(alert(AlertDescription::from(number)), name);
        }
    }

    #[test]
    fn what_a_peer_does_wrong_is_told_in_words() {
        for (error, text) in [
            (
                Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments),
                "too many empty fragments",
            ),
            (
                Error::InvalidMessage(InvalidMessage::MessageTooLarge),
                "it sends what cannot be read (message too large)",
            ),
            (
                Error::PeerSentOversizedRecord,
                "it sends a record of more than 16 KiB",
            ),
        ] {
            assert_eq!(problem(&error), text);
        }
    }
}
