//! Messages that are pushed at certain times.
//!
//! A schedule is a row with the first slot that has not fired. Firing is a transaction that moves
//! the row from that slot to the next and pushes a message: only one of many nodes that try finds
//! the row where it was. When slots are is [`crate::schedule`]'s; whoever writes a schedule asks
//! it and tells the store `next_at`.

use super::QueueStore;
use super::either::either;
use crate::schedule::{CatchUp, Fire, UTC, When, Zone, ZoneError, due, next_after};
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;
use uuid::Uuid;

/// What a schedule does, as its owner wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// Where it pushes; the queue is made if it is not there.
    pub queue: Arc<str>,
    /// Where in it.
    #[serde(default = "default_partition")]
    pub partition: Arc<str>,
    /// The messages' priority.
    #[serde(default)]
    pub priority: u8,
    /// What it pushes: JSON, as text.
    pub payload: Arc<str>,
    /// When.
    pub when: When,
    /// By the clock on the wall of which zone.
    #[serde(default = "default_zone")]
    pub zone: Arc<str>,
    /// What becomes of slots that were missed.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Whether it does nothing for now.
    #[serde(default)]
    pub paused: bool,
}

fn default_partition() -> Arc<str> {
    super::DEFAULT_PARTITION.into()
}

fn default_zone() -> Arc<str> {
    UTC.into()
}

impl ScheduleSpec {
    /// Its first slot after a time, if it ran; for [`PutSchedule::next_at`] and for resuming.
    pub fn next_after(&self, time: Time) -> Result<Option<Time>, ZoneError> {
        Ok(next_after(&self.when, &Zone::named(&self.zone)?, time))
    }
}

/// A schedule as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its number; one that is replaced gets another.
    pub id: i64,
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub spec: ScheduleSpec,
    /// The first slot that has not fired; `None` while it is paused, and once it is over.
    pub next_at: Option<Time>,
    /// The slot that fired last.
    pub last_at: Option<Time>,
    /// The message of that slot, if whoever fired it came to say so.
    pub last_message: Option<Uuid>,
    /// How many slots fired.
    pub fired: u64,
    /// When it was made.
    pub created_at: Time,
    /// When somebody last changed it.
    pub updated_at: Time,
    /// Grows whenever somebody changes it, from 1 on.
    pub version: u64,
}

impl Schedule {
    /// What is to fire now, and when to look again; `None` if it is paused or over.
    pub fn due(&self, now: Time) -> Result<Option<Fire>, ZoneError> {
        let Some(next_at) = self.next_at else { return Ok(None) };
        let zone = Zone::named(&self.spec.zone)?;
        Ok(Some(due(&self.spec.when, &zone, self.spec.catch_up, next_at, now)))
    }

    /// The transaction id of the message of a slot.
    pub fn transaction(&self, slot: Time) -> String {
        format!("schedule:{}:{}", self.name, slot.as_millis())
    }
}

/// A schedule as somebody wants it to be.
#[derive(Clone, Debug)]
pub struct PutSchedule {
    /// Its name.
    pub name: Arc<str>,
    /// What it does from now on. What fired before stays counted.
    pub spec: ScheduleSpec,
    /// Its first slot, see [`ScheduleSpec::next_after`]; it does not count if the schedule is
    /// paused.
    pub next_at: Option<Time>,
    /// If given, nothing is done unless it has this version; 0 is that it is not there.
    pub expected: Option<u64>,
}

/// What came of changing a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleWritten {
    /// It is like this now.
    Done(Box<Schedule>),
    /// There is none of this name.
    NoSchedule,
    /// Somebody else changed it: it has this version.
    OtherVersion(u64),
}

impl QueueStore {
    /// The store's time, by which schedules and redrives are due.
    pub async fn now(&self) -> Result<Time, StoreError> {
        match self {
            QueueStore::Sqlite(store) => Ok(store.now()),
            QueueStore::Postgres(store) => store.now().await,
        }
    }

    /// Makes a schedule or replaces the one of its name.
    pub async fn put_schedule(&self, wish: PutSchedule) -> Result<ScheduleWritten, StoreError> {
        either!(self, store => store.put_schedule(wish).await)
    }

