//! A TLS server that shakes hands as it should and then does what a script says, right or wrong.
//!
//! In: an address, a version of TLS, protocols for ALPN, and a list of [`TlsAct`]s for every connection. Out: those records
//! and faults on the wire. rustls makes the handshake; then its keys are taken out, and records of any type, length and
//! content are sealed by hand. After its acts a connection stays open, without a word, until the peer leaves.
//!
//! Not here: broken handshakes, which need no keys ([`crate::hostile`]), and what the bytes mean.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, ServerConnection,
    SupportedCipherSuite, SupportedProtocolVersion, version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::{RUNTIME, bind};
use crate::hostile::{Act, TRICKLE, act};

/// The type of a record of application data.
pub const DATA: u8 = 23;
/// The type of a record of alerts.
pub const ALERT: u8 = 21;
/// The type of a record of handshake messages.
pub const HANDSHAKE: u8 = 22;

/// Which TLS is spoken; each with ChaCha20-Poly1305, whose nonces are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2 alone.
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    fn parts(self) -> (&'static SupportedProtocolVersion, SupportedCipherSuite) {
        match self {
            Self::Tls12 => (
                &version::TLS12,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ),
            Self::Tls13 => (
                &version::TLS13,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ),
        }
    }
}

/// One thing that a server does to a connection after the handshake.
#[derive(Clone, Debug)]
pub enum TlsAct {
    /// Waits for the peer to say something.
    Read,
    /// Sends a record of this type with this in it.
    Record(u8, Vec<u8>),
    /// Sends such records until the peer has gone.
    Endless(u8, Vec<u8>),
    /// Sends this, again and again, a record of one byte each 100 ms.
    Trickle(Vec<u8>),
    /// Sends one record of this, a byte of the record each 100 ms.
    TrickleRecord(Vec<u8>),
    /// TLS 1.3: asks for new keys until the peer has gone.
    KeyUpdates,
    /// Does this to the connection, past TLS.
    Tcp(Act),
}

