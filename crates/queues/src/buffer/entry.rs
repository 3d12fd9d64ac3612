//! The messages of one push to one queue, as bytes.
//!
//! ```text
//!   entry:    message …
//!   message:  length of the partition's name, u32 │ name │ length of the record, u32 │ record
//! ```
//!
//! The rest of a message stands in its record.

use crate::record::{Damaged, Records};
use crate::store::NewMessage;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;

/// Messages of one queue, in order.
pub fn encode(messages: &[&NewMessage]) -> Result<Bytes, Damaged> {
    let length = |message: &&NewMessage| 8 + message.partition.len() + message.record.len();
    let mut bytes = BytesMut::with_capacity(messages.iter().map(length).sum());
    for message in messages {
        put(&mut bytes, message.partition.as_bytes())?;
        put(&mut bytes, &message.record)?;
    }
    Ok(bytes.freeze())
}

/// What [`encode`] was given.
pub fn decode(queue: &Arc<str>, mut bytes: Bytes) -> Result<Vec<NewMessage>, Damaged> {
    let mut messages: Vec<NewMessage> = Vec::new();
    while bytes.has_remaining() {
        let partition = take(&mut bytes)?;
        let partition = std::str::from_utf8(&partition).map_err(|_| Damaged)?;
        let bytes = take(&mut bytes)?;
        let record = Records::of(&bytes).next().ok_or(Damaged)??;
        // Most pushes are for one partition; its name need not be there once a message.
        let last = messages.last().filter(|last| &*last.partition == partition);
        let partition = last.map_or_else(|| Arc::from(partition), |last| last.partition.clone());
        messages.push(NewMessage::of(queue.clone(), partition, &record, bytes.clone()));
    }
    Ok(messages)
}

fn put(bytes: &mut BytesMut, part: &[u8]) -> Result<(), Damaged> {
    bytes.put_u32_le(u32::try_from(part.len()).map_err(|_| Damaged)?);
    bytes.put_slice(part);
    Ok(())
}

fn take(bytes: &mut Bytes) -> Result<Bytes, Damaged> {
    let length = bytes.try_get_u32_le().map_err(|_| Damaged)? as usize;
    if length > bytes.len() {
        return Err(Damaged);
    }
    Ok(bytes.split_to(length))
}
