//! Who a client is by its certificate, and whom a fleet admits (`fleets[].allow`).
//!
//! In: a certificate that TLS has verified already, and globs. Out: an [`Identity`], and whether an [`Allow`] admits it.
//!
//! Globs are narrower here than in `match`: `*` and `?` stay within one part of a SPIFFE path or of a DNS name, and `**`
//! spans parts. What admits more than was meant is worse than what admits less, and the log says what was refused. So a
//! name that is none by its standard is not read: an authority that signs it has not looked at it either.
//!
//! Not here: the verification (`transport`), and what a client that is not admitted is told (`ads`).

use std::fmt;
use std::time::{Duration, SystemTime};

use globset::{GlobBuilder, GlobMatcher};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// What every SPIFFE ID begins with.
pub const SPIFFE: &str = "spiffe://";

/// The most names that are kept of a certificate, and the most bytes of each: an authority may sign thousands, but no
/// client needs them, and each connection would hold them.
const MAX_NAMES: usize = 64;
const MAX_NAME_BYTES: usize = 2_048;

/// Who a client is, by the certificate that it has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its SPIFFE ID: the one URI name of the certificate. One with several is no SPIFFE certificate (X.509-SVID §2), and
    /// has none; nor has one whose URI is no SPIFFE ID (SPIFFE-ID §2).
    pub spiffe_id: Option<String>,
    /// Its DNS names, in lower case; those that are none are left out.
    pub dns_names: Vec<String>,
    /// When the certificate ends.
    pub not_after: SystemTime,
}

/// A certificate that says nothing that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate cannot be read: {0}")]
pub struct Unreadable(String);

impl Identity {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// When it is no certificate.
    pub fn read(der: &[u8]) -> Result<Self, Unreadable> {
        let (_rest, certificate) =
            parse_x509_certificate(der).map_err(|error| Unreadable(error.to_string()))?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|error| Unreadable(error.to_string()))?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let uris: Vec<&str> = names
            .iter()
            .filter_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            })
            .collect();
        let spiffe_id = match uris.as_slice() {
            [uri] if is_spiffe_id(uri) => Some((*uri).to_owned()),
            _ => None,
        };
        let dns_names = names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) if is_dns_name(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        let ends = certificate.validity().not_after.timestamp();
        Ok(Self {
            spiffe_id,
            dns_names: dns_names.take(MAX_NAMES).collect(),
            not_after: SystemTime::UNIX_EPOCH
                + Duration::from_secs(u64::try_from(ends).unwrap_or(0)),
        })
    }
}

/// Whether a URI is a SPIFFE ID: a trust domain in lower case without user or port, and parts of a path, of which none is
/// empty or leads elsewhere (SPIFFE-ID §2.1, §2.2). `spiffe://mesh/edge/../admin` is of `spiffe://mesh/edge/**` only to
/// those who do not look.
fn is_spiffe_id(uri: &str) -> bool {
    const MAX_DOMAIN: usize = 255;
    let Some(rest) = uri.strip_prefix(SPIFFE) else {
        return false;
    };
    let mut parts = rest.split('/');
    let domain = parts.next().unwrap_or_default();
    let mark = |byte: u8| b"-._".contains(&byte);
    let of_domain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || mark(byte);
    let of_path = |byte: u8| byte.is_ascii_alphanumeric() || mark(byte);
    uri.len() <= MAX_NAME_BYTES
        && (1..=MAX_DOMAIN).contains(&domain.len())
        && domain.bytes().all(of_domain)
        && parts.all(|part| !["", ".", ".."].contains(&part) && part.bytes().all(of_path))
}

/// Whether it is a DNS name, or one with `*`: labels of letters, digits, `-` and `_` (which many have). What else an authority
/// might sign is not held against globs, in which `/` stands for a dot: `edge/prod` is not `edge.prod`.
fn is_dns_name(name: &str) -> bool {
    let of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte);
    name.len() <= MAX_NAME_BYTES
        && (name.split('.')).all(|label| !label.is_empty() && label.bytes().all(of_label))
}

/// For the log: the names, shortened and without control characters.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let clip = |name: &str| -> String {
            name.chars()
                .take(128)
                .flat_map(char::escape_default)
                .collect()
        };
        let spiffe = self.spiffe_id.iter().map(|id| clip(id));
        let dns = self.dns_names.iter().map(|name| clip(name));
        let mut names: Vec<String> = spiffe.chain(dns).collect();
        let count = names.len();
        if count == 0 {
            return f.write_str("a certificate without a SPIFFE ID or DNS name");
        }
        names.truncate(SHOWN);
        f.write_str(&names.join(", "))?;
        match count - names.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// `fleets[].allow`: a client is admitted by one name that one glob matches.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    spiffe_ids: Vec<GlobMatcher>,
    dns_names: Vec<GlobMatcher>,
}

