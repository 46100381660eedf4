//! `healthChecks:` → validated health checks by name.
//!
//! In: the items of the list, of all files. Out: a table of [`Check`]s. The rules of a check (semantics P2–P8) live in
//! the prober, in `HealthCheck::new`; here its findings get their place in the file.
//!
//! A check of a kind that is not supported yet still counts as defined, so that services which name it are not called
//! wrong too; its keys and forms are read, the rules of its kind are not.

use std::sync::Arc;

use vitals_prober::check::{
    HealthCheck, HealthCheckSpec, HttpSpec, Method, ProtocolSpec, TcpMatch, TcpSpec,
};

use super::diagnostic::{Kind, Path, Place};
use super::read::{Fields, Item};
use super::table::Table;
use super::tree::{Node, Value};

const KEYS: &[&str] = &[
    "name",
    "profile",
    "type",
    "checkInterval",
    "timeout",
    "healthyThreshold",
    "unhealthyThreshold",
    "portSpecification",
    "port",
    "proxyHeader",
    "close",
    "http",
    "tcp",
    "grpc",
    "tls",
];

/// `type:` of a check, all that the contract knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckType {
    Tcp,
    Ssl,
    Http,
    Https,
    Http2,
    Grpc,
    GrpcWithTls,
}

const TYPES: [(&str, CheckType); 7] = [
    ("TCP", CheckType::Tcp),
    ("SSL", CheckType::Ssl),
    ("HTTP", CheckType::Http),
    ("HTTPS", CheckType::Https),
    ("HTTP2", CheckType::Http2),
    ("GRPC", CheckType::Grpc),
    ("GRPC_WITH_TLS", CheckType::GrpcWithTls),
];

impl CheckType {
    /// As it is written.
    pub(super) fn word(self) -> &'static str {
        TYPES
            .iter()
            .find(|(_, value)| *value == self)
            .map_or("", |(word, _)| word)
    }

    /// The block that holds the type's own fields.
    fn block(self) -> &'static str {
        match self {
            Self::Tcp | Self::Ssl => "tcp",
            Self::Http | Self::Https | Self::Http2 => "http",
            Self::Grpc | Self::GrpcWithTls => "grpc",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Gcp,
    GcpLegacy,
    TencentAlb,
    AzureLb,
}

const PROFILES: [(&str, Profile); 4] = [
    ("GCP", Profile::Gcp),
    ("GCP_LEGACY", Profile::GcpLegacy),
    ("TENCENT_ALB", Profile::TencentAlb),
    ("AZURE_LB", Profile::AzureLb),
];

/// The word with which a service says that it has no check.
pub(super) const NONE: &str = "none";

/// A check that is defined; `check` is `None` where it is wrong or not supported yet.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) check: Option<(CheckType, Arc<HealthCheck>)>,
}

/// Reads one item of `healthChecks` into the table.
pub(super) fn read(item: &Item<'_>, table: &mut Table<Check>) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    let name = fields.required("name", "give the check a name");
    if let Some(name) = &name
        && name.name().is_some_and(|n| n.as_str() == NONE)
    {
        name.error("\"none\" is how a service says that it has no check; call this one otherwise");
    }
    let check = read_check(item, &fields);
    if let Some(name) = name {
        table.define(&name, Check { check });
    }
}

fn read_check(item: &Item<'_>, fields: &Fields<'_>) -> Option<(CheckType, Arc<HealthCheck>)> {
    let mut supported = true;
    let profile = match fields.get("profile") {
        None => Some(Profile::Gcp),
        Some(item) => item.choice(&PROFILES).inspect(|profile| {
            if *profile != Profile::Gcp {
                let word = item.scalar().unwrap_or_default();
                item.value_unsupported(word, "GCP is");
                supported = false;
            }
        }),
    };
    let written = match profile {
        Some(Profile::TencentAlb) => fields.get("type"),
        _ => fields.required("type", "write TCP or HTTP"),
    };
    let check_type = written.and_then(|item| {
        let check_type = item.choice(&TYPES)?;
        if !matches!(check_type, CheckType::Tcp | CheckType::Http) {
            item.value_unsupported(check_type.word(), "HTTP and TCP are");
            supported = false;
        }
        Some(check_type)
    });
    for (key, today, words) in [
        (
            "proxyHeader",
            "NONE",
            &[("NONE", true), ("PROXY_V1", false), ("PROXY_V2", false)][..],
        ),
        ("close", "RST", &[("RST", true), ("FIN", false)][..]),
    ] {
        if let Some(item) = fields.get(key)
            && item.choice(words) == Some(false)
        {
            item.value_unsupported(item.scalar().unwrap_or_default(), &format!("{today} is"));
            supported = false;
        }
    }
    if let Some(item) = fields.get("tls") {
        item.key_unsupported("TLS of a probe", "leave tls out");
        supported = false;
        if let Some(tls) = item.fields(&["verify", "roots", "sni"]) {
            tls.get("verify").and_then(|i| i.boolean());
            tls.get("roots").and_then(|i| i.text());
            tls.get("sni").and_then(|i| i.text());
        }
    }
    let threshold = |key| fields.get(key).and_then(|item| item.integer(1..=10));
    let spec = HealthCheckSpec {
        check_interval: fields.get("checkInterval").and_then(|i| i.duration()),
        timeout: fields.get("timeout").and_then(|i| i.duration()),
        healthy_threshold: threshold("healthyThreshold"),
        unhealthy_threshold: threshold("unhealthyThreshold"),
        fixed_port: read_port(fields),
        protocol: read_protocol(fields, check_type),
    };
    let check_type = check_type.filter(|_| supported)?;
    match HealthCheck::new(spec) {
        Ok(check) => Some((check_type, Arc::new(check))),
        Err(errors) => {
            for error in errors {
                let path = Path::Key(&item.path, &error.field);
                let place = locate(item.node, &error.field).unwrap_or(item.node.place);
                item.sink.push(Kind::Error, place, &path, error.problem);
            }
            None
        }
    }
}

