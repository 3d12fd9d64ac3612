//! Dead letters: finding and deleting them.

use crate::kit::*;
use skep_policy::queues::Verdict;
use skep_queues::record::Records;
use skep_queues::store::*;

on_each_store!(
    letters_are_found_by_everything_that_is_asked,
    pages_of_letters_go_on_before_an_id,
    a_letter_is_found_by_its_id,
    letters_are_deleted_by_what_is_asked_and_no_more,
    letters_deleted_by_two_are_counted_once,
);

const UUID: &str = "0190d8ae-2222-7000-8000-000000000002";

/// Letters of two queues and three partitions, for two groups.
async fn fill(store: &Store) {
    let messages = [("q", "a", "1"), ("q", "b", UUID), ("r", "a", "\u{1}x"), ("q", "a", "long")];
    for (place, (queue, partition, name)) in messages.into_iter().enumerate() {
        store.push(&[(queue, partition, name)]).await;
        let group = ["one", "two"][place % 2];
        let job = ClaimJob { group: group.into(), ..from_partition(queue, partition) };
        let got = store.pop(job).await;
        let error = format!("failure {place}: 100% of _it_");
        let word = SettleItem { error: Some(error.into()), ..got.word(name, Verdict::Dead) };
        store.settle_for(group, vec![word]).await;
    }
}

fn any() -> DeadFilter {
    DeadFilter { limit: 100, ..DeadFilter::default() }
}

fn name(letter: &DeadLetter) -> String {
    let record = Records::of(&letter.record).next().expect("one").expect("whole");
    record.transaction.into_owned()
}

async fn find(store: &Store, filter: DeadFilter) -> (Vec<String>, u64) {
    let found = store.dead_letters(filter).await;
    (found.letters.iter().map(name).collect(), found.total)
}

async fn letters_are_found_by_everything_that_is_asked(place: Place) {
    let store = place.open().await;
    fill(&store).await;
    let all = store.dead_letters(any()).await;
    let ids: Vec<i64> = all.letters.iter().map(|letter| letter.id).collect();
    assert!(ids.is_sorted_by(|one, next| one > next), "newest first");
    let times: Vec<_> = all.letters.iter().map(|letter| letter.failed_at).collect();
    let later = times[2] + std::time::Duration::from_nanos(1);
    let text = |text: &str| Some(text.into());
    let found = [
        (any(), "long \u{1}x uuid 1"),
        (DeadFilter { transaction: text("1"), ..any() }, "1"),
        (DeadFilter { transaction: text(UUID), ..any() }, "uuid"),
        (DeadFilter { transaction: text("\u{1}x"), ..any() }, "\u{1}x"),
        (DeadFilter { transaction: text(&UUID.to_uppercase()), ..any() }, ""),
        (DeadFilter { transaction: text("lon"), ..any() }, ""),
        (DeadFilter { transaction: text(""), ..any() }, ""),
        (DeadFilter { error: text("failure"), ..any() }, "long \u{1}x uuid 1"),
        (DeadFilter { error: text("2: 100% of _"), ..any() }, "\u{1}x"),
        (DeadFilter { error: text("100_ of"), ..any() }, ""),
        (DeadFilter { ids: Some(vec![ids[1], ids[3], 0]), ..any() }, "\u{1}x 1"),
        (DeadFilter { ids: Some(Vec::new()), ..any() }, ""),
        (DeadFilter { partition: text("a"), ..any() }, "long \u{1}x 1"),
        (DeadFilter { partition: text("a"), ..of_queue("q") }, "long 1"),
        (DeadFilter { group: text("two"), ..any() }, "long uuid"),
        (DeadFilter { from: Some(times[1]), ..any() }, "long \u{1}x"),
        (DeadFilter { to: Some(times[1]), ..any() }, "uuid 1"),
        (DeadFilter { from: Some(later), ..any() }, "long \u{1}x"),
        (DeadFilter { to: Some(later), ..any() }, "uuid 1"),
        (DeadFilter { from: Some(times[2]), to: Some(times[0]), ..of_queue("q") }, "uuid"),
    ];
    for (filter, expected) in found {
        let (names, total) = find(&store, filter.clone()).await;
        let names = names.join(" ").replace(UUID, "uuid");
        assert_eq!(names, expected, "{filter:?}");
        let count = expected.split(' ').filter(|one| !one.is_empty()).count() as u64;
        assert_eq!(total, count, "{filter:?}");
    }
}

