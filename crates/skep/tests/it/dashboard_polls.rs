//! The page of the polls in a real browser.

use crate::common::{open_as_reader, skep};
use crate::dashboard::picture;
use serde_json::{Value, json};
use skep::node::Node as InProcess;
use skep::settings::{Layers, resolve};
use skep_store::{BootClock, Stores};
use skep_testkit::{Browser, Folder, Node, Page, Receiver, eventually, free_port, http};
use std::sync::Arc;

const DESKTOP: (u32, u32) = (1_280, 1_400);
const PHONE: (u32, u32) = (390, 844);
const ENDPOINTS: &str = "/api/v1/polls/endpoints";

/// Adds an endpoint through the API of the node at `address`.
fn add(address: &str, endpoint: &Value) {
    let url = format!("http://{address}{ENDPOINTS}");
    let answer = http::send("POST", &url, &[], Some(&endpoint.to_string())).expect("answers");
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// Presses the button with this label in the part of the page that `place` selects.
fn press(page: &mut Page<'_>, place: &str, label: &str) {
    page.wait_for(&format!(
        "(button => button && (button.click(), true))(
            [...document.querySelectorAll('{place} button')].find(one =>
                (one.ariaLabel ?? one.textContent) === '{label}'))"
    ));
}

/// What went wrong in the page, without what the browser says about answers that were asked for.
fn errors(page: &mut Page<'_>, expected: &str) -> Vec<String> {
    let mut errors = page.errors();
    errors.retain(|error| !error.contains(expected));
    errors
}

fn cells(node: &str) -> String {
    format!(
        "[...document.querySelectorAll('.lane[data-node=\"{node}\"] a')].map(one => one.dataset.id)"
    )
}

#[test]
fn endpoints_are_shown_paused_added_and_opened() {
    let folder = Folder::new("dashboard-polls");
    let good = Receiver::start(0, &[200]);
    let bad = Receiver::start(0, &[200, 503]);
    let node = Node::start(skep(), &folder.join("data"), &["--set", "node.name=hive-1"]);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/polls"), DESKTOP);
    // Before there is anything it says how to begin.
    page.wait_for("document.querySelector('.empty')?.innerText.includes('skep polls add shop')");
    page.screenshot(&picture("polls-empty"));

    for number in 1..=10 {
        let labels = json!({ "env": "prod" });
        let id = format!("shop-{number}");
        let endpoint = json!({ "id": id, "url": good.url(), "interval": "1s", "labels": labels });
        add(node.address(), &endpoint);
    }
    add(node.address(), &json!({ "id": "billing/api", "url": bad.url(), "interval": "1s" }));
    let closed = format!("127.0.0.1:{}", free_port());
    let port = json!({ "id": "db", "kind": "tcp", "address": closed, "interval": "2s" });
    add(node.address(), &port);
    // All of it comes by itself.
    page.wait_for(&format!("{}.length === 12", cells("hive-1")));
    page.wait_for("document.querySelectorAll('tbody tr.failing').length === 2");
    page.wait_for("document.querySelector('.tiles').innerText.match(/Failing\\s+2/)");
    let rows = page.eval("document.querySelector('table[aria-label^=Endpoints]').innerText");
    let rows = rows.as_str().expect("text");
    for part in ["billing/api", "shop-10", &closed, "failing", "refused", "hive-1", "every 1 s"] {
        assert!(rows.contains(part), "no {part} in {rows}");
    }
    page.screenshot(&picture("polls"));
    page.prefer("dark");
    page.screenshot(&picture("polls-dark"));

    // A filter is in the address.
    page.eval(
        "(input => { input.value = 'shop-1'; input.dispatchEvent(new Event('input')); })(
            document.querySelector('input[type=search]'))",
    );
    page.wait_for("document.querySelectorAll('tbody tr a[href*=shop-1]').length === 2");
    page.wait_for("location.hash === '#/polls?search=shop-1'");

    press(&mut page, "main", "Pause shop-1");
    page.wait_for("document.querySelector('tr.faded')?.innerText.includes('paused')");
    let shown = node.get(&format!("{ENDPOINTS}/shop-1")).json();
    assert_eq!(shown["state"], "paused");
    page.wait_for(&format!("!{}.includes('shop-1')", cells("hive-1")));
    press(&mut page, "main", "Resume shop-1");
    page.wait_for(&format!("{}.includes('shop-1')", cells("hive-1")));
    nothing_too_wide(&mut page);
    everything_has_a_name(&mut page);
    assert_eq!(page.errors(), Vec::<String>::new());

    the_form_names_every_flaw(&mut page, &node, &good.url());
    the_page_of_an_endpoint(&mut page, &node);
    assert_eq!(errors(&mut page, "400 (Bad Request)"), Vec::<String>::new());
}

