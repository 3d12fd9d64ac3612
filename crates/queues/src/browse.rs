//! Looking for messages by what became of them and what is in them, and bringing some back.
//!
//! A look costs a bounded amount of work, whatever is asked: at most [`LOOK_MESSAGES_MAX`] messages
//! and about [`LOOK_TIME_MAX`]; [`Found::next`] says where to go on.
//!
//! A message that is wanted again is pushed once more, with the ids it had. If it is a dead letter,
//! the letter is taken in the same step: however many ask for it, it comes back once.

mod search;

pub use search::{BadPath, FieldPath, Search, Test};

use crate::error::QueueError;
use crate::handle::{PushedItem, Queues};
use crate::ids::PartitionId;
use crate::keeper::again;
use crate::record::{Damaged, Record, Records};
use crate::store::{
    BrowseError, DeadFilter, DeadLetter, MESSAGES_PAGE_MAX, MessageFilter, MessageRow, Standing,
    StandingState, Step, StepDone, Take, TransactionJob, WorkError,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Messages that one look goes through at most, beside those that it is told to pass over.
pub const LOOK_MESSAGES_MAX: u64 = 10_000;
/// How long a look goes on; what it has begun by then it ends.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes of messages after which a look ends.
const LOOK_BYTES_MAX: usize = 16 << 20;
/// Messages that are read at once at least where some of them may not fit.
const PAGE_MIN: usize = 200;
/// Dead letters of one message that come back together.
const LETTERS_MAX: u32 = 100;
/// How often a message is looked at anew because somebody else had its dead letters first.
const TRIES: usize = 3;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Somebody has not come to it, or it comes again.
    Pending,
    /// Somebody works on it.
    Processing,
    /// Everybody is past it.
    Completed,
}

impl Status {
    /// For one group, or for all of them together. Of a queue without groups, and for a group that
    /// never came, everything is pending.
    pub fn of(standing: &[Standing], group: Option<&str>) -> Self {
        let all = || standing.iter().filter(|one| group.is_none_or(|group| *one.group == *group));
        let any = |wanted: Status| all().any(|one| Status::from(one.state) == wanted);
        match (any(Status::Processing), any(Status::Pending), all().next().is_none()) {
            (true, ..) => Status::Processing,
            (_, true, _) | (.., true) => Status::Pending,
            _ => Status::Completed,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Processing => "processing",
            Status::Completed => "completed",
        }
    }
}

impl From<StandingState> for Status {
    fn from(state: StandingState) -> Self {
        match state {
            StandingState::Settled => Status::Completed,
            StandingState::Leased { .. } => Status::Processing,
            StandingState::Waiting => Status::Pending,
        }
    }
}

/// Which messages are looked for.
#[derive(Clone, Debug)]
pub struct Look {
    /// Among which, from where, and how many at most.
    pub filter: MessageFilter,
    /// Only those that became this.
    pub status: Option<Status>,
    /// Whose status counts; `None` is all groups together.
    pub group: Option<Arc<str>>,
    /// Only those that have this in them.
    pub search: Option<Search>,
    /// So many that fit are passed over first.
    pub offset: u64,
}

/// Messages that were found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Newest first.
    pub messages: Vec<MessageRow>,
    /// Where to go on, if there may be more, even if there are fewer than were asked for.
    pub next: Option<String>,
    /// Messages that were looked at.
    pub scanned: u64,
    /// How many that fit were passed over: as many as were to be, unless the look ended before.
    pub skipped: u64,
}

/// Why messages cannot be looked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LookError {
    /// The store, or what was asked for.
    #[error(transparent)]
    Browse(#[from] BrowseError),
    /// A message cannot be read.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// What came of the wish to have a message again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// It was pushed again.
    Pushed {
        /// As what.
        item: PushedItem,
        /// Of which queue.
        queue: Arc<str>,
        /// Of which partition.
        partition: Arc<str>,
        /// So many dead letters of it are gone for that.
        letters: usize,
    },
    /// It is not over: somebody works on it or has it ahead.
    Pending,
    /// There is no such message.
    Unknown,
}

