//! Certificates of routes: clients get the one for the host they ask for.
//!
//! They are read from PEM files, and again when those change. What cannot be used leaves the one in
//! use in place, and so does a certificate whose key has not come yet.

mod chosen;
mod pair;
#[cfg(test)]
mod tests;

use chosen::{Chosen, Table};
pub use pair::{FileStamp, Pair, PairError, PairFiles, Stamp};
use rustls::ServerConfig;
use rustls::crypto::ring;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The certificate that a host shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCertificate {
    /// As in routes: `shop.example`, `*.example` for everything below, or `*` for every host that
    /// has none, and for clients that name no host.
    pub host: String,
    /// Where it is kept.
    pub files: PairFiles,
}

/// Why a host has not the certificate it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    /// The host of the route.
    pub host: String,
    /// The field of the route's `tls` that is wrong: `certificate` or `key`.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tls.{} of {}: {}", self.field, self.host, self.message)
    }
}

/// When a host's certificate ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The host.
    pub host: String,
    /// In milliseconds since 1970.
    pub expires_at_ms: i64,
}

/// What a look at the files has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Hosts that have another certificate since.
    pub replaced: Vec<String>,
    /// What is wrong and was not told before.
    pub problems: Vec<CertificateProblem>,
}

/// The certificates of all routes. Reading files blocks; handshakes never wait for it.
pub struct Certificates {
    chosen: Arc<Chosen>,
    config: Arc<ServerConfig>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// In the order in which they were listed.
    hosts: Vec<HostCertificate>,
    pairs: Vec<HeldPair>,
}

/// A pair that one host or several have.
struct HeldPair {
    files: PairFiles,
    /// What the files looked like when `pair` was read.
    seen: Stamp,
    pair: Option<Pair>,
    /// The last problem that was told, until there is none.
    told: Option<PairError>,
    /// The files of which only one was replaced, as they looked at the last look.
    half_replaced: Option<Stamp>,
}

impl Certificates {
    /// None, until [`Certificates::replace`].
    pub fn new() -> Result<Self, rustls::Error> {
        let chosen = Arc::new(Chosen::default());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(chosen.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = ring::Ticketer::new()?;
        let (config, held) = (Arc::new(config), Mutex::default());
        Ok(Certificates { chosen, config, held })
    }

    /// Reads them all; every one must be good.
    pub fn load(wanted: &[HostCertificate]) -> Result<Self, Vec<CertificateProblem>> {
        let certificates = Certificates::new().map_err(|error| {
            let message = format!("there can be no encryption: {error}");
            vec![CertificateProblem { host: "*".to_owned(), field: "certificate", message }]
        })?;
        match certificates.replace(wanted) {
            problems if problems.is_empty() => Ok(certificates),
            problems => Err(problems),
        }
    }

    /// From now on these. Pairs that are held already are not read again; a host whose pair cannot
    /// be used has none until a later [`Certificates::look`] finds it good.
    pub fn replace(&self, wanted: &[HostCertificate]) -> Vec<CertificateProblem> {
        let mut held = self.held();
        let mut problems = Vec::new();
        let mut before = std::mem::take(&mut held.pairs);
        held.hosts.clear();
        for one in wanted {
            let host = one.host.to_ascii_lowercase();
            match held.hosts.iter().find(|known| known.host == host) {
                Some(known) if known.files == one.files => continue,
                Some(known) => {
                    problems.push(two_for_one_host(host, known, one));
                    continue;
                }
                None => held.hosts.push(HostCertificate { host, files: one.files.clone() }),
            }
            if held.pairs.iter().any(|pair| pair.files == one.files) {
                continue;
            }
            let known = before.iter().position(|pair| pair.files == one.files);
            let pair = known.map(|at| before.swap_remove(at));
            held.pairs.push(pair.unwrap_or_else(|| HeldPair::read(one.files.clone())));
        }
        for pair in &held.pairs {
            if let (None, Some(error)) = (&pair.pair, &pair.told) {
                problems.extend(held.hosts_of(&pair.files).map(|host| problem(host, error)));
            }
        }
        self.chosen.0.store(Arc::new(held.table()));
        problems
    }

    /// Reads again what has changed. A problem is told once.
    pub fn look(&self) -> Look {
        let mut held = self.held();
        let mut look = Look::default();
        let mut pairs = std::mem::take(&mut held.pairs);
        for pair in &mut pairs {
            match pair.again() {
                Again::Same => {}
                Again::Replaced => look.replaced.extend(held.hosts_of(&pair.files).cloned()),
                Again::Wrong(error) => {
                    let wrong = held.hosts_of(&pair.files).map(|host| problem(host, &error));
                    look.problems.extend(wrong);
                }
            }
        }
        held.pairs = pairs;
        if !look.replaced.is_empty() {
            self.chosen.0.store(Arc::new(held.table()));
        }
        look
    }

    /// What encrypts connections; `None` if no host has a certificate. The same one for ever, so
    /// that clients need no whole handshake after certificates were replaced.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        (!self.chosen.0.load().is_empty()).then(|| self.config.clone())
    }

