//! Tasks that do not end in their time.

use crate::kit::*;
use skep_pools::{Cause, Failure, Options, Pools, Task, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

fn hasty() -> Options {
    let mut options = plain();
    options.grace = ms(5);
    options
}

/// Waits until so many threads of a tier are given up and replaced.
fn abandoned(pools: &Pools, tier: Tier, count: u64) {
    eventually("threads are given up", || {
        let stats = stats_of(pools, tier);
        (stats.totals.abandoned == count && stats.active_workers > 0).then_some(())
    });
}

/// Says when it is dropped.
struct Farewell(Count);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.add();
    }
}

#[test]
fn a_future_that_never_ends_is_dropped_at_its_deadline_and_its_worker_is_free() {
    let mut options = plain();
    options.grace = PATIENCE;
    let pools = start(options);
    let dropped = Count::new();
    let own = dropped.clone();
    let task = Task::future("endless", move |_| {
        let farewell = Farewell(own.clone());
        async move {
            let _farewell = farewell;
            std::future::pending().await
        }
    });
    pools.try_submit(Tier::High, task.timeout(ms(10)).retries(1)).expect("is taken");
    let done = Count::new();
    pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    done.reach(1);
    dropped.reach(2);
    let letter = eventually("a letter", || pools.letters(Tier::High).pop());
    assert_eq!((letter.cause, letter.attempts), (Cause::TimedOut, 2));
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.timed_out, stats.totals.abandoned_total), (2, 0));
    assert_eq!((stats.totals.spawned, dropped.get()), (1, 2), "the same worker all the time");
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn the_time_of_the_tier_holds_where_a_task_says_nothing() {
    let mut options = plain();
    options.tier_mut(Tier::Low).task_timeout = ms(10);
    let pools = start(options);
    let task = Task::future("endless", |_| std::future::pending());
    pools.try_submit(Tier::Low, task.retries(0)).expect("is taken");
    let letter = eventually("a letter", || pools.letters(Tier::Low).pop());
    assert_eq!(letter.cause, Cause::TimedOut);
}

#[test]
fn blocking_code_that_looks_stops_in_time_and_its_thread_stays() {
    let mut options = plain();
    options.grace = PATIENCE;
    let pools = start(options);
    let task = Task::blocking("polite", |context| {
        let before = context.deadline();
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        assert_eq!(context.deadline(), before);
        Err(Failure::permanent("whatever it says, its time was over"))
    });
    pools.try_submit(Tier::High, task.timeout(ms(10)).retries(1)).expect("is taken");
    let letter = eventually("a letter", || pools.letters(Tier::High).pop());
    assert_eq!((letter.cause, letter.attempts), (Cause::TimedOut, 2));
    let totals = stats_of(&pools, Tier::High).totals;
    assert_eq!((totals.timed_out, totals.abandoned_total, totals.spawned), (2, 0, 1));
}

#[test]
fn blocking_code_that_does_not_look_is_listed_and_replaced_and_its_late_success_counts() {
    let pools = start(hasty());
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    let id = pools.try_submit(Tier::High, blocker(&running, &door).timeout(ms(10)));
    let id = id.expect("is taken");
    running.reach(1);
    abandoned(&pools, Tier::High, 1);
    let stuck = pools.stuck();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].id, stuck[0].kind, stuck[0].attempt), (id, "blocker", 1));
    assert_eq!((stuck[0].pool, stuck[0].timeout_ms, stuck[0].abandoned), ("high", 10, true));
    assert!(stuck[0].running_ms >= 10);
    // The others go on.
    for _ in 0..100 {
        pools.submit_blocking(Tier::High, counting(&done)).expect("is taken");
    }
    done.reach(100);
    assert!(pools.scaling_since(0).iter().any(|one| one.action == "abandon"));
    // It comes back: done, once, and nobody tries it again.
    door.open();
    eventually("it is done", || (stats_of(&pools, Tier::High).totals.late == 1).then_some(()));
    eventually("its seat is free", || pools.stuck().is_empty().then_some(()));
    finish(&pools);
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.total_processed, running.get()), (101, 1));
    assert_eq!((stats.totals.retried, stats.totals.abandoned), (0, 0));
    adds_up(&pools, Tier::High);
}