    /// A schedule by its name.
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        either!(self, store => store.schedule(name).await)
    }

    /// Schedules by name, after `after`. One that this version cannot read is left out and logged.
    pub async fn schedules(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Schedule>, StoreError> {
        either!(self, store => store.schedules(after, limit).await)
    }

    /// Deletes a schedule. Tells whether it was there.
    pub async fn delete_schedule(&self, name: &str) -> Result<bool, StoreError> {
        either!(self, store => store.delete_schedule(name).await)
    }

    /// Lets a schedule do nothing until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<ScheduleWritten, StoreError> {
        either!(self, store => store.pause_schedule(name).await)
    }

    /// Lets a paused schedule go on at `next_at`, made of its spec in this `version`. One that is
    /// not paused stays as it is.
    pub async fn resume_schedule(
        &self,
        name: &str,
        version: u64,
        next_at: Option<Time>,
    ) -> Result<ScheduleWritten, StoreError> {
        either!(self, store => store.resume_schedule(name, version, next_at).await)
    }

    /// Schedules with a slot at `now` or before, the one that waits longest first. One that this
    /// version cannot read is left out and logged.
    pub async fn due_schedules(&self, now: Time, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        either!(self, store => store.due_schedules(now, limit).await)
    }

    /// The first slot of a schedule, or turn of a redrive, after `now`.
    pub async fn next_turn(&self, now: Time) -> Result<Option<Time>, StoreError> {
        either!(self, store => store.next_turn(now).await)
    }

    /// Lets a schedule go on from slot `was` to `next` without firing. Tells whether it was there.
    pub async fn pass_slot(
        &self,
        schedule: i64,
        was: Time,
        next: Option<Time>,
    ) -> Result<bool, StoreError> {
        either!(self, store => store.pass_slot(schedule, was, next).await)
    }

    /// Notes the message of the slot that fired last. It is for people to see: if the node dies
    /// in between, it is missing and nothing else is.
    pub async fn note_fired(
        &self,
        schedule: i64,
        slot: Time,
        message: Uuid,
    ) -> Result<(), StoreError> {
        either!(self, store => store.note_fired(schedule, slot, message).await)
    }
}

impl ScheduleWritten {
    /// It is like this now, or it is not there.
    pub(super) fn found(schedule: Option<Schedule>) -> Self {
        let done = |schedule| ScheduleWritten::Done(Box::new(schedule));
        schedule.map_or(ScheduleWritten::NoSchedule, done)
    }
}

/// A schedule as a database has it.
pub(super) struct ScheduleRow {
    pub(super) schedule: i64,
    pub(super) name: Arc<str>,
    pub(super) spec: String,
    pub(super) paused: bool,
    pub(super) next_at: Option<Time>,
    pub(super) last_at: Option<Time>,
    pub(super) last_message: Option<Uuid>,
    pub(super) fired: u64,
    pub(super) created_at: Time,
    pub(super) updated_at: Time,
    pub(super) version: u64,
}

impl ScheduleRow {
    pub(super) fn read(self) -> Result<Schedule, StoreError> {
        let spec: ScheduleSpec = serde_json::from_str(&self.spec).map_err(|error| {
            let target = format!("the schedule {}", self.name);
            StoreError::Damaged { target, cause: error.to_string() }
        })?;
        Ok(Schedule {
            id: self.schedule,
            name: self.name,
            // The column counts: it is changed without the rest.
            spec: ScheduleSpec { paused: self.paused, ..spec },
            next_at: self.next_at,
            last_at: self.last_at,
            last_message: self.last_message,
            fired: self.fired,
            created_at: self.created_at,
            updated_at: self.updated_at,
            version: self.version,
        })
    }

    /// Those that can be read: one that a newer version wrote must not stop the others.
    pub(super) fn read_all(rows: impl Iterator<Item = ScheduleRow>) -> Vec<Schedule> {
        let read = rows.map(ScheduleRow::read);
        let mut schedules = Vec::new();
        for one in read {
            match one {
                Ok(schedule) => schedules.push(schedule),
                Err(error) => tracing::error!(%error, "a schedule cannot be read and does nothing"),
            }
        }
        schedules
    }
}

impl PutSchedule {
    /// The spec as it is kept, and the first slot.
    pub(super) fn parts(&self) -> (String, Option<Time>) {
        let text = serde_json::to_string(&self.spec).unwrap_or_default();
        (text, self.next_at.filter(|_| !self.spec.paused))
    }
}
