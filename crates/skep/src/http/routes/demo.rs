//! The demo that this node belongs to: its story, and tasks that only take time.

use crate::demo::{COUNT_MAX, Counts, DemoPlace, EVENTS_MAX, MILLIS_MAX, Story, Taken, Wanted};
use crate::http::extract::Body;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(story, tell)).routes(routes!(counts, take))
}

fn place(shared: &Shared) -> Result<&DemoPlace, Problem> {
    shared.demo.as_ref().ok_or_else(|| {
        let detail = "this node belongs to no demo; `skep demo` starts one, with nodes of its own";
        Problem::new(&problem::E_DEMO_NONE, detail)
    })
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = DemoAnswer)]
struct StoryAnswer {
    /// Grows whenever the story does.
    version: u64,
    #[serde(flatten)]
    #[schema(inline)]
    story: Story,
}

/// The story of the demo so far, and what comes next
#[utoipa::path(
    get, path = "/api/v1/demo", tag = "demo", extensions(("x-scope" = json!("read"))),
    responses(
        (status = 200, description = "The story", body = StoryAnswer),
        (status = 404, description = "The node belongs to no demo", body = ProblemBody)
    )
)]
async fn story(State(shared): State<Arc<Shared>>) -> Result<Json<StoryAnswer>, Problem> {
    let (version, story) = place(&shared)?.story();
    Ok(Json(StoryAnswer { version, story: Story::clone(&story) }))
}

/// Tell the story anew; `skep demo` does
#[utoipa::path(
    put, path = "/api/v1/demo", tag = "demo", extensions(("x-scope" = json!("admin"))),
    request_body = Story,
    responses(
        (status = 204, description = "It is told"),
        (status = 400, description = "It is too long", body = ProblemBody),
        (status = 404, description = "The node belongs to no demo", body = ProblemBody)
    )
)]
async fn tell(
    State(shared): State<Arc<Shared>>,
    Body(story): Body<Story>,
) -> Result<StatusCode, Problem> {
    let place = place(&shared)?;
    if story.events.len() > EVENTS_MAX {
        let count = story.events.len();
        let detail = format!("events: {count} are too many, send the last {EVENTS_MAX}");
        return Err(Problem::field("events", detail));
    }
    place.tell(story);
    Ok(StatusCode::NO_CONTENT)
}

/// What became of the demo's tasks on this node
#[utoipa::path(
    get, path = "/api/v1/demo/tasks", tag = "demo", extensions(("x-scope" = json!("read"))),
    responses(
        (status = 200, description = "Since the node started", body = Counts),
        (status = 404, description = "The node belongs to no demo", body = ProblemBody)
    )
)]
async fn counts(State(shared): State<Arc<Shared>>) -> Result<Json<Counts>, Problem> {
    Ok(Json(place(&shared)?.tasks.counts(|| shared.work.letters_waiting())))
}

/// Give the pools of this node tasks that only take time
#[utoipa::path(
    post, path = "/api/v1/demo/tasks", tag = "demo", extensions(("x-scope" = json!("admin"))),
    request_body = Wanted,
    responses(
        (status = 200, description = "How many the pools took", body = Taken),
        (status = 400, description = "It is too much at once", body = ProblemBody),
        (status = 404, description = "The node belongs to no demo", body = ProblemBody)
    )
)]
async fn take(
    State(shared): State<Arc<Shared>>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Taken>, Problem> {
    let place = place(&shared)?;
    if !(1..=COUNT_MAX).contains(&wanted.count) {
        let detail = format!("count: {} is not from 1 to {COUNT_MAX}", wanted.count);
        return Err(Problem::field("count", detail));
    }
    if wanted.millis > MILLIS_MAX {
        let detail = format!("millis: {} is more than {MILLIS_MAX}", wanted.millis);
        return Err(Problem::field("millis", detail));
    }
    if wanted.dying.saturating_add(wanted.stumbling) > wanted.count {
        let detail = "dying: together with `stumbling` they are more than `count`";
        return Err(Problem::field("dying", detail));
    }
    Ok(Json(place.tasks.take(&shared.work.pools, &wanted).await))
}
