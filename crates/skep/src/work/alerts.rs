//! Alerts about the pools: in the log, in the metrics, and to those who want to be told.

use super::webhook::{self, Message};
use crate::access::now_ms;
use crate::settings::{AlertSettings, Secret};
use serde::Serialize;
use skep_policy::pools::alerts::{Change, Sample, Thresholds, Watch};
use skep_pools::{PoolStats, Pools, Tier};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// An alert that fires.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Alert {
    /// The pool it is about.
    pub pool: &'static str,
    /// `queue-depth`, `dead-letters`, `crashes`, `timeouts` or `stuck`.
    pub kind: &'static str,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// Why, in one line.
    pub reason: String,
}

/// Watches the pools.
pub struct Alerts {
    node: String,
    pools: Pools,
    webhooks: Vec<String>,
    secret: Option<Secret>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    watches: BTreeMap<&'static str, Watch>,
    firing: BTreeMap<(&'static str, &'static str), Alert>,
}

impl Alerts {
    pub fn new(settings: &AlertSettings, node: &str, pools: &Pools) -> Self {
        let secret = settings.secret.clone();
        pools.register(webhook::KIND, {
            let secret = secret.clone();
            move |payload| webhook::from_payload(payload, secret.as_ref())
        });
        Alerts {
            node: node.to_owned(),
            pools: pools.clone(),
            webhooks: settings.webhooks.0.clone(),
            secret,
            watched: Mutex::default(),
        }
    }

    /// What fires now.
    pub fn firing(&self) -> Vec<Alert> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.firing.values().cloned().collect()
    }

    /// Looks at the pools, and tells what has changed.
    pub fn look(&self, stats: &[PoolStats]) {
        let (now, thresholds) = (self.pools.now(), Thresholds::default());
        let mut told = Vec::new();
        {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let watched = &mut *watched;
            for pool in stats {
                let watch = watched.watches.entry(pool.name).or_insert_with(|| Watch::new(now));
                for change in watch.observe(now, sample(pool), &thresholds) {
                    let kind = change.kind.name();
                    if change.firing {
                        let reason = change.reason.to_string();
                        let alert = Alert { pool: pool.name, kind, since_ms: now_ms(), reason };
                        watched.firing.insert((pool.name, kind), alert);
                    } else {
                        watched.firing.remove(&(pool.name, kind));
                    }
                    told.push((pool.name, change));
                }
            }
        }
        for (pool, change) in told {
            self.tell(pool, &change);
        }
    }

    fn tell(&self, pool: &'static str, change: &Change) {
        let (alert, reason) = (change.kind.name(), &change.reason);
        if change.firing {
            tracing::warn!(pool, alert, %reason, "alert");
        } else {
            tracing::info!(pool, alert, %reason, "the alert is over");
        }
        let Some(secret) = &self.secret else { return };
        let body = serde_json::json!({
            "node": self.node, "pool": pool, "alert": alert,
            "state": if change.firing { "firing" } else { "resolved" },
            "at_ms": now_ms(), "reason": reason, "text": reason.to_string(),
        });
        for url in &self.webhooks {
            let task = webhook::task(Message { url: url.clone(), body: body.clone() }, secret);
            if let Err(error) = self.pools.try_submit(Tier::High, task) {
                tracing::error!(pool, alert, %error, "a webhook could not be told");
            }
        }
    }
}

fn sample(pool: &PoolStats) -> Sample {
    let totals = &pool.totals;
    Sample {
        queue: u32::try_from(pool.pending_tasks + pool.delayed_tasks).unwrap_or(u32::MAX),
        capacity: u32::try_from(pool.queue_capacity).unwrap_or(u32::MAX),
        dead_letters_total: pool.total_failed,
        crashes_total: totals.panicked + totals.died,
        timeouts_total: totals.timed_out,
        completed_total: pool.total_processed + totals.failed_attempts,
        abandoned: u32::try_from(totals.abandoned).unwrap_or(u32::MAX),
        abandoned_max: pool.max_workers,
    }
}
