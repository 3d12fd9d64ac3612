//! Rows that transactions take, rows that a newer version wrote, and the plans of statements.

use super::kit::Kit;
use crate::schedule::When;
use crate::store::sqlite::work::Work;
use crate::store::sqlite::{redrives, schedules, stats, switches, traces};
use crate::store::{
    MakeRedrive, PutSchedule, QueueStore, RedriveFilter, Schedule, ScheduleSpec, ScheduleWritten,
};
use rusqlite::Connection;
use skep_policy::Time;
use skep_store::StoreError;

fn second(second: u64) -> Time {
    Time::from_millis(second * 1_000)
}

async fn put(store: &QueueStore, name: &str) -> Schedule {
    let spec = ScheduleSpec {
        queue: "q".into(),
        partition: "p".into(),
        priority: 0,
        payload: "1".into(),
        when: When::every(60, Time::ZERO).unwrap(),
        zone: "UTC".into(),
        catch_up: Default::default(),
        paused: false,
    };
    let next_at = Some(second(60));
    let wish = PutSchedule { name: name.into(), spec, next_at, expected: None };
    match store.put_schedule(wish).await.unwrap() {
        ScheduleWritten::Done(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_newer_version_wrote_does_not_stop_the_others() {
    let kit = Kit::new().await;
    kit.push("q", "p", &["1"]).await;
    let store = QueueStore::Sqlite(kit.queues.clone());
    let mut made = Vec::new();
    for name in ["a", "b"] {
        put(&store, name).await;
        let filter = RedriveFilter::default();
        let (target, rate, by) = (None, None, name.into());
        let wish = MakeRedrive { queue: "q".into(), filter, target, rate, by };
        made.extend(store.make_redrive(wish).await.unwrap());
    }
    let change = |work: &mut Work<'_>| {
        work.db.execute("UPDATE skep_queue_schedules SET spec = '{}' WHERE name = 'a'", [])?;
        let sql = "UPDATE skep_queue_redrives SET filter = '{\"moon\":1}' WHERE created_by = 'a'";
        work.db.execute(sql, [])?;
        work.wrote();
        Ok(())
    };
    kit.queues.write(change).await.unwrap();
    kit.pass(1);
    let now = store.now().await.unwrap();
    assert_eq!(&*store.due_schedules(now, 9).await.unwrap()[0].name, "b");
    assert_eq!(store.schedules(None, 9).await.unwrap().len(), 1);
    let error = store.schedule("a").await.unwrap_err().to_string();
    assert!(error.contains("the schedule a") && error.contains("queue"), "{error}");
    assert_eq!(&*store.due_redrives(now, 9).await.unwrap()[0].created_by, "b");
    assert_eq!(store.redrives(None, 9).await.unwrap(), made[1..]);
    let error = store.redrive(made[0].id).await.unwrap_err();
    assert!(error.to_string().contains("moon"), "{error}");
    assert_eq!(put(&store, "a").await.version, 2, "replacing it mends it");
}

#[tokio::test]
async fn statements_of_operations_use_indexes() {
    let kit = Kit::new().await;
    let statements = [
        (schedules::BY_NAME, "skep_queue_schedules_name"),
        (schedules::LIST, "skep_queue_schedules_name"),
        (schedules::DUE, "skep_queue_schedules_due"),
        (schedules::NEXT_TURN, "skep_queue_schedules_due"),
        (schedules::REPLACE, "skep_queue_schedules_name"),
        (schedules::DELETE, "skep_queue_schedules_name"),
        (schedules::PAUSE, "skep_queue_schedules_name"),
        (schedules::RESUME, "skep_queue_schedules_name"),
        (schedules::PASS, "INTEGER PRIMARY KEY"),
        (schedules::NOTE, "INTEGER PRIMARY KEY"),
        (redrives::BY_ID, "INTEGER PRIMARY KEY"),
        (redrives::LIST, "INTEGER PRIMARY KEY"),
        (redrives::DUE, "skep_queue_redrives_due"),
        (redrives::UPTO, "skep_queue_dead_queue"),
        (redrives::STOP, "INTEGER PRIMARY KEY"),
        (redrives::PROGRESS, "INTEGER PRIMARY KEY"),
        (redrives::LETTERS, "skep_queue_dead_queue"),
        (redrives::FORGET, "skep_queue_redrives_ended"),
        (switches::SET, ""),
        (stats::ADD, ""),
        (stats::RANGE, "PRIMARY KEY"),
        (stats::FORGET, "skep_queue_stats_minute"),
        (traces::OF_MESSAGE, "skep_queue_traces_message"),
        (traces::NAMED, "PRIMARY KEY"),
        (traces::NEXT_NAME, "PRIMARY KEY"),
        (traces::COUNT, "PRIMARY KEY"),
        (traces::LAST, "PRIMARY KEY"),
        (traces::OLD, "INTEGER PRIMARY KEY"),
        (traces::FORGET_NAMES, "skep_queue_trace_names_trace"),
        (traces::FORGET, "INTEGER PRIMARY KEY"),
    ];
    let plans = kit.sqlite().read(move |db| {
        let plans = statements.map(|(sql, index)| Ok((sql, index, plan(db, sql)?)));
        let names = plan(db, traces::NAMES_OF)?;
        let plans = plans.into_iter().collect::<Result<Vec<_>, StoreError>>();
        Ok::<_, StoreError>((plans?, names, plan(db, switches::ALL)?))
    });
    let (plans, names, tiny) = plans.await.unwrap();
    for (sql, index, plan) in plans {
        // What a subquery found is walked, not a table.
        let plan = plan.replace("SCAN (subquery", "(subquery");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        assert!(plan.contains(index), "{sql}: {plan}");
    }
    // Sixteen names at most are sorted.
    assert!(!names.contains("SCAN") && names.contains("skep_queue_trace_names_trace"), "{names}");
    assert!(tiny.contains("SCAN"), "this test would see one: {tiny}");
}

fn plan(db: &Connection, sql: &str) -> Result<String, StoreError> {
    let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let count = explain.parameter_count();
    let values = rusqlite::params_from_iter(std::iter::repeat_n(1, count));
    let lines = explain.query_map(values, |row| row.get::<_, String>(3))?;
    Ok(lines.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
}
