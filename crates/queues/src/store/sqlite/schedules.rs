//! Messages that are pushed at certain times.

use super::SqliteQueues;
use super::clock::{micros, time, unsigned};
use super::work::Work;
use crate::store::schedules::{PutSchedule, Schedule, ScheduleRow, ScheduleWritten};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use skep_policy::Time;
use skep_store::StoreError;
use uuid::Uuid;

macro_rules! columns {
    () => {
        "id, name, spec, paused, next_at, last_at, last_message, fired, created_at, updated_at,
         version"
    };
}

pub(super) const BY_NAME: &str =
    concat!("SELECT ", columns!(), " FROM skep_queue_schedules WHERE name = ?1");
pub(super) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM skep_queue_schedules WHERE name > ?1 ORDER BY name LIMIT ?2"
);
pub(super) const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM skep_queue_schedules WHERE next_at IS NOT NULL AND next_at <= ?1
      ORDER BY next_at LIMIT ?2"
);
pub(super) const NEXT_TURN: &str = "SELECT min(next_at) FROM (
    SELECT min(next_at) AS next_at FROM skep_queue_schedules
    WHERE next_at IS NOT NULL AND next_at > ?1
    UNION ALL
    SELECT min(next_at) FROM skep_queue_redrives WHERE state = 'running' AND next_at > ?1)";
const INSERT: &str = "INSERT INTO skep_queue_schedules
    (id, name, spec, paused, next_at, fired, created_at, updated_at, version)
    VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?6, 1)";
pub(super) const REPLACE: &str = "UPDATE skep_queue_schedules
    SET id = ?1, spec = ?3, paused = ?4, next_at = ?5, updated_at = ?6, version = version + 1
    WHERE name = ?2";
pub(super) const DELETE: &str = "DELETE FROM skep_queue_schedules WHERE name = ?1";
pub(super) const PAUSE: &str = "UPDATE skep_queue_schedules
    SET paused = 1, next_at = NULL, updated_at = ?2, version = version + 1
    WHERE name = ?1 AND paused = 0";
pub(super) const RESUME: &str = "UPDATE skep_queue_schedules
    SET paused = 0, next_at = ?3, updated_at = ?2, version = version + 1
    WHERE name = ?1 AND paused = 1";
pub(super) const PASS: &str =
    "UPDATE skep_queue_schedules SET next_at = ?3 WHERE id = ?1 AND next_at = ?2";
pub(super) const NOTE: &str =
    "UPDATE skep_queue_schedules SET last_message = ?3 WHERE id = ?1 AND last_at = ?2";

impl SqliteQueues {
    /// Makes a schedule or replaces the one of its name.
    pub async fn put_schedule(&self, wish: PutSchedule) -> Result<ScheduleWritten, StoreError> {
        Ok(self.write(move |work| put(work, &wish)).await?.0)
    }

