//! The pages of the monitors in a real browser.

use crate::common::{open_as_reader, skep};
use crate::dashboard::picture;
use crate::dashboard_sessions::{everything_has_a_name, nothing_too_wide, press};
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, Page, eventually};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const DESKTOP: (u32, u32) = (1_280, 1_800);
const PHONE: (u32, u32) = (390, 3_000);

/// A node that reviews servers all the time.
fn start(folder: &Folder) -> Node {
    let quick = ["review_check=100ms", "review_unchanged=300ms", "review_changed=300ms"];
    let settings: Vec<String> = quick.iter().map(|one| format!("monitors.{one}")).collect();
    let arguments: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    Node::start(skep(), &folder.join("data"), &arguments)
}

fn post(node: &Node, path: &str, body: &Value) -> Value {
    let answer = node.send("POST", path, &[], Some(&body.to_string()));
    assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    answer.json()
}

fn import(node: &Node, lines: &str) {
    let kind = [("content-type", "application/x-ndjson")];
    let answer = node.send("POST", "/api/v1/monitoring/import", &kind, Some(lines));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// `ntp-1` with nine monitors of different networks, one of the server's own network, one that
/// nobody has approved, and `ntp-6` that nobody can watch.
fn fleet(node: &Node) {
    let mut lines = String::new();
    let mut line = |value: Value| writeln!(lines, "{value}").expect("writes");
    let probe = json!({ "kind": "ntp" });
    line(json!({ "server": { "id": "ntp-1", "ip": "192.0.2.1", "probe": probe } }));
    line(json!({ "server": { "id": "ntp-6", "ip": "2001:db8::1", "probe": probe } }));
    for number in 1..=9 {
        let account = format!("a{number}");
        line(json!({ "account": { "id": account } }));
        line(json!({ "monitor": { "id": format!("m{number}"), "account": account,
                                  "ip": format!("10.{number}.0.1"), "status": "active" } }));
    }
    let near = json!({ "id": "near", "ip": "192.0.2.9", "status": "active" });
    line(json!({ "monitor": near }));
    line(json!({ "monitor": { "id": "waiting", "ip": "10.50.0.1" } }));
    import(node, &lines);
}

/// Forty samples of a monitor for `ntp-1`, a minute apart.
fn report(node: &Node, monitor: &str, rtt_ms: Option<f64>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let sample = |number: u128| {
        let at = now as u64 - 60_000 * number as u64 - 1_000;
        match rtt_ms {
            Some(rtt_ms) => json!({ "server": "ntp-1", "at": at, "rtt_ms": rtt_ms,
                                    "offset_ms": 0.5 }),
            None => json!({ "server": "ntp-1", "at": at, "error": "timeout" }),
        }
    };
    let results: Vec<Value> = (0..40).rev().map(sample).collect();
    let body = json!({ "agent": "skep test", "results": results });
    let path = format!("/api/v1/agent/results?monitor={monitor}");
    let answer = post(node, &path, &body);
    assert_eq!(answer["accepted"], 40, "{answer}");
}

/// Lets the monitors measure, and waits until seven are active on `ntp-1`.
fn settle(node: &Node) {
    for number in 1..=8 {
        report(node, &format!("m{number}"), Some(10.0 * f64::from(number)));
    }
    report(node, "m9", None);
    eventually("seven are active", || {
        let server = node.get("/api/v1/servers/ntp-1").json();
        (server["counts"]["active"] == 7).then_some(())
    });
}

/// Fills the open form and sends it.
fn send(page: &mut Page<'_>, fields: &Value) {
    page.eval(&format!(
        "(() => {{
            const form = document.querySelector('dialog[open] form');
            for (const [name, value] of Object.entries({fields})) {{
                const control = form.querySelector(`[name=\"${{name}}\"]`);
                control.value = value;
                control.dispatchEvent(new Event('input'));
            }}
            form.requestSubmit();
        }})()"
    ));
}

/// What the form says about a field.
fn flaw(name: &str) -> String {
    format!(
        "document.querySelector('dialog [name=\"{name}\"]').closest('.field')
            .querySelector('.field-error').textContent"
    )
}

