//! Flags → a health check.
//!
//! In: the fields of a check as `vitals probe` takes them, as text. Out: a [`HealthCheck`], or everything that is wrong
//! with them at once, each under its flag. The rules are the prober's own; here its fields get the names of flags.
//!
//! The interval is no flag: there is one probe, so the longest is assumed and any timeout fits in.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use vitals_prober::check::{
    Close, DURATION_RANGE, GrpcSpec, HealthCheck, HealthCheckSpec, HttpSpec, Kind, Method, Profile,
    ProxyHeader, TcpMatch, TcpSpec, TlsSpec,
};

use crate::config;

/// The largest file of root certificates that is read.
const MAX_ROOTS: u64 = 16 << 20;

// No doc comment: clap would take it for the command's.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The check")]
pub(super) struct CheckFlags {
    /// TCP, SSL, HTTP, HTTPS, HTTP2, GRPC or GRPC_WITH_TLS.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// From the start of the connect to the verdict: 5s, 250ms. Default as the profile has it, which is 5s for GCP.
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Whose checks it behaves like: GCP (the default), GCP_LEGACY, TENCENT_ALB or AZURE_LB.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// What opens the connection: NONE (the default), PROXY_V1 or PROXY_V2.
    #[arg(long, value_name = "HEADER")]
    proxy_header: Option<String>,
    /// How the probe leaves: RST (the default) or FIN.
    #[arg(long, value_name = "HOW")]
    close: Option<String>,
    /// HTTP types: the path; default /.
    #[arg(long, value_name = "PATH")]
    request_path: Option<String>,
    /// HTTP and gRPC types: the Host header or :authority; default the name that is probed, else address and port.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// HTTP types: GET or HEAD; default as the profile has it.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// HTTP types: the statuses that pass, as 200, 200-299 or http_2xx; default 200.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    expected_statuses: Option<Vec<String>>,
    /// HTTP types: one more header; may be given several times.
    #[arg(long, value_name = "NAME:VALUE")]
    header: Vec<String>,
    /// TCP and SSL: what must come; HTTP types: what must stand in the first 1,024 bytes of the body.
    #[arg(long, value_name = "TEXT")]
    response: Option<String>,
    /// TCP and SSL: what is sent.
    #[arg(long, value_name = "TEXT")]
    request: Option<String>,
    /// TCP and SSL: how --response is matched: EXACT (the default), PREFIX or CONTAINS.
    #[arg(long = "match", value_name = "HOW")]
    matching: Option<String>,
    /// gRPC types: the service that grpc.health.v1 is asked for; default the server as a whole.
    #[arg(long, value_name = "NAME")]
    grpc_service: Option<String>,
    /// gRPC types: call this instead of grpc.health.v1, as /Package.Class/method.
    #[arg(long, value_name = "METHOD")]
    grpc_method: Option<String>,
    /// gRPC types: the codes with which --grpc-method passes, as 12, 20,25 or 0-99.
    #[arg(long, value_name = "CODES")]
    grpc_expected_codes: Option<String>,
    /// TLS types: the certificate must be valid. One that is an authority's (CA:TRUE) is refused, though an Envoy that
    /// verifies takes it from a server.
    #[arg(long)]
    tls_verify: bool,
    /// TLS types: whose certificates are valid, in PEM; default the system's.
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// TLS types: the server name; default --host, else the name that is probed, else none.
    #[arg(long, value_name = "NAME")]
    tls_sni: Option<String>,
}

const HTTP: &[Kind] = &[Kind::Http, Kind::Https, Kind::Http2];
const TCP: &[Kind] = &[Kind::Tcp, Kind::Ssl];
const GRPC: &[Kind] = &[Kind::Grpc, Kind::GrpcWithTls];
const TLS: &[Kind] = &[Kind::Ssl, Kind::Https, Kind::Http2, Kind::GrpcWithTls];

/// The fields of a check and their flags. Those with a dot stand for themselves in the middle of a sentence, too.
const FIELDS: [(&str, &str); 24] = [
    ("type", "--type"),
    ("timeout", "--timeout"),
    ("profile", "--profile"),
    ("proxyHeader", "--proxy-header"),
    ("close", "--close"),
    ("http.requestPath", "--request-path"),
    ("http.host", "--host"),
    ("http.method", "--method"),
    ("http.expectedStatuses", "--expected-statuses"),
    ("http.headers", "--header"),
    ("http.response", "--response"),
    ("tcp.request", "--request"),
    ("tcp.response", "--response"),
    ("tcp.match", "--match"),
    ("grpc.host", "--host"),
    ("grpc.serviceName", "--grpc-service"),
    ("grpc.method", "--grpc-method"),
    ("grpc.expectedCodes", "--grpc-expected-codes"),
    ("tls.verify", "--tls-verify"),
    ("tls.roots", "--tls-roots"),
    ("tls.sni", "--tls-sni"),
    // As the prober's sentences name them.
    ("serviceName", "--grpc-service"),
    ("expectedCodes", "--grpc-expected-codes"),
    ("verify: true", "--tls-verify"),
];

