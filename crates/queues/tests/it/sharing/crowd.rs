//! Many consumers on a queue with every limit there is, and somebody who counts.

use super::another;
use crate::kit::*;
use skep_policy::queues::{Settled, Verdict};
use skep_policy::{Chance, SeededChance, Time};
use skep_queues::store::ClaimJob;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CONSUMERS: u64 = 16;
const KEYS: usize = 10;
const PARTITIONS: usize = 50;
const MESSAGES: usize = 40;
const IN_FLIGHT: usize = 25;
const KEY_IN_FLIGHT: usize = 4;
const RATE: usize = 500;
const KEY_RATE: usize = 70;
const PERIOD: Duration = Duration::from_secs(1);
/// So long nobody can be waiting for anything but the end of a lease.
const PATIENCE: Duration = Duration::from_secs(150);

/// What was seen of it all. Something is in flight here from when its consumer has it until before
/// it says what came of it, so never longer than in the store.
#[derive(Default)]
struct Ledger {
    in_flight: BTreeMap<String, usize>,
    /// By key; the empty one is all of them.
    given: BTreeMap<String, Vec<(Time, usize)>>,
    done: BTreeSet<String>,
    rounds: usize,
}

impl Ledger {
    fn given(&mut self, got: &Got) {
        for lane in &got.claimed.lanes {
            for key in [key_of(&lane.partition), ""] {
                let most = if key.is_empty() { RATE } else { KEY_RATE };
                let given = self.given.entry(key.to_owned()).or_default();
                given.push((got.claimed.now, read(lane).len()));
                check_rate(given, got.claimed.now, most);
            }
        }
    }

    fn leased(&mut self, got: &Got) {
        for lane in &got.claimed.lanes {
            let key = key_of(&lane.partition).to_owned();
            *self.in_flight.entry(key).or_default() += read(lane).len();
        }
        let all: usize = self.in_flight.values().sum();
        assert!(all <= IN_FLIGHT, "{all} are in flight");
        let most = self.in_flight.iter().max_by_key(|one| one.1);
        assert!(most.is_none_or(|most| *most.1 <= KEY_IN_FLIGHT), "{most:?} are in flight");
    }

    fn gives(&mut self, got: &Got) {
        for lane in &got.claimed.lanes {
            let count = read(lane).len();
            if let Some(sum) = self.in_flight.get_mut(key_of(&lane.partition)) {
                *sum -= count;
            }
        }
    }
}

fn key_of(partition: &str) -> &str {
    partition.split_once('/').map_or(partition, |(key, _)| key)
}

/// In every stretch of time that this moment is in.
fn check_rate(given: &[(Time, usize)], moment: Time, most: usize) {
    let near = |one: &&(Time, usize)| one.0 + PERIOD > moment && moment + PERIOD > one.0;
    let mut near: Vec<(Time, usize)> = given.iter().filter(near).copied().collect();
    near.sort_unstable();
    for (place, (end, _)) in near.iter().enumerate() {
        let within = near[..=place].iter().rev().take_while(|one| one.0 + PERIOD > *end);
        let later = near[place + 1..].iter().take_while(|one| one.0 == *end);
        let sum: usize = within.chain(later).map(|one| one.1).sum();
        assert!(sum <= most, "{sum} were handed out in the time before {end:?}");
    }
}

pub async fn works(place: Place) {
    let store = place.open().await;
    store
        .configure("q", |options| {
            (options.max_in_flight, options.rate_limit) = (IN_FLIGHT as u32, RATE as u32);
            options.key_max_in_flight = KEY_IN_FLIGHT as u32;
            options.key_rate_limit = KEY_RATE as u32;
            options.limit_key_separator = "/".to_owned();
            (options.retry_delay, options.retry_limit) = (0, 1_000);
        })
        .await;
    let mut messages = Vec::new();
    for number in 0..MESSAGES {
        for partition in 0..PARTITIONS {
            let name = format!("{}/{partition}", partition % KEYS);
            messages.push(message("q", &name, &format!("{partition}.{number}")));
        }
    }
    store.try_push(messages).await.expect("is kept");
    let ledger: Arc<Mutex<Ledger>> = Arc::default();
    let other = another(&place, &store).await;
    let mut work = tokio::task::JoinSet::new();
    for seed in 0..CONSUMERS {
        let store = if seed % 2 == 0 { store.clone() } else { other.clone() };
        work.spawn(consume(store, ledger.clone(), SeededChance::new(seed)));
    }
    let all = async {
        while let Some(done) = work.join_next().await {
            done.expect("no limit was exceeded");
        }
    };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    let ledger = ledger.lock().expect("not poisoned");
    assert!(ended.is_ok(), "{} were consumed, then nobody got any more", ledger.done.len());
    assert_eq!(ledger.done.len(), PARTITIONS * MESSAGES);
    assert!(ledger.rounds > 1_000, "{}", ledger.rounds);
}

async fn consume(store: Store, ledger: Arc<Mutex<Ledger>>, mut chance: SeededChance) {
    while ledger.lock().expect("not poisoned").done.len() < PARTITIONS * MESSAGES {
        let mut below = |count: u64| chance.up_to(count - 1);
        let (batch, partitions) = (1 + below(4) as u32, 1 + below(3) as u32);
        let fate = below(20);
        let lease_seconds = (fate == 0).then_some(1);
        let auto_ack = fate == 1;
        let job = ClaimJob { batch, partitions, lease_seconds, auto_ack, ..from("q") };
        let got = store.pop(job).await;
        {
            let mut ledger = ledger.lock().expect("not poisoned");
            ledger.rounds += 1;
            ledger.given(&got);
            match auto_ack {
                true => ledger.done.extend(got.names()),
                false => ledger.leased(&got),
            }
        }
        if got.claimed.lanes.is_empty() || auto_ack {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::task::yield_now().await;
        ledger.lock().expect("not poisoned").gives(&got);
        let names = got.names();
        match fate {
            // The lease ends by itself.
            0 => {}
            2 => drop(store.release(got.lease).await),
            3 => drop(store.settle(vec![got.failed(&names[0])]).await),
            4 => drop(store.settle(vec![got.word(&names[0], Verdict::Retry)]).await),
            5 => drop(store.extend(got.lease, 0).await),
            _ => {
                let words = got.all_done();
                let settled = store.settle(words).await;
                let done = names.into_iter().zip(settled);
                let done = done.filter(|one| matches!(one.1, Settled::Done { .. }));
                ledger.lock().expect("not poisoned").done.extend(done.map(|one| one.0));
            }
        }
        // What a lane still has in flight after one word is given back.
        if (3..5).contains(&fate) {
            store.release(got.lease).await;
        }
    }
}
