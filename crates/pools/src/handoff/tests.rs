//! The hand-off, explored exhaustively by loom (`--cfg loom`), and its rules in plain tests.

use super::*;

#[cfg(not(loom))]
mod rules {
    use super::*;

    #[test]
    fn a_burst_wakes_one_worker_and_the_searcher_wakes_the_next() {
        let handoff = Handoff::new();
        assert!(handoff.rest(1, || false) && handoff.rest(2, || false));
        assert_eq!(handoff.notify(), Some(2), "the one that lay down last");
        assert_eq!(handoff.notify(), None, "somebody searches already");
        assert!(!handoff.get_up(2), "it was woken");
        handoff.settle();
        assert_eq!(handoff.notify(), Some(1));
        handoff.settle();
        assert_eq!(handoff.notify(), None, "nobody rests");
        assert_eq!(handoff.idle(), 0);
    }

    #[test]
    fn work_that_came_meanwhile_keeps_a_worker_up() {
        let handoff = Handoff::new();
        assert!(!handoff.rest(1, || true));
        assert_eq!((handoff.idle(), handoff.notify()), (0, None));
    }
}

#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use std::collections::VecDeque;

    /// A queue with workers around it, as small as it can be: what the lane and the thread shell
    /// do, without everything else they do.
    struct Pool {
        queue: Mutex<VecDeque<usize>>,
        handoff: Handoff,
        /// A token for each worker, as of `unpark`.
        tokens: Vec<(Mutex<bool>, loom::sync::Condvar)>,
        done: Mutex<Vec<usize>>,
        expected: usize,
    }

    impl Pool {
        fn new(workers: usize, expected: usize) -> Arc<Self> {
            Arc::new(Pool {
                queue: Mutex::new(VecDeque::new()),
                handoff: Handoff::new(),
                tokens: (0..workers)
                    .map(|_| (Mutex::new(false), loom::sync::Condvar::new()))
                    .collect(),
                done: Mutex::new(Vec::new()),
                expected,
            })
        }

        fn wake(&self, worker: Option<usize>) {
            if let Some(worker) = worker {
                *lock(&self.tokens[worker].0) = true;
                self.tokens[worker].1.notify_one();
            }
        }

        fn submit(&self, task: usize) {
            lock(&self.queue).push_back(task);
            self.wake(self.handoff.notify());
        }

        fn all_done(&self) -> bool {
            lock(&self.done).len() == self.expected
        }

        /// Works until everything is done. Whoever does the last task wakes the others to leave.
        fn work(&self, worker: usize) {
            let mut searching = false;
            let mut lingered = false;
            loop {
                let task = lock(&self.queue).pop_front();
                if searching {
                    self.handoff.settle();
                    searching = false;
                    if task.is_some() && !lock(&self.queue).is_empty() {
                        self.wake(self.handoff.notify());
                    }
                }
                if let Some(task) = task {
                    lock(&self.done).push(task);
                    lingered = false;
                    continue;
                }
                if !lingered && self.handoff.search() {
                    (searching, lingered) = (true, true);
                    continue;
                }
                lingered = false;
                if self.all_done() {
                    for other in 0..self.tokens.len() {
                        self.wake(Some(other));
                    }
                    return;
                }
                if self.handoff.rest(worker, || !lock(&self.queue).is_empty()) {
                    let (token, bell) = &self.tokens[worker];
                    let mut token = lock(token);
                    while !*token {
                        token = bell.wait(token).unwrap_or_else(|p| p.into_inner());
                    }
                    *token = false;
                    drop(token);
                    searching = !self.handoff.get_up(worker);
                } else {
                    searching = false;
                }
            }
        }
    }

    fn explore(workers: usize, producers: usize, each: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let pool = Pool::new(workers, producers * each);
            let mut threads = Vec::new();
            for worker in 1..workers {
                let pool = pool.clone();
                threads.push(thread::spawn(move || pool.work(worker)));
            }
            for producer in 0..producers {
                let pool = pool.clone();
                threads.push(thread::spawn(move || {
                    for task in 0..each {
                        pool.submit(producer * each + task);
                    }
                }));
            }
            pool.work(0);
            for thread in threads {
                thread.join().expect("nobody panics");
            }
            let mut done = lock(&pool.done).clone();
            done.sort_unstable();
            let all: Vec<usize> = (0..producers * each).collect();
            assert_eq!(done, all, "each exactly once");
        });
    }

    #[test]
    fn one_worker_never_sleeps_beside_work() {
        explore(1, 2, 1, 4);
    }

    #[test]
    fn two_workers_and_a_burst() {
        explore(2, 1, 2, 3);
    }

    #[test]
    fn two_workers_and_two_submitters() {
        explore(2, 2, 1, 2);
    }
}
