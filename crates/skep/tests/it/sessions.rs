//! Sessions through real gateways to real sockets: who gets which worker, and what is left when
//! somebody dies.

use crate::common::{skep, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep_testkit::{EchoWorker, Folder, Mood, Node, Postgres, Redis, WebSocket};
use std::time::{Duration, Instant};

const WORKERS: &str = "/api/v1/sessions/workers";

/// A node with what it needs, with short spans.
struct Installation {
    folder: Folder,
    arguments: Vec<String>,
}

impl Installation {
    fn embedded() -> Self {
        Installation { folder: Folder::new("sessions"), arguments: Vec::new() }
    }

    fn shared(database: &str, coordination: Option<&str>) -> Self {
        let mut arguments = vec!["--database".to_owned(), database.to_owned()];
        if let Some(redis) = coordination {
            arguments.extend(["--coordination".to_owned(), redis.to_owned()]);
        }
        Installation { arguments, ..Installation::embedded() }
    }

    fn start(&self, name: &str, more: &[&str]) -> Node {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let set_name = format!("node.name={name}");
        let spans = ["sessions.gateway_ttl=2s", "log.access=false", "sessions.wait_max=10s"];
        for setting in spans.iter().copied().chain([set_name.as_str()]).chain(more.iter().copied())
        {
            arguments.extend(["--set", setting]);
        }
        Node::start(skep(), &self.folder.path().join(name), &arguments)
    }
}

fn register(node: &Node, name: &str, worker: &EchoWorker, more: Value) -> u64 {
    let mut body = json!({ "name": name, "kind": "chromium", "url": worker.url(), "start": "1" });
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    let answer = post(node, WORKERS, &body);
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1["incarnation"].as_u64().expect("a number")
}

fn post(node: &Node, path: &str, body: &Value) -> (u16, Value) {
    let json = [("content-type", "application/json")];
    let answer = node.send("POST", path, &json, Some(&body.to_string()));
    let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    (answer.status, body)
}

fn heartbeat(node: &Node, name: &str, incarnation: u64, phase: &str) -> Value {
    let path = format!("{WORKERS}/{name}/heartbeat");
    post(node, &path, &json!({ "incarnation": incarnation, "phase": phase })).1
}

fn worker(node: &Node, name: &str) -> Value {
    node.get(&format!("{WORKERS}/{name}")).json()
}

fn active(node: &Node, name: &str) -> u64 {
    worker(node, name)["active"].as_u64().unwrap_or(u64::MAX)
}

fn open_sessions(node: &Node) -> usize {
    node.get("/api/v1/sessions").json()["sessions"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_session_is_carried_counted_explained_and_gone() {
    let node = Installation::embedded().start("a", &[]);
    let echo = EchoWorker::start();
    register(&node, "one", &echo, json!({ "labels": ["eu"], "version": "1.62.1" }));
    let agent = [("User-Agent", "Playwright/1.62.0 (x64; linux)")];
    let mut session = WebSocket::connect(node.gateway(), "/?label=eu&own=1", &agent);
    assert_eq!(session.status(), 101, "{}", session.head());
    assert!(session.echoes("hello"));
    let id = session.session().expect("the answer names the session");
    let shown = node.get(&format!("/api/v1/sessions/{id}")).json();
    assert_eq!((&shown["worker"], &shown["state"]), (&json!("one"), &json!("open")));
    assert_eq!(worker(&node, "one")["lifetime"], 1);
    let head = &echo.heads()[0];
    assert!(head.starts_with("GET /echo?own=1 "), "ours is stripped: {head}");
    assert!(head.to_ascii_lowercase().contains(&format!("x-skep-session: {id}")), "{head}");

    let overview = node.get("/api/v1/sessions/overview").json();
    let choice = &overview["choices"][0];
    assert_eq!(choice["worker"], "one");
    assert_eq!(choice["reason"]["rule"], "least-loaded-then-highest-lifetime");
    drop(session);
    until("the slot is free again", || active(&node, "one") == 0 && open_sessions(&node) == 0);
    assert_eq!(worker(&node, "one")["lifetime"], 1);
    assert_eq!(node.get(&format!("/api/v1/sessions/{id}")).status, 404);
}

#[test]
fn what_cannot_be_had_is_refused_at_once_with_the_reason() {
    let node = Installation::embedded().start("a", &["sessions.wait_max=200ms"]);
    let refusal = |path: &str| {
        let refused = WebSocket::connect(node.gateway(), path, &[]);
        (refused.status(), refused.refusal())
    };
    let (status, body) = refusal("/");
    assert_eq!((status, &body["code"]), (503, &json!("E_WORKERS_NONE")));
    let echo = EchoWorker::start();
    register(&node, "one", &echo, json!({ "slots": 1, "version": "1.62.1" }));
    let begun = Instant::now();
    let (status, body) = refusal("/?version=1.65");
    assert_eq!((status, &body["code"]), (404, &json!("E_WORKERS_UNFIT")));
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("version 1.65") && detail.contains("version 1.62"), "{detail}");
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody waited for it");
    assert_eq!(refusal("/?kind=firefox").1["code"], "E_WORKERS_NONE");
    assert_eq!(refusal("/?kind=a%20b").0, 400);
    let _taken = WebSocket::connect(node.gateway(), "/", &[]);
    let refused = WebSocket::connect(node.gateway(), "/", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.head().contains("retry-after:"), "{}", refused.head());
    assert_eq!(refused.refusal()["code"], "E_WORKERS_BUSY");
    let plain = skep_testkit::http::get(&format!("http://{}/", node.gateway())).expect("answers");
    assert_eq!(plain.status, 426);
    let room = skep_testkit::http::get(&format!("http://{}/v1/capacity", node.gateway()));
    assert_eq!(room.expect("answers").json()["kinds"][0]["free"], 0);
}

#[test]
fn a_wrong_registration_names_the_field_and_what_would_be_right() {
    let node = Installation::embedded().start("a", &[]);
    let good = json!({ "name": "n", "kind": "k", "url": "ws://127.0.0.1:1/", "start": "s" });
    for (field, value, told) in [
        ("name", json!("a b"), "name: \"a b\" is not allowed"),
        ("kind", json!(""), "kind: \"\" is not allowed"),
        ("url", json!("wss://h:1/"), "without TLS"),
        ("slots", json!(0), "slots: \"0\" is not allowed; give 1 to 1000000"),
        ("labels", json!(["a b"]), "labels: \"a b\" is not allowed"),
        ("version", json!("new"), "version: \"new\" is not allowed; give a version such as 1.62.1"),
        ("start", json!(""), "start: \"\" is not allowed"),
        ("wrong", json!(1), "unknown field `wrong`"),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let (status, answer) = post(&node, WORKERS, &body);
        assert!((400..=422).contains(&status), "{field}: {status} {answer}");
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(told), "{field}: {detail}");
    }
    let none = node.get(WORKERS).json();
    assert_eq!(none["workers"], json!([]), "nothing was half-applied");
    assert_eq!(post(&node, &format!("{WORKERS}/x/heartbeat"), &json!({})).0, 400);
    let beat = json!({ "incarnation": 1, "phase": "serving" });
    assert_eq!(post(&node, &format!("{WORKERS}/x/heartbeat"), &beat).1["code"], "E_WORKER_UNKNOWN");
}

#[test]
fn workers_cannot_invent_kinds_without_end() {
    let node = Installation::embedded().start("a", &[]);
    let register = |number: usize| {
        let body = json!({ "name": "one", "kind": format!("k{number}"), "start": "1",
                           "url": "ws://127.0.0.1:1/" });
        post(&node, WORKERS, &body)
    };
    for number in 0..skep_sessions::KINDS_MAX {
        assert_eq!(register(number).0, 200);
    }
    let (status, answer) = register(skep_sessions::KINDS_MAX);
    assert_eq!((status, &answer["code"]), (400, &json!("E_WORKER_INVALID")));
    assert_eq!(register(0).0, 200, "those there are can be used");
}

#[test]
fn a_waiting_session_gets_the_first_slot_and_an_operator_can_end_and_drain() {
    let node = Installation::embedded().start("a", &[]);
    let echo = EchoWorker::start();
    register(&node, "one", &echo, json!({ "slots": 1 }));
    let mut first = WebSocket::connect(node.gateway(), "/", &[]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| WebSocket::connect(node.gateway(), "/", &[]));
        until("it waits", || {
            node.get("/api/v1/sessions?state=waiting").json()["sessions"][0]["state"] == "waiting"
        });
        let id = first.session().expect("has one");
        assert_eq!(node.send("DELETE", &format!("/api/v1/sessions/{id}"), &[], None).status, 204);
        first.wait_for_end();
        let mut second = waiting.join().expect("connects");
        assert_eq!(second.status(), 101);
        assert!(second.echoes("at last"));
        // The worker itself may notice the end of the first after the second has begun.
        assert_eq!(active(&node, "one"), 1, "never two at once");

        let drain = format!("{WORKERS}/one/drain");
        assert_eq!(node.send("POST", &drain, &[], None).status, 204);
        assert_eq!(worker(&node, "one")["standing"], "drained");
        assert!(second.echoes("still here"), "what it has goes on");
    });
}