/// A server with a script; gone when it is dropped.
#[derive(Debug)]
pub struct HostileTls {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl HostileTls {
    /// Does the same to every connection.
    #[must_use]
    pub fn start(address: SocketAddr, version: Version, alpn: &[&str], acts: Vec<TlsAct>) -> Self {
        let listener = bind(address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let config = Arc::new(config(version, alpn));
        Self {
            address,
            server: RUNTIME.spawn(serve(listener, config, acts.into())),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HostileTls {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn config(version: Version, alpn: &[&str]) -> ServerConfig {
    static IDENTITY: LazyLock<(CertificateDer<'static>, PrivateKeyDer<'static>)> =
        LazyLock::new(|| {
            let key = rcgen::KeyPair::generate().expect("keys can be made");
            let params = rcgen::CertificateParams::new(["hostile.example".to_owned()]);
            let signed = params.and_then(|params| params.self_signed(&key));
            let certificate = signed.expect("certificates can be made");
            (certificate.der().clone(), key.into())
        });
    let (version, suite) = version.parts();
    let provider = CryptoProvider {
        cipher_suites: vec![suite],
        ..aws_lc_rs::default_provider()
    };
    let (certificate, key) = &*IDENTITY;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("the suite is of the version")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .expect("the key is the certificate's");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.enable_secret_extraction = true;
    // What is sent after the handshake is the script's.
    config.send_tls13_tickets = 0;
    config
}

/// Ends when it is aborted; its connections end with it.
async fn serve(listener: TcpListener, config: Arc<ServerConfig>, acts: Arc<[TlsAct]>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The peer gave up between SYN and accept.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
        };
        let (config, acts) = (Arc::clone(&config), Arc::clone(&acts));
        // A peer that leaves in the middle ends the script; that is no error here.
        connections.spawn(async move { play(stream, config, &acts).await.ok() });
    }
}

async fn play(mut stream: TcpStream, config: Arc<ServerConfig>, acts: &[TlsAct]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut heard = shake(&mut stream, &mut connection).await?;
    if matches!(acts, [TlsAct::KeyUpdates]) {
        return update_keys(&mut stream, &mut connection).await;
    }
    let mut sealer = Sealer::new(connection)?;
    let mut buffer = vec![0; 16 * 1024];
    for step in acts {
        match step {
            TlsAct::Read if heard => heard = false,
            TlsAct::Read => {
                if stream.read(&mut buffer).await? == 0 {
                    return Ok(());
                }
            }
            TlsAct::Record(kind, payload) => {
                stream.write_all(&sealer.record(*kind, payload)?).await?;
            }
            TlsAct::Endless(kind, payload) => loop {
                stream.write_all(&sealer.record(*kind, payload)?).await?;
            },
            TlsAct::Trickle(bytes) => {
                let mut beat = tokio::time::interval(TRICKLE);
                for byte in bytes.iter().cycle() {
                    beat.tick().await;
                    stream.write_all(&sealer.record(DATA, &[*byte])?).await?;
                }
            }
            TlsAct::TrickleRecord(payload) => {
                let mut beat = tokio::time::interval(TRICKLE);
                for byte in sealer.record(DATA, payload)? {
                    beat.tick().await;
                    stream.write_all(&[byte]).await?;
                }
            }
            TlsAct::KeyUpdates => {
                return Err(io::Error::other("KeyUpdates is the only act of its script"));
            }
            TlsAct::Tcp(step) => {
                if !act(&mut stream, step, &mut buffer).await? {
                    return Ok(());
                }
            }
        }
    }
    while stream.read(&mut buffer).await? > 0 {}
    // The peer may only have closed its own side; it decides when to leave.
    stream.shutdown().await
}

/// The handshake; `true` where the peer has said something with it.
async fn shake(stream: &mut TcpStream, connection: &mut ServerConnection) -> io::Result<bool> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        flush(stream, connection).await?;
        if !connection.is_handshaking() {
            let state = connection.process_new_packets().map_err(io::Error::other)?;
            return Ok(state.plaintext_bytes_to_read() > 0);
        }
        let read = stream.read(&mut buffer).await?;
        let mut bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !bytes.is_empty() {
            connection.read_tls(&mut bytes)?;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

async fn flush(stream: &mut TcpStream, connection: &mut ServerConnection) -> io::Result<()> {
    let mut out = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut out)?;
    }
    stream.write_all(&out).await
}

async fn update_keys(stream: &mut TcpStream, connection: &mut ServerConnection) -> io::Result<()> {
    loop {
        connection
            .refresh_traffic_keys()
            .map_err(io::Error::other)?;
        flush(stream, connection).await?;
    }
}

/// The server's side of the keys.
struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

impl Sealer {
    fn new(connection: ServerConnection) -> io::Result<Self> {
        let suite = connection.negotiated_cipher_suite();
        let secrets = connection
            .dangerous_extract_secrets()
            .map_err(io::Error::other)?;
        let (sequence, ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets.tx else {
            return Err(io::Error::other("another cipher than ChaCha20-Poly1305"));
        };
        let encrypter = match suite {
            Some(SupportedCipherSuite::Tls12(suite)) => {
                suite.aead_alg.encrypter(key, iv.as_ref(), &[])
            }
            Some(SupportedCipherSuite::Tls13(suite)) => suite.aead_alg.encrypter(key, iv),
            None => return Err(io::Error::other("a handshake without a suite")),
        };
        Ok(Self {
            encrypter,
            sequence,
        })
    }

    fn record(&mut self, kind: u8, payload: &[u8]) -> io::Result<Vec<u8>> {
        let message = OutboundPlainMessage {
            typ: ContentType::from(kind),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let sealed = self.encrypter.encrypt(message, self.sequence);
        self.sequence += 1;
        Ok(sealed.map_err(io::Error::other)?.encode())
    }
}

/// Application data.
#[must_use]
pub fn say(bytes: impl AsRef<[u8]>) -> TlsAct {
    TlsAct::Record(DATA, bytes.as_ref().to_vec())
}

/// The peer is told that nothing more comes.
#[must_use]
pub fn close_notify() -> TlsAct {
    TlsAct::Record(ALERT, vec![1, 0])
}

/// Lets the peer see what has come before the next act.
#[must_use]
pub fn gap() -> TlsAct {
    TlsAct::Tcp(Act::Gap)
}
