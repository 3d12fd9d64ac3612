//! Looking at messages.

use crate::kit::*;
use skep_policy::Time;
use skep_policy::queues::Start;
use skep_queues::record::{Records, Wishes};
use skep_queues::store::*;

on_each_store!(
    messages_come_newest_first_in_pages_that_join,
    messages_are_found_by_partition_and_time,
    messages_of_a_kind_of_queues_come_merged,
    a_place_that_nobody_gave_out_is_refused,
    a_partition_with_priorities_is_read_level_by_level,
    pages_go_on_while_messages_come_and_go,
    a_message_tells_what_each_group_has_done_with_it,
    a_message_is_found_by_its_transaction_id,
    of_twins_the_newest_is_found,
    what_is_not_there_has_no_messages,
    a_page_of_large_messages_is_short_and_goes_on,
    looking_past_other_queues_goes_on_where_it_ended,
);

pub fn newest(queue: &str, limit: u32) -> MessageFilter {
    let queues = Queues::One(queue.into());
    MessageFilter { queues, partition: None, from: None, to: None, after: None, limit }
}

pub fn name_of(message: &MessageRow) -> String {
    let record = Records::of(&message.record).next().expect("one").expect("whole");
    assert_eq!(record.payload, payload_of(&record.transaction).as_bytes());
    record.transaction.into_owned()
}

/// Everything, page by page.
pub async fn walk(store: &QueueStore, filter: MessageFilter) -> Vec<MessageRow> {
    let mut all = Vec::new();
    let mut filter = filter;
    for _ in 0..10_000 {
        let page = store.messages(filter.clone()).await.expect("reads");
        assert!(page.messages.len() <= filter.limit as usize);
        all.extend(page.messages);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return all,
        }
    }
    panic!("it never ends")
}

pub async fn names(store: &QueueStore, filter: MessageFilter) -> Vec<String> {
    walk(store, filter).await.iter().map(name_of).collect()
}

/// Numbered messages, pushed in batches of several sizes to three partitions and another queue.
async fn fill(store: &Store) -> Vec<String> {
    let mut pushed = Vec::new();
    for batch in 0..12 {
        let partition = ["a", "b", "c"][batch % 3];
        let names: Vec<String> = (0..=batch % 4).map(|one| format!("{batch}-{one}")).collect();
        let messages: Vec<_> = names.iter().map(|name| ("q", partition, name.as_str())).collect();
        store.push(&messages).await;
        store.push(&[("other", "x", &names[0])]).await;
        pushed.extend(names);
    }
    pushed.reverse();
    pushed
}

async fn messages_come_newest_first_in_pages_that_join(place: Place) {
    let store = place.open().await;
    let expected = fill(&store).await;
    let whole = store.whole();
    for limit in [1, 2, 3, 7, 1_000] {
        assert_eq!(names(&whole, newest("q", limit)).await, expected, "{limit} a page");
    }
    let page = whole.messages(newest("q", 1)).await.expect("reads");
    let message = &page.messages[0];
    assert_eq!((&*message.queue, &*message.partition), ("q", "c"));
    assert_eq!((message.number, page.scanned > 0), (10, true));
    drop((store, whole));
    let again = place.open().await.whole();
    assert_eq!(names(&again, newest("q", 5)).await, expected, "and after a restart");
}

