//! The server's side of TLS: files → what the listeners shake hands with.
//!
//! In: PEM files. Out: [`Tls`], or what is wrong with which file. The provider is aws-lc-rs, as in probes; TLS 1.2 and 1.3.
//!
//! Sessions are not resumed. A resumed one skips the verification: with `--client-ca` a certificate that has ended, or an
//! authority that is no longer trusted, would go on to open doors; without it, clients would go on to take a certificate of
//! this server's that was exchanged. Connections are few and long, so there is little to save.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use xxhash_rust::xxh3::Xxh3;

use super::failed;
use crate::trust::Identity;

/// The most bytes of one file: a chain, a key, or a few thousand authorities.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// `--tls-cert`, `--tls-key`, `--client-ca`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, its chain after it.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates; `None`: clients are not asked for any.
    pub client_ca: Option<PathBuf>,
}

/// What the listeners shake hands with.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Of xDS: HTTP/2; with authorities, a client without a certificate of theirs fails the handshake.
    pub xds: Arc<ServerConfig>,
    /// Of the admin API: HTTP/2 or HTTP/1.1; a client may come without a certificate, for `/healthz` alone (`admin` sees to it).
    pub admin: Arc<ServerConfig>,
    /// When the server's certificate ends.
    pub not_after: SystemTime,
}

/// What is wrong with the files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{flag} {path}: {problem}")]
    File {
        /// Which one.
        flag: &'static str,
        /// Where it is.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The files do not go together.
    #[error("--tls-cert {cert} and --tls-key {key} do not go together: {problem}")]
    Pair {
        /// The certificate's file.
        cert: String,
        /// The key's.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// The files' contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(&self) -> Result<Contents, TlsError> {
        Ok(Contents {
            cert: file("--tls-cert", &self.cert)?,
            key: file("--tls-key", &self.key)?,
            client_ca: self
                .client_ca
                .as_deref()
                .map(|path| file("--client-ca", path))
                .transpose()?,
        })
    }

    /// Makes of the contents what the listeners need.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn parse(&self, contents: &Contents) -> Result<Tls, TlsError> {
        let wrong = |flag, path: &Path, problem: String| TlsError::File {
            flag,
            path: path.display().to_string(),
            problem,
        };
        let cert_wrong = |problem| wrong("--tls-cert", &self.cert, problem);
        let chain = certificates(&contents.cert).map_err(cert_wrong)?;
        let leaf = chain
            .first()
            .ok_or_else(|| cert_wrong("there is no certificate in it".into()))?;
        let identity = Identity::read(leaf).map_err(|error| cert_wrong(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|error| {
            let problem = format!("{error}; a private key in PEM belongs here");
            wrong("--tls-key", &self.key, problem)
        })?;
        let mut roots = None;
        if let (Some(pem), Some(path)) = (&contents.client_ca, &self.client_ca) {
            let read = authorities(pem).map_err(|problem| wrong("--client-ca", path, problem))?;
            roots = Some((path, Arc::new(read)));
        }
        let config = |alpn: &[&str], required| {
            let verifier = roots.as_ref().map(|(path, roots)| {
                let made = verifier(Arc::clone(roots), required);
                made.map_err(|problem| wrong("--client-ca", path, problem))
            });
            let config = server_config(chain.clone(), key.clone_key(), verifier.transpose()?, alpn);
            config.map_err(|error| TlsError::Pair {
                cert: self.cert.display().to_string(),
                key: self.key.display().to_string(),
                problem: of_pair(&error),
            })
        };
        Ok(Tls {
            xds: config(&["h2"], true)?,
            admin: config(&["h2", "http/1.1"], false)?,
            not_after: identity.not_after,
        })
    }
}

impl Contents {
    /// Tells contents apart.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        let client_ca = self.client_ca.as_deref().unwrap_or_default();
        for part in [&*self.cert, &*self.key, client_ca] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.digest()
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    alpn: &[&str],
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    }
    .with_single_cert(chain, key)?;
    config.alpn_protocols = alpn.iter().map(|&name| name.into()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn verifier(
    roots: Arc<RootCertStore>,
    certificate_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if !certificate_required {
        verifier = verifier.allow_unauthenticated();
    }
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    Ok(failed::noting(verifier))
}

/// What is wrong with a certificate and its key, in an operator's words.
fn of_pair(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the key is another one's; it must be that of the first certificate in the file".into()
        }
        other => format!("{other}; the key must be that of the first certificate in the file"),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("{error}; certificates in PEM belong here"))
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".into());
    }
    Ok(roots)
}

