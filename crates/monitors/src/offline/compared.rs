//! A whole fleet compared, on as many threads as there are processors.

use super::flaw::Flaw;
use super::fleet::{Fleet, Watched};
use super::what_if::{Difference, Supposed, Totals, WhatIf};
use serde::Serialize;

/// More threads than this are no help: memory is what they would wait for.
const THREADS_MAX: usize = 8;
/// A thread is worth its start from so many servers on.
const SERVERS_A_THREAD: usize = 64;

/// What is different for the servers of a fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Those that differ, in the order of the fleet.
    pub servers: Vec<Difference>,
    /// How many were compared.
    pub compared: usize,
    /// What it comes to.
    pub totals: Totals,
}

impl Fleet {
    /// Plans every server as things are and as they are supposed to be.
    pub fn what_if(&self, what_if: &WhatIf) -> Result<Compared, Vec<Flaw>> {
        let supposed = what_if.suppose_each(self.rosters())?;
        let servers = self.servers();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(THREADS_MAX).min(servers.len() / SERVERS_A_THREAD).max(1);
        let part = servers.len().div_ceil(threads).max(1);
        let found: Vec<(Vec<Difference>, Totals)> = std::thread::scope(|scope| {
            let mut parts = servers.chunks(part);
            let first = parts.next().unwrap_or_default();
            let others: Vec<_> =
                parts.map(|servers| scope.spawn(|| self.compare(servers, &supposed))).collect();
            let mut found = vec![self.compare(first, &supposed)];
            // A panic of one of them is a panic of this.
            found.extend(others.into_iter().map(|one| match one.join() {
                Ok(found) => found,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            found
        });
        let (mut all, mut totals) = (Vec::new(), Totals::default());
        for (differences, part) in found {
            all.extend(differences);
            totals.merge(&part);
        }
        Ok(Compared { servers: all, compared: servers.len(), totals })
    }

    fn compare(&self, servers: &[Watched], supposed: &[Supposed]) -> (Vec<Difference>, Totals) {
        let (mut differences, mut totals) = (Vec::new(), Totals::default());
        for watched in servers {
            let Watched { server, assignments, .. } = watched;
            let supposed = &supposed[watched.roster()];
            let roster = self.roster(watched);
            let found = supposed.compare(roster, server, assignments, self.now());
            totals.add(&found, supposed, self.settings());
            if !found.is_empty() {
                differences.push(found);
            }
        }
        (differences, totals)
    }
}
