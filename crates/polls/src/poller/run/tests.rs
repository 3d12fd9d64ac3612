//! What the poller keeps in mind.

use super::*;
use crate::metrics::PollsMetrics;
use crate::options::PollsOptions;
use crate::probe::Prober;
use crate::registry::{Registry, key_of};
use crate::store::Record;
use skep_nodes::{MemoryTable, Nodes, NodesMetrics, TableStore, Worker, options_for};
use skep_policy::Reason;
use skep_policy::ownership::Grant;
use skep_store::BootClock;

const EDITS: i64 = 10_000;

fn poller() -> Arc<Poller> {
    let (clock, table) = (Arc::new(BootClock), MemoryTable::embedded(1));
    let table = TableStore::Memory(table);
    let nodes = Nodes::new(options_for("a"), table, NodesMetrics::default(), clock.clone());
    let prober = Prober::new().expect("can poll");
    let (options, metrics) = (PollsOptions::default(), PollsMetrics::default());
    Poller::new(nodes, Arc::new(Registry::default()), prober, options, metrics, clock)
}

fn endpoint(id: &str, version: i64, interval: &str) -> Arc<Endpoint> {
    let spec = serde_json::json!({ "id": id, "url": "http://127.0.0.1:1/", "interval": interval });
    let spec = crate::Spec::parse(&spec, &skep_policy::ownership::Timing::default());
    let record = Record {
        id: id.to_owned(),
        number: 1,
        born: 1,
        version,
        spec: serde_json::json!(spec.expect("is an endpoint")).to_string(),
        paused: false,
        deleted: false,
        created_at_ms: 0,
        updated_at_ms: 0,
        asked_at_ms: 0,
    };
    Arc::new(Endpoint::from_record(&record).expect("can be read"))
}

/// Grants an endpoint whose last poll was just now, and announces that.
fn own(poller: &Poller, endpoint: &Arc<Endpoint>, counter: u64) {
    let token = Token { epoch: 1, counter };
    let reason = Reason::new("test");
    let key = endpoint.key.clone();
    poller.start(Grant { key, token, due: 0, from: None, reason, resumed: false });
    poller.endpoint_changed(endpoint);
    let last_at_ms = Some(poller.nodes.store_ms());
    let current = Announced::Current { last_slot: None, last_at_ms };
    poller.announced(&poller.grants(), &[current]);
}

#[tokio::test]
async fn an_endpoint_that_is_changed_again_and_again_leaves_no_trail_in_the_agenda() {
    let poller = poller();
    own(&poller, &endpoint("shop", 1, "24h"), 1);
    own(&poller, &endpoint("cart", 1, "24h"), 2);
    let now_ms = poller.nodes.store_ms();
    let cart_at = poller.lock().agenda.clone_of(&key_of("cart"));
    let mut longest = 0;
    for version in 2..EDITS {
        let interval = if version % 2 == 0 { "23h" } else { "24h" };
        poller.endpoint_changed(&endpoint("shop", version, interval));
        poller.begin_due(now_ms);
        longest = longest.max(poller.lock().agenda.len());
    }
    assert!(longest < 1_000, "{longest} entries for two endpoints");
    let work = poller.lock();
    for id in ["shop", "cart"] {
        let entries = work.agenda.clone_of(&key_of(id));
        let turn = work.assignments[&key_of(id)].turn;
        assert_eq!(entries.iter().filter(|entry| entry.turn == turn).count(), 1, "{id}");
    }
    assert_eq!(work.agenda.clone_of(&key_of("cart")), cart_at);
}

#[tokio::test]
async fn an_endpoint_that_comes_and_goes_leaves_no_trail_in_the_agenda() {
    let poller = poller();
    let shop = endpoint("shop", 1, "24h");
    let now_ms = poller.nodes.store_ms();
    for counter in 1..2_000 {
        own(&poller, &shop, counter);
        poller.lost(&shop.key, Token { epoch: 1, counter }, &Reason::new("test"));
        poller.begin_due(now_ms);
    }
    assert!(poller.lock().agenda.len() < 1_000);
}
