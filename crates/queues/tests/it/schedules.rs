//! Schedules are rows that change hands by compare-and-set.

use crate::kit::*;
use skep_policy::Time;
use skep_queues::schedule::{CatchUp, Fire, Move, When};
use skep_queues::store::*;
use std::time::Duration;

on_each_store!(
    a_schedule_is_made_found_listed_and_deleted,
    a_replaced_schedule_gets_another_number_and_keeps_its_past,
    an_unexpected_version_changes_nothing,
    a_paused_schedule_has_no_slot_and_goes_on_where_it_is_told,
    what_waits_longest_is_due_first_and_what_lies_ahead_is_not_due,
    of_many_who_move_a_schedule_on_one_does,
    schedules_are_there_after_a_restart,
);

fn spec(queue: &str) -> ScheduleSpec {
    ScheduleSpec {
        queue: queue.into(),
        partition: "nightly".into(),
        priority: 3,
        payload: "{\"do\":\"report\"}".into(),
        when: When::Cron("30 2 * * mon-fri".parse().expect("is an expression")),
        zone: "Europe/Berlin".into(),
        catch_up: CatchUp::All,
        paused: false,
    }
}

fn second(second: u64) -> Time {
    Time::from_millis(second * 1_000)
}

fn wish(name: &str, next_at: u64) -> PutSchedule {
    let next_at = Some(second(next_at));
    PutSchedule { name: name.into(), spec: spec("q"), next_at, expected: None }
}

