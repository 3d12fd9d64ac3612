//! Many clients at once, bodies of all sizes in all framings, and every byte compared.

use crate::dice::Dice;
use crate::kit::{Bench, Talk, Upstream, Wire};
use serde_json::json;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CLIENTS: u64 = 32;
const BODY_MAX: usize = 300 * 1_024;
const TIME: Duration = Duration::from_secs(4);

/// Sends bytes in pieces that nobody would choose.
fn in_pieces(
    dice: &mut Dice,
    bytes: &[u8],
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = [7, 300, 5_000, 100_000][dice.below(4)];
        let (piece, after) = rest.split_at((1 + dice.below(most)).min(rest.len()));
        send(piece)?;
        rest = after;
    }
    Ok(())
}

fn in_chunks(dice: &mut Dice, body: &[u8], out: &mut Vec<u8>) {
    let mut rest = body;
    while !rest.is_empty() {
        let most = [5, 1_000, 70_000][dice.below(3)];
        let (piece, after) = rest.split_at((1 + dice.below(most)).min(rest.len()));
        out.extend_from_slice(format!("{:X};x=y\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Gives back what it gets, framed somehow.
fn echo(talk: &mut Talk) -> io::Result<()> {
    let mut dice = Dice(talk.connection as u64);
    while let Some(heard) = talk.hear()? {
        let mut answer = Vec::new();
        let framing = dice.below(5);
        match framing {
            0 | 1 => {
                let length = heard.body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n");
                answer.extend_from_slice(head.as_bytes());
            }
            2 | 3 => {
                answer.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
            }
            _ => answer.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        }
        let target = format!("X-Target: {}\r\n\r\n", heard.target());
        answer.extend_from_slice(target.as_bytes());
        match framing {
            2 | 3 => in_chunks(&mut dice, &heard.body, &mut answer),
            _ => answer.extend_from_slice(&heard.body),
        }
        in_pieces(&mut dice, &answer, |piece| talk.say(piece))?;
        if framing == 4 {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks until the time is over; how often it did.
fn ask(mut wire: Wire, seed: u64, until: Instant) -> usize {
    let mut dice = Dice(seed);
    let mut asked = 0;
    while Instant::now() < until {
        let together = 1 + dice.below(4);
        let (mut packet, mut expected) = (Vec::new(), Vec::new());
        for number in 0..together {
            let size = [0, 10, 5_000, BODY_MAX][dice.below(4)];
            let size = dice.below(size + 1);
            let body = dice.bytes(size);
            let target = format!("/{seed}/{asked}/{number}");
            let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n");
            packet.extend_from_slice(head.as_bytes());
            if dice.below(2) == 0 {
                let length = format!("Content-Length: {}\r\n\r\n", body.len());
                packet.extend_from_slice(length.as_bytes());
                packet.extend_from_slice(&body);
            } else {
                packet.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                in_chunks(&mut dice, &body, &mut packet);
            }
            expected.push((target, body));
        }
        // Both at once: the answers may be larger than all buffers together.
        let sending = {
            let mut stream = wire.stream.try_clone().expect("is a socket");
            let mut dice = Dice(dice.roll());
            std::thread::spawn(move || {
                let sent =
                    in_pieces(&mut dice, &packet, |piece| io::Write::write_all(&mut stream, piece));
                sent.expect("is taken");
            })
        };
        for (target, body) in expected {
            let answer = wire.answer();
            assert_eq!((answer.status, answer.values("x-target")), (200, vec![&target[..]]));
            assert!(answer.body == body, "{target}: the body comes back as it was");
            asked += 1;
        }
        sending.join().expect("all is sent");
    }
    asked
}

#[test]
fn every_byte_arrives_under_load() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("is later");
    let given = std::env::var("SKEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or(u64::from(now.subsec_nanos()));
    // Shown if it fails; give it as SKEP_TEST_SEED to see the same again.
    println!("seed {seed}");
    let upstreams = [Upstream::new(echo), Upstream::new(echo), Upstream::new(echo)];
    let bench = Bench::new(&upstreams.each_ref(), json!({ "retry": { "tries": 0 } }));
    let until = Instant::now() + TIME;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let wire = bench.client();
            std::thread::spawn(move || {
                ask(wire, seed.wrapping_mul(1_000).wrapping_add(number), until)
            })
        })
        .collect();
    let asked = clients.into_iter().map(|one| one.join());
    let asked: usize = asked.map(|asked| asked.unwrap_or_else(|_| panic!("seed {seed}"))).sum();
    let records = bench.recorded(asked);
    println!("{asked} requests");
    assert!(records.iter().all(|one| (one.status, one.error) == (200, "")), "seed {seed}");
    assert!(upstreams.iter().flat_map(Upstream::heard).all(|one| one.whole), "seed {seed}");
}
