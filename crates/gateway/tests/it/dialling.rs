//! Workers that do not answer, or wrongly: the client gets another one.

use crate::kit::{Scene, absent_worker, echo, says, silent, worker};
use skep_gateway::Closed;
use skep_testkit::eventually;
use std::time::{Duration, Instant};

fn failed(closed: &(u64, Closed), worker: u64, why: &str) {
    match closed {
        (number, Closed::Failed { why: found }) if *number == worker => {
            assert!(found.contains(why), "{found:?} does not say {why:?}");
        }
        other => panic!("{other:?} is not a failure of {worker}"),
    }
}

#[test]
fn a_worker_that_cannot_be_used_is_reported_and_the_next_one_taken() {
    let cases: [(String, &str); 6] = [
        (absent_worker(), "cannot be connected to"),
        (worker(|_, _| {}), "hung up"),
        (worker(says("SSH-2.0-OpenSSH_9\r\n")), "makes no sense"),
        (worker(says("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")), "answered 502"),
        (worker(says("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")), "answered 200"),
        (worker(says("HTTP/1.1 101 x\r\nUpgrade: h2c\r\n\r\n")), "without Upgrade: websocket"),
    ];
    for (url, why) in cases {
        let scene = Scene::new();
        scene.book.add(&url, 1);
        scene.book.add(&worker(echo), 1);
        let mut client = scene.session();
        client.send(b"x");
        assert_eq!(client.read(1), b"x");
        failed(&scene.closed(1)[0], 0, why);
        assert_eq!(scene.book.state().opened, [1]);
    }
}

#[test]
fn an_answer_without_an_end_is_given_up() {
    let scene = Scene::new();
    scene.book.add(
        &worker(|mut stream, _| {
            let line = format!("x-long: {}\r\n", "x".repeat(8_000));
            let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
            (0..9).for_each(|_| text.push_str(&line));
            let _ = std::io::Write::write_all(&mut stream, text.as_bytes());
            silent(stream, String::new());
        }),
        1,
    );
    scene.book.add(&worker(echo), 1);
    scene.session();
    failed(&scene.closed(1)[0], 0, "more than 64 KiB");
}

#[test]
fn a_worker_that_is_silent_costs_its_first_victim_little_and_the_next_nothing() {
    let scene = Scene::new();
    scene.book.add(&worker(silent), 10);
    scene.book.add(&worker(echo), 10);
    let began = Instant::now();
    let first = scene.session();
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(150), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "the limit of a dial is twice that: {waited:?}");
    failed(&scene.closed(1)[0], 0, "had not answered after");
    let asked = scene.book.state().asked.clone();
    assert_eq!((asked[1].avoid.as_slice(), asked[1].may_wait), ([0].as_slice(), false));
    let _second = scene.session();
    assert_eq!(scene.book.state().opened, [1, 1]);
    drop(first);
}

#[test]
fn two_silent_workers_are_passed_by_as_well() {
    let scene = Scene::new();
    scene.book.add(&worker(silent), 1);
    scene.book.add(&worker(silent), 1);
    scene.book.add(&worker(echo), 1);
    let began = Instant::now();
    let _client = scene.session();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let mut closed = scene.closed(2);
    closed.sort_by_key(|(worker, _)| *worker);
    failed(&closed[0], 0, "had not answered");
    failed(&closed[1], 1, "had not answered");
}

#[test]
fn a_slow_worker_is_waited_for_if_there_is_no_other() {
    let scene = Scene::with(|options| options.hedge_after = Duration::from_millis(10));
    let (answer, may_answer) = std::sync::mpsc::sync_channel(1);
    let may_answer = std::sync::Mutex::new(may_answer);
    scene.book.add(
        &worker(move |stream, head| {
            may_answer.lock().expect("nobody panics").recv().expect("it is told to");
            echo(stream, head);
        }),
        1,
    );
    let mut client = scene.connect();
    client.ask("/", &[]);
    eventually("another was asked for", || (scene.book.state().asked.len() == 2).then_some(()));
    answer.send(()).expect("the worker waits");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert!(scene.book.state().closed.is_empty());
}

#[test]
fn a_second_worker_that_was_not_needed_is_not_blamed() {
    let scene = Scene::with(|options| options.hedge_after = Duration::from_millis(500));
    let (answer, may_answer) = std::sync::mpsc::sync_channel(1);
    let may_answer = std::sync::Mutex::new(may_answer);
    scene.book.add(
        &worker(move |stream, head| {
            may_answer.lock().expect("nobody panics").recv().expect("it is told to");
            echo(stream, head);
        }),
        1,
    );
    scene.book.add(
        &worker(move |stream, head| {
            answer.send(()).expect("the first waits");
            silent(stream, head);
        }),
        1,
    );
    let _client = scene.session();
    assert_eq!(scene.closed(1), [(1, Closed::Unused)]);
    assert_eq!(scene.book.state().opened, [0]);
}

