//! The tour: what happens in a demo, one thing after another, and what is told about it.

mod burst;
mod kill;
mod limit;
mod workers;

use super::narrator::Narrator;
use super::nodes::Nodes;
use super::story::Next;
use crate::access::now_ms;
use serde_json::Value;
use skep_chaos::world::{Place, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Before the first event: there should be something to see.
const FIRST: Duration = Duration::from_secs(8);
/// Between two looks.
const REST: Duration = Duration::from_millis(100);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The node whose dashboard was printed; it is never killed.
const HOME: usize = 0;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    Kill,
    Workers,
    Burst,
    Limit,
}

/// In this order, again and again.
const SCENES: [Scene; 4] = [Scene::Kill, Scene::Workers, Scene::Burst, Scene::Limit];

impl Scene {
    fn announced(self) -> (&'static str, &'static str) {
        match self {
            Scene::Workers => ("worn-out workers restart, a few at a time", "/sessions"),
            Scene::Kill => ("a node is killed, and comes back", "/polls"),
            Scene::Burst => ("10,000 tasks come at once", "/pools"),
            Scene::Limit => ("an account may have fewer monitors on a server", "/monitors"),
        }
    }

    fn counted(self, count: usize) -> String {
        let (one, many) = match self {
            Scene::Workers => ("look at workers", "looks at workers"),
            Scene::Kill => ("node killed and back", "nodes killed and back"),
            Scene::Burst => ("burst of tasks", "bursts of tasks"),
            Scene::Limit => ("limit lowered", "limits lowered"),
        };
        format!("{count} {}", if count == 1 { one } else { many })
    }
}

/// What the scenes play on.
pub struct Stage {
    pub place: Arc<Place>,
    pub nodes: Nodes,
    pub narrator: Narrator,
    /// Cancelled when the demo ends; what waits for something then waits no longer.
    pub stop: CancellationToken,
    /// When the demo ends by itself.
    pub ends: Option<Instant>,
    /// What should have happened and did not.
    pub broken: Vec<String>,
    /// How often each scene was played.
    pub played: BTreeMap<Scene, usize>,
    /// The account whose limit is lowered now.
    lowered: Option<String>,
}

impl Stage {
    pub fn new(
        place: Arc<Place>,
        nodes: Nodes,
        narrator: Narrator,
        stop: CancellationToken,
        ends: Option<Instant>,
    ) -> Self {
        let (broken, played) = (Vec::new(), BTreeMap::new());
        Stage { place, nodes, narrator, stop, ends, broken, played, lowered: None }
    }

    /// Plays scenes, one every so often, until the demo ends or all were played so often. All nodes
    /// run afterwards.
    pub async fn play(&mut self, every: Duration, rounds: Option<u32>) {
        let mut at = Instant::now() + FIRST.min(every);
        let scenes = rounds.map_or(usize::MAX, |rounds| rounds as usize * SCENES.len());
        for scene in SCENES.into_iter().cycle().take(scenes) {
            let (title, page) = scene.announced();
            let wait = at.saturating_duration_since(Instant::now());
            let next_at = now_ms() + i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            // One that would be broken off at once is not begun.
            let too_late = self.ends.is_some_and(|ends| at + every / 2 > ends);
            let next = Next { at: next_at, title: title.to_owned(), page: page.to_owned() };
            self.narrator.over((!too_late).then_some(next)).await;
            if too_late {
                self.stop.cancelled().await;
            }
            if self.stop.run_until_cancelled(tokio::time::sleep_until(at)).await.is_none() {
                break;
            }
            match scene {
                Scene::Workers => self.workers().await,
                Scene::Kill => self.kill().await,
                Scene::Burst => self.burst().await,
                Scene::Limit => self.limit().await,
            }
            *self.played.entry(scene).or_default() += 1;
            at = (at + every).max(Instant::now() + every / 4);
        }
        self.narrator.over(None).await;
        self.stop.cancel();
    }

    /// The row of the summary about what happened.
    pub fn verdict(&self) -> Verdict {
        let played: Vec<String> =
            self.played.iter().map(|(scene, count)| scene.counted(*count)).collect();
        let done = match played.is_empty() {
            true => "nothing happened yet".to_owned(),
            false => super::narrator::list(&played),
        };
        Verdict { part: "events", done, broken: self.broken.clone() }
    }

    /// Asks a node; nothing if it does not tell.
    async fn get(&self, node: usize, path: &str) -> Option<Value> {
        let answer = self.place.ask(node, "GET", path, None, LIMIT).await.ok()?;
        answer.is_ok().then_some(answer.body)
    }

    /// Looks again and again until something is found; nothing when the time is over.
    async fn found<T>(&self, limit: Duration, look: impl AsyncFn(&Self) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = look(self).await {
                return Some(found);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// The same, but not longer than the demo lasts.
    async fn until<T>(&self, limit: Duration, look: impl AsyncFn(&Self) -> Option<T>) -> Option<T> {
        self.stop.run_until_cancelled(self.found(limit, look)).await.flatten()
    }

    /// Notes that something did not happen in time, unless nobody waited for it.
    async fn missed(&mut self, what: &str) {
        if self.stop.is_cancelled() {
            return;
        }
        self.broken.push(what.to_owned());
        self.narrator.outcome(&format!("it should have: {what}")).await;
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
