//! Workers whose threads end although nobody told them to.

use crate::kit::*;
use skep_policy::pools::Class;
use skep_pools::{Cause, Options, Pools, Task, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn mined(options: Options) -> (Pools, Arc<Mine>) {
    hide_panics();
    let mine = Arc::new(Mine::default());
    let pools = Pools::builder(options).clock(mine.clone()).start().expect("starts");
    // All have looked at the clock for the first time.
    for tier in Tier::ALL {
        rests(&pools, tier, u32::from(pools.options().tier(tier).rules.min));
    }
    (pools, mine)
}

fn deaths(pools: &Pools, tier: Tier) -> u64 {
    stats_of(pools, tier).totals.died
}

/// All workers lie down.
fn rests(pools: &Pools, tier: Tier, workers: u32) {
    eventually("all rest", || (stats_of(pools, tier).idle_workers == workers).then_some(()));
}

#[test]
fn a_task_whose_worker_dies_is_tried_again_by_another() {
    let (pools, mine) = mined(plain());
    for tier in Tier::ALL {
        let (attempts, armed) = (Count::new(), mine.clone());
        let own = attempts.clone();
        let task = Task::blocking("deadly", move |context| {
            own.add();
            if context.attempt() == 1 {
                armed.arm(1);
            }
            Ok(())
        });
        pools.try_submit(tier, task).expect("is taken");
        attempts.reach(2);
        eventually("it is done", || (stats_of(&pools, tier).total_processed == 1).then_some(()));
        // Another may have been faster than the last words of the dead.
        let died = eventually("it is in the journal", || {
            let died = |one: &skep_pools::Scaling| one.pool == tier.name() && one.action == "died";
            pools.scaling_since(0).into_iter().find(died)
        });
        assert!(!died.reason.is_empty());
        rests(&pools, tier, 1);
        let stats = stats_of(&pools, tier);
        assert_eq!((stats.totals.died, stats.totals.retried, stats.active_workers), (1, 1, 1));
        assert_eq!(attempts.get(), 2);
    }
    finish(&pools);
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn a_task_that_kills_every_worker_ends_as_a_dead_letter() {
    let (pools, mine) = mined(plain());
    let armed = mine.clone();
    let task = Task::future("deadly", move |_| {
        armed.arm(1);
        std::future::ready(Ok(()))
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    let letter = eventually("a letter", || pools.letters(Tier::High).pop());
    assert_eq!((letter.cause, letter.attempts), (Cause::Crashed, 3));
    assert_eq!(letter.errors, ["its worker died"; 3]);
    assert_eq!(deaths(&pools, Tier::High), 3);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_worker_that_dies_in_its_sleep_leaves_nobody_waiting() {
    for workers in [1, 3] {
        let (pools, mine) = mined(high(workers, 100));
        mine.arm(1);
        let done = Count::new();
        // It is woken for this task, and dies before it sees it.
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
        done.reach(1);
        eventually("it is dead", || (deaths(&pools, Tier::High) == 1).then_some(()));
        rests(&pools, Tier::High, u32::from(workers));
        // Everybody can be woken as before.
        for wanted in 2..20 {
            pools.try_submit(Tier::High, counting(&done)).expect("is taken");
            done.reach(wanted);
            rests(&pools, Tier::High, u32::from(workers));
        }
        finish(&pools);
        adds_up(&pools, Tier::High);
    }
}

#[test]
fn a_worker_that_dies_in_the_moment_it_starts_is_replaced() {
    hide_panics();
    let mine = Arc::new(Mine::default());
    mine.arm(4);
    let pools = Pools::builder(plain()).clock(mine.clone()).start().expect("starts");
    let done = Count::new();
    for tier in Tier::ALL {
        pools.submit_blocking(tier, counting(&done)).expect("is taken");
    }
    done.reach(4);
    eventually("four are dead", || {
        (Tier::ALL.iter().map(|tier| deaths(&pools, *tier)).sum::<u64>() == 4).then_some(())
    });
    for tier in Tier::ALL {
        assert_eq!(stats_of(&pools, tier).active_workers, 1);
    }
    assert_eq!(finish(&pools).left_behind, 0);
}

#[test]
fn a_helper_that_dies_gives_back_what_it_had() {
    let mut options = plain();
    options.tier_mut(Tier::Low).queue = 100;
    // One of them stands by for critical and high.
    options.shared.max = 2;
    options.shared.background_max = 2;
    options.shared.steal_above = 1;
    let (pools, mine) = mined(options);
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::Low, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    let armed = mine.clone();
    let killers = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let (armed, killers, done) = (armed.clone(), killers.clone(), done.clone());
        let task = Task::blocking("deadly", move |_| {
            // Each helper is killed by its first task, five times.
            if killers.fetch_add(1, Ordering::SeqCst) < 5 {
                armed.arm(1);
            } else {
                done.add();
            }
            Ok(())
        });
        pools.submit_blocking(Tier::Low, task.retries(10)).expect("is taken");
    }
    let helpers = || pools.stats().pop().expect("the shared pool");
    // The tier's own worker is not there: helpers do all but one or two.
    eventually("five are dead", || (helpers().totals.died == 5).then_some(()));
    done.reach(8);
    eventually("each was replaced", || (helpers().totals.spawned > 5).then_some(()));
    door.open();
    done.reach(10);
    assert_eq!(Tier::Low.class(), Class::Background);
    finish(&pools);
    adds_up(&pools, Tier::Low);
}

#[test]
fn an_abandoned_thread_that_dies_gives_its_seat_back() {
    let mut options = plain();
    options.grace = ms(1);
    let (pools, mine) = mined(options);
    let stuck = |times: usize| {
        let (door, armed) = (Door::new(), mine.clone());
        let own = door.clone();
        let task = Task::blocking("deadly", move |_| {
            own.pass();
            armed.arm(1);
            Ok(())
        });
        pools.try_submit(Tier::Normal, task.timeout(ms(5)).retries(0)).expect("is taken");
        eventually("it is abandoned", || {
            pools.stuck().iter().any(|one| one.abandoned).then_some(())
        });
        rests(&pools, Tier::Normal, 1);
        door.open();
        eventually("it is a letter", || (pools.letters(Tier::Normal).len() == times).then_some(()));
        eventually("it is gone", || pools.stuck().is_empty().then_some(()));
    };
    // More often than there are seats.
    (1..=5).for_each(stuck);
    let done = Count::new();
    pools.try_submit(Tier::Normal, counting(&done)).expect("is taken");
    done.reach(1);
    let stats = stats_of(&pools, Tier::Normal);
    assert_eq!((stats.totals.abandoned_total, stats.totals.abandoned), (5, 0));
    assert_eq!(finish(&pools).left_behind, 0);
    adds_up(&pools, Tier::Normal);
}
