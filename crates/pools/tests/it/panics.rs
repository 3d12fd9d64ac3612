//! Code that panics, wherever it can.

use crate::kit::*;
use skep_pools::{Cause, Failure, Letter, LetterBook, Pools, Task, Tier};
use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped {PURPOSE}");
    }
}

fn letter_of(pools: &Pools, tier: Tier) -> Letter {
    eventually("a dead letter", || pools.letters(tier).pop())
}

/// The pools still do what they are given, and nobody died.
#[track_caller]
fn is_well(pools: &Pools, tier: Tier) {
    let done = Count::new();
    pools.submit_blocking(tier, counting(&done)).expect("is taken");
    done.reach(1);
    eventually("nothing is left", || {
        let stats = stats_of(pools, tier);
        (stats.processing_tasks == 0 && stats.delayed_tasks == 0).then_some(())
    });
    let stats = stats_of(pools, tier);
    assert_eq!((stats.totals.died, stats.active_workers), (0, 1));
    finish(pools);
    adds_up(pools, tier);
}

#[test]
fn a_panic_is_tried_again_and_buried_with_its_message() {
    hide_panics();
    let pools = start(plain());
    let task = Task::blocking("blocking", |context| {
        panic!("attempt {} {PURPOSE}", context.attempt());
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    let letter = letter_of(&pools, Tier::High);
    assert_eq!((letter.cause, letter.attempts), (Cause::Crashed, 3));
    let said = |attempt: u32| format!("panicked: attempt {attempt} {PURPOSE}");
    assert_eq!(letter.errors, [said(1), said(2), said(3)]);
    let totals = stats_of(&pools, Tier::High).totals;
    assert_eq!((totals.panicked, totals.retried, totals.failed_attempts), (3, 2, 3));
    is_well(&pools, Tier::High);
}

#[test]
fn a_panic_that_passes_is_no_letter() {
    hide_panics();
    let pools = start(plain());
    let done = Count::new();
    let own = done.clone();
    let task = Task::future("future", move |context| {
        let done = own.clone();
        async move {
            assert!(context.attempt() > 1, "{PURPOSE}");
            done.add();
            Ok(())
        }
    });
    pools.try_submit(Tier::Normal, task).expect("is taken");
    done.reach(1);
    is_well(&pools, Tier::Normal);
    assert!(pools.letters(Tier::Normal).is_empty());
}

#[test]
fn a_future_may_panic_where_it_is_made_and_after_it_has_slept() {
    hide_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.expect("builds");
    let pools = Pools::builder(plain()).runtime(runtime.handle().clone()).start().expect("starts");
    let made = Task::future("made", |_| -> std::future::Ready<_> { panic!("{PURPOSE}") });
    pools.try_submit(Tier::High, made.retries(0)).expect("is taken");
    let polled = Task::future("polled", |_| async {
        tokio::time::sleep(ms(5)).await;
        panic!("{PURPOSE}")
    });
    pools.try_submit(Tier::High, polled.retries(1)).expect("is taken");
    eventually("both are dead", || (pools.letters(Tier::High).len() == 2).then_some(()));
    assert_eq!(stats_of(&pools, Tier::High).totals.panicked, 3);
    is_well(&pools, Tier::High);
}

#[test]
fn a_panic_in_the_end_of_a_closure_is_counted_and_the_task_is_done() {
    hide_panics();
    let pools = start(plain());
    let bomb = Bomb;
    let task = Task::blocking("bomb", move |_| {
        let _inside = &bomb;
        Ok(())
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    eventually("it is counted", || {
        (stats_of(&pools, Tier::High).totals.panicked == 1).then_some(())
    });
    assert_eq!(stats_of(&pools, Tier::High).total_processed, 1);
    is_well(&pools, Tier::High);
}

/// A future whose end panics.
struct LastWords {
    polls: u32,
}

impl Future for LastWords {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += 1;
        cx.waker().wake_by_ref();
        if self.polls < 3 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        panic!("the last words {PURPOSE}");
    }
}

#[test]
fn a_panic_in_the_end_of_a_future_is_a_failure() {
    hide_panics();
    let pools = start(plain());
    let task = Task::future("last-words", |_| LastWords { polls: 0 });
    pools.try_submit(Tier::High, task).expect("is taken");
    let letter = letter_of(&pools, Tier::High);
    assert_eq!((letter.cause, letter.attempts), (Cause::Crashed, 3));
    is_well(&pools, Tier::High);
}

#[test]
fn a_future_that_panics_while_it_is_stopped_harms_nobody() {
    hide_panics();
    let pools = start(plain());
    let task = Task::future("stubborn", |_| async {
        let _bomb = Bomb;
        std::future::pending::<()>().await;
        Ok(())
    });
    pools.try_submit(Tier::High, task.timeout(ms(5)).retries(1)).expect("is taken");
    let letter = letter_of(&pools, Tier::High);
    assert_eq!((letter.cause, letter.attempts), (Cause::TimedOut, 2));
    is_well(&pools, Tier::High);
}

#[test]
fn a_panic_whose_payload_panics_when_it_is_dropped_is_still_one_panic() {
    hide_panics();
    let pools = start(plain());
    struct Worse;
    impl Drop for Worse {
        fn drop(&mut self) {
            panic_any(Bomb);
        }
    }
    let task = Task::blocking("bombs", |context| match context.attempt() {
        1 => panic_any(Bomb),
        2 => panic_any(Worse),
        _ => panic_any(42_u8),
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    let letter = letter_of(&pools, Tier::High);
    assert_eq!(letter.errors, ["panicked: without a message"; 3]);
    is_well(&pools, Tier::High);
}

#[test]
fn a_hundred_thousand_panics_lose_no_worker_and_no_task() {
    hide_panics();
    const TASKS: u64 = 25_000;
    let mut options = high(2, 1_000);
    options.tier_mut(Tier::High).retries = 3;
    options.dead_letters_max = 10;
    let pools = start(options);
    let done = Arc::new(AtomicU64::new(0));
    for number in 0..TASKS {
        let done = done.clone();
        let task = Task::blocking("panicking", move |context| {
            if context.attempt() <= 3 || number % 2 == 0 {
                // Without the hook, which would print and take its time.
                std::panic::resume_unwind(Box::new(PURPOSE));
            }
            done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        pools.submit_blocking(Tier::High, task).expect("is taken");
    }
    eventually("all have ended", || {
        let stats = stats_of(&pools, Tier::High);
        (stats.total_processed + stats.total_failed == TASKS).then_some(())
    });
    assert!(finish(&pools).dropped.is_empty());
    let stats = stats_of(&pools, Tier::High);
    assert_eq!(done.load(Ordering::SeqCst), TASKS / 2);
    assert_eq!((stats.total_processed, stats.total_failed), (TASKS / 2, TASKS / 2));
    assert_eq!(stats.totals.panicked, 3 * TASKS + TASKS / 2);
    assert_eq!((stats.totals.died, stats.totals.spawned), (0, 2));
    assert_eq!(stats.totals.letters_forgotten, TASKS / 2 - 10);
    adds_up(&pools, Tier::High);
}

/// Panics whenever it is told something.
struct Shaky(Count);

impl LetterBook for Shaky {
    fn died(&self, _letter: &Letter) {
        self.0.add();
        panic!("the book {PURPOSE}");
    }

    fn done_after_all(&self, _letter: u64) {
        self.0.add();
        panic!("the book {PURPOSE}");
    }
}

#[test]
fn a_letter_book_that_panics_takes_no_worker_and_no_letter_with_it() {
    hide_panics();
    let pools = start(plain());
    let told = Count::new();
    pools.keep_letters_in(Arc::new(Shaky(told.clone())));
    let door = Arc::new(AtomicU64::new(0));
    let own = door.clone();
    let task = Task::blocking("failing", move |_| match own.load(Ordering::SeqCst) {
        0 => Err(Failure::permanent("not yet")),
        _ => Ok(()),
    });
    pools.try_submit(Tier::High, task.serial_key(1)).expect("is taken");
    let letter = letter_of(&pools, Tier::High);
    door.store(1, Ordering::SeqCst);
    pools.retry(letter.id).expect("is tried again");
    told.reach(2);
    let done = Count::new();
    pools.try_submit(Tier::High, counting(&done).serial_key(1)).expect("is taken");
    done.reach(1);
    is_well(&pools, Tier::High);
}

#[test]
fn a_task_that_is_forgotten_or_discarded_may_panic_too() {
    hide_panics();
    let mut options = plain();
    options.dead_letters_max = 2;
    let pools = start(options);
    for _ in 0..5 {
        let bomb = Bomb;
        let task = Task::blocking("bomb", move |_| {
            let _inside = &bomb;
            Err(Failure::permanent("as it is"))
        });
        pools.submit_blocking(Tier::High, task).expect("is taken");
    }
    eventually("all are dead", || (stats_of(&pools, Tier::High).total_failed == 5).then_some(()));
    for letter in pools.letters(Tier::High) {
        let id = letter.id;
        // A copy that is held would be what panics.
        std::mem::forget(letter);
        assert!(pools.discard(id));
    }
    is_well(&pools, Tier::High);
}
