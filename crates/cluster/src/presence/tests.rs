//! Consumers come, go and are told.

use super::*;
use crate::wire::Groups;
use proptest::prelude::*;
use skep_testkit::FakeClock;

const ROOM: usize = 200;

fn presence(name: &str) -> (Presence, Arc<FakeClock>) {
    let clock = Arc::new(FakeClock::at(Time::from_millis(1_000_000)));
    (Presence::new(name, PresenceOptions::default(), clock.clone()), clock)
}

fn line(queue: &str, groups: &[u32]) -> Line {
    Line { queue: queue.into(), groups: Groups::of(groups.to_vec()) }
}

fn nodes(presence: &Presence, queue: &str) -> Vec<String> {
    presence.nodes_with(queue).iter().map(ToString::to_string).collect()
}

/// The digest of everything, told or not.
fn digest(presence: &Presence) -> u64 {
    presence.lock().here.digest()
}

/// Tells `to` all pages of `from`, except those for which `is_lost`.
fn tell_pages(from: &Presence, to: &Presence, mut is_lost: impl FnMut() -> bool) {
    let mut next = Some(0);
    while let Some(first) = next {
        let page = from.page(first, ROOM);
        next = page.next;
        if !is_lost() {
            to.replace(&from.inner.here.name, page);
        }
    }
}

#[test]
fn a_pop_that_ends_and_comes_back_in_a_moment_is_no_change() {
    let (here, clock) = presence("a");
    drop(here.register("orders", "mail"));
    assert_eq!(here.take_changes().expect("few").1.len(), 1);
    clock.advance(Duration::from_secs(4));
    here.sweep();
    let waiting = here.register("orders", "mail");
    clock.advance(Duration::from_secs(60));
    here.sweep();
    assert_eq!(here.take_changes(), Some((1, vec![])));
    assert_eq!(nodes(&here, "orders"), ["a"]);

    drop(waiting);
    clock.advance(Duration::from_millis(4_999));
    here.sweep();
    assert_eq!(nodes(&here, "orders"), ["a"]);
    clock.advance(Duration::from_millis(1));
    here.sweep();
    assert_eq!(here.take_changes(), Some((2, vec![line("orders", &[])])));
    assert!(nodes(&here, "orders").is_empty() && here.list(9) == (vec![], 0));
}

#[test]
fn a_digest_is_that_of_what_was_told() {
    let (here, _) = presence("a");
    let waiting = here.register("orders", "mail");
    assert_eq!(here.told(), (0, 0));
    here.take_changes();
    assert_eq!(here.told(), (digest(&here), 1));
    drop(waiting);
}

#[test]
fn a_group_counts_once_however_many_wait_and_until_the_last_has_gone() {
    let (here, clock) = presence("a");
    let both = [here.register("orders", "mail"), here.register("orders", "mail")];
    let other = here.register("orders", "audit");
    assert_eq!(here.groups_of("orders"), 2);
    let [first, second] = both;
    drop((first, other));
    clock.advance(Duration::from_secs(9));
    here.sweep();
    assert_eq!(here.groups_of("orders"), 1);
    drop(second);
    clock.advance(Duration::from_secs(9));
    here.sweep();
    assert_eq!(here.groups_of("orders"), 0);
}

#[test]
fn groups_are_the_same_wherever_they_wait() {
    let (here, _) = presence("a");
    let b: Arc<str> = "b".into();
    let waiting: Vec<Waiting> =
        (0..8).map(|group| here.register("orders", &format!("g{group}"))).collect();
    let print = |group: u32| xxh3_64(format!("g{group}").as_bytes()) as u32;
    here.apply(&b, 1, vec![line("orders", &[print(6), print(7), print(8)])]);
    assert_eq!(here.groups_of("orders"), 9);
    assert_eq!(nodes(&here, "orders"), ["a", "b"]);
    let here_and_there = here.look("orders", |held| (held.here, held.others.len()));
    assert_eq!(here_and_there, Some((true, 1)));
    let many: Vec<u32> = (0..100).collect();
    here.apply(&b, 2, vec![line("orders", &many)]);
    assert_eq!(here.groups_of("orders"), 100);
    drop(waiting);
}

#[test]
fn what_was_said_later_stays_although_it_was_heard_earlier() {
    let (here, _) = presence("a");
    let b: Arc<str> = "b".into();
    here.apply(&b, 5, vec![line("orders", &[1, 2])]);
    here.apply(&b, 4, vec![line("orders", &[1])]);
    assert_eq!(here.groups_of("orders"), 2);
    here.apply(&b, 6, vec![line("orders", &[])]);
    assert!(nodes(&here, "orders").is_empty());
}

