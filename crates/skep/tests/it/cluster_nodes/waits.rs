//! Pops that wait at one node for what happens at another.

use super::kit::{Trio, payloads};
use crate::common::until;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// A pop that waits at the owner of its key, for a client of a second node, hears of the push at a
/// third one.
pub fn check_that_a_push_wakes_a_pop(trio: &Trio, waits_at: usize, queue: &str) {
    let path = format!("{queue}?consumerGroup=g&wait=true&timeout=25000&subscriptionMode=all");
    let sent = |place: usize| trio.status(place)["wakes"]["sent"].as_u64();
    let received = |place: usize| trio.status(place)["wakes"]["received"].as_u64();
    let before = (sent(2), received(waits_at));
    let pop = trio.pop_later(0, &path, LONG);
    until("it waits", || trio.server(waits_at, waits_at)["polls"] == 1);
    let pushed = Instant::now();
    trio.push(2, queue, "new");
    let answer = pop.join().expect("does not panic").expect("is answered");
    let took = pushed.elapsed();
    assert_eq!(payloads(&answer), ["new"], "{}", answer.body);
    assert!(took < Duration::from_secs(8), "{took:?}");
    until("it was told and heard", || sent(2) > before.0 && received(waits_at) > before.1);
}

#[test]
fn a_push_on_one_node_wakes_a_pop_on_another() {
    let trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    check_that_a_push_wakes_a_pop(&trio, 1, &queue);
}

#[test]
fn a_client_that_goes_away_ends_the_wait_on_the_other_node_and_nothing_stays_leased() {
    let trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=g&subscriptionMode=all");
    let mut clients: Vec<TcpStream> = (0..3)
        .map(|number| {
            let address = trio.address(2 * (number % 2));
            let mut stream = TcpStream::connect(&address).expect("connects");
            let query = "wait=true&timeout=60000";
            let head = format!("GET {path}&{query} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("writes");
            stream
        })
        .collect();
    until("they wait at the owner", || trio.server(1, 1)["polls"] == 3);
    clients.truncate(1);
    until("only one waits", || trio.server(1, 1)["polls"] == 1);
    clients.clear();
    until("nobody waits", || trio.server(1, 1)["polls"] == 0);
    until("nobody is counted", || trio.metric(0, "skep_cluster_forwards_under_way") == 0);
    trio.push(0, &queue, "first");
    assert_eq!(trio.leased(1, &queue), 0, "nobody took it");
    let answer = trio.get(2, &path);
    assert_eq!(payloads(&answer), ["first"], "{}", answer.body);
    // Going away says nothing against the node that was asked.
    assert_eq!(trio.server(0, 1)["breaker"], "closed");
}
