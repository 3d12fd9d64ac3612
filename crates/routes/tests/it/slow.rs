//! Whoever is slow, leaves, or sends more than anybody takes.

use crate::kit::{Bench, Upstream};
use serde_json::json;
use skep_routes::ProxyOptions;
use skep_testkit::eventually;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(100);
const MIB: usize = 1_024 * 1_024;

#[test]
fn a_head_that_does_not_come_to_its_end_is_given_up() {
    let upstream = Upstream::plain();
    let options = ProxyOptions { head_limit: SHORT, ..ProxyOptions::default() };
    let bench = Bench::with(options, &[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX:");
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (408, "E_HEAD_TOO_SLOW"));
    client.ends();
    assert_eq!(bench.recorded(1)[0].status, 408);
    assert!(upstream.heard().is_empty());
}

#[test]
fn a_connection_without_a_request_ends_without_a_word() {
    let upstream = Upstream::plain();
    let options = ProxyOptions { head_limit: SHORT, idle_limit: SHORT, ..ProxyOptions::default() };
    let bench = Bench::with(options, &[&upstream], json!({}));
    bench.client().ends();
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.answer();
    client.ends();
    bench.recorded(1);
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({ "timeouts": { "send": "100ms" } }));
    let mut client = bench.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (408, "E_PROXY_BODY_TOO_SLOW"));
    client.ends();
    assert_eq!(bench.recorded(1)[0].bytes_in, 2);
    assert!(!upstream.heard_in_the_end(0, 1)[0].whole);
}

#[test]
fn an_upstream_that_does_not_take_the_body_is_given_up() {
    let upstream = Upstream::new(|talk| {
        let head = talk.hear_head()?;
        // Waits without reading for what the proxy does.
        while head.is_some() && talk.wire.stream.take_error()?.is_none() {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({ "timeouts": { "send": "200ms" } }));
    let mut client = bench.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 64 * MIB));
    let piece = vec![b'x'; MIB];
    while client.try_send(&piece).is_ok() {}
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (504, "E_UPSTREAM_SLOW"));
    assert_eq!(bench.recorded(1)[0].error, "slow-to-take");
}

#[test]
fn an_answer_before_the_end_of_the_body_is_passed_on() {
    for size in [20_000, 8 * MIB] {
        let upstream = Upstream::new(|talk| {
            talk.hear_head()?;
            talk.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")?;
            talk.wire.finish();
            talk.wait_for_end();
            Ok(())
        });
        let bench = Bench::new(&[&upstream], json!({}));
        let mut client = bench.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
        let _ = client.try_send(vec![b'x'; size / 2]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (403, "no"));
        // The rest of the body is no request.
        let _ = client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        client.ends();
        drop(client);
        assert_eq!(bench.recorded(1)[0].status, 403);
        assert_eq!(upstream.heard().len(), 1);
    }
}

#[test]
fn a_client_that_leaves_is_noticed_while_it_waits() {
    let upstream = Upstream::new(|talk| {
        talk.hear()?;
        talk.wait_for_end();
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the upstream is asked", || upstream.heard().first().map(|_| ()));
    // Half a connection is as good as none.
    client.finish();
    client.ends();
    let record = bench.recorded(1).remove(0);
    assert_eq!((record.status, record.error), (499, "client-left"));
}

#[test]
fn a_client_that_does_not_read_its_answer_is_cut_off() {
    let size = 64 * MIB;
    let upstream = Upstream::new(move |talk| {
        talk.hear()?;
        talk.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"))?;
        let piece = vec![b'x'; MIB];
        while talk.say(&piece).is_ok() {}
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({ "timeouts": { "idle": "200ms" } }));
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let record = bench.recorded(1).remove(0);
    assert_eq!((record.status, record.error), (200, "client-left"));
    assert!(client.try_answer(false).is_err(), "it sees that the answer is not whole");
}

#[test]
fn a_client_that_leaves_within_its_body_is_no_whole_request() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    for head in
        ["Content-Length: 50\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"]
    {
        let mut client = bench.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}"));
    }
    let records = bench.recorded(2);
    assert!(records.iter().all(|one| one.status == 499), "{records:?}");
    assert!(upstream.heard_in_the_end(0, 2).iter().all(|one| !one.whole));
}

#[test]
fn a_client_that_does_not_hang_up_costs_the_upstream_nothing() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.answer();
    client.ends();
    let record = bench.recorded(1).remove(0);
    let took = Duration::from_micros(record.duration_us);
    assert!(took < Duration::from_millis(900), "waiting for the end is no part of it: {took:?}");
}

#[test]
fn a_client_that_takes_no_interim_answers_does_not_hold_the_request_for_ever() {
    let upstream = Upstream::new(|talk| {
        talk.hear()?;
        let interim = format!("HTTP/1.1 103 Hints\r\nX: {}\r\n\r\n", "x".repeat(60_000));
        for _ in 0..31 {
            talk.say(&interim)?;
        }
        talk.wait_for_end();
        Ok(())
    });
    let times = json!({ "send": "200ms", "head": "2s" });
    let bench = Bench::new(&[&upstream], json!({ "timeouts": times, "retry": { "tries": 0 } }));
    let mut client = bench.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 4_096).expect("is a socket");
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let record = bench.recorded(1).remove(0);
    assert_eq!(record.status, 499, "{record:?}");
}
