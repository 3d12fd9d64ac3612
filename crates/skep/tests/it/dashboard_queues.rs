//! The pages of the queues in a real browser.

use crate::common::{open_as_reader, skep};
use crate::dashboard::picture;
use crate::dashboard_sessions::{everything_has_a_name, nothing_too_wide, press};
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, Page};

/// So long that the pictures show all of a page.
const DESKTOP: (u32, u32) = (1_280, 1_600);
const PHONE: (u32, u32) = (390, 1_600);
/// Rows of a table that may be drawn, however many there are.
const ROWS_DRAWN: u64 = 80;

fn start(folder: &Folder) -> Node {
    Node::start(skep(), &folder.join("data"), &["--set", "node.name=hive-1"])
}

/// Sends something that must be done; the answer.
fn send(node: &Node, method: &str, path: &str, body: &Value) -> Value {
    let answer = node.send(method, path, &[], Some(&body.to_string()));
    assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    answer.json()
}

fn push(node: &Node, items: &Value) {
    send(node, "POST", "/api/v1/push", &json!({ "items": items }));
}

fn pop(node: &Node, rest: &str) -> Value {
    let answer = node.get(&format!("/api/v1/pop/queue/{rest}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["messages"][0].clone()
}

/// A message, and with it its queue.
fn item(queue: &str, transaction: &str) -> Value {
    let payload = json!({ "order": transaction, "customer": { "id": 4 } });
    json!({ "queue": queue, "partition": "customer-4", "transactionId": transaction,
            "payload": payload })
}

/// A message that was given up at once, for this reason.
fn give_up(node: &Node, queue: &str, transaction: &str, reason: &str) {
    push(node, &json!([item(queue, transaction)]));
    let message = pop(node, queue);
    assert_eq!(message["transactionId"], transaction);
    let body = json!({
        "transactionId": transaction, "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": "dlq", "error": reason,
    });
    assert_eq!(send(node, "POST", "/api/v1/ack", &body)[0]["dlq"], true);
}

/// A queue with something of everything that its page shows.
fn furnish(node: &Node) {
    give_up(node, "orders", "bad-1", "the till is closed");
    push(
        node,
        &json!([
            item("orders", "order-1"),
            item("orders", "order-2"),
            { "queue": "orders", "partition": "customer-5", "transactionId": "urgent",
              "priority": 7, "payload": { "order": "urgent" } },
            { "queue": "orders", "partition": "customer-6", "transactionId": "later",
              "delay": 3600, "payload": null },
        ]),
    );
    let message = pop(node, "orders?consumerGroup=billing");
    let trace = json!({
        "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "consumerGroup": "billing", "traceNames": ["tenant-4"], "eventType": "priced",
        "data": { "total": 17.5 },
    });
    send(node, "POST", "/api/v1/traces", &trace);
    let schedule = json!({
        "name": "nightly", "queue": "reports", "payload": { "kind": "daily" },
        "cron": "0 3 * * *", "timezone": "UTC",
    });
    send(node, "POST", "/api/v1/schedules", &schedule);
}

/// The tab of a queue's page that begins with this word is pressed.
fn open_tab(page: &mut Page<'_>, label: &str) {
    page.wait_for(&format!(
        "(tab => tab && (tab.click(), tab.ariaSelected === 'true'))(
            [...document.querySelectorAll('[role=tab]')].find(one =>
                one.textContent.startsWith('{label}')))"
    ));
}

/// Waits until a part of the page has this text.
fn reads(page: &mut Page<'_>, place: &str, text: &str) {
    page.wait_for(&format!("document.querySelector('{place}')?.innerText.includes('{text}')"));
}

/// Types into the control with this name in the open dialog, or in the page if there is none.
fn fill(page: &mut Page<'_>, name: &str, value: &str) {
    page.wait_for(&format!(
        "(control => {{
            if (!control) return false;
            control.value = '{value}';
            control.dispatchEvent(new Event('input'));
            control.dispatchEvent(new Event('change'));
            return true;
         }})((document.querySelector('dialog[open]') ?? document.querySelector('main'))
            .querySelector('[name=\"{name}\"]'))"
    ));
}

fn submit(page: &mut Page<'_>) {
    page.eval("document.querySelector('dialog[open] form').requestSubmit()");
}

/// How many rows of tables are drawn.
fn drawn(page: &mut Page<'_>) -> u64 {
    page.eval("document.querySelectorAll('tbody tr').length").as_u64().expect("a number")
}

