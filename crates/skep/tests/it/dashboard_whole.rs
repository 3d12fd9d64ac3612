//! The dashboard as one thing: every page for every eye and hand, what is wrong and where, search,
//! addresses, and lists of any length.

use crate::common::skep;
use crate::dashboard::{nothing_went_wrong, picture};
use crate::dashboard_sessions::press;
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, Page, eventually};

pub const DESKTOP: (u32, u32) = (1_280, 800);
pub const PHONE: (u32, u32) = (390, 844);
/// A scroll is told of by then, and what it brings about is done.
const TWO_FRAMES: &str =
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
const CHECKS: &str = include_str!("dashboard_whole/checks.js");
/// What somebody could name something, to do harm or because they can.
const ODD: &str = "<img src=x onerror=alert(1)>&\"' 日本語";
/// The page that was opened last, with its first answers.
pub const OPEN: &str =
    "document.querySelector('main > .page:not([data-old], [aria-busy], [data-settling]) h1')";
/// Every page, and what is behind it.
const PAGES: [&str; 28] = [
    "/",
    "/pools",
    "/cluster?key=mails%3Asender",
    "/polls",
    "/polls?id=nobody",
    "/monitors",
    "/monitors?view=monitors",
    "/monitors?server=ntp-1",
    "/monitors?monitor=m1",
    "/sessions?ask=kind%3Dchromium",
    "/sessions?worker=browser-1",
    "/routes?test=url%3Dshop.example%26method%3DGET",
    "/routes?route=shop",
    "/queues",
    "/queues?queue=mails",
    "/queues?queue=mails&tab=groups",
    "/queues?queue=mails&tab=partitions",
    "/queues?queue=mails&tab=dead",
    "/queues?queue=mails&tab=options",
    "/dead",
    "/schedules",
    "/traces",
    "/keys",
    "/log",
    "/audit",
    "/access",
    "/settings?setting=pools.high.max",
    "/api",
];

fn send(node: &Node, method: &str, path: &str, body: &Value) -> Value {
    let answer = node.send(method, path, &[], Some(&body.to_string()));
    assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    serde_json::from_str(&answer.body).unwrap_or(Value::Null)
}

fn post(node: &Node, path: &str, body: &Value) -> Value {
    send(node, "POST", path, body)
}

/// A message of `mails` that becomes a dead letter at once.
fn dead_letter(node: &Node) {
    let options = json!({ "queue": "mails", "options": { "retryLimit": 0 } });
    post(node, "/api/v1/configure", &options);
    let message = json!({ "queue": "mails", "partition": ODD, "payload": { "to": ODD } });
    post(node, "/api/v1/push", &json!({ "items": [message] }));
    let popped = node.get("/api/v1/pop/queue/mails?consumerGroup=sender").json();
    let message = &popped["messages"][0];
    let ack = json!({
        "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "consumerGroup": "sender", "status": "failed",
        "error": ODD,
    });
    post(node, "/api/v1/ack", &ack);
}

/// An endpoint at which nobody listens.
fn failing_endpoint(node: &Node) {
    let endpoint =
        json!({ "id": "nobody", "kind": "tcp", "address": "127.0.0.1:9", "interval": "1s" });
    post(node, "/api/v1/polls/endpoints", &endpoint);
}

/// Something of everything.
pub fn fill(node: &Node) {
    dead_letter(node);
    failing_endpoint(node);
    let message = json!({ "queue": ODD, "payload": 1 });
    post(node, "/api/v1/push", &json!({ "items": [message] }));
    let schedule = json!({ "queue": ODD, "cron": "0 9 * * 1-5", "payload": ODD });
    send(node, "PUT", "/api/v1/schedules/morning", &schedule);
    let route = json!({ "name": "shop", "host": "shop.example", "upstreams": ["127.0.0.1:9"] });
    send(node, "PUT", "/api/v1/routes/shop", &route);
    let worker = json!({
        "name": "browser-1", "kind": "chromium", "url": "ws://127.0.0.1:9/secret", "slots": 2,
        "labels": ["eu"], "version": "1.62.1", "start": "first",
    });
    post(node, "/api/v1/sessions/workers", &worker);
    let probe = json!({ "kind": "ntp" });
    post(node, "/api/v1/servers", &json!({ "id": "ntp-1", "ip": "192.0.2.1", "probe": probe }));
    let monitor = json!({ "id": "m1", "ip": "10.1.0.1", "status": "active" });
    post(node, "/api/v1/monitors", &monitor);
}