/// The monitors of the shown server that have this status, in the order of rank.
fn pool(status: &str) -> String {
    format!(
        "[...document.querySelectorAll('[data-status={status}] tbody strong')]
            .map(one => one.textContent)"
    )
}

/// The text of a monitor's row.
fn row(monitor: &str) -> String {
    format!(
        "([...document.querySelectorAll('.pool-of-monitors tbody tr')].find(row =>
            row.querySelector('strong')?.textContent === '{monitor}')?.innerText ?? '')"
    )
}

fn errors(page: &mut Page<'_>, expected: &[&str]) -> Vec<String> {
    let mut errors = page.errors();
    errors.retain(|error| !expected.iter().any(|part| error.contains(part)));
    errors
}

#[test]
fn the_fleet_says_how_to_begin_and_shows_servers_below_target_first() {
    let folder = Folder::new("dashboard-monitors");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/monitors"), DESKTOP);
    page.wait_for("document.querySelector('.begin')?.checkVisibility()");
    let text = page.eval("document.querySelector('.begin').innerText");
    for part in ["skep servers add", "skep monitors add", "skep agent --server http://127.0.0.1"] {
        assert!(text.as_str().is_some_and(|text| text.contains(part)), "no {part} in {text}");
    }
    page.screenshot(&picture("monitors-empty"));

    the_forms_name_every_flaw(&mut page, &node);

    fleet(&node);
    page.wait_for("document.querySelector('.tiles').innerText.match(/Below target\\s+3/)");
    let below = "document.querySelector('table[aria-label=\"Servers below target\"]')";
    page.wait_for(&format!("{below}.innerText.includes('ntp-6')"));
    page.wait_for(&format!("{below}.innerText.includes('No monitor can watch it')"));
    let order = page.eval(&format!(
        "{below}.compareDocumentPosition(document.querySelector('.servers-box'))
            & Node.DOCUMENT_POSITION_FOLLOWING"
    ));
    assert_eq!(order, json!(4), "those below target come first");
    settle(&node);
    page.wait_for("document.querySelector('.tiles').innerText.match(/Below target\\s+2/)");
    page.wait_for("document.querySelector('.chart path.chart-line').getAttribute('d').length > 20");
    page.wait_for("document.querySelector('.servers-box').innerText.includes('7 of 7')");
    page.screenshot(&picture("monitors"));
    page.prefer("dark");
    page.screenshot(&picture("monitors-dark"));
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);

    // A filter is in the address, and the address leads there again.
    page.eval(
        "(input => { input.value = 'ntp-6'; input.dispatchEvent(new Event('input')); })(
            document.querySelector('[role=tabpanel] input[name=search]'))",
    );
    page.wait_for("location.hash === '#/monitors?view=servers&search=ntp-6'");
    page.wait_for("document.querySelectorAll('.servers-box tbody tr a').length === 1");
    page.go(&node.url("/#/monitors?view=monitors&status=pending"));
    page.wait_for("document.querySelector('.monitors-box tbody a')?.textContent === 'waiting'");
    press(&mut page, ".monitors-box", "Approve waiting");
    page.wait_for("document.querySelector('.monitors-box').innerText.includes('Nothing matches')");
    assert_eq!(node.get("/api/v1/monitors/waiting").json()["status"], "active");
    page.resize(PHONE.0, PHONE.1);
    for (scheme, view) in [("light", "servers"), ("dark", "monitors"), ("light", "accounts")] {
        page.prefer(scheme);
        page.go(&node.url(&format!("/#/monitors?view={view}")));
        page.wait_for("document.querySelectorAll('[role=tabpanel] tbody td:not(.wide)').length");
        nothing_too_wide(&mut page);
        page.screenshot(&picture(&format!("phone-{scheme}-monitors-{view}")));
    }
    assert_eq!(errors(&mut page, &["400 (Bad Request)", "409 (Conflict)"]), Vec::<String>::new());
}

