//! The dashboard's files, which are part of the binary, and the API's description.

use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::HeaderName};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

// `FILES: &[(&str, &[u8])]`, every file of the folder `web`, and `PAGES: &[PageInfo]`, what those
// in `web/pages` say about themselves, in the order of the navigation. Made by the build script.
include!(concat!(env!("OUT_DIR"), "/web_files.rs"));

/// The page that tells the story of a demo.
const DEMO_PAGE: &str = "/demo";

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(index))
        .routes(routes!(asset))
        .routes(routes!(pages))
        .routes(routes!(openapi))
}

struct File {
    bytes: &'static [u8],
    kind: &'static str,
    tag: String,
}

static WEB: LazyLock<HashMap<&'static str, File>> = LazyLock::new(|| {
    let file = |(path, bytes): &(&'static str, &'static [u8])| {
        let tag = format!("\"{}\"", &crate::access::hex(&Sha256::digest(bytes))[..16]);
        (*path, File { bytes, kind: kind_of(path), tag })
    };
    FILES.iter().map(file).collect()
});

/// The dashboard
#[utoipa::path(
    get, path = "/", tag = "dashboard", extensions(("x-scope" = json!("none"))),
    responses((status = 200, description = "Its page", content_type = "text/html", body = String))
)]
async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

/// A file of the dashboard
#[utoipa::path(
    get, path = "/assets/{*path}", tag = "dashboard", extensions(("x-scope" = json!("none"))),
    params(("path" = String, Path, description = "Its path in the folder `web`")),
    responses((status = 200, description = "The file", body = String),
              (status = 404, description = "There is no such file", body = ProblemBody))
)]
async fn asset(Path(path): Path<String>, headers: HeaderMap) -> Response {
    serve(&path, &headers)
}

/// What a page says about itself, for the navigation.
#[derive(Serialize, utoipa::ToSchema)]
struct PageInfo {
    /// Its code, a file in `/assets/pages/`.
    file: &'static str,
    /// Its path in the dashboard's address, after the `#`.
    #[schema(example = "/keys")]
    path: &'static str,
    title: &'static str,
    /// Its place in the navigation, smallest first.
    order: i64,
    /// The scope that its reader needs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    /// The path data of its icon, 24 x 24.
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<&'static str>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PagesAnswer {
    /// In the order of the navigation.
    pages: Vec<&'static PageInfo>,
}

/// Which pages the dashboard has
#[utoipa::path(
    get, path = "/api/v1/pages", tag = "dashboard", extensions(("x-scope" = json!("none"))),
    responses((status = 200, description = "What each says about itself", body = PagesAnswer))
)]
async fn pages(State(shared): State<Arc<Shared>>) -> Json<PagesAnswer> {
    // Where no demo runs, its page would only say so.
    let is_there = |page: &&PageInfo| page.path != DEMO_PAGE || shared.demo.is_some();
    Json(PagesAnswer { pages: PAGES.iter().filter(is_there).collect() })
}

/// This description
#[utoipa::path(
    get, path = "/api/openapi.json", tag = "dashboard", extensions(("x-scope" = json!("none"))),
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], crate::http::document())
}

fn serve(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = WEB.get(path) else {
        return Problem::new(&problem::E_NOT_FOUND, "the dashboard has no such file")
            .into_response();
    };
    // The browser asks whether its copy is still good; a new version shows at once.
    let fixed: [(HeaderName, HeaderValue); 2] = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::ETAG, HeaderValue::from_str(&file.tag).unwrap_or(HeaderValue::from_static(""))),
    ];
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.contains(&file.tag)) {
        return (StatusCode::NOT_MODIFIED, fixed).into_response();
    }
    (fixed, [(header::CONTENT_TYPE, file.kind)], file.bytes).into_response()
}

fn kind_of(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Scope;

    #[test]
    fn every_page_needs_a_scope_that_there_is_or_none() {
        for page in PAGES {
            if let Some(Err(unknown)) = page.needs.map(str::parse::<Scope>) {
                panic!("web/pages/{}: {unknown}", page.file);
            }
        }
    }
}
