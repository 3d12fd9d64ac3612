//! Many small writes become few large ones.

use crate::kit::*;
use skep_pools::{BatchOptions, Batcher, Failure, Letter, LetterBook, Pools, Task, Tier};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// Where batches arrive.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Vec<u32>>>>);

impl Shelf {
    fn put(&self, batch: &[u32]) {
        self.0.lock().expect("not poisoned").push(batch.to_vec());
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.0.lock().expect("not poisoned").clone()
    }

    fn entries(&self) -> Vec<u32> {
        self.batches().concat()
    }
}

fn shelved(pools: &Pools, options: BatchOptions) -> (Batcher<u32>, Shelf) {
    let shelf = Shelf::default();
    let own = shelf.clone();
    let write = move |batch: skep_pools::Batch<u32>| {
        own.put(&batch);
        std::future::ready(Ok(()))
    };
    (Batcher::new(pools, options, write, |_, _| panic!("nothing is at fault")), shelf)
}

const BY_COUNT: BatchOptions = BatchOptions { age: HOUR, ..BatchOptions::new("entries") };

#[test]
fn a_hundred_entries_are_handed_on_at_once() {
    let pools = start(plain());
    let (batcher, shelf) = shelved(&pools, BY_COUNT);
    for entry in 0..99 {
        assert!(batcher.push_or_drop(entry));
    }
    assert_eq!((batcher.totals().waiting, batcher.totals().batches), (99, 0));
    assert!(batcher.push_or_drop(99));
    eventually("they are written", || (batcher.totals().written == 100).then_some(()));
    assert_eq!(shelf.batches(), [(0..100).collect::<Vec<u32>>()]);
    let totals = batcher.totals();
    assert_eq!((totals.taken, totals.batches, totals.waiting), (100, 1, 0));
}

#[test]
fn fewer_entries_are_handed_on_when_they_are_old_enough() {
    let pools = start(plain());
    let options = BatchOptions { age: ms(20), ..BatchOptions::new("entries") };
    let (batcher, shelf) = shelved(&pools, options);
    for wanted in 1..=3 {
        let before = std::time::Instant::now();
        assert!(batcher.push_or_drop(wanted) && batcher.push_or_drop(wanted));
        eventually("they are written", || {
            (batcher.totals().written == u64::from(2 * wanted)).then_some(())
        });
        assert!(before.elapsed() >= ms(20));
    }
    assert_eq!(shelf.batches(), [[1, 1], [2, 2], [3, 3]]);
}

#[test]
fn a_flush_hands_on_what_waits_without_waiting_for_its_age() {
    let pools = start(plain());
    let (batcher, shelf) = shelved(&pools, BY_COUNT);
    wait(batcher.flush());
    for round in 0..20 {
        for entry in 0..3 {
            batcher.push_or_drop(3 * round + entry);
        }
        wait(batcher.flush());
        assert_eq!(shelf.entries(), (0..3 * (round + 1)).collect::<Vec<u32>>());
    }
    assert_eq!(batcher.totals().waiting, 0);
}

#[test]
fn flushes_and_entries_from_everywhere_end_together() {
    let pools = start(plain());
    let (batcher, shelf) = shelved(&pools, BY_COUNT);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                for entry in 0..200 {
                    batcher.push_or_drop(thread * 1_000 + entry);
                    if entry % 20 == 0 {
                        wait(batcher.flush());
                    }
                }
                wait(batcher.flush());
            });
        }
    });
    let mut entries = shelf.entries();
    entries.sort_unstable();
    let expected: Vec<u32> =
        (0..4).flat_map(|thread| thread * 1_000..thread * 1_000 + 200).collect();
    assert_eq!(entries, expected);
}

#[test]
fn a_hundred_thousand_entries_from_four_threads_are_written_once_each_and_in_order() {
    const EACH: u32 = 25_000;
    let pools = start(high(2, 16));
    let options = BatchOptions { capacity: 5_000, ..BatchOptions::new("entries") };
    let (batcher, shelf) = shelved(&pools, options);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("builds").block_on(async {
                    for entry in 0..EACH {
                        batcher.push(thread * EACH + entry).await;
                    }
                });
            });
        }
    });
    wait(batcher.flush());
    let batches = shelf.batches();
    assert!(batches.iter().all(|batch| (1..=1_000).contains(&batch.len())));
    let entries = batches.concat();
    for thread in 0..4 {
        let own: Vec<u32> =
            entries.iter().copied().filter(|entry| entry / EACH == thread).collect();
        assert_eq!(own, (thread * EACH..(thread + 1) * EACH).collect::<Vec<u32>>());
    }
    let totals = batcher.totals();
    assert_eq!((totals.taken, totals.written), (100_000, 100_000));
    assert_eq!((totals.dropped, totals.given_up, totals.failed, totals.waiting), (0, 0, 0, 0));
    assert_eq!(totals.batches, batches.len() as u64);
}

