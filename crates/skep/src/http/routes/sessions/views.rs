//! Workers and sessions as the API shows them.

use crate::access::timestamp;
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use skep_policy::sessions::{KindRow, SessionRow, Standing, WorkerRow};
use skep_sessions::{Load, session_id};
use std::collections::BTreeMap;

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerView {
    /// As in `w7`.
    pub worker: String,
    pub name: String,
    /// What `skep explain` takes, to say why it gets sessions or none.
    #[schema(example = "worker:browser-1")]
    pub explain: String,
    /// What would change that.
    pub would_change: String,
    pub kind: String,
    /// Host and port; the path may be a secret.
    pub address: String,
    /// `ready`, `due`, `full`, `held`, `draining`, `restarting`, `drained`, `suspect`, `down`,
    /// `lost` or `removed`.
    pub standing: String,
    /// Sessions now, and how many it may have.
    pub active: u32,
    pub slots: u32,
    /// Sessions on a program that it has succeeded already.
    pub leaving: u32,
    /// Sessions in its life, and from which number on it is due.
    pub lifetime: u32,
    pub due_at: Option<u32>,
    /// `memory` or `age`, if it asked to be recycled.
    pub due_by: Option<String>,
    pub labels: Vec<String>,
    pub version: Option<String>,
    /// It may restart.
    pub permit: bool,
    /// An operator keeps sessions away.
    pub drained: bool,
    /// How often it did not answer in a row.
    pub failures: u32,
    pub incarnation: u64,
    /// What it told this node about its programs, if it speaks to this one.
    pub rss_bytes: Option<u64>,
    pub cpu_percent: Option<f64>,
    /// When this program registered, and when it was last heard of.
    pub since: String,
    pub heard: String,
}

pub fn worker(row: &WorkerRow, load: Load) -> WorkerView {
    let address = row.url.split("://").nth(1).unwrap_or(&row.url);
    let address = address.split(['/', '?']).next().unwrap_or(address);
    WorkerView {
        worker: format!("w{}", row.number),
        name: row.name.to_string(),
        explain: Kind::Worker.id(&row.name),
        would_change: would::worker(row.standing.name()).to_owned(),
        kind: row.kind.clone(),
        address: address.to_owned(),
        standing: row.standing.name().to_owned(),
        active: row.active,
        slots: row.slots,
        leaving: row.leaving,
        lifetime: row.lifetime,
        due_at: row.due_at,
        due_by: row.due_by.map(|by| format!("{by:?}").to_lowercase()),
        labels: row.shape.labels.iter().cloned().collect(),
        version: row.shape.version.map(|version| version.to_string()),
        permit: row.permit,
        drained: row.drained,
        failures: row.failures,
        incarnation: row.incarnation,
        rss_bytes: load.rss_bytes,
        cpu_percent: load.cpu_percent,
        since: stamp(row.since_ms),
        heard: stamp(row.heard_ms),
    }
}