fn the_form_names_every_flaw(page: &mut Page<'_>, node: &Node, url: &str) {
    page.prefer("light");
    press(page, ".page-head", "Add an endpoint");
    let send = |fields: &Value| {
        format!(
            "(() => {{
                const form = document.querySelector('dialog[open] form');
                for (const [name, value] of Object.entries({fields}))
                    form.querySelector(`[name=\"${{name}}\"]`).value = value;
                form.requestSubmit();
            }})()"
        )
    };
    let flaw = |name: &str| {
        format!(
            "document.querySelector('dialog [name=\"{name}\"]').closest('.field')
                .querySelector('.field-error').textContent"
        )
    };
    page.eval(&send(&json!({ "url": "shop", "interval": "0s", "expect.status": "9" })));
    page.wait_for(&format!("{}.includes('Is missing')", flaw("id")));
    for (name, part) in
        [("url", "not allowed"), ("interval", "1s to 24h"), ("expect.status", "200")]
    {
        let text = page.eval(&flaw(name));
        assert!(text.as_str().is_some_and(|text| text.contains(part)), "{name}: {text}");
    }
    assert_eq!(page.eval("document.activeElement.name"), "id", "the first of them has the focus");
    assert_eq!(page.eval("document.querySelector('dialog details').open"), true);
    page.screenshot(&picture("polls-form"));
    let fields = json!({ "id": "added", "url": url, "interval": "1s", "expect.status": "200-299" });
    page.eval(&send(&fields));
    page.wait_for("!document.querySelector('dialog')");
    let added = node.get(&format!("{ENDPOINTS}/added")).json();
    assert_eq!((&added["url"], &added["interval"]), (&json!(url), &json!("1s")));
    page.wait_for(&format!("{}.includes('added')", cells("hive-1")));
}

fn the_page_of_an_endpoint(page: &mut Page<'_>, node: &Node) {
    // From its cell.
    page.eval("document.querySelector('.cells a[data-id=\"billing/api\"]').click()");
    page.wait_for("document.querySelector('h1')?.textContent === 'billing/api'");
    page.wait_for("document.querySelectorAll('.strip i.bad').length > 1");
    page.wait_for(
        "document.querySelector('table[aria-label^=Owners]').innerText.includes('hive-1')",
    );
    let why = page.eval("document.querySelector('table[aria-label^=Owners]').innerText");
    assert!(why.as_str().is_some_and(|why| why.contains("nobody had it")), "{why}");
    let results = "document.querySelector('table[aria-label^=\"Last results\"]').innerText";
    page.wait_for(&format!("{results}.includes('503')"));
    page.wait_for("document.querySelector('.tiles').innerText.includes('grant')");
    page.screenshot(&picture("polls-endpoint"));
    page.resize(PHONE.0, PHONE.1);
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (name, hash) in [("endpoint", "/#/polls?id=billing%2Fapi"), ("all", "/#/polls")] {
            page.go(&node.url(hash));
            page.wait_for("document.querySelectorAll('main tbody tr td:not(.wide)').length");
            nothing_too_wide(page);
            page.screenshot(&picture(&format!("phone-{scheme}-polls-{name}")));
        }
    }
    page.resize(DESKTOP.0, DESKTOP.1);
    page.go(&node.url("/#/polls?id=db"));
    press(page, ".page-head", "Pause db");
    press(page, ".page-head", "Resume db");
    press(page, ".page-head", "Delete db");
    press(page, "dialog[open]", "Delete endpoint");
    page.wait_for("location.hash === '#/polls'");
    assert_eq!(node.get(&format!("{ENDPOINTS}/db")).status, 404);
}

fn everything_has_a_name(page: &mut Page<'_>) {
    let unnamed = page.eval(
        "[...document.querySelectorAll('main :is(button, a, input, select)')].filter(one =>
            one.checkVisibility({ visibilityProperty: true })
            && !(one.ariaLabel || one.textContent || one.labels?.[0]?.innerText)?.trim()
         ).map(one => one.outerHTML)",
    );
    assert_eq!(unnamed, json!([]), "without a name for a screen reader");
}