impl Allow {
    /// Globs made by [`spiffe_glob`] and [`dns_glob`].
    #[must_use]
    pub fn new(spiffe_ids: Vec<GlobMatcher>, dns_names: Vec<GlobMatcher>) -> Self {
        Self {
            spiffe_ids,
            dns_names,
        }
    }

    /// Whether the client may be told what the fleet is told; `None` is a client that has shown no certificate.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, identity: Option<&Identity>) -> Result<(), NotAdmitted> {
        let identity = identity.ok_or(NotAdmitted::NoCertificate)?;
        let spiffe = identity
            .spiffe_id
            .iter()
            .any(|id| self.spiffe_ids.iter().any(|glob| glob.is_match(id)));
        let dns = || {
            identity.dns_names.iter().any(|name| {
                let parts = in_parts(name);
                self.dns_names.iter().any(|glob| glob.is_match(&parts))
            })
        };
        if spiffe || dns() {
            Ok(())
        } else {
            Err(NotAdmitted::OtherName)
        }
    }
}

/// Why a client is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// It has shown no certificate.
    #[error("the fleet's allow wants a client certificate, and none was shown")]
    NoCertificate,
    /// None of its names is admitted.
    #[error("no name of the client's certificate is in the fleet's allow")]
    OtherName,
}

/// A glob on SPIFFE IDs: `spiffe://trust-domain/path`, with `*` within a part of the path and `**` over parts.
///
/// # Errors
/// When it is no glob.
pub fn spiffe_glob(text: &str) -> Result<GlobMatcher, globset::Error> {
    in_parts_glob(text)
}

/// A glob on DNS names, with `*` within a label and `**` over labels; case does not matter.
///
/// # Errors
/// When it is no glob.
pub fn dns_glob(text: &str) -> Result<GlobMatcher, globset::Error> {
    in_parts_glob(&in_parts(&text.to_ascii_lowercase()))
}

fn in_parts_glob(text: &str) -> Result<GlobMatcher, globset::Error> {
    let mut builder = GlobBuilder::new(text);
    builder.literal_separator(true).backslash_escape(true);
    Ok(builder.build()?.compile_matcher())
}

