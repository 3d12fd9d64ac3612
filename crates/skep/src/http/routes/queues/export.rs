//! All messages of a queue as lines, oldest first in each partition.
//!
//! Messages are kept to be looked at newest first. So a partition is walked down once, which only
//! notes where its pages begin, and then told page by page from the oldest. What is pushed
//! meanwhile is not part of it, and what is removed meanwhile may be missing; nothing is there
//! twice.

use super::partition_is_there;
use super::query::moment;
use super::read::{name, optional_name};
use super::refuse::{no_partition, no_queue, store_problem};
use super::write::{Json, Uncompressed, timestamp};
use crate::http::extract::{Asker, Parameters, Segments};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::{Shared, State as NodeState};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use skep_policy::Time;
use skep_queues::Queues;
use skep_queues::browse::only_record;
use skep_queues::ids::PartitionId;
use skep_queues::store::{
    MESSAGES_PAGE_MAX, MessageFilter, MessageRow, MessagesPage, PartitionRow, Queues as Which,
};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Partitions that are looked up at once.
const PARTITIONS: u32 = 1_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportHow {
    /// Only of this partition.
    partition: Option<String>,
    /// Only those pushed at this time or later.
    from: Option<String>,
    /// Only those pushed before this time.
    to: Option<String>,
}

/// A line of an export.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is written")]
struct ExportLine {
    partition: String,
    priority: u8,
    transaction_id: String,
    trace_id: Option<String>,
    payload: serde_json::Value,
    created_at: String,
}

/// All messages of a queue as lines of JSON, oldest first in each partition; the last line is
/// `{"end":true,"messages":N}`, and without it something is missing
#[utoipa::path(
    get, path = "/api/v1/queues/{queue}/export", tag = "queues",
    extensions(("x-scope" = json!("read"))), params(("queue" = String, Path), ExportHow),
    responses((status = 200, description = "The lines", content_type = "application/x-ndjson",
               body = ExportLine),
              (status = 400, description = "A parameter is wrong", body = ProblemBody),
              (status = 404, description = "There is no such queue or partition",
               body = ProblemBody),
              (status = 503, description = "The database cannot be reached, or there are too many \
               streams", body = ProblemBody))
)]
pub async fn export(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Segments(queue): Segments<String>,
    Parameters(how): Parameters<ExportHow>,
) -> Result<Response, Problem> {
    let queue = name("queue", &queue)?;
    let partition = optional_name("partition", how.partition.as_deref())?;
    let (from, to) = (moment("from", &how.from)?, moment("to", &how.to)?);
    let queues = super::queues(&shared)?;
    let known = queues.store().queue(&queue).await.map_err(|error| store_problem(&error))?;
    known.ok_or_else(|| no_queue(&queue))?;
    if let Some(partition) = &partition
        && !partition_is_there(queues.store(), &queue, partition).await?
    {
        return Err(no_partition(&queue, partition));
    }
    let most = shared.settings.api.streams_max;
    let Some(held) = shared.traffic.open_stream(most) else {
        let detail = format!("{most} streams are open, which is the limit");
        let problem = Problem::new(&problem::E_STREAMS_MAX, detail);
        return Err(problem.retry_after(Duration::from_secs(5)).plain());
    };
    let export = Export {
        queues: queues.clone(),
        queue,
        only: partition,
        span: (from, to),
        ahead: VecDeque::new(),
        last: None,
        all_seen: false,
        walk: None,
        told: 0,
        ended: false,
    };
    let mut state = shared.state.clone();
    let watched = shared.clone();
    let over = async move {
        tokio::select! {
            _ = state.wait_for(|state| *state == NodeState::Draining) => {}
            () = watched.access.until_refused(asker.caller.as_ref()) => {}
        }
    };
    let lines = stream::unfold(Some(export), |export| async {
        let mut export = export?;
        match export.next().await {
            Ok(lines) => lines.map(|lines| (Ok(lines), Some(export))),
            // The connection is cut, so that nobody takes what came for all.
            Err(problem) => Some((Err(io::Error::other(problem.to_string())), None)),
        }
    });
    // The place is held for as long as the stream is.
    let lines = lines.take_until(Box::pin(over)).map(move |lines| {
        let _held = &held;
        lines
    });
    let mut response = Body::from_stream(lines).into_response();
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.extensions_mut().insert(Uncompressed);
    Ok(response)
}

/// How far an export is.
struct Export {
    queues: Queues,
    queue: Arc<str>,
    only: Option<Arc<str>>,
    span: (Option<Time>, Option<Time>),
    /// Partitions that come next.
    ahead: VecDeque<PartitionRow>,
    last: Option<PartitionId>,
    all_seen: bool,
    walk: Option<Walk>,
    told: u64,
    ended: bool,
}