#[test]
fn a_worker_that_fails_or_says_nothing_costs_no_client_anything() {
    let node = Installation::embedded().start("a", &["sessions.slots=100"]);
    let workers: Vec<EchoWorker> = (0..3).map(|_| EchoWorker::start()).collect();
    for (number, echo) in workers.iter().enumerate() {
        register(&node, &format!("w{number}"), echo, json!({}));
    }
    workers[0].set_mood(Mood::Mute);
    workers[1].set_mood(Mood::Failing);
    for round in 0..20 {
        let mut session = WebSocket::connect(node.gateway(), "/", &[]);
        assert_eq!(session.status(), 101, "round {round}");
        assert!(session.echoes("served"), "round {round}");
    }
    assert_eq!(workers[2].served(), 20);
    for name in ["w0", "w1"] {
        until("it is suspect and nothing counts", || {
            let row = worker(&node, name);
            row["standing"] == "suspect" && row["active"] == 0 && row["lifetime"] == 0
        });
    }
    workers[0].set_mood(Mood::Well);
    until("a good probe brings it back", || worker(&node, "w0")["standing"] == "ready");
    workers[2].die();
    until("the dead one is not chosen again", || {
        let mut session = WebSocket::connect(node.gateway(), "/", &[]);
        assert_eq!(session.status(), 101);
        session.echoes("x") && worker(&node, "w2")["standing"] == "suspect"
    });
}

