//! A small NTP server on loopback, as good or bad as a test wants it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_TO_1970: f64 = 2_208_988_800.0;
/// How often the server looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// How the server answers. The default is a good server of stratum 2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NtpManner {
    /// Seconds that its clock is ahead.
    pub offset: f64,
    /// What the way there and back takes together.
    pub delay: Duration,
    /// It does not answer.
    pub silent: bool,
    /// It answers with this code that it does not want to be asked.
    pub kiss: Option<[u8; 4]>,
    /// It says that its clock is not synchronised.
    pub unsynchronised: bool,
    /// So many answers to other questions, an hour ahead, come before the right one.
    pub forged: u32,
}

/// A server that answers until it is dropped.
pub struct NtpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    manner: Mutex<NtpManner>,
    asked: AtomicU64,
    over: AtomicBool,
}

impl NtpServer {
    /// A good server on a free port.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(LOOK)).expect("a timeout can be set");
        let address = socket.local_addr().expect("bound");
        let shared = Arc::new(Shared::default());
        let serving = shared.clone();
        std::thread::spawn(move || serve(&Arc::new(socket), &serving));
        NtpServer { address, shared }
    }

    /// Where it listens, as `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Answers like this from now on.
    pub fn set(&self, manner: NtpManner) {
        *self.shared.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// Questions that have arrived.
    pub fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for NtpServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
    }
}

fn serve(socket: &Arc<UdpSocket>, shared: &Shared) {
    let mut packet = [0; 512];
    while !shared.over.load(Ordering::SeqCst) {
        let Ok((length, client)) = socket.recv_from(&mut packet) else { continue };
        let Some(question) = packet[..length].first_chunk::<48>().copied() else { continue };
        if question[0] & 7 != 3 {
            continue;
        }
        shared.asked.fetch_add(1, Ordering::SeqCst);
        let manner = *shared.manner.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.clone();
        let answering = move || {
            // Those who ask may be gone; it is their answer.
            for number in 0..manner.forged {
                let _ = socket.send_to(&forged(&question, number), client);
            }
            if manner.silent {
                return;
            }
            crate::pause(manner.delay / 2);
            let answer = answer(&question, &manner);
            crate::pause(manner.delay / 2);
            let _ = socket.send_to(&answer, client);
        };
        match manner.delay.is_zero() {
            true => answering(),
            // Others need not wait for it.
            false => drop(std::thread::spawn(answering)),
        }
    }
}

fn answer(question: &[u8; 48], manner: &NtpManner) -> [u8; 48] {
    let mut answer = [0; 48];
    let leap = if manner.unsynchronised { 3 } else { 0 };
    answer[0] = (leap << 6) | (question[0] & 0x38) | 4;
    answer[1] = if manner.kiss.is_some() { 0 } else { 2 };
    answer[12..16].copy_from_slice(&manner.kiss.unwrap_or([127, 0, 0, 1]));
    answer[24..32].copy_from_slice(&question[40..48]);
    let now = stamp(manner.offset).to_be_bytes();
    answer[32..40].copy_from_slice(&now);
    answer[40..48].copy_from_slice(&now);
    answer
}

/// What somebody sends who did not see the question: a wrong number, a repeated question, too
/// little of an answer.
fn forged(question: &[u8; 48], number: u32) -> Vec<u8> {
    let mut forged = answer(question, &NtpManner { offset: 3_600.0, ..NtpManner::default() });
    match number % 3 {
        0 => forged[24..32].copy_from_slice(&u64::from(number).to_be_bytes()),
        1 => return question.to_vec(),
        _ => return forged[..47].to_vec(),
    }
    forged.to_vec()
}

/// The time `ahead` seconds from now: 32 bits of seconds since 1900, 32 of a fraction.
fn stamp(ahead: f64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = (now.as_secs() as f64 + SECONDS_TO_1970 + ahead.floor()) as u64;
    let nanos = f64::from(now.subsec_nanos()) + (ahead - ahead.floor()) * 1e9;
    (whole << 32).wrapping_add((nanos * 4.294_967_296) as u64)
}