fn no_errors(page: &mut Page<'_>) {
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn every_page_of_queues_shows_what_there_is_on_a_desk_and_on_a_phone() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    furnish(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues"), DESKTOP);
    let tabs = [
        ("messages", "order-2"),
        ("partitions", "customer-5"),
        ("groups", "billing"),
        ("dead", "the till is closed"),
        ("delayed", "later"),
        ("tail", "Waiting for the next message"),
        ("options", "Quiet time"),
    ];
    let tabs = tabs.map(|(tab, text)| (format!("/#/queues?queue=orders&tab={tab}"), text));
    let others = [
        ("/#/queues".to_owned(), "orders"),
        ("/#/dead".to_owned(), "the till is closed"),
        ("/#/schedules".to_owned(), "nightly"),
        ("/#/traces".to_owned(), "tenant-4"),
        ("/#/traces?name=tenant-4".to_owned(), "17.5"),
    ];
    for (size, name) in [(DESKTOP, "desk"), (PHONE, "phone")] {
        page.resize(size.0, size.1);
        for (path, text) in others.iter().chain(&tabs) {
            page.go("about:blank");
            page.go(&node.url(path));
            // What a tail has to say stands in an attribute.
            page.wait_for(&format!(
                "document.querySelector('main').innerText.includes('{text}')
                 || document.querySelector('.tail')?.dataset.empty?.includes('{text}')"
            ));
            page.wait_for("!document.querySelector('main [aria-busy=true]')");
            assert_eq!(
                page.eval("document.querySelector('main .notice.bad')?.innerText"),
                json!(null)
            );
            nothing_too_wide(&mut page);
            everything_has_a_name(&mut page);
            let place = path.replace(['/', '#', '?', '='], "-").replace('&', "-");
            page.screenshot(&picture(&format!("queues-{name}{place}")));
        }
    }
    no_errors(&mut page);
}

#[test]
fn before_there_is_a_queue_the_page_says_how_to_push_and_one_is_made_changed_and_deleted() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues"), DESKTOP);
    reads(&mut page, "main .begin:not([hidden])", "skep push orders");
    page.screenshot(&picture("queues-empty"));
    press(&mut page, "main", "New queue");
    fill(&mut page, "queue", "shop.orders");
    submit(&mut page);
    page.wait_for("location.hash === '#/queues?queue=shop.orders&tab=options'");
    page.wait_for("document.querySelector('[name=\"options.leaseTime\"]')?.value === '300'");
    // What the node objects to stands at its field, and nothing is changed.
    fill(&mut page, "options.leaseTime", "0");
    press(&mut page, "main form", "Save");
    page.wait_for(
        "document.querySelector('[name=\"options.leaseTime\"]').closest('.field')
            .querySelector('.field-error').textContent.includes('from 1 to')",
    );
    fill(&mut page, "options.leaseTime", "60");
    fill(&mut page, "options.limitKeySeparator", "/");
    press(&mut page, "main form", "Save");
    reads(&mut page, ".sayings", "2 options saved");
    let shown = node.get("/api/v1/resources/queues/shop.orders").json();
    assert_eq!(shown["options"]["leaseTime"], 60);
    assert_eq!(shown["options"]["limitKeySeparator"], "/");
    // Only whoever types its name clears it, or deletes it.
    push(&node, &json!([item("shop.orders", "order-1")]));
    press(&mut page, "main", "Clear queue");
    submit(&mut page);
    assert_eq!(page.eval("document.querySelectorAll('dialog[open]').length"), 1);
    fill(&mut page, "typed", "shop.orders");
    submit(&mut page);
    reads(&mut page, ".sayings", "shop.orders is cleared");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(node.get("/api/v1/pop/queue/shop.orders").status, 204);
    press(&mut page, "main", "Delete queue");
    fill(&mut page, "typed", "shop.orders");
    submit(&mut page);
    page.wait_for("location.hash === '#/queues'");
    reads(&mut page, "main .begin:not([hidden])", "skep push orders");
    assert_eq!(node.get("/api/v1/resources/queues/shop.orders").status, 404);
    // Chromium logs the refused request as an error; that one was asked for.
    assert!(page.errors().iter().all(|error| error.contains("400")), "{:#?}", page.errors());
}

