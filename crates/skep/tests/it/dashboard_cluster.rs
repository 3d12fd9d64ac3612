//! The page of the cluster in a real browser.

use crate::cluster_told::{Told, balance, status};
use crate::common::{open_as_reader, skep};
use crate::dashboard::picture;
use crate::dashboard_sessions::{everything_has_a_name, nothing_too_wide, press};
use serde_json::json;
use skep_testkit::{Browser, Folder, Node, Page};

const DESKTOP: (u32, u32) = (1_280, 2_000);
const PHONE: (u32, u32) = (390, 3_600);

fn start(folder: &Folder) -> Node {
    Node::start(skep(), &folder.join("data"), &["--set", "node.name=a"])
}

/// The text of the row about a node.
fn row(name: &str) -> String {
    format!(
        "([...document.querySelectorAll('.nodes-box tbody tr')].find(row =>
            row.querySelector('strong')?.textContent === '{name}')?.innerText ?? '')"
    )
}

/// The keys in the lane of a node.
fn keys(page: &mut Page<'_>, node: &str) -> Vec<String> {
    let keys = page.eval(&format!(
        "[...document.querySelectorAll('[data-node=\"{node}\"] a')].map(cell => cell.dataset.key)"
    ));
    serde_json::from_value(keys).expect("texts")
}

#[test]
fn a_node_that_is_alone_explains_how_to_start_three() {
    let folder = Folder::new("dashboard-cluster");
    let node = start(&folder);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/cluster"), DESKTOP);
    page.wait_for("document.querySelector('.ways')?.checkVisibility()");
    assert_eq!(page.eval("document.querySelectorAll('.ways pre').length"), json!(3));
    page.wait_for(
        "document.querySelector('.ways').innerText.includes('cluster.listen=127.0.0.1:6654')",
    );
    page.wait_for(&format!("{}.includes('healthy')", row("a")));
    page.wait_for("document.querySelector('.tiles').innerText.includes('nobody to forward to')");
    assert_eq!(
        page.eval("document.querySelector('.affinity-box').checkVisibility()"),
        json!(false)
    );
    // The line grows while one looks.
    page.wait_for("/L/.test(document.querySelector('.spark-line').getAttribute('d'))");
    page.screenshot(&picture("cluster-alone"));
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);
    press(&mut page, ".nodes-box", "Drain a");
    press(&mut page, "dialog[open]", "Drain node");
    page.wait_for("document.querySelector('.notice.bad')?.innerText.includes('E_NODE_LAST')");
    page.resize(PHONE.0, PHONE.1);
    nothing_too_wide(&mut page);
}

#[test]
fn loads_flows_keys_moves_and_breakers_are_shown_as_they_change() {
    let folder = Folder::new("dashboard-cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    told.set_balance(balance(&[("b", 0.52), ("c", 0.2)]));
    told.set_affinity(&[("orders:mail", "b", false), ("bills:__QUEUE_MODE__", "c", false)]);
    let mut browser = Browser::start();
    let mut page = browser.open(&told.url("/#/cluster"), DESKTOP);
    page.wait_for(&format!("{}.includes('0.52') && {0}.includes('p99 0.59 ms')", row("b")));
    page.wait_for("document.querySelectorAll('.nodes-box tbody tr').length === 3");
    page.wait_for("document.querySelectorAll('.affinity-box a').length === 2");
    assert_eq!(page.eval("document.querySelector('.ways').checkVisibility()"), json!(false));
    assert_eq!(keys(&mut page, "b"), ["orders:mail"]);
    page.wait_for("document.querySelector('.moves').matches('.is-empty')");
    page.wait_for(
        "document.querySelector('.flows tbody tr').innerText.replace(/\\s+/g, ' ') === 'a – 7 7'",
    );
    page.wait_for("document.querySelector('.taking-part').innerText.includes('5 forged')");
    let lost = "document.querySelector('.notice.warn')?.innerText";
    page.wait_for(&format!("{lost}?.includes('c.example:6634: no such host')"));
    // The row that is there now is the one that changes: nothing is built anew.
    page.eval("document.querySelectorAll('.nodes-box tbody tr')[1].dataset.seen = 'before'");

    let mut worse = balance(&[("b", 0.93), ("c", 0.2)]);
    worse["balanced"] = json!(false);
    worse["imbalance_score"] = json!(3.65);
    worse["servers"][1]["healthy"] = json!(false);
    worse["servers"][1]["breaker"] = json!("open");
    worse["servers"][1]["breaker_reopens_ms"] = json!(4_200);
    worse["flows"][0]["forwarded"] = json!(1_250);
    told.set_balance(worse);
    told.set_affinity(&[("orders:mail", "c", true), ("bills:__QUEUE_MODE__", "c", false)]);
    told.add_move("orders:mail", ("b", "c"), "break");
    page.wait_for("document.querySelector('[data-seen]').innerText.includes('failing')");
    let broken = row("b");
    page.wait_for(&format!("{broken}.includes('open') && {broken}.includes('for 5 s')"));
    page.wait_for("document.querySelector('.tiles').innerText.includes('not balanced')");
    page.wait_for("document.querySelector('.flows').innerText.includes('1,250')");
    page.wait_for("document.querySelectorAll('[data-node=\"c\"] a').length === 2");
    page.wait_for("document.querySelector('[data-node=\"c\"] a.moved.fresh')");
    assert_eq!(keys(&mut page, "b"), Vec::<String>::new());
    let moved = page.eval("document.querySelector('.moves li[data-level=warn]').innerText");
    let moved = moved.as_str().expect("text");
    for part in ["orders:mail", "broken off", "b → c", "0.93 to 0.31", "by a"] {
        assert!(moved.contains(part), "no {part} in {moved}");
    }
    page.wait_for("/L.*L/.test(document.querySelector('.spark-line').getAttribute('d'))");
    page.screenshot(&picture("cluster"));
    page.prefer("dark");
    page.screenshot(&picture("cluster-dark"));
    page.prefer("light");
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);
    let hidden = page
        .eval("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.nodes-box'))");
    assert_eq!(hidden, json!(0), "all columns are in sight");
    assert_eq!(page.errors(), Vec::<String>::new());

    page.resize(PHONE.0, PHONE.1);
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        page.wait_for("innerWidth === 390");
        nothing_too_wide(&mut page);
        page.screenshot(&picture(&format!("phone-{scheme}-cluster")));
    }
}

