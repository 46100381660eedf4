//! Whose fault an error is (semantics P16).
//!
//! In: an error of a socket call, and whether the call itself refused or the network delivered it later. Out: result,
//! reason code, and a sentence.
//!
//! The line: what `socket()` or `connect()` itself returns for want of descriptors, ports, memory, permission or a
//! route is ours, and INCONCLUSIVE. What the network delivers later is about the endpoint, even where the errno is the
//! same (ENETUNREACH). Refused and unreachable are TIMEOUT, "not reached"; a reset after the connect is FAIL.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::Finding;
use crate::outcome::{ProbeResult, Reason, ReasonCode};

/// `socket()`, `connect()` or the event queue itself returned the error.
pub(super) fn of_call(error: &io::Error) -> (ProbeResult, ReasonCode) {
    use ProbeResult::{Inconclusive, Timeout};
    let Some(errno) = Errno::from_io_error(error) else {
        return (Inconclusive, ReasonCode::LocalError);
    };
    match errno {
        Errno::MFILE | Errno::NFILE => (Inconclusive, ReasonCode::LocalFds),
        // EAGAIN: no entry left in the routing cache or among the automatic ports.
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => {
            (Inconclusive, ReasonCode::LocalPorts)
        }
        Errno::NETUNREACH | Errno::NETDOWN | Errno::AFNOSUPPORT => {
            (Inconclusive, ReasonCode::LocalNoRoute)
        }
        // On the own machine the network is quick enough to answer within the call.
        Errno::CONNREFUSED => (Timeout, ReasonCode::ConnectRefused),
        Errno::HOSTUNREACH | Errno::HOSTDOWN => (Timeout, ReasonCode::Unreachable),
        Errno::TIMEDOUT => (Timeout, ReasonCode::ConnectTimeout),
        Errno::CONNRESET => (Timeout, ReasonCode::ConnectFailed),
        // ENOBUFS, ENOMEM, EACCES, EPERM, EINVAL and whatever else: nothing has left this machine.
        _ => (Inconclusive, ReasonCode::LocalError),
    }
}

/// The sentence for [`of_call`].
pub(super) fn call_text(code: ReasonCode, peer: SocketAddr, error: &io::Error) -> String {
    match code {
        ReasonCode::LocalFds => format!(
            "this prober has no file descriptor left to probe {peer} ({error}); raise its limit (LimitNOFILE)"
        ),
        ReasonCode::LocalPorts => {
            format!("this prober has no local port left to probe {peer} ({error})")
        }
        ReasonCode::LocalNoRoute => {
            format!("this prober's machine has no route to {peer} ({error})")
        }
        ReasonCode::LocalError => {
            format!("this prober's machine did not let it probe {peer} ({error})")
        }
        _ => network_text(code, peer, error),
    }
}

/// The network delivered the error, before or after the connection was open.
pub(super) fn delivered(error: &io::Error, peer: SocketAddr, connected: bool) -> Finding {
    use ProbeResult::{Fail, Inconclusive, Timeout};
    let (result, code) = match Errno::from_io_error(error) {
        // Memory is ours at any time.
        Some(Errno::NOBUFS | Errno::NOMEM) => (Inconclusive, ReasonCode::LocalError),
        // P9, P16: even before we saw the connection open, only an open one can be reset.
        Some(Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED) => (Fail, ReasonCode::PeerReset),
        Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN) => {
            (Timeout, ReasonCode::Unreachable)
        }
        Some(Errno::TIMEDOUT) if connected => (Timeout, ReasonCode::ResponseTimeout),
        Some(Errno::TIMEDOUT) => (Timeout, ReasonCode::ConnectTimeout),
        Some(Errno::CONNREFUSED) if !connected => (Timeout, ReasonCode::ConnectRefused),
        _ if connected => (Fail, ReasonCode::PeerReset),
        _ => (Timeout, ReasonCode::ConnectFailed),
    };
    let text = if code == ReasonCode::LocalError {
        call_text(code, peer, error)
    } else {
        network_text(code, peer, error)
    };
    (result, Reason::new(code, text))
}

