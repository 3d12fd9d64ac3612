//! What the proxy tells about itself.

use crate::proxy::Proxy;
use crate::route::Route;
use crate::upstream::Upstream;
use serde::Serialize;
use skep_policy::Reason;
use skep_policy::routes::choose::{self, Pick};
use skep_policy::routes::guard::Standing;
use skep_policy::routes::rollup::Minute;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A route as it is now, on this node.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RouteView {
    /// Its name.
    pub name: String,
    /// Whose requests.
    pub host: String,
    /// What their path begins with.
    pub path: String,
    /// How an upstream is chosen.
    pub policy: &'static str,
    /// The kind of its workers, if it has no upstreams of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Whether it is closed on purpose.
    pub maintenance: bool,
    /// Requests on their way.
    pub open: u64,
    /// Requests that were sent again, since the node started.
    pub retries: u64,
    /// The last seconds, oldest first; those without a request are left out.
    pub seconds: Vec<Second>,
    /// Where its requests go.
    pub upstreams: Vec<UpstreamView>,
}

/// A second of a route.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Second {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: i64,
    /// Requests that ended in it.
    pub requests: u64,
    /// Those of them that were answered with a 5xx.
    pub errors: u64,
    /// Those of them that were refused at the door.
    pub refused: u64,
    /// Half of them took no longer, in milliseconds.
    pub p50_ms: Option<f64>,
    /// All but one in a hundred took no longer.
    pub p99_ms: Option<f64>,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// An upstream as this node sees it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct UpstreamView {
    /// Host and port.
    pub address: String,
    /// Its share beside the others'.
    pub weight: u32,
    /// `ready`, `warming`, `trial`, `out` or `down`.
    pub standing: &'static str,
    /// How long it stays out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_for_ms: Option<u64>,
    /// Requests that it is busy with.
    pub active: u32,
    /// Requests that went well.
    pub answered: u64,
    /// Requests that did not.
    pub failed: u64,
    /// What the last check found wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwell: Option<String>,
}

/// A request that somebody wonders about.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The host it names.
    pub host: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Whether it comes over TLS.
    pub encrypted: bool,
}

/// What would become of it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Verdict {
    /// The route's name; nothing if it belongs to none.
    pub route: Option<String>,
    /// Why this route.
    #[schema(value_type = Object)]
    pub route_reason: Reason,
    /// What is answered instead of asking an upstream: `redirect`, `maintenance` or `busy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_here: Option<&'static str>,
    /// The upstream it would get now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Why that one.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_reason: Option<Reason>,
    /// The kind of worker it would get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// The path that the upstream would see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Proxy {
    /// All routes, in the order of their names.
    pub fn overview(&self) -> Vec<RouteView> {
        let live = self.inner.live.load();
        let mut views: Vec<_> = live.routes.iter().map(|route| self.view(route)).collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    /// The route of this name.
    pub fn route(&self, name: &str) -> Option<RouteView> {
        self.inner.live.load().named(name).map(|route| self.view(route))
    }

    /// What each route has done since it came, up to the end of the last second.
    pub fn totals(&self) -> Vec<(Arc<str>, Minute)> {
        let live = self.inner.live.load();
        let total = |route: &Arc<Route>| (route.name.clone(), route.tally.total());
        live.routes.iter().map(total).collect()
    }

    fn view(&self, route: &Route) -> RouteView {
        let now = self.inner.moment.now();
        let upstream = |one: &Upstream| {
            let standing = one.standing();
            let out_for = match standing {
                Standing::Out { until } => Some(until.since(now)),
                _ => None,
            };
            UpstreamView {
                address: one.address.to_string(),
                weight: one.weight,
                standing: standing.as_str(),
                out_for_ms: out_for.map(millis),
                active: one.active(),
                answered: one.answered.load(Ordering::Relaxed),
                failed: one.failed.load(Ordering::Relaxed),
                unwell: one.unwell(),
            }
        };
        RouteView {
            name: route.name.to_string(),
            host: route.spec.host.clone(),
            path: route.spec.path.clone(),
            policy: route.spec.policy.name(),
            workers: route.workers.as_deref().map(str::to_owned),
            maintenance: route.maintenance.is_some(),
            open: route.tally.open.load(Ordering::Relaxed),
            retries: route.tally.retries.load(Ordering::Relaxed),
            seconds: route.tally.seconds(),
            upstreams: route.upstreams.iter().map(|one| upstream(one)).collect(),
        }
    }

    /// What would become of a request now, and why. Nothing is counted.
    pub fn test(&self, question: &Question<'_>) -> Verdict {
        let live = self.inner.live.load();
        let found = live.table.explain(question.host, question.path);
        let route = found.chosen.map(|index| &live.routes[index]);
        let mut verdict = Verdict {
            route: route.map(|route| route.name.to_string()),
            route_reason: found.reason,
            answered_here: None,
            upstream: None,
            upstream_reason: None,
            workers: None,
            path: None,
        };
        let Some(route) = route else { return verdict };
        if route.redirects && !question.encrypted {
            verdict.answered_here = Some("redirect");
            return verdict;
        }
        if route.maintenance.is_some() {
            verdict.answered_here = Some("maintenance");
            return verdict;
        }
        let path = &question.path[route.cut.min(question.path.len())..];
        let slash = if path.starts_with('/') { "" } else { "/" };
        verdict.path = Some(format!("{slash}{path}"));
        verdict.workers = route.workers.as_deref().map(str::to_owned);
        if route.workers.is_some() {
            return verdict;
        }
        let candidates: Vec<_> = route.candidates(&[]).collect();
        let (now, turn) = (self.inner.moment.now(), route.turn.load(Ordering::Relaxed));
        let name = |index: usize| route.upstreams[index].address.to_string();
        let choice = choose::explain(&candidates, now, &route.choice, turn, name);
        match choice.chosen {
            Pick::One { index, .. } => verdict.upstream = Some(name(index)),
            Pick::Busy { .. } | Pick::None => verdict.answered_here = Some("busy"),
        }
        verdict.upstream_reason = Some(choice.reason);
        verdict
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