#[test]
fn messages_are_browsed_by_the_page_filtered_and_looked_at_with_every_digit() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    let items: Vec<Value> = (0..120)
        .map(|number| {
            json!({ "queue": "orders", "partition": format!("customer-{}", number % 3),
                    "transactionId": format!("order-{number:03}"), "payload": { "n": number } })
        })
        .collect();
    push(&node, &json!(items));
    let body = r#"{"items":[{"queue":"orders","partition":"exact","transactionId":"exact",
        "payload":{"big":12345678901234567890,"price":1.50}}]}"#;
    assert_eq!(node.send("POST", "/api/v1/push", &[], Some(body)).status, 201);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=orders"), DESKTOP);
    let tally = "document.querySelector('.row-foot').innerText";
    page.wait_for(&format!("{tally}.includes('50 shown, there are more')"));
    press(&mut page, ".row-foot", "Show more");
    page.wait_for(&format!("{tally}.includes('100 shown')"));
    press(&mut page, ".row-foot", "Show more");
    page.wait_for(&format!("{tally}.includes('121 in all')"));
    assert!(drawn(&mut page) < ROWS_DRAWN, "{}", drawn(&mut page));
    let first = "document.querySelector('.messages-box tbody button')?.textContent";
    assert_eq!(page.eval(first), "exact");
    page.eval("document.querySelector('.messages-box tbody button').click()");
    reads(&mut page, "dialog[open] .payload-text", "12345678901234567890");
    reads(&mut page, "dialog[open] .payload-text", "1.50");
    reads(&mut page, "dialog[open]", "No consumer has noted anything");
    page.screenshot(&picture("queues-message"));
    page.press("Escape");
    page.wait_for("!document.querySelector('dialog[open]')");
    page.eval(
        "(input => { input.value = 'customer-2'; input.dispatchEvent(new Event('input')); })(
            document.querySelector('[aria-label=\"Only of this partition\"]'))",
    );
    page.wait_for(&format!("{tally}.includes('40 in all') && {first} === 'order-119'"));
    page.wait_for("location.hash.includes('partition=customer-2')");
    page.go("about:blank");
    page.go(&node.url("/#/queues?queue=orders&tab=messages&field=n&equals=7"));
    page.wait_for(&format!("{tally}.includes('1 in all') && {first} === 'order-007'"));
    // What can be done with it, and what cannot: nobody has settled it.
    page.eval("document.querySelector('.messages-box tbody button').click()");
    press(&mut page, "dialog[open]", "Retry");
    page.wait_for("document.querySelector('dialog[open] .notice.bad')");
    press(&mut page, "dialog[open]", "Delete");
    press(&mut page, "dialog[open]", "Delete message");
    reads(&mut page, ".sayings", "order-007 is deleted");
    reads(&mut page, ".messages-box", "No message matches");
    assert!(page.errors().iter().all(|error| error.contains("409")), "{:#?}", page.errors());
}

#[test]
fn a_dead_letter_is_sent_back_by_a_click_and_others_are_discarded() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    for number in 1..=4 {
        give_up(&node, "orders", &format!("order-{number}"), "the till is closed");
    }
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=orders&tab=dead"), DESKTOP);
    reads(&mut page, ".dead-box", "order-4");
    press(&mut page, ".dead-box", "order-4");
    reads(&mut page, "dialog[open]", "the till is closed");
    press(&mut page, "dialog[open]", "Retry");
    reads(&mut page, ".sayings", "1 dead letter sent back");
    page.wait_for("!document.querySelector('.dead-box').innerText.includes('order-4')");
    assert_eq!(pop(&node, "orders?autoAck=true")["transactionId"], "order-4");
    // Two that are chosen.
    page.wait_for(
        "(boxes => boxes.length === 3 && (boxes[0].click(), boxes[1].click(), true))(
            document.querySelectorAll('.dead-box input[type=checkbox]'))",
    );
    reads(&mut page, "main", "2 chosen");
    press(&mut page, "main", "Discard");
    press(&mut page, "dialog[open]", "Discard");
    reads(&mut page, ".sayings", "2 dead letters discarded");
    page.wait_for("document.querySelectorAll('.dead-box input[type=checkbox]').length === 1");
    page.screenshot(&picture("queues-dead"));
    no_errors(&mut page);
}

