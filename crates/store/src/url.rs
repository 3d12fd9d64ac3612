//! Where the stores are. What may hold a password prints itself without it.

use redis::IntoConnectionInfo;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use tokio_postgres::config::{Host, SslMode};

/// A text that is no address of a store. It never repeats the text, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadUrl(String);

/// Where lasting data goes.
#[derive(Clone, Default)]
pub enum DatabaseUrl {
    /// SQLite in the data folder.
    #[default]
    Embedded,
    /// A PostgreSQL server.
    Postgres(Box<PostgresUrl>),
}

/// Where nodes agree on what changes fastest.
#[derive(Clone, Default)]
pub enum CoordinationUrl {
    /// In the database, whichever it is.
    #[default]
    Database,
    /// In a Redis server.
    Redis(Box<RedisUrl>),
}

/// A PostgreSQL address, parsed.
#[derive(Clone)]
pub struct PostgresUrl {
    pub(crate) config: tokio_postgres::Config,
    pub(crate) verify: Verify,
    text: String,
}

/// How the server's certificate is checked, in libpq's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// `prefer`, `require`: encrypted, whoever answers.
    Nobody,
    /// `verify-ca`, `verify-full`: against the system's certificates.
    System,
    /// `sslrootcert=FILE`: against the certificates in a file.
    File(PathBuf),
}

/// A Redis address, parsed.
#[derive(Clone)]
pub struct RedisUrl {
    pub(crate) info: redis::ConnectionInfo,
    text: String,
}

impl FromStr for DatabaseUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text == "embedded" {
            return Ok(DatabaseUrl::Embedded);
        }
        if has_scheme(text, &["postgres", "postgresql"]) {
            return text.parse().map(|url| DatabaseUrl::Postgres(Box::new(url)));
        }
        Err(unknown(text, "`embedded` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"))
    }
}

impl FromStr for CoordinationUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text == "database" {
            return Ok(CoordinationUrl::Database);
        }
        if has_scheme(text, &["redis", "rediss"]) {
            return text.parse().map(|url| CoordinationUrl::Redis(Box::new(url)));
        }
        Err(unknown(text, "`database` or `redis://USER:PASSWORD@HOST:PORT/NUMBER`"))
    }
}

impl FromStr for PostgresUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        check_user_part(text)?;
        let (kept, tls) = split_tls(text)?;
        let mut config: tokio_postgres::Config = kept.parse().map_err(|error| {
            BadUrl(format!("not a PostgreSQL address: {}", crate::error::chain(&error)))
        })?;
        if config.get_hosts().is_empty() {
            return Err(BadUrl("a PostgreSQL address without a host".to_owned()));
        }
        if let Some(mode) = tls.mode {
            config.ssl_mode(mode);
        }
        if tls.verify != Verify::Nobody && config.get_ssl_mode() != SslMode::Require {
            return Err(BadUrl(
                "sslrootcert without sslmode=require or verify-full checks nothing".to_owned(),
            ));
        }
        let text = describe(&config);
        Ok(PostgresUrl { config, verify: tls.verify, text })
    }
}

/// The part of the query that libpq understands and the driver does not.
struct Tls {
    mode: Option<SslMode>,
    verify: Verify,
}

fn split_tls(text: &str) -> Result<(String, Tls), BadUrl> {
    let mut tls = Tls { mode: None, verify: Verify::Nobody };
    let Some((base, query)) = text.split_once('?') else {
        return Ok((text.to_owned(), tls));
    };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", "verify-ca" | "verify-full")) => {
                tls.mode = Some(SslMode::Require);
                if tls.verify == Verify::Nobody {
                    tls.verify = Verify::System;
                }
            }
            Some(("sslmode", mode)) => {
                tls.mode = Some(match mode {
                    "disable" => SslMode::Disable,
                    "prefer" => SslMode::Prefer,
                    "require" => SslMode::Require,
                    _ => {
                        return Err(BadUrl(
                            "sslmode is not one of disable, prefer, require, verify-ca, verify-full"
                                .to_owned(),
                        ));
                    }
                });
            }
            Some(("sslrootcert", path)) => {
                tls.verify = if path == "system" { Verify::System } else { file(path)? };
            }
            _ => kept.push(pair),
        }
    }
    let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
    Ok((format!("{base}{query}"), tls))
}

fn file(encoded: &str) -> Result<Verify, BadUrl> {
    let bad = || BadUrl("sslrootcert is not a percent-encoded path".to_owned());
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map(|path| Verify::File(path.into())).map_err(|_| bad())
}