#[test]
fn a_token_lets_a_client_in_and_is_neither_forwarded_nor_logged() {
    let folder = Folder::new("sessions-keys");
    let data = folder.path().join("data");
    let key = |scopes: &str| {
        let data = data.to_str().expect("is text");
        let arguments = ["keys", "create", "--data", data, "--name", "k", "--scopes", scopes];
        let (ended, log) = crate::common::run(folder.path(), &arguments);
        assert_eq!(ended.code, 0, "{log}");
        let found = log.split_whitespace().find(|word| word.starts_with("skep_k"));
        found.unwrap_or_else(|| panic!("{log}")).to_owned()
    };
    let (worker_key, session_key, read_key) = (key("worker"), key("session"), key("read"));
    let node = Node::start(skep(), &data, &["--set", "sessions.per_key_max=1"]);
    let echo = EchoWorker::start();
    let body = json!({ "name": "w", "kind": "chromium", "url": echo.url(), "start": "1" });
    let bearer = format!("Bearer {worker_key}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    assert_eq!(node.send("POST", WORKERS, &headers, Some(&body.to_string())).status, 200);

    let code = |path: &str| WebSocket::connect(node.gateway(), path, &[]).refusal()["code"].clone();
    assert_eq!(code("/"), "E_KEY_MISSING");
    assert_eq!(code("/?token=skep_wrong"), "E_KEY_WRONG");
    assert_eq!(code(&format!("/?token={read_key}")), "E_SCOPE");
    let mut session = WebSocket::connect(node.gateway(), &format!("/?token={session_key}"), &[]);
    assert_eq!(session.status(), 101, "{}", session.head());
    assert!(session.echoes("in"));
    let bearer = format!("Bearer {session_key}");
    let second = WebSocket::connect(node.gateway(), "/", &[("Authorization", &bearer)]);
    assert_eq!(
        (second.status(), second.refusal()["code"].clone()),
        (429, json!("E_SESSIONS_PER_KEY"))
    );
    let heads = echo.heads().join("\n");
    assert!(!heads.contains(&session_key) && !heads.contains("token"), "{heads}");
    let log = node.process().log();
    assert!(!log.contains(&session_key), "{log}");
}

#[test]
fn a_page_of_another_site_cannot_use_the_trust_in_this_machine() {
    let node = Installation::embedded().start("a", &[]);
    let echo = EchoWorker::start();
    register(&node, "one", &echo, json!({}));
    let evil = [("Origin", "https://evil.example")];
    let refused = WebSocket::connect(node.gateway(), "/", &evil);
    assert_eq!((refused.status(), refused.refusal()["code"].clone()), (403, json!("E_CROSS_SITE")));
}

#[test]
fn a_stopping_gateway_takes_nothing_new_and_lets_sessions_end() {
    let node = Installation::embedded().start("a", &[]);
    let echo = EchoWorker::start();
    register(&node, "one", &echo, json!({}));
    let mut session = WebSocket::connect(node.gateway(), "/", &[]);
    assert!(session.echoes("before"));
    node.process().signal(Signal::TERM);
    node.process().wait_for_line("stopping");
    assert!(session.echoes("after"));
    drop(session);
    assert_eq!(node.process().wait().code, 0);
}

/// Two gateways over shared stores: one is killed with sessions open, one worker dies, and in the
/// end every count is right.
fn two_gateways_one_dies(installation: &Installation) {
    let (a, b) = (installation.start("a", &[]), installation.start("b", &[]));
    let (one, two) = (EchoWorker::start(), EchoWorker::start());
    let incarnation = register(&a, "one", &one, json!({ "slots": 2 }));
    register(&b, "two", &two, json!({ "slots": 2 }));
    let mut of_a: Vec<WebSocket> =
        (0..2).map(|_| WebSocket::connect(a.gateway(), "/", &[])).collect();
    let mut of_b: Vec<WebSocket> =
        (0..2).map(|_| WebSocket::connect(b.gateway(), "/", &[])).collect();
    for session in of_a.iter_mut().chain(&mut of_b) {
        assert!(session.echoes("all four slots are taken"), "{}", session.head());
    }
    assert_eq!((one.open(), two.open()), (2, 2), "spread over both workers");
    assert_eq!((active(&b, "one"), active(&b, "two")), (2, 2));

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| WebSocket::connect(b.gateway(), "/", &[]));
        until("it waits on the other gateway", || {
            b.get("/api/v1/sessions?state=waiting").json()["sessions"][0]["node"] == "b"
        });
        a.process().signal(Signal::KILL);
        let mut third = waiting.join().expect("connects");
        assert_eq!(third.status(), 101, "a dead gateway's slot is given to who waits");
        assert!(third.echoes("taken over"));
        until("the dead gateway's sessions are gone, once", || open_sessions(&b) == 3);
        assert_eq!(active(&b, "one") + active(&b, "two"), 3);
        assert!(one.most() <= 2 && two.most() <= 2, "no worker ever had more than its slots");
        drop(third);
    });
    heartbeat(&b, "one", incarnation, "down");
    for session in &mut of_b {
        let on_one = b.get("/api/v1/sessions?worker=one").json();
        let id = session.session().unwrap_or_default();
        let ids = on_one["sessions"].as_array().cloned().unwrap_or_default();
        if ids.iter().any(|one| one["id"] == id.as_str()) {
            session.wait_for_end();
        }
    }
    until("sessions of a crashed worker end", || active(&b, "one") == 0);
    drop(of_b);
    until("nothing is left", || open_sessions(&b) == 0 && active(&b, "two") == 0);
}

