//! Looking at messages, newest first, and taking single ones out.
//!
//! A look costs a bounded amount of work, whatever is asked: [`MessagesPage::next`] says where to
//! go on, also from a page that found nothing. What is taken out leaves a gap in the numbers of
//! its partition, as what retention removes; its transaction id stays known for its window.

use super::either::either;
use super::{QueueStore, SEGMENT_MESSAGES_MAX};
use crate::ids::PartitionId;
use crate::record::{Damaged, Records, part_there};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::collections::HashMap;
use std::sync::Arc;

/// Messages in one page at most.
pub const MESSAGES_PAGE_MAX: u32 = 1_000;
/// Bytes of messages after which a page takes no more.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Segments that one look goes through at most.
pub(super) const SCAN_MAX: u64 = 5_000;
/// Queues that one look goes through at most, where each is looked at by itself.
pub(super) const QUEUES_MAX: u32 = 100;
/// Groups that are told of with each message at most.
pub(super) const GROUPS_MAX: u32 = 100;
/// Messages of a partition that are searched for a transaction id, the newest.
pub(super) const SEARCH_MAX: u64 = 100_000;

/// Which queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues {
    /// This one.
    One(Arc<str>),
    /// Those of this namespace and task, where given; of very many the first hundred by name.
    Matching {
        /// `None` is any.
        namespace: Option<Arc<str>>,
        /// `None` is any.
        task: Option<Arc<str>>,
    },
}

/// Which messages.
#[derive(Clone, Debug)]
pub struct MessageFilter {
    /// Of these queues.
    pub queues: Queues,
    /// Of this partition; only with [`Queues::One`].
    pub partition: Option<Arc<str>>,
    /// Pushed at this time or later.
    pub from: Option<Time>,
    /// Pushed before this time.
    pub to: Option<Time>,
    /// Where the page before said that it goes on.
    pub after: Option<String>,
    /// At most so many, and at most [`MESSAGES_PAGE_MAX`].
    pub limit: u32,
}

/// A page of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagesPage {
    /// Newest first.
    pub messages: Vec<MessageRow>,
    /// Where to go on. There is one as long as there may be more, even if this page is short.
    pub next: Option<String>,
    /// Segments that were looked at.
    pub scanned: u64,
}

/// A message that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Of which queue.
    pub queue: Arc<str>,
    /// Of which partition.
    pub partition: Arc<str>,
    /// The partition.
    pub partition_id: PartitionId,
    /// Its number there.
    pub number: u64,
    /// When it was pushed.
    pub at: Time,
    /// The message, see [`Records`].
    pub record: Bytes,
    /// What the queue's groups have done with it, by their names; a hundred at most.
    pub standing: Vec<Standing>,
}

/// What a group has done with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which group.
    pub group: Arc<str>,
    /// What it has done.
    pub state: StandingState,
}

/// What a group has done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandingState {
    /// It is past it, or began after it.
    Settled,
    /// Somebody works on it.
    Leased {
        /// Until when at most.
        until: Time,
    },
    /// It has not come to it, or it comes again.
    Waiting,
}

/// A message that was taken out. Whoever waits for the partition should look: what it held up may
/// be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Of which queue.
    pub queue: Arc<str>,
    /// Of which partition.
    pub partition: Arc<str>,
    /// The number it had.
    pub number: u64,
    /// When it was pushed.
    pub at: Time,
    /// The message, see [`Records`].
    pub record: Bytes,
}

/// Why messages cannot be looked at.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BrowseError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A place to go on from that nobody gave out.
    #[error("after: {token:?} is no place to go on from; take `next` of the page before as it is")]
    Token {
        /// As it was given.
        token: String,
    },
    /// A partition of several queues.
    #[error("partition: {partition:?} needs the one queue it is of; name it, or leave it out")]
    Partition {
        /// As it was given.
        partition: Arc<str>,
    },
}

impl QueueStore {
    /// Messages, newest first. A queue or partition that is not there has none.
    pub async fn messages(&self, filter: MessageFilter) -> Result<MessagesPage, BrowseError> {
        filter.check()?;
        either!(self, store => store.messages(filter).await)
    }

