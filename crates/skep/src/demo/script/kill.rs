//! A node is killed: others take over what it owned when its lease has ended, and it comes back.

use super::{HOME, Stage, array, seconds};
use crate::demo::narrator::{list, words};
use serde_json::Value;
use skep_chaos::world::weather::{Leave, Who};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the others may take, on a busy machine too.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(20);
/// How long a node stays away after that, to be looked at.
const AWAY: Duration = Duration::from_secs(2);
/// How long it may take until it owns something again.
const RETURN_LIMIT: Duration = Duration::from_secs(20);

impl Stage {
    pub(super) async fn kill(&mut self) {
        let nodes = self.place.api.len();
        let played = self.played.values().sum::<usize>() / super::SCENES.len();
        let victim = HOME + 1 + played % (nodes - 1).max(1);
        let name = self.nodes.name(victim).to_owned();
        // Before it has something there would be nothing to see.
        let owned = self
            .until(TAKEOVER_LIMIT, async |stage: &Stage| {
                stage.owned_by(&name).await.filter(|owned| !owned.is_empty())
            })
            .await;
        let owned = owned.unwrap_or_default();
        let open = self.get(victim, "/api/v1/sessions/overview").await;
        let open = open.and_then(|overview| overview["open_here"].as_u64()).unwrap_or(0);

        self.place.set_down(victim, true);
        self.place.weather.leaves(Who::Node(victim), Leave::Killed);
        self.nodes.kill(victim).await;
        let killed = Instant::now();
        let title = format!("node {name} was killed; it owned {} endpoints", owned.len());
        self.narrator.event("kill", &title, "/polls").await;
        if open > 0 {
            self.narrator.outcome(&format!("{open} sessions that it carried were cut")).await;
        }
        self.tell_takeover(&name, &owned, killed).await;
        let _ = self.stop.run_until_cancelled(tokio::time::sleep(AWAY)).await;
        self.bring_back(victim, &name).await;
    }

    /// Ids of what a node polls.
    async fn owned_by(&self, name: &str) -> Option<Vec<String>> {
        let path = format!("/api/v1/polls/endpoints?owner={name}&limit=1000");
        let found = self.get(HOME, &path).await?;
        let id = |one: &Value| one["id"].as_str().map(str::to_owned);
        Some(array(&found["endpoints"]).iter().filter_map(id).collect())
    }

    async fn owners(&self) -> Option<BTreeMap<String, String>> {
        let found = self.get(HOME, "/api/v1/polls/endpoints?limit=1000").await?;
        let owner =
            |one: &Value| Some((one["id"].as_str()?.to_owned(), one["owner"].as_str()?.to_owned()));
        Some(array(&found["endpoints"]).iter().filter_map(owner).collect())
    }

    async fn tell_takeover(&mut self, name: &str, owned: &[String], killed: Instant) {
        if owned.is_empty() {
            return;
        }
        // To its end, also if the demo ends meanwhile: it is soon.
        let taken = self
            .found(TAKEOVER_LIMIT, async |stage: &Stage| {
                let owners = stage.owners().await?;
                let new: Vec<&String> = owned.iter().filter_map(|id| owners.get(id)).collect();
                let all = new.len() == owned.len() && new.iter().all(|owner| *owner != name);
                all.then(|| {
                    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
                    new.into_iter()
                        .for_each(|owner| *counts.entry(owner.clone()).or_default() += 1);
                    counts
                })
            })
            .await;
        let Some(counts) = taken else {
            let limit = seconds(TAKEOVER_LIMIT);
            return self
                .missed(&format!("what {name} polled is polled by others within {limit}"))
                .await;
        };
        let took = seconds(killed.elapsed());
        let shares: Vec<String> =
            counts.iter().map(|(owner, count)| format!("{owner} took over {count}")).collect();
        self.narrator.outcome(&format!("{} of its endpoints within {took}", list(&shares))).await;
        let why = self.move_reason(&owned[0]).await;
        let lease = format!("the lease of {name} had ended and nobody renewed it");
        let why = why.map_or(lease.clone(), |why| format!("{lease} ({}: {why})", owned[0]));
        self.narrator.because(&why).await;
    }

    /// Why an endpoint is where it is.
    async fn move_reason(&self, id: &str) -> Option<String> {
        let moves = self.get(HOME, &format!("/api/v1/polls/endpoints/{id}/moves")).await?;
        let newest = array(&moves["moves"]).iter().max_by_key(|one| one["at_ms"].as_i64())?;
        words(&newest["reason"])
    }

    async fn bring_back(&mut self, victim: usize, name: &str) {
        let started = self.nodes.start_one(victim).await;
        let begun = Instant::now();
        if let Err(error) = started {
            self.broken.push(format!("{name} did not come back: {error:#}"));
            self.narrator.outcome(&format!("{name} did not come back: {error:#}")).await;
            return;
        }
        self.place.weather.returns(Who::Node(victim));
        self.place.set_down(victim, false);
        self.narrator.event("return", &format!("node {name} is back"), "/cluster").await;
        let found = self
            .until(RETURN_LIMIT, async |stage: &Stage| {
                stage.owned_by(name).await.filter(|owned| !owned.is_empty())
            })
            .await;
        let Some(owned) = found else {
            let limit = seconds(RETURN_LIMIT);
            return self.missed(&format!("{name} polls something within {limit}")).await;
        };
        let (count, took) = (owned.len(), seconds(begun.elapsed()));
        self.narrator.outcome(&format!("it was given {count} endpoints after {took}")).await;
        if let Some(why) = self.move_reason(&owned[0]).await {
            self.narrator.because(&format!("others had more than their share ({why})")).await;
        }
    }
}
