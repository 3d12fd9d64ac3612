//! The page of the sessions in a real browser.

use crate::common::{open_as_reader, skep, until};
use crate::dashboard::picture;
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, PATIENCE, Page};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const DESKTOP: (u32, u32) = (1_280, 1_400);
const PHONE: (u32, u32) = (390, 844);
const WORKERS: &str = "/api/v1/sessions/workers";
/// The answer to the key that [`connect`] sends, which RFC 6455 has as its example.
const ACCEPTED: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
    connection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A worker that shakes hands with everybody and says everything again. Its address.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                if head(&mut stream).is_empty() || stream.write_all(ACCEPTED.as_bytes()).is_err() {
                    return;
                }
                let Ok(mut back) = stream.try_clone() else { return };
                let _ = std::io::copy(&mut stream, &mut back);
            });
        }
    });
    format!("ws://{address}/secret")
}

/// Everything up to the empty line.
fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Asks the gateway for a session; it lasts as long as the connection is kept.
fn ask(node: &Node, query: &str) -> TcpStream {
    let gateway = node.get("/api/v1/sessions/overview").json()["gateway"].clone();
    let gateway = gateway.as_str().expect("it has a gateway");
    let mut stream = TcpStream::connect(gateway).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("is settable");
    let request = format!(
        "GET /{query} HTTP/1.1\r\nhost: {gateway}\r\nupgrade: websocket\r\n\
         connection: upgrade\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("writes");
    stream
}

/// A session that has begun.
fn connect(node: &Node, query: &str) -> TcpStream {
    let mut stream = ask(node, query);
    let head = head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

fn start(folder: &Folder, more: &[&str]) -> Node {
    let usual = ["--set", "gateway.listen=127.0.0.1:0", "--set", "node.name=hive-1"];
    Node::start(skep(), &folder.join("data"), &[&usual, more].concat())
}

fn post(node: &Node, path: &str, body: &Value) -> Value {
    let answer = node.send("POST", path, &[], Some(&body.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Registers a worker as its supervisor would; which incarnation it is.
fn register(node: &Node, name: &str, url: &str, labels: &[&str]) -> u64 {
    let worker = json!({
        "name": name, "kind": "chromium", "url": url, "slots": 2, "labels": labels,
        "version": "1.62.1", "start": format!("first-{name}"),
    });
    post(node, WORKERS, &worker)["incarnation"].as_u64().expect("a number")
}

/// Says that a worker lives, and what it holds.
fn heartbeat(node: &Node, name: &str, incarnation: u64) {
    let beat = json!({
        "incarnation": incarnation, "phase": "serving", "rss_bytes": 200 << 20, "cpu_percent": 3.5,
    });
    post(node, &format!("{WORKERS}/{name}/heartbeat"), &beat);
}

/// Presses the button with this label in the part of the page that `place` selects.
pub fn press(page: &mut Page<'_>, place: &str, label: &str) {
    page.wait_for(&format!(
        "(button => button && (button.click(), true))(
            [...document.querySelectorAll('{place} button')].find(one =>
                (one.ariaLabel ?? one.textContent) === '{label}'))"
    ));
}

/// The text of the row about `name` in the table of workers.
fn row(name: &str) -> String {
    format!(
        "([...document.querySelectorAll('.workers-box tbody tr')].find(row =>
            row.querySelector('strong')?.textContent === '{name}')?.innerText ?? '')"
    )
}

pub fn nothing_too_wide(page: &mut Page<'_>) {
    let wide = page.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(wide.as_i64().is_some_and(|over| over <= 0), "{wide} too wide");
}

pub fn everything_has_a_name(page: &mut Page<'_>) {
    let unnamed = page.eval(
        "[...document.querySelectorAll('main :is(button, a, input, select)')].filter(one =>
            one.checkVisibility({ visibilityProperty: true })
            && !(one.ariaLabel || one.innerText || one.labels?.[0]?.innerText)?.trim()
         ).map(one => one.outerHTML)",
    );
    assert_eq!(unnamed, json!([]), "without a name for a screen reader");
}

#[test]
fn before_there_is_a_worker_the_page_says_how_to_start_one_and_where_clients_connect() {
    let folder = Folder::new("dashboard-sessions");
    let node = start(&folder, &[]);
    let gateway = node.get("/api/v1/sessions/overview").json()["gateway"].clone();
    let gateway = gateway.as_str().expect("it has a gateway").to_owned();
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/sessions"), DESKTOP);
    page.wait_for("document.querySelector('.begin')?.checkVisibility()");
    let connect = format!("chromium.connect('ws://{gateway}')");
    for part in ["skep worker --kind chromium --url-from-stdout -- node launch-server.js", &connect]
    {
        // The address is filled in when the node has told it.
        page.wait_for(&format!("document.querySelector('main').innerText.includes({part:?})"));
    }
    page.screenshot(&picture("sessions-empty"));
    // The first worker takes its place without a reload.
    register(&node, "browser-1", &echo(), &[]);
    page.wait_for(&format!("{}.includes('ready')", row("browser-1")));
    page.wait_for("!document.querySelector('.begin').checkVisibility()");
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn workers_sessions_and_choices_are_shown_as_they_come() {
    let folder = Folder::new("dashboard-sessions");
    let node = start(&folder, &[]);
    let url = echo();
    for (name, label) in [("browser-1", "eu"), ("browser-2", "us"), ("browser-3", "eu")] {
        let incarnation = register(&node, name, &url, &[label]);
        heartbeat(&node, name, incarnation);
    }
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/sessions"), DESKTOP);
    page.wait_for("document.querySelectorAll('.workers-box tbody tr strong').length === 3");
    let first = row("browser-1");
    page.wait_for(&format!("{first}.includes('200 MiB') && {first}.includes('0 of 2')"));
    // The row that is there now is the one that changes: nothing is built anew.
    page.eval("document.querySelector('.workers-box tbody tr').dataset.seen = 'before'");

    let carried: Vec<TcpStream> = (0..2).map(|_| connect(&node, "?label=us")).collect();
    let second = row("browser-2");
    page.wait_for(&format!("{second}.includes('full') && {second}.includes('2 of 2')"));
    page.wait_for("document.querySelectorAll('[data-state=open] tbody .mono').length === 2");
    page.wait_for("document.querySelectorAll('.choices-made li').length === 2");
    assert_eq!(page.eval("document.querySelectorAll('[data-seen=before]').length"), 1);
    let choice = page.eval("document.querySelector('.choices-made li').innerText");
    let choice = choice.as_str().expect("text");
    for part in ["browser-2", "the least loaded", "1 of 2 slots taken", "Of 3 chromium workers"] {
        assert!(choice.contains(part), "no {part} in {choice}");
    }
    page.wait_for("document.querySelector('.kind').innerText.match(/Sessions\\s+2\\s+of 6 slots/)");
    page.wait_for("document.querySelectorAll('.saw-line').length === 3");

    // One more has to wait, and is the first in the line.
    let waiting = ask(&node, "?label=us");
    page.wait_for("document.querySelectorAll('[data-state=waiting] tbody .mono').length === 1");
    page.wait_for("document.querySelector('.kind').innerText.match(/Waiting\\s+1/)");
    the_form_explains(&mut page);
    page.screenshot(&picture("sessions"));
    page.prefer("dark");
    page.screenshot(&picture("sessions-dark"));
    page.prefer("light");
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);

    // Ending an open session makes room for it.
    page.eval("document.querySelector('[data-state=open] tbody button.danger').click()");
    press(&mut page, "dialog[open]", "End session");
    page.wait_for("document.querySelectorAll('.choices-made li').length === 3");
    page.wait_for("document.querySelectorAll('[data-state=waiting] tbody .mono').length === 0");
    drop((carried, waiting));
    page.wait_for("document.querySelectorAll('[data-state=open] tbody .mono').length === 0");
    // The browser says itself that one answer was a refusal, which was asked for.
    let mut errors = page.errors();
    errors.retain(|error| !error.contains("400 (Bad Request)"));
    assert_eq!(errors, Vec::<String>::new());

    page.resize(PHONE.0, PHONE.1);
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (name, hash) in [("all", "/#/sessions"), ("worker", "/#/sessions?worker=browser-2")] {
            page.go(&node.url(hash));
            page.wait_for("document.querySelectorAll('main .tile').length >= 5");
            page.wait_for("document.querySelector('.saw svg').getAttribute('aria-label')");
            nothing_too_wide(&mut page);
            page.screenshot(&picture(&format!("phone-{scheme}-sessions-{name}")));
        }
    }
}

