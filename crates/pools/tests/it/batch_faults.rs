//! Batches that cannot be written, for a while or for good.

use crate::kit::*;
use skep_pools::{Batch, BatchOptions, Batcher, Failure, Options, Outcome, Pools, Tier};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was asked to be written, what was, and what was given up.
#[derive(Clone, Default)]
struct Record {
    asked: Arc<Mutex<Vec<Vec<u32>>>>,
    written: Arc<Mutex<Vec<u32>>>,
    given_up: Arc<Mutex<Vec<(u32, String)>>>,
}

impl Record {
    fn written(&self) -> Vec<u32> {
        self.written.lock().expect("not poisoned").clone()
    }

    fn given_up(&self) -> Vec<u32> {
        self.given_up.lock().expect("not poisoned").iter().map(|(entry, _)| *entry).collect()
    }

    fn asked(&self) -> Vec<Vec<u32>> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

const OPTIONS: BatchOptions =
    BatchOptions { age: Duration::from_secs(3_600), ..BatchOptions::new("entries") };

/// A batcher whose writer does what `judge` says: it is written if that says `Ok`.
fn judged(
    pools: &Pools,
    options: BatchOptions,
    judge: impl Fn(&[u32]) -> Outcome + Send + Sync + 'static,
) -> (Batcher<u32>, Record) {
    let record = Record::default();
    let (own, judge) = (record.clone(), Arc::new(judge));
    let write = move |batch: Batch<u32>| {
        let (record, judge) = (own.clone(), judge.clone());
        async move {
            record.asked.lock().expect("not poisoned").push(batch.to_vec());
            judge(&batch)?;
            record.written.lock().expect("not poisoned").extend_from_slice(&batch);
            Ok(())
        }
    };
    let own = record.clone();
    let give_up = move |entry: &u32, failure: &Failure| {
        own.given_up.lock().expect("not poisoned").push((*entry, failure.message.clone()));
    };
    (Batcher::new(pools, options, write, give_up), record)
}

fn all_but(count: u32, poison: &[u32]) -> Vec<u32> {
    (0..count).filter(|entry| !poison.contains(entry)).collect()
}

fn pushed(batcher: &Batcher<u32>, count: u32) {
    for entry in 0..count {
        assert!(batcher.push_or_drop(entry));
    }
    wait(batcher.flush());
    let totals = batcher.totals();
    assert_eq!(totals.taken, u64::from(count));
    assert_eq!((totals.written + totals.given_up, totals.waiting), (u64::from(count), 0));
}

#[test]
fn a_batch_that_fails_for_a_passing_reason_is_tried_again_as_a_whole() {
    let pools = start(plain());
    let times = AtomicU32::new(0);
    let (batcher, record) =
        judged(&pools, OPTIONS, move |_| match times.fetch_add(1, Ordering::SeqCst) {
            0..3 => Err(Failure::retryable("busy")),
            _ => Ok(()),
        });
    pushed(&batcher, 10);
    let whole: Vec<u32> = (0..10).collect();
    assert_eq!(record.asked(), vec![whole.clone(); 4]);
    assert_eq!(record.written(), whole);
    let totals = batcher.totals();
    assert_eq!((totals.failed, totals.batches, totals.given_up), (3, 1, 0));
    assert!(pools.letters(Tier::High).is_empty());
}

#[test]
fn a_long_outage_costs_no_entry_however_few_there_are() {
    for count in [1, 2, 3, 17] {
        let pools = start(plain());
        let times = AtomicU32::new(0);
        let (batcher, record) = judged(&pools, OPTIONS, move |_| {
            match times.fetch_add(1, Ordering::SeqCst) {
                // It comes back for a moment in the middle.
                10 => Ok(()),
                0..40 => Err(Failure::retryable("away")),
                _ => Ok(()),
            }
        });
        pushed(&batcher, count);
        assert_eq!((record.written(), record.given_up()), (all_but(count, &[]), vec![]));
    }
}

#[test]
fn only_the_entry_at_fault_is_given_up_wherever_it_is() {
    let pools = start(plain());
    for count in 1..=9 {
        for poison in 0..count {
            let (batcher, record) = judged(&pools, OPTIONS, move |batch| {
                if batch.contains(&poison) { Err(Failure::permanent("unwritable")) } else { Ok(()) }
            });
            pushed(&batcher, count);
            assert_eq!(record.written(), all_but(count, &[poison]), "{poison} of {count}");
            assert_eq!(record.given_up(), [poison]);
            let said = record.given_up.lock().expect("not poisoned")[0].1.clone();
            assert_eq!(said, "unwritable");
            assert_eq!(batcher.totals().given_up, 1);
        }
    }
    assert!(pools.letters(Tier::High).is_empty());
}

#[test]
fn several_entries_at_fault_are_found_without_writing_every_entry_alone() {
    let pools = start(plain());
    let poison = [0, 499, 500, 999];
    let options = BatchOptions { entries: 1_000, ..OPTIONS };
    let (batcher, record) = judged(&pools, options, move |batch| {
        let sick = batch.iter().any(|entry| poison.contains(entry));
        if sick { Err(Failure::permanent("unwritable")) } else { Ok(()) }
    });
    pushed(&batcher, 1_000);
    assert_eq!((record.written(), record.given_up()), (all_but(1_000, &poison), poison.to_vec()));
    assert!(record.asked().len() < 150, "{} writes", record.asked().len());
}

#[test]
fn nothing_can_be_written_and_everything_is_given_up_in_order() {
    let pools = start(plain());
    let (batcher, record) = judged(&pools, OPTIONS, |_| Err(Failure::permanent("never")));
    pushed(&batcher, 20);
    assert_eq!((record.written(), record.given_up()), (vec![], all_but(20, &[])));
}

#[test]
fn a_write_that_panics_now_and_then_loses_nothing() {
    hide_panics();
    let pools = start(plain());
    let times = AtomicU32::new(0);
    let (batcher, record) = judged(&pools, OPTIONS, move |_| {
        assert!(times.fetch_add(1, Ordering::SeqCst) % 3 == 2, "{PURPOSE}");
        Ok(())
    });
    for round in 0..5 {
        for entry in 0..10 {
            batcher.push_or_drop(10 * round + entry);
        }
        wait(batcher.flush());
    }
    assert_eq!((record.written(), record.given_up()), (all_but(50, &[]), vec![]));
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.died, batcher.totals().failed), (0, 10));
}

