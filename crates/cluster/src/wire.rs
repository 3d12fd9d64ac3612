//! What nodes say to each other in datagrams, and how it looks on the wire.
//!
//! ```text
//!   's' 'k'  version  flags   tag: HMAC-SHA256 of realm, the four bytes before, and the rest
//!   from, incarnation, to, sequence, draining, load         in every datagram
//!   kind, and what is said
//! ```
//!
//! `to` is the incarnation of the node that it is meant for, as the sender knows it. A datagram
//! that was recorded before its receiver restarted, or on its way to somebody else, says another
//! one; so what a node has forgotten cannot be used against it. Zero is a greeting from somebody
//! who does not know yet: it is answered, and believed nothing else.
//!
//! Numbers are big-endian. Everything has a limit, a datagram [`DATAGRAM_MAX`], so that it is never
//! split on its way. Nothing of a datagram is read before its signature is found good.

mod bytes;
mod records;
#[cfg(test)]
mod tests;

use crate::secret::{Secret, TAG_BYTES};
use bytes::{Malformed, Reader};
use records::SHARE;
pub use records::{Groups, Line, MoveRecord, Piece, split};
use serde::Serialize;
use std::fmt;

/// Bytes of a datagram at most: what crosses any network in one piece, IPv6 and tunnels included.
pub const DATAGRAM_MAX: usize = 1_200;

/// The version of the format. Another one is refused, and counted as such.
pub const VERSION: u8 = 1;

/// Bytes of a node's name at most.
pub const NAME_MAX: usize = skep_policy::NAME_LENGTH_MAX;
/// Bytes of an API address at most.
pub const URL_MAX: usize = 256;
/// Bytes of an address `host:port` at most.
pub const ADDRESS_MAX: usize = 256;
/// Bytes of a zone at most.
pub const ZONE_MAX: usize = 64;
/// Bytes of a version of the program at most.
pub const PROGRAM_MAX: usize = 32;
/// Bytes of a queue's name at most; presence and wakes of longer ones are not told.
pub const QUEUE_MAX: usize = 512;
/// Bytes of a key at most; of a longer one the beginning is told.
pub const KEY_MAX: usize = 256;
/// Consumer groups of a queue that are told one by one; of more only how many there are.
pub const GROUPS_MAX: usize = 32;

const MAGIC: [u8; 2] = *b"sk";
const SIGNED: u8 = 1;
const DRAINING: u8 = 1;
const PREFIX: usize = 4;
const HEAD: usize = PREFIX + TAG_BYTES;
/// From, incarnation, to, sequence, state, load, kind; without the name itself.
const ENVELOPE: usize = 1 + 3 * 8 + 1 + LOAD + 1;
const LOAD: usize = 4 + 4 + 2 + 2;
/// What stands before the longest kind of list: three numbers and a count.
const LIST_HEAD: usize = 3 * 8 + 2;
const CONTEXT: &str = "skep pulse";

/// How busy a node is: what the load score is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Requests in progress.
    pub outstanding: u32,
    /// Pops that wait.
    pub polls: u32,
    /// Percent of the processors that the node may use, 0 to 100. Told in hundredths.
    pub cpu: f64,
    /// The smoothed score, 0 to 1. Told to four digits.
    pub score: f64,
}

/// What every datagram says before anything else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Envelope<'a> {
    /// The sender's name.
    pub from: &'a str,
    /// Which life of the sender: higher than any of its earlier ones.
    pub incarnation: u64,
    /// The incarnation of whom it is meant for; zero if the sender does not know it.
    pub to: u64,
    /// Higher than in any datagram this incarnation sent before.
    pub sequence: u64,
    /// The sender takes no new work.
    pub draining: bool,
    /// How busy the sender is.
    pub load: Load,
}

/// What a datagram is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// The sender lives.
    Heartbeat(Heartbeat<'a>),
    /// Queues that gained or lost consumers at the sender.
    Changes {
        /// The number of the sender's newest change.
        number: u64,
        /// What holds now for these queues.
        lines: Vec<Line>,
    },
    /// Every queue with consumers at the sender whose hash is in `first..=last`.
    Page {
        /// The number of the sender's newest change.
        number: u64,
        /// The first hash that the page is about.
        first: u64,
        /// The last one.
        last: u64,
        /// The queues.
        lines: Vec<Line>,
    },
    /// Say all your pages, please.
    Ask,
    /// There is something new in these queues.
    Wake(Vec<&'a str>),
    /// Keys that have moved to another node.
    Moves(Vec<MoveRecord>),
    /// The sender leaves now.
    Goodbye,
}

/// What a node says of itself every second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heartbeat<'a> {
    /// Where its API is, `http://host:port`; empty if it has none.
    pub api: &'a str,
    /// Where it hears datagrams, by its own account, `host:port`.
    pub udp: &'a str,
    /// The zone it stands in; may be empty.
    pub zone: &'a str,
    /// The version of the program.
    pub program: &'a str,
    /// A hash over all its queues with consumers.
    pub digest: u64,
    /// How many these are.
    pub queues: u32,
}

