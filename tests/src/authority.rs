//! An authority that signs certificates for servers and clients, as a company's own does.
//!
//! In: names. Out: PEM files in the scenario's folder, and what a TLS client needs to use them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::servers::Certificate;

/// An authority.
#[derive(Debug)]
pub struct Authority {
    /// Its own certificate, in PEM.
    pub cert: PathBuf,
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes one; its files and those that it signs begin with `name`.
    #[must_use]
    pub fn new(dir: &Path, name: &str) -> Self {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no name is bad");
        params.distinguished_name = called(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).expect("certificates can be made");
        let cert = dir.join(format!("{name}.pem"));
        fs::write(&cert, own.pem()).expect("the scenario's folder is writable");
        Self {
            cert,
            dir: dir.join(name),
            issuer: Issuer::new(params, key),
        }
    }

    /// Signs a certificate for an IP address, a `spiffe://` ID or a DNS name; its files are called `file`.
    #[must_use]
    pub fn issue(&self, file: &str, name: &str) -> Certificate {
        fs::create_dir_all(&self.dir).expect("the scenario's folder is writable");
        let made = Certificate {
            cert: self.dir.join(format!("{file}.pem")),
            key: self.dir.join(format!("{file}.key")),
        };
        self.issue_as(name, &made);
        made
    }

    /// The same, over the files of another: as whoever renews a certificate does, each file by renaming a new one.
    pub fn issue_as(&self, name: &str, files: &Certificate) {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no name is bad");
        let text = || name.try_into().expect("names are ASCII");
        // An authority and what it signs must not have the same name: that would look self-signed.
        params.distinguished_name = called(name);
        params.subject_alt_names = vec![match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains("://") => SanType::URI(text()),
            Err(_) => SanType::DnsName(text()),
        }];
        let signed = params
            .signed_by(&key, &self.issuer)
            .expect("certificates can be made");
        replace(&files.cert, &signed.pem());
        replace(&files.key, &key.serialize_pem());
    }
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// Puts a new file in the place of another.
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new~");
    fs::write(&new, text).expect("the scenario's folder is writable");
    fs::rename(&new, path).expect("the scenario's folder is writable");
}

/// What a client shakes hands with.
#[must_use]
pub fn client_config(ca: &Path, own: Option<&Certificate>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(ca).expect("a certificate"))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the defaults")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&own.cert).expect("a certificate")],
                PrivateKeyDer::from_pem_file(&own.key).expect("a key"),
            )
            .expect("a pair"),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}
