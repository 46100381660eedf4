//! A scenario's own piece of 127.0.0.0/8, and its turn on the machine.
//!
//! Out: addresses `127.A.B.x` that no other scenario of any test run on this machine uses at the same time (A comes from the
//! process, B from a counter). So ports can be fixed, a closed port stays closed, and nothing collides.
//!
//! Scenarios run side by side, except those that measure detection against the promise of the check: they run alone.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static NEXT: AtomicU8 = AtomicU8::new(1);
static STAGE: RwLock<()> = RwLock::new(());

/// A /24 of loopback addresses.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    a: u8,
    b: u8,
}

impl Net {
    /// The next free one.
    #[must_use]
    pub fn new() -> Self {
        let a = u8::try_from(64 + std::process::id() % 128).expect("below 192");
        Self {
            a,
            b: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Address number `n`; 1 is the control plane's and Envoy's, backends begin at 11.
    #[must_use]
    pub fn host(self, n: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, n)
    }
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

/// A scenario's turn on the machine; held until it is dropped.
#[derive(Debug)]
#[must_use]
pub enum Turn {
    /// Beside others.
    Shared(#[allow(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    /// With nobody else.
    Alone(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Waits for a turn beside others.
    pub fn shared() -> Self {
        Self::Shared(STAGE.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until nobody else runs.
    pub fn alone() -> Self {
        Self::Alone(STAGE.write().unwrap_or_else(PoisonError::into_inner))
    }
}