#[test]
fn whatever_was_lost_the_next_pages_heal() {
    let (from, _) = presence("b");
    let (to, _) = presence("a");
    let mut waiting: Vec<Waiting> =
        (0..100).map(|queue| from.register(&format!("queue-{queue}"), "g")).collect();
    let mut count = 0;
    tell_pages(&from, &to, || {
        count += 1;
        count % 3 == 0
    });
    assert!(count > 5, "several pages: {count}");
    assert!(!to.agrees("b", digest(&from)));
    waiting.push(from.register("queue-0", "another"));
    tell_pages(&from, &to, || false);
    assert!(to.agrees("b", digest(&from)));
    assert_eq!(to.list(1_000).1, 100);
    assert_eq!(to.groups_of("queue-0"), 2);
    to.forget("b");
    assert_eq!(to.list(1_000).1, 0);
    assert!(to.agrees("b", 0));
}

#[test]
fn an_empty_node_is_told_as_one_empty_page() {
    let (from, _) = presence("b");
    let (to, _) = presence("a");
    to.apply(&"b".into(), 0, vec![line("gone", &[1])]);
    tell_pages(&from, &to, || false);
    assert!(nodes(&to, "gone").is_empty());
}

#[test]
fn queues_beyond_the_limit_are_not_told_and_counted() {
    let clock = Arc::new(FakeClock::at(Time::ZERO));
    let options = PresenceOptions { queues_max: 32, ..PresenceOptions::default() };
    let here = Presence::new("a", options, clock);
    let waiting: Vec<Waiting> =
        (0..1_000).map(|queue| here.register(&format!("queue-{queue}"), "g")).collect();
    let told = here.list(0).1 as u64;
    assert!(told <= 32 && told + here.uncounted() == 1_000);
    let lines = (0..1_000).map(|queue| line(&format!("other-{queue}"), &[1])).collect();
    here.apply(&"b".into(), 1, lines);
    assert_eq!(here.list(0).1 as u64, told + 32);
    drop(waiting);
    let too_long = here.register(&"x".repeat(QUEUE_MAX + 1), "g");
    assert_eq!(here.uncounted(), 1_001 - told);
    drop(too_long);
}

#[test]
fn more_changes_than_can_be_told_one_by_one_are_told_as_pages() {
    let (here, _) = presence("a");
    let waiting: Vec<Waiting> =
        (0..2_000).map(|queue| here.register(&format!("queue-{queue}"), "g")).collect();
    assert_eq!(here.take_changes(), None);
    assert_eq!(here.take_changes().map(|(_, lines)| lines), Some(vec![]));
    drop(waiting);
}

proptest! {
    #[test]
    fn pages_cover_every_hash_once_and_make_two_nodes_equal(
        ours in prop::collection::btree_map("[a-z]{1,3}", 1..20_u32, 0..60),
        stale in prop::collection::btree_map("[a-z]{1,3}", 1..20_u32, 0..60),
        room in 100..600_usize,
    ) {
        let mut table = Table::default();
        for (queue, groups) in &ours {
            table.set(line(queue, &Vec::from_iter(0..*groups)));
        }
        let mut copy = Table::default();
        let old = stale.iter().map(|(queue, groups)| line(queue, &Vec::from_iter(0..*groups)));
        copy.apply(0, old.collect(), usize::MAX);
        let mut next = Some(0);
        let mut covered = None;
        while let Some(first) = next {
            let page = table.page(first, room);
            prop_assert_eq!(page.first, covered.map_or(0, |last: u64| last + 1));
            covered = Some(page.last);
            next = page.next;
            copy.replace(page.number, page.first..=page.last, page.lines, usize::MAX);
        }
        prop_assert_eq!(covered, Some(u64::MAX));
        prop_assert_eq!(copy.digest(), table.digest());
        prop_assert_eq!(copy.len(), ours.len());
    }

    #[test]
    fn the_view_is_what_the_tables_say(
        steps in prop::collection::vec((0..3_usize, 0..6_usize, 0..4_u32), 0..60),
    ) {
        let (here, _) = presence("a");
        let names: [Arc<str>; 3] = ["b".into(), "c".into(), "d".into()];
        let mut model: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for (number, (node, queue, groups)) in steps.into_iter().enumerate() {
            let line = line(&format!("q{queue}"), &Vec::from_iter(0..groups));
            here.apply(&names[node], number as u64, vec![line]);
            model.insert((node, queue), groups);
            if number % 17 == 16 {
                here.forget(&names[node]);
                model.retain(|(of, _), _| *of != node);
            }
        }
        for queue in 0..6 {
            let of = |node: &usize| model.get(&(*node, queue)).is_some_and(|groups| *groups > 0);
            let expected: Vec<&str> = (0..3).filter(of).map(|node| &*names[node]).collect();
            prop_assert_eq!(nodes(&here, &format!("q{queue}")), expected);
            let most = (0..3).filter_map(|node| model.get(&(node, queue))).max();
            prop_assert_eq!(here.groups_of(&format!("q{queue}")), most.copied().unwrap_or(0));
        }
    }
}
