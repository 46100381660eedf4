//! A TLS handshake that failed, in the words of those who must mend it.
//!
//! In: rustls' error, and the certificate that the client has shown, if it came to that. Out: a sentence for the log: what
//! is wrong, on whose side, with which certificate, until when. rustls tells what broke in its own terms, and of a
//! certificate that it refuses nothing at all: therefore its verifier is wrapped ([`noting`]), and notes the certificate for the
//! handshake that runs ([`with_shown`]).
//!
//! Not here: what is verified (rustls), and whom a fleet admits (`trust`).

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error,
    InvalidMessage, SignatureScheme,
};
use x509_parser::parse_x509_certificate;

use crate::health::rule::rfc3339;
use crate::trust::Identity;

tokio::task_local! {
    /// The certificate that this task's handshake has refused. A verifier runs within a poll of its own task.
    static SHOWN: RefCell<Option<String>>;
}

/// Runs a handshake; beside its error, who the client says it is: `None` when it came to no certificate, or to none that was
/// refused.
pub(super) async fn with_shown<T>(
    handshake: impl Future<Output = io::Result<T>>,
) -> Result<T, (io::Error, Option<String>)> {
    let noted = async {
        let shaken = handshake.await;
        shaken.map_err(|error| (error, SHOWN.with(RefCell::take)))
    };
    SHOWN.scope(RefCell::default(), noted).await
}

/// Verifies as `inner` does, and notes whom it refuses.
pub(super) fn noting(inner: Arc<dyn ClientCertVerifier>) -> Arc<dyn ClientCertVerifier> {
    Arc::new(Noting(inner))
}

#[derive(Debug)]
struct Noting(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Noting {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        if verified.is_err() {
            // An error: nobody listens.
            drop(SHOWN.try_with(|shown| shown.replace(Some(describe(end_entity)))));
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.0.requires_raw_public_keys()
    }
}

/// Names and issuer, shortened and without control characters: nobody vouches for them.
fn describe(der: &[u8]) -> String {
    const CLIP: usize = 128;
    let names = match Identity::read(der) {
        Ok(identity) => identity.to_string(),
        Err(error) => return error.to_string(),
    };
    let Ok((_rest, certificate)) = parse_x509_certificate(der) else {
        return names;
    };
    let issuer = certificate.issuer().to_string();
    let issuer: String = (issuer.chars().take(CLIP))
        .flat_map(char::escape_default)
        .collect();
    format!("{names}, issued by {issuer}")
}

/// Why a handshake failed; `shown`: what [`with_shown`] says of the client's certificate.
pub(super) fn why(error: &io::Error, shown: Option<&str>) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(error) => of_tls(error, shown),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the client closed the connection in the middle of it".into()
        }
        None => error.to_string(),
    }
}

fn of_tls(error: &Error, shown: Option<&str>) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS, and this listener speaks nothing else".into()
        }
        Error::InvalidMessage(what) => format!("what the client says is no TLS ({what:?})"),
        Error::NoCertificatesPresented => {
            "the client has shown no certificate, and --client-ca wants one".into()
        }
        Error::InvalidCertificate(error) => {
            let names = shown.map_or_else(String::new, |shown| format!(" ({shown})"));
            format!("the client's certificate{names} {}", of_certificate(error))
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::NoApplicationProtocol => "the client does not offer HTTP/2 (ALPN h2)".into(),
        Error::PeerIncompatible(what) => {
            format!("client and server have no way in common ({what:?})")
        }
        other => other.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "is of none of the authorities in --client-ca".to_owned()
        }
        CertificateError::Expired => "has ended".into(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("has ended, at {}", date(*not_after))
        }
        CertificateError::NotValidYet => "is not valid yet".into(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}", date(*not_before))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not made for clients: its extended key usage has no clientAuth".into()
        }
        CertificateError::BadSignature => {
            "is not signed by the authority of that name in --client-ca".into()
        }
        other => format!("is refused: {other}"),
    }
}

/// What the client has against this server, or what has happened to it.
fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => {
            "the client does not trust the authority of this server's certificate (--tls-cert); in an Envoy's bootstrap it \
             is --tls-ca"
                .into()
        }
        AlertDescription::CertificateUnknown | AlertDescription::BadCertificate => {
            "the client does not take this server's certificate (--tls-cert), mostly because it expects another name; in an \
             Envoy's bootstrap it is that of --server or --tls-sni"
                .into()
        }
        AlertDescription::CertificateExpired => {
            "the client says that this server's certificate (--tls-cert) has ended".into()
        }
        other => format!("the client has ended it with the alert {other:?}"),
    }
}

/// RFC 3339, UTC.
fn date(time: UnixTime) -> String {
    rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: Error, shown: Option<&str>) -> String {
        why(&io::Error::new(io::ErrorKind::InvalidData, error), shown)
    }

    #[test]
    fn a_client_without_tls_or_a_certificate_is_told_of_in_plain_words() {
        let plain = said(InvalidMessage::InvalidContentType.into(), None);
        assert!(plain.contains("does not speak TLS"), "{plain}");
        let none = said(Error::NoCertificatesPresented, None);
        assert!(none.contains("no certificate") && none.contains("--client-ca"));
        let gone = why(&io::ErrorKind::UnexpectedEof.into(), None);
        assert!(gone.contains("closed the connection"), "{gone}");
    }

    #[test]
    fn a_certificate_that_is_refused_is_named_with_its_dates() {
        let shown = Some("spiffe://mesh/edge/1, issued by CN=other");
        let issuer = said(CertificateError::UnknownIssuer.into(), shown);
        assert_eq!(
            issuer,
            "the client's certificate (spiffe://mesh/edge/1, issued by CN=other) is of none of the authorities in --client-ca"
        );
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let ended = CertificateError::ExpiredContext {
            time: at(1_700_000_001),
            not_after: at(1_700_000_000),
        };
        assert_eq!(
            said(ended.into(), None),
            "the client's certificate has ended, at 2023-11-14T22:13:20.000Z"
        );
    }

    #[test]
    fn an_alert_says_whose_side_is_to_be_mended() {
        let ca = said(Error::AlertReceived(AlertDescription::UnknownCA), None);
        assert!(ca.contains("--tls-cert") && ca.contains("--tls-ca"), "{ca}");
        let name = said(
            Error::AlertReceived(AlertDescription::CertificateUnknown),
            None,
        );
        assert!(name.contains("--tls-sni"), "{name}");
    }

    #[test]
    fn a_certificate_is_described_by_its_names_and_issuer_and_anything_else_is_not_a_panic() {
        let made = rcgen::generate_simple_self_signed(vec!["envoy.example".to_owned()]).unwrap();
        let text = describe(made.cert.der());
        assert!(text.starts_with("envoy.example, issued by CN="), "{text}");
        assert!(describe(b"no certificate").contains("cannot be read"));
    }
}
