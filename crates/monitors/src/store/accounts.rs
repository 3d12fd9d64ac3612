//! Accounts.

use super::book::Book;
use super::lists::{Listed, Page, Where};
use super::tx::{Tx, damaged, find, look, step, values};
use super::{ChangeError, pairs, rows};
use crate::model::{Account, Flags, NewAccount};
use skep_store::{Database, StoreError};

/// Creates an account, if there is none with this name.
pub async fn create_account(
    db: &Database,
    new: NewAccount,
    now_ms: i64,
) -> Result<Account, ChangeError> {
    step!(db, tx => create_one(tx, &new, now_ms))
}

async fn create_one<T: Tx>(tx: &T, new: &NewAccount, now_ms: i64) -> Result<Account, ChangeError> {
    let mut book = Book::open(tx).await?;
    if by_id(tx, &new.id).await?.is_some() {
        return Err(ChangeError::Exists { what: "account", id: new.id.clone() });
    }
    let made = create(tx, &mut book, new, now_ms).await?;
    book.close(tx).await?;
    Ok(made)
}

/// Replaces an account that is there. Replacing it by itself changes nothing.
pub async fn replace_account(
    db: &Database,
    new: NewAccount,
    now_ms: i64,
) -> Result<Account, ChangeError> {
    step!(db, tx => replace_one(tx, &new, now_ms))
}

async fn replace_one<T: Tx>(tx: &T, new: &NewAccount, now_ms: i64) -> Result<Account, ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = by_id(tx, &new.id).await?.ok_or_else(|| missing(&new.id))?;
    let (account, _) = replace(tx, &mut book, present, new, now_ms).await?;
    book.close(tx).await?;
    Ok(account)
}

/// Deletes an account that has neither monitors nor servers.
pub async fn delete_account(db: &Database, id: &str) -> Result<(), ChangeError> {
    let id = id.to_owned();
    step!(db, tx => delete(tx, &id))
}

async fn delete<T: Tx>(tx: &T, id: &str) -> Result<(), ChangeError> {
    let mut book = Book::open(tx).await?;
    let present = by_id(tx, id).await?.ok_or_else(|| missing(id))?;
    let Account { monitors, servers, .. } = present;
    if monitors > 0 || servers > 0 {
        return Err(ChangeError::InUse { id: id.to_owned(), monitors, servers });
    }
    tx.run("DELETE FROM skep_monitor_accounts WHERE id = $1", &values![id]).await?;
    book.accounts -= 1;
    book.roster_changed();
    Ok(book.close(tx).await?)
}

/// One account.
pub async fn account(db: &Database, id: &str) -> Result<Option<Account>, StoreError> {
    let id = id.to_owned();
    look!(db, tx => by_id(tx, &id))
}

/// A page of accounts.
pub async fn accounts(db: &Database, page: Page) -> Result<Listed<Account>, StoreError> {
    look!(db, tx => list(tx, &page))
}

async fn list<T: Tx>(tx: &T, page: &Page) -> Result<Listed<Account>, StoreError> {
    const TABLE: &str = "skep_monitor_accounts";
    let mut filter = Where::default();
    filter.search::<T>(page.search.as_deref(), &["id", "coalesce(name, '')"]);
    let total = match filter.is_empty() {
        true => u64::try_from(Book::glance(tx).await?.accounts).unwrap_or(0),
        false => filter.count(tx, TABLE).await?,
    };
    let (rows, next) = filter.page(tx, rows::ACCOUNT, TABLE, page, rows::account).await?;
    Ok(Listed { rows, total, next })
}

pub(super) fn missing(id: &str) -> ChangeError {
    ChangeError::Missing { what: "account", id: id.to_owned() }
}

pub(super) async fn by_id<T: Tx>(tx: &T, id: &str) -> Result<Option<Account>, StoreError> {
    let select = format!("SELECT {} FROM skep_monitor_accounts WHERE id = $1", rows::ACCOUNT);
    find(tx, &select, &values![id]).await?.as_ref().map(rows::account).transpose()
}

/// Creates an account whose name is free.
pub(super) async fn create<T: Tx>(
    tx: &T,
    book: &mut Book,
    new: &NewAccount,
    now_ms: i64,
) -> Result<Account, ChangeError> {
    let insert = "INSERT INTO skep_monitor_accounts
             (id, number, name, flags, monitors, servers, created_at, updated_at)
         VALUES ($1, $2, $3, $4, 0, 0, $5, $5)";
    let name = new.name.as_deref();
    let values = values![&new.id, book.next_number(), name, &written(&new.flags)?, now_ms];
    tx.run(insert, &values).await?;
    book.accounts += 1;
    book.roster_changed();
    let made = by_id(tx, &new.id).await?;
    made.ok_or_else(|| damaged("an account that was created is not there").into())
}

/// Replaces an account; whether that made a difference.
pub(super) async fn replace<T: Tx>(
    tx: &T,
    book: &mut Book,
    present: Account,
    new: &NewAccount,
    now_ms: i64,
) -> Result<(Account, bool), ChangeError> {
    if present.name == new.name && present.flags == new.flags {
        return Ok((present, false));
    }
    let update = "UPDATE skep_monitor_accounts SET name = $2, flags = $3, updated_at = $4
                  WHERE id = $1";
    let values = values![&new.id, new.name.as_deref(), &written(&new.flags)?, now_ms];
    tx.run(update, &values).await?;
    if present.flags != new.flags {
        pairs::due_for_account(tx, &new.id, now_ms).await?;
    }
    book.roster_changed();
    let (name, flags) = (new.name.clone(), new.flags.clone());
    Ok((Account { name, flags, updated_at_ms: now_ms, ..present }, true))
}

fn written(flags: &Flags) -> Result<String, StoreError> {
    serde_json::to_string(flags).map_err(|error| damaged(&format!("flags: {error}")))
}

/// An account gets or loses monitors and servers.
pub(super) async fn count<T: Tx>(
    tx: &T,
    id: Option<&str>,
    monitors: i64,
    servers: i64,
) -> Result<(), StoreError> {
    let Some(id) = id else { return Ok(()) };
    let update = "UPDATE skep_monitor_accounts
                  SET monitors = monitors + $2, servers = servers + $3 WHERE id = $1";
    tx.run(update, &values![id, monitors, servers]).await.map(|_| ())
}
