//! Nodes that change and report at the same time, on the database that they share.

use super::store::{follow, grant, new, postgres, result};
use skep_polls::store::*;
use skep_store::Database;
use skep_testkit::Postgres;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 8;
const CHANGES: u64 = 40;

/// Changes endpoints that others change too, and creates some that nobody else touches; the
/// versions of the latter.
async fn change_things(db: Database, writer: u64) -> Vec<i64> {
    let mut own = Vec::new();
    for step in 0..CHANGES {
        let shared = format!("shared{}", (writer * 7 + step * 3) % 5);
        let spec = format!("{{{writer}.{step}}}");
        match step % 4 {
            0 => {
                let id = format!("own{writer}.{step}");
                let made = create(&db, new(&id, &spec), 1, 10_000).await.expect("is created");
                own.push(made.version);
            }
            1 => {
                import(&db, vec![new(&shared, &spec)], 1, 10_000).await.expect("imports");
            }
            2 => {
                set_paused(&db, vec![shared], step % 3 == 0, 1).await.expect("pauses");
            }
            _ => {
                delete(&db, &shared, 1).await.expect("deletes");
            }
        }
    }
    own
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_misses_nothing_of_what_many_change_at_once() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let over = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let (db, over) = (db.clone(), over.clone());
        async move {
            let (mut copy, mut versions) = (BTreeMap::new(), BTreeSet::new());
            let mut seen = Seen::NOTHING;
            loop {
                let last = over.load(Ordering::Acquire);
                let page = changes(&db, seen, 7).await.expect("reads");
                assert!(!page.full, "nothing was forgotten");
                for record in page.records {
                    assert!(record.version > seen.version(), "nothing comes from behind");
                    versions.insert(record.version);
                    if record.deleted {
                        copy.remove(&record.id);
                    } else {
                        copy.insert(record.id.clone(), record);
                    }
                }
                seen = page.seen;
                if last && !page.more {
                    return (copy, versions, seen);
                }
            }
        }
    });
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(change_things(db.clone(), writer))).collect();
    let mut own = Vec::new();
    for writer in writers {
        own.extend(writer.await.expect("ends"));
    }
    over.store(true, Ordering::Release);
    let (copy, versions, seen) = reading.await.expect("ends");
    assert!(own.iter().all(|version| versions.contains(version)), "each of them was seen");
    let (all, end, _) = follow(&db, Seen::NOTHING).await;
    let live = all.into_iter().filter(|one| !one.deleted);
    let live: BTreeMap<_, _> = live.map(|one| (one.id.clone(), one)).collect();
    assert_eq!(copy, live);
    assert_eq!(seen.version(), end.version());
    let counted = summary(&db).await.expect("reads").endpoints;
    assert_eq!(counted, live.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stale_token_is_never_accepted_after_a_newer_one_was_answered() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let mut endpoints = Vec::new();
    for id in ["a", "b", "c"] {
        endpoints.push(create(&db, new(id, "{}"), 1, 10).await.expect("is created"));
    }
    let endpoints = Arc::new(endpoints);
    // The newest token that was announced and answered; counting up goes on until the end.
    let answered = Arc::new(AtomicU64::new(0));
    let announcing = tokio::spawn({
        let (db, endpoints, answered) = (db.clone(), endpoints.clone(), answered.clone());
        async move {
            for counter in 1..=100 {
                let grants = endpoints.iter().rev().map(|one| grant(one, (1, counter), "new"));
                let answers = announce(&db, grants.collect()).await.expect("announces");
                assert!(answers.iter().all(|one| matches!(one, Announced::Current { .. })));
                answered.store(counter, Ordering::SeqCst);
            }
        }
    });
    let recording = (0..4_u64).map(|node| {
        let (db, endpoints, answered) = (db.clone(), endpoints.clone(), answered.clone());
        tokio::spawn(async move {
            let (mut fenced, mut slot) = (0_u64, 0);
            while fenced < 20 || answered.load(Ordering::SeqCst) < 100 {
                slot += 1;
                let newest = answered.load(Ordering::SeqCst);
                // Two of the nodes have just lost the endpoints, and the others have not.
                let counter = newest.saturating_sub(node % 2);
                let rows = endpoints.iter().map(|one| result(one, (1, counter), slot, true));
                let answers = record(&db, rows.collect(), 10).await.expect("records");
                if counter < newest {
                    assert_eq!(answers, [Recorded::Fenced; 3], "{counter} after {newest}");
                }
                if answers[0] == Recorded::Fenced {
                    fenced += 1;
                } else if answered.load(Ordering::SeqCst) == 100 {
                    return;
                }
            }
        })
    });
    let recording: Vec<_> = recording.collect();
    announcing.await.expect("ends");
    for node in recording {
        node.await.expect("ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_deleted_while_results_come_leaves_nothing_behind() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let over = Arc::new(AtomicBool::new(false));
    let recording = (0..3_u64).map(|node| {
        let (db, over) = (db.clone(), over.clone());
        tokio::spawn(async move {
            let mut slot = 0;
            while !over.load(Ordering::Acquire) {
                slot += 1;
                let Some(found) = find(&db, "shop").await.expect("reads") else { continue };
                let announced = announce(&db, vec![grant(&found, (1, slot), "n")]);
                announced.await.expect("announces");
                let rows = vec![result(&found, (1, slot), node as i64, true)];
                record(&db, rows, 10).await.expect("records");
            }
        })
    });
    let recording: Vec<_> = recording.collect();
    for _ in 0..100 {
        create(&db, new("shop", "{}"), 1, 10).await.expect("is created");
        delete(&db, "shop", 2).await.expect("is deleted");
    }
    over.store(true, Ordering::Release);
    for node in recording {
        node.await.expect("ends");
    }
    for table in ["skep_poll_state", "skep_poll_results", "skep_poll_moves"] {
        assert_eq!(server.run(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
}
