//! Minutes and events.

use super::*;

fn minute(minute: i64, route: &str, node: &str, good: u64) -> MinuteRow {
    MinuteRow {
        key: MinuteKey { minute, route: route.to_owned(), node: node.to_owned() },
        answers: [1, good, 3, 4, 5],
        refused: 6,
        bytes_in: 7,
        bytes_out: 8,
        histogram: vec![0, 255, 10],
    }
}

fn between(from: i64, to: i64) -> MinuteFilter {
    MinuteFilter { from, to, ..MinuteFilter::default() }
}

fn of_route(route: &str, filter: MinuteFilter) -> MinuteFilter {
    MinuteFilter { route: Some(route.to_owned()), ..filter }
}

/// What there is, page by page.
async fn pages(store: &RouteStore, mut filter: MinuteFilter, limit: usize) -> Vec<MinuteRow> {
    let mut all = Vec::new();
    loop {
        let rows = store.minutes(&filter, limit).await.expect("reads");
        assert!(rows.len() <= limit);
        let Some(last) = rows.last() else { return all };
        let on = filter.after.as_ref().is_none_or(|after| rows[0].key > *after);
        assert!(on, "a page goes on where the last one ended");
        filter.after = Some(last.key.clone());
        all.extend(rows);
    }
}

#[tokio::test]
async fn a_minute_that_is_written_again_counts_once() {
    on_each_database(async |store| {
        let rows = vec![minute(5, "shop", "n1", 1), minute(5, "shop", "n2", 2)];
        store.add_minutes(rows.clone()).await.expect("keeps");
        store.add_minutes(rows.clone()).await.expect("keeps");
        assert_eq!(store.minutes(&between(0, 9), 10).await.expect("reads"), rows);
        // Another reading of the same minute takes the place of the first; the last of two wins.
        let newer = minute(5, "shop", "n1", u64::MAX);
        let both = vec![minute(5, "shop", "n1", 7), newer.clone()];
        store.add_minutes(both).await.expect("keeps");
        let kept = store.minutes(&between(0, 9), 10).await.expect("reads");
        assert_eq!(kept[0].answers, [1, i64::MAX.cast_unsigned(), 3, 4, 5], "the most there is");
        assert_eq!(kept[1], rows[1]);
        store.add_minutes(Vec::new()).await.expect("keeps nothing");
    })
    .await;
}

