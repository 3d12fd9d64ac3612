//! Endpoints, results and moves as the API shows them.

use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_polls::store::{Move, ResultRow};
use skep_polls::{Endpoint, Listed};

/// An endpoint, as it was written, with what is known about it.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct EndpointView {
    /// As it was written, with defaults filled in and secret headers hidden; without the scope
    /// `poll` the body and secret values of the query too.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub spec: serde_json::Value,
    /// What `skep explain` takes, to say why its node polls it.
    #[schema(example = "poll:shop")]
    pub explain: String,
    /// Grows with each change; send it back as `version` to change only what you have seen.
    pub version: i64,
    /// In milliseconds since 1970.
    pub created_at_ms: i64,
    /// In milliseconds since 1970.
    pub updated_at_ms: i64,
    /// The node that polls it.
    pub owner: Option<String>,
    /// The grant it polls under; results of an older one are refused.
    pub token: Option<String>,
    /// `ok`, `failing`, `paused`, or `new` before the first result.
    pub state: String,
    /// Failed polls in a row.
    pub failures: i64,
    /// Since when it has been ok or failing.
    pub since_ms: Option<i64>,
    /// The last result.
    pub last: Option<LastView>,
}

/// The last result of an endpoint, in short.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct LastView {
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// Whether all was well.
    pub ok: bool,
    /// What came of it, in a word.
    pub verdict: String,
    /// How long the answer took.
    pub latency_us: Option<i64>,
}

impl EndpointView {
    pub(super) fn of(listed: &Listed, may_change: bool) -> Self {
        let state = listed.state.as_ref();
        let last = state.and_then(|state| state.last.as_ref());
        let word = match last {
            _ if listed.endpoint.spec.paused => "paused",
            None => "new",
            Some(last) if last.ok => "ok",
            Some(_) => "failing",
        };
        let owner = listed.owner.as_ref().filter(|_| !listed.endpoint.spec.paused);
        EndpointView {
            owner: owner.map(|(name, _)| name.to_string()),
            token: owner.map(|(_, token)| token.to_string()),
            state: word.to_owned(),
            failures: state.map_or(0, |state| state.failures),
            since_ms: state.and_then(|state| state.changed_at_ms),
            last: last.map(|last| LastView {
                at_ms: last.at_ms,
                ok: last.ok,
                verdict: last.verdict.clone(),
                latency_us: last.latency_us,
            }),
            ..EndpointView::plain(&listed.endpoint, may_change)
        }
    }

    pub(super) fn plain(endpoint: &Endpoint, may_change: bool) -> Self {
        let spec = match may_change {
            true => endpoint.spec.redacted(),
            false => endpoint.spec.for_readers(),
        };
        EndpointView {
            spec: serde_json::json!(spec),
            explain: Kind::Poll.id(&endpoint.spec.id),
            version: endpoint.version,
            created_at_ms: endpoint.created_at_ms,
            updated_at_ms: endpoint.updated_at_ms,
            owner: None,
            token: None,
            state: if endpoint.spec.paused { "paused" } else { "new" }.to_owned(),
            failures: 0,
            since_ms: None,
            last: None,
        }
    }
}

/// One poll and what came of it.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResultView {
    /// When it began, in milliseconds since 1970.
    pub at_ms: i64,
    /// Which place in the endpoint's schedule it had.
    pub slot: i64,
    /// Whether all was well.
    pub ok: bool,
    /// What came of it, in a word.
    pub verdict: String,
    /// The status of the answer.
    pub status: Option<u16>,
    /// How long the answer took.
    pub latency_us: Option<i64>,
    /// How long after its time it began.
    pub late_us: i64,
    /// What else there is to say.
    pub detail: Option<String>,
    /// The node that polled.
    pub node: String,
    /// The grant it polled under.
    pub token: String,
}

impl ResultView {
    pub(super) fn of(row: ResultRow) -> Self {
        ResultView {
            at_ms: row.at_ms,
            slot: row.slot,
            ok: row.ok,
            verdict: row.verdict,
            status: row.status,
            latency_us: row.latency_us,
            late_us: row.late_us,
            detail: row.detail,
            node: row.node,
            token: format!("{}.{}", row.epoch, row.counter),
        }
    }
}

/// A change of owner.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct MoveView {
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// The owner from then on.
    pub node: String,
    /// The owner before.
    pub from: Option<String>,
    /// The grant.
    pub token: String,
    /// What `skep explain` takes.
    #[schema(example = "poll:shop@3.7")]
    pub explain: String,
    /// Why.
    #[schema(value_type = Object)]
    pub reason: serde_json::Value,
    /// What would give it another owner.
    pub would_change: String,
}

impl MoveView {
    pub(super) fn of(endpoint: &str, one: Move) -> Self {
        let token = format!("{}.{}", one.epoch, one.counter);
        let reason: serde_json::Value =
            serde_json::from_str(&one.reason).unwrap_or(one.reason.into());
        MoveView {
            at_ms: one.at_ms,
            node: one.node,
            from: one.from,
            explain: Kind::Poll.id(format!("{endpoint}@{token}")),
            token,
            would_change: would::poll(reason["rule"].as_str().unwrap_or_default()).to_owned(),
            reason,
        }
    }
}
