//! However slowly a large answer is read, little of it is held.

use crate::kit::{Bench, Upstream};
use serde_json::json;
use skep_testkit::eventually;
use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: usize = 1_024 * 1_024;
const SIZE: usize = 200 * MIB;

/// What this process holds in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("is told");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("is a number") * 1_024
}

#[test]
fn a_slow_reader_of_a_large_answer_costs_little_memory() {
    for name in ["memory::with_a_length", "memory::in_chunks"] {
        let own = std::env::current_exe().expect("is a program");
        let run = Command::new(own).args([name, "--exact", "--ignored", "--nocapture"]).output();
        let run = run.expect("runs");
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
    }
}

#[test]
#[ignore = "measures its whole process; the test above runs it alone in one"]
fn with_a_length() {
    measure(false);
}

#[test]
#[ignore = "measures its whole process; the test above runs it alone in one"]
fn in_chunks() {
    measure(true);
}

fn measure(chunked: bool) {
    let sent = Arc::new(AtomicUsize::new(0));
    let upstream = {
        let sent = sent.clone();
        Upstream::new(move |talk| {
            talk.hear()?;
            let frame = match chunked {
                true => "Transfer-Encoding: chunked".to_owned(),
                false => format!("Content-Length: {SIZE}"),
            };
            talk.say(format!("HTTP/1.1 200 OK\r\n{frame}\r\n\r\n"))?;
            let piece = vec![b'x'; 64 * 1_024];
            let (before, after) = match chunked {
                true => (format!("{:x}\r\n", piece.len()), "\r\n"),
                false => (String::new(), ""),
            };
            for _ in 0..SIZE / piece.len() {
                talk.say(&before)?;
                talk.say(&piece)?;
                talk.say(after)?;
                sent.fetch_add(piece.len(), Ordering::SeqCst);
            }
            talk.say(if chunked { "0\r\n\r\n" } else { "" })
        })
    };
    let bench = Bench::new(&[&upstream], json!({}));
    let mut client = bench.client();
    let before = resident();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (mut last, mut still) = (0, 0);
    eventually("nobody takes any more", || {
        let now = sent.load(Ordering::SeqCst);
        still = if now == last && now > 0 { still + 1 } else { 0 };
        last = now;
        (still > 20).then_some(())
    });
    assert!(last < 32 * MIB, "{last} bytes were taken with nobody reading");
    let (mut room, mut read, mut most) = (vec![0; 64 * 1_024], 0, resident());
    loop {
        let count = client.stream.read(&mut room).expect("goes on");
        if count == 0 {
            break;
        }
        read += count;
        if read % 64 == 0 {
            most = most.max(resident());
        }
    }
    let grown = most.saturating_sub(before);
    println!("chunked {chunked}: {} KiB more", grown / 1_024);
    assert!(read > SIZE && grown < 4 * MIB, "{read} bytes read, {grown} held");
}
