//! What a batch has read under its locks, and what it has decided so far: nothing is written until
//! every job of it has been decided.

use super::dedup::Originals;
use super::jobs::place_of;
use super::later::{Apart, Later, Waiting, named};
use super::names::{Made, Place, Queue};
use super::rows::Held;
use super::takes::Rows;
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::record::{Records, part};
use crate::store::{
    ItemSettled, NewMessage, NotDone, Pushed, SettleItem, Step, StepDone, TransactionJob, WorkError,
};
use bytes::Bytes;
use skep_policy::queues::{Ask, LeaseId, Refusal, Retry, Run, Settled, Verdict};
use skep_policy::{SeededChance, Time};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uuid::Uuid;

/// A partition of the batch.
#[derive(Debug)]
pub(super) struct Shelf {
    pub queue: Arc<Queue>,
    pub name: Arc<str>,
    pub tail: u64,
    pub last_push: Time,
    /// Messages to be kept.
    pub new: Vec<Fresh>,
    /// Where in `new` a print is.
    prints: HashMap<u64, Vec<usize>>,
}

/// A message to be kept.
#[derive(Debug)]
pub(super) struct Fresh {
    pub id: Uuid,
    pub print: u64,
    pub record: Bytes,
}

/// How many messages of a queue wait, and may wait.
#[derive(Debug)]
pub(super) struct Room {
    pub waiting: u64,
    pub max: u64,
}

/// A message to be set aside.
#[derive(Debug)]
pub(super) struct Dead {
    pub queue: i64,
    pub partition: i64,
    pub group: Arc<str>,
    pub record: Bytes,
    pub created_at: Time,
    pub failures: u32,
    pub error: Option<Arc<str>>,
}

/// A partition and a group.
pub(super) type LaneKey = (i64, i64);

pub(super) struct Desk {
    pub now: Time,
    pub places: HashMap<Place, (i64, i64)>,
    pub made: Made,
    pub shelves: BTreeMap<i64, Shelf>,
    pub lanes: BTreeMap<LaneKey, Held>,
    /// The lane of a partition and a group's name.
    pub by_group: HashMap<(i64, Arc<str>), LaneKey>,
    pub runs: HashMap<LaneKey, Vec<Run>>,
    pub bodies: HashMap<BodyKey, Bytes>,
    /// The numbers behind transaction ids, by lane; rising, where several have the same.
    pub numbers: HashMap<LaneKey, HashMap<Arc<str>, Vec<u64>>>,
    /// Records of those messages among them that are not leased, by partition and number.
    pub loose: HashMap<(i64, u64), (Bytes, Time)>,
    pub originals: Originals,
    pub rooms: HashMap<i64, Room>,
    pub dead: Vec<Dead>,
    /// Messages to be kept apart until their time has come.
    pub later: Apart,
    /// What waits in a partition with a print.
    pub waiting: HashMap<(i64, u64), Vec<Waiting>>,
    /// What transactions use up.
    pub rows: Rows,
    pub chance: SeededChance,
}

impl Shelf {
    pub(super) fn new(queue: Arc<Queue>, name: Arc<str>, tail: u64, last_push: Time) -> Self {
        Shelf { queue, name, tail, last_push, new: Vec::new(), prints: HashMap::new() }
    }

    /// When its new messages are pushed: never before those that are there.
    pub(super) fn at(&self, now: Time) -> Time {
        now.max(self.last_push)
    }

    fn forget_from(&mut self, length: usize) {
        for fresh in self.new.drain(length..) {
            if let Some(places) = self.prints.get_mut(&fresh.print) {
                places.retain(|place| *place < length);
            }
        }
    }
}

