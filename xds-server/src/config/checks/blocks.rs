//! The blocks of a check: `tcp`, `http`, `grpc`, `tls`.
//!
//! In: the check's fields. Out: the prober's specs of the blocks. Only forms are looked at here: keys, words, kinds of
//! values; the rules are the prober's. The file that `tls.roots` names is read here, because the prober knows no files.

use vitals_prober::check::{GrpcSpec, HttpSpec, Kind, Method, TcpMatch, TcpSpec, TlsSpec};

use crate::config::attached::Attached;
use crate::config::diagnostic::quote;
use crate::config::read::{Fields, Item};
use crate::config::tree::Value;

/// Headers of a check's own, at most: a probe's request is one small packet.
const MAX_HEADERS: usize = 64;

/// Items of `expectedStatuses`, at most: there are no more codes.
const MAX_STATUSES: usize = 500;

/// The block that holds the fields of a type's own.
pub(super) fn of(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp | Kind::Ssl => "tcp",
        Kind::Http | Kind::Https | Kind::Http2 => "http",
        Kind::Grpc | Kind::GrpcWithTls => "grpc",
    }
}

/// Reports the blocks that do not belong to a check of that type.
pub(super) fn refuse_others(fields: &Fields<'_>, kind: Kind) {
    for (block, types) in [
        ("tcp", "TCP and SSL"),
        ("http", "HTTP, HTTPS and HTTP2"),
        ("grpc", "GRPC and GRPC_WITH_TLS"),
        ("tls", "SSL, HTTPS, HTTP2 and GRPC_WITH_TLS"),
    ] {
        let belongs = match block {
            "tls" => kind.is_tls(),
            _ => of(kind) == block,
        };
        if !belongs && let Some(item) = fields.get(block) {
            item.misplaced(format!(
                "{block} belongs to the types {types}, and this check is {}; change the type or drop {block}",
                kind.name()
            ));
        }
    }
}

pub(super) fn read_tcp(item: &Item<'_>) -> TcpSpec {
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

pub(super) fn read_http(item: &Item<'_>) -> HttpSpec {
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
    let few = |length: usize, most: usize, key: &'static str, what: &str| {
        if length > most
            && let Some(item) = fields.get(key)
        {
            item.error(format!(
                "{length} {what} are too many for a probe; at most {most} are allowed"
            ));
        }
        length <= most
    };
    HttpSpec {
        request_path: string(&fields, "requestPath"),
        method: fields.get("method").and_then(|i| i.choice(&methods)),
        // A member of a wrong form has its own finding; what is left of the list must not be called empty too.
        expected_statuses: statuses
            .filter(|list| !list.is_empty() || is_empty(&fields))
            .filter(|list| {
                few(
                    list.len(),
                    MAX_STATUSES,
                    "expectedStatuses",
                    "sets of statuses",
                )
            }),
        host: string(&fields, "host"),
        response: string(&fields, "response"),
        headers: headers
            .filter(|list| few(list.len(), MAX_HEADERS, "headers", "headers"))
            .unwrap_or_default(),
    }
}

fn is_empty(fields: &Fields<'_>) -> bool {
    fields
        .get("expectedStatuses")
        .is_some_and(|item| matches!(&item.node.value, Value::List(list) if list.is_empty()))
}

pub(super) fn read_grpc(item: &Item<'_>) -> GrpcSpec {
    let Some(fields) = item.fields(&["serviceName", "host", "method", "expectedCodes"]) else {
        return GrpcSpec::default();
    };
    GrpcSpec {
        host: string(&fields, "host"),
        // The empty name is what grpc.health.v1 calls the server as a whole, so it says what happens anyway.
        service_name: string(&fields, "serviceName").filter(|name| !name.is_empty()),
        method: string(&fields, "method"),
        expected_codes: fields
            .get("expectedCodes")
            .and_then(|item| item.text_or_number().map(Into::into)),
    }
}

pub(super) fn read_tls(item: &Item<'_>, attached: &Attached) -> TlsSpec {
    let Some(fields) = item.fields(&["verify", "roots", "sni"]) else {
        return TlsSpec::default();
    };
    let roots = fields.get("roots").and_then(|item| {
        let path = item.sink.beside(item.node.place, item.text()?);
        attached
            .read(&path)
            .map_err(|problem| item.error(format!("{} {problem}", quote(&path.to_string_lossy()))))
            .ok()
    });
    TlsSpec {
        verify: fields.get("verify").and_then(|i| i.boolean()),
        roots,
        sni: string(&fields, "sni"),
    }
}

fn string(fields: &Fields<'_>, key: &'static str) -> Option<String> {
    fields.get(key)?.text().map(Into::into)
}
