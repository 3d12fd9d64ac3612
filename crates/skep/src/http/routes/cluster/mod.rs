//! The nodes as one: how they are loaded, where requests go and why, and draining.

use super::asked::note;
use crate::cluster::NodeCluster;
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::{Shared, State as NodeState};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use skep_cluster::views::{
    Affinity, Asked, Balance, DrainRefused, Draining, ExplainAsk, Explained, Moves, Purpose, Status,
};
use skep_queues::store::QUEUE_MODE;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Entries of the table that one answer holds at most.
const ENTRIES_MAX: usize = 1_000;
/// A key, or a part of one, is never longer.
const KEY_BYTES_MAX: usize = 2_048;
/// When a node that did not answer may be asked again.
const AWAY_RETRY: Duration = Duration::from_secs(1);

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(balance))
        .routes(routes!(status))
        .routes(routes!(explain))
        .routes(routes!(affinity))
        .routes(routes!(moves))
        .routes(routes!(drain))
}

fn cluster(shared: &Shared) -> Result<NodeCluster<'_>, Problem> {
    match &*shared.state.borrow() {
        NodeState::Starting(what) => {
            let detail = format!("the node is still starting: {what}");
            Err(Problem::new(&problem::E_STARTING, detail).retry_after(AWAY_RETRY))
        }
        NodeState::Ready | NodeState::Draining => Ok(NodeCluster::of(shared)),
    }
}

impl From<DrainRefused> for Problem {
    fn from(refused: DrainRefused) -> Self {
        match refused {
            DrainRefused::Unknown { node, known } => {
                let known = known.join(", ");
                let detail = format!("node: there is no node {node:?}; there are: {known}");
                Problem::new(&problem::E_NODE_UNKNOWN, detail).at("node")
            }
            DrainRefused::Last { node } => {
                let detail = format!(
                    "no other node could take over from {node:?}; start another one first, or \
                     stop this one with SIGTERM"
                );
                Problem::new(&problem::E_NODE_LAST, detail).at("node")
            }
            DrainRefused::Away { node, why } => {
                let detail = format!("{node:?} was not told to drain: {why}");
                Problem::new(&problem::E_NODE_AWAY, detail).retry_after(AWAY_RETRY)
            }
        }
    }
}

/// How evenly the nodes are loaded, and what each does
#[utoipa::path(
    get, path = "/api/v1/cluster/balance", tag = "cluster",
    extensions(("x-scope" = json!("read"))), params(How),
    responses((status = 200, description = "Every node as this one sees it", body = Balance),
              (status = 400, description = "A parameter is wrong", body = ProblemBody))
)]
async fn balance(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Parameters(how): Parameters<How>,
) -> Result<Json<Balance>, Problem> {
    let cluster = cluster(&shared)?;
    Ok(Json(match how.own {
        Some(true) => cluster.balance(),
        _ => cluster.balance_of_all(&headers).await,
    }))
}

/// How the balance is asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct How {
    /// Only what this node forwarded itself; the others are not asked.
    own: Option<bool>,
}

/// How this node takes part: its peers, heartbeats and wake-ups
#[utoipa::path(
    get, path = "/api/v1/cluster/status", tag = "cluster",
    extensions(("x-scope" = json!("read"))),
    responses((status = 200, description = "Whom it hears, and what it refused", body = Status))
)]
async fn status(State(shared): State<Arc<Shared>>) -> Result<Json<Status>, Problem> {
    Ok(Json(cluster(&shared)?.status()))
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wished {
    /// A key, as in `orders:mail`; or what it is made of, below.
    key: Option<String>,
    /// The queue that would be popped.
    queue: Option<String>,
    /// One partition of the queue.
    partition: Option<String>,
    /// The namespace that would be popped, and the task.
    namespace: Option<String>,
    task: Option<String>,
    /// The consumer group; that of those who name none if left out.
    group: Option<String>,
    /// What the request would be for: `pop`, if left out, or `push`.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    purpose: Option<String>,
}

/// Where a request would go, and why
#[utoipa::path(
    get, path = "/api/v1/cluster/explain", tag = "cluster",
    extensions(("x-scope" = json!("read"))), params(Wished),
    responses((status = 200, description = "The node, and the reason with its numbers; nothing is \
               sent or changed", body = Explained),
              (status = 400, description = "A parameter is wrong", body = ProblemBody))
)]
async fn explain(
    State(shared): State<Arc<Shared>>,
    Parameters(wished): Parameters<Wished>,
) -> Result<Json<Explained>, Problem> {
    let ask = wished.ask()?;
    Ok(Json(cluster(&shared)?.explain(&ask)))
}