/// Semantics P3.
fn read_port(fields: &Fields<'_>) -> Option<u16> {
    let specification = fields.get("portSpecification");
    let fixed = specification
        .and_then(|item| item.choice(&[("USE_SERVING_PORT", false), ("USE_FIXED_PORT", true)]));
    let port = fields.get("port");
    let value = port.and_then(|item| item.port());
    match (fixed, specification, port) {
        (Some(true), Some(item), None) => {
            item.error("USE_FIXED_PORT needs a port; add port: 1–65535");
        }
        (Some(false), Some(_), Some(port)) | (None, None, Some(port)) => {
            port.misplaced("a port is used with USE_FIXED_PORT only; add portSpecification: USE_FIXED_PORT, or drop it");
        }
        _ => {}
    }
    value
}

fn read_protocol(fields: &Fields<'_>, check_type: Option<CheckType>) -> ProtocolSpec {
    for (block, types) in [
        ("tcp", "TCP and SSL"),
        ("http", "HTTP, HTTPS and HTTP2"),
        ("grpc", "GRPC and GRPC_WITH_TLS"),
    ] {
        if let Some(check_type) = check_type
            && check_type.block() != block
            && let Some(item) = fields.get(block)
        {
            item.misplaced(format!(
                "{block} belongs to the types {types}, and this check is {}; change the type or drop {block}",
                check_type.word()
            ));
        }
    }
    let tcp = fields.get("tcp").map(|i| read_tcp(&i)).unwrap_or_default();
    let http = fields
        .get("http")
        .map(|i| read_http(&i))
        .unwrap_or_default();
    if let Some(item) = fields.get("grpc")
        && let Some(grpc) = item.fields(&["serviceName", "host", "method", "expectedCodes"])
    {
        for key in ["serviceName", "host", "method"] {
            grpc.get(key).and_then(|item| item.text());
        }
        grpc.get("expectedCodes").and_then(|i| i.text_or_number());
    }
    match check_type {
        Some(CheckType::Http) => ProtocolSpec::Http(http),
        _ => ProtocolSpec::Tcp(tcp),
    }
}

fn read_tcp(item: &Item<'_>) -> TcpSpec {
    let Some(fields) = item.fields(&["request", "response", "match"]) else {
        return TcpSpec::default();
    };
    let matches = [
        ("EXACT", TcpMatch::Exact),
        ("PREFIX", TcpMatch::Prefix),
        ("CONTAINS", TcpMatch::Contains),
    ];
    TcpSpec {
        request: string(&fields, "request"),
        response: string(&fields, "response"),
        matching: fields.get("match").and_then(|i| i.choice(&matches)),
    }
}

fn read_http(item: &Item<'_>) -> HttpSpec {
    const KEYS: &[&str] = &[
        "requestPath",
        "method",
        "expectedStatuses",
        "host",
        "response",
        "headers",
    ];
    let Some(fields) = item.fields(KEYS) else {
        return HttpSpec::default();
    };
    let methods = [("GET", Method::Get), ("HEAD", Method::Head)];
    let statuses = fields.get("expectedStatuses").map(|list| {
        list.list()
            .filter_map(|item| item.text_or_number().map(Into::into))
            .collect::<Vec<String>>()
    });
    let headers = fields.get("headers").map(|item| {
        let Some(headers) = item.entries() else {
            return Vec::new();
        };
        headers
            .all()
            .filter_map(|(name, value)| Some((name.into(), value.text()?.into())))
            .collect()
    });
    HttpSpec {
        request_path: string(&fields, "requestPath"),
        method: fields.get("method").and_then(|i| i.choice(&methods)),
        // A member of a wrong form has its own finding; what is left of the list must not be called empty too.
        expected_statuses: statuses.filter(|list| !list.is_empty() || is_empty(&fields)),
        host: string(&fields, "host"),
        response: string(&fields, "response"),
        headers: headers.unwrap_or_default(),
    }
}

fn is_empty(fields: &Fields<'_>) -> bool {
    fields
        .get("expectedStatuses")
        .is_some_and(|item| matches!(&item.node.value, Value::List(list) if list.is_empty()))
}

fn string(fields: &Fields<'_>, key: &'static str) -> Option<String> {
    fields.get(key)?.text().map(Into::into)
}

/// Where a field of a check stands, by its path below the check. A header's name may hold dots, so at every step the
/// whole rest is tried as one key first.
fn locate(node: &Node<'_>, field: &str) -> Option<Place> {
    if field.is_empty() {
        return Some(node.place);
    }
    match &node.value {
        Value::Map(entries) => {
            let find = |key: &str| entries.iter().find(|(k, _)| k.text == key);
            if let Some((_, node)) = find(field) {
                return Some(node.place);
            }
            let end = field.find(['.', '['])?;
            let (key, rest) = field.split_at_checked(end)?;
            let (_, node) = find(key)?;
            locate(node, rest.strip_prefix('.').unwrap_or(rest))
        }
        Value::List(items) => {
            let (index, rest) = field.strip_prefix('[')?.split_once(']')?;
            let node = items.get(index.parse::<usize>().ok()?)?;
            locate(node, rest.strip_prefix('.').unwrap_or(rest))
        }
        Value::Scalar { .. } => Some(node.place),
    }
}
