//! Here or there: the order of the decision, and what no decision may ever do.

use super::*;

/// How many of a thousand requests for the key go to each member.
fn spread(view: &View, key: u64, traffic: &impl Traffic) -> Vec<u32> {
    let mut counts = vec![0; view.members().len()];
    let mut chance = chance(7);
    for _ in 0..1_000 {
        counts[consumer(view, key, traffic, &mut chance).place.index()] += 1;
    }
    counts
}

#[test]
fn a_node_alone_serves_everything() {
    let view = view(&[1.0]);
    let choice = consumer(&view, key(1), &none, &mut chance(1));
    assert_eq!((choice.place, choice.rule), (Place::Here, Rule::Alone));
    let choice = producer(&view, &|_| 1, &none, &mut chance(1));
    assert_eq!((choice.place, choice.rule), (Place::Here, Rule::Alone));
}

#[test]
fn the_owner_serves_though_here_is_as_good() {
    // Within a tenth of each other, where a preference for here would undo every affinity.
    let view = view(&[0.40, 0.45, 0.42]);
    for index in 0..3 {
        let key = key_of(&view, index);
        let choice = consumer(&view, key, &none, &mut chance(1));
        assert_eq!((choice.place, choice.rule), (Place::of(index), Rule::Owner));
        assert_eq!(spread(&view, key, &none)[index], 1_000);
    }
}

#[test]
fn on_a_nearly_idle_cluster_nothing_overflows() {
    let view = after(view(&[0.01, 0.19, 0.0, 0.0]), 60);
    assert!((0..4).all(|index| view.overflow(index) == 0.0));
    assert_eq!(view.limit(), 0.2);
    assert_eq!(spread(&view, key_of(&view, 1), &none)[1], 1_000);
}

#[test]
fn within_the_bound_nothing_overflows_and_beyond_it_more_and_more() {
    let within = after(view(&[0.5, 0.55, 0.5]), 60);
    assert_eq!(within.overflow(1), 0.0);
    let first = after(view(&[0.3, 0.6, 0.3]), 2);
    let later = after(view(&[0.3, 0.6, 0.3]), 4);
    assert!(first.overflow(1) > 0.0 && later.overflow(1) > first.overflow(1));
    assert_eq!([first.overflow(0), first.overflow(2)], [0.0, 0.0]);
    assert!((first.mean() - 0.4).abs() < 1e-9 && (first.limit() - 0.5).abs() < 1e-9);
    let key = key_of(&later, 1);
    let counts = spread(&later, key, &none);
    let expected = 1_000.0 * (1.0 - later.overflow(1));
    assert!((f64::from(counts[1]) - expected).abs() < 60.0, "{counts:?}");
    assert_eq!(counts[2], 0, "here is as good as the next, and saves the way: {counts:?}");
}

#[test]
fn what_overflows_leaves_here_only_for_somebody_better_by_more_than_a_tenth() {
    let rule = |here: f64, next: f64| {
        let view = after(view(&[here, 0.85, next]), 5);
        assert!(view.overflow(1) > 0.2, "{}", view.overflow(1));
        let key = key_of(&view, 1);
        let counts = spread(&view, key, &none);
        (counts[0] > 0, counts[2] > 0)
    };
    assert_eq!(rule(0.40, 0.40), (true, false));
    assert_eq!(rule(0.40, 0.305), (true, false));
    assert_eq!(rule(0.40, 0.295), (false, true));
}

#[test]
fn nobody_takes_over_who_has_clearly_more_to_do_than_the_owner() {
    let before = after(view(&[0.3, 0.6, 0.3]), 6);
    let counts = |scores: &[f64]| {
        let mut others = members(scores);
        let here = others.remove(0);
        let overrides = before.overrides().clone();
        let options = Options::default();
        let view = View::new(here, others, overrides, Some(&before), at(7_000), &options);
        assert!(view.overflow(1) > 0.1, "{}", view.overflow(1));
        spread(&view, key_of(&view, 1), &none)
    };
    assert_eq!(counts(&[0.75, 0.6, 0.75]), [0, 1_000, 0]);
    let little = counts(&[0.65, 0.6, 0.65]);
    assert!(little[0] > 100 && little[2] == 0, "{little:?}");
}

