//! Headers to send, some of which are secret.

use skep_policy::secrets::{HIDDEN, is_secret};
use std::collections::BTreeMap;

/// Headers as they were written. Their `Debug` shows no secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(super) BTreeMap<String, String>);

impl Headers {
    /// The headers with their values, secret ones too.
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The same with `***` for every secret.
    pub fn redacted(&self) -> Headers {
        let shown = |(name, value): (&String, &String)| {
            let value = if is_secret(name) { HIDDEN } else { value };
            (name.clone(), value.to_owned())
        };
        Headers(self.0.iter().map(shown).collect())
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.redacted().0.fmt(f)
    }
}
