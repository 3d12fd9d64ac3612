//! A few bytes that become many: nothing on the way of somebody else's bytes decompresses them.

use super::kit::Trap;
use crate::common::skep;
use serde_json::json;
use skep_testkit::{Folder, Node, PATIENCE, eventually};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// What a bomb becomes.
const GROWN: usize = 256 << 20;
/// A node that had it in memory would hold more than this.
const MEMORY_MAX: u64 = (GROWN / 4) as u64;

/// A quarter of a gigabyte of nothing, compressed.
fn bomb() -> Vec<u8> {
    let made = Command::new("sh")
        .args(["-c", &format!("head -c {GROWN} /dev/zero | gzip -1")])
        .stdin(Stdio::null())
        .output()
        .expect("sh can be started");
    assert!(made.stdout.starts_with(&[0x1f, 0x8b]) && made.stdout.len() > 10_000);
    made.stdout
}

/// The most memory that a process has held so far.
fn peak(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.process().pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
    let kilobytes: u64 =
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    kilobytes << 10
}

/// Sends a head and a body, and reads all that comes back, as bytes.
fn exchange(address: &str, head: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let head = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    // The other side may have refused it before it has read everything.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

#[test]
fn a_compressed_bomb_is_passed_on_refused_or_left_unread_and_never_decompressed() {
    let folder = Folder::new("attack-bombs");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let bomb = bomb();
    let head = format!(
        "HTTP/1.1 200 -\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        bomb.len()
    );
    let trap = Trap::that_says("127.0.0.1", [head.as_bytes(), &bomb].concat());
    let at = format!("127.0.0.1:{}", trap.port);
    let post = |path: &str, body: serde_json::Value| {
        let answer = node.send("POST", path, &[], Some(&body.to_string()));
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    let before = peak(&node);

    // An endpoint that answers with it: asked for nothing of the kind, and told what it was.
    let looks = json!({ "id": "looks", "url": format!("http://{at}/"), "interval": "1s",
                        "expect": { "body": "honey" } });
    let counts = json!({ "id": "counts", "url": format!("http://{at}/"), "interval": "1s" });
    for endpoint in [looks, counts] {
        post("/api/v1/polls/endpoints", endpoint);
    }
    let last = |id: &str| {
        eventually("it was polled", || {
            let path = format!("/api/v1/polls/endpoints/{id}/results");
            let found = node.get(&path).json()["results"][0].clone();
            (!found.is_null()).then_some(found)
        })
    };
    let looked = last("looks");
    assert_eq!(looked["verdict"], "body", "{looked}");
    let detail = looked["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("compressed (gzip)") && detail.contains("decompress"), "{detail}");
    assert_eq!(last("counts")["verdict"], "ok", "its status is as it should be");
    let asked = String::from_utf8_lossy(&trap.heard()).to_ascii_lowercase();
    assert!(asked.contains("get / http/1.1") && !asked.contains("accept-encoding"), "{asked}");

    // An upstream that answers with it, and a request that has it for a body: bytes are bytes.
    let upstream = Trap::that_says("127.0.0.1", [head.as_bytes(), &bomb].concat());
    let to = format!("127.0.0.1:{}", upstream.port);
    post("/api/v1/routes", json!({ "name": "shop", "host": "shop.test", "upstreams": [to] }));
    let small = &bomb[..2_000];
    let request = "POST /x HTTP/1.1\r\nHost: shop.test\r\nContent-Encoding: gzip\r\n";
    let (told, body) = eventually("the route is known", || {
        let (told, body) = exchange(node.gateway(), request, small);
        told.starts_with("HTTP/1.1 200").then_some((told, body))
    });
    assert!(told.to_ascii_lowercase().contains("content-encoding: gzip"), "{told}");
    assert!(body == bomb, "{} bytes of {}", body.len(), bomb.len());
    let heard = upstream.heard();
    assert!(heard.windows(small.len()).any(|part| part == small), "{} bytes", heard.len());

    // To the node itself: refused, whatever it is called.
    for encoding in ["gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip", "x"] {
        for path in ["/api/v1/push", "/api/v1/polls/import", "/api/v1/session"] {
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Encoding: {encoding}\r\n"
            );
            let (told, body) = exchange(node.address(), &request, small);
            let body = String::from_utf8_lossy(&body);
            assert!(told.starts_with("HTTP/1.1 415"), "{encoding} {path}: {told}");
            assert!(body.contains("E_BODY_ENCODING"), "{encoding} {path}: {body}");
        }
    }
    let plain = [("content-encoding", "identity")];
    let message = r#"{"items":[{"queue":"orders","payload":1}]}"#;
    let answer = node.send("POST", "/api/v1/push", &plain, Some(message));
    assert_eq!(answer.status, 201, "{}", answer.body);

    let grown = peak(&node).saturating_sub(before);
    assert!(grown < MEMORY_MAX, "the node held {grown} bytes more");
}
