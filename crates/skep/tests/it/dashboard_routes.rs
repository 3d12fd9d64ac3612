//! The page of the routes in a real browser.

use crate::common::{open_as_reader, skep};
use crate::dashboard::picture;
use crate::dashboard_sessions::{everything_has_a_name, nothing_too_wide, press};
use serde_json::{Value, json};
use skep_testkit::{Browser, Folder, Node, PATIENCE, Page, Proxy};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

/// So long that the pictures show all of a page.
const DESKTOP: (u32, u32) = (1_280, 2_000);
const PHONE: (u32, u32) = (390, 3_000);
const ROUTES: &str = "/api/v1/routes";
const PACE: Duration = Duration::from_millis(20);

/// A service that answers every request, and a proxy before it that can be cut.
fn upstream() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone()?;
                let mut reader = BufReader::new(stream);
                while !head(&mut reader)?.is_empty() {
                    writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
                }
                io::Result::Ok(())
            });
        }
    });
    Proxy::start(("127.0.0.1", port))
}

fn address(proxy: &Proxy) -> String {
    format!("127.0.0.1:{}", proxy.port())
}

/// The first line of a head; nothing at the end.
fn head(reader: &mut impl BufRead) -> io::Result<String> {
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = first.clone();
    while line.trim_end() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    Ok(first)
}

/// The status that somebody gets who asks the gateway.
fn ask(node: &Node, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(node.gateway()).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is settable");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("writes");
    let line = head(&mut BufReader::new(stream)).expect("an answer");
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A client that asks again and again until it is dropped.
struct Crowd {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    fn start(node: &Node, host: &'static str) -> Self {
        let (end, ended) = mpsc::sync_channel(0);
        let gateway = node.gateway().to_owned();
        let thread = std::thread::spawn(move || {
            let stream = TcpStream::connect(gateway).expect("the gateway listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("is settable");
            let mut writer = stream.try_clone().expect("clones");
            let mut reader = BufReader::new(stream);
            while ended.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
                write!(writer, "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("writes");
                let line = head(&mut reader).expect("an answer");
                assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
            }
        });
        Crowd { end: Some(end), thread: Some(thread) }
    }

    /// Every request was answered well.
    fn ends_well(mut self) {
        drop(self.end.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()), "a request was not answered well");
    }
}

/// A node whose file is `text`.
fn start(folder: &Folder, text: &str) -> Node {
    let file = folder.join("skep.toml");
    std::fs::write(&file, text).expect("writes");
    let file = file.display().to_string();
    let set = ["--set", "gateway.listen=127.0.0.1:0", "--set", "node.name=hive-1"];
    Node::start(skep(), &folder.join("data"), &[&["--config", &file], &set[..]].concat())
}

/// A route as it stands in a file.
fn route(name: &str, host: &str, path: &str, upstreams: &[String]) -> String {
    format!(
        "[[routes]]\nname = {name:?}\nhost = {host:?}\npath = {path:?}\nupstreams = {upstreams:?}\n"
    )
}

fn add(node: &Node, spec: &Value) {
    let answer = node.send("POST", ROUTES, &[], Some(&spec.to_string()));
    assert_eq!(answer.status, 201, "{}", answer.body);
}

/// The text of the row about `name` in the table of routes.
fn row(name: &str) -> String {
    format!(
        "([...document.querySelectorAll('.routes-box tbody tr')].find(row =>
            row.querySelector('strong')?.textContent === '{name}')?.innerText ?? '')"
    )
}

/// What somebody reads in a part of the page.
fn text_of(page: &mut Page<'_>, place: &str) -> String {
    let text = page.eval(&format!("document.querySelector('{place}').innerText"));
    text.as_str().expect("text").to_owned()
}

