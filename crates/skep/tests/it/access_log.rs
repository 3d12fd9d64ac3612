//! The access log of a node: its file, those who follow it, and what is asked of it.

use crate::common::{command, run, skep, until};
use crate::dashboard::picture;
use serde_json::Value;
use skep::settings::{AccessLogSettings, Layers, resolve};
use skep::work::{AccessEntry, AccessFile, AccessFilter, AccessLog, Column, Heard, Noted, Test};
use skep_pools::{Options, Pools};
use skep_store::{StoreOptions, Stores};
use skep_testkit::{Browser, Folder, Node, Process, eventually};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn entry(number: usize) -> AccessEntry {
    AccessEntry {
        at_ms: 1,
        route: "shop".into(),
        path: format!("/things/{number}"),
        status: 200,
        request_id: format!("r-{number}"),
        ..AccessEntry::default()
    }
}

fn noted(numbers: std::ops::Range<usize>) -> Vec<Noted> {
    numbers.map(|number| Arc::new(entry(number))).collect()
}

/// The ids in a file; every line must be one of JSON.
fn ids(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is whole");
    let id = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        value["request_id"].as_str().expect("an id").to_owned()
    };
    text.lines().map(id).collect()
}

fn wanted(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("r-{number}")).collect()
}

#[test]
fn a_file_that_is_full_is_put_aside_and_the_oldest_of_those_goes() {
    let folder = Folder::new("access-file");
    let path = folder.join("access.log");
    let line = serde_json::to_string(&entry(10)).expect("JSON").len() as u64 + 1;
    let file = AccessFile::new(&path, 20 * line, 2);
    for batch in (10..90).step_by(10) {
        file.append(&noted(batch..batch + 10));
    }
    let numbered = |number: u32| folder.join(&format!("access.log.{number}"));
    assert_eq!(ids(&path), wanted(70..90));
    assert_eq!(ids(&numbered(1)), wanted(50..70));
    assert_eq!(ids(&numbered(2)), wanted(30..50));
    assert!(!numbered(3).exists());
    assert_eq!((file.bytes(), file.errors(), file.lost()), (80 * line, 0, 0));
    // With none to keep, a full file starts anew.
    let single = AccessFile::new(&folder.join("single.log"), 10 * line, 0);
    single.append(&noted(10..20));
    single.append(&noted(20..30));
    assert_eq!(ids(&folder.join("single.log")), wanted(20..30));
    assert!(!folder.join("single.log.1").exists());
}

#[test]
fn a_file_that_was_moved_away_or_emptied_is_opened_again() {
    let folder = Folder::new("access-file");
    let (path, moved) = (folder.join("access.log"), folder.join("moved.log"));
    let file = AccessFile::new(&path, 1 << 20, 2);
    file.append(&noted(0..3));
    std::fs::rename(&path, &moved).expect("moves");
    file.append(&noted(3..5));
    assert_eq!((ids(&moved), ids(&path)), (wanted(0..3), wanted(3..5)));
    std::fs::File::create(&path).expect("empties");
    file.append(&noted(5..6));
    assert_eq!(ids(&path), wanted(5..6));
    std::fs::remove_file(&path).expect("removes");
    file.append(&noted(6..7));
    assert_eq!((ids(&path), file.errors()), (wanted(6..7), 0));
}

#[test]
fn half_a_line_of_one_who_died_does_not_spoil_the_next() {
    let folder = Folder::new("access-file");
    let path = folder.join("access.log");
    std::fs::write(&path, "{\"request_id\":\"r-").expect("writes");
    AccessFile::new(&path, 1 << 20, 2).append(&noted(0..2));
    let text = std::fs::read_to_string(&path).expect("reads");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[1].contains("\"r-0\"") && lines[2].contains("\"r-1\""), "{text}");
}

