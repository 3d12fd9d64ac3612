//! Messages as bytes: what a push makes once and a pop reads, the same in both stores.
//!
//! ```text
//!   record:  length │ flags │ id, 16 │ transaction │ [trace] │ [producer] │ [wishes] │ payload
//!            varint   1 byte           name          name      name         below      the rest
//!   name:    16 bytes of a UUID if its flag says so, else varint length and text
//!   wishes:  varint length, then for each a byte that names it and a varint
//! ```
//!
//! A segment's body is records one after the other; what they have in common (partition, number of
//! the first, time) stands beside it in the row.

use bytes::{BufMut, Bytes, BytesMut};
use skep_policy::Time;
use skep_policy::queues::Retry;
use std::borrow::Cow;
use std::time::Duration;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

const TRANSACTION_IS_UUID: u8 = 1;
const HAS_TRACE: u8 = 2;
const TRACE_IS_UUID: u8 = 4;
const HAS_PRODUCER: u8 = 8;
const ENCRYPTED: u8 = 16;
const HAS_WISHES: u8 = 32;

/// A message, borrowed from the bytes it is kept in or will be kept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'bytes> {
    /// The server's id of it.
    pub id: Uuid,
    /// The producer's id of it.
    pub transaction: Cow<'bytes, str>,
    /// What it is part of, if the producer said so.
    pub trace: Option<Cow<'bytes, str>>,
    /// Who pushed it, if that was asked.
    pub producer: Option<Cow<'bytes, str>>,
    /// What its producer wants for it.
    pub wishes: Wishes,
    /// Whether the payload is encrypted.
    pub encrypted: bool,
    /// JSON, or what encryption made of it.
    pub payload: &'bytes [u8],
}

/// What a producer wants for one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Higher goes first within its partition; at most [`PRIORITY_MAX`].
    pub priority: u8,
    /// Not before this time, in whole microseconds.
    pub due: Option<Time>,
    /// So many failures bring it back, whatever its queue says.
    pub retry_limit: Option<u32>,
    /// Milliseconds to wait after its first failure, whatever its queue says.
    pub retry_delay: Option<u32>,
}

/// The highest priority of a message.
pub const PRIORITY_MAX: u8 = 9;

/// How wishes are named in a record. One that is not known is passed over.
mod wish {
    pub const PRIORITY: u8 = 1;
    pub const DUE: u8 = 2;
    pub const RETRY_LIMIT: u8 = 3;
    pub const RETRY_DELAY: u8 = 4;
}

impl Wishes {
    /// What it says about failures.
    pub fn retry(&self) -> Retry {
        let delay = self.retry_delay.map(|delay| Duration::from_millis(u64::from(delay)));
        Retry { limit: self.retry_limit, delay }
    }

    fn encode(&self) -> Option<BytesMut> {
        let due = self.due.map(|due| due.as_nanos() / 1_000);
        let wishes = [
            (wish::PRIORITY, (self.priority > 0).then_some(u64::from(self.priority))),
            (wish::DUE, due),
            (wish::RETRY_LIMIT, self.retry_limit.map(u64::from)),
            (wish::RETRY_DELAY, self.retry_delay.map(u64::from)),
        ];
        let mut bytes = BytesMut::new();
        for (name, value) in wishes {
            if let Some(value) = value {
                bytes.put_u8(name);
                put_varint(&mut bytes, value);
            }
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut wishes = Wishes::default();
        while !bytes.is_empty() {
            let name = take(&mut bytes, 1)?[0];
            let value = take_varint(&mut bytes)?;
            match name {
                wish::PRIORITY => wishes.priority = u8::try_from(value).ok()?.min(PRIORITY_MAX),
                wish::DUE => wishes.due = Some(Time::from_nanos(value.checked_mul(1_000)?)),
                wish::RETRY_LIMIT => wishes.retry_limit = Some(u32::try_from(value).ok()?),
                wish::RETRY_DELAY => wishes.retry_delay = Some(u32::try_from(value).ok()?),
                _ => {}
            }
        }
        Some(wishes)
    }
}

/// Bytes that are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of a stored message are damaged")]
pub struct Damaged;

/// What stands for a transaction id where only likeness is asked. Likeness has to be checked.
pub fn print_of(transaction: &str) -> u64 {
    xxh3_64(transaction.as_bytes())
}

impl Record<'_> {
    /// The record's bytes.
    pub fn encode(&self) -> Bytes {
        let transaction = Name::of(&self.transaction);
        let trace = self.trace.as_deref().map(Name::of);
        let producer = self.producer.as_deref().map(Name::Text);
        let mut flags = if transaction.is_uuid() { TRANSACTION_IS_UUID } else { 0 };
        if let Some(trace) = &trace {
            flags |= HAS_TRACE | if trace.is_uuid() { TRACE_IS_UUID } else { 0 };
        }
        flags |= if producer.is_some() { HAS_PRODUCER } else { 0 };
        flags |= if self.encrypted { ENCRYPTED } else { 0 };
        let wishes = self.wishes.encode();
        flags |= if wishes.is_some() { HAS_WISHES } else { 0 };
        let wishes_length = wishes.as_ref().map_or(0, |bytes| 1 + bytes.len());
        let names = [Some(&transaction), trace.as_ref(), producer.as_ref()];
        let names_length: usize = names.iter().flatten().map(|name| name.length()).sum();
        let length = 1 + 16 + names_length + wishes_length + self.payload.len();
        let mut bytes = BytesMut::with_capacity(varint_length(length) + length);
        put_length(&mut bytes, length);
        bytes.put_u8(flags);
        bytes.put_slice(self.id.as_bytes());
        for name in names.into_iter().flatten() {
            name.put(&mut bytes);
        }
        if let Some(wishes) = wishes {
            put_length(&mut bytes, wishes.len());
            bytes.put_slice(&wishes);
        }
        bytes.put_slice(self.payload);
        bytes.freeze()
    }
}

