//! What the store promises about imports, on each database.

use super::store_kit::*;
use skep_monitors::Entity;
use skep_monitors::model;
use skep_monitors::store::{self, *};
use skep_policy::monitors::{Kind, Status};

const LINES: &str = r#"
{"assignment": {"server": "1", "monitor": "m", "status": "active", "since": 40, "score": 19.5}}
{"assignment":{"server":"1","monitor":"n","status":"new","violation":"limit","violation_since":7}}
{"server": {"id": 1, "account": "acme", "ip": "198.51.100.1", "probe": {"kind": "ntp"}}}
{"monitor": {"id": "m", "account": "acme", "ip": "192.0.2.1", "status": "active"}}
{"monitor": {"id": "n", "ip": "192.0.2.2", "status": "pending"}}
{"account": {"id": "acme", "flags": {"monitors_per_server_limit": 1}}}
"#;

fn read(lines: &str) -> Vec<Entity> {
    model::import(lines.as_bytes())
        .map(|(line, read)| read.unwrap_or_else(|problems| panic!("line {line}: {problems:?}")))
        .collect()
}

#[tokio::test]
async fn an_import_makes_all_of_it_in_whatever_order_it_is_written() {
    on_each_database(async |db| {
        let dry = import(&db, read(LINES), LIMITS, 50, true).await.expect("would import");
        assert!(roster(&db).await.expect("reads").monitors.is_empty(), "a dry run keeps nothing");
        assert_eq!(roster_version(&db).await.expect("reads"), 0);
        let done = import(&db, read(LINES), LIMITS, 50, false).await.expect("imports");
        assert_eq!(dry, done);
        // The pair of m came about by itself.
        let created = Created { accounts: 1, monitors: 2, servers: 1, assignments: 1 };
        assert_eq!(done, Imported { created, changed: 1, unchanged: 0 });
        let server = see_server(&db, "1").await;
        assert_eq!((server.counts.active, server.counts.candidate), (1, 1));
        let rows = assignments_of_server(&db, server.number).await.expect("reads");
        let [first, second] = &rows[..] else { panic!("{rows:?}") };
        let told = (first.status, first.status_since_ms, first.score);
        assert_eq!(told, (Status::Active, 40, 19.5));
        assert_eq!((second.status, second.violation), (Status::Candidate, Some((Kind::Limit, 7))));
        let acme = account(&db, "acme").await.expect("reads").expect("is there");
        assert_eq!((acme.monitors, acme.servers), (1, 1));
        assert_eq!(acme.flags.monitor_per_server_limit, Some(1));
        check_counts(&db).await;

        let version = roster_version(&db).await.expect("reads");
        let again = import(&db, read(LINES), LIMITS, 60, false).await.expect("imports");
        assert_eq!(again, Imported { unchanged: 6, ..Imported::default() });
        assert_eq!(roster_version(&db).await.expect("reads"), version);
        assert_eq!(see_server(&db, "1").await, server, "nothing moved");
        let paused = r#"{"assignment":{"server":"1","monitor":"m","status":"paused",
            "pause_reason":"by hand"}}"#;
        let paused = &paused.replace('\n', "");
        let done = import(&db, read(paused), LIMITS, 70, false).await.expect("imports");
        assert_eq!(done, Imported { changed: 1, ..Imported::default() });
        let rows = assignments_of_server(&db, server.number).await.expect("reads");
        assert_eq!((rows[0].status_since_ms, rows[0].score), (70, 19.5), "what is not said stays");
        assert_eq!(rows[0].pause_reason.as_deref(), Some("by hand"));
        check_counts(&db).await;
    })
    .await;
}

#[tokio::test]
async fn an_import_that_fails_anywhere_changes_nothing_and_names_the_place() {
    on_each_database(async |db| {
        add_account(&db, "one", serde_json::json!({ "monitor_limit": 1 })).await;
        let before = roster(&db).await.expect("reads");
        let refused = async |lines: &str| {
            let error = store::import(&db, read(lines), LIMITS, 9, false).await;
            let ImportError::At { position, cause } = error.expect_err("is refused") else {
                panic!("it is no fault of the store")
            };
            (position, cause)
        };
        let (position, cause) = refused(
            r#"{"account": {"id": "fine"}}
               {"monitor": {"id": "a", "account": "one", "ip": "192.0.2.1"}}
               {"monitor": {"id": "b", "account": "one", "ip": "192.0.2.1"}}"#,
        )
        .await;
        assert_eq!(position, 2);
        assert!(matches!(cause, ChangeError::AccountFull { limit: 1, has: 1, .. }), "{cause}");
        let (position, cause) = refused(
            r#"{"assignment": {"server": "s", "monitor": "m", "status": "active"}}
               {"monitor": {"id": "m", "ip": "2001:db8::1"}}
               {"server": {"id": "s", "ip": "198.51.100.1", "probe": {"kind": "ntp"}}}"#,
        )
        .await;
        assert_eq!(position, 0);
        assert!(matches!(cause, ChangeError::OtherFamily { .. }), "{cause}");
        let (_, cause) =
            refused(r#"{"assignment": {"server": "nowhere", "monitor": "m", "status": "active"}}"#)
                .await;
        assert!(matches!(cause, ChangeError::Missing { what: "server", .. }), "{cause}");
        let (_, cause) =
            refused(r#"{"monitor": {"id": "m", "account": "x", "ip": "192.0.2.1"}}"#).await;
        assert!(matches!(cause, ChangeError::UnknownAccount { .. }), "{cause}");
        assert_eq!(roster(&db).await.expect("reads"), before);
        assert_eq!(server(&db, "s").await.expect("reads"), None);
        check_counts(&db).await;
    })
    .await;
}
