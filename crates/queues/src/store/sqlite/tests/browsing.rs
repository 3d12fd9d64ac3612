//! Looking and taking out, as the database does it.

use super::kit::*;
use super::plans::plan;
use crate::options::QueuesOptions;
use crate::store::QueueStore;
use crate::store::sqlite::{Done, Pending, Wish, run_batch};
use crate::store::sqlite::{browse, groups, partitions, remove, segments};
use skep_store::StoreError;
use tokio::sync::oneshot;

#[tokio::test]
async fn statements_that_look_at_messages_and_groups_walk_no_table() {
    let kit = Kit::new().await;
    let statements = [
        (browse::OWN_PLACES, "INTEGER PRIMARY KEY (rowid<?)"),
        (browse::PLACE_BEFORE, "INTEGER PRIMARY KEY (rowid<?)"),
        (browse::CUT_OFF, "skep_queue_segments_places"),
        (browse::DOWN, "COVERING INDEX skep_queue_segments_runs"),
        (segments::PIECES, "skep_queue_segments_runs"),
        (browse::GROUPS, "skep_queue_groups_name"),
        (remove::ROW, "skep_queue_segments_runs"),
        (remove::DELETED, "PRIMARY KEY"),
        (groups::READY, "skep_queue_lanes_ready"),
        (groups::LATER, "skep_queue_lanes_ready"),
        (groups::LONGEST, "skep_queue_lanes_ready"),
        (groups::START, "PRIMARY KEY"),
        (partitions::NAMESPACES, "COVERING INDEX skep_queues_namespace"),
        (partitions::TASKS, "COVERING INDEX skep_queues_task"),
        (
            "SELECT id FROM skep_queue_partitions
             WHERE queue = ?1 AND name >= ?2 AND name > ?3 AND name < ?4 ORDER BY name LIMIT ?5",
            "skep_queue_partitions_name",
        ),
        (
            "SELECT id, start FROM skep_queue_groups WHERE name = ?1 AND deleted = 0 AND id > ?2
             ORDER BY id LIMIT ?3",
            "skep_queue_groups_by_name",
        ),
    ];
    let plans = kit.sqlite().read(move |db| {
        let plans = statements.map(|(sql, index)| Ok((sql, index, plan(db, sql)?)));
        plans.into_iter().collect::<Result<Vec<_>, StoreError>>()
    });
    for (sql, index, plan) in plans.await.unwrap() {
        // A list of all kinds has to come by all queues, but by no more than their names.
        let whole = plan.contains("SCAN skep_") && !index.starts_with("COVERING INDEX skep_queues");
        assert!(!whole && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(plan.contains(index), "{sql}: {plan}");
    }
}

#[tokio::test]
async fn what_is_left_of_a_segment_that_was_just_claimed_is_handed_out() {
    // Nothing is at hand, so that the bytes are read after the claim.
    let options = QueuesOptions { cache_bytes: 0, ..QueuesOptions::default() };
    let kit = Kit::with(&options).await;
    let id = kit.push("q", "p", &["1", "2", "3", "4", "5"]).await[0].partition;
    kit.push("q", "p", &["6"]).await;
    let wish = Wish::Claim(want("q", "g", 7, 100));
    let claim = kit.queues.write(move |work| run_batch(work, &[wish])).await;
    let done = claim.unwrap().0.remove(0).unwrap();
    let Done::Claim(picked) = done else { panic!("a claim") };
    let store = QueueStore::Sqlite(kit.queues.clone());
    for name in ["1", "3"] {
        store.delete_message(id, name).await.unwrap().unwrap();
    }
    let (answer, got) = oneshot::channel();
    let lease = want("q", "g", 7, 100).lease;
    let pending = Pending { picked, lease, auto_ack: false, answer };
    assert!(kit.queues.answer_claims(vec![pending]).await.is_empty(), "nothing is given back");
    assert_eq!(ids(&got.await.unwrap().unwrap()), ["2", "4", "5", "6"]);
}
