//! Routes made by the API. Each change takes the registry's one row first, so that changes come one
//! after another and whoever sees a revision sees everything before it too.

use super::{Asked, CHANNEL, RouteStore, clean};
use crate::spec::{Flaw, RouteSpec, StoredError};
use rusqlite::{Connection, OptionalExtension, params};
use skep_store::{Database, StoreError};
use tokio_postgres::{IsolationLevel, Transaction};

/// A route as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredRoute {
    /// Its name.
    pub name: String,
    /// As JSON; see [`StoredRoute::read`].
    pub spec: String,
    /// The revision that last changed it. No two routes have the same, and one that is created
    /// again has another.
    pub version: i64,
    /// When it was created.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
    /// Who last changed it.
    pub updated_by: String,
}

impl std::fmt::Debug for StoredRoute {
    // The spec may have secrets in its headers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredRoute")
            .field("name", &self.name)
            .field("spec_bytes", &self.spec.len())
            .field("version", &self.version)
            .field("created_at_ms", &self.created_at_ms)
            .field("updated_at_ms", &self.updated_at_ms)
            .field("updated_by", &self.updated_by)
            .finish()
    }
}

impl StoredRoute {
    /// The route itself.
    ///
    /// # Errors
    /// If the row is damaged, or of a version that knows more. Others are not affected.
    pub fn read(&self) -> Result<RouteSpec, StoredError> {
        RouteSpec::read_stored(&self.spec)
    }
}

/// All routes at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What [`RouteStore::revision`] said at that moment.
    pub revision: i64,
    /// By name.
    pub routes: Vec<StoredRoute>,
}

/// What became of a route that somebody put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was none of this name.
    Created {
        /// Its version.
        version: i64,
    },
    /// There was another.
    Updated {
        /// Its version from now on.
        version: i64,
    },
    /// It was the same already, whatever version was expected: that is what somebody finds who
    /// asks again because the answer was lost.
    Unchanged {
        /// Its version.
        version: i64,
    },
    /// It has another version than expected. Nothing was changed.
    Conflict {
        /// The one it has; zero if there is no such route.
        version: i64,
    },
    /// Another route is for the same host and path. Nothing was changed.
    Taken {
        /// That one.
        by: String,
    },
    /// There are as many routes as there may be. Nothing was changed.
    Full {
        /// As many as that.
        max: usize,
    },
    /// It is no good route. Nothing was changed.
    Flawed(Vec<Flaw>),
}

/// What became of a route that somebody deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone. What went over it is kept until it is old.
    Done {
        /// The revision that deleted it.
        revision: i64,
    },
    /// There was none.
    Missing,
    /// It has another version than expected. Nothing was changed.
    Conflict {
        /// The one it has.
        version: i64,
    },
}

/// What is true under the registry's lock.
struct Facts {
    revision: i64,
    count: i64,
    /// Version and spec of the route of this name.
    present: Option<(i64, String)>,
    /// The name of another route for the same place.
    rival: Option<String>,
}

/// A route about to be written.
struct Draft {
    name: String,
    host: String,
    path: String,
    spec: String,
    by: String,
    now_ms: i64,
}

fn decide_put(facts: Facts, spec: &str, expected: Option<i64>, max: usize) -> Put {
    let found = facts.present.as_ref().map_or(0, |(version, _)| *version);
    let version = facts.revision + 1;
    if facts.present.as_ref().is_some_and(|(_, present)| present == spec) {
        Put::Unchanged { version: found }
    } else if expected.is_some_and(|expected| expected != found) {
        Put::Conflict { version: found }
    } else if let Some(by) = facts.rival {
        Put::Taken { by }
    } else if facts.present.is_some() {
        Put::Updated { version }
    } else if usize::try_from(facts.count).is_ok_and(|count| count >= max) {
        Put::Full { max }
    } else {
        Put::Created { version }
    }
}

fn decide_delete(facts: &Facts, expected: Option<i64>) -> Deleted {
    match &facts.present {
        None => Deleted::Missing,
        Some((found, _)) if expected.is_some_and(|expected| expected != *found) => {
            Deleted::Conflict { version: *found }
        }
        Some(_) => Deleted::Done { revision: facts.revision + 1 },
    }
}

