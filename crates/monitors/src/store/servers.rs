//! Servers.

use super::book::Book;
use super::lists::{Listed, Page, ServerFilter, Where};
use super::rows::family;
use super::tx::{Tx, damaged, find, look, step, values};
use super::{ChangeError, Limits, accounts, pairs, rows};
use crate::model::{NewServer, Probe, Server};
use skep_store::{Database, StoreError};
use std::collections::HashMap;
use std::net::IpAddr;

/// Creates a server, if its name is free. It is due for a review at once.
pub async fn create_server(
    db: &Database,
    new: NewServer,
    limits: Limits,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    step!(db, tx => create_one(tx, &new, limits, now_ms))
}

async fn create_one<T: Tx>(
    tx: &T,
    new: &NewServer,
    limits: Limits,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    let mut book = Book::open(tx).await?;
    let made = create(tx, &mut book, new, limits, now_ms).await?;
    book.close(tx).await?;
    Ok(made)
}

/// Replaces a server that is there. Replacing it by itself changes nothing.
pub async fn replace_server(
    db: &Database,
    new: NewServer,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    step!(db, tx => replace_one(tx, &new, now_ms))
}

async fn replace_one<T: Tx>(tx: &T, new: &NewServer, now_ms: i64) -> Result<Server, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = by_id(tx, &new.id).await?.ok_or_else(|| missing(&new.id))?;
    let (server, _) = replace(tx, &mut book, present, new, now_ms).await?;
    book.close(tx).await?;
    Ok(server)
}

/// Leaves a server alone for now, or lets it go on; then it is due for a review at once.
pub async fn set_server_paused(
    db: &Database,
    id: &str,
    paused: bool,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    let id = id.to_owned();
    step!(db, tx => set_paused(tx, &id, paused, now_ms))
}

async fn set_paused<T: Tx>(
    tx: &T,
    id: &str,
    paused: bool,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = by_id(tx, id).await?.ok_or_else(|| missing(id))?;
    let wanted = Wanted { paused, ..Wanted::of(&present) };
    let (server, _) = change(tx, &mut book, present, wanted, now_ms).await?;
    book.close(tx).await?;
    Ok(server)
}

/// Makes a server due for a review now.
pub async fn review_now(db: &Database, id: &str, now_ms: i64) -> Result<Server, ChangeError> {
    let id = id.to_owned();
    step!(db, tx => make_due(tx, &id, now_ms))
}

async fn make_due<T: Tx>(tx: &T, id: &str, now_ms: i64) -> Result<Server, ChangeError> {
    let update = "UPDATE skep_monitor_servers SET next_review_at = $2
                  WHERE id = $1 AND next_review_at > $2";
    tx.run(update, &values![id, now_ms]).await?;
    by_id(tx, id).await?.ok_or_else(|| missing(id))
}

/// Deletes a server. Its samples go with [`tidy`](super::tidy).
pub async fn delete_server(db: &Database, id: &str) -> Result<(), ChangeError> {
    let id = id.to_owned();
    step!(db, tx => delete(tx, &id))
}

async fn delete<T: Tx>(tx: &T, id: &str) -> Result<(), ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = by_id(tx, id).await?.ok_or_else(|| missing(id))?;
    tx.run("DELETE FROM skep_monitor_servers WHERE number = $1", &values![present.number]).await?;
    pairs::drop_of_server(tx, present.number).await?;
    let gone = "INSERT INTO skep_monitor_gone (server) VALUES ($1)";
    tx.run(gone, &values![present.number]).await?;
    accounts::count(tx, present.account.as_deref(), 0, -1).await?;
    book.servers -= 1;
    book.server_changed();
    Ok(book.close(tx).await?)
}

/// One server.
pub async fn server(db: &Database, id: &str) -> Result<Option<Server>, StoreError> {
    let id = id.to_owned();
    look!(db, tx => by_id(tx, &id))
}

/// The server with this number.
pub async fn server_by_number(db: &Database, number: i64) -> Result<Option<Server>, StoreError> {
    look!(db, tx => by_number(tx, number))
}

/// The numbers of these servers; those that are not there are left out.
pub async fn server_numbers(
    db: &Database,
    ids: Vec<String>,
) -> Result<HashMap<String, i64>, StoreError> {
    look!(db, tx => numbers(tx, &ids))
}

async fn numbers<T: Tx>(tx: &T, ids: &[String]) -> Result<HashMap<String, i64>, StoreError> {
    let select = "SELECT id, number FROM skep_monitor_servers WHERE id ";
    let found = tx.query(&(select.to_owned() + &T::one_of(1)), &values![ids]).await?;
    found.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// A page of servers.
pub async fn servers(
    db: &Database,
    page: Page,
    filter: ServerFilter,
) -> Result<Listed<Server>, StoreError> {
    look!(db, tx => list(tx, &page, &filter))
}

async fn list<T: Tx>(
    tx: &T,
    page: &Page,
    wanted: &ServerFilter,
) -> Result<Listed<Server>, StoreError> {
    const TABLE: &str = "skep_monitor_servers";
    let mut filter = Where::default();
    if let Some(account) = &wanted.account {
        filter.add(account, |number| format!("account = ${number}"));
    }
    if let Some(below) = wanted.below {
        filter.add(below, |number| format!("NOT paused AND actives < ${number}"));
    }
    filter.search::<T>(page.search.as_deref(), &["id", "ip", "probe_target"]);
    let total = match filter.is_empty() {
        true => u64::try_from(Book::glance(tx).await?.servers).unwrap_or(0),
        false => filter.count(tx, TABLE).await?,
    };
    let (rows, next) = filter.page(tx, rows::SERVER, TABLE, page, rows::server).await?;
    Ok(Listed { rows, total, next })
}

fn missing(id: &str) -> ChangeError {
    ChangeError::Missing { what: "server", id: id.to_owned() }
}

pub(super) async fn by_id<T: Tx>(tx: &T, id: &str) -> Result<Option<Server>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_servers WHERE id = $1", rows::SERVER);
    find(tx, &select, &values![id]).await?.as_ref().map(rows::server).transpose()
}

