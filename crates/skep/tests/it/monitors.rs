//! Accounts, monitors, servers and their reviews on one node, through the API.

use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::http::Answer;
use skep_testkit::{Folder, Node};

/// Reviews come only when they are asked for.
const QUIET: &[&str] = &["--set", "monitors.enabled=false"];

fn start(folder: &Folder, more: &[&str]) -> Node {
    Node::start(skep(), &folder.path().join("data"), more)
}

fn send(node: &Node, method: &str, path: &str, body: &Value) -> Answer {
    node.send(method, path, &[], Some(&body.to_string()))
}

fn post(node: &Node, path: &str, body: &Value) -> Answer {
    send(node, "POST", path, body)
}

fn made(node: &Node, path: &str, body: &Value) -> Value {
    let answer = post(node, path, body);
    assert_eq!(answer.status, 201, "{path}: {}", answer.body);
    answer.json()
}

/// Status and code of a refusal.
fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn fields(answer: &Answer) -> Vec<String> {
    let flaws = answer.json()["flaws"].as_array().cloned().unwrap_or_default();
    flaws.iter().map(|flaw| flaw["field"].as_str().unwrap_or_default().to_owned()).collect()
}

/// So many globally active monitors, `m1` and on, in networks of their own.
fn crowd(node: &Node, count: usize) {
    for number in 1..=count {
        let ip = format!("10.{number}.0.1");
        let monitor = json!({ "id": format!("m{number}"), "ip": ip, "status": "active" });
        made(node, "/api/v1/monitors", &monitor);
    }
}

fn server(node: &Node, id: &str) -> Value {
    let body = json!({ "id": id, "ip": "192.0.2.7", "probe": { "kind": "ntp" } });
    made(node, "/api/v1/servers", &body)
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("fits")
}

/// Good samples of a monitor over the last hours.
fn feed(node: &Node, monitor: &str, server: &str, count: i64, rtt_ms: f64) {
    let sample = |number: i64| {
        json!({ "server": server, "at": now_ms() - 600_000 * number, "rtt_ms": rtt_ms,
                "offset_ms": 0.5 })
    };
    let results: Vec<Value> = (0..count).map(sample).collect();
    let path = format!("/api/v1/agent/results?monitor={monitor}");
    let answer = post(node, &path, &json!({ "agent": "test 1", "results": results }));
    assert_eq!(answer.json()["accepted"], count, "{}", answer.body);
}

