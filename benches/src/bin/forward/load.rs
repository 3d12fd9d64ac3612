//! A client that asks one after the other, and how long each took.

use crate::Outcome;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// A way to the node that answers.
pub struct Way {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    took_us: Vec<f64>,
}

impl Way {
    /// Connects, and will send bodies of `sent` bytes, or none, for answers of `answered`.
    pub fn open(address: &str, sent: usize, answered: usize) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let client = "host: bench\r\nauthorization: Bearer key\r\naccept: application/json";
        let head = match sent {
            0 => format!("GET /api/v1/pop/queue/orders?batch=1 HTTP/1.1\r\n{client}\r\n\r\n"),
            _ => format!(
                "POST /api/v1/push HTTP/1.1\r\n{client}\r\ncontent-type: application/json\r\n\
                 content-length: {sent}\r\n\r\n"
            ),
        };
        let request = [head.into_bytes(), vec![b'x'; sent]].concat();
        Ok(Way { stream, request, answer: vec![0; answered + 4_096], took_us: Vec::new() })
    }

    /// So many requests, one after the other.
    pub fn ask(&mut self, often: usize) -> Outcome<()> {
        for _ in 0..often {
            let began = Instant::now();
            self.stream.write_all(&self.request)?;
            self.read_answer()?;
            self.took_us.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok(())
    }

    fn read_answer(&mut self) -> Outcome<()> {
        let (mut length, mut whole) = (0, usize::MAX);
        while length < whole {
            let read = self.stream.read(&mut self.answer[length..])?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            length += read;
            if whole == usize::MAX {
                let seen = &self.answer[..length];
                let end = seen.windows(4).position(|four| four == b"\r\n\r\n");
                let Some(end) = end else { continue };
                whole = end + 4 + content_length(&seen[..end])?;
            }
        }
        Ok(())
    }

    /// Forgets what was measured.
    pub fn forget(&mut self) {
        self.took_us.clear();
    }

    /// What half and 99 of 100 did not exceed.
    pub fn quantiles_us(&mut self) -> (f64, f64) {
        self.took_us.sort_by(f64::total_cmp);
        let at = |part: f64| self.took_us[(part * (self.took_us.len() - 1) as f64) as usize];
        (at(0.5), at(0.99))
    }
}

fn content_length(head: &[u8]) -> Outcome<usize> {
    let head = std::str::from_utf8(head)?;
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(format!("not 200: {head}").into());
    }
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = lines
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .ok_or_else(|| format!("no length: {head}"))?;
    Ok(length.trim().parse()?)
}
