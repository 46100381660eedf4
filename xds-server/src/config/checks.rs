//! `healthChecks:` → validated health checks by name.
//!
//! In: the items of the list, of all files. Out: a table of [`Check`]s. The rules of a check (semantics P2–P13) live in
//! the prober, in `HealthCheck::new`; here its findings get their place in the file.
//!
//! A check of profile TENCENT_ALB that names no host is complete only together with a service's routes (semantics P7):
//! it stays [`Content::Hostless`], and `hosts` completes it for each service.

mod blocks;

use std::sync::Arc;

use vitals_prober::check::{
    CheckError, Close, HealthCheck, HealthCheckSpec, Kind, Profile, ProxyHeader,
};

use super::attached::Attached;
use super::diagnostic::{self, Path, Place, clip};
use super::read::{Fields, Item, join, parse_duration};
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

const PROXY_HEADERS: [(&str, ProxyHeader); 3] = [
    ("NONE", ProxyHeader::None),
    ("PROXY_V1", ProxyHeader::V1),
    ("PROXY_V2", ProxyHeader::V2),
];

/// The word with which a service says that it has no check.
pub(super) const NONE: &str = "none";

/// A check that is defined; `known` is `None` where it is wrong.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) known: Option<Known>,
}

impl Check {
    /// What it asks, where that is the same for every service.
    pub(super) fn whole(&self) -> Option<Arc<HealthCheck>> {
        match &self.known.as_ref()?.content {
            Content::Whole(check) => Some(Arc::clone(check)),
            Content::Hostless(_) => None,
        }
    }
}

/// A check that is right.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) profile: Profile,
    pub(super) kind: Kind,
    pub(super) content: Content,
}

/// What a check asks.
#[derive(Debug)]
pub(super) enum Content {
    /// The same for every service.
    Whole(Arc<HealthCheck>),
    /// It lacks the host that it sends, which each service's routes give.
    Hostless(Box<Hostless>),
}

/// A check that is right but for the host that it sends.
#[derive(Debug)]
pub(super) struct Hostless {
    spec: HealthCheckSpec,
    place: Place,
    path: String,
}

impl Hostless {
    /// The check with that host.
    pub(super) fn with(&self, host: &str) -> Result<HealthCheck, Vec<CheckError>> {
        HealthCheck::new(with_host(self.spec.clone(), host))
    }

    /// How many bytes of root certificates it holds.
    pub(super) fn weight(&self) -> usize {
        let tls = self.spec.tls.as_ref();
        tls.and_then(|tls| tls.roots.as_ref()).map_or(0, Vec::len)
    }

    /// Reports that it gets no host.
    pub(super) fn error(&self, sink: &diagnostic::Sink<'_>, message: String) {
        let path = Path::Text(&self.path);
        sink.push(diagnostic::Kind::Error, self.place, &path, message);
    }
}

/// Reads one item of `healthChecks` into the table.
pub(super) fn read(item: &Item<'_>, attached: &Attached, table: &mut Table<Check>) {
    let Some(fields) = item.fields(KEYS) else {
        return;
    };
    let name = fields.required("name", "give the check a name");
    if let Some(name) = &name
        && name.name().is_some_and(|n| n.as_str() == NONE)
    {
        name.error("\"none\" is how a service says that it has no check; call this one otherwise");
    }
    let known = read_check(item, &fields, attached);
    if let Some(name) = name {
        table.define(&name, Check { known });
    }
}

fn read_check(item: &Item<'_>, fields: &Fields<'_>, attached: &Attached) -> Option<Known> {
    let errors = item.sink.errors();
    let profile = match fields.get("profile") {
        None => Some(Profile::default()),
        Some(item) => item.choice(&Profile::ALL.map(|profile| (profile.name(), profile))),
    };
    let kind = read_kind(fields, profile);
    if let Some(kind) = kind {
        blocks::refuse_others(fields, kind);
    }
    let (least, most) = profile.unwrap_or_default().threshold_range();
    let range = u64::from(least)..=u64::from(most);
    let threshold = |key| fields.get(key).and_then(|i| i.integer(range.clone()));
    let closes = [("RST", Close::Rst), ("FIN", Close::Fin)];
    let spec = HealthCheckSpec {
        profile,
        kind,
        check_interval: fields.get("checkInterval").and_then(|i| i.duration()),
        timeout: fields.get("timeout").and_then(|i| i.duration()),
        healthy_threshold: threshold("healthyThreshold"),
        unhealthy_threshold: threshold("unhealthyThreshold"),
        fixed_port: read_port(fields),
        proxy_header: fields
            .get("proxyHeader")
            .and_then(|i| i.choice(&PROXY_HEADERS)),
        close: fields.get("close").and_then(|i| i.choice(&closes)),
        tls: fields.get("tls").map(|i| blocks::read_tls(&i, attached)),
        tcp: fields
            .get("tcp")
            .map(|i| blocks::read_tcp(&i))
            .unwrap_or_default(),
        http: fields
            .get("http")
            .map(|i| blocks::read_http(&i))
            .unwrap_or_default(),
        grpc: fields
            .get("grpc")
            .map(|i| blocks::read_grpc(&i))
            .unwrap_or_default(),
    };
    let (profile, kind) = (profile?, kind?);
    Some(Known {
        profile,
        kind,
        content: validate(item, spec, (profile, kind), errors)?,
    })
}

