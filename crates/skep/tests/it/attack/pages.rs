//! A real browser that has a page of somebody else open, beside a node that trusts it: this machine
//! while there is no key, and the dashboard's login.

use super::kit::{Trap, make_key};
use crate::common::{skep, until};
use serde_json::{Value, json};
use skep_testkit::{Browser, EchoWorker, Folder, Node, Page, WebSocket};
use std::collections::BTreeMap;

/// Everything that a page can make a browser send.
const ATTACK: &str = include_str!("page.js");
const WINDOW: (u32, u32) = (800, 600);
const POP: &str = "/api/v1/pop/queue/orders?autoAck=true";
const MESSAGE: &str = r#"{"items":[{"queue":"orders","payload":{"id":17}}]}"#;
/// Requests of an attack that would pop.
const POPS: u64 = 9;
/// Those that would push.
const PUSHES: u64 = 8;

/// A site of somebody else, on a port of this machine.
fn site() -> Trap {
    let page = "<!doctype html><title>Kittens</title><body>Kittens";
    let head = "HTTP/1.1 200 -\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length:";
    Trap::that_says("127.0.0.1", format!("{head} {}\r\n\r\n{page}", page.len()))
}

/// A node, and what lets the test itself in.
struct Target {
    node: Node,
    bearer: Option<String>,
}

impl Target {
    fn send(&self, method: &str, path: &str, body: Option<&str>) -> Value {
        let bearer = self.bearer.as_deref().map(|bearer| ("authorization", bearer));
        let answer = self.node.send(method, path, bearer.as_slice(), body);
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap_or(Value::Null)
    }

    fn port(&self) -> &str {
        self.node.address().rsplit(':').next().expect("a port")
    }

    /// One message to steal, and a worker to get a session with.
    fn prepare(&self, worker: &EchoWorker) {
        self.send("POST", "/api/v1/push", Some(MESSAGE));
        let worker = json!({ "name": "w", "kind": "chromium", "url": worker.url(), "start": "s" });
        self.send("POST", "/api/v1/sessions/workers", Some(&worker.to_string()));
    }

    /// What an attack would change: messages, queues, keys, what the audit log has of it.
    fn kept(&self) -> Value {
        let names = |path: &str, list: &str, field: &str| -> Vec<Value> {
            let found = self.send("GET", path, None);
            let found = found[list].as_array().unwrap_or_else(|| panic!("{found}"));
            found.iter().map(|one| one[field].clone()).collect()
        };
        let depth = self.send("GET", "/api/v1/resources/queues/orders/depth", None);
        json!({
            "depth": depth,
            "queues": names("/api/v1/resources/queues", "queues", "name"),
            "keys": names("/api/v1/keys", "keys", "id"),
            "audit": names("/api/v1/audit", "entries", "action"),
        })
    }

    /// How often something was answered, by method, route and status.
    fn answered(&self) -> BTreeMap<(String, String, u16), u64> {
        let bearer = self.bearer.as_deref().map(|bearer| ("authorization", bearer));
        let metrics = self.node.send("GET", "/metrics", bearer.as_slice(), None).body;
        let lines = metrics.lines().filter_map(|line| {
            let (labels, count) =
                line.strip_prefix("skep_http_requests_total{")?.split_once("} ")?;
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\""))?.1;
                Some(rest.split('"').next()?.to_owned())
            };
            let key = (label("method")?, label("route")?, label("status")?.parse().ok()?);
            Some((key, count.trim().parse().ok()?))
        });
        lines.collect()
    }

    /// How often routes that begin like this were answered with one of these statuses.
    fn count(&self, route: &str, statuses: impl Fn(u16) -> bool) -> u64 {
        let all = self.answered();
        let fits =
            all.iter().filter(|((_, at, status), _)| at.starts_with(route) && statuses(*status));
        fits.map(|(_, count)| count).sum()
    }
}

/// Lets the page of this origin try everything; what it saw.
fn attack(browser: &mut Browser, origin: &str, node: &str, target: &Target) -> Value {
    let mut page = browser.open(&format!("{origin}/"), WINDOW);
    assert_eq!(page.eval("document.title"), "Kittens");
    let gateway = target.node.gateway();
    let saw = page.eval(&format!("({ATTACK})('{node}', '{gateway}')"));
    for (what, outcome) in saw.as_object().expect("what it saw") {
        let nothing = ["loaded", "refused", "unreadable", "opaque"];
        assert!(nothing.iter().any(|one| outcome == one), "{origin} at {node}: {what}: {outcome}");
    }
    for what in ["image", "script", "style", "json include", "events true", "events false"] {
        assert_eq!(saw[what], "refused", "{origin} at {node}: {what}");
    }
    // A link that somebody follows, and what they would see then.
    let before = target.count("/api/v1/pop", |status| status >= 400);
    page.eval(&format!("void (location = '{node}{POP}')"));
    until("the link was followed", || target.count("/api/v1/pop", |status| status >= 400) > before);
    saw
}