#[test]
fn of_very_many_nodes_the_largest_flows_are_listed() {
    let folder = Folder::new("dashboard-cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    let names: Vec<String> = (0..49).map(|one| format!("node-{one:02}.rack-7.example")).collect();
    let others: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 0.3)).collect();
    let mut many = balance(&others);
    many["flows"][48]["forwarded"] = json!(90_000);
    told.set_balance(many);
    let mut browser = Browser::start();
    let mut page = browser.open(&told.url("/#/cluster"), DESKTOP);
    page.wait_for("document.querySelectorAll('.nodes-box tbody tr').length === 50");
    page.wait_for("document.querySelectorAll('.flow-list li').length === 49");
    let first = page.eval("document.querySelector('.flow-list li').innerText");
    assert_eq!(first, json!("a → node-48.rack-7.example 90,000"));
    // Fewer of them are a matrix again.
    told.set_balance(balance(&others[..3]));
    page.wait_for("document.querySelectorAll('.flows tbody tr').length === 4");
    page.wait_for("!document.querySelector('.flow-list')");
    page.wait_for("document.querySelectorAll('.affinity-box .lane').length === 4");
    nothing_too_wide(&mut page);
    page.resize(PHONE.0, PHONE.1);
    nothing_too_wide(&mut page);
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn a_key_is_explained_by_pressing_its_cell_and_reached_with_the_arrows() {
    let folder = Folder::new("dashboard-cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    told.set_balance(balance(&[("b", 0.5)]));
    told.set_affinity(&[("bills:mail", "b", false), ("orders:mail", "b", false)]);
    let mut browser = Browser::start();
    let mut page = browser.open(&told.url("/#/cluster"), DESKTOP);
    page.wait_for("document.querySelectorAll('.affinity-box a').length === 2");
    page.eval("document.querySelector('.affinity-box a[tabindex=\"0\"]').focus()");
    page.press("ArrowRight");
    page.wait_for("document.activeElement.dataset.key === 'orders:mail'");
    let readout = "document.querySelector('.readout').innerText";
    page.wait_for(&format!("{readout}.includes('orders:mail: b, by its name, 12 requests')"));
    page.eval("document.activeElement.click()");
    let result = "document.querySelector('.cluster-explain [role=status]').innerText";
    page.wait_for(&format!("{result}.includes('would go to b: it owns the key by its name.')"));
    page.wait_for(&format!("{result}.includes('0.52') && /draining[^]*\\bc\\b/.test({result})"));
    page.wait_for("location.hash === '#/cluster?key=orders%3Amail'");
    assert_eq!(told.explained(), ["key=orders%3Amail&for=pop"]);
    // The address leads there again.
    page.go("about:blank");
    page.go(&told.url("/#/cluster?key=orders%3Amail"));
    page.wait_for(&format!("{result}.includes('would go to b')"));
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn a_node_is_drained_after_a_question_and_only_by_admins() {
    let folder = Folder::new("dashboard-cluster");
    let node = start(&folder);
    let told = Told::before(&node);
    told.set_balance(balance(&[("b", 0.5)]));
    told.set_status(status());
    let mut browser = Browser::start();
    let mut page = browser.open(&told.url("/#/cluster"), DESKTOP);
    press(&mut page, ".nodes-box", "Drain b");
    press(&mut page, "dialog[open]", "Cancel");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(told.drained(), Vec::<String>::new(), "nothing is done before yes is said");
    press(&mut page, ".nodes-box", "Drain b");
    page.wait_for("document.querySelector('dialog').innerText.includes('31 requests')");
    press(&mut page, "dialog[open]", "Drain node");
    page.wait_for("!document.querySelector('dialog')");
    skep_testkit::eventually("the node is told", || (told.drained() == ["b"]).then_some(()));
    let mut draining = balance(&[("b", 0.5)]);
    draining["servers"][1]["draining"] = json!(true);
    draining["servers"][1]["healthy"] = json!(false);
    told.set_balance(draining);
    page.wait_for(&format!("{}.includes('draining')", row("b")));
    page.wait_for(
        "![...document.querySelectorAll('.nodes-box button')].some(one =>
            one.ariaLabel === 'Drain b' && one.checkVisibility())",
    );
    assert_eq!(page.errors(), Vec::<String>::new());
    drop(page);

    let mut page = open_as_reader(&mut browser, &node, "/#/cluster");
    page.wait_for(&format!("{}.includes('healthy')", row("a")));
    let buttons = "document.querySelectorAll('.nodes-box tbody button:not(.copy)').length";
    assert_eq!(page.eval(buttons), json!(0));
}
