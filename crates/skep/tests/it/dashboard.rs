//! The dashboard in a real browser.

use crate::common::skep;
use skep_testkit::{Browser, Folder, Node, Page, Postgres, Proxy};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

const DESKTOP: (u32, u32) = (1_280, 800);
const PHONE: (u32, u32) = (390, 844);
/// The title of the open page, once its code is there.
const TITLE: &str = "document.querySelector('main > .page:not([aria-busy]) h1')?.textContent";

/// Pictures are kept in the build folder, for people to look at.
pub fn picture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&folder).expect("makes");
    folder.join(format!("{name}.png"))
}

/// Follows a link of the navigation, and waits until the address leads there.
fn click(page: &mut Page<'_>, path: &str) {
    page.eval(&format!("document.querySelector('nav a[data-path=\"{path}\"]').click()"));
    page.wait_for(&format!(
        "document.querySelector('nav a[aria-current=page]')?.dataset.path === '{path}'"
    ));
}

fn port_of(node: &Node) -> u16 {
    node.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// The node as it would be if the code of one page were `code`. Where it listens.
fn with_page(node: &Node, file: &str, code: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("bound").port();
    let asked = format!("GET /assets/pages/{file} ").into_bytes();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/javascript\r\ncontent-length:";
    let answer = format!("{head} {}\r\n\r\n{code}", code.len()).into_bytes();
    let target = port_of(node);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)) else { return };
            let (mut back_from, mut back_to) =
                (server.try_clone().expect("clones"), client.try_clone().expect("clones"));
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            let (asked, answer) = (asked.clone(), answer.clone());
            std::thread::spawn(move || {
                // A browser sends its next request after the answer to the last one.
                let mut chunk = [0; 16 << 10];
                while let Ok(read @ 1..) = client.read(&mut chunk) {
                    let passed = match chunk[..read].starts_with(&asked) {
                        true => client.write_all(&answer),
                        false => server.write_all(&chunk[..read]),
                    };
                    if passed.is_err() {
                        break;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

/// No error, and nothing from outside.
pub fn nothing_went_wrong(page: &mut Page<'_>, node: &Node) {
    let errors = page.errors();
    assert!(errors.is_empty(), "{errors:#?}");
    let own = node.url("/");
    for url in page.requests() {
        let inside = url.starts_with(&own) || url.starts_with("data:") || url == "about:blank";
        assert!(inside, "it loads {url} from outside");
    }
}

#[test]
fn it_loads_shows_live_numbers_and_every_page_opens() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "node.name=hive-7"]);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for("document.querySelector('h1')?.textContent === 'Overview'");
    page.wait_for("document.body.innerText.includes('hive-7')");
    page.wait_for("document.body.innerText.includes('skep.db')");
    // Live: the node has been up for some seconds, and the page says so without a reload.
    let uptime = "[...document.querySelectorAll('.tiles > *')].at(-1).innerText";
    let first = page.eval(uptime);
    page.wait_for(&format!("{uptime} !== {first}"));
    page.wait_for("document.querySelectorAll('svg path').length > 2");
    page.screenshot(&picture("overview"));

    let pages =
        page.eval("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))");
    let pages = pages.as_array().expect("links").clone();
    assert!(pages.len() >= 5, "{pages:?}");
    for link in pages {
        let link = link.as_str().expect("text");
        page.eval(&format!("document.querySelector('nav a[href=\"{link}\"]').click()"));
        page.wait_for(&format!(
            "document.querySelector('nav a[aria-current=page]')?.getAttribute('href') === '{link}'
             && {TITLE}"
        ));
        let name = link.trim_start_matches(['#', '/']);
        page.screenshot(&picture(if name.is_empty() { "home" } else { name }));
    }
    page.go(&node.url("/#/api"));
    page.wait_for("document.body.innerText.includes('/api/v1/keys')");
    page.go(&node.url("/#/nowhere"));
    page.wait_for("document.querySelector('main h1')?.textContent === 'Nothing here'");
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn the_code_of_a_page_is_loaded_when_it_is_opened_and_no_sooner() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let listed = node.get("/api/v1/pages").json();
    let listed = listed["pages"].as_array().expect("a list");
    let overview = &listed[0];
    assert_eq!((&overview["file"], &overview["path"]), (&"overview.js".into(), &"/".into()));
    assert!(listed.iter().map(|page| page["order"].as_i64()).is_sorted(), "{listed:?}");
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    let links = page.eval("document.querySelectorAll('nav a').length");
    assert_eq!(links, listed.len(), "the navigation is complete");
    let code = |page: &mut Page<'_>| {
        let own = node.url("/assets/pages/");
        let asked = page.requests();
        asked.iter().filter_map(|url| url.strip_prefix(&own).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(code(&mut page), ["overview.js"]);
    for path in ["/keys", "/", "/keys"] {
        click(&mut page, path);
        page.wait_for(TITLE);
    }
    assert_eq!(code(&mut page), ["overview.js", "keys.js"]);
    assert_eq!(page.eval("document.activeElement.textContent"), "Keys");
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn a_page_that_cannot_be_loaded_says_so_and_is_there_after_a_retry() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let proxy = Proxy::start(("127.0.0.1", port_of(&node)));
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://127.0.0.1:{}/", proxy.port()), DESKTOP);
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    proxy.cut();
    click(&mut page, "/keys");
    let notice = "document.querySelector('main .notice.bad')?.innerText";
    page.wait_for(&format!("{notice}.includes('This page could not be loaded')"));
    assert_eq!(page.eval("document.activeElement.textContent"), "Keys");
    page.screenshot(&picture("page-not-loaded"));
    // What was loaded before works all the same.
    click(&mut page, "/");
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    click(&mut page, "/keys");
    page.wait_for(&format!("{notice}.includes('This page could not be loaded')"));
    let retry = "document.querySelector('main .notice.bad button').click()";
    page.eval(retry);
    page.wait_for(&format!("{notice}.includes('The node does not answer')"));
    proxy.heal();
    page.eval(retry);
    // It loads anew, which no question to the page survives. The page itself asks for the keys.
    node.process().wait_for_line("path=\"/api/v1/keys\"");
    page.wait_for("document.querySelector('main table')");
    assert_eq!(page.eval(TITLE), "Keys");
    assert_eq!(page.eval(&format!("{notice} ?? null")), serde_json::Value::Null);
}

#[test]
fn a_page_with_broken_code_does_not_take_the_others_with_it() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let port = with_page(&node, "keys.js", "export function mount( {");
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://127.0.0.1:{port}/#/keys"), DESKTOP);
    page.wait_for(
        "document.querySelector('main .notice.bad')?.innerText.includes('could not be loaded')",
    );
    assert_eq!(page.eval(TITLE), "Keys");
    click(&mut page, "/audit");
    page.wait_for("document.querySelector('main table')");
    assert_eq!(page.eval("document.querySelectorAll('main .notice.bad').length"), 0);
}

#[test]
fn a_page_that_comes_late_is_not_shown_over_the_one_opened_meanwhile() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let proxy = Proxy::start(("127.0.0.1", port_of(&node)));
    let mut browser = Browser::start();
    let mut page = browser.open(&format!("http://127.0.0.1:{}/", proxy.port()), DESKTOP);
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    proxy.freeze();
    click(&mut page, "/log");
    assert_eq!(page.eval("document.querySelector('main > .page').ariaBusy"), "true");
    click(&mut page, "/audit");
    click(&mut page, "/");
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    proxy.heal();
    // Asked for after the dashboard did, so what it does with them is done by then.
    page.eval(
        "Promise.all(['log', 'audit'].map(name => import(`/assets/pages/${name}.js`)))
             .then(() => new Promise(done => setTimeout(done)))",
    );
    let shown = page.eval("[...document.querySelectorAll('main h1')].map(one => one.textContent)");
    assert_eq!(shown, serde_json::json!(["Overview"]));
    assert_eq!(page.eval("document.title"), "Overview · Skep");
    // Nor do they work unseen: the log would open its stream.
    let asked = page.requests();
    let theirs = |url: &&String| url.contains("/api/v1/log") || url.contains("/api/v1/audit");
    assert_eq!(asked.iter().find(theirs), None);
}