impl Wished {
    fn ask(self) -> Result<ExplainAsk, Problem> {
        let purpose = match self.purpose.as_deref() {
            None | Some("" | "pop") => Purpose::Pop,
            Some("push") => Purpose::Push,
            Some(other) => return Err(wrong("for", other, "pop or push")),
        };
        let what = Wished { purpose: None, ..self }.what()?;
        Ok(ExplainAsk { what, purpose })
    }

    fn what(self) -> Result<Asked, Problem> {
        let Wished { key, queue, partition, namespace, task, group, .. } = self;
        for (field, text) in [
            ("key", &key),
            ("queue", &queue),
            ("partition", &partition),
            ("namespace", &namespace),
            ("task", &task),
            ("group", &group),
        ] {
            if let Some(text) = text {
                check_length(field, text)?;
            }
        }
        let group_or_default = |group: Option<String>| group.unwrap_or(QUEUE_MODE.to_owned());
        match (key, queue, partition, namespace, task, group) {
            (Some(key), None, None, None, None, None) => Ok(Asked::Key(key)),
            (None, Some(queue), partition, None, None, group) => {
                Ok(Asked::Queue { queue, partition, group: group_or_default(group) })
            }
            (None, None, None, Some(namespace), Some(task), group) => {
                Ok(Asked::Task { namespace, task, group: group_or_default(group) })
            }
            _ => {
                let detail = "name one thing: `key`; or `queue`, with `partition` and `group` if \
                              you like; or `namespace` and `task`, with `group` if you like";
                Err(Problem::new(&problem::E_QUERY_INVALID, detail).at("key"))
            }
        }
    }
}

fn check_length(field: &str, text: &str) -> Result<(), Problem> {
    match text.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        0 => Err(wrong(field, text, "a name, or be left out")),
        _ => {
            let detail = format!("{field} must not be longer than {KEY_BYTES_MAX} bytes");
            Err(Problem::new(&problem::E_QUERY_INVALID, detail).at(field))
        }
    }
}

fn wrong(field: &str, text: &str, right: &str) -> Problem {
    let shown: String = text.chars().take(60).collect();
    let detail = format!("{field} cannot be {shown:?}, it must be {right}");
    Problem::new(&problem::E_QUERY_INVALID, detail).at(field)
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Most {
    /// So many at most; 100 if left out, 1000 at most.
    limit: Option<usize>,
}

/// Which keys belong to which nodes
#[utoipa::path(
    get, path = "/api/v1/cluster/affinity", tag = "cluster",
    extensions(("x-scope" = json!("read"))), params(Most),
    responses((status = 200, description = "This node's table, the last used first",
               body = Affinity),
              (status = 400, description = "The limit is wrong", body = ProblemBody))
)]
async fn affinity(
    State(shared): State<Arc<Shared>>,
    Parameters(most): Parameters<Most>,
) -> Result<Json<Affinity>, Problem> {
    let limit = most.limit.unwrap_or(100);
    if !(1..=ENTRIES_MAX).contains(&limit) {
        return Err(wrong("limit", &limit.to_string(), "a whole number from 1 to 1000"));
    }
    Ok(Json(cluster(&shared)?.affinity(limit)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// Only later ones than this: the `next` of the answer before.
    after: Option<u64>,
}

/// Keys that changed their node lately
#[utoipa::path(
    get, path = "/api/v1/cluster/moves", tag = "cluster",
    extensions(("x-scope" = json!("read"))), params(After),
    responses((status = 200, description = "Migrations and breaks with their numbers, the oldest \
               first; a node remembers a bounded number of them", body = Moves))
)]
async fn moves(
    State(shared): State<Arc<Shared>>,
    Parameters(page): Parameters<After>,
) -> Result<Json<Moves>, Problem> {
    Ok(Json(cluster(&shared)?.moves(page.after.unwrap_or(0))))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClusterDrain)]
