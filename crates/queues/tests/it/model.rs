//! Random operations: a store answers what the model answers.
//!
//! Leases are long and failures come back at once, so that the two clocks need not agree; what
//! time does is in the other tests. A failure names its seed and everything that was done.

use crate::kit::*;
use skep_policy::queues::model::{self, Model};
use skep_policy::queues::{LeaseId, Refusal, Settled, Start, Verdict};
use skep_policy::{Chance, SeededChance, Time};
use skep_queues::ids::PartitionId;
use skep_queues::record::Wishes;
use skep_queues::store::*;
use skep_queues::{QueueOptions, QueuesOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;
use tokio::sync::oneshot;

mod moves;

/// One seed's life.
const STEPS: usize = 150;
/// Seeds in a test run. `SKEP_TEST_SEEDS=from..to` takes others.
const SEEDS: std::ops::Range<u64> = 0..12;

const QUEUES: [&str; 3] = ["a.x", "b.x", "small"];
const PARTITIONS: [&str; 4] = ["p0", "p1", "p2", "p3"];
const GROUPS: [&str; 2] = ["g0", "g1"];

/// A store and the model beside it.
struct Trial {
    place: Place,
    store: Store,
    model: Model<String>,
    /// The model's time.
    now: Time,
    chance: SeededChance,
    log: String,
    /// What was handed out, to be settled or not.
    held: Vec<Held>,
    /// The store's number of the model's partition.
    ids: BTreeMap<u64, PartitionId>,
    /// The same moments on both clocks.
    moments: Vec<(Time, Time)>,
    /// Groups that were sent elsewhere in a whole queue. Since when their lanes wait is left to the
    /// store: since the partition was made, or since their first message was pushed.
    sought: BTreeSet<(&'static str, &'static str)>,
}

#[derive(Clone, Debug)]
struct Held {
    lease: LeaseId,
    group: &'static str,
    /// In order within a partition.
    messages: Vec<(u64, String)>,
}

impl Trial {
    async fn new(place: Place, seed: u64) -> Self {
        let store = place.open().await;
        let mut trial = Trial {
            place,
            store,
            model: Model::default(),
            now: Time::from_millis(1_000_000),
            chance: SeededChance::new(seed),
            log: String::new(),
            held: Vec::new(),
            ids: BTreeMap::new(),
            moments: Vec::new(),
            sought: BTreeSet::new(),
        };
        for queue in QUEUES {
            trial.configure(queue).await;
        }
        trial
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        let _ = writeln!(self.log, "{what}");
    }

    fn below(&mut self, count: usize) -> usize {
        self.chance.up_to(count as u64 - 1) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    async fn step(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        match self.below(40) {
            0..10 => self.push().await,
            10..22 => self.pop().await,
            22..31 => self.settle().await,
            31..34 => self.transact().await,
            34 => self.extend_or_release().await,
            35 => self.seek().await,
            36 => self.delete().await,
            37 => self.reopen().await,
            38 => self.moments.push((self.now, self.store.now().await)),
            _ => {
                let queue = self.pick(&QUEUES);
                self.configure(queue).await;
            }
        }
    }

    async fn configure(&mut self, queue: &'static str) {
        let (limit, priority) = (self.below(3) as u32, self.below(3) as i32);
        let max_size = if queue == "small" { 6 } else { 0 };
        self.note(format!("configure {queue} retries={limit} priority={priority}"));
        let set = move |options: &mut QueueOptions| {
            (options.retry_delay, options.retry_limit) = (0, limit);
            (options.priority, options.max_size) = (priority, max_size);
        };
        let configured = self.store.configure(queue, set).await.queue;
        let settings = model::Settings {
            rules: configured.options.rules(),
            priority,
            max_size,
            ..model::Settings::of(queue)
        };
        assert_eq!(*configured.namespace, *settings.namespace);
        self.model.configure(self.now, queue, settings);
    }

    /// A message of a few that come again and again, for both.
    fn message(&mut self) -> (NewMessage, model::Push<String>) {
        // Seldom into the small one: if it is full, the rest of the push is refused with it.
        let queue = if self.one_in(10) { "small" } else { QUEUES[self.below(2)] };
        let partition = self.pick(&PARTITIONS);
        let transaction = format!("t{}", self.below(60));
        let retry_limit = self.one_in(5).then(|| self.below(2) as u32);
        let wishes = Wishes { retry_limit, ..Wishes::default() };
        let new = wished(queue, partition, &transaction, wishes);
        let push = model::Push {
            queue: queue.to_owned(),
            partition: partition.to_owned(),
            id: new.id.as_u128(),
            payload: payload_of(&transaction),
            transaction,
            own: wishes.retry(),
        };
        (new, push)
    }

    /// Several pushes of one batch of the store.
    async fn push(&mut self) {
        let mut waiting = Vec::new();
        let mut jobs = Vec::new();
        let count = if self.one_in(3) { 3 } else { 1 };
        for _ in 0..count {
            let all: Vec<_> = (0..=self.below(6)).map(|_| self.message()).collect();
            let (messages, pushes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let name = |push: &model::Push<String>| {
                format!("{}/{}/{}", push.queue, push.partition, push.transaction)
            };
            self.note(format!("push {}", pushes.iter().map(name).collect::<Vec<_>>().join(" ")));
            let (answer, told) = oneshot::channel();
            jobs.push(Job::Push(messages, answer));
            waiting.push((pushes, told));
        }
        self.store.run(jobs).await;
        for (pushes, told) in waiting {
            let told = told.await.expect("is answered");
            match (told, self.model.push(self.now, &pushes)) {
                (Ok(told), Ok(expected)) => self.same_pushed(&told, &expected),
                (Err(WorkError::Full { queue, waiting, max_size }), Err(full)) => {
                    self.note("  full");
                    assert_eq!((&*queue, max_size), (full.queue.as_str(), full.max_size));
                    assert_eq!(waiting, full.waiting, "how many wait");
                }
                (told, expected) => panic!("push: {told:?} instead of {expected:?}"),
            }
        }
    }

    fn same_pushed(&mut self, told: &[Pushed], expected: &[model::Pushed]) {
        assert_eq!(told.len(), expected.len());
        for (told, expected) in told.iter().zip(expected) {
            let same = (told.id.as_u128(), told.duplicate);
            assert_eq!(same, (expected.id, expected.duplicate), "a message that is pushed");
            let id = *self.ids.entry(expected.partition).or_insert(told.partition);
            assert_eq!(told.partition, id, "a partition keeps its number");
        }
    }

    async fn pop(&mut self) {
        let mut queue = self.pick(&QUEUES);
        let group = if queue == "small" { GROUPS[0] } else { self.pick(&GROUPS) };
        if self.one_in(30) {
            queue = "never";
        }
        let partition = if self.one_in(20) { "never" } else { self.pick(&PARTITIONS) };
        let (batch, partitions) = (1 + self.below(6) as u32, 1 + self.below(4) as u32);
        let (theirs, ours) = match self.below(6) {
            0 => (
                Target::Partition(queue.into(), partition.into()),
                model::Target::Partition(queue.to_owned(), partition.to_owned()),
            ),
            1 => (
                Target::Matching { namespace: None, task: Some("x".into()) },
                model::Target::Matching { namespace: None, task: Some("x".to_owned()) },
            ),
            _ => (Target::Queue(queue.into()), model::Target::Queue(queue.to_owned())),
        };
        let lease = LeaseId(u128::from(self.chance.bits()) << 64 | u128::from(self.chance.bits()));
        let auto_ack = self.one_in(4);
        self.note(format!(
            "pop {ours:?} {group} batch={batch} partitions={partitions} auto={auto_ack} {:x}",
            lease.0 >> 112
        ));
        let job = ClaimJob {
            target: theirs,
            group: group.into(),
            start: Some(Start::All),
            batch,
            partitions,
            lease,
            lease_seconds: None,
            auto_ack,
        };
        let pop = model::Pop {
            target: ours,
            group: group.to_owned(),
            start: Some(Start::All),
            batch,
            partitions,
            lease,
            hold: None,
            auto_settle: auto_ack,
        };
        let got = self.store.pop(job).await;
        self.note(format!("  got {:?} {:?}", got.names(), got.claimed.nothing));
        self.same_popped(&got.claimed, &pop);
        if !auto_ack {
            let messages = |lane: &ClaimedLane| {
                let partition = self.ours(lane.id);
                read(lane).into_iter().map(move |one| (partition, one.transaction))
            };
            let messages = got.claimed.lanes.iter().flat_map(messages).collect();
            self.held.push(Held { lease, group, messages });
        }
    }

    /// The model's number of a partition.
    fn ours(&self, id: PartitionId) -> u64 {
        let found = self.ids.iter().find(|(_, theirs)| **theirs == id);
        *found.expect("a partition that was pushed to").0
    }

    fn same_popped(&mut self, claimed: &Claimed, pop: &model::Pop) {
        let chosen: Vec<u64> = claimed.lanes.iter().map(|lane| self.ours(lane.id)).collect();
        let mut order = match self.model.ready(self.now, pop) {
            Ok(order) => order,
            Err(nothing) => {
                assert_eq!(claimed.nothing.map(named), Some(nothing), "why there is nothing");
                return;
            }
        };
        if let (model::Target::Matching { .. }, Some(lane)) = (&pop.target, claimed.lanes.first()) {
            // Of queues whose first lanes have waited equally long, the store may take any.
            let queue = lane.queue.to_string();
            let target = model::Target::Queue(queue.clone());
            let own = self.model.ready(self.now, &model::Pop { target, ..pop.clone() });
            let own = own.expect("the queue is there");
            let priority = |queue: &str| self.model.settings(queue).map(|one| one.priority);
            let best = QUEUES[..2].iter().filter_map(|queue| {
                let target = model::Target::Queue(queue.to_string());
                let pop = model::Pop { target, ..pop.clone() };
                let first = self.model.clone().ready(self.now, &pop).ok()?.first()?.0;
                Some((priority(queue)?, std::cmp::Reverse(first)))
            });
            let taken = own.first().map(|first| (first.0, priority(&queue)));
            let taken = taken.and_then(|(at, priority)| Some((priority?, std::cmp::Reverse(at))));
            let free = QUEUES.iter().any(|queue| self.was_sought(queue, &pop.group));
            assert!(free || taken == best.max(), "the queue that comes first");
            order = own;
        }
        let waits = |number: &u64| order.iter().find(|(_, one)| one == number).map(|one| one.0);
        let taken: Vec<_> = chosen.iter().map(waits).collect();
        let fair: Vec<_> = order.iter().take(chosen.len()).map(|one| Some(one.0)).collect();
        let queue = claimed.lanes.first().map_or("", |lane| &lane.queue);
        let free = self.was_sought(queue, &pop.group) && taken.iter().all(Option::is_some);
        assert!(
            free || taken == fair,
            "those that wait longest come first: {chosen:?} of {order:?}"
        );
        let rest = order.iter().map(|one| one.1).filter(|number| !chosen.contains(number));
        let order: Vec<u64> = chosen.iter().copied().chain(rest).collect();
        let popped = self.model.pop_from(self.now, pop, &order);
        let ours = popped.lanes.iter().map(|lane| {
            let all = lane.messages.iter().map(|one| (one.id, one.transaction.clone()));
            (lane.queue.clone(), lane.partition.clone(), all.collect::<Vec<_>>())
        });
        let ours: Vec<_> = ours.collect();
        let theirs: Vec<_> = claimed
            .lanes
            .iter()
            .map(|lane| {
                let all = read(lane).into_iter().map(|one| (one.id.as_u128(), one.transaction));
                (lane.queue.to_string(), lane.partition.to_string(), all.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(theirs, ours, "what is handed out");
        assert_eq!(claimed.nothing.map(named), popped.nothing, "why there is nothing");
    }

    fn was_sought(&self, queue: &str, group: &str) -> bool {
        self.sought.iter().any(|one| *one == (queue, group))
    }

    async fn reopen(&mut self) {
        let small = self.one_in(2);
        self.note(format!("reopen small={small}, tidy"));
        let options = match small {
            true => {
                QueuesOptions { cache_bytes: 0, dedup_bytes: 1 << 20, ..QueuesOptions::default() }
            }
            false => QueuesOptions::default(),
        };
        self.store = self.place.open_with(&options).await;
        self.store.tidy(5).await;
    }
}

fn named(nothing: Nothing) -> model::Nothing {
    match nothing {
        Nothing::NoQueue => model::Nothing::NoQueue,
        Nothing::NoPartition => model::Nothing::NoPartition,
        Nothing::Leased => model::Nothing::Leased,
        Nothing::Window => model::Nothing::Window,
        Nothing::Empty => model::Nothing::Empty,
    }
}

/// Without times, which differ.
fn plain(settled: Settled) -> Settled {
    match settled {
        Settled::Again { .. } => Settled::Again { at: Time::ZERO },
        other => other,
    }
}

/// Prints what was done if a trial fails.
struct Confession<'trial>(u64, &'trial mut Trial);

impl Drop for Confession<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} did this:\n{}", self.0, self.1.log);
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("SKEP_TEST_SEEDS").ok();
    let bounds = wanted.as_deref().and_then(|wanted| wanted.split_once(".."));
    bounds
        .map_or(SEEDS, |(from, to)| from.parse().expect("a number")..to.parse().expect("a number"))
}

async fn agrees_with_the_model(place: impl AsyncFn() -> Place) {
    for seed in seeds() {
        let mut trial = Trial::new(place().await, seed).await;
        let confession = Confession(seed, &mut trial);
        for _ in 0..STEPS {
            confession.1.step().await;
        }
        confession.1.compare_everything().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_agrees_with_the_model() {
    agrees_with_the_model(Place::sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_agrees_with_the_model() {
    agrees_with_the_model(Place::postgres).await;
}