/// A batcher whose writes wait at a door.
fn gated(pools: &Pools, options: BatchOptions) -> (Batcher<u32>, Shelf, Count, Door) {
    let (shelf, running, door) = (Shelf::default(), Count::new(), Door::new());
    let own = (shelf.clone(), running.clone(), door.clone());
    let write = move |batch: skep_pools::Batch<u32>| {
        let (shelf, running, door) = own.clone();
        async move {
            running.add();
            door.pass();
            shelf.put(&batch);
            Ok(())
        }
    };
    (Batcher::new(pools, options, write, |_, _| {}), shelf, running, door)
}

#[test]
fn entries_beyond_the_capacity_are_dropped_and_counted_or_wait() {
    let pools = start(plain());
    let options = BatchOptions { entries: 1, capacity: 10, age: HOUR, ..BY_COUNT };
    let (batcher, shelf, running, door) = gated(&pools, options);
    batcher.push_or_drop(0);
    running.reach(1);
    for entry in 1..=10 {
        assert!(batcher.push_or_drop(entry));
    }
    assert!(!batcher.push_or_drop(99) && !batcher.push_or_drop(99));
    let pushed = Count::new();
    let other = std::thread::spawn({
        let (batcher, pushed) = (batcher.clone(), pushed.clone());
        move || {
            wait(async {
                for entry in 11..=40 {
                    batcher.push(entry).await;
                    pushed.add();
                }
            });
        }
    });
    assert!(!pushed.reaches(1, ms(20)), "it waits");
    let totals = batcher.totals();
    assert_eq!((totals.taken, totals.dropped, totals.waiting), (11, 2, 11));
    door.open();
    join(other);
    wait(batcher.flush());
    assert_eq!(shelf.entries(), (0..=40).collect::<Vec<u32>>());
    assert_eq!(batcher.totals().dropped, 2);
}

#[test]
fn a_large_pile_is_handed_on_in_pieces_of_the_largest_size() {
    let pools = start(plain());
    let options = BatchOptions { entries: 10, entries_max: 50, ..BY_COUNT };
    let (batcher, shelf, running, door) = gated(&pools, options);
    assert!((0..10).all(|entry| batcher.push_or_drop(entry)));
    running.reach(1);
    assert!((10..200).all(|entry| batcher.push_or_drop(entry)));
    door.open();
    wait(batcher.flush());
    let sizes: Vec<usize> = shelf.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 50, 50, 50, 40]);
    assert_eq!(shelf.entries(), (0..200).collect::<Vec<u32>>());
}

