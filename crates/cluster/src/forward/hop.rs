//! The header that says: a node of this cluster sent this on, serve it where it arrives.
//!
//! ```text
//!   skep-hop: 1 CLUSTER FROM ID ISSUED CLIENT PROOF
//! ```
//!
//! The proof is over all of it, over the node it is for, and over the method and path, so that a
//! header that somebody has seen opens no other door than the one it was made for, and that only
//! for a while. It says nothing about who the client is: authentication travels in its own headers.

use super::headers::HOP;
use crate::Secret;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method};
use skep_policy::{Clock, Name, Time};
use std::cell::RefCell;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::{Builder, Uuid};

const VERSION: &str = "1";
const CONTEXT: &str = "skep-hop";
/// More than any header of ours has.
const BYTES_MAX: usize = 512;
/// In the place of a client or a proof that there is none.
const NONE: &str = "-";

/// Random bytes for ids, many at a time: asking the system for each would cost more than the rest
/// of an id.
struct Stock {
    bytes: [u8; 640],
    used: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { bytes: [0; 640], used: 640 }) };
}

impl Stock {
    fn take(&mut self) -> [u8; 10] {
        if self.used + 10 > self.bytes.len() {
            // An id that repeats would give one request another's answer: better none.
            getrandom::fill(&mut self.bytes).expect("the system has randomness");
            self.used = 0;
        }
        let mut taken = [0; 10];
        taken.copy_from_slice(&self.bytes[self.used..self.used + 10]);
        self.used += 10;
        taken
    }
}

/// A request's id: made once, and the same however often and wherever it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Uuid);

impl RequestId {
    /// One that nothing else has.
    pub fn mint() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let chance = STOCK.with_borrow_mut(Stock::take);
        RequestId(Builder::from_unix_timestamp_millis(millis, &chance).into_uuid())
    }

    /// One that was minted elsewhere.
    pub fn parse(text: &str) -> Option<Self> {
        // Exactly one way to write it, so that nobody writes the same id in another way.
        let id = Uuid::try_parse(text).ok()?;
        let mut buffer = Uuid::encode_buffer();
        (id.simple().encode_lower(&mut buffer) == text).then_some(RequestId(id))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// What a header that is genuine says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopInfo {
    /// The node that forwarded the request.
    pub from: Name,
    /// The id of the request.
    pub id: RequestId,
    /// Where the client's connection came from.
    pub client: Option<IpAddr>,
}

/// Why a header is not genuine. The request it came with must be refused: whoever sends one is
/// either no node, or one that is set up wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    /// It is not of this form.
    #[error("the header skep-hop is malformed; nodes set it, clients must not send it")]
    Malformed,
    /// It is of a version that this node does not know.
    #[error("the header skep-hop has version {0:?}; this node knows version {VERSION}")]
    Version(String),
    /// The node it came from belongs to another cluster, or has another secret.
    #[error("the header skep-hop is of another cluster: compare cluster.secret of the nodes")]
    OtherCluster,
    /// The proof does not hold.
    #[error("the proof in the header skep-hop does not hold")]
    Proof,
    /// It is too old, or from the future.
    #[error("the header skep-hop is {age_ms} ms old; at most {most_ms} are allowed either way")]
    Stale {
        /// How old it is; negative if it lies ahead.
        age_ms: i64,
        /// How old it may be.
        most_ms: u64,
    },
    /// Without a secret only this machine is believed.
    #[error("the header skep-hop came from {0}; without cluster.secret only loopback is believed")]
    NotLoopback(IpAddr),
}

impl Forged {
    /// A word for counters.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Forged::Malformed => "malformed",
            Forged::Version(_) => "version",
            Forged::OtherCluster => "other-cluster",
            Forged::Proof => "forged",
            Forged::Stale { .. } => "stale",
            Forged::NotLoopback(_) => "not-loopback",
        }
    }
}

/// Makes and checks the header for one node.
pub struct Hops {
    here: Name,
    cluster: String,
    tag: String,
    secret: Option<Secret>,
    clock: Arc<dyn Clock>,
    window: Duration,
}

