//! A loopback TCP connection that can be cut, frozen, muted, delayed and throttled.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 16 * 1024;

/// A proxy in front of a server on loopback.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    target: SocketAddr,
    weather: Mutex<Weather>,
    changed: Condvar,
    passed: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Weather {
    cut: bool,
    frozen: bool,
    muted: bool,
    closed: bool,
    delay: Duration,
    bytes_per_second: Option<u64>,
    /// Grows with each cut, so that a connection made before it ends even if it is healed at once.
    cuts: u64,
}

/// A direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

impl Proxy {
    /// Starts a proxy to `host:port` on a free port.
    pub fn start(target: (&str, u16)) -> Self {
        Self::start_at(("127.0.0.1", 0), target)
    }

    /// The same at this address, for a server that tells others where it is.
    pub fn start_at(listen: (&str, u16), (host, port): (&str, u16)) -> Self {
        let target = format!("{host}:{port}").parse().expect("a loopback address");
        let listener = TcpListener::bind(listen).expect("the address is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            target,
            weather: Mutex::new(Weather::default()),
            changed: Condvar::new(),
            passed: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || accept(&listener, &accepting));
        Proxy { shared, address }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Bytes that have arrived at the other side so far, in both directions together.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Acquire)
    }

    /// Ends every connection and every new one at once, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.change(|weather| {
            weather.cut = true;
            weather.cuts += 1;
        });
    }

    /// Holds everything back without ending a connection, until [`Proxy::heal`].
    pub fn freeze(&self) {
        self.change(|weather| weather.frozen = true);
    }

    /// Lets requests through and holds the answers back, until [`Proxy::heal`].
    pub fn mute(&self) {
        self.change(|weather| weather.muted = true);
    }

    /// Lets each piece of data arrive `delay` later, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.change(|weather| weather.delay = delay);
    }

    /// Lets at most so many bytes through in a second, in each direction of each connection.
    pub fn throttle(&self, bytes_per_second: u64) {
        self.change(|weather| weather.bytes_per_second = Some(bytes_per_second.max(1)));
    }

    /// Fair weather again.
    pub fn heal(&self) {
        self.change(|weather| *weather = Weather { cuts: weather.cuts, ..Weather::default() });
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.shared.weather());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|weather| {
            weather.closed = true;
            weather.cut = true;
            weather.cuts += 1;
        });
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `deadline` is over and nothing is frozen. `false` if the connection was cut.
    fn pass(&self, way: Way, born: u64, deadline: Instant) -> bool {
        let mut weather = self.weather();
        loop {
            if weather.cut || weather.cuts != born {
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let held = weather.frozen || (weather.muted && way == Way::Back);
            if !held && left.is_zero() {
                return true;
            }
            let limit = if held { Duration::from_secs(3_600) } else { left };
            weather =
                self.changed.wait_timeout(weather, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().flatten() {
        let weather = *shared.weather();
        if weather.closed {
            return;
        }
        if weather.cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(shared.target) else { continue };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let both = (client.try_clone(), server.try_clone());
        let (Ok(client_too), Ok(server_too)) = both else { continue };
        let (there, back, watching) = (shared.clone(), shared.clone(), shared.clone());
        let watched = client.try_clone().ok().zip(server.try_clone().ok());
        std::thread::spawn(move || pump(client, server, Way::There, &there, weather.cuts));
        std::thread::spawn(move || pump(server_too, client_too, Way::Back, &back, weather.cuts));
        if let Some((client, server)) = watched {
            std::thread::spawn(move || end_at_cut(&client, &server, &watching, weather.cuts));
        }
    }
}

/// A pump that waits for data does not see the weather; this ends its connection.
fn end_at_cut(client: &TcpStream, server: &TcpStream, shared: &Shared, born: u64) {
    let mut weather = shared.weather();
    while !weather.cut && weather.cuts == born {
        weather = shared.changed.wait(weather).unwrap_or_else(PoisonError::into_inner);
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn pump(mut from: TcpStream, mut to: TcpStream, way: Way, shared: &Shared, born: u64) {
    let mut chunk = [0; CHUNK_BYTES];
    while let Ok(read) = from.read(&mut chunk) {
        if read == 0 {
            break;
        }
        let weather = *shared.weather();
        let slow = weather.bytes_per_second.map_or(0.0, |rate| read as f64 / rate as f64);
        let deadline = Instant::now() + weather.delay + Duration::from_secs_f64(slow);
        if !shared.pass(way, born, deadline) || to.write_all(&chunk[..read]).is_err() {
            break;
        }
        shared.passed.fetch_add(read as u64, Ordering::Release);
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> (&'static str, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut reader = stream.try_clone().expect("a stream can be cloned");
                    let _ = std::io::copy(&mut reader, &mut &stream);
                });
            }
        });
        ("127.0.0.1", port)
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("connects");
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("a timeout can be set");
        stream
    }

    fn round_trip(stream: &mut TcpStream, data: &[u8]) -> std::io::Result<Duration> {
        let sent = Instant::now();
        stream.write_all(data)?;
        let mut back = vec![0; data.len()];
        stream.read_exact(&mut back)?;
        assert_eq!(back, data);
        Ok(sent.elapsed())
    }

    #[test]
    fn it_carries_bytes_unchanged() {
        let proxy = Proxy::start(echo());
        round_trip(&mut connect(&proxy), &vec![7; 100_000]).expect("comes back");
    }

    #[test]
    fn a_cut_ends_open_connections_and_new_ones_until_healed() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        round_trip(&mut stream, b"before").expect("comes back");
        proxy.cut();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the connection has ended");
        assert!(round_trip(&mut connect(&proxy), b"during").is_err());
        proxy.heal();
        round_trip(&mut connect(&proxy), b"after").expect("comes back");
    }

    #[test]
    fn a_freeze_holds_data_back_and_loses_none() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        proxy.freeze();
        stream.write_all(b"held").expect("writes");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout can be set");
        assert!(stream.read(&mut [0; 4]).is_err(), "nothing arrives");
        proxy.heal();
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("a timeout can be set");
        let mut back = [0; 4];
        stream.read_exact(&mut back).expect("it arrives after all");
        assert_eq!(&back, b"held");
    }

    #[test]
    fn a_mute_lets_requests_through_and_holds_answers_back() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        round_trip(&mut stream, b"before").expect("comes back");
        // What has come back is counted a moment later.
        crate::eventually("both are counted", || (proxy.passed() == 12).then_some(()));
        proxy.mute();
        stream.write_all(b"asked").expect("writes");
        crate::eventually("the request arrives", || (proxy.passed() == 17).then_some(()));
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout can be set");
        assert!(stream.read(&mut [0; 5]).is_err(), "nothing comes back");
        proxy.heal();
        stream.set_read_timeout(Some(crate::PATIENCE)).expect("a timeout can be set");
        stream.read_exact(&mut [0; 5]).expect("it comes back after all");
    }

    #[test]
    fn delay_and_throttle_take_their_time() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        proxy.delay(Duration::from_millis(20));
        assert!(round_trip(&mut stream, b"slow").expect("comes back") >= Duration::from_millis(40));
        proxy.heal();
        proxy.throttle(10_000);
        let took = round_trip(&mut stream, &[1; 1_000]).expect("comes back");
        assert!(took >= Duration::from_millis(200), "{took:?}");
    }
}
