//! Dead letters on their way back to a queue.
//!
//! A redrive is a row that any node goes on with: it walks the dead letters of a queue by their
//! numbers, moves each that fits with a transaction of its own (the letter is taken and pushed, or
//! neither), and writes down how far it is. Letters that came after it was made are not touched.
//!
//! ```text
//!   due_redrives ─► progress: my turn until then ─► letters_to_redrive ─► move each ─► progress
//! ```

use super::QueueStore;
use super::either::either;
use crate::ids::{PartitionId, QueueId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// Which dead letters of a queue; all of what is given has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// A field that this version does not know would make it take more than was asked for.
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RedriveFilter {
    /// Of this partition.
    pub partition: Option<Arc<str>>,
    /// Of this group.
    pub group: Option<Arc<str>>,
    /// Set aside at this time or later; microseconds since 1970.
    #[serde(with = "micros")]
    pub from: Option<Time>,
    /// Set aside before this time; microseconds since 1970.
    #[serde(with = "micros")]
    pub to: Option<Time>,
    /// Whose error has this text in it.
    pub error: Option<Arc<str>>,
}

/// Times as a database has them.
mod micros {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use skep_policy::Time;

    pub(super) fn serialize<S: Serializer>(time: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_nanos() / 1_000).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Time>, D::Error> {
        let micros = Option::<u64>::deserialize(from)?;
        Ok(micros.map(|micros| Time::from_nanos(micros.saturating_mul(1_000))))
    }
}

impl RedriveFilter {
    /// Whether a letter fits.
    pub fn fits(&self, letter: &RedriveLetter) -> bool {
        let is = |wanted: &Option<Arc<str>>, found: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let says = |wanted: &Arc<str>| {
            letter.error.as_ref().is_some_and(|error| error.contains(&**wanted))
        };
        is(&self.partition, &letter.partition)
            && is(&self.group, &letter.group)
            && self.from.is_none_or(|from| letter.failed_at >= from)
            && self.to.is_none_or(|to| letter.failed_at < to)
            && self.error.as_ref().is_none_or(says)
    }
}

/// A redrive that somebody wants.
#[derive(Clone, Debug)]
pub struct MakeRedrive {
    /// Of which queue.
    pub queue: Arc<str>,
    /// Which of its letters.
    pub filter: RedriveFilter,
    /// Where they go; `None` is back.
    pub target: Option<Arc<str>>,
    /// Letters a second at most; `None` is as fast as it goes.
    pub rate: Option<u32>,
    /// Who wants it.
    pub by: Arc<str>,
}

/// Whether a redrive goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RedriveState {
    /// It does.
    Running,
    /// Every letter was looked at.
    Done,
    /// Somebody stopped it.
    Stopped,
}

impl RedriveState {
    /// As it is written in answers and kept.
    pub fn text(self) -> &'static str {
        match self {
            RedriveState::Running => "running",
            RedriveState::Done => "done",
            RedriveState::Stopped => "stopped",
        }
    }

    /// What no version writes goes no further.
    pub(super) fn of(text: &str) -> Self {
        match text {
            "running" => RedriveState::Running,
            "done" => RedriveState::Done,
            _ => RedriveState::Stopped,
        }
    }
}

/// A redrive as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redrive {
    /// Its number.
    pub id: i64,
    /// Of which queue.
    pub queue: QueueId,
    /// That queue's name when it was made.
    pub queue_name: Arc<str>,
    /// Which of its letters.
    pub filter: RedriveFilter,
    /// Where they go; `None` is back.
    pub target: Option<Arc<str>>,
    /// Letters a second at most; `None` is as fast as it goes.
    pub rate: Option<u32>,
    /// Letters that were moved; fewer than that if a node died between moving and saying so.
    pub moved: u64,
    /// Letters that did not fit, or were gone.
    pub skipped: u64,
    /// Whether it goes on.
    pub state: RedriveState,
    /// How far it is.
    pub mark: RedriveMark,
    /// The greatest number of a letter when it was made.
    pub upto: i64,
    /// When it was made.
    pub created_at: Time,
    /// Who made it.
    pub created_by: Arc<str>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// How far a redrive is, and whose turn it is: whoever moves it on has it until `next_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedriveMark {
    /// The last letter that was looked at.
    pub position: i64,
    /// When to go on.
    pub next_at: Time,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct RedriveProgress {
    /// How far it is now.
    pub mark: RedriveMark,
    /// So many more letters were moved.
    pub moved: u64,
    /// So many more did not fit, or were gone.
    pub skipped: u64,
    /// Whether it goes on.
    pub state: RedriveState,
}