#[test]
fn accounts_are_made_changed_listed_and_deleted_and_what_is_wrong_is_named() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    let path = "/api/v1/accounts";
    let flags = json!({ "monitor_limit": 1, "monitors_per_server_limit": 3, "colour": "red" });
    let account = made(&node, path, &json!({ "id": "ann", "name": "Ann", "flags": flags }));
    assert_eq!(account["flags"]["monitor_per_server_limit"], 3, "the alias is read: {account}");
    assert_eq!((&account["flags"]["colour"], &account["monitors"]), (&json!("red"), &json!(0)));
    let again = post(&node, path, &json!({ "id": "ann" }));
    assert_eq!(refused(&again), is(409, "E_ACCOUNT_EXISTS"));
    let wrong = json!({ "id": "a b", "flags": { "monitor_limit": -1, "monitor_enabled": 3 } });
    let wrong = post(&node, path, &wrong);
    assert_eq!(refused(&wrong), is(400, "E_ACCOUNT_INVALID"));
    let flaws = fields(&wrong);
    assert_eq!(flaws.len(), 3, "all at once: {}", wrong.body);
    assert!(flaws.iter().any(|field| field.contains("monitor_limit")), "{flaws:?}");

    made(&node, "/api/v1/monitors", &json!({ "id": "m1", "account": "ann", "ip": "10.0.0.1" }));
    let full = json!({ "id": "m2", "account": "ann", "ip": "10.0.0.2" });
    assert_eq!(refused(&post(&node, "/api/v1/monitors", &full)), is(409, "E_ACCOUNT_FULL"));
    let in_use = node.send("DELETE", "/api/v1/accounts/ann", &[], None);
    assert_eq!(refused(&in_use), is(409, "E_ACCOUNT_IN_USE"));
    assert!(in_use.body.contains("monitors: 1"), "{}", in_use.body);
    let off = json!({ "flags": { "monitor_enabled": false } });
    assert_eq!(send(&node, "PUT", "/api/v1/accounts/ann", &off).status, 200);
    assert_eq!(refused(&post(&node, "/api/v1/monitors", &full)), is(409, "E_ACCOUNT_DISABLED"));
    let monitor = node.get("/api/v1/monitors/m1").json();
    let statuses = (&monitor["status"], &monitor["effective_status"]);
    assert_eq!(statuses, (&json!("pending"), &json!("paused")));
    let other = send(&node, "PUT", "/api/v1/accounts/ann", &json!({ "id": "bob" }));
    assert_eq!(refused(&other), is(400, "E_FIELD_INVALID"));

    for id in ["bob", "cleo"] {
        made(&node, path, &json!({ "id": id }));
    }
    let page = node.get("/api/v1/accounts?limit=2").json();
    assert_eq!((&page["total"], &page["next"]), (&json!(3), &json!("bob")), "{page}");
    let rest = node.get("/api/v1/accounts?limit=2&after=bob").json();
    assert_eq!((&rest["accounts"][0]["id"], &rest["next"]), (&json!("cleo"), &Value::Null));
    assert_eq!(node.get("/api/v1/accounts?search=CLE").json()["total"], 1);
    assert_eq!(refused(&node.get("/api/v1/accounts?limit=0")), is(400, "E_QUERY_INVALID"));
    assert_eq!(node.send("DELETE", "/api/v1/accounts/bob", &[], None).status, 204);
    assert_eq!(refused(&node.get("/api/v1/accounts/bob")), is(404, "E_ACCOUNT_UNKNOWN"));
    for method in ["PUT", "DELETE"] {
        let gone = send(&node, method, "/api/v1/accounts/bob", &json!({}));
        assert_eq!(refused(&gone), is(404, "E_ACCOUNT_UNKNOWN"), "{method}");
    }
}

#[test]
fn monitors_are_made_paused_listed_and_deleted_and_what_is_wrong_is_named() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    let path = "/api/v1/monitors";
    let labels = json!({ "region": "eu" });
    let body = json!({ "id": "m1", "ip": "10.0.0.1", "status": "testing", "labels": labels });
    let monitor = made(&node, path, &body);
    assert_eq!((&monitor["key"], &monitor["key_id"]), (&Value::Null, &Value::Null), "{monitor}");
    assert_eq!(node.get("/api/v1/node").status, 200, "this machine is trusted as before");
    for (body, expected) in [
        (json!({ "id": "m1", "ip": "10.0.0.1" }), is(409, "E_MONITOR_EXISTS")),
        (json!({ "id": "m2", "ip": "10.0.0.300" }), is(400, "E_MONITOR_INVALID")),
        (json!({ "id": "m2", "ip": "10.0.0.3", "status": "idle" }), is(400, "E_MONITOR_INVALID")),
        (json!({ "id": "m2", "ip": "10.0.0.3", "colour": 1 }), is(400, "E_MONITOR_INVALID")),
        (json!({ "id": "m2", "ip": "10.0.0.3", "account": "x" }), is(404, "E_ACCOUNT_UNKNOWN")),
        (json!({ "id": "m2", "ip": "10.0.0.3", "key": "yes" }), is(400, "E_FIELD_INVALID")),
        (json!({ "id": "m2", "ip": "10.0.0.3", "key": true }), is(400, "E_FIELD_INVALID")),
        (json!([]), is(400, "E_MONITOR_INVALID")),
    ] {
        let answer = post(&node, path, &body);
        assert_eq!(refused(&answer), expected, "{body}: {}", answer.body);
    }
    let no_key = post(&node, "/api/v1/monitors/m1/key", &json!({}));
    assert_eq!(refused(&no_key), is(400, "E_FIELD_INVALID"), "the first key would lock us out");
    assert!(no_key.body.contains("skep keys add"), "{}", no_key.body);

    server(&node, "ntp1");
    let assigned = node.get("/api/v1/monitors/m1/assignments").json();
    assert_eq!(assigned["assignments"][0]["server"], "ntp1");
    assert_eq!(assigned["assignments"][0]["status"], "candidate");
    let shown = node.get("/api/v1/monitors/m1").json();
    assert_eq!(shown["assignments"]["candidate"], 1, "{shown}");
    let set = |id: &str, status: &str| {
        post(&node, &format!("/api/v1/monitors/{id}/status"), &json!({ "status": status }))
    };
    assert_eq!(set("m1", "paused").json()["status"], "paused");
    assert_eq!(set("m1", "active").json()["effective_status"], "active");
    assert_eq!(refused(&set("m1", "idle")), is(400, "E_MONITOR_INVALID"));
    assert_eq!(refused(&set("m9", "active")), is(404, "E_MONITOR_UNKNOWN"));
    let moved = json!({ "ip": "10.0.9.1", "labels": { "region": "us" } });
    let moved = send(&node, "PUT", "/api/v1/monitors/m1", &moved).json();
    assert_eq!((&moved["ip"], &moved["status"]), (&json!("10.0.9.1"), &json!("active")));

    made(&node, path, &json!({ "id": "m2", "ip": "2001:db8::2", "key": false }));
    let ids = |query: &str| -> Vec<Value> {
        let answer = node.get(&format!("{path}?{query}"));
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        let all = answer.json()["monitors"].as_array().cloned().expect("a list");
        all.into_iter().map(|one| one["id"].clone()).collect()
    };
    assert_eq!(ids("status=active"), ["m1"]);
    assert_eq!(ids("label=region%3Dus"), ["m1"]);
    assert_eq!(ids("label=region%3Deu"), Vec::<Value>::new());
    assert_eq!(ids("after=m1&limit=5"), ["m2"]);
    assert_eq!(refused(&node.get("/api/v1/monitors?status=idle")), is(400, "E_QUERY_INVALID"));

    assert_eq!(node.send("DELETE", "/api/v1/monitors/m1", &[], None).status, 204);
    for gone in ["", "/assignments", "/history"] {
        let answer = node.get(&format!("/api/v1/monitors/m1{gone}"));
        assert_eq!(refused(&answer), is(404, "E_MONITOR_UNKNOWN"), "{gone}");
    }
    let audit = node.get("/api/v1/audit").json().to_string();
    for action in ["monitors.create", "monitors.status", "monitors.replace", "monitors.delete"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
}