#[test]
fn before_there_is_a_route_the_page_says_how_to_add_one() {
    let folder = Folder::new("dashboard-routes");
    let node = start(&folder, "");
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes"), DESKTOP);
    page.wait_for("document.querySelector('.ways')?.checkVisibility()");
    let gateway = format!("http://{}", node.gateway());
    for part in ["skep routes add hello --host hello.localhost", "[[routes]]", &gateway] {
        page.wait_for(&format!("document.querySelector('main').innerText.includes({part:?})"));
    }
    page.screenshot(&picture("routes-empty"));
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);
    // The first route takes its place without a reload.
    let service = upstream();
    add(&node, &json!({ "name": "hello", "upstreams": [address(&service)] }));
    page.wait_for(&format!("{}.includes('API, version 1')", row("hello")));
    page.wait_for("!document.querySelector('.ways').checkVisibility()");
    assert_eq!(page.errors(), Vec::<String>::new());
}

#[test]
fn numbers_are_live_and_an_upstream_that_is_killed_is_out_until_it_is_back() {
    let folder = Folder::new("dashboard-routes");
    let (one, two) = (upstream(), upstream());
    let both = [address(&one), address(&two)];
    let shop = route("shop", "shop.example", "/", &both);
    let node = start(&folder, &format!("{shop}breaker = {{ failures = 2, open = \"2s\" }}\n"));
    add(&node, &json!({ "name": "quiet", "host": "quiet.example", "upstreams": [&both[0]] }));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes"), DESKTOP);
    let shop = row("shop");
    page.wait_for(&format!("{shop}.includes('2 ready') && {shop}.includes('skep.toml:1')"));
    page.wait_for(&format!("{}.includes('quiet.example/')", row("quiet")));
    // The row that is there now is the one that changes: nothing is built anew.
    page.eval("document.querySelector('.routes-box tbody tr').dataset.seen = 'before'");
    let crowd = Crowd::start(&node, "shop.example");
    page.wait_for(&format!("/[1-9][\\d.]*\\/s/.test({shop}) && /\\d ms/.test({shop})"));
    page.wait_for("/[1-9][\\d.]*\\/s/.test(document.querySelector('.tiles').innerText)");
    assert_eq!(
        page.eval("/[1-9][\\d.]*\\/s/.test(document.querySelector('[data-seen]').innerText)"),
        true
    );

    two.cut();
    page.wait_for(&format!("/1 ready, 1 (out|trial)/.test({shop})"));
    page.wait_for("document.querySelector('.marks [data-standing=out]')");
    page.wait_for("document.querySelector('.route-events').innerText.includes('breaker')");
    let told = text_of(&mut page, ".route-events");
    assert!(told.contains("shop") && told.contains(&both[1]), "{told}");
    page.screenshot(&picture("routes"));
    page.prefer("dark");
    page.screenshot(&picture("routes-dark"));
    page.prefer("light");
    everything_has_a_name(&mut page);
    nothing_too_wide(&mut page);

    // Its own page says the same of each upstream.
    page.eval("document.querySelector('.routes-box a[href*=\"route=shop\"]').click()");
    page.wait_for("document.querySelector('h1')?.textContent === 'shop'");
    let upstreams = "document.querySelector('.upstreams-box').innerText";
    page.wait_for(&format!("/out\\s+\\d+ s/.test({upstreams})"));
    page.wait_for("/^[1-9]/.test(document.querySelector('.tile-value').innerText)");
    page.wait_for("document.querySelectorAll('.chart-line[d^=M]').length >= 5");
    page.wait_for("document.querySelector('.route-events').innerText.includes('seen by hive-1')");
    // What the node has written down after ten seconds.
    page.wait_for("/[1-9]\\d* requests in 1 hour/.test(document.querySelector('main').innerText)");
    page.screenshot(&picture("routes-one"));
    page.prefer("dark");
    page.screenshot(&picture("routes-one-dark"));
    page.prefer("light");
    everything_has_a_name(&mut page);
    press(&mut page, "main", "30 days");
    page.wait_for("/[1-9]\\d* requests in 30 days/.test(document.querySelector('main').innerText)");
    let log = page.eval("document.querySelector('.page-head a.button').getAttribute('href')");
    assert_eq!(log, "#/access?route=shop");

    two.heal();
    page.wait_for(&format!("!/\\b(out|trial)\\b/.test({upstreams}.replace('Out for', ''))"));
    crowd.ends_well();
    page.wait_for("document.querySelector('.tile-value').innerText === '0/s'");
    assert_eq!(page.errors(), Vec::<String>::new());

    page.resize(PHONE.0, PHONE.1);
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (name, hash) in [("all", "/#/routes"), ("one", "/#/routes?route=shop")] {
            page.go(&node.url(hash));
            page.wait_for("document.querySelectorAll('main .tile').length >= 5");
            page.wait_for("document.querySelectorAll('.marks i, .upstreams-box .standing').length");
            page.wait_for("document.querySelector('.route-events li')");
            nothing_too_wide(&mut page);
            page.screenshot(&picture(&format!("phone-{scheme}-routes-{name}")));
        }
    }
}

