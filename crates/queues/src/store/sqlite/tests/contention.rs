//! Many who claim and settle at random never have more than the limits allow, and in the end
//! everything is consumed.

use super::kit::{Kit, ids, leveled, of_partition, want};
use crate::store::{ClaimJob, Claimed, Job, Pushed, SettleItem};
use skep_policy::queues::{LeaseId, Settled, Verdict};
use skep_policy::{Chance, SeededChance, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

const TASKS: u64 = 16;
const KEYS: usize = 10;
const PARTITIONS: usize = 50;
const MESSAGES: usize = 1_000;
/// Nobody needs so many: it is a fault to go on for ever.
const ROUNDS_MAX: u64 = 100_000;

const IN_FLIGHT: u32 = 12;
const RATE: u32 = 80;
const KEY_IN_FLIGHT: u32 = 3;
const KEY_RATE: u32 = 12;
const PERIOD: Duration = Duration::from_secs(1);

/// What somebody got and has not begun to settle.
struct Held {
    lease: u128,
    key: String,
    count: usize,
    until: Time,
}

/// What was seen.
#[derive(Default)]
struct Seen {
    now: Time,
    held: Vec<Held>,
    granted: Vec<(Time, String, usize)>,
    done: BTreeSet<String>,
}

impl Seen {
    /// Whatever is held and whose lease has not ended is in flight, or more is.
    fn check_flight(&self) {
        let mut keys: BTreeMap<&str, usize> = BTreeMap::new();
        for held in self.held.iter().filter(|held| held.until > self.now) {
            *keys.entry(&held.key).or_default() += held.count;
        }
        assert!(keys.values().all(|count| *count <= KEY_IN_FLIGHT as usize), "{keys:?}");
        assert!(keys.values().sum::<usize>() <= IN_FLIGHT as usize, "{keys:?}");
    }

    fn check_rates(&mut self) {
        self.granted.sort_unstable();
        for (place, (at, key, _)) in self.granted.iter().enumerate() {
            let lately = || {
                let before = self.granted[..=place].iter().rev();
                before.take_while(|(before, _, _)| *before + PERIOD > *at)
            };
            let all: usize = lately().map(|one| one.2).sum();
            let own: usize = lately().filter(|one| one.1 == *key).map(|one| one.2).sum();
            assert!(all <= RATE as usize && own <= KEY_RATE as usize, "{at} {key}: {all} {own}");
        }
    }
}

struct Task {
    kit: Arc<Kit>,
    seen: Arc<Mutex<Seen>>,
    rounds: Arc<AtomicU64>,
    chance: SeededChance,
    number: u64,
}

impl Task {
    fn below(&mut self, count: u64) -> u64 {
        self.chance.up_to(count - 1)
    }

    async fn work(mut self) {
        while self.seen.lock().unwrap().done.len() < MESSAGES {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            assert!(round < ROUNDS_MAX, "it comes to an end");
            let passes = Duration::from_millis(self.below(25));
            self.kit.clock.advance(passes);
            let lease = u128::from(round) * u128::from(TASKS) + u128::from(self.number) + 1;
            let job = self.job(lease);
            let auto_ack = job.auto_ack;
            let claimed = self.kit.claim(job).await;
            self.note(&claimed, lease, auto_ack);
            self.look_at_the_store().await;
            if !auto_ack && !claimed.lanes.is_empty() {
                self.end(&claimed, lease).await;
            }
        }
    }

    fn job(&mut self, lease: u128) -> ClaimJob {
        let mut job = want("q", "g", lease, 1 + self.below(4) as u32);
        job.partitions = 1 + self.below(3) as u32;
        job.lease_seconds = Some(1 + self.below(3) as u32);
        job.auto_ack = self.below(8) == 0;
        if self.below(6) == 0 {
            let partition = partition_of(self.below(PARTITIONS as u64) as usize);
            job = of_partition("q", &partition, job);
        }
        job
    }

    fn note(&self, claimed: &Claimed, lease: u128, auto_ack: bool) {
        let mut seen = self.seen.lock().unwrap();
        seen.now = seen.now.max(claimed.now);
        for lane in &claimed.lanes {
            let key = lane.partition.split('/').next().unwrap().to_owned();
            let names = ids(&Claimed { lanes: vec![lane.clone()], ..claimed.clone() });
            seen.granted.push((claimed.now, key.clone(), names.len()));
            let (count, until) = (names.len(), claimed.until);
            if auto_ack {
                seen.done.extend(names);
            } else {
                seen.held.push(Held { lease, key, count, until });
            }
        }
        seen.check_flight();
    }

    /// What the store itself says is in flight, at the time of its last commit.
    async fn look_at_the_store(&self) {
        let flight = "SELECT coalesce(max(s), 0) FROM (SELECT sum(lease_through - cursor) AS s
            FROM skep_queue_lanes WHERE lease_until > (SELECT now FROM skep_queue_clock))";
        assert!(self.kit.count(flight).await <= i64::from(IN_FLIGHT));
        let keys = "SELECT coalesce(max(s), 0) FROM (SELECT sum(lease_through - cursor) AS s
            FROM skep_queue_lanes l JOIN skep_queue_partitions p ON p.id = l.partition
            WHERE lease_until > (SELECT now FROM skep_queue_clock)
            GROUP BY substr(p.name, 1, instr(p.name, '/')))";
        assert!(self.kit.count(keys).await <= i64::from(KEY_IN_FLIGHT));
    }

    /// Settles it, or some of it, or gives it back, or forgets it.
    async fn end(&mut self, claimed: &Claimed, lease: u128) {
        let way = self.below(10);
        if way == 0 {
            // Somebody else gets it when the lease has run out.
            return;
        }
        self.seen.lock().unwrap().held.retain(|held| held.lease != lease);
        if way == 1 {
            let (answer, _got) = oneshot::channel();
            let job = Job::Release { lease: LeaseId(lease), answer };
            self.kit.queues.run(vec![job]).await;
            return;
        }
        for lane in &claimed.lanes {
            let names = ids(&Claimed { lanes: vec![lane.clone()], ..claimed.clone() });
            for name in names {
                let verdict = if self.below(8) == 0 { Verdict::Retry } else { Verdict::Completed };
                let word = SettleItem {
                    partition: Some(lane.id),
                    transaction: name.as_str().into(),
                    verdict,
                    lease: Some(LeaseId(lease)),
                    error: None,
                    after: None,
                };
                let settled = self.kit.settle("g", vec![word]).await[0];
                if matches!(settled, Settled::Done { .. }) {
                    self.seen.lock().unwrap().done.insert(name);
                } else {
                    break;
                }
            }
        }
    }
}

