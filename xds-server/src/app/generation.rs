//! The word that tells this start of the server from all others, here and on every replica.
//!
//! In: the time, the process, chance. Out: six letters and digits. It stands in the paths of endpoints that stand apart
//! (`resources::leds`), and with every change of an endpoint goes to every stream, so it is short: 30 bits.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

/// Digits and letters, without those that are easily taken for another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The word of this start.
pub(super) fn generation(now: SystemTime) -> Arc<str> {
    // RandomState is seeded by the system.
    let number = RandomState::new().hash_one((now, std::process::id()));
    word(number).into()
}

fn word(number: u64) -> String {
    let digit = |place: u32| {
        let digit = (number >> (5 * place)) % 32;
        usize::try_from(digit).ok().and_then(|at| ALPHABET.get(at))
    };
    (0..6)
        .filter_map(digit)
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_a_word_and_no_two_are_alike() {
        let now = SystemTime::UNIX_EPOCH;
        let (one, other) = (generation(now), generation(now));
        assert_eq!(one.len(), 6);
        assert!(one.bytes().all(|byte| ALPHABET.contains(&byte)));
        assert_ne!(one, other);
        assert_eq!(word(0b00001_00000_11111), "z01000");
    }
}