#[test]
fn a_late_failure_is_tried_again_only_when_the_thread_is_back() {
    let pools = start(hasty());
    let (running, door) = (Count::new(), Door::new());
    let (own, inside) = (running.clone(), door.clone());
    let together = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let (now, seen) = (together.clone(), most.clone());
    let task = Task::blocking("stubborn", move |context| {
        seen.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        own.add();
        if context.attempt() == 1 {
            inside.pass();
        }
        now.fetch_sub(1, Ordering::SeqCst);
        if context.attempt() == 1 { Err(Failure::permanent("late")) } else { Ok(()) }
    });
    pools.try_submit(Tier::High, task.timeout(ms(10))).expect("is taken");
    abandoned(&pools, Tier::High, 1);
    assert!(!running.reaches(2, ms(30)), "the first attempt still runs");
    door.open();
    running.reach(2);
    finish(&pools);
    assert_eq!((most.load(Ordering::SeqCst), together.load(Ordering::SeqCst)), (1, 0));
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.total_processed, stats.totals.retried, stats.totals.late), (1, 1, 1));
    adds_up(&pools, Tier::High);
}

#[test]
fn an_idempotent_task_is_tried_again_beside_its_hanging_attempt() {
    let pools = start(hasty());
    let (running, door) = (Count::new(), Door::new());
    let (own, inside) = (running.clone(), door.clone());
    let task = Task::blocking("harmless", move |context| {
        own.add();
        if context.attempt() == 1 {
            inside.pass();
        }
        Ok(())
    });
    pools.try_submit(Tier::High, task.timeout(ms(10)).idempotent()).expect("is taken");
    running.reach(2);
    eventually("it is done", || (stats_of(&pools, Tier::High).total_processed == 1).then_some(()));
    assert_eq!(pools.stuck().len(), 1, "the first attempt still hangs");
    door.open();
    eventually("it is back", || pools.stuck().is_empty().then_some(()));
    finish(&pools);
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.total_processed, running.get(), stats.totals.late), (1, 2, 0));
    adds_up(&pools, Tier::High);
}

#[test]
fn no_more_threads_are_given_up_than_there_are_workers_and_their_seats_are_used_again() {
    let mut options = hasty();
    options.tier_mut(Tier::High).rules = fixed(2);
    options.tier_mut(Tier::High).queue = 100;
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let before = watched.started.get();
    for _ in 0..3 {
        let (running, door, done) = (Count::new(), Door::new(), Count::new());
        for _ in 0..6 {
            let task = blocker(&running, &door).timeout(ms(5));
            pools.try_submit(Tier::High, task).expect("is taken");
        }
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
        // Two are given up, two hang on the seats that are left, and the rest has to wait.
        running.reach(4);
        eventually("all are overdue", || (pools.stuck().len() == 4).then_some(()));
        let given_up = pools.stuck().iter().filter(|one| one.abandoned).count();
        assert_eq!((given_up, done.get()), (2, 0));
        assert!(!running.reaches(5, ms(30)));
        door.open();
        done.reach(1);
        eventually("everything is done", || {
            let stats = stats_of(&pools, Tier::High);
            (stats.processing_tasks + stats.pending_tasks == 0 && pools.stuck().is_empty())
                .then_some(())
        });
        assert_eq!(running.get(), 6);
    }
    assert!(watched.started.get() - before <= 3 * 6, "{}", watched.started.get());
    finish(&pools);
    assert_eq!(stats_of(&pools, Tier::High).total_processed, 21);
    adds_up(&pools, Tier::High);
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
}

