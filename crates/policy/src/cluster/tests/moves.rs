//! Moves: the table of when a key moves, what limits them, and that all nodes agree.

use super::*;
use crate::Decision;

/// A thousand tries, each at a key of its own and long after the last. How many moved.
fn moved_of_a_thousand(scores: &[f64]) -> usize {
    let (view, mut moves, mut chance) = (view(scores), Moves::new(), chance(11));
    let own = (0..).map(key).filter(|&key| view.owner(key) == Some(0)).take(1_000);
    let tries = own
        .enumerate()
        .map(|(turn, key)| moves.consider(&view, key, 0.0, at(turn as u64 * 100_000), &mut chance));
    tries.flatten().count()
}

fn consider(view: &View, moves: &mut Moves, millis: u64) -> Option<Decision<Move>> {
    moves.consider(view, key_of(view, 0), 0.01, at(millis), &mut chance(5))
}

#[test]
fn the_table_of_loads_and_improvements_holds() {
    // Below 0.70 whatever the alternative.
    assert_eq!(moved_of_a_thousand(&[0.69, 0.0]), 0);
    // From 0.70 to 0.90, not better by more than 0.15.
    assert_eq!(moved_of_a_thousand(&[0.75, 0.65]), 0);
    assert_eq!(moved_of_a_thousand(&[0.75, 0.60]), 0);
    assert_eq!(moved_of_a_thousand(&[0.89, 0.80]), 0);
    // Better by 0.15 to 0.30: as likely as it is better.
    let some = moved_of_a_thousand(&[0.75, 0.55]);
    assert!((160..240).contains(&some), "{some}");
    let more = moved_of_a_thousand(&[0.80, 0.51]);
    assert!((250..330).contains(&more), "{more}");
    // By more than 0.30.
    let half = moved_of_a_thousand(&[0.85, 0.35]);
    assert!((450..550).contains(&half), "{half}");
    // From 0.90 on, always; but only to somebody better by the margin.
    assert_eq!(moved_of_a_thousand(&[0.90, 0.50]), 1_000);
    assert_eq!(moved_of_a_thousand(&[0.95, 0.80]), 1_000);
    assert_eq!(moved_of_a_thousand(&[0.95, 0.81]), 0);
    assert_eq!(moved_of_a_thousand(&[1.0, 1.0]), 0);
}

#[test]
fn a_move_says_why_and_everybody_follows_it() {
    let all = members(&[0.95, 0.3, 0.8]);
    let (view, mut moves) = (seen_from(&all, 0, &Moves::new()), Moves::new());
    let moved = consider(&view, &mut moves, 0).expect("breaks");
    assert_eq!(
        moved.reason.to_string(),
        "break: from node-0, to node-1, load 0.950, best 0.300, improvement 0.650, \
         key_share 0.010, movers 2"
    );
    let record = moved.chosen;
    assert_eq!((record.kind, record.version), (Kind::Break, 1));
    for index in 0..3 {
        let mut theirs = Moves::new();
        assert!(theirs.merge(&[record], at(1), &Options::default()));
        assert!(!theirs.merge(&[record], at(1), &Options::default()), "it is known");
        let view = seen_from(&all, index, &theirs);
        let choice = consumer(&view, record.key, &none, &mut chance(1));
        assert_eq!((name_of(&view, choice.place), choice.rule), ("node-1", Rule::Moved));
    }
    // While that node does not serve, the key is with the next of its ranking.
    let mut without = all;
    without[1].draining = true;
    let view = seen_from(&without, 0, &moves);
    assert_eq!(consumer(&view, record.key, &none, &mut chance(3)).owner, Some(0));
}

#[test]
fn only_the_owner_moves_a_key() {
    let view = view(&[0.95, 0.3]);
    let theirs = key_of(&view, 1);
    assert_eq!(Moves::new().consider(&view, theirs, 0.0, at(0), &mut chance(1)), None);
}

#[test]
fn a_key_that_moved_rests() {
    let all = members(&[0.95, 0.3]);
    let mut moves = Moves::new();
    let first = consider(&seen_from(&all, 0, &moves), &mut moves, 0).expect("breaks").chosen;
    // The loads are the other way round now, and node-1 has the key.
    let swapped = members(&[0.3, 0.95]);
    let theirs = seen_from(&swapped, 1, &moves);
    assert_eq!(theirs.owner(first.key), Some(0));
    let again = |moves: &mut Moves, millis| {
        moves.consider(&theirs, first.key, 0.01, at(millis), &mut chance(1))
    };
    assert_eq!(again(&mut moves, 29_999), None);
    let second = again(&mut moves, 30_000).expect("has rested").chosen;
    assert_eq!((second.version, second.node), (2, hash_of("node-0")));
}

