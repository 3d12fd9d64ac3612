//! What the store promises about accounts, monitors and servers, on each database.

use super::store_kit::*;
use serde_json::json;
use skep_monitors::store::*;
use skep_monitors::{NewAccount, NewServer};
use skep_policy::monitors::{GlobalStatus, Status};
use skep_store::{Database, Heard};
use skep_testkit::PATIENCE;

async fn counts(db: &Database, server: &str) -> [u32; 4] {
    let counts = see_server(db, server).await.counts;
    [counts.candidate, counts.testing, counts.active, counts.paused]
}

#[tokio::test]
async fn an_account_is_created_once_changed_and_deleted_when_it_has_nothing() {
    on_each_database(async |db| {
        let made = add_account(&db, "bees", json!({ "monitor_limit": 3, "colour": "red" })).await;
        assert_eq!((made.number, made.created_at_ms, made.monitors, made.servers), (1, 1, 0, 0));
        assert_eq!(made.flags.monitor_limit, Some(3));
        assert_eq!(made.flags.rest["colour"], "red");
        assert_eq!(account(&db, "bees").await.expect("reads"), Some(made.clone()));
        let again = create_account(&db, new_account("bees", json!({})), 2).await;
        let said = again.expect_err("is there").to_string();
        assert_eq!(said, "account \"bees\" exists already");

        let version = roster_version(&db).await.expect("reads");
        let same = new_account("bees", json!({ "monitor_limit": 3, "colour": "red" }));
        let same = replace_account(&db, same, 5).await.expect("is the same");
        assert_eq!(same, made, "nothing changed");
        assert_eq!(roster_version(&db).await.expect("reads"), version);
        let other = NewAccount { name: Some("Bees".into()), ..new_account("bees", json!({})) };
        let other = replace_account(&db, other, 6).await.expect("is replaced");
        assert_eq!((other.name.as_deref(), other.updated_at_ms), (Some("Bees"), 6));
        assert_eq!((other.created_at_ms, other.flags.monitor_limit), (1, None));
        assert_eq!(account(&db, "bees").await.expect("reads"), Some(other));
        assert_eq!(roster_version(&db).await.expect("reads"), version + 1);
        let missing = replace_account(&db, new_account("wasps", json!({})), 7).await;
        assert!(matches!(missing, Err(ChangeError::Missing { what: "account", .. })));

        let new = new_monitor("m", Some("bees"), "192.0.2.1", "active");
        create_monitor(&db, new, None, LIMITS, 8).await.expect("is created");
        let new = new_server("s", Some("bees"), "198.51.100.1");
        create_server(&db, new, LIMITS, 8).await.expect("is created");
        let used = delete_account(&db, "bees").await.expect_err("is in use").to_string();
        assert_eq!(
            used,
            "account \"bees\" is in use (monitors: 1, servers: 1); delete those first"
        );
        delete_monitor(&db, "m", 9).await.expect("is deleted");
        delete_server(&db, "s").await.expect("is deleted");
        delete_account(&db, "bees").await.expect("is deleted");
        assert_eq!(account(&db, "bees").await.expect("reads"), None);
        let gone = delete_account(&db, "bees").await;
        assert!(matches!(gone, Err(ChangeError::Missing { .. })));
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_pair_comes_about_whichever_of_the_two_comes_first() {
    on_each_database(async |db| {
        add_monitor(&db, "m1", "192.0.2.1").await;
        let s1 = add_server(&db, "s1", "198.51.100.1").await;
        assert_eq!((counts(&db, "s1").await, s1.index), ([1, 0, 0, 0], 1));
        add_monitor(&db, "m2", "192.0.2.2").await;
        assert_eq!(counts(&db, "s1").await, [2, 0, 0, 0]);
        assert_eq!(see_server(&db, "s1").await.index, 2, "the pair is a change of the server");
        let s6 = add_server(&db, "s6", "2001:db8::1").await;
        assert_eq!(counts(&db, "s6").await, [0; 4], "IPv4 does not reach IPv6");
        add_monitor(&db, "m6", "2001:db8:1::6").await;
        assert_eq!(
            (counts(&db, "s1").await, counts(&db, "s6").await),
            ([2, 0, 0, 0], [1, 0, 0, 0])
        );
        let pairs = assignments_of_server(&db, s1.number).await.expect("reads");
        assert_eq!(pairs.len(), 2);
        assert!(pairs.iter().all(|one| one.status == Status::Candidate && one.score == 0.0));
        assert_eq!(pairs[0].status_since_ms, 1);
        let pairs = assignments_of_server(&db, s6.number).await.expect("reads");
        assert_eq!(pairs[0].monitor, see_monitor(&db, "m6").await.number);
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_pending_monitor_gets_its_pairs_with_its_approval_and_keeps_them() {
    on_each_database(async |db| {
        add_server(&db, "s1", "198.51.100.1").await;
        add_server(&db, "s2", "198.51.100.2").await;
        let new = new_monitor("m", None, "192.0.2.1", "pending");
        let made = create_monitor(&db, new, None, LIMITS, 1).await.expect("is created");
        assert_eq!((made.status, made.counts.candidate), (GlobalStatus::Pending, 0));
        let before = see_server(&db, "s1").await.index;
        let version = roster_version(&db).await.expect("reads");
        let approved = set_status(&db, "m", GlobalStatus::Testing, 5).await;
        assert_eq!((approved.counts.candidate, approved.updated_at_ms), (2, 5));
        assert!(approved.index > made.index, "its agent has to know");
        assert_eq!(see_server(&db, "s1").await.index, before + 1);
        assert_eq!(roster_version(&db).await.expect("reads"), version + 1);
        let again = set_status(&db, "m", GlobalStatus::Testing, 6).await;
        assert_eq!(again, approved, "nothing changed");
        for status in [GlobalStatus::Active, GlobalStatus::Paused, GlobalStatus::Pending] {
            set_status(&db, "m", status, 7).await;
            assert_eq!(counts(&db, "s1").await, [1, 0, 0, 0], "{status}");
        }
        assert_eq!(see_server(&db, "s1").await.index, before + 1, "no pair came or went");
        let unknown = set_monitor_status(&db, "x", GlobalStatus::Active, 8).await;
        let said = unknown.expect_err("is not there").to_string();
        assert_eq!(said, "there is no monitor \"x\"");
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn who_moves_to_the_other_family_leaves_its_pairs_and_gets_others() {
    on_each_database(async |db| {
        for (id, ip) in [("s4", "198.51.100.1"), ("s6", "2001:db8::1")] {
            add_server(&db, id, ip).await;
        }
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let six = add_monitor(&db, "six", "2001:db8:1::1").await;
        shift(&db, "s4", &[(&m, Status::Candidate, Status::Testing)]).await;
        let moved = new_monitor("m", None, "2001:db8:2::1", "active");
        let moved = replace_monitor(&db, moved, 9).await.expect("is replaced");
        assert_eq!((moved.counts.candidate, moved.counts.testing), (1, 0));
        assert_eq!((counts(&db, "s4").await, counts(&db, "s6").await), ([0; 4], [2, 0, 0, 0]));
        shift(&db, "s6", &[(&six, Status::Candidate, Status::Testing)]).await;
        replace_server(&db, new_server("s6", None, "198.51.100.6"), 10).await.expect("moves");
        assert_eq!(counts(&db, "s6").await, [0; 4]);
        assert_eq!(see_monitor(&db, "six").await.counts.testing, 0);
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn an_account_admits_as_many_monitors_as_its_flags_say() {
    on_each_database(async |db| {
        add_account(&db, "two", json!({ "monitor_limit": 2 })).await;
        add_account(&db, "off", json!({ "monitor_enabled": false })).await;
        let add = async |id: &str, account: &str| {
            let new = new_monitor(id, Some(account), "192.0.2.1", "pending");
            create_monitor(&db, new, None, LIMITS, 1).await
        };
        add("a", "two").await.expect("is created");
        add("b", "two").await.expect("is created");
        let full = add("c", "two").await.expect_err("is full");
        assert!(matches!(full, ChangeError::AccountFull { limit: 2, has: 2, .. }), "{full}");
        assert_eq!(
            full.to_string(),
            "account \"two\" has 2 monitors and may have 2 (monitor_limit)"
        );
        let off = add("c", "off").await.expect_err("is disabled");
        assert!(matches!(off, ChangeError::AccountDisabled { .. }), "{off}");
        let nobody = add("c", "nobody").await.expect_err("is not there");
        assert!(matches!(nobody, ChangeError::UnknownAccount { .. }), "{nobody}");
        let exists = add("a", "two").await.expect_err("is there");
        assert!(matches!(exists, ChangeError::Exists { what: "monitor", .. }), "{exists}");

        add_monitor(&db, "free", "192.0.2.9").await;
        let into = new_monitor("free", Some("two"), "192.0.2.9", "active");
        let full = replace_monitor(&db, into.clone(), 2).await.expect_err("is full");
        assert!(matches!(full, ChangeError::AccountFull { .. }), "{full}");
        delete_monitor(&db, "a", 3).await.expect("is deleted");
        replace_monitor(&db, into, 4).await.expect("there is room");
        let stays = new_monitor("free", Some("two"), "192.0.2.10", "active");
        replace_monitor(&db, stays, 5).await.expect("it is of that account already");
        assert_eq!(account(&db, "two").await.expect("reads").expect("is there").monitors, 2);
        let few = Limits { monitors_max: 2, servers_max: 0 };
        let new = new_monitor("d", None, "192.0.2.1", "pending");
        let many = create_monitor(&db, new, None, few, 6).await.expect_err("no more");
        assert_eq!(many.to_string(), "there are 2 monitors, and no more are allowed");
        let many = create_server(&db, new_server("s", None, "192.0.2.1"), few, 6).await;
        assert!(matches!(many, Err(ChangeError::TooMany { what: "server", max: 0 })));
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_monitor_reports_with_one_key_until_it_gets_another() {
    on_each_database(async |db| {
        let new = new_monitor("m", None, "192.0.2.1", "active");
        let made = create_monitor(&db, new, Some("k1".into()), LIMITS, 1).await.expect("is made");
        let of = async |key: &str| {
            monitor_of_key(&db, key).await.expect("reads").map(|monitor| monitor.id)
        };
        assert_eq!(of("k1").await.as_deref(), Some("m"));
        let before = set_monitor_key(&db, "m", Some("k2".into()), 2).await.expect("is set");
        assert_eq!(before.as_deref(), Some("k1"));
        assert_eq!((of("k1").await, of("k2").await.as_deref()), (None, Some("m")));
        let was = delete_monitor(&db, "m", 3).await.expect("is deleted");
        assert_eq!((was.number, was.key_id.as_deref()), (made.number, Some("k2")));
        assert_eq!(of("k2").await, None);
        let gone = set_monitor_key(&db, "m", None, 4).await;
        assert!(matches!(gone, Err(ChangeError::Missing { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_deleted_monitor_goes_once_it_works_nowhere() {
    on_each_database(async |db| {
        for number in 1..=5 {
            add_server(&db, &format!("s{number}"), &format!("198.51.100.{number}")).await;
        }
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        shift(&db, "s1", &[(&m, Status::Candidate, Status::Testing)]).await;
        let next = async |id: &str| see_server(&db, id).await.review.next_at_ms;
        assert_eq!(next("s1").await, 10_000);
        delete_monitor(&db, "m", 200).await.expect("is deleted");
        assert_eq!(next("s1").await, 200, "it has to leave, so the server is due");
        assert_eq!(monitor(&db, "m").await.expect("reads"), None);
        assert_eq!(purge(&db, 100).await.expect("purges"), 0, "it still works at s1");
        let leaving = new_monitor("m", None, "192.0.2.1", "active");
        let leaving = create_monitor(&db, leaving, None, LIMITS, 201).await.expect_err("leaves");
        assert!(matches!(leaving, ChangeError::Leaving { .. }), "{leaving}");
        let facts = roster(&db).await.expect("reads");
        assert_eq!(facts.monitors[0].status, GlobalStatus::Deleted, "reviews see it");

        shift(&db, "s1", &[(&m, Status::Testing, Status::Paused)]).await;
        assert_eq!(purge(&db, 2).await.expect("purges"), 2);
        assert_eq!(purge(&db, 2).await.expect("purges"), 2);
        check_counts(&db).await;
        assert_eq!(purge(&db, 10).await.expect("purges"), 2, "the last pair, and itself");
        assert_eq!(purge(&db, 10).await.expect("purges"), 0);
        assert_eq!(roster(&db).await.expect("reads").monitors, []);
        let again = add_monitor(&db, "m", "192.0.2.1").await;
        assert!(again.number > m.number);
        assert_eq!(
            history(&db, HistoryOf::Monitor(m.number), None, 9).await.expect("reads").len(),
            2
        );
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_is_changed_paused_reviewed_and_deleted() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let made = add_server(&db, "s", "198.51.100.1").await;
        assert_eq!(made.probe.target, "198.51.100.1:123");
        assert_eq!((made.review.next_at_ms, made.review.last_at_ms), (1, None), "due at once");
        let again = create_server(&db, new_server("s", None, "192.0.2.1"), LIMITS, 1).await;
        assert!(matches!(again, Err(ChangeError::Exists { what: "server", .. })));
        let agent = see_monitor(&db, "m").await.index;
        let body = json!({ "id": "s", "ip": "198.51.100.1",
            "probe": { "kind": "http", "target": "http://a.example/", "timeout": "2s",
                       "expect_status": 204 } });
        let wanted = NewServer::parse(&body).expect("a server");
        let changed = replace_server(&db, wanted.clone(), 5).await.expect("is replaced");
        assert_eq!((changed.probe.timeout_ms, changed.probe.expect_status), (2_000, Some(204)));
        assert_eq!((changed.index, changed.updated_at_ms), (made.index + 1, 5));
        assert!(see_monitor(&db, "m").await.index > agent, "its agent has to know");
        let same = replace_server(&db, wanted, 6).await.expect("is the same");
        assert_eq!(same, changed);
        let lost =
            NewServer { account: Some("nobody".into()), ..new_server("s", None, "192.0.2.1") };
        let lost = replace_server(&db, lost, 6).await;
        assert!(matches!(lost, Err(ChangeError::UnknownAccount { .. })));

        shift(&db, "s", &[(&m, Status::Candidate, Status::Testing)]).await;
        let paused = set_server_paused(&db, "s", true, 7).await.expect("is paused");
        assert!(paused.paused && paused.review.next_at_ms == 10_000);
        assert!(claim(&db, "n", 20_000, 1_000, 9).await.expect("claims").is_empty());
        let kept = replace_server(&db, new_server("s", None, "198.51.100.1"), 8).await;
        assert!(kept.expect("is replaced").paused, "what is not said stays");
        let resumed = set_server_paused(&db, "s", false, 9).await.expect("goes on");
        assert_eq!((resumed.paused, resumed.review.next_at_ms), (false, 9));
        shift(&db, "s", &[]).await;
        let due = review_now(&db, "s", 300).await.expect("is due");
        assert_eq!((due.review.next_at_ms, due.index), (300, resumed.index));

        delete_server(&db, "s").await.expect("is deleted");
        assert_eq!(server(&db, "s").await.expect("reads"), None);
        assert_eq!(server_by_number(&db, made.number).await.expect("reads"), None);
        assert_eq!(see_monitor(&db, "m").await.counts.testing, 0);
        assert!(matches!(delete_server(&db, "s").await, Err(ChangeError::Missing { .. })));
        assert!(matches!(review_now(&db, "s", 1).await, Err(ChangeError::Missing { .. })));
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn what_an_account_may_do_makes_the_servers_of_its_monitors_due() {
    on_each_database(async |db| {
        add_account(&db, "a", json!({})).await;
        let new = new_monitor("m", Some("a"), "192.0.2.1", "active");
        let m = create_monitor(&db, new, None, LIMITS, 1).await.expect("is created");
        for id in ["s1", "s2"] {
            add_server(&db, id, "198.51.100.1").await;
        }
        shift(&db, "s1", &[(&m, Status::Candidate, Status::Testing)]).await;
        shift(&db, "s2", &[]).await;
        let off = new_account("a", json!({ "monitor_enabled": false }));
        replace_account(&db, off, 500).await.expect("is replaced");
        assert_eq!(see_server(&db, "s1").await.review.next_at_ms, 500);
        assert_eq!(see_server(&db, "s2").await.review.next_at_ms, 10_000, "it works not there");
    })
    .await;
}

#[tokio::test]
async fn lists_come_in_pages_and_are_filtered() {
    on_each_database(async |db| {
        add_account(&db, "acme", json!({})).await;
        let named = NewAccount { name: Some("The Bees".into()), ..new_account("b", json!({})) };
        create_account(&db, named, 1).await.expect("is created");
        for number in 0..7 {
            let account = (number % 2 == 0).then_some("acme");
            let body = json!({ "id": format!("m{number}"), "account": account,
                "ip": format!("192.0.2.{number}"), "status": "active",
                "labels": { "country": if number < 3 { "de" } else { "fr" }, "n": "1" } });
            let new = skep_monitors::NewMonitor::parse(&body).expect("a monitor");
            create_monitor(&db, new, None, LIMITS, 1).await.expect("is created");
            let new = new_server(&format!("S{number}"), account, &format!("198.51.100.{number}"));
            create_server(&db, new, LIMITS, 1).await.expect("is created");
        }
        let page = |after: Option<&str>, search: Option<&str>| Page {
            after: after.map(str::to_owned),
            limit: 3,
            search: search.map(str::to_owned),
        };
        let show = |listed: Listed<skep_monitors::Monitor>| {
            let ids: Vec<String> = listed.rows.into_iter().map(|one| one.id).collect();
            (ids.join(" "), listed.total, listed.next)
        };
        let all = MonitorFilter::default();
        let list = async |page, filter: &MonitorFilter| {
            show(monitors(&db, page, filter.clone()).await.expect("reads"))
        };
        let first = list(page(None, None), &all).await;
        assert_eq!(first, ("m0 m1 m2".into(), 7, Some("m2".into())));
        assert_eq!(list(page(Some("m2"), None), &all).await.0, "m3 m4 m5");
        assert_eq!(list(page(Some("m5"), None), &all).await, ("m6".into(), 7, None));
        let acme = MonitorFilter { account: Some("acme".into()), ..all.clone() };
        let found = list(page(Some("m0"), None), &acme).await;
        assert_eq!(found, ("m2 m4 m6".into(), 4, None));
        let label = |name: &str, value: Option<&str>| MonitorFilter {
            label: Some((name.into(), value.map(str::to_owned))),
            ..all.clone()
        };
        assert_eq!(list(page(None, None), &label("country", Some("de"))).await.1, 3);
        assert_eq!(list(page(None, None), &label("country", None)).await.1, 7);
        assert_eq!(list(page(None, None), &label("de", None)).await.1, 0);
        assert_eq!(list(page(None, Some("2.0.2.5")), &all).await.0, "m5");
        assert_eq!(list(page(None, Some("M5")), &all).await.0, "m5", "capitals do not matter");
        set_status(&db, "m1", GlobalStatus::Paused, 2).await;
        delete_monitor(&db, "m2", 2).await.expect("is deleted");
        assert_eq!(list(page(None, None), &all).await, ("m0 m1 m3".into(), 6, Some("m3".into())));
        let of = |status| MonitorFilter { status: Some(status), ..all.clone() };
        assert_eq!(list(page(None, None), &of(GlobalStatus::Paused)).await.0, "m1");
        assert_eq!(list(page(None, None), &of(GlobalStatus::Deleted)).await.0, "m2");

        let m0 = see_monitor(&db, "m0").await;
        shift(&db, "S3", &[(&m0, Status::Candidate, Status::Testing)]).await;
        shift(&db, "S3", &[(&m0, Status::Testing, Status::Active)]).await;
        set_server_paused(&db, "S5", true, 3).await.expect("is paused");
        let below = ServerFilter { below: Some(1), ..ServerFilter::default() };
        let found = servers(&db, page(None, None), below).await.expect("reads");
        assert_eq!((found.total, found.next.as_deref()), (5, Some("S2")));
        let found = servers(&db, page(None, Some("s6")), ServerFilter::default()).await;
        assert_eq!(found.expect("reads").rows[0].id, "S6");
        let found = accounts(&db, page(None, Some("bee"))).await.expect("reads");
        assert_eq!((found.rows[0].id.as_str(), found.total), ("b", 1));
        let none = accounts(&db, page(None, Some("%\0'"))).await.expect("reads");
        assert!(none.rows.is_empty());
    })
    .await;
}

#[tokio::test]
async fn numbers_and_names_are_found_from_each_other() {
    on_each_database(async |db| {
        let m = add_monitor(&db, "m", "192.0.2.1").await;
        let s = add_server(&db, "s", "198.51.100.1").await;
        let found = server_numbers(&db, vec!["s".into(), "x".into()]).await.expect("reads");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("s".to_owned(), s.number)]);
        let found = monitor_ids(&db, vec![m.number, 99]).await.expect("reads");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(m.number, "m".to_owned())]);
        let pairs = assignments_of_monitor(&db, m.number, None, 10).await.expect("reads");
        assert_eq!((pairs.len(), pairs[0].0.id.as_str()), (1, "s"));
        assert_eq!(pairs[0].1.status, Status::Candidate);
        let rest = assignments_of_monitor(&db, m.number, Some("s".into()), 10).await;
        assert!(rest.expect("reads").is_empty());
    })
    .await;
}

#[tokio::test]
async fn postgres_tells_of_each_change_with_a_higher_number() {
    let server = skep_testkit::Postgres::shared().database();
    let db = postgres(&server).await;
    let Database::Postgres(pool) = &db else { unreachable!("it is PostgreSQL") };
    let mut hints = pool.listen(&[CHANNEL]);
    let mut next = async || {
        let heard = tokio::time::timeout(PATIENCE, hints.next()).await;
        heard.expect("something is heard in time")
    };
    assert_eq!(next().await, Heard::Reconnected);
    let mut last = 0;
    add_account(&db, "a", json!({})).await;
    add_monitor(&db, "m", "192.0.2.1").await;
    add_server(&db, "s", "198.51.100.1").await;
    for _ in 0..3 {
        let Heard::Notice { payload, .. } = next().await else { panic!("a notice") };
        let number: i64 = payload.parse().expect("a number");
        assert!(number > last, "{number} after {last}");
        last = number;
    }
}
