//! Workers wear out: they are restarted when they are idle and due, as many at once as may be.

use super::{HOME, Stage, array, seconds};
use crate::demo::narrator::list;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long it may take until one is restarted.
const RESTART_LIMIT: Duration = Duration::from_secs(25);
/// Restarts that are enough to tell about.
const ENOUGH: usize = 2;

/// A worker: which start of its program it is, and how worn it is.
#[derive(Clone)]
struct Seen {
    incarnation: u64,
    lifetime: u64,
    due_at: Option<u64>,
    due_by: Option<String>,
}

impl Stage {
    pub(super) async fn workers(&mut self) {
        let Some(before) = self.seen().await else {
            return self.missed("a node tells about workers").await;
        };
        let title = format!("{} workers serve sessions and wear out", before.len());
        self.narrator.event("workers", &title, "/sessions").await;
        let begun = Instant::now();
        // What each was like just before it was restarted.
        let mut last = before.clone();
        let mut restarted: BTreeMap<String, Seen> = BTreeMap::new();
        while restarted.len() < ENOUGH && begun.elapsed() < RESTART_LIMIT {
            let Some(now) = self.seen().await else { continue };
            for (name, seen) in &now {
                match last.get(name) {
                    Some(old) if old.incarnation != seen.incarnation => {
                        restarted.entry(name.clone()).or_insert(old.clone());
                    }
                    _ => {}
                }
            }
            last = now;
            let rest = tokio::time::sleep(super::REST);
            if self.stop.run_until_cancelled(rest).await.is_none() {
                break;
            }
        }
        if restarted.is_empty() {
            let limit = seconds(RESTART_LIMIT);
            return self.missed(&format!("a worker restarts within {limit}")).await;
        }
        let names: Vec<String> = restarted.keys().cloned().collect();
        let verb = if names.len() == 1 { "was" } else { "were" };
        let (names, took) = (list(&names), seconds(begun.elapsed()));
        self.narrator.outcome(&format!("{names} {verb} restarted within {took}")).await;
        self.tell_why(&restarted, before.len()).await;
    }

    async fn tell_why(&mut self, restarted: &BTreeMap<String, Seen>, workers: usize) {
        let Some((name, seen)) = restarted.first_key_value() else { return };
        let due = match (seen.due_at, &seen.due_by) {
            (Some(due), _) => format!("{name} had had {} sessions of {due}", seen.lifetime),
            (None, Some(by)) => format!("{name} was due by {by}"),
            (None, None) => format!("{name} had had {} sessions", seen.lifetime),
        };
        let budget = match self.budget().await {
            Some(budget) => format!("; at most {budget} of {workers} may restart at once"),
            None => String::new(),
        };
        self.narrator.because(&format!("{due} and was idle{budget}")).await;
    }

    async fn budget(&self) -> Option<u64> {
        let overview = self.get(HOME, "/api/v1/sessions/overview").await?;
        array(&overview["kinds"]).iter().find_map(|kind| kind["out_max"].as_u64())
    }

    async fn seen(&self) -> Option<BTreeMap<String, Seen>> {
        let found = self.get(HOME, "/api/v1/sessions/workers?limit=1000").await?;
        let seen = |one: &Value| {
            let seen = Seen {
                incarnation: one["incarnation"].as_u64()?,
                lifetime: one["lifetime"].as_u64().unwrap_or(0),
                due_at: one["due_at"].as_u64(),
                due_by: one["due_by"].as_str().map(str::to_owned),
            };
            Some((one["name"].as_str()?.to_owned(), seen))
        };
        Some(array(&found["workers"]).iter().filter_map(seen).collect())
    }
}