#[test]
fn a_worker_that_stays_silent_is_given_up_after_its_limit() {
    let scene = Scene::with(|options| options.dial_limit = Duration::from_millis(300));
    scene.book.add(&worker(silent), 1);
    let mut client = scene.connect();
    client.ask("/", &[]);
    failed(&scene.closed(1)[0], 0, "did not answer within 300ms");
    scene.book.add(&worker(echo), 1);
    assert!(client.head().starts_with("HTTP/1.1 101 "));
}

#[test]
fn the_deadline_is_told_with_what_was_tried() {
    let scene = Scene::with(|options| options.connect_deadline = Duration::from_millis(300));
    scene.book.add(&absent_worker(), 1);
    scene.book.add(&worker(silent), 1);
    let mut client = scene.connect();
    client.ask("/", &[]);
    let (head, body) = client.answer();
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert!(body.contains("within 300ms; one worker was tried and failed"), "{body}");
    failed(&scene.closed(2)[1], 1, "had not answered");
}

#[test]
fn a_refusal_of_the_worker_is_the_clients_to_read() {
    let bodies = [
        "HTTP/1.1 428 Precondition Required\r\nx-why: version\r\n\r\nversion mismatch",
        "HTTP/1.1 428 Precondition Required\r\nx-why: version\r\nContent-Length: 16\r\n\r\n\
         version mismatch and more",
        "HTTP/1.1 428 Precondition Required\r\nx-why: version\r\n\
         Transfer-Encoding: chunked\r\n\r\n8\r\nversion \r\n8\r\nmismatch\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\n\
         HTTP/1.1 428 Precondition Required\r\nx-why: version\r\n\r\nversion mismatch",
    ];
    for text in bodies {
        let scene = Scene::new();
        scene.book.add(&worker(says(text)), 1);
        let mut client = scene.connect();
        client.ask("/", &[]);
        let (head, body) = client.answer();
        assert!(head.starts_with("HTTP/1.1 428 Precondition Required\r\n"), "{head}");
        assert!(head.contains("x-why: version\r\n"), "{head}");
        assert_eq!(body, "version mismatch");
        assert_eq!(scene.closed(1), [(0, Closed::Unused)]);
    }
}

#[test]
fn a_client_that_leaves_the_line_gives_up_its_place() {
    let scene = Scene::new();
    let mut client = scene.connect();
    client.ask("/", &[]);
    eventually("it waits", || (scene.book.state().waiting == 1).then_some(()));
    drop(client);
    eventually("it has left", || (scene.book.state().waiting == 0).then_some(()));
}

#[test]
fn a_client_that_leaves_during_the_dial_gives_the_seat_back() {
    let scene = Scene::with(|options| options.hedge_after = Duration::from_secs(60));
    let (dialled, is_dialled) = std::sync::mpsc::sync_channel(1);
    let (left, has_left) = std::sync::mpsc::sync_channel(1);
    scene.book.add(
        &worker(move |stream, head| {
            dialled.send(()).expect("the test waits");
            silent(stream, head);
            left.send(()).expect("the test waits");
        }),
        1,
    );
    let mut client = scene.connect();
    client.ask("/", &[]);
    is_dialled.recv().expect("the worker is dialled");
    drop(client);
    assert_eq!(scene.closed(1), [(0, Closed::Unused)]);
    has_left.recv().expect("the worker hears of it");
}

#[test]
fn the_worker_gets_the_clients_request_without_what_is_not_its_business() {
    let scene = Scene::new();
    let (heard, hears) = std::sync::mpsc::sync_channel(1);
    scene.book.add(
        &worker(move |stream, head| {
            heard.send(head.clone()).expect("the test waits");
            echo(stream, head);
        }),
        1,
    );
    let mut client = scene.connect();
    client.ask(
        "/page?token=s3cret&kind=x&label=eu&a=1",
        &["X-API-Key: s3cret", "Cookie: c=d", "User-Agent: Playwright/1.62.1 (x64) node/20"],
    );
    let head = hears.recv().expect("the worker is dialled");
    assert!(head.starts_with("GET /secret/page?a=1 HTTP/1.1\r\nhost: 127.0.0.1:"), "{head}");
    assert!(!head.contains("s3cret") && head.contains("cookie: c=d\r\n"), "{head}");
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
    assert!(head.contains("x-skep-session: session-1\r\n"), "{head}");
    assert!(head.contains("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), "{head}");
    let state = scene.book.state();
    assert_eq!(state.keys, [Some("s3cret".to_owned())]);
    let wanted = &state.asked[0].wanted;
    assert_eq!(wanted.kind.as_deref(), Some("x"));
    assert_eq!(
        (wanted.labels.as_slice(), wanted.version),
        (["eu".to_owned()].as_slice(), Some((1, 62)))
    );
}
