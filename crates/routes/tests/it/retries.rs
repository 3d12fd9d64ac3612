//! What is sent again, and what never is.

use crate::kit::{Bench, Upstream};
use serde_json::json;
use skep_routes::ProxyOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

/// Reads the request and breaks the connection.
fn breaking() -> Upstream {
    Upstream::new(|talk| {
        talk.hear()?;
        talk.reset()
    })
}

fn heard(upstreams: &[&Upstream]) -> usize {
    upstreams.iter().map(|one| one.heard().len()).sum()
}

#[test]
fn what_only_reads_is_sent_again_and_what_changes_something_is_not() {
    let (one, two) = (breaking(), breaking());
    let bench = Bench::new(&[&one, &two], json!({}));
    let mut client = bench.client();
    client.send(POST);
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (502, "E_UPSTREAM_BROKE"));
    assert_eq!(heard(&[&one, &two]), 1, "a POST goes out once");
    let mut client = bench.client();
    client.send(GET);
    assert_eq!(client.answer().status, 502);
    assert_eq!(heard(&[&one, &two]), 4, "a GET has three tries");
    drop(client);
    let tries: Vec<_> = bench.recorded(2).iter().map(|one| one.tries).collect();
    assert_eq!((tries, bench.retries()), (vec![1, 3], 2));
}

#[test]
fn somebody_else_is_asked_if_one_hangs_breaks_or_is_not_there() {
    let good = Upstream::plain();
    let hanging = Upstream::new(|talk| {
        talk.hear()?;
        talk.wait_for_end();
        Ok(())
    });
    let (breaking, nobody) = (breaking(), Upstream::nobody());
    for bad in [hanging.address, breaking.address, nobody] {
        let times = json!({ "timeouts": { "head": "300ms" } });
        let bench = Bench::to(ProxyOptions::default(), &[bad, good.address], times);
        for _ in 0..4 {
            let mut client = bench.client();
            client.send(GET);
            assert_eq!(client.answer().status, 200, "{}", bench.told());
        }
        assert!(bench.recorded(4).iter().any(|one| one.tries == 2), "the bad one was asked");
    }
}

/// Answers while it is well, and breaks connections while it is not.
fn moody(is_well: &Arc<AtomicBool>) -> Upstream {
    let is_well = Arc::clone(is_well);
    Upstream::new(move |talk| {
        talk.hear()?;
        if !is_well.load(Ordering::SeqCst) {
            return talk.reset();
        }
        talk.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    })
}

#[test]
fn one_that_is_out_is_asked_before_the_same_one_again() {
    let well = [false, true].map(|is_well| Arc::new(AtomicBool::new(is_well)));
    let upstreams = [moody(&well[0]), moody(&well[1])];
    let retry = json!({ "retry": { "tries": 1, "budget": 1.0 } });
    let bench = Bench::new(&[&upstreams[0], &upstreams[1]], retry);
    let get = || {
        let mut client = bench.client();
        client.send(GET);
        client.answer().status
    };
    let mut requests = 0;
    while bench.standing(&upstreams[0]) != "out" {
        assert_eq!(get(), 200, "{}", bench.told());
        requests += 1;
        assert!(requests < 100, "it goes out");
    }
    // Now the one that is out is back, and the other one breaks.
    well[0].store(true, Ordering::SeqCst);
    well[1].store(false, Ordering::SeqCst);
    assert_eq!(get(), 200, "{}", bench.told());
    let records = bench.recorded(requests + 1);
    assert_eq!(records.last().map(|one| one.tries), Some(2), "the serving one came first");
}

#[test]
fn what_was_not_sent_at_all_is_sent_elsewhere_whatever_it_is() {
    let good = Upstream::plain();
    let addresses = [Upstream::nobody(), good.address];
    let bench = Bench::to(ProxyOptions::default(), &addresses, json!({}));
    for _ in 0..4 {
        let mut client = bench.client();
        client.send(POST);
        assert_eq!(client.answer().status, 200);
    }
    assert!(bench.recorded(4).iter().any(|one| one.tries == 2));
    assert_eq!(good.heard().len(), 4);
    assert!(good.heard().iter().all(|one| one.body == b"hello"));
}