/// A dead letter that a redrive comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveLetter {
    /// Its number.
    pub id: i64,
    /// The partition it was in.
    pub partition: Arc<str>,
    /// The same.
    pub partition_id: PartitionId,
    /// For which group it was set aside.
    pub group: Arc<str>,
    /// When it was set aside.
    pub failed_at: Time,
    /// What its consumer said.
    pub error: Option<Arc<str>>,
    /// The message, see [`crate::record::Records`].
    pub record: Bytes,
}

/// Some of the letters of a redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveLetters {
    /// Those that fit, by their numbers.
    pub letters: Vec<RedriveLetter>,
    /// How many were looked at and do not fit.
    pub skipped: u64,
    /// The last one that was looked at.
    pub position: i64,
    /// Whether there is no other after it.
    pub end: bool,
}

impl QueueStore {
    /// Begins to move dead letters. `None` if there is no such queue.
    pub async fn make_redrive(&self, wish: MakeRedrive) -> Result<Option<Redrive>, StoreError> {
        either!(self, store => store.make_redrive(wish).await)
    }

    /// A redrive by its number.
    pub async fn redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        either!(self, store => store.redrive(id).await)
    }

    /// Redrives, newest first, before the number `before`. One that this version cannot read is
    /// left out and logged.
    pub async fn redrives(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Redrive>, StoreError> {
        either!(self, store => store.redrives(before, limit).await)
    }

    /// Stops a redrive that runs. Tells what it is then; `None` if there is none.
    pub async fn stop_redrive(&self, id: i64) -> Result<Option<Redrive>, StoreError> {
        either!(self, store => store.stop_redrive(id).await)
    }

    /// Redrives that run and go on at `now` or before, the one that waits longest first. One that
    /// this version cannot read is left out and logged.
    pub async fn due_redrives(&self, now: Time, limit: u32) -> Result<Vec<Redrive>, StoreError> {
        either!(self, store => store.due_redrives(now, limit).await)
    }

    /// The next letters of a redrive; at most so many are looked at.
    pub async fn letters_to_redrive(
        &self,
        redrive: &Redrive,
        limit: u32,
    ) -> Result<RedriveLetters, StoreError> {
        let (queue, mark) = (redrive.queue, redrive.mark);
        let limit = limit.max(1);
        let found = either!(self, store => {
            store.dead_after(queue, mark.position, redrive.upto, limit).await
        })?;
        let seen = found.len() as u64;
        let end = seen < u64::from(limit);
        let last = found.last().map_or(mark.position, |letter| letter.id);
        let fits = |letter: &RedriveLetter| redrive.filter.fits(letter);
        let letters: Vec<RedriveLetter> = found.into_iter().filter(fits).collect();
        let skipped = seen - letters.len() as u64;
        Ok(RedriveLetters { letters, skipped, position: last, end })
    }

    /// Moves a running redrive on, if it is still at `was`. Tells whether it was.
    pub async fn progress_redrive(
        &self,
        id: i64,
        was: RedriveMark,
        done: RedriveProgress,
    ) -> Result<bool, StoreError> {
        either!(self, store => store.progress_redrive(id, was, done).await)
    }

    /// Forgets redrives that ended before a time; at most so many. Tells how many.
    pub async fn forget_redrives(&self, before: Time, limit: u32) -> Result<u64, StoreError> {
        either!(self, store => store.forget_redrives(before, limit).await)
    }
}

/// A filter as it is kept.
pub(super) fn filter_text(filter: &RedriveFilter) -> String {
    serde_json::to_string(filter).unwrap_or_default()
}

/// The filter of a redrive. One that cannot be read must not become one that takes everything.
pub(super) fn read_filter(id: i64, text: &str) -> Result<RedriveFilter, StoreError> {
    serde_json::from_str(text).map_err(|error| {
        let target = format!("the redrive {id}");
        StoreError::Damaged { target, cause: error.to_string() }
    })
}

/// One that a newer version wrote must not stop the others.
pub(super) fn readable(redrive: Result<Redrive, StoreError>) -> Option<Redrive> {
    let log = |error: &StoreError| tracing::error!(%error, "a redrive cannot be read and waits");
    redrive.inspect_err(log).ok()
}
