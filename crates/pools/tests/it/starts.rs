//! Threads that the system does not start for a while.

use crate::kit::*;
use skep_pools::{Options, Pools, StartError, Tier};

fn fails(pools: &Pools, tier: Tier) -> u64 {
    stats_of(pools, tier).totals.start_failed
}

#[test]
fn pools_without_a_timer_do_not_start() {
    let watched = Watched::new();
    watched.fail(true);
    let answer = watched.builder(plain()).start();
    assert!(matches!(answer.err(), Some(StartError::Threads(_))));
    assert!(watched.alive().is_empty());
}

#[test]
fn tasks_wait_for_the_first_worker_until_it_can_be_started() {
    for tier in Tier::ALL {
        let watched = Watched::only(tier.name());
        watched.fail(true);
        let pools = watched.builder(plain()).start().expect("starts without that worker");
        let done = Count::new();
        for _ in 0..4 {
            pools.try_submit(tier, counting(&done)).expect("is taken");
        }
        watched.failed.reach(2);
        // One that is being started counts for a moment.
        eventually("nobody is there", || {
            (stats_of(&pools, tier).active_workers == 0 && fails(&pools, tier) >= 2).then_some(())
        });
        assert_eq!(done.get(), 0);
        let noted = pools.scaling_since(0).into_iter().find(|one| one.action == "start-failed");
        let noted = noted.expect("is in the journal");
        assert!(noted.pool == tier.name() && noted.reason.contains("os error 11"), "{noted:?}");
        watched.fail(false);
        done.reach(4);
        finish(&pools);
        adds_up(&pools, tier);
    }
}

#[test]
fn all_workers_that_are_always_there_come_when_they_can_be_started() {
    let mut options = high(3, 16);
    options.shared.max = 4;
    options.shared.min = 2;
    let watched = Watched::only("h");
    watched.fail(true);
    let pools = watched.builder(options).start().expect("starts");
    watched.failed.reach(2);
    watched.fail(false);
    // Nobody submits anything.
    eventually("all are there", || {
        let helpers = pools.stats().pop().expect("the shared pool").active_workers;
        (stats_of(&pools, Tier::High).active_workers == 3 && helpers == 2).then_some(())
    });
}

#[test]
fn a_tier_that_cannot_grow_goes_on_with_what_it_has_and_grows_later() {
    let mut options = high(1, 100);
    options.tier_mut(Tier::High).rules.max = 2;
    let watched = Watched::only("high");
    let pools = watched.builder(options).start().expect("starts");
    watched.fail(true);
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for _ in 0..20 {
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    }
    watched.failed.reach(2);
    assert_eq!(done.get(), 0);
    watched.fail(false);
    // The first worker does not come back before the others are done.
    done.reach(20);
    door.open();
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_worker_that_died_or_hangs_is_replaced_when_it_can_be() {
    let mut options = plain();
    options.grace = ms(1);
    let watched = Watched::only("normal");
    let pools = watched.builder(options).start().expect("starts");
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    watched.fail(true);
    let stuck = blocker(&running, &door).timeout(ms(5));
    pools.try_submit(Tier::Normal, stuck).expect("is taken");
    pools.try_submit(Tier::Normal, counting(&done)).expect("is taken");
    watched.failed.reach(2);
    assert_eq!(done.get(), 0);
    watched.fail(false);
    done.reach(1);
    door.open();
    finish(&pools);
    adds_up(&pools, Tier::Normal);
}

fn with_helpers() -> Options {
    let mut options = plain();
    for tier in [Tier::High, Tier::Low] {
        options.tier_mut(tier).queue = 100;
    }
    options.shared.max = 2;
    options.shared.steal_above = 4;
    options
}

#[test]
fn helpers_come_as_soon_as_they_can_be_started() {
    for (tier, name) in [(Tier::High, "helper"), (Tier::Low, "behind")] {
        let watched = Watched::only(name);
        watched.fail(true);
        let pools = watched.builder(with_helpers()).start().expect("starts");
        let (running, door, done) = (Count::new(), Door::new(), Count::new());
        pools.try_submit(tier, blocker(&running, &door)).expect("is taken");
        running.reach(1);
        for _ in 0..20 {
            pools.try_submit(tier, counting(&done)).expect("is taken");
        }
        watched.failed.reach(2);
        assert_eq!(done.get(), 0);
        watched.fail(false);
        // Nobody submits anything more, and the tier's own worker does not come back.
        done.reach(16);
        door.open();
        done.reach(20);
        finish(&pools);
        assert!(stats_of(&pools, tier).totals.stolen >= 16);
        adds_up(&pools, tier);
    }
}

#[test]
fn starts_that_fail_are_not_tried_without_a_pause() {
    let watched = Watched::only("high");
    watched.fail(true);
    let pools = watched.builder(high(2, 4)).start().expect("starts");
    for _ in 0..10_000 {
        let _ = pools.try_submit(Tier::High, counting(&Count::new()));
    }
    assert!(watched.failed.get() < 10, "{} starts", watched.failed.get());
    watched.fail(false);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn pools_that_end_while_nothing_starts_still_tell_everything() {
    let watched = Watched::only("high");
    watched.fail(true);
    let pools = watched.builder(plain()).start().expect("starts");
    let done = Count::new();
    for _ in 0..4 {
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    }
    let report = wait(pools.shutdown(ms(50)));
    // The workers of the other tiers do it, while they are there.
    assert_eq!(report.dropped.len() + done.get(), 4);
    adds_up(&pools, Tier::High);
}
