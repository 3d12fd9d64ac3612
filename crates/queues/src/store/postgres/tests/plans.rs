//! The statements of every push, claim and settlement find their rows by an index, with the
//! settings that the store gives to its connections.

use super::*;
use crate::store::postgres::{link, names, take, work, write};

fn plan(rig: &Rig, statement: &str, kinds: &str, values: &str) -> String {
    rig.database.run(&format!(
        "{}; PREPARE one ({kinds}) AS {statement};
         EXPLAIN EXECUTE one ({values})",
        link::SETTINGS
    ))
}

#[tokio::test]
async fn no_statement_of_a_batch_reads_a_whole_table() {
    let rig = rig().await;
    rig.database.run(
        "INSERT INTO skep_queues (name, namespace, task, options, priority, ages, created_at)
             SELECT 'q' || n, '', '', '{}', 0, FALSE, 1 FROM generate_series(1, 2000) n;
         INSERT INTO skep_queue_partitions (queue, name, tail, last_push, created_at)
             SELECT 1 + n % 2000, 'p' || n, 3, 1, 1 FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_groups (queue, name, frontier, created_at)
             SELECT n, 'g', 0, 1 FROM generate_series(1, 2000) n;
         INSERT INTO skep_queue_lanes (partition, grp, cursor, ready_at, lease)
             SELECT n, 1 + n % 2000, 0, n, gen_random_uuid() FROM generate_series(1, 50000) n;
         INSERT INTO skep_queue_segments (partition, first, count, at, queue, prints, body)
             SELECT n, f, 1, 1, 1 + n % 2000, '', '' FROM generate_series(1, 50000) n,
                    generate_series(1, 3) f;
         INSERT INTO skep_queue_counts (queue, slot)
             SELECT n, s FROM generate_series(1, 2000) n, generate_series(0, 15) s;
         INSERT INTO skep_queue_group_counts (grp, slot)
             SELECT n, s FROM generate_series(1, 2000) n, generate_series(0, 15) s",
    );
    rig.database.run("ANALYZE");
    let take = "'{1,2}', '{5,5}', '{100,100}'";
    let wanted = ("bigint[], bigint[], text[], uuid[]", "'{1}', '{2}', '{g}', '{}'");
    let plans = [
        ("take", plan(&rig, take::TAKE, "bigint[], bigint[], bigint[]", take)),
        ("named", plan(&rig, take::TAKE_NAMED, "bigint[], bigint[], bigint[]", take)),
        ("look", plan(&rig, take::LOOK, "bigint[], bigint[], bigint[]", take)),
        ("oldest", plan(&rig, take::OLDEST, "bigint[]", "'{1,2}'")),
        ("resolve", plan(&rig, take::RESOLVE, "text[], text[]", "'{q1}', '{g}'")),
        ("find", plan(&rig, names::FIND, "text[], text[]", "'{q1}', '{p1}'")),
        ("lock", plan(&rig, work::LOCK_LANES, wanted.0, wanted.1)),
        ("runs", plan(&rig, work::RUNS, wanted.0, wanted.1)),
        ("lanes", plan(&rig, work::LOCK_LANES_OF_PARTITIONS, "bigint[]", "'{1}'")),
        ("partitions", plan(&rig, work::PARTITIONS, "bigint[], uuid[]", "'{1}', '{}'")),
        ("rooms", plan(&rig, work::ROOMS, "bigint[]", "'{1}'")),
        (
            "write",
            plan(
                &rig,
                write::LANES,
                "bigint[], bigint[], bigint[], bigint[], uuid[], bigint[], bigint[], uuid[],
                 bigint[], bigint[], bigint[]",
                "'{1}', '{2}', '{1}', '{1}', '{}', '{}', '{}', '{}', '{0}', '{0}', '{0}'",
            ),
        ),
    ];
    for (name, plan) in plans {
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    }
}
