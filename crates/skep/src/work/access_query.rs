//! Looking for entries of the access log.
//!
//! There is an index by id alone: one by time would cost every entry more than it is worth. Ids
//! grow with time, give or take a minute, so that a time is found by bisection over them.

use super::access_log::AccessEntry;
use super::access_store::{COLUMNS, of_postgres, of_sqlite};
use rusqlite::params_from_iter;
use skep_store::{Database, StoreError};
use tokio_postgres::types::ToSql;

/// Rows that one question may look at.
pub const SCANNED_MAX: i64 = 200_000;

/// An entry may be written so much later than one that was answered after it.
pub const DISORDER_MAX_MS: i64 = 60_000;

/// What can be asked about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    At,
    Route,
    Host,
    Method,
    Path,
    Status,
    Duration,
    Address,
    Actor,
    Upstream,
    RequestId,
}

/// What a column must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Is(String),
    Contains(String),
    Begins(String),
    AtLeast(i64),
    AtMost(i64),
}

enum Held<'a> {
    Number(i64),
    Text(&'a str),
}

/// Which entries to list: those for which everything holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFilter {
    conditions: Vec<(Column, Test)>,
}

/// The dialects in which a question is put.
#[derive(Clone, Copy)]
enum Dialect {
    Sqlite,
    Postgres,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::At => "at",
            Column::Route => "route",
            Column::Host => "host",
            Column::Method => "method",
            Column::Path => "path",
            Column::Status => "status",
            Column::Duration => "duration_us",
            Column::Address => "address",
            Column::Actor => "actor",
            Column::Upstream => "upstream",
            Column::RequestId => "request_id",
        }
    }

    fn of(self, entry: &AccessEntry) -> Held<'_> {
        match self {
            Column::At => Held::Number(entry.at_ms),
            Column::Status => Held::Number(entry.status),
            Column::Duration => Held::Number(entry.duration_us),
            Column::Route => Held::Text(&entry.route),
            Column::Host => Held::Text(&entry.host),
            Column::Method => Held::Text(&entry.method),
            Column::Path => Held::Text(&entry.path),
            Column::Address => Held::Text(&entry.address),
            Column::Actor => Held::Text(&entry.actor),
            Column::Upstream => Held::Text(&entry.upstream),
            Column::RequestId => Held::Text(&entry.request_id),
        }
    }
}

impl Test {
    fn holds(&self, held: &Held<'_>) -> bool {
        match (self, held) {
            (Test::Is(wanted), Held::Text(text)) => wanted == text,
            (Test::Contains(part), Held::Text(text)) => text.contains(part.as_str()),
            (Test::Begins(part), Held::Text(text)) => text.starts_with(part.as_str()),
            (Test::AtLeast(least), Held::Number(number)) => number >= least,
            (Test::AtMost(most), Held::Number(number)) => number <= most,
            _ => false,
        }
    }

    fn sql(&self, dialect: Dialect, column: &str, place: &str) -> String {
        match (self, dialect) {
            (Test::Is(_), _) => format!("{column} = {place}"),
            (Test::Contains(_), Dialect::Sqlite) => format!("instr({column}, {place}) > 0"),
            (Test::Contains(_), Dialect::Postgres) => format!("position({place} in {column}) > 0"),
            (Test::Begins(_), Dialect::Sqlite) => {
                format!("substr({column}, 1, length({place})) = {place}")
            }
            (Test::Begins(_), Dialect::Postgres) => format!("starts_with({column}, {place})"),
            (Test::AtLeast(_), _) => format!("{column} >= {place}"),
            (Test::AtMost(_), _) => format!("{column} <= {place}"),
        }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Test::Is(text) | Test::Contains(text) | Test::Begins(text) => text,
            Test::AtLeast(number) | Test::AtMost(number) => number,
        }
    }

    fn sqlite_value(&self) -> rusqlite::types::Value {
        match self {
            Test::Is(text) | Test::Contains(text) | Test::Begins(text) => text.clone().into(),
            Test::AtLeast(number) | Test::AtMost(number) => (*number).into(),
        }
    }
}

impl AccessFilter {
    /// Only entries whose column holds this, beside what was asked before.
    #[must_use]
    pub fn and(mut self, column: Column, test: Test) -> Self {
        self.conditions.push((column, test));
        self
    }

    /// Whether an entry is one of those that are asked for.
    pub fn lets_through(&self, entry: &AccessEntry) -> bool {
        self.conditions.iter().all(|(column, test)| test.holds(&column.of(entry)))
    }

    /// The first and last moment of what is asked for.
    fn span(&self) -> (Option<i64>, Option<i64>) {
        let mut span = (None, None);
        for (column, test) in &self.conditions {
            match (column, test) {
                (Column::At, Test::AtLeast(from)) => span.0 = span.0.max(Some(*from)),
                (Column::At, Test::AtMost(to)) => {
                    span.1 = Some(span.1.map_or(*to, |known: i64| known.min(*to)));
                }
                _ => {}
            }
        }
        span
    }

    /// Everything that was asked, and that the id is between the first two parameters; the third
    /// is the most rows.
    fn question(&self, dialect: Dialect) -> String {
        let sign = match dialect {
            Dialect::Sqlite => '?',
            Dialect::Postgres => '$',
        };
        let mut question =
            format!("SELECT {COLUMNS} FROM skep_access WHERE id BETWEEN {sign}1 AND {sign}2");
        for (number, (column, test)) in self.conditions.iter().enumerate() {
            let place = format!("{sign}{}", number + 4);
            question.push_str(" AND ");
            question.push_str(&test.sql(dialect, column.name(), &place));
        }
        question.push_str(&format!(" ORDER BY id DESC LIMIT {sign}3"));
        question
    }
}

