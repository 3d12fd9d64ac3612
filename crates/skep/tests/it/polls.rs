//! Endpoints and their polls on one node, through API and command line.

use crate::common::{command, run, skep, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, Process, Proxy, Receiver, pause};
use std::process::Command;
use std::time::Duration;

fn start(folder: &Folder) -> Node {
    Node::start(skep(), &folder.path().join("data"), &[])
}

fn post(node: &Node, path: &str, body: &Value) -> skep_testkit::http::Answer {
    node.send("POST", path, &[], Some(&body.to_string()))
}

fn add(node: &Node, body: &Value) -> Value {
    let answer = post(node, "/api/v1/polls/endpoints", body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

fn results(node: &Node, id: &str) -> Vec<Value> {
    let answer = node.get(&format!("/api/v1/polls/endpoints/{id}/results"));
    answer.json()["results"].as_array().cloned().unwrap_or_default()
}

#[test]
fn results_come_to_the_queue_that_the_endpoint_names() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let target = Receiver::start(0, &[200]);
    let wish = json!({ "id": "shop", "url": target.url(), "interval": "1s",
                       "publish_to": "results" });
    add(&node, &wish);
    let mut slots = Vec::new();
    while slots.len() < 3 {
        let answer = node.get("/api/v1/pop/queue/results/partition/shop?wait=true&autoAck=true");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let message = answer.json()["messages"][0].clone();
        assert_eq!(
            (&message["data"]["endpoint"], &message["data"]["status"]),
            (&json!("shop"), &json!(200))
        );
        assert_eq!(message["producerSub"], "polls");
        slots.push(message["data"]["slot"].as_i64().expect("a number"));
    }
    assert!(slots.windows(2).all(|two| two[0] < two[1]), "in order, each once: {slots:?}");
}

#[test]
fn an_endpoint_is_polled_paused_asked_out_of_turn_and_deleted() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let target = Receiver::start(0, &[200]);
    let added = add(&node, &json!({ "id": "a/b", "url": target.url(), "interval": "1s" }));
    assert_eq!(added["interval"], "1s");
    assert_eq!(added["state"], "new");

    let path = "/api/v1/polls/endpoints/a%2Fb";
    until("it is polled", || results(&node, "a%2Fb").len() >= 2);
    let shown = node.get(path).json();
    assert_eq!(shown["state"], "ok", "{shown}");
    assert!(shown["owner"].is_string() && shown["token"].is_string(), "{shown}");
    let kept = results(&node, "a%2Fb");
    let slots: Vec<i64> = kept.iter().filter_map(|one| one["slot"].as_i64()).collect();
    assert!(slots.windows(2).all(|two| two[0] > two[1]), "newest first, each once: {slots:?}");
    assert_eq!(kept[0]["status"], 200);

    // Paused: nothing more arrives once the node says it owns nothing.
    assert_eq!(post(&node, &format!("{path}/pause"), &json!({})).json()["state"], "paused");
    until("nobody polls it", || node.get("/api/v1/polls").json()["here"]["owned"] == 0);
    let before = target.received().len();
    let refused = post(&node, &format!("{path}/poll"), &json!({}));
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("E_ENDPOINT_PAUSED")));
    assert_eq!(target.received().len(), before);

    post(&node, &format!("{path}/resume"), &json!({}));
    until("it is polled again", || target.received().len() > before);

    // A long interval: only asking brings a second poll.
    add(&node, &json!({ "id": "rare", "url": target.url(), "interval": "24h" }));
    until("its first poll comes soon", || results(&node, "rare").len() == 1);
    assert_eq!(post(&node, "/api/v1/polls/endpoints/rare/poll", &json!({})).status, 202);
    until("the poll that was asked for", || results(&node, "rare").len() == 2);

    assert_eq!(node.send("DELETE", path, &[], None).status, 204);
    assert_eq!(node.get(path).json()["code"], "E_ENDPOINT_UNKNOWN");
    until("only the other is left", || {
        node.get("/api/v1/polls/owners").json()["nodes"].to_string().contains("[\"rare\"]")
    });
    assert_eq!(node.stop().code, 0);
}

