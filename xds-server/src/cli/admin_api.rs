//! The admin API as commands ask it: where it is, how it is trusted, who asks.
//!
//! In: flags, a path. Out: what the server says, read from JSON; or a line on stderr and exit code 1, also for a token or
//! a certificate that the server does not take; 64 for files that are not what they should be.

mod failure;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};

use crate::app::EXIT_USAGE;
use crate::transport::Token;

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer, in bytes.
const MAX_ANSWER: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The server's admin API.
    #[arg(
        long,
        value_name = "URL",
        env = "VITALS_ADMIN",
        default_value = "http://127.0.0.1:18001"
    )]
    admin: String,
    /// A file with the admin API's token; the token itself may stand in VITALS_ADMIN_TOKEN.
    #[arg(long, value_name = "FILE", env = "VITALS_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    #[arg(
        long,
        hide = true,
        value_name = "TOKEN",
        env = "VITALS_ADMIN_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// The authorities, in PEM, that signed the certificate of an https:// admin API.
    #[arg(long, value_name = "FILE", env = "VITALS_ADMIN_CA")]
    ca: Option<PathBuf>,
    /// A certificate in PEM, for a server with --client-ca.
    #[arg(long, value_name = "FILE", env = "VITALS_ADMIN_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's key in PEM.
    #[arg(long, value_name = "FILE", env = "VITALS_ADMIN_KEY", requires = "cert")]
    key: Option<PathBuf>,
}

/// A way to the API.
#[derive(Debug)]
pub(super) struct AdminApi {
    base: String,
    token: Option<Token>,
    agent: ureq::Agent,
}

impl AdminApi {
    /// Reads the files; connects nowhere yet.
    pub(super) fn new(args: &AdminArgs) -> Result<Self, ExitCode> {
        Self::prepare(args).map_err(|problem| {
            eprintln!("{problem}");
            EXIT_USAGE.into()
        })
    }

    fn prepare(args: &AdminArgs) -> Result<Self, String> {
        let scheme = match args.admin.contains("://") {
            true => "",
            false => "http://",
        };
        let base = format!("{scheme}{}", args.admin.trim_end_matches('/'));
        let is_tls = base.starts_with("https://");
        if is_tls && args.ca.is_none() {
            return Err(format!(
                "{base}: name the authorities that signed its certificate with --ca FILE"
            ));
        }
        let token = match (&args.token_file, &args.token) {
            (Some(path), _) => {
                Some(Token::read("--token-file", path).map_err(|error| error.to_string())?)
            }
            (None, Some(token)) => {
                Some(Token::new(token).map_err(|error| format!("VITALS_ADMIN_TOKEN: {error}"))?)
            }
            (None, None) => None,
        };
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0);
        if let Some(ca) = &args.ca {
            config = config.tls_config(tls(ca, args.cert.as_deref().zip(args.key.as_deref()))?);
        }
        Ok(Self {
            base,
            token,
            agent: config.build().new_agent(),
        })
    }

    /// The same with what the files hold now; as it was if that is not what it should be.
    pub(super) fn renewed(self, args: &AdminArgs) -> Self {
        Self::prepare(args).unwrap_or(self)
    }

    /// GET of a path; what goes wrong is told to the user.
    pub(super) fn fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, ExitCode> {
        self.try_fetch(path).map_err(|problem| {
            eprintln!("{problem}");
            ExitCode::FAILURE
        })
    }

    /// GET of a path.
    pub(super) fn try_fetch<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let url = format!("{}{path}", self.base);
        self.ask(&url)
            .and_then(|body| {
                serde_json::from_str(&body).map_err(|error| hint(&error.to_string(), ADDRESS))
            })
            .map_err(|problem| format!("{url}: {problem}"))
    }

    fn ask(&self, url: &str) -> Result<String, String> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", token.header());
        }
        let mut response = request
            .call()
            .map_err(|error| failure::line(&error, &self.base))?;
        let status = response.status();
        let read = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_string();
        let body = read.map_err(|error| hint(&error.to_string(), ADDRESS))?;
        let said: String = body.trim().chars().take(200).collect();
        match status.as_u16() {
            200 => Ok(body),
            401 => Err(hint(
                &said,
                match &self.token {
                    Some(_) => "--token-file or VITALS_ADMIN_TOKEN has another one than the server",
                    None => "give it with --token-file or VITALS_ADMIN_TOKEN",
                },
            )),
            403 => Err(hint(&said, "give one with --cert and --key")),
            _ => Err(hint(&format!("{status}: {said}"), ADDRESS)),
        }
    }
}

const ADDRESS: &str = "is the server running, and is --admin its admin address?";

fn hint(problem: &str, hint: &str) -> String {
    format!("{problem}; {hint}")
}

fn tls(ca: &Path, pair: Option<(&Path, &Path)>) -> Result<TlsConfig, String> {
    let roots = certificates("--ca", ca)?;
    let client = match pair {
        None => None,
        Some((cert, key)) => {
            let chain = certificates("--cert", cert)?;
            let pem = read("--key", key)?;
            let key = PrivateKey::from_pem(&pem)
                .map_err(|error| format!("--key {}: {error}", key.display()))?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client)
        .build())
}

fn certificates(flag: &str, path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let wrong = |problem: &str| format!("{flag} {}: {problem}", path.display());
    let mut found = Vec::new();
    for item in parse_pem(&read(flag, path)?) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(wrong(&error.to_string())),
        }
    }
    if found.is_empty() {
        return Err(wrong("there is no certificate in it"));
    }
    Ok(found)
}

fn read(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{flag} {}: {error}", path.display()))
}
