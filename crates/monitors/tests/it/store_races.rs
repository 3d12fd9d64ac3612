//! Nodes that change, report and review at the same time, on the database that they share.

use super::store_kit::*;
use serde_json::json;
use skep_monitors::store::*;
use skep_policy::monitors::{GlobalStatus, Status};
use skep_store::Database;
use skep_testkit::Postgres;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_claim_at_once_never_get_one_server_twice() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    for number in 0..60 {
        add_server(&db, &format!("s{number}"), "198.51.100.1").await;
    }
    for round in 0..5_i64 {
        let now_ms = 1_000 + round * 1_000;
        let claiming = (0..6).map(|node| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let some = claim(&db, &format!("n{node}"), now_ms, 1_000, 4).await;
                    let some = some.expect("claims");
                    if some.is_empty() {
                        return mine;
                    }
                    mine.extend(some.into_iter().map(|one| (one.server.id, one.token)));
                }
            })
        });
        let mut all = Vec::new();
        for node in claiming.collect::<Vec<_>>() {
            all.extend(node.await.expect("ends"));
        }
        // One that finds rows held by others may leave early, so the rest is taken here.
        let rest = claim(&db, "last", now_ms, 1_000, 100).await.expect("claims");
        all.extend(rest.into_iter().map(|one| (one.server.id, one.token)));
        let servers: BTreeSet<&String> = all.iter().map(|(id, _)| id).collect();
        assert_eq!((all.len(), servers.len()), (60, 60), "round {round}");
        assert!(
            all.iter().all(|(_, token)| *token == round + 1),
            "each claim has a token of its own"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_who_apply_one_state_exactly_one_does() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let m = add_monitor(&db, "m", "192.0.2.1").await;
    add_server(&db, "s", "198.51.100.1").await;
    for round in 0..30 {
        let change = match round % 2 {
            0 => (&m, Status::Candidate, Status::Testing),
            _ => (&m, Status::Testing, Status::Candidate),
        };
        let wanted = plan(&db, "s", &[change]).await;
        let index = wanted.index;
        let applying = (0..4).map(|_| {
            let (db, wanted) = (db.clone(), wanted.clone());
            tokio::spawn(async move { apply(&db, wanted).await.expect("answers") })
        });
        let mut done = 0;
        for one in applying.collect::<Vec<_>>() {
            match one.await.expect("ends") {
                Applied::Done { index: after } if after == index + 1 => done += 1,
                Applied::Stale { index: after, .. } if after == index + 1 => {}
                other => panic!("round {round}: {other:?}"),
            }
        }
        assert_eq!(done, 1, "round {round}");
    }
    assert_eq!(history(&db, HistoryOf::All, None, 100).await.expect("reads").len(), 30);
    check_counts(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_was_overtaken_applies_nothing() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let m = add_monitor(&db, "m", "192.0.2.1").await;
    let s = add_server(&db, "s", "198.51.100.1").await;
    let mut now_ms = 1_000;
    for round in 0..20 {
        let slow = claim(&db, "slow", now_ms, 10, 1).await.expect("claims").pop().expect("is due");
        now_ms += 10;
        let fast = claim(&db, "fast", now_ms, 10, 1).await.expect("claims").pop().expect("is due");
        let mut wanted = plan(&db, "s", &[]).await;
        (wanted.now_ms, wanted.next_review_ms) = (now_ms, now_ms);
        let with = |fence| Apply { fence: Some(fence), ..wanted.clone() };
        let (of_slow, of_fast) = (with(slow.token), with(fast.token));
        let (one, other) = tokio::join!(apply(&db, of_slow), apply(&db, of_fast));
        assert_eq!(one.expect("answers"), Applied::Fenced, "round {round}");
        assert_eq!(other.expect("answers"), Applied::Done { index: wanted.index });
    }
    let row = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
    assert_eq!(row.status, Status::Candidate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_monitor_and_a_server_that_come_at_once_are_a_pair() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    for round in 0..25 {
        let (m, s) = (format!("m{round}"), format!("s{round}"));
        let (a, b) = (db.clone(), db.clone());
        let monitor = tokio::spawn(async move { add_monitor(&a, &m, "192.0.2.1").await });
        let server = tokio::spawn(async move { add_server(&b, &s, "198.51.100.1").await });
        let (monitor, server) = (monitor.await.expect("ends"), server.await.expect("ends"));
        let pair = assignment(&db, server.number, monitor.number).await.expect("reads");
        assert!(pair.is_some(), "round {round}");
    }
    check_counts(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_register_at_once_do_not_get_beyond_the_limit_of_their_account() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    add_account(&db, "five", json!({ "monitor_limit": 5 })).await;
    let registering = (0..12).map(|number| {
        let db = db.clone();
        let new = new_monitor(&format!("m{number}"), Some("five"), "192.0.2.1", "pending");
        tokio::spawn(async move { create_monitor(&db, new, None, LIMITS, 1).await })
    });
    let (mut made, mut refused) = (0, 0);
    for one in registering.collect::<Vec<_>>() {
        match one.await.expect("ends") {
            Ok(_) => made += 1,
            Err(ChangeError::AccountFull { limit: 5, has: 5, .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((made, refused), (5, 7));
    check_counts(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_report_that_comes_several_times_at_once_is_kept_once() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let m = add_monitor(&db, "m", "192.0.2.1").await;
    let s = add_server(&db, "s", "198.51.100.1").await;
    let all: Vec<_> = (1..=50).map(|at| sample(&s, at, 1.0)).collect();
    let reporting = (0..6).map(|_| {
        let (db, report) = (db.clone(), report(&m, all.clone(), 100));
        tokio::spawn(async move { record(&db, report).await.expect("records") })
    });
    let mut accepted = BTreeMap::<usize, usize>::new();
    for one in reporting.collect::<Vec<_>>() {
        for (place, answer) in one.await.expect("ends").into_iter().enumerate() {
            *accepted.entry(place).or_default() += usize::from(answer == Recorded::Accepted);
        }
    }
    assert!(accepted.len() == 50 && accepted.values().all(|times| *times == 1), "{accepted:?}");
    let row = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
    let expected = (0..50).fold(0.0, |score, _| skep_policy::monitors::next_score(score, 1.0));
    assert!((row.score - expected).abs() < 1e-9);
}

/// Everything at once: nobody waits in a circle, and the counts are right in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_reports_reviews_and_tidying_at_once_leave_the_counts_right() {
    let server = Postgres::shared().database();
    let db = postgres(&server).await;
    let mut all = Vec::new();
    for number in 0..8 {
        all.push(add_monitor(&db, &format!("m{number}"), &format!("192.0.2.{number}")).await);
    }
    for number in 0..8 {
        add_server(&db, &format!("s{number}"), &format!("198.51.100.{number}")).await;
    }
    let (all, over) = (Arc::new(all), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for who in 0..3_usize {
        let (db, all, over) = (db.clone(), all.clone(), over.clone());
        tasks.push(tokio::spawn(async move {
            let mut at = 0;
            while !over.load(Ordering::Acquire) {
                at += 1;
                let monitor = &all[(who * 3 + at as usize) % all.len()];
                let list = servers(&db, Page::default(), ServerFilter::default()).await;
                let list = list.expect("reads").rows;
                let samples = list.iter().rev().map(|one| sample(one, at, 1.0)).collect();
                record(&db, report(monitor, samples, at)).await.expect("records");
            }
        }));
    }
    for who in 0..3_i64 {
        let (db, over) = (db.clone(), over.clone());
        tasks.push(tokio::spawn(async move {
            let mut done = 0;
            while !over.load(Ordering::Acquire) || done == 0 {
                done += review(&db, who).await;
            }
        }));
    }
    for round in 0..30_i64 {
        let id = format!("m{}", round % 8);
        let statuses = [GlobalStatus::Paused, GlobalStatus::Active];
        set_status(&db, &id, statuses[(round / 8 % 2) as usize], round).await;
        add_server(&db, "extra", "198.51.100.99").await;
        let moved = new_server("s1", None, ["2001:db8::1", "198.51.100.1"][(round % 2) as usize]);
        replace_server(&db, moved, round).await.expect("moves");
        delete_server(&db, "extra").await.expect("is deleted");
        tidy(&db, round, 0, 50).await.expect("tidies");
        purge(&db, 50).await.expect("purges");
    }
    over.store(true, Ordering::Release);
    for task in tasks {
        task.await.expect("ends");
    }
    check_counts(&db).await;
}

/// Claims a server, moves one of its monitors by a step and marks all of them; whether that was
/// done in time.
async fn review(db: &Database, who: i64) -> usize {
    let claims = claim(db, &format!("n{who}"), 1_000_000, 1, 1).await.expect("claims");
    let Some(claim) = claims.into_iter().next() else {
        tokio::task::yield_now().await;
        return 0;
    };
    let number = claim.server.number;
    let Some(facts) = facts(db, number, 0).await.expect("reads") else { return 0 };
    let turn = (claim.token + who) as usize % facts.assignments.len().max(1);
    let change = facts.assignments.get(turn).map(|one| Change {
        monitor: one.monitor,
        from: one.status,
        to: if one.status == Status::Candidate { Status::Testing } else { Status::Candidate },
        pause_reason: None,
        rule: "3".to_owned(),
        reason: "a test".to_owned(),
    });
    let mark = |one: &skep_monitors::AssignmentRow| Mark {
        monitor: one.monitor,
        violation: None,
        last_check_ms: Some(claim.token),
        challenge: None,
    };
    let wanted = Apply {
        server: number,
        fence: Some(claim.token),
        index: facts.server.index,
        roster_version: facts.roster_version,
        changes: change.into_iter().collect(),
        marks: facts.assignments.iter().map(mark).collect(),
        next_review_ms: 1,
        now_ms: 2,
    };
    let applied = apply(db, wanted).await.expect("answers");
    release(db, number, claim.token, 1).await.expect("answers");
    usize::from(matches!(applied, Applied::Done { .. }))
}