#[test]
fn the_test_box_tells_route_and_upstream_and_why_not_the_others() {
    let folder = Folder::new("dashboard-routes");
    let (one, two) = (upstream(), upstream());
    let both = [address(&one), address(&two)];
    let shop = route("shop", "shop.example", "/", &both);
    let api = route("api", "shop.example", "/api", &both[..1]);
    let node = start(&folder, &format!("{shop}{api}strip_prefix = true\n"));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes"), DESKTOP);
    page.wait_for("document.querySelector('.route-test form')?.checkVisibility()");
    let send = |url: &str| {
        format!(
            "(form => {{
                form.querySelector('[name=url]').value = '{url}';
                form.requestSubmit();
            }})(document.querySelector('.route-test form'))"
        )
    };
    let result = "document.querySelector('.route-test [role=status]').innerText";
    page.eval(&send("http://shop.example/apis"));
    page.wait_for(&format!("{result}.includes('belongs to shop')"));
    let why = text_of(&mut page, ".route-test [role=status]");
    for part in ["shop.example/api", "path-differs", "would go to 127.0.0.1:", "not-its-turn"] {
        assert!(why.contains(part), "no {part} in {why}");
    }
    page.screenshot(&picture("routes-test"));
    // Without a scheme, as people write it.
    page.eval(&send("shop.example/api/cart"));
    page.wait_for(&format!("{result}.includes('belongs to api')"));
    let why = text_of(&mut page, ".route-test [role=status]");
    assert!(why.contains(&both[0]) && why.contains("see the path /cart"), "{why}");
    page.eval(&send("http://other.example/"));
    page.wait_for(&format!("{result}.includes('belongs to no route')"));
    assert_eq!(page.errors(), Vec::<String>::new());
    page.eval(&send("ftp://shop.example/"));
    page.wait_for(
        "document.querySelector('.route-test .field-error').textContent
            .includes('http://host/path')",
    );
    page.wait_for(&format!("{result} === ''"));
}

