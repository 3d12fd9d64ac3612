//! What a batch has read under its locks, and what it has decided so far: nothing is written until
//! every job of it has been decided.

use super::dedup::Originals;
use super::names::{Made, Place, Queue};
use super::rows::Held;
use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use crate::record::{Records, part};
use crate::store::{
    ItemSettled, NewMessage, NotDone, Pushed, SettleItem, Step, StepDone, TransactionJob, WorkError,
};
use bytes::Bytes;
use skep_policy::queues::{Ask, LeaseId, Refusal, Run, Settled};
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
    /// The numbers behind transaction ids, by lane.
    pub numbers: HashMap<LaneKey, HashMap<Arc<str>, u64>>,
    /// Records of those messages among them that are not leased, by partition and number.
    pub loose: HashMap<(i64, u64), (Bytes, Time)>,
    pub originals: Originals,
    pub rooms: HashMap<i64, Room>,
    pub dead: Vec<Dead>,
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

/// The transaction id in a record's bytes.
fn transaction_of(record: &[u8]) -> Option<String> {
    Some(Records::of(record).next()?.ok()?.transaction.into_owned())
}

impl Desk {
    /// Takes messages in, all or none.
    pub(super) fn push<'message>(
        &mut self,
        messages: impl Iterator<Item = &'message NewMessage>,
    ) -> Result<Vec<Pushed>, WorkError> {
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
        let refused = refused.or_else(|| self.too_many(&added));
        if let Some(error) = refused {
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
        let place = (message.queue.clone(), message.partition.clone());
        let id = self.places.get(&place).map(|ids| ids.1).ok_or_else(gone)?;
        let shelf = self.shelves.get_mut(&id).ok_or_else(gone)?;
        let options = &shelf.queue.info.options;
        if message.encrypted != options.encryption_enabled {
            return Err(WorkError::Encryption { queue: message.queue.clone() });
        }
        let partition = PartitionId(id);
        let window = options.dedup_window();
        if !window.is_zero() {
            let original = self.originals.get(&(id, message.print));
            let twins = shelf.prints.get(&message.print).filter(|twins| !twins.is_empty());
            if original.is_some() || twins.is_some() {
                let own = transaction_of(&message.record).unwrap_or_default();
                if let Some(original) = original.filter(|original| original.is(&own)) {
                    let id = original.named.as_ref().map_or(message.id, |named| named.0);
                    return Ok(Pushed { id, partition, duplicate: true });
                }
                let same = |place: &&usize| {
                    let twin = shelf.new.get(**place);
                    twin.and_then(|twin| transaction_of(&twin.record)).as_ref() == Some(&own)
                };
                if let Some(place) = twins.and_then(|twins| twins.iter().find(same)) {
                    return Ok(Pushed { id: shelf.new[*place].id, partition, duplicate: true });
                }
            }
        }
        let length = shelf.new.len();
        lengths.entry(id).or_insert(length);
        *added.entry(shelf.queue.id).or_default() += 1;
        shelf.prints.entry(message.print).or_default().push(length);
        let (print, record) = (message.print, message.record.clone());
        shelf.new.push(Fresh { id: message.id, print, record });
        Ok(Pushed { id: message.id, partition, duplicate: false })
    }

    fn too_many(&self, added: &BTreeMap<i64, u64>) -> Option<WorkError> {
        added.iter().find_map(|(queue, count)| {
            let room = self.rooms.get(queue)?;
            let of_it = |shelf: &&Shelf| shelf.queue.id == *queue;
            let name = self.shelves.values().find(of_it)?.queue.info.name.clone();
            (room.waiting + count > room.max).then_some(WorkError::Full {
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
            let asks: Vec<Ask> = places
                .iter()
                .map(|place| {
                    let (_, item, lease) = &items[*place];
                    let number =
                        numbers.and_then(|numbers| numbers.get(&item.transaction)).copied();
                    Ask { number, verdict: item.verdict, lease: *lease }
                })
                .collect();
            let settled = held.lane.settle(self.now, &shelf.queue.rules, &asks, &mut self.chance);
            for ((place, settled), ask) in places.into_iter().zip(settled).zip(asks) {
                answers[place].settled = settled;
                if let (Settled::Dead { failures, .. }, Some(number)) = (settled, ask.number) {
                    let runs = self.runs.get(&key).map(Vec::as_slice).unwrap_or_default();
                    let (group, item, _) = items[place];
                    let leased = record_of(&self.bodies, key.0, runs, number);
                    let loose = || self.loose.get(&(key.0, number)).cloned();
                    // One that was removed meanwhile has nothing to copy.
                    let Some((record, created_at)) = leased.or_else(loose) else { continue };
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
        if let Some(lost) = job.required.iter().find(|id| !holds(self, **id)) {
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
            self.restore(lanes, dead);
            return Ok(Err(why));
        }
        let pushes = job.steps.iter().filter_map(|step| match step {
            Step::Push(message) => Some(message),
            Step::Settle { .. } => None,
        });
        let pushed = match self.push(pushes) {
            Ok(pushed) => pushed,
            Err(error) => {
                self.restore(lanes, dead);
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

    fn restore(&mut self, lanes: Vec<Held>, dead: usize) {
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

    /// Changes every lane that a lease holds and tells how many.
    pub(super) fn each_leased(&mut self, mut change: impl FnMut(&mut Held) -> bool) -> usize {
        self.lanes.values_mut().filter_map(|held| change(held).then_some(())).count()
    }
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
