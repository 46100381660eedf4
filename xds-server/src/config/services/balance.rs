//! `loadBalancing` and `sessionAffinity` of a service (semantics H8).
//!
//! In: the two keys. Out: the policy and what it hashes. Affinity needs a policy that hashes, MAGLEV where none is
//! written; a policy that hashes needs something to hash.

use std::time::Duration;

use crate::config::diagnostic::quote;
use crate::config::read::{Fields, Item};
use crate::model::{Affinity, LbPolicy, Protocol};

/// How long a cookie may live.
const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest name of a header or cookie.
const MAX_NAME: usize = 128;

#[derive(Clone, Copy, PartialEq)]
enum Type {
    None,
    ClientIp,
    Header,
    Cookie,
}

const TYPES: [(&str, Type); 4] = [
    ("NONE", Type::None),
    ("CLIENT_IP", Type::ClientIp),
    ("HEADER", Type::Header),
    ("COOKIE", Type::Cookie),
];

/// Reads the two keys.
pub(super) fn read(fields: &Fields<'_>, protocol: Option<Protocol>) -> (LbPolicy, Affinity) {
    let policies = [
        ("ROUND_ROBIN", LbPolicy::RoundRobin),
        ("LEAST_REQUEST", LbPolicy::LeastRequest),
        ("RANDOM", LbPolicy::Random),
        ("RING_HASH", LbPolicy::RingHash),
        ("MAGLEV", LbPolicy::Maglev),
    ];
    let affinity_item = fields.get("sessionAffinity");
    let (word, affinity) = match &affinity_item {
        None => ("NONE", Some(Affinity::None)),
        Some(item) => read_affinity(item, protocol),
    };
    let block = fields.get("loadBalancing");
    let block = block.as_ref().and_then(|item| item.fields(&["policy"]));
    let item = block.as_ref().and_then(|fields| fields.get("policy"));
    let written = item.as_ref().and_then(|i| i.choice(&policies));
    if let (Some(item), Some(policy), Some(affinity)) = (&item, written, &affinity) {
        match (policy.is_hashing(), affinity) {
            (true, Affinity::None) => item.warning(
                "without sessionAffinity there is nothing to hash, and every request goes to an endpoint at random; \
                 write sessionAffinity, or another policy",
            ),
            (false, affinity) if *affinity != Affinity::None => item.error(format!(
                "{} does not keep clients with an endpoint, as sessionAffinity {word} asks; write MAGLEV or RING_HASH, \
                 or leave policy out for MAGLEV",
                item.scalar().unwrap_or_default()
            )),
            (true | false, _) => {}
        }
    }
    let affinity = affinity.unwrap_or_default();
    let default = match affinity {
        Affinity::None => LbPolicy::default(),
        Affinity::ClientIp | Affinity::Header(_) | Affinity::Cookie { .. } => LbPolicy::Maglev,
    };
    (written.unwrap_or(default), affinity)
}

/// The word of the type, and the affinity where it is right. A type that needs nothing more may stand alone.
fn read_affinity<'i>(
    item: &'i Item<'_>,
    protocol: Option<Protocol>,
) -> (&'i str, Option<Affinity>) {
    if let Some(word) = item.scalar() {
        let affinity = match item.choice(&TYPES) {
            None => None,
            Some(Type::None) => Some(Affinity::None),
            Some(Type::ClientIp) => Some(Affinity::ClientIp),
            Some(Type::Header | Type::Cookie) => {
                item.error(format!(
                    "{word} needs a name; write {{ type: {word}, name: … }}"
                ));
                None
            }
        };
        return (word, affinity);
    }
    let Some(fields) = item.fields(&["type", "name", "ttl"]) else {
        return ("", None);
    };
    let Some(of_type) = fields.required("type", "write NONE, CLIENT_IP, HEADER or COOKIE") else {
        return ("", None);
    };
    let Some(kind) = of_type.choice(&TYPES) else {
        return ("", None);
    };
    let word = TYPES.iter().find(|t| t.1 == kind).map_or("", |t| t.0);
    if matches!(kind, Type::Header | Type::Cookie)
        && let Some(protocol) = protocol
        && !protocol.is_http()
    {
        of_type.error(format!(
            "the service speaks {}, where there are no headers and cookies; write CLIENT_IP",
            protocol.name()
        ));
    }
    let name = match kind {
        Type::Header | Type::Cookie => fields
            .required("name", "name the header or cookie")
            .and_then(|item| read_name(&item, kind)),
        Type::None | Type::ClientIp => {
            if let Some(item) = fields.get("name") {
                item.misplaced(format!(
                    "a name belongs to HEADER and COOKIE, and this is {word}; drop it"
                ));
            }
            None
        }
    };
    let ttl = fields.get("ttl").and_then(|item| {
        if kind != Type::Cookie {
            item.misplaced(format!(
                "a ttl belongs to COOKIE, and this is {word}; drop it"
            ));
        }
        let ttl = item.duration()?;
        if ttl > MAX_TTL {
            item.error(format!(
                "{} is out of range; 0s (as long as the browser is open) to 8760h is allowed",
                item.written()
            ));
        }
        Some(ttl)
    });
    let affinity = match kind {
        Type::None => Some(Affinity::None),
        Type::ClientIp => Some(Affinity::ClientIp),
        Type::Header => name.map(Affinity::Header),
        Type::Cookie => name.map(|name| Affinity::Cookie {
            name,
            ttl: ttl.unwrap_or_default(),
        }),
    };
    (word, affinity)
}

/// The name of a header, in lower case as HTTP/2 has it, or of a cookie.
fn read_name(item: &Item<'_>, kind: Type) -> Option<String> {
    let text = item.text()?;
    let pseudo = kind == Type::Header && matches!(text, ":authority" | ":method" | ":path");
    let token = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_token);
    if !pseudo && !token {
        item.error(format!(
            "{} is not a name of a header or cookie; write 1–{MAX_NAME} letters, digits and -",
            quote(text)
        ));
        return None;
    }
    Some(match kind {
        Type::Header => text.to_ascii_lowercase(),
        Type::None | Type::ClientIp | Type::Cookie => text.into(),
    })
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