#[test]
fn requests_that_the_heartbeats_do_not_show_yet_count() {
    let view = view(&[0.3, 0.8, 0.3]);
    let key = key_of(&view, 1);
    assert_eq!(spread(&view, key, &none)[1], 1_000);
    // 40 more are 0.16 more: 0.96, beyond the threshold of 0.90.
    let counts = spread(&view, key, &|index| if index == 1 { 40 } else { 0 });
    assert!((300..500).contains(&counts[1]), "{counts:?}");
    // Those that were under way when the sample came are in it.
    let mut members = members(&[0.3, 0.8, 0.3]);
    members[1].in_flight = 40;
    let view = seen_from(&members, 0, &Moves::new());
    assert_eq!(spread(&view, key, &|index| if index == 1 { 40 } else { 0 })[1], 1_000);
}

#[test]
fn what_overflows_passes_by_those_who_have_too_much_themselves() {
    let mut scores = vec![0.3; 20];
    (scores[0], scores[1]) = (0.6, 0.8);
    let key = key_of(&view(&scores), 1);
    let next_of = |scores: &[f64]| {
        let counts = spread(&after(view(scores), 3), key, &none);
        assert!(counts[1] > 300 && counts[0] == 0, "{counts:?}");
        let used: Vec<usize> = (2..20).filter(|&index| counts[index] > 0).collect();
        assert_eq!(used.len(), 1, "{counts:?}");
        used[0]
    };
    let first = next_of(&scores);
    scores[first] = 0.79;
    let second = next_of(&scores);
    assert_ne!(first, second);
}

#[test]
fn requests_on_their_way_make_what_overflows_take_turns() {
    let mut scores = vec![0.3; 20];
    (scores[0], scores[1]) = (0.6, 0.8);
    let view = after(view(&scores), 3);
    let key = key_of(&view, 1);
    let (mut sent, mut chance) = (vec![0_u32; 20], chance(3));
    for _ in 0..200 {
        let place = consumer(&view, key, &|index: usize| sent[index], &mut chance).place;
        sent[place.index()] += u32::from(place.index() > 1);
    }
    let used: Vec<u32> = sent.into_iter().filter(|count| *count > 0).collect();
    assert!(used.len() == 2 && used[0].abs_diff(used[1]) <= 1, "{used:?}");
}

#[test]
fn among_near_equals_the_own_zone_is_preferred() {
    let mut members = members(&[0.75, 0.8, 0.35, 0.30, 0.35]);
    for (member, zone) in members.iter_mut().zip(["x", "y", "x", "y", "x"]) {
        member.zone = zone.into();
    }
    let view = seen_from(&members, 0, &Moves::new());
    let waiting = |index| u32::from(index == 2 || index == 3);
    for seed in 0..20 {
        let choice = producer(&view, &waiting, &none, &mut chance(seed));
        assert_eq!((choice.place, choice.rule), (Place::There(2), Rule::ConsumersThere));
    }
}

#[test]
fn writes_go_where_consumers_wait_and_stay_if_some_wait_here_or_none_anywhere() {
    let view = view(&[0.5, 0.1, 0.2]);
    let place = |waiting: [u32; 3]| {
        let choice = producer(&view, &|index| waiting[index], &none, &mut chance(3));
        (choice.place, choice.rule)
    };
    assert_eq!(place([0, 0, 0]), (Place::Here, Rule::NoConsumers));
    assert_eq!(place([1, 1, 1]), (Place::Here, Rule::ConsumersHere));
    assert_eq!(place([0, 1, 0]), (Place::There(1), Rule::ConsumersThere));
    assert_eq!(place([0, 0, 1]), (Place::There(2), Rule::ConsumersThere));
    assert_eq!(place([0, 1, 1]), (Place::There(1), Rule::ConsumersThere));
    // Several queues are never split.
    assert_eq!(place([2, 1, 3]), (Place::There(2), Rule::ConsumersThere));
    assert_eq!(place([3, 1, 3]), (Place::Here, Rule::ConsumersHere));
}

