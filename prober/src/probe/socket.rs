//! Sockets as probes use them: how they are opened, from which address, and how they are left (semantics P15, P17).
//!
//! In: a target and the prober's source address. Out: a non-blocking socket whose connect is under way, or the outcome
//! that the system's refusal means. Not here: what goes over it (`probe`), whose fault an error is (`fault`).

use std::io::{self, Read as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::fault;
use crate::check::{Close, Profile, Protocol};
use crate::outcome::{Outcome, ProbeResult, Reason, ReasonCode, Times};
use crate::target::Target;

/// The most that a graceful close reads off, so that the kernel need not answer unread bytes by a reset.
const DRAIN: usize = 64 * 1024;

/// Opens a socket and starts to connect.
pub(super) fn connect(target: &Target, source: Option<IpAddr>) -> Result<Socket, Outcome> {
    let socket = open(target).map_err(|error| refused(target, &error))?;
    if let Some(source) = source {
        bind(&socket, source, target)?;
    }
    match socket.connect(&SockAddr::from(target.address)) {
        Ok(()) => Ok(socket),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(refused(target, &told_apart(error, target.address))),
    }
}

/// With EADDRNOTAVAIL, connect() says that no port is left; over IPv6 also that this machine has no address to reach the
/// peer from, which is a missing route. UDP, whose ports are others and which sends nothing, tells which.
fn told_apart(error: io::Error, peer: SocketAddr) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::ADDRNOTAVAIL) {
        return error;
    }
    let domain = Domain::for_address(peer);
    let reached = Socket::new(domain, Type::DGRAM, None).and_then(|udp| udp.connect(&peer.into()));
    match reached.map_err(|error| Errno::from_io_error(&error)) {
        Err(Some(Errno::ADDRNOTAVAIL | Errno::NETUNREACH)) => Errno::NETUNREACH.into(),
        _ => error,
    }
}

/// The outcome of an attempt that a system call refused at once.
pub(super) fn refused(target: &Target, error: &io::Error) -> Outcome {
    let (result, code) = fault::of_call(error);
    let text = fault::call_text(code, target.address, error);
    outcome(result, code, text)
}

fn outcome(result: ProbeResult, code: ReasonCode, text: String) -> Outcome {
    Outcome {
        result,
        reason: Reason::new(code, text),
        times: Times::default(),
    }
}

fn open(target: &Target) -> io::Result<Socket> {
    let domain = match target.address {
        SocketAddr::V4(_) => Domain::IPV4,
        SocketAddr::V6(_) => Domain::IPV6,
    };
    let socket = Socket::new_raw(domain, Type::STREAM.nonblocking().cloexec(), None)?;
    if target.check.close() == Close::Rst {
        // P15, design 5.12: close by RST, which leaves no TIME_WAIT behind.
        socket.set_linger(Some(Duration::ZERO))?;
    }
    if may_acknowledge_late(target) {
        socket.set_tcp_quickack(false)?;
    }
    Ok(socket)
}

/// Whether the handshake's last acknowledgement may wait for our next packet: one packet less each way. That packet is
/// our first bytes, or for a check that asks for the connection only (P9) the reset; not so under TENCENT_ALB, whose
/// check is the three-way handshake. Where the peer speaks first, it waits for that acknowledgement.
fn may_acknowledge_late(target: &Target) -> bool {
    let check = &target.check;
    match check.protocol() {
        Protocol::Tcp(tcp) if !check.is_tls() && tcp.request().is_none() => {
            tcp.response().is_none()
                && check.close() == Close::Rst
                && check.profile() != Profile::TencentAlb
        }
        Protocol::Tcp(_) | Protocol::Http(_) | Protocol::Http2(_) | Protocol::Grpc(_) => true,
    }
}

/// Semantics P17. The port is chosen by connect(), per destination: bind() would choose it per source, and some 28,000
/// probes in flight would be all there is.
fn bind(socket: &Socket, source: IpAddr, target: &Target) -> Result<(), Outcome> {
    let peer = target.address;
    if source.is_ipv4() != peer.is_ipv4() {
        let text = format!(
            "this prober's source address {source} is of another family than {peer}; give it one of each, or none"
        );
        let code = ReasonCode::LocalNoRoute;
        return Err(outcome(ProbeResult::Inconclusive, code, text));
    }
    let bound = setsockopt(socket, sockopt::IpBindAddressNoPort, &true)
        .map_err(io::Error::from)
        .and_then(|()| socket.bind(&SocketAddr::new(source, 0).into()));
    bound.map_err(|error| {
        let text =
            format!("this prober cannot probe {peer} from its source address {source} ({error})");
        outcome(ProbeResult::Inconclusive, ReasonCode::LocalError, text)
    })
}

/// Leaves by FIN: what the peer has sent is read off first, or the kernel would reset all the same.
pub(super) fn leave(socket: &Socket, scratch: &mut [u8]) {
    // The peer may be gone already; there is nobody left to tell.
    socket.shutdown(Shutdown::Write).ok();
    let mut left = DRAIN;
    while left > 0 {
        match (&*socket).read(scratch) {
            Ok(n) if n > 0 => left = left.saturating_sub(n),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::check::{HealthCheck, HealthCheckSpec, Kind, TcpSpec};
    use crate::tally::Tally;
    use crate::target::{Names, Pulse, StateKey};

    #[test]
    fn p8_the_handshake_is_acknowledged_late_only_where_nobody_waits_for_it() {
        let strings = |request: Option<&str>, response: Option<&str>| {
            HealthCheckSpec::tcp(TcpSpec {
                request: request.map(Into::into),
                response: response.map(Into::into),
                matching: None,
            })
        };
        let tencent = HealthCheckSpec {
            profile: Some(Profile::TencentAlb),
            ..HealthCheckSpec::of(Kind::Tcp)
        };
        let fin = HealthCheckSpec {
            close: Some(Close::Fin),
            ..HealthCheckSpec::of(Kind::Tcp)
        };
        for (what, spec, late) in [
            ("TCP without strings", strings(None, None), true),
            ("under TENCENT_ALB", tencent, false),
            ("left by FIN", fin, false),
            ("we speak first", strings(Some("PING"), Some("PONG")), true),
            ("the peer speaks first", strings(None, Some("220")), false),
            ("HTTP", HealthCheckSpec::of(Kind::Http), true),
            ("SSL", HealthCheckSpec::of(Kind::Ssl), true),
        ] {
            let check = Arc::new(HealthCheck::new(spec).unwrap());
            let address = "192.0.2.1:80".parse().unwrap();
            let names = Names::new(&check, None, address);
            let target = Target {
                key: StateKey::new(address, &names, &check),
                address,
                names,
                check,
                seed: Tally::new(),
                pulse: Arc::new(Pulse::default()),
            };
            assert_eq!(may_acknowledge_late(&target), late, "{what}");
        }
    }
}
