//! How tasks get in: at once, after a wait, or not at all.

use crate::kit::*;
use skep_policy::pools::Ratio;
use skep_pools::{Failure, Options, Pools, StartError, SubmitError, Task, Tier};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Pools with one busy worker and a full queue in the high tier.
struct Stuffed {
    pools: Pools,
    done: Count,
    door: Door,
}

fn stuffed(queue: usize) -> Stuffed {
    let pools = start(high(1, queue));
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for _ in 0..queue {
        pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    }
    Stuffed { pools, done, door }
}

#[test]
fn a_full_queue_gives_the_task_back_and_the_task_still_works() {
    let Stuffed { pools, done, door } = stuffed(4);
    let refused = pools.try_submit(Tier::High, counting(&done));
    let Err(SubmitError::Full(task)) = refused else { panic!("{refused:?}") };
    assert_eq!(task.kind(), "counting");
    let refused = pools.submit_timeout(Tier::High, task, ms(20));
    let Err(SubmitError::Full(task)) = refused else { panic!("{refused:?}") };
    let stats = stats_of(&pools, Tier::High);
    assert_eq!((stats.totals.rejected, stats.totals.accepted, stats.pending_tasks), (2, 5, 4));
    door.open();
    pools.submit_blocking(Tier::High, task).expect("is taken");
    assert!(finish(&pools).dropped.is_empty());
    assert_eq!(done.get(), 5);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_submitter_that_waits_for_some_time_gets_in_as_soon_as_there_is_room() {
    let Stuffed { pools, done, door } = stuffed(4);
    let other = std::thread::spawn({
        let (pools, task) = (pools.clone(), counting(&done));
        move || pools.submit_timeout(Tier::High, task, PATIENCE).is_ok()
    });
    door.open();
    assert!(join(other));
    done.reach(5);
}

#[test]
fn a_submitter_may_wait_for_as_long_as_a_duration_can_be() {
    let Stuffed { pools, done, door } = stuffed(4);
    let other = std::thread::spawn({
        let (pools, task) = (pools.clone(), counting(&done));
        move || pools.submit_timeout(Tier::High, task, Duration::MAX).is_ok()
    });
    door.open();
    assert!(join(other));
    done.reach(5);
    wait(pools.shutdown(Duration::MAX));
}

#[test]
fn sixty_four_waiting_submitters_of_all_sorts_get_in_through_a_queue_of_four() {
    let Stuffed { pools, done, door } = stuffed(4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("builds");
    let mut threads = Vec::new();
    let entered = Count::new();
    for number in 0..64 {
        let (pools, task, entered) = (pools.clone(), counting(&done), entered.clone());
        match number % 4 {
            0 => threads.push(std::thread::spawn(move || {
                pools.submit_blocking(Tier::High, task).expect("is taken");
                entered.add();
            })),
            1 => threads.push(std::thread::spawn(move || {
                pools.submit_timeout(Tier::High, task, PATIENCE).expect("is taken");
                entered.add();
            })),
            _ => {
                runtime.spawn(async move {
                    pools.submit(Tier::High, task).await.expect("is taken");
                    entered.add();
                });
            }
        }
    }
    assert!(!entered.reaches(1, ms(20)), "nobody gets in while the queue is full");
    door.open();
    entered.reach(64);
    done.reach(68);
    threads.into_iter().for_each(join);
    let report = finish(&pools);
    assert!(report.dropped.is_empty() && done.get() == 68);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_submitter_that_stops_waiting_harms_nobody() {
    let Stuffed { pools, done, door } = stuffed(4);
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..20)
        .map(|_| {
            let (pools, task) = (pools.clone(), counting(&done));
            Box::pin(async move { pools.submit(Tier::High, task).await })
        })
        .collect();
    for one in &mut waiting {
        assert!(one.as_mut().poll(&mut cx).is_pending());
    }
    let last = std::thread::spawn({
        let (pools, task) = (pools.clone(), counting(&done));
        move || pools.submit_blocking(Tier::High, task).expect("is taken")
    });
    door.open();
    done.reach(4);
    // Some of these have been let in, and go without entering: their turn must be another's.
    for one in waiting {
        drop(one);
    }
    join(last);
    done.reach(5);
    assert_eq!(stats_of(&pools, Tier::High).totals.accepted, 6);
}

#[test]
fn a_submitter_gets_in_while_the_rest_of_the_queue_waits_for_a_retry() {
    let mut options = high(1, 8);
    options.tier_mut(Tier::High).backoff.base = Duration::from_secs(3_600);
    options.tier_mut(Tier::High).backoff.cap = Duration::from_secs(3_600);
    let pools = start(options);
    let (running, door) = (Count::new(), Door::new());
    pools.try_submit(Tier::High, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for _ in 0..7 {
        let failing = Task::blocking("failing", |_| Err(Failure::retryable("not yet")));
        pools.try_submit(Tier::High, failing).expect("is taken");
    }
    let done = Count::new();
    pools.try_submit(Tier::High, counting(&done)).expect("is taken");
    let other = std::thread::spawn({
        let (pools, done) = (pools.clone(), done.clone());
        move || pools.submit_blocking(Tier::High, counting(&done)).expect("is taken")
    });
    door.open();
    // Seven places are taken for hours, one is free.
    done.reach(2);
    join(other);
}

#[test]
fn a_task_gets_an_answer_about_its_own_full_tier() {
    let pools = start(high(1, 4));
    let (own, answers) = (pools.clone(), Arc::new(AtomicUsize::new(0)));
    let refused = answers.clone();
    let task = Task::blocking("inside", move |_| {
        for _ in 0..10 {
            match own.try_submit(Tier::High, Task::blocking("more", |_| Ok(()))) {
                Err(SubmitError::Full(_)) => refused.fetch_add(1, Ordering::SeqCst),
                _ => 0,
            };
        }
        Ok(())
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    eventually("everything is done", || {
        (stats_of(&pools, Tier::High).total_processed == 5).then_some(())
    });
    assert_eq!(answers.load(Ordering::SeqCst), 6);
}

#[test]
fn tasks_that_wait_for_room_in_their_own_tier_get_in_while_another_worker_drains() {
    let pools = start(high(2, 4));
    let done = Count::new();
    let (own, inner) = (pools.clone(), done.clone());
    let task = Task::future("inside", move |_| {
        let (pools, done) = (own.clone(), inner.clone());
        async move {
            for _ in 0..200 {
                pools.submit(Tier::High, counting(&done)).await.map_err(Failure::retryable)?;
            }
            Ok(())
        }
    });
    pools.try_submit(Tier::High, task).expect("is taken");
    done.reach(200);
    finish(&pools);
    adds_up(&pools, Tier::High);
}

#[test]
fn a_critical_task_finds_a_place_beyond_the_queue_and_that_is_counted() {
    let mut options = plain();
    options.critical_reserve = 2;
    let pools = start(options);
    let (running, door, done) = (Count::new(), Door::new(), Count::new());
    pools.try_submit(Tier::Critical, blocker(&running, &door)).expect("is taken");
    running.reach(1);
    for _ in 0..6 {
        pools.try_submit(Tier::Critical, counting(&done)).expect("is taken");
    }
    let refused = pools.try_submit(Tier::Critical, counting(&done));
    assert!(matches!(refused, Err(SubmitError::Full(_))));
    let totals = stats_of(&pools, Tier::Critical).totals;
    assert_eq!((totals.over_capacity, totals.rejected), (2, 1));
    door.open();
    done.reach(6);
}

#[test]
fn stopped_pools_give_every_task_back() {
    let pools = start(plain());
    finish(&pools);
    let done = Count::new();
    for tier in Tier::ALL {
        let answers = [
            pools.try_submit(tier, counting(&done)),
            pools.submit_blocking(tier, counting(&done)),
            pools.submit_timeout(tier, counting(&done), PATIENCE),
            wait(pools.submit(tier, counting(&done))),
        ];
        for answer in answers {
            let Err(SubmitError::Stopped(task)) = answer else { panic!("{answer:?}") };
            assert_eq!(task.kind(), "counting");
        }
        let stats = stats_of(&pools, tier);
        assert_eq!((stats.totals.accepted, stats.totals.rejected), (0, 0));
    }
    assert!(pools.is_stopping() && done.get() == 0);
}

#[test]
fn the_time_that_a_submitter_waits_is_kept() {
    let Stuffed { pools, done, door } = stuffed(4);
    let before = Instant::now();
    let refused = pools.submit_timeout(Tier::High, counting(&done), ms(50));
    assert!(matches!(refused, Err(SubmitError::Full(_))) && before.elapsed() >= ms(50));
    let refused = pools.submit_timeout(Tier::High, counting(&done), Duration::ZERO);
    assert!(matches!(refused, Err(SubmitError::Full(_))));
    door.open();
}

#[test]
fn ids_are_unique_and_known_to_the_task() {
    let pools = start(high(2, 100));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut ids: Vec<u64> = (0..200)
        .map(|number| {
            let seen = seen.clone();
            let tier = if number % 2 == 0 { Tier::High } else { Tier::Low };
            let task = Task::blocking("known", move |context| {
                assert_eq!((context.tier(), context.attempt()), (tier, 1));
                seen.lock().expect("not poisoned").push(context.id());
                Ok(())
            });
            pools.submit_blocking(tier, task).expect("is taken")
        })
        .collect();
    finish(&pools);
    let mut seen = seen.lock().expect("not poisoned").clone();
    ids.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, ids);
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

fn problems(change: impl Fn(&mut Options)) -> Vec<String> {
    let mut options = Options::new(2);
    change(&mut options);
    match Pools::start(options) {
        Err(StartError::Options(problems)) => problems,
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

#[test]
fn options_that_cannot_work_are_refused_and_named() {
    let refused = |change: fn(&mut Options), words: &str| {
        let problems = problems(change);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(words), "{problems:?} does not say {words:?}");
    };
    assert_eq!(Tier::High.index(), 1);
    refused(|options| options.tiers[1].rules.min = 0, "high: min cannot be 0");
    refused(|options| options.tiers[1].queue = 0, "high: the queue (0)");
    refused(|options| options.tiers[1].queue = usize::MAX, "high: the queue");
    refused(|options| options.tiers[1].task_timeout = Duration::ZERO, "high: the task timeout");
    refused(|options| options.tiers[1].rules.down = Ratio::whole(5), "high: the scale-down ratio");
    refused(|options| options.tiers[1].backoff.base = PATIENCE, "high: the longest wait");
    let large = |options: &mut Options| {
        options.tiers[0].rules.max = 5_000;
        options.tiers[0].queue = 5_000;
    };
    refused(large, "critical: max (5000) is above 4096");
    refused(|options| options.shared.min = 13, "shared: max (12)");
    refused(|options| options.shared.max = u16::MAX, "shared: max (65535)");
    refused(|options| options.shared.background_max = 0, "shared: the background");
    refused(|options| options.critical_reserve = usize::MAX, "critical: ");
    assert!(problems(|options| options.critical_reserve = 0).is_empty());
}

#[test]
fn all_problems_are_named_at_once() {
    let problems = problems(|options| {
        for tier in &mut options.tiers {
            tier.rules.min = 2;
            tier.rules.max = 1;
            tier.queue = 0;
            tier.task_timeout = Duration::ZERO;
        }
    });
    assert_eq!(problems.len(), 12, "{problems:#?}");
    for tier in Tier::ALL {
        let own = problems.iter().filter(|one| one.starts_with(tier.name()));
        assert_eq!(own.count(), 3, "{problems:#?}");
    }
}

#[test]
fn polling_a_submission_again_and_again_submits_it_once() {
    let Stuffed { pools, done, door } = stuffed(4);
    let mut cx = Context::from_waker(Waker::noop());
    let mut one = Box::pin(pools.submit(Tier::High, counting(&done)));
    for _ in 0..100 {
        assert!(one.as_mut().poll(&mut cx).is_pending());
    }
    door.open();
    eventually("it is let in", || match one.as_mut().poll(&mut cx) {
        Poll::Ready(answer) => answer.ok(),
        Poll::Pending => None,
    });
    done.reach(5);
    drop(one);
    finish(&pools);
    assert_eq!(done.get(), 5);
}