#[tokio::test]
async fn minutes_are_read_in_order_by_route_and_page_by_page() {
    on_each_database(async |store| {
        let mut rows = Vec::new();
        for number in 0..4 {
            for route in ["B", "a", "a-b", "ä"] {
                for node in ["n1", "n2"] {
                    rows.push(minute(number, route, node, 1));
                }
            }
        }
        let mut shuffled = rows.clone();
        shuffled.reverse();
        store.add_minutes(shuffled).await.expect("keeps");
        for limit in [1, 3, 8, 100] {
            assert_eq!(pages(&store, between(0, 4), limit).await, rows, "pages of {limit}");
            let of_a = pages(&store, of_route("a", between(1, 3)), limit).await;
            let expected: Vec<_> = rows
                .iter()
                .filter(|row| row.key.route == "a" && (1..3).contains(&row.key.minute))
                .cloned()
                .collect();
            assert_eq!(of_a, expected, "pages of {limit}");
        }
        assert_eq!(pages(&store, between(3, 4), 9).await, rows[24..]);
        assert_eq!(pages(&store, of_route("none", between(0, 4)), 9).await, []);
        assert_eq!(pages(&store, between(4, 0), 9).await, []);
        assert_eq!(store.minutes(&between(0, 4), 0).await.expect("reads").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn old_minutes_are_forgotten_step_by_step() {
    on_each_database(async |store| {
        for part in 0..2 {
            let row = |number: i64| minute(part, &format!("r{number}"), "n", 1);
            store.add_minutes((0..3_000).map(row).collect()).await.expect("keeps");
        }
        store.add_minutes(vec![minute(2, "young", "n", 1)]).await.expect("keeps");
        assert!(store.forget_before(2).await.expect("forgets"), "5,000 of 6,000");
        assert!(!store.forget_before(2).await.expect("forgets"), "the rest");
        assert!(!store.forget_before(2).await.expect("forgets"), "nothing");
        let left = store.minutes(&between(0, 9), 10).await.expect("reads");
        assert_eq!(left, [minute(2, "young", "n", 1)]);
    })
    .await;
}

#[tokio::test]
async fn too_much_at_once_is_refused_and_nothing_kept() {
    on_each_database(async |store| {
        let rows = (0..5_001).map(|number| minute(number, "shop", "n", 1)).collect();
        let error = store.add_minutes(rows).await.expect_err("is too much").to_string();
        assert!(error.contains("5001 rows in one call; give at most 5000"), "{error}");
        let long = MinuteRow { histogram: vec![0; 16_385], ..minute(1, "shop", "n", 1) };
        let rows = vec![minute(0, "shop", "n", 1), long];
        let error = store.add_minutes(rows).await.expect_err("is too long").to_string();
        assert!(error.contains("16385 bytes; give at most 16384"), "{error}");
        assert_eq!(store.minutes(&between(0, 9_999), 10).await.expect("reads"), []);
        let events = vec![NewEvent::default(); 5_001];
        assert!(store.write_events(events).await.is_err());
    })
    .await;
}

fn event(key: u64, route: &str, kind: &str, upstream: &str) -> NewEvent {
    NewEvent {
        at_ms: i64::try_from(key).unwrap_or(0) * 10,
        node: "n1".to_owned(),
        key,
        route: route.to_owned(),
        kind: kind.to_owned(),
        upstream: upstream.to_owned(),
        status: key.is_multiple_of(2).then_some(503),
        detail: format!("event {key}"),
    }
}

async fn details(store: &RouteStore, filter: EventFilter) -> Vec<String> {
    let events = store.events(&filter, None, 100).await.expect("reads");
    events.into_iter().map(|event| event.detail).collect()
}

#[tokio::test]
async fn events_are_kept_once_and_read_newest_first() {
    on_each_database(async |store| {
        let all: Vec<_> = (1..=7).map(|key| event(key, "shop", "down", "a:1")).collect();
        store.write_events(all[..5].to_vec()).await.expect("keeps");
        store.write_events(all.clone()).await.expect("keeps the last two");
        let mut read = Vec::new();
        let mut before = None;
        loop {
            let page = store.events(&EventFilter::default(), before, 3).await.expect("reads");
            let Some(last) = page.last() else { break };
            assert!(page.len() <= 3);
            before = Some(last.id);
            read.extend(page);
        }
        assert!(read.is_sorted_by(|one, other| one.id > other.id));
        let expected: Vec<_> = all.iter().rev().map(|one| (one.at_ms, one.status)).collect();
        let found: Vec<_> = read.iter().map(|one| (one.at_ms, one.status)).collect();
        assert_eq!(found, expected);
        // The same key of another node is another event, and the highest is one too.
        let other = NewEvent { node: "n2".to_owned(), ..all[0].clone() };
        let highest = NewEvent { key: u64::MAX, ..all[0].clone() };
        store.write_events(vec![other, highest.clone(), highest]).await.expect("keeps");
        assert_eq!(details(&store, EventFilter::default()).await.len(), 9);
    })
    .await;
}

#[tokio::test]
async fn events_are_found_by_what_they_are_about() {
    on_each_database(async |store| {
        let other = NewEvent { node: "n2".to_owned(), ..event(5, "shop", "up", "b:1") };
        let all = vec![
            event(1, "shop", "down", "a:1"),
            event(2, "shop", "up", "a:1"),
            event(3, "blog", "down", "a:1"),
            event(4, "shop", "changed", ""),
            other,
        ];
        store.write_events(all).await.expect("keeps");
        let (any, some) = (EventFilter::default(), |text: &str| Some(text.to_owned()));
        let found = [
            EventFilter { route: some("shop"), ..any.clone() },
            EventFilter { kind: some("down"), ..any.clone() },
            EventFilter { upstream: some("a:1"), route: some("shop"), ..any.clone() },
            EventFilter { kind: some("up"), upstream: some("b:1"), ..any.clone() },
            EventFilter { node: some("n2"), ..any.clone() },
            EventFilter { route: some("none"), ..any },
        ];
        let expected: [&[u8]; 6] = [&[5, 4, 2, 1], &[3, 1], &[2, 1], &[5], &[5], &[]];
        for (filter, keys) in found.into_iter().zip(expected) {
            let keys: Vec<_> = keys.iter().map(|key| format!("event {key}")).collect();
            assert_eq!(details(&store, filter.clone()).await, keys, "{filter:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn texts_from_anywhere_are_kept_as_far_as_they_can_be() {
    on_each_database(async |store| {
        let odd =
            NewEvent { detail: format!("a\0b{}", "ä".repeat(900)), ..event(1, "r", "k", "") };
        store.write_events(vec![odd]).await.expect("keeps");
        let kept = details(&store, EventFilter::default()).await;
        assert_eq!(kept, [format!("a\u{fffd}b{}", "ä".repeat(497))]);
    })
    .await;
}

#[tokio::test]
async fn old_events_and_too_many_are_forgotten_step_by_step() {
    on_each_database(async |store| {
        for part in 0..2 {
            let keys = part * 3_000 + 1..=(part + 1) * 3_000;
            let events = keys.map(|key| event(key, "shop", "down", "")).collect();
            store.write_events(events).await.expect("keeps");
        }
        assert!(!store.forget_events_before(0).await.expect("forgets"), "none is old");
        assert!(!store.forget_events_before(1_001 * 10).await.expect("forgets"), "1,000 are");
        let kept = store.events(&EventFilter::default(), None, 5_000).await.expect("reads");
        assert_eq!((kept.len(), kept.last().expect("one").at_ms), (5_000, 10_010));
        assert!(!store.forget_events(0, 10).await.expect("forgets"), "4,990 are too many");
        let kept = store.events(&EventFilter::default(), None, 5_000).await.expect("reads");
        assert_eq!((kept.len(), kept[0].at_ms), (10, 60_000), "the last ones stay");
        let more = (6_001..=11_000).map(|key| event(key, "shop", "down", "")).collect();
        store.write_events(more).await.expect("keeps");
        assert!(store.forget_events_before(i64::MAX).await.expect("forgets"), "5,000 of 5,010");
        assert!(!store.forget_events_before(i64::MAX).await.expect("forgets"));
        assert_eq!(details(&store, EventFilter::default()).await, Vec::<String>::new());
    })
    .await;
}
