//! Names that people give and ids that Skep gives.

use crate::{Chance, Time};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The longest [`Name`].
pub const NAME_LENGTH_MAX: usize = 128;

/// A name that a person gave to a node, a worker, an endpoint: it goes into URLs, log lines,
/// metric labels and file names as it is, so it holds nothing that needs quoting in any of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// A text that cannot be a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadName {
    /// Nothing was given.
    Empty,
    /// More than [`NAME_LENGTH_MAX`] bytes.
    TooLong(usize),
    /// It starts with this character, which is not an ASCII letter or digit.
    FirstCharacter(char),
    /// It holds this character, which is not an ASCII letter, digit, `.`, `_` or `-`.
    Character(char),
}

impl Name {
    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        if text.len() > NAME_LENGTH_MAX {
            return Err(BadName::TooLong(text.len()));
        }
        let first = text.chars().next().ok_or(BadName::Empty)?;
        if !first.is_ascii_alphanumeric() {
            return Err(BadName::FirstCharacter(first));
        }
        let odd = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        match text.chars().find(odd) {
            Some(character) => Err(BadName::Character(character)),
            None => Ok(Name(text.to_owned())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadName::Empty => f.write_str("it is empty"),
            BadName::TooLong(length) => {
                write!(f, "it has {length} characters, at most {NAME_LENGTH_MAX} are allowed")
            }
            BadName::FirstCharacter(c) => {
                write!(f, "it starts with {c:?}, the first must be a letter or digit")
            }
            BadName::Character(c) => {
                write!(f, "it holds {c:?}, only letters, digits, '.', '_' and '-' are allowed")
            }
        }
    }
}

impl std::error::Error for BadName {}

/// The id under which a decision is kept and explained: `d-` and 20 characters that sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId {
    millis: u64,
    salt: u64,
}

/// Base 32 without the letters that look like digits (i, l, o, u), lowest first, so that the text
/// sorts like the number.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TIME_DIGITS: u32 = 10;
const SALT_DIGITS: u32 = 10;
const DIGIT_BITS: u32 = 5;

impl DecisionId {
    /// An id for a decision made at `now`, told apart from others of that millisecond by chance.
    pub fn new(now: Time, chance: &mut impl Chance) -> Self {
        DecisionId {
            millis: now.as_millis() & mask(TIME_DIGITS),
            salt: chance.bits() & mask(SALT_DIGITS),
        }
    }
}

const fn mask(digits: u32) -> u64 {
    (1 << (digits * DIGIT_BITS)) - 1
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("d-")?;
        for (number, digits) in [(self.millis, TIME_DIGITS), (self.salt, SALT_DIGITS)] {
            for position in (0..digits).rev() {
                let digit = (number >> (position * DIGIT_BITS)) & 31;
                write!(f, "{}", char::from(ALPHABET[digit as usize]))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededChance;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_needs_no_quoting_is_kept_as_it_is() {
        for text in ["a", "node-1", "Host.example_2", &"x".repeat(NAME_LENGTH_MAX)] {
            assert_eq!(text.parse::<Name>().expect(text).as_str(), text);
        }
    }

    #[test]
    fn a_name_that_would_need_quoting_is_refused_with_the_character() {
        assert_eq!("".parse::<Name>(), Err(BadName::Empty));
        assert_eq!("-x".parse::<Name>(), Err(BadName::FirstCharacter('-')));
        assert_eq!("a b".parse::<Name>(), Err(BadName::Character(' ')));
        assert_eq!("a/ü".parse::<Name>(), Err(BadName::Character('/')));
        assert_eq!("x".repeat(129).parse::<Name>(), Err(BadName::TooLong(129)));
    }

    proptest! {
        #[test]
        fn decision_ids_sort_by_time_as_text(first in 0..1_u64 << 43, later in 1..1_000_000_u64) {
            let mut chance = SeededChance::new(first);
            let a = DecisionId::new(Time::from_millis(first), &mut chance);
            let b = DecisionId::new(Time::from_millis(first + later), &mut chance);
            prop_assert!(a.to_string() < b.to_string());
            prop_assert_eq!(a.to_string().len(), 22);
        }
    }
}
