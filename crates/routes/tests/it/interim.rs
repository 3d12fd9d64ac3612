//! What comes before an answer: 100-continue, other interim answers, and other protocols.

use crate::kit::{Bench, Upstream};
use serde_json::json;
use std::io::Read;

const EXPECTS: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

#[test]
fn the_upstream_says_whether_the_body_shall_come() {
    let upstream = Upstream::new(|talk| {
        while let Some(heard) = talk.hear_head()? {
            assert_eq!(heard.values("expect"), ["100-continue"]);
            talk.say("HTTP/1.1 100 Continue\r\n\r\n")?;
            let mut body = [0; 5];
            talk.wire.stream.read_exact(&mut body)?;
            talk.say([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", &body[..]].concat())?;
        }
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    for _ in 0..2 {
        client.send(EXPECTS);
        let interim = client.head().expect("goes on").expect("comes");
        assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
        client.send("hello");
        assert_eq!(client.answer().text(), "hello");
    }
    drop(client);
    bench.recorded(2);
    assert_eq!(upstream.accepted(), 1, "the connection is used again");
}

#[test]
fn a_body_that_is_not_wanted_is_not_waited_for_and_ends_the_connection() {
    for status in ["417 Expectation Failed", "413 Content Too Large"] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
        let upstream = Upstream::new(move |talk| {
            while talk.hear_head()?.is_some() {
                talk.say(&answer)?;
            }
            Ok(())
        });
        let bench = Bench::new(&[&upstream], json!({}));
        let mut client = bench.client();
        client.send(EXPECTS);
        let answer = client.answer();
        assert_eq!((&answer.status.to_string()[..], answer.text()), (&status[..3], "no"));
        // What comes now could be the body or the next request: nobody may guess.
        let _ = client.try_send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        client.ends();
        drop(client);
        bench.recorded(1);
        assert_eq!(upstream.heard().len(), 1);
    }
}

#[test]
fn old_clients_get_no_interim_answers() {
    let upstream = Upstream::saying(
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert!(answer.interim.is_empty() && answer.text() == "ok", "{answer:?}");
}

#[test]
fn after_101_bytes_go_both_ways_until_both_sides_have_ended() {
    let upstream = Upstream::new(|talk| {
        let heard = talk.hear()?.expect("a request comes");
        assert_eq!(heard.values("upgrade"), ["echo"]);
        assert_eq!(heard.values("connection"), ["upgrade"]);
        talk.say("HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi")?;
        let mut room = [0; 5];
        talk.wire.stream.read_exact(&mut room)?;
        talk.say(room)?;
        talk.wait_for_end();
        talk.say("bye")
    });
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    // Some of it is sent before the answer is there.
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhel");
    let answer = client.answer();
    assert_eq!((answer.status, answer.values("upgrade")), (101, vec!["echo"]));
    client.send("lo");
    client.finish();
    let (rest, _) = client.rest();
    assert_eq!(String::from_utf8_lossy(&rest), "hihellobye");
    let record = bench.recorded(1).remove(0);
    assert_eq!((record.status, record.bytes_in, record.bytes_out), (101, 5, 10));
}

#[test]
fn an_upstream_may_refuse_another_protocol_and_the_connection_goes_on() {
    let upstream = Upstream::plain();
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    for _ in 0..2 {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        assert_eq!(client.answer().text(), "/x");
    }
    drop(client);
    bench.recorded(2);
}