#[test]
fn dead_letters_are_redriven_by_the_form_and_its_progress_is_shown() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    for number in 1..=3 {
        give_up(&node, "orders", &format!("order-{number}"), "the till is closed");
    }
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=orders&tab=dead"), DESKTOP);
    reads(&mut page, ".dead-box", "order-3");
    press(&mut page, "main", "Redrive…");
    fill(&mut page, "error", "till");
    fill(&mut page, "rate", "100");
    page.screenshot(&picture("queues-redrive"));
    submit(&mut page);
    reads(&mut page, ".sayings", "The redrive has begun");
    reads(&mut page, ".redrives", "error contains till");
    reads(&mut page, ".redrives", "done");
    reads(&mut page, ".dead-box", "No message was given up");
    for number in 1..=3 {
        let message = pop(&node, "orders?autoAck=true");
        assert_eq!(message["transactionId"], format!("order-{number}"));
    }
    page.screenshot(&picture("queues-redriven"));
    no_errors(&mut page);
}

#[test]
fn the_tail_shows_what_is_pushed_after_it_was_opened_and_stays_still_while_paused() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    push(&node, &json!([item("orders", "before")]));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=orders"), DESKTOP);
    reads(&mut page, ".messages-box", "before");
    open_tab(&mut page, "Live tail");
    page.wait_for("document.querySelector('.tail')?.dataset.empty.includes('Waiting')");
    push(&node, &json!([item("orders", "after")]));
    let rows = "document.querySelectorAll('.tail li:not([hidden])').length";
    page.wait_for(&format!("{rows} === 1"));
    reads(&mut page, ".tail", "after");
    assert!(!page.eval("document.querySelector('.tail').innerText").to_string().contains("before"));
    press(&mut page, "main", "Pause");
    push(&node, &json!([item("orders", "unseen")]));
    page.wait_for("/paused, [1-9]/.test(document.querySelector('.log-tally').innerText)");
    assert!(!page.eval("document.querySelector('.tail').innerText").to_string().contains("unseen"));
    press(&mut page, "main", "Resume");
    reads(&mut page, ".tail", "unseen");
    page.eval(
        "(input => { input.value = 'unseen'; input.dispatchEvent(new Event('input')); })(
            document.querySelector('[aria-label=\"Only messages that contain\"]'))",
    );
    page.wait_for(&format!("{rows} === 1"));
    page.screenshot(&picture("queues-tail"));
    no_errors(&mut page);
}

#[test]
fn a_schedule_is_added_by_the_form_and_fires() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/schedules"), DESKTOP);
    reads(&mut page, "main", "No schedule yet");
    press(&mut page, "main", "New schedule");
    fill(&mut page, "name", "tick");
    fill(&mut page, "queue", "ticks");
    fill(&mut page, "cron", "every day");
    submit(&mut page);
    page.wait_for(
        "document.querySelector('dialog [name=cron]').closest('.field')
            .querySelector('.field-error').textContent",
    );
    fill(&mut page, "kind", "every");
    fill(&mut page, "every", "1");
    fill(&mut page, "payload", "{\"tick\":true}");
    page.screenshot(&picture("queues-schedule"));
    submit(&mut page);
    reads(&mut page, ".sayings", "tick is there");
    reads(&mut page, ".sayings", "It fires next at");
    let message = pop(&node, "ticks?wait=true&timeout=30000&autoAck=true");
    assert_eq!(message["data"], json!({ "tick": true }));
    page.wait_for("/[1-9]\\d* times in all/.test(document.querySelector('tbody').innerText)");
    press(&mut page, ".schedules-box", "Pause tick");
    reads(&mut page, ".schedules-box", "paused");
    press(&mut page, ".schedules-box", "Fire now tick");
    reads(&mut page, ".sayings", "tick was fired");
    press(&mut page, ".schedules-box", "Delete tick");
    press(&mut page, "dialog[open]", "Delete schedule");
    reads(&mut page, "main", "No schedule yet");
    assert!(page.errors().iter().all(|error| error.contains("400")), "{:#?}", page.errors());
}

#[test]
fn while_pushes_are_held_every_page_of_queues_says_so() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    push(&node, &json!([item("orders", "order-1")]));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues"), DESKTOP);
    press(&mut page, ".switches", "Hold pushes");
    press(&mut page, "dialog[open]", "Hold pushes");
    for path in ["queues", "queues?queue=orders", "dead", "schedules", "traces"] {
        page.go("about:blank");
        page.go(&node.url(&format!("/#/{path}")));
        reads(&mut page, "main .notice.warn", "Pushes are held");
    }
    page.screenshot(&picture("queues-held"));
    press(&mut page, "main .notice.warn", "Let pushes through");
    page.wait_for("!document.querySelector('main .notice.warn')");
    push(&node, &json!([item("orders", "order-2")]));
    no_errors(&mut page);
}

