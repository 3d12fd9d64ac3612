//! Rows that transactions take, rows that a newer version wrote, and the plans of statements.

use super::*;
use crate::schedule::When;
use crate::store::postgres::{link, redrives, schedules, stats, switches, traces};
use skep_policy::Time;

fn second(second: u64) -> Time {
    Time::from_millis(second * 1_000)
}

async fn put(store: &QueueStore, name: &str) -> Schedule {
    let spec = ScheduleSpec {
        queue: "q".into(),
        partition: "p".into(),
        priority: 0,
        payload: "1".into(),
        when: When::every(60, Time::ZERO).expect("fits"),
        zone: "UTC".into(),
        catch_up: Default::default(),
        paused: false,
    };
    let next_at = Some(second(60));
    let wish = PutSchedule { name: name.into(), spec, next_at, expected: None };
    match store.put_schedule(wish).await.expect("writes") {
        ScheduleWritten::Done(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_newer_version_wrote_does_not_stop_the_others() {
    let rig = rig().await;
    push(&rig.store, messages("q", "p", &["1"])).await;
    let store = QueueStore::Postgres(rig.store.clone());
    let mut made = Vec::new();
    for name in ["a", "b"] {
        put(&store, name).await;
        let filter = RedriveFilter::default();
        let (target, rate, by) = (None, None, name.into());
        let wish = MakeRedrive { queue: "q".into(), filter, target, rate, by };
        made.extend(store.make_redrive(wish).await.expect("writes"));
    }
    rig.database.run(
        "UPDATE skep_queue_schedules SET spec = '{}' WHERE name = 'a';
         UPDATE skep_queue_redrives SET filter = '{\"moon\":1}' WHERE created_by = 'a'",
    );
    let now = store.now().await.expect("reads");
    assert_eq!(&*store.due_schedules(now, 9).await.expect("reads")[0].name, "b");
    assert_eq!(store.schedules(None, 9).await.expect("reads").len(), 1);
    let error = store.schedule("a").await.unwrap_err().to_string();
    assert!(error.contains("the schedule a") && error.contains("queue"), "{error}");
    assert_eq!(&*store.due_redrives(now, 9).await.expect("reads")[0].created_by, "b");
    assert_eq!(store.redrives(None, 9).await.expect("reads"), made[1..]);
    let error = store.redrive(made[0].id).await.unwrap_err();
    assert!(error.to_string().contains("moon"), "{error}");
    assert_eq!(put(&store, "a").await.version, 2, "replacing it mends it");
}

/// Plans with these settings, however good or bad the planner's idea of the values is.
fn plan(rig: &Rig, settings: &str, statement: &str, kinds: &str, values: &str) -> String {
    rig.database.run(&format!(
        "{settings}; PREPARE one ({kinds}) AS {statement}; EXPLAIN EXECUTE one ({values})"
    ))
}

const FILL: &str = "
    INSERT INTO skep_queues (name, namespace, task, options, priority, ages, created_at)
        SELECT 'q' || n, '', '', '{}', 0, FALSE, 1 FROM generate_series(1, 2000) n;
    INSERT INTO skep_queue_partitions (queue, name, tail, last_push, created_at)
        SELECT 1 + n % 2000, 'p' || n, 3, 1, 1 FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_counts (queue, slot)
        SELECT n, s FROM generate_series(1, 2000) n, generate_series(0, 15) s;
    INSERT INTO skep_queue_dead
        (queue, partition, grp, record, created_at, failed_at, failures)
        SELECT 1 + n % 20, n, 'g', 'xxxxxxxxxxxxxxxx', n, n, 1 FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_later (queue, partition, due, print, record)
        SELECT 1, n, n, n, '' FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_schedules
        (name, spec, paused, next_at, created_at, updated_at)
        SELECT 's' || n, '{}', FALSE, n, 1, 1 FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_redrives
        (queue, queue_name, filter, state, next_at, upto, created_at, created_by, ended_at)
        SELECT 1, 'q', '{}', CASE WHEN n % 100 = 0 THEN 'running' ELSE 'done' END, n, 1, 1, '',
               CASE WHEN n % 100 = 0 THEN NULL ELSE n END
        FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_stats
        SELECT q, m, 1, 1, 1, 1, 1, 1, 1, 1
        FROM generate_series(0, 20) q, generate_series(1, 2000) m;
    INSERT INTO skep_queue_traces
        (partition, print, transaction_id, event_type, created_at, data)
        SELECT n % 100, n, 't' || n, '', n, '{}' FROM generate_series(1, 20000) n;
    INSERT INTO skep_queue_trace_names
        SELECT 'n' || (n + k) % 200, n, n FROM generate_series(1, 20000) n,
               generate_series(0, 2) k;
    ANALYZE";

#[tokio::test]
async fn no_statement_of_an_operation_reads_a_whole_table() {
    let rig = rig().await;
    rig.database.run(FILL);
    let schedule = ("text, text, boolean, bigint", "'s1', '{}', FALSE, 1");
    let version = ("text, text, boolean, bigint, bigint", "'s1', '{}', FALSE, 1, 1");
    let progress = (
        "bigint, bigint, bigint, bigint, bigint, bigint, bigint, text",
        "1, 1, 1, 1, 1, 1, 1, 'done'",
    );
    let add = (
        "text[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[],
         bigint[]",
        "'{q1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{1}'",
    );
    let write = (
        "bigint, bigint, text, text, text, text, text, text[]",
        "1, 1, '', '', '', '', '', '{n1}'",
    );
    let (id, text) = (("bigint", "5"), ("text", "'s1'"));
    let page = ("text, bigint", "'a', 10");
    let (old, slot) = (("bigint, bigint", "500, 100"), ("bigint, bigint, bigint", "5, 5, 6"));
    let statements = [
        (schedules::PUT, schedule),
        (schedules::MAKE, schedule),
        (schedules::REPLACE, version),
        (schedules::BY_NAME, text),
        (schedules::VERSION, text),
        (schedules::LIST, page),
        (schedules::DUE, old),
        (schedules::NEXT_TURN, id),
        (stats::MINUTE, ("bigint[], bigint", "ARRAY[5, 6], 100")),
        (schedules::DELETE, text),
        (schedules::PAUSE, text),
        (schedules::RESUME, ("text, bigint, bigint", "'s1', 1, 1")),
        (schedules::PASS, slot),
        (schedules::NOTE, ("bigint, bigint, uuid", "1, 1, gen_random_uuid()")),
        (redrives::BY_ID, id),
        (redrives::LIST, old),
        (redrives::DUE, old),
        (redrives::MAKE, ("text, text, text, bigint, text", "'q1', '{}', '', 1, ''")),
        (redrives::STOP, id),
        (redrives::PROGRESS, progress),
        (redrives::LETTERS, ("bigint, bigint, bigint, bigint", "5, 5, 9999, 100")),
        (redrives::FORGET, old),
        (switches::SET, ("text, boolean, text", "'push', TRUE, ''")),
        (stats::ADD, add),
        (stats::RANGE, ("bigint, bigint, bigint, bigint", "5, 100, 200, 5")),
        (stats::QUEUE, text),
        (stats::FORGET, old),
        (traces::WRITE, write),
        (traces::OF_MESSAGE, ("bigint, bigint, text, bigint", "5, 5, 't5', 1000")),
        (traces::NAMED, ("text, bigint, bigint", "'n5', 5000, 100")),
        (traces::NAMES, ("text, bigint, bigint", "'n1', 100, 1000")),
        (traces::FORGET, old),
    ];
    let settings = ["SET jit = off", "SET plan_cache_mode = force_generic_plan", link::SETTINGS];
    for (statement, (kinds, values)) in statements {
        for settings in settings {
            let plan = plan(&rig, settings, statement, kinds, values);
            assert!(!plan.contains("Seq Scan"), "{settings}: {statement}\n{plan}");
        }
    }
    let tiny =
        plan(&rig, settings[0], "SELECT * FROM skep_queue_dead WHERE failures > $1", id.0, id.1);
    assert!(tiny.contains("Seq Scan"), "this test would see one: {tiny}");
}