fn the_form_explains(page: &mut Page<'_>) {
    let send = |label: &str, version: &str| {
        format!(
            "(form => {{
                form.querySelector('[name=label]').value = '{label}';
                form.querySelector('[name=version]').value = '{version}';
                form.requestSubmit();
            }})(document.querySelector('.explain form'))"
        )
    };
    let result = "document.querySelector('.explain [role=status]').innerText";
    page.eval(&send("eu", "1.62"));
    page.wait_for(&format!("{result}.includes('would get browser-1')"));
    let why = page.eval(result);
    let why = why.as_str().expect("text");
    for part in ["browser-2", "does-not-fit", "browser-3", "could have had it"] {
        assert!(why.contains(part), "no {part} in {why}");
    }
    page.eval(&send("us", ""));
    page.wait_for(&format!("{result}.includes('would have to wait')"));
    page.eval(&send("eu", "new"));
    page.wait_for(
        "document.querySelector('.explain [name=version]').closest('.field')
            .querySelector('.field-error').textContent.includes('1.62')",
    );
    page.eval(&send("eu", ""));
    page.wait_for(&format!("{result}.includes('would get')"));
}

#[test]
fn a_worker_is_drained_undrained_and_removed_after_a_question() {
    let folder = Folder::new("dashboard-sessions");
    let node = start(&folder, &[]);
    let url = echo();
    register(&node, "browser-1", &url, &["eu"]);
    register(&node, "browser-2", &url, &["us"]);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/sessions"), DESKTOP);
    let standing =
        |name: &str| node.get(&format!("{WORKERS}/{name}")).json()["standing"].to_string();
    press(&mut page, ".workers-box", "Drain browser-1");
    press(&mut page, "dialog[open]", "Cancel");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(standing("browser-1"), "\"ready\"", "nothing is done before yes is said");
    press(&mut page, ".workers-box", "Drain browser-1");
    press(&mut page, "dialog[open]", "Drain worker");
    page.wait_for(&format!("{}.includes('drained')", row("browser-1")));
    assert_eq!(standing("browser-1"), "\"drained\"");
    press(&mut page, ".workers-box", "Undrain browser-1");
    page.wait_for(&format!("{}.includes('ready')", row("browser-1")));

    // The same from its own page, which shows what it carries.
    page.eval("document.querySelector('.workers-box tbody a[href*=browser-2]').click()");
    page.wait_for("document.querySelector('h1')?.textContent === 'browser-2'");
    let carried = connect(&node, "?label=us");
    page.wait_for("document.querySelectorAll('[data-state=open] tbody .mono').length === 1");
    page.wait_for("document.querySelector('.tiles').innerText.match(/Sessions\\s+1 of 2/)");
    page.screenshot(&picture("sessions-worker"));
    press(&mut page, ".page-head", "Drain browser-2");
    press(&mut page, "dialog[open]", "Drain worker");
    page.wait_for("document.querySelector('.tiles').innerText.includes('drained')");
    press(&mut page, ".page-head", "Remove browser-2");
    press(&mut page, "dialog[open]", "Remove worker");
    until("it is removed", || standing("browser-2") == "\"removed\"");
    page.wait_for("document.querySelector('.tiles').innerText.includes('removed')");
    drop(carried);
    page.go(&node.url("/#/sessions?worker=nobody"));
    page.wait_for("document.querySelector('.notice')?.innerText.includes('nobody is not there')");
}

