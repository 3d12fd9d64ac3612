//! The one row that changes of accounts, monitors and servers go through, one after another.

use super::tx::{Tx, damaged, find, values};
use skep_store::StoreError;

/// The row, held until the end of the step.
pub(super) struct Book {
    pub(super) version: i64,
    changes: i64,
    last_number: i64,
    pub(super) accounts: i64,
    pub(super) monitors: i64,
    pub(super) servers: i64,
    opened_at: i64,
}

const COLUMNS: &str = "version, changes, last_number, accounts, monitors, servers";

impl Book {
    /// Takes the row.
    pub(super) async fn open<T: Tx>(tx: &T) -> Result<Book, StoreError> {
        Book::read(tx, T::LOCK).await
    }

    /// Takes the row together with others who do so: nobody changes it until the end.
    pub(super) async fn share<T: Tx>(tx: &T) -> Result<Book, StoreError> {
        Book::read(tx, T::SHARE).await
    }

    /// Looks at the row, and takes nothing.
    pub(super) async fn glance<T: Tx>(tx: &T) -> Result<Book, StoreError> {
        Book::read(tx, "").await
    }

    async fn read<T: Tx>(tx: &T, lock: &str) -> Result<Book, StoreError> {
        let select = format!("SELECT {COLUMNS} FROM skep_monitors{lock}");
        let row = find(tx, &select, &[]).await?;
        let row = row.ok_or_else(|| damaged("skep_monitors has no row"))?;
        let changes = row.get(1)?;
        Ok(Book {
            version: row.get(0)?,
            changes,
            last_number: row.get(2)?,
            accounts: row.get(3)?,
            monitors: row.get(4)?,
            servers: row.get(5)?,
            opened_at: changes,
        })
    }

    /// A number that nobody has had.
    pub(super) fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// An account or a monitor is not what it was.
    pub(super) fn roster_changed(&mut self) {
        self.version += 1;
        self.changes += 1;
    }

    /// A server is not what it was.
    pub(super) fn server_changed(&mut self) {
        self.changes += 1;
    }

    /// Writes the row, if anything changed, and tells everybody.
    pub(super) async fn close<T: Tx>(self, tx: &T) -> Result<(), StoreError> {
        if self.changes == self.opened_at {
            return Ok(());
        }
        let update = "UPDATE skep_monitors SET version = $1, changes = $2, last_number = $3,
                             accounts = $4, monitors = $5, servers = $6";
        let values = values![
            self.version,
            self.changes,
            self.last_number,
            self.accounts,
            self.monitors,
            self.servers
        ];
        tx.run(update, &values).await?;
        tx.announce(self.changes).await
    }
}
