//! Making queues and changing their options.

use super::options::{BadOption, Wish, shown};
use super::read::{self, Given, given_name, name_flaw, object, wrong};
use super::refuse::store_problem;
use super::{note, queues};
use crate::http::extract::{Asker, RawBody};
use crate::http::problem::{Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use skep_queues::QueueOptions;
use skep_queues::store::{Change, Configure};
use std::sync::Arc;

object! {
    /// A queue as somebody wants it.
    ConfigureBody<'body> {
        queue "queue": Given<'body>,
        namespace "namespace": Given<'body>,
        task "task": Given<'body>,
        options "options": Option<&'body RawValue>,
        mode "mode": Given<'body>,
    }
}

/// A queue as somebody wants it.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is read")]
struct ConfigureRequest {
    queue: String,
    /// What it belongs to; of a new queue the part of its name before the first dot.
    namespace: Option<String>,
    /// What it is for; of a new queue the part of its name after the first dot.
    task: Option<String>,
    /// Those that are left out stay as they are, null is the default.
    options: Option<QueueOptionsView>,
    /// `replace`: those that are left out get their default.
    mode: Option<String>,
}

/// The options of a queue.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes what is read and written")]
pub(super) struct QueueOptionsView {
    /// Higher goes first where a pop names no queue.
    #[schema(default = 0)]
    priority: Option<i32>,
    /// Seconds that a lease holds.
    #[schema(default = 300)]
    lease_time: Option<u32>,
    /// So many failures bring a message back; the next one makes it a dead letter.
    #[schema(default = 3)]
    retry_limit: Option<u32>,
    /// Milliseconds before a message comes again after its first failure; doubled with each.
    #[schema(default = 1000)]
    retry_delay: Option<u32>,
    /// Milliseconds that this takes at most.
    #[schema(default = 3_600_000)]
    retry_delay_max: Option<u32>,
    /// Seconds after which a message is no longer handed out; none unless it was set, although
    /// 3600 is shown then.
    #[schema(default = 3600)]
    ttl: Option<u32>,
    /// Kept and shown; dead letters are always kept.
    #[schema(default = false)]
    dead_letter_queue: Option<bool>,
    /// Kept and shown; dead letters are always kept.
    #[schema(default = false)]
    dlq_after_max_retries: Option<bool>,
    /// Seconds after its push before a message is handed out.
    #[schema(default = 0)]
    delayed_processing: Option<u32>,
    /// Seconds without a push before a partition is handed out.
    #[schema(default = 0)]
    window_buffer: Option<u32>,
    /// Seconds after which messages are deleted, consumed or not; 0 is never.
    #[schema(default = 0)]
    retention_seconds: Option<u32>,
    /// Seconds after which messages are deleted that every group has consumed; 0 is never.
    #[schema(default = 0)]
    completed_retention_seconds: Option<u32>,
    /// Whether anything is deleted for its age.
    #[schema(default = false)]
    retention_enabled: Option<bool>,
    /// Whether payloads are encrypted.
    #[schema(default = false)]
    encryption_enabled: Option<bool>,
    /// Seconds that a message may wait for a consumer before it is passed over; 0 is for ever.
    #[schema(default = 0)]
    max_wait_time_seconds: Option<u32>,
    /// Messages that may wait for the slowest group; 0 is any number.
    #[schema(default = 0)]
    max_size: Option<u64>,
    /// Seconds in which a transaction id is known again.
    #[schema(default = 3600)]
    dedup_window_seconds: Option<u32>,
    /// Messages that a group may have been handed and not settled; 0 is any number.
    #[schema(default = 0)]
    max_in_flight: Option<u32>,
    /// Messages that a group may be handed in any `ratePeriodSeconds`; 0 is any number.
    #[schema(default = 0)]
    rate_limit: Option<u32>,
    /// See `rateLimit`.
    #[schema(default = 1)]
    rate_period_seconds: Option<u32>,
    /// Like `maxInFlight`, of each key: see `limitKeySeparator`.
    #[schema(default = 0)]
    key_max_in_flight: Option<u32>,
    /// Messages of one key that a group may be handed in any `keyRatePeriodSeconds`; 0 is any
    /// number.
    #[schema(default = 0)]
    key_rate_limit: Option<u32>,
    /// See `keyRateLimit`.
    #[schema(default = 1)]
    key_rate_period_seconds: Option<u32>,
    /// A key is what stands before the first of these in a partition's name; the whole name if
    /// this is empty.
    #[schema(default = "")]
    limit_key_separator: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfiguredAnswer {
    /// True.
    configured: bool,
    queue: String,
    queue_id: String,
    /// Its default partition.
    partition_id: String,
    namespace: String,
    task: String,
    /// As they are now, every one of them.
    #[schema(value_type = QueueOptionsView)]
    options: Value,
    /// Options that were sent and are not known here.
    ignored_options: Vec<String>,
}

/// Make a queue, or change its options
#[utoipa::path(
    post, path = "/api/v1/configure", tag = "queues", extensions(("x-scope" = json!("admin"))),
    request_body = ConfigureRequest,
    responses(
        (status = 200, description = "The queue as it is now", body = ConfiguredAnswer),
        (status = 400, description = "An option is wrong; nothing was changed",
         body = ProblemBody),
        (status = 503, description = "The database cannot be reached", body = ProblemBody)
    )
)]
pub async fn configure(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    RawBody(body): RawBody,
) -> Result<Json<ConfiguredAnswer>, Problem> {
    let queues = queues(&shared)?;
    let body: ConfigureBody<'_> = read::json(&body)?;
    let name: Arc<str> = match &body.queue {
        Given::Text(name) if !name.is_empty() => Arc::from(&**name),
        _ => return Err(wrong("queue", "queue is required")),
    };
    if let Some(flaw) = name_flaw(&name) {
        return Err(wrong("queue", format!("queue {flaw}")));
    }
    let replaces = match &body.mode {
        Given::Nothing => false,
        Given::Text(mode) if mode == "merge" => false,
        Given::Text(mode) if mode == "replace" => true,
        _ => return Err(wrong("mode", "mode must be \"merge\" or \"replace\"")),
    };
    let sent: Map<String, Value> = match body.options {
        None => Map::new(),
        Some(options) => serde_json::from_str(options.get())
            .map_err(|_| wrong("options", "options must be an object"))?,
    };
    let wish = Wish::read(&sent).map_err(|BadOption(option, words)| {
        wrong(&format!("options.{option}"), format!("options.{option}: {words}"))
    })?;
    if wish.encrypts && !queues.has_key() {
        let words = "options.encryptionEnabled: this node has no key to encrypt with; set \
                     queues.encryption_key first";
        return Err(wrong("options.encryptionEnabled", words));
    }
    let ignored_options = wish.ignored.clone();
    let change = Change(Arc::new(move |before: &QueueOptions| match replaces {
        true => wish.apply(&QueueOptions::default()),
        false => wish.apply(before),
    }));
    let configure = Configure {
        name: name.clone(),
        namespace: given_name("namespace", &body.namespace)?,
        task: given_name("task", &body.task)?,
        change,
    };
    let configured = queues.store().configure(configure).await;
    let configured = configured.map_err(|error| store_problem(&error))?;
    // Whoever waits may get something now: a delay may be gone.
    queues.wake(Some(&name));
    note(&shared, &asker, "queues.configure", &name, "").await;
    let queue = configured.queue;
    Ok(Json(ConfiguredAnswer {
        configured: true,
        queue: queue.name.to_string(),
        queue_id: queue.id.uuid().to_string(),
        partition_id: configured.partition.uuid().to_string(),
        namespace: queue.namespace.to_string(),
        task: queue.task.to_string(),
        options: shown(&queue.options),
        ignored_options,
    }))
}