#[test]
fn a_route_is_closed_after_a_question_and_opened_again() {
    let folder = Folder::new("dashboard-routes");
    let service = upstream();
    let node = start(&folder, &route("fixed", "fixed.example", "/", &[address(&service)]));
    add(
        &node,
        &json!({ "name": "shop", "host": "shop.example", "upstreams": [address(&service)] }),
    );
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes?route=shop"), DESKTOP);
    let close = "Close shop for maintenance";
    press(&mut page, ".page-head", close);
    press(&mut page, "dialog[open]", "Cancel");
    page.wait_for("!document.querySelector('dialog')");
    assert_eq!(ask(&node, "shop.example", "/"), "200", "nothing is done before yes is said");
    press(&mut page, ".page-head", close);
    press(&mut page, "dialog[open]", "Close route");
    page.wait_for("document.querySelector('.notice.warn')?.innerText.includes('Closed')");
    assert_eq!(ask(&node, "shop.example", "/"), "503");
    page.screenshot(&picture("routes-closed"));
    press(&mut page, ".page-head", "End maintenance of shop");
    page.wait_for("!document.querySelector('.notice')");
    assert_eq!(ask(&node, "shop.example", "/"), "200");

    // What somebody else does is seen as well.
    let closed = Some(r#"{ "enabled": true }"#);
    node.send("POST", &format!("{ROUTES}/shop/maintenance"), &[], closed);
    page.wait_for("document.querySelector('.notice.warn')?.innerText.includes('Closed')");
    page.go(&node.url("/#/routes"));
    page.wait_for(&format!("{}.includes('maintenance')", row("shop")));
    assert_eq!(page.errors(), Vec::<String>::new());

    // One of the file is closed there.
    page.go(&node.url("/#/routes?route=fixed"));
    page.wait_for("document.querySelector('.facts')?.innerText.includes('edit the file')");
    let buttons = text_of(&mut page, ".page-head");
    assert!(buttons.contains("Reload") && !buttons.contains("Maintenance"), "{buttons}");
    page.go(&node.url("/#/routes?route=nobody"));
    page.wait_for("document.querySelector('.notice')?.innerText.includes('nobody is not there')");
}

#[test]
fn the_file_is_read_again_and_what_is_wrong_with_it_is_told_line_by_line() {
    let folder = Folder::new("dashboard-routes");
    let service = upstream();
    let shop = route("shop", "shop.example", "/", &[address(&service)]);
    let node = start(&folder, &shop);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes"), DESKTOP);
    page.wait_for(&format!("{}.includes('1 ready')", row("shop")));
    let cart = route("cart", "shop.example", "/cart", &[address(&service)]);
    std::fs::write(folder.join("skep.toml"), format!("{shop}{cart}")).expect("writes");
    press(&mut page, ".page-head", "Reload");
    page.wait_for("document.querySelector('.notice')?.innerText.includes('Added: cart.')");
    page.wait_for(&format!("{}.includes('shop.example/cart')", row("cart")));
    assert_eq!(page.errors(), Vec::<String>::new());
    std::fs::write(folder.join("skep.toml"), format!("{shop}hots = \"a\"\n")).expect("writes");
    press(&mut page, ".page-head", "Reload");
    page.wait_for(
        "document.querySelector('.flaws')?.innerText.includes('skep.toml:6: routes[0].hots')",
    );
    page.screenshot(&picture("routes-wrong"));
    page.wait_for(&format!("{}.includes('1 ready')", row("cart")));
}

#[test]
fn who_may_only_read_sees_routes_and_no_buttons() {
    let folder = Folder::new("dashboard-routes");
    let service = upstream();
    let node = start(&folder, "");
    add(&node, &json!({ "name": "shop", "upstreams": [address(&service)] }));
    let mut browser = Browser::start();
    let mut page = open_as_reader(&mut browser, &node, "/#/routes");
    page.wait_for(&format!("{}.includes('1 ready')", row("shop")));
    assert!(!text_of(&mut page, ".page-head").contains("Reload"));
    page.go(&node.url("/#/routes?route=shop"));
    page.wait_for("document.querySelector('.upstreams-box .standing')");
    let head = text_of(&mut page, ".page-head");
    assert!(!head.contains("Maintenance") && !head.contains("Access log"), "{head}");
}

#[test]
fn of_very_many_routes_the_first_are_drawn_and_the_filter_finds_the_others() {
    let folder = Folder::new("dashboard-routes");
    let service = upstream();
    let to = [address(&service)];
    let one = |number| {
        let path = format!("/{number:03}");
        route(&format!("route-{number:03}"), "many.example", &path, &to)
    };
    let node = start(&folder, &(0..250).map(one).collect::<String>());
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/routes"), DESKTOP);
    let names = "[...document.querySelectorAll('.routes-box tbody strong')].map(one =>
        one.textContent)";
    page.wait_for(&format!("{names}.length === 200 && {names}[0] === 'route-000'"));
    page.wait_for("document.querySelector('main').innerText.includes('first 200 of 250')");
    let filter = |text: &str| {
        format!(
            "(input => {{ input.value = '{text}'; input.dispatchEvent(new Event('input')); }})(
                document.querySelector('main input[type=search]'))"
        )
    };
    page.eval(&filter("many.example/24"));
    page.wait_for(&format!("{names}.length === 10 && {names}[0] === 'route-240'"));
    page.wait_for("location.hash === '#/routes?search=many.example%2F24'");
    page.eval(&filter("nothing of that"));
    page.wait_for("document.querySelector('.routes-box').innerText.includes('No route matches')");
    page.screenshot(&picture("routes-many"));
    assert_eq!(page.errors(), Vec::<String>::new());
}