    /// A schedule by its name.
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        let name = name.to_owned();
        self.sqlite.read(move |db| by_name(db, &name)).await
    }

    /// Schedules by name, after `after`.
    pub async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.sqlite.read(move |db| many(db, LIST, params![after, limit])).await
    }

    /// Deletes a schedule. Tells whether it was there.
    pub async fn delete_schedule(&self, name: &str) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write_schedule(move |work| change(work, DELETE, params![name])).await
    }

    /// Lets a schedule do nothing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleWritten, StoreError> {
        let name = name.to_owned();
        let pause = move |work: &mut Work<'_>| {
            change(work, PAUSE, params![name, micros(work.now)])?;
            Ok(ScheduleWritten::found(by_name(work.db, &name)?))
        };
        self.write_schedule(pause).await
    }

    /// Lets a paused schedule go on.
    pub async fn resume_schedule(
        &self,
        name: &str,
        version: u64,
        next_at: Option<Time>,
    ) -> Result<ScheduleWritten, StoreError> {
        let name = name.to_owned();
        let resume = move |work: &mut Work<'_>| match by_name(work.db, &name)? {
            Some(there) if there.version != version => {
                Ok(ScheduleWritten::OtherVersion(there.version))
            }
            _ => {
                let values = params![name, micros(work.now), next_at.map(micros)];
                change(work, RESUME, values)?;
                Ok(ScheduleWritten::found(by_name(work.db, &name)?))
            }
        };
        self.write_schedule(resume).await
    }

    /// Schedules with a slot at `now` or before.
    pub async fn due_schedules(&self, now: Time, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        self.sqlite.read(move |db| many(db, DUE, params![micros(now), limit])).await
    }

    /// The first slot of a schedule, or turn of a redrive, after `now`.
    pub async fn next_turn(&self, now: Time) -> Result<Option<Time>, StoreError> {
        let read = move |db: &Connection| {
            let mut find = db.prepare_cached(NEXT_TURN)?;
            let next: Option<i64> = find.query_row([micros(now)], |row| row.get(0))?;
            Ok::<_, StoreError>(next.map(time))
        };
        self.sqlite.read(read).await
    }

    /// Lets a schedule go on without firing.
    pub async fn pass_slot(
        &self,
        schedule: i64,
        was: Time,
        next: Option<Time>,
    ) -> Result<bool, StoreError> {
        let values = (schedule, micros(was), next.map(micros));
        self.write_schedule(move |work| change(work, PASS, values)).await
    }

    /// Notes the message of the slot that fired last.
    pub async fn note_fired(
        &self,
        schedule: i64,
        slot: Time,
        message: Uuid,
    ) -> Result<(), StoreError> {
        let values = (schedule, micros(slot), message.into_bytes());
        self.write_schedule(move |work| change(work, NOTE, values)).await?;
        Ok(())
    }

    async fn write_schedule<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Work<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        Ok(self.write(write).await?.0)
    }
}

fn put(work: &mut Work<'_>, wish: &PutSchedule) -> Result<ScheduleWritten, StoreError> {
    let before = by_version(work.db, &wish.name)?;
    match (wish.expected, before) {
        (Some(1..), None) => return Ok(ScheduleWritten::NoSchedule),
        (Some(expected), Some(version)) if expected != version => {
            return Ok(ScheduleWritten::OtherVersion(version));
        }
        _ => {}
    }
    let (spec, next_at) = wish.parts();
    let sql = if before.is_some() { REPLACE } else { INSERT };
    let (id, now) = (work.next_id(), micros(work.now));
    let next_at = next_at.map(micros);
    change(work, sql, params![id, wish.name, spec, wish.spec.paused, next_at, now])?;
    Ok(ScheduleWritten::found(by_name(work.db, &wish.name)?))
}

/// Its version, whether or not the rest can be read: replacing it is how to mend it.
fn by_version(db: &Connection, name: &str) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT version FROM skep_queue_schedules WHERE name = ?1";
    let version = db.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
    Ok(version.map(unsigned))
}

fn by_name(db: &Connection, name: &str) -> Result<Option<Schedule>, StoreError> {
    let row = db.prepare_cached(BY_NAME)?.query_row([name], schedule).optional()?;
    row.map(ScheduleRow::read).transpose()
}

fn many(db: &Connection, sql: &str, values: impl Params) -> Result<Vec<Schedule>, StoreError> {
    let mut found = db.prepare_cached(sql)?;
    let rows = found.query_map(values, schedule)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(ScheduleRow::read_all(rows.into_iter()))
}

/// Changes at most one row. Tells whether it did.
fn change(work: &mut Work<'_>, sql: &str, values: impl Params) -> Result<bool, StoreError> {
    let changed = work.db.prepare_cached(sql)?.execute(values)? > 0;
    if changed {
        work.wrote();
    }
    Ok(changed)
}

fn schedule(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let message: Option<[u8; 16]> = row.get(6)?;
    Ok(ScheduleRow {
        schedule: row.get(0)?,
        name: row.get(1)?,
        spec: row.get(2)?,
        paused: row.get(3)?,
        next_at: row.get::<_, Option<i64>>(4)?.map(time),
        last_at: row.get::<_, Option<i64>>(5)?.map(time),
        last_message: message.map(Uuid::from_bytes),
        fired: unsigned(row.get(7)?),
        created_at: time(row.get(8)?),
        updated_at: time(row.get(9)?),
        version: unsigned(row.get(10)?),
    })
}