fn partition_of(number: usize) -> String {
    format!("key{}/{number}", number % KEYS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_limit_is_exceeded_whatever_many_do_and_nothing_is_left() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        (options.max_in_flight, options.rate_limit) = (IN_FLIGHT, RATE);
        (options.key_max_in_flight, options.key_rate_limit) = (KEY_IN_FLIGHT, KEY_RATE);
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    for chunk in (0..MESSAGES).collect::<Vec<_>>().chunks(100) {
        let new = |number: &usize| {
            let level = if number.is_multiple_of(7) { 5 } else { 0 };
            leveled("q", &partition_of(number % PARTITIONS), &number.to_string(), level)
        };
        let pushed: Vec<Pushed> = kit.try_push(chunk.iter().map(new).collect()).await.unwrap();
        assert!(pushed.iter().all(|one| !one.duplicate));
    }
    let (kit, seen) = (Arc::new(kit), Arc::new(Mutex::new(Seen::default())));
    let rounds = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..TASKS {
        let (kit, seen, rounds) = (kit.clone(), seen.clone(), rounds.clone());
        let chance = SeededChance::new(number);
        tasks.spawn(Task { kit, seen, rounds, chance, number }.work());
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let mut seen = seen.lock().unwrap();
    seen.check_rates();
    let rounds = rounds.load(Ordering::Relaxed);
    assert!(rounds > 1_000, "{rounds} is too few to see much");
}
