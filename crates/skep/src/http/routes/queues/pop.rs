//! Handing out messages.

mod answer;

use super::query::{number, truth};
use super::read::{name, optional_name, time};
use super::write::Json;
use super::{group_or_none, queues};
use crate::http::extract::{Parameters, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::http::relay::Interrupted;
use crate::node::Shared;
use answer::answer_of;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use skep_policy::queues::Start;
use skep_queues::store::{QUEUE_MODE, Target};
use skep_queues::{Pop, Popped};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// The longest that a pop waits, whatever it asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// How long one waits that does not say.
const WAIT: u64 = 30_000;

const BATCHES: RangeInclusive<u32> = 1..=10_000;
const PARTITIONS: RangeInclusive<u32> = 1..=1_000;
const LEASE_SECONDS: RangeInclusive<u32> = 1..=2_592_000;

/// What a consumer gets that leaves the numbers to the server: batch and partitions.
const AUTOPILOT: (u32, u32) = (200, 10);

/// How messages are asked for. All of it is text here, so that every value gets its own error.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct PopHow {
    /// So many messages at most, over all partitions; 1 if left out, at most 10000.
    #[param(value_type = Option<u32>)]
    batch: Option<String>,
    /// From so many partitions at most, under one lease; 1 if left out, at most 1000.
    #[param(value_type = Option<u32>)]
    partitions: Option<String>,
    /// Whether to wait if there is nothing.
    #[param(value_type = Option<bool>)]
    wait: Option<String>,
    /// How many milliseconds to wait; 30000 if left out, never more than 120000.
    #[param(value_type = Option<u64>)]
    timeout: Option<String>,
    /// For which group; those who name none are a group of their own.
    consumer_group: Option<String>,
    /// The same under another name.
    group: Option<String>,
    /// Whether what is handed out counts as completed at once.
    #[param(value_type = Option<bool>)]
    auto_ack: Option<String>,
    /// Where the group begins if it is seen for the first time: `all` or `new`.
    subscription_mode: Option<String>,
    /// The same as `now` or as a time; it goes before `subscriptionMode`.
    subscription_from: Option<String>,
    /// Seconds that the lease holds, if not the queue's `leaseTime`.
    #[param(value_type = Option<u32>)]
    lease_seconds: Option<String>,
    /// Whether the server chooses `batch` and `partitions` where they are left out.
    #[param(value_type = Option<bool>)]
    autopilot: Option<String>,
    /// Without a queue in the path: only queues of this namespace.
    namespace: Option<String>,
    /// Without a queue in the path: only queues of this task.
    task: Option<String>,
    /// Not in this version.
    #[param(value_type = Option<bool>)]
    conflation: Option<String>,
}

/// Messages.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct PopAnswer {
    /// True.
    success: bool,
    queue: String,
    /// Of the first message.
    partition: String,
    partition_id: String,
    /// What to acknowledge with; empty with `autoAck`.
    lease_id: String,
    consumer_group: String,
    /// How many partitions the messages are from.
    partitions_claimed: usize,
    messages: Vec<MessageAnswer>,
    /// True if nobody gets messages now, because of maintenance; then there is nothing else here.
    paused: Option<bool>,
}

/// A message.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct MessageAnswer {
    id: String,
    transaction_id: String,
    trace_id: Option<String>,
    /// The payload, as it was pushed.
    data: serde_json::Value,
    /// The name of the key it was pushed with.
    producer_sub: Option<String>,
    #[schema(example = "2026-01-31T12:00:00.000001Z")]
    created_at: String,
    queue: String,
    partition: String,
    partition_id: String,
    lease_id: String,
    consumer_group: String,
}