async fn put(store: &QueueStore, wish: PutSchedule) -> Schedule {
    match store.put_schedule(wish).await.expect("writes") {
        ScheduleWritten::Done(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

fn done(written: ScheduleWritten) -> Schedule {
    match written {
        ScheduleWritten::Done(schedule) => *schedule,
        other => panic!("{other:?}"),
    }
}

async fn a_schedule_is_made_found_listed_and_deleted(place: Place) {
    let store = place.open().await.whole();
    let before = store.now().await.expect("reads");
    let made = put(&store, wish("b", 60)).await;
    assert_eq!((made.spec.clone(), made.next_at), (spec("q"), Some(second(60))));
    assert_eq!((made.last_at, made.last_message, made.fired, made.version), (None, None, 0, 1));
    assert!(made.created_at >= before && made.updated_at == made.created_at, "{made:?}");
    assert_eq!(store.schedule("b").await.expect("reads"), Some(made));
    assert_eq!(store.schedule("B").await.expect("reads"), None);
    for name in ["a", "Z", "ä", "c"] {
        put(&store, wish(name, 60)).await;
    }
    let names = async |after: Option<&str>, limit| {
        let found = store.schedules(after, limit).await.expect("reads");
        found.iter().map(|schedule| schedule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 9).await, ["Z", "a", "b", "c", "ä"], "by their bytes");
    assert_eq!(names(Some("a"), 2).await, ["b", "c"]);
    assert!(store.delete_schedule("b").await.expect("deletes"));
    assert!(!store.delete_schedule("b").await.expect("deletes"));
    assert_eq!(names(Some("a"), 1).await, ["c"]);
}

async fn a_replaced_schedule_gets_another_number_and_keeps_its_past(place: Place) {
    let store = place.open().await.whole();
    let first = put(&store, wish("s", 60)).await;
    let mut other = wish("s", 60);
    other.spec.payload = "7".into();
    let second_one = put(&store, other).await;
    assert_ne!(first.id, second_one.id);
    assert_eq!((second_one.version, &*second_one.spec.payload), (2, "7"));
    assert_eq!(second_one.created_at, first.created_at);
    assert!(second_one.updated_at > first.updated_at);
    let moved = store.pass_slot(first.id, second(60), None).await.expect("answers");
    assert!(!moved, "whoever knew the old one does not move the new one");
    assert_eq!(store.schedule("s").await.expect("reads"), Some(second_one));
}

async fn an_unexpected_version_changes_nothing(place: Place) {
    let store = place.open().await.whole();
    let expecting = |version| PutSchedule { expected: Some(version), ..wish("s", 60) };
    let put_one = async |version| store.put_schedule(expecting(version)).await.expect("answers");
    assert_eq!(put_one(1).await, ScheduleWritten::NoSchedule);
    assert_eq!(done(put_one(0).await).version, 1);
    assert_eq!(put_one(0).await, ScheduleWritten::OtherVersion(1));
    assert_eq!(put_one(2).await, ScheduleWritten::OtherVersion(1));
    assert_eq!(done(put_one(1).await).version, 2);
    assert_eq!(put_one(1).await, ScheduleWritten::OtherVersion(2));
    assert_eq!(store.schedules(None, 9).await.expect("reads").len(), 1);
}

async fn a_paused_schedule_has_no_slot_and_goes_on_where_it_is_told(place: Place) {
    let store = place.open().await.whole();
    let missing = store.pause_schedule("s").await.expect("answers");
    assert_eq!(missing, ScheduleWritten::NoSchedule);
    let missing = store.resume_schedule("s", 1, None).await.expect("answers");
    assert_eq!(missing, ScheduleWritten::NoSchedule);
    let made = put(&store, wish("s", 60)).await;
    let paused = done(store.pause_schedule("s").await.expect("pauses"));
    assert_eq!((paused.spec.paused, paused.next_at, paused.version), (true, None, 2));
    assert_eq!(paused.due(second(1_000)).expect("is known"), None);
    let again = done(store.pause_schedule("s").await.expect("pauses"));
    assert_eq!(again, paused, "it was paused already");
    assert!(!store.pass_slot(made.id, second(60), None).await.expect("answers"));
    let stale = store.resume_schedule("s", 1, Some(second(90))).await.expect("answers");
    assert_eq!(stale, ScheduleWritten::OtherVersion(2));
    let resumed = done(store.resume_schedule("s", 2, Some(second(90))).await.expect("resumes"));
    assert_eq!((resumed.spec.paused, resumed.next_at), (false, Some(second(90))));
    let again = done(store.resume_schedule("s", 3, Some(second(120))).await.expect("resumes"));
    assert_eq!(again, resumed, "one that runs is not moved");
    let mut made_paused = wish("p", 60);
    made_paused.spec.paused = true;
    assert_eq!(put(&store, made_paused).await.next_at, None);
}

async fn what_waits_longest_is_due_first_and_what_lies_ahead_is_not_due(place: Place) {
    let store = place.open().await.whole();
    for (name, next_at) in [("late", 30), ("early", 10), ("ahead", 31), ("paused", 5)] {
        put(&store, wish(name, next_at)).await;
    }
    store.pause_schedule("paused").await.expect("pauses");
    let due = async |now, limit| {
        let found = store.due_schedules(second(now), limit).await.expect("reads");
        found.iter().map(|schedule| schedule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(due(30, 9).await, ["early", "late"]);
    assert_eq!(due(30, 1).await, ["early"]);
    assert_eq!(due(9, 9).await, [""; 0]);
}

async fn of_many_who_move_a_schedule_on_one_does(place: Place) {
    let store = place.open().await;
    let first = store.whole();
    let made = put(&first, wish("s", 60)).await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = first.clone();
        let pass = async move { store.pass_slot(made.id, second(60), Some(second(61))).await };
        tries.spawn(pass);
    }
    let moved = tries.join_all().await;
    let moved = moved.into_iter().filter(|moved| *moved.as_ref().expect("answers")).count();
    assert_eq!(moved, 1);
    let schedule = first.schedule("s").await.expect("reads").expect("is there");
    assert_eq!((schedule.next_at, schedule.fired, schedule.version), (Some(second(61)), 0, 1));
    assert!(first.pass_slot(made.id, second(61), None).await.expect("answers"));
    let over = first.schedule("s").await.expect("reads").expect("is there");
    assert_eq!((over.next_at, over.due(second(99)).expect("is known")), (None, None));
}

async fn schedules_are_there_after_a_restart(place: Place) {
    let every = When::every(3_600, second(7)).expect("fits");
    let store = place.open().await;
    let now = store.whole().now().await.expect("reads");
    let mut hourly = wish("s", 0);
    hourly.spec = ScheduleSpec { when: every, zone: "UTC".into(), ..hourly.spec };
    hourly.next_at = hourly.spec.next_after(now).expect("is known");
    let made = put(&store.whole(), hourly).await;
    drop(store);
    let store = place.open().await.whole();
    let found = store.schedule("s").await.expect("reads").expect("is there");
    assert_eq!(found, made);
    let next_at = found.next_at.expect("is there");
    assert_eq!(next_at.since(second(7)).as_secs() % 3_600, 0, "exactly, after two databases");
    let later = next_at + Duration::from_secs(3_600 * 3 + 1);
    let hours = |count: u64| next_at + Duration::from_secs(3_600 * count);
    let fire = found.due(later).expect("is known").expect("is due");
    let slots = (0..4).map(hours).collect();
    assert_eq!(fire, Fire { slots, next_at: Some(hours(4)) });
    let last = fire.moves(next_at).pop();
    assert_eq!(last, Some(Move::Push { was: hours(3), next: Some(hours(4)) }));
    assert_eq!(found.transaction(second(61)), "schedule:s:61000");
}
