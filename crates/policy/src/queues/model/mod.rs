//! A whole queue server in memory, to compare real ones with.
//!
//! It keeps everything for ever, looks at everything for every answer, and is fair to the letter:
//! among lanes that are ready, the one that has been for longest comes first. What it shares with
//! the stores is [`Lane`]; what it checks of them is everything around it: finding messages by
//! their transaction ids, numbering, waking drained lanes, choosing lanes, all or nothing.
//!
//! Where the stores may choose (lanes that became ready at the same time) a test tells the model
//! what was chosen, see [`Model::pop_from`].

use super::{Ask, Backlog, Claim, Lane, LeaseId, Refusal, Retry, Rules, Run, Settled, Start};
use crate::{Chance, Time};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;
mod words;

pub use words::{
    DeadLetter, Done, Full, Message, NotDone, Nothing, Pop, Popped, PoppedLane, Push, Pushed,
    Settings, Step, Target, Word,
};

/// Queues with messages whose payload is a `P`.
#[derive(Clone, Debug)]
pub struct Model<P> {
    queues: BTreeMap<String, Queue<P>>,
    /// The last number a partition got, of all queues.
    partitions: u64,
    dead: Vec<DeadLetter<P>>,
}

#[derive(Clone, Debug)]
struct Queue<P> {
    settings: Settings,
    partitions: BTreeMap<u64, Partition<P>>,
    groups: BTreeMap<String, Group>,
    pushed: u64,
}

#[derive(Clone, Debug)]
struct Partition<P> {
    name: String,
    made: Time,
    last_push: Time,
    /// The first has number 1.
    messages: Vec<Message<P>>,
}

#[derive(Clone, Debug)]
struct Group {
    start: Start,
    lanes: BTreeMap<u64, Kept>,
}

/// A lane and when it can next be claimed, as it was when it last changed.
#[derive(Clone, Copy, Debug)]
struct Kept {
    lane: Lane,
    ready: Option<Time>,
}

impl<P> Default for Model<P> {
    fn default() -> Self {
        Model { queues: BTreeMap::new(), partitions: 0, dead: Vec::new() }
    }
}

impl<P> Partition<P> {
    fn tail(&self) -> u64 {
        self.messages.len() as u64
    }

    fn message(&self, number: u64) -> &Message<P> {
        &self.messages[number as usize - 1]
    }

    fn runs(&self) -> Vec<Run> {
        let run = |(first, message): (u64, &Message<P>)| Run { first, count: 1, at: message.at };
        (1..).zip(&self.messages).map(run).collect()
    }

    /// The last message with this transaction id that was pushed after `after`.
    fn find(&self, transaction: &str, after: Option<Time>) -> Option<u64> {
        let same = |message: &Message<P>| {
            message.transaction == transaction && after.is_none_or(|after| message.at > after)
        };
        self.messages.iter().rposition(same).map(|place| place as u64 + 1)
    }

    fn ready_at(&self, lane: &Lane, now: Time, rules: &Rules) -> Option<Time> {
        let next = self.messages.get(lane.cursor as usize).map(|message| message.at);
        lane.ready_at(now, rules, next, self.last_push)
    }

    fn lane_from(&self, start: Start) -> Lane {
        let passed = |message: &&Message<P>| match start {
            Start::All => false,
            Start::From(time) => message.at < time,
        };
        Lane::beginning_after(self.messages.iter().take_while(passed).count() as u64)
    }
}

impl Group {
    fn starting(start: Start) -> Self {
        Group { start, lanes: BTreeMap::new() }
    }

    /// The lane in a partition; it is made if nobody has looked there.
    fn lane<P>(
        &mut self,
        number: u64,
        partition: &Partition<P>,
        now: Time,
        rules: &Rules,
    ) -> &mut Kept {
        self.lanes.entry(number).or_insert_with(|| {
            let lane = partition.lane_from(self.start);
            let ready = partition.ready_at(&lane, now, rules);
            // It waits since it was made, not since somebody looked.
            let ready = ready.map(|at| if at <= now { partition.made } else { at });
            Kept { lane, ready }
        })
    }
}