#[test]
fn nobody_there_is_a_problem_that_says_so() {
    let addresses = [Upstream::nobody(), Upstream::nobody()];
    let bench = Bench::to(ProxyOptions::default(), &addresses, json!({}));
    let mut client = bench.client();
    client.send(GET);
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (502, "E_UPSTREAM_AWAY"));
    assert_eq!(answer.values("content-type"), ["application/problem+json"]);
    client.send(GET);
    client.answer();
    drop(client);
    bench.recorded(2);
}

#[test]
fn a_bad_status_is_asked_for_elsewhere_and_passed_on_if_nobody_is_better() {
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nX-Own: 1\r\n\r\nbusy";
    let (bad, good) = (Upstream::saying(busy), Upstream::plain());
    let bench = Bench::new(&[&bad, &good], json!({}));
    for _ in 0..4 {
        let mut client = bench.client();
        client.send(GET);
        assert_eq!(client.answer().status, 200);
    }
    assert!(!bad.heard().is_empty(), "it was asked too");
    bench.recorded(4);
    let worse = Upstream::saying(busy);
    let bench = Bench::new(&[&bad, &worse], json!({}));
    for request in [GET, POST] {
        let mut client = bench.client();
        client.send(request);
        let answer = client.answer();
        let own = answer.values("x-own");
        assert_eq!((answer.status, answer.text(), own), (503, "busy", vec!["1"]));
    }
    let tries: Vec<_> = bench.recorded(2).iter().map(|one| one.tries).collect();
    assert_eq!(tries, [2, 1], "each was asked once");
}

#[test]
fn retries_stay_within_their_budget() {
    let (one, two) = (breaking(), breaking());
    let bench = Bench::new(&[&one, &two], json!({ "retry": { "tries": 10, "budget": 0.0 } }));
    let begun = std::time::Instant::now();
    for _ in 0..60 {
        let mut client = bench.client();
        client.send(GET);
        let status = client.answer().status;
        assert!(matches!(status, 502 | 503), "{status}");
    }
    bench.recorded(60);
    // Ten in the first moment, and ten more for each second that it took.
    let most = 11 + 10 * (begun.elapsed().as_secs() + 1);
    assert!(bench.retries() <= most, "{} of {most}", bench.retries());
    assert!(heard(&[&one, &two]) as u64 <= 60 + bench.retries());
}

#[test]
fn a_connection_that_was_closed_meanwhile_fails_no_get_and_repeats_no_post() {
    // Serves one request a connection without saying so, and hangs up at the next.
    let upstream = Upstream::new(|talk| {
        talk.hear()?;
        talk.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        talk.hear()?;
        Ok(())
    });
    let bench = Bench::new(&[&upstream], json!({ "retry": { "tries": 0 } }));
    let mut client = bench.client();
    for _ in 0..3 {
        client.send(GET);
        assert_eq!(client.answer().status, 200);
    }
    let before = upstream.heard().len();
    client.send(POST);
    assert_eq!(client.answer().status, 502, "it may have been seen");
    assert_eq!(upstream.heard().len(), before + 1, "and is not sent again");
    drop(client);
    let records = bench.recorded(4);
    assert!(records[..3].iter().all(|one| one.tries == 1), "{records:?}");
}

#[test]
fn a_body_in_chunks_that_has_begun_is_not_begun_again() {
    let (one, two) = (breaking_at_the_head(), breaking_at_the_head());
    let bench = Bench::new(&[&one, &two], json!({ "timeouts": { "send": "2s" } }));
    for body in ["5\r\n", "0\r\n\r\n", "0"] {
        let before = heard(&[&one, &two]);
        let mut client = bench.client();
        client
            .send(format!("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let answer = client.answer();
        assert_eq!(answer.status, 502, "{body:?}: {answer:?}");
        client.ends();
        assert_eq!(heard(&[&one, &two]), before + 1, "{body:?}");
    }
    bench.recorded(3);
}

/// Breaks the connection when the beginning of the body has come.
fn breaking_at_the_head() -> Upstream {
    Upstream::new(|talk| {
        talk.hear_head()?;
        talk.reset()
    })
}