/// Fills the high tier; its worker waits at the door.
fn fill(pools: &Pools) -> Door {
    let (running, door) = (Count::new(), Door::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    while pools.try_submit(Tier::High, Task::blocking("filling", |_| Ok(()))).is_ok() {}
    door
}

#[test]
fn entries_wait_while_the_queue_of_the_tier_is_full() {
    let pools = start(plain());
    let door = fill(&pools);
    let options = BatchOptions { age: ms(20), ..BatchOptions::new("entries") };
    let (batcher, shelf) = shelved(&pools, options);
    let before = stats_of(&pools, Tier::High).totals.rejected;
    for entry in 0..5_000 {
        assert!(batcher.push_or_drop(entry));
    }
    let flushed = Count::new();
    let other = std::thread::spawn({
        let (batcher, flushed) = (batcher.clone(), flushed.clone());
        move || {
            wait(batcher.flush());
            flushed.add();
        }
    });
    assert!(!flushed.reaches(1, ms(100)));
    assert_eq!(batcher.totals().waiting, 5_000);
    // Offered again now and then, not with every entry, and not by a crowd of alarms.
    let offers = stats_of(&pools, Tier::High).totals.rejected - before;
    assert!(offers < 500, "{offers} offers");
    door.open();
    join(other);
    assert_eq!(shelf.entries(), (0..5_000).collect::<Vec<u32>>());
}

#[test]
fn entries_are_written_when_nobody_holds_the_batcher_any_more() {
    for full in [false, true] {
        let watched = Watched::new();
        let pools = watched.builder(plain()).start().expect("starts");
        let door = full.then(|| fill(&pools));
        let options = BatchOptions { age: ms(20), ..BatchOptions::new("entries") };
        let (batcher, shelf) = shelved(&pools, options);
        for entry in 0..250 {
            batcher.push_or_drop(entry);
        }
        drop(batcher);
        drop(pools);
        if let Some(door) = door {
            door.open();
        }
        eventually("all are written", || (shelf.entries().len() == 250).then_some(()));
        assert_eq!(shelf.entries(), (0..250).collect::<Vec<u32>>());
        eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    }
}

#[test]
fn a_batcher_without_entries_keeps_nothing_alive() {
    let watched = Watched::new();
    let pools = watched.builder(plain()).start().expect("starts");
    let (batcher, shelf) = shelved(&pools, BY_COUNT);
    batcher.push_or_drop(1);
    wait(batcher.flush());
    drop((pools, batcher));
    eventually("no thread is left", || watched.alive().is_empty().then_some(()));
    eventually("the writer is gone", || (Arc::strong_count(&shelf.0) == 1).then_some(()));
}

#[test]
fn what_waits_when_the_pools_stop_can_be_taken_out() {
    let pools = start(plain());
    let (batcher, shelf) = shelved(&pools, BY_COUNT);
    assert!((0..30).all(|entry| batcher.push_or_drop(entry)));
    finish(&pools);
    // Late news is kept, too.
    assert!(batcher.push_or_drop(30));
    assert!(!wait(batcher.flush()));
    assert_eq!(batcher.totals().waiting, 31);
    assert_eq!(batcher.take_left(), (0..31).collect::<Vec<u32>>());
    assert_eq!((batcher.totals().waiting, shelf.entries().len()), (0, 0));
}

#[test]
fn nobody_waits_for_a_batcher_of_stopped_pools() {
    let pools = start(plain());
    let options = BatchOptions { entries: 5, capacity: 10, ..BY_COUNT };
    let (batcher, _, running, door) = gated(&pools, options);
    assert!((0..5).all(|entry| batcher.push_or_drop(entry)));
    running.reach(1);
    assert!((5..15).all(|entry| batcher.push_or_drop(entry)));
    let waits = Count::new();
    let mut others = Vec::new();
    for flushes in [true, false] {
        let (batcher, waits) = (batcher.clone(), waits.clone());
        others.push(std::thread::spawn(move || {
            waits.add();
            let done = wait(async {
                if flushes { batcher.flush().await } else { batcher.push(99).await }
            });
            assert!(!done, "nobody will ever do it");
        }));
    }
    waits.reach(2);
    let report = wait(pools.shutdown(ms(20)));
    assert_eq!(report.left_behind, 1);
    others.into_iter().for_each(join);
    assert!(!wait(batcher.push(99)));
    assert_eq!(batcher.totals().dropped, 2);
    assert_eq!(batcher.take_left(), (0..15).collect::<Vec<u32>>());
    door.open();
}

/// A letter book that writes in batches, as a node has it.
struct Book(Batcher<u32>);

impl LetterBook for Book {
    fn died(&self, letter: &Letter) {
        self.0.push_or_drop(letter.attempts);
    }

    fn done_after_all(&self, _letter: u64) {}
}

#[test]
fn dead_letters_can_be_written_down_in_batches_until_the_very_end() {
    for round in 0..40 {
        let mut options = high(2, 16);
        options.grace = PATIENCE;
        options.dead_letters_max = 1_000;
        let pools = start(options);
        let batches = BatchOptions { entries: 2, age: ms(1), ..BatchOptions::new("letters") };
        let (batcher, shelf) = shelved(&pools, batches);
        pools.keep_letters_in(Arc::new(Book(batcher.clone())));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..200 {
                        let task = Task::blocking("failing", |_| Err(Failure::permanent("no")));
                        let tier = Tier::ALL[number % 4];
                        if pools.submit_blocking(tier, task).is_err() {
                            break;
                        }
                    }
                });
            }
            spin(Duration::from_micros(50 * round));
            wait(pools.shutdown(ms(round % 2)));
        });
        let told: usize = Tier::ALL.iter().map(|tier| pools.letters(*tier).len()).sum();
        let left = batcher.take_left().len();
        assert_eq!(shelf.entries().len() + left, told, "each letter is told once");
    }
}