impl Hops {
    /// `cluster` is the same on all nodes and on those of no other cluster. The clock counts from
    /// 1970 and is about the same on all. A header is believed for `window` from when it was made.
    pub fn new(
        here: Name,
        cluster: &str,
        secret: Option<Secret>,
        clock: Arc<dyn Clock>,
        window: Duration,
    ) -> Self {
        let tag = match &secret {
            Some(secret) => {
                let proof = secret.sign("skep-cluster", &[cluster.as_bytes()]);
                hex(&proof[..8])
            }
            None => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(cluster.as_bytes())),
        };
        Hops { here, cluster: cluster.to_owned(), tag, secret, clock, window }
    }

    /// The node that this is.
    pub fn here(&self) -> &Name {
        &self.here
    }

    /// Whether headers are proven, and not only believed on loopback.
    pub const fn signed(&self) -> bool {
        self.secret.is_some()
    }

    /// The header for a request to the node `to`.
    pub fn make(
        &self,
        to: &Name,
        id: RequestId,
        client: Option<IpAddr>,
        method: &Method,
        path_and_query: &str,
    ) -> HeaderValue {
        let issued = self.clock.now().as_nanos() / 1_000;
        let (mut text, mut id_text) = (String::with_capacity(256), Uuid::encode_buffer());
        let id = id.0.simple().encode_lower(&mut id_text);
        for part in [VERSION, &self.tag, self.here.as_str(), id] {
            text.push_str(part);
            text.push(' ');
        }
        // Writing to a text cannot fail.
        let _ = match client {
            Some(client) => write!(text, "{issued} {client}"),
            None => write!(text, "{issued} {NONE}"),
        };
        let proof = self.secret.as_ref().map(|secret| {
            let parts = self.parts(&text, to, method, path_and_query);
            hex(&secret.sign(CONTEXT, &parts))
        });
        text.push(' ');
        text.push_str(proof.as_deref().unwrap_or(NONE));
        match HeaderValue::try_from(text) {
            Ok(value) => value,
            Err(_) => unreachable!("names, numbers and addresses are visible characters"),
        }
    }

    /// Takes the header out of a request, genuine or not. None if there is none: the request is a
    /// client's.
    pub fn take(
        &self,
        headers: &mut HeaderMap,
        sender: IpAddr,
        method: &Method,
        path_and_query: &str,
    ) -> Result<Option<HopInfo>, Forged> {
        if !headers.contains_key(HOP) {
            return Ok(None);
        }
        let one = headers.get_all(HOP).iter().count() == 1;
        let Some(value) = headers.remove(HOP).filter(|_| one) else {
            return Err(Forged::Malformed);
        };
        self.check(&value, sender, method, path_and_query).map(Some)
    }

    fn check(
        &self,
        value: &HeaderValue,
        sender: IpAddr,
        method: &Method,
        path_and_query: &str,
    ) -> Result<HopInfo, Forged> {
        let text = value.to_str().map_err(|_| Forged::Malformed)?;
        if text.len() > BYTES_MAX {
            return Err(Forged::Malformed);
        }
        let (said, proof) = text.rsplit_once(' ').ok_or(Forged::Malformed)?;
        let mut words = said.split(' ');
        let mut next = || words.next().ok_or(Forged::Malformed);
        let version = next()?;
        if version != VERSION {
            let plain = version.len() <= 8 && version.bytes().all(|byte| byte.is_ascii_digit());
            return Err(if plain && !version.is_empty() {
                Forged::Version(version.to_owned())
            } else {
                Forged::Malformed
            });
        }
        let tag = next()?;
        let from: Name = next()?.parse().map_err(|_| Forged::Malformed)?;
        let id = RequestId::parse(next()?).ok_or(Forged::Malformed)?;
        let issued: u64 = number(next()?).ok_or(Forged::Malformed)?;
        let client = match next()? {
            NONE => None,
            address => Some(address.parse().map_err(|_| Forged::Malformed)?),
        };
        if words.next().is_some() {
            return Err(Forged::Malformed);
        }
        if tag != self.tag {
            return Err(Forged::OtherCluster);
        }
        match &self.secret {
            Some(secret) => {
                let proof = unhex(proof).ok_or(Forged::Proof)?;
                let parts = self.parts(said, &self.here, method, path_and_query);
                if !secret.verify(CONTEXT, &parts, &proof) {
                    return Err(Forged::Proof);
                }
            }
            None if !sender.to_canonical().is_loopback() => {
                return Err(Forged::NotLoopback(sender));
            }
            None => {}
        }
        self.check_age(issued)?;
        Ok(HopInfo { from, id, client })
    }

    fn check_age(&self, issued_micros: u64) -> Result<(), Forged> {
        let now = self.clock.now();
        let issued = Time::from_nanos(issued_micros.saturating_mul(1_000));
        let (age, ahead) = (now.since(issued), issued.since(now));
        if age.max(ahead) <= self.window {
            return Ok(());
        }
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let most_ms = u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX);
        Err(Forged::Stale { age_ms: millis(age) - millis(ahead), most_ms })
    }

    fn parts<'a>(
        &'a self,
        said: &'a str,
        to: &'a Name,
        method: &'a Method,
        path_and_query: &'a str,
    ) -> [&'a [u8]; 5] {
        let method = method.as_str();
        [
            self.cluster.as_bytes(),
            said.as_bytes(),
            to.as_str().as_bytes(),
            method.as_bytes(),
            path_and_query.as_bytes(),
        ]
    }
}

/// Digits alone: no sign, nothing before them.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if plain && (text == "0" || !text.starts_with('0')) { text.parse().ok() } else { None }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
