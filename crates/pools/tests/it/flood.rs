//! Too much of everything: nothing is lost, nothing is done twice, nothing grows without end.

use crate::kit::*;
use skep_pools::{Failure, Pools, Report, SubmitError, Task, Tier};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How often each of many tasks was done.
#[derive(Clone)]
struct Times(Arc<Vec<AtomicU32>>);

impl Times {
    fn new(tasks: usize) -> Self {
        Times(Arc::new((0..tasks).map(|_| AtomicU32::new(0)).collect()))
    }

    fn note(&self, task: usize) {
        self.0[task].fetch_add(1, Ordering::SeqCst);
    }

    fn of(&self, task: usize) -> u32 {
        self.0[task].load(Ordering::SeqCst)
    }
}

/// What became of the tasks of a round, by id.
struct Round {
    pools: Pools,
    report: Report,
    /// The id and the number of each accepted task.
    accepted: Vec<(u64, usize)>,
    times: Times,
}

impl Round {
    /// Every task that was accepted was done once or is a dead letter, and not both.
    fn check(&self, name: &str) {
        // On a machine that is very busy, the last steps of a worker may take a while.
        eventually("everybody is gone", || {
            self.pools.stats().iter().all(|one| one.active_workers == 0).then_some(())
        });
        let letters: Vec<u64> = Tier::ALL
            .iter()
            .flat_map(|tier| self.pools.letters(*tier))
            .map(|letter| letter.task)
            .collect();
        let dead: BTreeSet<u64> = letters.iter().copied().collect();
        assert_eq!(dead.len(), letters.len(), "{name}: two letters of one task");
        for (id, number) in &self.accepted {
            let ended = (self.times.of(*number), dead.contains(id));
            assert!(matches!(ended, (1, false) | (0, true)), "{name}: task {number}: {ended:?}");
        }
        let accepted: BTreeSet<u64> = self.accepted.iter().map(|(id, _)| *id).collect();
        assert!(dead.is_subset(&accepted), "{name}: a letter of nobody");
        for dropped in &self.report.dropped {
            assert!(dead.contains(&dropped.id), "{name}: {dropped:?} is no letter");
        }
        for tier in Tier::ALL {
            adds_up(&self.pools, tier);
        }
    }
}

/// Several submit as fast as they can while somebody stops the pools.
fn race(number: usize, limit_ms: u64, task: impl Fn(usize, &Times) -> Task + Sync) -> Round {
    const SUBMITTERS: usize = 3;
    const EACH: usize = 200;
    let mut options = high(2, 16);
    // Whatever has been started can end, on the slowest machine.
    options.grace = PATIENCE;
    options.dead_letters_max = SUBMITTERS * EACH;
    let pools = start(options);
    let times = Times::new(SUBMITTERS * EACH);
    let submit = |submitter: usize| {
        let mut accepted = Vec::new();
        for one in submitter * EACH..(submitter + 1) * EACH {
            let tier = Tier::ALL[one % 4];
            let answer = match (submitter + number) % 3 {
                0 => pools.try_submit(tier, task(one, &times)),
                1 => pools.submit_blocking(tier, task(one, &times)),
                _ => pools.submit_timeout(tier, task(one, &times), ms(5)),
            };
            match answer {
                Ok(id) => accepted.push((id, one)),
                Err(SubmitError::Full(_)) => {}
                Err(SubmitError::Stopped(_)) => break,
            }
        }
        accepted
    };
    let (accepted, report) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SUBMITTERS).map(|one| scope.spawn(move || submit(one))).collect();
        // A little later in each round, so that the end meets everything at some time.
        spin(std::time::Duration::from_micros(20 * number as u64));
        let report = wait(pools.shutdown(ms(limit_ms)));
        let accepted = threads.into_iter().flat_map(|one| one.join().expect("ends")).collect();
        (accepted, report)
    });
    Round { pools, report, accepted, times }
}

fn noted(number: usize, times: &Times) -> Task {
    let times = times.clone();
    Task::blocking("noted", move |_| {
        times.note(number);
        Ok(())
    })
}

#[test]
fn submissions_that_race_with_a_patient_end_are_all_done() {
    for number in 0..60 {
        let round = race(number, 60_000, noted);
        round.check(&format!("round {number}"));
        // One that came in the very last moment may be dropped, and is a letter then.
        assert_eq!(round.report.left_behind, 0);
    }
}

#[test]
fn submissions_that_race_with_an_end_without_patience_are_done_or_told() {
    for number in 0..60 {
        race(number, 0, noted).check(&format!("round {number}"));
    }
}

#[test]
fn tasks_that_fail_while_the_pools_end_are_done_or_told() {
    let task = |number: usize, times: &Times| {
        let times = times.clone();
        Task::blocking("moody", move |context| {
            if context.attempt() <= 1 + number as u32 % 3 {
                return Err(Failure::retryable("not now"));
            }
            times.note(number);
            Ok(())
        })
    };
    for number in 0..60 {
        race(number, number as u64 % 3, task).check(&format!("round {number}"));
    }
}