#[test]
fn writes_stay_here_if_the_consumers_node_is_nearly_lost() {
    let waiting = |index: usize| u32::from(index == 1);
    let rule = |scores: &[f64]| producer(&view(scores), &waiting, &none, &mut chance(1)).rule;
    assert_eq!(rule(&[0.5, 0.95]), Rule::ConsumersOverloaded);
    assert_eq!(rule(&[0.9, 0.95]), Rule::ConsumersThere);
    assert_eq!(rule(&[0.5, 0.89]), Rule::ConsumersThere);
}

#[test]
fn a_request_that_failed_goes_to_the_next_and_at_last_stays_here() {
    let view = view(&[0.2, 0.2, 0.2]);
    let key = (0..).map(key).find(|&key| {
        let order = |tried: &[usize]| {
            consumer(&view, key, &Avoiding { traffic: &none, tried }, &mut chance(1)).place
        };
        order(&[]) == Place::There(1) && order(&[1]) == Place::There(2)
    });
    let key = key.expect("there is one");
    let tried = [1, 2];
    let traffic = Avoiding { traffic: &none, tried: &tried };
    let last = consumer(&view, key, &traffic, &mut chance(1));
    assert_eq!(last.place, Place::Here);
    let tried = [0, 1, 2];
    let traffic = Avoiding { traffic: &none, tried: &tried };
    let last = consumer(&view, key, &traffic, &mut chance(1));
    assert_eq!((last.place, last.rule), (Place::Here, Rule::NobodyLeft));
}

#[test]
fn a_draining_node_sends_everything_away_and_gets_nothing() {
    let mut members = members(&[0.1, 0.9, 0.8]);
    members[0].draining = true;
    let view = seen_from(&members, 0, &Moves::new());
    for number in 0..200 {
        assert_ne!(spread(&view, key(number), &none)[0], 1_000);
        assert_eq!(spread(&view, key(number), &none)[0], 0);
    }
    let write = producer(&view, &|index| u32::from(index == 0), &none, &mut chance(1));
    assert_eq!((write.place, write.rule), (Place::There(2), Rule::HereDraining));
}

#[test]
fn an_explanation_has_the_same_place_and_the_numbers() {
    let mut members = members(&[0.4, 0.8, 0.2, 0.3, 0.1]);
    members[3].draining = true;
    members[4].alive = false;
    let view = after(seen_from(&members, 0, &Moves::new()), 5);
    for number in 0..50 {
        let (key, seed) = (key(number), number as u64);
        let told = explain_consumer(&view, key, &none, &mut chance(seed));
        let done = consumer(&view, key, &none, &mut chance(seed));
        assert_eq!((told.chosen, told.reason.rule), (done.place, done.rule.as_str()));
    }
    let key = key_of(&view, 2);
    let told = explain_consumer(&view, key, &none, &mut chance(1)).reason.to_string();
    assert_eq!(
        told,
        "owner: owner node-2, owner_load 0.200, overflows 0.000, chosen_load 0.200, \
         here_load 0.400, better_by_more_than 0.100, mean 0.467, limit 0.583, members 5, \
         serving 3; not node-0 (further-in-ranking), node-1 (further-in-ranking), \
         node-3 (draining), node-4 (dead)"
    );
    let waiting = |index: usize| [0, 2, 1, 0, 0][index];
    let told = explain_producer(&view, &waiting, &none, &mut chance(1));
    assert_eq!(told.chosen, Place::There(1));
    let told = told.reason.to_string();
    assert!(told.starts_with("consumers-there: queues_waited_for 2, "), "{told}");
    assert!(told.contains("not node-0 (no-consumers), node-2 (fewer-consumers)"), "{told}");
}

