//! Requests that two servers could read in two ways, or that never end.

use crate::kit::{Scene, handshake};
use std::time::Duration;

/// The status of the first answer, and that the connection ends after it.
fn only_answer(scene: &Scene, request: &str) -> String {
    let mut client = scene.connect();
    client.send(request.as_bytes());
    let head = client.head();
    assert!(client.is_at_end());
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn what_cannot_be_read_with_certainty_is_refused_and_ends_the_connection() {
    let scene = Scene::new();
    let next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let requests = [
        "nonsense\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\nx: a\0b\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\nHost: a\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"
            .to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\nabcd".to_owned(),
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\n\r\n{next}"
        ),
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n\
             0\r\n\r\n{next}"
        ),
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{next}"),
        format!("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{next}"),
        format!("{}abc", handshake("/", &["Content-Length: 3"])),
        format!("{}0\r\n\r\n", handshake("/", &["Transfer-Encoding: chunked"])),
    ];
    for request in requests {
        let status = only_answer(&scene, &request);
        assert_eq!(status, "400", "{request:?}");
    }
    assert!(scene.book.state().asked.is_empty());
}

#[test]
fn too_many_and_too_large_headers_are_refused() {
    let scene = Scene::new();
    let many: String = (0..101).map(|n| format!("x-{n}: y\r\n")).collect();
    assert_eq!(only_answer(&scene, &format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")), "431");
    // Without an end, so that nothing is left unread when the answer comes.
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}", "x".repeat(70_000));
    let large = &large[..65_536];
    assert_eq!(only_answer(&scene, large), "431");
}

#[test]
fn a_head_that_does_not_come_to_its_end_is_not_waited_for() {
    let scene = Scene::with(|options| options.header_limit = Duration::from_millis(100));
    let mut client = scene.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n");
    assert!(client.is_at_end());
    let mut silent = scene.connect();
    assert!(silent.is_at_end());
}

#[test]
fn a_line_break_in_a_parameter_adds_no_header_for_the_worker() {
    let scene = Scene::new();
    let (heard, hears) = std::sync::mpsc::sync_channel(1);
    scene.book.add(
        &crate::kit::worker(move |stream, head| {
            heard.send(head.clone()).expect("the test waits");
            crate::kit::echo(stream, head);
        }),
        1,
    );
    let mut client = scene.connect();
    client.ask("/a%0d%0ax-evil:%201?b=%0d%0ax-evil:%201", &[]);
    let head = hears.recv().expect("the worker is dialled");
    assert!(head.starts_with("GET /secret/a%0d%0ax-evil:%201?b=%0d%0ax-evil:%201 HTTP/1.1\r\n"));
    assert!(!head.contains("\r\nx-evil"), "{head}");
}
