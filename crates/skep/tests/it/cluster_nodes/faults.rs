//! Three nodes under load while one of them is killed, hangs, is cut off, or drains.

use super::kit::{NAMES, Trio};
use super::load::{Load, QUEUES, queue};
use crate::common::{run, until};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// The node with most keys of the load: whatever happens to it is noticed.
fn busiest(trio: &Trio) -> usize {
    let owners: Vec<usize> = (0..QUEUES).map(|number| trio.owner(&queue(number), "g")).collect();
    let keys = |place: &usize| owners.iter().filter(|owner| *owner == place).count();
    (0..3).max_by_key(keys).expect("there are three")
}

fn others(place: usize) -> [usize; 2] {
    [(place + 1) % 3, (place + 2) % 3]
}

#[test]
fn a_killed_node_is_noticed_only_by_those_who_asked_it() {
    let mut trio = Trio::start(&[]);
    let load = Load::start(&trio);
    let place = busiest(&trio);
    trio.kill(place);
    let killed = Instant::now();
    for other in others(place) {
        // Keys of the dead node too: a request that comes now is answered by somebody.
        for number in 0..QUEUES {
            let path = format!("/api/v1/pop/queue/{}?consumerGroup=other", queue(number));
            let asked = Instant::now();
            let answer = trio.get(other, &path);
            assert!(matches!(answer.status, 200 | 204), "{}", answer.body);
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(4), "{took:?}, {:?} after it", killed.elapsed());
        }
    }
    load.wait_for_more();
    trio.revive(place);
    trio.wait_until_together();
    load.wait_for_more();
    let report = load.finish(&trio);
    report.assert_only_at(place);
    assert!(report.forwarded > 0 && report.messages > 100, "{} messages", report.messages);
}

#[test]
fn a_node_that_hangs_delays_what_it_had_and_nothing_else() {
    let trio = Trio::start(&["cluster.forward_timeout=3s"]);
    let load = Load::start(&trio);
    let place = busiest(&trio);
    trio.node(place).process().signal(Signal::STOP);
    for other in others(place) {
        until("it is not healthy any more", || trio.server(other, place)["healthy"] == false);
    }
    load.wait_for(24);
    trio.node(place).process().signal(Signal::CONT);
    trio.node(place).get("/health");
    trio.wait_until_together();
    load.wait_for_more();
    let report = load.finish(&trio);
    report.assert_only_at(place);
    assert!(report.messages > 100, "{} messages", report.messages);
}

/// It is heard, so it is not dead; but whatever is sent there breaks.
#[test]
fn a_node_that_is_cut_off_from_the_others_goes_on_serving_its_own_clients() {
    let trio = Trio::proxied(&[]);
    let load = Load::start(&trio);
    let place = busiest(&trio);
    trio.proxy(place).cut();
    for other in others(place) {
        until("its breaker opens", || trio.server(other, place)["breaker"] != "closed");
    }
    load.wait_for_more();
    trio.proxy(place).heal();
    trio.wait_until_together();
    let forwarded = |other: usize| trio.server(other, place)["forwarded"].as_u64();
    let before = others(place).map(forwarded);
    until("requests go there again", || {
        let now = others(place).map(forwarded);
        now.iter().zip(&before).all(|(now, before)| now > before)
    });
    let report = load.finish(&trio);
    assert!(report.failures.is_empty(), "no client notices it: {:?}", report.failures);
}

