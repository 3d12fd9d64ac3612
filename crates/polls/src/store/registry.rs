//! Changes of endpoints. Each takes the registry's one row first, so that they come one after
//! another and whoever sees a version sees everything before it too.

use super::{NewEndpoint, Record, postgres, sqlite};
use skep_store::{Database, StoreError};
use std::collections::{BTreeSet, HashMap};

/// Why an endpoint was not created. Nothing was changed, unless the store does not know.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// There is one with this name.
    #[error("there is an endpoint with this id")]
    Exists,
    /// There are as many as there may be.
    #[error("there are {max} endpoints, and no more are allowed")]
    Full {
        /// As many as that.
        max: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an endpoint was not replaced. Nothing was changed, unless the store does not know.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplaceError {
    /// There is none with this name.
    #[error("there is no endpoint with this id")]
    Missing,
    /// Somebody else has changed it meanwhile.
    #[error("the endpoint has version {found}, another one was expected")]
    Conflict {
        /// The version it has.
        found: i64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why nothing was imported. Nothing was changed, unless the store does not know.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// There would be more than there may be.
    #[error("there would be more than {max} endpoints, and no more are allowed")]
    Full {
        /// As many as there may be.
        max: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Endpoints that were not there.
    pub created: usize,
    /// Endpoints that were different.
    pub changed: usize,
    /// Endpoints that were the same already.
    pub unchanged: usize,
}

/// Creates an endpoint, if there is none with this name and there are fewer than `max`.
pub async fn create(
    db: &Database,
    new: NewEndpoint,
    now_ms: i64,
    max: u64,
) -> Result<Record, CreateError> {
    change(db, vec![new.id.clone()], move |draft| {
        if draft.live(&new.id).is_some() {
            return Err(CreateError::Exists);
        }
        if !draft.has_room(max) {
            return Err(CreateError::Full { max });
        }
        Ok(draft.create(new, now_ms))
    })
    .await
}

/// Replaces an endpoint that is there, if it still has the version `expected`. Replacing it by
/// itself changes nothing, its version neither.
pub async fn replace(
    db: &Database,
    new: NewEndpoint,
    expected: Option<i64>,
    now_ms: i64,
) -> Result<Record, ReplaceError> {
    change(db, vec![new.id.clone()], move |draft| {
        let found = draft.live(&new.id).ok_or(ReplaceError::Missing)?.version;
        if expected.is_some_and(|expected| expected != found) {
            return Err(ReplaceError::Conflict { found });
        }
        Ok(draft.replace(new, now_ms).1)
    })
    .await
}

/// Creates or replaces all of `endpoints`, or changes nothing. Others stay as they are. If one is
/// named twice, the later one wins.
pub async fn import(
    db: &Database,
    endpoints: Vec<NewEndpoint>,
    now_ms: i64,
    max: u64,
) -> Result<Imported, ImportError> {
    let ids = endpoints.iter().map(|one| one.id.clone()).collect();
    change(db, ids, move |draft| {
        let mut imported = Imported::default();
        for new in endpoints {
            if draft.live(&new.id).is_some() {
                match draft.replace(new, now_ms) {
                    (true, _) => imported.changed += 1,
                    (false, _) => imported.unchanged += 1,
                }
            } else if draft.has_room(max) {
                draft.create(new, now_ms);
                imported.created += 1;
            } else {
                return Err(ImportError::Full { max });
            }
        }
        Ok(imported)
    })
    .await
}

/// Pauses endpoints or lets them go on. Answers for each, in the order given, how it is now;
/// nothing for one that is not there.
pub async fn set_paused(
    db: &Database,
    ids: Vec<String>,
    paused: bool,
    now_ms: i64,
) -> Result<Vec<Option<Record>>, StoreError> {
    change(db, ids.clone(), move |draft| {
        let set = |id: &String| {
            let spec = draft.live(id)?.spec.clone();
            Some(draft.replace(NewEndpoint { id: id.clone(), spec, paused }, now_ms).1)
        };
        Ok(ids.iter().map(set).collect())
    })
    .await
}

/// Asks whoever owns an endpoint for a poll out of turn; nothing if there is no such endpoint. One
/// that is paused stays as it is.
pub async fn ask_now(db: &Database, id: &str, now_ms: i64) -> Result<Option<Record>, StoreError> {
    let id = id.to_owned();
    change(db, vec![id.clone()], move |draft| Ok(draft.ask_now(&id, now_ms))).await
}

/// Deletes an endpoint with its results, moves and state; `false` if there is none.
pub async fn delete(db: &Database, id: &str, now_ms: i64) -> Result<bool, StoreError> {
    let id = id.to_owned();
    change(db, vec![id.clone()], move |draft| Ok(draft.delete(&id, now_ms))).await
}

/// Forgets deletions that are older, and how many those were. Whoever has not heard of them by then
/// starts anew (see [`super::Changes`]).
pub async fn forget_deleted(db: &Database, older_than_ms: i64) -> Result<u64, StoreError> {
    match db {
        Database::Sqlite(store) => {
            store.write(move |db| sqlite::forget_deleted(db, older_than_ms)).await
        }
        Database::Postgres(store) => {
            let mut client = store.client().await?;
            store.limit(postgres::forget_deleted(&mut client, older_than_ms)).await
        }
    }
}

/// Reads what is there of `ids`, lets `decide` change it, and keeps the changes, as one step. An
/// error of `decide` keeps nothing.
async fn change<T, E>(
    db: &Database,
    ids: Vec<String>,
    decide: impl FnOnce(&mut Draft) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match db {
        Database::Sqlite(store) => {
            let work = move |db: &rusqlite::Connection| {
                let mut draft = sqlite::draft(db, &ids)?;
                let answer = decide(&mut draft)?;
                sqlite::keep(db, &draft)?;
                Ok(answer)
            };
            store.write(work).await
        }
        Database::Postgres(store) => {
            let mut client = store.client().await?;
            let work = async {
                let transaction = postgres::begin(&mut client).await?;
                let mut draft = postgres::draft(&transaction, &ids).await?;
                let answer = decide(&mut draft)?;
                if !draft.is_unchanged() {
                    postgres::keep(transaction, &draft).await?;
                }
                Ok(answer)
            };
            store.limit(work).await
        }
    }
}

/// The registry's one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) version: i64,
    pub(super) live: i64,
    pub(super) last_number: i64,
}

/// Some endpoints, deleted ones too, and what is about to become of them.
pub(super) struct Draft {
    pub(super) counters: Counters,
    records: HashMap<String, Record>,
    changed: BTreeSet<String>,
    /// Numbers of endpoints that live from now on, with the versions that created them.
    pub(super) begun: Vec<(i64, i64)>,
    /// Numbers of endpoints that live no more.
    pub(super) ended: Vec<i64>,
}

impl Draft {
    pub(super) fn new(counters: Counters, records: Vec<Record>) -> Self {
        Draft {
            counters,
            records: records.into_iter().map(|one| (one.id.clone(), one)).collect(),
            changed: BTreeSet::new(),
            begun: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// What has to be written.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Record> {
        self.changed.iter().filter_map(|id| self.records.get(id))
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    fn live(&self, id: &str) -> Option<&Record> {
        self.records.get(id).filter(|one| !one.deleted)
    }

    fn has_room(&self, max: u64) -> bool {
        super::unsigned(self.counters.live) < max
    }

    /// Each change has a version of its own, so that a page of changes can end anywhere.
    fn next_version(&mut self) -> i64 {
        self.counters.version += 1;
        self.counters.version
    }

    fn create(&mut self, new: NewEndpoint, now_ms: i64) -> Record {
        let version = self.next_version();
        self.counters.live += 1;
        self.counters.last_number += 1;
        let record = Record {
            id: new.id,
            number: self.counters.last_number,
            born: version,
            version,
            spec: new.spec,
            paused: new.paused,
            deleted: false,
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
            asked_at_ms: 0,
        };
        self.begun.push((record.number, record.born));
        self.put(record.clone());
        record
    }

    /// Replaces one that is there; whether that made a difference, and how it is now.
    fn replace(&mut self, new: NewEndpoint, now_ms: i64) -> (bool, Record) {
        let present = self.records[&new.id].clone();
        if present.spec == new.spec && present.paused == new.paused {
            return (false, present);
        }
        let version = self.next_version();
        let (spec, paused) = (new.spec, new.paused);
        let record = Record { spec, paused, version, updated_at_ms: now_ms, ..present };
        self.put(record.clone());
        (true, record)
    }

    fn ask_now(&mut self, id: &str, now_ms: i64) -> Option<Record> {
        let present = self.live(id)?.clone();
        if present.paused {
            return Some(present);
        }
        // Two who ask in one millisecond are two.
        let asked_at_ms = now_ms.max(present.asked_at_ms + 1);
        let record = Record { version: self.next_version(), asked_at_ms, ..present };
        self.put(record.clone());
        Some(record)
    }

    fn delete(&mut self, id: &str, now_ms: i64) -> bool {
        let Some(present) = self.live(id).cloned() else { return false };
        self.ended.push(present.number);
        self.counters.live -= 1;
        let version = self.next_version();
        let (spec, paused, deleted) = (String::new(), false, true);
        self.put(Record { spec, paused, deleted, version, updated_at_ms: now_ms, ..present });
        true
    }

    fn put(&mut self, record: Record) {
        self.changed.insert(record.id.clone());
        self.records.insert(record.id.clone(), record);
    }
}
