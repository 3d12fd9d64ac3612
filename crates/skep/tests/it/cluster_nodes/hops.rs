//! Requests that say another node had forwarded them.

use super::kit::{NAMES, Trio, payloads};
use serde_json::{Value, json};
use skep_cluster::Secret;
use skep_cluster::forward::{Hops, RequestId};
use skep_policy::{Clock, Time};
use skep_store::WallClock;
use skep_testkit::http::Answer;
use std::sync::Arc;
use std::time::Duration;

const SECRET: &str = "correct horse battery staple";
const HOP: &str = "skep-hop";

/// A clock that is wrong by so much.
struct Wrong {
    behind: Duration,
    ahead: Duration,
}

impl Clock for Wrong {
    fn now(&self) -> Time {
        WallClock.now() + self.ahead - self.behind
    }
}

/// Makes headers as the node `a` does, if the secret and the clock are right.
fn forger(realm: &str, secret: Option<&str>, (behind, ahead): (u64, u64)) -> Hops {
    let (behind, ahead) = (Duration::from_secs(behind), Duration::from_secs(ahead));
    let secret = secret.map(|secret| Secret::new(secret).expect("is long enough"));
    let clock = Arc::new(Wrong { behind, ahead });
    let name = NAMES[0].parse().expect("is a name");
    Hops::new(name, realm, secret, clock, Duration::from_secs(30))
}

fn header_of(hops: &Hops, to: &str, method: &str, path: &str) -> String {
    let (to, method) = (to.parse().expect("a name"), method.parse().expect("a method"));
    let value = hops.make(&to, RequestId::mint(), None, &method, path);
    value.to_str().expect("is text").to_owned()
}

fn realm(trio: &Trio) -> String {
    let told = trio.get(0, "/api/v1/node").json();
    told["installation"].as_str().expect("has one").to_owned()
}

fn refused(trio: &Trio, reason: &str) -> u64 {
    trio.metric(1, &format!("skep_cluster_hops_refused_total{{reason=\"{reason}\"}}"))
}

/// Sends a request with these headers to `b`, which must refuse it and count that.
fn check_refused(trio: &Trio, headers: &[(&str, &str)], reason: &str) {
    let before = refused(trio, reason);
    let body = json!({ "items": [{ "queue": "forged", "payload": 1 }] }).to_string();
    let answer = trio.node(1).send("POST", "/api/v1/push", headers, Some(&body));
    let told = (answer.status, answer.json()["code"].clone());
    assert_eq!(told, (403, json!("E_HOP")), "{reason}: {}", answer.body);
    assert_eq!(refused(trio, reason), before + 1, "{reason}: it is counted");
}

fn push_with(trio: &Trio, header: &str, payload: &str) -> Answer {
    let body = json!({ "items": [{ "queue": "genuine", "payload": payload }] }).to_string();
    trio.node(1).send("POST", "/api/v1/push", &[(HOP, header)], Some(&body))
}

#[test]
fn forged_and_stale_hop_headers_are_refused_and_counted_and_genuine_ones_go_no_further() {
    let trio = Trio::start(&[&format!("cluster.secret={SECRET}")]);
    let realm = realm(&trio);
    let push = "/api/v1/push";
    let genuine = forger(&realm, Some(SECRET), (0, 0));
    let fits = || header_of(&genuine, "b", "POST", push);
    let with = |hops: &Hops| header_of(hops, "b", "POST", push);
    let spoiled = |at: usize, to: &str| {
        let mut header = fits();
        header.replace_range(at..=at, to);
        header
    };
    let end = fits().len() - 1;
    let last = if fits().ends_with('0') { "1" } else { "0" };
    let mut proof = fits();
    proof.truncate(end - 10);
    for (header, reason) in [
        ("nonsense".to_owned(), "malformed"),
        (format!("{} extra", fits()), "malformed"),
        ("x".repeat(600), "malformed"),
        (spoiled(0, "7"), "version"),
        (spoiled(2, "z"), "other-cluster"),
        (proof, "forged"),
        (header_of(&genuine, "c", "POST", push), "forged"),
        (header_of(&genuine, "b", "PUT", push), "forged"),
        (header_of(&genuine, "b", "POST", "/api/v1/ack"), "forged"),
        (with(&forger(&realm, Some(SECRET), (60, 0))), "stale"),
        (with(&forger(&realm, Some(SECRET), (0, 60))), "stale"),
        (with(&forger(&realm, Some("another secret of somebody"), (0, 0))), "other-cluster"),
        (with(&forger("another", Some(SECRET), (0, 0))), "other-cluster"),
        (with(&forger(&realm, None, (0, 0))), "other-cluster"),
    ] {
        check_refused(&trio, &[(HOP, &header)], reason);
    }
    let mut wrong = fits();
    wrong.replace_range(end.., if wrong.ends_with(last) { "f" } else { last });
    check_refused(&trio, &[(HOP, &wrong)], "forged");
    check_refused(&trio, &[(HOP, &fits()), (HOP, &fits())], "malformed");
    assert_eq!(trio.get(1, "/api/v1/resources/queues/forged").status, 404, "nothing was done");

    // A key of `a`, and `b` serves it nevertheless: at most one hop.
    let path = format!("/api/v1/pop/queue/{}?consumerGroup=g", trio.queue_of(0, "g"));
    let header = header_of(&genuine, "b", "GET", &path);
    let answer = trio.node(1).send("GET", &path, &[(HOP, &header)], None);
    assert_eq!((answer.status, answer.header("x-served-by")), (204, "b"), "{}", answer.body);
    assert_eq!(answer.header("x-forwarded-by"), "", "that is for the node that forwarded it");

    // What was seen on its way and is sent again is not done again.
    let header = fits();
    let [first, again] = ["one", "two"].map(|payload| push_with(&trio, &header, payload));
    assert_eq!((first.status, again.status), (201, 201), "{}", again.body);
    assert_eq!(first.json(), again.json());
    let all = "/api/v1/pop/queue/genuine?batch=9";
    assert_eq!(payloads(&trio.get(0, all)), ["one"]);
    // Nobody's breaker minds what strangers send.
    let healthy = |one: &Value| one["healthy"] == true;
    assert!((0..3).all(|other| healthy(&trio.server(1, other))));
}

