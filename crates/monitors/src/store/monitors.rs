//! Monitors.

use super::book::Book;
use super::lists::{Listed, MonitorFilter, Page, Where};
use super::rows::family;
use super::tx::{Row, Tx, damaged, find, look, step, values};
use super::{ChangeError, Limits, accounts, pairs, rows};
use crate::model::{Monitor, NewMonitor};
use skep_policy::monitors::GlobalStatus;
use skep_store::{Database, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Creates a monitor, if its name is free and its account may have one more.
pub async fn create_monitor(
    db: &Database,
    new: NewMonitor,
    key_id: Option<String>,
    limits: Limits,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    step!(db, tx => create_one(tx, &new, key_id.as_deref(), limits, now_ms))
}

async fn create_one<T: Tx>(
    tx: &T,
    new: &NewMonitor,
    key_id: Option<&str>,
    limits: Limits,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    let mut book = Book::open(tx).await?;
    let made = create(tx, &mut book, new, key_id, limits, now_ms).await?;
    book.close(tx).await?;
    Ok(made)
}

/// Replaces a monitor that is there. Replacing it by itself changes nothing.
pub async fn replace_monitor(
    db: &Database,
    new: NewMonitor,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    step!(db, tx => replace_one(tx, &new, now_ms))
}

async fn replace_one<T: Tx>(tx: &T, new: &NewMonitor, now_ms: i64) -> Result<Monitor, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = live(tx, &new.id).await?.ok_or_else(|| missing(&new.id))?;
    let (monitor, _) = replace(tx, &mut book, present, new, now_ms).await?;
    book.close(tx).await?;
    Ok(monitor)
}

/// Says what the network as a whole thinks of a monitor.
pub async fn set_monitor_status(
    db: &Database,
    id: &str,
    status: GlobalStatus,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    let id = id.to_owned();
    step!(db, tx => set_status(tx, &id, status, now_ms))
}

async fn set_status<T: Tx>(
    tx: &T,
    id: &str,
    status: GlobalStatus,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    if status == GlobalStatus::Deleted {
        let before = delete(tx, id, now_ms).await?;
        return Ok(by_number(tx, before.number).await?.unwrap_or(before));
    }
    let mut book = Book::open(tx).await?;
    let present = live(tx, id).await?.ok_or_else(|| missing(id))?;
    let wanted = Wanted { status, ..Wanted::of(&present) };
    let (monitor, _) = change(tx, &mut book, present, wanted, now_ms).await?;
    book.close(tx).await?;
    Ok(monitor)
}

/// Gives a monitor another key, or none; the one it had.
pub async fn set_monitor_key(
    db: &Database,
    id: &str,
    key_id: Option<String>,
    now_ms: i64,
) -> Result<Option<String>, ChangeError> {
    let id = id.to_owned();
    step!(db, tx => set_key(tx, &id, key_id.as_deref(), now_ms))
}

async fn set_key<T: Tx>(
    tx: &T,
    id: &str,
    key_id: Option<&str>,
    now_ms: i64,
) -> Result<Option<String>, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = live(tx, id).await?.ok_or_else(|| missing(id))?;
    let update = "UPDATE skep_monitor_monitors SET key_id = $2, updated_at = $3 WHERE number = $1";
    tx.run(update, &values![present.number, key_id, now_ms]).await?;
    book.roster_changed();
    book.close(tx).await?;
    Ok(present.key_id)
}

/// Deletes a monitor; how it was. It stays where it works until reviews have taken it out, and goes
/// with [`purge`].
pub async fn delete_monitor(db: &Database, id: &str, now_ms: i64) -> Result<Monitor, ChangeError> {
    let id = id.to_owned();
    step!(db, tx => delete(tx, &id, now_ms))
}

async fn delete<T: Tx>(tx: &T, id: &str, now_ms: i64) -> Result<Monitor, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = live(tx, id).await?.ok_or_else(|| missing(id))?;
    let update = "UPDATE skep_monitor_monitors
         SET status = 'deleted', key_id = NULL, updated_at = $2, check_index = check_index + 1
         WHERE number = $1";
    tx.run(update, &values![present.number, now_ms]).await?;
    pairs::due_for_monitor(tx, present.number, now_ms).await?;
    accounts::count(tx, present.account.as_deref(), -1, 0).await?;
    book.monitors -= 1;
    book.roster_changed();
    book.close(tx).await?;
    Ok(present)
}

/// Removes deleted monitors that work nowhere any more, with what they are to servers: up to so
/// many rows. How many were removed; fewer than allowed means that no more is to be done.
pub async fn purge(db: &Database, rows: u32) -> Result<u64, StoreError> {
    step!(db, tx => purge_some(tx, rows))
}

/// A deleted monitor that works nowhere.
pub(super) const PURGEABLE: &str = "
    SELECT number FROM skep_monitor_monitors
    WHERE status = 'deleted' AND testings = 0 AND actives = 0 ORDER BY id LIMIT 1";