#[test]
fn a_key_is_made_shown_once_and_used_to_log_in() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/keys"), DESKTOP);
    page.wait_for("document.querySelector('main form, main button')");
    page.eval(
        "(() => {
            const form = document.querySelector('main form') ?? (() => {
                [...document.querySelectorAll('main button')]
                    .find(button => /key/i.test(button.textContent)).click();
                return document.querySelector('dialog[open] form');
            })();
            form.querySelector('input[name=name]').value = 'browser';
            const admin = form.querySelector('input[value=admin]');
            if (!admin.checked) admin.click();
            form.requestSubmit();
        })()",
    );
    let shown = page.wait_for(
        "document.querySelector('dialog[open]')?.innerText.match(/skep_k[0-9a-f]+_[0-9a-f]+/)?.[0]
         ?? document.querySelector('dialog[open] input')?.value.match(/skep_k[0-9a-f_]+/)?.[0]",
    );
    let key = shown.as_str().expect("a key").to_owned();
    page.screenshot(&picture("key-once"));
    // The first key closes the door. Whoever made it is let in with it; others must log in.
    page.press("Escape");
    let sign_out =
        "[...document.querySelectorAll('button')].find(one => /sign out/i.test(one.innerText))";
    page.wait_for(sign_out);
    page.eval(&format!("{sign_out}.click()"));
    page.wait_for("document.body.dataset.view === 'login' && document.querySelector('main input')");
    page.screenshot(&picture("login"));
    let submit = |text: &str| {
        format!(
            "(() => {{
                const input = document.querySelector('main input');
                input.value = '{text}';
                input.form.requestSubmit();
            }})()"
        )
    };
    page.eval(&submit("skep_wrong"));
    page.wait_for("/does not open/i.test(document.querySelector('main').innerText)");
    page.eval(&submit(&key));
    page.wait_for("document.body.dataset.view === 'pages'");
    page.go(&node.url("/#/audit"));
    page.wait_for("document.querySelector('main table')?.innerText.includes('key.create')");
    assert!(!page.eval("document.body.innerHTML").to_string().contains(&key));
    // Chromium logs each refused request as an error; those that were asked for are fine.
    let refused = |error: &String| error.contains("401");
    assert!(page.errors().iter().all(refused), "{:#?}", page.errors());
}

