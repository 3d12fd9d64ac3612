//! Makes inputs that are nearly right, from a seed.

use skep_policy::{Chance, SeededChance};

/// Pieces that readers stumble over.
const ODD: [&[u8]; 24] = [
    b"\0",
    b"\r\n",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"\\u0000",
    b"\\ud800",
    b"\"",
    b"{",
    b"[[[[[[[[[[[[[[[[",
    b"}",
    b",",
    b":",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"9223372036854775807",
    b"0x7fffffff",
    b"%00",
    b"../",
    b"null",
    b" ",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f",
];

/// Makes new inputs of good ones. The same seed makes the same.
pub struct Mutator {
    chance: SeededChance,
}

impl Mutator {
    /// One that begins with this seed.
    pub fn new(seed: u64) -> Self {
        Mutator { chance: SeededChance::new(seed) }
    }

    /// One of the good inputs, changed in up to four places: cut, doubled, flipped, mixed with
    /// another one, or with something odd in it.
    ///
    /// # Panics
    /// If there are no good ones.
    pub fn next(&mut self, good: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.pick(good).to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(8)).min(bytes.len());
            match self.below(8) {
                0 => drop(bytes.drain(at..end)),
                1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                3 => bytes.truncate(at),
                4 => {
                    let copy = bytes[at..(at + self.below(64)).min(bytes.len())].to_vec();
                    let times = 1 + self.below(16);
                    bytes.splice(at..at, copy.repeat(times));
                }
                5 => {
                    let other = self.pick(good);
                    let from = self.below(other.len() + 1);
                    bytes.splice(at..end, other[from..].iter().copied());
                }
                _ => {
                    let odd = self.pick(&ODD);
                    bytes.splice(at..end, odd.iter().copied());
                }
            }
        }
        bytes
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }

    fn below(&mut self, end: usize) -> usize {
        (self.chance.bits() % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_again_and_another_seed_others() {
        let made = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..50).map(|_| mutator.next(&[b"one", b"another"])).collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        assert!(made(7).iter().any(|bytes| bytes != b"one" && bytes != b"another"));
    }
}