fn the_forms_name_every_flaw(page: &mut Page<'_>, node: &Node) {
    press(page, ".page-head", "Add a server");
    send(page, &json!({ "id": "a b", "ip": "here", "probe.kind": "tcp", "probe.target": "db" }));
    page.wait_for(&format!("{}.length", flaw("ip")));
    for name in ["id", "probe.target"] {
        let text = page.eval(&flaw(name));
        assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{name}: {text}");
    }
    assert_eq!(page.eval("document.activeElement.name"), "id", "the first of them has the focus");
    page.screenshot(&picture("monitors-form"));
    send(page, &json!({ "id": "db", "ip": "192.0.2.7", "probe.target": "192.0.2.7:5432" }));
    page.wait_for("!document.querySelector('dialog')");
    page.wait_for("document.querySelector('.servers-box tbody a')?.textContent === 'db'");
    let made = node.get("/api/v1/servers/db").json();
    assert_eq!(made["probe"]["kind"], "tcp");

    press(page, ".page-head", "Add an account");
    send(page, &json!({ "id": "acme", "flags.monitor_limit": "-1" }));
    page.wait_for(&format!("{}.length", flaw("flags.monitor_limit")));
    send(page, &json!({ "flags.monitor_limit": "0" }));
    page.wait_for("!document.querySelector('dialog')");
    press(page, ".page-head", "Add a monitor");
    send(page, &json!({ "id": "mine", "ip": "10.70.0.1", "account": "acme" }));
    page.wait_for(&format!("{}.length", flaw("account")));
    press(page, "dialog[open]", "Cancel");
}

#[test]
fn a_server_says_for_each_monitor_why_it_is_what_it_is_and_what_would_change_that() {
    let folder = Folder::new("dashboard-monitors");
    let node = start(&folder);
    fleet(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/monitors?server=ntp-1"), DESKTOP);
    // Nobody has measured: testing is filled all the same.
    page.wait_for(&format!("{}.length === 9", pool("testing")));
    page.wait_for(&format!("{}[0] === 'near'", pool("paused")));
    settle(&node);
    // All of it comes by itself.
    page.wait_for(&format!("{}.length === 7", pool("active")));
    let best = page.eval(&pool("active"));
    assert_eq!(best, json!(["m1", "m2", "m3", "m4", "m5", "m6", "m7"]), "by rank");
    page.wait_for("document.querySelector('.tiles').innerText.includes('7 of 7')");
    page.wait_for(&format!("{}.includes('What would change that')", row("m1")));
    page.wait_for(&format!("{}.includes('in the server')", row("near")));
    page.wait_for(&format!("{}.includes('unhealthy')", row("m9")));
    let first = page.eval(&row("m1"));
    let first = first.as_str().expect("text");
    for part in ["10 ms", "step 1.00", "40", "healthy", "it is active, as it should be"] {
        assert!(first.contains(part), "no {part} in {first}");
    }
    let bad = page.eval(
        "[...document.querySelectorAll('.pool-of-monitors tbody tr')].find(row =>
            row.querySelector('strong')?.textContent === 'm9')
            .querySelectorAll('.strip .bad').length",
    );
    assert!(bad.as_u64().is_some_and(|bad| bad > 10), "its timeouts are marked: {bad}");
    page.wait_for("document.querySelector('.chart path.chart-line').getAttribute('d').length > 20");
    let history = "document.querySelector('table[aria-label^=Changes]').innerText";
    page.wait_for(&format!("{history}.includes('a place in active is free')"));
    page.screenshot(&picture("monitors-server"));
    page.prefer("dark");
    page.screenshot(&picture("monitors-server-dark"));
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);

    an_explanation_is_in_the_address(&mut page, &node);

    page.resize(PHONE.0, PHONE.1);
    page.go(&node.url("/#/monitors?server=ntp-1"));
    page.wait_for(&format!("{}.length === 7", pool("active")));
    nothing_too_wide(&mut page);
    page.screenshot(&picture("phone-dark-monitors-server"));
    page.resize(DESKTOP.0, DESKTOP.1);
    press(&mut page, ".page-head", "Pause ntp-1");
    page.wait_for("document.querySelector('main').innerText.includes('This server is paused')");
    assert_eq!(node.get("/api/v1/servers/ntp-1").json()["paused"], true);
    press(&mut page, ".page-head", "Resume ntp-1");
    page.wait_for("!document.querySelector('main').innerText.includes('This server is paused')");
    press(&mut page, ".page-head", "Review now ntp-1");
    press(&mut page, ".page-head", "Delete ntp-1");
    press(&mut page, "dialog[open]", "Delete server");
    page.wait_for("location.hash === '#/monitors'");
    assert_eq!(node.get("/api/v1/servers/ntp-1").status, 404);
    page.go(&node.url("/#/monitors?server=ntp-1"));
    page.wait_for("document.querySelector('.notice')?.innerText.includes('is not there')");
    assert_eq!(errors(&mut page, &["404 (Not Found)"]), Vec::<String>::new());
}