impl<P> Queue<P> {
    fn new(settings: Settings) -> Self {
        Queue { settings, partitions: BTreeMap::new(), groups: BTreeMap::new(), pushed: 0 }
    }

    /// Messages that the slowest group has not settled.
    fn waiting(&self) -> u64 {
        let settled =
            |group: &Group| group.lanes.values().map(|kept| kept.lane.cursor).sum::<u64>();
        self.pushed - self.groups.values().map(settled).min().unwrap_or(0)
    }
}

impl<P: Clone> Model<P> {
    /// Sets what a queue's owner wants; the queue is made if it is not there.
    pub fn configure(&mut self, now: Time, name: &str, settings: Settings) {
        let queue = self.queues.entry(name.to_owned());
        queue.or_insert_with(|| Queue::new(Settings::of(name))).settings = settings;
        self.partition(now, name, "Default");
    }

    /// The number of a partition, which is made if it is not there.
    fn partition(&mut self, now: Time, queue: &str, name: &str) -> u64 {
        let kept = self.queues.entry(queue.to_owned());
        let kept = kept.or_insert_with(|| Queue::new(Settings::of(queue)));
        if let Some((number, _)) = kept.partitions.iter().find(|(_, one)| one.name == name) {
            return *number;
        }
        self.partitions += 1;
        let (name, made, messages) = (name.to_owned(), now, Vec::new());
        let partition = Partition { name, made, last_push: Time::ZERO, messages };
        kept.partitions.insert(self.partitions, partition);
        self.partitions
    }

    /// Keeps messages, all or none.
    pub fn push(&mut self, now: Time, pushes: &[Push<P>]) -> Result<Vec<Pushed>, Full> {
        let mut changed = self.clone();
        let done = pushes.iter().map(|push| changed.push_one(now, push)).collect();
        for (name, queue) in &changed.queues {
            let (max_size, waiting) = (queue.settings.max_size, queue.waiting());
            let before = self.queues.get(name);
            let grew = before.is_none_or(|before| before.pushed < queue.pushed);
            if max_size > 0 && waiting > max_size && grew {
                let waiting = before.map_or(0, Queue::waiting);
                return Err(Full { queue: name.clone(), waiting, max_size });
            }
        }
        *self = changed;
        Ok(done)
    }

    fn push_one(&mut self, now: Time, push: &Push<P>) -> Pushed {
        let number = self.partition(now, &push.queue, &push.partition);
        let queue = self.queues.get_mut(&push.queue).expect("it was made");
        let partition = queue.partitions.get_mut(&number).expect("it was made");
        let window = (!queue.settings.dedup.is_zero()).then(|| now - queue.settings.dedup);
        let known = window.and_then(|after| partition.find(&push.transaction, Some(after)));
        if let Some(known) = known {
            let id = partition.message(known).id;
            return Pushed { id, partition: number, duplicate: true };
        }
        let (transaction, payload) = (push.transaction.clone(), push.payload.clone());
        let own = push.own;
        partition.messages.push(Message { id: push.id, transaction, payload, at: now, own });
        partition.last_push = now;
        queue.pushed += 1;
        for group in queue.groups.values_mut() {
            if let Some(kept) = group.lanes.get_mut(&number).filter(|kept| kept.ready.is_none()) {
                kept.ready = partition.ready_at(&kept.lane, now, &queue.settings.rules);
            }
        }
        Pushed { id: push.id, partition: number, duplicate: false }
    }