#[test]
fn servers_are_made_paused_reviewed_listed_and_deleted_and_what_is_wrong_is_named() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    let path = "/api/v1/servers";
    let web = server(&node, "ntp1");
    assert_eq!(web["probe"]["target"], "192.0.2.7:123", "{web}");
    assert_eq!((&web["targets"]["active"], &web["below_target"]), (&json!(7), &json!(true)));
    assert_eq!((&web["score"], &web["reviewed_at"]), (&Value::Null, &Value::Null));
    let probe = |probe: Value| json!({ "id": "s2", "ip": "192.0.2.8", "probe": probe });
    for (body, expected) in [
        (
            json!({ "id": "ntp1", "ip": "192.0.2.8", "probe": { "kind": "ntp" } }),
            is(409, "E_SERVER_EXISTS"),
        ),
        (probe(json!({ "kind": "smtp" })), is(400, "E_SERVER_INVALID")),
        (probe(json!({ "kind": "tcp" })), is(400, "E_SERVER_INVALID")),
        (probe(json!({ "kind": "ntp", "timeout": "90s" })), is(400, "E_SERVER_INVALID")),
        (
            json!({ "id": "s2", "ip": "here", "probe": { "kind": "ntp" } }),
            is(400, "E_SERVER_INVALID"),
        ),
        (json!({ "id": "s2", "ip": "192.0.2.8" }), is(400, "E_SERVER_INVALID")),
        (
            json!({ "id": "s2", "ip": "192.0.2.8", "account": "x", "probe": { "kind": "ntp" } }),
            is(404, "E_ACCOUNT_UNKNOWN"),
        ),
    ] {
        let answer = post(&node, path, &body);
        assert_eq!(refused(&answer), expected, "{body}: {}", answer.body);
    }
    let act = |verb: &str| post(&node, &format!("{path}/ntp1/{verb}"), &json!({}));
    assert_eq!(act("pause").json()["paused"], true);
    assert_eq!(act("resume").json()["paused"], false);
    assert_eq!(act("review").status, 202);
    let http = json!({ "ip": "192.0.2.9", "probe": { "kind": "http", "timeout": "2s",
                       "target": "http://192.0.2.9/health", "expect_status": 204 } });
    let changed = send(&node, "PUT", "/api/v1/servers/ntp1", &http).json();
    assert_eq!(changed["probe"]["expect_status"], 204, "{changed}");
    assert_eq!(changed["probe"]["timeout_ms"], 2_000);

    server(&node, "ntp2");
    assert_eq!(node.get("/api/v1/servers?state=below_target").json()["total"], 2);
    assert_eq!(node.get("/api/v1/servers?search=p2").json()["servers"][0]["id"], "ntp2");
    assert_eq!(refused(&node.get("/api/v1/servers?state=tired")), is(400, "E_QUERY_INVALID"));
    assert_eq!(node.send("DELETE", "/api/v1/servers/ntp1", &[], None).status, 204);
    for gone in ["", "/monitors", "/samples", "/history"] {
        let answer = node.get(&format!("{path}/ntp1{gone}"));
        assert_eq!(refused(&answer), is(404, "E_SERVER_UNKNOWN"), "{gone}");
    }
    for verb in ["pause", "resume", "review"] {
        assert_eq!(refused(&act(verb)), is(404, "E_SERVER_UNKNOWN"), "{verb}");
    }
    assert_eq!(node.get("/api/v1/monitors/overview").json()["servers"]["total"], 1);
}