pub(super) async fn by_number<T: Tx>(tx: &T, number: i64) -> Result<Option<Server>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_servers WHERE number = $1", rows::SERVER);
    find(tx, &select, &values![number]).await?.as_ref().map(rows::server).transpose()
}

async fn admit<T: Tx>(tx: &T, account: Option<&str>) -> Result<(), ChangeError> {
    let Some(id) = account else { return Ok(()) };
    match accounts::by_id(tx, id).await? {
        Some(_) => Ok(()),
        None => Err(ChangeError::UnknownAccount { id: id.to_owned() }),
    }
}

/// Creates a server, with its pairs.
pub(super) async fn create<T: Tx>(
    tx: &T,
    book: &mut Book,
    new: &NewServer,
    limits: Limits,
    now_ms: i64,
) -> Result<Server, ChangeError> {
    if by_id(tx, &new.id).await?.is_some() {
        return Err(ChangeError::Exists { what: "server", id: new.id.clone() });
    }
    if u64::try_from(book.servers).unwrap_or(0) >= limits.servers_max {
        return Err(ChangeError::TooMany { what: "server", max: limits.servers_max });
    }
    admit(tx, new.account.as_deref()).await?;
    let (number, family) = (book.next_number(), family(new.ip));
    let insert = "INSERT INTO skep_monitor_servers
             (id, number, account, ip, family, probe_kind, probe_target, probe_timeout_ms,
              probe_status, paused, check_index, candidates, testings, actives, pauses, created_at,
              updated_at, next_review_at, token, claimed_until)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, 0, 0, 0, 0, $11, $11, $11, 0, 0)";
    let values = values![
        &new.id,
        number,
        new.account.as_deref(),
        &new.ip.to_string(),
        family,
        new.probe.kind.as_str(),
        &new.probe.target,
        new.probe.timeout_ms,
        new.probe.expect_status.map(i64::from),
        new.paused.unwrap_or(false),
        now_ms
    ];
    tx.run(insert, &values).await?;
    pairs::of_server(tx, number, family, now_ms).await?;
    accounts::count(tx, new.account.as_deref(), 0, 1).await?;
    book.servers += 1;
    book.server_changed();
    let made = by_number(tx, number).await?;
    made.ok_or_else(|| damaged("a server that was created is not there").into())
}

/// Replaces a server; whether that made a difference.
pub(super) async fn replace<T: Tx>(
    tx: &T,
    book: &mut Book,
    present: Server,
    new: &NewServer,
    now_ms: i64,
) -> Result<(Server, bool), ChangeError> {
    let wanted = Wanted {
        account: new.account.clone(),
        ip: new.ip,
        probe: new.probe.clone(),
        paused: new.paused.unwrap_or(present.paused),
    };
    change(tx, book, present, wanted, now_ms).await
}

/// What may be changed about a server.
#[derive(PartialEq)]
struct Wanted {
    account: Option<String>,
    ip: IpAddr,
    probe: Probe,
    paused: bool,
}

impl Wanted {
    fn of(server: &Server) -> Self {
        Wanted {
            account: server.account.clone(),
            ip: server.ip,
            probe: server.probe.clone(),
            paused: server.paused,
        }
    }
}

async fn change<T: Tx>(
    tx: &T,
    book: &mut Book,
    present: Server,
    wanted: Wanted,
    now_ms: i64,
) -> Result<(Server, bool), ChangeError> {
    if Wanted::of(&present) == wanted {
        return Ok((present, false));
    }
    if present.account != wanted.account {
        admit(tx, wanted.account.as_deref()).await?;
        accounts::count(tx, present.account.as_deref(), 0, -1).await?;
        accounts::count(tx, wanted.account.as_deref(), 0, 1).await?;
    }
    let (number, family) = (present.number, family(wanted.ip));
    // What its monitors may be depends on all but the probe; one that goes on has been away.
    let due = present.account != wanted.account
        || present.ip != wanted.ip
        || (present.paused && !wanted.paused);
    let update = "UPDATE skep_monitor_servers
         SET account = $2, ip = $3, family = $4, probe_kind = $5, probe_target = $6,
             probe_timeout_ms = $7, probe_status = $8, paused = $9, updated_at = $10,
             check_index = check_index + 1
         WHERE number = $1";
    let values = values![
        number,
        wanted.account.as_deref(),
        &wanted.ip.to_string(),
        family,
        wanted.probe.kind.as_str(),
        &wanted.probe.target,
        wanted.probe.timeout_ms,
        wanted.probe.expect_status.map(i64::from),
        wanted.paused,
        now_ms
    ];
    tx.run(update, &values).await?;
    if due {
        make_due(tx, &present.id, now_ms).await?;
    }
    pairs::touch_monitors(tx, number).await?;
    if super::rows::family(present.ip) != family {
        pairs::part_server(tx, number, family).await?;
        pairs::of_server(tx, number, family, now_ms).await?;
    }
    book.server_changed();
    let changed = by_number(tx, number).await?;
    let gone = || ChangeError::from(damaged("a server that was changed is not there"));
    Ok((changed.ok_or_else(gone)?, true))
}
