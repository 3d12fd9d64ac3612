//! The settings of the nodes among each other and of their polls.

use super::section::{Reader, section};
use super::value::Value;
use super::{hours, ms};
use skep_policy::ownership::{MemberOptions, Timing};
use skep_polls::PollsOptions;
use std::sync::Arc;
use std::time::Duration;

section! {
    /// How nodes agree on who owns what.
    pub struct NodesSettings in "nodes" {
        /// How long a node's session lives after a renewal. Longer rides out longer outages of the
        /// store; shorter finds a dead node sooner. The same on all nodes, as the next three are.
        ttl: Duration = Timing::default().ttl, in ms(500)..=hours(1);
        /// How often a session is renewed, however much its node owns.
        tick: Duration = Timing::default().tick, in ms(50)..=hours(1);
        /// What is left between the end of one node's trust and the beginning of another's.
        margin: Duration = Timing::default().margin, in ms(10)..=hours(1);
        /// How much faster or slower than true time a clock may run: 0.005 is half a percent.
        drift: f64 = Timing::default().drift, in 0.0..=0.1;
        /// How many renewals a node that has come waits before it takes work.
        observe: usize = 3, in 0..=1_000;
        /// How much work this node takes beside the others.
        weight: usize = 1, in 1..=1_000;
        /// How far a node's load may be from its share: 0.05 is a twentieth.
        tolerance: f64 = 0.05, in 0.0..=0.5;
        /// How much of what it has a node gives away in a second to even loads out.
        moves_per_second: f64 = 0.05, in 0.001..=1.0;
        /// How long a key that was given away to even loads out stays where it is.
        cooldown: Duration = ms(60_000), in Duration::ZERO..=hours(24);
    }
}

section! {
    /// Polling of endpoints.
    pub struct PollsSettings in "polls" {
        /// Endpoints in the installation at most.
        endpoints_max: usize = 100_000, in 1..=1_000_000;
        /// Results kept for each endpoint.
        history: usize = PollsOptions::default().history as usize, in 1..=1_000;
        /// Polls of this node at a time; more wait, and are late.
        concurrency: usize = PollsOptions::default().concurrency, in 1..=100_000;
        /// Results that may wait to be written; the oldest of more are dropped and counted.
        waiting_max: usize = PollsOptions::default().waiting_max, in 100..=10_000_000;
        /// How long polls in progress may take to finish when the node stops.
        drain: Duration = PollsOptions::default().drain, in Duration::ZERO..=ms(10_000);
        /// Whether polls over HTTP say who asks, in the headers `x-skep-endpoint`, `x-skep-node`
        /// and `x-skep-token`.
        identify: bool = false;
    }
}

impl NodesSettings {
    pub(super) fn check_together(&self, reader: &mut Reader) {
        for bad in self.timing().validate() {
            let key = format!("nodes.{}", bad.field);
            reader.conflict(&key, format!("`{key}`: {}", bad.problem));
        }
    }

    /// The spans that ownership rests on.
    pub fn timing(&self) -> Timing {
        Timing {
            ttl: self.ttl,
            tick: self.tick,
            margin: self.margin,
            drift: self.drift,
            observe_ticks: u32::try_from(self.observe).unwrap_or(u32::MAX),
        }
    }

    /// What a node with this name is told; `info` is what it tells the others.
    pub fn options(&self, name: &str, info: &serde_json::Value) -> MemberOptions {
        MemberOptions {
            weight: u32::try_from(self.weight).unwrap_or(u32::MAX),
            info: Arc::from(info.to_string()),
            timing: self.timing(),
            tolerance: self.tolerance,
            moves_per_second: self.moves_per_second,
            cooldown: self.cooldown,
            ..skep_nodes::options_for(name)
        }
    }
}

impl PollsSettings {
    /// What the polls of a node are told.
    pub fn options(&self) -> PollsOptions {
        PollsOptions {
            endpoints_max: self.endpoints_max as u64,
            history: u32::try_from(self.history).unwrap_or(u32::MAX),
            concurrency: self.concurrency,
            waiting_max: self.waiting_max,
            drain: self.drain,
            identify: self.identify,
        }
    }
}

impl Value for f64 {
    fn expected() -> String {
        "a number such as 0.05".to_owned()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}
