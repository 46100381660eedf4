//! What a check asks, and what of it is its profile's default (semantics P2).
//!
//! In: a check. Out: its fields as the configuration names them, each beside its profile's default. Whether a field was
//! written is not known any more, and does not matter: the default written out is the same check.

use vitals_prober::check::{
    GrpcAsk, GrpcSpec, HealthCheck, HealthCheckSpec, HttpSpec, Profile, Protocol,
};

use super::super::words;

/// A field, its value, and what the profile says where nothing is written; `None`: it must be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) default: Option<String>,
}

/// The fields of a check that its profile, or nobody, has a default for.
pub(super) fn fields(check: &HealthCheck) -> Vec<Field> {
    let default = HealthCheck::new(least(check)).ok();
    // The default timeout depends on the interval.
    let of_interval = HealthCheck::new(HealthCheckSpec {
        check_interval: Some(check.interval()),
        ..least(check)
    });
    let default_timeout = of_interval.ok().map(|of_interval| of_interval.timeout());
    let mut fields = Vec::new();
    let mut field = |name, of: &dyn Fn(&HealthCheck) -> Option<String>| {
        if let Some(value) = of(check) {
            let default = default.as_ref().and_then(of);
            fields.push(Field {
                name,
                value,
                default,
            });
        }
    };
    field("checkInterval", &|c| Some(words::duration(c.interval())));
    field("timeout", &|c| Some(words::duration(c.timeout())));
    field("healthyThreshold", &|c| {
        Some(c.thresholds().healthy.to_string())
    });
    field("unhealthyThreshold", &|c| {
        Some(c.thresholds().unhealthy.to_string())
    });
    field("proxyHeader", &|c| {
        Some(words::proxy_header(c.proxy_header()).into())
    });
    field("close", &|c| Some(words::close(c.close()).into()));
    field("tls.verify", &|c| Some(c.tls()?.verify().to_string()));
    let http = |check: &HealthCheck| match check.protocol() {
        Protocol::Http(http) | Protocol::Http2(http) => Some(http.clone()),
        Protocol::Tcp(_) | Protocol::Grpc(_) => None,
    };
    field("http.requestPath", &|c| {
        Some(http(c)?.request_path().into())
    });
    field("http.method", &|c| Some(http(c)?.method().as_str().into()));
    field("http.expectedStatuses", &|c| {
        Some(http(c)?.expected_statuses().to_string())
    });
    let call = |check: &HealthCheck| match check.protocol() {
        Protocol::Grpc(grpc) => match grpc.ask() {
            GrpcAsk::Code { method, expected } => Some((method.clone(), expected.to_string())),
            GrpcAsk::Health { .. } => None,
        },
        Protocol::Tcp(_) | Protocol::Http(_) | Protocol::Http2(_) => None,
    };
    field("grpc.method", &|c| Some(call(c)?.0));
    field("grpc.expectedCodes", &|c| Some(call(c)?.1));
    for field in &mut fields {
        match field.name {
            "timeout" => field.default = default_timeout.map(words::duration),
            "http.expectedStatuses" if check.profile() == Profile::TencentAlb => {
                field.default = None;
            }
            _ => {}
        }
    }
    fields
}

/// The least that a check of this profile and type must say.
fn least(check: &HealthCheck) -> HealthCheckSpec {
    let tencent = check.profile() == Profile::TencentAlb;
    let host = tencent.then(|| "a".to_owned());
    HealthCheckSpec {
        profile: Some(check.profile()),
        fixed_port: (check.profile() == Profile::GcpLegacy).then_some(1),
        http: HttpSpec {
            host: host.clone(),
            expected_statuses: tencent.then(|| vec!["http_2xx".into()]),
            ..HttpSpec::default()
        },
        grpc: GrpcSpec {
            host,
            ..GrpcSpec::default()
        },
        ..HealthCheckSpec::of(check.kind())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vitals_prober::check::Kind;

    use super::*;

    fn shown(spec: HealthCheckSpec) -> Vec<String> {
        let check = HealthCheck::new(spec).unwrap();
        fields(&check)
            .into_iter()
            .map(|field| {
                let default = field.default.unwrap_or_else(|| "none".into());
                format!("{} {} ({default})", field.name, field.value)
            })
            .collect()
    }

    #[test]
    fn p2_every_profile_and_type_has_its_defaults() {
        for profile in Profile::ALL {
            for &kind in profile.kinds() {
                let check = HealthCheck::new(HealthCheckSpec {
                    profile: Some(profile),
                    fixed_port: Some(1),
                    http: HttpSpec {
                        host: Some("a".into()),
                        expected_statuses: (profile == Profile::TencentAlb)
                            .then(|| vec!["http_2xx".into()]),
                        ..HttpSpec::default()
                    },
                    grpc: GrpcSpec {
                        host: Some("a".into()),
                        ..GrpcSpec::default()
                    },
                    ..HealthCheckSpec::of(kind)
                })
                .unwrap();
                for field in fields(&check) {
                    let given =
                        profile == Profile::TencentAlb && field.name == "http.expectedStatuses";
                    let default = (!given).then_some(&field.value);
                    assert_eq!(field.default.as_ref(), default, "{profile:?} {field:?}");
                }
            }
        }
    }

    #[test]
    fn p2_what_differs_is_told_beside_the_default() {
        let fields = shown(HealthCheckSpec {
            check_interval: Some(Duration::from_secs(2)),
            unhealthy_threshold: Some(3),
            ..HealthCheckSpec::of(Kind::Tcp)
        });
        assert_eq!(
            fields,
            [
                "checkInterval 2 s (5 s)",
                "timeout 2 s (2 s)",
                "healthyThreshold 2 (2)",
                "unhealthyThreshold 3 (2)",
                "proxyHeader NONE (NONE)",
                "close RST (RST)",
            ]
        );
        let tencent = shown(HealthCheckSpec {
            profile: Some(Profile::TencentAlb),
            grpc: GrpcSpec {
                host: Some("a.example".into()),
                ..GrpcSpec::default()
            },
            ..HealthCheckSpec::of(Kind::Grpc)
        });
        assert_eq!(
            tencent[6..],
            [
                "grpc.method /TCLOUD.CLB/healthcheck (/TCLOUD.CLB/healthcheck)",
                "grpc.expectedCodes 12 (12)"
            ]
        );
    }
}
