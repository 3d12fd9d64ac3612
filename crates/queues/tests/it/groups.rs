//! Groups: how far they are, and where they begin.

use crate::kit::*;
use skep_policy::queues::Start;
use skep_queues::store::*;

on_each_store!(
    groups_tell_how_far_they_are,
    lists_of_groups_go_on_where_they_ended,
    the_oldest_message_is_found_in_lanes_and_beyond_the_frontier,
    a_subscription_counts_for_what_was_not_looked_at,
    a_subscription_waits_for_queues_to_come,
    a_deleted_group_may_keep_its_beginning,
);

async fn list(store: &Store, filter: GroupFilter) -> Vec<GroupRow> {
    let filter = GroupFilter { limit: filter.limit.max(1), ..filter };
    store.whole().groups(filter).await.expect("reads").groups
}

async fn one(store: &Store, group: &str) -> GroupRow {
    let filter = GroupFilter {
        group: Some(group.into()),
        queue: Some("q".into()),
        ..GroupFilter::default()
    };
    list(store, filter).await.pop().expect("is there")
}

fn of(group: &str, batch: u32) -> ClaimJob {
    ClaimJob { group: group.into(), ..up_to(batch, "q") }
}

async fn groups_tell_how_far_they_are(place: Place) {
    let store = place.open().await;
    for partition in ["a", "b", "c", "d"] {
        store.push(&[("q", partition, "1"), ("q", partition, "2")]).await;
    }
    let job = |partition| ClaimJob { batch: 1, ..from_partition("q", partition) };
    let done = store.pop(ClaimJob { batch: 2, ..job("a") }).await;
    store.settle(done.all_done()).await;
    let done = store.pop(job("b")).await;
    store.settle(done.all_done()).await;
    store.pop(job("c")).await;
    let row = one(&store, GROUP).await;
    assert_eq!((&*row.queue, &*row.group), ("q", GROUP));
    assert_eq!((row.pending, row.lanes), (5, 3));
    assert_eq!((row.leased_lanes, row.waiting_lanes, row.more_lanes), (1, 1, false));
    assert_eq!(row.start, None);
    assert!(row.oldest.is_some());
    store.push(&[("r", "a", "1")]).await;
    store.pop(ClaimJob { start: None, ..from("r") }).await;
    let by_name = GroupFilter { group: Some(GROUP.into()), limit: 9, ..GroupFilter::default() };
    let rows = list(&store, by_name.clone()).await;
    let pending: Vec<_> = rows.iter().map(|row| (&*row.queue, row.pending)).collect();
    assert_eq!(pending, [("q", 5), ("r", 0)]);
    assert_eq!((rows[1].oldest, rows[1].start.is_some()), (None, true));
    store.delete_queue("q").await;
    assert_eq!(list(&store, by_name).await.len(), 1);
}

async fn lists_of_groups_go_on_where_they_ended(place: Place) {
    let store = place.open().await;
    for queue in ["q", "r"] {
        store.push(&[(queue, "p", "1")]).await;
        for group in ["c", "a.b", "b"] {
            store.pop(ClaimJob { group: group.into(), auto_ack: true, ..from(queue) }).await;
        }
    }
    let whole = store.whole();
    let walk = async |filter: GroupFilter| {
        let mut names = Vec::new();
        let mut filter = filter;
        loop {
            let page = whole.groups(filter.clone()).await.expect("reads");
            assert!(page.groups.len() <= filter.limit as usize);
            names.extend(page.groups.iter().map(|row| format!("{}/{}", row.queue, row.group)));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return names.join(" "),
            }
        }
    };
    for limit in 1..=7 {
        let all = GroupFilter { limit, ..GroupFilter::default() };
        assert_eq!(walk(all.clone()).await, "q/c q/a.b q/b r/c r/a.b r/b", "by age");
        let q = GroupFilter { queue: Some("q".into()), ..all.clone() };
        assert_eq!(walk(q).await, "q/a.b q/b q/c", "by name");
        let b = GroupFilter { group: Some("b".into()), ..all.clone() };
        assert_eq!(walk(b.clone()).await, "q/b r/b");
        assert_eq!(walk(GroupFilter { queue: Some("r".into()), ..b }).await, "r/b");
        assert_eq!(walk(GroupFilter { queue: Some("none".into()), ..all }).await, "");
    }
}