    /// When the certificate of each host ends.
    pub fn ends(&self) -> Vec<CertificateEnd> {
        let held = self.held();
        let end = |one: &HostCertificate| {
            let expires_at_ms = held.pair_of(&one.files)?.expires_at_ms;
            Some(CertificateEnd { host: one.host.clone(), expires_at_ms })
        };
        held.hosts.iter().filter_map(end).collect()
    }

    /// What works, but not as somebody will have meant it: certificates that end within two weeks,
    /// and those that are made for other hosts.
    pub fn warnings(&self, now_ms: i64) -> Vec<String> {
        let held = self.held();
        let mut warnings = Vec::new();
        let mut seen = HashSet::new();
        for HostCertificate { host, files } in &held.hosts {
            let Some(pair) = held.pair_of(files) else { continue };
            if seen.insert(files) {
                warnings.extend(files.end_warning(pair.expires_at_ms, now_ms));
            }
            if !pair.is_for(host) {
                let file = files.certificate.display();
                let names = match pair.names.as_slice() {
                    [] => "no host".to_owned(),
                    names => names.join(", "),
                };
                warnings.push(format!(
                    "the certificate in {file} is made for {names}, not for {host}: clients will \
                     refuse it"
                ));
            }
        }
        warnings
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn hosts_of<'a>(&'a self, files: &'a PairFiles) -> impl Iterator<Item = &'a String> {
        self.hosts.iter().filter(move |one| one.files == *files).map(|one| &one.host)
    }

    fn pair_of(&self, files: &PairFiles) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.files == *files)?.pair.as_ref()
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        for HostCertificate { host, files } in &self.hosts {
            if let Some(pair) = self.pair_of(files) {
                table.add(host, &pair.certified);
            }
        }
        table
    }
}

/// What a second look at a pair has found.
enum Again {
    Same,
    Replaced,
    Wrong(PairError),
}

impl HeldPair {
    fn read(files: PairFiles) -> Self {
        // Looked at first: what is written while it is read is seen as a change later.
        let seen = files.stamp();
        let (pair, told) = match files.read() {
            Ok(pair) => (Some(pair), None),
            Err(error) => (None, Some(error)),
        };
        HeldPair { files, seen, pair, told, half_replaced: None }
    }

    /// Problems are looked at each time: rights may be mended without a change of the files.
    fn again(&mut self) -> Again {
        let now = self.files.stamp();
        if now == self.seen && self.pair.is_some() {
            // Also if it is what it was, after something else.
            (self.told, self.half_replaced) = (None, None);
            return Again::Same;
        }
        match self.files.read() {
            Ok(pair) => {
                let half_replaced = None;
                let files = self.files.clone();
                *self = HeldPair { files, seen: now, pair: Some(pair), told: None, half_replaced };
                Again::Replaced
            }
            Err(error) if self.told.as_ref() == Some(&error) => Again::Same,
            // Whoever replaces one file will replace the other one in a moment.
            Err(PairError::Mismatch { .. }) if self.half_replaced != Some(now) => {
                self.half_replaced = Some(now);
                Again::Same
            }
            Err(error) => {
                self.told = Some(error.clone());
                Again::Wrong(error)
            }
        }
    }
}

fn problem(host: &str, error: &PairError) -> CertificateProblem {
    let (field, message) = (error.field(), error.to_string());
    CertificateProblem { host: host.to_owned(), field, message }
}

fn two_for_one_host(
    host: String,
    known: &HostCertificate,
    other: &HostCertificate,
) -> CertificateProblem {
    let (known, other) = (&known.files, &other.files);
    let field = if known.certificate == other.certificate { "key" } else { "certificate" };
    let message = format!(
        "{} with {} is given beside {} with {}; give all routes of a host the same",
        other.certificate.display(),
        other.key.display(),
        known.certificate.display(),
        known.key.display()
    );
    CertificateProblem { host, field, message }
}