#[test]
fn an_entry_that_makes_the_write_panic_is_given_up_alone() {
    hide_panics();
    let pools = start(plain());
    for (count, poison) in [(1, 0), (2, 1), (8, 0), (8, 3), (8, 7), (100, 42)] {
        let (batcher, record) = judged(&pools, OPTIONS, move |batch| {
            assert!(!batch.contains(&poison), "{PURPOSE}");
            Ok(())
        });
        pushed(&batcher, count);
        assert_eq!(record.written(), all_but(count, &[poison]), "{poison} of {count}");
        assert_eq!(record.given_up(), [poison]);
        let said = record.given_up.lock().expect("not poisoned")[0].1.clone();
        assert!(said.contains(PURPOSE), "{said}");
    }
}

#[test]
fn a_write_that_panics_before_there_is_a_future_is_a_failure_too() {
    hide_panics();
    let pools = start(plain());
    let written = Count::new();
    let own = written.clone();
    let write = move |batch: Batch<u32>| {
        assert!(!batch.contains(&2), "{PURPOSE}");
        batch.iter().for_each(|_| own.add());
        std::future::ready(Ok(()))
    };
    let given_up = Count::new();
    let own = given_up.clone();
    let batcher = Batcher::new(&pools, OPTIONS, write, move |_, _| own.add());
    pushed(&batcher, 5);
    assert_eq!((written.get(), given_up.get()), (4, 1));
}

fn impatient() -> Options {
    let mut options = plain();
    options.tier_mut(Tier::High).task_timeout = ms(20);
    options
}

