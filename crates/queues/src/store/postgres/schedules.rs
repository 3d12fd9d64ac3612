//! Messages that are pushed at certain times.

use super::PostgresQueues;
use super::rows::{Uid, micros, signed, time, unsigned};
use crate::store::schedules::{PutSchedule, Schedule, ScheduleRow, ScheduleWritten};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;
use tokio_postgres::Row;
use uuid::Uuid;

macro_rules! columns {
    () => {
        "id, name, spec, paused, next_at, last_at, last_message, fired, created_at, updated_at,
         version"
    };
}
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
macro_rules! replace {
    () => {
        concat!(
            "id = DEFAULT, spec = $2, paused = $3, next_at = $4, updated_at = ",
            now!(),
            ", version = s.version + 1 "
        )
    };
}
macro_rules! insert {
    () => {
        concat!(
            "INSERT INTO skep_queue_schedules AS s
                 (name, spec, paused, next_at, created_at, updated_at)
             SELECT $1::text, $2::text, $3::boolean, $4::bigint, n.now, n.now FROM (SELECT ",
            now!(),
            " AS now) n ON CONFLICT (name) DO "
        )
    };
}

pub(super) const PUT: &str =
    concat!(insert!(), "UPDATE SET ", replace!(), "RETURNING ", columns!());
pub(super) const MAKE: &str = concat!(insert!(), "NOTHING RETURNING ", columns!());
pub(super) const REPLACE: &str = concat!(
    "UPDATE skep_queue_schedules s SET ",
    replace!(),
    "WHERE name = $1 AND version = $5 RETURNING ",
    columns!()
);
pub(super) const BY_NAME: &str =
    concat!("SELECT ", columns!(), " FROM skep_queue_schedules WHERE name = $1");
pub(super) const VERSION: &str = "SELECT version FROM skep_queue_schedules WHERE name = $1";
pub(super) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM skep_queue_schedules WHERE name > $1 ORDER BY name LIMIT $2"
);
pub(super) const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM skep_queue_schedules WHERE next_at IS NOT NULL AND next_at <= $1
      ORDER BY next_at LIMIT $2"
);
pub(super) const NEXT_TURN: &str = "SELECT min(next_at) FROM (
    SELECT min(next_at) AS next_at FROM skep_queue_schedules
    WHERE next_at IS NOT NULL AND next_at > $1
    UNION ALL
    SELECT min(next_at) FROM skep_queue_redrives WHERE state = 'running' AND next_at > $1) AS n";
pub(super) const DELETE: &str = "DELETE FROM skep_queue_schedules WHERE name = $1 RETURNING id";
pub(super) const PAUSE: &str = concat!(
    "UPDATE skep_queue_schedules SET paused = TRUE, next_at = NULL, updated_at = ",
    now!(),
    ", version = version + 1 WHERE name = $1 AND NOT paused RETURNING ",
    columns!()
);
pub(super) const RESUME: &str = concat!(
    "UPDATE skep_queue_schedules SET paused = FALSE, next_at = $3, updated_at = ",
    now!(),
    ", version = version + 1 WHERE name = $1 AND version = $2 AND paused RETURNING ",
    columns!()
);
pub(super) const PASS: &str =
    "UPDATE skep_queue_schedules SET next_at = $3 WHERE id = $1 AND next_at = $2 RETURNING id";
pub(super) const NOTE: &str =
    "UPDATE skep_queue_schedules SET last_message = $3 WHERE id = $1 AND last_at = $2";

impl PostgresQueues {
    /// Makes a schedule or replaces the one of its name.
    pub async fn put_schedule(&self, wish: PutSchedule) -> Result<ScheduleWritten, StoreError> {
        let (spec, next_at) = wish.parts();
        let (name, next_at) = (&*wish.name, next_at.map(micros));
        let paused = wish.spec.paused;
        let rows = match wish.expected {
            None => self.shared.ask(PUT, &[&name, &spec, &paused, &next_at]).await?,
            Some(0) => self.shared.ask(MAKE, &[&name, &spec, &paused, &next_at]).await?,
            Some(version) => {
                let version = signed(version);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                    [&name, &spec, &paused, &next_at, &version];
                self.shared.ask(REPLACE, &values).await?
            }
        };
        match rows.first() {
            Some(row) => Ok(ScheduleWritten::found(Some(schedule(row).read()?))),
            None => self.why_not(name).await,
        }
    }

