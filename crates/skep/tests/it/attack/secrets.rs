//! A node that was given every kind of secret, used, and made to fail: none of them is found in
//! anything that it writes or tells to somebody who may only read.

use super::kit::{Trap, code, make_key, operations, raw_within};
use crate::common::{command, run, skep};
use serde_json::json;
use skep_testkit::{Folder, Node, Postgres, Process, Proxy, WebSocket};
use std::time::Duration;

const DATABASE: &str = "pw-of-database-5e1f";
const CLUSTER: &str = "c1a5731f00d4c1a5731f00d4c1a5731f00d4c1a5731f00d4c1a5731f00d4abcd";
const ENCRYPTION: &str = "e4c0de00e4c0de00e4c0de00e4c0de00e4c0de00e4c0de00e4c0de00e4c0de77";
const ALERTS: &str = "signs-alerts-81c2d3e4";
const WEBHOOK: &str = "token-of-hook-93ab";
const UPSTREAM: &str = "pw-of-upstream-0c7d";
const POLLED: &str = "pw-of-polled-77aa";
const BODY: &str = "pw-in-body-4411";
const QUERY: &str = "pw-in-query-9922";
const WORKER: &str = "path-of-worker-6a6b";
const WRONG: &str = "a-key-of-another-house-1357";

/// What nobody may find, whoever looks.
const ALL: [&str; 9] =
    [DATABASE, CLUSTER, ENCRYPTION, ALERTS, WEBHOOK, UPSTREAM, POLLED, QUERY, WRONG];

fn search(place: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        let found = text.lines().find(|line| line.contains(secret));
        assert!(found.is_none(), "{secret} is in {place}: {}", found.unwrap_or_default());
    }
}

