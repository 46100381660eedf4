//! What a probe over TLS asks for (semantics P10): by default nothing but a handshake.
//!
//! In: `tls:` of a check as written. Out: a [`TlsCheck`], with the given root certificates read and valid. Not here:
//! files (the server reads `roots` and hands the bytes in), the handshake itself (`probe::tls`).

use std::net::IpAddr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName};
use xxhash_rust::xxh3::Xxh3Default;

use super::errors::Errors;

/// `tls:` of a check, as written.
#[derive(Clone, Debug, Default)]
pub struct TlsSpec {
    /// `verify`: whether the certificate must be valid; default false (semantics P10). One that is an authority's
    /// (`CA:TRUE`) is refused as a server's; an Envoy that verifies takes it.
    pub verify: Option<bool>,
    /// The content of the file that `roots` names, PEM: whose certificates are valid. Without it the system's roots.
    pub roots: Option<Vec<u8>>,
    /// `sni`: the server name of the handshake; default: the host, else the endpoint's FQDN, else none.
    pub sni: Option<String>,
}

/// What a probe over TLS asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsCheck {
    verify: bool,
    roots: Option<Roots>,
    sni: Option<String>,
}

/// Root certificates of a check's own; equal when the certificates are the same.
#[derive(Clone, Debug)]
pub struct Roots {
    pem: Arc<str>,
    store: Arc<RootCertStore>,
    hash: u128,
}

impl PartialEq for Roots {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Roots {}

impl Roots {
    /// The root certificates of a PEM text.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right: no PEM, no certificate, one that is no root.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        let mut hasher = Xxh3Default::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| {
                format!("it is not a PEM file ({error}); certificates in PEM are expected")
            })?;
            hasher.update(&(certificate.len() as u64).to_le_bytes());
            hasher.update(&certificate);
            store.add(certificate).map_err(|error| {
                format!(
                    "certificate {} of it is no root certificate ({error})",
                    store.len() + 1
                )
            })?;
        }
        if store.is_empty() {
            return Err("it holds no certificate; certificates in PEM are expected".into());
        }
        Ok(Self {
            pem: certificates_of(&String::from_utf8_lossy(pem)).into(),
            store: Arc::new(store),
            hash: hasher.digest128(),
        })
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.store
    }

    /// The certificates in PEM, without what else the file holds.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The hash of the certificates: the same for the same certificates in the same order.
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.hash
    }
}

impl TlsCheck {
    pub(super) fn new(spec: TlsSpec, errors: &mut Errors) -> Self {
        let verify = spec.verify.unwrap_or(false);
        let roots = spec.roots.and_then(|pem| {
            if !verify {
                errors.push(
                    "tls.roots",
                    "roots are looked at only to verify; add verify: true, or leave roots out",
                );
            }
            Roots::parse(&pem)
                .map_err(|problem| errors.push("tls.roots", problem))
                .ok()
        });
        if let Some(sni) = &spec.sni
            && !is_dns_name(sni)
        {
            let problem = format!(
                "{sni:?} is not a DNS name; a server name is one, without a port, and never an address (RFC 6066)"
            );
            errors.push("tls.sni", problem);
        }
        Self {
            verify,
            roots,
            sni: spec.sni,
        }
    }

    /// Whether the certificate must be valid.
    #[must_use]
    pub fn verify(&self) -> bool {
        self.verify
    }

    /// Whose certificates are valid; `None`: the system's.
    #[must_use]
    pub fn roots(&self) -> Option<&Roots> {
        self.roots.as_ref()
    }

    /// The server name that the check itself gives.
    #[must_use]
    pub fn sni(&self) -> Option<&str> {
        self.sni.as_deref()
    }
}

/// The certificates of a PEM text. What stands beside them, a private key perhaps, is nobody else's.
fn certificates_of(text: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let mut certificates = String::new();
    let mut inside = false;
    for line in text.lines().map(str::trim_end) {
        inside |= line == "-----BEGIN CERTIFICATE-----";
        if inside {
            certificates.push_str(line);
            certificates.push('\n');
        }
        inside &= line != END;
    }
    certificates
}

/// Whether a text can be sent as a server name.
#[must_use]
pub fn is_dns_name(text: &str) -> bool {
    text.parse::<IpAddr>().is_err() && DnsName::try_from(text).is_ok()
}
