//! Workers come with the load and go with it.

use crate::kit::*;
use skep_policy::pools::{Ratio, TierRules};
use skep_pools::{Options, PoolStats, Pools, Task, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const RULES: TierRules = TierRules {
    min: 1,
    max: 4,
    up: Ratio::whole(5),
    down: Ratio::whole(2),
    overflow: Ratio::whole(5),
};

fn elastic() -> Options {
    let mut options = plain();
    for tier in [Tier::Critical, Tier::High] {
        let own = options.tier_mut(tier);
        own.rules = RULES;
        own.queue = 200;
        own.idle_timeout = ms(30);
    }
    for tier in [Tier::Normal, Tier::Low] {
        options.tier_mut(tier).queue = 200;
    }
    options.shared.max = 6;
    options.shared_idle_timeout = ms(30);
    options
}

fn helpers(pools: &Pools) -> PoolStats {
    pools.stats().pop().expect("the shared pool is the last")
}

fn workers(pools: &Pools, tier: Tier, count: u32) {
    eventually("as many workers", || (stats_of(pools, tier).active_workers == count).then_some(()));
}

fn helping(pools: &Pools, count: u32) {
    eventually("as many helpers", || (helpers(pools).active_workers == count).then_some(()));
}

#[test]
fn a_tier_grows_with_its_queue_up_to_its_maximum_and_back_after_a_rest() {
    let mut options = elastic();
    options.shared.max = 0;
    let pools = start(options);
    for round in 1..=2 {
        let (running, door) = (Count::new(), Door::new());
        for _ in 0..60 {
            pools.submit_blocking(Tier::High, blocker(&running, &door)).expect("is taken");
        }
        running.reach(4);
        let stats = stats_of(&pools, Tier::High);
        assert_eq!((stats.active_workers, stats.processing_tasks), (4, 4));
        assert!(!running.reaches(5, ms(20)), "never more than the maximum");
        door.open();
        running.reach(60);
        workers(&pools, Tier::High, 1);
        eventually("it rests", || (stats_of(&pools, Tier::High).idle_workers == 1).then_some(()));
        let totals = stats_of(&pools, Tier::High).totals;
        assert_eq!((totals.spawned, totals.retired), (1 + 3 * round, 3 * round));
    }
    // What is counted is written down a moment later.
    let gone = |one: &skep_pools::Scaling| ["retire", "idle-exit"].contains(&one.action);
    let journal = eventually("all six are in the journal", || {
        let journal = pools.scaling_since(0);
        (journal.iter().filter(|one| gone(one)).count() == 6).then_some(journal)
    });
    let high: Vec<_> = journal.iter().filter(|one| one.pool == "high").collect();
    assert!(high.iter().all(|one| !one.reason.is_empty() && (1..=4).contains(&one.workers)));
    assert!(high[0].action == "spawn" && high[0].reason.contains("below-minimum"));
    assert!(high[1].reason.contains("queue-over-scale-up"), "{:?}", high[1]);
    let numbers: Vec<u64> = journal.iter().map(|one| one.number).collect();
    assert!(numbers.is_sorted() && pools.scaling_since(numbers[3]).len() == numbers.len() - 4);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn no_more_tasks_run_at_once_than_there_may_be_workers() {
    let mut options = elastic();
    options.shared.max = 2;
    let pools = start(options);
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for _ in 0..3_000 {
        let (now, most) = (now.clone(), most.clone());
        let task = Task::blocking("counted", move |_| {
            most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            spin(Duration::from_micros(20));
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
        pools.submit_blocking(Tier::Critical, task).expect("is taken");
    }
    finish(&pools);
    assert!((2..=6).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    adds_up(&pools, Tier::Critical);
}

#[test]
fn helpers_come_when_a_tier_overflows_and_all_but_one_leave_while_it_stays_large() {
    let mut options = elastic();
    options.tier_mut(Tier::High).rules = fixed(2);
    let pools = start(options);
    // A tier that has all its workers has one helper beside it.
    helping(&pools, 1);
    let (running, door) = (Count::new(), Door::new());
    for _ in 0..60 {
        pools.submit_blocking(Tier::High, blocker(&running, &door)).expect("is taken");
    }
    running.reach(8);
    assert_eq!(helpers(&pools).active_workers, 6);
    assert_eq!(stats_of(&pools, Tier::High).shared_helping, 6);
    assert!(!running.reaches(9, ms(20)), "never more than the maximum");
    door.open();
    running.reach(60);
    helping(&pools, 1);
    let journal = pools.scaling_since(0);
    let shared: Vec<_> = journal.iter().filter(|one| one.pool == "shared").collect();
    assert!(shared[0].action == "help" && shared[0].reason == "standby", "{:?}", shared[0]);
    assert!(shared[1].action == "help" && shared[1].reason == "overflow", "{:?}", shared[1]);
    assert!(shared.iter().all(|one| !one.reason.is_empty()));
    finish(&pools);
    let stats = stats_of(&pools, Tier::High);
    assert!(stats.totals.stolen >= 6 && stats.total_processed == 60, "{stats:#?}");
    adds_up(&pools, Tier::High);
}

#[test]
fn a_helper_stands_by_while_critical_is_as_large_as_it_can_be_and_then_goes() {
    let pools = start(elastic());
    assert_eq!(helpers(&pools).active_workers, 0);
    let (running, door) = (Count::new(), Door::new());
    // Enough for all four workers, not enough for an overflow.
    for _ in 0..22 {
        pools.submit_blocking(Tier::Critical, blocker(&running, &door)).expect("is taken");
    }
    running.reach(4);
    workers(&pools, Tier::Critical, 4);
    eventually("one stands by", || (helpers(&pools).totals.spawned >= 1).then_some(()));
    door.open();
    running.reach(22);
    workers(&pools, Tier::Critical, 1);
    helping(&pools, 0);
    let shared = helpers(&pools);
    assert_eq!((shared.totals.spawned, shared.totals.retired), {
        (shared.totals.spawned, shared.totals.spawned)
    });
}

#[test]
fn a_single_task_for_a_busy_critical_tier_is_taken_by_the_helper_that_stands_by() {
    let mut options = elastic();
    options.tier_mut(Tier::Critical).rules = fixed(1);
    let pools = start(options);
    helping(&pools, 1);
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::Critical, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for wanted in 1..50 {
        pools.try_submit(Tier::Critical, counting(&done)).expect("is taken");
        done.reach(wanted);
    }
    door.open();
    finish(&pools);
    // The helper may have been the one who took the first.
    let stolen = stats_of(&pools, Tier::Critical).totals.stolen;
    assert!(stolen == 49 || stolen == 1, "{stolen}");
}

#[test]
fn the_background_is_helped_while_much_waits_and_never_by_more_than_the_processors() {
    let mut options = elastic();
    options.shared.background_max = 2;
    let pools = start(options);
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let door = Door::new();
    let running = Count::new();
    for number in 0..100 {
        let tier = if number % 2 == 0 { Tier::Normal } else { Tier::Low };
        let (now, most, door, running) = (now.clone(), most.clone(), door.clone(), running.clone());
        let task = Task::blocking("busy", move |_| {
            most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            running.add();
            door.pass();
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
        pools.submit_blocking(tier, task).expect("is taken");
    }
    running.reach(2);
    door.open();
    running.reach(100);
    finish(&pools);
    // Two of their own, and helpers only while fewer than two keep processors busy.
    assert!(most.load(Ordering::SeqCst) <= 4, "{most:?}");
    adds_up(&pools, Tier::Normal);
    adds_up(&pools, Tier::Low);
}

#[test]
fn a_tier_is_helped_as_soon_as_another_tier_leaves_a_processor() {
    let mut options = elastic();
    options.shared.background_max = 2;
    let pools = start(options);
    let (first, second, running, done) = (Door::new(), Door::new(), Count::new(), Count::new());
    pools.try_submit(Tier::Normal, blocker(&running, &first)).expect("is taken");
    pools.try_submit(Tier::Low, blocker(&running, &second)).expect("is taken");
    running.reach(2);
    for _ in 0..30 {
        pools.try_submit(Tier::Low, counting(&done)).expect("is taken");
    }
    assert!(!done.reaches(1, ms(20)), "both processors are busy");
    first.open();
    // Low's own worker is still busy, and nothing more happens in low.
    done.reach(20);
    second.open();
    done.reach(30);
    finish(&pools);
    adds_up(&pools, Tier::Low);
}

#[test]
fn futures_of_the_background_wait_without_a_processor() {
    let mut options = elastic();
    options.shared.background_max = 3;
    let pools = start(options);
    let (running, over) = (Count::new(), Arc::new(AtomicBool::new(false)));
    for _ in 0..40 {
        let (running, over) = (running.clone(), over.clone());
        let task = Task::future("waiting", move |_| {
            running.add();
            let over = over.clone();
            std::future::poll_fn(move |cx| {
                if over.load(Ordering::SeqCst) {
                    return std::task::Poll::Ready(Ok(()));
                }
                cx.waker().wake_by_ref();
                std::thread::yield_now();
                std::task::Poll::Pending
            })
        });
        pools.submit_blocking(Tier::Normal, task).expect("is taken");
    }
    // The tier's own worker and three helpers.
    running.reach(4);
    assert!(!running.reaches(5, ms(20)));
    over.store(true, Ordering::SeqCst);
    running.reach(40);
    finish(&pools);
    adds_up(&pools, Tier::Normal);
}

#[test]
fn the_smallest_number_of_helpers_is_always_there() {
    let mut options = elastic();
    options.shared.min = 2;
    let pools = start(options);
    helping(&pools, 2);
    assert_eq!(pools.scaling_since(0).iter().filter(|one| one.reason == "minimum").count(), 2);
    let (running, door) = (Count::new(), Door::new());
    for _ in 0..100 {
        pools.submit_blocking(Tier::Critical, blocker(&running, &door)).expect("is taken");
    }
    running.reach(10);
    door.open();
    running.reach(100);
    workers(&pools, Tier::Critical, 1);
    helping(&pools, 2);
    eventually("they rest", || (helpers(&pools).idle_workers == 2).then_some(()));
}

#[test]
fn workers_do_not_come_and_go_with_every_task() {
    let mut options = elastic();
    options.tier_mut(Tier::High).idle_timeout = PATIENCE;
    options.shared_idle_timeout = PATIENCE;
    let pools = start(options);
    let done = Count::new();
    for wanted in 1..2_000 {
        pools.submit_blocking(Tier::High, counting(&done)).expect("is taken");
        if wanted % 100 == 0 {
            done.reach(wanted);
        }
    }
    finish(&pools);
    let totals = stats_of(&pools, Tier::High).totals;
    assert!(totals.spawned < 200, "{totals:?}");
}
