//! Tasks that only take time, so that there is something in the pools, and what became of each.

use serde::{Deserialize, Serialize};
use skep_pools::{Failure, Pools, Task, Tier};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Tasks in one request.
pub const COUNT_MAX: u32 = 1_000;
/// Milliseconds that one of them may take.
pub const MILLIS_MAX: u32 = 1_000;

/// Which tasks somebody wants to be done.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DemoTasksBody)]
pub struct Wanted {
    /// The tier that they are for: `critical`, `high`, `normal` or `low`.
    #[schema(value_type = String)]
    pub tier: Tier,
    /// How many, 1 to 1000.
    pub count: u32,
    /// How long each takes, up to 1000.
    #[serde(default)]
    pub millis: u32,
    /// So many of them fail for good and become dead letters.
    #[serde(default)]
    pub dying: u32,
    /// So many more fail at their first attempt.
    #[serde(default)]
    pub stumbling: u32,
    /// Whether to wait for room instead of being refused.
    #[serde(default)]
    pub wait: bool,
}

/// What became of a request for tasks.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DemoTasksTaken)]
pub struct Taken {
    /// This start of the node; what it counts ends with it.
    pub life: String,
    pub taken: u64,
    /// Those for which the queue had no room.
    pub refused: u64,
}

/// What became of all tasks since the node started.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DemoTasksAnswer)]
pub struct Counts {
    /// This start of the node.
    pub life: String,
    pub taken: u64,
    pub done: u64,
    /// Those that became dead letters.
    pub dead: u64,
    /// Tasks that ended more than once; there are none.
    pub twice: u64,
    /// Dead letters of any kind that are not in the database yet.
    pub letters_waiting: u64,
}

/// The simulated tasks of a node.
pub struct DemoTasks {
    life: String,
    taken: AtomicU64,
    done: AtomicU64,
    dead: AtomicU64,
    twice: AtomicU64,
    /// Each that is to become a dead letter has a number, so that its letter is known by it.
    dying: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Stumbles,
    Dies,
}

impl DemoTasks {
    pub(super) fn new() -> Self {
        DemoTasks {
            life: uuid::Uuid::new_v4().to_string(),
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            dying: AtomicU64::new(0),
        }
    }

    /// What became of all of them. `letters_waiting` is asked after what has ended was counted.
    pub fn counts(&self, letters_waiting: impl FnOnce() -> u64) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        // What has ended first: a task ends after it was taken.
        let (done, dead, twice) = (read(&self.done), read(&self.dead), read(&self.twice));
        let taken = read(&self.taken);
        let letters_waiting = letters_waiting();
        Counts { life: self.life.clone(), taken, done, dead, twice, letters_waiting }
    }

    /// Leaves an account of this life in the data folder, for whoever counts over several lives.
    /// What is open in it was dropped when the pools stopped, and is dead letters.
    pub fn leave_account(&self, folder: &Path, letters_unwritten: u64) {
        let account = self.counts(|| letters_unwritten);
        let path = folder.join(format!("demo-{}.json", self.life));
        let text = serde_json::json!(account).to_string();
        if let Err(error) = std::fs::write(&path, text) {
            let path = path.display();
            tracing::warn!(%path, %error, "the account of the demo's tasks is not written");
        }
    }

    /// Gives tasks to the pools.
    pub async fn take(self: &Arc<Self>, pools: &Pools, wanted: &Wanted) -> Taken {
        let mut answer = Taken { life: self.life.clone(), taken: 0, refused: 0 };
        for number in 0..wanted.count {
            let task = self.task(wanted, number);
            // Counted before, so that none ends uncounted, and taken back if it was refused.
            self.taken.fetch_add(1, Ordering::SeqCst);
            let counted = Uncounted(Some(&self.taken));
            let submitted = match wanted.wait {
                true => pools.submit(wanted.tier, task).await,
                false => pools.try_submit(wanted.tier, task),
            };
            match submitted {
                Ok(_) => {
                    counted.keep();
                    answer.taken += 1;
                }
                Err(_) => answer.refused += 1,
            }
        }
        answer
    }

    fn task(self: &Arc<Self>, wanted: &Wanted, number: u32) -> Task {
        let fate = match number {
            early if early < wanted.dying => Fate::Dies,
            early if early < wanted.dying.saturating_add(wanted.stumbling) => Fate::Stumbles,
            _ => Fate::Done,
        };
        let span = Duration::from_millis(wanted.millis.into());
        let failure = match fate {
            Fate::Dies => {
                let number = self.dying.fetch_add(1, Ordering::SeqCst);
                format!("it was made to fail, for the demo: {}/{number}", self.life)
            }
            Fate::Done | Fate::Stumbles => String::new(),
        };
        let failure: Arc<str> = failure.into();
        let (tasks, ended) = (self.clone(), Arc::new(AtomicBool::new(false)));
        Task::future("demo", move |context| {
            let (tasks, ended, failure) = (tasks.clone(), ended.clone(), failure.clone());
            async move {
                tokio::time::sleep(span).await;
                match fate {
                    Fate::Stumbles if context.attempt() == 1 => {
                        Err(Failure::retryable("it was made to fail once, for the demo"))
                    }
                    Fate::Dies => {
                        tasks.end(&ended, &tasks.dead);
                        Err(Failure::permanent(&*failure))
                    }
                    Fate::Done | Fate::Stumbles => {
                        tasks.end(&ended, &tasks.done);
                        Ok(())
                    }
                }
            }
        })
    }

    fn end(&self, ended: &AtomicBool, counter: &AtomicU64) {
        let counter = if ended.swap(true, Ordering::SeqCst) { &self.twice } else { counter };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// Takes a count back, also if whoever asked is gone before the pools have answered.
struct Uncounted<'a>(Option<&'a AtomicU64>);

impl Uncounted<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Uncounted<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
