//! Asks an upstream whether it is well.

use crate::http1::buffer::Buffer;
use crate::http1::request::room;
use crate::http1::response;
use crate::moment::Moment;
use crate::route::Route;
use crate::upstream::Upstream;
use skep_dial::Dialler;
use std::future::poll_fn;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// The head of an answer, at most.
const HEAD_MAX: usize = 64 * 1_024;

/// Why an upstream is not well.
pub(crate) type Unwell = String;

/// One check, over a connection of its own: whether an upstream takes new ones is part of the
/// question.
pub(crate) async fn check(
    route: &Route,
    upstream: &Upstream,
    moment: &Moment,
    dialler: &Dialler,
) -> Result<(), Unwell> {
    let Some(health) = &route.spec.health else { return Ok(()) };
    let asking = async {
        let connected = upstream.connect(moment, dialler).await;
        let mut stream = connected.map_err(|error| format!("no connection: {error}"))?;
        let host = match &route.spec.host_header {
            crate::spec::HostHeader::Literal(host) => host,
            _ => &*upstream.address,
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {host}\r\nuser-agent: skep-health\r\naccept: */*\r\n\
             connection: close\r\n\r\n",
            health.path
        );
        let sent = stream.write_all(request.as_bytes()).await;
        sent.map_err(|error| format!("it did not take the question: {error}"))?;
        let mut buffer = Buffer::default();
        loop {
            let read = poll_fn(|cx| buffer.poll_fill(cx, &mut stream, HEAD_MAX)).await;
            let read = read.map_err(|error| format!("no answer: {error}"))?;
            let mut room = room();
            match response::parse(buffer.data(), &mut room, false) {
                Ok(Some(answer)) if health.status.contains(answer.status) => return Ok(()),
                Ok(Some(answer)) if answer.status < 200 => buffer.consume(answer.length),
                Ok(Some(answer)) => {
                    return Err(format!(
                        "it answered {}, which is not within {}",
                        answer.status, health.status
                    ));
                }
                Ok(None) if read == 0 => return Err("its answer broke off".to_owned()),
                Ok(None) => {}
                Err(bad) => return Err(format!("its answer makes no sense: {}", bad.0)),
            }
        }
    };
    match timeout(health.timeout, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {:?}", health.timeout)),
    }
}