#[test]
fn an_entry_that_makes_the_write_hang_is_given_up_alone() {
    let pools = start(impatient());
    let (written, given_up) = (Record::default(), Record::default());
    let (own, other) = (written.clone(), given_up.clone());
    let write = move |batch: Batch<u32>| {
        let record = own.clone();
        async move {
            if batch.contains(&2) {
                return std::future::pending().await;
            }
            record.written.lock().expect("not poisoned").extend_from_slice(&batch);
            Ok(())
        }
    };
    let give_up = move |entry: &u32, failure: &Failure| {
        other.given_up.lock().expect("not poisoned").push((*entry, failure.message.clone()));
    };
    let options = BatchOptions { tries_as_a_whole: 2, ..OPTIONS };
    let batcher = Batcher::new(&pools, options, write, give_up);
    pushed(&batcher, 4);
    assert_eq!((written.written(), given_up.given_up()), (vec![0, 1, 3], vec![2]));
}

#[test]
fn whoever_hears_of_entries_given_up_may_panic_and_may_use_the_batcher() {
    hide_panics();
    let pools = start(plain());
    let batcher: Arc<Mutex<Option<Batcher<u32>>>> = Arc::default();
    let (own, heard) = (batcher.clone(), Count::new());
    let told = heard.clone();
    let give_up = move |entry: &u32, _: &Failure| {
        told.add();
        let batcher = own.lock().expect("not poisoned").clone().expect("is there");
        assert!(batcher.totals().taken > 0);
        if *entry < 100 {
            batcher.push_or_drop(entry + 100);
        }
        drop(batcher);
        panic!("{PURPOSE}");
    };
    let write = |_: Batch<u32>| std::future::ready(Err(Failure::permanent("never")));
    let made = Batcher::new(&pools, OPTIONS, write, give_up);
    *batcher.lock().expect("not poisoned") = Some(made.clone());
    assert!((0..5).all(|entry| made.push_or_drop(entry)));
    // Those that came from the others are not waited for by the first.
    wait(made.flush());
    wait(made.flush());
    let totals = made.totals();
    assert_eq!((heard.get(), totals.given_up, totals.waiting), (10, 10, 0));
    *batcher.lock().expect("not poisoned") = None;
}

#[test]
fn entries_that_panic_when_they_are_dropped_stop_nothing() {
    hide_panics();
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("{PURPOSE}");
        }
    }
    let pools = start(plain());
    let written = Count::new();
    let own = written.clone();
    let write = move |batch: Batch<Bomb>| {
        batch.iter().for_each(|_| own.add());
        std::future::ready(Ok(()))
    };
    let batcher = Batcher::new(&pools, BatchOptions { entries: 1, ..OPTIONS }, write, |_, _| {});
    for wanted in 1..=5 {
        assert!(batcher.push_or_drop(Bomb));
        written.reach(wanted);
        wait(batcher.flush());
    }
    assert_eq!((batcher.totals().written, written.get()), (5, 5));
}

#[test]
fn numbers_that_make_no_sense_are_brought_into_reason() {
    let pools = start(plain());
    let options = BatchOptions {
        entries: 0,
        entries_max: 0,
        capacity: 0,
        tries_as_a_whole: 0,
        age: Duration::ZERO,
        ..OPTIONS
    };
    let (batcher, record) = judged(&pools, options, |_| Ok(()));
    wait(async {
        for entry in 0..20 {
            batcher.push(entry).await;
        }
    });
    wait(batcher.flush());
    assert_eq!(record.written(), all_but(20, &[]));
}

#[test]
fn the_order_holds_through_failures_of_all_sorts() {
    hide_panics();
    let mut options = plain();
    options.tier_mut(Tier::High).rules = fixed(1);
    let pools = start(options);
    let times = AtomicU32::new(0);
    let options = BatchOptions { entries: 10, entries_max: 20, ..OPTIONS };
    let (batcher, record) =
        judged(&pools, options, move |batch| match times.fetch_add(1, Ordering::SeqCst) % 7 {
            0 | 3 => Err(Failure::retryable("busy")),
            5 => panic!("{PURPOSE}"),
            _ if batch.iter().any(|entry| entry % 50 == 49) => Err(Failure::permanent("no")),
            _ => Ok(()),
        });
    pushed(&batcher, 500);
    let poison: Vec<u32> = (0..500).filter(|entry| entry % 50 == 49).collect();
    assert_eq!((record.written(), record.given_up()), (all_but(500, &poison), poison));
}
