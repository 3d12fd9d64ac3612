//! Sessions on workers that wear out, simulated: what the policy of a node is worth, what must hold
//! in every storm, and that it would be noticed if it did not.

use skep_policy::sessions::Policy;
use skep_sim::sessions::chaos::{self, Mutation};
use skep_sim::sessions::load::{Arrivals, Contender, Lengths, Options, run, svg};
use std::time::Duration;

const BUDGETED: Contender = Contender::Table(Policy::Budgeted);

#[test]
fn of_ten_workers_never_two_are_out_and_nobody_waits() {
    for lengths in [Lengths::Fixed, Lengths::Exponential] {
        let options = Options { lengths, ..Options::default() };
        let budgeted = run(&options, BUDGETED);
        assert_eq!(budgeted.figure("out_max"), 1.0, "{:#?}", budgeted.figures);
        assert_eq!(budgeted.figure("waited"), 0.0, "{:#?}", budgeted.figures);
        let longest_first = run(&options, Contender::Table(Policy::LifetimeFirst));
        assert!(longest_first.figure("out_max") >= 4.0, "{:#?}", longest_first.figures);
        assert!(longest_first.figure("over_budget_percent") > 10.0);
    }
}

#[test]
fn workers_that_are_not_held_back_go_together_and_sessions_wait() {
    for contender in [Contender::Table(Policy::LeastLoaded), Contender::RoundRobin] {
        let outcome = run(&Options::default(), contender);
        assert_eq!(outcome.figure("out_max"), 10.0, "{:#?}", outcome.figures);
        assert!(outcome.figure("waited") > 0.0, "{:#?}", outcome.figures);
    }
}

#[test]
fn a_million_short_sessions_pass_while_workers_are_recycled_and_none_fails_or_is_cut() {
    let options = Options {
        sessions: 1_000_000,
        session_time: Duration::from_millis(20),
        restart_time: Duration::from_millis(10),
        lengths: Lengths::Exponential,
        ..Options::default()
    };
    let outcome = run(&options, BUDGETED);
    assert_eq!(outcome.figure("ended"), 1e6);
    assert_eq!(outcome.figure("cut"), 0.0);
    assert_eq!(outcome.figure("out_max"), 1.0);
    assert!(outcome.figure("restarts") > 18_000.0, "{:#?}", outcome.figures);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let arrivals = Arrivals::Load(0.7);
    let lengths = Lengths::Heavy;
    let options = Options { sessions: 3_000, arrivals, lengths, ..Options::default() };
    for contender in Contender::ALL {
        let once = run(&options, contender);
        let bytes = serde_json::to_vec(&once).expect("serialises");
        let again = run(&options, contender);
        assert_eq!(bytes, serde_json::to_vec(&again).expect("serialises"), "{contender:?}");
        assert_eq!(svg(std::slice::from_ref(&once)), svg(&[again]), "{contender:?}");
        let other = run(&Options { seed: 2, ..options.clone() }, contender);
        assert_ne!(once, other, "{contender:?}: the seed decides nothing");
    }
    let options = chaos::Options::new(42, 60_000);
    assert_eq!(chaos::run(&options), chaos::run(&options));
    let other = chaos::run(&chaos::Options::new(43, 60_000));
    assert_ne!(chaos::run(&options).trace, other.trace);
}

#[test]
fn a_contender_has_one_name() {
    for contender in Contender::ALL {
        assert_eq!(contender.name().parse(), Ok(contender));
    }
    let error = "sticky".parse::<Contender>().expect_err("is none");
    assert!(error.to_string().contains("max-requests-with-jitter"), "{error}");
}

#[test]
fn whatever_goes_wrong_every_count_becomes_the_truth_again() {
    for seed in 1..=3 {
        let outcome = chaos::run(&chaos::Options::new(seed, 1_000_000));
        assert!(outcome.ok, "{}\n{:#?}", outcome.story.join("\n"), outcome.failures);
        let happened = [
            "carried",
            "crashes",
            "cut_off",
            "gateways_killed",
            "gateways_left",
            "hosts_lost",
            "late",
            "probes",
            "reaped",
            "restarts",
            "silences",
            "succeeded",
            "tables_lost",
            "tables_restored",
            "told_to_end",
            "waited",
        ];
        for what in happened {
            assert!(outcome.figures.get(what) > Some(&10), "{what}: {:?}", outcome.figures);
        }
    }
}

/// What could be done wrong unnoticed would not be tested.
#[test]
fn nothing_can_be_done_wrong_unnoticed() {
    for mutation in Mutation::ALL {
        let options = chaos::Options::new(1, 10_000_000);
        let outcome = chaos::run(&chaos::Options { mutation: Some(mutation), ..options });
        assert!(!outcome.ok, "{mutation:?} and nobody complained");
        assert!(outcome.failures[0].contains("skep sim sessions chaos --seed 1"));
    }
}
