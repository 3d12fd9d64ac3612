//! A process that pushes, claims, settles and transacts is killed at random moments, again and
//! again, on the same store.
//!
//! It tells what was acknowledged. Whatever it told must be so afterwards, and what it did not live
//! to tell must be so as a whole or not at all:
//!
//! * a pushed message is there, once, with the id that was told, in the order of its producer;
//! * a settled message stays settled;
//! * every second message is settled by a transaction that also pushes its echo: one without the
//!   other never is;
//! * every seventh is set aside: it is settled if and only if there is one dead letter of it.

use crate::kit::*;
use skep_policy::queues::{Settled, Verdict};
use skep_policy::{Chance, SeededChance};
use skep_queues::store::*;
use skep_testkit::{Folder, Process, pause};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

/// In the environment of the process that is killed: its kind of store, where, and the round.
const PART: &str = "SKEP_TEST_PART";
const PRODUCERS: usize = 3;
const PARTITIONS: usize = 4;

#[test]
#[ignore = "a part in another test; it does nothing by itself"]
fn plays_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let [kind, place, round] = part.split(' ').collect::<Vec<_>>()[..] else { panic!("{part}") };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(live(kind, place, round.parse().expect("a number")));
}

/// Works until it is killed.
async fn live(kind: &str, place: &str, round: usize) {
    let store = Place::of(kind, place).await.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        tasks.spawn(produce(store.clone(), round, producer));
    }
    for _ in 0..2 {
        tasks.spawn(consume(store.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("works");
    }
}

fn partition_of(number: usize) -> String {
    format!("p{}", number % PARTITIONS)
}

/// Pushes numbers in order; it begins with what the one before it may not have seen acknowledged,
/// as a client does that tries again.
async fn produce(store: Store, round: usize, producer: usize) {
    if let Some(before) = round.checked_sub(1) {
        for number in 0..20 {
            push(&store, before, producer, &[number]).await;
        }
    }
    let mut chance = SeededChance::new((round * PRODUCERS + producer) as u64);
    let mut number = 0;
    loop {
        let count = 1 + chance.up_to(5) as usize;
        push(&store, round, producer, &Vec::from_iter(number..number + count)).await;
        number += count;
    }
}

async fn push(store: &Store, round: usize, producer: usize, numbers: &[usize]) {
    let name = |number: &usize| format!("{round}.{producer}.{number}");
    let new = |number: &usize| message("in", &partition_of(*number), &name(number));
    let pushed = store.try_push(numbers.iter().map(new).collect()).await.expect("is kept");
    for (number, pushed) in numbers.iter().zip(pushed) {
        println!("pushed {} {} {}", partition_of(*number), name(number), pushed.id);
    }
}

/// The last part of its name.
fn number_of(name: &str) -> usize {
    name.rsplit('.').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn is_set_aside(name: &str) -> bool {
    number_of(name).is_multiple_of(7)
}

fn is_echoed(name: &str) -> bool {
    !is_set_aside(name) && number_of(name).is_multiple_of(2)
}

/// Settles one after the other, each in its way. A lease is short: who comes next waits for it.
async fn consume(store: Store) {
    loop {
        let job = ClaimJob { partitions: 2, lease_seconds: Some(1), ..up_to(8, "in") };
        let got = store.pop(job).await;
        for name in got.names() {
            let word = got.done(&name);
            let (id, partition) = (word.partition, number_of(&name));
            let done = if is_echoed(&name) {
                let echo = message("out", &partition_of(partition), &name);
                let settle = Step::Settle { group: GROUP.into(), item: word };
                let steps = vec![Step::Push(echo), settle];
                match store.transact(steps, &[got.lease]).await {
                    Ok(done) => matches!(
                        &done[1],
                        StepDone::Settled(ItemSettled { settled: Settled::Done { .. }, .. })
                    ),
                    Err(_) => false,
                }
            } else if is_set_aside(&name) {
                let settled = store.say(SettleItem { verdict: Verdict::Dead, ..word }).await;
                matches!(settled, Settled::Dead { .. })
            } else {
                matches!(store.say(word).await, Settled::Done { .. })
            };
            if !done {
                break;
            }
            println!("settled {} {name}", id.expect("has one").0);
        }
        if got.claimed.lanes.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

/// What was acknowledged in all rounds.
#[derive(Default)]
struct Told {
    pushed: BTreeMap<(String, String), String>,
    settled: BTreeSet<(i64, String)>,
}

impl Told {
    fn hear(&mut self, log: &str) {
        // The last line may be cut off in its middle; it then lacks what an id must have.
        for line in log.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["pushed", partition, name, id] if id.len() == 36 => {
                    let key = (partition.to_owned(), name.to_owned());
                    let before = self.pushed.insert(key, id.to_owned());
                    let same = before.as_deref().is_none_or(|before| before == id);
                    assert!(same, "{name} was told to be {before:?} and then {id}");
                }
                _ => {}
            }
        }
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            if let ["settled", partition, name] = line.split(' ').collect::<Vec<_>>()[..] {
                self.settled.insert((partition.parse().expect("a number"), name.to_owned()));
            }
        }
    }
}

/// Everything in a queue, by partition, in order.
async fn everything(store: &Store, queue: &str, group: &str) -> BTreeMap<(i64, String), Vec<Read>> {
    let mut all: BTreeMap<_, Vec<Read>> = BTreeMap::new();
    loop {
        let job = ClaimJob { group: group.into(), auto_ack: true, ..up_to(10_000, queue) };
        let got = store.pop(job).await;
        if got.claimed.lanes.is_empty() {
            return all;
        }
        for lane in &got.claimed.lanes {
            let key = (lane.id.0, lane.partition.to_string());
            all.entry(key).or_default().extend(read(lane));
        }
    }
}

/// Which of a partition's messages are settled. A retry without a lease changes nothing, and is a
/// noop for what is settled.
async fn settled(store: &Store, partition: i64, all: &[Read]) -> BTreeSet<String> {
    let item = |one: &Read| SettleItem {
        partition: Some(skep_queues::ids::PartitionId(partition)),
        transaction: one.transaction.as_str().into(),
        verdict: Verdict::Retry,
        lease: None,
        error: None,
        after: None,
    };
    let told = store.settle(all.iter().map(item).collect()).await;
    let passed = all.iter().zip(told).filter(|(_, told)| *told == Settled::Noop);
    passed.map(|(one, _)| one.transaction.clone()).collect()
}

async fn check(store: &Store, told: &Told, round: usize) {
    let kept = everything(store, "in", &format!("check {round}")).await;
    let echoes = everything(store, "out", &format!("check {round}")).await;
    let filter = DeadFilter { limit: 1_000_000, ..of_queue("in") };
    let aside: Vec<String> =
        letters(&store.dead_letters(filter).await).into_iter().map(|one| one.0).collect();
    let mut ids = BTreeMap::new();
    let (mut echoed, mut dead) = (Vec::new(), Vec::new());
    for ((id, partition), all) in &kept {
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for one in all {
            let (producer, _) = one.transaction.rsplit_once('.').expect("three numbers");
            let before = last.insert(producer, number_of(&one.transaction));
            let number = number_of(&one.transaction);
            assert!(before.is_none_or(|before| before < number), "{} came late", one.transaction);
            let key = (partition.clone(), one.transaction.clone());
            assert!(ids.insert(key, one.id.to_string()).is_none(), "twice: {}", one.transaction);
        }
        let done = settled(store, *id, all).await;
        let prefix = all.iter().take_while(|one| done.contains(&one.transaction)).count();
        assert_eq!(prefix, done.len(), "what is settled is at the beginning of {partition}");
        let lost = |(at, name): &&(i64, String)| at == id && !done.contains(name);
        let lost: Vec<_> = told.settled.iter().filter(lost).collect();
        assert!(lost.is_empty(), "settled, and then not: {lost:?}");
        let in_order = || all.iter().take(prefix).map(|one| one.transaction.clone());
        let name = partition.clone();
        echoed.push((name, in_order().filter(|name| is_echoed(name)).collect::<Vec<_>>()));
        dead.extend(in_order().filter(|name| is_set_aside(name)));
    }
    for (key, id) in &told.pushed {
        assert_eq!(ids.get(key), Some(id), "{key:?} was acknowledged");
    }
    let mut found: Vec<(String, Vec<String>)> = echoes
        .iter()
        .map(|((_, name), all)| {
            (name.clone(), all.iter().map(|one| one.transaction.clone()).collect())
        })
        .collect();
    echoed.retain(|(_, all)| !all.is_empty());
    echoed.sort();
    found.sort();
    assert_eq!(found, echoed, "an echo for each that was settled, in order, and no other");
    let (mut aside, mut expected) = (aside, dead);
    aside.sort();
    expected.sort();
    assert_eq!(aside, expected, "a dead letter for each that was set aside, and no other");
}

async fn is_killed(kind: &str, place: &str, rounds: usize, reach: impl AsyncFn() -> Place) {
    let mut told = Told::default();
    let mut chance = SeededChance::new(8);
    for round in 0..rounds {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["crashes::plays_a_part", "--exact", "--ignored", "--nocapture"]);
        command.env(PART, format!("{kind} {place} {round}"));
        let process = Process::start("worker", &command, "KILL");
        let first = if round % 3 == 2 { "pushed" } else { "settled" };
        tokio::task::block_in_place(|| {
            process.wait_for_line(first);
            pause(Duration::from_micros(chance.up_to(250_000)));
            process.kill();
        });
        let log = process.log();
        assert!(!log.contains("panicked"), "round {round}:\n{log}");
        told.hear(&log);
        let place = reach().await;
        let store = place.open().await;
        check(&store, &told, round).await;
        drop(store);
        place.close().await;
    }
    let (pushed, settled) = (told.pushed.len(), told.settled.len());
    println!("{rounds} kills, {pushed} pushes and {settled} settlements acknowledged");
    assert!(pushed > rounds && settled > rounds, "{pushed} {settled}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_its_word_when_it_is_killed() {
    let folder = Folder::new("crashes");
    let path = folder.path().to_str().expect("is text");
    is_killed("sqlite", path, 20, async || Place::of("sqlite", path).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_its_word_when_its_client_is_killed() {
    let server = skep_testkit::Postgres::shared().database();
    let url = server.url();
    is_killed("postgres", &url, 20, async || Place::of("postgres", &url).await).await;
}