fn an_explanation_is_in_the_address(page: &mut Page<'_>, node: &Node) {
    press(page, "[data-status=active]", "Explain m7");
    page.wait_for("document.querySelector('dialog[open] dl')?.innerText.includes('7 of 10')");
    page.wait_for("document.querySelector('dialog[open] .flips')?.innerText.includes('paused')");
    assert_eq!(page.eval("location.hash"), "#/monitors?server=ntp-1&explain=m7");
    page.screenshot(&picture("monitors-explain"));
    press(page, "dialog[open]", "Close");
    page.wait_for("location.hash === '#/monitors?server=ntp-1'");
    page.go(&node.url("/#/monitors?server=ntp-1&explain=m9"));
    page.wait_for("document.querySelector('dialog[open] dl')?.innerText.includes('unhealthy')");
    press(page, "dialog[open]", "Close");
}

#[test]
fn a_monitor_is_approved_paused_and_deleted_on_its_page() {
    let folder = Folder::new("dashboard-monitors");
    let node = start(&folder);
    fleet(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/monitors?monitor=waiting"), DESKTOP);
    page.wait_for("document.querySelector('.notice')?.innerText.includes('waits to be approved')");
    press(&mut page, ".page-head", "Approve, on trial waiting");
    page.wait_for("document.querySelector('.tiles').innerText.match(/Status\\s+testing/)");
    let servers = "document.querySelector('table[aria-label=\"Its servers\"]')";
    page.wait_for(&format!("{servers}.innerText.includes('ntp-1')"));
    page.wait_for("document.querySelector('.notice')?.innerText.includes('It has no key')");
    page.go(&node.url("/#/monitors?monitor=m1"));
    settle(&node);
    page.wait_for("document.querySelector('.tiles').innerText.includes('skep test')");
    page.wait_for("document.querySelector('.tiles').innerText.match(/Active on\\s+1/)");
    let history = "document.querySelector('table[aria-label^=Changes]').innerText";
    page.wait_for(&format!("{history}.includes('ntp-1')"));
    page.screenshot(&picture("monitors-monitor"));
    everything_has_a_name(&mut page);
    page.resize(PHONE.0, PHONE.1);
    nothing_too_wide(&mut page);
    page.screenshot(&picture("phone-light-monitors-monitor"));
    page.resize(DESKTOP.0, DESKTOP.1);
    press(&mut page, ".page-head", "Pause m1");
    page.wait_for("document.querySelector('.notice')?.innerText.includes('It is paused')");
    page.wait_for(&format!("{servers}.innerText.includes('paused')"));
    page.eval(&format!("{servers}.querySelector('a').click()"));
    page.wait_for("document.querySelector('h1')?.textContent === 'ntp-1'");
    page.wait_for(&format!("{}.includes('globally paused')", row("m1")));
    page.go(&node.url("/#/monitors?monitor=m1"));
    press(&mut page, ".page-head", "Delete m1");
    press(&mut page, "dialog[open]", "Delete monitor");
    page.wait_for("location.hash === '#/monitors?view=monitors'");
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn a_thousand_servers_are_as_quick_as_ten() {
    let folder = Folder::new("dashboard-monitors");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "monitors.enabled=false"]);
    let mut lines = String::new();
    for number in 0..1_000 {
        let ip = format!("10.{}.{}.1", number / 250, number % 250);
        let server = json!({ "id": format!("s{number:04}"), "ip": ip, "probe": { "kind": "ntp" } });
        writeln!(lines, "{}", json!({ "server": server })).expect("writes");
    }
    import(&node, &lines);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/monitors"), DESKTOP);
    page.wait_for("document.querySelector('.row-foot')?.innerText.includes('100 shown')");
    page.wait_for("document.querySelector('.tiles').innerText.match(/Servers\\s+1,000/)");
    let to_the_end = "(box => { box.scrollTop = box.scrollHeight; return true; })(
        document.querySelector('.servers-box'))";
    for page_end in ["200 shown", "300 shown"] {
        page.wait_for(&format!(
            "{to_the_end} && document.querySelector('.row-foot').innerText.includes('{page_end}')"
        ));
    }
    let drawn = page.eval("document.querySelectorAll('.servers-box tbody tr').length");
    assert!(drawn.as_u64().is_some_and(|rows| (1..100).contains(&rows)), "only what is in sight");
    press(&mut page, "main", "Show more servers");
    page.wait_for(
        "document.querySelectorAll('table[aria-label=\"Servers below target\"] tbody tr').length
            === 20",
    );
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn who_may_only_read_sees_everything_and_no_buttons() {
    let folder = Folder::new("dashboard-monitors");
    let node = start(&folder);
    fleet(&node);
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/monitors");
    page.wait_for("document.querySelector('.servers-box tbody a')?.textContent === 'ntp-1'");
    let buttons = "[...document.querySelectorAll('main button')].map(one => one.textContent)";
    for hash in ["", "?server=ntp-1", "?monitor=m1"] {
        page.go(&node.url(&format!("/#/monitors{hash}")));
        page.wait_for("document.querySelectorAll('main tbody td:not(.wide)').length");
        let found = page.eval(buttons).to_string();
        for word in ["Pause", "Add", "Delete", "Approve"] {
            assert!(!found.contains(word), "{hash}: {found}");
        }
    }
}