async fn purge_some<T: Tx>(tx: &T, rows: u32) -> Result<u64, StoreError> {
    let mut removed = 0;
    if find(tx, PURGEABLE, &[]).await?.is_none() {
        return Ok(removed);
    }
    let mut book = Book::open(tx).await?;
    while removed < u64::from(rows) {
        let Some(row) = find(tx, PURGEABLE, &[]).await? else { break };
        let number: i64 = row.get(0)?;
        let room = rows - removed as u32;
        let pairs = pairs::drop_of_monitor(tx, number, room).await?;
        removed += pairs;
        if pairs < u64::from(room) {
            let delete = "DELETE FROM skep_monitor_monitors WHERE number = $1";
            removed += tx.run(delete, &values![number]).await?;
            book.roster_changed();
        }
    }
    book.close(tx).await?;
    Ok(removed)
}

/// One monitor that is not deleted.
pub async fn monitor(db: &Database, id: &str) -> Result<Option<Monitor>, StoreError> {
    let id = id.to_owned();
    look!(db, tx => live(tx, &id))
}

/// The monitor that reports with this key.
pub async fn monitor_of_key(db: &Database, key_id: &str) -> Result<Option<Monitor>, StoreError> {
    let key_id = key_id.to_owned();
    look!(db, tx => by_key(tx, &key_id))
}

async fn by_key<T: Tx>(tx: &T, key_id: &str) -> Result<Option<Monitor>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_monitors WHERE key_id = $1", rows::MONITOR);
    find(tx, &select, &values![key_id]).await?.as_ref().map(rows::monitor).transpose()
}

/// The names of these numbers; those that are gone are left out.
pub async fn monitor_ids(
    db: &Database,
    numbers: Vec<i64>,
) -> Result<HashMap<i64, String>, StoreError> {
    look!(db, tx => ids(tx, numbers))
}

pub(super) async fn ids<T: Tx>(
    tx: &T,
    numbers: Vec<i64>,
) -> Result<HashMap<i64, String>, StoreError> {
    let select = "SELECT number, id FROM skep_monitor_monitors WHERE number ";
    let found = tx.query(&(select.to_owned() + &T::one_of(1)), &values![numbers]).await?;
    found.iter().map(|row: &Row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// A page of monitors.
pub async fn monitors(
    db: &Database,
    page: Page,
    filter: MonitorFilter,
) -> Result<Listed<Monitor>, StoreError> {
    look!(db, tx => list(tx, &page, &filter))
}

async fn list<T: Tx>(
    tx: &T,
    page: &Page,
    wanted: &MonitorFilter,
) -> Result<Listed<Monitor>, StoreError> {
    const TABLE: &str = "skep_monitor_monitors";
    let mut filter = Where::default();
    if let Some(account) = &wanted.account {
        filter.add(account, |number| format!("account = ${number}"));
    }
    if let Some((name, value)) = &wanted.label {
        let has = |rest: String| format!("EXISTS (SELECT 1 FROM {} AS l WHERE {rest})", T::LABELS);
        filter.add(name, |number| has(format!("l.key = ${number}")));
        if let Some(value) = value {
            filter.add(value, |number| {
                // The name is the parameter before.
                has(format!("l.key = ${} AND l.value = ${number}", number - 1))
            });
        }
    }
    filter.search::<T>(page.search.as_deref(), &["id", "ip", "labels"]);
    let all = filter.is_empty() && wanted.status.is_none();
    match wanted.status {
        Some(status) => filter.add(status.as_str(), |number| format!("status = ${number}")),
        None => filter.hold("status <> 'deleted'"),
    }
    let total = match all {
        true => u64::try_from(Book::glance(tx).await?.monitors).unwrap_or(0),
        false => filter.count(tx, TABLE).await?,
    };
    let (rows, next) = filter.page(tx, rows::MONITOR, TABLE, page, rows::monitor).await?;
    Ok(Listed { rows, total, next })
}

fn missing(id: &str) -> ChangeError {
    ChangeError::Missing { what: "monitor", id: id.to_owned() }
}

/// One monitor, also if it is deleted.
pub(super) async fn by_id<T: Tx>(tx: &T, id: &str) -> Result<Option<Monitor>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_monitors WHERE id = $1", rows::MONITOR);
    find(tx, &select, &values![id]).await?.as_ref().map(rows::monitor).transpose()
}

async fn by_number<T: Tx>(tx: &T, number: i64) -> Result<Option<Monitor>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_monitors WHERE number = $1", rows::MONITOR);
    find(tx, &select, &values![number]).await?.as_ref().map(rows::monitor).transpose()
}

pub(super) async fn live<T: Tx>(tx: &T, id: &str) -> Result<Option<Monitor>, StoreError> {
    let found = by_id(tx, id).await?;
    Ok(found.filter(|monitor| monitor.status != GlobalStatus::Deleted))
}

