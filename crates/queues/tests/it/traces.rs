//! Traces of messages, found by message and by name.

use crate::kit::*;
use skep_queues::ids::PartitionId;
use skep_queues::store::*;
use std::sync::Arc;
use std::time::Duration;

on_each_store!(
    traces_of_a_message_come_in_the_order_in_which_they_were_told,
    traces_of_a_name_come_newest_first_page_by_page,
    names_are_counted_and_come_page_by_page,
    a_name_with_very_many_traces_is_counted_only_so_far,
    old_traces_are_forgotten_with_their_names_a_few_at_a_time,
);

fn trace(transaction: &str, event: &str, names: &[&str]) -> NewTrace {
    NewTrace {
        partition: PartitionId(7),
        transaction: transaction.into(),
        group: Some(GROUP.into()),
        event_type: event.into(),
        data: format!("{{\"says\":\"{event}\"}}").into(),
        worker: None,
        names: names.iter().map(|name| Arc::from(*name)).collect(),
    }
}

fn events(traces: &[Trace]) -> Vec<&str> {
    traces.iter().map(|trace| &*trace.event_type).collect()
}

async fn write(store: &QueueStore, trace: NewTrace) -> i64 {
    store.write_trace(trace).await.expect("writes")
}

async fn traces_of_a_message_come_in_the_order_in_which_they_were_told(place: Place) {
    let store = place.open().await.whole();
    let before = store.now().await.expect("reads");
    let first = write(&store, trace("t", "begun", &["b", "a", "b"])).await;
    let bare = NewTrace { group: None, worker: Some("w1".into()), ..trace("t", "done", &[]) };
    let second = write(&store, bare).await;
    write(&store, trace("u", "other", &[])).await;
    write(&store, NewTrace { partition: PartitionId(8), ..trace("t", "elsewhere", &[]) }).await;
    assert!(second > first);
    let found = store.traces_of(PartitionId(7), "t", 9).await.expect("reads");
    assert_eq!(events(&found), ["begun", "done"]);
    assert!(found[0].created_at >= before && found[1].created_at >= found[0].created_at);
    let expected = Trace {
        id: first,
        partition: PartitionId(7),
        transaction: "t".into(),
        group: Some(GROUP.into()),
        event_type: "begun".into(),
        data: "{\"says\":\"begun\"}".into(),
        worker: None,
        names: vec!["a".into(), "b".into()],
        created_at: found[0].created_at,
    };
    assert_eq!(found[0], expected);
    let bare = (found[1].group.as_deref(), found[1].worker.as_deref(), found[1].names.len());
    assert_eq!(bare, (None, Some("w1"), 0));
    let one = store.traces_of(PartitionId(7), "t", 1).await.expect("reads");
    assert_eq!(events(&one), ["begun"]);
    assert_eq!(store.traces_of(PartitionId(7), "T", 9).await.expect("reads"), []);
}

async fn traces_of_a_name_come_newest_first_page_by_page(place: Place) {
    let store = place.open().await.whole();
    for number in 0..5_u32 {
        let names: &[&str] = if number == 2 { &["other"] } else { &["tenant-1", "tenant"] };
        write(&store, trace(&number.to_string(), &number.to_string(), names)).await;
    }
    let page = store.traces_named("tenant-1", None, 2).await.expect("reads");
    assert_eq!(events(&page), ["4", "3"]);
    assert_eq!(page[0].names, [Arc::from("tenant"), Arc::from("tenant-1")]);
    write(&store, trace("5", "5", &["tenant-1"])).await;
    let page = store.traces_named("tenant-1", Some(page[1].id), 9).await.expect("reads");
    assert_eq!(events(&page), ["1", "0"]);
    assert_eq!(store.traces_named("tenant-", None, 9).await.expect("reads"), []);
}

async fn names_are_counted_and_come_page_by_page(place: Place) {
    let store = place.open().await.whole();
    assert_eq!(store.trace_names(None, 9).await.expect("reads"), []);
    for names in [&["b", "a"][..], &["Z", "b"], &["ä"], &["b"]] {
        write(&store, trace("t", "e", names)).await;
    }
    let found = store.trace_names(None, 9).await.expect("reads");
    let counted: Vec<(&str, u64)> = found.iter().map(|one| (&*one.name, one.count)).collect();
    assert_eq!(counted, [("Z", 1), ("a", 1), ("b", 3), ("ä", 1)]);
    let last = store.traces_named("b", None, 1).await.expect("reads");
    assert_eq!(found[2].last_at, last[0].created_at);
    let page = store.trace_names(Some("a"), 1).await.expect("reads");
    assert_eq!(page, found[2..3]);
    assert_eq!(store.trace_names(Some("ä"), 9).await.expect("reads"), []);
    assert_eq!(store.trace_names(None, 0).await.expect("reads"), []);
}

async fn a_name_with_very_many_traces_is_counted_only_so_far(place: Place) {
    let store = place.open().await.whole();
    for _ in 0..1_005 {
        write(&store, trace("t", "e", &["many"])).await;
    }
    let found = store.trace_names(None, 9).await.expect("reads");
    assert_eq!(found[0].count, u64::from(traces::TRACES_MAX));
    let all = store.traces_of(PartitionId(7), "t", u32::MAX).await.expect("reads");
    assert_eq!(all.len(), traces::TRACES_MAX as usize);
}

async fn old_traces_are_forgotten_with_their_names_a_few_at_a_time(place: Place) {
    let store = place.open().await.whole();
    for number in 0..4_u32 {
        write(&store, trace("t", &number.to_string(), &["n", &number.to_string()])).await;
    }
    let told = store.traces_of(PartitionId(7), "t", 9).await.expect("reads");
    let forget = async |before, limit| store.forget_traces(before, limit).await.expect("deletes");
    assert_eq!(forget(told[0].created_at, 9).await, 0);
    assert_eq!(forget(told[3].created_at, 2).await, 2);
    let left = store.traces_named("n", None, 9).await.expect("reads");
    assert_eq!(events(&left), ["3", "2"], "the oldest went");
    assert_eq!(forget(told[3].created_at, 9).await, 1, "only what is older");
    assert_eq!(forget(told[3].created_at + Duration::from_secs(1), 9).await, 1);
    assert_eq!(store.trace_names(None, 9).await.expect("reads"), []);
    let new = write(&store, trace("t", "new", &[])).await;
    assert!(new > told[3].id, "numbers are not given twice");
}