/// Nobody's request tells that it is well, so the node that doubts it asks.
#[test]
fn a_node_that_nobody_asks_any_more_is_found_to_be_well_again() {
    let trio = Trio::proxied(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=g");
    trio.proxy(1).cut();
    until("its breaker opens", || {
        let answer = trio.get(0, &path);
        assert!(matches!(answer.status, 200 | 204), "{}", answer.body);
        trio.server(0, 1)["breaker"] == "open"
    });
    let forwarded = trio.server(0, 1)["forwarded"].clone();
    trio.proxy(1).heal();
    until("it is healthy", || trio.server(0, 1)["healthy"] == true);
    assert_eq!(trio.server(0, 1)["forwarded"], forwarded, "no request went there");
    assert_eq!(trio.get(0, &path).header("x-served-by"), NAMES[1]);
}

#[test]
fn in_a_rolling_restart_no_request_fails() {
    let mut trio = Trio::start(&[]);
    let load = Load::start(&trio);
    for (place, name) in NAMES.into_iter().enumerate() {
        if place == 1 {
            let url = format!("http://{}", trio.address(0));
            let arguments = ["cluster", "drain", name, "--url", &url];
            let (ended, log) = run(trio.folder.path(), &arguments);
            assert_eq!(ended.code, 0, "{log}");
        } else {
            trio.node(place).process().signal(Signal::TERM);
        }
        trio.wait_for_end(place);
        load.wait_for(20);
        trio.revive(place);
        trio.wait_until_together();
        load.wait_for(20);
    }
    let report = load.finish(&trio);
    report.assert_only_refused();
    assert!(report.messages > 100, "{} messages", report.messages);
}

/// A pop that waits at a node which drains, for a client of that node or of another one, goes on
/// waiting elsewhere, and not longer than it should.
#[test]
fn pops_that_wait_at_a_draining_node_are_handed_over() {
    let mut trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&wait=true&timeout=20000&subscriptionMode=all");
    let limit = Duration::from_secs(40);
    let pops = [0, 1, 2].map(|place| trio.pop_later(place, &path, limit));
    until("all wait at the owner", || trio.server(1, 1)["polls"] == 3);
    trio.node(1).process().signal(Signal::TERM);
    until("they wait at others", || {
        let waiting = |place: usize| trio.server(place, place)["polls"].as_u64().unwrap_or(0);
        waiting(0) + waiting(2) == 3
    });
    let items: Vec<_> = (0..3)
        .map(|number| json!({ "queue": queue, "partition": format!("p{number}"), "payload": "x" }))
        .collect();
    let pushed = trio.post(0, "/api/v1/push", &json!({ "items": items }));
    assert_eq!(pushed.status, 201, "{}", pushed.body);
    for pop in pops {
        let answer = pop.join().expect("does not panic").expect("is answered");
        assert_eq!((answer.status, super::kit::payloads(&answer)), (200, vec!["x".to_owned()]));
    }
    trio.wait_for_end(1);
}

#[test]
fn a_node_that_stops_does_not_wait_for_the_long_waits_of_its_clients_elsewhere() {
    let mut trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&wait=true&timeout=60000");
    let began = Instant::now();
    let pop = trio.pop_later(0, &path, Duration::from_secs(70));
    until("it waits at the owner", || trio.server(1, 1)["polls"] == 1);
    trio.node(0).process().signal(Signal::TERM);
    trio.wait_for_end(0);
    let answer = pop.join().expect("does not panic").expect("it is answered, and not cut");
    assert_eq!(answer.status, 204);
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    until("nobody waits at the owner", || trio.server(1, 1)["polls"] == 0);
}

/// The other node sends it back when half of its wait is over; only the other half is left.
#[test]
fn a_pop_that_is_sent_back_waits_only_for_what_is_left() {
    let mut trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("{queue}?consumerGroup=g&wait=true&timeout=6000");
    let began = Instant::now();
    let pop = trio.pop_later(0, &path, Duration::from_secs(30));
    until("half of it is over", || {
        began.elapsed() > Duration::from_secs(3) && trio.server(1, 1)["polls"] == 1
    });
    trio.node(1).process().signal(Signal::TERM);
    let answer = pop.join().expect("does not panic").expect("is answered");
    let took = began.elapsed();
    assert_eq!((answer.status, answer.header("x-fallback")), (204, "status-503"));
    assert!(took >= Duration::from_secs(5), "{took:?}");
    assert!(took < Duration::from_millis(8_500), "{took:?}: it waited for all of it again");
    trio.wait_for_end(1);
}
