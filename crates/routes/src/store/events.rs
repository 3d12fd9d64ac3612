//! What happened to routes and their upstreams, for people to read afterwards.

use super::{
    Asked, FORGET_MAX, RouteStore, check_rows, clean, execute, execute_embedded, page, signed,
};
use rusqlite::{Connection, params};
use skep_store::{Database, StoreError};
use tokio_postgres::types::ToSql;

/// So many of the last events are kept, however young the others are: an upstream that comes and
/// goes all the time must not fill the disk.
pub const EVENTS_MAX: i64 = 100_000;

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEvent {
    /// When.
    pub at_ms: i64,
    /// Who saw it.
    pub node: String,
    /// By chance. A node that writes an event again, because the answer was lost, gives the same;
    /// it is kept once.
    pub key: u64,
    /// The route.
    pub route: String,
    /// What it is, in a word.
    pub kind: String,
    /// The upstream; empty if it is about the route as a whole.
    pub upstream: String,
    /// The status of an answer, if there was one.
    pub status: Option<u16>,
    /// What else there is to say.
    pub detail: String,
}

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Later ones have higher ids, those of one node in the order in which it wrote them.
    pub id: i64,
    /// When.
    pub at_ms: i64,
    /// Who saw it.
    pub node: String,
    /// The route.
    pub route: String,
    /// What it is, in a word.
    pub kind: String,
    /// The upstream; empty if it is about the route as a whole.
    pub upstream: String,
    /// The status of an answer, if there was one.
    pub status: Option<u16>,
    /// What else there is to say.
    pub detail: String,
}

/// Which events to read; what is not given is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this route.
    pub route: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// About this upstream.
    pub upstream: Option<String>,
    /// Seen by this node.
    pub node: Option<String>,
}

