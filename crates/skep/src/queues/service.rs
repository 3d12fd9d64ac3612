//! What is done for queues while nobody asks: hearing of other nodes' pushes, tidying, replaying,
//! and what has a time.

use crate::access::now_ms;
use crate::node::{Shared, State};
use skep_policy::Time;
use skep_policy::queues::Pace;
use skep_pools::{Task, Tier};
use skep_queues::Queues;
use skep_queues::store::{CHANNEL, Round};
use skep_store::{Database, Heard, StoreError};
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

/// Rows that one round of tidying touches at most, where nobody waits for it: see also [`Pace`].
const TIDY_ROWS: u32 = 500;

/// One task tidies for so long at most, and leaves the rest to the next.
const TIDY_FOR: Duration = Duration::from_secs(4);

/// How often what was done is written down.
const STATS_EVERY: Duration = Duration::from_secs(5);

/// How long the last of it may take when the node stops.
const LAST_STATS: Duration = Duration::from_millis(700);

/// Traces, stats and redrives that are past their time are looked for this often.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// Rounds of forgetting at once; the rest is left to the next time.
const FORGET_ROUNDS: usize = 20;

/// How long redrives are kept that ended.
const REDRIVES_KEEP: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Of the tasks that tidy.
const TIDY_KEY: u64 = 3;

/// Cares for the queues while the node lives. Stops before the port, whose waiting pops it answers.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) -> anyhow::Result<()> {
    tokio::join!(stop.run_until_cancelled(care(&shared)), keep_stats(&shared, &stop));
    stop.cancelled().await;
    shared.queues.stop_waiting();
    if let Some(queues) = shared.queues.get() {
        let _ = tokio::time::timeout(LAST_STATS, write_stats(queues)).await;
    }
    Ok(())
}

/// Writes down what was done, every few seconds. It is not interrupted at once when the node stops,
/// because what was half written might be written twice.
async fn keep_stats(shared: &Shared, stop: &CancellationToken) {
    while stop.run_until_cancelled(sleep(STATS_EVERY)).await.is_some() {
        let Some(queues) = shared.queues.get() else { continue };
        let too_late = async {
            stop.cancelled().await;
            sleep(LAST_STATS).await;
        };
        tokio::select! {
            () = write_stats(queues) => {}
            () = too_late => return,
        }
    }
}

async fn write_stats(queues: &Queues) {
    if let Err(error) = queues.write_stats().await {
        tracing::debug!(%error, "what was done is written down later");
    }
}

async fn care(shared: &Arc<Shared>) {
    let mut state = shared.state.clone();
    if state.wait_for(|state| *state == State::Ready).await.is_err() {
        return;
    }
    let Some(queues) = shared.queues.get() else { return };
    tokio::join!(
        listen(shared, queues),
        tidy(shared, queues),
        keep(shared, queues),
        shared.queues.replay(queues),
        follow_switches(shared, queues)
    );
}

/// Acts on what other processes switch. The embedded database is for one process alone.
async fn follow_switches(shared: &Shared, queues: &Queues) {
    if let Database::Postgres(_) = shared.stores.database() {
        shared.queues.follow_switches(queues).await;
    }
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
                Heard::Notice { payload, .. } => {
                    if payload.is_empty() {
                        shared.queues.switches().look();
                    }
                    wake(queues, &payload);
                }
                Heard::Reconnected => {
                    deaf = false;
                    shared.queues.switches().look();
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
        queues.hint(queue);
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
    let settings = &shared.settings.queues;
    let keeps = (settings.stats_keep, settings.traces_keep);
    let mut forgot: Option<Instant> = None;
    // Where one thread writes, pushes wait for it.
    let alone = matches!(shared.stores.database(), Database::Sqlite(_));
    loop {
        ticks.tick().await;
        let forgets = forgot.is_none_or(|last| last.elapsed() >= FORGET_EVERY);
        forgot = if forgets { Some(Instant::now()) } else { forgot };
        let tidied = queues.clone();
        let task = Task::future("queue-retention", move |context| {
            let queues = tidied.clone();
            async move {
                let started = Instant::now();
                let mut pace = Pace::FIRST;
                while !context.is_cancelled() && started.elapsed() < TIDY_FOR {
                    let round = match alone {
                        true => Round { rows: pace.rows, hold: pace.hold },
                        false => TIDY_ROWS.into(),
                    };
                    match queues.tidy(round).await {
                        Ok(done) if done.more && alone => {
                            pace = Pace::after(done.held, done.late);
                            sleep(pace.rest).await;
                        }
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
                if forgets && let Err(error) = forget(&queues, keeps).await {
                    tracing::debug!(%error, "what is past its time is forgotten later");
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

/// Forgets stats, traces and redrives that are past their time; a bounded number a round.
async fn forget(queues: &Queues, (stats, traces): (Duration, Duration)) -> Result<(), StoreError> {
    let now = Time::from_millis(u64::try_from(now_ms()).unwrap_or_default());
    let before = |keep: Duration| {
        let keep = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(now.as_nanos().saturating_sub(keep))
    };
    let store = queues.store();
    for _ in 0..FORGET_ROUNDS {
        let some = store.forget_stats(before(stats), TIDY_ROWS).await?
            + store.forget_traces(before(traces), TIDY_ROWS).await?
            + store.forget_redrives(before(REDRIVES_KEEP), TIDY_ROWS).await?;
        if some < u64::from(TIDY_ROWS) {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}
