//! When to say what is to be said: one request at a time, news at once, failures with patience.

use super::StartId;
use crate::wire::Request;
use skep_policy::backoff::{self, wait_before_attempt};
use skep_policy::{Chance, Time};
use std::time::Duration;

/// How the waits after failed calls grow.
const RETRIES: backoff::Options =
    backoff::Options { base: Duration::from_millis(100), cap: Duration::from_secs(5) };
/// The wait after a call that was denied: somebody has to do something about it first.
const DENIED_WAIT: Duration = Duration::from_secs(30);
/// Time between two calls that say the same. A node that answers its long polls at once, for
/// whatever reason, is not asked more often than this.
const GAP: Duration = Duration::from_millis(200);

/// The conversation with the nodes.
pub(super) struct Talk {
    last_call: u64,
    on_its_way: Option<(u64, Request)>,
    last_said: Option<Request>,
    not_before: Time,
    failures: u32,
    /// What was complained about last; the same is not told again and again.
    complaint: Option<String>,
    registered: Option<StartId>,
}

impl Talk {
    pub(super) fn new(now: Time) -> Self {
        Talk {
            last_call: 0,
            on_its_way: None,
            last_said: None,
            not_before: now,
            failures: 0,
            complaint: None,
            registered: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.on_its_way.is_none()
    }

    #[cfg(test)]
    pub(super) fn last_call(&self) -> u64 {
        self.last_call
    }

    pub(super) fn not_before(&self) -> Time {
        self.not_before
    }

    /// Whether this was the last start that a node agreed to.
    pub(super) fn was_registered(&self, start: &StartId) -> bool {
        self.registered.as_ref() == Some(start)
    }

    /// Whether a node ever agreed to any start.
    pub(super) fn was_ever_registered(&self) -> bool {
        self.registered.is_some()
    }

    pub(super) fn registered(&mut self, start: StartId) {
        self.registered = Some(start);
    }

    /// The number of a call to make now, if it is time to make one.
    pub(super) fn say(&mut self, request: &Request, now: Time) -> Option<u64> {
        let news = |said: &Request| !said.says_the_same(request);
        let speak = match &self.on_its_way {
            Some((_, said)) => news(said),
            // Waits after failures hold for news too, or a lost node would be asked in a loop.
            None if self.failures == 0 && self.complaint.is_none() => {
                self.not_before <= now || self.last_said.as_ref().is_none_or(news)
            }
            None => self.not_before <= now,
        };
        if !speak {
            return None;
        }
        self.last_call += 1;
        self.on_its_way = Some((self.last_call, request.clone()));
        self.last_said = Some(request.clone());
        self.not_before = now + GAP;
        Some(self.last_call)
    }

    /// What comes next is worth a call, whatever came of the last one.
    pub(super) fn hurry(&mut self, now: Time) {
        self.not_before = now;
    }

    /// There is nothing to say any more, nor to hear.
    pub(super) fn hang_up(&mut self) {
        self.on_its_way = None;
    }

    /// The request that an answer belongs to, unless it is of no interest any more.
    pub(super) fn answered(&mut self, call: u64) -> Option<Request> {
        self.on_its_way.take_if(|(expected, _)| *expected == call).map(|(_, request)| request)
    }

    /// Takes note of an answer that makes sense. Whether that is news after failures.
    pub(super) fn went_well(&mut self) -> bool {
        self.failures = 0;
        self.complaint.take().is_some()
    }

    /// Takes note of a failed call. Whether it is one to complain about.
    pub(super) fn failed(&mut self, why: &str, now: Time, chance: &mut impl Chance) -> bool {
        self.failures = self.failures.saturating_add(1);
        let wait = wait_before_attempt(self.failures, &RETRIES, chance).chosen;
        self.not_before = now + wait;
        self.complain(why)
    }

    /// Takes note of a denied call. Whether it is one to complain about.
    pub(super) fn denied(&mut self, why: &str, now: Time) -> bool {
        self.not_before = now + DENIED_WAIT;
        self.complain(why)
    }

    fn complain(&mut self, why: &str) -> bool {
        let news = self.complaint.as_deref() != Some(why);
        self.complaint = Some(why.to_owned());
        news
    }
}
