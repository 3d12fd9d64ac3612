//! What is wrong with a value that somebody set.

use std::fmt;

/// A value that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Which.
    pub field: &'static str,
    /// What it is.
    pub value: String,
    /// What would be right.
    pub right: &'static str,
}

impl Flaw {
    /// The flaw of this field's value.
    pub fn new(field: &'static str, value: impl fmt::Display, right: &'static str) -> Self {
        Flaw { field, value: value.to_string(), right }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; {}", self.field, self.value, self.right)
    }
}

impl std::error::Error for Flaw {}

/// The flaw of this field's value, unless it fits.
pub(crate) fn require(
    fits: bool,
    field: &'static str,
    value: impl fmt::Display,
    right: &'static str,
) -> Result<(), Flaw> {
    if fits { Ok(()) } else { Err(Flaw::new(field, value, right)) }
}
