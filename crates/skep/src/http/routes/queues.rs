//! Messages: push, pop, acknowledge. The paths, fields and statuses are those that existing clients
//! of queues know; every error has both `error`, which they read, and the fields of other routes.

mod ack;
mod admin;
mod configure;
mod dead;
mod groups;
mod lease;
mod options;
mod pop;
mod push;
mod read;
mod refuse;
mod transaction;
mod wishes;
mod write;

pub use pop::WAIT_MAX as POP_WAIT_MAX;
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
use skep_queues::store::QUEUE_MODE;
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
        .routes(routes!(dead::list))
        .routes(routes!(admin::list))
        .routes(routes!(admin::show, admin::delete))
        .routes(routes!(groups::seek))
        .routes(routes!(groups::seek_partition))
        .routes(routes!(groups::delete))
        .routes(routes!(groups::delete_of_queue))
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

/// Now, by this machine's clock. Nothing but delays is reckoned with it.
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
    let who = (&asker.known(), &*asker.address.to_string());
    shared.access.try_record(shared.stores.database(), who, action, (target, detail)).await;
}
