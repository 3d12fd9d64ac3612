//! Monitors that watch servers for weeks: what is promised holds, and it would be noticed if not.

use skep_policy::monitors::Settings;
use skep_sim::monitors::{Options, Scenario, draw, run, svg};

fn small(scenario: Scenario, seed: u64) -> Options {
    Options { servers: 40, threads: 2, ..Options::new(scenario, seed) }
}

#[test]
fn whatever_happens_all_promises_of_a_plan_hold_and_everything_comes_to_rest() {
    for scenario in Scenario::ALL {
        for seed in 1..=3 {
            let outcome = run(&small(scenario, seed));
            assert!(outcome.failures.is_empty(), "{scenario:?}, {seed}: {:#?}", outcome.failures);
        }
    }
}

#[test]
fn a_new_server_has_seven_active_monitors_in_a_day_and_a_half_and_then_nothing_changes() {
    let outcome = run(&small(Scenario::Calm, 7));
    // Nobody is active before 32 samples, one every half hour.
    let hours = outcome.figure("seven_active_after_hours_max");
    assert!(hours > 16.0 && hours <= 36.0, "{hours}");
    assert_eq!(outcome.figure("churn_per_run"), 0.0);
    assert_eq!(outcome.figure("below_target_percent"), 0.0);
    // And it was no calm because nobody came: changes are what got it there.
    assert!(outcome.timeline[..8].iter().map(|quarter| quarter.changes).sum::<u64>() >= 40 * 12);
}

#[test]
fn noise_changes_little_and_more_noise_more() {
    let [five, ten] = [Scenario::Noise5, Scenario::Noise10]
        .map(|scenario| run(&small(scenario, 7)).figure("churn_per_run"));
    assert!(five <= 0.02 && ten <= 0.05 && five < ten, "{five} {ten}");
    assert!(ten > 0.0);
}

#[test]
fn where_many_are_about_equally_far_away_noise_changes_more() {
    let [circle, plane] = [false, true].map(|plane| {
        let options = Options { plane, ..small(Scenario::Noise10, 7) };
        run(&options).figure("churn_per_run")
    });
    assert!(plane > circle, "{plane} {circle}");
}

#[test]
fn after_the_loss_of_three_in_ten_five_are_active_in_two_runs_and_seven_in_four() {
    let outcome = run(&small(Scenario::Loss, 7));
    assert!(outcome.figure("five_active_after_runs_max") <= 2.0, "{:#?}", outcome.figures);
    assert!(outcome.figure("seven_active_after_runs_max") <= 4.0, "{:#?}", outcome.figures);
    assert_eq!(outcome.figure("seven_active_never_servers"), 0.0);
    let worst = outcome.timeline.iter().map(|quarter| quarter.below_target).max();
    assert!(worst > Some(0), "somebody lost somebody");
}

#[test]
fn a_storm_is_one() {
    let outcome = run(&small(Scenario::Storm, 7));
    let calm = run(&small(Scenario::Noise5, 7));
    let churn = |outcome: &skep_sim::monitors::Outcome| outcome.figure("churn_per_run");
    assert!(churn(&outcome) > 2.0 * churn(&calm), "{} {}", churn(&outcome), churn(&calm));
    let monitors: Vec<u64> = outcome.timeline.iter().map(|quarter| quarter.monitors).collect();
    let (first, most) = (monitors[0], monitors.iter().max());
    assert!(most > Some(&first) || monitors.iter().any(|count| *count < first), "{monitors:?}");
}

#[test]
fn a_goal_that_is_missed_is_told() {
    // Whoever is better by a point at one review takes the place.
    let eager = Settings {
        better_by_points: 1,
        better_by_percent: 0,
        confirmations: 1,
        ..Settings::default()
    };
    let outcome = run(&Options { settings: eager, ..small(Scenario::Noise10, 7) });
    assert!(outcome.failures.iter().any(|one| one.contains("changes a server and run, not 0.05")));
    // Who stops at five never gets to seven.
    let modest = Settings { target_active: 5, ..Settings::default() };
    let outcome = run(&Options { settings: modest, ..small(Scenario::Loss, 7) });
    assert_eq!(outcome.failures, ["a server never had 7 active again"]);
    // And who wants more than there are never gets them.
    let greedy = Settings { target_active: 30, ..Settings::default() };
    let outcome = run(&Options { settings: greedy, days: 12, ..small(Scenario::Calm, 7) });
    assert_eq!(outcome.failures, ["40 servers end with fewer than 30 active monitors"]);
    // And settings that cannot work are refused.
    let wrong = Settings { target_active: 0, ..Settings::default() };
    let outcome = run(&Options { settings: wrong, ..small(Scenario::Calm, 7) });
    assert_eq!(outcome.failures, ["target_active is 0; it must be between 1 and 1000"]);
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads_and_another_gives_others() {
    for scenario in Scenario::ALL {
        let options = Options { servers: 7, days: 14, ..Options::new(scenario, 3) };
        let bytes = |options: &Options| {
            let outcome = run(options);
            let json = serde_json::to_vec(&outcome).expect("serialises");
            (json, draw(&outcome), svg(&[outcome]))
        };
        let once = bytes(&options);
        assert_eq!(once, bytes(&Options { threads: 3, ..options }), "{scenario:?}");
        assert_ne!(once.0, bytes(&Options { seed: 4, ..options }).0, "{scenario:?}");
        assert!(once.1.lines().all(|line| line.chars().count() <= 100), "{}", once.1);
        assert!(once.2.starts_with("<svg ") && once.2.ends_with("</svg>\n"));
        assert!(once.2.contains(scenario.name()));
    }
}
