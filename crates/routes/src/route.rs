//! A route, ready to be used.

use crate::rate::Rate;
use crate::refusal::{Refusal, codes};
use crate::rules::Rules;
use crate::spec::RouteSpec;
use crate::tally::Tally;
use crate::upstream::Upstream;
use skep_policy::Time;
use skep_policy::routes::choose::{self, Candidate, Pick};
use skep_policy::routes::retry::{
    Attempt, Budget, Limits, Options as RetryOptions, Verdict, may_retry,
};
use skep_policy::routes::table::Table;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All routes as they are now.
pub(crate) struct Live {
    pub table: Table,
    pub routes: Vec<Arc<Route>>,
}

impl Live {
    /// The route of a request.
    pub fn find(&self, host: &str, path: &str) -> Option<&Arc<Route>> {
        self.table.find(host, path).map(|index| &self.routes[index])
    }
}

/// How long each phase of a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub connect: Duration,
    /// From the end of the request to the head of its answer.
    pub head: Duration,
    /// Without anything of the request's body moving.
    pub send: Duration,
    /// Without anything of the answer moving.
    pub idle: Duration,
    /// Without anything moving in a tunnel.
    pub tunnel: Duration,
    /// All of it; zero is any time.
    pub total: Duration,
}

/// What is answered while the route is closed.
pub(crate) struct Maintenance {
    pub status: u16,
    pub content_type: Box<str>,
    pub body: Box<str>,
    pub retry_after: Option<Duration>,
}

/// What `Host` says to an upstream.
pub(crate) enum HostField {
    Keep,
    Upstream,
    Fixed(Box<str>),
}

/// A route.
pub(crate) struct Route {
    pub name: Arc<str>,
    pub spec: Arc<RouteSpec>,
    /// What of the path is not passed on.
    pub cut: usize,
    pub host: HostField,
    pub timeouts: Timeouts,
    pub tries: u32,
    pub retry: RetryOptions,
    pub limits: Limits,
    pub budget: Mutex<Budget>,
    /// Requests that the budget has not heard of.
    pub undeposited: AtomicU64,
    pub body_max: u64,
    pub request_rules: Rules,
    pub response_rules: Rules,
    pub maintenance: Option<Maintenance>,
    pub redirects: bool,
    pub rate: Option<Rate>,
    pub logs: bool,
    pub upstreams: Vec<Arc<Upstream>>,
    /// The kind of its workers, if it has no upstreams of its own.
    pub workers: Option<Arc<str>>,
    pub choice: choose::Rules,
    pub turn: AtomicU64,
    pub tally: Arc<Tally>,
}

/// Requests that earn a retry, at most as many as are looked at.
const DEPOSITS_FOR_ONE: u64 = 100;

thread_local! {
    static CANDIDATES: RefCell<Vec<Candidate>> = const { RefCell::new(Vec::new()) };
}

impl Route {
    /// What `Host` says to the upstream with this address.
    pub fn host_for<'a>(&'a self, client: &'a str, address: &'a str) -> &'a str {
        match &self.host {
            HostField::Keep if client.is_empty() => address,
            HostField::Keep => client,
            HostField::Upstream => address,
            HostField::Fixed(host) => host,
        }
    }

    /// Who gets the next request.
    pub fn pick(&self, now: Time, tried: &[u64]) -> Pick {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        CANDIDATES.with_borrow_mut(|candidates| {
            candidates.clear();
            candidates.extend(self.candidates(tried));
            choose::pick(candidates, now, &self.choice, turn)
        })
    }

    /// The upstreams as the choice sees them.
    pub fn candidates(&self, tried: &[u64]) -> impl Iterator<Item = Candidate> {
        self.upstreams.iter().map(|one| one.candidate(tried.contains(&one.id)))
    }

    /// Whether a request that failed is sent again.
    pub fn may_retry(&self, attempt: &Attempt, now: Time) -> Verdict {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        // More than that would not fit into it.
        let most = u64::from(self.limits.kept_max) * DEPOSITS_FOR_ONE;
        for _ in 0..self.undeposited.swap(0, Ordering::Relaxed).min(most) {
            budget.deposit(now, &self.limits);
        }
        may_retry(attempt, now, &self.retry, &self.limits, &mut budget).chosen
    }

    /// Whether somebody who has not been asked yet would be next: another answer of the same
    /// upstream would hardly be a better one.
    pub fn has_others(&self, upstream: u64, failed: &[u64]) -> bool {
        let candidate =
            |one: &Arc<Upstream>| one.candidate(one.id == upstream || failed.contains(&one.id));
        let candidates: Vec<_> = self.upstreams.iter().map(candidate).collect();
        self.workers.is_some() || choose::has_untried(&candidates, &self.choice)
    }

    /// A page of its own for a refusal.
    pub fn page(&self, refusal: &Refusal) -> Option<(&str, &str)> {
        let page = self.maintenance.as_ref()?;
        (refusal.code == codes::E_MAINTENANCE.name && !page.body.is_empty())
            .then_some((&page.content_type, &page.body))
    }
}
