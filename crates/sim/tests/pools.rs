//! The pools, simulated: what must always hold, and what each load must come to.
//!
//! A simulator that never fails proves nothing, so each of these guards was taken out of the engine
//! once and put back. This is what died then, beside the storms and the random sequences, which
//! notice almost all of them:
//!
//! | without this guard                                      | this fails                         |
//! |---------------------------------------------------------|------------------------------------|
//! | the gap between the ratios (`policy::pools::scale`)     | `a_load_that_hovers_…`: 99,523     |
//! |                                                         | workers come and go, not 22        |
//! | a searcher wakes the next (`Engine::settle`)            | `the_pools_go_from_four_…`         |
//! | a submission looks at its tier (`Engine::offer`)        | `a_thousand_tasks_a_second_…`      |
//! | only idempotent tasks are taken over (`abandon`)        | `a_million_events_…`: a task       |
//! |                                                         | "was started beside itself"        |
//! | who was taken over no longer decides (`abandon`)        | `a_million_events_…`: "became a    |
//! |                                                         | dead letter after its end"         |
//! | a late return ends its task (`came_back_late`)          | `a_million_events_…`: "was lost"   |
//! | one task of a key at a time (`Lane::admit`)             | `a_million_events_…`: "overtook    |
//! |                                                         | another with its key"              |
//! | a failed task keeps its place (`Lane::hold`)            | `a_million_events_…`: counts       |
//! | the limit of retries (`conclude`)                       | `a_million_events_…`: "became no   |
//! |                                                         | dead letter"                       |
//! | a retry that is due wakes a worker (`do_due`)           | `a_million_events_…`: "1 rest      |
//! |                                                         | beside 6 tasks"                    |
//! | a woken worker does not leave (`rested`)                | `a_million_events_…`: the same     |
//! | what is stopped is told (`note_dropped`)                | `a_million_events_…`: "are told as |
//! |                                                         | dropped"                           |
//! | stopping empties the keys (`Lane::empty`)               | `a_million_events_…`: the same     |
//! | the bound on abandoned threads (`may_abandon`)          | `moves::whoever_hangs_…`           |
//! | a free place below it wakes the timer (`free_abandoned`)| `moves::whoever_hangs_…`           |
//! | a start that failed is tried again (`look_again`)       | `moves::all_workers_that_are_…`    |
//! | all that are missing are started (`grow`)               | `moves::all_workers_that_are_…`    |
//! | the minimum of helpers (`keep_helpers`)                 | `moves::a_helper_that_is_always_…` |
//! | its places are not for the background                   | `moves::the_background_does_not_…` |
//! | who dies at rest leaves the list (`died`)               | `moves::a_worker_that_dies_at_…`   |
//! | who dies after it was given up leaves its processor     | `moves::a_thread_that_dies_after_…`|
//! | standing by ends with the maximum (`release_standby`)   | `moves::a_helper_stops_…`          |
//! | a free processor is offered (`leave_processor`)         | `moves::a_background_tier_gets_…`  |
//! | ending pools start nobody in vain (`is_of_no_use`)      | `moves::pools_that_end_beside_…`   |
//!
//! Two guards it cannot see: that a worker looks once more before it rests, and that a future is
//! woken when its time is over. The first is for overlapping calls, which loom explores; the second
//! is for a clock that the worker's own timeout does not keep.

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
