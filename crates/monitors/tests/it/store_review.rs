//! What the store promises about claims, plans and their history, on each database.

use super::store_kit::*;
use skep_monitors::store::*;
use skep_monitors::{Monitor, Server};
use skep_policy::monitors::{GlobalStatus, Kind, Status};
use skep_store::Database;

async fn one_each(db: &Database) -> (Monitor, Server) {
    let monitor = add_monitor(db, "m", "192.0.2.1").await;
    (monitor, add_server(db, "s", "198.51.100.1").await)
}

async fn claim_one(db: &Database, now_ms: i64) -> Option<Claim> {
    claim(db, "node", now_ms, 1_000, 1).await.expect("claims").pop()
}

#[tokio::test]
async fn a_due_server_is_claimed_by_one_until_its_lease_is_over() {
    on_each_database(async |db| {
        let (_, s) = one_each(&db).await;
        let first = claim_one(&db, 10).await.expect("is due");
        assert_eq!((first.server.id.as_str(), first.token), ("s", 1));
        assert_eq!(first.server, see_server(&db, "s").await, "a claim is no change");
        assert_eq!(claim_one(&db, 1_009).await, None, "somebody has it");
        let second = claim_one(&db, 1_010).await.expect("the lease is over");
        assert_eq!(second.token, 2);
        assert!(!release(&db, s.number, first.token, 5).await.expect("answers"), "overtaken");
        assert!(release(&db, s.number, second.token, 2_000).await.expect("releases"));
        assert_eq!(claim_one(&db, 1_999).await, None, "not due");
        assert_eq!(claim_one(&db, 2_000).await.expect("is due").token, 3);
    })
    .await;
}

#[tokio::test]
async fn a_new_monitor_makes_servers_due_that_have_nobody_on_trial() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        let claimed = claim_one(&db, 10_000).await.expect("is due");
        assert!(release(&db, s.number, claimed.token, 50_000).await.expect("releases"));
        let new = new_monitor("second", None, "192.0.2.2", "active");
        create_monitor(&db, new, None, LIMITS, 20_000).await.expect("is created");
        assert_eq!(see_server(&db, "s").await.review.next_at_ms, 20_000);
        let trial = plan(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        let trial = Apply { next_review_ms: 60_000, now_ms: 21_000, ..trial };
        let applied = apply(&db, trial).await.expect("answers");
        assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
        let new = new_monitor("third", None, "192.0.2.3", "active");
        create_monitor(&db, new, None, LIMITS, 22_000).await.expect("is created");
        assert_eq!(see_server(&db, "s").await.review.next_at_ms, 60_000, "it has one on trial");
    })
    .await;
}

