//! A fleet's whole life in one process: actors that use every capability through its public API,
//! and a checker for each.
//!
//! An actor is a producer with its consumers, a worker with its clients, a server behind a route,
//! an endpoint, a monitor with what it measures, or somebody who has work for the pools. It knows
//! where the nodes are and nothing else of them, so the same actors live with nodes in one process
//! (`skep demo`) and with real ones under faults (`skep soak`). Each writes down what it did and
//! what it was told, and at the end says whether the two fit.

pub mod client;
pub mod faults;
pub mod monitors;
pub mod nodes;
pub mod polls;
pub mod queues;
pub mod routes;
pub mod sessions;
pub mod tally;
pub mod tasks;
pub mod upstreams;
pub mod weather;

pub use client::{Answer, Trouble};
pub use tally::Tally;
pub use upstreams::Upstreams;
pub use weather::Weather;

use client::Client;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Where the nodes are, whether they run now or not.
pub struct Place {
    /// `http://127.0.0.1:7101` of each node.
    pub api: Vec<String>,
    /// `127.0.0.1:7201` of each node's gateway.
    pub gateways: Vec<String>,
    /// Which nodes are down or cut off just now. Set by whoever breaks them, before and after, so
    /// that actors know which errors are to be expected.
    pub down: Vec<AtomicBool>,
    /// The key that the nodes want, if any.
    pub key: Option<String>,
    /// What else was done to them that cannot be made good.
    pub weather: Weather,
    /// What the actors have done so far.
    pub tally: Tally,
    /// Where routes lead to.
    pub upstreams: Upstreams,
    client: Client,
    fresh: Client,
    turn: AtomicUsize,
}