#[test]
fn what_is_wrong_with_an_endpoint_is_told_all_at_once_and_nothing_is_kept() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let bad = json!({ "id": "x", "url": "ftp://x", "interval": "0s", "timeout": "20s" });
    let answer = post(&node, "/api/v1/polls/endpoints", &bad);
    assert_eq!(answer.status, 400);
    let problem = answer.json();
    assert_eq!(problem["code"], "E_ENDPOINT_INVALID");
    let fields: Vec<_> =
        problem["flaws"].as_array().expect("flaws").iter().map(|one| &one["field"]).collect();
    assert_eq!(fields, ["url", "interval", "timeout"], "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("nodes.ttl to 23.2s")));

    let queue = json!({ "id": "q", "url": "http://x/", "publish_to": "x".repeat(256) });
    let answer = post(&node, "/api/v1/polls/endpoints", &queue);
    assert_eq!(answer.json()["flaws"][0]["field"], "publish_to", "{}", answer.body);

    add(&node, &json!({ "id": "x", "url": "http://127.0.0.1:1/" }));
    let again = post(&node, "/api/v1/polls/endpoints", &json!({ "id": "x", "url": "http://y/" }));
    assert_eq!((again.status, again.json()["code"].as_str()), (409, Some("E_ENDPOINT_EXISTS")));
    let path = "/api/v1/polls/endpoints/x";
    let version = node.get(path).json()["version"].as_i64().expect("a version");
    let put = |version: i64, url: &str| {
        let body = json!({ "url": url }).to_string();
        node.send("PUT", &format!("{path}?version={version}"), &[], Some(&body))
    };
    assert_eq!(put(version, "http://127.0.0.1:2/").status, 200);
    assert_eq!(put(version, "http://127.0.0.1:3/").json()["code"], "E_ENDPOINT_CHANGED");
    assert_eq!(node.get(path).json()["url"], "http://127.0.0.1:2/");
    let other = node.send("PUT", path, &[], Some(r#"{"id":"z","url":"http://y/"}"#));
    assert_eq!(other.json()["field"], "id", "{}", other.body);
    assert_eq!(node.get("/api/v1/polls/endpoints?kind=smtp").status, 400);
    assert_eq!(node.get("/api/v1/polls/endpoints?state=tired").status, 400);
    assert_eq!(post(&node, &format!("{path}/poll"), &json!({})).status, 202);
    until("it is among the failing", || {
        let failing = node.get("/api/v1/polls/endpoints?state=failing").json();
        failing["endpoints"][0]["state"] == "failing"
    });
    assert_eq!(node.get("/api/v1/polls").json()["endpoints"], 1);
}

#[test]
fn an_import_is_all_or_nothing_unless_asked_otherwise() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let lines = "{\"id\":\"a\",\"url\":\"http://127.0.0.1:1/\"}\n\
                 {\"id\":\"b\"}\n\
                 not json\n\
                 {\"id\":\"a\",\"url\":\"http://127.0.0.1:2/\"}\n\
                 {\"id\":\"c\",\"url\":\"http://127.0.0.1:1/\",\"paused\":true}\n";
    let refused = node.send("POST", "/api/v1/polls/import", &[], Some(lines));
    assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some("E_IMPORT_INVALID")));
    let wrong: Vec<u64> = refused.json()["flaws"]
        .as_array()
        .expect("flaws")
        .iter()
        .filter_map(|flaw| flaw["line"].as_u64())
        .collect();
    assert_eq!(wrong, [2, 3, 4]);
    assert_eq!(node.get("/api/v1/polls").json()["endpoints"], 0);

    let done = node.send("POST", "/api/v1/polls/import?partial=true", &[], Some(lines));
    assert_eq!(done.json()["created"], 2, "{}", done.body);
    until("the list has both", || node.get("/api/v1/polls/endpoints").json()["total"] == 2);
    let paused = node.get("/api/v1/polls/endpoints?paused=true").json();
    assert_eq!(paused["endpoints"][0]["id"], "c");
    let again = "{\"id\":\"c\",\"url\":\"http://127.0.0.1:1/\",\"paused\":true}\n";
    let again = node.send("POST", "/api/v1/polls/import", &[], Some(again)).json();
    assert_eq!((&again["unchanged"], &again["changed"]), (&json!(1), &json!(0)));
}

