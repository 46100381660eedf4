//! `healthCheck` of a service: which check it names, and whether the two go together.
//!
//! In: the service's fields and protocol, the table of checks. Out: [`Asked`], with what stands in an Envoy's way
//! (semantics H7), and findings of semantics P18.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use vitals_prober::check::{HealthCheck, Kind, Profile, TlsCheck};
use vitals_prober::target::Names;

use crate::config::checks::{self, Check, Content, Known};
use crate::config::read::{Fields, Item, join};
use crate::config::table::Table;
use crate::distributed::{self, Inexpressible, LONG_TIMEOUT};
use crate::model::{Name, NamedCheck, Protocol};

/// What a service's endpoints are asked.
#[derive(Debug)]
pub(in crate::config) enum Asked {
    /// Nothing: DISABLED (semantics S5).
    Nothing,
    /// Something that is wrong, which is said elsewhere.
    Unknown,
    /// A check.
    Check(AskedCheck),
}

/// The check that a service names.
#[derive(Debug)]
pub(in crate::config) struct AskedCheck {
    pub(in crate::config) name: Name,
    pub(in crate::config) profile: Profile,
    /// The check; of one that gets its host from the routes, one with some host.
    pub(super) check: Arc<HealthCheck>,
    /// Whether `check` is it.
    whole: bool,
    /// Why Envoys cannot run it, if so.
    pub(in crate::config) inexpressible: Option<Inexpressible>,
}

impl Asked {
    /// The check for the model, or the name of one that is completed when the routes are known.
    pub(super) fn into_parts(self) -> (Option<NamedCheck>, Option<Name>) {
        match self {
            Self::Nothing | Self::Unknown => (None, None),
            Self::Check(AskedCheck {
                name,
                check,
                whole: true,
                ..
            }) => (Some(NamedCheck { name, check }), None),
            Self::Check(AskedCheck { name, .. }) => (None, Some(name)),
        }
    }

    /// Says who does not probe where nothing else is written, and what Envoys' probes delay. `fell_back`: a group would
    /// be checked by Envoys too, if they could; `envoys`: one is.
    pub(super) fn warn(&self, fields: &Fields<'_>, fell_back: bool, envoys: bool) {
        let Self::Check(check) = self else { return };
        let Some(item) = fields.get("healthCheck") else {
            return;
        };
        if fell_back && let Some(why) = &check.inexpressible {
            item.warning(format!(
                "Envoys cannot run the check {}: {}: {}; so probers alone check the endpoints. There {}, or write \
                 probing: {{ by: [PROBERS] }} here",
                check.name, why.field, why.why, why.nearest
            ));
        }
        if envoys && check.check.tls().is_some_and(TlsCheck::verify) && !names_server(&check.check)
        {
            item.warning(format!(
                "Envoys run the check {}, which verifies certificates, but for no name: without tls.sni or a host every one \
                 that the roots vouch for passes there (a prober wants the endpoint's address in it); give one of them",
                check.name
            ));
        }
        let timeout = check.check.timeout();
        if envoys && timeout > LONG_TIMEOUT {
            item.warning(format!(
                "Envoys run the check {}, and each waits for the first answer of every endpoint before it is live: one \
                 that hangs delays it by the timeout, {timeout:?}; shorten that to {LONG_TIMEOUT:?} or less, or write \
                 probing: {{ by: [PROBERS] }}",
                check.name
            ));
        }
    }
}

/// Whether the check gives a server name, whatever the endpoint (semantics P10).
fn names_server(check: &HealthCheck) -> bool {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Names::new(check, None, nowhere).sni.is_some()
}

/// Reads the key.
pub(super) fn read(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    checks: &Table<Check>,
) -> Asked {
    let Some(item) = fields.get("healthCheck") else {
        return Asked::Nothing;
    };
    if item.scalar() == Some(checks::NONE) {
        return Asked::Nothing;
    }
    let known = checks.find(&item).and_then(|check| check.known.as_ref());
    let (Some(known), Some(name)) = (known, item.scalar().and_then(Name::new)) else {
        return Asked::Unknown;
    };
    if let Some(protocol) = protocol {
        compare(&item, known, protocol);
    }
    let (check, whole) = match &known.content {
        Content::Whole(check) => (Arc::clone(check), true),
        // Whatever host it gets: nothing that is looked at here depends on it.
        Content::Hostless(hostless) => match hostless.with("host") {
            Ok(check) => (Arc::new(check), false),
            Err(_) => return Asked::Unknown,
        },
    };
    Asked::Check(AskedCheck {
        name,
        profile: known.profile,
        inexpressible: protocol
            .and_then(|protocol| distributed::expressible(&check, protocol).err()),
        check,
        whole,
    })
}

/// The types that a service takes, where it does not take all (semantics P18).
fn taken(protocol: Protocol, profile: Profile) -> Option<&'static [Kind]> {
    use Kind::{Grpc, GrpcWithTls, Http, Https, Tcp};
    match (protocol, profile) {
        (Protocol::Http | Protocol::Https, Profile::TencentAlb) => Some(&[Tcp, Http, Https]),
        (Protocol::Grpc, Profile::TencentAlb) => Some(&[Tcp, Grpc]),
        (Protocol::GrpcWithTls, Profile::TencentAlb) => Some(&[Tcp, GrpcWithTls]),
        (Protocol::Grpc | Protocol::GrpcWithTls, _) => Some(&[Tcp, Grpc, GrpcWithTls]),
        (
            Protocol::Http
            | Protocol::Https
            | Protocol::Http2
            | Protocol::H2c
            | Protocol::Tcp
            | Protocol::Ssl,
            _,
        ) => None,
    }
}

/// Semantics P18.
fn compare(item: &Item<'_>, check: &Known, protocol: Protocol) {
    let kind = check.kind;
    let word = protocol.name();
    if let Some(taken) = taken(protocol, check.profile) {
        if !taken.contains(&kind) {
            let of_profile = match check.profile {
                Profile::TencentAlb => " of profile TENCENT_ALB",
                Profile::Gcp | Profile::GcpLegacy | Profile::AzureLb => "",
            };
            item.error(format!(
                "{} {word} service takes checks{of_profile} of the types {}, and {} is {}; name another check",
                if word.starts_with("HTTP") { "an" } else { "a" },
                join(taken.iter().map(|kind| kind.name())),
                item.scalar().unwrap_or_default(),
                kind.name()
            ));
        }
        return;
    }
    let same = match protocol {
        Protocol::Http | Protocol::Https => matches!(kind, Kind::Http | Kind::Https),
        Protocol::H2c | Protocol::Http2 => kind == Kind::Http2,
        Protocol::Grpc | Protocol::GrpcWithTls => matches!(kind, Kind::Grpc | Kind::GrpcWithTls),
        Protocol::Tcp | Protocol::Ssl => matches!(kind, Kind::Tcp | Kind::Ssl),
    };
    if !same {
        item.warning(format!(
            "the service speaks {word} and its check {}; make sure that this is meant",
            kind.name()
        ));
    }
}