/// A part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPage {
    /// The newest first.
    pub entries: Vec<AccessEntry>,
    /// The older ones have lower ids than this; nothing if there are none.
    pub next: Option<i64>,
    /// The page is not full because so many rows were looked at that it was time to answer.
    pub stopped_early: bool,
}

/// At most `limit` entries with ids below `before`, newest first, among at most `scanned_max` rows.
pub async fn page(
    db: &Database,
    filter: &AccessFilter,
    before: Option<i64>,
    limit: u32,
    scanned_max: i64,
) -> Result<AccessPage, StoreError> {
    let (from, to) = filter.span();
    let oldest = match from {
        Some(from) => crossing(db, from.saturating_sub(DISORDER_MAX_MS)).await?,
        None => i64::MIN,
    };
    let mut before = before.unwrap_or(i64::MAX);
    if let Some(to) = to {
        before = before.min(crossing(db, to.saturating_add(DISORDER_MAX_MS + 1)).await?);
    }
    let Some((top, _)) = nearest(db, Way::Down, before).await? else {
        return Ok(AccessPage::default());
    };
    let bottom = oldest.max(top.saturating_sub(scanned_max.max(1) - 1));
    let entries = between(db, filter, (bottom, top), limit).await?;
    let full = entries.len() == limit as usize;
    let next = match entries.last() {
        Some(last) if full => Some(last.id),
        _ => {
            let more = nearest(db, Way::Down, bottom).await?;
            more.filter(|(id, _)| *id >= oldest).map(|_| bottom)
        }
    };
    Ok(AccessPage { stopped_early: next.is_some() && !full, entries, next })
}

async fn between(
    db: &Database,
    filter: &AccessFilter,
    (bottom, top): (i64, i64),
    limit: u32,
) -> Result<Vec<AccessEntry>, StoreError> {
    let limit = i64::from(limit);
    match db {
        Database::Sqlite(sqlite) => {
            let question = filter.question(Dialect::Sqlite);
            let tests = filter.conditions.iter().map(|(_, test)| test.sqlite_value());
            let values: Vec<_> =
                [bottom, top, limit].map(Into::into).into_iter().chain(tests).collect();
            let asking = sqlite.read(move |db| {
                let mut statement = db.prepare_cached(&question)?;
                let rows = statement.query_map(params_from_iter(values), of_sqlite)?;
                Ok::<_, StoreError>(rows.collect::<Result<_, _>>()?)
            });
            asking.await
        }
        Database::Postgres(postgres) => {
            let question = filter.question(Dialect::Postgres);
            let mut values: Vec<&(dyn ToSql + Sync)> = vec![&bottom, &top, &limit];
            values.extend(filter.conditions.iter().map(|(_, test)| test.value()));
            let client = postgres.client().await?;
            let asking = async { Ok::<_, StoreError>(client.query(&question, &values).await?) };
            Ok(postgres.limit(asking).await?.iter().map(of_postgres).collect())
        }
    }
}

/// In which direction to look for a row.
#[derive(Clone, Copy)]
pub enum Way {
    /// The id itself, or the next higher.
    Up,
    /// The next lower id.
    Down,
}

/// The id and the time of the row that is nearest to an id.
pub async fn nearest(db: &Database, way: Way, id: i64) -> Result<Option<(i64, i64)>, StoreError> {
    let question = |place: &str| match way {
        Way::Up => {
            format!("SELECT id, at FROM skep_access WHERE id >= {place} ORDER BY id LIMIT 1")
        }
        Way::Down => {
            format!("SELECT id, at FROM skep_access WHERE id < {place} ORDER BY id DESC LIMIT 1")
        }
    };
    match db {
        Database::Sqlite(sqlite) => {
            let question = question("?1");
            let asking = sqlite.read(move |db| {
                let mut statement = db.prepare_cached(&question)?;
                let mut rows = statement.query([id])?;
                let row = rows.next()?;
                row.map(|row| Ok::<_, StoreError>((row.get(0)?, row.get(1)?))).transpose()
            });
            asking.await
        }
        Database::Postgres(postgres) => {
            let client = postgres.client().await?;
            let asking = async {
                let statement = client.prepare_cached(&question("$1")).await?;
                Ok::<_, StoreError>(client.query_opt(&statement, &[&id]).await?)
            };
            Ok(postgres.limit(asking).await?.map(|row| (row.get(0), row.get(1))))
        }
    }
}

/// An id at which the log passes a moment: the row before it is older, the one there is not. Rows
/// further before can be newer by [`DISORDER_MAX_MS`], and those further on older by as much.
pub async fn crossing(db: &Database, at_ms: i64) -> Result<i64, StoreError> {
    let ends = (nearest(db, Way::Up, i64::MIN).await?, nearest(db, Way::Down, i64::MAX).await?);
    let (Some((mut low, _)), Some((last, last_at))) = ends else { return Ok(i64::MIN) };
    if last_at < at_ms {
        return Ok(last.saturating_add(1));
    }
    let mut high = last;
    while low < high {
        let middle = low + (high - low) / 2;
        match nearest(db, Way::Up, middle).await? {
            Some((id, at)) if at < at_ms => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
