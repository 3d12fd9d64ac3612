//! Everything once: for people who try an agent, and for machines that start one by a timetable.

use super::link::{Failure, Fetched, Link};
use super::measure::{Gauge, Probe, result};
use super::wire::{Assigned, BATCH_MAX, Measured, Refused};
use super::{AgentError, Options, Tools};
use serde::Serialize;
use skep_store::wall_ms;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Once {
    /// The monitor.
    pub monitor: String,
    /// What was measured.
    pub results: Vec<Measured>,
    /// What could not be measured from here, and why.
    pub unmeasured: Vec<(String, String)>,
    /// Results that the node has taken, older ones of a buffer included.
    pub accepted: u64,
    /// Results that it had already.
    pub known: u64,
    /// Results that it will never take.
    pub refused: Vec<(String, i64, String)>,
    /// Results that no node has.
    pub unreported: usize,
    /// Why, if there are any.
    pub failure: Option<String>,
    /// Whether they are kept for the next time.
    pub kept: bool,
}

/// Measures every server that is assigned, and reports it.
///
/// # Errors
/// If the agent cannot begin, or nobody says what to measure.
pub async fn once(options: Options) -> Result<Once, AgentError> {
    let Tools { link, gauge, mut buffer } = Tools::new(&options)?;
    let (assignments, _) = fetch(&link).await?;
    let mut once = Once {
        monitor: assignments.monitor,
        results: Vec::new(),
        unmeasured: Vec::new(),
        accepted: 0,
        known: 0,
        refused: Vec::new(),
        unreported: 0,
        failure: None,
        kept: false,
    };
    measure(&mut once, gauge, assignments.servers, options.concurrency.max(1)).await?;
    for result in &once.results {
        if let Err(error) = buffer.push(result.clone()) {
            tracing::warn!("--buffer cannot be written: {error}");
        }
    }
    let mut failures = 0;
    while !buffer.is_empty() {
        match link.report(&buffer.send(BATCH_MAX)).await {
            Ok(receipt) => {
                failures = 0;
                once.accepted += receipt.accepted;
                once.known += receipt.known;
                let told = |one: Refused| (one.server, one.at, one.reason);
                once.refused.extend(receipt.refused.into_iter().map(told));
                if let Err(error) = buffer.settled() {
                    tracing::warn!("--buffer cannot be written: {error}");
                }
            }
            Err(failure) => {
                buffer.unsent();
                failures += 1;
                if failures >= link.nodes() || matches!(failure, Failure::Refused(_)) {
                    once.failure = Some(failure.text().to_owned());
                    break;
                }
            }
        }
    }
    if let Err(error) = buffer.save().await {
        tracing::warn!("--buffer cannot be written: {error}");
    }
    (once.unreported, once.kept) = (buffer.len(), buffer.is_durable());
    Ok(once)
}

/// Asks every node once.
async fn fetch(link: &Link) -> Result<Fetched, AgentError> {
    let mut last = AgentError::Away("no node was named".to_owned());
    for _ in 0..link.nodes() {
        last = match link.assignments(None).await {
            Ok(Some(fetched)) => return Ok(fetched),
            Ok(None) => AgentError::Away("a node answered 304 to a first question".to_owned()),
            Err(Failure::Denied(text)) => AgentError::Denied(text),
            Err(failure) => AgentError::Away(failure.text().to_owned()),
        };
    }
    Err(last)
}

async fn measure(
    once: &mut Once,
    gauge: Gauge,
    servers: Vec<Assigned>,
    concurrency: usize,
) -> Result<(), AgentError> {
    let gauge = Arc::new(gauge);
    let mut left = servers.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < concurrency {
            let Some(Assigned { server, probe, .. }) = left.next() else { break };
            match Probe::new(&server, &probe) {
                Ok(probe) => {
                    let gauge = gauge.clone();
                    running.spawn(async move {
                        let at = wall_ms();
                        let measured = gauge.measure(&probe).await;
                        (server, at, measured)
                    });
                }
                Err(why) => once.unmeasured.push((server, why)),
            }
        }
        let Some(over) = running.join_next().await else { break };
        let (server, at, measured) = over.map_err(|error| AgentError::Bug(error.to_string()))?;
        match result(&server, at, measured) {
            Ok(result) => once.results.push(result),
            Err(why) => once.unmeasured.push((server, why)),
        }
    }
    once.results.sort_by(|one, other| one.server.cmp(&other.server));
    once.unmeasured.sort();
    Ok(())
}
