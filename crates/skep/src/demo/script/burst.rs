//! 10,000 tasks at once: the pools grow, nothing is lost, and what is urgent stays fast.

use super::{HOME, Stage, array, seconds};
use serde_json::Value;
use skep_chaos::world::{grouped, tasks};
use std::time::{Duration, Instant};

const COUNT: u64 = 10_000;
/// Not a lower one: those run at a lower priority, and on a busy machine it would take minutes.
const TIER: &str = "high";
/// How long they may take, on a busy machine too.
const DONE_LIMIT: Duration = Duration::from_secs(60);

impl Stage {
    pub(super) async fn burst(&mut self) {
        let title =
            format!("{} tasks come at once, to the pool {TIER} of all nodes", grouped(COUNT));
        let seen = self.newest_decision().await;
        self.narrator.event("burst", &title, "/pools").await;
        let begun = Instant::now();
        let burst = tasks::burst(&self.place, TIER, COUNT);
        let Some(burst) = self.stop.run_until_cancelled(burst).await else { return };
        if let Some(why) = burst.trouble {
            return self.missed(&format!("all of them are taken ({why})")).await;
        }
        let done = self.until(DONE_LIMIT, async |stage: &Stage| stage.all_done().await).await;
        if done.is_none() {
            return self.missed(&format!("they are done within {}", seconds(DONE_LIMIT))).await;
        }
        let (taken, took) = (grouped(burst.taken), seconds(begun.elapsed()));
        self.narrator.outcome(&format!("{taken} were taken and done within {took}")).await;
        self.tell_decisions(seen).await;
        if let Some(wait) = self.critical_wait().await {
            let text = format!("critical tasks went on without them: 99 of 100 waited {wait}");
            self.narrator.outcome(&text).await;
        }
    }

    async fn newest_decision(&self) -> u64 {
        let scaling = self.get(HOME, "/api/v1/pools/scaling").await.unwrap_or_default();
        let newest = array(&scaling["scaling"]).last().and_then(|one| one["number"].as_u64());
        newest.unwrap_or(0)
    }

    /// Whether no task of the demo is open on any node.
    async fn all_done(&self) -> Option<()> {
        for node in 0..self.place.api.len() {
            if self.place.is_down(node) {
                continue;
            }
            let counts = self.get(node, "/api/v1/demo/tasks").await?;
            let number = |field: &str| counts[field].as_u64().unwrap_or(0);
            let open = number("taken").saturating_sub(number("done") + number("dead"));
            // Others go on giving tasks all the time; a few are always on their way.
            if open > 20 {
                return None;
            }
        }
        Some(())
    }

    /// Which workers the first node started for it, and why.
    async fn tell_decisions(&mut self, seen: u64) {
        let path = format!("/api/v1/pools/scaling?after={seen}");
        let scaling = self.get(HOME, &path).await.unwrap_or_default();
        let more: Vec<&Value> = array(&scaling["scaling"])
            .iter()
            .filter(|one| matches!(one["action"].as_str(), Some("spawn" | "help")))
            .collect();
        let Some(first) = more.first() else { return };
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let most = |pool: &str| {
            let of_pool = more.iter().filter(|one| one["pool"] == pool);
            of_pool.filter_map(|one| one["workers"].as_u64()).max().unwrap_or(0)
        };
        let name = self.nodes.name(HOME).to_owned();
        let started = format!("{name} started {} more workers for it", more.len());
        let shared = most("shared");
        let outcome = match shared {
            0 => started,
            _ => format!("{started}; at the most {shared} shared ones helped"),
        };
        self.narrator.outcome(&outcome).await;
        let (pool, why) = (text(first, "pool"), text(first, "reason"));
        self.narrator.because(&format!("{why} (the first, for {pool})")).await;
    }

    async fn critical_wait(&self) -> Option<String> {
        let pool = self.get(HOME, "/metrics/pools/critical").await?;
        let micros = pool["pool"]["wait_us"]["p99"].as_f64()?;
        Some(format!("{:.1} ms at most", micros / 1_000.0))
    }
}
