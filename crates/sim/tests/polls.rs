//! Polls by several nodes, simulated: what must hold in every class of faults, and that it would be
//! noticed if it did not.

use skep_policy::ownership::{Guard, Guards};
use skep_sim::polls::{Class, Options, Outcome, run};

fn figure(outcome: &Outcome, name: &str) -> f64 {
    *outcome.figures.get(name).unwrap_or_else(|| panic!("{name} in {:?}", outcome.figures))
}

#[test]
fn no_endpoint_is_polled_by_two_nodes_whatever_goes_wrong() {
    for class in Class::ALL {
        let outcome = run(&Options::new(class, 1, 120));
        assert!(outcome.ok, "{:#?}", outcome.failures);
        assert!(figure(&outcome, "polls") > 120.0 * 200.0, "{class:?}: {:?}", outcome.figures);
        let faults = figure(&outcome, "faults");
        assert_eq!(faults == 0.0, class == Class::None, "{class:?}: {faults} faults");
    }
}

/// What each guard is good for: without it, one of these schedules fails. A guard that could be
/// removed unnoticed would be no guard, or not tested.
#[test]
fn no_guard_can_be_removed_unnoticed() {
    let kills = |guard| match guard {
        Guard::Margin | Guard::Drift | Guard::SendTime | Guard::WorkFits => Class::Drift,
        Guard::ExpireCompares => Class::Drift,
        Guard::TrustEnds | Guard::TokenCheck => Class::Pause,
        Guard::DrainFirst => Class::Rolling,
        Guard::OldTrust | Guard::LimboStaysOut | Guard::Grace => Class::StoreEmpty,
        Guard::SequenceCheck | Guard::NumbersNeverRepeat => Class::Slow,
        Guard::RunChange => Class::StoreSnapshot,
        Guard::KnowsLess | Guard::EpochTag | Guard::AnnounceFirst => Class::Flush,
    };
    for guard in Guard::ALL {
        let options = Options {
            guards: Guards::all_but(guard),
            stop_at_failure: true,
            ..Options::new(kills(guard), 1, 1_000)
        };
        let outcome = run(&options);
        assert!(!outcome.ok, "{guard:?} was removed and nobody complained");
    }
}

#[test]
fn a_failure_comes_with_the_command_that_repeats_it() {
    let guards = Guards::all_but(Guard::TrustEnds);
    let options = Options { guards, ..Options::new(Class::Partition, 7, 20) };
    let outcome = run(&options);
    assert!(figure(&outcome, "violations") > 0.0);
    let first = &outcome.failures[0];
    let (_, command) =
        first.split_once("again with: skep sim polls partition --seed ").expect(first);
    let seed = command.split(' ').next().and_then(|seed| seed.parse().ok()).expect("a seed");
    let again = run(&Options { seed, schedules: 1, ..options });
    assert_eq!(again.failures.first(), Some(first));
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_gives_others() {
    for class in Class::ALL {
        let options = Options::new(class, 42, 3);
        let once = run(&options);
        assert_eq!(once, run(&options), "{class:?}");
        let other = run(&Options { seed: 1_042, ..options });
        assert_ne!(once.trace, other.trace, "{class:?}: the seed decides nothing");
    }
}

/// Where polls may overlap they do, or the classes that say so would show nothing.
#[test]
fn only_the_token_keeps_the_results_of_a_late_poll_out() {
    for class in [Class::LatePoll, Class::Freeze] {
        assert!(figure(&run(&Options::new(class, 1, 100)), "results_refused") > 0.0, "{class:?}");
        let guards = Guards::all_but(Guard::TokenCheck);
        let outcome = run(&Options { guards, ..Options::new(class, 1, 100) });
        assert!(!outcome.ok, "{class:?}");
    }
}

#[test]
fn a_class_has_one_name() {
    for class in Class::ALL {
        assert_eq!(class.name().parse(), Ok(class));
    }
    let error = "apocalypse".parse::<Class>().expect_err("is none");
    assert!(error.to_string().contains("late-poll"), "{error}");
}