#[test]
fn what_the_disk_does_not_take_is_counted_and_written_again_when_it_does() {
    let folder = Folder::new("access-file");
    let (missing, path) = (folder.join("later"), folder.join("later/access.log"));
    let file = AccessFile::new(&path, 1 << 20, 2);
    file.append(&noted(0..3));
    assert_eq!((file.bytes(), file.errors(), file.lost()), (0, 1, 3));
    std::fs::create_dir(&missing).expect("makes");
    file.append(&noted(3..5));
    assert_eq!((ids(&path), file.errors(), file.lost()), (wanted(3..5), 1, 3));
    // A folder that takes no files, a device that is always full, and what is no file at all.
    let read_only = Path::new("/sys/skep-access.log");
    for not_a_file in [read_only, Path::new("/dev/full"), folder.path()] {
        let file = AccessFile::new(not_a_file, 1 << 20, 2);
        file.append(&noted(0..4));
        assert_eq!((file.bytes(), file.errors(), file.lost()), (0, 1, 4), "{not_a_file:?}");
    }
    // A pipe that nobody reads must hold nobody up.
    let pipe = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("runs");
    assert!(made.success());
    let file = AccessFile::new(&pipe, 1 << 20, 2);
    file.append(&noted(0..4));
    assert_eq!((file.errors(), file.lost()), (1, 4));
}

#[test]
fn a_full_file_that_cannot_be_put_aside_does_not_grow_further() {
    let folder = Folder::new("access-file");
    let (path, in_the_way) = (folder.join("access.log"), folder.join("access.log.1"));
    std::fs::create_dir_all(in_the_way.join("something")).expect("makes");
    let line = serde_json::to_string(&entry(10)).expect("JSON").len() as u64 + 1;
    let file = AccessFile::new(&path, 10 * line, 1);
    file.append(&noted(10..20));
    file.append(&noted(20..25));
    assert_eq!((ids(&path), file.errors(), file.lost()), (wanted(10..20), 1, 5));
    std::fs::remove_dir_all(&in_the_way).expect("removes");
    file.append(&noted(25..30));
    assert_eq!((ids(&in_the_way), ids(&path)), (wanted(10..20), wanted(25..30)));
    assert_eq!((file.errors(), file.lost()), (1, 5));
}

#[test]
fn a_disk_that_takes_half_a_batch_leaves_whole_lines_and_a_node_that_works() {
    const ROOM: usize = 4 << 20;
    let folder = Folder::new("access-log");
    let path = folder.join("access.log");
    // A file may have so many bytes; what is beyond them is not written.
    let mut filled = serde_json::to_vec(&entry(0)).expect("JSON");
    filled.resize(ROOM - 101, b' ');
    filled.push(b'\n');
    std::fs::write(&path, &filled).expect("writes");
    let limited = format!("trap '' XFSZ; prlimit --pid $$ --fsize={ROOM}; exec \"$0\" \"$@\"");
    let file = format!("access_log.file={}", path.display());
    let mut command = Node::command(Path::new("sh"));
    command.args(["-c", &limited]).arg(skep()).args(["serve", "--data"]).arg(folder.join("data"));
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--set",
        "gateway.listen=127.0.0.1:0",
        "--set",
        &file,
    ]);
    let mut node = Node::watch(Process::start("skep", &command, "KILL"));
    node.wait_until_ready();
    assert_eq!(node.get("/api/v1/pages").status, 200);
    node.process().wait_for_line("the file of the access log cannot be written");
    until("it is counted", || {
        !node.get("/metrics").body.contains("skep_access_log_file_errors_total 0")
    });
    assert_eq!(ids(&path), wanted(0..1), "half a line was taken back");
    // As soon as there is room, lines are written again.
    std::fs::File::create(&path).expect("empties");
    until("there is a line", || {
        node.get("/api/v1/pages");
        !ids(&path).is_empty()
    });
    assert_eq!(node.stop().code, 0);
}

/// A log on its own, with stores that are never asked.
struct Alone {
    log: Arc<AccessLog>,
    pools: Pools,
    _ready: tokio::sync::watch::Sender<skep::node::State>,
    stores: Stores,
}

fn settings(folder: &Folder, given: &[(&str, &str)]) -> AccessLogSettings {
    let mut layers = Layers::default();
    layers.add_flag("--data", "data", &folder.path().display().to_string());
    for (key, value) in given {
        layers.add_flag("--set", key, value);
    }
    resolve(layers).expect("is valid").settings.access_log
}