#[test]
fn a_key_that_is_most_of_a_nodes_work_does_not_move() {
    let view = view(&[0.95, 0.3]);
    let key = key_of(&view, 0);
    let moved = |share| Moves::new().consider(&view, key, share, at(0), &mut chance(1)).is_some();
    assert!(moved(0.6));
    assert!(!moved(0.7), "0.3 + 0.7 * 0.95 is no better");
    assert!(!moved(1.0));
}

#[test]
fn what_overflows_of_a_key_goes_with_it() {
    let fresh = view(&[0.95, 0.3]);
    let overflowing = after(view(&[0.95, 0.3]), 4);
    assert!(overflowing.overflow(0) > 0.4, "{}", overflowing.overflow(0));
    let moved = |view: &View| {
        Moves::new().consider(view, key_of(view, 0), 0.5, at(9_000), &mut chance(1)).is_some()
    };
    assert!(moved(&fresh), "0.3 + 0.5 * 0.95 is better");
    assert!(!moved(&overflowing), "and as much again is not");
}

#[test]
fn a_node_that_overflows_and_stays_within_its_bound_keeps_its_keys() {
    let scores = [0.75, 0.55, 0.62, 0.62];
    let held = after(view(&scores), 6);
    assert!(held.overflow(0) > 0.0 && held.limit() > 0.75, "{}", held.overflow(0));
    let tries = |view: &View| {
        let (mut moves, mut chance) = (Moves::new(), chance(2));
        let own = (0..).map(key).filter(|&key| view.owner(key) == Some(0)).take(100);
        let found = own.enumerate().filter(|(turn, key)| {
            let now = at(10_000 + *turn as u64 * 10_000);
            moves.consider(view, *key, 0.001, now, &mut chance).is_some()
        });
        found.count()
    };
    assert_eq!(tries(&held), 0);
    assert!(tries(&view(&scores)) > 5);
}

#[test]
fn what_was_moved_counts_before_the_scores_show_it() {
    let (view, mut moves) = (view(&[0.80, 0.2, 0.25]), Moves::new());
    let own: Vec<u64> =
        (0..).map(key).filter(|&key| view.owner(key) == Some(0)).take(1_000).collect();
    let mut chance = chance(3);
    // All within a second and a half, each a twentieth of the node's work.
    let moved = own.iter().enumerate().filter(|(turn, key)| {
        moves.consider(&view, **key, 0.05, at(*turn as u64), &mut chance).is_some()
    });
    let count = moved.count();
    assert!((2..=4).contains(&count), "{count} moves of 0.04 bring it from 0.80 below 0.70");
}

#[test]
fn the_cluster_moves_no_more_than_so_many_a_second() {
    for (scores, each) in [(vec![0.95, 0.2], 10), (vec![0.95, 0.95, 0.95, 0.95, 0.95, 0.2], 2)] {
        let (view, mut moves, mut chance) = (view(&scores), Moves::new(), chance(3));
        let own = (0..).map(key).filter(|&key| view.owner(key) == Some(0)).take(3_000);
        let moved = own.enumerate().filter(|(turn, key)| {
            moves.consider(&view, *key, 0.0, at(*turn as u64), &mut chance).is_some()
        });
        let count = moved.count();
        assert!((3 * each..=3 * each + 1).contains(&count), "{count} in 3 s, of {scores:?}");
    }
}

#[test]
fn a_move_is_forgotten_after_300_seconds_without_use_anywhere() {
    let options = Options::default();
    let mut moves = Moves::new();
    let moved = consider(&view(&[0.95, 0.3]), &mut moves, 0).expect("breaks").chosen;
    assert!(!moves.tend(|_| None, at(0) + TTL, &options));
    // Another node used it meanwhile.
    let used = Move { used_at: at(200_000), ..moved };
    assert!(!moves.merge(&[used], at(300_000), &options), "nobody's owner changes");
    assert!(!moves.tend(|_| None, at(500_000), &options));
    assert!(!moves.tend(|_| Some(at(450_000)), at(500_001), &options), "used here");
    assert!(moves.tend(|_| None, at(750_001), &options));
    assert!(moves.is_empty());
}

