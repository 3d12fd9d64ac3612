//! Changes of routes. Those of a file are changed there.

use super::views::{self, RouteAnswer};
use super::{answer, named, note, ready, unknown};
use crate::access::now_ms;
use crate::http::extract::{Asker, Body, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use skep_routes::spec::{Flaw, RouteSpec};
use skep_routes::store::{Deleted, Put};
use std::sync::Arc;
use std::time::Duration;

/// Names that would hide behind paths of the API.
const TAKEN: [&str; 4] = ["events", "reload", "stats", "test"];

/// How often a change that others interfere with is tried again.
const ATTEMPTS_MAX: u32 = 5;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Expected {
    /// The version it must have, as `If-Match` says it too; any if left out.
    version: Option<i64>,
}

/// The version that was named, in one way or the other.
fn expected(headers: &HeaderMap, query: &Expected) -> Result<Option<i64>, Problem> {
    let Some(given) = headers.get(header::IF_MATCH) else { return Ok(query.version) };
    let text = given.to_str().unwrap_or_default().trim();
    if text == "*" && query.version.is_none() {
        return Ok(None);
    }
    let number = text.trim_matches('"').parse::<i64>().ok();
    match (number, query.version) {
        (Some(number), None) => Ok(Some(number)),
        (Some(number), Some(version)) if number == version => Ok(Some(number)),
        _ => {
            let shown: String = text.chars().take(40).collect();
            let detail =
                format!("If-Match: {shown:?} is not allowed; give the version, as in \"7\", once");
            Err(Problem::new(&problem::E_QUERY_INVALID, detail))
        }
    }
}

fn invalid(flaws: &[Flaw]) -> Problem {
    let told = flaws.iter().map(views::flaw).collect();
    Problem::new(&problem::E_ROUTE_INVALID, Flaw::all(flaws)).flaws(told)
}

/// Refuses what a file of this node has.
fn not_of_file(shared: &Shared, name: &str, place: Option<(&str, &str)>) -> Result<(), Problem> {
    let known = shared.routes.known();
    let Some((found, line)) = known.of_file(name, place) else { return Ok(()) };
    let detail = match found == name {
        true => format!("the route {name:?} stands in {line}; change it there and reload"),
        false => {
            format!("the route {found:?} of {line} is for the same host and path; give another")
        }
    };
    Err(Problem::new(&problem::E_ROUTE_OF_FILE, detail))
}

/// A route as it was sent, if it can be served here.
fn read(shared: &Shared, body: &Value) -> Result<RouteSpec, Problem> {
    let spec = RouteSpec::parse(body).map_err(|flaws| invalid(&flaws))?;
    let denied = shared.routes.flaws_of_reach(&spec);
    if !denied.is_empty() {
        let told = denied.iter().map(views::flaw).collect();
        return Err(Problem::new(&problem::E_ADDRESS_DENIED, Flaw::all(&denied)).flaws(told));
    }
    let mut flaws = shared.routes.flaws_here(&spec);
    if TAKEN.contains(&spec.name.as_str()) {
        let name = Value::from(spec.name.as_str());
        flaws.push(Flaw::with("name", &name, "the API has a path of this name; give another"));
    }
    if !flaws.is_empty() {
        return Err(invalid(&flaws));
    }
    not_of_file(shared, &spec.name, Some((&spec.host, &spec.path)))?;
    Ok(spec)
}

/// Whether it is new, or why it could not be put.
fn outcome(spec: &RouteSpec, put: Put, creating: bool) -> Result<bool, Problem> {
    let name = &spec.name;
    match put {
        Put::Created { .. } => Ok(true),
        Put::Updated { .. } | Put::Unchanged { .. } => Ok(false),
        Put::Conflict { .. } if creating => {
            let detail = format!("there is a route {name:?}; change it with PUT, or give another");
            Err(Problem::new(&problem::E_ROUTE_EXISTS, detail))
        }
        Put::Conflict { version: 0 } => Err(unknown(name)),
        Put::Conflict { version } => {
            let detail = format!("the route {name:?} has version {version} by now");
            Err(Problem::new(&problem::E_ROUTE_CHANGED, detail))
        }
        Put::Taken { by } => {
            let (host, path) = (&spec.host, &spec.path);
            let detail = format!("{host}{path} belongs to the route {by:?}; give another place");
            Err(Problem::new(&problem::E_ROUTE_EXISTS, detail))
        }
        Put::Full { max } => {
            let detail = format!("there are {max} routes; delete one first");
            Err(Problem::new(&problem::E_ROUTES_MAX, detail))
        }
        Put::Flawed(flaws) => Err(invalid(&flaws)),
    }
}

/// Keeps a route and serves it.
async fn put(
    shared: &Shared,
    asker: &Asker,
    spec: &RouteSpec,
    (expected, creating): (Option<i64>, bool),
) -> Result<Response, Problem> {
    let by = asker.known().actor().into_owned();
    let put = shared.routes.store.put(spec, expected, &by, now_ms()).await?;
    let is_new = outcome(spec, put, creating)?;
    let action = if is_new { "routes.create" } else { "routes.replace" };
    note(shared, asker, action, (&spec.name, "")).await;
    served(shared).await?;
    let mut response = answer(shared, asker, &spec.name)?;
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// This node serves what was changed before it says so.
async fn served(shared: &Shared) -> Result<(), Problem> {
    shared.routes.sync().await.map_err(|error| {
        let detail = format!(
            "the change is kept, and served as soon as the database can be read again: {error}"
        );
        Problem::new(&problem::E_STORE_AWAY, detail).retry_after(Duration::from_secs(1))
    })
}

/// Add a route
#[utoipa::path(
    post, path = "/api/v1/routes", tag = "routes", extensions(("x-scope" = json!("admin"))),
    request_body = Object,
    responses(
        (status = 201, description = "It is served here, and within a second on all nodes",
         body = RouteAnswer),
        (status = 200, description = "It was there already, exactly so", body = RouteAnswer),
        (status = 400, description = "It is no route; every flaw is named", body = ProblemBody),
        (status = 409, description = "There is one of this name or for this host and path, or \
         there are too many", body = ProblemBody)
    )
)]
pub async fn create(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Body(body): Body<Value>,
) -> Result<Response, Problem> {
    ready(&shared)?;
    let spec = read(&shared, &body)?;
    put(&shared, &asker, &spec, (Some(0), true)).await
}