async fn messages_are_found_by_partition_and_time(place: Place) {
    let store = place.open().await;
    let mut times = Vec::new();
    for number in 0..9 {
        times.push(store.now().await);
        let partition = if number % 2 == 0 { "even" } else { "odd" };
        store.push(&[("q", partition, &number.to_string()), ("r", "p", "1")]).await;
    }
    let whole = store.whole();
    let find = async |partition: Option<&str>, from: Option<usize>, to: Option<usize>| {
        let mut found = Vec::new();
        for limit in [1, 100] {
            let filter = MessageFilter {
                partition: partition.map(Into::into),
                from: from.map(|place: usize| times[place]),
                to: to.map(|place: usize| times[place]),
                ..newest("q", limit)
            };
            found.push(names(&whole, filter).await.concat());
        }
        assert_eq!(found[0], found[1], "however many are on a page");
        found.remove(0)
    };
    assert_eq!(find(None, None, None).await, "876543210");
    assert_eq!(find(Some("even"), None, None).await, "86420");
    assert_eq!(find(None, Some(3), Some(6)).await, "543");
    assert_eq!(find(Some("odd"), Some(3), Some(6)).await, "53");
    assert_eq!(find(Some("odd"), None, Some(4)).await, "31");
    assert_eq!(find(None, Some(8), None).await, "8");
    assert_eq!(find(None, None, Some(0)).await, "");
    assert_eq!(find(Some("none"), None, None).await, "");
}

async fn messages_of_a_kind_of_queues_come_merged(place: Place) {
    let store = place.open().await;
    for number in 0..12 {
        let queue = ["shop.mail", "shop.print", "home.mail"][number % 3];
        store.push(&[(queue, "p", &format!("{number:02}"))]).await;
    }
    let whole = store.whole();
    let of = async |namespace: Option<&str>, task: Option<&str>, limit| {
        let (namespace, task) = (namespace.map(Into::into), task.map(Into::into));
        let queues = Queues::Matching { namespace, task };
        names(&whole, MessageFilter { queues, ..newest("", limit) }).await.join(" ")
    };
    for limit in [1, 3, 100] {
        assert_eq!(of(Some("shop"), None, limit).await, "10 09 07 06 04 03 01 00");
        assert_eq!(of(None, Some("mail"), limit).await, "11 09 08 06 05 03 02 00");
        assert_eq!(of(Some("home"), Some("mail"), limit).await, "11 08 05 02");
        assert_eq!(of(None, None, limit).await.len(), 12 * 3 - 1);
        assert_eq!(of(Some("none"), None, limit).await, "");
    }
}

async fn a_place_that_nobody_gave_out_is_refused(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "3")]).await;
    let whole = store.whole();
    let words =
        ["", "x", "p", "s.", "t.1", "p.-1", "s.1.2.3.4", "t.1.2.x", "s.999999999999999999999.1"];
    for token in words {
        for partition in [None, Some("p".into())] {
            let after = Some(token.to_owned());
            let filter = MessageFilter { after, partition, ..newest("q", 1) };
            let found = whole.messages(filter).await;
            assert!(
                matches!(&found, Err(BrowseError::Token { token: named }) if named == token),
                "{token}: {found:?}"
            );
        }
        let filter = GroupFilter { after: Some(token.to_owned()), ..GroupFilter::default() };
        assert!(matches!(whole.groups(filter).await, Err(BrowseError::Token { .. })), "{token}");
    }
    // The end of all numbers is a place like any other.
    let filter = MessageFilter {
        after: Some(format!("p.0.{}", i64::MAX)),
        partition: Some("p".into()),
        ..newest("q", 9)
    };
    assert_eq!(names(&whole, filter).await.len(), 3);
    let queues = Queues::Matching { namespace: None, task: None };
    let filter = MessageFilter { queues, partition: Some("p".into()), ..newest("q", 1) };
    let error = whole.messages(filter).await.expect_err("of which queue?");
    assert!(matches!(error, BrowseError::Partition { .. }), "{error}");
}

async fn a_partition_with_priorities_is_read_level_by_level(place: Place) {
    let store = place.open().await;
    let new =
        |name: &str, priority| wished("q", "p", name, Wishes { priority, ..Wishes::default() });
    let messages = vec![new("a", 0), new("b", 9), new("c", 0), new("d", 4), new("e", 9)];
    store.try_push(messages).await.expect("are kept");
    store.push(&[("q", "other", "x")]).await;
    for limit in 1..6 {
        let filter = MessageFilter { partition: Some("p".into()), ..newest("q", limit) };
        assert_eq!(names(&store.whole(), filter).await.concat(), "ebdca", "{limit} a page");
    }
}

