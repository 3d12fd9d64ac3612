//! What happened can be read from the counters.

use crate::kit::{Scene, absent_worker, echo, worker};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use skep_testkit::eventually;

#[test]
fn sessions_refusals_failures_and_bytes_are_counted() {
    let scene = Scene::new();
    let mut registry = Registry::default();
    scene.metrics.register(&mut registry);
    let has = |line: &str| {
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        text.lines().any(|found| found == line)
    };
    scene.book.add(&absent_worker(), 1);
    scene.book.add(&worker(echo), 1);
    let mut client = scene.session();
    assert!(has("skep_gateway_connections 1"));
    eventually("it is carried", || has("skep_gateway_sessions 1").then_some(()));
    client.send(b"abc");
    client.read(3);
    drop(client);
    scene.closed(2);
    let mut wrong = scene.connect();
    wrong.ask("/?kind=", &[]);
    wrong.answer();
    drop(wrong);
    for line in [
        "skep_gateway_sessions 0",
        "skep_gateway_connections 0",
        "skep_gateway_upgrades_total{outcome=\"carried\"} 1",
        "skep_gateway_upgrades_total{outcome=\"refused\"} 1",
        "skep_gateway_refusals_total{code=\"E_QUERY_INVALID\"} 1",
        "skep_gateway_dial_failures_total{why=\"connect\"} 1",
        "skep_gateway_bytes_total{direction=\"up\"} 3",
        "skep_gateway_bytes_total{direction=\"down\"} 3",
        "skep_gateway_dial_seconds_count 1",
        "skep_gateway_sessions_ended_total{by=\"client\"} 1",
    ] {
        eventually(line, || has(line).then_some(()));
    }
}
