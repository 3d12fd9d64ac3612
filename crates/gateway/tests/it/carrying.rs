//! Sessions that have begun: what is said on one side is heard on the other, to the end.

use crate::kit::{SWITCHING, Scene, echo, worker};
use skep_gateway::{Closed, EndedBy};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

fn ended(by: EndedBy, up_bytes: u64, down_bytes: u64) -> Closed {
    Closed::Ended { by, up_bytes, down_bytes }
}

#[test]
fn what_the_client_says_reaches_the_worker_and_comes_back() {
    let scene = Scene::with_echo();
    let mut client = scene.session();
    client.send(b"hello");
    assert_eq!(client.read(5), b"hello");
    assert_eq!(scene.book.state().opened, [0]);
    drop(client);
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Client, 5, 5))]);
}

#[test]
fn the_workers_answer_is_handed_to_the_client() {
    let scene = Scene::with_echo();
    let mut client = scene.connect();
    client.ask("/", &[]);
    let head = client.head().to_lowercase();
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    assert!(head.contains("x-skep-session: session-1\r\n"), "{head}");
}

#[test]
fn nothing_that_is_said_early_is_lost() {
    let scene = Scene::new();
    scene.book.add(
        &worker(|mut stream, _| {
            let early = format!("{SWITCHING}early");
            stream.write_all(early.as_bytes()).expect("sends");
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).expect("the client's early bytes come");
            stream.write_all(&heard).expect("sends");
        }),
        1,
    );
    let mut client = scene.connect();
    client.send(format!("{}first", crate::kit::handshake("/", &[])).as_bytes());
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.read(10), b"earlyfirst");
    assert!(client.is_at_end());
    drop(client);
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Worker, 5, 10))]);
}

#[test]
fn megabytes_pass_unchanged_through_small_buffers() {
    let scene = Scene::with_echo();
    let mut client = scene.session();
    let sent: Vec<u8> =
        (0..8_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut writing = client.stream.try_clone().expect("clones");
    let (copy, count) = (sent.clone(), sent.len());
    let writer = std::thread::spawn(move || writing.write_all(&copy).expect("sends"));
    assert!(client.read(count) == sent, "something changed on the way");
    writer.join().expect("all was sent");
}

#[test]
fn the_worker_hears_at_once_that_the_client_has_left() {
    let scene = Scene::new();
    let (gone, is_gone) = sync_channel(1);
    scene.book.add(
        &worker(move |stream, head| {
            echo(stream, head);
            let _ = gone.send(Instant::now());
        }),
        1,
    );
    let client = scene.session();
    let left = Instant::now();
    drop(client);
    let noticed = is_gone.recv().expect("the worker hears of it").duration_since(left);
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Client, 0, 0))]);
    assert!(noticed < Duration::from_secs(3), "it waits for nobody");
}

#[test]
fn the_client_hears_that_the_worker_has_left() {
    let scene = Scene::new();
    scene.book.add(&worker(|mut stream, _| drop(stream.write_all(SWITCHING.as_bytes()))), 1);
    let mut client = scene.session();
    assert!(client.is_at_end());
    drop(client);
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Worker, 0, 0))]);
}

#[test]
fn a_reset_ends_the_session_even_if_the_worker_does_not_care() {
    let scene = Scene::new();
    scene.book.add(
        &worker(|mut stream, _| {
            stream.write_all(SWITCHING.as_bytes()).expect("sends");
            // Reads on after the end: only a reset or the limit ends this.
            while stream.write_all(b".").is_ok() {}
        }),
        1,
    );
    let mut client = scene.session();
    client.read(1);
    client.reset();
    let closed = scene.closed(1);
    assert!(matches!(&closed[0].1, Closed::Ended { by: EndedBy::Client, .. }), "{closed:?}");
}

#[test]
fn the_last_words_of_a_client_that_leaves_reach_the_worker() {
    let scene = Scene::new();
    let (heard, is_heard) = sync_channel(1);
    scene.book.add(
        &worker(move |mut stream, _| {
            stream.write_all(SWITCHING.as_bytes()).expect("sends");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("the end comes");
            let _ = heard.send(all);
        }),
        1,
    );
    let mut client = scene.session();
    client.send(b"all of it");
    drop(client);
    assert_eq!(is_heard.recv().expect("the worker hears"), b"all of it");
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Client, 9, 0))]);
}

#[test]
fn a_worker_that_goes_on_after_the_clients_end_is_cut_off_at_once() {
    let scene = Scene::new();
    let (_keep, kept) = sync_channel::<()>(1);
    let kept = std::sync::Mutex::new(kept);
    scene.book.add(
        &worker(move |mut stream, _| {
            stream.write_all(SWITCHING.as_bytes()).expect("sends");
            let _ = kept.lock().expect("nobody panics").recv();
        }),
        1,
    );
    let mut client = scene.session();
    client.stream.shutdown(Shutdown::Write).expect("shuts down");
    assert!(client.is_at_end());
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Client, 0, 0))]);
}

#[test]
fn a_session_in_which_nobody_says_anything_ends() {
    let scene = Scene::with(|options| options.idle_timeout = Duration::from_millis(200));
    scene.book.add(&worker(echo), 1);
    let mut client = scene.session();
    let began = Instant::now();
    client.send(b"x");
    assert_eq!(client.read(1), b"x");
    assert!(client.is_at_end());
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    assert_eq!(scene.closed(1), [(0, ended(EndedBy::Idle, 1, 1))]);
}

#[test]
fn a_session_ends_after_its_longest_time_however_busy_it_is() {
    let scene = Scene::with(|options| options.duration_max = Duration::from_millis(200));
    scene.book.add(&worker(echo), 1);
    let mut client = scene.session();
    let mut byte = [0];
    while client.stream.write_all(b"x").is_ok() && client.stream.read_exact(&mut byte).is_ok() {}
    let closed = scene.closed(1);
    assert!(matches!(&closed[0].1, Closed::Ended { by: EndedBy::Duration, .. }), "{closed:?}");
}

#[test]
fn a_receiver_that_takes_nothing_loses_its_session() {
    let scene = Scene::with(|options| options.stall_max = Duration::from_millis(200));
    scene.book.add(
        &worker(|mut stream, _| {
            stream.write_all(SWITCHING.as_bytes()).expect("sends");
            while stream.write_all(&[7; 65_536]).is_ok() {}
        }),
        1,
    );
    let client = scene.session();
    let closed = scene.closed(1);
    drop(client);
    assert!(matches!(&closed[0].1, Closed::Ended { by: EndedBy::ClientStalled, .. }), "{closed:?}");
}

#[test]
fn a_session_that_is_told_to_end_ends_on_both_sides() {
    let scene = Scene::with_echo();
    let mut client = scene.session();
    scene.book.end_sessions_of(0);
    assert!(client.is_at_end());
    let why = EndedBy::Told("an operator said so".into());
    assert_eq!(scene.closed(1), [(0, ended(why, 0, 0))]);
}

#[test]
fn sessions_beside_a_stalled_one_go_on() {
    let scene = Scene::with(|options| options.threads = 1);
    scene.book.add(
        &worker(|mut stream, _| {
            stream.write_all(SWITCHING.as_bytes()).expect("sends");
            while stream.write_all(&[7; 65_536]).is_ok() {}
        }),
        1,
    );
    let stalled = scene.session();
    scene.book.add(&worker(echo), 1);
    let mut other = scene.session();
    for _ in 0..100 {
        other.send(b"ping");
        assert_eq!(other.read(4), b"ping");
    }
    drop(stalled);
}
