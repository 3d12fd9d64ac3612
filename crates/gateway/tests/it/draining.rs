//! The gateway stops: nothing new, and time for what there is.

use crate::kit::{Scene, echo, worker};
use skep_gateway::{Closed, EndedBy};
use skep_testkit::eventually;
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn sessions_go_on_while_new_ones_are_refused() {
    let mut scene = Scene::with_echo();
    let mut session = scene.session();
    let mut kept_alive = scene.connect();
    kept_alive.send(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
    kept_alive.head();
    kept_alive.read("plain /".len());
    scene.stop.cancel();
    eventually("nobody listens", || TcpStream::connect(scene.address).is_err().then_some(()));
    session.send(b"still here");
    assert_eq!(session.read(10), b"still here");
    kept_alive.ask("/", &[]);
    let (head, body) = kept_alive.answer();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1\r\n"), "{head}");
    assert!(body.contains(r#""code":"E_STOPPING""#), "{body}");
    drop(session);
    scene.ended();
    let closed = scene.closed(1);
    assert!(matches!(&closed[0].1, Closed::Ended { by: EndedBy::Client, .. }), "{closed:?}");
}

#[test]
fn whoever_waits_in_line_is_told_at_once() {
    let mut scene = Scene::new();
    let mut client = scene.connect();
    client.ask("/", &[]);
    eventually("it waits", || (scene.book.state().waiting == 1).then_some(()));
    scene.stop.cancel();
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    scene.ended();
}

#[test]
fn sessions_that_take_too_long_are_cut() {
    let mut scene = Scene::with(|options| options.drain_limit = Duration::from_millis(100));
    scene.book.add(&worker(echo), 1);
    let mut session = scene.session();
    scene.stop.cancel();
    assert!(session.is_at_end());
    scene.ended();
    let drained = Closed::Ended { by: EndedBy::Drain, up_bytes: 0, down_bytes: 0 };
    assert_eq!(scene.closed(1), [(0, drained)]);
}

#[test]
fn without_sessions_it_ends_at_once() {
    let mut scene = Scene::new();
    let mut idle = scene.connect();
    idle.send(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
    idle.head();
    let began = Instant::now();
    scene.stop.cancel();
    scene.ended();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