async fn pages_go_on_while_messages_come_and_go(place: Place) {
    let store = place.open().await;
    let batch: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    for part in batch.chunks(10) {
        let messages: Vec<_> = part.iter().map(|name| ("q", "p", name.as_str())).collect();
        store.push(&messages).await;
    }
    let id = store.push(&[("q", "z", "last")]).await[0].partition;
    let whole = store.whole();
    let partition = store.push(&[("q", "p", "99")]).await[0].partition;
    for filter in [newest("q", 6), MessageFilter { partition: Some("p".into()), ..newest("q", 6) }]
    {
        let page = whole.messages(filter.clone()).await.expect("reads");
        let seen: Vec<String> = page.messages.iter().map(name_of).collect();
        let before = names(&whole, filter.clone()).await;
        assert_eq!(before[..6], seen);
        let unseen = &before[6..];
        // The last that was seen, the next one, one in the middle of a segment, and one at an edge.
        let gone = [seen[5].clone(), unseen[0].clone(), unseen[7].clone(), unseen[13].clone()];
        for name in &gone {
            assert!(whole.delete_message(partition, name).await.expect("deletes").is_some());
        }
        store.push(&[("q", "p", &format!("new {}", seen[0])), ("q", "z", &seen[0])]).await;
        let rest = MessageFilter { after: page.next, ..filter };
        let expected: Vec<String> =
            unseen.iter().filter(|name| !gone.contains(name)).cloned().collect();
        assert_eq!(names(&whole, rest).await, expected);
    }
    assert!(whole.delete_message(id, "last").await.expect("deletes").is_some());
}

