//! The statements of every push, claim and settlement find their rows by an index, with the
//! settings that the store gives to its connections.

use super::*;
use crate::store::postgres::{
    aside, blocked, later, levels, limits, link, names, take, takes, tidy, work, write,
};

pub(super) fn plan(rig: &Rig, statement: &str, kinds: &str, values: &str) -> String {
    rig.database.run(&format!(
        "{}; PREPARE one ({kinds}) AS {statement};
         EXPLAIN EXECUTE one ({values})",
        link::SETTINGS
    ))
}

/// Tables large enough that nobody would read them whole by choice.
pub(super) async fn filled() -> Rig {
    let rig = rig().await;
    rig.database.run(
        "INSERT INTO skep_queues (name, namespace, task, options, priority, ages, created_at)
             SELECT 'q' || n, '', '', '{}', 0, FALSE, 1 FROM generate_series(1, 2000) n;
         INSERT INTO skep_queue_partitions (queue, name, tail, last_push, created_at)
             SELECT 1 + n % 2000, 'p' || n, 3, 1, 1 FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_groups (queue, name, frontier, created_at)
             SELECT n, 'g', 0, 1 FROM generate_series(1, 2000) n;
         INSERT INTO skep_queue_lanes
             (partition, grp, cursor, ready_at, lease, lease_until, lease_through, leased_key,
              blocked_key)
             SELECT n, 1 + n % 2000, 0, n, gen_random_uuid(), n, 1,
                    CASE WHEN n % 3 = 0 THEN 'k' || n % 5 END,
                    CASE WHEN n % 3 = 1 THEN 'k' || n % 5 END
             FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_grants (grp, whole, key, parts, expires)
             SELECT n, 0, 'k' || k, '[]', n FROM generate_series(1, 2000) n,
                    generate_series(1, 10) k;
         INSERT INTO skep_queue_grants (grp, whole, key, parts, expires)
             SELECT n, 1, '', '[]', 9223372036854775807 FROM generate_series(1, 2000) n;
         INSERT INTO skep_queue_later (queue, partition, due, print, record)
             SELECT 1 + n % 2000, n, n, n, '' FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_dead
             (queue, partition, grp, record, created_at, failed_at, failures)
             SELECT 1 + n % 2000, n, 'g', '', 1, 1, 1 FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_segments (partition, first, count, at, queue, prints, body)
             SELECT n, f, 1, 1, 1 + n % 2000, '', '' FROM generate_series(1, 50000) n,
                    generate_series(1, 3) f;
         INSERT INTO skep_queue_counts (queue, slot)
             SELECT n, s FROM generate_series(1, 2000) n, generate_series(0, 15) s;
         INSERT INTO skep_queue_group_counts (grp, slot)
             SELECT n, s FROM generate_series(1, 2000) n, generate_series(0, 15) s",
    );
    rig.database.run("ANALYZE");
    rig
}

