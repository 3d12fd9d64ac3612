//! Partitions, kinds of queues, and sums.

use crate::kit::*;
use skep_queues::ids::PartitionId;
use skep_queues::store::*;

on_each_store!(
    partitions_tell_what_they_hold_and_who_reads_them,
    lists_of_partitions_go_on_where_they_ended,
    partitions_are_found_by_how_their_names_begin,
    namespaces_and_tasks_tell_their_queues,
    an_overview_is_the_sum_of_all_queues,
);

async fn partitions_tell_what_they_hold_and_who_reads_them(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    assert_eq!(whole.partitions("q", None, None, 9).await.expect("reads"), []);
    store.push(&[("q", "a", "1"), ("q", "a", "2"), ("q", "a", "3"), ("q", "b", "4")]).await;
    let got = store.pop(ClaimJob { batch: 1, ..from_partition("q", "a") }).await;
    store.settle(got.all_done()).await;
    let got = store.pop(ClaimJob { batch: 1, ..from_partition("q", "a") }).await;
    let rows = whole.partitions("q", None, None, 9).await.expect("reads");
    let [a, b] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&*a.name, a.pushed, a.kept), ("a", 3, 3));
    assert!(a.last_push.is_some() && a.created_at <= a.last_push.expect("was pushed to"));
    let lane =
        PartitionLane { group: GROUP.into(), pending: 2, leased_until: Some(got.claimed.until) };
    assert_eq!(a.lanes, [lane]);
    assert_eq!((&*b.name, b.pushed, b.lanes.len()), ("b", 1, 0));
    whole.delete_message(a.id, "1").await.expect("deletes").expect("was there");
    let rows = whole.partitions("q", None, None, 1).await.expect("reads");
    assert_eq!((rows.len(), rows[0].pushed, rows[0].kept), (1, 3, 2));
    for name in ["2", "3"] {
        whole.delete_message(a.id, name).await.expect("deletes").expect("was there");
    }
    let rows = whole.partitions("q", None, None, 1).await.expect("reads");
    assert_eq!((rows[0].kept, rows[0].lanes[0].pending), (0, 0));
    assert_eq!(rows[0].lanes[0].leased_until, None);
}

async fn lists_of_partitions_go_on_where_they_ended(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    let expected = ["c", "a", "é", "b", "Z"];
    for name in expected {
        store.push(&[("q", name, "1"), ("r", name, "1")]).await;
    }
    for limit in 1..=6 {
        let mut names = Vec::new();
        let mut after: Option<PartitionId> = None;
        loop {
            let rows = whole.partitions("q", after, None, limit).await.expect("reads");
            let Some(last) = rows.last() else { break };
            after = Some(last.id);
            names.extend(rows.iter().map(|row| row.name.to_string()));
        }
        assert_eq!(names, expected, "by age");
    }
}

async fn partitions_are_found_by_how_their_names_begin(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    let all = ["eu-1", "EU-1", "eu-10", "eu_1", "eu-2", "e", "é-1", "eu-\u{10ffff}", "f", "%"];
    for name in all {
        store.push(&[("q", name, "1")]).await;
    }
    for prefix in ["eu-", "e", "EU", "eu-1", "é", "%", "_", "x", "", "eu-\u{10ffff}"] {
        let mut expected: Vec<&str> =
            all.into_iter().filter(|name| name.starts_with(prefix)).collect();
        expected.sort_unstable();
        for limit in [1, 2, 100] {
            let mut names = Vec::new();
            let mut after = None;
            loop {
                let rows = whole.partitions("q", after, Some(prefix), limit).await.expect("reads");
                let Some(last) = rows.last() else { break };
                after = Some(last.id);
                names.extend(rows.iter().map(|row| row.name.to_string()));
            }
            assert_eq!(names, expected, "{prefix}");
        }
    }
}

async fn namespaces_and_tasks_tell_their_queues(place: Place) {
    let store = place.open().await;
    for queue in ["shop.mail", "shop.print", "home.mail", "plain", "gone.mail"] {
        store.push(&[(queue, "p", "1")]).await;
    }
    store.delete_queue("gone.mail").await;
    let whole = store.whole();
    let told = |kinds: Vec<Kind>| {
        let one = |kind: &Kind| format!("{}:{}", kind.name, kind.queues);
        kinds.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(told(whole.namespaces().await.expect("reads")), ":1 home:1 shop:2");
    assert_eq!(told(whole.tasks().await.expect("reads")), ":1 mail:2 print:1");
}

async fn an_overview_is_the_sum_of_all_queues(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    assert_eq!(whole.overview().await.expect("reads"), Overview::default());
    for queue in ["q", "r", "gone"] {
        store.push(&[(queue, "a", "1"), (queue, "a", "2"), (queue, "b", "3")]).await;
    }
    for group in ["slow", "fast"] {
        let batch = if group == "slow" { 1 } else { 9 };
        let job = ClaimJob { group: group.into(), auto_ack: true, ..up_to(batch, "q") };
        store.pop(job).await;
    }
    store.pop(from("gone")).await;
    store.delete_queue("gone").await;
    let id = store.push(&[("r", "a", "4")]).await[0].partition;
    whole.set_aside(id, "4", "g", None).await.expect("sets aside").expect("was there");
    let expected = Overview {
        queues: 2,
        partitions: 4,
        messages: 6,
        pending: 2 + 3,
        dead: 1,
        later: 0,
        groups: 2,
    };
    assert_eq!(whole.overview().await.expect("reads"), expected);
}
