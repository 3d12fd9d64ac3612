//! Which certificate a client gets.

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates by host.
#[derive(Debug, Default)]
pub(super) struct Table {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows `*.`.
    below: HashMap<String, Arc<CertifiedKey>>,
    default: Option<Arc<CertifiedKey>>,
}

impl Table {
    /// The first one for a host stays.
    pub fn add(&mut self, host: &str, certified: &Arc<CertifiedKey>) {
        match (host, host.strip_prefix("*.")) {
            ("*", _) => drop(self.default.get_or_insert_with(|| certified.clone())),
            (_, Some(suffix)) => {
                self.below.entry(suffix.to_owned()).or_insert_with(|| certified.clone());
            }
            _ => {
                self.exact.entry(host.to_owned()).or_insert_with(|| certified.clone());
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty() && self.default.is_none()
    }

    /// For this host exactly, or for the nearest of those it is below, or for everybody else.
    pub fn choose(&self, host: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        let Some(host) = host else { return self.default.as_ref() };
        let host = host.strip_suffix('.').unwrap_or(host);
        let mut above = host;
        self.exact
            .get(host)
            .or_else(|| {
                std::iter::from_fn(|| {
                    (_, above) = above.split_once('.')?;
                    Some(above)
                })
                .find_map(|parent| self.below.get(parent))
            })
            .or(self.default.as_ref())
    }
}

/// The table in use. It outlives its contents, so that what clients remember of a handshake is
/// good for the next one whatever was read again meanwhile.
#[derive(Debug, Default)]
pub(super) struct Chosen(pub ArcSwap<Table>);

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().map(str::to_ascii_lowercase);
        self.0.load().choose(asked.as_deref()).cloned()
    }
}
