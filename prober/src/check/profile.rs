//! The profiles: whose health checks a check behaves like, as the table of semantics P2.
//!
//! In: a profile. Out: its types, defaults, ranges and what it does not allow. One function per column, so that the
//! table can be read here as it stands there; who applies them is `check`, `http` and `tcp`.

use std::time::Duration;

use super::kind::Kind;
use super::{DURATION_RANGE, Method, THRESHOLD_RANGE};

/// Whose health checks a check behaves like (semantics P2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Google Cloud's health checks.
    #[default]
    Gcp,
    /// Google Cloud's legacy HTTP and HTTPS health checks.
    GcpLegacy,
    /// Tencent Cloud's Application Load Balancer.
    TencentAlb,
    /// Azure's Load Balancer.
    AzureLb,
}

impl Profile {
    /// Every profile, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Gcp, Self::GcpLegacy, Self::TencentAlb, Self::AzureLb];

    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcp => "GCP",
            Self::GcpLegacy => "GCP_LEGACY",
            Self::TencentAlb => "TENCENT_ALB",
            Self::AzureLb => "AZURE_LB",
        }
    }

    /// The profile of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// The types that it knows.
    #[must_use]
    pub fn kinds(self) -> &'static [Kind] {
        use Kind::{Grpc, GrpcWithTls, Http, Https, Tcp};
        match self {
            Self::Gcp => &Kind::ALL,
            Self::GcpLegacy => &[Http, Https],
            Self::TencentAlb => &[Tcp, Http, Https, Grpc, GrpcWithTls],
            Self::AzureLb => &[Tcp, Http, Https],
        }
    }

    /// The type of a check that names none.
    #[must_use]
    pub fn default_kind(self) -> Option<Kind> {
        (self == Self::TencentAlb).then_some(Kind::Tcp)
    }

    pub(super) fn interval_range(self) -> (Duration, Duration) {
        match self {
            Self::TencentAlb => (Duration::from_secs(2), Duration::from_secs(300)),
            Self::Gcp | Self::GcpLegacy | Self::AzureLb => DURATION_RANGE,
        }
    }

    pub(super) fn timeout_range(self) -> (Duration, Duration) {
        match self {
            Self::TencentAlb => (Duration::from_secs(2), Duration::from_secs(60)),
            Self::Gcp | Self::GcpLegacy | Self::AzureLb => DURATION_RANGE,
        }
    }

    /// Least and greatest threshold.
    #[must_use]
    pub fn threshold_range(self) -> (u8, u8) {
        match self {
            Self::TencentAlb => (2, 10),
            Self::Gcp | Self::GcpLegacy | Self::AzureLb => THRESHOLD_RANGE,
        }
    }

    /// Every profile's default interval.
    pub(super) const INTERVAL: Duration = Duration::from_secs(5);

    /// The default timeout. Where the interval is shorter and the profile does not set its own rule, the interval.
    pub(super) fn timeout(self, interval: Duration) -> Duration {
        match self {
            Self::TencentAlb => Duration::from_secs(2),
            Self::Gcp | Self::GcpLegacy | Self::AzureLb => interval.min(Duration::from_secs(5)),
        }
    }

    /// The default of both thresholds.
    pub(super) fn threshold(self) -> u8 {
        match self {
            Self::Gcp | Self::GcpLegacy => 2,
            Self::TencentAlb => 3,
            Self::AzureLb => 1,
        }
    }

    /// The default method of HTTP checks.
    pub(super) fn method(self) -> Method {
        match self {
            Self::TencentAlb => Method::Head,
            Self::Gcp | Self::GcpLegacy | Self::AzureLb => Method::Get,
        }
    }

    /// Whether a probe may send the `request` string of TCP and SSL.
    pub(super) fn has_request(self) -> bool {
        match self {
            Self::Gcp | Self::GcpLegacy => true,
            Self::TencentAlb | Self::AzureLb => false,
        }
    }

    /// Whether a probe may match a `response` string.
    pub(super) fn has_response(self) -> bool {
        self == Self::Gcp
    }

    /// Whether a probe may send a PROXY header.
    pub(super) fn has_proxy_header(self) -> bool {
        self == Self::Gcp
    }

    /// Whether a probe may go to the serving port.
    pub(super) fn has_serving_port(self) -> bool {
        self != Self::GcpLegacy
    }
}
