//! Bad requests: each gets a clear answer, and nobody else is disturbed.

use crate::common::skep;
use skep_testkit::{Folder, Node, http::Answer};
use std::io::{Read, Write};
use std::net::TcpStream;

fn code(answer: &Answer) -> String {
    answer.json()["code"].as_str().unwrap_or_default().to_owned()
}

fn start(folder: &Folder, more: &[&str]) -> Node {
    Node::start(skep(), &folder.join("data"), more)
}

/// Sends bytes as they are and reads until the node closes the connection.
fn raw(node: &Node, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(node.address()).expect("connects");
    stream.set_read_timeout(Some(skep_testkit::PATIENCE)).expect("a timeout can be set");
    // The node may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn bodies_that_cannot_be_read_are_told_why_and_change_nothing() {
    let folder = Folder::new("requests");
    let node = start(&folder, &["--set", "api.body_max=100KiB"]);
    let post = |body: &str| node.send("POST", "/api/v1/keys", &[], Some(body));
    for (body, part) in [
        ("{", "EOF"),
        ("[]", "invalid"),
        (r#"{"name":"x"}"#, "scopes"),
        (r#"{"name":5,"scopes":["read"]}"#, "name"),
        (r#"{"name":"x","scopes":["read"],"potato":1}"#, "potato"),
    ] {
        let answer = post(body);
        assert_eq!((answer.status, code(&answer)), (400, "E_BODY_INVALID".to_owned()), "{body}");
        assert!(answer.body.contains(part), "{body}: {}", answer.body);
    }
    let deep = format!(r#"{{"name":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(code(&post(&deep)), "E_BODY_INVALID");
    for (body, field) in [
        (r#"{"name":" ","scopes":["read"]}"#, "name"),
        (r#"{"name":"a\u0007","scopes":["read"]}"#, "name"),
        (r#"{"name":"x","scopes":[]}"#, "scopes"),
        (r#"{"name":"x","scopes":["potato"]}"#, "scopes"),
        (r#"{"name":"x","scopes":["read"],"expires_in":"soon"}"#, "expires_in"),
    ] {
        let answer = post(body);
        assert_eq!((answer.status, code(&answer)), (400, "E_FIELD_INVALID".to_owned()), "{body}");
        assert_eq!(answer.json()["field"], field, "{body}");
        assert!(answer.json()["error"].is_string());
    }
    let large = format!(r#"{{"name":"{}","scopes":["read"]}}"#, "x".repeat(200_000));
    assert_eq!(code(&post(&large)), "E_BODY_TOO_LARGE");
    let url = node.url("/api/v1/keys");
    let plain = [("content-type", "text/plain")];
    let answer = skep_testkit::http::send("POST", &url, &plain, None).expect("answers");
    assert_eq!(code(&answer), "E_BODY_TYPE");
    assert_eq!(node.get("/api/v1/keys").json()["keys"], serde_json::json!([]));
}

#[test]
fn a_gigabyte_is_refused_before_it_is_read() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\
                Content-Type: application/json\r\n\r\n{";
    let answer = raw(&node, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("E_BODY_TOO_LARGE"), "{answer}");
}

#[test]
fn nobody_gets_much_memory_without_being_known() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let long = format!(r#"{{"key":"{}"}}"#, "x".repeat(20_000));
    let answer = node.send("POST", "/api/v1/session", &[], Some(&long));
    assert_eq!((answer.status, code(&answer)), (413, "E_BODY_TOO_LARGE".to_owned()));
    // Without a length the limit is found while reading.
    let chunk = format!("5000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x5000));
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = raw(&node, format!("{head}{chunk}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn heads_that_are_too_large_or_not_http_are_refused() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let huge =
        format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let answer = raw(&node, huge.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    for bad in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"\xff\xfe\xfd\r\n\r\n"] {
        let answer = raw(&node, bad);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let smuggled = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\
                    Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    let answer = raw(&node, smuggled.as_bytes());
    assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
    let odd = raw(&node, b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(odd.is_empty() || odd.starts_with("HTTP/1.1 4"), "{odd}");
    assert_eq!(node.get("/health").status, 200, "others are not disturbed");
}

#[test]
fn a_client_that_dawdles_is_sent_away() {
    let folder = Folder::new("requests");
    let limits = ["--set", "api.idle_timeout=100ms", "--set", "api.request_timeout=200ms"];
    let node = start(&folder, &limits);
    // Half a head, and then nothing: closed.
    let answer = raw(&node, b"GET /health HTTP/1.1\r\nHost: loc");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // A whole head, and a body that does not come.
    let head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\
                Content-Type: application/json\r\n\r\n{";
    let answer = raw(&node, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("E_TIMEOUT"), "{answer}");
    assert_eq!(node.get("/health").status, 200, "others are not disturbed");
}

#[test]
fn a_client_that_does_not_read_its_answers_is_sent_away() {
    let folder = Folder::new("requests");
    let node = start(&folder, &["--set", "api.idle_timeout=300ms"]);
    let mut stream = TcpStream::connect(node.address()).expect("connects");
    let wait = std::time::Duration::from_millis(300);
    stream.set_write_timeout(Some(wait)).expect("a timeout can be set");
    let request = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    // Until the buffers of both sides are full and nothing moves any more.
    while stream.write_all(&request).is_ok() {}
    skep_testkit::eventually("only the one who asks is connected", || {
        let metrics = node.get("/metrics").body;
        metrics.contains("\nskep_http_connections 1\n").then_some(())
    });
}

#[test]
fn paths_and_methods_that_are_not_there_are_problems_too() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let answer = node.get("/api/v1/nowhere");
    assert_eq!((answer.status, code(&answer)), (404, "E_NOT_FOUND".to_owned()));
    let answer = node.send("DELETE", "/api/v1/node", &[], None);
    assert_eq!((answer.status, code(&answer)), (405, "E_METHOD".to_owned()));
    for path in ["/assets/nowhere.js", "/assets/../Cargo.toml", "/assets/%2e%2e/Cargo.toml"] {
        assert_eq!(node.get(path).status, 404, "{path}");
    }
    let answer = node.get("/api/v1/audit?limit=many");
    assert_eq!((answer.status, code(&answer)), (400, "E_QUERY_INVALID".to_owned()));
    assert!(answer.body.contains("limit"), "{}", answer.body);
}

#[test]
fn a_request_keeps_its_id_and_a_bad_one_gets_another() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let answer = node.send("GET", "/health", &[("x-request-id", "my-own.id_7")], None);
    assert_eq!(answer.header("x-request-id"), "my-own.id_7");
    let line = node.process().wait_for_line("my-own.id_7");
    assert!(line.contains("path=\"/health\"") && line.contains("status=200"), "{line}");
    for bad in ["a b", "x\"; DROP", &"x".repeat(65), ""] {
        let answer = node.send("GET", "/health", &[("x-request-id", bad)], None);
        assert!(answer.header("x-request-id").starts_with("r-"), "{bad}");
    }
}

#[test]
fn other_origins_are_let_in_only_if_they_are_named() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let origin = [("origin", "https://ops.example")];
    let allowed = |answer: &Answer| answer.header("access-control-allow-origin").to_owned();
    assert_eq!(allowed(&node.send("GET", "/health", &origin, None)), "");
    node.stop();
    let node = start(&folder, &["--set", "api.cors_origins=https://ops.example"]);
    assert_eq!(allowed(&node.send("GET", "/health", &origin, None)), "https://ops.example");
    let other = [("origin", "https://evil.example")];
    assert_eq!(allowed(&node.send("GET", "/health", &other, None)), "");
    let ask = [origin[0], ("access-control-request-method", "POST")];
    let preflight = node.send("OPTIONS", "/api/v1/keys", &ask, None);
    assert_eq!(preflight.status, 200);
    assert!(preflight.header("access-control-allow-methods").contains("POST"));
    assert_eq!(preflight.header("access-control-allow-credentials"), "");
}

#[test]
fn answers_are_compressed_for_those_who_ask_and_files_are_not_sent_twice() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let request = "GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                   Accept-Encoding: gzip\r\n\r\n";
    let answer = raw(&node, request.as_bytes()).to_ascii_lowercase();
    assert!(answer.contains("content-encoding: gzip"), "{}", &answer[..300]);
    assert!(answer.len() < node.get("/api/openapi.json").body.len() / 3);
    let page = node.get("/");
    let tag = page.header("etag");
    let again = node.send("GET", "/", &[("if-none-match", tag)], None);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
}

#[test]
fn streams_past_the_limit_are_refused_and_end_when_the_node_does() {
    let folder = Folder::new("requests");
    let limits = ["--set", "api.streams_max=1", "--set", "shutdown.drain_timeout=1h"];
    let node = start(&folder, &limits);
    let mut stream = TcpStream::connect(node.address()).expect("connects");
    let request = "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("writes");
    let mut begin = [0; 2_000];
    let read = stream.read(&mut begin).expect("it begins");
    assert!(begin[..read].starts_with(b"HTTP/1.1 200 "));
    let refused = node.get("/api/v1/live");
    assert_eq!((refused.status, code(&refused)), (503, "E_STREAMS_MAX".to_owned()));
    assert_eq!(node.stop().code, 0, "it does not wait for the stream for an hour");
}

#[test]
fn the_log_level_changes_at_once_and_wrong_ones_change_nothing() {
    let folder = Folder::new("requests");
    let node = start(&folder, &[]);
    let put = |body: &str| node.send("PUT", "/api/v1/log/level", &[], Some(body));
    let wrong = put(r#"{"level":"loud"}"#);
    assert_eq!((wrong.status, wrong.json()["field"].clone()), (400, "level".into()));
    assert_eq!(node.get("/api/v1/log/level").json()["level"], "info");
    assert_eq!(put(r#"{"level":"warn"}"#).status, 200);
    node.send("GET", "/health", &[("x-request-id", "not-logged")], None);
    assert_eq!(put(r#"{"level":"info"}"#).status, 200);
    node.send("GET", "/health", &[("x-request-id", "logged-again")], None);
    node.process().wait_for_line("logged-again");
    assert!(!node.process().log().contains("not-logged"));
    let lines = node.get("/api/v1/log?limit=2000").json()["lines"].clone();
    let lines = lines.as_array().expect("lines");
    assert!(lines.iter().any(|line| line["fields"]["id"] == "logged-again"), "{lines:?}");
    assert!(lines.windows(2).all(|two| two[0]["seq"].as_u64() < two[1]["seq"].as_u64()));
}