#[tokio::test]
async fn the_longest_due_are_claimed_first_and_only_as_many_as_asked_for() {
    on_each_database(async |db| {
        for (id, at) in [("late", 30), ("early", 10), ("middle", 20), ("future", 900)] {
            let new = new_server(id, None, "198.51.100.1");
            create_server(&db, new, LIMITS, at).await.expect("is created");
        }
        let claimed = async |limit| {
            let claims = claim(&db, "n", 100, 50, limit).await.expect("claims");
            claims.into_iter().map(|one| one.server.id).collect::<Vec<_>>()
        };
        assert_eq!(claimed(2).await, ["early", "middle"]);
        assert_eq!(claimed(9).await, ["late"]);
        assert!(claimed(9).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_plan_changes_statuses_marks_counts_and_times_at_once() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        let other = add_monitor(&db, "other", "192.0.2.2").await;
        let claimed = claim_one(&db, 10).await.expect("is due");
        let before = see_server(&db, "s").await;
        let mut wanted = plan(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        wanted.fence = Some(claimed.token);
        wanted.marks = vec![
            Mark {
                monitor: m.number,
                violation: Some((Kind::Limit, 77)),
                last_check_ms: None,
                challenge: None,
            },
            Mark {
                monitor: other.number,
                violation: None,
                last_check_ms: Some(88),
                challenge: Some((m.number, 3)),
            },
        ];
        let applied = apply(&db, wanted.clone()).await.expect("applies");
        assert_eq!(applied, Applied::Done { index: before.index + 1 });
        let after = see_server(&db, "s").await;
        assert_eq!(
            (after.index, after.counts.candidate, after.counts.testing),
            (before.index + 1, 1, 1)
        );
        let times = after.review;
        assert_eq!(
            (times.last_at_ms, times.next_at_ms, times.changed_at_ms),
            (Some(100), 10_000, Some(100))
        );
        let rows = assignments_of_server(&db, s.number).await.expect("reads");
        assert_eq!((rows[0].status, rows[0].status_since_ms), (Status::Testing, 100));
        assert_eq!(rows[0].violation, Some((Kind::Limit, 77)));
        assert_eq!((rows[1].last_check_ms, rows[1].challenge), (Some(88), Some((m.number, 3))));
        let seen = see_monitor(&db, "m").await;
        assert_eq!((seen.counts.candidate, seen.counts.testing), (0, 1));
        assert!(seen.index > m.index, "its agent has to know");
        let found = history(&db, HistoryOf::Server(s.number), None, 9).await.expect("reads");
        assert_eq!(found.len(), 1);
        let one = &found[0];
        assert_eq!((one.server.as_str(), one.monitor.as_str(), one.at_ms), ("s", "m", 100));
        assert_eq!((one.from, one.to), (Status::Candidate, Status::Testing));
        assert_eq!((one.rule.as_str(), one.reason.as_str()), ("3", "candidate becomes testing"));
        assert_eq!(claim_one(&db, 9_999).await, None, "not due");
        assert_eq!(claim_one(&db, 10_000).await.expect("it was released").token, 2);

        let again = apply(&db, wanted).await.expect("answers");
        assert_eq!(again, Applied::Fenced, "somebody else has it by now");
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_review_without_changes_leaves_the_index_and_the_time_of_the_last_change() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        shift(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        let mut quiet = plan(&db, "s", &[]).await;
        (quiet.now_ms, quiet.next_review_ms) = (500, 600);
        let (violation, last_check_ms) = (Some((Kind::Diversity, 5)), None);
        quiet.marks = vec![Mark { monitor: m.number, violation, last_check_ms, challenge: None }];
        let index = quiet.index;
        assert_eq!(apply(&db, quiet).await.expect("applies"), Applied::Done { index });
        let after = see_server(&db, "s").await;
        assert_eq!((after.index, after.review.last_at_ms), (index, Some(500)));
        assert_eq!((after.review.next_at_ms, after.review.changed_at_ms), (600, Some(100)));
        let row = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
        assert_eq!(row.violation, violation);
        let mut clear = plan(&db, "s", &[]).await;
        let violation = None;
        clear.marks = vec![Mark { monitor: m.number, violation, last_check_ms, challenge: None }];
        apply(&db, clear).await.expect("applies");
        let row = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
        assert_eq!(row.violation, None, "a mark says all there is to remember");
    })
    .await;
}

#[tokio::test]
async fn a_pause_has_a_reason_until_it_is_over() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        let reason = async || {
            let row = assignment(&db, s.number, m.number).await.expect("reads").expect("a pair");
            row.pause_reason
        };
        shift(&db, "s", &[(&m, Status::Candidate, Status::Paused)]).await;
        assert_eq!(reason().await.as_deref(), Some("same subnet"));
        assert_eq!(see_server(&db, "s").await.counts.paused, 1);
        shift(&db, "s", &[(&m, Status::Paused, Status::Candidate)]).await;
        assert_eq!(reason().await, None);
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_plan_from_an_older_state_is_refused_and_changes_nothing() {
    on_each_database(async |db| {
        let (m, _) = one_each(&db).await;
        let changes = [(&m, Status::Candidate, Status::Testing)];
        let stale = async |wanted: Apply| {
            let before = see_server(&db, "s").await;
            let roster_version = roster_version(&db).await.expect("reads");
            let expected = Applied::Stale { index: before.index, roster_version };
            assert_eq!(apply(&db, wanted).await.expect("answers"), expected);
            assert_eq!(see_server(&db, "s").await, before);
        };
        let old = plan(&db, "s", &changes).await;
        add_monitor(&db, "new", "192.0.2.9").await;
        stale(old).await;
        let old = plan(&db, "s", &changes).await;
        set_status(&db, "new", GlobalStatus::Paused, 5).await;
        stale(old).await;
        let old = plan(&db, "s", &changes).await;
        replace_server(&db, new_server("s", None, "198.51.100.9"), 6).await.expect("moves");
        stale(old).await;
        let old = plan(&db, "s", &changes).await;
        shift(&db, "s", &changes).await;
        stale(old).await;
        let fresh = plan(&db, "s", &changes).await;
        stale(fresh).await; // It is in testing, whatever the plan says.
        let same = plan(&db, "s", &[(&m, Status::Testing, Status::Testing)]).await;
        stale(same).await;
        let up = (&m, Status::Testing, Status::Active);
        stale(plan(&db, "s", &[up, up]).await).await;
        let nobody = Monitor { number: 999, ..m.clone() };
        stale(plan(&db, "s", &[(&nobody, Status::Candidate, Status::Testing)]).await).await;
        let mut marked = plan(&db, "s", &[up]).await;
        let (violation, last_check_ms, challenge) = (None, None, None);
        marked.marks = vec![Mark { monitor: 999, violation, last_check_ms, challenge }];
        stale(marked).await;
        let mut gone = plan(&db, "s", &[]).await;
        gone.server = 999;
        assert_eq!(apply(&db, gone).await.expect("answers"), Applied::Gone);
        assert_eq!(history(&db, HistoryOf::All, None, 9).await.expect("reads").len(), 1);
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn other_servers_and_samples_do_not_make_a_plan_old() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        let wanted = plan(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        add_server(&db, "another", "198.51.100.7").await;
        shift(&db, "another", &[(&m, Status::Candidate, Status::Testing)]).await;
        record(&db, report(&m, vec![sample(&s, 5, 1.0)], 5)).await.expect("records");
        let applied = apply(&db, wanted).await.expect("applies");
        assert!(matches!(applied, Applied::Done { .. }), "{applied:?}");
    })
    .await;
}

#[tokio::test]
async fn a_plan_of_a_person_leaves_the_claim_of_a_node_alone_and_makes_its_plan_old() {
    on_each_database(async |db| {
        let (m, _) = one_each(&db).await;
        let claimed = claim_one(&db, 10).await.expect("is due");
        let mut of_node = plan(&db, "s", &[]).await;
        of_node.fence = Some(claimed.token);
        shift(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        assert_eq!(claim_one(&db, 500).await, None, "the claim stands");
        let applied = apply(&db, of_node).await.expect("answers");
        assert!(matches!(applied, Applied::Stale { .. }), "{applied:?}");
    })
    .await;
}

#[tokio::test]
async fn facts_are_all_that_a_review_needs() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        add_monitor(&db, "silent", "192.0.2.2").await;
        let all = (0..5).map(|at| sample(&s, at * 10, 1.0)).collect();
        record(&db, report(&m, all, 50)).await.expect("records");
        let found = facts(&db, s.number, 20).await.expect("reads").expect("is there");
        assert_eq!(found.server, see_server(&db, "s").await);
        assert_eq!(found.roster_version, roster_version(&db).await.expect("reads"));
        assert_eq!(found.assignments, assignments_of_server(&db, s.number).await.expect("reads"));
        assert_eq!(found.assignments.len(), 2);
        assert_eq!((found.summaries.len(), found.summaries[0].1.count), (1, 3));
        assert_eq!(facts(&db, 999, 0).await.expect("reads"), None);
        let roster = roster(&db).await.expect("reads");
        assert_eq!(roster.version, found.roster_version);
        let ids: Vec<&str> = roster.monitors.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["m", "silent"]);
    })
    .await;
}

#[tokio::test]
async fn history_comes_newest_first_of_all_of_a_server_or_of_a_monitor() {
    on_each_database(async |db| {
        let (m, s) = one_each(&db).await;
        let n = add_monitor(&db, "n", "192.0.2.2").await;
        add_server(&db, "t", "198.51.100.2").await;
        let (up, down) = (Status::Testing, Status::Candidate);
        shift(&db, "s", &[(&m, down, up)]).await;
        shift(&db, "s", &[(&n, down, up)]).await;
        shift(&db, "t", &[(&m, down, up)]).await;
        let seen = async |of, before, limit| {
            let found = history(&db, of, before, limit).await.expect("reads");
            found.iter().map(|one| format!("{}{}", one.server, one.monitor)).collect::<Vec<_>>()
        };
        assert_eq!(seen(HistoryOf::All, None, 9).await, ["tm", "sn", "sm"]);
        assert_eq!(seen(HistoryOf::Server(s.number), None, 1).await, ["sn"]);
        let newest = history(&db, HistoryOf::Server(s.number), None, 1).await.expect("reads")[0].id;
        assert_eq!(seen(HistoryOf::Server(s.number), Some(newest), 9).await, ["sm"]);
        assert_eq!(seen(HistoryOf::Monitor(m.number), None, 9).await, ["tm", "sm"]);
        delete_server(&db, "t").await.expect("is deleted");
        assert_eq!(seen(HistoryOf::Monitor(m.number), None, 9).await, ["tm", "sm"], "it is kept");
        assert_eq!(churn(&db, 0, 60).await.expect("reads"), [(60, 3)], "all were at 100");
        assert_eq!(churn(&db, 101, 60).await.expect("reads"), []);
    })
    .await;
}

#[tokio::test]
async fn the_fleet_is_counted() {
    on_each_database(async |db| {
        let (m, _) = one_each(&db).await;
        add_account(&db, "a", serde_json::json!({})).await;
        for id in ["t", "u"] {
            add_server(&db, id, "198.51.100.2").await;
        }
        set_server_paused(&db, "u", true, 2).await.expect("is paused");
        shift(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        shift(&db, "s", &[(&m, Status::Testing, Status::Active)]).await;
        let new = new_monitor("p", None, "192.0.2.7", "pending");
        create_monitor(&db, new, None, LIMITS, 1).await.expect("is created");
        let found = fleet(&db, 1, 500).await.expect("counts");
        let expected = Fleet {
            accounts: 1,
            monitors: [(GlobalStatus::Pending, 1), (GlobalStatus::Active, 1)].into(),
            servers: 3,
            servers_paused: 1,
            below_target: 1,
            unreviewed: 1,
            due: 1,
            assignments: [2, 0, 1, 0],
        };
        assert_eq!(found, expected);
        assert_eq!(fleet(&db, 2, 10_000).await.expect("counts").below_target, 2);
        assert_eq!(fleet(&db, 2, 10_000).await.expect("counts").due, 2);
    })
    .await;
}