#[test]
fn the_first_stop_of_a_keyboard_skips_to_the_content_and_a_phone_has_a_menu() {
    let folder = Folder::new("dashboard");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), PHONE);
    page.wait_for("document.querySelector('nav a')");
    page.eval("document.body.focus()");
    page.press("Tab");
    assert_eq!(page.eval("document.activeElement.id"), "skip");
    page.press("Enter");
    assert_eq!(page.eval("document.activeElement.id"), "main");
    let menu = "document.getElementById('menu')";
    page.eval(&format!("{menu}.click()"));
    page.wait_for("document.querySelector('nav a').checkVisibility()");
    page.press("Escape");
    assert_eq!(page.eval("document.querySelector('nav a').checkVisibility()"), false);
    assert_eq!(page.eval("document.activeElement.id"), "menu");
    nothing_went_wrong(&mut page, &node);
}

#[test]
fn it_comes_back_by_itself_after_the_node_was_away() {
    let folder = Folder::new("dashboard");
    let data = folder.join("data");
    let node = Node::start(skep(), &data, &[]);
    let address = node.address().to_owned();
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
    node.process().kill();
    page.wait_for("document.getElementById('banner').innerText.trim().length > 0");
    page.screenshot(&picture("connection-lost"));
    let again = Node::start(skep(), &data, &["--listen", &address, "--set", "node.name=reborn"]);
    page.wait_for("document.getElementById('banner').innerText.trim().length === 0");
    page.wait_for("document.body.innerText.includes('reborn')");
    assert_eq!(again.stop().code, 0);
}

#[test]
fn it_waits_for_a_node_that_is_starting_instead_of_asking_for_a_key() {
    let folder = Folder::new("dashboard");
    let postgres = Postgres::shared();
    let database = postgres.database();
    let proxy = Proxy::start(postgres.address());
    proxy.cut();
    let url = database.url_through(proxy.port());
    let node = Node::start_unready(skep(), &folder.join("data"), &["--database", &url]);
    let session = node.get("/api/v1/session");
    assert_eq!((session.status, session.json()["code"].as_str()), (503, Some("E_STARTING")));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/"), DESKTOP);
    page.wait_for("document.body.innerText.includes('still starting')");
    proxy.heal();
    page.wait_for("document.querySelector('h1')?.textContent === 'Overview'");
    assert_eq!(node.stop().code, 0);
}
