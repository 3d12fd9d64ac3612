//! Many requests on one connection, and connections that are used again.

use crate::kit::{Bench, Upstream};
use serde_json::json;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

#[test]
fn a_hundred_requests_in_one_packet_are_answered_in_order() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    let packet: String =
        (0..100).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(packet);
    for number in 0..100 {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    drop(client);
    let records = bench.recorded(100);
    assert!(records.iter().all(|one| one.status == 200 && one.tries == 1));
    assert_eq!(upstream.accepted(), 1, "one connection is enough for them");
}

#[test]
fn bodies_and_requests_in_one_packet_are_told_apart() {
    let upstream = Upstream::new(|talk| {
        while let Some(heard) = talk.hear()? {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", heard.body.len());
            talk.say([head.as_bytes(), &heard.body].concat())?;
        }
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send(
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\nGET /x HTTP/1.1\r\n\
         POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
         POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n\
         POST /4 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend\
         GET /5 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    for expected in ["GET /x HTTP/1.1\r\n", "abc", "", "end"] {
        assert_eq!(client.answer().text(), expected);
    }
    client.ends();
    drop(client);
    bench.recorded(4);
    assert_eq!(upstream.heard().len(), 4);
}

#[test]
fn a_request_behind_one_that_closes_is_not_looked_at() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send(
        "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n\
         GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.text(), answer.values("connection")), ("/1", vec!["close"]));
    client.ends();
    bench.recorded(1);
    assert_eq!(upstream.heard().len(), 1);
}

#[test]
fn old_clients_are_answered_and_hung_up_on_unless_they_ask_otherwise() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET /1 HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.values("connection")), ("/1", vec!["close"]));
    client.ends();
    let mut client = bench.client();
    client.send("GET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.values("connection")), ("/2", vec!["keep-alive"]));
    client.send("GET /3 HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "/3");
    client.ends();
    let records = bench.recorded(3);
    assert!(records.iter().all(|one| one.protocol == "1.0"));
}

#[test]
fn old_clients_get_chunks_as_a_body_that_ends_with_the_connection() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let upstream = Upstream::saying(chunks);
    let bench = Bench::new(&[&upstream], json!({}));
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut client = bench.client();
        client.send(format!("GET / HTTP/1.0\r\n{fields}\r\n"));
        let answer = client.answer();
        assert_eq!((answer.text(), answer.values("connection")), ("hello", vec!["close"]));
        assert!(answer.values("transfer-encoding").is_empty());
    }
    bench.recorded(2);
}

#[test]
fn head_has_the_length_and_no_body() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    for _ in 0..2 {
        client.send("HEAD /some HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.try_answer(true).expect("comes");
        assert_eq!((answer.status, answer.values("content-length")), (200, vec!["5"]));
    }
    client.send("GET /else HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "/else");
    drop(client);
    bench.recorded(3);
    assert_eq!(upstream.accepted(), 1, "the connection is used again");
}

#[test]
fn bytes_that_come_unasked_never_become_an_answer() {
    let (ask, asked) = sync_channel(1);
    let (tell, told) = sync_channel(1);
    let asked = Mutex::new(asked);
    let upstream = Upstream::new(move |talk| {
        while let Some(heard) = talk.hear()? {
            let body = heard.target();
            let length = body.len();
            talk.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))?;
            if body == "/1" {
                asked.lock().expect("no panic").recv().expect("is told when");
                talk.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")?;
                tell.send(()).expect("somebody waits");
            }
        }
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "/1");
    ask.send(()).expect("listens");
    told.recv().expect("it was said");
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "/2");
    drop(client);
    bench.recorded(2);
    assert_eq!(upstream.accepted(), 2, "the first connection is not used again");
}
