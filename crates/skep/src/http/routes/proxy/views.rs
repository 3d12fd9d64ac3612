//! Routes, their counts and their events as the API shows them.

use crate::http::problem::Flaw;
use crate::routes::{KnownRoute, NodeRoutes, Source};
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_policy::routes::rollup::{Histogram, Minute};
use skep_routes::store::{Event, MinuteRow};
use skep_routes::{RouteView, spec};
use std::collections::BTreeMap;

/// A route: where it comes from, and how it is doing on this node.
#[derive(Serialize, utoipa::ToSchema)]
pub struct RouteAnswer {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// What to send as `version` to change only what you have seen; nothing for one of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Why it is not used, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
    /// As it was written, with defaults filled in; left out where many are listed. Headers that
    /// may be secret are hidden from those who may not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec: Option<serde_json::Value>,
    /// How it is doing; nothing if it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<RouteView>,
}

impl RouteAnswer {
    pub(super) fn of(route: &KnownRoute, routes: &NodeRoutes) -> Self {
        let name = route.spec.name.clone();
        let version = match &route.source {
            Source::Api { version, .. } => Some(*version),
            Source::File { .. } => None,
        };
        let now = match route.unused {
            None => routes.proxy.route(&name),
            Some(_) => None,
        };
        let (source, unused) = (route.source.clone(), route.unused.clone());
        RouteAnswer { name, source, version, unused, spec: None, now }
    }

    pub(super) fn with_spec(mut self, route: &KnownRoute, may_see: bool) -> Self {
        let spec = match may_see {
            true => serde_json::to_value(&*route.spec),
            false => serde_json::to_value(route.spec.redacted()),
        };
        self.spec = spec.ok();
        self
    }
}

/// What went over one route or all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Counts {
    /// Requests that are over.
    pub requests: u64,
    /// Answers by the class of their status: `1xx` to `5xx`.
    pub answers: BTreeMap<String, u64>,
    /// Requests that no upstream was asked for.
    pub refused: u64,
    /// Bytes of requests' bodies.
    pub bytes_in: u64,
    /// Bytes of answers' bodies.
    pub bytes_out: u64,
    /// Half of the answers took no longer, in milliseconds; nothing without any.
    pub p50_ms: Option<f64>,
    /// 95 of 100 took no longer.
    pub p95_ms: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_ms: Option<f64>,
}

impl Counts {
    pub(super) fn of(minute: &Minute) -> Self {
        let quantile = |q| minute.quantile(q).map(|span| span.as_secs_f64() * 1e3);
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].map(str::to_owned);
        Counts {
            requests: minute.requests(),
            answers: classes.into_iter().zip(minute.answers).collect(),
            refused: minute.refused,
            bytes_in: minute.bytes_in,
            bytes_out: minute.bytes_out,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
        }
    }
}

/// A minute of one route or all of them.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MinuteView {
    /// When it began, in milliseconds since 1970.
    pub at_ms: i64,
    #[serde(flatten)]
    pub counts: Counts,
}

/// What one node saw, as it can be added up. A histogram that cannot be read costs its durations
/// and not the counts.
pub(super) fn read_minute(row: &MinuteRow) -> Minute {
    Minute {
        answers: row.answers,
        refused: row.refused,
        bytes_in: row.bytes_in,
        bytes_out: row.bytes_out,
        latency: Histogram::from_bytes(&row.histogram).unwrap_or_default(),
    }
}

/// Something that happened.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct RouteEventView {
    /// Later ones have higher ids.
    pub id: i64,
    /// What `skep explain` takes.
    #[schema(example = "event:17")]
    pub explain: String,
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// Who saw it.
    pub node: String,
    /// The route; empty if it concerns none.
    pub route: String,
    /// `error`, `refused`, `rate-limited`, `breaker`, `health`, `certificate` or `reload`.
    pub kind: String,
    /// The upstream; empty if it is about the route as a whole.
    pub upstream: String,
    /// The status of an answer, if there was one.
    pub status: Option<u16>,
    /// What happened, and why.
    pub detail: String,
    /// What would change it; empty if nothing has to.
    pub would_change: String,
}

impl From<Event> for RouteEventView {
    fn from(event: Event) -> Self {
        let Event { id, at_ms, node, route, kind, upstream, status, detail } = event;
        RouteEventView {
            id,
            explain: Kind::Event.id(id),
            at_ms,
            node,
            route,
            would_change: would::event(&kind).to_owned(),
            kind,
            upstream,
            status,
            detail,
        }
    }
}

/// A flaw of a route as the API tells it.
pub(super) fn flaw(flaw: &spec::Flaw) -> Flaw {
    Flaw { line: None, field: flaw.field.clone(), detail: flaw.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::routes::rollup::{Ending, Exchange};
    use std::time::Duration;

    #[test]
    fn minutes_of_several_nodes_add_up_and_a_damaged_histogram_costs_only_durations() {
        let mut seen = Minute::default();
        for ms in 1..=100 {
            let ending = Ending::Answered(200, Duration::from_millis(ms));
            seen.note(&Exchange { ending, bytes_in: 1, bytes_out: 2 });
        }
        let row = |histogram| MinuteRow {
            answers: seen.answers,
            bytes_in: seen.bytes_in,
            bytes_out: seen.bytes_out,
            histogram,
            ..MinuteRow::default()
        };
        let mut all = read_minute(&row(seen.latency.to_bytes()));
        all.merge(&read_minute(&row(vec![99])));
        let counts = Counts::of(&all);
        assert_eq!((counts.requests, counts.bytes_out, counts.answers["2xx"]), (200, 400, 200));
        let p50 = counts.p50_ms.expect("there are durations");
        assert!((48.0..=52.0).contains(&p50), "{p50}");
    }
}
