//! The pools, simulated: what must always hold, and what each load must come to.
//!
//! Each guard below was taken out of the engine once, and put back; this is what then failed:
//!
//! (to be written)

use proptest::prelude::*;
use skep_sim::pools::{Options, Outcome, Scenario, plot, run};

fn simulate(scenario: Scenario, seed: u64) -> Outcome {
    let outcome = run(&Options::new(scenario, seed));
    assert!(outcome.ok, "{:#?}", outcome.failures);
    outcome
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    *outcome.figures.get(name).unwrap_or_else(|| panic!("{name} in {:?}", outcome.figures))
}

/// A million events over four storms that have nothing in common.
#[test]
fn a_million_events_of_chaos_lose_nothing_and_do_nothing_twice() {
    let mut events = 0.0;
    for seed in [1, 22, 333, 4_444] {
        let outcome = run(&Options { events: 250_000, ..Options::new(Scenario::Chaos, seed) });
        assert!(outcome.ok, "{:#?}", outcome.failures);
        events += figure(&outcome, "events");
        // Every accepted task has one end, counted from outside.
        let ends = ["done", "dead_letters", "cancelled"].map(|name| figure(&outcome, name));
        assert_eq!(figure(&outcome, "accepted"), ends.iter().sum::<f64>());
    }
    assert!(events >= 1_000_000.0, "{events}");
}

#[test]
fn a_storm_reaches_every_corner() {
    let outcome = simulate(Scenario::Chaos, 5);
    for corner in [
        "abandoned",
        "at_abandoned_bound",
        "calms",
        "cancelled",
        "died",
        "dropped",
        "expired",
        "late",
        "left_behind",
        "over_capacity",
        "panicked",
        "rejected",
        "retried",
        "start_failed",
        "stolen",
        "taken_over",
        "timed_out",
    ] {
        assert!(figure(&outcome, corner) > 0.0, "{corner}");
    }
}

#[test]
fn without_faults_nothing_fails_that_was_not_too_late() {
    let outcome = run(&Options { faults: false, ..Options::new(Scenario::Chaos, 9) });
    assert!(outcome.ok, "{:#?}", outcome.failures);
    for fault in ["panicked", "died", "start_failed"] {
        assert_eq!(figure(&outcome, fault), 0.0, "{fault}");
    }
    // What was stopped with its pools has failed too.
    let failed = figure(&outcome, "failed_attempts") - figure(&outcome, "timed_out");
    assert!(failed <= figure(&outcome, "dropped"), "{:?}", outcome.figures);
    assert!(figure(&outcome, "done") > 100_000.0, "{:?}", outcome.figures);
}

#[test]
fn the_same_seed_gives_the_same_outcome_to_the_byte() {
    for scenario in Scenario::ALL {
        let options = Options { events: 100_000, ..Options::new(scenario, 42) };
        let text = |options: &Options| {
            let outcome = run(options);
            serde_json::to_string(&outcome).expect("serialises") + &plot(&outcome.timeline)
        };
        let once = text(&options);
        assert_eq!(once, text(&options), "{}", scenario.name());
        if scenario != Scenario::Lifecycle {
            let other = text(&Options { seed: 43, ..options });
            assert_ne!(once, other, "{}: the seed decides nothing", scenario.name());
        }
    }
}

#[test]
fn a_thousand_tasks_a_second_are_all_done_and_none_waits_for_long() {
    let outcome = simulate(Scenario::Sustained, 1);
    assert_eq!(figure(&outcome, "done"), 60_000.0);
    assert_eq!(figure(&outcome, "rejected"), 0.0);
    assert!(figure(&outcome, "wait_us_p99") < 20_000.0, "{:?}", outcome.figures);
    // A load between what one and two workers can do: the second comes and goes, by the rules about
    // thirty times a second. More would be a thrash that the rules do not call for.
    assert!(figure(&outcome, "spawned_per_second") < 40.0, "{:?}", outcome.figures);
    assert!(figure(&outcome, "workers_most_high") <= 3.0, "{:?}", outcome.figures);
}

#[test]
fn a_burst_calls_helpers_and_leaves_nobody_behind_who_need_not_be_there() {
    let outcome = simulate(Scenario::Burst, 1);
    assert_eq!(figure(&outcome, "accepted") + figure(&outcome, "rejected"), 10_000.0);
    assert_eq!(figure(&outcome, "done"), figure(&outcome, "accepted"));
    assert_eq!(figure(&outcome, "workers_most_high"), 6.0);
    assert!(figure(&outcome, "stolen") > 1_000.0, "{:?}", outcome.figures);
    let last = outcome.timeline.last().expect("has samples");
    assert_eq!((last.workers, last.queue), ([1, 1, 1, 1, 0], [0; 5]));
    // The burst, then the helpers' wait for their tier, then their own.
    assert!(figure(&outcome, "at_minimum_after_ms") < 62_000.0, "{:?}", outcome.figures);
}

#[test]
fn the_pools_go_from_four_workers_to_twenty_four_and_back() {
    for seed in 0..20 {
        let outcome = simulate(Scenario::Lifecycle, seed);
        let rows = ["idle", "busy", "overflow", "heavy", "peak", "idle again"];
        let workers = rows.map(|row| figure(&outcome, &format!("{row}: workers")));
        assert_eq!(workers, [4.0, 9.0, 9.0, 20.0, 24.0, 4.0]);
    }
}

#[test]
fn a_load_that_hovers_at_the_thresholds_does_not_make_workers_come_and_go() {
    for seed in 0..3 {
        let outcome = simulate(Scenario::Hover, seed);
        let thresholds = figure(&outcome, "thresholds");
        assert!(figure(&outcome, "scaling_events") <= 2.0 * thresholds, "{:?}", outcome.figures);
        assert!(figure(&outcome, "helper_events") <= 4.0, "{:?}", outcome.figures);
    }
}

#[test]
fn every_scenario_survives_faults() {
    for scenario in Scenario::ALL {
        let options = Options { faults: true, events: 100_000, ..Options::new(scenario, 3) };
        let outcome = run(&options);
        assert!(outcome.ok, "{}: {:#?}", scenario.name(), outcome.failures);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_seed_of_chaos_ends_every_task_exactly_once(seed: u64, faults: bool) {
        let options = Options { events: 5_000, faults, ..Options::new(Scenario::Chaos, seed) };
        let outcome = run(&options);
        prop_assert!(outcome.ok, "{:#?}", outcome.failures);
    }
}