/// Pop messages of a queue
#[utoipa::path(
    get, path = "/api/v1/pop/queue/{queue}", tag = "queues",
    extensions(("x-scope" = json!("pop"))), params(("queue" = String, Path), PopHow),
    responses(
        (status = 200, description = "Messages, leased to whoever asked", body = PopAnswer),
        (status = 204, description = "There is nothing to hand out now"),
        (status = 400, description = "A parameter is wrong", body = ProblemBody),
        (status = 429, description = "Too many requests or pops wait", body = ProblemBody),
        (status = 501, description = "Something is not in this version", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn pop_queue(
    State(shared): State<Arc<Shared>>,
    Segments(queue): Segments<String>,
    Parameters(how): Parameters<PopHow>,
) -> Result<Response, Problem> {
    let target = Target::Queue(name("queue", &queue)?);
    pop(&shared, target, &how).await
}

/// Pop messages of one partition
#[utoipa::path(
    get, path = "/api/v1/pop/queue/{queue}/partition/{partition}", tag = "queues",
    extensions(("x-scope" = json!("pop"))),
    params(("queue" = String, Path), ("partition" = String, Path), PopHow),
    responses(
        (status = 200, description = "Messages, leased to whoever asked", body = PopAnswer),
        (status = 204, description = "There is nothing to hand out now"),
        (status = 400, description = "A parameter is wrong", body = ProblemBody),
        (status = 429, description = "Too many requests or pops wait", body = ProblemBody),
        (status = 501, description = "Something is not in this version", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn pop_partition(
    State(shared): State<Arc<Shared>>,
    Segments((queue, partition)): Segments<(String, String)>,
    Parameters(how): Parameters<PopHow>,
) -> Result<Response, Problem> {
    let target = Target::Partition(name("queue", &queue)?, name("partition", &partition)?);
    pop(&shared, target, &how).await
}

/// Pop messages of any queue of a namespace or task
#[utoipa::path(
    get, path = "/api/v1/pop", tag = "queues",
    extensions(("x-scope" = json!("pop"))), params(PopHow),
    responses(
        (status = 200, description = "Messages of one queue, leased to whoever asked",
         body = PopAnswer),
        (status = 204, description = "There is nothing to hand out now"),
        (status = 400, description = "A parameter is wrong", body = ProblemBody),
        (status = 429, description = "Too many requests or pops wait", body = ProblemBody),
        (status = 501, description = "Something is not in this version", body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn pop_matching(
    State(shared): State<Arc<Shared>>,
    Parameters(how): Parameters<PopHow>,
) -> Result<Response, Problem> {
    let target = how.matching()?;
    pop(&shared, target, &how).await
}

/// What a pop's path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopTarget<'path> {
    /// Any queue that the parameters fit.
    Matching,
    Queue(&'path str),
    Partition(&'path str, &'path str),
}

/// A pop whose path was read by somebody else than the router.
pub async fn pop_of(
    shared: &Shared,
    target: PopTarget<'_>,
    uri: &Uri,
) -> Result<Response, Problem> {
    let Parameters(how) = Parameters::<PopHow>::of(uri)?;
    let target = match target {
        PopTarget::Matching => how.matching()?,
        PopTarget::Queue(queue) => Target::Queue(name("queue", queue)?),
        PopTarget::Partition(queue, partition) => {
            Target::Partition(name("queue", queue)?, name("partition", partition)?)
        }
    };
    pop(shared, target, &how).await
}

async fn pop(shared: &Shared, target: Target, how: &PopHow) -> Result<Response, Problem> {
    let queues = queues(shared)?;
    let pop = how.read(target, shared.queues.default_start())?;
    let (group, auto_ack) = (pop.group.clone(), pop.auto_ack);
    let popped = shared.queues.pop(queues, pop).await?;
    let interrupted = popped.is_none();
    if popped.as_ref().is_some_and(Popped::is_paused) {
        return Ok(paused());
    }
    match popped.filter(|popped| !popped.claimed().lanes.is_empty()) {
        Some(popped) => answer_of(queues, popped, &group, auto_ack),
        None => {
            let mut nothing = StatusCode::NO_CONTENT.into_response();
            if interrupted {
                nothing.extensions_mut().insert(Interrupted);
            }
            Ok(nothing)
        }
    }
}

/// Nobody gets messages now, because an operator wants it so.
fn paused() -> Response {
    let mut json = Json::with_room(64);
    json.raw("{\"messages\":[],\"paused\":true,\"success\":true}");
    json.answer(StatusCode::OK)
}

impl PopHow {
    fn matching(&self) -> Result<Target, Problem> {
        Ok(Target::Matching {
            namespace: optional_name("namespace", self.namespace.as_deref())?,
            task: optional_name("task", self.task.as_deref())?,
        })
    }

    fn read(&self, target: Target, default_start: Option<Start>) -> Result<Pop, Problem> {
        if truth("conflation", &self.conflation)? {
            let words = "conflation is not in this version; pop without it";
            return Err(Problem::new(&problem::E_NOT_SUPPORTED, words).at("conflation").plain());
        }
        let (batch, partitions) = match truth("autopilot", &self.autopilot)? {
            true => AUTOPILOT,
            false => (1, 1),
        };
        let group = self.consumer_group.as_deref().filter(|group| !group.is_empty());
        let group = optional_name("consumerGroup", group.or(self.group.as_deref()))?;
        let group = group_or_none(group);
        let start = match &*group {
            QUEUE_MODE => Some(Start::All),
            _ => self.start(default_start)?,
        };
        let timeout = number("timeout", &self.timeout, &(0..=u64::MAX))?.unwrap_or(WAIT);
        let wait = truth("wait", &self.wait)?;
        Ok(Pop {
            target,
            group,
            start,
            batch: number("batch", &self.batch, &BATCHES)?.unwrap_or(batch),
            partitions: number("partitions", &self.partitions, &PARTITIONS)?.unwrap_or(partitions),
            lease_seconds: number("leaseSeconds", &self.lease_seconds, &LEASE_SECONDS)?,
            auto_ack: truth("autoAck", &self.auto_ack)?,
            wait: wait.then(|| Duration::from_millis(timeout).min(WAIT_MAX)),
        })
    }

    /// Where the group begins; `None` is with what is pushed from now on.
    fn start(&self, default: Option<Start>) -> Result<Option<Start>, Problem> {
        let from = self.subscription_from.as_deref().filter(|text| !text.is_empty());
        let mode = self.subscription_mode.as_deref().filter(|text| !text.is_empty());
        match (from, mode) {
            (Some("now"), _) => Ok(None),
            (Some(from), _) => time("subscriptionFrom", from).map(|time| Some(Start::From(time))),
            (None, Some("new" | "new-only")) => Ok(None),
            (None, Some(_)) => Ok(Some(Start::All)),
            (None, None) => Ok(default),
        }
    }
}