proptest! {
    #[test]
    fn no_decision_names_one_that_does_not_serve_while_another_does(
        members in any_members(), records in prop::collection::vec(any_move(), 0..9),
        seed: u64, numbers in prop::collection::vec(0_usize..6, 1..9), busy in 0_u32..300,
    ) {
        let mut moves = Moves::new();
        moves.merge(&records, at(1_000), &Options::default());
        let view = after(seen_from(&members, 0, &moves), 3);
        let somebody = view.members().iter().any(Member::serves);
        let (mut chance, traffic) = (chance(seed), |index: usize| busy * (index as u32 % 3));
        for number in numbers {
            let choice = consumer(&view, key(number), &traffic, &mut chance);
            let served = view.members()[choice.place.index()].serves();
            prop_assert!(served || (!somebody && choice.place == Place::Here), "{:?}", choice);
            let waiting = |index: usize| (index * number) as u32 % 4;
            let choice = producer(&view, &waiting, &traffic, &mut chance);
            let served = view.members()[choice.place.index()].serves();
            prop_assert!(served || (!somebody && choice.place == Place::Here), "{:?}", choice);
        }
    }

    #[test]
    fn the_same_members_give_the_same_owner_on_every_node(
        members in any_members(), records in prop::collection::vec(any_move(), 0..9),
        number in 0_usize..6,
    ) {
        // Breakers are each node's own; what all share is who is alive and who drains.
        let shared: Vec<Member> = members
            .into_iter()
            .map(|one| Member { alive: true, admitted: true, ..one })
            .collect();
        let (mut moves, mut reversed) = (Moves::new(), Moves::new());
        moves.merge(&records, at(1_000), &Options::default());
        let backwards: Vec<Move> = records.into_iter().rev().collect();
        reversed.merge(&backwards, at(1_000), &Options::default());
        let owner = |view: &View| {
            view.owner(key(number)).map(|index| view.members()[index].name.clone())
        };
        let first = owner(&seen_from(&shared, 0, &moves));
        for index in 0..shared.len() {
            prop_assert_eq!(&owner(&seen_from(&shared, index, &reversed)), &first);
        }
    }

    #[test]
    fn removing_a_node_moves_only_its_keys(count in 2_usize..12, gone in 1_usize..12) {
        let mut all = members(&vec![0.3; count]);
        let before = seen_from(&all, 0, &Moves::new());
        let gone = 1 + gone % (count - 1).max(1);
        all[gone].alive = false;
        let now = seen_from(&all, 0, &Moves::new());
        for number in 0..200 {
            let (was, is) = (before.owner(key(number)), now.owner(key(number)));
            prop_assert!(is != Some(gone));
            prop_assert!(was == is || was == Some(gone), "{:?} -> {:?}", was, is);
        }
    }

    #[test]
    fn nothing_is_forwarded_but_to_the_owner_or_one_better_by_more_than_a_tenth(
        members in any_members(), number in 0_usize..50, seed: u64, busy in 0_u32..300,
    ) {
        let view = after(seen_from(&members, 0, &Moves::new()), 4);
        let traffic = |index: usize| busy * (index as u32 % 2);
        let choice = consumer(&view, key(number), &traffic, &mut chance(seed));
        if let Place::There(index) = choice.place {
            let better = view.effective(index, &traffic) + 0.1 < view.effective(0, &traffic);
            let owner = choice.owner == Some(index);
            prop_assert!(owner || better || !view.here().serves(), "{:?}", choice);
        }
    }

    #[test]
    fn the_overflowing_part_stays_a_part(members in any_members(), seconds in 0_u64..40) {
        let view = after(seen_from(&members, 0, &Moves::new()), seconds);
        for index in 0..members.len() {
            prop_assert!((0.0..=0.98).contains(&view.overflow(index)));
        }
        prop_assert!((0.0..=1.0).contains(&view.mean()));
    }
}
