//! The end: what is finished, what is told.

use crate::kit::*;
use skep_pools::{Cause, Failure, Pools, SubmitError, Task, Tier};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Fills the queues of pools whose workers are all busy.
fn filled(pools: &Pools, task: impl Fn(Tier, usize) -> Task) -> (Count, Door) {
    let (running, door) = (Count::new(), Door::new());
    for tier in Tier::ALL {
        pools.try_submit(tier, blocker(&running, &door)).expect("is taken");
    }
    running.reach(4);
    for number in 0..4 {
        for tier in Tier::ALL.into_iter().rev() {
            pools.try_submit(tier, task(tier, number)).expect("is taken");
        }
    }
    (running, door)
}

#[test]
fn everything_is_finished_the_most_urgent_first() {
    let mut options = plain();
    options.grace = PATIENCE;
    let pools = start(options);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (running, door) = (Count::new(), Door::new());
    // Three tiers are stuck, so that one worker does everything that waits.
    let free = Door::new();
    pools.try_submit(Tier::Low, blocker(&running, &free)).expect("is taken");
    for tier in [Tier::Critical, Tier::High, Tier::Normal] {
        pools.try_submit(tier, blocker(&running, &door)).expect("is taken");
    }
    running.reach(4);
    for tier in Tier::ALL.into_iter().rev() {
        for number in 0..4 {
            let order = order.clone();
            let task = Task::blocking("ordered", move |_| {
                order.lock().expect("not poisoned").push((tier, number));
                Ok(())
            });
            pools.try_submit(tier, task).expect("is taken");
        }
    }
    let ending = std::thread::spawn({
        let pools = pools.clone();
        move || finish(&pools)
    });
    eventually("they end", || pools.is_stopping().then_some(()));
    free.open();
    eventually("all are done", || (order.lock().expect("not poisoned").len() == 16).then_some(()));
    door.open();
    let report = join(ending);
    assert!(report.dropped.is_empty() && report.left_behind == 0);
    let order = order.lock().expect("not poisoned");
    assert!(order.is_sorted(), "{order:?}");
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn what_is_left_at_the_limit_is_told_and_buried() {
    let pools = start(plain());
    let done = Count::new();
    let (running, door) = filled(&pools, |_, _| counting(&done));
    let report = wait(pools.shutdown(ms(20)));
    assert_eq!((report.dropped.len(), report.left_behind), (20, 4));
    assert_eq!(report.dropped.iter().filter(|one| one.running).count(), 4);
    assert!(report.dropped.is_sorted_by_key(|one| (one.tier, one.id)));
    for tier in Tier::ALL {
        let letters = pools.letters(tier);
        assert_eq!(letters.len(), 5);
        assert!(letters.iter().all(|one| one.cause == Cause::Shutdown));
        assert_eq!(stats_of(&pools, tier).totals.dropped, 5);
    }
    // They come back long after everything was told.
    door.open();
    eventually("they are gone", || {
        Tier::ALL.iter().all(|tier| stats_of(&pools, *tier).active_workers == 0).then_some(())
    });
    assert_eq!((running.get(), done.get()), (4, 0));
    for tier in Tier::ALL {
        assert_eq!(pools.letters(tier).len(), 5, "nothing is told twice");
        adds_up(&pools, tier);
    }
}

#[test]
fn what_is_done_in_the_last_moment_is_not_told_as_dropped() {
    let mut options = plain();
    options.grace = PATIENCE / 2;
    let pools = start(options);
    let running = Count::new();
    for outcome in [Ok(()), Err(Failure::permanent("stopped"))] {
        let running = running.clone();
        let tier = if outcome.is_ok() { Tier::Normal } else { Tier::Low };
        let task = Task::blocking("polite", move |context| {
            running.add();
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            outcome.clone()
        });
        pools.try_submit(tier, task).expect("is taken");
    }
    running.reach(2);
    let report = wait(pools.shutdown(ms(5)));
    assert_eq!((report.dropped.len(), report.left_behind), (1, 0), "{report:?}");
    assert!(report.dropped[0].tier == Tier::Low && report.dropped[0].running);
    assert_eq!(stats_of(&pools, Tier::Normal).total_processed, 1);
    assert!(pools.letters(Tier::Normal).is_empty());
    assert_eq!(pools.letters(Tier::Low)[0].cause, Cause::Shutdown);
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn a_future_that_hangs_is_dropped_at_the_limit() {
    let pools = start(plain());
    let running = Count::new();
    let own = running.clone();
    let task = Task::future("endless", move |_| {
        own.add();
        std::future::pending()
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    running.reach(1);
    let report = wait(pools.shutdown(ms(5)));
    assert_eq!((report.dropped.len(), report.left_behind), (1, 0));
    assert_eq!(pools.letters(Tier::High)[0].cause, Cause::Shutdown);
}

#[test]
fn retries_do_not_wait_for_their_time_when_the_pools_end() {
    let mut options = plain();
    options.tier_mut(Tier::High).backoff.base = PATIENCE * 60;
    options.tier_mut(Tier::High).backoff.cap = PATIENCE * 60;
    let pools = start(options);
    let runs = Count::new();
    let own = runs.clone();
    let task = Task::blocking("failing", move |context| {
        own.add();
        if context.attempt() < 3 { Err(Failure::retryable("not yet")) } else { Ok(()) }
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    runs.reach(1);
    assert!(finish(&pools).dropped.is_empty());
    assert_eq!(runs.get(), 3);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_retry_is_not_left_behind_workers_that_finish_what_waited_elsewhere() {
    let mut options = plain();
    // One stands by, and there may be another.
    options.shared.max = 2;
    options.tier_mut(Tier::High).backoff.base = PATIENCE * 60;
    options.tier_mut(Tier::High).backoff.cap = PATIENCE * 60;
    let pools = start(options);
    let (running, door, runs) = (Count::new(), Door::new(), Count::new());
    for _ in 0..5 {
        pools.submit_blocking(Tier::Low, blocker(&running, &door)).expect("is taken");
    }
    running.reach(1);
    let own = runs.clone();
    let task = Task::blocking("failing", move |context| {
        own.add();
        if context.attempt() < 3 { Err(Failure::retryable("not yet")) } else { Ok(()) }
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    runs.reach(1);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| finish(&pools));
        // Everybody is busy with what waited in low, when the last attempt is due.
        runs.reach(3);
        door.open();
        assert!(ending.join().expect("ends").dropped.is_empty());
    });
}

#[test]
fn submitters_that_wait_get_their_tasks_back() {
    let pools = start(plain());
    let done = Count::new();
    let (_, door) = filled(&pools, |_, _| counting(&done));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.expect("builds");
    let (back, waits) = (Count::new(), Count::new());
    let mut threads = Vec::new();
    for number in 0..30 {
        let (pools, task, back) = (pools.clone(), counting(&done), back.clone());
        let note = move |answer| {
            assert!(matches!(answer, Err(SubmitError::Stopped(_))), "{answer:?}");
            back.add();
        };
        let (tier, waits) = (Tier::ALL[number % 4], waits.clone());
        match number % 3 {
            0 => threads.push(std::thread::spawn(move || {
                waits.add();
                note(pools.submit_blocking(tier, task));
            })),
            1 => threads.push(std::thread::spawn(move || {
                waits.add();
                note(pools.submit_timeout(tier, task, PATIENCE));
            })),
            _ => {
                runtime.spawn(async move {
                    waits.add();
                    note(pools.submit(tier, task).await);
                });
            }
        }
    }
    waits.reach(30);
    let report = wait(pools.shutdown(ms(20)));
    back.reach(30);
    assert_eq!(report.dropped.len(), 20);
    door.open();
    threads.into_iter().for_each(join);
}

#[test]
fn pools_can_be_stopped_again_and_again() {
    let pools = start(plain());
    let (_, door) = filled(&pools, |_, _| Task::blocking("never", |_| Ok(())));
    assert_eq!(wait(pools.shutdown(ms(1))).dropped.len(), 20);
    for _ in 0..3 {
        let again = wait(pools.shutdown(ms(1)));
        assert_eq!((again.dropped.len(), again.left_behind), (0, 4), "they still hang");
    }
    door.open();
    eventually("they are back", || (finish(&pools).left_behind == 0).then_some(()));
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn of_two_who_stop_the_pools_at_once_both_come_back() {
    for (first, second) in [(5, 60_000), (60_000, 5), (5, 5), (0, 0)] {
        let pools = start(plain());
        let (_, door) = filled(&pools, |_, _| Task::blocking("never", |_| Ok(())));
        let other = std::thread::spawn({
            let pools = pools.clone();
            move || wait(pools.shutdown(ms(second)))
        });
        let own = wait(pools.shutdown(ms(first)));
        let other = join(other);
        assert_eq!(own.dropped.len() + other.dropped.len(), 20, "each is told once");
        door.open();
    }
}

#[test]
fn submissions_during_the_last_moments_do_not_keep_the_end_from_coming() {
    for _ in 0..10 {
        let mut options = plain();
        options.grace = ms(10);
        let pools = start(options);
        let (_, door) = filled(&pools, |_, _| Task::blocking("never", |_| Ok(())));
        std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                loop {
                    let task = Task::blocking("late", |_| Ok(()));
                    match pools.try_submit(Tier::High, task) {
                        Err(SubmitError::Stopped(_)) => break,
                        _ => std::thread::yield_now(),
                    }
                }
            });
            let report = wait(pools.shutdown(ms(2)));
            assert_eq!(report.left_behind, 4);
            late.join().expect("ends");
        });
        door.open();
    }
}

#[test]
fn an_end_that_nobody_waits_for_still_comes() {
    let watched = Watched::new();
    let pools = watched.builder(plain()).start().expect("starts");
    let done = Count::new();
    let (_, door) = filled(&pools, |_, _| counting(&done));
    let ending =
        wait(async { tokio::time::timeout(ms(20), pools.shutdown(ms(10) + PATIENCE)).await });
    assert!(ending.is_err() && pools.is_stopping());
    door.open();
    done.reach(16);
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn an_end_that_is_given_up_between_its_steps_leaves_no_thread() {
    let mut options = plain();
    options.grace = PATIENCE;
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let done = Count::new();
    let (_, door) = filled(&pools, |_, _| counting(&done));
    // It is past its limit and waits for those who were told to stop.
    let ending = wait(async { tokio::time::timeout(ms(50), pools.shutdown(ms(1))).await });
    assert!(ending.is_err());
    door.open();
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    Tier::ALL.iter().for_each(|tier| adds_up(&pools, *tier));
}

#[test]
fn when_the_last_handle_goes_everything_is_finished_in_the_background() {
    let watched = Watched::new();
    let pools = watched.builder(plain()).start().expect("starts");
    let done = Count::new();
    let (_, door) = filled(&pools, |_, number| {
        let done = done.clone();
        Task::blocking("moody", move |context| {
            if number == 0 && context.attempt() < 3 {
                return Err(Failure::retryable("not yet"));
            }
            done.add();
            Ok(())
        })
    });
    drop(pools.clone());
    assert!(!pools.is_stopping());
    drop(pools);
    door.open();
    done.reach(16);
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    assert_eq!(watched.ended.get(), watched.started.get());
    assert_eq!(done.get(), 16);
}

#[test]
fn the_last_handle_may_go_with_a_task() {
    let watched = Watched::new();
    let pools = watched.builder(plain()).start().expect("starts");
    let (done, door) = (Count::new(), Door::new());
    let (own, inside, last) = (done.clone(), door.clone(), pools.clone());
    let task = Task::once("holding", move |_| {
        inside.pass();
        let submitted = last.try_submit(Tier::Low, counting(&own));
        submitted.map(drop).map_err(Failure::permanent)
    });
    pools.try_submit(Tier::Critical, task).expect("is taken");
    drop(pools);
    door.open();
    done.reach(1);
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
}

#[test]
fn waiting_for_a_lost_thread_starts_no_others() {
    let mut options = plain();
    options.grace = ms(1);
    let watched = Watched::new();
    let pools = watched.builder(options).start().expect("starts");
    let (running, door) = (Count::new(), Door::new());
    let keyed = |task: Task| task.serial_key(1);
    let stuck = keyed(blocker(&running, &door)).timeout(ms(5));
    pools.try_submit(Tier::High, stuck).expect("is taken");
    running.reach(1);
    // Somebody waits behind the lost one, so that the end is not there yet.
    let done = Count::new();
    pools.try_submit(Tier::High, keyed(counting(&done))).expect("is taken");
    eventually("it is abandoned", || pools.stuck().iter().any(|one| one.abandoned).then_some(()));
    let before = watched.started.get();
    let report = wait(pools.shutdown(ms(100)));
    assert_eq!((report.dropped.len(), report.left_behind), (2, 1));
    let started = watched.started.get() - before;
    assert!(started <= 8, "{started} threads were started for nothing");
    door.open();
}

#[test]
fn a_task_that_is_stopped_by_the_end_of_its_pools_can_be_told_from_a_cancelled_one() {
    let pools = start(plain());
    let attempts = Arc::new(AtomicU32::new(0));
    let own = attempts.clone();
    let task = Task::future("endless", move |_| {
        own.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    eventually("it runs", || (attempts.load(Ordering::SeqCst) == 1).then_some(()));
    wait(pools.shutdown(ms(0)));
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.dropped, stats.totals.cancelled), (1, 0));
    assert_eq!(pools.letters(Tier::High).len(), 1);
}
