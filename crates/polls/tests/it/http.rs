//! Requests and their answers.

use crate::kit::{Server, answer, poll, prober, ready};
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::json;
use skep_polls::Verdict;
use std::io::Write;
use std::time::Duration;

#[tokio::test]
async fn the_status_decides_and_redirects_are_not_followed() {
    for (status, verdict) in [(200, Verdict::Ok), (302, Verdict::Ok), (500, Verdict::Status)] {
        let server = Server::answering(answer(status, "hello"));
        let outcome = poll(json!({ "url": server.url() })).await;
        assert_eq!((outcome.verdict, outcome.status), (verdict, Some(status)));
        assert_eq!(outcome.ok, verdict == Verdict::Ok);
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn the_expected_statuses_can_be_ranges() {
    let server = Server::answering(answer(404, ""));
    let url = server.url();
    let outcome = poll(json!({ "url": url, "expect": { "status": ["200-299", 404] } })).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    let outcome = poll(json!({ "url": url, "expect": { "status": ["200-299", 304] } })).await;
    assert_eq!(outcome.verdict, Verdict::Status);
    assert_eq!(outcome.detail, "the status is 404, not 200-299, 304");
}

#[tokio::test]
async fn a_text_is_found_across_the_borders_of_chunks() {
    let chunked = "HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n\
        4\r\nxxhe\r\n1\r\nl\r\n4\r\nlo w\r\n5\r\norld!\r\n0\r\n\r\n";
    let server = Server::answering(chunked);
    let outcome = poll(json!({ "url": server.url(), "expect": { "body": "hello world" } })).await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{}", outcome.detail);
    let outcome = poll(json!({ "url": server.url(), "expect": { "body": "hello there" } })).await;
    assert_eq!(outcome.verdict, Verdict::Body);
    assert_eq!(outcome.detail, "the expected text is not in the body (14 bytes read)");
}

#[tokio::test]
async fn a_compressed_answer_is_called_that_where_a_text_is_looked_for() {
    let says = |encoding: &str| {
        let head = "HTTP/1.1 200 -\r\ncontent-length: 5\r\ncontent-encoding:";
        Server::answering(format!("{head} {encoding}\r\n\r\nhello"))
    };
    for (encoding, verdict) in
        [("gzip", Verdict::Body), ("br", Verdict::Body), ("Identity", Verdict::Ok)]
    {
        let server = says(encoding);
        let outcome = poll(json!({ "url": server.url(), "expect": { "body": "hello" } })).await;
        assert_eq!(outcome.verdict, verdict, "{encoding}: {}", outcome.detail);
        if verdict == Verdict::Body {
            let said = format!("the body is compressed ({encoding}), and polls decompress nothing");
            assert_eq!(outcome.detail, said);
        }
        // Without a text to look for it makes no difference.
        assert!(poll(json!({ "url": server.url() })).await.ok, "{encoding}");
        let asked = server.requests().concat().to_ascii_lowercase();
        assert!(!asked.contains("accept-encoding"), "{asked}");
    }
}

#[tokio::test]
async fn slow_headers_run_out_of_time() {
    let server = Server::start(|guest| {
        guest.request();
        guest.say("HTTP/1.1 200 -\r\nx-");
        guest.hold();
    });
    let outcome = poll(json!({ "url": server.url(), "timeout": "100ms" })).await;
    assert_eq!((outcome.verdict, outcome.status), (Verdict::Timeout, None));
    assert_eq!(outcome.detail, "time ran out after 100ms, waiting for the answer");
    assert!(outcome.latency >= Duration::from_millis(100));
    server.wait_gone();
}

#[tokio::test]
async fn a_slow_body_matters_only_if_something_is_looked_for_in_it() {
    let server = Server::start(|guest| {
        guest.request();
        guest.say("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nabc");
        guest.hold();
    });
    let asked = json!({ "url": server.url(), "timeout": "100ms", "expect": { "body": "abcd" } });
    let outcome = poll(asked).await;
    assert_eq!((outcome.verdict, outcome.status), (Verdict::Timeout, Some(200)));
    assert_eq!(outcome.detail, "time ran out after 100ms, reading the answer's body");
    server.wait_gone();
    for timeout in ["100ms", "5s"] {
        let outcome = poll(json!({ "url": server.url(), "timeout": timeout })).await;
        assert_eq!(outcome.verdict, Verdict::Ok, "{}", outcome.detail);
        server.wait_gone();
    }
}

#[tokio::test]
async fn the_callers_limit_counts_if_it_is_shorter() {
    let server = Server::start(|guest| guest.hold());
    let endpoint = ready(json!({ "url": server.url() }));
    let outcome = prober().probe(&endpoint, Duration::from_millis(50), &[]).await;
    assert_eq!(outcome.detail, "time ran out after 50ms, waiting for the answer");
    let outcome = prober().probe(&endpoint, Duration::ZERO, &[]).await;
    assert_eq!(outcome.verdict, Verdict::Timeout);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_refuses() {
    let port = skep_testkit::free_port();
    let outcome = poll(json!({ "url": format!("http://127.0.0.1:{port}/") })).await;
    assert_eq!((outcome.verdict, outcome.ok), (Verdict::Refused, false));
    assert_eq!(outcome.detail, "Connection refused");
    let outcome = poll(json!({ "kind": "tcp", "address": format!("localhost:{port}") })).await;
    assert_eq!(outcome.verdict, Verdict::Refused);
}

#[tokio::test]
async fn a_port_that_accepts_is_enough_for_tcp() {
    let server = Server::start(|guest| guest.hold());
    let outcome = poll(json!({ "kind": "tcp", "address": server.address() })).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    server.wait_gone();
    let address = format!("localhost:{}", server.port);
    assert!(poll(json!({ "kind": "tcp", "address": address })).await.ok);
}

#[tokio::test]
async fn a_name_that_cannot_be_is_told_apart() {
    let outcome = poll(json!({ "kind": "tcp", "address": "no..name:1" })).await;
    assert_eq!(outcome.verdict, Verdict::Dns, "{}", outcome.detail);
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_is_a_reset() {
    // The first is closed with the request unread, the second before an answer, the third within
    // its head, the fourth within its body.
    let server = Server::start(|guest| {
        if guest.number == 1 {
            let _ = guest.stream.peek(&mut [0]);
            return;
        }
        guest.request();
        match guest.number {
            2 => true,
            3 => guest.say("HTTP/1.1 200 -\r\ncontent-le"),
            _ => guest.say("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nabc"),
        };
    });
    for _ in 0..4 {
        let outcome = poll(json!({ "url": server.url(), "expect": { "body": "abcd" } })).await;
        assert_eq!(outcome.verdict, Verdict::Reset, "{}", outcome.detail);
    }
    assert_eq!(server.connections(), 4);
}

#[tokio::test]
async fn an_endless_body_is_left_after_64_kib() {
    let server = Server::start(|guest| {
        guest.request();
        guest.say("HTTP/1.1 200 -\r\n\r\n");
        while guest.say([b'x'; 4_096]) {}
        guest.gone();
    });
    let outcome = poll(json!({ "url": server.url(), "expect": { "body": "y" } })).await;
    assert_eq!(outcome.verdict, Verdict::Body);
    assert_eq!(outcome.detail, "the expected text is not in the body (65536 bytes read)");
    server.wait_gone();
    assert!(poll(json!({ "url": server.url() })).await.ok);
    server.wait_gone();
}

#[tokio::test]
async fn a_huge_head_and_what_is_no_http_are_errors_of_protocol() {
    let server = Server::start(|guest| {
        guest.request();
        guest.say("HTTP/1.1 200 -\r\n");
        while guest.say(format!("x-long: {}\r\n", "x".repeat(8_000))) {}
    });
    let outcome = poll(json!({ "url": server.url() })).await;
    assert_eq!(outcome.verdict, Verdict::Protocol);
    assert_eq!(outcome.detail, "the answer's headers are too large");
    let server = Server::answering("220 mail.example ESMTP\r\n\r\n");
    let outcome = poll(json!({ "url": server.url() })).await;
    assert_eq!(outcome.verdict, Verdict::Protocol);
    assert_eq!(outcome.detail, "the answer is not HTTP/1.1");
}

#[tokio::test]
async fn the_request_is_what_was_written_with_a_name_of_its_own() {
    let server = Server::answering(answer(200, ""));
    let url = format!("http://localhost:{}/a/b?c=d", server.port);
    let headers = json!({ "Accept": "text/plain", "x-mine": "1" });
    let value = json!({ "url": url, "method": "POST", "body": "ping", "headers": headers });
    let extra = (HeaderName::from_static("x-mine"), HeaderValue::from_static("2"));
    let outcome = prober().probe(&ready(value), Duration::MAX, &[extra]).await;
    assert!(outcome.ok, "{}", outcome.detail);
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST /a/b?c=d HTTP/1.1\r\n"), "{request}");
    let agent = concat!("user-agent: skep/", env!("CARGO_PKG_VERSION"));
    let host = format!("host: localhost:{}", server.port);
    for line in [agent, &host, "accept: text/plain", "x-mine: 2", "content-length: 4"] {
        assert!(request.lines().any(|found| found == line), "{line} in {request}");
    }
    assert!(request.ends_with("\r\n\r\nping"));

    let headers = json!({ "user-agent": "me", "host": "shop.example" });
    poll(json!({ "url": server.url(), "headers": headers })).await;
    let request = server.requests().remove(1);
    assert!(request.starts_with("GET / HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("user-agent: me\r\n") && request.contains("host: shop.example\r\n"));
    assert!(!request.contains("skep/") && !request.contains("127.0.0.1"));
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let server = Server::answering("HTTP/1.1 200 -\r\ncontent-length: 1000000\r\n\r\n");
    let (prober, endpoint) = (prober(), ready(json!({ "url": server.url(), "method": "head" })));
    for _ in 0..2 {
        assert!(prober.probe(&endpoint, Duration::MAX, &[]).await.ok);
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 2));
}

#[tokio::test]
async fn ipv6_addresses_need_no_name() {
    let serve = |guest: &mut crate::kit::Guest| {
        guest.request();
        let _ = guest.stream.write_all(answer(200, "").as_bytes());
    };
    // A machine may have no IPv6; then there is nothing to see.
    let Ok(server) = Server::on("::1", serve) else { return };
    let outcome = poll(json!({ "url": format!("http://[::1]:{}/", server.port) })).await;
    assert!(outcome.ok, "{}", outcome.detail);
    assert!(server.requests()[0].contains(&format!("host: [::1]:{}\r\n", server.port)));
    let outcome = poll(json!({ "kind": "tcp", "address": format!("[::1]:{}", server.port) }));
    assert!(outcome.await.ok);
}

#[tokio::test]
async fn secrets_never_appear_in_a_detail() {
    let answers = ["", "HTTP/1.1 500 s3cret\r\n\r\n", "s3cret\r\n\r\n", "HTTP/1.1 200 -\r\n\r\n"];
    for said in answers {
        let server = Server::start(move |guest| {
            guest.request();
            guest.say(said);
        });
        let value = json!({ "url": server.url(), "headers": { "Cookie": "s3cret" },
            "body": "s3cret", "expect": { "body": "s3cret" }, "method": "POST" });
        let token = (AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"));
        let endpoint = ready(value);
        let outcome = prober().probe(&endpoint, Duration::MAX, &[token]).await;
        assert!(!outcome.ok && server.requests()[0].matches("s3cret").count() == 3);
        assert!(!format!("{outcome:?}{endpoint:?}").contains("s3cret"), "{outcome:?}");
    }
}

#[tokio::test]
async fn dropping_a_poll_closes_its_socket() {
    let server = Server::start(|guest| {
        guest.request();
        guest.hold();
    });
    let (prober, endpoint) = (prober(), ready(json!({ "url": server.url() })));
    let mut polling = Box::pin(prober.probe(&endpoint, Duration::MAX, &[]));
    // Driven until the server has the request, then dropped.
    while server.requests().is_empty() {
        let moment = tokio::time::timeout(Duration::from_millis(5), &mut polling);
        assert!(moment.await.is_err(), "it has no answer");
    }
    drop(polling);
    server.wait_gone();
}

#[test]
fn a_poll_can_move_between_threads() {
    fn sent<T: Send>(_: &T) {}
    let (prober, endpoint) = (prober(), ready(json!({ "url": "http://h/" })));
    sent(&prober.probe(&endpoint, Duration::MAX, &[]));
}
