//! What connections cost on which nothing happens.

use crate::{Outcome, stage};
use skep::report::Report;
use skep_benches::resident_kb;
use skep_testkit::{Folder, Node};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Over two processes.
const IDLE: usize = 10_000;

/// Opens them, has each ask once, and looks at what the processes hold.
pub fn run(report: &mut Report) -> Outcome<()> {
    let folder = Folder::new("routes-idle");
    let (_upstream, address) = stage::upstream(1_024)?;
    let nodes = [
        stage::product(&folder, "one", &address, false)?,
        stage::product(&folder, "two", &address, false)?,
    ];
    let resident = |node: &Node| resident_kb(node.process().pid());
    let before: f64 = nodes.iter().map(resident).sum::<Outcome<f64>>()?;
    let mut connections = Vec::with_capacity(IDLE);
    for number in 0..IDLE {
        connections.push(ask(nodes[number % 2].gateway())?);
    }
    let after: f64 = nodes.iter().map(resident).sum::<Outcome<f64>>()?;
    report.figure("idle_connections", connections.len() as f64);
    report.figure("idle_connection_kb", (after - before) / IDLE as f64);
    Ok(())
}

fn ask(address: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut answer, mut read) = ([0; 4_096], 0);
    while read < 1_024 {
        let more = stream.read(&mut answer[read..])?;
        if more == 0 || !answer.starts_with(b"HTTP/1.1 200 ") {
            return Err("a connection was not served".into());
        }
        read += more;
    }
    Ok(stream)
}
