//! `tls:` of a service: the TLS from Envoy to its endpoints.
//!
//! In: the block, the service's protocol, the files; for a warning, its check. Out: [`UpstreamTls`] exactly where the protocol is one over TLS.
//! Certificates are verified unless `verify: false` is written: this is traffic, not a probe (semantics P10).

use std::sync::Arc;

use vitals_prober::check::{Roots, TlsCheck, is_dns_name};

use super::Asked;
use crate::config::attached::Attached;
use crate::config::diagnostic::quote;
use crate::config::read::{Fields, Item};
use crate::model::{Protocol, UpstreamRoots, UpstreamTls};

/// Reads the block.
pub(super) fn read(
    fields: &Fields<'_>,
    protocol: Option<Protocol>,
    attached: &Attached,
) -> Option<UpstreamTls> {
    let item = fields.get("tls");
    let tls = match &item {
        None => UpstreamTls {
            sni: None,
            verify: Some(UpstreamRoots::System),
        },
        Some(item) => read_block(item, attached),
    };
    let protocol = protocol?;
    if !protocol.is_tls() {
        if let Some(item) = item {
            item.misplaced(format!(
                "tls belongs to the protocols HTTPS, HTTP2, GRPC_WITH_TLS and SSL, and this service speaks {}; change the \
                 protocol or drop tls",
                protocol.name()
            ));
        }
        return None;
    }
    if tls.verify.is_some()
        && tls.sni.is_none()
        && let Some(item) = item.or(fields.get("protocol"))
    {
        item.warning(
            "certificates are verified, but for no name: without sni every one that the roots vouch for passes; write \
             tls: { sni: … }, or verify: false",
        );
    }
    Some(tls)
}

/// Says so where Envoys refuse certificates that the check lets pass: every request fails, and all is HEALTHY. At `tls`, or
/// at the protocol that verifies without it.
pub(super) fn warn_of_check(fields: &Fields<'_>, tls: Option<&UpstreamTls>, asked: &Asked) {
    let (Some(tls), Asked::Check(asked)) = (tls, asked) else {
        return;
    };
    let of_check = asked.check.tls();
    if tls.verify.is_none() || of_check.is_some_and(TlsCheck::verify) {
        return;
    }
    let Some(item) = fields.get("tls").or_else(|| fields.get("protocol")) else {
        return;
    };
    let name = &asked.name;
    let (what, right) = match of_check {
        Some(_) => (
            "does not",
            format!("set tls: {{ verify: true }} on the check {name}, with the service's sni and roots"),
        ),
        None => (
            "does not even speak TLS",
            "name a check over TLS with tls: { verify: true }, and with the service's sni and roots".into(),
        ),
    };
    item.warning(format!(
        "the service verifies certificates and its check {name} {what}: where a certificate is bad every request fails while \
         all endpoints are HEALTHY; {right}, or write verify: false here"
    ));
}

fn read_block(item: &Item<'_>, attached: &Attached) -> UpstreamTls {
    let Some(fields) = item.fields(&["sni", "verify", "roots"]) else {
        return UpstreamTls::default();
    };
    let sni = fields.get("sni").and_then(|item| {
        let name = item.text()?;
        if !is_dns_name(name) {
            item.error(format!(
                "{} is not a DNS name; a server name is one, without a port, and never an address (RFC 6066)",
                quote(name)
            ));
        }
        Some(name.to_owned())
    });
    let verify = fields
        .get("verify")
        .and_then(|i| i.boolean())
        .unwrap_or(true);
    let roots = fields.get("roots").and_then(|item| {
        if !verify {
            item.misplaced(
                "roots are looked at only to verify; drop verify: false, or leave roots out",
            );
        }
        read_roots(&item, attached)
    });
    UpstreamTls {
        sni,
        verify: verify.then(|| roots.map_or(UpstreamRoots::System, UpstreamRoots::Pem)),
    }
}

/// The certificates of the file. They go to every Envoy, so there must be nothing else in it.
fn read_roots(item: &Item<'_>, attached: &Attached) -> Option<Arc<str>> {
    let path = item.sink.beside(item.node.place, item.text()?);
    let read = || -> Result<Arc<str>, String> {
        let bytes = attached.read(&path)?;
        let text = String::from_utf8(bytes).map_err(|_not_utf8| {
            "is not a text; name a file with certificates in PEM".to_owned()
        })?;
        Roots::parse(text.as_bytes()).map_err(|problem| format!("cannot be used: {problem}"))?;
        if text.contains("PRIVATE KEY-----") {
            return Err(
                "holds a private key, which would go to every Envoy; name a file with certificates alone"
                    .into(),
            );
        }
        Ok(text.into())
    };
    read()
        .map_err(|problem| item.error(format!("{} {problem}", quote(&path.to_string_lossy()))))
        .ok()
}
