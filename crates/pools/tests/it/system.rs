//! What the operating system sees of the pools: names, priorities, wake-ups.

use crate::kit::*;
use skep_policy::pools::{Ratio, TierRules};
use skep_pools::{Task, Tier};
use std::collections::BTreeMap;
use std::time::Duration;

/// The nice value of a thread.
fn niceness(thread: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("is alive");
    // The name is in brackets and may hold anything; nice is the 17th field after it.
    let after = stat.rsplit_once(") ").expect("has a name").1;
    after.split(' ').nth(16).and_then(|field| field.parse().ok()).expect("has a nice value")
}

/// How often each thread went to sleep by itself.
fn sleeps(watched: &Watched) -> BTreeMap<String, u64> {
    let of = |(thread, name): (u32, String)| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((name, line?.trim().parse().ok()?))
    };
    watched.alive().into_iter().filter_map(of).collect()
}

fn named(watched: &Watched, start: &str) -> Vec<u32> {
    let threads = watched.alive();
    threads.into_iter().filter(|(_, name)| name.starts_with(start)).map(|(id, _)| id).collect()
}

#[test]
fn the_lower_tiers_are_nice_and_the_upper_ones_as_the_process_is() {
    let mut options = plain();
    options.tier_mut(Tier::Low).queue = 100;
    options.shared.max = 2;
    options.shared.background_max = 2;
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let own = niceness(own_id());
    // A background helper for low, and an express one that stands by.
    let (running, door) = (Count::new(), Door::new());
    for _ in 0..30 {
        pools.try_submit(Tier::Low, blocker(&running, &door)).expect("is taken");
    }
    running.reach(2);
    let nice = |name: &str| {
        eventually(name, || {
            let threads = named(&watched, name);
            // It may just be born, and not know how nice it is to be.
            let values: Vec<i32> = threads.into_iter().map(niceness).collect();
            values.first().copied()
        })
    };
    let becomes = |name: &str, wanted: i32| {
        eventually(name, || (nice(name) == wanted).then_some(()));
    };
    for name in ["critical-", "high-", "helper-", "pools-timer"] {
        assert_eq!(nice(name), own, "{name}");
    }
    becomes("normal-", (own + 5).min(19));
    becomes("low-", 19);
    becomes("behind-", 19);
    door.open();
}

#[test]
fn a_worker_that_is_called_by_a_nice_one_is_not_nice_itself() {
    let mut options = plain();
    for tier in [Tier::Critical, Tier::Normal] {
        options.tier_mut(tier).rules = TierRules {
            min: 1,
            max: 3,
            up: Ratio::whole(5),
            down: Ratio::whole(2),
            overflow: Ratio::whole(5),
        };
        options.tier_mut(tier).queue = 100;
    }
    options.shared.max = 1;
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let own = niceness(own_id());
    let (running, door) = (Count::new(), Door::new());
    let inside = (pools.clone(), running.clone(), door.clone());
    // Low has much to tell critical and normal, whose workers have to be started for it.
    let task = Task::blocking("low", move |_| {
        let (pools, running, door) = &inside;
        for tier in [Tier::Critical, Tier::Normal] {
            for _ in 0..40 {
                pools.submit_blocking(tier, blocker(running, door)).expect("is taken");
            }
        }
        Ok(())
    });
    pools.try_submit(Tier::Low, task).expect("is taken");
    // Three of each, and a helper for critical.
    running.reach(7);
    for name in ["critical-", "helper-"] {
        for thread in named(&watched, name) {
            assert_eq!(niceness(thread), own, "{name}");
        }
    }
    for thread in named(&watched, "normal-") {
        assert_eq!(niceness(thread), (own + 5).min(19), "normal");
    }
    assert_eq!(named(&watched, "critical-").len(), 3);
    door.open();
}

#[test]
fn threads_are_named_after_their_pools() {
    let mut options = plain();
    options.shared.max = 1;
    let watched = Watched::new();
    let _pools = watched.builder(options).start().expect("starts");
    for name in ["critical-", "high-", "normal-", "low-", "helper-", "pools-timer"] {
        let threads = named(&watched, name);
        assert_eq!(threads.len(), 1, "{name}");
        let seen = std::fs::read_to_string(format!("/proc/self/task/{}/comm", threads[0]));
        assert!(seen.expect("is alive").starts_with(name));
    }
}

#[test]
fn nobody_wakes_up_while_there_is_nothing_to_do() {
    let mut options = skep_pools::Options::new(2);
    options.shared.min = 1;
    for tier in &mut options.tiers {
        // The timer looks once more when the first tasks would have had to end.
        tier.task_timeout = 2 * PATIENCE;
    }
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let done = Count::new();
    for _ in 0..100 {
        for tier in Tier::ALL {
            pools.submit_blocking(tier, counting(&done)).expect("is taken");
        }
    }
    done.reach(400);
    eventually("all rest", || {
        let rests = |one: &skep_pools::PoolStats| one.idle_workers == one.active_workers;
        pools.stats().iter().all(rests).then_some(())
    });
    // The last ones are still on their way into sleep, for long if the machine is busy.
    let quiet = (0..10).any(|_| {
        let before = sleeps(&watched);
        std::thread::park_timeout(Duration::from_secs(1));
        assert!(before.len() >= 6 && before.contains_key("pools-timer"));
        sleeps(&watched) == before
    });
    assert!(quiet, "{:?}", sleeps(&watched));
}