impl CheckFlags {
    /// The check of a probe of that port.
    ///
    /// # Errors
    /// Everything that is wrong, a line each that begins with its flag.
    pub(super) fn check(&self, port: u16) -> Result<HealthCheck, Vec<String>> {
        let mut errors = Vec::new();
        let profiles = Profile::ALL.map(|profile| (profile.name(), profile));
        let profile = word("--profile", &self.profile, &profiles, &mut errors);
        let kind = self.kind(profile.unwrap_or_default(), &mut errors);
        if let Ok(kind) = kind {
            self.misplaced(kind, &mut errors);
        }
        let spec = HealthCheckSpec {
            profile,
            kind: Some(kind.unwrap_or_else(|guess| guess)),
            check_interval: Some(DURATION_RANGE.1),
            timeout: self.timeout(&mut errors),
            healthy_threshold: None,
            unhealthy_threshold: None,
            // The port is given, which is all that GCP_LEGACY asks for.
            fixed_port: Some(port),
            proxy_header: word(
                "--proxy-header",
                &self.proxy_header,
                &[
                    ("NONE", ProxyHeader::None),
                    ("PROXY_V1", ProxyHeader::V1),
                    ("PROXY_V2", ProxyHeader::V2),
                ],
                &mut errors,
            ),
            close: word(
                "--close",
                &self.close,
                &[("RST", Close::Rst), ("FIN", Close::Fin)],
                &mut errors,
            ),
            tls: Some(self.tls(&mut errors)),
            tcp: self.tcp(&mut errors),
            http: self.http(&mut errors),
            grpc: GrpcSpec {
                host: self.host.clone(),
                service_name: self.grpc_service.clone(),
                method: self.grpc_method.clone(),
                expected_codes: self.grpc_expected_codes.clone(),
            },
        };
        let check = HealthCheck::new(spec);
        match check {
            Ok(check) if errors.is_empty() => Ok(check),
            Ok(_) => Err(errors),
            Err(found) => {
                let of_a_guess = |field: &str| kind.is_err() && field == "type";
                errors.extend(found.iter().filter(|error| !of_a_guess(&error.field)).map(
                    |error| format!("{}: {}", flag_of(&error.field), in_flags(&error.problem)),
                ));
                Err(errors)
            }
        }
    }

    /// The type; where it is not known, the one that the other flags look like, so that what is wrong with them is found
    /// in the same go.
    fn kind(&self, profile: Profile, errors: &mut Vec<String>) -> Result<Kind, Kind> {
        let kinds = Kind::ALL.map(|kind| (kind.name(), kind));
        let before = errors.len();
        let kind = word("--type", &self.kind, &kinds, errors);
        if let Some(kind) = kind {
            return Ok(kind);
        }
        if errors.len() == before {
            if profile == Profile::TencentAlb {
                return Ok(Kind::Tcp);
            }
            let names: Vec<_> = profile.kinds().iter().map(|kind| kind.name()).collect();
            errors.push(format!(
                "--type: a check has a type; write one of {}",
                names.join(", ")
            ));
        }
        let given = |of: &[Kind]| {
            let mut flags = self.belonging().into_iter();
            flags.any(|(_, given, kinds)| given && kinds == [of])
        };
        Err(match (given(HTTP), given(GRPC)) {
            (true, _) => Kind::Https,
            (_, true) => Kind::GrpcWithTls,
            _ => Kind::Ssl,
        })
    }