#[test]
fn no_secret_is_in_a_log_an_answer_or_a_listing() {
    let folder = Folder::new("attack-secrets");
    let database = Postgres::shared().database();
    let wire = Proxy::start(Postgres::shared().address());
    let url = database.url_through(wire.port()).replace('@', &format!(":{DATABASE}@"));
    let hook = Trap::that_says("127.0.0.1", "HTTP/1.1 500 -\r\ncontent-length: 0\r\n\r\n");
    let hooks = format!("alerts.webhooks=http://127.0.0.1:{}/{WEBHOOK}", hook.port);
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &["--database", &url]);
    let (_, read) = make_key(&data, "read", &["--database", &url]);
    let random = |key: &str| key.rsplit('_').next().expect("its secret").to_owned();
    let settings = [
        "--database".to_owned(),
        url.clone(),
        "--set=log.level=trace".to_owned(),
        format!("--set=cluster.secret={CLUSTER}"),
        format!("--set=queues.encryption_key={ENCRYPTION}"),
        format!("--set=alerts.secret={ALERTS}"),
        format!("--set={hooks}"),
        "--set=gateway.connect_deadline=500ms".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let node = Node::start(skep(), &data, &settings);
    let bearer = format!("Bearer {admin}");
    let known = [("authorization", bearer.as_str())];
    let mut told = Vec::new();
    let mut send = |method: &str, path: &str, body: Option<serde_json::Value>| {
        let body = body.map(|body| body.to_string());
        let answer = node.send(method, path, &known, body.as_deref());
        told.push((format!("{method} {path}"), answer.body.clone()));
        answer
    };

    // Used as they are meant to be.
    let upstream = Trap::that_says("127.0.0.1", "HTTP/1.1 401 -\r\ncontent-length: 0\r\n\r\n");
    let at = format!("127.0.0.1:{}", upstream.port);
    let set = json!({ "authorization": format!("Basic {UPSTREAM}"), "x-api-key": UPSTREAM });
    let route = json!({ "name": "shop", "host": "shop.test", "upstreams": [at, "127.0.0.1:1"],
                        "headers": { "request": { "set": set } } });
    assert_eq!(send("POST", "/api/v1/routes", Some(route)).status, 201);
    let polled = json!({ "id": "p", "url": format!("http://{at}/"), "method": "POST",
                         "headers": { "Authorization": format!("Bearer {POLLED}") },
                         "body": format!("password={BODY}"), "interval": "1s",
                         "timeout": "500ms" });
    assert_eq!(send("POST", "/api/v1/polls/endpoints", Some(polled)).status, 201);
    let worker = json!({ "name": "w", "kind": "chromium", "start": "s",
                         "url": format!("ws://127.0.0.1:1/{WORKER}") });
    assert_eq!(send("POST", "/api/v1/sessions/workers", Some(worker)).status, 200);
    let sealed = json!({ "queue": "sealed", "options": { "encryptionEnabled": true } });
    assert_eq!(send("POST", "/api/v1/configure", Some(sealed)).status, 200);
    let item = json!({ "items": [{ "queue": "sealed", "payload": "hello" }] });
    assert_eq!(send("POST", "/api/v1/push", Some(item)).status, 201);
    let login =
        node.send("POST", "/api/v1/session", &[], Some(&format!("{{\"key\":\"{admin}\"}}")));
    let cookie = login.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let cookie = cookie.split_once('=').expect("a value").1.to_owned();
    node.send("GET", "/api/v1/keys", &[("cookie", &format!("skep_login={cookie}"))], None);

    // And wrongly: in a field, a path, a query, for the wrong thing.
    let wrong = json!({ "name": "r", "upstreams": ["x:1"], "hosts": "a",
                        "headers": { "request": { "set": { "authorization": [UPSTREAM] } } } });
    send("POST", "/api/v1/routes", Some(wrong));
    let wrong = json!({ "id": "q", "url": format!("http://user:{POLLED}@127.0.0.1/"), "x": 1,
                        "headers": { "Authorization": format!("{POLLED}\r\nx: y") } });
    send("POST", "/api/v1/polls/endpoints", Some(wrong));
    send("POST", "/api/v1/keys", Some(json!({ "name": admin, "scopes": [read] })));
    send("DELETE", &format!("/api/v1/keys/{read}x"), None);
    send("GET", &format!("/api/v1/node?token={QUERY}&api_key={QUERY}"), None);
    for wrong in [format!("Bearer {WRONG}"), format!("Basic {WRONG}"), WRONG.to_owned()] {
        let answer = node.send("GET", "/api/v1/keys", &[("authorization", &wrong)], None);
        told.push(("a wrong key".to_owned(), answer.body));
    }
    let cookie_of_another = format!("skep_login={WRONG}");
    node.send("GET", "/api/v1/keys", &[("cookie", &cookie_of_another)], None);
    let shop = format!(
        "GET /?token={QUERY} HTTP/1.1\r\nHost: shop.test\r\nAuthorization: {WRONG}\r\n\
         Cookie: {WRONG}\r\nConnection: close\r\n\r\n"
    );
    for _ in 0..3 {
        let answer = raw_within(node.gateway(), shop.as_bytes(), Duration::from_secs(5));
        told.push(("the route".to_owned(), answer));
    }
    for path in [format!("/?token={WRONG}&kind=chromium"), format!("/?token={admin}")] {
        let client = WebSocket::connect(node.gateway(), &path, &[]);
        told.push(("the gateway".to_owned(), client.refusal().to_string()));
    }
    wire.cut();
    skep_testkit::eventually("the node notices that its database is away", || {
        let answer = node.send("POST", "/api/v1/push", &known, Some("{\"items\":[]}"));
        told.push(("push".to_owned(), answer.body));
        let health = node.get("/health");
        told.push(("health".to_owned(), health.body));
        (health.status == 503).then_some(())
    });
    wire.heal();
    skep_testkit::eventually("the database is back", || {
        (node.get("/health").status == 200).then_some(())
    });

    // Everything that a reader may ask for, and what is for admins to read.
    let reader = format!("Bearer {read}");
    let mut asked = 0;
    for one in operations(&node).iter().filter(|one| one.method == "GET" && !one.is_stream()) {
        let path = one.route.replace("{name}", "shop").replace("{queue}", "sealed");
        let path = if one.route.contains("/endpoints/{id}") {
            one.route.replace("{id}", "p")
        } else if one.route.contains("/workers/{name}") {
            one.route.replace("{name}", "w")
        } else if path.contains('{') {
            one.path.clone()
        } else {
            path
        };
        let as_whom = if one.lets_in("read") { &reader } else { &bearer };
        let answer = node.send("GET", &path, &[("authorization", as_whom)], None);
        asked += 1;
        search(&path, &answer.body, &ALL);
        search(&path, &answer.body, &[&random(&admin), &random(&read), &cookie, WORKER]);
    }
    assert!(asked > 60, "{asked}");
    for (place, text) in &told {
        // The route that somebody may change is told back to them as it is.
        let own = ["POST /api/v1/routes"].contains(&place.as_str());
        let secrets: Vec<&str> =
            ALL.iter().copied().filter(|one| !own || *one != UPSTREAM).collect();
        search(place, text, &secrets);
        search(place, text, &[&random(&admin), &random(&read), WORKER]);
    }
    let print = [&["config", "print"][..], &settings].concat();
    for verb in [print, [&["doctor"][..], &settings].concat()] {
        let process = Process::start("skep", &command(folder.path(), &verb), "KILL");
        process.wait();
        search(verb[0], &process.log(), &ALL);
    }
    let wrong = url.replace("postgres://", "postgres:/");
    let (_, log) = run(folder.path(), &["serve", "--database", &wrong]);
    search("a wrong setting", &log, &[DATABASE]);
    node.stop();
    let log = node.process().log();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "it has told what it does");
    search("the log", &log, &ALL);
    search("the log", &log, &[BODY, WORKER, &random(&admin), &random(&read), &cookie]);
}