#[test]
fn an_agent_asks_and_reports_with_the_key_of_its_monitor_alone() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    let key = |name: &str, scope: &str, with: &str| {
        let body = json!({ "name": name, "scopes": [scope] }).to_string();
        let headers = [("authorization", with)];
        let headers = if with.is_empty() { &[][..] } else { &headers[..] };
        let made = node.send("POST", "/api/v1/keys", headers, Some(&body)).json();
        format!("Bearer {}", made["secret"].as_str().expect("a secret"))
    };
    let admin = key("admin", "admin", "");
    let (loose, reader) = (key("loose", "agent", &admin), key("reader", "read", &admin));
    let ask = |who: &str, method: &str, path: &str, body: Option<&Value>| {
        let body = body.map(Value::to_string);
        node.send(method, path, &[("authorization", who)], body.as_deref())
    };
    let create = json!({ "id": "m1", "ip": "10.0.0.1", "status": "active" });
    let monitor = ask(&admin, "POST", "/api/v1/monitors", Some(&create)).json();
    let own = format!("Bearer {}", monitor["key"].as_str().expect("a key"));
    assert!(monitor["key_id"].is_string(), "{monitor}");
    for (id, ip) in [("ntp1", "192.0.2.7"), ("six", "2001:db8::7")] {
        let server = json!({ "id": id, "ip": ip, "probe": { "kind": "ntp" } });
        assert_eq!(ask(&admin, "POST", "/api/v1/servers", Some(&server)).status, 201);
    }

    let path = "/api/v1/agent/assignments";
    let work = ask(&own, "GET", path, None);
    let tag = work.header("etag").to_owned();
    let work = work.json();
    assert_eq!((&work["monitor"], &work["status"]), (&json!("m1"), &json!("active")));
    assert_eq!(work["servers"].as_array().map(Vec::len), Some(1), "of its family: {work}");
    let one = &work["servers"][0];
    assert_eq!((&one["server"], &one["status"]), (&json!("ntp1"), &json!("candidate")));
    assert_eq!(one["interval_ms"], 90 * 60_000);
    assert_eq!(one["probe"]["kind"], "ntp");
    let cached = |tag: &str| {
        let headers = [("authorization", own.as_str()), ("if-none-match", tag)];
        node.send("GET", path, &headers, None)
    };
    assert_eq!((cached(&tag).status, cached(&tag).body.as_str()), (304, ""));
    let pause = json!({ "status": "paused" });
    ask(&admin, "POST", "/api/v1/monitors/m1/status", Some(&pause));
    let paused = cached(&tag);
    assert_eq!(paused.status, 200);
    assert_eq!(paused.json()["servers"], json!([]), "one that is paused measures nothing");
    let resume = json!({ "status": "active" });
    ask(&admin, "POST", "/api/v1/monitors/m1/status", Some(&resume));

    let now = now_ms();
    let results = json!({ "agent": "skep test", "results": [
        { "server": "ntp1", "at": now, "rtt_ms": 12.5, "offset_ms": 3.0 },
        { "server": "ntp1", "at": now - 1_000, "error": "timeout" },
        { "server": "six", "at": now, "rtt_ms": 1.0 },
        { "server": "nowhere", "at": now, "rtt_ms": 1.0 },
    ]});
    let report = |who: &str, body: &Value| ask(who, "POST", "/api/v1/agent/results", Some(body));
    let taken = report(&own, &results).json();
    assert_eq!((&taken["accepted"], &taken["known"]), (&json!(2), &json!(0)), "{taken}");
    assert_eq!(taken["refused"].as_array().map(Vec::len), Some(2), "{taken}");
    let again = report(&own, &results).json();
    assert_eq!((&again["accepted"], &again["known"]), (&json!(0), &json!(2)), "{again}");
    let many: Vec<Value> = vec![json!({ "server": "ntp1", "at": 1 }); 1_001];
    let too_many = report(&own, &json!({ "results": many }));
    assert_eq!(refused(&too_many), is(400, "E_FIELD_INVALID"));
    let no_report = report(&own, &json!({ "results": [{ "server": "ntp1" }] }));
    assert_eq!(refused(&no_report), is(400, "E_BODY_INVALID"), "{}", no_report.body);
    let samples = ask(&reader, "GET", "/api/v1/servers/ntp1/samples?limit=1", None).json();
    assert_eq!(samples["samples"][0]["rtt_ms"], 12.5, "{samples}");
    assert_eq!((&samples["samples"][0]["monitor"], &samples["next"]), (&json!("m1"), &json!(now)));
    let shown = ask(&reader, "GET", "/api/v1/monitors/m1", None).json();
    assert_eq!(shown["agent"], "skep test");
    assert!(shown["seen_at"].as_i64().is_some_and(|seen| seen >= now - 60_000), "{shown}");

    assert_eq!(refused(&ask(&loose, "GET", path, None)), is(403, "E_AGENT_UNBOUND"));
    assert_eq!(refused(&report(&loose, &results)), is(403, "E_AGENT_UNBOUND"));
    assert_eq!(refused(&ask(&reader, "GET", path, None)), is(403, "E_SCOPE"));
    assert_eq!(refused(&ask(&own, "GET", "/api/v1/servers", None)), is(403, "E_SCOPE"));
    let named = |who: &str, id: &str| ask(who, "GET", &format!("{path}?monitor={id}"), None);
    assert_eq!(refused(&named(&own, "m2")), is(403, "E_AGENT_UNBOUND"), "only itself");
    assert_eq!(named(&own, "m1").status, 200);
    assert_eq!(named(&admin, "m1").json()["monitor"], "m1");
    assert_eq!(refused(&named(&admin, "m9")), is(404, "E_MONITOR_UNKNOWN"));
    assert_eq!(refused(&ask(&admin, "GET", path, None)), is(400, "E_QUERY_INVALID"));

    let other = ask(&admin, "POST", "/api/v1/monitors/m1/key", None);
    assert_eq!(other.status, 201, "{}", other.body);
    let newer = format!("Bearer {}", other.json()["key"].as_str().expect("a key"));
    assert_eq!(refused(&ask(&own, "GET", path, None)), is(401, "E_KEY_REVOKED"));
    assert_eq!(ask(&newer, "GET", path, None).status, 200);
    assert_eq!(ask(&admin, "DELETE", "/api/v1/monitors/m1", None).status, 204);
    assert_eq!(refused(&ask(&newer, "GET", path, None)), is(401, "E_KEY_REVOKED"));
    let log = node.process().log();
    assert!(!log.contains(own.trim_start_matches("Bearer ")), "no key is in the log");
}