/// Why a datagram was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is no datagram of this format, or breaks a limit.
    Malformed,
    /// It is of another version of the format.
    Version(u8),
    /// Its signature is not that of this cluster.
    Forged {
        /// Whether the sender says that it has a secret.
        signed: bool,
    },
    /// It was heard before, or is too old to know.
    Replayed,
    /// It is from an earlier incarnation of its sender, or meant for another one of its receiver.
    Stale,
    /// There are as many nodes as may be.
    Crowded,
}

impl Refusal {
    /// The word for it in metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Version(_) => "version",
            Refusal::Forged { .. } => "forged",
            Refusal::Replayed => "replayed",
            Refusal::Stale => "stale",
            Refusal::Crowded => "crowded",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version(found) => {
                write!(f, "it has version {found} of the format, this node speaks {VERSION}")
            }
            Refusal::Forged { signed: true } => f.write_str(
                "its signature is not that of this cluster; cluster.secret and the database must \
                 be the same on every node",
            ),
            Refusal::Forged { signed: false } => f.write_str(
                "it is not signed with a secret; set the same cluster.secret on every node",
            ),
            Refusal::Malformed => f.write_str("it is no datagram of a node"),
            Refusal::Replayed => f.write_str("it was heard before"),
            Refusal::Crowded => f.write_str("there are as many nodes as may be"),
            Refusal::Stale => f.write_str("it is of another life of its sender or receiver"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Malformed> for Refusal {
    fn from(Malformed: Malformed) -> Self {
        Refusal::Malformed
    }
}

/// A message that does not fit into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a datagram of {bytes} bytes is too long, {DATAGRAM_MAX} are allowed")]
pub struct TooLong {
    /// How long it would be.
    pub bytes: usize,
}

/// Signs and checks the datagrams of one cluster.
#[derive(Clone, Debug)]
pub struct Seal {
    secret: Secret,
    realm: Box<str>,
    signed: bool,
}

impl Seal {
    /// The seal of a cluster. `realm` says which one, so that two with the same secret, or none,
    /// do not mix: the id of the installation. Without a secret nothing can be told from a forgery.
    pub fn new(secret: Option<Secret>, realm: &str) -> Self {
        let signed = secret.is_some();
        let secret = secret.unwrap_or_else(Secret::known_to_all);
        Seal { secret, realm: realm.into(), signed }
    }

    /// Whether there is a secret.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Writes a datagram into `out`, in place of what was there.
    pub fn close(
        &self,
        envelope: &Envelope<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TooLong> {
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, if self.signed { SIGNED } else { 0 }]);
        out.extend_from_slice(&[0; TAG_BYTES]);
        envelope.put(out);
        message.put(out);
        if out.len() > DATAGRAM_MAX {
            return Err(TooLong { bytes: out.len() });
        }
        let tag = self.tag(&out[..PREFIX], &out[HEAD..]);
        out[PREFIX..HEAD].copy_from_slice(&tag);
        Ok(())
    }

    /// Reads a datagram, once its signature is found good.
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Result<(Envelope<'a>, Message<'a>), Refusal> {
        let Some((head, body)) = datagram.split_at_checked(HEAD) else {
            return Err(Refusal::Malformed);
        };
        let (prefix, tag) = head.split_at(PREFIX);
        if prefix[..2] != MAGIC || datagram.len() > DATAGRAM_MAX {
            return Err(Refusal::Malformed);
        }
        if prefix[2] != VERSION {
            return Err(Refusal::Version(prefix[2]));
        }
        if prefix[3] & !SIGNED != 0 {
            return Err(Refusal::Malformed);
        }
        let parts = [self.realm.as_bytes(), prefix, body];
        if !self.secret.verify(CONTEXT, &parts, tag) {
            return Err(Refusal::Forged { signed: prefix[3] & SIGNED != 0 });
        }
        let mut reader = Reader::new(body);
        let envelope = Envelope::read(&mut reader)?;
        let message = Message::read(&mut reader)?;
        reader.end()?;
        Ok((envelope, message))
    }

    /// The signature over the first four bytes and everything after the signature.
    pub fn tag(&self, prefix: &[u8], body: &[u8]) -> [u8; TAG_BYTES] {
        self.secret.sign(CONTEXT, &[self.realm.as_bytes(), prefix, body])
    }
}

/// Bytes that a list may have in a datagram from a node of this name.
pub fn room_for_list(from: &str) -> usize {
    DATAGRAM_MAX - HEAD - ENVELOPE - LIST_HEAD - from.len().min(NAME_MAX)
}

impl<'a> Envelope<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        bytes::put_short(self.from, out);
        for number in [self.incarnation, self.to, self.sequence] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(if self.draining { DRAINING } else { 0 });
        out.extend_from_slice(&self.load.outstanding.to_be_bytes());
        out.extend_from_slice(&self.load.polls.to_be_bytes());
        // A number that is none becomes zero.
        let hundredths = (self.load.cpu.clamp(0.0, 100.0) * 100.0).round() as u16;
        out.extend_from_slice(&hundredths.to_be_bytes());
        let score = (self.load.score.clamp(0.0, 1.0) * SHARE).round() as u16;
        out.extend_from_slice(&score.to_be_bytes());
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let from = reader.name()?;
        let (incarnation, to, sequence) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let draining = match reader.u8()? {
            0 => false,
            DRAINING => true,
            _ => return Err(Malformed),
        };
        let (outstanding, polls, hundredths) = (reader.u32()?, reader.u32()?, reader.u16()?);
        let score = f64::from(reader.u16()?) / SHARE;
        if hundredths > 10_000 || score > 1.0 || incarnation == 0 {
            return Err(Malformed);
        }
        let load = Load { outstanding, polls, cpu: f64::from(hundredths) / 100.0, score };
        Ok(Envelope { from, incarnation, to, sequence, draining, load })
    }
}

