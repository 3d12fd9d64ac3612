//! Nothing that comes in often walks a table.

use super::kit::Kit;
use crate::store::sqlite::{later, limits, push, ready, segments, takes, tidy};
use rusqlite::Connection;
use skep_store::StoreError;

#[tokio::test]
async fn statements_of_pushes_claims_and_settlements_use_indexes() {
    let kit = Kit::new().await;
    // Those without a name of their own stand here with their conditions.
    let statements = [
        (ready::READY, "skep_queue_lanes_ready"),
        (ready::NEXT_READY, "skep_queue_lanes_ready"),
        (segments::RUNS, "COVERING INDEX skep_queue_segments_runs"),
        (segments::RUN_BEFORE, "COVERING INDEX skep_queue_segments_runs"),
        (segments::BODY, "skep_queue_segments_runs"),
        (segments::PRINTS, "skep_queue_segments_runs"),
        (segments::HUSK_PRINTS, "PRIMARY KEY"),
        (push::HUSK, "PRIMARY KEY"),
        (
            "SELECT id FROM skep_queue_partitions WHERE queue = ?1 AND id > ?2 ORDER BY id",
            "skep_queue_partitions_queue",
        ),
        (
            "SELECT id FROM skep_queue_partitions WHERE queue = ?1 AND name = ?2 AND level = ?3",
            "skep_queue_partitions_name (queue=? AND name=? AND level=?)",
        ),
        (
            "SELECT id FROM skep_queue_groups WHERE queue = ?1 AND name = ?2 AND deleted = 0",
            "skep_queue_groups_name",
        ),
        ("SELECT partition, grp FROM skep_queue_lanes WHERE lease = ?1", "skep_queue_lanes_lease"),
        (
            "SELECT cursor FROM skep_queue_lanes WHERE partition = ?1 AND ready_at IS NULL",
            "PRIMARY KEY",
        ),
        ("SELECT cursor FROM skep_queue_lanes WHERE partition = ?1 AND grp = ?2", "PRIMARY KEY"),
        ("SELECT id FROM skep_queues WHERE name = ?1 AND deleted = 0", "skep_queues_name"),
        (later::WITH_PRINT, "skep_queue_later_print (partition=? AND print=?)"),
        (later::DUE, "skep_queue_later_due"),
        (later::NEXT_DUE, "COVERING INDEX skep_queue_later_due"),
        (later::LATER, "skep_queue_later_queue (queue=? AND due>?)"),
        (later::LAST, "skep_queue_later"),
        (later::CLEAR, "COVERING INDEX skep_queue_later_queue (queue=?)"),
        (takes::LATER_QUEUE, "INTEGER PRIMARY KEY"),
        (takes::DEAD_QUEUE, "INTEGER PRIMARY KEY"),
        (takes::DELETE_LATER, "INTEGER PRIMARY KEY"),
        (takes::DELETE_DEAD, "INTEGER PRIMARY KEY"),
        (limits::FLIGHT, "skep_queue_lanes_leased_key"),
        (limits::GRANTS, "PRIMARY KEY (grp=? AND whole=? AND key=?)"),
        (limits::BLOCKED, "COVERING INDEX skep_queue_lanes_blocked_key"),
        (limits::UNBLOCK_ALL, "skep_queue_lanes_blocked_key"),
        (limits::LEASED, "skep_queue_lanes_ready"),
        (limits::REKEY, "PRIMARY KEY (partition=? AND grp=?)"),
        (limits::MOVE_GRANTS, "PRIMARY KEY (grp=?)"),
        (tidy::OLD_GRANTS, "skep_queue_grants_expires"),
        (tidy::LATER_OF_QUEUE, "skep_queue_later_queue (queue=?)"),
    ];
    let plans = kit.sqlite().read(move |db| {
        let plans = statements.map(|(sql, index)| Ok((sql, index, plan(db, sql)?)));
        plans.into_iter().collect::<Result<Vec<_>, StoreError>>()
    });
    for (sql, index, plan) in plans.await.unwrap() {
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(plan.contains(index), "{sql}: {plan}");
    }
}

pub(super) fn plan(db: &Connection, sql: &str) -> Result<String, StoreError> {
    let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let count = explain.parameter_count();
    let values = rusqlite::params_from_iter(std::iter::repeat_n(1, count));
    let lines = explain.query_map(values, |row| row.get::<_, String>(3))?;
    Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
}
