//! Runs that once went wrong, written out move by move, and any others that chance comes up with.

use proptest::prelude::*;
use skep_policy::pools::Tier;
use skep_sim::pools::{Ending, How, Move, Outcome, play};

/// Only what the engine asks for, and no helper that is always there.
const PLAIN: u64 = 0;
/// One helper is always there.
const KEPT_HELPER: u64 = 1;
/// The engine is driven as threads drive it.
const OBLIGING: u64 = 2;
/// There is no place for other helpers.
const NO_MORE_HELPERS: u64 = 4;
/// Seeds that differ by this differ in nothing but chance.
const SHAPES: u64 = 8;

const fn task(tier: Tier) -> Move {
    Move::Submit { tier, key: None, idempotent: false, listens: false, cancellable: false }
}

const fn keyed(tier: Tier) -> Move {
    Move::Submit { tier, key: Some(0), idempotent: false, listens: false, cancellable: false }
}

/// Until whoever hangs has been given up.
const GIVEN_UP: Move = Move::Wait(150);
/// Until a start that failed has been tried again, however often it failed.
const TRIED_AGAIN: Move = Move::Wait(6_000);

fn plays(seed: u64, moves: &[Move], ending: Ending) -> Outcome {
    let outcome = play(seed, moves, ending);
    assert!(outcome.ok, "{:#?}", outcome.failures);
    assert_eq!(outcome.figures["accepted"], outcome.figures["ended"]);
    outcome
}

#[test]
fn a_task_that_waits_for_its_key_counts_against_the_queue() {
    // One runs and has the key, four fill the queue, and the sixth would wait beside it.
    let mut moves = vec![keyed(Tier::Low)];
    moves.extend([task(Tier::Low); 4]);
    moves.push(keyed(Tier::Low));
    let outcome = plays(NO_MORE_HELPERS, &moves, Ending::Rest);
    assert_eq!(outcome.figures["accepted"], 5.0);
}

#[test]
fn a_thread_that_dies_after_it_was_given_up_leaves_its_processor() {
    plays(PLAIN, &[task(Tier::Normal), GIVEN_UP, Move::End(0, How::Dies)], Ending::Rest);
}

#[test]
fn a_worker_that_dies_at_rest_is_not_woken_for_work() {
    for seat in 0..6 {
        let moves = [Move::Wait(20), Move::Kill(seat), task(Tier::High), task(Tier::Low)];
        plays(PLAIN, &moves, Ending::Rest);
    }
}

#[test]
fn all_workers_that_are_missing_come_back_when_threads_can_be_started_again() {
    let mut moves = vec![Move::Wait(20), Move::Starts(false)];
    moves.extend((0..20).map(Move::Kill));
    moves.extend([Move::Starts(true), TRIED_AGAIN]);
    plays(PLAIN, &moves, Ending::Rest);
    plays(KEPT_HELPER, &moves, Ending::Rest);
}

#[test]
fn a_helper_that_is_always_there_is_replaced_when_it_dies() {
    let mut moves = vec![Move::Wait(20)];
    moves.extend((0..20).map(Move::Kill));
    plays(KEPT_HELPER, &moves, Ending::Rest);
}

#[test]
fn the_background_does_not_take_the_place_of_a_helper_that_is_always_there() {
    // The helper dies while no thread can be started. A tenth of a second later it may be tried
    // again, and in that instant, before the timer looks, the background wants help.
    let normal = task(Tier::Normal);
    let dies = [Move::Wait(20), Move::Starts(false), Move::Kill(14)];
    let waits = [Move::Starts(true), normal, normal, normal, Move::Wait(94), normal];
    let moves = [&dies[..], &waits[..], &[Move::Wait(20)]].concat();
    plays(KEPT_HELPER | NO_MORE_HELPERS, &moves, Ending::Rest);
}

#[test]
fn whoever_hangs_is_given_up_as_soon_as_there_is_room_for_it() {
    // Two hang in a tier that gives up one. When the first comes back, the second is given up, and
    // what waits behind it is started.
    let low = task(Tier::Low);
    let moves = [low, low, low, GIVEN_UP, GIVEN_UP, Move::End(0, How::Succeeds), GIVEN_UP];
    plays(PLAIN, &moves, Ending::Rest);
}

#[test]
fn pools_that_end_beside_a_thread_that_hangs_start_no_workers_for_nothing() {
    for tier in Tier::ALL {
        plays(OBLIGING, &[task(tier), GIVEN_UP], Ending::ShutDown(400));
    }
}