#[test]
fn who_may_only_read_sees_workers_and_no_buttons() {
    let folder = Folder::new("dashboard-sessions");
    let node = start(&folder, &[]);
    register(&node, "browser-1", &echo(), &[]);
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/sessions");
    page.wait_for(&format!("{}.includes('ready')", row("browser-1")));
    let buttons =
        page.eval("[...document.querySelectorAll('main button')].map(one => one.textContent)");
    let buttons = buttons.to_string();
    assert!(!buttons.contains("Drain") && !buttons.contains("Remove"), "{buttons}");
}

#[test]
fn of_very_many_workers_one_page_is_shown_and_the_next_is_a_button_away() {
    let folder = Folder::new("dashboard-sessions");
    let node = start(&folder, &[]);
    let url = echo();
    for number in 1..=150 {
        register(&node, &format!("browser-{number:03}"), &url, &[]);
    }
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/sessions"), DESKTOP);
    let names = "[...document.querySelectorAll('.workers-box tbody strong')].map(one =>
        one.textContent)";
    page.wait_for(&format!("{names}.length === 60 && {names}[0] === 'browser-001'"));
    page.wait_for("document.querySelector('.saw').innerText.includes('of 150')");
    press(&mut page, "main", "Next 60");
    page.wait_for(&format!("{names}.length === 60 && {names}[0] === 'browser-061'"));
    press(&mut page, "main", "Next 60");
    page.wait_for(&format!("{names}.length === 30 && {names}.at(-1) === 'browser-150'"));
    press(&mut page, "main", "Previous");
    page.wait_for(&format!("{names}[0] === 'browser-061'"));
    page.eval(
        "(select => { select.value = 'held'; select.dispatchEvent(new Event('change')); })(
            document.querySelector('main select[aria-label=Standing]'))",
    );
    page.wait_for("document.querySelector('.workers-box').innerText.includes('No worker matches')");
    page.wait_for("location.hash === '#/sessions?standing=held'");
    page.screenshot(&picture("sessions-many"));
    assert_eq!(page.errors(), Vec::<String>::new());
}
