//! What went over routes, minute by minute, of all nodes together.

use super::views::{Counts, MinuteView, read_minute};
use crate::access::now_ms;
use crate::http::extract::Parameters;
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use skep_policy::routes::rollup::Minute;
use skep_routes::store::{MinuteFilter, ROWS_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far back one answer goes: as far as minutes are kept.
const MINUTES_MAX: u32 = 30 * 24 * 60;

/// Points of one answer at most; minutes are put together so that it is kept.
const POINTS_MAX: u32 = 1_440;

/// Rows that one answer is made of at most.
const SEEN_MAX: usize = 200_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Span {
    /// So many minutes up to now; 60 if left out, 30 days at most.
    minutes: Option<u32>,
    /// So many minutes make one point; as few as give 1,440 points at most if left out.
    step: Option<u32>,
}

impl Span {
    /// Minutes and step.
    fn check(&self) -> Result<(u32, u32), Problem> {
        let minutes = within("minutes", self.minutes.unwrap_or(60), 1, MINUTES_MAX)?;
        let least = minutes.div_ceil(POINTS_MAX);
        let step = within("step", self.step.unwrap_or(least), least, minutes)?;
        Ok((minutes, step))
    }
}

fn within(name: &str, value: u32, least: u32, most: u32) -> Result<u32, Problem> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let detail = format!("`{name}` cannot be {value}, it must be from {least} to {most}");
    Err(Problem::new(&problem::E_QUERY_INVALID, detail))
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct StatsAnswer {
    /// When the first minute began, in milliseconds since 1970.
    pub from_ms: i64,
    /// So many minutes, the one that is not over included. Nodes write what they have seen every
    /// ten seconds.
    pub minutes: u32,
    /// So many minutes are one point.
    pub step: u32,
    /// Whether everything is in it; there is a limit to how much is added up at once.
    pub complete: bool,
    /// All of it.
    pub total: Counts,
    /// By route.
    pub routes: BTreeMap<String, Counts>,
    /// Steps in which something happened, oldest first, each from a multiple of the step on.
    pub points: Vec<MinuteView>,
}

async fn collect(
    shared: &Shared,
    route: Option<String>,
    span: &Span,
) -> Result<StatsAnswer, Problem> {
    let (minutes, step) = span.check()?;
    super::ready(shared)?;
    let to = now_ms().div_euclid(60_000) + 1;
    let from = to - i64::from(minutes);
    // A node whose clock is ahead of this one's has its last minutes too.
    let mut filter = MinuteFilter { route, from, to: to + 1, after: None };
    let mut total = Minute::default();
    let (mut routes, mut points) = (BTreeMap::new(), BTreeMap::new());
    let (mut seen, mut complete) = (0, true);
    loop {
        let rows = shared.routes.store.minutes(&filter, ROWS_MAX).await?;
        seen += rows.len();
        for row in &rows {
            let minute = read_minute(row);
            total.merge(&minute);
            let of_route: &mut Minute = routes.entry(row.key.route.clone()).or_default();
            of_route.merge(&minute);
            let start = row.key.minute - row.key.minute.rem_euclid(i64::from(step));
            let at: &mut Minute = points.entry(start).or_default();
            at.merge(&minute);
        }
        match rows.last() {
            Some(last) if rows.len() == ROWS_MAX => filter.after = Some(last.key.clone()),
            _ => break,
        }
        if seen >= SEEN_MAX {
            complete = false;
            break;
        }
    }
    let point = |(minute, of): (i64, Minute)| MinuteView {
        at_ms: minute * 60_000,
        counts: Counts::of(&of),
    };
    Ok(StatsAnswer {
        from_ms: from * 60_000,
        minutes,
        step,
        complete,
        total: Counts::of(&total),
        routes: routes.into_iter().map(|(name, of)| (name, Counts::of(&of))).collect(),
        points: points.into_iter().map(point).collect(),
    })
}

/// What went over all routes, on all nodes
#[utoipa::path(
    get, path = "/api/v1/routes/stats", tag = "routes", extensions(("x-scope" = json!("read"))),
    params(Span),
    responses((status = 200, description = "Counts and durations", body = StatsAnswer),
              (status = 400, description = "A parameter is out of bounds", body = ProblemBody),
              (status = 503, description = "The database cannot be reached", body = ProblemBody))
)]
pub async fn stats(
    State(shared): State<Arc<Shared>>,
    Parameters(span): Parameters<Span>,
) -> Result<Json<StatsAnswer>, Problem> {
    collect(&shared, None, &span).await.map(Json)
}

/// What went over one route, on all nodes
#[utoipa::path(
    get, path = "/api/v1/routes/{name}/stats", tag = "routes",
    extensions(("x-scope" = json!("read"))),
    params(("name" = String, Path, description = "Its name"), Span),
    responses((status = 200, description = "Counts and durations", body = StatsAnswer),
              (status = 404, description = "There is none, and was none", body = ProblemBody))
)]
pub async fn stats_of(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Parameters(span): Parameters<Span>,
) -> Result<Json<StatsAnswer>, Problem> {
    let answer = collect(&shared, Some(name.clone()), &span).await?;
    // What is gone may still be looked at.
    if answer.total.requests == 0 && shared.routes.known().get(&name).is_none() {
        return Err(super::unknown(&name));
    }
    Ok(Json(answer))
}
