//! Reviews what is due, tidies, and follows what changed.
//!
//! Any number of nodes may run this: each takes due servers under a lease, so that no two review
//! one server at once, and a token that grows with each claim refuses whoever comes too late.

use crate::handle::Monitors;
use crate::store;
use crate::tally::FleetPoint;
use skep_policy::monitors::{GlobalStatus, Status};
use skep_pools::{Failure, Pools, Task, Tier};
use skep_store::{Database, Heard, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How often samples and history that are past their time are looked for.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// Rows that one round of tidying removes at most.
const TIDY_ROWS: u32 = 1_000;

/// One task tidies for so long at most, and leaves the rest to the next.
const TIDY_FOR: Duration = Duration::from_secs(4);

/// Of the tasks that tidy.
const TIDY_KEY: u64 = 0x6d6f_6e69_746f_7273;

/// How often the fleet is counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked for changes of other nodes that were not heard.
const FOLLOW_EVERY: Duration = Duration::from_secs(3);

/// Cares for the monitors until `stop` is cancelled. Reviews that run then are finished by the
/// pools, or their leases end.
pub async fn run(monitors: Monitors, pools: Pools, reviews: bool, stop: CancellationToken) {
    let reviewing = async {
        if reviews {
            review_due(&monitors, &pools).await;
        }
    };
    let all = async {
        tokio::join!(
            reviewing,
            tidy(&monitors, &pools),
            count(&monitors),
            follow(&monitors),
            listen(&monitors)
        );
    };
    stop.run_until_cancelled(all).await;
}

/// Takes servers that are due, and reviews each in a task of its own.
async fn review_due(monitors: &Monitors, pools: &Pools) {
    let options = &monitors.inner.options;
    let most = options.review_batch;
    let places = Arc::new(Semaphore::new(most as usize));
    let mut told = false;
    loop {
        // With all places taken there is nothing to look for.
        let Ok(place) = places.acquire().await else { return };
        drop(place);
        let free = u32::try_from(places.available_permits()).unwrap_or(most).clamp(1, most);
        let taken = match submit_due(monitors, pools, &places, free).await {
            Ok(taken) => {
                if std::mem::take(&mut told) {
                    tracing::info!("servers are reviewed again");
                }
                taken
            }
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "servers are not reviewed for now");
                }
                0
            }
        };
        if taken < free {
            let _ = tokio::time::timeout(options.review_check, monitors.inner.due.notified()).await;
        }
    }
}

/// Takes at most `most` servers; how many there were.
async fn submit_due(
    monitors: &Monitors,
    pools: &Pools,
    places: &Arc<Semaphore>,
    most: u32,
) -> Result<u32, StoreError> {
    let inner = &monitors.inner;
    let lease_ms = i64::try_from(inner.options.review_lease.as_millis()).unwrap_or(i64::MAX);
    let claims = store::claim(&inner.db, &inner.node, monitors.now_ms(), lease_ms, most).await?;
    let taken = u32::try_from(claims.len()).unwrap_or(u32::MAX);
    for claim in claims {
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let (reviewer, claim) = (monitors.clone(), Arc::new(claim));
        let (given, held) = (claim.clone(), Arc::new(place));
        let task = Task::future("monitor-review", move |_| {
            let (reviewer, claim, held) = (reviewer.clone(), given.clone(), held.clone());
            async move {
                let reviewed = reviewer.review(&claim).await;
                drop(held);
                // It is told and counted, and due again later: that is its second attempt.
                reviewed.map(drop).or(Ok::<(), Failure>(()))
            }
        });
        let task = task.retries(0).timeout(inner.options.review_lease);
        if let Err(error) = pools.try_submit(Tier::High, task) {
            tracing::debug!(server = claim.server.id, %error, "a review waits for a better time");
            let again = monitors.now_ms().saturating_add(lease_ms / 10);
            store::release(&inner.db, claim.server.number, claim.token, again).await?;
        }
    }
    Ok(taken)
}

/// Removes what is past its time, in the low tier.
async fn tidy(monitors: &Monitors, pools: &Pools) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let tidied = monitors.clone();
        let task = Task::future("monitor-retention", move |context| {
            let monitors = tidied.clone();
            async move {
                let started = Instant::now();
                while !context.is_cancelled() && started.elapsed() < TIDY_FOR {
                    match monitors.tidy(TIDY_ROWS).await {
                        Ok(rows) if rows >= u64::from(TIDY_ROWS) => tokio::task::yield_now().await,
                        Ok(_) => break,
                        // The next time comes soon.
                        Err(error) => {
                            tracing::debug!(%error, "monitors are not tidied this time");
                            break;
                        }
                    }
                }
                Ok(())
            }
        });
        // One at a time, and none is worth a second attempt: the next one comes soon.
        let task = task.serial_key(TIDY_KEY).retries(0);
        if let Err(error) = pools.try_submit(Tier::Low, task) {
            tracing::debug!(%error, "monitors are not tidied this time");
        }
    }
}

/// Counts the fleet now and then, for gauges and plots.
async fn count(monitors: &Monitors) {
    let inner = &monitors.inner;
    loop {
        match monitors.fleet().await {
            Ok(fleet) => {
                for (status, size) in Status::ALL.into_iter().zip(fleet.assignments) {
                    inner.metrics.set_pool(status, size);
                }
                let active = fleet.monitors.get(&GlobalStatus::Active).copied();
                inner.metrics.set_globally_active(active.unwrap_or(0));
                let [candidate, testing, active, paused] = fleet.assignments;
                inner.tally.note(FleetPoint {
                    at: monitors.now_ms(),
                    servers: fleet.servers.saturating_sub(fleet.servers_paused),
                    below_target: fleet.below_target,
                    candidate,
                    testing,
                    active,
                    paused,
                });
            }
            Err(error) => tracing::debug!(%error, "the fleet is counted later"),
        }
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

/// Reads what changed, here or at another node, for those who watch live.
async fn follow(monitors: &Monitors) {
    loop {
        if let Err(error) = monitors.read_news().await {
            tracing::debug!(%error, "changes of monitors are told later");
        }
        let _ = tokio::time::timeout(FOLLOW_EVERY, monitors.inner.changed.notified()).await;
    }
}

/// Hears of changes by other nodes. A notice that is lost is made up for by looking.
async fn listen(monitors: &Monitors) {
    let Database::Postgres(postgres) = &monitors.inner.db else { return };
    let mut listener = postgres.listen(&[store::CHANNEL]);
    loop {
        match listener.next().await {
            Heard::Notice { .. } | Heard::Reconnected => {
                monitors.inner.due.notify_one();
                monitors.inner.changed.notify_one();
            }
            Heard::Lost => {}
        }
    }
}
