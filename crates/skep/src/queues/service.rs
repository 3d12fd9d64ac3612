//! What is done for queues while nobody asks: hearing of other nodes' pushes, tidying, replaying,
//! and what has a time.

use crate::node::{Shared, State};
use skep_pools::{Task, Tier};
use skep_queues::Queues;
use skep_queues::store::CHANNEL;
use skep_store::{Database, Heard};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// Who waits looks so often by itself while nothing is heard.
const LOOK_WHILE_DEAF: Duration = Duration::from_secs(1);

/// How often it is looked for messages that are past their time.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// How often it is looked for what has a time, where others may bring it.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// The same where nobody else does.
const KEEP_EVERY_ALONE: Duration = Duration::from_secs(60);

/// Rows that one round of tidying touches at most. A push waits for one round, so it is small.
const TIDY_ROWS: u32 = 500;

/// One task tidies for so long at most, and leaves the rest to the next.
const TIDY_FOR: Duration = Duration::from_secs(4);

/// Of the tasks that tidy.
const TIDY_KEY: u64 = 3;

/// Cares for the queues while the node lives. Stops before the port, whose waiting pops it answers.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    stop.run_until_cancelled(care(&shared)).await;
    stop.cancelled().await;
    shared.queues.stop_waiting();
    Ok(())
}

async fn care(shared: &Arc<Shared>) {
    let mut state = shared.state.clone();
    if state.wait_for(|state| *state == State::Ready).await.is_err() {
        return;
    }
    let Some(queues) = shared.queues.get() else { return };
    let replay = shared.queues.replay(queues);
    tokio::join!(listen(shared, queues), tidy(shared, queues), keep(shared, queues), replay);
}

/// Wakes who waits when something came by another node.
async fn listen(shared: &Shared, queues: &Queues) {
    let Database::Postgres(postgres) = shared.stores.database() else { return };
    let mut listener = postgres.listen(&[CHANNEL]);
    let mut deaf = true;
    loop {
        let again = async {
            match deaf {
                true => sleep(LOOK_WHILE_DEAF).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = listener.next() => match heard {
                Heard::Notice { payload, .. } => wake(queues, &payload),
                Heard::Reconnected => {
                    deaf = false;
                    queues.wake(None);
                }
                Heard::Lost => deaf = true,
            },
            () = again => queues.wake(None),
        }
    }
}

/// A notice has the names of queues, a line each; one without any is about all of them.
fn wake(queues: &Queues, payload: &str) {
    if payload.is_empty() {
        queues.wake(None);
    }
    for queue in payload.lines() {
        queues.wake(Some(queue));
    }
}

/// Does what has a time when that has come. What came here tells so itself; what came to another
/// node of the same database is looked for every second.
async fn keep(shared: &Shared, queues: &Queues) {
    let _alone = shared.queues.keeper().await;
    let longest = match shared.stores.database() {
        Database::Postgres(_) => KEEP_EVERY,
        Database::Sqlite(_) => KEEP_EVERY_ALONE,
    };
    loop {
        let wait = match queues.keep().await {
            Ok(kept) => kept.wait.map_or(longest, |wait| wait.min(longest)),
            Err(error) => {
                tracing::debug!(%error, "what is due is not done this time");
                KEEP_EVERY
            }
        };
        // Whoever does nothing but this would starve the rest of the node.
        tokio::task::yield_now().await;
        let _ = tokio::time::timeout(wait, queues.something_to_keep()).await;
    }
}

/// Deletes what is past its time, in the low tier.
async fn tidy(shared: &Arc<Shared>, queues: &Queues) {
    let mut ticks = interval(TIDY_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tidied = queues.clone();
        let task = Task::future("queue-retention", move |context| {
            let queues = tidied.clone();
            async move {
                let started = Instant::now();
                while !context.is_cancelled() && started.elapsed() < TIDY_FOR {
                    match queues.tidy(TIDY_ROWS).await {
                        Ok(done) if done.more => tokio::task::yield_now().await,
                        Ok(_) => break,
                        // The next time comes soon; that the store is away is told elsewhere.
                        Err(error) if error.is_temporary() => {
                            tracing::debug!(%error, "queues are not tidied this time");
                            break;
                        }
                        Err(error) => {
                            tracing::warn!(%error, "queues are not tidied this time");
                            break;
                        }
                    }
                }
                Ok(())
            }
        });
        // One at a time, and none is worth a second attempt: the next one comes soon.
        let task = task.serial_key(TIDY_KEY).retries(0);
        if let Err(error) = shared.work.pools.try_submit(Tier::Low, task) {
            tracing::debug!(%error, "queues are not tidied this time");
        }
    }
}