/// The records in a segment's body, or in a part of it that begins at a record.
#[derive(Clone, Debug)]
pub struct Records<'bytes> {
    rest: &'bytes [u8],
}

impl<'bytes> Records<'bytes> {
    /// Reads `body` from its beginning.
    pub fn of(body: &'bytes [u8]) -> Self {
        Records { rest: body }
    }

    /// Passes `count` records and tells how many bytes they are.
    pub fn skip_bytes(&mut self, count: usize) -> Result<usize, Damaged> {
        let before = self.rest.len();
        for _ in 0..count {
            let length = take_length(&mut self.rest).ok_or(Damaged)?;
            take(&mut self.rest, length).ok_or(Damaged)?;
        }
        Ok(before - self.rest.len())
    }
}

impl<'bytes> Iterator for Records<'bytes> {
    type Item = Result<Record<'bytes>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = decode(&mut self.rest);
        if record.is_none() {
            self.rest = &[];
        }
        Some(record.ok_or(Damaged))
    }
}

/// The part of a body with `count` records after the first `skip`.
pub fn part(body: &Bytes, skip: usize, count: usize) -> Result<Bytes, Damaged> {
    let mut records = Records::of(body);
    let from = records.skip_bytes(skip)?;
    let length = records.skip_bytes(count)?;
    Ok(body.slice(from..from + length))
}

/// The same of a body that may be shorter, because messages were taken out of it since: as many as
/// there are, and how many that is.
pub fn part_there(body: &Bytes, skip: usize, most: usize) -> Result<(Bytes, usize), Damaged> {
    let mut records = Records::of(body);
    let (mut from, mut to, mut count) = (0, 0, 0);
    for place in 0..skip.saturating_add(most) {
        if records.rest.is_empty() {
            break;
        }
        to += records.skip_bytes(1)?;
        if place < skip {
            from = to;
        } else {
            count += 1;
        }
    }
    Ok((body.slice(from..to), count))
}

/// A transaction id as it stands in a record behind the record's id, and whether it stands there as
/// a UUID: for those who look for it in bytes.
pub fn transaction_bytes(transaction: &str) -> (bool, Vec<u8>) {
    let name = Name::of(transaction);
    let mut bytes = BytesMut::with_capacity(name.length());
    name.put(&mut bytes);
    (name.is_uuid(), bytes.to_vec())
}

fn decode<'bytes>(rest: &mut &'bytes [u8]) -> Option<Record<'bytes>> {
    let length = take_length(rest)?;
    let mut record = take(rest, length)?;
    let flags = take(&mut record, 1)?[0];
    let id = Uuid::from_slice(take(&mut record, 16)?).ok()?;
    let transaction = take_name(&mut record, flags & TRANSACTION_IS_UUID != 0)?;
    let trace = match flags & HAS_TRACE != 0 {
        true => Some(take_name(&mut record, flags & TRACE_IS_UUID != 0)?),
        false => None,
    };
    let producer = match flags & HAS_PRODUCER != 0 {
        true => Some(take_name(&mut record, false)?),
        false => None,
    };
    let wishes = match flags & HAS_WISHES != 0 {
        true => {
            let length = take_length(&mut record)?;
            Wishes::decode(take(&mut record, length)?)?
        }
        false => Wishes::default(),
    };
    let encrypted = flags & ENCRYPTED != 0;
    Some(Record { id, transaction, trace, producer, wishes, encrypted, payload: record })
}