/// A DNS name as the globs have it: its labels are parts.
fn in_parts(name: &str) -> String {
    name.replace('.', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(spiffe_id: Option<&str>, dns_names: &[&str]) -> Identity {
        Identity {
            spiffe_id: spiffe_id.map(Into::into),
            dns_names: dns_names.iter().map(|&name| name.into()).collect(),
            not_after: SystemTime::UNIX_EPOCH,
        }
    }

    fn allow(spiffe_ids: &[&str], dns_names: &[&str]) -> Allow {
        Allow::new(
            spiffe_ids.iter().map(|g| spiffe_glob(g).unwrap()).collect(),
            dns_names.iter().map(|g| dns_glob(g).unwrap()).collect(),
        )
    }

    fn certificate(names: Vec<rcgen::SanType>) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names;
        params.not_after = rcgen::date_time_ymd(2031, 5, 6);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn uri(text: &str) -> rcgen::SanType {
        rcgen::SanType::URI(text.try_into().unwrap())
    }

    #[test]
    fn a_star_stays_within_a_part_and_two_span_parts() {
        for (glob, id, admitted) in [
            ("spiffe://mesh/edge/*", "spiffe://mesh/edge/a", true),
            ("spiffe://mesh/edge/*", "spiffe://mesh/edge/a/b", false),
            ("spiffe://mesh/edge/**", "spiffe://mesh/edge/a/b", true),
            ("spiffe://mesh/*/envoy", "spiffe://mesh/eu/envoy", true),
            ("spiffe://mesh/*/envoy", "spiffe://mesh/eu/1/envoy", false),
            ("spiffe://mesh/edge/*", "spiffe://mesh2/edge/a", false),
            ("spiffe://*/edge", "spiffe://evil/x/edge", false),
            ("spiffe://mesh/edge", "spiffe://mesh/Edge", false),
        ] {
            let result = allow(&[glob], &[]).admit(Some(&identity(Some(id), &[])));
            assert_eq!(result.is_ok(), admitted, "{glob} {id}");
        }
        for (glob, name, admitted) in [
            ("*.edge.example", "a.edge.example", true),
            ("*.edge.example", "a.b.edge.example", false),
            ("**.edge.example", "a.b.edge.example", true),
            ("*.edge.example", "edge.example", false),
            ("*.Edge.example", "a.edge.example", true),
            ("envoy-?.example", "envoy-1.example", true),
            ("*", "a.example", false),
        ] {
            let result = allow(&[], &[glob]).admit(Some(&identity(None, &[name])));
            assert_eq!(result.is_ok(), admitted, "{glob} {name}");
        }
    }

    #[test]
    fn one_name_of_either_kind_is_enough() {
        let allow = allow(&["spiffe://mesh/edge"], &["edge.example"]);
        for good in [
            identity(Some("spiffe://mesh/edge"), &[]),
            identity(Some("spiffe://mesh/other"), &["x.example", "edge.example"]),
        ] {
            assert_eq!(allow.admit(Some(&good)), Ok(()), "{good}");
        }
        let other = identity(Some("spiffe://mesh/other"), &["x.example"]);
        assert_eq!(allow.admit(Some(&other)), Err(NotAdmitted::OtherName));
        assert_eq!(allow.admit(None), Err(NotAdmitted::NoCertificate));
    }

    #[test]
    fn a_name_of_one_kind_is_not_held_against_globs_of_the_other() {
        let allow = allow(&["spiffe://mesh/**"], &[]);
        let dns = identity(None, &["spiffe://mesh/edge"]);
        assert_eq!(allow.admit(Some(&dns)), Err(NotAdmitted::OtherName));
    }

    #[test]
    fn an_identity_is_what_the_certificate_names() {
        let names = vec![
            uri("spiffe://mesh/edge/a"),
            rcgen::SanType::DnsName("A.Example".try_into().unwrap()),
        ];
        let read = Identity::read(&certificate(names)).unwrap();
        assert_eq!(read.spiffe_id.as_deref(), Some("spiffe://mesh/edge/a"));
        assert_eq!(read.dns_names, ["a.example"]);
        let ends = read.not_after.duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(ends.unwrap().as_secs(), 1_935_792_000, "2031-05-06");
        assert_eq!(read.to_string(), "spiffe://mesh/edge/a, a.example");
    }

    #[test]
    fn a_certificate_with_two_uris_has_no_spiffe_id() {
        let two = certificate(vec![uri("spiffe://mesh/a"), uri("spiffe://mesh/b")]);
        assert_eq!(Identity::read(&two).unwrap().spiffe_id, None);
        let other = certificate(vec![uri("https://mesh/a")]);
        assert_eq!(Identity::read(&other).unwrap().spiffe_id, None);
        let none = Identity::read(&certificate(Vec::new())).unwrap();
        assert_eq!(
            none.to_string(),
            "a certificate without a SPIFFE ID or DNS name"
        );
    }

    #[test]
    fn a_name_that_is_none_by_its_standard_is_not_read() {
        for (id, is_one) in [
            ("spiffe://mesh/edge/a", true),
            ("spiffe://mesh-1.example_x", true),
            ("spiffe://mesh/edge/", false),
            ("spiffe://mesh//a", false),
            ("spiffe://mesh/edge/../admin", false),
            ("spiffe://mesh/edge/./a", false),
            ("spiffe://mesh/edge/%2e%2e", false),
            ("spiffe://mesh/edge/a?b", false),
            ("spiffe://mesh/edge/a#b", false),
            ("spiffe://mesh/edge/a\0b", false),
            ("spiffe://user@mesh/edge", false),
            ("spiffe://mesh:443/edge", false),
            ("spiffe://Mesh/edge", false),
            ("SPIFFE://mesh/edge", false),
            ("spiffe:///edge", false),
            (&format!("spiffe://{}/a", "x".repeat(256)), false),
            (&format!("spiffe://mesh/{}", "x".repeat(2_048)), false),
        ] {
            let read = Identity::read(&certificate(vec![uri(id)])).unwrap();
            assert_eq!(read.spiffe_id.is_some(), is_one, "{id}");
        }
        for (name, is_one) in [
            ("a-1_b.Example", true),
            ("*.example", true),
            ("edge/prod.example", false),
            ("edge.prod.example\0.x", false),
            (".edge.example", false),
            ("a..example", false),
            ("a.example.", false),
            ("", false),
        ] {
            let dns = rcgen::SanType::DnsName(name.try_into().unwrap());
            let read = Identity::read(&certificate(vec![dns])).unwrap();
            assert_eq!(!read.dns_names.is_empty(), is_one, "{name}");
        }
    }

    #[test]
    fn a_class_stays_within_a_part_too() {
        for class in ["[!x]", "[^x]", "[+-9]", "[/]", "?"] {
            if let Ok(glob) = spiffe_glob(&format!("spiffe://mesh/edge{class}a")) {
                assert!(!glob.is_match("spiffe://mesh/edge/a"), "{class}");
            }
            if let Ok(glob) = dns_glob(&format!("edge{class}example")) {
                assert!(!glob.is_match("edge/example"), "{class}");
            }
        }
    }

    #[test]
    fn what_is_no_certificate_is_an_error() {
        for bytes in [&b""[..], b"\x30\x03\x02\x01\x01", &[0xff; 64]] {
            assert!(Identity::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn names_are_shown_short_and_on_one_line() {
        let many: Vec<String> = (0..9)
            .map(|n| format!("{n}\n{}", "x".repeat(500)))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let shown = identity(None, &many).to_string();
        assert!(shown.len() < 700 && !shown.contains('\n'), "{shown}");
        assert!(shown.ends_with(" and 5 more"), "{shown}");
    }
}