fn read_kind(fields: &Fields<'_>, profile: Option<Profile>) -> Option<Kind> {
    let default = profile.and_then(Profile::default_kind);
    let item = match profile {
        Some(profile) if default.is_none() => {
            let words = join(profile.kinds().iter().map(|kind| kind.name()));
            fields.required("type", &format!("write one of {words}"))
        }
        // Of a profile that is wrong nobody knows whether it needs one.
        Some(_) | None => fields.get("type"),
    };
    match item {
        // That a profile does not know a type is a rule, and the prober's to say.
        Some(item) => item.choice(&Kind::ALL.map(|kind| (kind.name(), kind))),
        None => default,
    }
}

/// The check, or its findings in their places. The reader's own findings stand behind the first `known` errors.
fn validate(
    item: &Item<'_>,
    spec: HealthCheckSpec,
    (profile, kind): (Profile, Kind),
    known: usize,
) -> Option<Content> {
    let host = match kind {
        Kind::Tcp | Kind::Ssl => None,
        Kind::Http | Kind::Https | Kind::Http2 => Some(("http.host", &spec.http.host)),
        Kind::Grpc | Kind::GrpcWithTls => Some(("grpc.host", &spec.grpc.host)),
    };
    let lacking = host
        .filter(|(_, host)| host.is_none() && profile == Profile::TencentAlb)
        .map(|(field, _)| field);
    let result = match lacking {
        None => HealthCheck::new(spec.clone()),
        // Any host will do for now: all other rules are the same for each.
        Some(_) => HealthCheck::new(with_host(spec.clone(), "host")),
    };
    match result {
        Ok(check) => Some(match lacking {
            None => Content::Whole(Arc::new(check)),
            // One that is written and is no string has its finding already.
            Some(field) if locate(item.node, field).is_some() => return None,
            Some(field) => Content::Hostless(Box::new(Hostless {
                spec,
                place: locate(item.node, blocks::of(kind)).unwrap_or(item.node.place),
                path: Path::Key(&item.path, field).to_string(),
            })),
        }),
        Err(errors) => {
            let found: Vec<_> = errors
                .into_iter()
                .filter_map(|error| match locate(item.node, &error.field) {
                    // A value of a wrong form has its finding already, and must not be called missing too.
                    Some(place) if item.sink.has_error(known, place) => None,
                    place => Some((place.unwrap_or(item.node.place), as_written(item, error))),
                })
                .collect();
            for (place, error) in found {
                let path = Path::Key(&item.path, &error.field);
                item.sink
                    .push(diagnostic::Kind::Error, place, &path, error.problem);
            }
            None
        }
    }
}

/// The prober knows how long a duration is, and not how it was written.
fn as_written(item: &Item<'_>, error: CheckError) -> CheckError {
    let written = || {
        let (_, rest) = error.problem.split_once(" is out of range; ")?;
        let Value::Map(entries) = &item.node.value else {
            return None;
        };
        let (_, node) = entries.iter().find(|(key, _)| key.text == error.field)?;
        let Value::Scalar { text, .. } = &node.value else {
            return None;
        };
        parse_duration(text)?;
        Some(format!("{} is out of range; {rest}", clip(text)))
    };
    match written() {
        Some(problem) => CheckError { problem, ..error },
        None => error,
    }
}

fn with_host(mut spec: HealthCheckSpec, host: &str) -> HealthCheckSpec {
    spec.http.host = Some(host.into());
    spec.grpc.host = Some(host.into());
    spec
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
    // Where the port is wrong, that is said: it must not be called left out too.
    value.or((fixed == Some(true)).then_some(1))
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
