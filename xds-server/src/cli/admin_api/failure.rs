//! Why the admin API was not reached, and what to try, for the operator who asked.
//!
//! In: ureq's error, the address that was asked. Out: a line. What the API itself refuses (401, 403) is not here: it says so.

use std::io;
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::{ADDRESS, hint};
use crate::health::rule::rfc3339;

/// What went wrong, and what to try.
pub(super) fn line(error: &ureq::Error, base: &str) -> String {
    if let Some(error) = of_tls(error) {
        return tls(error);
    }
    let other = match base.split_once("://") {
        _ if !hangs_up(error) => None,
        Some(("http", host)) => Some(("HTTP", "has TLS", format!("https://{host}"))),
        Some((_, host)) => Some(("TLS", "has no TLS", format!("http://{host}"))),
        None => None,
    };
    match other {
        Some((language, has, right)) => hint(
            &format!("what answers there does not speak {language} ({error})"),
            &format!("if the admin API {has}, write {right}"),
        ),
        None => hint(&error.to_string(), ADDRESS),
    }
}

/// The error of TLS, wherever it is wrapped.
fn of_tls(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => {
            let inner = error.get_ref()?;
            inner
                .downcast_ref()
                .or_else(|| inner.source()?.downcast_ref())
        }
        _ => None,
    }
}

/// Whether somebody is there and hangs up, or answers in another language.
fn hangs_up(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Protocol(_) => true,
        ureq::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

fn tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what answers there does not speak TLS; if it is the admin API, write http://".into()
        }
        rustls::Error::InvalidCertificate(error) => certificate(error),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA => {
                "the server does not trust the authority of --cert; give a certificate that its --client-ca has signed".into()
            }
            AlertDescription::CertificateExpired => "the server says that --cert has ended".into(),
            other => format!("the server has ended the TLS handshake with the alert {other:?}; its log says why"),
        },
        other => hint(&other.to_string(), ADDRESS),
    }
}

fn certificate(error: &CertificateError) -> String {
    let at =
        |time: &UnixTime| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is of no authority in --ca".into()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let has = match presented.as_slice() {
                [] => "it has no name at all".to_owned(),
                names => format!(
                    "it has: {}; call the server so in --admin",
                    names.join(", ")
                ),
            };
            format!(
                "the server's certificate has not the name {:?}; {has}",
                expected.to_str()
            )
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the server's certificate has ended, at {}", at(not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!(
                "the server's certificate is not valid before {}",
                at(not_before)
            )
        }
        other => format!("the server's certificate is refused: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "http://192.0.2.1:18001";

    #[test]
    fn plain_http_to_tls_is_told_to_write_https_and_the_other_way_round() {
        for error in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof] {
            let said = line(&ureq::Error::Io(error.into()), BASE);
            assert!(said.contains("write https://192.0.2.1:18001"), "{said}");
        }
        let reset = ureq::Error::Io(io::ErrorKind::ConnectionReset.into());
        let said = line(&reset, "https://192.0.2.1:18001");
        assert!(said.contains("write http://192.0.2.1:18001"), "{said}");
        let refused = ureq::Error::Io(io::ErrorKind::ConnectionRefused.into());
        assert!(line(&refused, BASE).contains("is the server running"));
    }

    #[test]
    fn a_name_that_the_certificate_has_not_is_told_with_those_that_it_has() {
        let error = CertificateError::NotValidForNameContext {
            expected: "localhost".try_into().unwrap(),
            presented: vec!["DnsName(\"vitals.example\")".into()],
        };
        let error = ureq::Error::Rustls(error.into());
        let said = line(&error, "https://localhost:1");
        assert!(
            said.contains("\"localhost\"") && said.contains("vitals.example"),
            "{said}"
        );
    }

    #[test]
    fn an_error_of_tls_is_found_inside_one_of_the_connection() {
        let inner: rustls::Error = CertificateError::UnknownIssuer.into();
        let error = ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, inner));
        let said = line(&error, "https://localhost:1");
        assert_eq!(said, "the server's certificate is of no authority in --ca");
    }
}
