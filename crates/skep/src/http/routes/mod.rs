//! The routes, a file for each part. Each says in its description which scope it needs, and the
//! guard takes it from there.

mod access;
mod asked;
mod audit;
mod backup;
mod cluster;
mod demo;
mod keys;
mod live;
mod log;
mod monitors;
mod node;
mod nodes;
mod overview;
mod polls;
mod pools;
mod proxy;
mod queues;
mod session;
mod sessions;
mod settings;
mod web;

pub use access::{AccessAnswer, AccessView, Missed};
pub use audit::AuditAnswer;
pub use keys::{CreateBody, CreatedAnswer, KeysAnswer};
pub use node::{NodeAnswer, StoreAnswer};
pub use nodes::NodesAnswer;
pub use overview::OverviewBook;
pub use polls::{
    EndpointView, EndpointsAnswer, ImportAnswer, MoveView, MovesAnswer, OwnersAnswer, PollsAnswer,
    ResultView, ResultsAnswer,
};
pub use pools::{LetterView, LettersAnswer, PoolAnswer, PoolsAnswer, RetryAnswer, StuckAnswer};

pub use queues::{POP_WAIT_MAX, PopTarget, Uncompressed, pop_of};

pub use proxy::{Counts, RouteEventView, RouteEventsAnswer, StatsAnswer};
pub use sessions::{
    CapacityAnswer, KindCapacity, SessionView, SessionsAnswer, SessionsOverview, WorkerView,
    WorkersAnswer, gateway_router, refused_code,
};

use crate::node::Shared;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// What the document says about the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Skep",
        description = "A server in which every piece of work finds its worker. Send a key as \
                       `Authorization: Bearer KEY` or `X-API-Key: KEY`. Errors are \
                       application/problem+json with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(super::problem::ProblemBody))
)]
struct Document;

/// Every route and its description.
pub fn all() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(node::routes())
        .merge(session::routes())
        .merge(keys::routes())
        .merge(access::routes())
        .merge(audit::routes())
        .merge(backup::routes())
        .merge(log::routes())
        .merge(live::routes())
        .merge(overview::routes())
        .merge(pools::routes())
        .merge(nodes::routes())
        .merge(cluster::routes())
        .merge(demo::routes())
        .merge(polls::routes())
        .merge(monitors::routes())
        .merge(proxy::routes())
        .merge(queues::routes())
        .merge(sessions::routes())
        .merge(settings::routes())
        .merge(web::routes())
}
