//! The dashboard's settings, found by name, value, origin or meaning; and the commands with which
//! its pages let decisions be explained.

use crate::common::{command, open_as_reader, skep};
use crate::dashboard::{nothing_went_wrong, picture};
use crate::dashboard_whole::{DESKTOP, OPEN, PHONE, fill, flaws, go, start};
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, Page};

const SECRET: &str = "a secret that nobody guesses";

fn guarded(folder: &Folder) -> Node {
    let secret = format!("alerts.secret={SECRET}");
    let arguments = [
        "--set",
        &secret,
        "--set",
        "alerts.webhooks=http://127.0.0.1:9/token-of-mine",
        "--set",
        "pools.high.max=7",
        "--set",
        "gateway.listen=127.0.0.1:0",
    ];
    Node::start(skep(), &folder.join("data"), &arguments)
}

/// Opens the search and looks for a text.
fn look_for(page: &mut Page<'_>, text: &str) {
    page.eval("document.querySelector('dialog') || document.getElementById('search').click()");
    page.wait_for("document.querySelector('.palette input')");
    page.eval(&format!(
        "(input => {{ input.value = {}; input.dispatchEvent(new Event('input')); }})(
            document.querySelector('.palette input'))",
        json!(text)
    ));
}

/// The line that the search shows about something, once it has found it.
fn found(page: &mut Page<'_>, title: &str) -> String {
    let line = page.wait_for(&format!(
        "[...document.querySelectorAll('.palette [role=option]')]
            .find((one) => one.firstChild.textContent === {})?.textContent",
        json!(title)
    ));
    line.as_str().expect("text").to_owned()
}

#[test]
fn a_setting_is_found_by_name_value_origin_or_meaning_and_no_secret_is_shown() {
    let folder = Folder::new("dashboard-settings");
    let node = guarded(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for(OPEN);
    for text in ["pools.high.max", "HIGH max", "--set pools.high", "most workers of its own high"] {
        look_for(&mut page, text);
        let line = found(&mut page, "pools.high.max");
        for part in ["7", "--set", "The most workers"] {
            assert!(line.contains(part), "{text}: no {part:?} in {line}");
        }
    }
    look_for(&mut page, "alerts.");
    let line = found(&mut page, "alerts.secret");
    assert!(line.contains("(set)"), "{line}");
    let all = page.eval("document.querySelector('.palette').textContent");
    assert!(!all.to_string().contains("nobody guesses"), "{all}");
    assert_eq!(flaws(&mut page), json!([]));
    // What is chosen leads to its place, with everything there is to know about it.
    look_for(&mut page, "pools.high.max");
    found(&mut page, "pools.high.max");
    page.screenshot(&picture("settings-search"));
    page.press("Enter");
    page.wait_for("location.hash === '#/settings?setting=pools.high.max'");
    let row = "document.querySelector('tr.chosen')";
    page.wait_for(&format!("{row}?.contains(document.activeElement)"));
    let told = page.eval(&format!("{row}.innerText"));
    let told = told.as_str().expect("text");
    for part in ["pools.high.max", "SKEP_POOLS__HIGH__MAX", "7", "usually", "--set", "Give "] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    let seen = format!(
        "(box => box.top >= 0 && box.bottom <= innerHeight)({row}.getBoundingClientRect())"
    );
    page.wait_for(&seen);
    let text = page.eval("document.querySelector('main').textContent").to_string();
    assert!(!text.contains("nobody guesses") && !text.contains("token-of-mine"), "{text}");
    assert!(text.contains("Give embedded") && !text.contains('`'), "names are set as code: {text}");
    let answer = node.get("/api/v1/settings").body;
    assert!(!answer.contains("nobody guesses") && !answer.contains("token-of-mine"), "{answer}");
    // Those that somebody has set alone.
    page.eval("document.querySelector('main input[type=checkbox]').click()");
    page.wait_for("location.hash === '#/settings?set=1'");
    let keys = page
        .eval("[...document.querySelectorAll('main td a strong')].map((one) => one.textContent)");
    let keys = keys.to_string();
    assert!(keys.contains("pools.high.max") && !keys.contains("pools.high.min"), "{keys}");
    // Colours are looked at as they are in the end.
    page.eval(
        "(() => {
            const still = new CSSStyleSheet();
            still.replaceSync('* { transition: none !important; }');
            document.adoptedStyleSheets = [still];
        })()",
    );
    for (size, scheme, name) in [
        (DESKTOP, "light", "settings"),
        (DESKTOP, "dark", "settings-dark"),
        (PHONE, "dark", "settings-phone-dark"),
        (PHONE, "light", "settings-phone"),
    ] {
        page.resize(size.0, size.1);
        page.prefer(scheme);
        assert_eq!(flaws(&mut page), json!([]), "{name}");
        page.screenshot(&picture(name));
    }
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn settings_are_for_admins_alone() {
    let folder = Folder::new("dashboard-settings");
    let node = guarded(&folder);
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/queues");
    page.wait_for(OPEN);
    look_for(&mut page, "pools");
    found(&mut page, "Pools");
    let done = "document.querySelector('.palette [role=status]').textContent.includes('found')";
    page.wait_for(done);
    let all = page.eval("document.querySelector('.palette').textContent");
    assert!(!all.to_string().contains("pools.high"), "{all}");
    assert_eq!(page.eval("document.querySelector('nav a[data-path=\"/settings\"]')"), Value::Null);
    assert_eq!(node.get("/api/v1/settings").status, 401);
}

