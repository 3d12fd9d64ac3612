//! What is kept otherwise here than in the embedded store, for those who move from there.
//!
//! Sums are in rows of their own. What is left of segments is beside them and not in a table of its
//! own. Numbers come from the tables; there they came from one counter. Of a group there is counted
//! what its cursors have passed, and nothing for partitions that it has not been to.

use super::names::ages;
use crate::options::QueueOptions;
use skep_store::copy::{CopyRules, Made, Value};

const LAST_NUMBER: &str = "SELECT last_id FROM skep_queue_clock";

/// How the tables of queues are filled from those of the embedded store.
pub const COPY: CopyRules = CopyRules {
    made: &[
        Made {
            table: "skep_queues",
            columns: &[
                "options",
                "priority",
                "ages",
                "id",
                "name",
                "namespace",
                "task",
                "created_at",
                "deleted",
                "cleared_at",
                "levels",
            ],
            select: "SELECT options, 0, 0, id, name, namespace, task, created_at, deleted,
                            cleared_at, levels
                     FROM skep_queues",
            derive: Some(with_options),
        },
        Made {
            table: "skep_queue_counts",
            columns: &["queue", "slot", "pushed", "removed", "partitions", "dead", "later"],
            select: "SELECT id, 0, pushed, removed, partitions, dead, later FROM skep_queues",
            derive: None,
        },
        Made {
            table: "skep_queue_segments",
            columns: &["partition", "first", "count", "at", "queue", "prints", "body", "deleted"],
            select: "SELECT s.partition, s.first, s.count, s.at, COALESCE(p.queue, 0), s.prints,
                            s.body, 0
                     FROM skep_queue_segments s
                     LEFT JOIN skep_queue_partitions p ON p.id = s.partition
                     UNION ALL
                     SELECT h.partition, h.first, h.count, h.at, COALESCE(p.queue, 0), h.prints,
                            NULL, h.deleted
                     FROM skep_queue_husks h
                     LEFT JOIN skep_queue_partitions p ON p.id = h.partition",
            derive: None,
        },
        Made {
            table: "skep_queue_groups",
            columns: &["id", "queue", "name", "start", "frontier", "created_at", "deleted"],
            select: "SELECT id, queue, name, start, frontier, created_at, deleted
                     FROM skep_queue_groups",
            derive: None,
        },
        Made {
            table: "skep_queue_group_counts",
            columns: &["grp", "slot", "settled"],
            select: "SELECT grp, 0, sum(cursor) FROM skep_queue_lanes GROUP BY grp",
            derive: None,
        },
    ],
    folded: &["skep_queue_clock", "skep_queue_husks"],
    numbers: &[
        ("skep_queues", LAST_NUMBER),
        ("skep_queue_partitions", LAST_NUMBER),
        ("skep_queue_groups", LAST_NUMBER),
        ("skep_queue_schedules", LAST_NUMBER),
        ("skep_queue_redrives", LAST_NUMBER),
    ],
    ..CopyRules::NONE
};

/// What is in columns of its own here is in the options there.
fn with_options(row: &mut [Value]) {
    let [Value::Text(options), priority, aging, ..] = row else { return };
    let options: QueueOptions = serde_json::from_str(options).unwrap_or_default();
    *priority = Value::Integer(i64::from(options.priority));
    *aging = Value::Integer(i64::from(ages(&options)));
}