/// Replace a route, or add it
#[utoipa::path(
    put, path = "/api/v1/routes/{name}", tag = "routes", extensions(("x-scope" = json!("admin"))),
    request_body = Object,
    params(("name" = String, Path, description = "Its name"), Expected),
    responses(
        (status = 200, description = "It is served like that from now on", body = RouteAnswer),
        (status = 201, description = "There was none; it is served from now on",
         body = RouteAnswer),
        (status = 400, description = "It is no route; every flaw is named", body = ProblemBody),
        (status = 404, description = "A version was named, and there is none", body = ProblemBody),
        (status = 409, description = "Somebody else changed it meanwhile, or it is of a file",
         body = ProblemBody)
    )
)]
pub async fn replace(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
    Parameters(query): Parameters<Expected>,
    headers: HeaderMap,
    Body(body): Body<Value>,
) -> Result<Response, Problem> {
    ready(&shared)?;
    let body = named(body, "name", &name)?;
    let expected = expected(&headers, &query)?;
    let spec = read(&shared, &body)?;
    put(&shared, &asker, &spec, (expected, false)).await
}

/// Delete a route; what went over it is kept until it is old
#[utoipa::path(
    delete, path = "/api/v1/routes/{name}", tag = "routes",
    extensions(("x-scope" = json!("admin"))),
    params(("name" = String, Path, description = "Its name"), Expected),
    responses((status = 204, description = "It is gone; requests on their way go on"),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 409, description = "Somebody else changed it meanwhile, or it is of a file",
               body = ProblemBody))
)]
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
    Parameters(query): Parameters<Expected>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    ready(&shared)?;
    let expected = expected(&headers, &query)?;
    match shared.routes.store.delete(&name, expected).await? {
        Deleted::Done { .. } => {}
        // One of the API that hides behind one of the file can be deleted.
        Deleted::Missing => {
            not_of_file(&shared, &name, None)?;
            return Err(unknown(&name));
        }
        Deleted::Conflict { version } => {
            let detail = format!("the route {name:?} has version {version} by now");
            return Err(Problem::new(&problem::E_ROUTE_CHANGED, detail));
        }
    }
    note(&shared, &asker, "routes.delete", (&name, "")).await;
    served(&shared).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceBody {
    /// Whether it begins or ends.
    enabled: bool,
}

/// Close a route for maintenance, or open it again
#[utoipa::path(
    post, path = "/api/v1/routes/{name}/maintenance", tag = "routes",
    extensions(("x-scope" = json!("admin"))), request_body = MaintenanceBody,
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "It is so from now on", body = RouteAnswer),
              (status = 404, description = "There is none", body = ProblemBody),
              (status = 409, description = "It is of a file", body = ProblemBody))
)]
pub async fn maintenance(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Path(name): Path<String>,
    Body(body): Body<MaintenanceBody>,
) -> Result<Response, Problem> {
    ready(&shared)?;
    not_of_file(&shared, &name, None)?;
    let by = asker.known().actor().into_owned();
    for _ in 0..ATTEMPTS_MAX {
        let stored = shared.routes.store.get(&name).await?.ok_or_else(|| unknown(&name))?;
        let mut spec = stored.read().map_err(|error| {
            Problem::new(&problem::E_ROUTE_INVALID, format!("the route {name:?}: {error}"))
        })?;
        spec.maintenance.enabled = body.enabled;
        let version = Some(stored.version);
        match shared.routes.store.put(&spec, version, &by, now_ms()).await? {
            // Somebody changed something else at the same moment.
            Put::Conflict { .. } => {}
            put => {
                outcome(&spec, put, false)?;
                let detail = if body.enabled { "on" } else { "off" };
                note(&shared, &asker, "routes.maintenance", (&name, detail)).await;
                served(&shared).await?;
                return answer(&shared, &asker, &name);
            }
        }
    }
    let detail = format!("the route {name:?} is being changed all the time; try again");
    Err(Problem::new(&problem::E_ROUTE_CHANGED, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn version(header: Option<&'static str>, version: Option<i64>) -> Result<Option<i64>, String> {
        let mut headers = HeaderMap::new();
        if let Some(text) = header {
            headers.insert(header::IF_MATCH, HeaderValue::from_static(text));
        }
        expected(&headers, &Expected { version }).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_version_is_named_by_the_query_or_by_if_match_and_never_by_two() {
        assert_eq!(version(None, None), Ok(None));
        assert_eq!(version(None, Some(7)), Ok(Some(7)));
        assert_eq!(version(Some("\"7\""), None), Ok(Some(7)));
        assert_eq!(version(Some("7"), Some(7)), Ok(Some(7)));
        assert_eq!(version(Some("*"), None), Ok(None));
        for (header, query) in [("\"7\"", Some(8)), ("W/\"7\"", None), ("\"a\"", None)] {
            let wrong = version(Some(header), query).expect_err(header);
            assert!(wrong.contains("give the version"), "{wrong}");
        }
    }
}
