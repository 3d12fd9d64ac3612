//! Clients that get no session hear why.

use crate::kit::{Client, Scene, handshake};
use std::io::Read;

fn refused(scene: &Scene, request: &str) -> (String, String) {
    let mut client = scene.connect();
    client.send(request.as_bytes());
    client.answer()
}

#[test]
fn a_plain_request_goes_to_the_desk_and_the_connection_stays() {
    let scene = Scene::new();
    let mut client = scene.connect();
    for _ in 0..2 {
        client.send(b"GET /v1/capacity HTTP/1.1\r\nHost: gateway\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(client.read(18), b"plain /v1/capacity");
    }
}

#[test]
fn a_refusal_of_the_desk_is_a_problem_with_its_code() {
    let scene = Scene::new();
    let (head, body) = refused(&scene, &handshake("/?token=wrong", &[]));
    let lower = head.to_lowercase();
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(lower.contains("content-type: application/problem+json\r\n"), "{head}");
    assert!(lower.contains("www-authenticate: bearer\r\n"), "{head}");
    assert!(body.contains(r#""code":"E_KEY_WRONG""#), "{body}");
    assert!(body.contains(r#""error":"The key is not known here: give another one""#), "{body}");
}

#[test]
fn bad_parameters_and_handshakes_are_told_what_would_be_right() {
    let scene = Scene::new();
    let (head, body) = refused(&scene, &handshake("/?kind=a%2Fb", &[]));
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("give 1 to 64 of"), "{body}");
    let (head, body) = refused(&scene, &handshake("/", &[]).replace("websocket", "h2c"));
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("give websocket"), "{body}");
    let (head, body) = refused(&scene, &handshake("/", &[]).replace(": 13", ": 12"));
    assert!(head.starts_with("HTTP/1.1 426 ") && body.contains("give 13"), "{body}");
    assert!(head.to_lowercase().contains("sec-websocket-version: 13\r\n"), "{head}");
    let (head, _) = refused(&scene, &handshake("/../x", &[]));
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
}

#[test]
fn a_key_is_never_told_back() {
    let scene = Scene::new();
    let more = ["Authorization: Bearer s3cret", "X-API-Key: 0ther"];
    let (head, body) = refused(&scene, &handshake("/?kind=x", &more));
    assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("two different keys"), "{body}");
    assert!(!body.contains("s3cret") && !body.contains("0ther"), "{body}");
}

#[test]
fn at_the_limit_new_connections_are_told_so_and_old_ones_go_on() {
    let scene = Scene::with(|options| options.connections_max = 2);
    scene.book.add(&crate::kit::worker(crate::kit::echo), 10);
    let (mut one, _two) = (scene.session(), scene.session());
    let mut third = scene.connect();
    let (head, body) = third.answer();
    assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
    assert!(head.contains("retry-after: 1\r\n"), "{head}");
    assert!(body.contains("there are 2 connections, and there may be no more"), "{body}");
    one.send(b"x");
    assert_eq!(one.read(1), b"x");
    drop(one);
    scene.closed(1);
    skep_testkit::eventually("there is a place again", || {
        let mut client = Client::connect(scene.address);
        client.ask("/", &[]);
        let mut start = [0; 12];
        client.stream.read_exact(&mut start).ok()?;
        (&start == b"HTTP/1.1 101").then_some(())
    });
}

#[test]
fn a_port_is_not_shared_with_another_gateway() {
    use crate::desk::Book;
    use skep_gateway::{Gateway, GatewayMetrics, GatewayOptions};
    let scene = Scene::new();
    let options = GatewayOptions { listen: scene.address, ..GatewayOptions::default() };
    let second = Gateway::bind(options, Book::default(), (), GatewayMetrics::default());
    let error = second.err().expect("it is taken").to_string();
    assert!(
        error.starts_with(&format!("the gateway cannot listen on {}", scene.address)),
        "{error}"
    );
}
