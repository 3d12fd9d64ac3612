//! Tasks that stand in line behind a key, and tasks that are no longer wanted.

use crate::kit::*;
use skep_pools::{Cause, Failure, Options, Task, Tier};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const KEYS: usize = 4;

/// Who did what in which order, and whether two of a key ever ran at once.
#[derive(Clone, Default)]
struct Line {
    inside: Arc<[AtomicU32; KEYS]>,
    order: Arc<[Mutex<Vec<usize>>; KEYS]>,
}

impl Line {
    fn enter(&self, key: usize) {
        let others = self.inside[key].fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "two tasks of a key at once");
    }

    fn leave(&self, key: usize) {
        self.inside[key].fetch_sub(1, Ordering::SeqCst);
    }

    fn note(&self, key: usize, number: usize) {
        self.order[key].lock().expect("not poisoned").push(number);
    }

    fn order_of(&self, key: usize) -> Vec<usize> {
        self.order[key].lock().expect("not poisoned").clone()
    }
}

fn roomy() -> Options {
    high(3, 1_000)
}

#[test]
fn tasks_of_a_key_run_one_after_the_other_also_when_some_fail() {
    let pools = start(roomy());
    let line = Line::default();
    for number in 0..1_000 {
        let (line, key) = (line.clone(), number % KEYS);
        let task = Task::blocking("keyed", move |context| {
            line.enter(key);
            std::thread::yield_now();
            line.leave(key);
            if number % 7 == 0 && context.attempt() < 3 {
                return Err(Failure::retryable("once more"));
            }
            if number % 31 == 0 {
                return Err(Failure::permanent("never"));
            }
            line.note(key, number);
            Ok(())
        });
        pools.submit_blocking(Tier::High, task.serial_key(key as u64)).expect("is taken");
    }
    assert!(finish(&pools).dropped.is_empty());
    for key in 0..KEYS {
        let expected: Vec<usize> =
            (0..1_000).filter(|one| one % KEYS == key && one % 31 != 0).collect();
        assert_eq!(line.order_of(key), expected, "first come, first served");
    }
    let letters = pools.letters(Tier::High);
    assert_eq!(letters.len(), (0..1_000).filter(|one| one % 31 == 0).count());
    assert!(letters.iter().all(|one| one.cause == Cause::Permanent));
    adds_up(&pools, Tier::High);
}

#[test]
fn tasks_of_different_keys_run_beside_each_other() {
    let pools = start(roomy());
    let (running, door) = (Count::new(), Door::new());
    for key in 0..3 {
        let task = blocker(&running, &door).serial_key(key);
        pools.try_submit(Tier::High, task).expect("is taken");
    }
    running.reach(3);
    door.open();
}

#[test]
fn the_keys_of_different_tiers_have_nothing_to_do_with_each_other() {
    let pools = start(plain());
    let (running, door) = (Count::new(), Door::new());
    for tier in Tier::ALL {
        pools.try_submit(tier, blocker(&running, &door).serial_key(1)).expect("is taken");
    }
    running.reach(4);
    door.open();
}

#[test]
fn a_task_behind_a_key_leaves_the_worker_to_others() {
    let pools = start(high(2, 16));
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door).serial_key(1)).expect("is taken");
    running.reach(1);
    for _ in 0..5 {
        pools.try_submit(Tier::High, counting(&done).serial_key(1)).expect("is taken");
    }
    let free = Count::new();
    pools.try_submit(Tier::High, counting(&free)).expect("is taken");
    free.reach(1);
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.delayed_tasks, stats.pending_tasks, done.get()), (5, 0, 0));
    door.open();
    done.reach(5);
}