#[test]
fn a_plan_is_made_looked_at_and_applied_once() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    crowd(&node, 9);
    server(&node, "ntp1");
    server(&node, "ntp2");
    for number in 1..=9 {
        feed(&node, &format!("m{number}"), "ntp1", 40, 10.0 * f64::from(number));
    }
    let plan = |body: Value| post(&node, "/api/v1/monitoring/plan", &body);
    let first = plan(json!({ "server": "ntp1" })).json();
    let made_plan = first["plans"][0].clone();
    assert_eq!(made_plan["server"], "ntp1");
    let changes = made_plan["changes"].as_array().expect("changes").len();
    assert!(changes > 0, "{made_plan}");
    assert_eq!(made_plan["states"].as_array().map(Vec::len), Some(9));
    assert!(made_plan["made_at"].as_i64().is_some_and(|at| at > 0));
    assert_eq!(first["settings"]["target_active"], 7);
    let fleet = plan(json!({ "limit": 1 })).json();
    assert_eq!((&fleet["plans"][0]["server"], &fleet["next"]), (&json!("ntp1"), &json!("ntp1")));
    let rest = plan(json!({ "limit": 1, "after": "ntp1" })).json();
    assert_eq!(rest["plans"][0]["server"], "ntp2");
    let few = plan(json!({ "server": "ntp1", "settings": { "target_testing": 4 } })).json();
    assert_eq!(few["settings"]["target_testing"], 4);
    assert_eq!(refused(&plan(json!({ "server": "x" }))), is(404, "E_SERVER_UNKNOWN"));
    let typo = plan(json!({ "settings": { "target_actve": 9 } }));
    assert_eq!(refused(&typo), is(400, "E_FIELD_INVALID"));
    assert!(typo.body.contains("target_active"), "it suggests: {}", typo.body);
    let none = plan(json!({ "settings": { "target_active": 0 } }));
    assert_eq!(refused(&none), is(400, "E_FIELD_INVALID"), "{}", none.body);
    assert_eq!(refused(&plan(json!({ "limit": 1_000 }))), is(400, "E_QUERY_INVALID"));
    let before = node.get("/api/v1/servers/ntp1").json();
    assert_eq!(before["counts"]["candidate"], 9, "a plan changes nothing: {before}");

    let apply = |plans: Value| post(&node, "/api/v1/monitoring/apply", &json!({ "plans": plans }));
    let applied = apply(json!([made_plan])).json();
    assert_eq!(applied["applied"][0]["changes"], changes, "{applied}");
    let index = applied["applied"][0]["index"].as_i64().expect("an index");
    let old = apply(json!([made_plan]));
    assert_eq!(refused(&old), is(409, "E_PLAN_OLD"));
    let was = made_plan["index"].to_string();
    assert!(old.body.contains("ntp1") && old.body.contains(&was), "{}", old.body);
    assert!(old.body.contains(&index.to_string()), "both indexes: {}", old.body);

    // The first of two stays although the second is refused.
    let fresh = plan(json!({ "server": "ntp1" })).json()["plans"][0].clone();
    let both = apply(json!([fresh, { "server": "ntp2", "index": 999, "changes": [],
                                     "roster_version": fresh["roster_version"] }]));
    assert_eq!(refused(&both), is(409, "E_PLAN_OLD"));
    assert_eq!(fields(&both), ["plans[0]"], "{}", both.body);
    assert!(both.body.contains("stays applied"), "{}", both.body);
    let nonsense = apply(json!([{ "server": "ntp1", "index": 1 }]));
    assert_eq!(refused(&nonsense), is(400, "E_PLAN_INVALID"));
    let unknown = apply(json!([{ "server": "x", "index": 1, "roster_version": 1, "changes": [] }]));
    assert_eq!(refused(&unknown), is(404, "E_SERVER_UNKNOWN"));

    let history = node.get("/api/v1/servers/ntp1/history?limit=1").json();
    let change = &history["changes"][0];
    assert!(change["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{history}");
    assert_eq!(history["next"], change["id"]);
    let monitor = change["monitor"].as_str().expect("a monitor");
    let own = node.get(&format!("/api/v1/monitors/{monitor}/history")).json();
    assert!(own["changes"].as_array().is_some_and(|all| !all.is_empty()), "{own}");
}