/// Whether an account may have one more monitor. Of nobody there may be any number.
async fn admit<T: Tx>(tx: &T, account: Option<&str>) -> Result<(), ChangeError> {
    let Some(id) = account else { return Ok(()) };
    let found = accounts::by_id(tx, id).await?;
    let id = id.to_owned();
    let Some(account) = found else { return Err(ChangeError::UnknownAccount { id }) };
    if !account.flags.monitor_enabled {
        return Err(ChangeError::AccountDisabled { id });
    }
    match account.flags.monitor_limit {
        Some(limit) if account.monitors >= limit => {
            Err(ChangeError::AccountFull { id, limit, has: account.monitors })
        }
        _ => Ok(()),
    }
}

/// Creates a monitor, with its pairs.
pub(super) async fn create<T: Tx>(
    tx: &T,
    book: &mut Book,
    new: &NewMonitor,
    key_id: Option<&str>,
    limits: Limits,
    now_ms: i64,
) -> Result<Monitor, ChangeError> {
    let id = new.id.clone();
    match by_id(tx, &id).await?.map(|present| present.status) {
        None => {}
        Some(GlobalStatus::Deleted) => return Err(ChangeError::Leaving { id }),
        Some(_) => return Err(ChangeError::Exists { what: "monitor", id }),
    }
    if u64::try_from(book.monitors).unwrap_or(0) >= limits.monitors_max {
        return Err(ChangeError::TooMany { what: "monitor", max: limits.monitors_max });
    }
    admit(tx, new.account.as_deref()).await?;
    let (number, family) = (book.next_number(), family(new.ip));
    let status = new.status.unwrap_or(GlobalStatus::Pending);
    let insert = "INSERT INTO skep_monitor_monitors
             (id, number, account, ip, family, status, labels, key_id, check_index, candidates,
              testings, actives, pauses, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, 0, 0, $9, $9)";
    let values = values![
        &new.id,
        number,
        new.account.as_deref(),
        &new.ip.to_string(),
        family,
        status.as_str(),
        &written(&new.labels)?,
        key_id,
        now_ms
    ];
    tx.run(insert, &values).await?;
    if status.may_serve() {
        pairs::of_monitor(tx, number, family, now_ms).await?;
    }
    accounts::count(tx, new.account.as_deref(), 1, 0).await?;
    book.monitors += 1;
    book.roster_changed();
    let made = by_id(tx, &new.id).await?;
    made.ok_or_else(|| damaged("a monitor that was created is not there").into())
}

/// Replaces a monitor; whether that made a difference.
pub(super) async fn replace<T: Tx>(
    tx: &T,
    book: &mut Book,
    present: Monitor,
    new: &NewMonitor,
    now_ms: i64,
) -> Result<(Monitor, bool), ChangeError> {
    let wanted = Wanted {
        account: new.account.clone(),
        ip: new.ip,
        status: new.status.unwrap_or(present.status),
        labels: new.labels.clone(),
    };
    change(tx, book, present, wanted, now_ms).await
}

/// What may be changed about a monitor.
#[derive(PartialEq)]
struct Wanted {
    account: Option<String>,
    ip: IpAddr,
    status: GlobalStatus,
    labels: BTreeMap<String, String>,
}

impl Wanted {
    fn of(monitor: &Monitor) -> Self {
        Wanted {
            account: monitor.account.clone(),
            ip: monitor.ip,
            status: monitor.status,
            labels: monitor.labels.clone(),
        }
    }
}

async fn change<T: Tx>(
    tx: &T,
    book: &mut Book,
    present: Monitor,
    wanted: Wanted,
    now_ms: i64,
) -> Result<(Monitor, bool), ChangeError> {
    if Wanted::of(&present) == wanted {
        return Ok((present, false));
    }
    if present.account != wanted.account {
        admit(tx, wanted.account.as_deref()).await?;
        accounts::count(tx, present.account.as_deref(), -1, 0).await?;
        accounts::count(tx, wanted.account.as_deref(), 1, 0).await?;
    }
    let (number, family) = (present.number, family(wanted.ip));
    let update = "UPDATE skep_monitor_monitors
         SET account = $2, ip = $3, family = $4, status = $5, labels = $6, updated_at = $7,
             check_index = check_index + 1
         WHERE number = $1";
    let values = values![
        number,
        wanted.account.as_deref(),
        &wanted.ip.to_string(),
        family,
        wanted.status.as_str(),
        &written(&wanted.labels)?,
        now_ms
    ];
    tx.run(update, &values).await?;
    let same = present.account == wanted.account
        && present.ip == wanted.ip
        && present.status == wanted.status;
    if !same {
        pairs::due_for_monitor(tx, number, now_ms).await?;
        if super::rows::family(present.ip) != family {
            pairs::part_monitor(tx, number, family).await?;
        }
        if wanted.status.may_serve() {
            pairs::of_monitor(tx, number, family, now_ms).await?;
        }
    }
    book.roster_changed();
    let changed = by_number(tx, number).await?;
    let gone = || ChangeError::from(damaged("a monitor that was changed is not there"));
    Ok((changed.ok_or_else(gone)?, true))
}

fn written(labels: &BTreeMap<String, String>) -> Result<String, StoreError> {
    serde_json::to_string(labels).map_err(|error| damaged(&format!("labels: {error}")))
}
