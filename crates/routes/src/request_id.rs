//! Ids of requests: those of the client if they are sound, else our own.

use std::cell::Cell;

/// An id that a client gave itself may be this long.
const GIVEN_MAX: usize = 128;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

thread_local! {
    static STATE: Cell<u64> = Cell::new(seed());
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness ids repeat after a restart, which only makes a log harder to read.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Whether an id of a client can be kept: it goes to logs and to others.
pub(crate) fn is_sound(given: &[u8]) -> bool {
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=".contains(byte);
    (1..=GIVEN_MAX).contains(&given.len()) && given.iter().all(legal)
}

/// A new one. They do not repeat, and tell nothing.
pub(crate) fn fresh() -> Box<str> {
    // A generator of full period (Weyl sequence and a mixing step), one a thread.
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let digit = |place: u32| char::from(DIGITS[(mixed >> (4 * place)) as usize & 15]);
    (0..16).map(digit).collect::<String>().into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sound_and_differ() {
        let ids: std::collections::HashSet<_> = (0..1_000).map(|_| fresh()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 16 && is_sound(id.as_bytes())));
        assert!(!is_sound(b"") && !is_sound(b"a b") && !is_sound(b"a\r\nb"));
        assert!(!is_sound("x".repeat(129).as_bytes()));
    }
}