#[test]
fn what_a_reader_sees_of_an_endpoint_has_no_credentials_in_it() {
    let folder = Folder::new("attack-endpoints");
    let data = folder.join("data");
    let keys = ["read", "read,poll", "admin"].map(|scopes| make_key(&data, scopes, &[]).1);
    let node = Node::start(skep(), &data, &[]);
    let [reader, poller, admin] = keys.map(|key| format!("Bearer {key}"));
    let endpoint = json!({
        "id": "shop", "method": "POST", "interval": "1h", "body": "user=ann&pin=s3cret",
        "url": "http://127.0.0.1:1/health?page=2&access_token=s3cret&%73ig=s3cret",
        "headers": { "Authorization": "Bearer s3cret", "X-Signature": "s3cret",
                     "Accept": "text/plain" },
    });
    let send = |who: &str, method: &str, path: &str, body: Option<&str>| {
        node.send(method, path, &[("authorization", who)], body)
    };
    let path = "/api/v1/polls/endpoints";
    let made = send(&poller, "POST", path, Some(&endpoint.to_string()));
    assert_eq!(made.status, 201, "{}", made.body);
    let one = format!("{path}/shop");
    let seen = send(&reader, "GET", &one, None).json();
    assert_eq!(seen["url"], "http://127.0.0.1:1/health?page=2&access_token=***&%73ig=***");
    assert_eq!(seen["body"], "***");
    assert_eq!(seen["headers"]["Accept"], "text/plain");
    assert_eq!(seen["headers"]["X-Signature"], "***");
    for at in [path, &one, &format!("{one}/results"), &format!("{one}/moves"), "/api/v1/polls"] {
        let answer = send(&reader, "GET", at, None);
        assert!(answer.status == 200 && !answer.body.contains("s3cret"), "{at}: {}", answer.body);
    }
    // Whoever may change it sees what they would have to write again, but for the headers.
    for who in [&poller, &admin] {
        let seen = send(who, "GET", &one, None).json();
        assert_eq!((&seen["url"], &seen["body"]), (&endpoint["url"], &endpoint["body"]));
        assert_eq!(seen["headers"]["Authorization"], "***");
    }
    // What a reader has seen is not taken for the endpoint.
    let spec = json!({ "id": "shop", "url": seen["url"], "body": seen["body"] });
    let wrong = send(&poller, "PUT", &one, Some(&spec.to_string()));
    assert_eq!(code(&wrong), "E_ENDPOINT_INVALID", "{}", wrong.body);
    assert!(wrong.body.contains("which hides one"), "{}", wrong.body);
    let import = send(&poller, "POST", "/api/v1/polls/import", Some(&spec.to_string()));
    assert_eq!(code(&import), "E_IMPORT_INVALID", "{}", import.body);
}
