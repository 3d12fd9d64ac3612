//! The statements of every push, claim and settlement find their rows by an index, with the
//! settings that the store gives to its connections.

use super::*;
use crate::store::postgres::{
    aside, blocked, later, levels, limits, link, names, take, takes, tidy, work, write,
};

/// How a statement finds its rows, given the choice to read tables whole.
pub(super) fn plan(rig: &Rig, statement: &str, kinds: &str, values: &str) -> String {
    let settings = format!("{}; SET enable_seqscan = on", link::SETTINGS);
    plan_with(rig, &settings, statement, kinds, values)
}

fn plan_with(rig: &Rig, settings: &str, statement: &str, kinds: &str, values: &str) -> String {
    rig.database.run(&format!(
        "{settings}; PREPARE one ({kinds}) AS {statement};
         EXPLAIN EXECUTE one ({values})"
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

/// Calls this with every statement of a batch: its name, the kinds of its values, and some.
fn each(look: impl Fn(&str, &str, &str, &str)) {
    let take = "'{1,2}', '{5,5}', '{100,100}'";
    let wanted = ("bigint[], bigint[], text[], uuid[]", "'{1}', '{2}', '{g}', '{}'");
    let runs = (format!("{}, bigint[]", wanted.0), format!("{}, '{{2}}'", wanted.1));
    let statements = [
        ("take", take::TAKE, "bigint[], bigint[], bigint[]", take),
        ("named", take::TAKE_NAMED, "bigint[], bigint[], bigint[]", take),
        ("look", take::LOOK, "bigint[], bigint[], bigint[]", take),
        ("oldest", take::OLDEST, "bigint[]", "'{1,2}'"),
        ("resolve", take::RESOLVE, "text[], text[]", "'{q1}', '{g}'"),
        ("find", names::FIND, "text[], text[], smallint[]", "'{q1}', '{p1}', '{0}'"),
        ("lock", work::LOCK_LANES, wanted.0, wanted.1),
        ("runs", work::RUNS, &runs.0, &runs.1),
        ("lanes", work::LOCK_LANES_OF_PARTITIONS, "bigint[]", "'{1}'"),
        ("partitions", work::PARTITIONS, "bigint[], uuid[]", "'{1}', '{}'"),
        ("locked queues", aside::LOCKED_QUEUES, "bigint[]", "'{1,2}'"),
        ("locked partitions", aside::LOCKED_PARTITIONS, "bigint[]", "'{1,2}'"),
        ("locked lanes", aside::LOCKED_LANES, wanted.0, wanted.1),
        ("locked lane", aside::LOCKED_LANE, "bigint, bigint", "1, 2"),
        ("locked grants", aside::LOCKED_GRANTS, "bigint[]", "'{1,2}'"),
        ("rooms", work::ROOMS, "bigint[]", "'{1}'"),
        (
            "write",
            write::LANES,
            "bigint[], bigint[], bigint[], bigint[], uuid[], bigint[], bigint[], uuid[],
                 bigint[], bigint[], bigint[], text[], text[]",
            "'{1}', '{2}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{0}', '{0}', '{0}', '{}',
                 '{}'",
        ),
        ("take later", takes::LOCK_LATER, "bigint[]", "'{1,2}'"),
        ("take dead", takes::LOCK_DEAD, "bigint[]", "'{1,2}'"),
        ("due", later::DUE, "bigint", "10"),
        ("later", later::LATER, "text, bigint, bigint, bigint", "'q1', 1, 1, 10"),
        ("waiting", later::WAITING, "bigint[], bigint[]", "'{1}', '{1}'"),
        ("clear", later::CLEAR_LATER, "bigint, bigint, bigint", "1, 9, 10"),
        ("left", later::LEFT, "bigint, bigint", "1, 9"),
        ("levels", levels::FIND, "bigint[], text[]", "'{1}', '{p1}'"),
        (
            "missing",
            levels::MISSING,
            "bigint[], text[], smallint[], bigint[]",
            "'{1}', '{p1}', '{0}', '{1}'",
        ),
        (
            "higher",
            take::TAKE_HIGHER,
            "bigint[], text[], smallint[], bigint[], bigint[]",
            "'{1}', '{p1}', '{0}', '{1}', '{10}'",
        ),
        ("whole", limits::LOCK_WHOLE, "bigint[]", "'{1}'"),
        ("of queue", limits::LOCK_QUEUE, "bigint", "1"),
        ("inherit", limits::INHERIT, "bigint, text, bigint", "1, 'g', 1"),
        ("sweep", limits::SWEEP, "bigint[]", "'{1}'"),
        ("sweep keys", limits::SWEEP_KEYS, "bigint[], text[]", "'{1}', '{k1}'"),
        ("in flight", limits::IN_FLIGHT, "bigint[]", "'{1}'"),
        ("keys", limits::KEYS, "bigint[], text[]", "'{1}', '{k1}'"),
        (
            "let go",
            blocked::LET_GO,
            "bigint[], text[], bigint[], bigint[]",
            "'{1}', '{k1}', '{2}', '{5}'",
        ),
        ("still", blocked::STILL, "bigint[], text[]", "'{1}', '{k1}'"),
        ("let go one", blocked::LET_GO_ONE, "bigint, text, bigint", "1, 'k1', 5"),
        ("reset", blocked::RESET, "bigint[], bigint", "'{1}', 10"),
        ("leased", blocked::LEASED, "bigint[]", "'{1}'"),
        (
            "count as",
            blocked::COUNT_AS,
            "bigint[], bigint[], uuid[], text[]",
            "'{1}', '{1}', '{}', '{}'",
        ),
        ("tidied queues", tidy::QUEUES, "bigint, bigint", "0, 10"),
        ("tidied leases", tidy::LEASED, "bigint[], bigint", "'{1}', 5"),
        ("tidied grants", tidy::OLD_GRANTS, "bigint", "10"),
        ("grants of a group", tidy::GROUP_GRANTS, "bigint, bigint", "1, 10"),
        ("waiting of a queue", tidy::PARTITION_LATER, "bigint[], bigint", "'{1}', 10"),
        ("old", tidy::OLD, "bigint, bigint, bigint, bigint, bigint, bigint", "1, 9, 0, 0, 0, 10"),
    ];
    for (name, statement, kinds, values) in statements {
        look(name, statement, kinds, values);
    }
}

#[tokio::test]
async fn no_statement_of_a_batch_reads_a_whole_table() {
    let rig = filled().await;
    each(|name, statement, kinds, values| {
        let plan = plan(&rig, statement, kinds, values);
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    });
}

/// A connection keeps its plans, and the first are made when there is next to nothing. Such tables
/// do not stay small: rows that change all the time leave their old selves behind.
#[tokio::test]
async fn nor_one_that_was_planned_when_the_tables_were_empty() {
    let rig = rig().await;
    each(|name, statement, kinds, values| {
        let plan = plan_with(&rig, link::SETTINGS, statement, kinds, values);
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    });
}
