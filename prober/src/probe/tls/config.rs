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
use rustls::{
    ALL_VERSIONS, CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion, version,
};

use super::sessions::Offer;
use crate::check::{HealthCheck, Protocol, TlsCheck};

/// The most configurations that are kept: more distinct roots than this at a time are made anew now and then.
const KEPT: usize = 64;

static TLS12_ALONE: [&SupportedProtocolVersion; 1] = [&version::TLS12];

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

/// One for each offer. They share their verifier, without which rustls takes no session of the other.
#[derive(Debug)]
struct Pair {
    both: Arc<ClientConfig>,
    tls12: Arc<ClientConfig>,
}

impl Pair {
    fn of(&self, offer: Offer) -> Arc<ClientConfig> {
        Arc::clone(match offer {
            Offer::Both => &self.both,
            Offer::Tls12 => &self.tls12,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verify {
    Nothing,
    SystemRoots,
    Roots(u128),
}

/// The configurations of an engine.
#[derive(Debug, Default)]
pub(crate) struct Configs(Mutex<HashMap<Need, Pair>>);

impl Configs {
    /// The configuration that a check needs; why there is none, where our own side cannot make it.
    pub(super) fn get(
        &self,
        alpn: Alpn,
        offer: Offer,
        check: &TlsCheck,
    ) -> Result<Arc<ClientConfig>, String> {
        let verify = match (check.verify(), check.roots()) {
            (false, _) => Verify::Nothing,
            (true, None) => Verify::SystemRoots,
            (true, Some(roots)) => Verify::Roots(roots.hash()),
        };
        // The lock guards a map that is whole at any time, so a panic elsewhere spoils nothing.
        let mut configs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = configs.get(&(alpn, verify)) {
            return Ok(pair.of(offer));
        }
        let pair = build(alpn, check)?;
        let config = pair.of(offer);
        if configs.len() >= KEPT {
            configs.clear();
        }
        configs.insert((alpn, verify), pair);
        Ok(config)
    }
}

fn build(alpn: Alpn, check: &TlsCheck) -> Result<Pair, String> {
    let provider = Arc::new(provider());
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
    let config = |versions| {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("TLS cannot be set up ({error})"))?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier))
            .with_no_client_auth();
        config.alpn_protocols = alpn.offered();
        Ok::<_, String>(config)
    };
    let both = config(ALL_VERSIONS)?;
    let mut tls12 = config(&TLS12_ALONE)?;
    tls12.client_auth_cert_resolver = Arc::clone(&both.client_auth_cert_resolver);
    Ok(Pair {
        both: Arc::new(both),
        tls12: Arc::new(tls12),
    })
}

/// The suites with AES-128 come first, as most servers take the client's choice: with TLS 1.3 a handshake costs us
/// 59 µs instead of 84 µs, because HMAC runs over SHA-256, for which processors have instructions, instead of SHA-384.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let small = |suite: &SupportedCipherSuite| {
        matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    };
    provider.cipher_suites.sort_by_key(|suite| !small(suite));
    provider
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