fn stamp(ms: u64) -> String {
    timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkersAnswer {
    /// By number.
    pub workers: Vec<WorkerView>,
    /// What to send as `from` for the next page; nothing if this is the last.
    pub next: Option<u64>,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionView {
    pub id: String,
    /// What `skep explain` takes, to say why it has its worker.
    #[schema(example = "session:s-1f2e3d-42")]
    pub explain: String,
    pub kind: String,
    /// `open`, `waiting` or `ending`.
    pub state: String,
    /// The worker's name, once it has one.
    pub worker: Option<String>,
    /// The node whose gateway carries it.
    pub node: String,
    /// The id of the API key, if one was used.
    pub key: Option<String>,
    pub since: String,
    pub age_ms: i64,
    /// Why it ends, if it was told to.
    pub ending: Option<String>,
}

pub fn session(row: &SessionRow, now_ms: i64) -> SessionView {
    let state = match (&row.ending, &row.worker) {
        (Some(_), _) => "ending",
        (None, Some(_)) => "open",
        (None, None) => "waiting",
    };
    let id = session_id(row.gateway, row.ticket);
    SessionView {
        explain: Kind::Session.id(&id),
        id,
        kind: row.kind.clone(),
        state: state.to_owned(),
        worker: row.worker.as_ref().map(|(_, name)| name.to_string()),
        node: row.node.clone(),
        key: Some(row.key.to_string()).filter(|key| !key.is_empty()),
        since: stamp(row.since_ms),
        age_ms: now_ms.saturating_sub(i64::try_from(row.since_ms).unwrap_or(i64::MAX)).max(0),
        ending: row.ending.map(|ending| ending.name().to_owned()),
    }
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionsAnswer {
    pub sessions: Vec<SessionView>,
    /// What to send as `after` for the next page; nothing if this is the last.
    pub next: Option<String>,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionsOverview {
    /// Where clients connect to this node for a session.
    pub gateway: Option<String>,
    /// Sessions of this node, waiting ones too.
    pub open_here: usize,
    /// Every kind: rules, how many workers stand where, slots, the line, the budget.
    #[schema(value_type = Vec<Object>)]
    pub kinds: Vec<serde_json::Value>,
    /// The lives of workers over the last ten minutes.
    #[schema(value_type = Object)]
    pub series: serde_json::Value,
    /// This node's latest choices, newest first.
    #[schema(value_type = Vec<Object>)]
    pub choices: Vec<serde_json::Value>,
}

/// A kind as the dashboard and the live stream show it.
pub fn kind(row: &KindRow) -> serde_json::Value {
    let workers: BTreeMap<&str, u32> = Standing::ALL
        .into_iter()
        .map(|standing| (standing.name(), row.standings.of(standing)))
        .collect();
    serde_json::json!({
        "kind": row.kind, "explain": Kind::Wish.id(&row.kind),
        "policy": row.rules.policy.name(), "workers": workers,
        "live": row.standings.live(), "slots": row.slots, "active": row.active, "free": row.free,
        "waiting": row.waiting, "waiting_max": row.rules.waiting_max,
        "lifetime_max": row.rules.lifetime_max, "out": row.out, "out_max": row.out_max,
        "budget": row.rules.budget.to_string(), "held": row.standings.of(Standing::Held),
        "held_idle": row.held_idle, "started": row.started, "recycled": row.recycled,
        "out_ms": row.out_ms,
    })
}

/// How much room there is.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct CapacityAnswer {
    pub kinds: Vec<KindCapacity>,
}

/// Room for one kind.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct KindCapacity {
    pub kind: String,
    /// Slots a session could have now.
    pub free: u64,
    /// Slots of live workers, and how many are taken.
    pub slots: u64,
    pub active: u64,
    pub waiting: u32,
    pub workers: u32,
    /// Free slots by label; a worker with several labels counts for each.
    pub free_by_label: BTreeMap<String, u64>,
    /// Workers of this kind that would serve everybody who is here or waits with a fifth to spare,
    /// on top of those that may be restarting.
    pub workers_wanted: u32,
}

pub fn capacity(kinds: &[KindRow], workers: &[WorkerRow]) -> CapacityAnswer {
    let of_kind = |row: &KindRow| {
        let mut free_by_label: BTreeMap<String, u64> = BTreeMap::new();
        for worker in workers.iter().filter(|worker| worker.kind == row.kind) {
            let open = worker.standing.is_open();
            let free = if open { worker.slots.saturating_sub(worker.active) } else { 0 };
            for label in &worker.shape.labels {
                *free_by_label.entry(label.clone()).or_default() += u64::from(free);
            }
        }
        KindCapacity {
            kind: row.kind.clone(),
            free: row.free,
            slots: row.slots,
            active: row.active,
            waiting: row.waiting,
            workers: row.standings.live(),
            free_by_label,
            workers_wanted: workers_wanted(row),
        }
    };
    CapacityAnswer { kinds: kinds.iter().map(of_kind).collect() }
}

/// A fifth to spare, because sessions do not come evenly, and the budget, because so many may be
/// away.
fn workers_wanted(row: &KindRow) -> u32 {
    let live = u64::from(row.standings.live());
    let slots_each = match live {
        0 => u64::from(row.rules.slots),
        live => (row.slots / live).max(1),
    };
    let demand = row.active + u64::from(row.waiting);
    let needed = (demand * 6).div_ceil(5 * slots_each);
    u32::try_from(needed).unwrap_or(u32::MAX).saturating_add(row.out_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::sessions::{Rules, Standings};

    #[test]
    fn the_hint_has_a_fifth_to_spare_and_the_budget_on_top() {
        let mut standings = Standings::default();
        (0..10).for_each(|_| standings.add(Standing::Ready));
        let row = KindRow {
            kind: "chromium".to_owned(),
            rules: Rules::default(),
            standings,
            slots: 50,
            active: 25,
            free: 25,
            waiting: 0,
            out: 0,
            out_max: 1,
            held_idle: 0,
            started: 0,
            recycled: 0,
            out_ms: 0,
        };
        assert_eq!(workers_wanted(&row), 7);
        assert_eq!(workers_wanted(&KindRow { waiting: 100, ..row.clone() }), 31);
        assert_eq!(workers_wanted(&KindRow { active: 0, ..row }), 1);
    }
}
