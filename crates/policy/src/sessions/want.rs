//! What a session asks of its worker, and what a worker is.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A program's version, as far as client and worker must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl Version {
    /// Reads `1.62`, `1.62.1`, `v1.62.0-beta`: what follows the second number does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim_start_matches('v').splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some(Version { major, minor: minor[..digits].parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Version::parse(&text).ok_or_else(|| format!("{text:?} is not a version such as 1.62"))
    }
}

/// What a worker is beside its kind. Workers of one shape are the same to every session.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// What can be asked of it.
    pub labels: BTreeSet<String>,
    /// Its program's version, if clients must match it.
    pub version: Option<Version>,
}

/// What a session asks of a worker beside its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Want {
    /// Labels the worker must have, all of them.
    pub labels: BTreeSet<String>,
    /// The client's own version; a worker that says nothing about its version fits any.
    pub version: Option<Version>,
}

impl Want {
    /// Whether a worker of this shape will do.
    pub fn fits(&self, shape: &Shape) -> bool {
        let version = match (self.version, shape.version) {
            (Some(client), Some(worker)) => client == worker,
            _ => true,
        };
        version && self.labels.is_subset(&shape.labels)
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for label in &self.labels {
            write!(f, "{before}label {label}")?;
            before = ", ";
        }
        match self.version {
            Some(version) => write!(f, "{before}version {version}"),
            None if self.labels.is_empty() => f.write_str("anything"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|&label| label.to_owned()).collect()
    }

    #[test]
    fn a_version_is_its_first_two_numbers() {
        let version = |text| Version::parse(text).map(|version| version.to_string());
        for (text, read) in [("1.62", "1.62"), ("1.62.1", "1.62"), ("v1.65.0-beta", "1.65")] {
            assert_eq!(version(text).as_deref(), Some(read), "{text}");
        }
        assert_eq!(version("1.62-alpha").as_deref(), Some("1.62"));
        for text in ["", "1", "one.two", "1.", ".1"] {
            assert_eq!(version(text), None, "{text}");
        }
    }

    #[test]
    fn a_worker_fits_if_it_has_every_label_and_no_other_version() {
        let newer = Version::parse("1.65");
        let shape = Shape { labels: labels(&["eu", "gpu"]), version: Version::parse("1.62.1") };
        let want = |of: &[&str], version| Want { labels: labels(of), version };
        assert!(want(&[], None).fits(&shape));
        assert!(want(&["eu"], Version::parse("1.62.9")).fits(&shape));
        assert!(!want(&["eu", "us"], None).fits(&shape));
        assert!(!want(&[], newer).fits(&shape));
        assert!(want(&[], newer).fits(&Shape { version: None, ..shape }));
    }

    #[test]
    fn a_want_reads_as_words() {
        assert_eq!(Want::default().to_string(), "anything");
        let want = Want { labels: labels(&["eu", "gpu"]), version: Version::parse("1.62") };
        assert_eq!(want.to_string(), "label eu, label gpu, version 1.62");
    }
}