/// The commands that the open page shows.
fn commands(page: &mut Page<'_>, wanted: &str) -> Vec<String> {
    page.wait_for(&format!(
        "[...document.querySelectorAll('.command code')]
            .some((one) => one.textContent.startsWith({}))",
        json!(wanted)
    ));
    let all = page.eval(
        "[...document.querySelectorAll('.command code')]
            .filter((one) => one.checkVisibility()).map((one) => one.textContent)",
    );
    let all = all.as_array().expect("a list").iter();
    all.map(|one| one.as_str().expect("text").to_owned()).collect()
}

#[test]
fn pages_print_the_command_that_explains_what_they_show_and_it_can_be_copied() {
    let folder = Folder::new("dashboard-settings");
    let node = start(&folder);
    fill(&node);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for(OPEN);
    for (hash, id) in [
        ("/pools", "pool:hive-1/critical"),
        ("/cluster?key=mails%3Asender", "key:mails:sender"),
        ("/cluster", "node:hive-1"),
        ("/polls?id=nobody", "poll:nobody"),
        ("/monitors?server=ntp-1", "server:ntp-1"),
        ("/monitors?server=ntp-1&explain=m1", "monitor:ntp-1/m1"),
        ("/sessions", "kind:chromium"),
        ("/sessions?ask=kind%3Dchromium%26label%3Deu", "kind:chromium,eu"),
        ("/sessions?worker=browser-1", "worker:browser-1"),
        ("/routes?test=url%3Dshop.example", "route:http://shop.example"),
        ("/audit", "audit:"),
        ("/access", "request:r-"),
    ] {
        go(&mut page, &node, hash);
        let wanted = format!("skep explain {id}");
        let shown = commands(&mut page, &wanted);
        let line = shown.iter().find(|one| one.starts_with(&wanted)).expect("it is there");
        // What stands there does what it says.
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let mut explain = command(folder.path(), &words);
        let output = explain.env("SKEP_URL", node.url("")).output().expect("starts");
        assert!(output.status.success(), "{hash}: {line}: {output:?}");
    }
    // A dead letter has its own in the drawer, and the button copies it.
    go(&mut page, &node, "/queues?queue=mails&tab=dead");
    page.wait_for("document.querySelector('.dead-box tbody button')");
    page.eval("document.querySelector('.dead-box tbody button.plain').click()");
    let shown = commands(&mut page, "skep explain letter:");
    let line = shown.iter().find(|one| one.contains("letter:")).expect("it is there");
    page.eval(
        "(() => {
            window.copied = [];
            const keep = (text) => { window.copied.push(text); return Promise.resolve(); };
            Object.defineProperty(navigator, 'clipboard', { value: { writeText: keep } });
            document.querySelector('.drawer .command .copy').click();
        })()",
    );
    page.wait_for("document.querySelector('.drawer .command .copy').textContent === 'Copied'");
    assert_eq!(page.eval("window.copied"), json!([line]));
    page.screenshot(&picture("explain-letter"));
    for (hash, name) in
        [("/pools", "explain-pools"), ("/sessions?worker=browser-1", "explain-worker")]
    {
        go(&mut page, &node, hash);
        commands(&mut page, "skep explain");
        for (size, scheme) in [(DESKTOP, "light"), (PHONE, "dark")] {
            page.resize(size.0, size.1);
            page.prefer(scheme);
            page.screenshot(&picture(&format!("{name}-{scheme}")));
        }
        page.resize(DESKTOP.0, DESKTOP.1);
        page.prefer("light");
    }
    nothing_went_wrong(&mut page, &node);
}