    /// Flags that belong to some types only, whether they are given, and to which.
    fn belonging(&self) -> [(&'static str, bool, &'static [&'static [Kind]]); 14] {
        [
            ("--request-path", self.request_path.is_some(), &[HTTP]),
            ("--host", self.host.is_some(), &[HTTP, GRPC]),
            ("--method", self.method.is_some(), &[HTTP]),
            (
                "--expected-statuses",
                self.expected_statuses.is_some(),
                &[HTTP],
            ),
            ("--header", !self.header.is_empty(), &[HTTP]),
            ("--response", self.response.is_some(), &[TCP, HTTP]),
            ("--request", self.request.is_some(), &[TCP]),
            ("--match", self.matching.is_some(), &[TCP]),
            ("--grpc-service", self.grpc_service.is_some(), &[GRPC]),
            ("--grpc-method", self.grpc_method.is_some(), &[GRPC]),
            (
                "--grpc-expected-codes",
                self.grpc_expected_codes.is_some(),
                &[GRPC],
            ),
            ("--tls-verify", self.tls_verify, &[TLS]),
            ("--tls-roots", self.tls_roots.is_some(), &[TLS]),
            ("--tls-sni", self.tls_sni.is_some(), &[TLS]),
        ]
    }

    fn misplaced(&self, kind: Kind, errors: &mut Vec<String>) {
        for (flag, given, kinds) in self.belonging() {
            let kinds = kinds.concat();
            if given && !kinds.contains(&kind) {
                let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                errors.push(format!(
                    "{flag}: it belongs to the types {}, and this probe is {}; leave it out, or change --type",
                    names.join(", "),
                    kind.name()
                ));
            }
        }
    }

    fn timeout(&self, errors: &mut Vec<String>) -> Option<Duration> {
        let text = self.timeout.as_deref()?;
        let timeout = config::parse_duration(text);
        if timeout.is_none() {
            errors.push(format!(
                "--timeout: {text:?} is not a duration; write a whole number and its unit: 5s, 250ms or 1m"
            ));
        }
        timeout
    }

    fn tcp(&self, errors: &mut Vec<String>) -> TcpSpec {
        let words = [
            ("EXACT", TcpMatch::Exact),
            ("PREFIX", TcpMatch::Prefix),
            ("CONTAINS", TcpMatch::Contains),
        ];
        TcpSpec {
            request: self.request.clone(),
            response: self.response.clone(),
            matching: word("--match", &self.matching, &words, errors),
        }
    }

    fn http(&self, errors: &mut Vec<String>) -> HttpSpec {
        let methods = [("GET", Method::Get), ("HEAD", Method::Head)];
        let mut headers = Vec::with_capacity(self.header.len());
        for header in &self.header {
            match header.split_once(':') {
                Some((name, value)) => headers.push((name.into(), value.trim_ascii().into())),
                None => errors.push(format!(
                    "--header: {header:?} is not NAME:VALUE; write e.g. X-Probe:vitals"
                )),
            }
        }
        HttpSpec {
            request_path: self.request_path.clone(),
            method: word("--method", &self.method, &methods, errors),
            expected_statuses: self.expected_statuses.clone(),
            host: self.host.clone(),
            response: self.response.clone(),
            headers,
        }
    }

    fn tls(&self, errors: &mut Vec<String>) -> TlsSpec {
        let roots = self.tls_roots.as_deref().and_then(|path| {
            read_roots(path)
                .map_err(|problem| {
                    errors.push(format!(
                        "--tls-roots: cannot read {}: {problem}",
                        path.display()
                    ));
                })
                .ok()
        });
        TlsSpec {
            verify: Some(self.tls_verify),
            roots,
            sni: self.tls_sni.clone(),
        }
    }
}

fn read_roots(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_ROOTS + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(read) if u64::try_from(read).is_ok_and(|read| read <= MAX_ROOTS) => Ok(bytes),
        Ok(_) => Err("it has more than 16 MiB; give the roots alone".into()),
    }
}

/// One of the words of an enumeration, in capitals or not.
fn word<T: Copy>(
    flag: &str,
    text: &Option<String>,
    words: &[(&'static str, T)],
    errors: &mut Vec<String>,
) -> Option<T> {
    let text = text.as_deref()?;
    let found = words
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text));
    if found.is_none() {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        errors.push(format!(
            "{flag}: {text:?} is not one of {}",
            words.join(", ")
        ));
    }
    found.map(|(_, value)| *value)
}

/// The flag of a field: `--expected-statuses` of `http.expectedStatuses[1]`, `--header X-A` of `http.headers.X-A`.
fn flag_of(field: &str) -> String {
    if let Some(name) = field.strip_prefix("http.headers.") {
        return format!("--header {name}");
    }
    let field = field.split('[').next().unwrap_or(field);
    let flag = FIELDS.iter().find(|(name, _)| *name == field);
    flag.map_or(field, |(_, flag)| flag).into()
}

/// A sentence of the prober with flags where it names fields. A name of one word is a word like any other.
fn in_flags(problem: &str) -> String {
    FIELDS
        .iter()
        .filter(|(name, _)| name.contains(['.', ' ']) || name.contains(char::is_uppercase))
        .fold(problem.to_owned(), |text, (name, flag)| {
            text.replace(name, flag)
        })
}
