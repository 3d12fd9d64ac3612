//! Nothing that comes in often walks a table.

use super::facts::{of_monitor_sql, scores_sql};
use super::history::history_sql;
use super::review::claim_sql;
use super::samples::{SUMMARIES, samples_sql};
use super::sqlite::Embedded;
use super::tx::Tx;
use super::{HistoryOf, SCHEMA, monitors, tidy};
use rusqlite::Connection;

fn tables() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    for migration in SCHEMA.sqlite {
        db.execute_batch(migration.sql).unwrap();
    }
    db
}

fn plan(db: &Connection, sql: &str) -> String {
    let sql = format!("EXPLAIN QUERY PLAN {}", sql.replace('$', "?"));
    let mut explain = db.prepare(&sql).unwrap();
    let count = explain.parameter_count();
    let values = rusqlite::params_from_iter(std::iter::repeat_n(1, count));
    let lines = explain.query_map(values, |row| row.get::<_, String>(3)).unwrap();
    lines.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
}

#[test]
fn pages_reports_and_reviews_use_indexes() {
    let db = tables();
    let page = |table: &str, rest: &str| {
        format!("SELECT id FROM skep_monitor_{table} WHERE {rest} ORDER BY id LIMIT $1")
    };
    let statements = [
        (page("accounts", "id > $2"), "sqlite_autoindex_skep_monitor_accounts_1 (id>?)"),
        (
            page("monitors", "status <> 'deleted' AND id > $2"),
            "sqlite_autoindex_skep_monitor_monitors_1 (id>?)",
        ),
        (
            page("monitors", "account = $2 AND id > $3"),
            "skep_monitor_monitors_account (account=? AND id>?)",
        ),
        (
            page("monitors", "status = $2 AND id > $3"),
            "skep_monitor_monitors_status (status=? AND id>?)",
        ),
        (page("servers", "id > $2"), "sqlite_autoindex_skep_monitor_servers_1 (id>?)"),
        (
            page("servers", "account = $2 AND id > $3"),
            "skep_monitor_servers_account (account=? AND id>?)",
        ),
        (
            "SELECT count(*) FROM skep_monitor_servers WHERE NOT paused AND actives < $1"
                .to_owned(),
            "skep_monitor_servers_actives (actives<?)",
        ),
        (claim_sql::<Embedded<'_>>(), "skep_monitor_servers_due (next_review_at<?)"),
        (of_monitor_sql(), "PRIMARY KEY (server=? AND monitor=?)"),
        (samples_sql(false), "skep_monitor_samples_at (server=? AND at<?)"),
        (samples_sql(true), "PRIMARY KEY (server=? AND monitor=? AND at<?)"),
        (SUMMARIES.to_owned(), "PRIMARY KEY (server=? AND monitor=? AND at>?)"),
        (history_sql(HistoryOf::Server(1)), "skep_monitor_history_server (server=? AND id<?)"),
        (history_sql(HistoryOf::Monitor(1)), "skep_monitor_history_monitor (monitor=? AND id<?)"),
        (history_sql(HistoryOf::All), "INTEGER PRIMARY KEY (rowid<?)"),
        (monitors::PURGEABLE.to_owned(), "skep_monitor_monitors_status (status=?)"),
        (tidy::OLD_HISTORY.to_owned(), "skep_monitor_history_at (at<?)"),
        (Embedded::REMOVE_OF_SERVER.to_owned(), "skep_monitor_samples_at (server=?)"),
        (
            "SELECT server FROM skep_monitor_assignments WHERE monitor = $1".to_owned(),
            "skep_monitor_assignments_monitor (monitor=?)",
        ),
    ];
    for (sql, index) in statements {
        let plan = plan(&db, &sql);
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(plan.contains(index), "{sql}: {plan}");
    }
    let plan = plan(&db, &scores_sql::<Embedded<'_>>());
    assert!(plan.contains("skep_monitor_assignments_service (server=?)"), "{plan}");
}

#[test]
fn old_samples_are_looked_for_server_by_server() {
    let plan = plan(&tables(), Embedded::REMOVE_OLD);
    assert!(plan.contains("skep_monitor_samples_at (server=? AND at<?)"), "{plan}");
    assert!(!plan.contains("SCAN s"), "{plan}");
}
