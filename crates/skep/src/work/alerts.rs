//! Alerts about the pools, the workers of sessions and the routes: in the log, in the metrics, and
//! to those who want to be told.

use super::webhook::{self, Message, Sender};
use crate::access::now_ms;
use crate::settings::AlertSettings;
use serde::Serialize;
use skep_dial::Dials;
use skep_policy::pools::alerts::{Sample, Thresholds, Watch};
use skep_policy::{Reason, sessions};
use skep_pools::{PoolStats, Pools, Tier};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An alert that fires.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Alert {
    /// The pool it is about, `sessions:KIND` or `routes:NAME`.
    pub pool: String,
    /// `queue-depth`, `dead-letters`, `crashes`, `timeouts` or `stuck` of a pool;
    /// `budget-too-small` or `workers-held` of workers; `upstreams-out` or `certificate-ends` of
    /// a route.
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
    sender: Option<Arc<Sender>>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    watches: BTreeMap<&'static str, Watch>,
    firing: BTreeMap<(String, &'static str), Alert>,
}

/// An alert that began or ended.
struct Told {
    about: String,
    alert: &'static str,
    firing: bool,
    reason: Reason,
}

impl Watched {
    fn note(&mut self, told: &Told) {
        let key = (told.about.clone(), told.alert);
        if told.firing {
            let (pool, reason) = (told.about.clone(), told.reason.to_string());
            let alert = Alert { pool, kind: told.alert, since_ms: now_ms(), reason };
            self.firing.insert(key, alert);
        } else {
            self.firing.remove(&key);
        }
    }
}

impl Alerts {
    pub fn new(settings: &AlertSettings, node: &str, pools: &Pools, dials: &Dials) -> Self {
        let secret = settings.secret.clone();
        let sender = secret.map(|secret| Arc::new(Sender::new(secret, dials.dialler("webhook"))));
        pools.register(webhook::KIND, {
            let sender = sender.clone();
            move |payload| webhook::from_payload(payload, sender.as_ref())
        });
        Alerts {
            node: node.to_owned(),
            pools: pools.clone(),
            webhooks: settings.webhooks.0.clone(),
            sender,
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
                    let told_now = Told {
                        about: pool.name.to_owned(),
                        alert: change.kind.name(),
                        firing: change.firing,
                        reason: change.reason,
                    };
                    watched.note(&told_now);
                    told.push(told_now);
                }
            }
        }
        told.iter().for_each(|told| self.tell(told));
    }

    /// Tells that an alert about the workers of a kind began or ended.
    pub fn change_sessions(&self, kind: &str, change: &sessions::alerts::Change) {
        let about = format!("sessions:{kind}");
        self.change(about, change.kind.name(), change.firing, change.reason.clone());
    }

    /// Tells that an alert began or ended.
    pub fn change(&self, about: String, alert: &'static str, firing: bool, reason: Reason) {
        let told = Told { about, alert, firing, reason };
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).note(&told);
        self.tell(&told);
    }

    fn tell(&self, told: &Told) {
        let Told { about: pool, alert, firing, reason } = told;
        if *firing {
            tracing::warn!(pool, alert, %reason, "alert");
        } else {
            tracing::info!(pool, alert, %reason, "the alert is over");
        }
        let Some(sender) = &self.sender else { return };
        let body = serde_json::json!({
            "node": self.node, "pool": pool, "alert": alert,
            "state": if *firing { "firing" } else { "resolved" },
            "at_ms": now_ms(), "reason": reason, "text": reason.to_string(),
        });
        for url in &self.webhooks {
            let task = webhook::task(Message { url: url.clone(), body: body.clone() }, sender);
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