#[test]
fn the_command_line_does_what_the_api_does() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let target = Receiver::start(0, &[200]);
    let url = node.url("");
    let verb = |arguments: &[&str]| {
        let mut all = vec!["polls"];
        all.extend(arguments);
        all.extend(["--url", &url]);
        let (ended, output) = run(folder.path(), &all);
        (ended.code, output)
    };
    let (code, said) = verb(&["add", "shop", "--http", &target.url(), "--interval", "1s"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("shop is polled every 1s"), "{said}");
    let (code, said) = verb(&["add", "shop", "--http", &target.url(), "--timeout", "20s"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("nodes.ttl"), "{said}");
    until("a result", || !results(&node, "shop").is_empty());
    let (_, said) = verb(&["ls"]);
    assert!(said.contains("shop") && said.contains("ok"), "{said}");
    let (_, said) = verb(&["show", "shop"]);
    assert!(said.contains("unowned") && said.contains("RESULT"), "{said}");
    let (_, said) = verb(&["results", "shop", "--json"]);
    let printed: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(printed[0]["verdict"], "ok");
    let (_, said) = verb(&["owners", "--ids"]);
    assert!(said.contains("shop"), "{said}");
    assert_eq!(verb(&["pause", "shop"]).0, 0);
    let (code, said) = verb(&["pause", "shop", "nothing"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is no endpoint \"nothing\""), "{said}");
    assert_eq!(verb(&["rm", "shop"]).0, 0);
    std::fs::write(folder.path().join("many.jsonl"), "{\"id\":\"a\"}\n").expect("writes");
    let (code, said) = verb(&["import", "many.jsonl"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("line 1: kind is missing"), "{said}");
    let (code, said) = run(folder.path(), &["nodes", "--url", &url]);
    assert_eq!(code.code, 0, "{said}");
    assert!(said.contains("(this one)") && said.contains("memory"), "{said}");
}

#[test]
fn spans_that_do_not_go_together_stop_the_start_and_thirty_and_ten_do_not() {
    let folder = Folder::new("polls");
    let check = |text: &str| {
        std::fs::write(folder.path().join("skep.toml"), text).expect("writes");
        run(folder.path(), &["config", "check", "skep.toml"])
    };
    let (ended, said) = check("[nodes]\ntick = \"8s\"\n");
    assert_eq!(ended.code, 64, "{said}");
    assert!(said.contains("nodes.tick") && said.contains("give at most 5s"), "{said}");
    let (ended, said) = check("[nodes]\nttl = \"30s\"\ntick = \"10s\"\n");
    assert_eq!(ended.code, 0, "{said}");
}

#[test]
fn a_poll_that_was_stopped_with_its_process_is_no_failure_and_is_made_again() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let target = Receiver::start(0, &[200]);
    let proxy = Proxy::start(("127.0.0.1", target.port()));
    let url = format!("http://127.0.0.1:{}/hook", proxy.port());
    let timeout = Duration::from_secs(2);
    add(&node, &json!({ "id": "shop", "url": url, "interval": "1s", "timeout": "2s" }));
    until("it is polled", || !results(&node, "shop").is_empty());
    proxy.freeze();
    until("a poll is in progress", || node.get("/api/v1/polls").json()["here"]["in_flight"] == 1);
    node.process().signal(Signal::STOP);
    pause(timeout + Duration::from_secs(1));
    proxy.heal();
    node.process().signal(Signal::CONT);
    let before = results(&node, "shop").len();
    until("it is polled again", || results(&node, "shop").len() > before + 1);
    let bad: Vec<Value> =
        results(&node, "shop").into_iter().filter(|one| one["ok"] != true).collect();
    assert_eq!(bad, Vec::<Value>::new(), "the endpoint was well all the time");
}

#[test]
fn an_endpoint_that_does_not_answer_fails_in_time_and_is_well_again_when_it_does() {
    let folder = Folder::new("polls");
    let node = start(&folder);
    let target = Receiver::start(0, &[200]);
    let proxy = Proxy::start(("127.0.0.1", target.port()));
    proxy.freeze();
    let url = format!("http://127.0.0.1:{}/hook", proxy.port());
    add(&node, &json!({ "id": "shop", "url": url, "interval": "1s", "timeout": "300ms" }));
    until("it failed twice", || results(&node, "shop").len() > 1);
    for one in results(&node, "shop") {
        assert_eq!((&one["ok"], &one["verdict"]), (&json!(false), &json!("timeout")), "{one}");
        assert!(one["detail"].as_str().expect("a text").contains("after 300ms"), "{one}");
    }
    proxy.heal();
    until("it is well", || results(&node, "shop")[0]["ok"] == true);
}

#[test]
fn a_node_that_is_killed_and_started_again_goes_on_where_it_was() {
    let folder = Folder::new("polls");
    let data = folder.path().join("data");
    let target = Receiver::start(0, &[200]);
    let serve = |data: &std::path::Path| {
        let mut serve: Command = command(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        serve.arg("--data").arg(data);
        let mut node = Node::watch(Process::start("skep", &serve, "KILL"));
        node.wait_until_ready();
        node
    };
    let node = serve(&data);
    add(&node, &json!({ "id": "shop", "url": target.url(), "interval": "1s" }));
    until("it is polled", || !results(&node, "shop").is_empty());
    let first = results(&node, "shop")[0]["token"].as_str().map(str::to_owned);
    node.process().kill();
    let node = serve(&data);
    until("it is polled under a newer grant", || {
        let token = results(&node, "shop")[0]["token"].as_str().map(str::to_owned);
        token.is_some_and(|token| token.starts_with("2.")) && first.is_some()
    });
    let slots: Vec<i64> =
        results(&node, "shop").iter().filter_map(|one| one["slot"].as_i64()).collect();
    assert!(slots.windows(2).all(|two| two[0] > two[1]), "no slot twice: {slots:?}");
}
