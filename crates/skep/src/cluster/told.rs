//! What a node tells about its cluster, also while it has none.

use crate::http::known_by;
use crate::node::{Shared, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use skep_cluster::Cluster;
use skep_cluster::forward::{Outgoing, RequestId, Sending};
use skep_cluster::views::{
    Affinity, Asked, Balance, Breaker, DrainRefused, Draining, ExplainAsk, Explained, Flow,
    Forwarding, Heartbeats, MoveTotals, Moves, Purpose, Server, Status, Wakes, Writes,
};
use skep_policy::cluster::{Sample, score};
use skep_policy::explain::{Kind, would};
use std::time::Duration;

/// How long other nodes may take to say what they forwarded.
const FLOWS_LIMIT: Duration = Duration::from_millis(300);

/// What a node knows about its cluster, for those who ask.
pub struct NodeCluster<'node> {
    shared: &'node Shared,
}

impl<'node> NodeCluster<'node> {
    pub fn of(shared: &'node Shared) -> Self {
        NodeCluster { shared }
    }

    fn cluster(&self) -> Option<&'node Cluster> {
        self.shared.cluster.get()
    }

    fn here(&self) -> String {
        self.shared.name.to_string()
    }

    fn is_draining(&self) -> bool {
        *self.shared.state.borrow() == State::Draining
    }

    /// How evenly the nodes are loaded, and what each does.
    pub fn balance(&self) -> Balance {
        if let Some(cluster) = self.cluster() {
            return cluster.balance();
        }
        Balance {
            balanced: true,
            imbalance_score: 0.0,
            here: self.here(),
            forwarding: Forwarding::Alone,
            servers: vec![self.server()],
            flows: Vec::new(),
            moves: MoveTotals::default(),
        }
    }

    /// The same, with what the others forwarded too, as far as they answer soon. What the caller is
    /// known by is in `headers`.
    pub async fn balance_of_all(&self, headers: &HeaderMap) -> Balance {
        let mut balance = self.balance();
        let Some(cluster) = self.cluster() else { return balance };
        let others = balance.servers.iter().filter(|one| !one.here && one.healthy);
        let asked = others.map(|one| flows_of(cluster, &one.server_id, headers));
        let heard = futures_util::future::join_all(asked).await;
        balance.flows.extend(heard.into_iter().flatten());
        balance.flows.sort_by(|one, other| (&one.from, &one.to).cmp(&(&other.from, &other.to)));
        balance
    }

    fn server(&self) -> Server {
        let shared = self.shared;
        let polls = shared.queues.get().map_or(0, |queues| queues.parked() as u64);
        let open = u64::try_from(shared.traffic.in_flight()).unwrap_or(0);
        // A pop that waits costs next to nothing and is not work in progress.
        let in_flight = open.saturating_sub(polls);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = shared.latest_point.borrow().cpu_percent / processors as f64;
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let score = score(&Sample { outstanding: count(in_flight), polls: count(polls), cpu });
        let scheme = if shared.certificate.is_some() { "https" } else { "http" };
        let draining = self.is_draining();
        let rule = would::node_rule(true, draining, Breaker::Closed.name());
        Server {
            server_id: self.here(),
            explain: Kind::Node.id(self.here()),
            would_change: would::node(rule).to_owned(),
            url: format!("{scheme}://{}", shared.address),
            load_score: score,
            healthy: !draining,
            alive: true,
            here: true,
            draining,
            zone: shared
                .settings
                .cluster
                .zone
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            in_flight,
            polls,
            cpu,
            raw_score: score,
            breaker: Breaker::Closed,
            breaker_reopens_ms: None,
            affinity_entries: 0,
            forwarded: 0,
            fell_back: 0,
            hop_p50_us: None,
            hop_p99_us: None,
            last_seen_ms: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// How this node takes part.
    pub fn status(&self) -> Status {
        if let Some(cluster) = self.cluster() {
            return cluster.status();
        }
        Status {
            here: self.here(),
            forwarding: Forwarding::Alone,
            writes: Writes::Here,
            signed: self.shared.settings.cluster.secret.is_some(),
            udp: None,
            peers: Vec::new(),
            heartbeats: Heartbeats::default(),
            wakes: Wakes::default(),
            presence: Vec::new(),
            presence_total: 0,
            draining: self.is_draining(),
        }
    }

    /// Where a request would go, and why.
    pub fn explain(&self, ask: &ExplainAsk) -> Explained {
        if let Some(cluster) = self.cluster() {
            return cluster.explain(ask);
        }
        let key = match &ask.what {
            Asked::Key(key) => key.clone(),
            Asked::Queue { queue, partition: None, group } => format!("{queue}:{group}"),
            Asked::Queue { queue, partition: Some(partition), group } => {
                format!("{queue}:{partition}:{group}")
            }
            Asked::Task { namespace, task, group } => format!("{namespace}:{task}:{group}"),
        };
        Explained {
            explain: (ask.purpose == Purpose::Pop).then(|| Kind::Key.id(&key)),
            would_change: would::key("alone").to_owned(),
            key,
            purpose: ask.purpose,
            place: self.here(),
            here: true,
            reason: serde_json::json!({ "rule": "alone" }),
            text: "this node is the only one".to_owned(),
        }
    }

    /// Which keys belong to which nodes, so many at most.
    pub fn affinity(&self, limit: usize) -> Affinity {
        let alone = || Affinity { entries: Vec::new(), total: 0 };
        self.cluster().map_or_else(alone, |cluster| cluster.affinity(limit))
    }

    /// Keys that changed their node after the one with this number.
    pub fn moves(&self, after: u64) -> Moves {
        let alone = || Moves { moves: Vec::new(), next: 0 };
        self.cluster().map_or_else(alone, |cluster| cluster.moves(after))
    }

    /// Tells a node to finish what it has and stop. What the caller is known by is in `headers`.
    pub async fn drain(&self, node: &str, headers: &HeaderMap) -> Result<Draining, DrainRefused> {
        let here = self.here();
        let alone = || vec![(here.clone(), String::new())];
        let members = self.cluster().map_or_else(alone, Cluster::members);
        if !members.iter().any(|(name, _)| name == node) {
            let known = members.into_iter().map(|(name, _)| name).collect();
            return Err(DrainRefused::Unknown { node: node.to_owned(), known });
        }
        let Some(cluster) = self.cluster().filter(|cluster| cluster.has_others()) else {
            return Err(DrainRefused::Last { node: node.to_owned() });
        };
        if node == here {
            self.shared.cluster.drained.cancel();
            return Ok(Draining::of(node));
        }
        let away = |why: String| DrainRefused::Away { node: node.to_owned(), why };
        let answer = cluster.ask(node, drain_request(node, headers)).await.map_err(away)?;
        let (status, body) = (answer.status(), answer.into_body().collect().await);
        if status == StatusCode::ACCEPTED {
            return Ok(Draining::of(node));
        }
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = body["detail"].as_str().unwrap_or("it gave no reason");
        Err(away(format!("it answered {}: {detail}", status.as_u16())))
    }
}

/// What a node forwarded to others; nothing if it does not answer soon.
async fn flows_of(cluster: &Cluster, node: &str, from: &HeaderMap) -> Vec<Flow> {
    let request = Outgoing {
        id: RequestId::mint(),
        client: None,
        method: Method::GET,
        path_and_query: PathAndQuery::from_static("/api/v1/cluster/balance?own=true"),
        headers: known_by(from),
        body: Sending::empty(),
    };
    let asking = async {
        let answer = cluster.ask(node, request).await.ok()?;
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        serde_json::from_slice::<Balance>(&body).ok()
    };
    let told = tokio::time::timeout(FLOWS_LIMIT, asking).await;
    told.ok().flatten().map(|told| told.flows).unwrap_or_default()
}

/// The same order for the node itself, from the same caller.
fn drain_request(node: &str, from: &HeaderMap) -> Outgoing {
    let mut headers = known_by(from);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let order = serde_json::json!({ "node": node });
    Outgoing {
        id: RequestId::mint(),
        client: None,
        method: Method::POST,
        path_and_query: PathAndQuery::from_static("/api/v1/cluster/drain"),
        headers,
        body: Sending::whole(order.to_string().into()),
    }
}