/// A name as it is written: most are UUIDs in their usual form, which are 36 letters as text.
enum Name<'text> {
    Uuid(Uuid),
    Text(&'text str),
}

impl<'text> Name<'text> {
    fn of(text: &'text str) -> Self {
        let usual = |uuid: &Uuid| {
            let mut letters = Uuid::encode_buffer();
            uuid.as_hyphenated().encode_lower(&mut letters) == text
        };
        match Uuid::try_parse(text).ok().filter(usual) {
            Some(uuid) => Name::Uuid(uuid),
            None => Name::Text(text),
        }
    }

    fn is_uuid(&self) -> bool {
        matches!(self, Name::Uuid(_))
    }

    fn length(&self) -> usize {
        match self {
            Name::Uuid(_) => 16,
            Name::Text(text) => varint_length(text.len()) + text.len(),
        }
    }

    fn put(&self, bytes: &mut BytesMut) {
        match self {
            Name::Uuid(uuid) => bytes.put_slice(uuid.as_bytes()),
            Name::Text(text) => {
                put_length(bytes, text.len());
                bytes.put_slice(text.as_bytes());
            }
        }
    }
}

fn take_name<'bytes>(rest: &mut &'bytes [u8], is_uuid: bool) -> Option<Cow<'bytes, str>> {
    if is_uuid {
        let uuid = Uuid::from_slice(take(rest, 16)?).ok()?;
        return Some(Cow::Owned(uuid.to_string()));
    }
    let length = take_length(rest)?;
    std::str::from_utf8(take(rest, length)?).ok().map(Cow::Borrowed)
}

fn take<'bytes>(rest: &mut &'bytes [u8], length: usize) -> Option<&'bytes [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn varint_length(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

fn put_length(bytes: &mut BytesMut, length: usize) {
    put_varint(bytes, length as u64);
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_varint(rest)?).ok()
}

fn put_varint(bytes: &mut BytesMut, mut number: u64) {
    while number >= 0x80 {
        bytes.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.put_u8(number as u8);
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..9 {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<u128>().prop_map(|bits| Uuid::from_u128(bits).to_string()),
            any::<u128>().prop_map(|bits| Uuid::from_u128(bits).simple().to_string()),
            any::<u128>().prop_map(|bits| Uuid::from_u128(bits).to_string().to_uppercase()),
            "\\PC{0,200}",
        ]
    }

    fn wishes() -> impl Strategy<Value = Wishes> {
        let due = (0..i64::MAX as u64 / 1_000).prop_map(|micros| Time::from_nanos(micros * 1_000));
        let own = (prop::option::of(any::<u32>()), prop::option::of(any::<u32>()));
        let own = (0..=PRIORITY_MAX, prop::option::of(due), own);
        prop::option::of(own).prop_map(|own| match own {
            Some((priority, due, (retry_limit, retry_delay))) => {
                Wishes { priority, due, retry_limit, retry_delay }
            }
            None => Wishes::default(),
        })
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(
            parts in prop::collection::vec(
                (any::<u128>(), name(), prop::option::of(name()), prop::option::of(name()),
                 any::<bool>(), prop::collection::vec(any::<u8>(), 0..300), wishes()), 1..20),
            skip in 0_usize..20,
        ) {
            let records: Vec<Record<'_>> = parts.iter().map(|part| Record {
                id: Uuid::from_u128(part.0),
                transaction: Cow::Borrowed(part.1.as_str()),
                trace: part.2.as_deref().map(Cow::Borrowed),
                producer: part.3.as_deref().map(Cow::Borrowed),
                wishes: part.6,
                encrypted: part.4,
                payload: &part.5,
            }).collect();
            let body: Vec<u8> = records.iter().flat_map(|record| record.encode()).collect();
            let body = Bytes::from(body);
            let read: Result<Vec<_>, _> = Records::of(&body).collect();
            prop_assert_eq!(read.unwrap(), records.clone());
            let skip = skip.min(records.len());
            let after = part(&body, skip, records.len() - skip).unwrap();
            let read: Result<Vec<_>, _> = Records::of(&after).collect();
            prop_assert_eq!(read.unwrap(), &records[skip..]);
        }

        #[test]
        fn other_bytes_are_damaged_and_do_no_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            for record in Records::of(&bytes) {
                let _ = record;
            }
            let _ = part(&Bytes::from(bytes), 3, 5);
        }
    }
}