pub fn start(folder: &Folder) -> Node {
    let settings = ["--set", "gateway.listen=127.0.0.1:0", "--set", "node.name=hive-1"];
    Node::start(skep(), &folder.join("data"), &settings)
}

/// Goes to another page and waits until it is there.
pub fn go(page: &mut Page<'_>, node: &Node, hash: &str) {
    page.eval("document.querySelector('main > .page')?.setAttribute('data-old', '')");
    page.go(&node.url(&format!("/#{hash}")));
    page.wait_for(OPEN);
}

/// What is wrong with the open page.
pub fn flaws(page: &mut Page<'_>) -> Value {
    page.eval(CHECKS)
}

#[test]
fn every_page_is_there_for_every_eye_and_hand_at_desk_and_phone_in_light_and_dark() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    fill(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for(OPEN);
    // Colours are looked at as they are in the end. What moves is counted from now on.
    page.eval(
        "(() => {
            const still = new CSSStyleSheet();
            still.replaceSync('* { transition: none !important; animation: none !important; }');
            document.adoptedStyleSheets = [still];
            window.shift = 0;
            new PerformanceObserver((list) => {
                for (const one of list.getEntries()) window.shift += one.value;
            }).observe({ type: 'layout-shift', buffered: true });
        })()",
    );
    let mut wrong = Vec::new();
    for hash in PAGES {
        page.resize(DESKTOP.0, DESKTOP.1);
        page.prefer("light");
        page.eval(&format!("{TWO_FRAMES}.then(() => {{ window.shift = 0; }})"));
        go(&mut page, &node, hash);
        let shift = page.eval("window.shift").as_f64().expect("a number");
        if shift > 0.05 {
            wrong.push(format!("{hash}: it moves by {shift} while it loads"));
        }
        for (size, scheme) in
            [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "dark"), (PHONE, "light")]
        {
            page.resize(size.0, size.1);
            page.prefer(scheme);
            for flaw in flaws(&mut page).as_array().expect("a list") {
                wrong.push(format!("{hash} {size:?} {scheme}: {flaw}"));
            }
        }
        let plain = |one: char| if one.is_alphanumeric() { one } else { '-' };
        let name: String = hash.chars().map(plain).collect();
        page.screenshot(&picture(&format!("whole{name}")));
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    // What moves does so only for those who like it.
    let moving = page.eval(
        "[...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
            .filter((rule) => rule instanceof CSSStyleRule)
            .filter((rule) => /transition|animation/.test(rule.style.cssText))
            .map((rule) => rule.cssText)",
    );
    assert_eq!(moving, json!([]), "it moves for those who asked for less of that");
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn the_overview_says_what_to_do_first_then_what_is_wrong_and_leads_there() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    let head = "document.querySelector('.trouble-card h2').textContent";
    page.wait_for(OPEN);
    page.wait_for(&format!("{head} === 'Nothing is wrong'"));
    page.wait_for("document.querySelector('.begin').innerText.includes('skep push orders')");
    page.screenshot(&picture("overview-empty"));

    dead_letter(&node);
    failing_endpoint(&node);
    // As programs see it.
    let told = eventually("both are told", || {
        let told = node.get("/api/v1/overview").json();
        let kinds = told["troubles"].as_array()?.iter().map(|one| one["kind"].clone());
        let kinds: Vec<Value> = kinds.collect();
        let both = ["dead-letters", "endpoint"].iter().all(|kind| kinds.contains(&json!(kind)));
        both.then_some(told)
    });
    assert_eq!(told["numbers"]["polls"]["failing"], 1, "{told}");
    assert_eq!(told["numbers"]["queues"]["dead"], 1, "{told}");
    assert_eq!(told["unknown"], json!([]), "{told}");
    // As people see it, without a reload.
    let row = |part: &str| {
        format!(
            "[...document.querySelectorAll('.troubles a')]
                .find((one) => one.textContent.includes('{part}'))"
        )
    };
    page.wait_for(&row("The endpoint nobody failed"));
    page.wait_for(&row("of mails"));
    assert_eq!(page.eval("document.querySelector('.begin').checkVisibility()"), false);
    page.wait_for("document.querySelector('.vitals').innerText.match(/Polls\\s+1\\s+1 failing/)");
    page.screenshot(&picture("overview-troubles"));
    page.eval(&format!("{}.click()", row("of mails")));
    page.wait_for("location.hash === '#/queues?queue=mails&tab=dead'");
    page.wait_for("document.querySelector('.dead-box tbody tr td:not(.wide)')");
    page.eval("history.back()");
    page.wait_for(&row("The endpoint nobody"));
    page.eval(&format!("{}.click()", row("The endpoint nobody")));
    page.wait_for("document.querySelector('h1')?.textContent === 'nobody'");
    // It is over when it is over.
    assert_eq!(node.send("DELETE", "/api/v1/polls/endpoints/nobody", &[], None).status, 204);
    go(&mut page, &node, "/");
    page.wait_for(&format!("!({})", row("The endpoint nobody")));
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn a_search_finds_things_of_all_parts_and_needs_no_pointer() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    fill(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/keys"), DESKTOP);
    page.wait_for(OPEN);
    page.eval("document.querySelector('main button').focus()");
    let opener = page.eval("document.activeElement.textContent");
    page.press("/");
    page.wait_for("document.activeElement.getAttribute('role') === 'combobox'");
    let look = |text: &str| {
        format!(
            "(() => {{
                const input = document.querySelector('.palette input');
                input.value = {text};
                input.dispatchEvent(new Event('input', {{ bubbles: true }}));
            }})()",
            text = json!(text)
        )
    };
    let found = |title: &str| {
        format!(
            "[...document.querySelectorAll('.palette [role=option]')]
                .findIndex((one) => one.firstChild.textContent === {}) + 1",
            json!(title)
        )
    };
    for title in ["mails", "nobody", "shop", "browser-1", "ntp-1", "m1", "hive-1", "morning", ODD] {
        page.eval(&look(title));
        page.wait_for(&found(title));
    }
    assert_eq!(flaws(&mut page), json!([]));
    page.screenshot(&picture("search"));
    // Escape gives the focus back, Ctrl-K opens it again, arrows and Enter choose.
    page.press("Escape");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(page.eval("document.activeElement.textContent"), opener);
    page.eval(
        "document.activeElement.dispatchEvent(
            new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true }))",
    );
    page.wait_for("document.querySelector('.palette')");
    page.eval(&look("mo"));
    let at = page.wait_for(&found("morning")).as_u64().expect("its place");
    for _ in 1..at {
        page.press("ArrowDown");
    }
    page.press("Enter");
    page.wait_for("location.hash.startsWith('#/schedules?queue=')");
    page.wait_for("!document.querySelector('dialog')");
    page.eval("document.getElementById('search').click()");
    page.eval(&look("nothing like this"));
    page.wait_for(
        "document.querySelector('.palette [role=status]').textContent === 'Nothing was found'",
    );
    // In a field a stroke is a stroke.
    page.press("Escape");
    page.wait_for("!document.querySelector('dialog')");
    page.eval("document.querySelector('main input').focus()");
    page.press("/");
    assert_eq!(page.eval("document.querySelector('dialog')"), Value::Null);
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn numbers_explain_themselves_and_a_keyboard_goes_through_the_page_in_its_order() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    fill(&node);
    let mut browser = Browser::start();
    // So low that the keyboard has to scroll to the column.
    let mut page = browser.open(&node.url("/#/queues"), (1_280, 400));
    page.wait_for(OPEN);
    page.wait_for("document.querySelector('.queues-box tbody a')");
    // Where the keyboard is: its place in the document, whether that can be seen, and its text.
    let here = "(() => {
        const at = document.activeElement;
        const shown = (one) => one && getComputedStyle(one).outlineStyle !== 'none'
            && parseFloat(getComputedStyle(one).outlineWidth) > 0;
        const order = [...document.querySelectorAll('*')].indexOf(at);
        return [order, at === document.body || shown(at) || shown(at.closest('.vital')),
            at.textContent.slice(0, 40)];
    })()";
    let tip = "document.querySelector('.tip:popover-open')?.innerText ?? ''";
    let (mut before, mut explained, mut stops) = (0, 0, 0);
    loop {
        page.press("Tab");
        let now = page.eval(here);
        let order = now[0].as_u64().expect("a place");
        assert_eq!(now[1], true, "nobody sees that the keyboard is at {}", now[2]);
        if order < before || stops > 120 {
            break;
        }
        if now[2] == "Pending" {
            page.eval(TWO_FRAMES);
            let text = page.eval(tip);
            assert!(text.as_str().is_some_and(|text| text.contains("settled")), "{text}");
            let described = "document.getElementById(
                document.activeElement.getAttribute('aria-describedby')).role";
            assert_eq!(page.eval(described), "tooltip");
            page.press("Escape");
            assert_eq!(page.eval(tip), "");
            explained += 1;
        }
        (before, stops) = (order, stops + 1);
    }
    assert!(stops > 30 && stops <= 120, "{stops} stops, then it begins again");
    assert_eq!(explained, 2, "the tile and the column");
    // A pointer, which comes right after a scroll, and once more; and a finger.
    let label = "document.querySelector('th[aria-label=Lag] .meaning')";
    let point = format!(
        "{label}.dispatchEvent(new PointerEvent('pointerenter', {{ pointerType: 'mouse' }}))"
    );
    page.eval(&format!("{label}.scrollIntoView({{ block: 'center' }}); {point}"));
    page.eval(TWO_FRAMES);
    page.wait_for(&format!("({tip}).includes('oldest message')"));
    page.eval("document.querySelector('main').scrollIntoView()");
    page.wait_for(&format!("({tip}) === ''"));
    page.eval(&point);
    page.wait_for(&format!("({tip}).includes('oldest message')"));
    page.eval(&format!("{label}.dispatchEvent(new PointerEvent('pointerleave'))"));
    page.wait_for(&format!("({tip}) === ''"));
    page.eval("document.querySelector('.tile .meaning').click()");
    page.wait_for(&format!("({tip}).includes('Queues of the installation')"));
    page.eval(
        "document.querySelector('h1').dispatchEvent(
        new PointerEvent('pointerdown', { bubbles: true }))",
    );
    page.wait_for(&format!("({tip}) === ''"));
    // A dialog keeps the keyboard, and gives it back.
    let new_queue = "[...document.querySelectorAll('main button')]
        .find((one) => one.textContent === 'New queue')";
    page.eval(&format!("{new_queue}.focus()"));
    page.press("Enter");
    page.wait_for("document.querySelector('dialog[open]')");
    for _ in 0..8 {
        page.press("Tab");
        let inside = "document.activeElement === document.body
            || Boolean(document.activeElement.closest('dialog'))";
        assert_eq!(page.eval(inside), true);
    }
    assert_eq!(flaws(&mut page), json!([]));
    page.press("Escape");
    page.wait_for(&format!("document.activeElement === {new_queue}"));
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn every_view_has_an_address_and_the_way_back_leads_back() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    fill(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=mails"), DESKTOP);
    page.wait_for(OPEN);
    let chosen = "document.querySelector('[role=tab][aria-selected=true]').textContent";
    let tab = |name: &str| {
        format!(
            "[...document.querySelectorAll('[role=tab]')]
                .find((one) => one.textContent.startsWith('{name}')).click()"
        )
    };
    page.eval(&tab("Groups"));
    page.wait_for("location.hash.endsWith('tab=groups')");
    page.eval(&tab("Partitions"));
    page.wait_for("location.hash.endsWith('tab=partitions')");
    page.eval("history.back()");
    page.wait_for(&format!("{chosen}.startsWith('Groups')"));
    page.eval("history.back()");
    page.wait_for(&format!("{chosen}.startsWith('Messages')"));
    // An opened message is in the address, and opens from it.
    page.wait_for("document.querySelector('.messages-box tbody button')");
    page.eval("document.querySelector('.messages-box tbody button').click()");
    page.wait_for("location.hash.includes('message=')");
    let address = page.eval("location.hash");
    press(&mut page, "dialog[open]", "Close");
    page.wait_for("!location.hash.includes('message=')");
    page.go("about:blank");
    page.go(&node.url(&format!("/{}", address.as_str().expect("text"))));
    page.wait_for("document.querySelector('.drawer .payload-text')?.innerText.includes('img src')");
    // So are questions, with their answers: decisions are told in one form everywhere.
    for (hash, decided) in [
        ("/sessions?ask=kind%3Dchromium", "would get browser-1"),
        ("/routes?test=url%3Dshop.example", "belongs to shop"),
        ("/cluster?key=mails%3Asender", "would go to hive-1"),
    ] {
        go(&mut page, &node, hash);
        let reason = "document.querySelector('.reason')?.innerText";
        page.wait_for(&format!("{reason}?.includes('{decided}')"));
        let reason = page.eval(reason);
        let reason = reason.as_str().expect("text");
        for part in ["Decided by", "When", "Rule", "What would change it"] {
            assert!(reason.contains(part), "{hash}: no {part} in {reason}");
        }
    }
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn ten_thousand_rows_are_as_fluid_as_a_hundred() {
    let folder = Folder::new("dashboard-whole");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/traces"), DESKTOP);
    page.wait_for(OPEN);
    // Scrolls through so many rows in fifty steps: what is drawn at most, and how long it takes.
    page.eval(
        "window.through = async (count) => {
            const { pagedRows } = await import('/assets/queue-pages.js');
            const text = (title) => ({ title, text: (row) => `${title} ${row.id}` });
            const list = pagedRows({
                signal: new AbortController().signal, label: 'Many', key: (row) => row.id,
                columns: ['a', 'b', 'c', 'd', 'e', 'f'].map(text),
            });
            document.querySelector('main').replaceChildren(list.element);
            const frame = () => new Promise(requestAnimationFrame);
            const start = performance.now();
            list.set(Array.from({ length: count }, (_, id) => ({ id })));
            const box = document.querySelector('.row-box');
            let most = 0;
            for (let step = 0; step <= 50; step += 1) {
                box.scrollTop = (box.scrollHeight * step) / 50;
                await frame();
                await frame();
                most = Math.max(most, box.querySelectorAll('*').length);
            }
            return {
                most, took: performance.now() - start, tall: box.scrollHeight / count,
                last: box.innerText.includes(`a ${count - 1}`),
                tally: document.querySelector('.row-foot').innerText,
            };
        }",
    );
    let few = page.eval("window.through(100)");
    let many = page.eval("window.through(10000)");
    assert_eq!(many["last"], true, "the last row can be reached: {many}");
    assert_eq!(many["tally"], "10,000 in all");
    assert!(many["tall"].as_f64().is_some_and(|tall| tall > 15.0), "all have their room: {many}");
    assert!(many["most"].as_u64().is_some_and(|most| most < 1_500), "few are drawn: {many}");
    let took = |seen: &Value| seen["took"].as_f64().expect("a time");
    assert!(took(&many) < 4.0 * took(&few), "{few} and {many}");
    nothing_went_wrong(&mut page, &node);
}