fn nothing_too_wide(page: &mut Page<'_>) {
    let wide = page.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(wide.as_i64().is_some_and(|over| over <= 0), "{wide} too wide");
}

#[test]
fn who_may_only_read_sees_everything_and_no_buttons() {
    let folder = Folder::new("dashboard-polls");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let target = format!("127.0.0.1:{}", free_port());
    add(node.address(), &json!({ "id": "db", "kind": "tcp", "address": target }));
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/polls");
    page.wait_for("document.querySelector('main tbody a')?.textContent === 'db'");
    let buttons = "[...document.querySelectorAll('main button')].map(one => one.textContent)";
    let found = page.eval(buttons).to_string();
    assert!(!found.contains("Pause") && !found.contains("Add"), "{found}");
    page.go(&node.url("/#/polls?id=db"));
    page.wait_for("document.querySelector('dl.facts')?.innerText.includes('Target')");
    let found = page.eval(buttons).to_string();
    assert!(!found.contains("Pause") && !found.contains("Delete"), "{found}");
    page.go(&node.url("/#/polls?id=nothing"));
    page.wait_for("document.querySelector('.notice')?.innerText.includes('no such endpoint')");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_move_to_the_other_node_when_one_stops() {
    let folder = Folder::new("dashboard-polls");
    let good = Receiver::start(0, &[200]);
    let mut nodes = Vec::new();
    let mut stores = None;
    for name in ["hive-1", "hive-2"] {
        let mut layers = Layers::default();
        layers.add_flag("--data", "data", &folder.path().display().to_string());
        layers.add_flag("--listen", "api.listen", "127.0.0.1:0");
        layers.add_flag("--name", "node.name", name);
        let settings = resolve(layers).expect("is valid").settings;
        let open = || Stores::open(&settings.store_options()).expect("opens");
        let stores = stores.get_or_insert_with(open).clone();
        let clock = Arc::new(BootClock);
        let node = InProcess::start(settings, stores, clock).await.expect("starts");
        assert!(node.ready().await);
        nodes.push(node);
    }
    let address = nodes[1].shared().address.to_string();
    let online = || {
        let answer = http::get(&format!("http://{address}/api/v1/nodes")).ok()?.json();
        let nodes = answer["nodes"].as_array()?.clone();
        (nodes.iter().filter(|node| node["status"] == "online").count() == 2).then_some(())
    };
    eventually("both are online", online);
    for number in 1..=40 {
        let endpoint = json!({ "id": format!("shop-{number:02}"), "url": good.url() });
        add(&address, &endpoint);
    }
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://{address}/#/polls"), DESKTOP);
    let (first, second) = (cells("hive-1"), cells("hive-2"));
    page.wait_for(&format!("{first}.length + {second}.length === 40 && {first}.length > 9"));
    page.screenshot(&picture("polls-two-nodes"));
    let gone = page.eval(&first);
    let gone: Vec<&str> = gone.as_array().into_iter().flatten().filter_map(Value::as_str).collect();

    let mut one = nodes.remove(0);
    one.stop();
    // They fly, and are marked for a moment.
    page.wait_for(&format!("{second}.length > 20 && document.querySelector('.cells .fresh')"));
    page.screenshot(&picture("polls-moving"));
    page.wait_for(&format!("{first}.length === 0 && {second}.length === 40"));
    one.ended().await.expect("ends well");
    page.wait_for("document.querySelector('.lane.gone')?.dataset.node === 'hive-1'");
    let moves = page.eval("document.querySelector('.moves').innerText");
    let moves = moves.as_str().expect("text");
    assert!(moves.contains("hive-1 → hive-2"), "{moves}");
    page.screenshot(&picture("polls-moved"));
    // Its page knows why.
    page.eval(&format!("document.querySelector('.cells a[data-id={}]').click()", gone[0]));
    let owners = "document.querySelector('table[aria-label^=Owners]').innerText";
    page.wait_for(&format!("{owners}.includes('after hive-1')"));
    page.screenshot(&picture("polls-endpoint-moved"));
    assert_eq!(page.errors(), Vec::<String>::new());
    for node in &mut nodes {
        node.stop();
        node.ended().await.expect("ends well");
    }
}