#[test]
fn a_new_monitor_s_key_is_shown_once() {
    let folder = Folder::new("dashboard-monitors");
    let node = start(&folder);
    fleet(&node);
    let body = json!({ "name": "admin", "scopes": ["admin"] });
    let made = post(&node, "/api/v1/keys", &body);
    let admin = made["secret"].as_str().expect("a secret").to_owned();
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/monitors"), DESKTOP);
    page.wait_for("document.body.dataset.view === 'login' && document.querySelector('main input')");
    page.eval(&format!(
        "(input => {{ input.value = '{admin}'; input.form.requestSubmit(); }})(
            document.querySelector('main input'))"
    ));
    press(&mut page, ".page-head", "Add a monitor");
    send(&mut page, &json!({ "id": "mine", "ip": "10.70.0.1", "status": "testing" }));
    page.wait_for("document.querySelector('dialog .secret')?.textContent.startsWith('skep_')");
    page.screenshot(&picture("monitors-key"));
    let key = page.eval("document.querySelector('dialog .secret').textContent");
    let key = format!("Bearer {}", key.as_str().expect("text"));
    let asked = node.send("GET", "/api/v1/agent/assignments", &[("authorization", &key)], None);
    assert_eq!((asked.status, &asked.json()["monitor"]), (200, &json!("mine")));
    press(&mut page, "dialog[open]", "I have it");
    page.wait_for("!document.querySelector('dialog')");
    page.go(&node.url("/#/monitors?monitor=mine"));
    press(&mut page, ".page-head", "New key mine");
    press(&mut page, "dialog[open]", "Make a new key");
    page.wait_for("document.querySelector('dialog .secret')?.textContent.startsWith('skep_')");
    press(&mut page, "dialog[open]", "I have it");
    eventually("the old key is refused", || {
        let path = "/api/v1/agent/assignments";
        let asked = node.send("GET", path, &[("authorization", &key)], None);
        (asked.status == 401).then_some(())
    });
    assert_eq!(page.errors(), Vec::<String>::new());
}