#[test]
fn a_tier_that_is_stuck_goes_on_as_soon_as_one_thread_is_back() {
    let pools = start(hasty());
    let (first, second, done) = (Door::new(), Door::new(), Count::new());
    let running = Count::new();
    for door in [&first, &second] {
        let task = blocker(&running, door).timeout(ms(5));
        pools.try_submit(Tier::High, task).expect("is taken");
    }
    running.reach(2);
    pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    eventually("both are overdue", || (pools.stuck().len() == 2).then_some(()));
    assert!(!done.reaches(1, ms(30)));
    // The abandoned one comes back, so that the other one can be given up in its place.
    first.open();
    done.reach(1);
    assert_eq!(pools.stuck().len(), 1);
    second.open();
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_future_that_blocks_in_its_poll_is_given_up_like_blocking_code() {
    let pools = start(hasty());
    let (door, done) = (Door::new(), Count::new());
    let own = door.clone();
    let task = Task::future("rude", move |_| {
        let door = own.clone();
        async move {
            door.pass();
            Ok(())
        }
    });
    pools.try_submit(Tier::High, task.timeout(ms(5))).expect("is taken");
    pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    done.reach(1);
    door.open();
    eventually("it is done", || (stats_of(&pools, Tier::High).total_processed == 2).then_some(()));
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn times_without_an_end_are_times_too() {
    let mut options = plain();
    for tier in &mut options.tiers {
        tier.task_timeout = Duration::MAX;
        tier.idle_timeout = Duration::MAX;
        tier.backoff = skep_policy::backoff::Options { base: ms(1), cap: Duration::MAX };
    }
    options.grace = Duration::MAX;
    options.shared_idle_timeout = Duration::MAX;
    let pools = start(options);
    let done = Count::new();
    for tier in Tier::ALL {
        let own = done.clone();
        let task = Task::future("twice", move |context| {
            own.add();
            let again = context.attempt() == 1;
            async move { if again { Err(Failure::retryable("once more")) } else { Ok(()) } }
        });
        let task = task.timeout(Duration::MAX).start_within(Duration::MAX);
        pools.submit_timeout(tier, task, Duration::MAX).expect("is taken");
    }
    done.reach(8);
    assert!(wait(pools.shutdown(Duration::MAX)).dropped.is_empty());
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn late_attempts_are_tried_again_also_when_nobody_holds_the_pools_any_more() {
    for _ in 0..30 {
        let mut options = plain();
        options.grace = Duration::ZERO;
        let watched = Watched::new();
        let pools = watched.builder(options).start().expect("starts");
        let (running, door, done) = (Count::new(), Door::new(), Count::new());
        let own = (running.clone(), door.clone(), done.clone());
        let task = Task::blocking("late", move |context| {
            let (running, door, done) = &own;
            if context.attempt() == 1 {
                running.add();
                door.pass();
                return Err(Failure::retryable("late"));
            }
            done.add();
            Ok(())
        });
        pools.try_submit(Tier::High, task.timeout(ms(1))).expect("is taken");
        running.reach(1);
        abandoned(&pools, Tier::High, 1);
        drop(pools);
        door.open();
        done.reach(1);
        eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    }
}

#[test]
fn attempts_that_end_while_their_time_ends_are_counted_once() {
    let mut options = high(3, 64);
    options.grace = ms(0);
    options.tier_mut(Tier::High).retries = 1_000;
    let pools = start(options);
    let done = Arc::new(AtomicU32::new(0));
    for number in 0..400_u64 {
        let done = done.clone();
        let task = Task::blocking("close", move |context| {
            // The first attempts take about as long as they may.
            if context.attempt() < 3 {
                spin(Duration::from_micros(200 + number));
                return Err(Failure::retryable("once more"));
            }
            done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let task = task.timeout(Duration::from_micros(300));
        let task = if number % 2 == 0 { task.idempotent() } else { task };
        pools.submit_blocking(Tier::High, task).expect("is taken");
    }
    assert!(finish(&pools).dropped.is_empty());
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.total_processed, stats.total_failed), (400, 0));
    assert!(done.load(Ordering::SeqCst) >= 400);
    assert_eq!((stats.totals.abandoned, stats.active_workers), (0, 0));
    adds_up(&pools, Tier::High);
}

#[test]
fn an_idempotent_task_whose_attempts_all_come_back_late_ends_once() {
    let pools = start(hasty());
    let (running, door) = (Count::new(), Door::new());
    let late = Arc::new(AtomicBool::new(false));
    let (own, inside, said) = (running.clone(), door.clone(), late.clone());
    let task = Task::blocking("harmless", move |context| {
        own.add();
        inside.pass();
        said.fetch_or(context.is_cancelled(), Ordering::SeqCst);
        Ok(())
    });
    let task = task.timeout(ms(10)).idempotent().retries(1);
    pools.try_submit(Tier::High, task).expect("is taken");
    running.reach(2);
    eventually("both are overdue", || (pools.stuck().len() == 2).then_some(()));
    door.open();
    eventually("both are back", || pools.stuck().is_empty().then_some(()));
    finish(&pools);
    assert!(late.load(Ordering::SeqCst));
    adds_up(&pools, Tier::High);
}
