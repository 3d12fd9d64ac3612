//! What a setting can hold, and how it is written.

use skep_policy::Name;
use skep_store::{CoordinationUrl, DatabaseUrl};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A kind of value. Every layer gives text, so file, environment and flags mean the same thing.
pub trait Value: Sized {
    /// Whether the text may hold a password and must not be repeated in a message.
    const SECRET: bool = false;

    /// What would be right, to end "it must be …".
    fn expected() -> String;

    /// Reads the text; the error says what is wrong with it, and may be empty if
    /// [`Value::expected`] says it all.
    fn parse(text: &str) -> Result<Self, String>;

    /// Writes the value as it could be typed, without secrets.
    fn show(&self) -> String;
}

/// A number of bytes, written as `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Which log lines are written, in the form `info` or `info,skep_store=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel(String);

impl LogLevel {
    /// The filter that this level stands for.
    pub fn filter(&self) -> tracing_subscriber::EnvFilter {
        tracing_subscriber::EnvFilter::new(&self.0)
    }
}

/// Origins of pages, such as `https://ops.example`, or `*` for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub Vec<String>);

impl Value for Origins {
    fn expected() -> String {
        "origins such as https://ops.example, separated by commas, or *".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut origins = Vec::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let host = one.strip_prefix("https://").or_else(|| one.strip_prefix("http://"));
            if one != "*" && host.is_none_or(|host| host.is_empty() || host.contains('/')) {
                return Err(format!("{one:?} is not an origin"));
            }
            origins.push(one.to_owned());
        }
        Ok(Origins(origins))
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// Web addresses, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls(pub Vec<String>);

impl Value for Urls {
    // An address may carry a token.
    const SECRET: bool = true;