#[tokio::test]
async fn no_statement_of_a_batch_reads_a_whole_table() {
    let rig = filled().await;
    let take = "'{1,2}', '{5,5}', '{100,100}'";
    let wanted = ("bigint[], bigint[], text[], uuid[]", "'{1}', '{2}', '{g}', '{}'");
    let plans = [
        ("take", plan(&rig, take::TAKE, "bigint[], bigint[], bigint[]", take)),
        ("named", plan(&rig, take::TAKE_NAMED, "bigint[], bigint[], bigint[]", take)),
        ("look", plan(&rig, take::LOOK, "bigint[], bigint[], bigint[]", take)),
        ("oldest", plan(&rig, take::OLDEST, "bigint[]", "'{1,2}'")),
        ("resolve", plan(&rig, take::RESOLVE, "text[], text[]", "'{q1}', '{g}'")),
        ("find", plan(&rig, names::FIND, "text[], text[], smallint[]", "'{q1}', '{p1}', '{0}'")),
        ("lock", plan(&rig, work::LOCK_LANES, wanted.0, wanted.1)),
        ("runs", plan(&rig, work::RUNS, wanted.0, wanted.1)),
        ("lanes", plan(&rig, work::LOCK_LANES_OF_PARTITIONS, "bigint[]", "'{1}'")),
        ("partitions", plan(&rig, work::PARTITIONS, "bigint[], uuid[]", "'{1}', '{}'")),
        ("locked queues", plan(&rig, aside::LOCKED_QUEUES, "bigint[]", "'{1,2}'")),
        ("locked partitions", plan(&rig, aside::LOCKED_PARTITIONS, "bigint[]", "'{1,2}'")),
        ("locked lanes", plan(&rig, aside::LOCKED_LANES, wanted.0, wanted.1)),
        ("locked lane", plan(&rig, aside::LOCKED_LANE, "bigint, bigint", "1, 2")),
        ("locked grants", plan(&rig, aside::LOCKED_GRANTS, "bigint[]", "'{1,2}'")),
        ("rooms", plan(&rig, work::ROOMS, "bigint[]", "'{1}'")),
        (
            "write",
            plan(
                &rig,
                write::LANES,
                "bigint[], bigint[], bigint[], bigint[], uuid[], bigint[], bigint[], uuid[],
                 bigint[], bigint[], bigint[], text[], text[]",
                "'{1}', '{2}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{0}', '{0}', '{0}', '{}',
                 '{}'",
            ),
        ),
        ("take later", plan(&rig, takes::LOCK_LATER, "bigint[]", "'{1,2}'")),
        ("take dead", plan(&rig, takes::LOCK_DEAD, "bigint[]", "'{1,2}'")),
        ("due", plan(&rig, later::DUE, "bigint", "10")),
        ("later", plan(&rig, later::LATER, "text, bigint, bigint, bigint", "'q1', 1, 1, 10")),
        ("waiting", plan(&rig, later::WAITING, "bigint[], bigint[]", "'{1}', '{1}'")),
        ("clear", plan(&rig, later::CLEAR_LATER, "bigint, bigint, bigint", "1, 9, 10")),
        ("left", plan(&rig, later::LEFT, "bigint, bigint", "1, 9")),
        ("levels", plan(&rig, levels::FIND, "bigint[], text[]", "'{1}', '{p1}'")),
        (
            "missing",
            plan(
                &rig,
                levels::MISSING,
                "bigint[], text[], smallint[], bigint[]",
                "'{1}', '{p1}', '{0}', '{1}'",
            ),
        ),
        (
            "higher",
            plan(
                &rig,
                take::TAKE_HIGHER,
                "bigint[], text[], smallint[], bigint[], bigint[]",
                "'{1}', '{p1}', '{0}', '{1}', '{10}'",
            ),
        ),
        ("whole", plan(&rig, limits::LOCK_WHOLE, "bigint[]", "'{1}'")),
        ("of queue", plan(&rig, limits::LOCK_QUEUE, "bigint", "1")),
        ("inherit", plan(&rig, limits::INHERIT, "bigint, text, bigint", "1, 'g', 1")),
        ("sweep", plan(&rig, limits::SWEEP, "bigint[]", "'{1}'")),
        ("sweep keys", plan(&rig, limits::SWEEP_KEYS, "bigint[], text[]", "'{1}', '{k1}'")),
        ("in flight", plan(&rig, limits::IN_FLIGHT, "bigint[]", "'{1}'")),
        ("keys", plan(&rig, limits::KEYS, "bigint[], text[]", "'{1}', '{k1}'")),
        (
            "let go",
            plan(
                &rig,
                blocked::LET_GO,
                "bigint[], text[], bigint[], bigint[]",
                "'{1}', '{k1}', '{2}', '{5}'",
            ),
        ),
        ("still", plan(&rig, blocked::STILL, "bigint[], text[]", "'{1}', '{k1}'")),
        ("let go one", plan(&rig, blocked::LET_GO_ONE, "bigint, text, bigint", "1, 'k1', 5")),
        ("reset", plan(&rig, blocked::RESET, "bigint[], bigint", "'{1}', 10")),
        ("leased", plan(&rig, blocked::LEASED, "bigint[]", "'{1}'")),
        (
            "count as",
            plan(
                &rig,
                blocked::COUNT_AS,
                "bigint[], bigint[], uuid[], text[]",
                "'{1}', '{1}', '{}', '{}'",
            ),
        ),
        ("tidied queues", plan(&rig, tidy::QUEUES, "bigint, bigint", "0, 10")),
        ("tidied leases", plan(&rig, tidy::LEASED, "bigint[], bigint", "'{1}', 5")),
        ("tidied grants", plan(&rig, tidy::OLD_GRANTS, "bigint", "10")),
        ("grants of a group", plan(&rig, tidy::GROUP_GRANTS, "bigint, bigint", "1, 10")),
        ("waiting of a queue", plan(&rig, tidy::PARTITION_LATER, "bigint[], bigint", "'{1}', 10")),
        (
            "old",
            plan(
                &rig,
                tidy::OLD,
                "bigint, bigint, bigint, bigint, bigint, bigint",
                "1, 9, 0, 0, 0, 10",
            ),
        ),
    ];
    for (name, plan) in plans {
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    }
}
