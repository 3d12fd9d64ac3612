//! Nodes of a cluster that share requests, simulated: what the decision of a node is worth, what
//! must hold whatever happens, and that it would be noticed if it did not.

use skep_sim::cluster::{Contender, Options, Outcome, Scenario, draw, run};

fn highest(outcome: &Outcome) -> f64 {
    outcome.figure("settled_highest_to_mean_ratio")
}

#[test]
fn ten_nodes_share_very_uneven_keys_and_everything_comes_to_rest() {
    for scenario in Scenario::ALL {
        for seed in 1..=3 {
            let outcome = run(&Options::new(scenario, seed), Contender::Skep);
            assert!(outcome.failures.is_empty(), "{scenario:?}, {seed}: {:#?}", outcome.failures);
            assert!(highest(&outcome) <= 1.25, "{scenario:?}, {seed}: {}", highest(&outcome));
            assert_eq!(outcome.figure("moves_back"), 0.0, "{scenario:?}, {seed}");
        }
    }
}

#[test]
fn three_and_fifty_nodes_do_as_well() {
    for (nodes, scenario) in [
        (3, Scenario::Slow),
        (3, Scenario::Flapping),
        (3, Scenario::Busy),
        (50, Scenario::HotKey),
        (50, Scenario::Lossy),
    ] {
        let outcome = run(&Options { nodes, ..Options::new(scenario, 7) }, Contender::Skep);
        assert!(outcome.failures.is_empty(), "{nodes}, {scenario:?}: {:#?}", outcome.failures);
    }
}

#[test]
fn the_owner_alone_drowns_and_the_least_loaded_swings() {
    let options = Options::new(Scenario::Steady, 1);
    let skep = run(&options, Contender::Skep);
    let owner = run(&options, Contender::OwnerOnly);
    assert!(highest(&owner) > 2.0, "{:#?}", owner.figures);
    assert_eq!(owner.figure("at_usual_node_percent"), 100.0);
    let least = run(&options, Contender::LeastLoaded);
    let swing = |outcome: &Outcome| outcome.figure("settled_swing_ratio");
    assert!(swing(&least) > 0.5 && swing(&skep) < 0.2, "{} {}", swing(&least), swing(&skep));
    // And where keys do not count, hardly anything is served where it was before.
    for contender in [Contender::RoundRobin, Contender::Random, Contender::TwoChoices] {
        let usual = run(&options, contender).figure("at_usual_node_percent");
        assert!(usual < 20.0, "{contender:?}: {usual}");
    }
    assert!(skep.figure("at_usual_node_percent") > 70.0, "{:#?}", skep.figures);
}

#[test]
fn a_slow_node_is_relieved_though_requests_come_in_turn() {
    let options = Options::new(Scenario::Slow, 1);
    let [skep, in_turn] =
        [Contender::Skep, Contender::RoundRobin].map(|contender| run(&options, contender));
    let late = |outcome: &Outcome| outcome.figure("latency_p99_ms");
    assert!(late(&skep) * 10.0 < late(&in_turn), "{} {}", late(&skep), late(&in_turn));
    assert!(highest(&in_turn) > 1.5, "{:#?}", in_turn.figures);
}

#[test]
fn busy_nodes_move_keys_and_then_stop() {
    let (mut early, mut late) = (0, 0);
    for seed in 1..=4 {
        let outcome = run(&Options::new(Scenario::Busy, seed), Contender::Skep);
        let moves: Vec<u32> = outcome.timeline.iter().map(|second| second.moves).collect();
        // The limit of the whole cluster, with one for each node that begins.
        assert!(moves.iter().all(|moves| *moves <= 20), "{moves:?}");
        early += moves[..30].iter().sum::<u32>();
        late += moves[30..].iter().sum::<u32>();
    }
    assert!(early >= 10, "{early}");
    assert!(late <= 2, "{late}");
}

#[test]
fn a_node_that_died_costs_retries_and_no_request_beyond_its_own() {
    let outcome = run(&Options::new(Scenario::Flapping, 1), Contender::Skep);
    assert!(outcome.figure("retried") > 0.0 && outcome.figure("retried") < 200.0);
    assert!(outcome.figure("lost") > 0.0 && outcome.figure("lost") < 1_000.0);
}

#[test]
fn a_check_that_does_not_hold_is_told() {
    // Too short a time for anything to settle.
    let options = Options { seconds: 35, ..Options::new(Scenario::Steady, 1) };
    let outcome = run(&options, Contender::Skep);
    assert_eq!(outcome.failures, ["nothing can settle in less than 40 seconds"]);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let options = Options { seconds: 45, ..Options::new(Scenario::Lossy, 1) };
    for contender in Contender::ALL {
        let bytes = |options: &Options| {
            let outcome = run(options, contender);
            (serde_json::to_vec(&outcome).expect("serialises"), draw(&outcome))
        };
        let once = bytes(&options);
        assert_eq!(once, bytes(&options), "{contender:?}");
        assert_ne!(once.0, bytes(&Options { seed: 2, ..options }).0, "{contender:?}");
        assert!(once.1.lines().all(|line| line.chars().count() <= 100), "{}", once.1);
    }
}