impl Place {
    /// Nodes that all run.
    pub fn new(api: Vec<String>, gateways: Vec<String>, key: Option<String>) -> Self {
        let down = api.iter().map(|_| AtomicBool::new(false)).collect();
        Place {
            api,
            gateways,
            down,
            key,
            weather: Weather::default(),
            tally: Tally::default(),
            upstreams: Upstreams::default(),
            client: Client::new(),
            fresh: Client::fresh(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Whether a node is down just now.
    pub fn is_down(&self, node: usize) -> bool {
        self.down.get(node).is_some_and(|down| down.load(Ordering::SeqCst))
    }

    /// Says that a node is down now, or is not any more.
    pub fn set_down(&self, node: usize, is_down: bool) {
        if let Some(down) = self.down.get(node) {
            down.store(is_down, Ordering::SeqCst);
        }
    }

    /// Whether no node is down just now.
    pub fn all_up(&self) -> bool {
        (0..self.api.len()).all(|node| !self.is_down(node))
    }

    /// A node that is not down, each in turn; any if all are.
    pub fn next(&self) -> usize {
        let nodes = self.api.len().max(1);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut turns = (0..nodes).map(|step| (turn + step) % nodes);
        turns.find(|node| !self.is_down(*node)).unwrap_or(turn % nodes)
    }

    /// Sends a request to a node. Any status is an answer.
    ///
    /// # Errors
    /// If no answer came within `limit`; whether the node did what was asked is not known then.
    pub async fn ask(
        &self,
        node: usize,
        method: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Answer, Trouble> {
        let base = self.api.get(node).map_or("", String::as_str);
        let key = self.key.as_deref();
        self.client.send((method, &format!("{base}{path}")), key, body, limit).await
    }

    /// What a node says about itself, as text.
    ///
    /// # Errors
    /// If it does not say it within `limit`.
    pub async fn text(&self, node: usize, path: &str, limit: Duration) -> Result<String, Trouble> {
        let base = self.api.get(node).map_or("", String::as_str);
        self.client.text(&format!("{base}{path}"), self.key.as_deref(), limit).await
    }

    /// Asks for a path at a node's gateway, as any client would. Any status is an answer.
    ///
    /// # Errors
    /// If no answer came within `limit`.
    pub async fn through_gateway(
        &self,
        node: usize,
        path: &str,
        limit: Duration,
    ) -> Result<Answer, Trouble> {
        let gateway = self.gateways.get(node).map_or("", String::as_str);
        self.fresh.send(("GET", &format!("http://{gateway}{path}")), None, None, limit).await
    }

    /// Sends a request again and again, to one node after another, until one answers below 500 and
    /// not with 429, or `limit` is over. Only for what may be done twice.
    ///
    /// # Errors
    /// The last trouble, if none did.
    pub async fn ask_any(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Answer, Trouble> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let once = left.min(ONCE).max(REST);
            let outcome = match self.ask(self.next(), method, path, body, once).await {
                Ok(answer) if answer.status >= 500 || answer.status == 429 => {
                    Err(Trouble(format!("{method} {path} was answered {answer}")))
                }
                outcome => outcome,
            };
            if outcome.is_ok() || tokio::time::Instant::now() + REST >= deadline {
                return outcome;
            }
            tokio::time::sleep(REST).await;
        }
    }
}

/// How long one try of [`Place::ask_any`] may take.
const ONCE: Duration = Duration::from_secs(5);
/// Between two of them.
const REST: Duration = Duration::from_millis(100);

/// How much the actors do. What is small or big is the caller's to know: a demo wants to be
/// followed by eye, a soak wants everything that the machine has.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// Messages pushed in a second, over all queues.
    pub messages: u32,
    /// Consumers at the same time, over all groups.
    pub consumers: u32,
    /// Simulated workers for sessions.
    pub workers: u32,
    /// Clients that have, want or just had a session.
    pub clients: u32,
    /// Endpoints that are polled.
    pub endpoints: u32,
    /// How often each of them is.
    pub endpoint_every: Duration,
    /// Servers that monitors watch.
    pub servers: u32,
    /// Monitors with their agents.
    pub monitors: u32,
    /// Background tasks in a second, over all tiers.
    pub tasks: u32,
    /// Requests over routes in a second.
    pub requests: u32,
    /// How long an actor may take to settle what is open after it was stopped.
    pub settle: Duration,
}

impl Pace {
    /// To be followed by eye; three nodes in a debug build on half a core keep up with it.
    pub fn gentle(seed: u64) -> Self {
        Pace {
            seed,
            messages: 40,
            consumers: 8,
            workers: 8,
            clients: 20,
            endpoints: 42,
            endpoint_every: Duration::from_secs(1),
            servers: 9,
            monitors: 12,
            tasks: 30,
            requests: 12,
            settle: Duration::from_secs(30),
        }
    }
}

/// What an actor did and found: a row of the summary.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What it is about: `queues`, `polls`, ….
    pub part: &'static str,
    /// In figures: `48,210 pushed, 48,210 acknowledged, 0 lost, 0 doubled`.
    pub done: String,
    /// What did not hold, a sentence each; empty if everything did.
    pub broken: Vec<String>,
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_between_thousands() {
        let grouped: Vec<String> = [0, 999, 1_000, 48_210, 1_234_567].map(grouped).into();
        assert_eq!(grouped, ["0", "999", "1,000", "48,210", "1,234,567"]);
    }

    #[test]
    fn the_next_node_is_one_that_is_not_down_if_there_is_any() {
        let api = ["a", "b", "c"].map(str::to_owned).to_vec();
        let place = Place::new(api, Vec::new(), None);
        place.set_down(1, true);
        let turns: Vec<usize> = (0..6).map(|_| place.next()).collect();
        assert_eq!(turns, [0, 2, 2, 0, 2, 2]);
        assert!(!place.all_up());
        place.set_down(0, true);
        place.set_down(2, true);
        assert!(place.next() < 3);
        place.set_down(7, true);
        assert!(!place.is_down(7), "there is no such node");
    }
}