#[test]
fn a_group_is_moved_to_the_beginning_and_deleted_after_a_question() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    push(&node, &json!([item("orders", "order-1")]));
    pop(&node, "orders?consumerGroup=billing&autoAck=true");
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues?queue=orders&tab=groups"), DESKTOP);
    press(&mut page, ".groups-box", "Seek billing");
    fill(&mut page, "where", "begin");
    submit(&mut page);
    reads(&mut page, ".sayings", "billing goes on elsewhere");
    let again = pop(&node, "orders?consumerGroup=billing&autoAck=true");
    assert_eq!(again["transactionId"], "order-1");
    press(&mut page, ".groups-box", "Delete billing");
    press(&mut page, "dialog[open]", "Delete group");
    reads(&mut page, ".groups-box", "No consumer has come yet");
    no_errors(&mut page);
}

#[test]
fn who_may_only_read_sees_queues_and_no_buttons_that_change() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    furnish(&node);
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/queues");
    reads(&mut page, ".queues-box", "orders");
    let changing = "[...document.querySelectorAll('main button, dialog button')].filter(one =>
        one.checkVisibility() && /^(New|Hold|Pause p|Retry|Discard|Redrive|Choose|Delete|Seek|Save|\
         Clear|Edit|Fire|Pause t|To dead)/.test(one.ariaLabel ?? one.textContent))
        .map(one => one.textContent)";
    for (path, text) in [
        ("queues", "orders"),
        ("queues?queue=orders&tab=groups", "billing"),
        ("queues?queue=orders&tab=dead", "the till is closed"),
        ("queues?queue=orders&tab=delayed", "later"),
        ("queues?queue=orders&tab=options", "Quiet time"),
        ("dead", "the till is closed"),
        ("schedules", "nightly"),
        ("queues?queue=orders", "order-2"),
    ] {
        page.go("about:blank");
        page.go(&node.url(&format!("/#/{path}")));
        reads(&mut page, "main", text);
        assert_eq!(page.eval(changing), json!([]), "{path}");
    }
    press(&mut page, ".messages-box", "order-2");
    reads(&mut page, "dialog[open]", "Payload");
    assert_eq!(page.eval(changing), json!([]), "a message");
}

#[test]
fn of_a_thousand_queues_only_those_in_sight_are_drawn_and_the_last_is_reached() {
    let folder = Folder::new("dashboard-queues");
    let node = start(&folder);
    let names: Vec<String> = (0..1_000).map(|number| format!("many.q-{number:04}")).collect();
    let items: Vec<Value> = names.iter().map(|name| item(name, "order-1")).collect();
    push(&node, &json!(items));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/queues"), DESKTOP);
    reads(&mut page, ".queues-box", "many.q-0000");
    reads(&mut page, ".row-foot", "100 shown, there are more");
    // Whoever scrolls gets the next pages.
    page.wait_for(
        "(box => (box.scrollTop = box.scrollHeight, box.innerText.includes('many.q-0999')))(
            document.querySelector('.queues-box'))",
    );
    reads(&mut page, ".row-foot", "1,000 in all");
    assert!(drawn(&mut page) < ROWS_DRAWN, "{}", drawn(&mut page));
    page.eval("document.querySelector('.queues-box').scrollTop = 0");
    reads(&mut page, ".queues-box", "many.q-0000");
    assert!(drawn(&mut page) < ROWS_DRAWN, "{}", drawn(&mut page));
    page.eval(
        "(input => { input.value = 'many.q-05'; input.dispatchEvent(new Event('input')); })(
            document.querySelector('main input[type=search]'))",
    );
    reads(&mut page, ".queues-box", "many.q-0500");
    page.wait_for("location.hash === '#/queues?search=many.q-05'");
    // Every list is asked for with a limit.
    let lists = ["/resources/queues?", "/resources/queues#"];
    let asked = page.requests();
    let unlimited = asked.iter().filter(|url| lists.iter().any(|list| url.contains(list)));
    assert_eq!(unlimited.filter(|url| !url.contains("limit=")).count(), 0, "{asked:?}");
    page.screenshot(&picture("queues-many"));
    no_errors(&mut page);
}
