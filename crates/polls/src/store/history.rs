//! Reading: what changed, how endpoints are doing, and how they did.
//!
//! The statements are the same for both databases. SQLite takes `$1` for a name, and numbers names
//! as they come, so each statement names its values in their order.

use super::{Move, Record, ResultRow, State, postgres, sqlite, unsigned};
use skep_store::{Database, StoreError};

/// How far a follower of the registry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    version: i64,
    /// The floor when the version was reached. As long as it is the same no deletion was forgotten
    /// since, even if the version is below: then everything was read after the floor was raised.
    floor: i64,
}

impl Seen {
    /// Nothing yet.
    pub const NOTHING: Seen = Seen { version: 0, floor: -1 };

    /// Everything up to this version.
    pub fn version(&self) -> i64 {
        self.version
    }
}

impl Default for Seen {
    fn default() -> Self {
        Seen::NOTHING
    }
}

/// What changed since a follower looked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Endpoints that changed, in the order of their versions, deleted ones too.
    pub records: Vec<Record>,
    /// The registry's version.
    pub version: i64,
    /// What the follower has seen after this.
    pub seen: Seen,
    /// Deletions were forgotten that the follower has not seen. It has to drop everything it knows:
    /// this is the first page of everything there is.
    pub full: bool,
    /// There is more to be asked for at once.
    pub more: bool,
}

/// Endpoints in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All that are not deleted.
    pub endpoints: u64,
    /// Those of them that are left alone.
    pub paused: u64,
    /// Those of the others whose last result was bad.
    pub failing: u64,
}

/// At most `limit` changes since `seen`. A follower asks until there is no more, and has then seen
/// everything up to the version.
pub async fn changes(db: &Database, seen: Seen, limit: u32) -> Result<Changes, StoreError> {
    const SQL: &str = "
        SELECT r.id, r.number, r.born, r.version, r.spec, r.paused, r.deleted, r.created_at,
               r.updated_at, r.asked_at, c.version, c.floor
        FROM skep_polls c LEFT JOIN (
            SELECT * FROM skep_poll_endpoints
            WHERE version > (SELECT CASE WHEN $1 >= floor OR $2 = floor THEN $1 ELSE 0 END
                             FROM skep_polls)
            ORDER BY version LIMIT $3) r ON TRUE
        ORDER BY r.version";
    let most = i64::from(limit.max(1));
    let rows: Vec<(Option<Record>, i64, i64)> = match db {
        Database::Sqlite(store) => {
            let values = (seen.version, seen.floor, most);
            let from = |row: &rusqlite::Row<'_>| {
                let there = row.get::<_, Option<i64>>(1)?.is_some();
                let record = if there { Some(sqlite::record(row)?) } else { None };
                Ok((record, row.get(10)?, row.get(11)?))
            };
            sqlite::ask(store, SQL, values, from).await?
        }
        Database::Postgres(store) => {
            let rows = postgres::ask(store, SQL, &[&seen.version, &seen.floor, &most]).await?;
            let from = |row: &tokio_postgres::Row| {
                let there = row.get::<_, Option<i64>>(1).is_some();
                (there.then(|| postgres::record(row)), row.get(10), row.get(11))
            };
            rows.iter().map(from).collect()
        }
    };
    // Without a row there is nothing to follow.
    let (version, floor) = rows.first().map_or((0, 0), |row| (row.1, row.2));
    let records: Vec<Record> = rows.into_iter().filter_map(|row| row.0).collect();
    let more = records.len() as i64 >= most;
    let reached = records.last().filter(|_| more).map_or(version, |last| last.version);
    Ok(Changes {
        records,
        version,
        seen: Seen { version: reached, floor },
        full: seen.version < floor && seen.floor != floor,
        more,
    })
}

/// One endpoint.
pub async fn find(db: &Database, id: &str) -> Result<Option<Record>, StoreError> {
    const SQL: &str = "
        SELECT id, number, born, version, spec, paused, deleted, created_at, updated_at, asked_at
        FROM skep_poll_endpoints WHERE id = $1 AND NOT deleted";
    let id = id.to_owned();
    let mut found: Vec<Record> = match db {
        Database::Sqlite(store) => sqlite::ask(store, SQL, [id], sqlite::record).await?,
        Database::Postgres(store) => {
            postgres::ask(store, SQL, &[&id]).await?.iter().map(postgres::record).collect()
        }
    };
    Ok(found.pop())
}

/// The last results of an endpoint, newest first.
pub async fn results(db: &Database, id: &str, limit: u32) -> Result<Vec<ResultRow>, StoreError> {
    const SQL: &str = "
        SELECT e.id, e.born, r.token_epoch, r.token_counter, r.node, r.slot, r.at, r.ok,
               r.verdict, r.status, r.latency_us, r.late_us, r.detail
        FROM skep_poll_endpoints e JOIN skep_poll_results r ON r.number = e.number
        WHERE e.id = $1 ORDER BY r.ordinal DESC LIMIT $2";
    let (id, limit) = (id.to_owned(), i64::from(limit));
    match db {
        Database::Sqlite(store) => sqlite::ask(store, SQL, (id, limit), sqlite::result).await,
        Database::Postgres(store) => {
            let rows = postgres::ask(store, SQL, &[&id, &limit]).await?;
            Ok(rows.iter().map(postgres::result).collect())
        }
    }
}