/// How far it is in one partition.
struct Walk {
    id: PartitionId,
    name: Arc<str>,
    /// Where its pages begin, the oldest last.
    pages: Vec<Option<String>>,
    /// The oldest page, which was read last on the way down.
    oldest: Option<MessagesPage>,
    /// The last number that was there on the way down.
    newest: u64,
    /// The last number that was told.
    told: u64,
}

impl Export {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let Some(walk) = &mut self.walk else {
                match self.next_partition().await? {
                    Some(row) => self.walk = Some(self.walk_down(&row).await?),
                    None if self.ended => return Ok(None),
                    None => {
                        self.ended = true;
                        let end = format!("{{\"end\":true,\"messages\":{}}}\n", self.told);
                        return Ok(Some(end.into()));
                    }
                }
                continue;
            };
            let page = match walk.oldest.take() {
                Some(page) => page,
                None => {
                    let Some(start) = walk.pages.pop() else {
                        self.walk = None;
                        continue;
                    };
                    let name = walk.name.clone();
                    self.page(name, start).await?
                }
            };
            let lines = self.lines(page)?;
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
    }

    async fn next_partition(&mut self) -> Result<Option<PartitionRow>, Problem> {
        if self.ahead.is_empty() && !self.all_seen {
            let only = self.only.as_deref();
            let store = self.queues.store();
            let found = store.partitions(&self.queue, self.last, only, PARTITIONS).await;
            let mut found = found.map_err(|error| store_problem(&error))?;
            self.all_seen = found.len() < PARTITIONS as usize;
            self.last = found.last().map(|row| row.id);
            if let Some(only) = &self.only {
                // Beyond those of the very name there are longer ones.
                self.all_seen |= found.last().is_some_and(|row| row.name != *only);
                found.retain(|row| row.name == *only);
            }
            self.ahead = found.into();
        }
        Ok(self.ahead.pop_front())
    }

    async fn walk_down(&self, row: &PartitionRow) -> Result<Walk, Problem> {
        let mut walk = Walk {
            id: row.id,
            name: row.name.clone(),
            pages: Vec::new(),
            oldest: None,
            newest: 0,
            told: 0,
        };
        let mut start = None;
        loop {
            let page = self.page(row.name.clone(), start.clone()).await?;
            let numbers = page.messages.iter().filter(|one| one.partition_id == row.id);
            walk.newest = numbers.map(|one| one.number).fold(walk.newest, u64::max);
            let Some(next) = page.next.clone() else {
                walk.oldest = Some(page);
                return Ok(walk);
            };
            walk.pages.push(start.replace(next));
        }
    }

    async fn page(
        &self,
        partition: Arc<str>,
        after: Option<String>,
    ) -> Result<MessagesPage, Problem> {
        let filter = MessageFilter {
            queues: Which::One(self.queue.clone()),
            partition: Some(partition),
            from: self.span.0,
            to: self.span.1,
            after,
            limit: MESSAGES_PAGE_MAX,
        };
        Ok(self.queues.store().messages(filter).await?)
    }

    fn lines(&mut self, page: MessagesPage) -> Result<Bytes, Problem> {
        let Some(walk) = &mut self.walk else { return Ok(Bytes::new()) };
        let bytes: usize = page.messages.iter().map(|one| one.record.len() + 256).sum();
        let mut json = Json::with_room(bytes);
        for message in page.messages.iter().rev() {
            let MessageRow { partition_id, number, .. } = *message;
            if partition_id == walk.id && (walk.told + 1..=walk.newest).contains(&number) {
                put_line(&mut json, &self.queues, message)?;
                walk.told = number;
                self.told += 1;
            }
        }
        Ok(json.into_bytes())
    }
}

fn put_line(json: &mut Json, queues: &Queues, message: &MessageRow) -> Result<(), Problem> {
    let record = only_record(&message.record)?;
    json.raw("{\"partition\":").text(&message.partition);
    json.raw(",\"priority\":").number(usize::from(record.wishes.priority));
    json.raw(",\"transactionId\":").text(&record.transaction);
    json.raw(",\"traceId\":").optional(record.trace.as_deref());
    json.raw(",\"payload\":");
    // A payload is kept as it came, maybe over several lines; between its texts they mean nothing.
    let payload = queues.reveal(&message.queue, &record)?;
    for part in payload.split(|byte| matches!(byte, b'\n' | b'\r')) {
        json.raw(part);
    }
    json.raw(",\"createdAt\":").text(&timestamp(message.at)).raw("}\n");
    Ok(())
}
