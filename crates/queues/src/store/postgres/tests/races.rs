//! Nodes that do the same at once, and connections that die.

use super::super::link::{Call, Fail, Links};
use super::*;
use skep_store::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const NODES: usize = 2;
const PRODUCERS: usize = 4;
const CONSUMERS: usize = 6;
const PUSHES: usize = 40;
const PARTITIONS: usize = 3;

/// Who holds a partition now, as the consumers see it.
#[derive(Default)]
struct Holders {
    held: Mutex<BTreeSet<i64>>,
}

impl Holders {
    fn take(&self, claimed: &Claimed) {
        let mut held = self.held.lock().expect("not poisoned");
        for lane in &claimed.lanes {
            assert!(held.insert(lane.id.0), "{:?} is leased to two", lane.id);
        }
    }

    fn give_back(&self, claimed: &Claimed) {
        let mut held = self.held.lock().expect("not poisoned");
        for lane in &claimed.lanes {
            held.remove(&lane.id.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_doubled_or_left_asleep_when_nodes_race() {
    let rig = rig().await;
    let nodes: Vec<PostgresQueues> = (0..NODES).map(|_| rig.another()).collect();
    let holders = Arc::new(Holders::default());
    let seen: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let (over, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(PRODUCERS)));
    let mut work = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let (store, over, left) = (nodes[producer % NODES].clone(), over.clone(), left.clone());
        work.spawn(async move {
            for number in 0..PUSHES {
                let mut messages = Vec::new();
                for place in 0..PARTITIONS {
                    let partition = format!("p{}", (place + producer + number) % PARTITIONS);
                    let name = format!("{producer}.{number}.{place}");
                    messages.push(message("q", &partition, &name));
                }
                push(&store, messages).await;
            }
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                over.store(true, Ordering::Release);
            }
        });
    }
    for consumer in 0..CONSUMERS {
        let (store, over) = (nodes[consumer % NODES].clone(), over.clone());
        let (holders, seen) = (holders.clone(), seen.clone());
        work.spawn(async move {
            loop {
                let last = over.load(Ordering::Acquire);
                let job = ClaimJob { partitions: 2, ..from_queue("q", "g", 7) };
                let lease = job.lease;
                let claimed = claim(&store, job).await;
                if claimed.lanes.is_empty() {
                    // Nobody pushes any more, so what is ready now stays ready.
                    if last && claimed.next_at.is_none() {
                        return;
                    }
                    tokio::task::yield_now().await;
                    continue;
                }
                holders.take(&claimed);
                for (partition, names) in names(&claimed) {
                    let mut seen = seen.lock().expect("not poisoned");
                    seen.entry(partition).or_default().extend(names);
                }
                holders.give_back(&claimed);
                let settled = complete(&store, "g", lease, &claimed).await;
                assert!(
                    settled.iter().all(|one| matches!(one, Settled::Done { .. })),
                    "{settled:?}"
                );
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.expect("no error comes through");
    }
    let seen = seen.lock().expect("not poisoned");
    let mut all = BTreeSet::new();
    for (partition, names) in &*seen {
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names {
            assert!(all.insert(name.clone()), "{name} came twice");
            let (producer, rest) = name.split_once('.').expect("a dot");
            let number = rest.split_once('.').expect("a dot").0.parse().expect("a number");
            let before = last.insert(producer, number);
            assert!(before.is_none_or(|before| before < number), "{partition}: {name} is late");
        }
    }
    assert_eq!(all.len(), PRODUCERS * PUSHES * PARTITIONS);
    assert_eq!(deadlocks(&rig), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_that_race_all_get_something_while_there_is_enough() {
    const TOGETHER: usize = 16;
    const TURNS: usize = 8;
    let rig = rig().await;
    // Twice as many partitions as claims at once, and in each as many messages as turns.
    let names: Vec<String> = (0..TURNS * 4).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for number in 0..2 * 4 * TOGETHER {
        push(&rig.store, messages("q", &format!("p{number}"), &names)).await;
    }
    let nodes: Vec<PostgresQueues> = (0..NODES).map(|_| rig.another()).collect();
    let mut work = tokio::task::JoinSet::new();
    for consumer in 0..4 {
        let store = nodes[consumer % NODES].clone();
        work.spawn(async move {
            for _ in 0..TURNS {
                let jobs: Vec<ClaimJob> = (0..TOGETHER).map(|_| from_queue("q", "g", 1)).collect();
                let leases: Vec<LeaseId> = jobs.iter().map(|job| job.lease).collect();
                let channels = (0..TOGETHER).map(|_| oneshot::channel());
                let (answers, answered): (Vec<_>, Vec<_>) = channels.unzip();
                let jobs = jobs.into_iter().zip(answers);
                store.run(jobs.map(|(job, answer)| Job::Claim(job, answer)).collect()).await;
                for (lease, answered) in leases.into_iter().zip(answered) {
                    let claimed = answered.await.expect("an answer").expect("claims");
                    assert_eq!(claimed.lanes.len(), 1, "{:?}", claimed.nothing);
                    complete(&store, "g", lease, &claimed).await;
                }
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.expect("each gets something");
    }
    assert_eq!(deadlocks(&rig), "0");
}

/// Those that were met and tried again; what takes its locks in one order meets none.
fn deadlocks(rig: &Rig) -> String {
    rig.database.run("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_maximum_is_never_exceeded_however_many_push() {
    let rig = rig().await;
    configure(&rig.store, "q", |options| QueueOptions { max_size: 50, ..options }).await;
    let nodes: Vec<PostgresQueues> = (0..NODES).map(|_| rig.another()).collect();
    let mut work = tokio::task::JoinSet::new();
    for producer in 0..8 {
        let store = nodes[producer % NODES].clone();
        work.spawn(async move {
            let mut taken = 0;
            for number in 0..10 {
                let names = [format!("{producer}.{number}.a"), format!("{producer}.{number}.b")];
                let partition = format!("p{}", producer % 3);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                match try_push(&store, messages("q", &partition, &names)).await {
                    Ok(pushed) => taken += pushed.len(),
                    Err(WorkError::Full { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            taken
        });
    }
    let mut taken = 0;
    while let Some(done) = work.join_next().await {
        taken += done.expect("no error comes through");
    }
    assert_eq!(taken, 50);
    assert_eq!(rig.store.queues(None, 1).await.expect("lists")[0].total, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_make_the_same_queues_and_groups_at_once() {
    let rig = rig().await;
    let nodes: Vec<PostgresQueues> = (0..4).map(|_| rig.another()).collect();
    let mut work = tokio::task::JoinSet::new();
    for (place, store) in nodes.into_iter().enumerate() {
        work.spawn(async move {
            for number in 0..10 {
                // In another order each, which is what locks dislike.
                let mut places: Vec<usize> = (0..6).collect();
                places.rotate_left((place + number) % 6);
                let new = |one: &usize| {
                    let partition = format!("p{number}.{one}");
                    message(&format!("q{}", one % 3), &partition, &format!("{place}"))
                };
                push(&store, places.iter().map(new).collect()).await;
                let job =
                    ClaimJob { auto_ack: true, ..from_queue(&format!("q{}", place % 3), "g", 9) };
                claim(&store, job).await;
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.expect("no error comes through");
    }
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queues"), "3");
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_partitions"), "60");
    assert_eq!(rig.database.run("SELECT sum(pushed) FROM skep_queue_counts"), "240");
    assert_eq!(rig.database.run("SELECT count(*) FROM skep_queue_groups"), "3");
    assert_eq!(deadlocks(&rig), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_that_are_cut_leave_nothing_half_done() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["first"])).await;
    let over = Arc::new(AtomicBool::new(false));
    let pushing = tokio::spawn({
        let (store, over) = (rig.another(), over.clone());
        async move {
            let (mut sure, mut unsure) = (Vec::new(), Vec::new());
            for number in 0..200 {
                let names = [format!("{number}.a"), format!("{number}.b")];
                let pair = vec![message("q", "p", &names[0]), message("q", "r", &names[1])];
                match try_push(&store, pair).await {
                    Ok(_) => sure.extend(names),
                    Err(WorkError::Store(error)) => {
                        if error.outcome() == Outcome::Unknown {
                            unsure.extend(names);
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            over.store(true, Ordering::Release);
            (sure, unsure)
        }
    });
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut cuts = 0;
    while !over.load(Ordering::Acquire) {
        cuts += rig.database.run(cut).parse::<usize>().expect("a number");
        tokio::task::yield_now().await;
    }
    let (sure, unsure) = pushing.await.expect("pushes");
    assert!(cuts > 0, "something was cut");
    let store = rig.another();
    let mut found = BTreeSet::new();
    for partition in ["p", "r"] {
        let job = ClaimJob { batch: 1_000, ..from_partition("q", partition, "g") };
        found.extend(all_names(&claim(&store, job).await));
    }
    for name in &sure {
        assert!(found.contains(name), "{name} was acknowledged");
    }
    for name in &found {
        assert!(name == "first" || sure.contains(name) || unsure.contains(name), "{name}");
    }
    for number in 0..200 {
        let (a, b) = (format!("{number}.a"), format!("{number}.b"));
        assert_eq!(found.contains(&a), found.contains(&b), "half of {number}");
    }
    let tails = "SELECT sum(tail) = (SELECT sum(count) FROM skep_queue_segments)
                 AND sum(tail) = (SELECT sum(pushed) FROM skep_queue_counts)
                 FROM skep_queue_partitions";
    assert_eq!(rig.database.run(tails), "t");
}

/// Everything between `BEGIN` and `COMMIT` may be tried on another connection: nothing of it was
/// done.
#[tokio::test]
async fn a_connection_lost_before_the_commit_is_no_reason_to_refuse() {
    let rig = rig().await;
    let links = Links::new(rig.postgres.clone());
    let mut link = links.link().await.expect("a connection");
    let open = vec![Call::Begin, Call::Query("SELECT pg_backend_pid()", Vec::new())];
    let answers = link.send(open).await.expect("begins");
    let backend: i32 = answers[1][0].get(0);
    assert_eq!(rig.database.run(&format!("SELECT pg_terminate_backend({backend}, 10000)")), "t");
    let undone = link.undo().await;
    assert!(matches!(undone, Err(Fail::Conflict(_))), "{undone:?}");
    let mut tries = 0;
    let next = links.end(link, undone, &mut tries).await.expect("it is tried again");
    assert_eq!((next, tries), (None, 1));
    // The lost one is not given out again.
    let mut link = links.link().await.expect("another connection");
    let rows = link.ask("SELECT pg_backend_pid()", Vec::new()).await.expect("it works");
    assert_ne!(rows[0].get::<_, i32>(0), backend);
}
