//! What operators switch off for maintenance.

use super::SqliteQueues;
use super::clock::{micros, time};
use super::work::Work;
use crate::store::switches::{Switch, Switches};
use rusqlite::{Connection, params};
use skep_store::StoreError;

pub(super) const ALL: &str = "SELECT name, is_on, since, set_by FROM skep_queue_switches";
pub(super) const SET: &str = "INSERT INTO skep_queue_switches (name, is_on, since, set_by)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (name) DO UPDATE SET
        is_on = excluded.is_on, since = excluded.since, set_by = excluded.set_by
    WHERE is_on <> excluded.is_on";

impl SqliteQueues {
    /// All switches.
    pub async fn switches(&self) -> Result<Switches, StoreError> {
        self.sqlite.read(all).await
    }

    /// Sets one.
    pub async fn set_switch(
        &self,
        switch: Switch,
        on: bool,
        by: &str,
    ) -> Result<Switches, StoreError> {
        let by = by.to_owned();
        let set = move |work: &mut Work<'_>| {
            let values = params![switch.name(), on, micros(work.now), by];
            if work.db.prepare_cached(SET)?.execute(values)? > 0 {
                work.wrote();
            }
            all(work.db)
        };
        Ok(self.write(set).await?.0)
    }
}

fn all(db: &Connection) -> Result<Switches, StoreError> {
    let mut switches = Switches::default();
    let mut all = db.prepare_cached(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let (name, by): (String, String) = (row.get(0)?, row.get(3)?);
        switches.note(&name, row.get(1)?, time(row.get(2)?), &by);
    }
    Ok(switches)
}
