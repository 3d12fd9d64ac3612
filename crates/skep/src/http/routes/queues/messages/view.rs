//! A message as the API shows it.

use crate::http::problem::Problem;
use crate::http::routes::queues::write::{Json, timestamp};
use skep_policy::explain::{Kind, would};
use skep_queues::Queues;
use skep_queues::browse::{Status, only_record};
use skep_queues::store::MessageRow;

/// A message that is kept.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
pub struct MessageView {
    id: String,
    /// What `skep explain` takes.
    #[schema(example = "message:0190a2b4-0000-7000-8000-000000000001/order-17")]
    explain: String,
    /// What would change its status.
    would_change: String,
    transaction_id: String,
    trace_id: Option<String>,
    queue: String,
    partition: String,
    partition_id: String,
    /// 0 to 9.
    priority: u8,
    /// `pending`, `processing` or `completed`: for the group that was asked for, or for all.
    status: String,
    /// As it was pushed.
    payload: serde_json::Value,
    /// The same under the name it has in a pop.
    data: serde_json::Value,
    producer_sub: Option<String>,
    #[schema(example = "2026-01-31T12:00:00.000001Z")]
    created_at: String,
    /// By name, a hundred at most.
    consumer_groups: Vec<GroupStatus>,
}

/// What a group has done with a message.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written")]
struct GroupStatus {
    name: String,
    /// `pending`, `processing` or `completed`.
    status: String,
}

/// Adds the fields of a message, without braces.
pub fn put_message(
    json: &mut Json,
    queues: &Queues,
    message: &MessageRow,
    group: Option<&str>,
) -> Result<(), Problem> {
    let record = only_record(&message.record)?;
    let payload = queues.reveal(&message.queue, &record)?;
    let (partition, status) = (message.partition_id.uuid(), Status::of(&message.standing, group));
    json.raw("\"id\":").uuid(record.id);
    let of = format!("{partition}/{}", record.transaction);
    json.raw(",\"explain\":").text(&Kind::Message.id(of));
    json.raw(",\"wouldChange\":").text(would::message(status.word()));
    json.raw(",\"transactionId\":").text(&record.transaction);
    json.raw(",\"traceId\":").optional(record.trace.as_deref());
    json.raw(",\"queue\":").text(&message.queue);
    json.raw(",\"partition\":").text(&message.partition);
    json.raw(",\"partitionId\":").uuid(partition);
    json.raw(",\"priority\":").number(usize::from(record.wishes.priority));
    json.raw(",\"status\":").text(status.word());
    json.raw(",\"payload\":").raw(&payload).raw(",\"data\":").raw(&payload);
    json.raw(",\"producerSub\":").optional(record.producer.as_deref());
    json.raw(",\"createdAt\":").text(&timestamp(message.at));
    json.raw(",\"consumerGroups\":[");
    for (number, standing) in message.standing.iter().enumerate() {
        json.comma(number).raw("{\"name\":").text(&standing.group);
        json.raw(",\"status\":").text(Status::from(standing.state).word()).raw("}");
    }
    json.raw("]");
    Ok(())
}
