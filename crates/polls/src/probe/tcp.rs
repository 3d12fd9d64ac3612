//! Finding a host and connecting to it.

use super::outcome::{Fault, Phase, Verdict};
use super::prepared::{Host, Place};
use super::{Inner, Notes};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// More addresses of a name than this are not tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to the first address that accepts.
pub(super) async fn connect(
    inner: &Inner,
    place: &Place,
    notes: &mut Notes,
) -> Result<TcpStream, Fault> {
    let addresses = match &place.host {
        Host::Ip(ip) => {
            return try_one(inner, SocketAddr::new(*ip, place.key.port), None, notes).await;
        }
        Host::Name(name) => {
            notes.phase = Phase::Resolving;
            resolve(inner, name, place.key.port).await?
        }
    };
    let mut fault = Fault::new(Verdict::Dns, "the host's name has no address");
    let count = addresses.len();
    for (tried, address) in addresses.into_iter().enumerate() {
        // A dead address gets its share of the time only, so that the others have their turn.
        let left = notes.deadline.saturating_duration_since(Instant::now());
        let share = (tried + 1 < count).then(|| left / (count - tried) as u32);
        match try_one(inner, address, share, notes).await {
            Ok(stream) => return Ok(stream),
            Err(next) => fault = next,
        }
    }
    Err(fault)
}

async fn try_one(
    inner: &Inner,
    address: SocketAddr,
    share: Option<Duration>,
    notes: &mut Notes,
) -> Result<TcpStream, Fault> {
    notes.phase = Phase::Connecting;
    let connecting = inner.dialler.connect(address);
    let connected = match share {
        None => connecting.await,
        Some(share) => match tokio::time::timeout(share, connecting).await {
            Ok(connected) => connected,
            Err(_) => return Err(Fault::new(Verdict::Timeout, "no connection in time")),
        },
    };
    let stream = connected.map_err(|error| Fault::of_io(&error, Verdict::Unreachable))?;
    // A request is one small write that must not wait for anything.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn resolve(inner: &Inner, name: &str, port: u16) -> Result<Vec<SocketAddr>, Fault> {
    let gone = |_| Fault::new(Verdict::Local, "names cannot be resolved any more");
    let permit = inner.resolving.clone().acquire_owned().await.map_err(gone)?;
    let name = name.to_owned();
    // The system's resolver blocks a thread and cannot be stopped. The permit stays with it in a
    // task of its own, so that polls that were given up still count and threads stay bounded.
    let looking = tokio::spawn(async move {
        let found = tokio::net::lookup_host((name.as_str(), port)).await;
        drop(permit);
        found.map(|found| found.take(ADDRESSES_MAX).collect::<Vec<_>>())
    });
    match looking.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => {
            let known = Fault::of_io(&error, Verdict::Dns);
            let ours = known.verdict == Verdict::Local;
            Err(if ours { known } else { Fault { verdict: Verdict::Dns, ..known } })
        }
        Err(_) => Err(Fault::new(Verdict::Local, "this node is stopping")),
    }
}