async fn the_oldest_message_is_found_in_lanes_and_beyond_the_frontier(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "1")]).await;
    let first = store.pop(of(GROUP, 1)).await;
    let first_at = first.claimed.lanes[0].parts[0].at;
    store.push(&[("q", "a", "2")]).await;
    assert_eq!(one(&store, GROUP).await.oldest, Some(first_at), "somebody works on it");
    store.settle(first.all_done()).await;
    let second = store.pop(of(GROUP, 1)).await;
    assert_eq!(one(&store, GROUP).await.oldest, Some(second.claimed.lanes[0].parts[0].at));
    store.settle(second.all_done()).await;
    assert_eq!(one(&store, GROUP).await.oldest, None);
    let pushed = store.push(&[("q", "b", "3")]).await;
    let third = store.whole().message(pushed[0].partition, "3").await.expect("reads");
    assert_eq!(one(&store, GROUP).await.oldest, third.map(|third| third.at), "never looked at");
    store.seek("q", None, SeekTo::End).await;
    assert_eq!(one(&store, GROUP).await.oldest, None, "it begins later");
}

async fn a_subscription_counts_for_what_was_not_looked_at(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "a", "a1"), ("q", "b", "b1")]).await;
    let (whole, time) = (store.whole(), store.now().await);
    store.push(&[("q", "a", "a2"), ("q", "b", "b2")]).await;
    // It has looked at one partition, and began with what comes.
    let job = ClaimJob { start: None, ..from_partition("q", "a") };
    assert!(store.pop(job).await.names().is_empty());
    let moved = whole.subscribe(GROUP, Some("q"), Start::From(time)).await.expect("subscribes");
    assert_eq!(moved, Sought::Moved(1));
    assert_eq!(one(&store, GROUP).await.start, Some(time));
    let all = || ClaimJob { start: None, auto_ack: true, ..up_to(9, "q") };
    assert_eq!(store.pop(all()).await.names(), ["b2"], "what was looked at stays");
    assert_eq!(one(&store, GROUP).await.pending, 0);
    store.push(&[("q", "c", "c1")]).await;
    assert_eq!(one(&store, GROUP).await.pending, 1);
    assert_eq!(store.pop(all()).await.names(), ["c1"]);
    // One that was never seen is made.
    let moved = whole.subscribe("new", Some("q"), Start::From(time)).await.expect("subscribes");
    assert_eq!(moved, Sought::Moved(1));
    let mut names = store.pop(ClaimJob { group: "new".into(), ..all() }).await.names();
    names.sort_unstable();
    assert_eq!(names, ["a2", "b2", "c1"]);
    assert_eq!(one(&store, "new").await.pending, 0);
}

async fn a_subscription_waits_for_queues_to_come(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    store.push(&[("q", "p", "1")]).await;
    store.pop(of("g", 1)).await;
    let moved = whole.subscribe("g", None, Start::All).await.expect("subscribes");
    assert_eq!(moved, Sought::Moved(1));
    store.push(&[("r", "p", "r1"), ("s", "p", "s1")]).await;
    let late = |queue| ClaimJob { group: "g".into(), start: None, auto_ack: true, ..from(queue) };
    assert_eq!(store.pop(late("r")).await.names(), ["r1"], "not only what comes");
    assert_eq!(whole.delete_group("g", None, false).await.expect("deletes"), 2);
    assert!(store.pop(late("s")).await.names().is_empty(), "it is forgotten with the group");
}

async fn a_deleted_group_may_keep_its_beginning(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    store.push(&[("q", "p", "1")]).await;
    let late = || ClaimJob { start: None, auto_ack: true, ..up_to(9, "q") };
    assert!(store.pop(late()).await.names().is_empty());
    store.push(&[("q", "p", "2"), ("q", "o", "3")]).await;
    assert_eq!(store.pop(late()).await.names().len(), 2);
    let start = one(&store, GROUP).await.start;
    assert!(start.is_some());
    assert_eq!(whole.delete_group(GROUP, Some("q"), true).await.expect("deletes"), 2);
    let row = one(&store, GROUP).await;
    assert_eq!((row.start, row.lanes), (start, 0));
    assert_eq!(store.pop(late()).await.names().len(), 2, "again, and not what was before");
    assert_eq!(one(&store, GROUP).await.pending, 0);
    assert_eq!(whole.delete_group(GROUP, None, true).await.expect("deletes"), 2);
    assert_eq!(store.pop(late()).await.names().len(), 2);
    assert_eq!(whole.delete_group(GROUP, Some("q"), false).await.expect("deletes"), 2);
    assert!(store.pop(late()).await.names().is_empty(), "now it begins with what comes");
    store.tidy_all().await;
    store.push(&[("q", "p", "4")]).await;
    assert_eq!(store.pop(late()).await.names(), ["4"]);
}