    /// The newest message of this transaction id among the last hundred thousand of a partition.
    pub async fn message(
        &self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Option<MessageRow>, StoreError> {
        either!(self, store => store.message(partition, transaction).await)
    }

    /// Takes a message out, whoever works on it. Who acknowledges it learns that there is none; who
    /// works on others beside it goes on with them.
    pub async fn delete_message(
        &self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Option<Removed>, StoreError> {
        either!(self, store => store.take_out(partition, transaction, None).await)
    }

    /// Takes a message out and puts it to the dead letters of a group, in one step.
    pub async fn set_aside(
        &self,
        partition: PartitionId,
        transaction: &str,
        group: &str,
        error: Option<&str>,
    ) -> Result<Option<()>, StoreError> {
        let aside = Aside { group: group.into(), error: error.map(Arc::from) };
        let removed =
            either!(self, store => store.take_out(partition, transaction, Some(aside)).await);
        Ok(removed?.map(|_| ()))
    }
}

/// Where a message goes that is taken out.
#[derive(Clone, Debug)]
pub struct Aside {
    /// The group whose dead letter it becomes.
    pub(super) group: Arc<str>,
    /// Why.
    pub(super) error: Option<Arc<str>>,
}

impl MessageFilter {
    fn check(&self) -> Result<(), BrowseError> {
        match (&self.queues, &self.partition) {
            (Queues::Matching { .. }, Some(partition)) => {
                Err(BrowseError::Partition { partition: partition.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn page(&self) -> Page {
        let room = self.limit.clamp(1, MESSAGES_PAGE_MAX) as usize;
        Page { messages: Vec::new(), room, bytes: PAGE_BYTES_MAX }
    }
}

/// A place to go on from: a letter for what is counted, and numbers.
pub(super) fn token(kind: char, numbers: &[i64]) -> String {
    let mut text = kind.to_string();
    for number in numbers {
        text.push('.');
        text.push_str(&number.to_string());
    }
    text
}

/// The numbers of a place to go on from.
pub(super) fn read_token<const N: usize>(kind: char, text: &str) -> Result<[i64; N], BrowseError> {
    let wrong = || BrowseError::Token { token: text.to_owned() };
    let rest = text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('.')).ok_or_else(wrong)?;
    let mut numbers = [0; N];
    let mut parts = rest.split('.');
    for number in &mut numbers {
        let part = parts.next().ok_or_else(wrong)?;
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
    }
    match parts.next() {
        Some(_) => Err(wrong()),
        None => Ok(numbers),
    }
}

/// Messages that are gathered for a page.
pub(super) struct Page {
    pub(super) messages: Vec<Gathered>,
    room: usize,
    bytes: usize,
}

/// A message before anybody was asked what became of it.
pub(super) struct Gathered {
    pub(super) queue: i64,
    pub(super) partition: i64,
    pub(super) number: u64,
    pub(super) at: Time,
    pub(super) record: Bytes,
}

impl Page {
    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.room == 0
    }

    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Adds messages of a segment with numbers before `below`, the newest first, as far as there is
    /// room. Gives back the number of the last that was added.
    pub(super) fn add(
        &mut self,
        (queue, partition): (i64, i64),
        run: &Run,
        body: &Bytes,
        below: u64,
    ) -> Result<Option<u64>, Damaged> {
        let mut records = Vec::with_capacity(run.count as usize);
        let mut rest = Records::of(body);
        let mut from = 0;
        for _ in 0..run.count.min(SEGMENT_MESSAGES_MAX as u32) {
            if from == body.len() {
                break;
            }
            let length = rest.skip_bytes(1)?;
            records.push(body.slice(from..from + length));
            from += length;
        }
        let mut last = None;
        let numbered = (run.first..).zip(records).filter(|(number, _)| *number < below);
        for (number, record) in numbered.collect::<Vec<_>>().into_iter().rev() {
            if self.room == 0 {
                break;
            }
            self.room -= 1;
            self.bytes = self.bytes.saturating_sub(record.len());
            if self.bytes == 0 {
                self.room = 0;
            }
            self.messages.push(Gathered { queue, partition, number, at: run.at, record });
            last = Some(number);
        }
        Ok(last)
    }
}

/// A group that may read messages.
pub(super) struct Reader {
    pub(super) id: i64,
    pub(super) name: Arc<str>,
    pub(super) start: Option<Time>,
}

/// How far a group is in a partition.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) cursor: u64,
    /// Of a lease that may be over: until when, and its last message.
    pub(super) lease: Option<(Time, u64)>,
}

/// What is known of those who read.
#[derive(Default)]
pub(super) struct Readers {
    /// By queue.
    pub(super) groups: HashMap<i64, Vec<Reader>>,
    /// By partition and group.
    pub(super) lanes: HashMap<(i64, i64), Reach>,
}

impl Readers {
    /// What each group has done with a message.
    pub(super) fn standing(&self, now: Time, message: &Gathered) -> Vec<Standing> {
        let state = |reader: &Reader| match self.lanes.get(&(message.partition, reader.id)) {
            Some(reach) if reach.cursor >= message.number => StandingState::Settled,
            Some(reach) => match reach.lease {
                Some((until, through)) if now < until && message.number <= through => {
                    StandingState::Leased { until }
                }
                _ => StandingState::Waiting,
            },
            None if reader.start.is_some_and(|start| message.at < start) => StandingState::Settled,
            None => StandingState::Waiting,
        };
        let readers = self.groups.get(&message.queue).into_iter().flatten();
        readers
            .map(|reader| Standing { group: reader.name.clone(), state: state(reader) })
            .collect()
    }
}

/// A message cut out of a segment, and what stands before and after it.
pub(super) struct Cut {
    pub(super) before: Piece,
    pub(super) record: Bytes,
    pub(super) print: Vec<u8>,
    pub(super) after: Piece,
}

/// A part of a segment.
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) prints: Vec<u8>,
    pub(super) body: Bytes,
}

impl Cut {
    /// Cuts the message with this number out. `None` if it is not that of the transaction.
    pub(super) fn of(
        run: &Run,
        prints: &[u8],
        body: &Bytes,
        number: u64,
        transaction: &str,
    ) -> Result<Option<Self>, Damaged> {
        if number < run.first || number > run.last() {
            return Ok(None);
        }
        let index = usize::try_from(number - run.first).map_err(|_| Damaged)?;
        let (record, found) = part_there(body, index, 1)?;
        let own = Records::of(&record).next().transpose()?;
        if found == 0 || own.is_none_or(|own| own.transaction != transaction) {
            return Ok(None);
        }
        let piece = |first: u64, skip: usize, count: usize| -> Result<Piece, Damaged> {
            let (body, there) = part_there(body, skip, count)?;
            let prints = prints.get(8 * skip..8 * (skip + count)).ok_or(Damaged)?.to_vec();
            let count = u32::try_from(count).map_err(|_| Damaged)?;
            match there == count as usize {
                true => Ok(Piece { first, count, prints, body }),
                false => Err(Damaged),
            }
        };
        let count = run.count as usize;
        Ok(Some(Cut {
            before: piece(run.first, 0, index)?,
            record,
            print: prints.get(8 * index..8 * (index + 1)).ok_or(Damaged)?.to_vec(),
            after: piece(number + 1, index + 1, count.saturating_sub(index + 1))?,
        }))
    }
}

/// Places in a segment's prints that may be the transaction's, the newest first.
pub(super) fn places_of(prints: &[u8], print: u64) -> Vec<usize> {
    let sought = print.to_le_bytes();
    let all = prints.chunks_exact(8).enumerate();
    let mut places: Vec<usize> =
        all.filter(|(_, own)| *own == sought).map(|(place, _)| place).collect();
    places.reverse();
    places
}

/// Whether a record is that of a transaction.
pub(super) fn is_of(record: &Bytes, transaction: &str) -> bool {
    let record = Records::of(record).next();
    record.is_some_and(|record| record.is_ok_and(|record| record.transaction == transaction))
}

/// What a damaged message means for who wanted to see or change it.
pub(super) fn damaged(partition: i64, first: u64, error: Damaged) -> StoreError {
    StoreError::Damaged {
        target: format!("messages of partition {partition} from number {first}"),
        cause: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_to_go_on_from_is_read_as_it_was_written(
            numbers in prop::array::uniform3(0_i64..)
        ) {
            prop_assert_eq!(read_token('t', &token('t', &numbers)).unwrap(), numbers);
        }

        #[test]
        fn any_other_text_is_refused(text in "\\PC{0,40}") {
            prop_assume!(!text.starts_with("t."));
            prop_assert!(read_token::<2>('t', &text).is_err());
        }
    }

    #[test]
    fn texts_that_look_like_places_are_refused_too() {
        for text in ["", "t", "t.", "t.1", "t.1.", "t.1.2.3", "t.-1.2", "t.+1.2", "t.1.x", "s.1.2"]
        {
            assert!(read_token::<2>('t', text).is_err(), "{text}");
        }
        assert!(read_token::<2>('t', "t.1.99999999999999999999").is_err());
    }
}
