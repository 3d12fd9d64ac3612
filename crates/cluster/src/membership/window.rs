//! Which datagrams of a sender were heard already.

/// Datagrams that may overtake each other without being lost.
pub const WINDOW: u64 = 1_024;

const WORDS: usize = (WINDOW / 64) as usize;

/// The newest [`WINDOW`] sequence numbers of one sender: each is let through once, older ones
/// never.
#[derive(Clone, Debug, Default)]
pub struct Window {
    next: u64,
    seen: [u64; WORDS],
}

/// Whether a number is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Nothing newer was heard.
    Newest,
    /// Something newer was, but this is new too.
    Late,
    /// It was heard before, or is too old to know.
    No,
}

impl Window {
    /// Asks about a number, and remembers it.
    pub fn admit(&mut self, sequence: u64) -> Pass {
        // The last number of all has no next.
        let Some(after) = sequence.checked_add(1) else { return Pass::No };
        if sequence >= self.next {
            if sequence - self.next >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                (self.next..sequence).for_each(|skipped| self.clear(skipped));
            }
            self.next = after;
            self.mark(sequence);
            return Pass::Newest;
        }
        if self.next - sequence > WINDOW || self.is_marked(sequence) {
            return Pass::No;
        }
        self.mark(sequence);
        Pass::Late
    }

    fn mark(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.seen[word] & bit != 0
    }
}

fn place(sequence: u64) -> (usize, u64) {
    let within = sequence % WINDOW;
    ((within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_late_number_passes_once_and_a_very_late_one_never() {
        let mut window = Window::default();
        assert_eq!(window.admit(WINDOW + 5), Pass::Newest);
        assert_eq!(window.admit(7), Pass::Late);
        assert_eq!(window.admit(7), Pass::No);
        assert_eq!(window.admit(6), Pass::Late);
        assert_eq!(window.admit(5), Pass::No);
        assert_eq!(window.admit(WINDOW + 5), Pass::No);
        assert_eq!(window.admit(u64::MAX), Pass::No);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set_of_everything_heard(
            steps in prop::collection::vec((0..3_u64, 0..3_000_u64), 1..300),
        ) {
            let mut window = Window::default();
            let mut heard = BTreeSet::new();
            let mut top = 0_u64;
            for (direction, distance) in steps {
                let sequence = match direction {
                    0 => top + distance % 5,
                    1 => top + distance,
                    _ => top.saturating_sub(distance),
                };
                let expected = match heard.last() {
                    Some(&last) if sequence <= last => {
                        if last - sequence >= WINDOW || heard.contains(&sequence) {
                            Pass::No
                        } else {
                            Pass::Late
                        }
                    }
                    _ => Pass::Newest,
                };
                prop_assert_eq!(window.admit(sequence), expected, "{} after {}", sequence, top);
                heard.insert(sequence);
                top = top.max(sequence);
            }
        }
    }
}