#[test]
fn a_servers_page_explains_every_monitor_and_what_would_change_it() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    made(&node, "/api/v1/accounts", &json!({ "id": "own" }));
    crowd(&node, 3);
    let own = json!({ "id": "m4", "account": "own", "ip": "10.4.0.1", "status": "active" });
    made(&node, "/api/v1/monitors", &own);
    let body = json!({ "id": "ntp1", "ip": "192.0.2.7", "account": "own",
                       "probe": { "kind": "ntp" } });
    made(&node, "/api/v1/servers", &body);
    for number in 1..=4 {
        feed(&node, &format!("m{number}"), "ntp1", 40, 10.0 * f64::from(number));
    }
    let page = node.get("/api/v1/servers/ntp1/monitors").json();
    let rows = page["assignments"].as_array().cloned().expect("rows");
    assert_eq!(rows.len(), 4);
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(row["rank"], place + 1, "{row}");
        for words in ["state", "cause", "reason", "would_change", "becomes", "health"] {
            assert!(row[words].as_str().is_some_and(|text| !text.is_empty()), "{words}: {row}");
        }
        assert_eq!((&row["healthy"], &row["count"]), (&json!(true), &json!(40)));
    }
    let last = &rows[3];
    assert_eq!((&last["monitor"], &last["account"]), (&json!("m4"), &json!("own")));
    assert_eq!((&last["state"], &last["becomes"]), (&json!("block"), &json!("paused")), "{last}");
    assert_eq!(last["violation"]["kind"], "account", "{last}");
    assert_eq!(page["plan"]["changes"].as_array().map(Vec::len), Some(4), "{page}");
    assert_eq!(page["server"]["counts"]["candidate"], 4);

    let explain = |server: &str, monitor: &str| {
        node.get(&format!("/api/v1/monitoring/explain/{server}/{monitor}"))
    };
    let why = explain("ntp1", "m4").json();
    assert_eq!((&why["status"], &why["becomes"]), (&json!("candidate"), &json!("paused")));
    let flips = why["would_flip"].as_array().cloned().expect("flips");
    let other = flips.iter().find(|flip| flip["if"].to_string().contains("another account"));
    assert_eq!(other.expect("is told")["becomes"], "testing", "{why}");
    assert_eq!(why["measured"]["count"], 40);
    assert_eq!(refused(&explain("x", "m4")), is(404, "E_SERVER_UNKNOWN"));
    assert_eq!(refused(&explain("ntp1", "x")), is(404, "E_MONITOR_UNKNOWN"));
    let six = json!({ "id": "six", "ip": "2001:db8::9", "status": "active" });
    made(&node, "/api/v1/monitors", &six);
    let apart = explain("ntp1", "six");
    assert_eq!(refused(&apart), is(404, "E_MONITOR_UNKNOWN"));
    assert!(apart.body.contains("nothing to do with"), "{}", apart.body);

    let what_if = |body: Value| post(&node, "/api/v1/monitoring/what-if", &body);
    let without = what_if(json!({ "drop_monitors": ["m1"] })).json();
    assert_eq!((&without["compared"], &without["next"]), (&json!(1), &Value::Null), "{without}");
    assert_eq!(without["servers"][0]["server"], "ntp1");
    assert!(without["servers"][0]["loses"].to_string().contains("m1"), "{without}");
    let same = what_if(json!({})).json();
    assert_eq!((&same["servers"], &same["totals"]["differ"]), (&json!([]), &json!(0)), "{same}");
    for wrong in [
        json!({ "drop_monitors": ["nobody"] }),
        json!({ "set": { "target": 1 } }),
        json!({ "limits": { "nobody": 1 } }),
        json!({ "potato": 1 }),
    ] {
        assert_eq!(refused(&what_if(wrong.clone())), is(400, "E_FIELD_INVALID"), "{wrong}");
    }
}