/// What a page of the node's own origin sees of the same: it works, so that the test can fail.
fn own(page: &mut Page<'_>) -> Value {
    page.eval(&format!(
        "(async () => {{
            const csrf = (await (await fetch('/api/v1/session')).json()).csrf;
            const headers = {{ 'content-type': 'application/json' }};
            if (csrf) headers['x-csrf-token'] = csrf;
            const pop = await fetch('{POP}', {{ headers }});
            const push = await fetch('/api/v1/push', {{ method: 'POST', headers,
                body: JSON.stringify({{ items: [{{ queue: 'own', payload: 1 }}] }}) }});
            const events = await new Promise((done) => {{
                const events = new EventSource('/api/v1/live');
                const end = (outcome) => {{ events.close(); done(outcome); }};
                events.onopen = () => end('open');
                events.onerror = () => end('refused');
            }});
            return {{ pop: pop.status, push: push.status, events }};
        }})()"
    ))
}

fn nothing_came_of_it(target: &Target, before: &Value, attacks: u64) {
    until("all of it has come", || {
        target.count("/api/v1/pop", |status| status >= 400) >= attacks * (POPS + 1)
            && target.count("/api/v1/push", |status| status >= 400) >= attacks * PUSHES
    });
    assert_eq!(&target.kept(), before);
    for ((method, route, status), _) in target.answered() {
        let attacked = ["/api/v1/pop", "/api/v1/live"].iter().any(|at| route.starts_with(at))
            || (method != "GET" && route.starts_with("/api/v1/resources"));
        assert!(!attacked || status >= 400, "{method} {route}: {status}");
    }
    assert_eq!(target.count("/api/v1/push", |status| status < 400), 1, "the test's own");
    assert_eq!(target.count("/assets", |_| true), 0, "the dashboard was loaded in a frame");
}

#[test]
fn a_page_of_another_site_in_a_real_browser_gets_nothing_of_a_node_without_keys() {
    let folder = Folder::new("attack-browser");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let target = Target { node, bearer: None };
    let (site, worker) = (site(), EchoWorker::start());
    target.prepare(&worker);
    let before = target.kept();
    let mut browser = Browser::start();
    let (at, port) = (site.port, target.port().to_owned());
    // Of another port, and of another site, whichever name the node has.
    for (page, node) in [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
    ] {
        let (origin, node) = (format!("http://{page}:{at}"), format!("http://{node}:{port}"));
        attack(&mut browser, &origin, &node, &target);
    }
    nothing_came_of_it(&target, &before, 4);
    assert_eq!(worker.served(), 0, "nobody got a session");

    // A name of the page's own that leads to this machine: for the browser it is one origin.
    let mut page = browser.open(&format!("http://evil.localhost:{port}/health"), WINDOW);
    let rebound = page.eval(&format!(
        "fetch('{POP}').then(async (answer) => `${{answer.status}} ${{await answer.text()}}`)"
    ));
    assert!(rebound.as_str().is_some_and(|text| text.contains("E_HOST")), "{rebound}");
    assert_eq!(target.kept(), before);

    let mut page = browser.open(&target.node.url("/health"), WINDOW);
    page.eval(&format!(
        "new Promise((done) => {{
            const one = new Image();
            one.onerror = () => done(true);
            one.src = '{POP}';
        }})"
    ));
    assert_ne!(target.kept()["depth"], before["depth"], "an image of its own page pops");
    target.send("POST", "/api/v1/push", Some(MESSAGE));
    assert_eq!(own(&mut page), json!({ "pop": 200, "push": 201, "events": "open" }));
    let mut page = browser.open(&target.node.url("/"), WINDOW);
    page.wait_for("document.querySelector('h1')?.textContent === 'Overview'");
    assert!(target.count("/assets", |status| status == 200) > 0);
    assert_eq!(WebSocket::connect(target.node.gateway(), "/", &[]).status(), 101);
}

#[test]
fn a_page_beside_the_dashboard_in_a_real_browser_cannot_use_its_login() {
    let folder = Folder::new("attack-browser");
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &[]);
    let node = Node::start(skep(), &data, &[]);
    let target = Target { node, bearer: Some(format!("Bearer {admin}")) };
    let (site, worker) = (site(), EchoWorker::start());
    target.prepare(&worker);
    let mut browser = Browser::start();
    let log_in = format!(
        "fetch('/api/v1/session', {{ method: 'POST', body: JSON.stringify({{ key: '{admin}' }}),
            headers: {{ 'content-type': 'application/json' }} }}).then((answer) => answer.status)"
    );
    let status = browser.open(&target.node.url("/health"), WINDOW).eval(&log_in);
    assert_eq!(status, 200);
    let before = target.kept();
    let node = target.node.url("");
    // The cookie comes along from another port of the host, and not from another host.
    attack(&mut browser, &format!("http://127.0.0.1:{}", site.port), &node, &target);
    let with_cookie = target.count("/api/v1/pop", |status| status == 403);
    assert!(with_cookie >= 5, "the browser has sent the login: {with_cookie}");
    attack(&mut browser, &format!("http://localhost:{}", site.port), &node, &target);
    assert_eq!(target.count("/api/v1/pop", |status| status == 403), with_cookie);
    nothing_came_of_it(&target, &before, 2);
    assert_eq!(worker.served(), 0, "nobody got a session");

    let mut page = browser.open(&target.node.url("/health"), WINDOW);
    assert_eq!(own(&mut page), json!({ "pop": 200, "push": 201, "events": "open" }));
    let mut page = browser.open(&target.node.url("/"), WINDOW);
    page.wait_for("document.querySelector('h1')?.textContent === 'Overview'");
    assert!(target.count("/assets", |status| status == 200) > 0);
}
