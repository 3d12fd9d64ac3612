//! The last scaling decisions, with their reasons.

use crate::sync::{Mutex, lock};
use serde::Serialize;
use skep_policy::Time;
use skep_policy::pools::{Tier, Verdict};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Decisions that are kept.
pub const KEPT_MAX: usize = 256;

/// Which pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// A tier.
    Tier(Tier),
    /// The shared one.
    Shared,
}

impl Pool {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Tier(tier) => tier.name(),
            Pool::Shared => "shared",
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A worker was started.
    Spawn,
    /// A worker went, because there was too little to do.
    Retire,
    /// A worker went after resting for its time.
    Idle,
    /// A shared worker was started, for this purpose.
    Help(&'static str),
    /// A thread that did not come back was given up.
    Abandon,
    /// A worker died.
    Died,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Spawn => "spawn",
            Action::Retire => "retire",
            Action::Idle => "idle-exit",
            Action::Help(_) => "help",
            Action::Abandon => "abandon",
            Action::Died => "died",
        }
    }
}

/// A scaling decision.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// Counts up; to ask for what is new.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// When, on the clock of the pools.
    #[serde(skip)]
    pub at: Time,
    /// The pool's name.
    pub pool: &'static str,
    /// `spawn`, `retire`, `idle-exit`, `help`, `abandon`, `died` or `start-failed`.
    pub action: &'static str,
    /// The workers the pool has now.
    pub workers: u32,
    /// Why, in one line.
    pub reason: String,
}

/// The last decisions.
#[derive(Default)]
pub struct Journal {
    kept: Mutex<(u64, VecDeque<Scaling>)>,
}

impl Journal {
    pub(crate) fn note(
        &self,
        at: Time,
        pool: Pool,
        action: Action,
        workers: u32,
        verdict: Option<Verdict>,
    ) {
        let reason = match (verdict, action) {
            (Some(verdict), _) => verdict.reason().to_string(),
            (None, Action::Help(why)) => why.to_owned(),
            (None, Action::Idle) => "nothing to do for its idle timeout".to_owned(),
            (None, Action::Abandon) => "its task did not stop when its time was over".to_owned(),
            (None, Action::Died) => "its thread ended".to_owned(),
            (None, Action::Spawn | Action::Retire) => String::new(),
        };
        self.push(at, pool, action.name(), workers, reason);
    }

    pub(crate) fn note_failed_start(
        &self,
        at: Time,
        pool: Pool,
        workers: u32,
        error: &std::io::Error,
    ) {
        self.push(at, pool, "start-failed", workers, error.to_string());
    }

    fn push(&self, at: Time, pool: Pool, action: &'static str, workers: u32, reason: String) {
        let at_ms = wall_clock_ms();
        let mut kept = lock(&self.kept);
        kept.0 += 1;
        let number = kept.0;
        if kept.1.len() == KEPT_MAX {
            kept.1.pop_front();
        }
        kept.1.push_back(Scaling { number, at_ms, at, pool: pool.name(), action, workers, reason });
    }

    /// The decisions after `number`, the oldest first.
    pub fn since(&self, number: u64) -> Vec<Scaling> {
        lock(&self.kept).1.iter().filter(|one| one.number > number).cloned().collect()
    }
}

pub(crate) fn wall_clock_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
