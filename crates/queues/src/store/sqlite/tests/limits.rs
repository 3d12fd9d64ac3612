//! What a group may have at once, and how fast.

use super::kit::{ALL_DONE, Kit, ids, item, leveled, of_partition, want};
use crate::store::{
    ClaimJob, Claimed, Job, Nothing, SeekTo, SettleItem, Step, TransactionJob, Wake,
};
use skep_policy::queues::{LeaseId, Verdict};
use std::time::Duration;
use tokio::sync::oneshot;

/// A claim from as many partitions as there are.
fn all(lease: u128, batch: u32) -> ClaimJob {
    ClaimJob { partitions: 100, ..want("q", "g", lease, batch) }
}

/// A word about everything that a claim got.
fn words(claimed: &Claimed, lease: u128) -> Vec<SettleItem> {
    let mut words = Vec::new();
    for lane in &claimed.lanes {
        let one = Claimed { lanes: vec![lane.clone()], ..claimed.clone() };
        for id in ids(&one) {
            let pushed = crate::store::Pushed {
                id: uuid::Uuid::nil(),
                partition: lane.id,
                duplicate: false,
            };
            words.push(item(pushed, &id, Verdict::Completed, Some(lease)));
        }
    }
    words
}

fn woken(wakes: &[Wake]) -> Vec<&str> {
    wakes.iter().map(|wake| &*wake.partition).collect()
}

#[tokio::test]
async fn a_group_has_no_more_in_flight_than_its_queue_allows() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_in_flight = 3).await;
    kit.push("q", "p1", &["a", "b"]).await;
    kit.push("q", "p2", &["c", "d"]).await;
    let first = kit.claim(all(1, 9)).await;
    assert_eq!(ids(&first), ["a", "b", "c"]);
    let none = kit.claim(all(2, 9)).await;
    assert_eq!((none.lanes.len(), none.nothing), (0, Some(Nothing::Empty)));
    assert_eq!(none.next_at, Some(first.until), "when the first lease ends");
    let named = kit.claim(of_partition("q", "p2", all(2, 9))).await;
    assert_eq!((named.nothing, named.next_at), (Some(Nothing::Leased), Some(first.until)));
    let other = kit.claim(ClaimJob { group: "other".into(), ..all(3, 9) }).await;
    assert_eq!(ids(&other).len(), 3, "each group has its own");
    let (settled, wakes) = kit.settle_items("g", words(&first, 1)[1..2].to_vec()).await;
    assert_eq!(settled[0].settled, ALL_DONE);
    assert!(!wakes.is_empty(), "any settlement wakes who waits for room");
    kit.push("q", "p1", &["e", "f", "g"]).await;
    assert_eq!(kit.take(all(4, 9)).await, ["e", "f"], "c is still in flight");
    kit.pass(301);
    assert_eq!(kit.take(all(5, 9)).await, ["c", "d", "e"], "leases that ran out count no more");
}

#[tokio::test]
async fn a_part_of_a_lease_that_is_settled_makes_room() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_in_flight = 2).await;
    kit.push("q", "p1", &["a", "b"]).await;
    kit.push("q", "p2", &["c", "d"]).await;
    let first = kit.claim(all(1, 9)).await;
    assert_eq!(ids(&first), ["a", "b"]);
    let (_, wakes) = kit.settle_items("g", words(&first, 1)[..1].to_vec()).await;
    assert_eq!(woken(&wakes), ["p2"], "the one that waits is told");
    assert_eq!(kit.take(all(2, 9)).await, ["c"]);
    assert!(kit.take(all(3, 9)).await.is_empty());
    assert!(!kit.release(1).await.is_empty());
    assert_eq!(kit.take(all(4, 9)).await, ["b"]);
}