    /// A schedule by its name.
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        let rows = self.shared.ask(BY_NAME, &[&name]).await?;
        rows.first().map(|row| schedule(row).read()).transpose()
    }

    /// Schedules by name, after `after`.
    pub async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        let after = after.unwrap_or_default();
        let rows = self.shared.ask(LIST, &[&after, &i64::from(limit)]).await?;
        Ok(ScheduleRow::read_all(rows.iter().map(schedule)))
    }

    /// Deletes a schedule. Tells whether it was there.
    pub async fn delete_schedule(&self, name: &str) -> Result<bool, StoreError> {
        Ok(!self.shared.ask(DELETE, &[&name]).await?.is_empty())
    }

    /// Lets a schedule do nothing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleWritten, StoreError> {
        let rows = self.shared.ask(PAUSE, &[&name]).await?;
        let there = match rows.first() {
            Some(row) => Some(schedule(row).read()?),
            None => self.schedule(name).await?,
        };
        Ok(ScheduleWritten::found(there))
    }

    /// Lets a paused schedule go on.
    pub async fn resume_schedule(
        &self,
        name: &str,
        version: u64,
        next_at: Option<Time>,
    ) -> Result<ScheduleWritten, StoreError> {
        let next_at = next_at.map(micros);
        let rows = self.shared.ask(RESUME, &[&name, &signed(version), &next_at]).await?;
        if let Some(row) = rows.first() {
            return Ok(ScheduleWritten::found(Some(schedule(row).read()?)));
        }
        Ok(match self.schedule(name).await? {
            Some(there) if there.version != version => ScheduleWritten::OtherVersion(there.version),
            there => ScheduleWritten::found(there),
        })
    }

    /// Schedules with a slot at `now` or before.
    pub async fn due_schedules(&self, now: Time, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        let rows = self.shared.ask(DUE, &[&micros(now), &i64::from(limit)]).await?;
        Ok(ScheduleRow::read_all(rows.iter().map(schedule)))
    }

    /// The first slot of a schedule, or turn of a redrive, after `now`.
    pub async fn next_turn(&self, now: Time) -> Result<Option<Time>, StoreError> {
        let rows = self.shared.ask(NEXT_TURN, &[&micros(now)]).await?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<i64>>(0)).map(time))
    }

    /// Lets a schedule go on without firing.
    pub async fn pass_slot(
        &self,
        schedule: i64,
        was: Time,
        next: Option<Time>,
    ) -> Result<bool, StoreError> {
        let next = next.map(micros);
        Ok(!self.shared.ask(PASS, &[&schedule, &micros(was), &next]).await?.is_empty())
    }

    /// Notes the message of the slot that fired last.
    pub async fn note_fired(
        &self,
        schedule: i64,
        slot: Time,
        message: Uuid,
    ) -> Result<(), StoreError> {
        let message = Uid(message.as_u128());
        self.shared.ask(NOTE, &[&schedule, &micros(slot), &message]).await?;
        Ok(())
    }

    async fn why_not(&self, name: &str) -> Result<ScheduleWritten, StoreError> {
        let rows = self.shared.ask(VERSION, &[&name]).await?;
        let version = rows.first().map(|row| unsigned(row.get(0)));
        Ok(version.map_or(ScheduleWritten::NoSchedule, ScheduleWritten::OtherVersion))
    }
}

fn schedule(row: &Row) -> ScheduleRow {
    ScheduleRow {
        schedule: row.get(0),
        name: Arc::from(row.get::<_, &str>(1)),
        spec: row.get(2),
        paused: row.get(3),
        next_at: row.get::<_, Option<i64>>(4).map(time),
        last_at: row.get::<_, Option<i64>>(5).map(time),
        last_message: row.get::<_, Option<Uid>>(6).map(|uid| Uuid::from_u128(uid.0)),
        fired: unsigned(row.get(7)),
        created_at: time(row.get(8)),
        updated_at: time(row.get(9)),
        version: unsigned(row.get(10)),
    }
}