impl Queues {
    /// Looks for messages.
    pub async fn look(&self, look: &Look) -> Result<Found, LookError> {
        let deadline = Instant::now() + LOOK_TIME_MAX;
        let limit = look.filter.limit.clamp(1, MESSAGES_PAGE_MAX) as usize;
        let messages_max = LOOK_MESSAGES_MAX.saturating_add(look.offset);
        let mut found = Found { next: look.filter.after.clone(), ..Found::default() };
        let mut bytes = 0;
        loop {
            let to_skip = usize::try_from(look.offset - found.skipped).unwrap_or(usize::MAX);
            let wanted = to_skip.saturating_add(limit - found.messages.len());
            let left = usize::try_from(messages_max - found.scanned).unwrap_or(usize::MAX);
            let page = self.page(look, found.next.take(), wanted, left).await?;
            found.scanned += page.scanned;
            found.next = page.next;
            let skipped = page.messages.len().min(to_skip);
            found.skipped += skipped as u64;
            let fitting = page.messages.into_iter().skip(skipped);
            found.messages.extend(fitting.inspect(|message| bytes += message.record.len()));
            if found.next.is_none()
                || found.messages.len() >= limit
                || found.scanned >= messages_max
                || bytes >= LOOK_BYTES_MAX
                || Instant::now() >= deadline
            {
                return Ok(found);
            }
        }
    }

    /// The fitting messages of one page, `wanted` at most. A page with more of them is read again
    /// and ends where it has enough, so that its end is a place to go on from.
    async fn page(
        &self,
        look: &Look,
        after: Option<String>,
        wanted: usize,
        left: usize,
    ) -> Result<Found, LookError> {
        let takes_all = look.status.is_none() && look.search.is_none();
        let most = if takes_all { wanted } else { wanted.saturating_mul(2).max(PAGE_MIN) };
        let mut most = most.min(left).clamp(1, MESSAGES_PAGE_MAX as usize);
        loop {
            let limit = u32::try_from(most).unwrap_or(MESSAGES_PAGE_MAX);
            let filter = MessageFilter { after: after.clone(), limit, ..look.filter.clone() };
            let page = self.store().messages(filter).await?;
            let scanned = page.messages.len() as u64;
            let mut fitting = Vec::new();
            for (place, message) in page.messages.into_iter().enumerate() {
                if takes_all || self.fits(look, &message)? {
                    fitting.push((place, message));
                }
            }
            if fitting.len() > wanted && wanted > 0 {
                most = fitting[wanted - 1].0 + 1;
                continue;
            }
            let messages = fitting.into_iter().map(|(_, message)| message).collect();
            return Ok(Found { messages, next: page.next, scanned, skipped: 0 });
        }
    }

    fn fits(&self, look: &Look, message: &MessageRow) -> Result<bool, QueueError> {
        let status = || Status::of(&message.standing, look.group.as_deref());
        if look.status.is_some_and(|wanted| wanted != status()) {
            return Ok(false);
        }
        let Some(search) = &look.search else { return Ok(true) };
        let record = only_record(&message.record)?;
        Ok(search.fits(&self.reveal(&message.queue, &record)?))
    }