    /// The lanes that a pop may take from, of one queue, the one that waits longest first.
    pub fn ready(&mut self, now: Time, pop: &Pop) -> Result<Vec<(Time, u64)>, Nothing> {
        let mut found: Vec<(i32, Vec<(Time, u64)>)> = Vec::new();
        let meets =
            |(name, queue): &(&String, &mut Queue<P>)| pop.target.meets(name, &queue.settings);
        for (_, queue) in self.queues.iter_mut().filter(meets) {
            let start = pop.start.unwrap_or(Start::From(now));
            let group = queue.groups.entry(pop.group.clone());
            let group = group.or_insert_with(|| Group::starting(start));
            let only = match &pop.target {
                Target::Partition(_, partition) => {
                    let named = queue.partitions.iter().find(|(_, one)| one.name == *partition);
                    Some(*named.ok_or(Nothing::NoPartition)?.0)
                }
                _ => None,
            };
            let rules = &queue.settings.rules;
            let mut lanes: Vec<(Time, u64)> = queue
                .partitions
                .iter()
                .filter(|(number, _)| only.is_none_or(|only| only == **number))
                .filter_map(|(number, one)| {
                    let ready = group.lane(*number, one, now, rules).ready;
                    Some((ready.filter(|at| *at <= now)?, *number))
                })
                .collect();
            lanes.sort_unstable();
            found.push((queue.settings.priority, lanes));
        }
        if found.is_empty() && !matches!(pop.target, Target::Matching { .. }) {
            return Err(Nothing::NoQueue);
        }
        found.retain(|(_, lanes)| !lanes.is_empty());
        found.sort_by_key(|(priority, lanes)| (std::cmp::Reverse(*priority), lanes[0]));
        Ok(found.into_iter().next().map(|(_, lanes)| lanes).unwrap_or_default())
    }

    /// Hands out messages.
    pub fn pop(&mut self, now: Time, pop: &Pop) -> Popped<P> {
        match self.ready(now, pop) {
            Ok(order) => {
                let order: Vec<u64> = order.into_iter().map(|(_, number)| number).collect();
                self.pop_from(now, pop, &order)
            }
            Err(nothing) => Popped { lanes: Vec::new(), nothing: Some(nothing) },
        }
    }

    /// Hands out messages of these partitions, in this order. They must be of one queue that the
    /// group has looked at, see [`Model::ready`].
    pub fn pop_from(&mut self, now: Time, pop: &Pop, order: &[u64]) -> Popped<P> {
        let (mut lanes, mut left) = (Vec::new(), pop.batch);
        for number in order {
            if left == 0 || lanes.len() == pop.partitions as usize {
                break;
            }
            let Some((name, queue)) = self.queue_of(*number) else { continue };
            let rules = queue.settings.rules;
            let partition = &queue.partitions[number];
            let group = queue.groups.get_mut(&pop.group);
            let Some(kept) = group.and_then(|group| group.lanes.get_mut(number)) else { continue };
            let (tail, last_push) = (partition.tail(), partition.last_push);
            let until = now + pop.hold.unwrap_or(rules.lease);
            let (lease, auto_settle) = (pop.lease, pop.auto_settle);
            let claim = Claim { want: left, lease, until, auto_settle };
            let runs = partition.runs();
            let backlog = Backlog { runs: &runs, tail, last_push };
            let claimed = kept.lane.claim(now, &rules, &backlog, &claim);
            kept.ready = partition.ready_at(&kept.lane, now, &rules);
            let numbers = claimed.spans.iter().map(|span| span.first);
            let messages: Vec<_> =
                numbers.map(|number| partition.message(number).clone()).collect();
            if !messages.is_empty() {
                left -= messages.len() as u32;
                let partition = partition.name.clone();
                lanes.push(PoppedLane { queue: name, partition, number: *number, messages });
            }
        }
        let nothing = lanes.is_empty().then(|| self.why_nothing(now, pop));
        Popped { lanes, nothing }
    }

    fn why_nothing(&self, now: Time, pop: &Pop) -> Nothing {
        let Target::Partition(queue, partition) = &pop.target else { return Nothing::Empty };
        let Some(queue) = self.queues.get(queue) else { return Nothing::NoQueue };
        let named = queue.partitions.iter().find(|(_, one)| one.name == *partition);
        let Some((number, partition)) = named else { return Nothing::NoPartition };
        let lane = queue.groups.get(&pop.group).and_then(|group| group.lanes.get(number));
        let Some(Kept { lane, .. }) = lane else { return Nothing::Empty };
        if lane.live_lease(now).is_some() {
            return Nothing::Leased;
        }
        let calm = partition.last_push + queue.settings.rules.window <= now;
        if calm || lane.cursor == partition.tail() { Nothing::Empty } else { Nothing::Window }
    }