/// The critical tier at its maximum of two with nothing to do for one worker, and a helper that
/// stands by. The first two attempts are those of its own workers.
fn at_maximum() -> Vec<Move> {
    // The fourth that waits calls the second worker, and with it the helper; the helper does what
    // is too much, because a worker of the tier would go when little waits.
    let mut moves = vec![task(Tier::Critical); 5];
    moves.extend([Move::End(2, How::Succeeds); 3]);
    moves
}

#[test]
fn a_helper_stops_standing_by_when_the_tier_loses_a_worker() {
    let done = Move::End(0, How::Succeeds);
    for seed in (0..20).map(|number| PLAIN + number * SHAPES) {
        // One dies at rest.
        let moves = [at_maximum(), vec![done, done, Move::Kill(1)]].concat();
        plays(seed, &moves, Ending::Rest);
        // One is given up, while the other works.
        let works = vec![done, Move::Wait(40), task(Tier::Critical), GIVEN_UP];
        plays(seed, &[at_maximum(), works].concat(), Ending::Rest);
        // One goes because it has rested for long enough.
        plays(seed, &[at_maximum(), vec![done, done]].concat(), Ending::Rest);
    }
}

#[test]
fn a_thread_that_comes_back_late_leaves_its_processor_to_whoever_waits_for_help() {
    // Two hang and are given up, and their processors with them; then both come back.
    let hang = [vec![task(Tier::Normal); 6], vec![GIVEN_UP]].concat();
    let come_back = [Move::End(0, How::Succeeds), Move::End(1, How::Succeeds), Move::Wait(5)];
    plays(PLAIN, &[hang, come_back.to_vec()].concat(), Ending::Rest);
}

#[test]
fn an_urgent_tier_gets_help_when_a_background_helper_leaves_its_place() {
    // With one of its tasks the worker of the tier dies, so that the second helper comes too.
    let behind = [vec![task(Tier::Normal); 4], vec![Move::Kill(10)]].concat();
    let rest = [Move::End(1, How::Succeeds), Move::End(1, How::Succeeds)];
    // Both places are taken. When the helpers have rested for long enough, one is for this tier;
    // and because they are nicer than a helper for it may be, the timer starts that.
    let urgent = [vec![task(Tier::Critical); 5], vec![Move::Wait(60)]].concat();
    plays(PLAIN, &[behind, rest.to_vec(), urgent].concat(), Ending::Rest);
}

#[test]
fn a_background_tier_gets_help_when_the_other_leaves_it_a_processor() {
    let (normal, low) = (task(Tier::Normal), task(Tier::Low));
    let moves = [normal, low, low, low, low, Move::End(0, How::Succeeds), Move::Wait(20)];
    plays(PLAIN, &moves, Ending::Rest);
}

#[test]
fn a_task_that_came_back_late_while_the_pools_end_is_still_finished() {
    let moves = [task(Tier::Low), GIVEN_UP, Move::Wait(50)];
    for seed in [PLAIN, OBLIGING] {
        plays(seed, &moves, Ending::LetGo);
    }
}

fn any_move() -> impl Strategy<Value = Move> {
    let tier = prop::sample::select(Tier::ALL.to_vec());
    let key = prop::option::of(0_u8..2);
    let submit = (tier, key, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(tier, key, idempotent, listens, cancellable)| Move::Submit {
            tier,
            key,
            idempotent,
            listens,
            cancellable,
        },
    );
    let how = prop::sample::select(vec![
        How::Succeeds,
        How::Succeeds,
        How::Fails,
        How::FailsForGood,
        How::Panics,
        How::Dies,
    ]);
    prop_oneof![
        8 => submit,
        6 => (any::<u8>(), how).prop_map(|(who, how)| Move::End(who, how)),
        3 => prop_oneof![0_u16..20, 60_u16..200].prop_map(Move::Wait),
        1 => any::<u8>().prop_map(Move::Wake),
        1 => Just(Move::WakeTimer),
        1 => any::<u8>().prop_map(Move::Kill),
        1 => any::<u8>().prop_map(Move::Cancel),
        1 => any::<bool>().prop_map(Move::Starts),
    ]
}

fn any_ending() -> impl Strategy<Value = Ending> {
    prop_oneof![Just(Ending::Rest), Just(Ending::LetGo), (0_u16..500).prop_map(Ending::ShutDown),]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_submits_finishes_panics_and_timeouts_ends_every_task_exactly_once(
        seed in 0_u64..1_000,
        moves in prop::collection::vec(any_move(), 0..60),
        ending in any_ending(),
    ) {
        let outcome = play(seed, &moves, ending);
        prop_assert!(outcome.ok, "{:#?}", outcome.failures);
        prop_assert_eq!(outcome.figures["accepted"], outcome.figures["ended"]);
    }
}
