//! Reviews over a real database, as nodes make them.

use crate::review_kit::{HOUR, MINUTE, World, on_each_database};
use serde_json::json;
use skep_monitors::{Measurement, PlanError, PostedPlan, Reviewed, store};
use skep_policy::monitors::{Kind, Settings, Status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_server_with_twelve_good_candidates_has_seven_active_within_three_reviews() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(12).await;
        world.server("ntp1").await;
        assert_eq!(
            world.those("ntp1", Status::Candidate).await.len(),
            12,
            "they come by themselves"
        );
        world.feed_all("ntp1", &monitors, 40).await;
        for _ in 0..3 {
            assert!(matches!(world.review("ntp1").await, Reviewed::Changed(_)));
            world.pass(20 * MINUTE);
        }
        assert_eq!(world.those("ntp1", Status::Active).await, monitors[..7], "the best seven");
        assert_eq!(world.those("ntp1", Status::Testing).await.len(), 5);
        let history = world.history().await;
        assert!(history.iter().all(|row| !row.reason.is_empty() && !row.rule.is_empty()));
        let server = world.monitors.server("ntp1").await.expect("reads").expect("is there");
        assert_eq!((server.counts.active, server.counts.testing), (7, 5));
        assert!(server.review.changed_at_ms.is_some() && server.review.last_at_ms.is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_review_is_in_an_hour_after_a_change_and_in_twenty_minutes_else() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(3).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        let mut due = Vec::new();
        for _ in 0..6 {
            let reviewed = world.review("ntp1").await;
            let server = world.monitors.server("ntp1").await.expect("reads").expect("is there");
            due.push((reviewed == Reviewed::Unchanged, server.review.next_at_ms - world.now()));
            world.pass(MINUTE);
        }
        assert!(due.iter().all(|(same, wait)| *wait == if *same { 20 } else { 60 } * MINUTE));
        assert!(due[0] == (false, HOUR) && due[5] == (true, 20 * MINUTE), "{due:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_data_reaches_a_fixed_point_and_then_nothing_is_written() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(16).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        let mut quiet = 0;
        for _ in 0..20 {
            quiet = if world.review("ntp1").await == Reviewed::Unchanged { quiet + 1 } else { 0 };
        }
        assert!(quiet > 5, "it settles long before twenty reviews: {quiet}");
        let before = world.look("ntp1").await;
        assert_eq!(world.review("ntp1").await, Reviewed::Unchanged);
        let after = world.look("ntp1").await;
        assert_eq!((before.index, before.rows), (after.index, after.rows));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_away_for_longer_than_its_lease_is_fenced_and_changes_nothing() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(8).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        let late = world.claim(10, 30_000).await.remove(0);
        assert!(world.claim(10, 30_000).await.is_empty(), "it is claimed once");
        world.pass(30_001);
        let newer = world.claim(10, 30_000).await.remove(0);
        assert!(newer.token > late.token);
        // The one that was away wakes up before and after the newer one is through.
        assert_eq!(world.monitors.review(&late).await.expect("answers"), Reviewed::Fenced);
        assert_eq!(world.those("ntp1", Status::Candidate).await.len(), 8);
        let other = world.node("two");
        assert!(matches!(other.review(&newer).await.expect("answers"), Reviewed::Changed(_)));
        let (before, rows) = (world.statuses("ntp1").await, world.history().await.len());
        assert_eq!(world.monitors.review(&late).await.expect("answers"), Reviewed::Fenced);
        assert_eq!(world.statuses("ntp1").await, before);
        assert_eq!(world.history().await.len(), rows);
        let server = world.monitors.server("ntp1").await.expect("reads").expect("is there");
        assert_eq!(server.review.next_at_ms, world.now() + HOUR, "the newer one's word stands");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_account_limit_leaves_gradually_and_keeps_its_since() {
    on_each_database(async |db| {
        // One change of a sort a review, so that it takes several.
        let policy = Settings { budget: 1, budget_raised: 1, ..Settings::default() };
        let world = World::with(db, policy);
        world.account("big", json!({ "monitor_per_server_limit": 4 })).await;
        let mut monitors = Vec::new();
        for number in 1..=4 {
            let id = format!("b{number}");
            world.monitor(&id, Some("big"), 100 + number).await;
            monitors.push(id);
        }
        monitors.extend(world.crowd(8).await);
        world.server("ntp1").await;
        for (place, id) in monitors.iter().enumerate() {
            world.assign("ntp1", id, if place < 7 { "active" } else { "testing" }).await;
        }
        world.feed_all("ntp1", &monitors, 40).await;
        assert_eq!(world.review("ntp1").await, Reviewed::Unchanged);

        let lowered = json!({ "id": "big", "flags": { "monitor_per_server_limit": 1 } });
        world.monitors.replace_account(&lowered).await.expect("is lowered");
        let began = world.now();
        let in_service = async || {
            let all = world.statuses("ntp1").await.into_iter();
            all.filter(|(id, status)| id.starts_with('b') && status.in_service()).count()
        };
        let (mut before, mut reviews) = (4, 0);
        while before > 2 {
            assert!(matches!(world.review("ntp1").await, Reviewed::Changed(_)), "{reviews}");
            let look = world.look("ntp1").await;
            for row in &look.rows {
                let place = look.book.place(row.monitor).expect("is on the roster");
                let own = look.book.name(place).starts_with('b') && row.status.in_service();
                if let (true, Some((kind, since))) = (own, row.violation) {
                    assert_eq!((kind, since), (Kind::Limit, began), "{}", look.book.name(place));
                }
            }
            let left = in_service().await;
            assert!(before - left <= 1, "gradually: from {before} to {left}");
            assert!(world.those("ntp1", Status::Active).await.len() >= 5);
            (before, reviews) = (left, reviews + 1);
            world.pass(20 * MINUTE);
            world.feed_all("ntp1", &monitors, 1).await;
            assert!(reviews < 20, "it ends");
        }
        assert!(reviews > 1, "it took several reviews");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_monitors_of_a_disabled_account_are_paused_at_once_and_come_back_later() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(12).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        for _ in 0..3 {
            world.review("ntp1").await;
        }
        let disabled = json!({ "id": "a01", "flags": { "monitor_enabled": false } });
        world.monitors.replace_account(&disabled).await.expect("is disabled");
        let server = world.monitors.server("ntp1").await.expect("reads").expect("is there");
        assert!(server.review.next_at_ms <= world.now(), "its servers are due at once");
        let monitor = world.monitors.monitor("m01").await.expect("reads").expect("is there");
        let book = world.monitors.latest_book().await.expect("reads");
        assert_eq!(book.status_of(&monitor).as_str(), "paused");
        let work = world.monitors.work_of(&monitor, book.status_of(&monitor)).await;
        assert!(work.expect("reads").is_empty(), "its agent measures nothing");
        assert!(matches!(world.review("ntp1").await, Reviewed::Changed(_)));
        assert_eq!(world.statuses("ntp1").await["m01"], Status::Paused);
        let look = world.look("ntp1").await;
        let row = look.rows.iter().find(|row| row.monitor == monitor.number).expect("a row");
        assert_eq!(row.pause_reason.as_deref(), Some("globally-paused"));

        let enabled = json!({ "id": "a01", "flags": { "monitor_enabled": true } });
        world.monitors.replace_account(&enabled).await.expect("is enabled");
        world.review("ntp1").await;
        assert_eq!(world.statuses("ntp1").await["m01"], Status::Paused, "not before the re-check");
        world.pass(8 * HOUR);
        world.feed_all("ntp1", &monitors, 1).await;
        world.review("ntp1").await;
        assert_ne!(world.statuses("ntp1").await["m01"], Status::Paused);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_that_is_silent_leaves_at_the_first_review_after_three_hours() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(14).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        for _ in 0..4 {
            world.review("ntp1").await;
        }
        assert_eq!(world.statuses("ntp1").await["m03"], Status::Active);
        world.pass(2 * HOUR + 50 * MINUTE);
        let others: Vec<String> = monitors.iter().filter(|id| *id != "m03").cloned().collect();
        world.feed_all("ntp1", &others, 1).await;
        world.review("ntp1").await;
        assert_eq!(world.statuses("ntp1").await["m03"], Status::Active, "not yet");
        world.pass(20 * MINUTE);
        world.feed_all("ntp1", &others, 1).await;
        world.review("ntp1").await;
        assert_eq!(world.statuses("ntp1").await["m03"], Status::Testing);
        let history = world.history().await;
        let last = history.iter().rfind(|row| row.monitor == "m03").expect("a change");
        assert_eq!((last.from, last.rule.as_str()), (Status::Active, "2"));
        assert!(last.reason.contains("not heard for too long"), "{}", last.reason);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_applied_as_a_whole_and_only_to_the_state_it_was_made_from() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(6).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        let look = world.look("ntp1").await;
        let plan = |index: i64, changes: serde_json::Value| {
            let value = json!({ "server": "ntp1", "index": index, "changes": changes,
                                "roster_version": look.roster_version });
            PostedPlan::parse(&value, 0).expect("is a plan")
        };
        let up = |id: &str, from: &str, to: &str| {
            json!({ "id": id, "from": from, "to": to,
                                                          "rule": "5", "reason": "by hand" })
        };
        let wrong = plan(
            look.index,
            json!([
                up("m01", "candidate", "testing"),
                up("m01", "candidate", "testing"),
                up("m02", "testing", "active"),
                up("nobody", "candidate", "testing")
            ]),
        );
        let refused = world.monitors.apply_plan(&wrong).await.expect_err("is refused");
        let PlanError::Invalid(problems) = refused else { panic!("{refused}") };
        let fields: Vec<&str> = problems.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(
            fields,
            ["plans[0].changes[1].id", "plans[0].changes[2].from", "plans[0].changes[3].id"]
        );
        assert_eq!(world.those("ntp1", Status::Candidate).await.len(), 6, "nothing was done");

        let good = plan(look.index, json!([up("m01", "candidate", "testing")]));
        let done = world.monitors.apply_plan(&good).await.expect("is applied");
        assert_eq!((done.changes, done.index > look.index), (1, true));
        let old = world.monitors.apply_plan(&good).await.expect_err("is old");
        assert!(matches!(old, PlanError::Old { made, now, .. } if made.0 < now.0), "{old}");
        let row = world.history().await.pop().expect("a change");
        assert_eq!((row.monitor.as_str(), row.reason.as_str()), ("m01", "by hand"));

        // A change of the monitors makes it old too.
        let fresh = world.look("ntp1").await;
        world.account("late", json!({})).await;
        let stale = plan(fresh.index, json!([up("m02", "candidate", "testing")]));
        let old = world.monitors.apply_plan(&stale).await.expect_err("is old");
        assert!(matches!(old, PlanError::Old { made, now, .. } if made.1 < now.1), "{old}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_scored_once_and_what_is_no_use_is_named() {
    on_each_database(async |db| {
        let world = World::new(db);
        world.monitor("m1", None, 1).await;
        world.server("ntp1").await;
        let six = json!({ "id": "six", "ip": "2001:db8::1", "probe": { "kind": "ntp" } });
        world.monitors.create_server(&six).await.expect("a server");
        let one = |server: &str, at: i64, error: Option<&str>| Measurement {
            server: server.to_owned(),
            at,
            rtt_ms: Some(10.0),
            offset_ms: None,
            error: error.map(str::to_owned),
        };
        let now = world.now();
        assert_eq!(world.report("m1", one("ntp1", now, None)).await.accepted, 1);
        assert_eq!(world.report("m1", one("ntp1", now, None)).await.known, 1, "the same again");
        world.report("m1", one("ntp1", now + 1, Some("timeout"))).await;
        let look = world.look("ntp1").await;
        assert!((look.rows[0].score - (0.95 - 5.0)).abs() < 1e-9, "{}", look.rows[0].score);
        assert_eq!(look.assignments[0].measured.count, 2);
        for (server, at, why) in [
            ("nowhere", now, "no such server"),
            ("six", now, "does not measure"),
            ("ntp1", now - 4 * 24 * HOUR, "older than"),
            ("ntp1", now + HOUR, "in the future"),
        ] {
            let scored = world.report("m1", one(server, at, None)).await;
            assert_eq!((scored.accepted, scored.refused.len()), (0, 1));
            assert!(scored.refused[0].reason.contains(why), "{:?}", scored.refused);
        }
        let seen = world.monitors.monitor("m1").await.expect("reads").expect("is there");
        assert_eq!(seen.seen_at_ms, Some(now));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_past_its_time_is_forgotten_in_bounded_rounds_and_the_rest_stays() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(8).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        world.review("ntp1").await;
        assert_eq!(world.monitors.tidy(100).await.expect("tidies"), 0, "nothing is old yet");
        world.pass(3 * 24 * HOUR);
        world.feed_all("ntp1", &monitors, 1).await;
        let mut rounds = 0;
        while world.monitors.tidy(100).await.expect("tidies") >= 100 {
            rounds += 1;
        }
        assert!((2..=4).contains(&rounds), "of 320 samples 100 a round: {rounds}");
        let server = world.monitors.server("ntp1").await.expect("reads").expect("is there");
        let left = world.monitors.samples(server.number, None, None, 1_000).await.expect("reads");
        assert_eq!(left.len(), 8, "the new ones");
        assert!(!world.history().await.is_empty(), "changes are kept for longer");
        world.pass(28 * 24 * HOUR);
        world.monitors.tidy(1_000).await.expect("tidies");
        assert!(world.history().await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_monitor_leaves_its_servers_and_is_gone() {
    on_each_database(async |db| {
        let world = World::new(db);
        let monitors = world.crowd(9).await;
        world.server("ntp1").await;
        world.feed_all("ntp1", &monitors, 40).await;
        for _ in 0..3 {
            world.review("ntp1").await;
        }
        assert_eq!(world.statuses("ntp1").await["m01"], Status::Active);
        world.monitors.delete_monitor("m01").await.expect("is deleted");
        assert!(world.monitors.monitor("m01").await.expect("reads").is_none());
        world.review("ntp1").await;
        assert_eq!(world.statuses("ntp1").await["m01"], Status::Paused);
        world.monitors.tidy(1_000).await.expect("tidies");
        assert!(!world.statuses("ntp1").await.contains_key("m01"));
        assert_eq!(world.those("ntp1", Status::Active).await.len(), 7, "another took its place");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_deleted_meanwhile_is_no_failure() {
    on_each_database(async |db| {
        let world = World::new(db);
        world.server("ntp1").await;
        let claim = world.claim(10, 30_000).await.remove(0);
        world.monitors.delete_server("ntp1").await.expect("is deleted");
        assert_eq!(world.monitors.review(&claim).await.expect("answers"), Reviewed::Gone);
        let released = store::release(&world.db, claim.server.number, claim.token, 0).await;
        assert!(!released.expect("answers"), "there is nothing to give back");
    })
    .await;
}