/// Reads a small regular file; a pipe or a device could keep the reader for ever.
pub(super) fn file(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let wrong = |problem: String| TlsError::File {
        flag,
        path: path.display().to_string(),
        problem,
    };
    let meta = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !meta.is_file() {
        return Err(wrong("this is no file".into()));
    }
    let open = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    open.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "it is larger than {} MiB",
            MAX_FILE_BYTES >> 20
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pems {
        cert: String,
        key: String,
    }

    fn pems(name: &str) -> Pems {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        Pems {
            cert: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn parse(cert: &str, key: &str, client_ca: Option<&str>) -> Result<Tls, String> {
        let files = TlsFiles {
            cert: "cert.pem".into(),
            key: "key.pem".into(),
            client_ca: client_ca.map(|_| "ca.pem".into()),
        };
        let contents = Contents {
            cert: cert.into(),
            key: key.into(),
            client_ca: client_ca.map(Into::into),
        };
        files.parse(&contents).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pair_and_authorities_make_two_configurations() {
        let (own, ca) = (pems("vitals.example"), pems("ca.example"));
        let tls = parse(&own.cert, &own.key, Some(&ca.cert)).unwrap();
        assert_eq!(tls.xds.alpn_protocols, [b"h2".to_vec()]);
        assert_eq!(tls.admin.alpn_protocols, [&b"h2"[..], b"http/1.1"]);
        assert!(tls.not_after > SystemTime::UNIX_EPOCH);
        let plain = parse(&own.cert, &own.key, None).unwrap();
        for config in [tls.xds, tls.admin, plain.xds, plain.admin] {
            let resumes = config.session_storage.can_cache() || config.ticketer.enabled();
            assert!(!resumes, "no session outlives its verification");
            assert_eq!(config.send_tls13_tickets, 0);
        }
    }

    #[test]
    fn what_is_wrong_names_the_flag_and_the_file() {
        let (own, other) = (pems("vitals.example"), pems("other.example"));
        let error = |cert: &str, key: &str, ca: Option<&str>| parse(cert, key, ca).unwrap_err();
        let text = error("", &own.key, None);
        assert_eq!(text, "--tls-cert cert.pem: there is no certificate in it");
        let text = error(&own.cert, "", None);
        assert!(text.starts_with("--tls-key key.pem: "), "{text}");
        let text = error(&own.cert, &other.key, None);
        assert_eq!(
            text,
            "--tls-cert cert.pem and --tls-key key.pem do not go together: the key is another one's; it must be that of the \
             first certificate in the file"
        );
        let text = error(&own.cert, &own.key, Some("# none"));
        assert_eq!(text, "--client-ca ca.pem: there is no certificate in it");
        let half = own.cert.split_at(own.cert.len() / 2).0;
        let text = error(half, &own.key, None);
        assert!(text.starts_with("--tls-cert cert.pem: "), "{text}");
    }

    #[test]
    fn a_file_is_regular_and_of_a_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| file("--tls-key", path).unwrap_err().to_string();
        assert!(error(dir.path()).ends_with("this is no file"));
        assert!(error(Path::new("/dev/zero")).ends_with("this is no file"));
        let large = dir.path().join("large");
        std::fs::write(&large, vec![b'x'; (4 << 20) + 1]).unwrap();
        assert!(error(&large).ends_with("larger than 4 MiB"));
        assert!(error(&dir.path().join("none")).starts_with("--tls-key "));
    }

    #[test]
    fn contents_are_told_apart_also_where_bytes_move_between_files() {
        let contents = |cert: &str, key: &str| Contents {
            cert: cert.into(),
            key: key.into(),
            client_ca: None,
        };
        assert_eq!(contents("a", "b").hash(), contents("a", "b").hash());
        assert_ne!(contents("ab", "").hash(), contents("a", "b").hash());
    }
}