#[test]
fn an_import_is_all_or_nothing_and_can_be_tried_before() {
    let folder = Folder::new("monitors");
    let node = start(&folder, QUIET);
    let import = |lines: &[Value], query: &str| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        node.send("POST", &format!("/api/v1/monitoring/import{query}"), &[], Some(&text))
    };
    let good = [
        json!({ "account": { "id": "ann", "flags": { "monitor_limit": 5 } } }),
        json!({ "monitor": { "id": 7, "account": "ann", "ip": "10.0.0.1", "status": "active" } }),
        json!({ "server": { "id": "ntp1", "ip": "192.0.2.1", "probe": { "kind": "ntp" } } }),
        json!({ "assignment": { "server": "ntp1", "monitor": "7", "status": "new" } }),
    ];
    let mut bad = good.to_vec();
    bad.push(json!({ "monitor": { "id": "m8", "ip": "nowhere" } }));
    bad.push(json!({ "assignment": { "server": "ntp1", "monitor": "7", "status": "idle" } }));
    let answer = import(&bad, "");
    assert_eq!(refused(&answer), is(400, "E_IMPORT_INVALID"));
    let lines: Vec<u64> = answer.json()["flaws"]
        .as_array()
        .expect("flaws")
        .iter()
        .filter_map(|flaw| flaw["line"].as_u64())
        .collect();
    assert_eq!(lines, [5, 6], "{}", answer.body);
    let mut stray = good.to_vec();
    stray.push(json!({ "monitor": { "id": "m9", "account": "nobody", "ip": "10.0.0.9" } }));
    let answer = import(&stray, "");
    assert_eq!(refused(&answer), is(400, "E_IMPORT_INVALID"), "{}", answer.body);
    assert_eq!(answer.json()["flaws"][0]["line"], 5, "{}", answer.body);
    assert!(answer.body.contains("nobody"), "{}", answer.body);
    let tried = import(&good, "?dry_run=true").json();
    assert_eq!(tried["created"]["monitors"], 1, "{tried}");
    let overview = node.get("/api/v1/monitors/overview").json();
    assert_eq!((&overview["accounts"], &overview["servers"]["total"]), (&json!(0), &json!(0)));

    let done = import(&good, "").json();
    assert_eq!((&done["created"]["accounts"], &done["created"]["servers"]), (&json!(1), &json!(1)));
    let again = import(&good, "").json();
    assert_eq!((&again["created"]["monitors"], &again["changed"]), (&json!(0), &json!(0)));
    assert_eq!(
        node.get("/api/v1/monitors/7/assignments").json()["assignments"][0]["server"],
        "ntp1"
    );
}