impl<'a> Message<'a> {
    /// The word for it in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Heartbeat(_) => "heartbeat",
            Message::Changes { .. } => "changes",
            Message::Page { .. } => "page",
            Message::Ask => "ask",
            Message::Wake(_) => "wake",
            Message::Moves(_) => "moves",
            Message::Goodbye => "goodbye",
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Message::Heartbeat(heartbeat) => {
                out.push(1);
                heartbeat.put(out);
            }
            Message::Changes { number, lines } => {
                out.push(2);
                out.extend_from_slice(&number.to_be_bytes());
                records::put_list(lines, out);
            }
            Message::Page { number, first, last, lines } => {
                out.push(3);
                for number in [number, first, last] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                records::put_list(lines, out);
            }
            Message::Ask => out.push(4),
            Message::Wake(queues) => {
                out.push(5);
                records::put_list(queues, out);
            }
            Message::Moves(moves) => {
                out.push(6);
                records::put_list(moves, out);
            }
            Message::Goodbye => out.push(7),
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => Message::Heartbeat(Heartbeat::read(reader)?),
            2 => Message::Changes { number: reader.u64()?, lines: reader.list(Line::read)? },
            3 => {
                let (number, first, last) = (reader.u64()?, reader.u64()?, reader.u64()?);
                let lines = reader.list(Line::read)?;
                let belongs = |line: &Line| (first..=last).contains(&line.hash());
                if first > last || !lines.iter().all(belongs) {
                    return Err(Malformed);
                }
                Message::Page { number, first, last, lines }
            }
            4 => Message::Ask,
            5 => Message::Wake(reader.list(Reader::queue)?),
            6 => Message::Moves(reader.list(MoveRecord::read)?),
            7 => Message::Goodbye,
            _ => return Err(Malformed),
        })
    }
}

impl<'a> Heartbeat<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        bytes::put_long(self.api, out);
        bytes::put_long(self.udp, out);
        bytes::put_short(self.zone, out);
        bytes::put_short(self.program, out);
        out.extend_from_slice(&self.digest.to_be_bytes());
        out.extend_from_slice(&self.queues.to_be_bytes());
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (api, udp) = (reader.long(URL_MAX)?, reader.long(ADDRESS_MAX)?);
        let (zone, program) = (reader.short(ZONE_MAX)?, reader.short(PROGRAM_MAX)?);
        let is_url = api.is_empty() || api.starts_with("http://") || api.starts_with("https://");
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_url || !plain(api) || !plain(udp) {
            return Err(Malformed);
        }
        Ok(Heartbeat { api, udp, zone, program, digest: reader.u64()?, queues: reader.u32()? })
    }
}
