//! The demo's addresses: those of `deploy/quickstart/`, or all of them a little higher when somebody has one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Result, bail};

/// So many steps upwards are tried.
const STEPS: u16 = 50;

/// How far the demo's ports are above the quickstart's.
#[derive(Clone, Copy)]
pub(super) struct Ports(u16);

impl Ports {
    /// The first step at which everything is free.
    pub(super) fn free() -> Result<Self> {
        let mut taken = Vec::new();
        for step in (0..STEPS).map(Self) {
            match step
                .all()
                .into_iter()
                .find(|at| TcpListener::bind(at).is_err())
            {
                None => return Ok(step),
                Some(address) => taken.push(address.to_string()),
            }
        }
        bail!(
            "the demo finds no free ports; taken are {}",
            taken.join(", ")
        )
    }

    /// Whether they are the quickstart's own.
    pub(super) fn are_the_quickstarts(self) -> bool {
        self.0 == 0
    }

    /// The backends.
    pub(super) fn backends(self) -> [SocketAddr; 3] {
        [11, 12, 13].map(|host| SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), self.backend())))
    }

    /// The backends' port.
    pub(super) fn backend(self) -> u16 {
        8080 + self.0
    }

    /// Envoy's listener.
    pub(super) fn listener(self) -> SocketAddr {
        self.local(10_000)
    }

    /// Where vitals serves xDS.
    pub(super) fn xds(self) -> SocketAddr {
        self.local(18_000)
    }

    /// Vitals' admin API; far enough from the xDS port for every step.
    pub(super) fn admin(self) -> SocketAddr {
        if self.are_the_quickstarts() {
            self.local(18_001)
        } else {
            self.local(18_100)
        }
    }

    /// Envoy's admin page.
    pub(super) fn envoy_admin(self) -> SocketAddr {
        self.local(9901)
    }

    /// The quickstart's configuration with these ports.
    pub(super) fn apply(self, config: &str) -> String {
        config
            .replace("port: 8080", &format!("port: {}", self.backend()))
            .replace("port: 10000", &format!("port: {}", self.listener().port()))
    }

    fn all(self) -> Vec<SocketAddr> {
        let mut all = self.backends().to_vec();
        all.extend([
            self.listener(),
            self.xds(),
            self.admin(),
            self.envoy_admin(),
        ]);
        all
    }

    fn local(self, port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port + self.0))
    }
}