    /// Brings a message back. If it has dead letters, they are taken for it; if every group is past
    /// it, it is pushed once more.
    pub async fn retry_message(
        &self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Again, QueueError> {
        for _ in 0..TRIES {
            let message = self.store().message(partition, transaction).await?;
            let queue = message.as_ref().map(|message| message.queue.clone());
            let letters = self.letters_of(queue, partition, transaction).await?;
            let (queue, name, record) = match (letters.first(), &message) {
                (Some(one), _) => (&one.queue, &one.partition, &one.record),
                (None, None) => return Ok(Again::Unknown),
                (None, Some(one)) if Status::of(&one.standing, None) != Status::Completed => {
                    return Ok(Again::Pending);
                }
                (None, Some(one)) => (&one.queue, &one.partition, &one.record),
            };
            let takes = letters.iter().map(|letter| Take::Dead(letter.id)).collect();
            // Otherwise somebody else had one of the letters first.
            if let Some(item) = self.push_again(queue, name, record, takes).await? {
                let (queue, partition) = (queue.clone(), name.clone());
                return Ok(Again::Pushed { item, queue, partition, letters: letters.len() });
            }
        }
        Ok(Again::Pending)
    }

    /// Brings a dead letter back to its queue. `None` if there is no such letter.
    pub async fn retry_letter(
        &self,
        id: i64,
    ) -> Result<Option<(DeadLetter, PushedItem)>, QueueError> {
        let Some(letter) = self.store().dead_letter(id).await? else { return Ok(None) };
        let takes = vec![Take::Dead(id)];
        let item = self.push_again(&letter.queue, &letter.partition, &letter.record, takes).await?;
        Ok(item.map(|item| (letter, item)))
    }

    async fn letters_of(
        &self,
        queue: Option<Arc<str>>,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        let filter = DeadFilter {
            queue,
            transaction: Some(transaction.into()),
            limit: LETTERS_MAX,
            ..DeadFilter::default()
        };
        let mut letters = self.store().dead_letters(filter).await?.letters;
        letters.retain(|letter| letter.partition_id == partition);
        Ok(letters)
    }

    /// Pushes a message as it was, with the ids it had, and uses something up for it. `None` if
    /// that was gone.
    async fn push_again(
        &self,
        queue: &Arc<str>,
        partition: &Arc<str>,
        bytes: &Bytes,
        takes: Vec<Take>,
    ) -> Result<Option<PushedItem>, QueueError> {
        self.after_what_waits(queue)?;
        let (message, transaction) = again(queue, partition, bytes).map_err(WorkError::from)?;
        let job = TransactionJob { steps: vec![Step::Push(message)], required: vec![], takes };
        let Ok(steps) = self.desk().transact(job).await? else { return Ok(None) };
        Ok(steps.into_iter().find_map(|step| match step {
            StepDone::Pushed(pushed) => {
                self.metrics().pushed(&[pushed]);
                Some(PushedItem::kept(&pushed, transaction.clone()))
            }
            StepDone::Settled(_) => None,
        }))
    }
}

/// The message that a row is about.
pub fn only_record(bytes: &Bytes) -> Result<Record<'_>, QueueError> {
    let record = Records::of(bytes).next().unwrap_or(Err(Damaged));
    record.map_err(|error| QueueError::Work(WorkError::Damaged(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::Time;

    fn standing(states: &[(&str, StandingState)]) -> Vec<Standing> {
        let all = states.iter();
        all.map(|(group, state)| Standing { group: (*group).into(), state: *state }).collect()
    }

    #[test]
    fn a_message_is_over_when_every_group_is_past_it() {
        use StandingState::{Leased, Settled, Waiting};
        let leased = Leased { until: Time::from_millis(1) };
        for (states, group, status) in [
            (vec![], None, Status::Pending),
            (vec![("a", Settled)], None, Status::Completed),
            (vec![("a", Settled), ("b", Waiting)], None, Status::Pending),
            (vec![("a", leased), ("b", Waiting)], None, Status::Processing),
            (vec![("a", Settled), ("b", leased)], None, Status::Processing),
            (vec![("a", Settled), ("b", Waiting)], Some("a"), Status::Completed),
            (vec![("a", Settled), ("b", Waiting)], Some("b"), Status::Pending),
            (vec![("a", Settled), ("b", leased)], Some("c"), Status::Pending),
        ] {
            assert_eq!(Status::of(&standing(&states), group), status, "{states:?} {group:?}");
        }
    }
}