async fn alone(folder: &Folder, given: &[(&str, &str)], state: skep::node::State) -> Alone {
    let stores = Stores::open(&StoreOptions::embedded(&folder.join("data"))).expect("opens");
    stores.migrate(skep::node::SCHEMAS).await.expect("migrates");
    let pools = Pools::start(Options::new(2)).expect("starts");
    let (ready, state) = tokio::sync::watch::channel(state);
    let settings = settings(folder, given);
    let log = AccessLog::start("hive", &pools, &settings, &stores, &state).expect("is kept");
    Alone { log, pools, _ready: ready, stores }
}

impl Alone {
    async fn end(self) {
        self.pools.shutdown(Duration::from_secs(5)).await;
        self.stores.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_too_many_wait_more_are_dropped_and_counted_and_the_file_goes_on() {
    let folder = Folder::new("access-log");
    let path = folder.join("access.log");
    let text = path.display().to_string();
    let given = [("access_log.waiting_max", "100"), ("access_log.file", text.as_str())];
    // The database is not there yet, so that nothing can be written to it.
    let starting = skep::node::State::Starting("the test wants it".to_owned());
    let one = alone(&folder, &given, starting).await;
    // One at a time, so that the file is never behind.
    for number in 0..2_000 {
        one.log.note(entry(number));
        if number % 50 == 49 {
            eventually("the file has it", || (one.log.totals().file.waiting == 0).then_some(()));
        }
    }
    let totals = one.log.totals();
    assert_eq!(totals.database.taken + totals.database.dropped, 2_000);
    assert!(totals.database.dropped > 0 && totals.database.waiting > 0, "{totals:?}");
    assert_eq!((totals.database.written, totals.file.dropped, totals.file_lost), (0, 0, 0));
    assert_eq!(ids(&path), wanted(0..2_000));
    one.pools.shutdown(Duration::from_millis(100)).await;
    // What waits is written by whoever ends the node.
    let waiting = one.log.waiting();
    one.log.write_left(one.stores.database()).await.expect("writes");
    let none = AccessFilter::default();
    let page = skep::work::store::access_page(one.stores.database(), &none, None, 5_000, 10_000);
    assert_eq!(page.await.expect("reads").entries.len() as u64, waiting);
    one.stores.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_entries_a_second_are_all_in_the_database_and_in_the_file() {
    let folder = Folder::new("access-log");
    let path = folder.join("access.log");
    let text = path.display().to_string();
    let given = [("access_log.file", text.as_str())];
    let one = alone(&folder, &given, skep::node::State::Ready).await;
    let mut every = tokio::time::interval(Duration::from_millis(10));
    for tick in 0..100 {
        every.tick().await;
        for number in tick * 10..(tick + 1) * 10 {
            one.log.note(entry(number));
        }
    }
    one.log.flush().await;
    let totals = one.log.totals();
    assert_eq!((totals.database.written, totals.database.dropped), (1_000, 0));
    assert_eq!((totals.file.dropped, totals.file_lost), (0, 0));
    assert_eq!(ids(&path), wanted(0..1_000));
    let none = AccessFilter::default();
    let page = skep::work::store::access_page(one.stores.database(), &none, None, 5_000, 10_000);
    let mut kept = page.await.expect("reads").entries;
    kept.reverse();
    let kept: Vec<_> = kept.into_iter().map(|one| one.request_id).collect();
    assert_eq!(kept, wanted(0..1_000));
    one.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_follows_hears_what_was_asked_for_and_how_much_was_missed() {
    let folder = Folder::new("access-log");
    let one = alone(&folder, &[], skep::node::State::Ready).await;
    one.log.note(entry(0));
    let filter = AccessFilter::default().and(Column::Path, Test::Contains("7".to_owned()));
    let mut follower = one.log.follow();
    (1..20).for_each(|number| one.log.note(entry(number)));
    for number in [7, 17] {
        let expected = AccessEntry { node: "hive".into(), ..entry(number) };
        assert_eq!(follower.next(&filter).await, Some(Heard::Entry(Arc::new(expected))));
    }
    (0..10_000).for_each(|_| one.log.note(entry(1)));
    let Some(Heard::Missed(missed)) = follower.next(&filter).await else { panic!("it was slow") };
    // The two after the last one heard are among them.
    assert!((5_000..10_002).contains(&missed), "{missed}");
    // The next one takes the place of the oldest that is left.
    one.log.note(entry(70));
    assert_eq!(follower.next(&filter).await, Some(Heard::Missed(1)));
    let heard = follower.next(&filter).await;
    assert!(matches!(&heard, Some(Heard::Entry(entry)) if entry.path == "/things/70"), "{heard:?}");
    one.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_makes_long_is_kept_short() {
    let folder = Folder::new("access-log");
    let one = alone(&folder, &[], skep::node::State::Ready).await;
    let mut follower = one.log.follow();
    let long = "ä".repeat(100_000);
    one.log.note(AccessEntry { path: long.clone(), host: long, ..entry(1) });
    let Some(Heard::Entry(entry)) = follower.next(&AccessFilter::default()).await else {
        panic!("it was noted")
    };
    assert_eq!((entry.path.len(), entry.host.len()), (512, 256));
    one.end().await;
}

/// Reads the events of a stream line by line.
fn events(node: &Node, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(node.address()).expect("connects");
    stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("a timeout can be set");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).expect("answers");
    assert!(line.contains(" 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).expect("answers");
    }
    lines
}

fn next_entry(lines: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("goes on") > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

#[test]
fn the_live_log_sends_only_what_was_asked_for() {
    let folder = Folder::new("access-log");
    let node = Node::start(skep(), &folder.join("data"), &["--set", "node.name=hive"]);
    let mut lines = events(&node, "/api/v1/access/live?status=404&method=get&route=-");
    assert_eq!(node.get("/api/v1/pages").status, 200);
    assert_eq!(node.get("/api/v1/nowhere").status, 404);
    let heard = next_entry(&mut lines);
    assert_eq!((&heard["path"], &heard["status"]), (&"/api/v1/nowhere".into(), &404.into()));
    assert_eq!((&heard["node"], &heard["route"]), (&"hive".into(), &"".into()), "{heard}");
    assert_eq!((&heard["protocol"], &heard["host"]), (&"1.1".into(), &node.address().into()));
    assert!(heard["bytes_out"].as_i64().is_some_and(|bytes| bytes > 0), "{heard}");
    for query in ["status=6xx", "from=soon", "address=10.0.0.0/8", "min_duration=5", "limit=1"] {
        let refused = node.get(&format!("/api/v1/access/live?{query}"));
        let field = query.split('=').next().expect("a name");
        let answer = refused.json();
        assert_eq!((refused.status, &answer["code"]), (400, &"E_QUERY_INVALID".into()));
        assert!(answer["detail"].as_str().is_some_and(|it| it.starts_with(field)), "{answer}");
    }
}

#[test]
fn the_command_line_follows_filters_and_prints_lines_of_json() {
    let folder = Folder::new("access-log");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let url = node.url("");
    let words =
        ["access", "--follow", "--json", "--path", "nowhere", "--limit", "2", "--url", &url];
    let follower = Process::start("skep", &command(folder.path(), &words), "KILL");
    // It listens at some time; what comes before that it does not hear.
    let ended = eventually("it has heard enough", || {
        node.get("/api/v1/nowhere");
        node.get("/api/v1/pages");
        follower.wait_for(Duration::from_millis(20))
    });
    let log = follower.log();
    assert_eq!(ended.code, 0, "{log}");
    assert_eq!(log.lines().count(), 2, "{log}");
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).expect("a line is JSON");
        assert_eq!(entry["path"], "/api/v1/nowhere");
    }
    let cli = |words: &[&str]| {
        let (ended, log) = run(folder.path(), &[words, &["--url", &url]].concat());
        (ended.code, log)
    };
    until("the list has them", || {
        let (code, log) = cli(&["access", "--status", "400-404", "--limit", "2", "--json"]);
        code == 0
            && log.lines().count() == 2
            && log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
    });
    let (code, log) = cli(&["access", "--from", "1h", "--route", "-", "--method", "get"]);
    let heading = log.lines().next().unwrap_or_default();
    assert!(code == 0 && heading.starts_with("WHEN") && heading.contains("UPSTREAM"), "{log}");
    assert!(log.contains("/api/v1/nowhere"), "{log}");
    assert_eq!(cli(&["access", "--to", "1h"]), (0, "no request is kept".to_owned()));
    let (code, log) = cli(&["access", "--from", "yesterday"]);
    assert!(code == 1 && log.contains("from: \"yesterday\" is not a time such as"), "{log}");
    let (code, log) = cli(&["access", "--follow", "--status", "banana"]);
    assert!(code == 1 && log.contains("status: \"banana\""), "{log}");
}

#[test]
fn a_node_without_the_log_in_its_database_still_writes_the_file() {
    let folder = Folder::new("access-log");
    let path = folder.join("access.log");
    let file = format!("access_log.file={}", path.display());
    let more = ["--set", "access_log.enabled=false", "--set", &file];
    let node = Node::start(skep(), &folder.join("data"), &more);
    for _ in 0..5 {
        assert_eq!(node.get("/api/v1/pages").status, 200);
    }
    eventually("the file has them", || (ids(&path).len() == 5).then_some(()));
    let metrics = node.get("/metrics").body;
    for line in [
        "skep_access_log_entries_total{outcome=\"taken\"} 0",
        "skep_access_log_file_entries_total{outcome=\"written\"} 5",
        "skep_access_log_file_errors_total 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let page = node.get("/api/v1/access").json();
    assert_eq!(page["entries"], Value::Array(Vec::new()), "{page}");
    // The last ones are in the file when the node has ended.
    assert_eq!(node.get("/api/v1/nowhere").status, 404);
    assert_eq!(node.stop().code, 0);
    assert!(std::fs::read_to_string(&path).expect("reads").contains("/api/v1/nowhere"));
}

#[test]
fn a_node_whose_file_cannot_be_written_says_so_and_works_on() {
    let folder = Folder::new("access-log");
    let file = format!("access_log.file={}", folder.join("nowhere/access.log").display());
    let node = Node::start(skep(), &folder.join("data"), &["--set", &file]);
    assert_eq!(node.get("/api/v1/pages").status, 200);
    node.process().wait_for_line("the file of the access log cannot be written");
    until("it is counted", || {
        let metrics = node.get("/metrics").body;
        metrics.contains("skep_access_log_file_entries_total{outcome=\"given_up\"} 2")
            || metrics.contains("skep_access_log_file_entries_total{outcome=\"given_up\"} 1")
    });
    until("the database has it", || {
        let page = node.get("/api/v1/access?path=pages").json();
        page["entries"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(node.stop().code, 0);
}

#[test]
fn the_dashboard_searches_the_log_and_shows_requests_as_they_come() {
    let folder = Folder::new("access-log");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    assert_eq!(node.get("/api/v1/nowhere-before").status, 404);
    until("it is kept", || node.get("/api/v1/access?status=404").body.contains("nowhere-before"));
    let mut browser = Browser::start();
    let mut page = browser.open(&node.url("/#/access?status=404"), (1_280, 1_000));
    page.wait_for("document.querySelector('main table')?.innerText.includes('nowhere-before')");
    page.wait_for("!document.querySelector('main').innerText.includes('/api/v1/pages')");
    page.eval(
        "[...document.querySelectorAll('main button')]
             .find(one => one.innerText === 'Follow').click()",
    );
    let live = "document.querySelector('main table[aria-label=\"Requests as they come\"]')";
    page.wait_for(&format!("{live}?.innerText.includes('Waiting')"));
    // The stream opens at some time; what comes before that it does not show.
    eventually("it is shown", || {
        node.get("/api/v1/nowhere-now");
        (page.eval(&format!("{live}.innerText.includes('nowhere-now')")) == true).then_some(())
    });
    page.screenshot(&picture("access-followed"));
    page.eval(
        "const from = document.querySelector('input[aria-label^=\"Not before\"]');
         from.value = 'yesterday'; from.dispatchEvent(new Event('input'))",
    );
    page.wait_for("document.querySelector('main').innerText.includes('is not a time such as')");
    for url in page.requests() {
        let inside = url.starts_with(&node.url("/")) || url.starts_with("data:");
        assert!(inside || url == "about:blank", "it loads {url} from outside");
    }
}