struct Drain {
    /// The node's name.
    node: String,
}

/// Lets a node finish what it has and stop
#[utoipa::path(
    post, path = "/api/v1/cluster/drain", tag = "cluster",
    extensions(("x-scope" = json!("admin"))), request_body = Drain,
    responses((status = 202, description = "It takes nothing new from now on", body = Draining),
              (status = 404, description = "There is no such node", body = ProblemBody),
              (status = 409, description = "No other node could take over", body = ProblemBody),
              (status = 503, description = "The node cannot be reached", body = ProblemBody))
)]
async fn drain(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    headers: HeaderMap,
    Body(order): Body<Drain>,
) -> Result<(StatusCode, Json<Draining>), Problem> {
    let draining = cluster(&shared)?.drain(&order.node, &headers).await?;
    note(&shared, &asker, "cluster.drain", (&draining.node, "")).await;
    Ok((StatusCode::ACCEPTED, Json(draining)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(fields: &[(&str, &str)]) -> Result<ExplainAsk, String> {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let fields = serde_json::Value::Object(fields.collect());
        let wished: Wished = serde_json::from_value(fields).map_err(|error| error.to_string())?;
        wished.ask().map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_request_is_named_by_its_key_or_by_what_the_key_is_made_of() {
        let ask = |what, purpose| Ok(ExplainAsk { what, purpose });
        let key = || Asked::Key("orders:mail".to_owned());
        assert_eq!(asked(&[("key", "orders:mail")]), ask(key(), Purpose::Pop));
        assert_eq!(asked(&[("key", "orders:mail"), ("for", "push")]), ask(key(), Purpose::Push));
        let queue = |partition: Option<&str>, group: &str| Asked::Queue {
            queue: "orders".to_owned(),
            partition: partition.map(str::to_owned),
            group: group.to_owned(),
        };
        assert_eq!(asked(&[("queue", "orders")]), ask(queue(None, QUEUE_MODE), Purpose::Pop));
        let all = [("queue", "orders"), ("partition", "7"), ("group", "mail")];
        assert_eq!(asked(&all), ask(queue(Some("7"), "mail"), Purpose::Pop));
        let task = Asked::Task {
            namespace: "shop".to_owned(),
            task: "bill".to_owned(),
            group: "mail".to_owned(),
        };
        let all = [("namespace", "shop"), ("task", "bill"), ("group", "mail")];
        assert_eq!(asked(&all), ask(task, Purpose::Pop));
    }

    #[test]
    fn a_request_that_is_named_twice_or_not_at_all_is_refused() {
        for fields in [
            &[][..],
            &[("group", "mail")],
            &[("key", "a:b"), ("queue", "a")],
            &[("queue", "a"), ("namespace", "b"), ("task", "c")],
            &[("namespace", "b")],
            &[("partition", "1")],
        ] {
            let told = asked(fields).expect_err("is wrong");
            assert!(told.contains("name one thing"), "{told}");
        }
        let told = asked(&[("key", "a"), ("for", "peek")]).expect_err("is wrong");
        assert!(told.contains("for cannot be \"peek\", it must be pop or push"), "{told}");
        let told = asked(&[("queue", "")]).expect_err("is wrong");
        assert!(told.contains("queue cannot be \"\""), "{told}");
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        let told = asked(&[("key", &long)]).expect_err("is too long");
        assert!(told.contains("longer than 2048 bytes"), "{told}");
        assert!(asked(&[("kee", "a")]).is_err());
    }
}