async fn a_message_tells_what_each_group_has_done_with_it(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2"), ("q", "p", "3"), ("q", "other", "4")]).await;
    let got = store.pop(ClaimJob { batch: 1, ..from_partition("q", "p") }).await;
    store.settle(got.all_done()).await;
    let got = store.pop(ClaimJob { batch: 1, ..from_partition("q", "p") }).await;
    let late = ClaimJob { group: "late".into(), start: None, ..from("q") };
    assert!(store.pop(late).await.claimed.lanes.is_empty());
    let whole = store.whole();
    let filter = MessageFilter { partition: Some("p".into()), ..newest("q", 9) };
    let standing = async || {
        let messages = walk(&whole, filter.clone()).await;
        let standing = |message: &MessageRow| {
            let of = |one: &Standing| format!("{} {:?}", one.group, one.state);
            message.standing.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        messages.iter().map(standing).collect::<Vec<_>>()
    };
    let leased = format!("Leased {{ until: {:?} }}", got.claimed.until);
    let late = "late Settled";
    assert_eq!(
        standing().await,
        [
            format!("{late}, {GROUP} Waiting"),
            format!("{late}, {GROUP} {leased}"),
            format!("{late}, {GROUP} Settled")
        ]
    );
    store.release(got.lease).await;
    assert_eq!(standing().await[1], format!("{late}, {GROUP} Waiting"));
    let other = MessageFilter { partition: Some("other".into()), ..newest("q", 9) };
    let other = walk(&whole, other).await;
    assert_eq!(other[0].standing[1].state, StandingState::Waiting, "nobody has looked at it");
}

async fn a_message_is_found_by_its_transaction_id(place: Place) {
    let store = place.open().await;
    let text = "0190d8ae-1111-7000-8000-000000000001";
    let pushed = store.push(&[("q", "p", "a"), ("q", "p", text), ("q", "p", "c")]).await;
    let whole = store.whole();
    for (number, name) in [(1, "a"), (2, text), (3, "c")] {
        let found = whole.message(pushed[0].partition, name).await.expect("reads");
        let found = found.expect("is there");
        assert_eq!((found.number, name_of(&found)), (number, name.to_owned()));
        assert_eq!((&*found.queue, &*found.partition), ("q", "p"));
    }
    assert_eq!(whole.message(pushed[0].partition, "b").await.expect("reads"), None);
    let nowhere = skep_queues::ids::PartitionId(pushed[0].partition.0 + 999);
    assert_eq!(whole.message(nowhere, "a").await.expect("reads"), None);
    store.delete_queue("q").await;
    assert_eq!(whole.message(pushed[0].partition, "a").await.expect("reads"), None);
    assert_eq!(whole.delete_message(pushed[0].partition, "a").await.expect("looks"), None);
}

async fn of_twins_the_newest_is_found(place: Place) {
    let store = place.open().await;
    store.configure("q", |options| options.dedup_window_seconds = 0).await;
    let mut id = None;
    for _ in 0..3 {
        id = Some(store.push(&[("q", "p", "1"), ("q", "p", "2")]).await[0].partition);
    }
    let (whole, id) = (store.whole(), id.expect("pushed"));
    for number in [5, 3, 1] {
        let found = whole.message(id, "1").await.expect("reads").expect("is there");
        let removed = whole.delete_message(id, "1").await.expect("deletes").expect("was there");
        assert_eq!((found.number, removed.number), (number, number));
    }
    assert_eq!(whole.message(id, "1").await.expect("reads"), None);
    assert_eq!(whole.delete_message(id, "1").await.expect("looks"), None);
}

async fn what_is_not_there_has_no_messages(place: Place) {
    let store = place.open().await;
    let whole = store.whole();
    assert_eq!(walk(&whole, newest("none", 1)).await, []);
    store.configure("q", |_| ()).await;
    assert_eq!(walk(&whole, newest("q", 1)).await, []);
    store.push(&[("gone", "p", "1")]).await;
    store.delete_queue("gone").await;
    assert_eq!(walk(&whole, newest("gone", 1)).await, []);
    let all = Queues::Matching { namespace: None, task: None };
    assert_eq!(walk(&whole, MessageFilter { queues: all, ..newest("", 1) }).await, []);
    let all = MessageFilter { from: Some(Time::ZERO), to: Some(Time::ZERO), ..newest("q", 0) };
    assert_eq!(whole.messages(all).await.expect("reads").next, None);
    let start = whole.subscribe("g", Some("none"), Start::All).await.expect("looks");
    assert_eq!(start, Sought::NoQueue);
}

async fn a_page_of_large_messages_is_short_and_goes_on(place: Place) {
    let store = place.open().await;
    for number in 0..5 {
        let name = format!("{number}{}", "x".repeat(5 << 20));
        store.try_push(vec![message("q", "p", &name)]).await.expect("is kept");
    }
    let whole = store.whole();
    let page = whole.messages(newest("q", 100)).await.expect("reads");
    assert!((1..5).contains(&page.messages.len()), "{}", page.messages.len());
    let rest = MessageFilter { after: page.next, ..newest("q", 100) };
    assert_eq!(page.messages.len() + walk(&whole, rest).await.len(), 5);
}

async fn looking_past_other_queues_goes_on_where_it_ended(place: Place) {
    let store = place.open().await;
    store.push(&[("q", "p", "1"), ("q", "p", "2")]).await;
    for round in 0..3 {
        let others = (0..2_000).map(|one| message("other", &format!("{round}/{one}"), "x"));
        store.try_push(others.collect()).await.expect("is kept");
    }
    let whole = store.whole();
    let (mut filter, mut found, mut calls) = (newest("q", 9), Vec::new(), 0);
    loop {
        let page = whole.messages(filter.clone()).await.expect("reads");
        assert!(page.scanned <= 5_000, "bounded, whatever there is: {}", page.scanned);
        found.extend(page.messages.iter().map(name_of));
        calls += 1;
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, ["2", "1"]);
    assert!(calls <= 2, "{calls}");
    assert_eq!(names(&whole, newest("other", 1_000)).await.len(), 6_000);
}
