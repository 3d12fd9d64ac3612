//! What a review looks at, and what interfaces show of it.

use super::book::Book;
use super::samples::SUMMARIES;
use super::tx::{Tx, find, look, values};
use super::{rows, servers};
use crate::model::{Account, AssignmentRow, Monitor, Server};
use skep_policy::monitors::{Status, Summary};
use skep_store::{Database, StoreError};
use std::collections::HashMap;

/// All that is known about one server, from one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The server; its index is that of the assignments.
    pub server: Server,
    /// The version of accounts and monitors.
    pub roster_version: i64,
    /// What each monitor is to it, by the monitors' numbers.
    pub assignments: Vec<AssignmentRow>,
    /// What the samples of each monitor come to; those without samples are left out.
    pub summaries: Vec<(i64, Summary)>,
}

/// All accounts and monitors, from one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RosterFacts {
    /// Grows with every change of them.
    pub version: i64,
    /// By number.
    pub accounts: Vec<Account>,
    /// By number; deleted ones too, as long as they are something to a server.
    pub monitors: Vec<Monitor>,
}

/// All that is known about a server, with samples since then; nothing if it is not there.
pub async fn facts(db: &Database, server: i64, since_ms: i64) -> Result<Option<Facts>, StoreError> {
    look!(db, tx => look_at(tx, server, since_ms))
}

async fn look_at<T: Tx>(tx: &T, number: i64, since_ms: i64) -> Result<Option<Facts>, StoreError> {
    let roster_version = Book::glance(tx).await?.version;
    let Some(server) = servers::by_number(tx, number).await? else { return Ok(None) };
    let assignments = of_server(tx, number).await?;
    let summaries = tx.query(SUMMARIES, &values![number, since_ms]).await?;
    let summaries = summaries.iter().map(rows::summary).collect::<Result<_, _>>()?;
    Ok(Some(Facts { server, roster_version, assignments, summaries }))
}

/// All accounts and monitors.
pub async fn roster(db: &Database) -> Result<RosterFacts, StoreError> {
    look!(db, tx => whole_roster(tx))
}

async fn whole_roster<T: Tx>(tx: &T) -> Result<RosterFacts, StoreError> {
    let version = Book::glance(tx).await?.version;
    let select = format!("SELECT {} FROM skep_monitor_accounts ORDER BY number", rows::ACCOUNT);
    let accounts = tx.query(&select, &[]).await?;
    let select = format!("SELECT {} FROM skep_monitor_monitors ORDER BY number", rows::MONITOR);
    let monitors = tx.query(&select, &[]).await?;
    Ok(RosterFacts {
        version,
        accounts: accounts.iter().map(rows::account).collect::<Result<_, _>>()?,
        monitors: monitors.iter().map(rows::monitor).collect::<Result<_, _>>()?,
    })
}

/// The version of accounts and monitors.
pub async fn roster_version(db: &Database) -> Result<i64, StoreError> {
    let book: Result<Book, StoreError> = look!(db, tx => Book::glance(tx));
    book.map(|book| book.version)
}

/// What each monitor is to a server, by the monitors' numbers.
pub async fn assignments_of_server(
    db: &Database,
    server: i64,
) -> Result<Vec<AssignmentRow>, StoreError> {
    look!(db, tx => of_server(tx, server))
}

async fn of_server<T: Tx>(tx: &T, server: i64) -> Result<Vec<AssignmentRow>, StoreError> {
    let select = format!(
        "SELECT {} FROM skep_monitor_assignments WHERE server = $1 ORDER BY monitor",
        rows::ASSIGNMENT
    );
    let found = tx.query(&select, &values![server]).await?;
    found.iter().map(|row| rows::assignment(row, 0)).collect()
}

/// What a monitor is to a server; nothing if they are no pair.
pub async fn assignment(
    db: &Database,
    server: i64,
    monitor: i64,
) -> Result<Option<AssignmentRow>, StoreError> {
    look!(db, tx => of_pair(tx, server, monitor))
}

pub(super) async fn of_pair<T: Tx>(
    tx: &T,
    server: i64,
    monitor: i64,
) -> Result<Option<AssignmentRow>, StoreError> {
    let select = format!(
        "SELECT {} FROM skep_monitor_assignments WHERE server = $1 AND monitor = $2",
        rows::ASSIGNMENT
    );
    let found = find(tx, &select, &values![server, monitor]).await?;
    found.map(|row| rows::assignment(&row, 0)).transpose()
}

/// The servers that a monitor is something to, by their names after `after`.
pub async fn assignments_of_monitor(
    db: &Database,
    monitor: i64,
    after: Option<String>,
    limit: u32,
) -> Result<Vec<(Server, AssignmentRow)>, StoreError> {
    look!(db, tx => of_monitor(tx, monitor, after.as_deref(), limit))
}

/// Servers in the order of their names, and for each whether it is a pair: that ends early, and a
/// monitor is something to nearly all servers.
pub(super) fn of_monitor_sql() -> String {
    let named = |columns: &str, table: &str| {
        let columns = columns.split(',').map(|column| format!("{table}.{}", column.trim()));
        columns.collect::<Vec<_>>().join(", ")
    };
    format!(
        "SELECT {}, {} FROM skep_monitor_servers s CROSS JOIN skep_monitor_assignments a
         WHERE a.server = s.number AND a.monitor = $1 AND s.id > $2 ORDER BY s.id LIMIT $3",
        named(rows::SERVER, "s"),
        named(rows::ASSIGNMENT, "a")
    )
}

async fn of_monitor<T: Tx>(
    tx: &T,
    monitor: i64,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<(Server, AssignmentRow)>, StoreError> {
    let values = values![monitor, after.unwrap_or(""), limit];
    let found = tx.query(&of_monitor_sql(), &values).await?;
    let both = |row| Ok((rows::server(row)?, rows::assignment(row, rows::SERVER_COLUMNS)?));
    found.iter().map(both).collect()
}

/// How these servers do: the median of the scores of those who are active there; without any, of
/// those in testing too. Servers that nobody has measured are left out.
pub async fn scores(db: &Database, servers: Vec<i64>) -> Result<HashMap<i64, f64>, StoreError> {
    look!(db, tx => all_scores(tx, servers))
}

pub(super) fn scores_sql<T: Tx>() -> String {
    format!(
        "SELECT server, status, score FROM skep_monitor_assignments{}
         WHERE server {} AND status IN ('testing', 'active') AND last_sample IS NOT NULL",
        T::IN_SERVICE,
        T::one_of(1)
    )
}

async fn all_scores<T: Tx>(tx: &T, servers: Vec<i64>) -> Result<HashMap<i64, f64>, StoreError> {
    let found = tx.query(&scores_sql::<T>(), &values![servers]).await?;
    // Those of active monitors, and those of the others.
    let mut by_server: HashMap<i64, [Vec<f64>; 2]> = HashMap::new();
    for row in &found {
        let place = usize::from(row.word::<Status>(1)? != Status::Active);
        by_server.entry(row.get(0)?).or_default()[place].push(row.get(2)?);
    }
    let score = |(server, [active, testing]): (i64, [Vec<f64>; 2])| {
        let chosen = if active.is_empty() { testing } else { active };
        Some((server, median(chosen)?))
    };
    Ok(by_server.into_iter().filter_map(score).collect())
}

fn median(mut scores: Vec<f64>) -> Option<f64> {
    scores.sort_unstable_by(f64::total_cmp);
    let middle = scores.len() / 2;
    let upper = *scores.get(middle)?;
    Some(if scores.len() % 2 == 1 { upper } else { (scores[middle - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}