#[tokio::test]
async fn a_key_that_has_enough_holds_up_nobody() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 2;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    for partition in ["a/1", "a/2", "a/3", "b/1"] {
        let own = [1, 2].map(|number| format!("{partition}-{number}"));
        kit.push("q", partition, &[&own[0], &own[1]]).await;
    }
    let first = kit.claim(all(1, 3)).await;
    assert_eq!(ids(&first), ["a/1-1", "a/1-2", "b/1-1"]);
    let none = kit.claim(all(2, 9)).await;
    assert_eq!((none.lanes.len(), none.next_at), (0, Some(first.until)));
    let blocked = "SELECT count(*) FROM skep_queue_lanes WHERE blocked_key = 'a'";
    assert_eq!(kit.count(blocked).await, 2);
    let version = "SELECT version FROM skep_queue_clock";
    let before = kit.count(version).await;
    assert!(kit.take(all(2, 9)).await.is_empty());
    assert_eq!(kit.count(version).await, before, "nobody looks at them again");
    let counted = "SELECT count(*) FROM skep_queue_lanes WHERE leased_key IS NOT NULL";
    assert_eq!(kit.count(counted).await, 2);
    let (_, wakes) = kit.settle_items("g", words(&first, 1)[..1].to_vec()).await;
    assert_eq!(woken(&wakes), ["a/2"], "room for one, one is told");
    assert_eq!(kit.count(blocked).await, 1);
    assert_eq!(kit.take(all(3, 9)).await, ["a/2-1"]);
    assert!(kit.take(all(4, 9)).await.is_empty());
    let wakes = kit.release(1).await;
    assert!(woken(&wakes).contains(&"a/3"), "{wakes:?}");
    assert_eq!(kit.count(counted).await, 1);
    assert_eq!(kit.take(all(5, 9)).await, ["a/3-1", "b/1-1", "b/1-2"]);
}

#[tokio::test]
async fn partitions_of_one_key_take_turns() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 1;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    for partition in ["k/1", "k/2", "k/3"] {
        kit.push("q", partition, &["a", "b", "c"]).await;
    }
    let mut served = Vec::new();
    for lease in 1..=9 {
        let claimed = kit.claim(all(lease, 9)).await;
        served.push(claimed.lanes[0].partition.to_string());
        assert!(kit.take(all(100, 9)).await.is_empty());
        assert_eq!(kit.settle("g", words(&claimed, lease)).await, [ALL_DONE]);
    }
    let turns = ["k/1", "k/2", "k/3"];
    assert_eq!(served, [turns, turns, turns].concat());
    assert!(kit.take(all(100, 9)).await.is_empty());
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_lanes WHERE ready_at > 0").await, 0);
}

#[tokio::test]
async fn a_lease_that_ends_earlier_or_runs_out_makes_room() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 1;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    kit.push("q", "k/1", &["a"]).await;
    kit.push("q", "k/2", &["b"]).await;
    kit.take(all(1, 9)).await;
    let none = kit.claim(all(2, 9)).await;
    let (answer, got) = oneshot::channel();
    kit.queues.run(vec![Job::Extend { lease: LeaseId(1), seconds: 10, answer }]).await;
    let until = got.await.unwrap().unwrap().unwrap();
    assert!(until < none.next_at.unwrap());
    assert_eq!(kit.claim(all(3, 9)).await.next_at, Some(until));
    kit.pass(11);
    let next = kit.claim(all(4, 9)).await;
    assert_eq!(ids(&next).len(), 1);
    kit.pass(301);
    assert_eq!(kit.take(all(5, 9)).await.len(), 1);
}

#[tokio::test]
async fn a_rate_is_kept_in_any_stretch_of_its_time() {
    let kit = Kit::new().await;
    kit.configure("q", |options| (options.rate_limit, options.rate_period_seconds) = (3, 60)).await;
    kit.push("q", "p1", &["a", "b", "c", "d"]).await;
    kit.push("q", "p2", &["e", "f"]).await;
    let mut job = all(1, 2);
    job.auto_ack = true;
    let first = kit.claim(job.clone()).await;
    assert_eq!(ids(&first), ["a", "b"]);
    kit.pass(40);
    assert_eq!(kit.take(job.clone()).await.len(), 1, "also what is settled at once");
    let none = kit.claim(job.clone()).await;
    assert_eq!((none.lanes.len(), none.next_at), (0, Some(first.now + Duration::from_secs(60))));
    let kit = kit.reopen(&crate::QueuesOptions::default()).await;
    // A new clock goes on from the wall's time: everything above is not long ago.
    assert!(kit.take(job.clone()).await.is_empty(), "a restart forgets nothing");
    kit.queues.seek("q", "g", None, SeekTo::Time(skep_policy::Time::ZERO)).await.unwrap();
    assert!(kit.take(job.clone()).await.is_empty(), "nor does reading again");
    kit.pass(61);
    assert_eq!(kit.take(job.clone()).await.len(), 2);
    kit.pass(200);
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_grants").await, 1);
    while kit.queues.tidy(9).await.unwrap().more {}
    assert_eq!(kit.count("SELECT count(*) FROM skep_queue_grants").await, 0);
}