#[test]
fn two_gateways_on_one_redis() {
    let (database, redis) = (Postgres::shared().database(), Redis::start());
    two_gateways_one_dies(&Installation::shared(&database.url(), Some(&redis.url())));
}

#[test]
fn two_gateways_on_one_postgres() {
    let database = Postgres::shared().database();
    two_gateways_one_dies(&Installation::shared(&database.url(), None));
}

#[test]
fn sessions_outlive_a_redis_that_forgets_everything_and_are_counted_again() {
    let (database, redis) = (Postgres::shared().database(), Redis::start());
    let installation = Installation::shared(&database.url(), Some(&redis.url()));
    let (a, b) = (installation.start("a", &[]), installation.start("b", &[]));
    let echo = EchoWorker::start();
    register(&a, "one", &echo, json!({ "slots": 3 }));
    let mut sessions =
        vec![WebSocket::connect(a.gateway(), "/", &[]), WebSocket::connect(b.gateway(), "/", &[])];
    redis.command("FLUSHALL").expect("flushes");
    until("the worker is not known any more", || {
        let beat = json!({ "incarnation": 1, "phase": "serving" });
        post(&a, &format!("{WORKERS}/one/heartbeat"), &beat).0 == 404
    });
    for session in &mut sessions {
        assert!(session.echoes("nothing was cut"));
    }
    register(&a, "one", &echo, json!({ "slots": 3, "lifetime": 2 }));
    until("both gateways have said what they carry", || active(&a, "one") == 2);
    assert_eq!(worker(&a, "one")["lifetime"], 2);
    until("it takes sessions again", || worker(&a, "one")["standing"] == "ready");
    sessions.push(WebSocket::connect(b.gateway(), "/", &[]));
    assert_eq!((active(&a, "one"), worker(&a, "one")["lifetime"].clone()), (3, json!(3)));
    drop(sessions);
    until("every count is right", || active(&a, "one") == 0);
    assert_eq!(echo.most(), 3);
}

