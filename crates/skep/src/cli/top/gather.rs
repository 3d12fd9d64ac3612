//! Asking the nodes.

use super::sections;
use super::snapshot::{Seen, Snapshot};
use crate::cli::CliError;
use crate::cli::cells::list;
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use futures_util::future::join_all;
use serde_json::Value;
use std::time::Duration;

/// How long a node may take to tell all of it.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
/// Rows of a list that are asked for. More than anybody looks at, and little for a node.
const ROWS: u32 = 200;

/// What the nodes share, as one of them tells it. What could not be told is nothing.
#[derive(Default)]
pub struct Shared {
    pub balance: Value,
    pub sessions: Value,
    pub queues: Value,
    pub totals: Value,
    pub lagging: Value,
    pub polls: Value,
    pub failing: Value,
    pub endpoints: Value,
    pub monitors: Value,
    pub servers: Value,
}

/// What a node tells of itself.
pub struct Own {
    pub name: String,
    pub pools: Value,
}

/// The nodes that are asked.
pub struct Sources {
    nodes: Vec<NodeArgs>,
    /// Only one was named: it names the others.
    finds: bool,
}

impl Sources {
    pub fn new(nodes: Vec<NodeArgs>) -> Self {
        Sources { finds: nodes.len() == 1, nodes }
    }

    /// Everything as it is now.
    pub async fn look(&mut self) -> Snapshot {
        let at_ms = jiff::Timestamp::now().as_millisecond();
        let mut answers = join_all(self.nodes.iter().map(own)).await;
        let speaks = answers.iter().position(|(seen, _)| seen.error.is_none());
        let shared = match speaks {
            Some(place) => {
                let node = &self.nodes[place];
                tokio::time::timeout(NODE_TIMEOUT, shared(node)).await.unwrap_or_default()
            }
            None => Shared::default(),
        };
        if self.finds {
            let others = others(&shared.balance, self.nodes[0].key.key.as_ref());
            answers.extend(join_all(others.iter().map(|(name, node)| named(name, node))).await);
        }
        let (nodes, owns): (Vec<Seen>, Vec<Option<Own>>) = answers.into_iter().unzip();
        let owns: Vec<Own> = owns.into_iter().flatten().collect();
        Snapshot { at_ms, sections: sections::all(&shared, &owns), nodes }
    }
}

/// The other nodes, as one of them knows them.
fn others(balance: &Value, key: Option<&String>) -> Vec<(String, NodeArgs)> {
    let others = list(&balance["servers"]).iter();
    let others = others.filter(|one| one["here"] != true && one["alive"] == true);
    let others =
        others.map(|one| (text(one, "server_id"), NodeArgs::new(text(one, "url"), key.cloned())));
    others.collect()
}

async fn named(name: &str, node: &NodeArgs) -> (Seen, Option<Own>) {
    let (mut seen, own) = own(node).await;
    if seen.name.is_empty() {
        seen.name = name.to_owned();
    }
    (seen, own)
}

/// A node's name and its pools.
async fn own(node: &NodeArgs) -> (Seen, Option<Own>) {
    let asking = async {
        let about: Value = node.get("/api/v1/node").await?;
        let pools: Value = node.get("/metrics/pools").await?;
        Ok::<_, CliError>((text(&about, "name"), pools))
    };
    let url = node.shown_url();
    let error =
        |why: String| (Seen { name: String::new(), url: url.clone(), error: Some(why) }, None);
    match tokio::time::timeout(NODE_TIMEOUT, asking).await {
        Ok(Ok((name, pools))) => {
            let seen = Seen { name: name.clone(), url, error: None };
            (seen, Some(Own { name, pools }))
        }
        Ok(Err(why)) => error(why.message),
        Err(_) => error(format!("{url} did not answer in time")),
    }
}

async fn shared(node: &NodeArgs) -> Shared {
    let ask = async |path: &str| node.get::<Value>(path).await.unwrap_or_default();
    let queues = format!("/api/v1/resources/queues?limit={ROWS}");
    let failing = format!("/api/v1/polls/endpoints?state=failing&limit={ROWS}");
    let endpoints = format!("/api/v1/polls/endpoints?limit={ROWS}");
    let servers = format!("/api/v1/servers?state=below_target&limit={ROWS}");
    // One after the other over one connection: a node has more to do than to be looked at.
    Shared {
        balance: ask("/api/v1/cluster/balance").await,
        sessions: ask("/api/v1/sessions/overview").await,
        queues: ask(&queues).await,
        totals: ask("/api/v1/resources/overview").await,
        lagging: ask("/api/v1/consumer-groups/lagging").await,
        polls: ask("/api/v1/polls").await,
        failing: ask(&failing).await,
        endpoints: ask(&endpoints).await,
        monitors: ask("/api/v1/monitors/overview").await,
        servers: ask(&servers).await,
    }
}
