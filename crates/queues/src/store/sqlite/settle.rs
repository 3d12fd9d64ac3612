//! Settling, extending, giving back, and transactions.

use super::rows::{DeadRow, GroupRow, LaneRow, PartitionRow, QueueRow, lanes_leased};
use super::segments::Found;
use super::work::{LaneKey, Work};
use crate::ids::{GroupId, PartitionId};
use crate::record::{Damaged, Records, print_of};
use crate::store::{
    ItemSettled, NewMessage, NotDone, SettleItem, Step, StepDone, TransactionJob, WorkError,
};
use skep_policy::Time;
use skep_policy::queues::{Ask, Lane, LeaseId, Left, Refusal, Retry, Settled, Verdict};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A lane that something is settled in, and all that belongs to it.
struct Place {
    key: LaneKey,
    queue: QueueRow,
    partition: PartitionRow,
    group: GroupRow,
}

impl Work<'_> {
    /// Settles what one call says. An item without a lease counts as with one of `required` if that
    /// holds its lane.
    pub(super) fn settle(
        &mut self,
        group: &Arc<str>,
        items: &[&SettleItem],
        required: &[LeaseId],
    ) -> Result<Vec<ItemSettled>, WorkError> {
        let unknown = ItemSettled {
            settled: Settled::Refused(Refusal::Unknown),
            queue: None,
            partition: None,
        };
        let mut answers = vec![unknown; items.len()];
        let mut order: Vec<PartitionId> = Vec::new();
        let mut lanes: HashMap<PartitionId, Vec<usize>> = HashMap::new();
        for (place, item) in items.iter().enumerate() {
            let Some(partition) = item.partition else { continue };
            let places = lanes.entry(partition).or_default();
            if places.is_empty() {
                order.push(partition);
            }
            places.push(place);
        }
        for id in order {
            let places = lanes.remove(&id).unwrap_or_default();
            let Some(partition) = self.partition(id)? else { continue };
            let Some(queue) = self.queue(partition.queue)? else { continue };
            for place in &places {
                answers[*place].queue = Some(queue.info.name.clone());
                answers[*place].partition = Some(partition.name.clone());
            }
            let own: Vec<&SettleItem> = places.iter().map(|place| items[*place]).collect();
            let Some((group_id, row)) = self.group_named(queue.info.id, group)? else {
                for (place, item) in places.iter().zip(own) {
                    let stale = item.lease.map_or(Refusal::Unknown, |_| Refusal::Stale);
                    answers[*place].settled = Settled::Refused(stale);
                }
                continue;
            };
            let at = Place { key: (id, group_id), queue, partition, group: row };
            let settled = self.settle_lane(&at, &own, required)?;
            for (place, settled) in places.iter().zip(settled) {
                answers[*place].settled = settled;
            }
        }
        Ok(answers)
    }

    fn settle_lane(
        &mut self,
        at: &Place,
        items: &[&SettleItem],
        required: &[LeaseId],
    ) -> Result<Vec<Settled>, WorkError> {
        let Place { key, queue, partition, group } = at;
        let as_it_was = self.lane_or_new(queue, *key, partition, group)?.lane;
        let mut lane = as_it_was;
        let (before, held) = (lane.cursor, lane.live_lease(self.now));
        let through = lane.lease.map_or(before, |lease| lease.through);
        let window = queue.info.options.dedup_window();
        let numbers = self.numbers(key.0, partition, (before, through), items, window)?;
        let implied = held.map(|lease| lease.id).filter(|lease| required.contains(lease));
        let mut asks = Vec::with_capacity(items.len());
        for (item, number) in items.iter().zip(&numbers) {
            asks.push(Ask {
                number: *number,
                verdict: item.verdict,
                lease: item.lease.or(implied),
                own: self.own_retries(key.0, *number, item.verdict)?,
                after: item.after,
            });
        }
        let settled = lane.settle(self.now, &queue.rules, &asks, &mut self.state.chance);
        // As it will be read again.
        lane.not_before = super::clock::time(super::clock::micros(lane.not_before));
        for ((item, number), settled) in items.iter().zip(numbers).zip(&settled) {
            if let (Settled::Dead { failures, .. }, Some(number)) = (settled, number) {
                self.bury(at, item, number, *failures)?;
            }
        }
        // A lane that stays as it was keeps its place among those that wait.
        if lane == as_it_was {
            return Ok(settled);
        }
        let next = self.next_at(key.0, partition, lane.cursor)?;
        self.pass_end(&mut lane, partition, next);
        let ready_at = lane.ready_at(self.now, &queue.rules, next, partition.last_push);
        self.set_lane(*key, queue.lane_row(partition, lane, ready_at, self.now));
        self.count_settled(key.1, before, lane.cursor);
        if held.is_some() {
            self.made_room(queue, partition, (key.1, &group.name))?;
        }
        if ready_at.is_some() && held.is_some() && lane.live_lease(self.now).is_none() {
            self.wake(queue, partition, Some(group.name.clone()));
        }
        Ok(settled)
    }

    /// Lets a lane pass what was removed, if nothing else follows.
    pub(super) fn pass_end(&self, lane: &mut Lane, partition: &PartitionRow, next: Option<Time>) {
        if next.is_none() && lane.cursor < partition.tail && lane.live_lease(self.now).is_none() {
            lane.pass_gap(self.now, &Left { leased: None, next: None, tail: partition.tail });
        }
    }

    /// What a message says about its failures. Only a failure asks.
    fn own_retries(
        &mut self,
        partition: PartitionId,
        number: Option<u64>,
        verdict: Verdict,
    ) -> Result<Retry, WorkError> {
        let Some(number) = number.filter(|_| verdict == Verdict::Failed) else {
            return Ok(Retry::default());
        };
        match self.message(partition, number)? {
            Found::Record(record, _) => {
                let record = Records::of(&record).next().ok_or(Damaged)??;
                Ok(record.wishes.retry())
            }
            Found::Removed => Ok(Retry::default()),
        }
    }

    /// Copies a message to the dead letters.
    fn bury(
        &mut self,
        at: &Place,
        item: &SettleItem,
        number: u64,
        failures: u32,
    ) -> Result<(), WorkError> {
        // One that was removed meanwhile has nothing to copy.
        let Found::Record(record, created_at) = self.message(at.key.0, number)? else {
            return Ok(());
        };
        self.dead.push(DeadRow {
            queue: at.queue.info.id,
            partition: at.key.0,
            group: at.group.name.clone(),
            created_at,
            failed_at: self.now,
            failures,
            error: item.error.clone(),
            record,
        });
        self.change_queue(at.queue.info.id, |queue| queue.dead += 1);
        Ok(())
    }

    /// The number of each item's message: among those after `range.0` up to `range.1`, which its
    /// claim handed out, or among those that are known by their prints.
    fn numbers(
        &mut self,
        id: PartitionId,
        partition: &PartitionRow,
        range: (u64, u64),
        items: &[&SettleItem],
        window: Duration,
    ) -> Result<Vec<Option<u64>>, WorkError> {
        let mut numbers = vec![None; items.len()];
        self.numbers_in_range(id, range, items, &mut numbers)?;
        if numbers.iter().all(Option::is_some) {
            return Ok(numbers);
        }
        let mut same: HashMap<&str, u64> = HashMap::new();
        for (item, number) in items.iter().zip(&numbers) {
            same.extend(number.map(|number| (&*item.transaction, number)));
        }
        self.know_prints(id, partition, window)?;
        for (item, number) in items.iter().zip(&mut numbers) {
            if number.is_none() {
                *number = match same.get(&*item.transaction) {
                    Some(number) => Some(*number),
                    None => self.number_by_print(id, &item.transaction)?,
                };
            }
        }
        Ok(numbers)
    }

    /// Reads what was handed out, up to the last item that is found. Most calls name messages in
    /// the order in which they were handed out.
    fn numbers_in_range(
        &mut self,
        id: PartitionId,
        (after, through): (u64, u64),
        items: &[&SettleItem],
        numbers: &mut [Option<u64>],
    ) -> Result<(), WorkError> {
        let mut places: Option<HashMap<&str, usize>> = None;
        let (mut expected, mut left) = (0, items.len());
        let mut number = after + 1;
        while number <= through && left > 0 {
            let Some((run, body)) = self.segment(id, number)? else {
                // Removed meanwhile, or the end of a segment that was.
                match self.run_after(id, number)? {
                    Some(run) => number = run.first,
                    None => break,
                }
                continue;
            };
            let mut records = Records::of(&body);
            records.skip_bytes(usize::try_from(number - run.first).unwrap_or(usize::MAX))?;
            // The bytes may have more than the segment: messages that were taken out since.
            let there = usize::try_from(run.last() + 1 - number).unwrap_or(usize::MAX);
            for record in records.take(there) {
                if number > through || left == 0 {
                    break;
                }
                let transaction = record?.transaction;
                let is_next = |place: usize| {
                    items.get(place).is_some_and(|item| *item.transaction == *transaction)
                };
                let place = if is_next(expected) {
                    Some(expected)
                } else if items.len() > 1 {
                    let all = || {
                        items.iter().enumerate().map(|(place, item)| (&*item.transaction, place))
                    };
                    places.get_or_insert_with(|| all().collect()).get(&*transaction).copied()
                } else {
                    None
                };
                if let Some(place) = place.filter(|place| numbers[*place].is_none()) {
                    numbers[place] = Some(number);
                    expected = place + 1;
                    left -= 1;
                }
                number += 1;
            }
        }
        Ok(())
    }

    fn number_by_print(
        &mut self,
        id: PartitionId,
        transaction: &str,
    ) -> Result<Option<u64>, WorkError> {
        let Some(number) = self.state.prints.find(id, print_of(transaction)) else {
            return Ok(None);
        };
        // Prints may know of one that was taken back.
        if self.partition(id)?.is_none_or(|partition| number > partition.tail) {
            return Ok(None);
        }
        match self.message(id, number)? {
            Found::Record(record, _) => {
                let known = Records::of(&record).next().ok_or(Damaged)??;
                Ok((known.transaction == transaction).then_some(number))
            }
            Found::Removed => Ok((!self.was_deleted(id, number)?).then_some(number)),
        }
    }

    /// Lanes that the lease holds now.
    fn lanes_held(&mut self, lease: LeaseId) -> rusqlite::Result<Vec<Place>> {
        let mut held = Vec::new();
        for key in lanes_leased(self.db, lease)? {
            let row = self.lane(key)?;
            let live = row.and_then(|row| row.lane.live_lease(self.now));
            if live.is_none_or(|live| live.id != lease) {
                continue;
            }
            // Groups and queues that were deleted leave their rows behind for a while.
            let Some(group) = self.group(key.1)? else { continue };
            let Some(partition) = self.partition(key.0)? else { continue };
            let Some(queue) = self.queue(partition.queue)? else { continue };
            held.push(Place { key, queue, partition, group });
        }
        Ok(held)
    }

    /// Lets a lease hold until so many seconds from now.
    pub(super) fn extend(
        &mut self,
        lease: LeaseId,
        seconds: u32,
    ) -> rusqlite::Result<Option<Time>> {
        let until = self.now + Duration::from_secs(u64::from(seconds));
        let held = self.lanes_held(lease)?;
        for place in &held {
            self.change_lease(place, |lane, now| lane.extend(now, lease, until))?;
        }
        Ok((!held.is_empty()).then_some(until))
    }

    /// Gives back what a lease holds.
    pub(super) fn release(&mut self, lease: LeaseId) -> rusqlite::Result<usize> {
        let held = self.lanes_held(lease)?;
        for place in &held {
            self.change_lease(place, |lane, now| lane.release(now, lease))?;
        }
        Ok(held.len())
    }

    fn change_lease(
        &mut self,
        place: &Place,
        change: impl FnOnce(&mut skep_policy::queues::Lane, Time) -> bool,
    ) -> rusqlite::Result<()> {
        let Place { key, queue, partition, group } = place;
        let Some(LaneRow { mut lane, ready_at, .. }) = self.lane(*key)? else { return Ok(()) };
        change(&mut lane, self.now);
        let next = self.next_at(key.0, partition, lane.cursor)?;
        let now_ready = lane.ready_at(self.now, &queue.rules, next, partition.last_push);
        self.set_lane(*key, queue.lane_row(partition, lane, now_ready, self.now));
        if lane.live_lease(self.now).is_none() {
            self.made_room(queue, partition, (key.1, &group.name))?;
        }
        if now_ready.is_some() && now_ready < ready_at {
            self.wake(queue, partition, Some(group.name.clone()));
        }
        Ok(())
    }

    /// Does all steps, or says why not; then what it did has to be undone.
    pub(super) fn transaction(
        &mut self,
        job: &TransactionJob,
    ) -> Result<Result<Vec<StepDone>, NotDone>, WorkError> {
        for (place, take) in job.takes.iter().enumerate() {
            if !self.take(take)? {
                return Ok(Err(NotDone::Gone(place)));
            }
        }
        for lease in &job.required {
            if self.lanes_held(*lease)?.is_empty() {
                return Ok(Err(NotDone::Lease(*lease)));
            }
        }
        let together = |one: &Step, next: &Step| match (one, next) {
            (Step::Push(_), Step::Push(_)) => true,
            (Step::Settle { group: one, .. }, Step::Settle { group: next, .. }) => one == next,
            _ => false,
        };
        let mut done = Vec::with_capacity(job.steps.len());
        for steps in job.steps.chunk_by(together) {
            let mut messages: Vec<NewMessage> = Vec::new();
            let mut items: Vec<&SettleItem> = Vec::new();
            let mut settler = None;
            for step in steps {
                match step {
                    Step::Push(message) => messages.push(message.clone()),
                    Step::Settle { group, item } => {
                        settler = Some(group);
                        items.push(item);
                    }
                }
            }
            done.extend(self.push(&messages)?.into_iter().map(StepDone::Pushed));
            let Some(group) = settler else { continue };
            for settled in self.settle(group, &items, &job.required)? {
                if matches!(settled.settled, Settled::Refused(_)) {
                    return Ok(Err(NotDone::Step(done.len(), settled)));
                }
                done.push(StepDone::Settled(settled));
            }
        }
        Ok(Ok(done))
    }

    /// Lets a group go on after `cursor` in one partition.
    pub(super) fn move_lane(
        &mut self,
        queue: &QueueRow,
        partition: (PartitionId, &PartitionRow),
        group: (GroupId, &GroupRow),
        cursor: u64,
    ) -> rusqlite::Result<()> {
        let key = (partition.0, group.0);
        let LaneRow { mut lane, .. } = self.lane_or_new(queue, key, partition.1, group.1)?;
        let before = lane.cursor;
        lane.seek(cursor);
        let next = self.next_at(partition.0, partition.1, cursor)?;
        let ready_at = lane.ready_at(self.now, &queue.rules, next, partition.1.last_push);
        self.set_lane(key, queue.lane_row(partition.1, lane, ready_at, self.now));
        self.count_settled(group.0, before, cursor);
        self.made_room(queue, partition.1, (group.0, &group.1.name))
    }
}
