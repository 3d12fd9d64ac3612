//! One exchange with an NTP server.

use super::outcome::{Fault, Found};
use super::packet::{Heard, hear, request};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

/// Where NTP servers listen.
const NTP_PORT: u16 = 123;
/// Names that are looked up at once; each takes a thread of the system's resolver.
const RESOLVING_MAX: usize = 32;
/// Longer datagrams are cut; all that is read stands at the beginning.
const DATAGRAM_BYTES_MAX: usize = 512;

/// Asks NTP servers what time it is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ntp {
    resolving: Arc<Semaphore>,
}

impl Default for Ntp {
    fn default() -> Self {
        Ntp { resolving: Arc::new(Semaphore::new(RESOLVING_MAX)) }
    }
}

impl Ntp {
    /// Asks a server (`HOST`, `HOST:PORT`, `[IPV6]:PORT`) once. `limit` is for everything.
    ///
    /// The question goes out once, from a port of its own: whoever wants to forge the answer has to
    /// guess the port and 64 random bits. Datagrams that are not the answer are passed over.
    ///
    /// # Errors
    /// If no good answer comes in time.
    pub async fn ask(&self, target: &str, limit: Duration) -> Result<Found, Fault> {
        let asked = tokio::time::timeout(limit, self.exchange(target)).await;
        asked.unwrap_or(Err(Fault::Timeout))
    }

    async fn exchange(&self, target: &str) -> Result<Found, Fault> {
        let address = self.find(target).await?;
        // What fails before something was sent is this machine's trouble.
        let ours = |error: std::io::Error| Fault::Local(error.to_string());
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await.map_err(ours)?;
        // From here on the system takes datagrams from that address alone.
        socket.connect(address).await.map_err(ours)?;
        let cookie = random()?;
        let asked = SystemTime::now().duration_since(UNIX_EPOCH);
        let asked = asked.map_err(|_| Fault::Local("the clock is before 1970".to_owned()))?;
        // A clock that is set in the middle of an exchange must not matter.
        let started = Instant::now();
        socket.send(&request(cookie)).await.map_err(ours)?;
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        loop {
            let length = socket.recv(&mut datagram).await.map_err(|error| Fault::of_io(&error))?;
            let elapsed = started.elapsed();
            if let Heard::Answer(judged) = hear(&datagram[..length], cookie, asked, elapsed) {
                return judged;
            }
        }
    }

    async fn find(&self, target: &str) -> Result<SocketAddr, Fault> {
        let (host, port) = split_target(target)
            .ok_or_else(|| Fault::Local(format!("{target:?} is not a host and a port")))?;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, port));
        }
        let gone = |_| Fault::Local("names cannot be resolved any more".to_owned());
        let permit = self.resolving.clone().acquire_owned().await.map_err(gone)?;
        let host = host.to_owned();
        // The system's resolver cannot be stopped. The permit stays with it, so that those that
        // were given up still count and its threads stay bounded.
        let looking = tokio::spawn(async move {
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            drop(permit);
            found.ok().and_then(|mut found| found.next())
        });
        looking.await.ok().flatten().ok_or(Fault::Dns)
    }
}

/// Host and port of a target; the host without brackets, the port 123 if it has none.
pub fn split_target(target: &str) -> Option<(&str, u16)> {
    if target.parse::<Ipv6Addr>().is_ok() {
        return Some((target, NTP_PORT));
    }
    let (host, port) = match target.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (target, NTP_PORT),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(|_| (inner, port)),
        None if host.is_empty() || host.contains(':') => None,
        None => Some((host, port)),
    }
}

fn random() -> Result<u64, Fault> {
    let mut bytes = [0; 8];
    let trouble = |error| Fault::Local(format!("no random numbers: {error}"));
    getrandom::fill(&mut bytes).map_err(trouble)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_testkit::{NtpManner, NtpServer, PATIENCE};

    fn ask(server: &NtpServer, limit: Duration) -> Result<Found, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let target = server.address();
        runtime.expect("a runtime").block_on(Ntp::default().ask(&target, limit))
    }

    #[test]
    fn a_real_server_tells_its_offset_and_the_way_to_it() {
        let server = NtpServer::start();
        let found = ask(&server, PATIENCE).expect("an answer");
        assert!(found.offset.expect("a clock").abs() < 0.5, "{found:?}");
        server.set(NtpManner {
            offset: -2.5,
            delay: Duration::from_millis(80),
            ..NtpManner::default()
        });
        let found = ask(&server, PATIENCE).expect("an answer");
        let offset = found.offset.expect("a clock");
        assert!((offset + 2.5).abs() < 0.5, "{found:?}");
        assert!(found.rtt >= Duration::from_millis(80), "{found:?}");
    }

    #[test]
    fn forged_answers_are_passed_over_until_the_right_one_comes() {
        let server = NtpServer::start();
        server.set(NtpManner { forged: 5, ..NtpManner::default() });
        let found = ask(&server, PATIENCE).expect("an answer");
        assert!(found.offset.expect("a clock").abs() < 0.5, "not that of the forger: {found:?}");
        server.set(NtpManner { forged: 5, silent: true, ..NtpManner::default() });
        assert_eq!(ask(&server, Duration::from_millis(200)), Err(Fault::Timeout));
        assert_eq!(server.asked(), 2, "a question goes out once");
    }

    #[test]
    fn silence_a_kiss_of_death_and_a_closed_port_are_told_apart() {
        let server = NtpServer::start();
        server.set(NtpManner { silent: true, ..NtpManner::default() });
        assert_eq!(ask(&server, Duration::from_millis(100)), Err(Fault::Timeout));
        server.set(NtpManner { kiss: Some(*b"DENY"), ..NtpManner::default() });
        let Err(Fault::Wrong(why)) = ask(&server, PATIENCE) else { panic!("it is wrong") };
        assert!(why.contains("DENY"), "{why}");
        server.set(NtpManner { unsynchronised: true, ..NtpManner::default() });
        let Err(Fault::Wrong(why)) = ask(&server, PATIENCE) else { panic!("it is wrong") };
        assert!(why.contains("not synchronised"), "{why}");
        let target = format!("127.0.0.1:{}", skep_testkit::free_port());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let refused = runtime.expect("a runtime").block_on(Ntp::default().ask(&target, PATIENCE));
        assert_eq!(refused, Err(Fault::Refused));
    }

    #[test]
    fn targets_are_hosts_with_or_without_a_port() {
        let table = [
            ("192.0.2.1", Some(("192.0.2.1", 123))),
            ("192.0.2.1:1123", Some(("192.0.2.1", 1123))),
            ("2001:db8::1", Some(("2001:db8::1", 123))),
            ("[2001:db8::1]:1123", Some(("2001:db8::1", 1123))),
            ("[2001:db8::1]", None),
            ("time.example.org", Some(("time.example.org", 123))),
            ("time.example.org:1123", Some(("time.example.org", 1123))),
            ("time.example.org:0", None),
            ("time.example.org:x", None),
            ("[time]:1", None),
            (":123", None),
            ("", None),
        ];
        for (target, expected) in table {
            assert_eq!(split_target(target), expected, "{target:?}");
        }
    }
}
