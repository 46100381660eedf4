//! The client configurations of TLS: one for each distinct need, shared by all probes that have it.
//!
//! In: what a check asks of TLS, and which protocol is spoken over it. Out: a [`ClientConfig`] as a template; each probe
//! adds its target's session store. Semantics P10: by default nothing is verified.
//!
//! The provider is aws-lc-rs: its client handshake took 113 µs against ring's 129 µs with TLS 1.3 and 78 µs against
//! 108 µs with TLS 1.2 (nothing verified, one of 2 shared cores), and it builds with a C compiler alone. Protocols
//! older than TLS 1.2, and in TLS 1.2 suites without forward secrecy (RSA key exchange), are not in rustls: servers that
//! have nothing else fail.
//!
//! HTTPS offers http/1.1 by ALPN, as that is what it then speaks: a server that takes h2 only says so in the handshake
//! (NO_ALPN) instead of answering garbage. A server without ALPN passes. SSL offers nothing: it speaks no protocol.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::check::{HealthCheck, Protocol, TlsCheck};

/// The most configurations that are kept: more distinct roots than this at a time are made anew now and then.
const KEPT: usize = 64;

/// What is said over TLS, for ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Alpn {
    None,
    Http1,
    /// It must be chosen (semantics P12).
    H2,
}

impl Alpn {
    pub(super) fn of(check: &HealthCheck) -> Self {
        match check.protocol() {
            Protocol::Tcp(_) => Self::None,
            Protocol::Http(_) => Self::Http1,
            Protocol::Http2(_) | Protocol::Grpc(_) => Self::H2,
        }
    }

    fn offered(self) -> Vec<Vec<u8>> {
        match self {
            Self::None => vec![],
            Self::Http1 => vec![b"http/1.1".to_vec()],
            Self::H2 => vec![b"h2".to_vec()],
        }
    }
}

/// What makes two configurations differ: ALPN, and how certificates are verified.
type Need = (Alpn, Verify);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verify {
    Nothing,
    SystemRoots,
    Roots(u128),
}

/// The configurations of an engine.
#[derive(Debug, Default)]
pub(crate) struct Configs(Mutex<HashMap<Need, Arc<ClientConfig>>>);

impl Configs {
    /// The configuration that a check needs; why there is none, where our own side cannot make it.
    pub(super) fn get(&self, alpn: Alpn, check: &TlsCheck) -> Result<Arc<ClientConfig>, String> {
        let verify = match (check.verify(), check.roots()) {
            (false, _) => Verify::Nothing,
            (true, None) => Verify::SystemRoots,
            (true, Some(roots)) => Verify::Roots(roots.hash()),
        };
        // The lock guards a map that is whole at any time, so a panic elsewhere spoils nothing.
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(&(alpn, verify)) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(build(alpn, check)?);
        if configs.len() >= KEPT {
            configs.clear();
        }
        configs.insert((alpn, verify), Arc::clone(&config));
        Ok(config)
    }
}

fn build(alpn: Alpn, check: &TlsCheck) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = if check.verify() {
        let roots = match check.roots() {
            Some(roots) => Arc::clone(roots.store()),
            None => Arc::new(system_roots()?),
        };
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| format!("the root certificates cannot be used ({error})"))?
    } else {
        Arc::new(NothingVerified(Arc::clone(&provider)))
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up ({error})"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = alpn.offered();
    Ok(config)
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "cannot read some of the system's root certificates");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(
            "this machine has no root certificates to verify with; install them, or name a file in tls.roots".into(),
        );
    }
    Ok(roots)
}

/// Semantics P10: self-signed, expired, weak, of another name: all pass. The signatures of the handshake are not
/// verified either, which would tell nothing without a certificate to trust and costs most of a handshake.
#[derive(Debug)]
struct NothingVerified(Arc<CryptoProvider>);

impl ServerCertVerifier for NothingVerified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        // Old servers sign with these in TLS 1.2; what is not verified may be anything.
        schemes.extend([
            SignatureScheme::RSA_PKCS1_SHA1,
            SignatureScheme::ECDSA_SHA1_Legacy,
        ]);
        schemes
    }
}