#[test]
fn without_a_secret_this_machine_is_believed_and_still_nothing_malformed() {
    let trio = Trio::start(&[]);
    let hops = forger(&realm(&trio), None, (0, 0));
    let fits = header_of(&hops, "b", "POST", "/api/v1/push");
    assert_eq!(push_with(&trio, &fits, "one").status, 201);
    check_refused(&trio, &[(HOP, "1 2 3")], "malformed");
    let header = header_of(&forger("another", None, (0, 0)), "b", "POST", "/api/v1/push");
    check_refused(&trio, &[(HOP, &header)], "other-cluster");
    let header = header_of(&forger(&realm(&trio), None, (60, 0)), "b", "POST", "/api/v1/push");
    check_refused(&trio, &[(HOP, &header)], "stale");
}

#[test]
fn a_pop_of_another_node_needs_its_clients_key_and_a_hop_stands_in_for_none() {
    let trio = Trio::start(&[&format!("cluster.secret={SECRET}")]);
    let realm = realm(&trio);
    let genuine = forger(&realm, Some(SECRET), (0, 0));
    let path = format!("/api/v1/pop/queue/{}?consumerGroup=g", trio.queue_of(1, "g"));
    let send = |hop: &str, key: Option<&str>| {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = vec![(HOP, hop)];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let answer = trio.node(1).send("GET", &path, &headers, None);
        let code = match answer.status {
            204 => Value::Null,
            _ => answer.json()["code"].clone(),
        };
        // A node that asks sets what browsers go by itself; whoever only says to be one gets it.
        let set = !answer.header("content-security-policy").is_empty();
        assert_eq!(set, code == "E_HOP", "{code}");
        (answer.status, code)
    };
    let pop = |key: Option<&str>| send(&header_of(&genuine, "b", "GET", &path), key);
    assert_eq!(pop(None), (204, Value::Null), "nobody has made a key yet");
    let mut admin = None;
    let mut make = |scopes: &str| {
        let body = json!({ "name": scopes, "scopes": [scopes] }).to_string();
        let bearer = admin.as_ref().map(|admin| format!("Bearer {admin}"));
        let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", &**bearer)).collect();
        let made = trio.node(1).send("POST", "/api/v1/keys", &headers, Some(&body));
        assert_eq!(made.status, 201, "{}", made.body);
        let secret = made.json()["secret"].as_str().expect("a key").to_owned();
        admin.get_or_insert_with(|| secret.clone());
        secret
    };
    let (_, popper, pusher) = (make("admin"), make("pop"), make("push"));
    assert_eq!(pop(None), (401, json!("E_KEY_MISSING")));
    assert_eq!(pop(Some("skep_nonsense")), (401, json!("E_KEY_WRONG")));
    assert_eq!(pop(Some(&pusher)), (403, json!("E_SCOPE")));
    assert_eq!(pop(Some(&popper)), (204, Value::Null));
    let forged = header_of(&forger(&realm, None, (0, 0)), "b", "GET", &path);
    assert_eq!(send(&forged, Some(&popper)), (403, json!("E_HOP")));
}