    fn queue_of(&mut self, partition: u64) -> Option<(String, &mut Queue<P>)> {
        let mut queues = self.queues.iter_mut();
        let (name, queue) = queues.find(|(_, queue)| queue.partitions.contains_key(&partition))?;
        Some((name.clone(), queue))
    }

    /// Settles messages of one group, each partition by itself.
    pub fn settle(
        &mut self,
        now: Time,
        group: &str,
        words: &[Word],
        chance: &mut impl Chance,
    ) -> Vec<Settled> {
        let mut answers = vec![Settled::Refused(Refusal::Unknown); words.len()];
        let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (place, word) in words.iter().enumerate() {
            if let Some(partition) = word.partition {
                places.entry(partition).or_default().push(place);
            }
        }
        for (number, places) in places {
            let Some((queue_name, queue)) = self.queue_of(number) else { continue };
            let rules = queue.settings.rules;
            let partition = &queue.partitions[&number];
            let Some(kept) = queue.groups.get_mut(group) else { continue };
            let kept = kept.lane(number, partition, now, &rules);
            let ask = |place: &usize| {
                let word = &words[*place];
                let number = partition.find(&word.transaction, None);
                let own = number.map_or(Retry::default(), |number| partition.message(number).own);
                let (verdict, lease, after) = (word.verdict, word.lease, word.after);
                Ask { number, verdict, lease, own, after }
            };
            let asks: Vec<Ask> = places.iter().map(ask).collect();
            let before = kept.lane;
            let settled = kept.lane.settle(now, &rules, &asks, chance);
            if kept.lane != before {
                kept.ready = partition.ready_at(&kept.lane, now, &rules);
            }
            let mut letters = Vec::new();
            for ((place, ask), settled) in places.iter().zip(&asks).zip(settled) {
                answers[*place] = settled;
                if let (Settled::Dead { failures, .. }, Some(number)) = (settled, ask.number) {
                    letters.push(DeadLetter {
                        queue: queue_name.clone(),
                        partition: partition.name.clone(),
                        group: group.to_owned(),
                        message: partition.message(number).clone(),
                        failures,
                        error: words[*place].error.clone(),
                    });
                }
            }
            self.dead.extend(letters);
        }
        answers
    }

