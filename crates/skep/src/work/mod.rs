//! What a node does beside answering: its worker pools, and what runs in them.
//!
//! ```text
//!   requests ──► access log (batches) ──► high ─┐
//!   alerts ────► webhooks ──────────────► high ─┼─► database, file, network
//!   a timer ───► retention ─────────────► low ──┘
//!   whatever fails ──► dead letters (batches) ──► high ──► database
//! ```

mod access_file;
mod access_log;
mod access_query;
mod access_store;
mod alerts;
mod letters;
mod metrics;
mod webhook;

pub use access_file::AccessFile;
pub use access_log::{
    AccessEntry, AccessLog, AccessTotals, Follower, Heard, Noted, PATH_BYTES_MAX,
};
pub use access_query::{AccessFilter, AccessPage, Column, SCANNED_MAX, Test};
pub use alerts::{Alert, Alerts};
pub use letters::{KeptLetter, LetterFilter, LetterNews, Place, SCHEMA, read_id, show_id};
pub use metrics::PoolCollector;
pub use webhook::sign;

/// What is kept in the database, for those who read it.
pub mod store {
    pub use super::access_query::page as access_page;
    pub use super::access_store::{forget_before, write as write_access};
    pub use super::letters::{claim, discard, find, note, page as letters_page, release};
}

use crate::access::now_ms;
use crate::node::{Shared, State};
use crate::settings::Settings;
use serde::Serialize;
use skep_dial::Dials;
use skep_pools::{
    BatchOptions, Batcher, Failure, Letter, LetterBook, Outcome, PoolStats, Pools, Scaling,
    StartError, Task, Tier,
};
use skep_store::{Outcome as Known, StoreError, Stores};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Points kept for the dashboard: ten minutes.
const POINTS_MAX: usize = 600;

/// How often old entries of the access log are looked for.
const RETENTION_EVERY_SECONDS: u64 = 600;

/// What tasks that run have at the end, however long the log has taken.
const LAST_TASKS_LIMIT: Duration = Duration::from_secs(1);

/// How long the last letters and log entries may take to reach the database when a node stops.
pub const LAST_WRITES_LIMIT: Duration = Duration::from_secs(5);

/// A node's pools and what runs in them.
pub struct Work {
    pub pools: Pools,
    /// Absent where it is kept neither in the database nor in a file.
    pub access_log: Option<Arc<AccessLog>>,
    pub alerts: Alerts,
    /// What may be reached, for all that this node connects to.
    pub dials: Dials,
    letters: Batcher<LetterNews>,
    stores: Stores,
    history: Mutex<VecDeque<WorkPoint>>,
}

/// A second of the pools' life.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct WorkPoint {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// By name.
    pub pools: BTreeMap<&'static str, PoolPoint>,
}

/// A pool in a second.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct PoolPoint {
    /// Workers of its own.
    pub workers: u32,
    /// Shared workers that help it.
    pub helping: u32,
    /// Tasks that wait.
    pub pending: u64,
    /// 99 of 100 tasks since the start waited no longer, in microseconds.
    pub wait_p99_us: f64,
    /// 99 of 100 attempts since the start took no longer, in microseconds.
    pub run_p99_us: f64,
}

/// Hands dead letters to the batcher that writes them down.
struct Book {
    node: String,
    letters: Batcher<LetterNews>,
}

impl LetterBook for Book {
    fn died(&self, letter: &Letter) {
        let (kind, tier, cause) = (letter.kind, letter.tier, letter.cause.name());
        let error = letter.errors.last().map_or("", String::as_str);
        let id = show_id(letter.id);
        tracing::warn!(id, kind, %tier, cause, error, "a task was given up");
        let kept = KeptLetter::of(letter, &self.node);
        self.letters.push_or_drop(LetterNews::Died(Box::new(kept)));
    }

    fn done_after_all(&self, letter: u64) {
        self.letters.push_or_drop(LetterNews::Done(show_id(letter)));
    }
}

impl Work {
    /// Starts the pools. The stores may still be away; what is to be written waits for them.
    pub fn start(
        settings: &Settings,
        stores: &Stores,
        node: &str,
        state: &watch::Receiver<State>,
    ) -> Result<Self, StartError> {
        let pools = Pools::start(settings.pools.options.clone())?;
        let letters = {
            let (stores, state) = (stores.clone(), state.clone());
            let write = move |batch: skep_pools::Batch<LetterNews>| {
                let (stores, state) = (stores.clone(), state.clone());
                async move {
                    when_ready(&state)?;
                    written(letters::note(stores.database(), batch.to_vec()).await)
                }
            };
            let options = BatchOptions { capacity: 10_000, ..BatchOptions::new("dead-letters") };
            Batcher::new(&pools, options, write, |news, failure| {
                tracing::error!(?news, error = failure.message, "a dead letter was not kept");
            })
        };
        let book = Book { node: node.to_owned(), letters: letters.clone() };
        pools.keep_letters_in(Arc::new(book));
        let access_log = AccessLog::start(node, &pools, &settings.access_log, stores, state);
        let dials = Dials::new(settings.reach.rule());
        let alerts = Alerts::new(&settings.alerts, node, &pools, &dials);
        let history = Mutex::new(VecDeque::with_capacity(POINTS_MAX));
        Ok(Work { pools, access_log, alerts, dials, letters, stores: stores.clone(), history })
    }

