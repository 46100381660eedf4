//! A health check in words, and figures as people read them: what `probe` and `explain` share.
//!
//! In: checks, durations, rates. Out: short texts on one line.

use std::time::Duration;

use vitals_prober::check::{Close, GrpcAsk, HealthCheck, Protocol, ProxyHeader, TcpMatch};

/// `5 s`, `1.5 s`, `250 ms`.
pub(super) fn duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) && !duration.is_zero() {
        return format!("{} ms", trimmed(duration.as_secs_f64() * 1000.0, 3));
    }
    format!("{} s", trimmed(duration.as_secs_f64(), 3))
}

/// A duration of a probe's step: `0.12 ms`.
pub(super) fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

/// A number with at most so many decimals, and no more than it needs.
pub(super) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// A share as people read it: `50 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", trimmed(share * 100.0, 2))
}

/// `1 endpoint`, `2 endpoints`.
pub(super) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// The same of a number that an option gives.
pub(super) fn count_u32(number: u32, thing: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), thing)
}

/// What a probe does once it is connected.
pub(super) fn asks(check: &HealthCheck) -> String {
    let tls = if check.is_tls() { " over TLS" } else { "" };
    match check.protocol() {
        Protocol::Tcp(tcp) => match tcp.request() {
            Some(request) => format!("sends {request:?}{tls}"),
            None if check.is_tls() => "a TCP connection and a TLS handshake".into(),
            None => "a TCP connection".into(),
        },
        Protocol::Http(http) => {
            let (method, path) = (http.method().as_str(), http.request_path());
            format!("{method} {path} by HTTP/1.1{tls}")
        }
        Protocol::Http2(http) => {
            let (method, path) = (http.method().as_str(), http.request_path());
            format!("{method} {path} by HTTP/2{tls}")
        }
        Protocol::Grpc(grpc) => match grpc.ask() {
            GrpcAsk::Health {
                service: Some(name),
            } => {
                format!("grpc.health.v1.Health/Check{tls}, of the service {name:?}")
            }
            GrpcAsk::Health { service: None } => {
                format!("grpc.health.v1.Health/Check{tls}, of the server as a whole")
            }
            GrpcAsk::Code { method, .. } => format!("the RPC {method}{tls}"),
        },
    }
}

/// What passes (semantics P4, P8, P12, P13).
pub(super) fn passes(check: &HealthCheck) -> String {
    match check.protocol() {
        Protocol::Tcp(tcp) => match (tcp.response(), tcp.request()) {
            (Some(response), _) => {
                let how = match tcp.matching() {
                    TcpMatch::Exact => "is exactly",
                    TcpMatch::Prefix => "begins with",
                    TcpMatch::Contains => "holds",
                };
                format!("what comes {how} {response:?}")
            }
            (None, Some(_)) => "the request is sent; its answer is not read".into(),
            (None, None) if check.is_tls() => "the handshake completes".into(),
            (None, None) => "the connection opens".into(),
        },
        Protocol::Http(http) | Protocol::Http2(http) => {
            let statuses = http.expected_statuses();
            match http.response() {
                None => format!("the final status is in {{{statuses}}}"),
                Some(response) => format!(
                    "the final status is in {{{statuses}}} and the first 1,024 bytes of the body hold {response:?}"
                ),
            }
        }
        Protocol::Grpc(grpc) => match grpc.ask() {
            GrpcAsk::Health { .. } => "the call ends with OK and says SERVING".into(),
            GrpcAsk::Code { expected, .. } => {
                format!("the call ends with a code in {{{expected}}}")
            }
        },
    }
}

/// `proxyHeader` as it is written.
pub(super) fn proxy_header(header: ProxyHeader) -> &'static str {
    match header {
        ProxyHeader::None => "NONE",
        ProxyHeader::V1 => "PROXY_V1",
        ProxyHeader::V2 => "PROXY_V2",
    }
}

/// `close` as it is written.
pub(super) fn close(close: Close) -> &'static str {
    match close {
        Close::Rst => "RST",
        Close::Fin => "FIN",
    }
}

#[cfg(test)]
mod tests {
    use vitals_prober::check::{GrpcSpec, HealthCheckSpec, HttpSpec, Kind, TcpSpec};

    use super::*;

    #[test]
    fn figures_have_no_more_digits_than_they_need() {
        let ms = Duration::from_millis;
        for (given, shown) in [
            (ms(0), "0 s"),
            (ms(250), "250 ms"),
            (ms(1000), "1 s"),
            (ms(1500), "1.5 s"),
            (ms(300_000), "300 s"),
        ] {
            assert_eq!(duration(given), shown);
        }
        assert_eq!(millis(Duration::from_micros(123)), "0.12 ms");
        assert_eq!(trimmed(0.2, 4), "0.2");
        assert_eq!(trimmed(10_000.0, 4), "10000");
        assert_eq!(trimmed(100.0, 0), "100");
        assert_eq!(trimmed(1.0 / 300.0, 4), "0.0033");
        assert_eq!(count(1, "endpoint"), "1 endpoint");
        assert_eq!(count(0, "endpoint"), "0 endpoints");
    }

    #[test]
    fn every_kind_of_check_has_its_words() {
        let words = |spec| {
            let check = HealthCheck::new(spec).unwrap();
            format!("{}; passes when: {}", asks(&check), passes(&check))
        };
        let strings = |request: Option<&str>, response: Option<&str>| TcpSpec {
            request: request.map(Into::into),
            response: response.map(Into::into),
            matching: response.map(|_| TcpMatch::Prefix),
        };
        assert_eq!(
            words(HealthCheckSpec::of(Kind::Tcp)),
            "a TCP connection; passes when: the connection opens"
        );
        assert_eq!(
            words(HealthCheckSpec::of(Kind::Ssl)),
            "a TCP connection and a TLS handshake; passes when: the handshake completes"
        );
        assert_eq!(
            words(HealthCheckSpec::tcp(strings(Some("PING"), Some("PONG")))),
            "sends \"PING\"; passes when: what comes begins with \"PONG\""
        );
        assert_eq!(
            words(HealthCheckSpec::tcp(strings(Some("PING"), None))),
            "sends \"PING\"; passes when: the request is sent; its answer is not read"
        );
        assert_eq!(
            words(HealthCheckSpec {
                http: HttpSpec {
                    response: Some("ok".into()),
                    ..HttpSpec::default()
                },
                ..HealthCheckSpec::of(Kind::Http2)
            }),
            "GET / by HTTP/2 over TLS; passes when: the final status is in {200} and the first 1,024 bytes of the \
             body hold \"ok\""
        );
        assert_eq!(
            words(HealthCheckSpec::of(Kind::Grpc)),
            "grpc.health.v1.Health/Check, of the server as a whole; passes when: the call ends with OK and says SERVING"
        );
        assert_eq!(
            words(HealthCheckSpec {
                grpc: GrpcSpec {
                    method: Some("/a.B/c".into()),
                    expected_codes: Some("0,12".into()),
                    ..GrpcSpec::default()
                },
                ..HealthCheckSpec::of(Kind::GrpcWithTls)
            }),
            "the RPC /a.B/c over TLS; passes when: the call ends with a code in {0,12}"
        );
    }
}
