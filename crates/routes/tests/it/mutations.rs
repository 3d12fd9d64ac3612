//! Requests that are nearly right. Whatever gets through is read by an upstream as the proxy read
//! it: the upstream's own, simple parser finds the same requests that clients get answers for.

use crate::dice::Dice;
use crate::kit::{Bench, Upstream, Wire};
use serde_json::json;
use skep_routes::ProxyOptions;
use std::time::Duration;

const CASES: u64 = 1_600;
/// Proxies that are asked at the same time, each for its part of the cases.
const PARTS: u64 = 4;

const GOOD: [&str; 6] = [
    "GET /a?b HTTP/1.1\r\nHost: a.test\r\nX: y\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\nhello world",
    "POST /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
     5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n",
    "PUT /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
    "GET http://a.test/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "HEAD /a HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
];

const ODD: [&str; 22] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "0",
    "5",
    "f",
    "\u{e4}",
    "\r\n\r\n",
    "\r\nContent-Length: 5",
    "\r\nTransfer-Encoding: chunked",
    "\r\n x",
    "chunked",
    "HTTP/1.0",
    "0\r\n\r\n",
    "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "\r\nHost: b.test",
];

fn mutate(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = GOOD[dice.below(GOOD.len())].as_bytes().to_vec();
    for _ in 0..1 + dice.below(3) {
        let at = dice.below(bytes.len() + 1);
        let end = (at + dice.below(4)).min(bytes.len());
        match dice.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            2 => {
                let copy = bytes[at..(at + dice.below(40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let odd = ODD[dice.below(ODD.len())];
                bytes.splice(at..end, odd.bytes());
            }
        }
    }
    bytes
}

/// All answers on a connection: their statuses, and which of them an upstream gave.
fn answers(client: &mut Wire) -> Vec<(u16, Option<String>)> {
    let mut all = Vec::new();
    loop {
        // Answers to HEAD have no body and say so, so that nobody need know which they are.
        let Ok(head) = client.head() else { return all };
        let Some(head) = head else { return all };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let field = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
            line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned())
        };
        let own = field("x-number");
        all.push((status.expect("is a status"), own.clone()));
        if own.is_none() {
            client.rest();
            return all;
        }
    }
}

#[test]
fn what_is_nearly_a_request_is_read_in_one_way_or_refused() {
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            scope.spawn(move || check((part..CASES).step_by(PARTS as usize)));
        }
    });
}

fn check(seeds: impl Iterator<Item = u64>) {
    let upstream = Upstream::new(|talk| {
        while let Some(heard) = talk.hear()? {
            let id = heard.values("x-request-id")[0].to_owned();
            talk.say(format!("HTTP/1.1 204 No Content\r\nX-Number: {id}\r\n\r\n"))?;
        }
        Ok(())
    });
    let short = Duration::from_millis(100);
    let options = ProxyOptions { head_limit: short, ..ProxyOptions::default() };
    let more =
        json!({ "host": "*.test", "retry": { "tries": 0 }, "timeouts": { "send": "100ms" } });
    let bench = Bench::with(options, &[&upstream], more);
    for seed in seeds {
        let bytes = mutate(&mut Dice(seed));
        let before = (upstream.heard().len(), bench.records().len());
        let mut client = bench.client();
        // Whoever has not refused by then has something that it knows to be the end.
        let end = b"GET /end HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
        let _ = client.try_send([&bytes, &end[..]].concat());
        let answers = answers(&mut client);
        drop(client);
        bench.settle();
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let records = bench.records().split_off(before.1);
        let asked: Vec<_> = records.iter().filter(|one| one.upstream.is_some()).collect();
        let heard = upstream.heard_in_the_end(before.0, asked.len());
        // What the upstream heard is what the proxy wrote down, in order.
        assert_eq!(heard.len(), asked.len(), "seed {seed}: {shown:?}");
        for (one, record) in heard.iter().zip(asked) {
            assert_eq!(one.values("x-request-id"), [&*record.request_id], "seed {seed}: {shown:?}");
            assert_eq!(one.method(), record.method, "seed {seed}: {shown:?}");
            let whole = one.whole || record.status != 204;
            assert!(whole, "seed {seed}: {shown:?}: what is answered was whole");
            let same = !one.whole || one.body.len() as u64 == record.bytes_in;
            assert!(same, "seed {seed}: {shown:?}: {one:?} {record:?}");
        }
        for (status, own) in answers {
            let known = records.iter().any(|one| {
                one.status == status && own.as_ref().is_none_or(|own| **own == *one.request_id)
            });
            assert!(known || status == 404, "seed {seed}: {status} {shown:?} {records:?}");
        }
    }
}
