//! Bodies that are nearly right. Whatever comes of one, the node answers as the API says, and what
//! it says was kept is there.

use super::kit::Bench;
use serde_json::Value;
use std::time::{Duration, Instant};

/// So long at most; the seeds go on from where they begin.
const TIME: Duration = Duration::from_secs(8);
const CASES: u64 = 3_000;

const GOOD: [(&str, &str); 9] = [
    (
        "/api/v1/push",
        r#"{"items":[{"queue":"q","partition":"p","payload":{"a":[1,2.5e3,"x",null]},
            "transactionId":"t1","traceId":"2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f"},
            {"queue":"q","payload":"é\u00e9\ud83d\ude00"}]}"#,
    ),
    ("/api/v1/push", r#"{"items":[]}"#),
    (
        "/api/v1/ack",
        r#"{"transactionId":"t1","partitionId":"2c7e4bd1-9e4b-8f7d-8d7d-9a3d1c2b3a4f",
            "status":"completed","error":null,"consumerGroup":null,"leaseId":"x"}"#,
    ),
    (
        "/api/v1/ack/batch",
        r#"{"acknowledgments":[{"transactionId":"t1","partitionId":"p","status":"failed",
            "error":"no"}],"consumerGroup":"g"}"#,
    ),
    (
        "/api/v1/transaction",
        r#"{"operations":[{"type":"push","items":[{"queue":"q","payload":1}]},
            {"type":"ack","transactionId":"t1","partitionId":"p","status":"dlq"}],
            "requiredLeases":["l"]}"#,
    ),
    (
        "/api/v1/configure",
        r#"{"queue":"q","namespace":null,"task":"t","options":{"leaseTime":300,"ttl":60,
            "maxSize":1000000,"retentionEnabled":false},"mode":"merge"}"#,
    ),
    ("/api/v1/lease/2c7e4bd1-9e4b-4f7d-8d7d-9a3d1c2b3a4f/extend", r#"{"seconds":60}"#),
    ("/api/v1/consumer-groups/g/queues/q/seek", r#"{"timestamp":"2026-01-31T12:00:00Z"}"#),
    ("/api/v1/consumer-groups/g/queues/q/partitions/p/seek", r#"{"toEnd":true}"#),
];

const ODD: [&str; 26] = [
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{e9}",
    "\u{1f600}",
    "{}",
    "[]",
    "\"\"",
    "\"queue\":",
    "\"items\":",
    "18446744073709551616",
    " ",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// A body that is nearly one of the good ones, and where it goes.
fn mutate(seed: u64) -> (&'static str, String) {
    let mut dice = Dice(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let (path, body) = GOOD[dice.below(GOOD.len())];
    let mut letters: Vec<char> = body.chars().collect();
    for _ in 0..1 + dice.below(3) {
        let at = dice.below(letters.len() + 1);
        let end = (at + dice.below(5)).min(letters.len());
        match dice.below(4) {
            0 => drop(letters.drain(at..end)),
            1 => {
                let copy: Vec<char> =
                    letters[at..(at + dice.below(60)).min(letters.len())].to_vec();
                letters.splice(at..at, copy);
            }
            2 => letters.truncate(at.max(1)),
            _ => drop(letters.splice(at..end, ODD[dice.below(ODD.len())].chars())),
        }
    }
    (path, letters.into_iter().collect())
}

#[test]
fn what_is_nearly_a_request_is_read_as_json_or_refused_and_never_half_done() {
    let bench = Bench::embedded(&["log.access=false"]);
    let mut kept = 0;
    let started = Instant::now();
    for seed in (0..CASES).take_while(|_| started.elapsed() < TIME) {
        let (path, body) = mutate(seed);
        let answer = bench.node.send("POST", path, &[], Some(&body));
        let shown = || format!("seed {seed}: {path} {body:?}\n{} {}", answer.status, answer.body);
        let allowed = [200, 201, 400, 404, 429, 501];
        assert!(allowed.contains(&answer.status), "{}", shown());
        let said = answer.json();
        if answer.status >= 400 {
            let explained = said["error"].is_string() && said["code"].is_string();
            assert!(explained, "{}", shown());
        }
        // Another reader of JSON agrees about what is JSON at all. It keeps no payloads raw, so it
        // is stricter about halves of pairs and about numbers that are too large.
        let other = serde_json::from_str::<Value>(&body);
        if let Err(error) = &other
            && (error.is_eof() || error.is_syntax())
            && !error.to_string().contains("surrogate")
            && !error.to_string().contains("number out of range")
            && !error.to_string().contains("recursion limit")
            && !error.to_string().contains("hex escape")
        {
            assert_eq!(answer.status, 400, "{}", shown());
        }
        if path == "/api/v1/push" && answer.status == 201 {
            let results = said.as_array().expect("a list");
            let of_queue = |one: &&Value| one["status"] == "queued" && one["queueName"] == "q";
            kept += results.iter().filter(of_queue).count() as u64;
        }
        if path == "/api/v1/transaction" && said["success"] == true {
            let results = said["results"].as_array().expect("a list");
            let fresh = |one: &&Value| one["duplicate"] == false && one["queueName"] == "q";
            kept += results.iter().filter(fresh).count() as u64;
        }
    }
    let shown = bench.get("/api/v1/resources/queues/q?partitions=1000").json();
    let partitions = shown["partitions"].as_array().expect("a list");
    let pushed: u64 = partitions.iter().filter_map(|one| one["pushed"].as_u64()).sum();
    assert_eq!(pushed, kept, "{shown}");
    assert!(kept > 10, "the mutations leave something right");
    assert_eq!(bench.get("/health").status, 200);
    assert!(!bench.node.process().log().contains("panicked"));
}
