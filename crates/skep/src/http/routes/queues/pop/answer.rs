//! Messages as they are handed out: payloads copied as they are, and given back if nobody reads
//! them.

use crate::http::problem::Problem;
use crate::http::routes::queues::write::{Json, answer, timestamp};
use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use skep_queues::record::Records;
use skep_queues::store::ClaimedLane;
use skep_queues::{Popped, QueueError, Queues};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use uuid::Uuid;

/// Bytes that a message takes beside its payload and what its partition says.
const MESSAGE_ROOM: usize = 256;

/// A body is handed to the connection in pieces of this size, which takes the next one when it has
/// written most of the last.
const PIECE_BYTES: usize = 64 << 10;

/// An answer with what was popped.
pub fn answer_of(
    queues: &Queues,
    popped: Popped,
    group: &str,
    auto_ack: bool,
) -> Result<Response, Problem> {
    let rest = write(queues, &popped, group, auto_ack)?;
    let body = Arriving { rest, popped: Some(popped) };
    Ok(answer(StatusCode::OK, Body::new(body)))
}

fn write(
    queues: &Queues,
    popped: &Popped,
    group: &str,
    auto_ack: bool,
) -> Result<Bytes, QueueError> {
    let claimed = popped.claimed();
    let lease = match auto_ack {
        true => String::new(),
        false => Uuid::from_u128(popped.lease().0).to_string(),
    };
    let parts = claimed.lanes.iter().flat_map(|lane| &lane.parts);
    let room: usize =
        parts.map(|part| part.records.len() + part.count as usize * 2 * MESSAGE_ROOM).sum();
    let mut json = Json::with_room(MESSAGE_ROOM + room);
    json.raw("{\"success\":true");
    if let Some(first) = claimed.lanes.first() {
        put_lane(&mut json, first, &lease, group);
    }
    json.raw(",\"partitionsClaimed\":").number(claimed.lanes.len()).raw(",\"messages\":[");
    let mut number = 0;
    for lane in &claimed.lanes {
        let mut end = Json::with_room(MESSAGE_ROOM);
        put_lane(&mut end, lane, &lease, group);
        let end = end.into_bytes();
        for part in &lane.parts {
            let at = timestamp(part.at);
            for record in Records::of(&part.records) {
                let record = record.map_err(skep_queues::store::WorkError::from)?;
                json.comma(number).raw("{\"id\":").uuid(record.id);
                json.raw(",\"transactionId\":").text(&record.transaction);
                json.raw(",\"traceId\":").optional(record.trace.as_deref());
                json.raw(",\"data\":").raw(queues.reveal(&lane.queue, &record)?);
                json.raw(",\"producerSub\":").optional(record.producer.as_deref());
                json.raw(",\"createdAt\":\"").raw(&at).raw("\"").raw(&end).raw("}");
                number += 1;
            }
        }
    }
    json.raw("]}");
    Ok(json.into_bytes())
}

/// Where messages are from and under which lease, which is the same for all of a partition.
fn put_lane(json: &mut Json, lane: &ClaimedLane, lease: &str, group: &str) {
    json.raw(",\"queue\":").text(&lane.queue);
    json.raw(",\"partition\":").text(&lane.partition);
    json.raw(",\"partitionId\":").uuid(lane.id.uuid());
    json.raw(",\"leaseId\":").text(lease);
    json.raw(",\"consumerGroup\":").text(group);
}

/// A body that knows whether it was read. What was popped is kept until its last piece was taken:
/// if the connection ends first, dropping it gives the messages back.
struct Arriving {
    rest: Bytes,
    popped: Option<Popped>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        if self.rest.is_empty()
            && let Some(popped) = self.popped.take()
        {
            popped.arrived();
        }
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