#[test]
fn tasks_in_line_behind_a_key_are_done_or_told_when_the_pools_end() {
    let task = |number: usize, times: &Times| noted(number, times).serial_key(number as u64 % 7);
    for number in 0..60 {
        race(number, number as u64 % 3, task).check(&format!("round {number}"));
    }
}

#[test]
fn a_flood_against_a_full_queue_is_counted_to_the_last_task() {
    const EACH: u64 = 125_000;
    let pools = start(high(1, 64));
    let (running, door) = (Count::new(), Door::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    let (accepted, rejected) = (AtomicU64::new(0), AtomicU64::new(0));
    let (done, over) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flood = || {
            for number in 0..EACH {
                let done = done.clone();
                let task = Task::blocking("drop", move |_| {
                    done.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                match pools.try_submit(Tier::High, task) {
                    Ok(_) => accepted.fetch_add(1, Ordering::Relaxed),
                    Err(SubmitError::Full(_)) => rejected.fetch_add(1, Ordering::Relaxed),
                    Err(SubmitError::Stopped(_)) => panic!("nobody stops them"),
                };
                if number == EACH / 2 {
                    door.open();
                }
            }
        };
        let look = || {
            let mut looks = 0;
            while !over.load(Ordering::SeqCst) {
                let stats = stats_of(&pools, Tier::High);
                assert!(stats.pending_tasks + stats.delayed_tasks <= 64, "{stats:#?}");
                looks += 1;
                std::thread::yield_now();
            }
            looks
        };
        let looking = scope.spawn(look);
        let flooding: Vec<_> = (0..4).map(|_| scope.spawn(flood)).collect();
        flooding.into_iter().for_each(|one| one.join().expect("ends"));
        over.store(true, Ordering::SeqCst);
        assert!(looking.join().expect("ends") > 0);
    });
    finish(&pools);
    let (accepted, rejected) = (accepted.into_inner(), rejected.into_inner());
    assert_eq!(accepted + rejected, 4 * EACH);
    assert_eq!(done.load(Ordering::Relaxed), accepted);
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.accepted, stats.totals.rejected), (accepted + 1, rejected));
    assert_eq!(stats.total_processed, accepted + 1);
    assert_eq!(pools.spans(Tier::High).run.count(), accepted + 1);
    assert_eq!(pools.spans(Tier::High).wait.count(), accepted + 1);
}

#[test]
fn a_flood_of_tasks_with_one_key_stays_within_the_queue() {
    let pools = start(high(1, 8));
    let (running, door) = (Count::new(), Door::new());
    let first = blocker(&running, &door).serial_key(1);
    pools.try_submit(Tier::High, first).expect("is taken");
    running.reach(1);
    let accepted = AtomicU64::new(0);
    for _ in 0..50 {
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let task = Task::blocking("keyed", |_| Ok(())).serial_key(1);
                    together.wait();
                    if pools.try_submit(Tier::High, task).is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let stats = stats_of(&pools, Tier::High);
        assert!(stats.pending_tasks + stats.delayed_tasks <= 8, "{stats:#?}");
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 8);
    door.open();
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn four_threads_and_tasks_that_fail_now_and_then_lose_nothing() {
    const EACH: usize = 10_000;
    let mut options = high(3, 100);
    options.tier_mut(Tier::High).retries = 10;
    let pools = start(options);
    let times = Times::new(4 * EACH);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pools, times) = (&pools, &times);
            scope.spawn(move || {
                for number in thread * EACH..(thread + 1) * EACH {
                    let times = times.clone();
                    let task = Task::blocking("moody", move |context| {
                        if number % 100 < 3 && context.attempt() < 3 {
                            return Err(Failure::retryable("not now"));
                        }
                        times.note(number);
                        Ok(())
                    });
                    pools.submit_blocking(Tier::High, task).expect("is taken");
                }
            });
        }
    });
    assert!(finish(&pools).dropped.is_empty());
    assert!((0..4 * EACH).all(|task| times.of(task) == 1));
    adds_up(&pools, Tier::High);
    let totals = stats_of(&pools, Tier::High).totals;
    assert_eq!((totals.retried, totals.failed_attempts), (2 * 1_200, 2 * 1_200));
}

#[test]
fn whatever_a_task_holds_is_let_go_with_it() {
    let held = Arc::new(());
    let pools = start(high(2, 16));
    for number in 0..100 {
        let held = held.clone();
        let task = Task::blocking("holding", move |_| {
            let _held = &held;
            if number % 10 == 0 { Err(Failure::retryable("never")) } else { Ok(()) }
        });
        pools.submit_blocking(Tier::High, task).expect("is taken");
    }
    finish(&pools);
    assert_eq!(pools.letters(Tier::High).len(), 10);
    assert_eq!(Arc::strong_count(&held), 11, "the letters can be tried again");
    drop(pools);
    eventually("everything is let go", || (Arc::strong_count(&held) == 1).then_some(()));
}
