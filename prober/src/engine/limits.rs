//! File descriptors: how many this process may have, and how many of them probes may use.
//!
//! In: the system's limit. Out: the limit after raising it, and the in-flight cap that leaves room for serving. Not
//! here: what happens when they run out all the same (`probe`: INCONCLUSIVE, semantics P16).

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// The least number of descriptors that are left for everything but probes.
const RESERVE: u64 = 256;

/// The most probes in flight that are of use: 100,000 endpoints that are all silent.
const CAP: u64 = 131_072;

/// Raises the soft limit of file descriptors to the hard one, and returns what it is now.
///
/// # Errors
/// When the system refuses.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current.unwrap_or(u64::MAX))
}

/// The in-flight cap for a limit of file descriptors: three quarters of it, leaving at least 256 of them for serving
/// where there are that many.
#[must_use]
pub fn in_flight_cap(descriptors: u64) -> usize {
    let reserve = (descriptors / 4).max(RESERVE.min(descriptors / 2));
    usize::try_from((descriptors - reserve).clamp(1, CAP)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_leaves_room_for_serving() {
        for (descriptors, cap) in [
            (0, 1),
            (64, 32),
            (256, 128),
            (1_024, 768),
            (20_000, 15_000),
            (1_048_576, 131_072),
            (u64::MAX, 131_072),
        ] {
            assert_eq!(in_flight_cap(descriptors), cap, "{descriptors}");
        }
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_descriptor_limit().unwrap();
        assert_eq!(raised, raise_descriptor_limit().unwrap());
        assert!(raised > 0);
    }
}