#[test]
fn servers_are_reviewed_by_themselves_and_a_restart_keeps_everything() {
    let folder = Folder::new("monitors");
    let quick = ["--set", "monitors.review_check=100ms", "--set", "monitors.review_changed=200ms"];
    let more = [&quick[..], &["--set", "monitors.review_unchanged=200ms"]].concat();
    let node = start(&folder, QUIET);
    crowd(&node, 12);
    server(&node, "ntp1");
    for number in 1..=12 {
        feed(&node, &format!("m{number}"), "ntp1", 40, 10.0 * f64::from(number));
    }
    assert_eq!(node.stop().code, 0);
    let node = start(&folder, &more);
    let counts = |node: &Node| node.get("/api/v1/servers/ntp1").json()["counts"].clone();
    until("seven are active", || counts(&node)["active"] == 7);
    let shown = node.get("/api/v1/servers/ntp1").json();
    assert_eq!((&shown["below_target"], &shown["counts"]["testing"]), (&json!(false), &json!(5)));
    assert!(shown["score"].as_f64().is_some_and(|score| score > 10.0), "{shown}");
    let log = node.process().log();
    assert!(log.contains("monitor changed") && log.contains("rule"), "{log}");
    let metrics = node.get("/metrics").body;
    assert!(metrics.contains("selector_status_changes_total{from_status=\"testing\""), "{metrics}");
    let ours = |line: &&str| line.starts_with("selector_") || line.starts_with("skep_monitor_");
    let series: Vec<&str> = metrics.lines().filter(ours).collect();
    assert!((30..=200).contains(&series.len()), "{} series", series.len());
    until("the fleet was counted", || {
        node.get("/metrics").body.contains("selector_globally_active_monitors 12")
    });
    assert_eq!(node.stop().code, 0);

    let node = start(&folder, QUIET);
    let again = node.get("/api/v1/servers/ntp1").json();
    assert_eq!((&again["counts"], &again["score"]), (&shown["counts"], &shown["score"]));
    let history = node.get("/api/v1/servers/ntp1/history").json();
    assert!(history["changes"].as_array().is_some_and(|all| all.len() >= 12), "{history}");
    let overview = node.get("/api/v1/monitors/overview").json();
    let changes = overview["churn"].as_array().cloned().expect("churn");
    assert!(changes.iter().filter_map(|one| one["changes"].as_u64()).sum::<u64>() >= 12);
    assert_eq!(overview["monitors"]["active"], 12, "{overview}");
}
