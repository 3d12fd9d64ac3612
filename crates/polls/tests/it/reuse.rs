//! Connections that are used again, and those that must not be.

use crate::kit::{Server, answer, prober, ready};
use serde_json::json;
use skep_polls::{ProbeOptions, Prober, Verdict};
use std::time::{Duration, Instant};

/// Polls a server so many times; all must be well.
async fn poll_all(prober: &Prober, server: &Server, times: usize) {
    let endpoint = ready(json!({ "url": server.url() }));
    for _ in 0..times {
        let outcome = prober.probe(&endpoint, Duration::MAX, &[]).await;
        assert!(outcome.ok, "{outcome:?}");
    }
}

#[tokio::test]
async fn polls_of_one_host_share_a_connection() {
    for said in [
        answer(200, "hello"),
        answer(204, ""),
        "HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n".to_owned(),
        answer(200, &"x".repeat(60_000)),
    ] {
        let server = Server::answering(said.clone());
        poll_all(&prober(), &server, 5).await;
        assert_eq!((server.connections(), server.requests().len()), (1, 5));
    }
}

#[tokio::test]
async fn a_failed_poll_keeps_its_connection_too() {
    let server = Server::answering(answer(500, "sorry"));
    let (prober, endpoint) = (prober(), ready(json!({ "url": server.url() })));
    for _ in 0..2 {
        let outcome = prober.probe(&endpoint, Duration::MAX, &[]).await;
        assert_eq!(outcome.verdict, Verdict::Status);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn what_cannot_be_used_again_is_not() {
    let close = "HTTP/1.1 200 -\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for said in [close.to_owned(), answer(200, &"x".repeat(100_000))] {
        let server = Server::answering(said);
        poll_all(&prober(), &server, 2).await;
        assert_eq!(server.connections(), 2);
        server.wait_gone();
    }
    let server = Server::answering(answer(200, ""));
    let none =
        Prober::with(&ProbeOptions { idle_max: 0, ..ProbeOptions::default() }).expect("a prober");
    poll_all(&none, &server, 2).await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn more_idle_connections_than_allowed_are_closed_oldest_first() {
    let servers = [(); 3].map(|()| Server::answering(answer(200, "")));
    let two =
        Prober::with(&ProbeOptions { idle_max: 2, ..ProbeOptions::default() }).expect("a prober");
    for server in &servers {
        poll_all(&two, server, 1).await;
    }
    servers[0].wait_gone();
    for server in &servers {
        poll_all(&two, server, 1).await;
    }
    assert_eq!(servers[0].connections(), 2);
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_causes_no_failure() {
    let server = Server::start(|guest| {
        guest.request();
        guest.say(answer(200, ""));
        let _ = guest.stream.shutdown(std::net::Shutdown::Both);
        guest.gone();
    });
    let (prober, endpoint) = (prober(), ready(json!({ "url": server.url() })));
    for _ in 0..50 {
        let outcome = prober.probe(&endpoint, Duration::MAX, &[]).await;
        assert!(outcome.ok, "{outcome:?}");
        server.wait_gone();
    }
    assert_eq!((server.connections(), server.requests().len()), (50, 50));
}

#[tokio::test]
async fn a_request_is_never_sent_twice() {
    // Takes the second request and closes the connection without an answer.
    let server = Server::start(|guest| {
        guest.request();
        guest.say(answer(200, ""));
        guest.request();
    });
    let (prober, endpoint) = (prober(), ready(json!({ "url": server.url() })));
    assert!(prober.probe(&endpoint, Duration::MAX, &[]).await.ok);
    let outcome = prober.probe(&endpoint, Duration::MAX, &[]).await;
    assert_eq!(outcome.verdict, Verdict::Reset, "{}", outcome.detail);
    assert_eq!((server.connections(), server.requests().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_before_servers_do() {
    let server = Server::answering(answer(200, ""));
    let prober = prober();
    poll_all(&prober, &server, 1).await;
    let since = Instant::now();
    // The other worker sweeps meanwhile.
    tokio::task::block_in_place(|| server.wait_gone());
    let idle = since.elapsed();
    assert!(idle > Duration::from_secs(3) && idle < skep_testkit::PATIENCE, "{idle:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_polls_at_once_are_all_well() {
    let server = Server::answering(answer(200, "hello"));
    let prober = prober();
    let endpoint = ready(json!({ "url": server.url(), "expect": { "body": "hello" } }));
    let polls: Vec<_> = (0..100)
        .map(|_| {
            let (prober, endpoint) = (prober.clone(), endpoint.clone());
            tokio::spawn(async move {
                for _ in 0..10 {
                    let outcome = prober.probe(&endpoint, Duration::MAX, &[]).await;
                    assert!(outcome.ok, "{outcome:?}");
                }
            })
        })
        .collect();
    for poll in polls {
        poll.await.expect("all is well");
    }
    assert_eq!(server.requests().len(), 1_000);
    assert!(server.connections() <= 100);
}