const PRESENT: &str = "SELECT version, spec FROM skep_routes WHERE name = $1";
const RIVAL: &str = "SELECT name FROM skep_routes WHERE name <> $1 AND host = $2 AND path = $3";
const COUNT: &str = "SELECT count(*) FROM skep_routes";
const UPSERT: &str = "
    INSERT INTO skep_routes
        (name, host, path, spec, version, created_at, updated_at, updated_by)
    VALUES ($1, $2, $3, $4, $5, $6, $6, $7)
    ON CONFLICT (name) DO UPDATE SET
        host = excluded.host, path = excluded.path, spec = excluded.spec,
        version = excluded.version, updated_at = excluded.updated_at,
        updated_by = excluded.updated_by";
const DELETE: &str = "DELETE FROM skep_routes WHERE name = $1";

impl RouteStore {
    /// A number that grows with every change of a route: whoever sees it unchanged need not look
    /// further.
    pub async fn revision(&self) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT revision FROM skep_route_registry";
        let found = self.ask(SQL, Asked([], []), |row| row.get(0), |row| row.get(0)).await?;
        found.first().copied().ok_or_else(|| no_row(&self.db))
    }

    /// All routes, with the revision at which they were so.
    pub async fn list(&self) -> Result<Listing, StoreError> {
        const SQL: &str = "
            SELECT c.revision, r.name, r.spec, r.version, r.created_at, r.updated_at, r.updated_by
            FROM skep_route_registry c LEFT JOIN skep_routes r ON TRUE
            ORDER BY r.name";
        let of_sqlite = |row: &rusqlite::Row<'_>| {
            let there = row.get::<_, Option<String>>(1)?.is_some();
            Ok((row.get(0)?, if there { Some(of_sqlite(row)?) } else { None }))
        };
        let of_postgres = |row: &tokio_postgres::Row| {
            let there = row.get::<_, Option<&str>>(1).is_some();
            (row.get(0), there.then(|| of_postgres(row)))
        };
        let rows: Vec<(i64, Option<StoredRoute>)> =
            self.ask(SQL, Asked([], []), of_sqlite, of_postgres).await?;
        let revision = rows.first().ok_or_else(|| no_row(&self.db))?.0;
        let routes = rows.into_iter().filter_map(|(_, route)| route).collect();
        Ok(Listing { revision, routes })
    }

    /// One route.
    pub async fn get(&self, name: &str) -> Result<Option<StoredRoute>, StoreError> {
        const SQL: &str = "
            SELECT 0, name, spec, version, created_at, updated_at, updated_by
            FROM skep_routes WHERE name = $1";
        let asked = Asked([clean(name)], []);
        Ok(self.ask(SQL, asked, of_sqlite, of_postgres).await?.pop())
    }

    /// Creates or replaces a route, if it still has the version `expected`: zero for one that must
    /// not be there, nothing for whatever is there.
    pub async fn put(
        &self,
        spec: &RouteSpec,
        expected: Option<i64>,
        by: &str,
        now_ms: i64,
    ) -> Result<Put, StoreError> {
        let flaws = spec.validate();
        if !flaws.is_empty() {
            return Ok(Put::Flawed(flaws));
        }
        let written = serde_json::to_string(spec).map_err(|error| {
            let cause = format!("the route cannot be written: {error}");
            StoreError::Refused { store: self.db.name(), cause }
        })?;
        let draft = Draft {
            name: spec.name.clone(),
            host: spec.host.clone(),
            path: spec.path.clone(),
            spec: written,
            by: clean(by),
            now_ms,
        };
        let max = self.routes_max;
        match &self.db {
            Database::Sqlite(store) => {
                let work = move |db: &Connection| {
                    let facts = facts_of_sqlite(db, &draft.name, &draft.host, &draft.path)?;
                    let put = decide_put(facts, &draft.spec, expected, max);
                    if let Put::Created { version } | Put::Updated { version } = put {
                        let Draft { name, host, path, spec, by, now_ms } = &draft;
                        db.prepare_cached(UPSERT)?
                            .execute(params![name, host, path, spec, version, now_ms, by])?;
                        keep_revision(db, version)?;
                    }
                    Ok(put)
                };
                store.write(work).await
            }
            Database::Postgres(store) => {
                let mut client = store.client().await?;
                let work = async {
                    let begin = client.build_transaction();
                    let begin = begin.isolation_level(IsolationLevel::ReadCommitted);
                    let transaction = begin.start().await?;
                    let Draft { name, host, path, spec, by, now_ms } = &draft;
                    let facts = facts_of_postgres(&transaction, name, host, path).await?;
                    let put = decide_put(facts, spec, expected, max);
                    if let Put::Created { version } | Put::Updated { version } = put {
                        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                            [name, host, path, spec, &version, now_ms, by];
                        transaction.execute(UPSERT, &values).await?;
                        announce(&transaction, version).await?;
                        transaction.commit().await?;
                    }
                    Ok(put)
                };
                store.limit(work).await
            }
        }
    }

    /// Deletes a route, if it still has the version `expected`; nothing for whatever is there.
    pub async fn delete(&self, name: &str, expected: Option<i64>) -> Result<Deleted, StoreError> {
        let name = clean(name);
        match &self.db {
            Database::Sqlite(store) => {
                let work = move |db: &Connection| {
                    let deleted = decide_delete(&facts_of_sqlite(db, &name, "", "")?, expected);
                    if let Deleted::Done { revision } = deleted {
                        db.prepare_cached(DELETE)?.execute([&name])?;
                        keep_revision(db, revision)?;
                    }
                    Ok(deleted)
                };
                store.write(work).await
            }
            Database::Postgres(store) => {
                let mut client = store.client().await?;
                let work = async {
                    let begin = client.build_transaction();
                    let begin = begin.isolation_level(IsolationLevel::ReadCommitted);
                    let transaction = begin.start().await?;
                    let facts = facts_of_postgres(&transaction, &name, "", "").await?;
                    let deleted = decide_delete(&facts, expected);
                    if let Deleted::Done { revision } = deleted {
                        transaction.execute(DELETE, &[&name]).await?;
                        announce(&transaction, revision).await?;
                        transaction.commit().await?;
                    }
                    Ok(deleted)
                };
                store.limit(work).await
            }
        }
    }
}