#[tokio::test]
async fn a_key_has_a_rate_of_its_own() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        (options.key_rate_limit, options.key_rate_period_seconds) = (2, 10);
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    kit.push("q", "a/1", &["1", "2", "3"]).await;
    kit.push("q", "a/2", &["4"]).await;
    kit.push("q", "b/1", &["5"]).await;
    let first = kit.claim(all(1, 9)).await;
    assert_eq!(ids(&first), ["1", "2", "5"]);
    kit.settle("g", words(&first, 1)).await;
    let none = kit.claim(all(2, 9)).await;
    assert_eq!((none.lanes.len(), none.next_at), (0, Some(first.now + Duration::from_secs(10))));
    kit.pass(11);
    let mut next = kit.take(all(3, 9)).await;
    next.sort_unstable();
    assert_eq!(next, ["3", "4"]);
}

#[tokio::test]
async fn what_is_settled_at_once_is_never_in_flight() {
    let kit = Kit::new().await;
    kit.configure("q", |options| (options.max_in_flight, options.key_max_in_flight) = (1, 1)).await;
    kit.push("q", "p1", &["a", "b"]).await;
    kit.push("q", "p2", &["c", "d"]).await;
    assert_eq!(kit.take(all(1, 9)).await, ["a"]);
    let auto = ClaimJob { auto_ack: true, ..all(2, 9) };
    assert_eq!(kit.take(auto).await, ["c", "d"]);
}

#[tokio::test]
async fn other_options_take_effect_at_once() {
    let kit = Kit::new().await;
    let own = |partition: &str| [1, 2].map(|number| format!("{partition}-{number}"));
    for partition in ["k/1", "k/2", "k/3"] {
        let own = own(partition);
        kit.push("q", partition, &[&own[0], &own[1]]).await;
    }
    let first = kit.claim(all(1, 1)).await;
    assert_eq!(ids(&first), ["k/1-1"]);
    kit.configure("q", |options| options.max_in_flight = 1).await;
    assert!(kit.take(all(2, 9)).await.is_empty(), "what was leased before counts");
    kit.configure("q", |options| {
        (options.max_in_flight, options.key_max_in_flight) = (0, 1);
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    assert!(kit.take(all(3, 9)).await.is_empty(), "also for its key");
    kit.configure("q", |options| options.key_max_in_flight = 2).await;
    assert_eq!(kit.take(all(4, 9)).await, ["k/2-1"], "what was blocked is looked at again");
    assert!(kit.take(all(5, 9)).await.is_empty());
    kit.configure("q", |options| options.limit_key_separator = String::new()).await;
    assert_eq!(kit.take(all(6, 9)).await, ["k/3-1", "k/3-2"], "each partition is a key now");
    kit.release(4).await;
    kit.configure("q", |options| options.key_max_in_flight = 0).await;
    assert_eq!(kit.take(all(7, 9)).await, ["k/2-1", "k/2-2"]);
}

#[tokio::test]
async fn the_highest_level_gets_the_room_of_its_key() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.key_max_in_flight = 1).await;
    kit.push("q", "p", &["low1", "low2"]).await;
    let first = kit.claim(all(1, 9)).await;
    assert_eq!(ids(&first), ["low1"]);
    kit.try_push(vec![leveled("q", "p", "high", 5)]).await.unwrap();
    assert!(kit.take(all(2, 9)).await.is_empty());
    kit.settle("g", words(&first, 1)).await;
    assert_eq!(kit.take(all(3, 9)).await, ["high"]);
}

#[tokio::test]
async fn a_level_that_waits_for_room_goes_before_a_lower_one_that_got_it() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 1;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    kit.push("q", "k/x", &["x"]).await;
    kit.push("q", "k/p", &["low"]).await;
    kit.try_push(vec![leveled("q", "k/p", "high", 5)]).await.unwrap();
    let first = kit.claim(all(1, 9)).await;
    assert_eq!(ids(&first), ["x"]);
    assert!(kit.take(all(2, 9)).await.is_empty(), "both levels wait now");
    kit.settle("g", words(&first, 1)).await;
    assert_eq!(kit.take(all(3, 9)).await, ["high"]);
}

#[tokio::test]
async fn a_claim_that_leaves_room_wakes_the_next() {
    let kit = Kit::new().await;
    kit.configure("q", |options| options.max_in_flight = 5).await;
    for partition in ["p1", "p2"] {
        kit.push("q", partition, &["a"]).await;
    }
    let (answer, got) = oneshot::channel();
    let wakes = kit.queues.run(vec![Job::Claim(want("q", "g", 1, 1), answer)]).await;
    assert_eq!(ids(&got.await.unwrap().unwrap()), ["a"]);
    assert_eq!(woken(&wakes), ["p2"]);
}