async fn pages_of_letters_go_on_before_an_id(place: Place) {
    let store = place.open().await;
    fill(&store).await;
    let mut names = Vec::new();
    let mut before = None;
    loop {
        let page = store.dead_letters(DeadFilter { before, limit: 1, ..of_queue("q") }).await;
        assert_eq!(page.total, 3, "whatever the page");
        let Some(letter) = page.letters.first() else { break };
        names.push(name(letter));
        before = Some(letter.id);
    }
    assert_eq!(names, ["long", UUID, "1"]);
    let offset = DeadFilter { offset: 2, limit: 5, ..of_queue("q") };
    assert_eq!(find(&store, offset).await, (vec!["1".to_owned()], 3));
}

async fn a_letter_is_found_by_its_id(place: Place) {
    let store = place.open().await;
    fill(&store).await;
    let whole = store.whole();
    for letter in store.dead_letters(any()).await.letters {
        let found = whole.dead_letter(letter.id).await.expect("reads").expect("is there");
        assert_eq!((found.id, name(&found)), (letter.id, name(&letter)));
    }
    assert!(whole.dead_letter(0).await.expect("reads").is_none());
    assert!(whole.dead_letter(i64::MAX).await.expect("reads").is_none());
}

async fn letters_are_deleted_by_what_is_asked_and_no_more(place: Place) {
    let store = place.open().await;
    fill(&store).await;
    let whole = store.whole();
    let dead = async |queue| store.show(queue).await.expect("is there").summary.dead;
    assert_eq!(whole.delete_dead(of_queue("none"), 100).await.expect("looks"), 0);
    assert_eq!(whole.delete_dead(of_queue("q"), 0).await.expect("looks"), 0);
    assert_eq!(whole.delete_dead(of_queue("q"), 1).await.expect("deletes"), 1);
    assert_eq!(find(&store, of_queue("q")).await, (vec![UUID.to_owned(), "1".to_owned()], 2));
    assert_eq!((dead("q").await, dead("r").await), (2, 1));
    let ids = store.dead_letters(of_queue("q")).await.letters.iter().map(|one| one.id).collect();
    let filter = DeadFilter { ids: Some(ids), ..DeadFilter::default() };
    assert_eq!(whole.delete_dead(filter.clone(), 100).await.expect("deletes"), 2);
    assert_eq!(whole.delete_dead(filter, 100).await.expect("looks"), 0);
    assert_eq!((dead("q").await, dead("r").await), (0, 1));
    assert_eq!(whole.delete_dead(any(), u64::MAX).await.expect("deletes"), 1);
    assert_eq!(store.dead_letters(any()).await.total, 0);
}

async fn letters_deleted_by_two_are_counted_once(place: Place) {
    let store = place.open().await;
    let other = if place.shared_by_many() { place.open().await } else { store.clone() };
    let messages: Vec<_> = (0..1_200).map(|one| message("q", "p", &one.to_string())).collect();
    store.try_push(messages).await.expect("is kept");
    let got = store.pop(ClaimJob { batch: 1_200, ..from("q") }).await;
    let words = got.names().into_iter().map(|name| got.word(&name, Verdict::Dead)).collect();
    store.settle(words).await;
    let (one, two) = (store.whole(), other.whole());
    let (one, two) =
        tokio::join!(one.delete_dead(of_queue("q"), 600), two.delete_dead(of_queue("q"), 2_000));
    let gone = one.expect("deletes") + two.expect("deletes");
    let left = store.dead_letters(of_queue("q")).await.total;
    assert_eq!(gone + left, 1_200);
    assert_eq!(store.show("q").await.expect("is there").summary.dead, left);
}