#[test]
fn a_clock_that_is_ahead_neither_keeps_a_move_nor_freezes_its_key() {
    let options = Options::default();
    let view = view(&[0.95, 0.3]);
    let ahead = Move {
        key: key_of(&view, 0),
        node: hash_of("node-0"),
        version: 4,
        moved_at: at(1_000_000_000),
        used_at: at(1_000_000_000),
        by: hash_of("node-1"),
        kind: Kind::Migrate,
    };
    let mut moves = Moves::new();
    moves.merge(&[ahead], at(0), &options);
    assert_eq!(consider(&view, &mut moves, 1).expect("breaks").chosen.version, 5);
    moves.merge(&[ahead], at(0), &options);
    assert!(moves.tend(|_| None, at(2) + TTL, &options));
}

#[test]
fn the_table_is_bounded_and_the_least_recently_used_goes() {
    let options = Options { entries_max: 100, ..Options::default() };
    let record = |number: usize| Move {
        key: key(number),
        node: 1,
        version: 1,
        moved_at: at(0),
        used_at: at(number as u64),
        by: 1,
        kind: Kind::Migrate,
    };
    let mut moves = Moves::new();
    for number in 0..1_000 {
        moves.merge(&[record(number)], at(5_000), &options);
        assert!(moves.len() <= 100);
        assert!(moves.get(key(number)).is_some());
    }
    assert!(moves.get(key(899)).is_none() && moves.len() > 90, "{}", moves.len());
}

#[test]
fn after_enough_rounds_everything_has_been_told() {
    let mut moves = Moves::new();
    let records: Vec<Move> = (0..103)
        .map(|number| Move {
            key: key(number),
            node: 1,
            version: 1,
            moved_at: at(0),
            used_at: at(0),
            by: 1,
            kind: Kind::Break,
        })
        .collect();
    moves.merge(&records, at(0), &Options::default());
    let mut theirs = Moves::new();
    for round in 0..11 {
        let told = moves.to_tell(round, 10);
        assert!(told.len() <= 10);
        theirs.merge(&told, at(0), &Options::default());
    }
    assert!(theirs.iter().eq(moves.iter()));
    assert_eq!(Moves::new().to_tell(3, 10), []);
}

proptest! {
    #[test]
    fn merging_is_commutative_idempotent_and_associative(
        one in prop::collection::vec(any_move(), 0..12),
        two in prop::collection::vec(any_move(), 0..12),
        three in prop::collection::vec(any_move(), 0..12),
    ) {
        let merged = |parts: &[&[Move]]| {
            let mut moves = Moves::new();
            for part in parts {
                moves.merge(part, at(2_000), &Options::default());
            }
            moves.iter().copied().collect::<Vec<_>>()
        };
        let all = merged(&[&one, &two, &three]);
        prop_assert_eq!(&merged(&[&three, &one, &two]), &all);
        prop_assert_eq!(&merged(&[&two, &three, &two, &one, &one]), &all);
        let some = merged(&[&two, &three]);
        prop_assert_eq!(&merged(&[&one, &some]), &all);
        prop_assert_eq!(&merged(&[&all, &some]), &all);
    }

    #[test]
    fn the_overrides_are_the_moves(records in prop::collection::vec(any_move(), 0..40)) {
        let mut moves = Moves::new();
        moves.merge(&records, at(2_000), &Options::default());
        let overrides = moves.overrides();
        for number in 0..12 {
            let moved = moves.get(key(number)).map(|one| one.node);
            prop_assert_eq!(overrides.node_of(key(number)), moved);
        }
    }

    #[test]
    fn a_move_goes_to_one_that_serves_and_is_better_by_its_margin(
        members in any_members(), seed: u64, share in prop::num::f64::ANY,
        steps in prop::collection::vec((0_usize..30, 0_u64..3_000), 1..60),
    ) {
        let (mut moves, mut chance, mut millis) = (Moves::new(), chance(seed), 0);
        let mut last: std::collections::BTreeMap<u64, u64> = Default::default();
        for (number, step) in steps {
            millis += step;
            let view = seen_from(&members, 0, &moves);
            let Some(moved) = moves.consider(&view, key(number), share, at(millis), &mut chance)
            else { continue };
            let target = view.members().iter().find(|one| one.hash == moved.chosen.node);
            let target = target.expect("is a member");
            prop_assert!(target.serves());
            let (load, better) = (view.here().score, view.here().score - target.score);
            // Unseen moves make this node's load count for less and the target's for more.
            prop_assert!(load >= 0.70 && better >= 0.15 - 1e-9, "{} by {}", load, better);
            prop_assert!(moved.chosen.kind == Kind::Migrate || load >= 0.90);
            let before = last.insert(moved.chosen.key, millis);
            prop_assert!(before.is_none_or(|before| millis - before >= 30_000));
        }
    }
}