#[tokio::test]
async fn jobs_of_one_batch_share_the_room() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        (options.max_in_flight, options.key_max_in_flight) = (4, 2);
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    for partition in ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"] {
        kit.push("q", partition, &["1", "2", "3"]).await;
    }
    let run = async |settled: Vec<SettleItem>, leases: std::ops::Range<u128>| {
        let claims = leases.map(|lease| {
            let (answer, got) = oneshot::channel();
            (Job::Claim(want("q", "g", lease, 1), answer), got)
        });
        let (mut jobs, told): (Vec<_>, Vec<_>) = claims.unzip();
        jobs.push(Job::Settle { group: "g".into(), items: settled, answer: oneshot::channel().0 });
        kit.queues.run(jobs).await;
        let mut all = Vec::new();
        for told in told {
            all.push(told.await.unwrap().unwrap());
        }
        all
    };
    let first = run(Vec::new(), 1..9).await;
    let served = |all: &[Claimed]| -> Vec<String> {
        all.iter().flat_map(|one| &one.lanes).map(|lane| lane.partition.to_string()).collect()
    };
    assert_eq!(served(&first), ["a/1", "a/2", "b/1", "b/2"]);
    let next = run(words(&first[0], 1), 11..19).await;
    assert_eq!(served(&next), ["c/1"], "what is settled with them makes room");
    let next = run([words(&first[1], 2), words(&first[2], 3)].concat(), 21..29).await;
    assert_eq!(served(&next), ["a/3", "a/1"], "also of their key");
}

#[tokio::test]
async fn many_partitions_of_a_key_without_room_hide_nobody() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 1;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    let names: Vec<String> = (0..400).map(|number| format!("a/{number}")).collect();
    let messages = names.iter().map(|name| super::kit::message("q", name, "1")).collect();
    kit.try_push(messages).await.unwrap();
    kit.push("q", "b/1", &["2"]).await;
    assert_eq!(kit.take(all(1, 1)).await, ["1"]);
    assert_eq!(kit.take(all(2, 1)).await, ["2"]);
}

#[tokio::test]
async fn a_transaction_that_fails_makes_no_room() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        options.key_max_in_flight = 1;
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    kit.push("q", "k/1", &["a", "b"]).await;
    kit.push("q", "k/2", &["c"]).await;
    let first = kit.claim(all(1, 9)).await;
    assert!(kit.take(all(2, 9)).await.is_empty());
    let settle = |item| Step::Settle { group: "g".into(), item };
    let mut stale = words(&first, 1).remove(0);
    stale.lease = Some(LeaseId(77));
    let (answer, told) = oneshot::channel();
    let steps = vec![settle(words(&first, 1).remove(0)), settle(stale)];
    let job = TransactionJob { steps, ..TransactionJob::default() };
    let (claim, got) = oneshot::channel();
    let jobs = vec![Job::Transaction(job, answer), Job::Claim(all(3, 9), claim)];
    let wakes = kit.queues.run(jobs).await;
    assert!(told.await.unwrap().unwrap().is_err());
    assert!(got.await.unwrap().unwrap().lanes.is_empty() && wakes.is_empty(), "{wakes:?}");
    let done = kit.transaction(vec![settle(words(&first, 1).remove(0))], &[1]).await.unwrap();
    assert!(done.is_ok());
    assert_eq!(kit.take(all(4, 9)).await, ["c"]);
}

#[tokio::test]
async fn room_that_a_lane_does_not_use_is_for_the_others_of_its_key() {
    let kit = Kit::new().await;
    kit.configure("q", |options| {
        (options.key_max_in_flight, options.ttl) = (1, Some(100));
        options.limit_key_separator = "/".to_owned();
    })
    .await;
    kit.push("q", "k/1", &["a"]).await;
    kit.take(all(1, 9)).await;
    kit.pass(60);
    kit.push("q", "k/2", &["b"]).await;
    assert!(kit.take(all(2, 9)).await.is_empty(), "it waits for the end of the lease");
    let (answer, _got) = oneshot::channel();
    kit.queues.run(vec![Job::Extend { lease: LeaseId(1), seconds: 60, answer }]).await;
    kit.pass(61);
    assert_eq!(kit.take(all(3, 9)).await, ["b"], "a has expired and needs no room");
}