fn network_text(code: ReasonCode, peer: SocketAddr, error: &io::Error) -> String {
    match code {
        ReasonCode::ConnectRefused => format!(
            "{peer} refused the connection: nothing listens there, or a firewall rejects it"
        ),
        ReasonCode::Unreachable => {
            format!("the network says that {peer} cannot be reached ({error})")
        }
        ReasonCode::PeerReset => {
            format!("{peer} reset the connection before it had answered ({error})")
        }
        ReasonCode::ConnectTimeout => format!("{peer} did not answer the connect ({error})"),
        ReasonCode::ResponseTimeout => {
            format!("{peer} stopped answering after the connect ({error})")
        }
        _ => format!("the connection to {peer} failed ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[test]
    fn p16_what_the_call_itself_returns_for_our_own_wants_is_inconclusive() {
        for (errno, code) in [
            (Errno::MFILE, ReasonCode::LocalFds),
            (Errno::NFILE, ReasonCode::LocalFds),
            (Errno::ADDRNOTAVAIL, ReasonCode::LocalPorts),
            (Errno::NETUNREACH, ReasonCode::LocalNoRoute),
            (Errno::AFNOSUPPORT, ReasonCode::LocalNoRoute),
            (Errno::NOBUFS, ReasonCode::LocalError),
            (Errno::NOMEM, ReasonCode::LocalError),
            (Errno::ACCESS, ReasonCode::LocalError),
            (Errno::PERM, ReasonCode::LocalError),
        ] {
            assert_eq!(
                of_call(&raw(errno)),
                (ProbeResult::Inconclusive, code),
                "{errno}"
            );
        }
        for (errno, code) in [
            (Errno::CONNREFUSED, ReasonCode::ConnectRefused),
            (Errno::HOSTUNREACH, ReasonCode::Unreachable),
        ] {
            assert_eq!(of_call(&raw(errno)), (ProbeResult::Timeout, code));
        }
    }

    #[test]
    fn p16_what_the_network_delivers_is_never_inconclusive() {
        let peer: SocketAddr = "192.0.2.1:80".parse().unwrap();
        for (errno, connected, result, code) in [
            (
                Errno::CONNREFUSED,
                false,
                ProbeResult::Timeout,
                ReasonCode::ConnectRefused,
            ),
            (
                Errno::HOSTUNREACH,
                false,
                ProbeResult::Timeout,
                ReasonCode::Unreachable,
            ),
            (
                Errno::NETUNREACH,
                false,
                ProbeResult::Timeout,
                ReasonCode::Unreachable,
            ),
            (
                Errno::TIMEDOUT,
                false,
                ProbeResult::Timeout,
                ReasonCode::ConnectTimeout,
            ),
            (
                Errno::PROTO,
                false,
                ProbeResult::Timeout,
                ReasonCode::ConnectFailed,
            ),
            (
                Errno::CONNRESET,
                false,
                ProbeResult::Fail,
                ReasonCode::PeerReset,
            ),
            (
                Errno::CONNRESET,
                true,
                ProbeResult::Fail,
                ReasonCode::PeerReset,
            ),
            (Errno::PIPE, true, ProbeResult::Fail, ReasonCode::PeerReset),
            (
                Errno::HOSTUNREACH,
                true,
                ProbeResult::Timeout,
                ReasonCode::Unreachable,
            ),
        ] {
            let (seen, reason) = delivered(&raw(errno), peer, connected);
            assert_eq!((seen, reason.code), (result, code), "{errno}: {reason}");
            assert!(reason.text.contains("192.0.2.1:80"), "{reason}");
        }
    }

    #[test]
    fn a_refused_connect_says_so() {
        let peer: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        let (_, reason) = delivered(&raw(Errno::CONNREFUSED), peer, false);
        assert_eq!(
            reason.text,
            "[2001:db8::1]:80 refused the connection: nothing listens there, or a firewall rejects it"
        );
    }
}