fn no_row(db: &Database) -> StoreError {
    let cause = "skep_route_registry has no row".to_owned();
    StoreError::Refused { store: db.name(), cause }
}

fn of_sqlite(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredRoute> {
    Ok(StoredRoute {
        name: row.get(1)?,
        spec: row.get(2)?,
        version: row.get(3)?,
        created_at_ms: row.get(4)?,
        updated_at_ms: row.get(5)?,
        updated_by: row.get(6)?,
    })
}

fn of_postgres(row: &tokio_postgres::Row) -> StoredRoute {
    StoredRoute {
        name: row.get(1),
        spec: row.get(2),
        version: row.get(3),
        created_at_ms: row.get(4),
        updated_at_ms: row.get(5),
        updated_by: row.get(6),
    }
}

fn facts_of_sqlite(
    db: &Connection,
    name: &str,
    host: &str,
    path: &str,
) -> Result<Facts, StoreError> {
    let revision = "SELECT revision FROM skep_route_registry";
    let present = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(Facts {
        revision: db.query_row(revision, [], |row| row.get(0))?,
        count: db.query_row(COUNT, [], |row| row.get(0))?,
        present: db.query_row(PRESENT, [name], present).optional()?,
        rival: db.query_row(RIVAL, [name, host, path], |row| row.get(0)).optional()?,
    })
}

fn keep_revision(db: &Connection, revision: i64) -> Result<(), StoreError> {
    db.execute("UPDATE skep_route_registry SET revision = ?1", [revision])?;
    Ok(())
}

/// Takes the registry's row. Each statement after it sees what was committed before it, which is
/// what one wants after waiting for a lock.
async fn facts_of_postgres(
    transaction: &Transaction<'_>,
    name: &str,
    host: &str,
    path: &str,
) -> Result<Facts, StoreError> {
    let lock = "SELECT revision FROM skep_route_registry FOR UPDATE";
    let revision = transaction.query_one(lock, &[]).await?.get(0);
    let present = transaction.query_opt(PRESENT, &[&name]).await?;
    let rival = transaction.query_opt(RIVAL, &[&name, &host, &path]).await?;
    Ok(Facts {
        revision,
        count: transaction.query_one(COUNT, &[]).await?.get(0),
        present: present.map(|row| (row.get(0), row.get(1))),
        rival: rival.map(|row| row.get(0)),
    })
}

/// Keeps the revision, and tells everybody who listens once it is committed.
async fn announce(transaction: &Transaction<'_>, revision: i64) -> Result<(), StoreError> {
    let update = "WITH kept AS (
             UPDATE skep_route_registry SET revision = $1 RETURNING revision)
         SELECT pg_notify($2, revision::text) FROM kept";
    transaction.query(update, &[&revision, &CHANNEL]).await?;
    Ok(())
}