impl Desk {
    /// Takes messages in, all or none. Of some queues so many waiting ones are taken away with it.
    pub(super) fn push<'message>(
        &mut self,
        messages: impl Iterator<Item = &'message NewMessage>,
        taken: &BTreeMap<i64, u64>,
    ) -> Result<Vec<Pushed>, WorkError> {
        let later = self.later.all().len();
        let mut lengths: BTreeMap<i64, usize> = BTreeMap::new();
        let mut added: BTreeMap<i64, u64> = BTreeMap::new();
        let mut answers = Vec::new();
        let mut refused = None;
        for message in messages {
            match self.push_one(message, &mut lengths, &mut added) {
                Ok(pushed) => answers.push(pushed),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let refused = refused.or_else(|| self.too_many(&added, taken));
        if let Some(error) = refused {
            self.later.truncate(later);
            for (partition, length) in lengths {
                if let Some(shelf) = self.shelves.get_mut(&partition) {
                    shelf.forget_from(length);
                }
            }
            return Err(error);
        }
        for (queue, count) in added {
            if let Some(room) = self.rooms.get_mut(&queue) {
                room.waiting += count;
            }
        }
        for (queue, count) in taken {
            if let Some(room) = self.rooms.get_mut(queue) {
                room.waiting = room.waiting.saturating_sub(*count);
            }
        }
        Ok(answers)
    }

    fn push_one(
        &mut self,
        message: &NewMessage,
        lengths: &mut BTreeMap<i64, usize>,
        added: &mut BTreeMap<i64, u64>,
    ) -> Result<Pushed, WorkError> {
        let gone = || skep_store::StoreError::Busy {
            store: "postgres",
            cause: format!("the queue {} was just deleted", message.queue),
        };
        let id = self.places.get(&place_of(message)).map(|ids| ids.1).ok_or_else(gone)?;
        let shelf = self.shelves.get(&id).ok_or_else(gone)?;
        let options = &shelf.queue.info.options;
        if message.encrypted != options.encryption_enabled {
            return Err(WorkError::Encryption { queue: message.queue.clone() });
        }
        let partition = PartitionId(id);
        let due = message.due.filter(|due| *due > self.now);
        if let Some(id) = self.known(id, shelf, message, due.is_some()).filter(|_| !message.again) {
            return Ok(Pushed { id, partition, duplicate: true });
        }
        let (print, record) = (message.print, message.record.clone());
        let queue = shelf.queue.id;
        *added.entry(queue).or_default() += 1;
        if let Some(due) = due {
            self.later.push(Later { queue, partition: id, due, id: message.id, print, record });
        } else if let Some(shelf) = self.shelves.get_mut(&id) {
            let length = shelf.new.len();
            lengths.entry(id).or_insert(length);
            shelf.prints.entry(print).or_default().push(length);
            shelf.new.push(Fresh { id: message.id, print, record });
        }
        Ok(Pushed { id: message.id, partition, duplicate: false })
    }

    /// The id of the message that came before with the same transaction id; the last, if several
    /// did.
    fn known(&self, id: i64, shelf: &Shelf, message: &NewMessage, waits: bool) -> Option<Uuid> {
        let place = (id, message.print);
        let known = !shelf.queue.info.options.dedup_window().is_zero();
        let original = self.originals.get(&place).filter(|_| known);
        let twins = shelf.prints.get(&message.print).filter(|twins| known && !twins.is_empty());
        let waiting = self.waiting.get(&place).filter(|_| waits);
        let mut beside = self.later.like(place).filter(|_| waits).peekable();
        if original.is_none() && twins.is_none() && waiting.is_none() && beside.peek().is_none() {
            return None;
        }
        let own = named(&message.record).map(|named| named.1).unwrap_or_default();
        let same = |record: &[u8]| named(record).is_some_and(|named| named.1 == own);
        let mut twins = twins.into_iter().flatten().rev().filter_map(|place| shelf.new.get(*place));
        let mut twin = || twins.find(|twin| same(&twin.record)).map(|twin| twin.id);
        let stays = |one: &&Waiting| one.2 == own && !self.rows.takes_later(one.0);
        let waits = || waiting.into_iter().flatten().find(stays).map(|one| one.1);
        let waits_beside = || beside.find(|one| same(&one.record)).map(|one| one.id);
        let original = || {
            let original = original.filter(|original| original.is(&own))?;
            Some(original.named.as_ref().map_or(message.id, |named| named.0))
        };
        twin().or_else(original).or_else(waits).or_else(waits_beside)
    }

    fn too_many(
        &self,
        added: &BTreeMap<i64, u64>,
        taken: &BTreeMap<i64, u64>,
    ) -> Option<WorkError> {
        added.iter().find_map(|(queue, count)| {
            let room = self.rooms.get(queue)?;
            let more = count.saturating_sub(taken.get(queue).copied().unwrap_or(0));
            let of_it = |shelf: &&Shelf| shelf.queue.id == *queue;
            let name = self.shelves.values().find(of_it)?.queue.info.name.clone();
            (more > 0 && room.waiting + more > room.max).then_some(WorkError::Full {
                queue: name,
                waiting: room.waiting,
                max_size: room.max,
            })
        })
    }

    /// Settles what one call says; each lane by itself, its items together.
    pub(super) fn settle(
        &mut self,
        items: &[(&Arc<str>, &SettleItem, Option<LeaseId>)],
    ) -> Vec<ItemSettled> {
        let mut by_lane: BTreeMap<LaneKey, Vec<usize>> = BTreeMap::new();
        let mut answers: Vec<ItemSettled> = Vec::with_capacity(items.len());
        for (place, (group, item, _)) in items.iter().enumerate() {
            let shelf = item.partition.and_then(|id| self.shelves.get(&id.0));
            // Every group that is there has its lane by now: with another the lease has gone too.
            let stale = item.lease.filter(|_| shelf.is_some());
            let refusal = stale.map_or(Refusal::Unknown, |_| Refusal::Stale);
            answers.push(ItemSettled {
                settled: Settled::Refused(refusal),
                queue: shelf.map(|shelf| shelf.queue.info.name.clone()),
                partition: shelf.map(|shelf| shelf.name.clone()),
            });
            let lane = item.partition.filter(|_| shelf.is_some());
            let key = lane.and_then(|id| self.by_group.get(&(id.0, (*group).clone())));
            if let Some(key) = key {
                by_lane.entry(*key).or_default().push(place);
            }
        }
        for (key, places) in by_lane {
            let (Some(held), Some(shelf)) = (self.lanes.get_mut(&key), self.shelves.get(&key.0))
            else {
                continue;
            };
            let numbers = self.numbers.get(&key);
            let runs = self.runs.get(&key).map(Vec::as_slice).unwrap_or_default();
            let record = |number: u64| {
                let loose = || self.loose.get(&(key.0, number)).cloned();
                record_of(&self.bodies, key.0, runs, number).or_else(loose)
            };
            let mut words: HashMap<&str, usize> = HashMap::new();
            let cursor = held.lane.cursor;
            let asks: Vec<Ask> = places
                .iter()
                .map(|place| {
                    let (_, item, lease) = &items[*place];
                    let numbers = numbers.and_then(|numbers| numbers.get(&item.transaction));
                    let word = words.entry(&item.transaction).or_default();
                    let number = numbers.and_then(|numbers| nth_after(numbers, cursor, *word));
                    *word += 1;
                    let fails = number.filter(|_| item.verdict == Verdict::Failed);
                    let own = fails.and_then(&record).and_then(|one| own(&one.0));
                    let (verdict, lease, after) = (item.verdict, *lease, item.after);
                    Ask { number, verdict, lease, own: own.unwrap_or_default(), after }
                })
                .collect();
            let settled = held.lane.settle(self.now, &shelf.queue.rules, &asks, &mut self.chance);
            for ((place, settled), ask) in places.into_iter().zip(settled).zip(asks) {
                answers[place].settled = settled;
                if let (Settled::Dead { failures, .. }, Some(number)) = (settled, ask.number) {
                    let (group, item, _) = items[place];
                    // One that was removed meanwhile has nothing to copy.
                    let Some((record, created_at)) = record(number) else { continue };
                    self.dead.push(Dead {
                        queue: shelf.queue.id,
                        partition: key.0,
                        group: group.clone(),
                        record,
                        created_at,
                        failures,
                        error: item.error.clone(),
                    });
                }
            }
        }
        answers
    }

    /// All steps, or none.
    pub(super) fn transact(
        &mut self,
        job: &TransactionJob,
    ) -> Result<Result<Vec<StepDone>, NotDone>, WorkError> {
        let now = self.now;
        let holds = |desk: &Desk, id: LeaseId| {
            let mut lanes = desk.lanes.values();
            lanes.any(|held| held.lane.live_lease(now).is_some_and(|lease| lease.id == id))
        };
        if let Err(place) = self.rows.take(&job.takes) {
            return Ok(Err(NotDone::Gone(place)));
        }
        if let Some(lost) = job.required.iter().find(|id| !holds(self, **id)) {
            self.rows.give_back(&job.takes);
            return Ok(Err(NotDone::Lease(*lost)));
        }
        let mut items = Vec::new();
        let mut places = Vec::new();
        for (place, step) in job.steps.iter().enumerate() {
            if let Step::Settle { group, item } = step {
                items.push((
                    group,
                    item,
                    item.lease.or_else(|| self.required_for(job, group, item)),
                ));
                places.push(place);
            }
        }
        let keys = items.iter().filter_map(|(group, item, _)| {
            self.by_group.get(&(item.partition?.0, (*group).clone())).copied()
        });
        let lanes: Vec<Held> = keys.filter_map(|key| self.lanes.get(&key).cloned()).collect();
        let dead = self.dead.len();
        let settled = self.settle(&items);
        let refused = settled.iter().zip(&places);
        let mut refused =
            refused.filter(|(settled, _)| matches!(settled.settled, Settled::Refused(_)));
        if let Some((settled, place)) = refused.next() {
            let why = NotDone::Step(*place, settled.clone());
            self.restore(job, lanes, dead);
            return Ok(Err(why));
        }
        let pushes = job.steps.iter().filter_map(|step| match step {
            Step::Push(message) => Some(message),
            Step::Settle { .. } => None,
        });
        let taken = self.rows.of_queues(&job.takes);
        let pushed = match self.push(pushes, &taken) {
            Ok(pushed) => pushed,
            Err(error) => {
                self.restore(job, lanes, dead);
                return Err(error);
            }
        };
        let (mut pushed, mut settled) = (pushed.into_iter(), settled.into_iter());
        let done = job.steps.iter().filter_map(|step| match step {
            Step::Push(_) => pushed.next().map(StepDone::Pushed),
            Step::Settle { .. } => settled.next().map(StepDone::Settled),
        });
        Ok(Ok(done.collect()))
    }

    fn restore(&mut self, job: &TransactionJob, lanes: Vec<Held>, dead: usize) {
        self.rows.give_back(&job.takes);
        self.lanes.extend(lanes.into_iter().map(|held| (held.key(), held)));
        self.dead.truncate(dead);
    }

    /// The required lease that holds the lane of an item which names none.
    fn required_for(
        &self,
        job: &TransactionJob,
        group: &Arc<str>,
        item: &SettleItem,
    ) -> Option<LeaseId> {
        let key = self.by_group.get(&(item.partition?.0, group.clone()))?;
        let lease = self.lanes.get(key)?.lane.live_lease(self.now)?;
        job.required.contains(&lease.id).then_some(lease.id)
    }

    /// Whether something is to be kept in or for a partition.
    pub(super) fn is_used(&self, partition: i64) -> bool {
        let shelf = self.shelves.get(&partition);
        shelf.is_some_and(|shelf| !shelf.new.is_empty()) || self.later.has(partition)
    }

    /// Changes every lane that a lease holds and tells how many.
    pub(super) fn each_leased(&mut self, mut change: impl FnMut(&mut Held) -> bool) -> usize {
        self.lanes.values_mut().filter_map(|held| change(held).then_some(())).count()
    }
}

/// Of messages with one transaction id, the one that the n-th word about it is for: the n-th that
/// is not settled, or the last.
fn nth_after(numbers: &[u64], cursor: u64, word: usize) -> Option<u64> {
    let mut open = numbers.iter().filter(|number| **number > cursor);
    open.nth(word).or_else(|| numbers.last()).copied()
}

/// What a message says about its failures.
fn own(record: &[u8]) -> Option<Retry> {
    Some(Records::of(record).next()?.ok()?.wishes.retry())
}

/// A copy of a message's record, and when it was pushed.
fn record_of(
    bodies: &HashMap<BodyKey, Bytes>,
    partition: i64,
    runs: &[Run],
    number: u64,
) -> Option<(Bytes, Time)> {
    let run = runs.iter().find(|run| run.first <= number && number <= run.last())?;
    let body = bodies.get(&(PartitionId(partition), run.first))?;
    let record = part(body, usize::try_from(number - run.first).ok()?, 1).ok()?;
    Some((record, run.at))
}
