//! A node's copy of the endpoints, kept up to date.

use crate::spec::Spec;
use crate::store::{self, Record, Seen};
use skep_policy::ownership::{Key, Want};
use skep_policy::polls::schedule::Grid;
use skep_policy::rendezvous::hash_of;
use skep_store::{Database, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

/// The kind of the keys that stand for endpoints.
pub const KIND: &str = "poll";

/// Endpoints read in one go.
const PAGE: u32 = 2_000;

/// An endpoint as this node knows it.
#[derive(Debug)]
pub struct Endpoint {
    /// What to ask, how often, and what to expect.
    pub spec: Spec,
    /// Its key in the table of owners.
    pub key: Key,
    /// Which one of its name: one that is created again has another.
    pub born: i64,
    /// The version that last changed it.
    pub version: i64,
    /// When somebody last asked for a poll out of turn; zero if never.
    pub asked_at_ms: i64,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
    /// When it is polled.
    pub grid: Grid,
}

impl Endpoint {
    /// The endpoint of a row; `None` if a newer version of the program wrote something this one
    /// cannot read.
    pub fn from_record(record: &Record) -> Option<Self> {
        let mut spec = match Spec::read_stored(&record.spec) {
            Ok(spec) => spec,
            Err(error) => {
                tracing::warn!(endpoint = record.id, %error, "cannot be read, and is not polled");
                return None;
            }
        };
        spec.paused = record.paused;
        let key = key_of(&record.id);
        Some(Endpoint {
            grid: Grid::new(hash_of(&key), spec.interval),
            spec,
            key,
            born: record.born,
            version: record.version,
            asked_at_ms: record.asked_at_ms,
            created_at_ms: record.created_at_ms,
            updated_at_ms: record.updated_at_ms,
        })
    }
}

/// The key of an endpoint in the table of owners.
pub fn key_of(id: &str) -> Key {
    format!("{KIND}/{id}").into()
}

/// The endpoint's id in a key.
pub fn id_of(key: &str) -> &str {
    key.strip_prefix(KIND).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key)
}

/// Where the nodes of one process over one embedded database tell each other that endpoints have
/// changed. Where the database is a server, it says so itself.
#[derive(Debug)]
pub struct Hub {
    changes: watch::Sender<u64>,
}

impl Default for Hub {
    fn default() -> Self {
        Hub { changes: watch::Sender::new(0) }
    }
}

impl Hub {
    /// Something was changed.
    pub fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// To hear of changes.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// What has changed for those who work.
#[derive(Debug, Default)]
pub struct Difference {
    /// For the table of owners.
    pub wanted: Vec<(Key, Option<Want>)>,
    /// Endpoints that are new or different.
    pub changed: Vec<Arc<Endpoint>>,
}

/// The endpoints, and how many of them are paused: that is asked for every second.
#[derive(Debug, Default)]
pub struct Known {
    by_id: BTreeMap<Arc<str>, Arc<Endpoint>>,
    paused: usize,
}

impl Known {
    /// All of them.
    pub fn by_id(&self) -> &BTreeMap<Arc<str>, Arc<Endpoint>> {
        &self.by_id
    }

    fn insert(&mut self, endpoint: Arc<Endpoint>) {
        self.paused += usize::from(endpoint.spec.paused);
        let before = self.by_id.insert(endpoint.spec.id.as_str().into(), endpoint);
        self.paused -= usize::from(before.is_some_and(|before| before.spec.paused));
    }

    fn remove(&mut self, id: &str) -> Option<Arc<Endpoint>> {
        let before = self.by_id.remove(id)?;
        self.paused -= usize::from(before.spec.paused);
        Some(before)
    }
}

/// The copy.
#[derive(Debug, Default)]
pub struct Registry {
    known: RwLock<Known>,
    seen: tokio::sync::Mutex<Seen>,
}

impl Registry {
    /// Reads what has changed since last time.
    pub async fn sync(&self, db: &Database) -> Result<Difference, StoreError> {
        let mut seen = self.seen.lock().await;
        let mut difference = Difference::default();
        loop {
            let changes = store::changes(db, *seen, PAGE).await?;
            if changes.full {
                self.forget_all(&mut difference);
            }
            for record in &changes.records {
                self.learn(record, &mut difference);
            }
            *seen = changes.seen;
            if !changes.more {
                return Ok(difference);
            }
        }
    }

    /// An endpoint.
    pub fn get(&self, id: &str) -> Option<Arc<Endpoint>> {
        self.read().by_id.get(id).cloned()
    }

    /// How many endpoints there are, and how many of them are paused.
    pub fn counts(&self) -> (usize, usize) {
        let known = self.read();
        (known.by_id.len(), known.paused)
    }

    /// All endpoints.
    pub fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_all(&self, difference: &mut Difference) {
        let before = std::mem::take(&mut *self.write());
        for endpoint in before.by_id.into_values() {
            difference.wanted.push((endpoint.key.clone(), None));
        }
    }

    fn learn(&self, record: &Record, difference: &mut Difference) {
        let endpoint = (!record.deleted).then(|| Endpoint::from_record(record)).flatten();
        let Some(endpoint) = endpoint.map(Arc::new) else {
            if self.write().remove(&record.id).is_some() {
                difference.wanted.push((key_of(&record.id), None));
            }
            return;
        };
        self.write().insert(endpoint.clone());
        let key = endpoint.key.clone();
        if endpoint.spec.paused {
            difference.wanted.push((key, None));
        } else {
            difference.wanted.push((key, Some(Want { weight: endpoint.spec.weight })));
            difference.changed.push(endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, paused: bool, deleted: bool) -> Record {
        let spec = serde_json::json!({ "id": id, "url": "http://h/" });
        let spec = Spec::parse(&spec, &skep_policy::ownership::Timing::default());
        let spec = serde_json::json!(spec.expect("is an endpoint")).to_string();
        Record {
            id: id.to_owned(),
            number: 1,
            born: 1,
            version: 1,
            spec: if deleted { String::new() } else { spec },
            paused,
            deleted,
            created_at_ms: 0,
            updated_at_ms: 0,
            asked_at_ms: 0,
        }
    }

    #[test]
    fn paused_endpoints_are_counted_whatever_becomes_of_them() {
        let (registry, mut difference) = (Registry::default(), Difference::default());
        let steps = [
            (record("a", true, false), (1, 1)),
            (record("b", false, false), (2, 1)),
            (record("a", true, false), (2, 1)),
            (record("b", true, false), (2, 2)),
            (record("a", false, false), (2, 1)),
            (record("c", false, true), (2, 1)),
            (record("b", true, true), (1, 0)),
            (record("b", true, true), (1, 0)),
            (record("b", true, false), (2, 1)),
        ];
        for (record, expected) in steps {
            registry.learn(&record, &mut difference);
            assert_eq!(registry.counts(), expected, "{record:?}");
            let known = registry.read();
            let paused = known.by_id().values().filter(|one| one.spec.paused).count();
            assert_eq!((known.by_id().len(), paused), expected);
        }
        registry.forget_all(&mut difference);
        assert_eq!(registry.counts(), (0, 0));
    }
}