    /// Does all of the steps, in their order, or nothing.
    pub fn transact(
        &mut self,
        now: Time,
        steps: &[Step<P>],
        required: &[LeaseId],
        chance: &mut impl Chance,
    ) -> Result<Vec<Done>, NotDone> {
        if let Some(lost) = required.iter().find(|lease| self.held(now, **lease) == 0) {
            return Err(NotDone::Lease(*lost));
        }
        let mut changed = self.clone();
        let mut done = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            done.push(match step {
                Step::Push(push) => {
                    let pushed = changed.push(now, std::slice::from_ref(push));
                    Done::Pushed(pushed.map_err(NotDone::Full)?[0])
                }
                Step::Settle { group, word } => {
                    let mut word = word.clone();
                    let own = |lease: &&LeaseId| changed.holds(now, **lease, group, word.partition);
                    word.lease = word.lease.or_else(|| required.iter().find(own).copied());
                    let settled = changed.settle(now, group, &[word], chance)[0];
                    if let Settled::Refused(_) = settled {
                        return Err(NotDone::Step(place, settled));
                    }
                    Done::Settled(settled)
                }
            });
        }
        *self = changed;
        Ok(done)
    }

    fn holds(&self, now: Time, lease: LeaseId, group: &str, partition: Option<u64>) -> bool {
        let lane = |queue: &Queue<P>| {
            Some(queue.groups.get(group)?.lanes.get(&partition?)?.lane.live_lease(now)?.id)
        };
        self.queues.values().filter_map(lane).any(|id| id == lease)
    }

    /// On how many lanes a lease holds.
    pub fn held(&self, now: Time, lease: LeaseId) -> usize {
        let lanes = self.queues.values().flat_map(|queue| queue.groups.values());
        let lanes = lanes.flat_map(|group| group.lanes.values());
        lanes.filter(|kept| kept.lane.live_lease(now).is_some_and(|own| own.id == lease)).count()
    }

    /// Does something to every lane where it is possible, and tells on how many.
    fn each_held(&mut self, now: Time, change: impl Fn(&mut Lane) -> bool) -> usize {
        let mut count = 0;
        for queue in self.queues.values_mut() {
            for (number, kept) in queue.groups.values_mut().flat_map(|group| &mut group.lanes) {
                if change(&mut kept.lane) {
                    let partition = &queue.partitions[number];
                    kept.ready = partition.ready_at(&kept.lane, now, &queue.settings.rules);
                    count += 1;
                }
            }
        }
        count
    }

    /// Gives a lease so long from now; `None` if it does not hold any more.
    pub fn extend(&mut self, now: Time, lease: LeaseId, hold: Duration) -> Option<Time> {
        let until = now + hold;
        (self.each_held(now, |lane| lane.extend(now, lease, until)) > 0).then_some(until)
    }

    /// Gives back what a lease holds, and tells on how many lanes that was.
    pub fn release(&mut self, now: Time, lease: LeaseId) -> usize {
        self.each_held(now, |lane| lane.release(now, lease))
    }

    /// Lets a group read on from another place, in one partition or in all; it is made if it was
    /// never seen. Tells in how many partitions.
    pub fn seek(
        &mut self,
        now: Time,
        queue: &str,
        group: &str,
        partition: Option<&str>,
        to: Option<Time>,
    ) -> Result<u64, Nothing> {
        let queue = self.queues.get_mut(queue).ok_or(Nothing::NoQueue)?;
        let start = Start::From(to.unwrap_or(now + Duration::from_nanos(1)));
        let Some(name) = partition else {
            queue.groups.insert(group.to_owned(), Group::starting(start));
            return Ok(queue.partitions.len() as u64);
        };
        let named = queue.partitions.iter().find(|(_, one)| one.name == name);
        let (number, partition) = named.ok_or(Nothing::NoPartition)?;
        let group = queue.groups.entry(group.to_owned());
        let group = group.or_insert_with(|| Group::starting(Start::All));
        let lane = partition.lane_from(start);
        let ready = partition.ready_at(&lane, now, &queue.settings.rules);
        group.lanes.insert(*number, Kept { lane, ready });
        Ok(1)
    }

    /// Forgets how far a group is, in one queue or in all.
    pub fn delete_group(&mut self, group: &str, queue: Option<&str>) {
        for (name, kept) in &mut self.queues {
            if queue.is_none_or(|queue| queue == name) {
                kept.groups.remove(group);
            }
        }
    }

    /// Deletes a queue with everything in it; its dead letters go too.
    pub fn delete_queue(&mut self, name: &str) -> bool {
        self.dead.retain(|letter| letter.queue != name);
        self.queues.remove(name).is_some()
    }

    /// What was set aside, oldest first.
    pub fn dead_letters(&self) -> &[DeadLetter<P>] {
        &self.dead
    }

    /// The names of all queues.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// What the owner of a queue decided.
    pub fn settings(&self, queue: &str) -> Option<&Settings> {
        self.queues.get(queue).map(|queue| &queue.settings)
    }

    /// The groups that a queue has seen.
    pub fn groups(&self, queue: &str) -> impl Iterator<Item = &str> {
        self.queues.get(queue).into_iter().flat_map(|queue| queue.groups.keys().map(String::as_str))
    }

    /// The partitions of a queue: number, name, messages.
    pub fn partitions(&self, queue: &str) -> impl Iterator<Item = (u64, &str, &[Message<P>])> {
        let queue = self.queues.get(queue).into_iter();
        queue.flat_map(|queue| {
            queue
                .partitions
                .iter()
                .map(|(number, one)| (*number, one.name.as_str(), one.messages.as_slice()))
        })
    }
}