/// The last owners of an endpoint, newest first.
pub async fn moves(db: &Database, id: &str) -> Result<Vec<Move>, StoreError> {
    const SQL: &str = "
        SELECT m.at, m.node, m.from_node, m.reason, m.token_epoch, m.token_counter
        FROM skep_poll_endpoints e JOIN skep_poll_moves m ON m.number = e.number
        WHERE e.id = $1 ORDER BY m.ordinal DESC";
    let id = id.to_owned();
    match db {
        Database::Sqlite(store) => sqlite::ask(store, SQL, [id], sqlite::one_move).await,
        Database::Postgres(store) => {
            let rows = postgres::ask(store, SQL, &[&id]).await?;
            Ok(rows.iter().map(postgres::one_move).collect())
        }
    }
}

/// How endpoints are doing, in the order given; nothing for one that is not there.
pub async fn states(db: &Database, ids: &[String]) -> Result<Vec<Option<State>>, StoreError> {
    let found = match db {
        Database::Sqlite(store) => {
            let ids = ids.to_vec();
            store.read(move |db| sqlite::states(db, &ids)).await?
        }
        Database::Postgres(store) => postgres::states(store, ids).await?,
    };
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// How many endpoints there are, and how many of them have which trouble.
pub async fn summary(db: &Database) -> Result<Summary, StoreError> {
    const SQL: &str = "
        SELECT live,
               (SELECT count(*) FROM skep_poll_endpoints WHERE paused),
               (SELECT count(*) FROM skep_poll_state s WHERE NOT s.last_ok AND NOT EXISTS (
                    SELECT 1 FROM skep_poll_endpoints e WHERE e.number = s.number AND e.paused))
        FROM skep_polls";
    let found: Vec<(i64, i64, i64)> = match db {
        Database::Sqlite(store) => {
            let from = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            sqlite::ask(store, SQL, [], from).await?
        }
        Database::Postgres(store) => {
            let from = |row: &tokio_postgres::Row| (row.get(0), row.get(1), row.get(2));
            postgres::ask(store, SQL, &[]).await?.iter().map(from).collect()
        }
    };
    let (endpoints, paused, failing) = found.first().copied().unwrap_or_default();
    let [endpoints, paused, failing] = [endpoints, paused, failing].map(unsigned);
    Ok(Summary { endpoints, paused, failing })
}

/// Endpoints whose last result was bad and that are not paused, by id after `after`.
pub async fn failing(db: &Database, after: &str, limit: u32) -> Result<Vec<String>, StoreError> {
    const SQL: &str = "
        SELECT e.id FROM skep_poll_state s JOIN skep_poll_endpoints e ON e.number = s.number
        WHERE NOT s.last_ok AND NOT e.paused AND NOT e.deleted AND e.id > $1
        ORDER BY e.id LIMIT $2";
    let (after, limit) = (after.to_owned(), i64::from(limit));
    match db {
        Database::Sqlite(store) => sqlite::ask(store, SQL, (after, limit), |row| row.get(0)).await,
        Database::Postgres(store) => {
            let rows = postgres::ask(store, SQL, &[&after, &limit]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        }
    }
}

/// The highest epoch under which anything was announced or kept; zero if nothing was.
pub async fn last_epoch(db: &Database) -> Result<u64, StoreError> {
    const SQL: &str = "SELECT COALESCE(max(token_epoch), 0) FROM skep_poll_state";
    let found: Vec<i64> = match db {
        Database::Sqlite(store) => sqlite::ask(store, SQL, [], |row| row.get(0)).await?,
        Database::Postgres(store) => {
            postgres::ask(store, SQL, &[]).await?.iter().map(|row| row.get(0)).collect()
        }
    };
    Ok(unsigned(found.first().copied().unwrap_or(0)))
}

/// A number that is greater than any before it, for tokens of owners that live in memory: those
/// granted after a restart must be newer than all before.
pub async fn next_epoch(db: &Database) -> Result<u64, StoreError> {
    const SQL: &str = "UPDATE skep_polls SET epoch = epoch + 1 RETURNING epoch";
    let epoch: i64 = match db {
        Database::Sqlite(store) => {
            let work = |db: &rusqlite::Connection| Ok(db.query_row(SQL, [], |row| row.get(0))?);
            store.write::<_, StoreError, _>(work).await?
        }
        Database::Postgres(store) => {
            let rows = postgres::ask(store, SQL, &[]).await?;
            let cause = "skep_polls has no row".to_owned();
            let none = || StoreError::Refused { store: db.name(), cause };
            rows.first().ok_or_else(none)?.get(0)
        }
    };
    Ok(unsigned(epoch))
}
