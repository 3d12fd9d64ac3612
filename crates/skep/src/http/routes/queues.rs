//! Messages: push, pop, acknowledge. The paths, fields and statuses are those that existing clients
//! of queues know; every error has both `error`, which they read, and the fields of other routes.

mod ack;
mod admin;
mod analytics;
mod configure;
mod dead;
mod export;
mod group_list;
mod groups;
mod later;
mod lease;
mod maintenance;
mod messages;
mod missing;
mod options;
mod pop;
mod push;
mod query;
mod read;
mod redrives;
mod refuse;
mod resources;
mod schedules;
mod status;
mod tail;
mod traces;
mod transaction;
mod wishes;
mod write;

pub use pop::{PopTarget, WAIT_MAX as POP_WAIT_MAX, pop_of};
pub use write::Uncompressed;

use crate::access::{Caller, Who};
use crate::http::extract::Asker;
use crate::http::problem::{self, Problem};
use crate::node::Shared;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use skep_policy::Time;
use skep_policy::queues::LeaseId;
use skep_queues::Queues;
use skep_queues::store::{QUEUE_MODE, QueueStore};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(configure::configure))
        .routes(routes!(push::push))
        .routes(routes!(pop::pop_queue))
        .routes(routes!(pop::pop_partition))
        .routes(routes!(pop::pop_matching))
        .routes(routes!(ack::ack))
        .routes(routes!(ack::ack_batch))
        .routes(routes!(transaction::transaction))
        .routes(routes!(lease::extend))
        .routes(routes!(dead::list, dead::delete_some))
        .routes(routes!(dead::show, dead::delete))
        .routes(routes!(dead::retry))
        .routes(routes!(admin::list))
        .routes(routes!(admin::show, admin::delete))
        .routes(routes!(resources::depth))
        .routes(routes!(resources::partitions_of_queue))
        .routes(routes!(resources::partitions))
        .routes(routes!(resources::namespaces))
        .routes(routes!(resources::tasks))
        .routes(routes!(resources::overview))
        .routes(routes!(messages::list::list))
        .routes(routes!(messages::show, messages::delete))
        .routes(routes!(messages::retry))
        .routes(routes!(messages::set_aside))
        .routes(routes!(export::export))
        .routes(routes!(later::list))
        .routes(routes!(later::delete))
        .routes(routes!(later::clear))
        .routes(routes!(group_list::list))
        .routes(routes!(group_list::lagging))
        .routes(routes!(group_list::show, groups::delete))
        .routes(routes!(group_list::subscribe))
        .routes(routes!(groups::seek))
        .routes(routes!(groups::seek_partition))
        .routes(routes!(groups::delete_of_queue))
        .merge(operations())
        .merge(missing())
}

/// What an operator needs around the messages.
fn operations() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(traces::write))
        .routes(routes!(traces::names))
        .routes(routes!(traces::by_name))
        .routes(routes!(traces::of_message))
        .routes(routes!(maintenance::show, maintenance::set))
        .routes(routes!(maintenance::show_pop, maintenance::set_pop))
        .routes(routes!(status::node))
        .routes(routes!(status::queues_page))
        .routes(routes!(status::queue))
        .routes(routes!(analytics::status_analytics))
        .routes(routes!(analytics::queue_ops))
        .routes(routes!(analytics::queue_lag))
        .routes(routes!(analytics::system_metrics))
        .routes(routes!(analytics::worker_metrics))
        .routes(routes!(analytics::retention))
        .routes(routes!(analytics::postgres_stats))
        .routes(routes!(analytics::refresh))
        .routes(routes!(schedules::list, schedules::make))
        .routes(routes!(schedules::show, schedules::replace, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::fire))
        .routes(routes!(redrives::make))
        .routes(routes!(redrives::list))
        .routes(routes!(redrives::show, redrives::stop))
        .routes(routes!(tail::tail))
}

/// What is answered with 501.
fn missing() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(missing::kv))
        .routes(routes!(missing::kv_rest))
        .routes(routes!(missing::timers))
        .routes(routes!(missing::timers_rest))
        .routes(routes!(missing::locks))
        .routes(routes!(missing::locks_rest))
        .routes(routes!(missing::ephemeral))
        .routes(routes!(missing::ephemeral_rest))
        .routes(routes!(missing::fetch))
        .routes(routes!(missing::fetch_rest))
        .routes(routes!(missing::changed))
        .routes(routes!(missing::changed_rest))
        .routes(routes!(missing::streams))
        .routes(routes!(missing::streams_rest))
}

/// Items of one request at most.
const ITEMS_MAX: usize = 100_000;

/// When to ask again a node that is starting.
const STARTS: Duration = Duration::from_secs(1);

/// The queues, or that the node is still starting.
fn queues(shared: &Shared) -> Result<&Queues, Problem> {
    shared.queues.get().ok_or_else(|| {
        let detail = "there was no connection to the database yet";
        Problem::new(&problem::E_STARTING, detail).plain().retry_after(STARTS)
    })
}

/// Whether a queue has a partition of this name.
async fn partition_is_there(
    store: &QueueStore,
    queue: &str,
    partition: &str,
) -> Result<bool, Problem> {
    // Of those that begin with a name the one that is just it comes first.
    let found = store.partitions(queue, None, Some(partition), 1).await;
    let found = found.map_err(|error| refuse::store_problem(&error))?;
    Ok(found.first().is_some_and(|row| *row.name == *partition))
}

/// Now, by this machine's clock. Nothing but delays, and ages that are shown, is reckoned with it.
fn now() -> Time {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Time::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

/// The group that is meant: those who name none have one of their own.
fn group_or_none(group: Option<Arc<str>>) -> Arc<str> {
    group.unwrap_or_else(|| Arc::from(QUEUE_MODE))
}

/// The lease with this id. One that was never given out holds nothing, and is refused where it is
/// looked for.
fn lease_of(text: &str) -> LeaseId {
    LeaseId(Uuid::try_parse(text).map_or(0, |uuid| uuid.as_u128()))
}

/// Who pushes, by the name of the key. Nobody in particular without one.
struct Producer(Option<Arc<str>>);

impl<S: Send + Sync> FromRequestParts<S> for Producer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>();
        Ok(Producer(caller.and_then(|caller| match &caller.who {
            Who::Key { name, .. } | Who::Login { name, .. } => Some(Arc::from(name.as_str())),
            Who::Local | Who::Anyone => None,
        })))
    }
}

/// Writes down what somebody did to a queue or a group.
async fn note(shared: &Shared, asker: &Asker, action: &'static str, target: &str, detail: &str) {
    super::asked::note(shared, asker, action, (target, detail)).await;
}