#[test]
fn sessions_outlive_a_redis_that_is_away_and_new_ones_wait_for_it() {
    let (database, mut redis) = (Postgres::shared().database(), Redis::start());
    let installation = Installation::shared(&database.url(), Some(&redis.url()));
    let a = installation.start("a", &[]);
    let echo = EchoWorker::start();
    register(&a, "one", &echo, json!({ "slots": 3 }));
    let mut session = WebSocket::connect(a.gateway(), "/", &[]);
    redis.kill();
    assert!(session.echoes("without it"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| WebSocket::connect(a.gateway(), "/", &[]));
        redis.start_again();
        register(&a, "one", &echo, json!({ "slots": 3, "lifetime": 1 }));
        let mut late = waiting.join().expect("answers");
        assert_eq!(late.status(), 101, "{}", late.head());
        assert!(late.echoes("served after all"));
        until("both are counted", || active(&a, "one") == 2);
        assert!(session.echoes("still"));
    });
    drop(session);
    until("every count is right", || active(&a, "one") == 0);
}

#[test]
fn a_session_that_comes_before_its_worker_is_known_again_waits_for_it() {
    let (database, mut redis) = (Postgres::shared().database(), Redis::start());
    let installation = Installation::shared(&database.url(), Some(&redis.url()));
    let a = installation.start("a", &[]);
    let echo = EchoWorker::start();
    register(&a, "one", &echo, json!({ "slots": 1 }));
    redis.restart_empty();
    until("the worker is not known any more", || {
        let beat = json!({ "incarnation": 1, "phase": "serving" });
        post(&a, &format!("{WORKERS}/one/heartbeat"), &beat).0 == 404
    });
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let gateway = a.gateway();
        scope.spawn(move || {
            let early = WebSocket::connect(gateway, "/", &[]);
            tell.send(early).expect("somebody listens");
        });
        let refused = told.recv_timeout(Duration::from_millis(500)).map(|early| early.head());
        assert!(refused.is_err(), "not at once: {refused:?}");
        register(&a, "one", &echo, json!({ "slots": 1 }));
        let mut early = told.recv().expect("it is answered");
        assert_eq!(early.status(), 101, "{}", early.head());
        assert!(early.echoes("served after all"));
    });
}
