//! One of each fault that matters, against real nodes and servers.

use crate::common::skep;
use skep_chaos::polls::{Fault, Options, Plan, Step, run};
use skep_chaos::sessions;
use std::time::Duration;

/// All four kinds of faults, at all gateways, in eight kills. More of them are in the soak.
const SESSIONS_SEED: u64 = 235;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn no_fault_makes_two_nodes_poll_one_endpoint_and_everything_is_polled_again() {
    // Sessions live for 4 s here: what lasts longer makes a node lose what it has.
    let faults = [
        Fault::Kill { node: 1, down: ms(500) },
        Fault::Stop { node: 2, down: ms(200) },
        Fault::Pause { node: 3, span: ms(5_500) },
        Fault::RedisEmpty { down: ms(500) },
        Fault::RedisPause { span: ms(3_000) },
        Fault::Cut { node: 4, span: ms(5_500) },
        Fault::Delay { node: 0, delay: ms(150), span: ms(2_000) },
    ];
    let options = Options {
        skep: skep().to_path_buf(),
        nodes: 5,
        endpoints: 40,
        plan: Plan::Steps(faults.map(Step::alone).to_vec()),
        seed: 1,
        // Other tests run beside it.
        slack: ms(5_000),
        keep: false,
    };
    let outcome = run(&options, &mut |line| println!("{line}")).expect("the servers are installed");
    assert!(
        outcome.failures.is_empty(),
        "{:#?}\nthe logs are in {:?}",
        outcome.failures,
        outcome.folder
    );

    // A check that saw nothing would have found nothing.
    assert_eq!(outcome.steps.len(), faults.len());
    for name in ["kill", "stop", "pause", "redis_empty", "redis_pause", "cut", "delay"] {
        assert_eq!(outcome.figures.get(&format!("{name}_faults")), Some(&1.0), "{name}");
    }
    assert!(outcome.figures["polls"] > 700.0, "{:#?}", outcome.figures);
    assert!(outcome.figures["results"] > 700.0, "{:#?}", outcome.figures);
    assert!(outcome.figures["owners_changed"] > 20.0, "{:#?}", outcome.figures);
    assert!(outcome.steps[0].takeover.is_some(), "the killed node polled something");
}

#[test]
fn whoever_is_killed_every_count_of_sessions_is_soon_what_is_really_open() {
    let options = sessions::Options {
        skep: skep().to_path_buf(),
        gateways: 3,
        kills: 8,
        // Kills gateways and Redis, and pauses both.
        seed: SESSIONS_SEED,
        // Other tests run beside it.
        slack: ms(5_000),
        keep: false,
    };
    let outcome = sessions::run(&options, &mut |line| println!("{line}"));
    let outcome = outcome.expect("the servers are installed");
    let (failures, figures) = (outcome.failures, outcome.figures);
    assert!(failures.is_empty(), "{failures:#?}\nthe logs are in {:?}", outcome.folder);

    // A check that saw nothing would have found nothing.
    for name in ["gateway_kills", "redis_kills", "gateway_pauses", "redis_pauses"] {
        assert!(figures.contains_key(name), "{name}: {figures:#?}");
    }
    assert!(figures["sessions"] > 100.0, "{figures:#?}");
    assert!(figures["worker_restarts"] > 0.0, "{figures:#?}");
    assert!(figures["right_after_kill_max_seconds"] > 0.3, "dead gateways are noticed late");
}