#[test]
fn a_key_is_free_again_however_its_task_ends() {
    hide_panics();
    let mut options = high(2, 16);
    options.grace = ms(1);
    options.dead_letters_max = 100;
    let pools = start(options);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let endings: Vec<(&str, Task)> = vec![
        ("panics", Task::blocking("one", |_| panic!("{PURPOSE}"))),
        ("fails", Task::blocking("one", |_| Err(Failure::permanent("no")))),
        ("fails three times", Task::blocking("one", |_| Err(Failure::retryable("no")))),
        ("hangs", Task::future("one", |_| std::future::pending()).timeout(ms(2))),
        ("is cancelled", Task::blocking("one", |_| Ok(())).cancel_with(cancelled)),
        ("is too late", Task::blocking("one", |_| Ok(())).start_within(ms(0))),
        ("is called once", Task::once("one", |_| panic!("{PURPOSE}"))),
    ];
    for (name, ending) in endings {
        let (running, door) = (Count::new(), Door::new());
        pools.try_submit(Tier::High, blocker(&running, &door).serial_key(1)).expect("is taken");
        running.reach(1);
        let done = Count::new();
        pools.try_submit(Tier::High, ending.serial_key(1)).expect("is taken");
        pools.try_submit(Tier::High, counting(&done).serial_key(1)).expect("is taken");
        door.open();
        done.reach(1);
        assert_eq!(done.get(), 1, "{name}");
    }
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_key_is_not_free_while_an_abandoned_thread_still_works() {
    let mut options = high(2, 16);
    options.grace = ms(1);
    let pools = start(options);
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    let stuck = blocker(&running, &door).timeout(ms(5)).serial_key(1);
    pools.try_submit(Tier::High, stuck).expect("is taken");
    pools.try_submit(Tier::High, counting(&done).serial_key(1)).expect("is taken");
    eventually("it is abandoned", || pools.stuck().iter().any(|one| one.abandoned).then_some(()));
    assert!(!done.reaches(1, ms(30)));
    door.open();
    done.reach(1);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_task_that_is_cancelled_before_it_starts_never_runs() {
    let pools = start(plain());
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    let token = CancellationToken::new();
    for _ in 0..3 {
        let task = counting(&done).cancel_with(token.clone());
        pools.try_submit(Tier::High, task).expect("is taken");
    }
    token.cancel();
    door.open();
    eventually("it is counted", || {
        (stats_of(&pools, Tier::High).totals.cancelled == 3).then_some(())
    });
    finish(&pools);
    assert_eq!((done.get(), pools.letters(Tier::High).len()), (0, 0));
    adds_up(&pools, Tier::High);
}

#[test]
fn a_running_future_is_dropped_as_soon_as_it_is_cancelled() {
    struct Farewell(Count);
    impl Drop for Farewell {
        fn drop(&mut self) {
            self.0.add();
        }
    }
    let pools = start(plain());
    let (running, dropped) = (Count::new(), Count::new());
    let (own, gone) = (running.clone(), dropped.clone());
    let token = CancellationToken::new();
    let task = Task::future("endless", move |_| {
        let (running, farewell) = (own.clone(), Farewell(gone.clone()));
        async move {
            let _farewell = farewell;
            running.add();
            std::future::pending().await
        }
    });
    pools.try_submit(Tier::High, task.cancel_with(token.clone())).expect("is taken");
    running.reach(1);
    token.cancel();
    // Long before its deadline.
    dropped.reach(1);
    finish(&pools);
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.cancelled, running.get()), (1, 1));
    adds_up(&pools, Tier::High);
}

#[test]
fn running_blocking_code_sees_that_it_is_cancelled() {
    let pools = start(plain());
    let running = Count::new();
    let token = CancellationToken::new();
    for outcome in [Ok(()), Err(Failure::retryable("stopped"))] {
        let own = running.clone();
        let task = Task::blocking("polite", move |context| {
            own.add();
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            outcome.clone()
        });
        pools.try_submit(Tier::High, task.cancel_with(token.clone())).expect("is taken");
    }
    running.reach(1);
    token.cancel();
    finish(&pools);
    let stats = stats_of(&pools, Tier::High);
    // The first was done nevertheless; the second never started.
    assert_eq!((stats.total_processed, stats.totals.cancelled, running.get()), (1, 1, 1));
    let again = start(plain());
    let token = CancellationToken::new();
    let own = token.clone();
    let task = Task::blocking("stops itself", move |_| {
        own.cancel();
        Err(Failure::retryable("stopped"))
    });
    again.try_submit(Tier::High, task.cancel_with(token)).expect("is taken");
    finish(&again);
    assert_eq!(stats_of(&again, Tier::High).totals.cancelled, 1);
    adds_up(&again, Tier::High);
}

#[test]
fn a_task_that_is_cancelled_while_it_waits_for_a_retry_is_not_tried_again() {
    let pools = start(plain());
    let (runs, token) = (Count::new(), CancellationToken::new());
    let (own, cancels) = (runs.clone(), token.clone());
    let task = Task::blocking("failing", move |context| {
        own.add();
        if context.attempt() == 2 {
            // It is seen in the next attempt at the latest.
            cancels.cancel();
        }
        Err(Failure::retryable("no"))
    });
    pools.try_submit(Tier::High, task.cancel_with(token).retries(100)).expect("is taken");
    eventually("it is over", || (stats_of(&pools, Tier::High).totals.cancelled == 1).then_some(()));
    finish(&pools);
    assert_eq!((runs.get(), pools.letters(Tier::High).len()), (2, 0));
    adds_up(&pools, Tier::High);
}

#[test]
fn a_task_that_did_not_start_in_time_is_a_dead_letter_and_others_are_not() {
    let pools = start(plain());
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    let late = counting(&done).start_within(ms(5));
    pools.try_submit(Tier::High, late).expect("is taken");
    let patient = counting(&done).start_within(PATIENCE);
    pools.try_submit(Tier::High, patient).expect("is taken");
    assert!(!done.reaches(1, ms(10)));
    door.open();
    done.reach(1);
    finish(&pools);
    let letters = pools.letters(Tier::High);
    assert_eq!((letters.len(), done.get()), (1, 1));
    assert_eq!((letters[0].cause, letters[0].attempts), (Cause::Expired, 0));
    assert_eq!(stats_of(&pools, Tier::High).totals.expired, 1);
    adds_up(&pools, Tier::High);
}

#[test]
fn the_time_to_start_is_not_meant_for_retries() {
    let pools = start(plain());
    let done = Count::new();
    let own = done.clone();
    let task = Task::blocking("failing", move |context| {
        if context.attempt() < 3 {
            spin(ms(3));
            return Err(Failure::retryable("no"));
        }
        own.add();
        Ok(())
    });
    // It starts at once, and much later again.
    pools.try_submit(Tier::High, task.start_within(ms(1_000))).expect("is taken");
    done.reach(1);
}
