//! Rules about headers, some of which hold secrets.

use super::Flaw;
use super::limits::{HEADER_NAME_BYTES_MAX, HEADER_RULES_MAX, HEADER_VALUE_BYTES_MAX};
use serde::Serialize;
use serde_json::Value;
use skep_policy::secrets::{HIDDEN, is_secret};
use std::collections::{BTreeMap, BTreeSet};

/// Headers that say how a message is framed or which connection it is on. A rule about one could
/// make two servers disagree about where a message ends.
const UNTOUCHABLE: &[&str] = &[
    "connection",
    "transfer-encoding",
    "content-length",
    "host",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
    "proxy-connection",
];

/// What is done to the headers of requests and of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeaderRules {
    /// On the way to an upstream.
    pub request: HeaderEdits,
    /// On the way to the client.
    pub response: HeaderEdits,
}

/// What is done to the headers of a message: first those to remove are removed, then those to set
/// replace whatever has their name, then those to add are added. `Debug` shows no secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct HeaderEdits {
    /// Put in place of every header of that name.
    pub set: BTreeMap<String, String>,
    /// Put beside those of that name.
    pub add: BTreeMap<String, String>,
    /// Taken out.
    pub remove: Vec<String>,
}

impl std::fmt::Debug for HeaderEdits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HeaderEdits { set, add, remove } = self.redacted();
        let mut shown = f.debug_struct("HeaderEdits");
        shown.field("set", &set).field("add", &add).field("remove", &remove).finish()
    }
}

impl HeaderRules {
    /// The same with `***` for every secret.
    pub fn redacted(&self) -> HeaderRules {
        HeaderRules { request: self.request.redacted(), response: self.response.redacted() }
    }
}

impl HeaderEdits {
    /// How many rules these are.
    pub fn count(&self) -> usize {
        self.set.len() + self.add.len() + self.remove.len()
    }

    fn redacted(&self) -> HeaderEdits {
        let shown = |(name, value): (&String, &String)| {
            let value = if is_secret(name) { HIDDEN } else { value };
            (name.clone(), value.to_owned())
        };
        HeaderEdits {
            set: self.set.iter().map(shown).collect(),
            add: self.add.iter().map(shown).collect(),
            remove: self.remove.clone(),
        }
    }

    pub(super) fn validate(&self, field: &str, flaws: &mut Vec<Flaw>) {
        if self.count() > HEADER_RULES_MAX {
            let right = format!("give at most {HEADER_RULES_MAX}");
            flaws.push(Flaw::at(field, format!("has {} rules", self.count()), right));
            return;
        }
        for (kind, map) in [("set", &self.set), ("add", &self.add)] {
            let mut seen = BTreeSet::new();
            for (name, value) in map {
                let place = format!("{field}.{kind}.{name}");
                let twice = !seen.insert(name.to_ascii_lowercase());
                if let Some(flaw) = flaw_of_name(&place, name, None) {
                    flaws.push(flaw);
                } else if twice {
                    let right = "give it once; upper and lower case are the same";
                    flaws.push(Flaw::at(&place, "is there twice", right));
                } else {
                    flaws.extend(flaw_of_value(&place, name, value));
                }
            }
        }
        for (position, name) in self.remove.iter().enumerate() {
            let place = format!("{field}.remove[{position}]");
            flaws.extend(flaw_of_name(&place, name, Some(name)));
        }
    }
}

/// What is wrong with a header's name; `shown` is what to repeat where the place does not.
fn flaw_of_name(place: &str, name: &str, shown: Option<&str>) -> Option<Flaw> {
    let (wrong, right) = if !is_token(name) || name.len() > HEADER_NAME_BYTES_MAX {
        let right = format!(
            "give letters, digits and hyphens, at most {HEADER_NAME_BYTES_MAX} of them, \
             such as \"x-team\""
        );
        ("is not the name of a header", right)
    } else if name.eq_ignore_ascii_case("host") {
        ("is set in another way", "use host_header".to_owned())
    } else if UNTOUCHABLE.iter().any(|one| name.eq_ignore_ascii_case(one)) {
        let right = "leave it out; the proxy needs it to tell messages apart".to_owned();
        ("must not be touched", right)
    } else {
        return None;
    };
    Some(match shown {
        Some(name) => Flaw::with(place, &Value::from(name), right).wrong(wrong),
        None => Flaw::at(place, wrong, right),
    })
}

fn flaw_of_value(place: &str, name: &str, value: &str) -> Option<Flaw> {
    let fine = |byte: u8| byte == b'\t' || (byte >= b' ' && byte != 0x7f);
    let right = if value.len() > HEADER_VALUE_BYTES_MAX {
        format!("give at most {HEADER_VALUE_BYTES_MAX} bytes")
    } else if !value.bytes().all(fine) {
        "give a text without line breaks and other control characters".to_owned()
    } else if value != value.trim_matches([' ', '\t']) {
        "give a text without blanks at its ends".to_owned()
    } else if is_secret(name) && value == HIDDEN {
        "give the value itself; this is what stands for it where it is shown".to_owned()
    } else {
        return None;
    };
    Some(match is_secret(name) {
        true => Flaw::at(place, "has a value that is not allowed", right),
        false => Flaw::with(place, &Value::from(value), right),
    })
}

/// Whether this can be the name of a header.
pub(super) fn is_token(name: &str) -> bool {
    let of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(of_token)
}