impl RouteStore {
    /// Keeps events in the order given. Long texts are cut. Whoever writes some again, together
    /// with others or not, keeps their order; otherwise the store may be busy with the first
    /// attempt and say so.
    ///
    /// # Errors
    /// Also with more events than [`super::ROWS_MAX`]; nothing is kept then.
    pub async fn write_events(&self, mut events: Vec<NewEvent>) -> Result<(), StoreError> {
        check_rows(&self.db, events.len())?;
        if events.is_empty() {
            return Ok(());
        }
        for event in &mut events {
            let NewEvent { node, route, kind, upstream, detail, .. } = event;
            for text in [node, route, kind, upstream, detail] {
                *text = clean(text);
            }
        }
        match &self.db {
            Database::Sqlite(store) => store.write(move |db| keep_in_sqlite(db, &events)).await,
            Database::Postgres(store) => {
                let texts = |of: fn(&NewEvent) -> &str| events.iter().map(of).collect::<Vec<_>>();
                let values: [&(dyn ToSql + Sync); 8] = [
                    &events.iter().map(|event| event.at_ms).collect::<Vec<_>>(),
                    &texts(|event| &event.node),
                    &events.iter().map(|event| event.key.cast_signed()).collect::<Vec<_>>(),
                    &texts(|event| &event.route),
                    &texts(|event| &event.kind),
                    &texts(|event| &event.upstream),
                    &events.iter().map(|one| one.status.map(i64::from)).collect::<Vec<_>>(),
                    &texts(|event| &event.detail),
                ];
                let insert = "
                    INSERT INTO skep_route_events
                        (at, node, key, route, kind, upstream, status, detail)
                    SELECT at, node, key, route, kind, upstream, status, detail
                    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[],
                                $6::text[], $7::bigint[], $8::text[]) WITH ORDINALITY
                        AS e (at, node, key, route, kind, upstream, status, detail, place)
                    ORDER BY place
                    ON CONFLICT (node, key) DO NOTHING";
                execute(store, insert, &values).await?;
                Ok(())
            }
        }
    }

    /// Events, newest first, those before the id `before` if it is given; at most `limit`, and
    /// never more than [`super::ROWS_MAX`].
    pub async fn events(
        &self,
        filter: &EventFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let wanted = |text: &Option<String>| text.as_deref().map(clean).unwrap_or_default();
        let [kind, upstream, node] = [&filter.kind, &filter.upstream, &filter.node].map(wanted);
        let numbers = [before.unwrap_or(i64::MAX), page(limit)];
        match &filter.route {
            Some(route) => {
                const SQL: &str = "
                    SELECT id, at, node, route, kind, upstream, status, detail
                    FROM skep_route_events
                    WHERE route = $1 AND ($2 = '' OR kind = $2) AND ($3 = '' OR upstream = $3)
                          AND ($4 = '' OR node = $4) AND id < $5
                    ORDER BY id DESC LIMIT $6";
                let asked = Asked([clean(route), kind, upstream, node], numbers);
                self.ask(SQL, asked, of_sqlite, of_postgres).await
            }
            None => {
                const SQL: &str = "
                    SELECT id, at, node, route, kind, upstream, status, detail
                    FROM skep_route_events
                    WHERE ($1 = '' OR kind = $1) AND ($2 = '' OR upstream = $2)
                          AND ($3 = '' OR node = $3) AND id < $4
                    ORDER BY id DESC LIMIT $5";
                let asked = Asked([kind, upstream, node], numbers);
                self.ask(SQL, asked, of_sqlite, of_postgres).await
            }
        }
    }

    /// Forgets some of the events before a time, and of those beyond the last [`EVENTS_MAX`];
    /// says whether there may be more.
    pub async fn forget_events_before(&self, at_ms: i64) -> Result<bool, StoreError> {
        self.forget_events(at_ms, EVENTS_MAX).await
    }

    pub(super) async fn forget_events(&self, at_ms: i64, keep: i64) -> Result<bool, StoreError> {
        let forgotten = match &self.db {
            Database::Sqlite(store) => {
                const SQL: &str = "
                    DELETE FROM skep_route_events WHERE id IN (
                        SELECT id FROM skep_route_events
                        WHERE at < ?1 OR id <= (SELECT max(id) FROM skep_route_events) - ?2
                        LIMIT ?3)";
                execute_embedded(store, SQL, [at_ms, keep, FORGET_MAX]).await?
            }
            Database::Postgres(store) => {
                const SQL: &str = "
                    DELETE FROM skep_route_events WHERE id IN (
                        SELECT id FROM skep_route_events
                        WHERE at < $1 OR id <= (SELECT max(id) FROM skep_route_events) - $2
                        LIMIT $3 FOR UPDATE SKIP LOCKED)";
                execute(store, SQL, &[&at_ms, &keep, &FORGET_MAX]).await?
            }
        };
        Ok(signed(forgotten) >= FORGET_MAX)
    }
}

fn keep_in_sqlite(db: &Connection, events: &[NewEvent]) -> Result<(), StoreError> {
    let mut insert = db.prepare_cached(
        "INSERT INTO skep_route_events (at, node, key, route, kind, upstream, status, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (node, key) DO NOTHING",
    )?;
    for NewEvent { at_ms, node, key, route, kind, upstream, status, detail } in events {
        let key = key.cast_signed();
        insert.execute(params![at_ms, node, key, route, kind, upstream, status, detail])?;
    }
    Ok(())
}

fn of_sqlite(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        node: row.get(2)?,
        route: row.get(3)?,
        kind: row.get(4)?,
        upstream: row.get(5)?,
        status: row.get(6)?,
        detail: row.get(7)?,
    })
}

fn of_postgres(row: &tokio_postgres::Row) -> Event {
    Event {
        id: row.get(0),
        at_ms: row.get(1),
        node: row.get(2),
        route: row.get(3),
        kind: row.get(4),
        upstream: row.get(5),
        status: row.get::<_, Option<i64>>(6).and_then(|status| u16::try_from(status).ok()),
        detail: row.get(7),
    }
}