    /// The last ten minutes.
    pub fn points(&self) -> Vec<WorkPoint> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().cloned().collect()
    }

    /// The scaling decisions after this one.
    pub fn scaling_since(&self, number: u64) -> Vec<Scaling> {
        self.pools.scaling_since(number)
    }

    fn note_second(&self, stats: &[PoolStats]) {
        let pools = stats.iter().map(|one| {
            let point = PoolPoint {
                workers: one.active_workers,
                helping: one.shared_helping,
                pending: one.pending_tasks,
                wait_p99_us: one.wait_us.p99,
                run_p99_us: one.run_us.p99,
            };
            (one.name, point)
        });
        let point = WorkPoint { at_ms: now_ms(), pools: pools.collect() };
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() == POINTS_MAX {
            history.pop_front();
        }
        history.push_back(point);
    }

    /// Dead letters that are not in the database yet.
    pub fn letters_waiting(&self) -> u64 {
        self.letters.totals().waiting
    }

    /// Finishes: what waits is written, what runs gets `limit`, what is left is told and kept.
    /// Says how many dead letters could not be.
    async fn finish(&self, limit: Duration) -> u64 {
        let began = Instant::now();
        if let Some(log) = &self.access_log {
            let _ = tokio::time::timeout(limit, log.flush()).await;
        }
        // What has waited for the log already has not to be waited for again.
        let left = limit.saturating_sub(began.elapsed()).max(LAST_TASKS_LIMIT.min(limit));
        let report = self.pools.shutdown(left).await;
        if !report.dropped.is_empty() {
            let mut kinds: BTreeMap<(Tier, &str), u32> = BTreeMap::new();
            for one in &report.dropped {
                *kinds.entry((one.tier, one.kind)).or_default() += 1;
            }
            for ((tier, kind), count) in kinds {
                tracing::warn!(%tier, kind, count, "tasks were dropped; they are dead letters now");
            }
        }
        if report.left_behind > 0 {
            tracing::warn!(count = report.left_behind, "tasks did not stop");
        }
        let news = self.letters.take_left();
        let letters_left = news.len();
        let entries_left = self.access_log.as_ref().map_or(0, |log| log.waiting());
        if letters_left == 0 && entries_left == 0 {
            return 0;
        }
        let mut letters_lost = letters_left;
        let writing = async {
            let database = self.stores.database();
            letters::note(database, news).await?;
            letters_lost = 0;
            match &self.access_log {
                Some(log) => log.write_left(database).await,
                None => Ok(()),
            }
        };
        let lost = match tokio::time::timeout(LAST_WRITES_LIMIT, writing).await {
            Ok(Ok(())) => return 0,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took longer than {LAST_WRITES_LIMIT:?}"),
        };
        tracing::error!(letters_lost, entries_left, lost, "not written when the node stopped");
        letters_lost as u64
    }
}

/// Before the tables are there, nothing can be written, and nothing is at fault.
pub(crate) fn when_ready(state: &watch::Receiver<State>) -> Outcome {
    match &*state.borrow() {
        State::Starting(_) => Err(Failure::retryable("the node is still starting")),
        State::Ready | State::Draining => Ok(()),
    }
}

/// Whether writing again may help.
pub(crate) fn written(outcome: Result<(), StoreError>) -> Outcome {
    outcome.map_err(|error| {
        let may_help = error.is_temporary() || error.outcome() == Known::Unknown;
        Failure { message: error.to_string(), retry: may_help }
    })
}

/// Looks at the pools every second, does the chores that have their time, and finishes at the end.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut seconds = shared.latest_point.clone();
    let mut second: u64 = 0;
    while let Some(Ok(())) = stop.run_until_cancelled(seconds.changed()).await {
        let work = &shared.work;
        let stats = work.pools.stats();
        work.note_second(&stats);
        work.alerts.look(&stats);
        for (kind, change) in shared.fleet().into_iter().flat_map(|one| one.sessions.take_alerts())
        {
            work.alerts.change_sessions(&kind, &change);
        }
        if second.is_multiple_of(RETENTION_EVERY_SECONDS) && *shared.state.borrow() == State::Ready
        {
            submit_retention(&shared);
        }
        second += 1;
    }
    stop.cancelled().await;
    let unwritten = shared.work.finish(shared.settings.shutdown.drain_timeout).await;
    if let Some(demo) = &shared.demo {
        demo.tasks.leave_account(shared.stores.folder(), unwritten);
    }
    Ok(())
}

fn submit_retention(shared: &Arc<Shared>) {
    let stores = shared.stores.clone();
    let keep = i64::try_from(shared.settings.access_log.keep.as_millis()).unwrap_or(i64::MAX);
    let task = Task::future("access-retention", move |context| {
        let stores = stores.clone();
        async move {
            let before = now_ms().saturating_sub(keep);
            let goes_on = || !context.is_cancelled();
            match access_store::forget_before(stores.database(), before, goes_on).await? {
                true => Ok(()),
                false => Err(Failure::retryable("stopped before it was through")),
            }
        }
    });
    if let Err(error) = shared.work.pools.try_submit(Tier::Low, task) {
        tracing::warn!(%error, "the access log is not tidied this time");
    }
}