    fn expected() -> String {
        "addresses such as https://hooks.example/skep, separated by commas".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut urls = Vec::new();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let uri: hyper::Uri =
                one.parse().map_err(|_| "one of them is no address".to_owned())?;
            if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
                return Err("one of them does not start with http:// or https://".to_owned());
            }
            urls.push(one.to_owned());
        }
        Ok(Urls(urls))
    }

    fn show(&self) -> String {
        let host = |url: &String| {
            let uri: Option<hyper::Uri> = url.parse().ok();
            let uri = uri.unwrap_or_default();
            format!("{}://{}/…", uri.scheme_str().unwrap_or(""), uri.host().unwrap_or(""))
        };
        self.0.iter().map(host).collect::<Vec<_>>().join(",")
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Value for Secret {
    const SECRET: bool = true;

    fn expected() -> String {
        "a text of at least 16 characters".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let long_enough = text.chars().count() >= 16;
        if long_enough { Ok(Secret(text.to_owned())) } else { Err("it is too short".to_owned()) }
    }

    fn show(&self) -> String {
        "(set)".to_owned()
    }
}

impl Value for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for usize {
    fn expected() -> String {
        "a whole number".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.replace('_', "").parse().map_err(|_| String::new())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    fn expected() -> String {
        "a duration such as 250ms, 30s, 5m or 1h30m".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.parse::<f64>().is_ok() {
            return Err("it has no unit".to_owned());
        }
        let span: jiff::SignedDuration = text.parse().map_err(|_| String::new())?;
        span.try_into().map_err(|_| "it is negative".to_owned())
    }

    fn show(&self) -> String {
        match jiff::SignedDuration::try_from(*self) {
            Ok(span) => format!("{span:#}").replace(' ', ""),
            Err(_) => format!("{}s", self.as_secs()),
        }
    }
}

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Value for ByteSize {
    fn expected() -> String {
        "a size such as 512KiB, 64MiB or 2GiB".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim_start());
        let number: u64 = number.parse().map_err(|_| String::new())?;
        if unit.is_empty() {
            return Err("it has no unit".to_owned());
        }
        let (_, bytes) = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .ok_or_else(|| format!("{unit:?} is not a unit"))?;
        number.checked_mul(*bytes).map(ByteSize).ok_or_else(|| "it is too large".to_owned())
    }

    fn show(&self) -> String {
        let binary = UNITS[..4].iter().rev().find(|(_, bytes)| self.0 >= *bytes);
        match binary {
            Some((unit, bytes)) if self.0.is_multiple_of(*bytes) => {
                format!("{}{unit}", self.0 / bytes)
            }
            _ => format!("{}B", self.0),
        }
    }
}

impl Value for SocketAddr {
    fn expected() -> String {
        "an address and port such as 127.0.0.1:6632, [::1]:6632 or 0.0.0.0:6632".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix("localhost:") {
            return Self::parse(&format!("127.0.0.1:{port}"));
        }
        text.parse().map_err(|_| String::new())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    fn expected() -> String {
        "a path".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Name {
    fn expected() -> String {
        "a name of letters, digits, '.', '_' and '-'".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: skep_policy::BadName| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A setting that may be left out; an empty text leaves it out.
impl<T: Value> Value for Option<T> {
    const SECRET: bool = T::SECRET;

    fn expected() -> String {
        T::expected()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

impl Value for DatabaseUrl {
    const SECRET: bool = true;

    fn expected() -> String {
        "`embedded` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: skep_store::BadUrl| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for CoordinationUrl {
    const SECRET: bool = true;

    fn expected() -> String {
        "`database` or `redis://USER:PASSWORD@HOST:PORT/NUMBER`".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: skep_store::BadUrl| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for LogFormat {
    fn expected() -> String {
        "text or json".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        match self {
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        }
    }
}

impl Value for LogLevel {
    fn expected() -> String {
        "error, warn, info, debug, trace or off, also per module: info,skep_store=debug".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The filter takes any word for a module's name, so a mistyped level would log nothing.
        for part in text.split(',') {
            let level = part.rsplit('=').next().unwrap_or(part).trim();
            let unknown = level.parse::<tracing_subscriber::filter::LevelFilter>().is_err();
            if level.is_empty() || unknown {
                return Err(format!("{level:?} is not a level"));
            }
        }
        tracing_subscriber::EnvFilter::try_new(text)
            .map(|_| LogLevel(text.to_owned()))
            .map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_need_a_unit() {
        let parse = <Duration as Value>::parse;
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse("30"), Err("it has no unit".to_owned()));
        assert_eq!(parse("-3s"), Err("it is negative".to_owned()));
        assert!(parse("soon").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn sizes_need_a_unit_and_know_both_kinds() {
        let parse = <ByteSize as Value>::parse;
        assert_eq!(parse("64MiB"), Ok(ByteSize(67_108_864)));
        assert_eq!(parse("64 mib"), Ok(ByteSize(67_108_864)));
        assert_eq!(parse("64MB"), Ok(ByteSize(64_000_000)));
        assert_eq!(parse("64"), Err("it has no unit".to_owned()));
        assert_eq!(parse("64 potatoes"), Err("\"potatoes\" is not a unit".to_owned()));
        assert_eq!(parse("99999999999TiB"), Err("it is too large".to_owned()));
        assert!(parse("MiB").is_err());
    }

    #[test]
    fn a_mistyped_log_level_is_not_taken_for_a_module() {
        assert!(LogLevel::parse("info,skep_store=debug").is_ok());
        assert!(LogLevel::parse("off").is_ok());
        assert!(LogLevel::parse("inof").is_err());
        assert!(LogLevel::parse("").is_err());
    }

    proptest! {
        #[test]
        fn a_shown_size_reads_back(bytes: u64) {
            prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).show()), Ok(ByteSize(bytes)));
        }

        #[test]
        fn a_shown_duration_reads_back(millis in 0_u64..1 << 40) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(<Duration as Value>::parse(&span.show()), Ok(span));
        }
    }
}