/// Refuses a password with characters that end it too early: what the driver would then take for
/// the host, and everybody would show, is the rest of the password.
fn check_user_part(text: &str) -> Result<(), BadUrl> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if rest.matches('@').count() > 1 || rest.find('@').is_some_and(|at| at > end) {
        return Err(BadUrl(
            "a character of the password must be written as %XX: `@` is %40, `/` is %2F, `?` is \
             %3F, `#` is %23"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The address without its password and without its query, which can hold one too.
fn describe(config: &tokio_postgres::Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(position, host)| {
            let ports = config.get_ports();
            let port = ports.get(position).or_else(|| ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    let database = config.get_dbname().map(|name| format!("/{name}")).unwrap_or_default();
    format!("postgres://{user}{}{database}", hosts.join(","))
}

impl FromStr for RedisUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        check_user_part(text)?;
        let info = text.into_connection_info().map_err(|error| {
            BadUrl(format!(
                "not a Redis address: {}",
                error.detail().unwrap_or("it cannot be read")
            ))
        })?;
        let scheme = text.split_once("://").map_or("redis", |(scheme, _)| scheme);
        let text = format!("{scheme}://{}/{}", info.addr(), info.redis_settings().db());
        Ok(RedisUrl { info, text })
    }
}

fn has_scheme(text: &str, schemes: &[&str]) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| schemes.contains(&scheme))
}

/// Names the scheme at most: the rest may be a password with its address around it.
fn unknown(text: &str, expected: &str) -> BadUrl {
    match text.split_once("://") {
        Some((scheme, _)) => {
            BadUrl(format!("`{scheme}://…` is not supported, it must be {expected}"))
        }
        None => BadUrl(format!("it must be {expected}")),
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseUrl::Embedded => f.write_str("embedded"),
            DatabaseUrl::Postgres(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for CoordinationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoordinationUrl::Database => f.write_str("database"),
            CoordinationUrl::Redis(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for CoordinationUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn database(text: &str) -> Result<String, String> {
        text.parse::<DatabaseUrl>().map(|url| url.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_prints_without_its_password() {
        let shown = database("postgres://ann:hunter2@db.example:6000/work?password=hunter2");
        assert_eq!(shown.as_deref(), Ok("postgres://ann@db.example:6000/work"));
        let redis: CoordinationUrl =
            "redis://:hunter2@cache.example:6380/3".parse().expect("parses");
        assert_eq!(format!("{redis} {redis:?}").matches("hunter2").count(), 0);
        assert_eq!(redis.to_string(), "redis://cache.example:6380/3");
    }

    #[test]
    fn a_bad_address_is_refused_without_repeating_it() {
        for bad in [
            "postgres://ann:hunter2@db.example:notaport/work",
            "mysql://ann:hunter2@db/work",
            "hunter2",
            "postgres://ann:hunter2@db/work?sslmode=never",
            "postgres://ann:hunter2@db/work?nonsense=1",
            "postgres://ann:hunter2@db/work?sslrootcert=/ca.pem",
        ] {
            let error = database(bad).expect_err(bad);
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(database("mysql://x").unwrap_err().contains("mysql://…"));
        assert!("redis://h:x/".parse::<CoordinationUrl>().is_err());
        assert!("file:///x".parse::<CoordinationUrl>().is_err());
    }

    #[test]
    fn certificate_checks_follow_libpq() {
        let parse = |text: &str| text.parse::<PostgresUrl>().expect(text);
        let plain = parse("postgres://h/d");
        assert_eq!((plain.config.get_ssl_mode(), plain.verify), (SslMode::Prefer, Verify::Nobody));
        let required = parse("postgres://h/d?sslmode=require");
        assert_eq!(required.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(required.verify, Verify::Nobody);
        let full = parse("postgres://h/d?sslmode=verify-full&connect_timeout=3");
        assert_eq!((full.config.get_ssl_mode(), full.verify), (SslMode::Require, Verify::System));
        let file = parse("postgres://h/d?sslrootcert=/my%20ca.pem&sslmode=verify-full");
        assert_eq!(file.verify, Verify::File("/my ca.pem".into()));
    }

    proptest! {
        #[test]
        fn no_password_ever_shows(password in "[a-zA-Z0-9]{3}[!-~]{6,20}", tail in ".{0,20}") {
            for text in [
                format!("postgres://u:{password}@h/d{tail}"),
                format!("postgres://u:{password}@h:1/d?{tail}"),
                format!("redis://u:{password}@h:1/{tail}"),
            ] {
                let shown = match (text.parse::<DatabaseUrl>(), text.parse::<CoordinationUrl>()) {
                    (Ok(url), _) => format!("{url}{url:?}"),
                    (_, Ok(url)) => format!("{url}{url:?}"),
                    (Err(a), Err(b)) => format!("{a}{b}"),
                };
                // Any five characters of it would be too many; by chance they may be elsewhere.
                let pieces = password.as_bytes().windows(5).map(String::from_utf8_lossy);
                for piece in pieces {
                    let innocent = "postgres://u@h:5432 embedded database sslmode PASSWORD redis";
                    prop_assume!(!tail.contains(&*piece) && !innocent.contains(&*piece));
                    prop_assert!(!shown.contains(&*piece), "{} in {}", piece, shown);
                }
            }
        }
    }
}
