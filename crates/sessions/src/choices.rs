//! The latest choices, with their reasons.

use crate::error::Refused;
use crate::handle::{Sessions, session_id};
use serde::Serialize;
use skep_policy::explain::{Kind, would};
use skep_policy::sessions::{Seat, Ticket, why};
use skep_policy::{Decision, Reason};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Choices that are kept.
const CHOICES_MAX: usize = 256;

/// A choice, or why there was none.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    pub session: String,
    /// What `skep explain` takes.
    pub explain: String,
    pub kind: String,
    pub waited_ms: u64,
    /// The worker's name; none if the session was refused.
    pub worker: Option<String>,
    pub reason: Reason,
    /// What would make it come out otherwise.
    pub would_change: &'static str,
}

#[derive(Default)]
pub(crate) struct Choices {
    kept: Mutex<VecDeque<Choice>>,
}

impl Choices {
    pub fn seated(
        &self,
        sessions: &Sessions,
        ticket: Ticket,
        kind: &str,
        seat: &Seat,
        waited: Duration,
    ) {
        let Decision { chosen, reason } = why(sessions.options().rules_of(kind), seat);
        self.keep(sessions, ticket, kind, waited, Some(chosen), reason);
    }

    pub fn refused(
        &self,
        sessions: &Sessions,
        ticket: Ticket,
        kind: &str,
        refused: &Refused,
        waited: Duration,
    ) {
        let reason = Reason::new(refused.name()).with("why", refused.to_string());
        self.keep(sessions, ticket, kind, waited, None, reason);
    }

    fn keep(
        &self,
        sessions: &Sessions,
        ticket: Ticket,
        kind: &str,
        waited: Duration,
        worker: Option<String>,
        reason: Reason,
    ) {
        let session = session_id(sessions.shared.gateway, ticket);
        let choice = Choice {
            at_ms: skep_store::wall_ms(),
            explain: Kind::Session.id(&session),
            session,
            kind: kind.to_owned(),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            worker,
            would_change: would::session(reason.rule),
            reason,
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == CHOICES_MAX {
            kept.pop_front();
        }
        kept.push_back(choice);
    }

    pub fn all(&self) -> Vec<Choice> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().cloned().collect()
    }
}
