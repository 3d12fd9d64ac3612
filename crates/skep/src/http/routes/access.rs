//! The access log: what was asked, and as it is asked.

use super::live::event_stream;
use crate::access::now_ms;
use crate::http::extract::{Asker, Parameters};
use crate::http::problem::{self, Problem, ProblemBody};
use crate::node::Shared;
use crate::settings::Value;
use crate::work::{AccessEntry, AccessFilter, Column, Heard, SCANNED_MAX, Test, store};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};
use skep_policy::explain::{Kind, would};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const PAGE_MAX: u32 = 1_000;

/// How long a text to look for may be.
const TEXT_BYTES_MAX: usize = 512;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(live))
}

/// Which entries are asked for. What is empty is not asked.
#[derive(Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Only this route; `-` for the node's own API.
    route: Option<String>,
    /// A status as in `404`, a class as in `5xx`, or a range as in `500-503`.
    status: Option<String>,
    /// Not before this time, as in `2026-11-15T12:00:00Z`, or so long ago, as in `10m`.
    from: Option<String>,
    /// Not after this time, in the same forms.
    to: Option<String>,
    /// Only from this address, or from those that begin like this, as in `192.0.2.*`.
    address: Option<String>,
    /// Only for this host.
    host: Option<String>,
    /// Only paths that contain this.
    path: Option<String>,
    /// Only what this upstream was asked for.
    upstream: Option<String>,
    /// Only what took at least so long, as in `250ms`.
    min_duration: Option<String>,
    /// Only this method.
    method: Option<String>,
    /// Only actors that contain this.
    actor: Option<String>,
    /// Only the request with this id, as in the answer's `X-Request-Id`.
    request_id: Option<String>,
    /// Of a page: so many entries at most; 100 if left out, 1000 at most.
    limit: Option<u32>,
    /// Of a page: the `next` of the page before.
    before: Option<i64>,
}

fn wrong(field: &str, value: &str, right: &str) -> Problem {
    let value: String = value.chars().take(40).collect();
    let detail = format!("{field}: {value:?} is not {right}");
    Problem::new(&problem::E_QUERY_INVALID, detail)
}

impl Wanted {
    fn filter(&self, now_ms: i64) -> Result<AccessFilter, Problem> {
        let mut filter = AccessFilter::default();
        type Make = fn(&str) -> Test;
        let texts: [(&str, &Option<String>, Column, Make); 7] = [
            ("route", &self.route, Column::Route, |text| {
                Test::Is(if text == "-" { String::new() } else { text.to_owned() })
            }),
            ("host", &self.host, Column::Host, |text| Test::Is(text.to_ascii_lowercase())),
            ("path", &self.path, Column::Path, |text| Test::Contains(text.to_owned())),
            ("upstream", &self.upstream, Column::Upstream, |text| Test::Is(text.to_owned())),
            ("method", &self.method, Column::Method, |text| Test::Is(method(text))),
            ("actor", &self.actor, Column::Actor, |text| Test::Contains(text.to_owned())),
            ("request_id", &self.request_id, Column::RequestId, |text| Test::Is(text.to_owned())),
        ];
        for (name, given, column, make) in texts {
            let Some(text) = asked(given) else { continue };
            if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
                let right = format!("a text of at most {TEXT_BYTES_MAX} bytes without zeros");
                return Err(wrong(name, text, &right));
            }
            filter = filter.and(column, make(text));
        }
        if let Some(text) = asked(&self.status) {
            let (lowest, highest) = statuses(text).ok_or_else(|| {
                wrong(
                    "status",
                    text,
                    "a status such as 404, a class such as 5xx or a range such as 500-503",
                )
            })?;
            filter = filter
                .and(Column::Status, Test::AtLeast(lowest))
                .and(Column::Status, Test::AtMost(highest));
        }
        if let Some(text) = asked(&self.from) {
            filter = filter.and(Column::At, Test::AtLeast(moment("from", text, now_ms)?));
        }
        if let Some(text) = asked(&self.to) {
            filter = filter.and(Column::At, Test::AtMost(moment("to", text, now_ms)?));
        }
        if let Some(text) = asked(&self.address) {
            let test = address(text).ok_or_else(|| {
                wrong(
                    "address",
                    text,
                    "an address such as 192.0.2.7 or the beginning of one such as 192.0.2.*",
                )
            })?;
            filter = filter.and(Column::Address, test);
        }
        if let Some(text) = asked(&self.min_duration) {
            let least = Duration::parse(text)
                .map_err(|_| wrong("min_duration", text, &Duration::expected()))?;
            let micros = i64::try_from(least.as_micros()).unwrap_or(i64::MAX);
            filter = filter.and(Column::Duration, Test::AtLeast(micros));
        }
        Ok(filter)
    }
}

fn asked(given: &Option<String>) -> Option<&str> {
    given.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// Methods are kept as they were sent, which is in capitals, but for one word.
fn method(text: &str) -> String {
    if text.eq_ignore_ascii_case("other") { "other".to_owned() } else { text.to_ascii_uppercase() }
}

/// `404` is one status, `5xx` a hundred, `500-503` four.
fn statuses(text: &str) -> Option<(i64, i64)> {
    let one = |text: &str| text.parse().ok().filter(|status| (100..=599).contains(status));
    if let Some(class) = text.to_ascii_lowercase().strip_suffix("xx") {
        let class: i64 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let (lowest, highest) = match text.split_once('-') {
        Some((lowest, highest)) => (one(lowest.trim())?, one(highest.trim())?),
        None => (one(text)?, one(text)?),
    };
    (lowest <= highest).then_some((lowest, highest))
}

fn moment(field: &str, text: &str, now_ms: i64) -> Result<i64, Problem> {
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return Ok(stamp.as_millisecond());
    }
    let ago = Duration::parse(text).map_err(|_| {
        wrong(field, text, "a time such as 2026-11-15T12:00:00Z or 10m, for 10 minutes ago")
    })?;
    Ok(now_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)))
}

/// An address as it is kept, or the beginning of one.
fn address(text: &str) -> Option<Test> {
    match text.strip_suffix('*') {
        Some(begin) => {
            let plain = |byte: u8| byte.is_ascii_hexdigit() || b".:".contains(&byte);
            let fits = !begin.is_empty() && begin.bytes().all(plain);
            fits.then(|| Test::Begins(begin.to_ascii_lowercase()))
        }
        None => {
            let exact: IpAddr = text.parse().ok()?;
            Some(Test::Is(exact.to_canonical().to_string()))
        }
    }
}

/// A request, as it is logged.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessView {
    #[serde(flatten)]
    pub entry: AccessEntry,
    /// What `skep explain` takes.
    #[schema(example = "request:r-6cab547cd74f-18")]
    pub explain: String,
    /// What would make its answer another one; empty if it was a good one.
    pub would_change: String,
}

impl AccessView {
    fn of(entry: AccessEntry) -> Self {
        let explain = Kind::Request.id(&entry.request_id);
        let would_change = would::request(entry.status, &entry.error).to_owned();
        AccessView { entry, explain, would_change }
    }
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct AccessAnswer {
    /// The newest first.
    pub entries: Vec<AccessView>,
    /// What to send as `before` for the next page; nothing if this is the last.
    pub next: Option<i64>,
    /// There may be more in what is older: the page is not full because `scanned_max` entries were
    /// looked at. `next` goes on from there.
    pub stopped_early: bool,
    /// So many entries are looked at for a page, at most.
    pub scanned_max: i64,
}

/// The access log of all nodes, the newest first
///
/// A time is found by the order in which entries were written. One that was written more than a
/// minute later than others of its time, because the database was away, may not be found by it.
#[utoipa::path(
    get, path = "/api/v1/access", tag = "access-log", extensions(("x-scope" = json!("admin"))),
    params(Wanted),
    responses(
        (status = 200, description = "A page", body = AccessAnswer),
        (status = 400, description = "Something cannot be asked like this", body = ProblemBody)
    )
)]
async fn list(
    State(shared): State<Arc<Shared>>,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Json<AccessAnswer>, Problem> {
    let limit = wanted.limit.unwrap_or(100).clamp(1, PAGE_MAX);
    let filter = wanted.filter(now_ms())?;
    let database = shared.stores.database();
    let page = store::access_page(database, &filter, wanted.before, limit, SCANNED_MAX).await?;
    Ok(Json(AccessAnswer {
        entries: page.entries.into_iter().map(AccessView::of).collect(),
        next: page.next,
        stopped_early: page.stopped_early,
        scanned_max: SCANNED_MAX,
    }))
}

/// Entries that came faster than they were taken.
#[derive(Serialize, Deserialize, utoipa::ToSchema)]
pub struct Missed {
    /// So many, those that were not asked for included.
    pub missed: u64,
}

/// The requests to this node as they are answered, as server-sent events named `entry`
///
/// Whoever is too slow misses some, and hears how many in an event named `missed`.
#[utoipa::path(
    get, path = "/api/v1/access/live", tag = "access-log", extensions(("x-scope" = json!("admin"))),
    params(Wanted),
    responses(
        (status = 200, description = "A stream of entries", content_type = "text/event-stream",
         body = AccessView),
        (status = 400, description = "Something cannot be asked like this", body = ProblemBody),
        (status = 404, description = "This node keeps no access log", body = ProblemBody),
        (status = 503, description = "There are too many streams", body = ProblemBody)
    )
)]
async fn live(
    State(shared): State<Arc<Shared>>,
    asker: Asker,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Response, Problem> {
    for (field, is_given) in
        [("limit", wanted.limit.is_some()), ("before", wanted.before.is_some())]
    {
        if is_given {
            let detail = format!("{field}: a live stream has no pages, leave it out");
            return Err(Problem::new(&problem::E_QUERY_INVALID, detail));
        }
    }
    let filter = wanted.filter(now_ms())?;
    let log = shared.work.access_log.as_ref().ok_or_else(|| {
        let detail = "this node keeps no access log; set `access_log.enabled` or `access_log.file`";
        Problem::new(&problem::E_NOT_FOUND, detail)
    })?;
    let events = stream::unfold((log.follow(), filter), async |(mut follower, filter)| {
        let heard = follower.next(&filter).await?;
        Some((event(&heard), (follower, filter)))
    });
    event_stream(&shared, asker, events.filter_map(std::future::ready))
}

fn event(heard: &Heard) -> Option<Event> {
    match heard {
        Heard::Entry(entry) => {
            Event::default().event("entry").json_data(AccessView::of(entry.as_ref().clone()))
        }
        Heard::Missed(missed) => {
            Event::default().event("missed").json_data(Missed { missed: *missed })
        }
    }
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(set: impl FnOnce(&mut Wanted)) -> Result<AccessFilter, Problem> {
        let mut wanted = Wanted::default();
        set(&mut wanted);
        wanted.filter(1_000_000)
    }

    #[test]
    fn what_is_empty_is_not_asked() {
        let filter = wanted(|one| {
            one.status = Some(" ".to_owned());
            one.from = Some(String::new());
        });
        assert!(filter.is_ok_and(|filter| filter == AccessFilter::default()));
    }

    #[test]
    fn statuses_are_one_a_class_or_a_range() {
        assert_eq!(statuses("404"), Some((404, 404)));
        assert_eq!(statuses("5XX"), Some((500, 599)));
        assert_eq!(statuses("500-503"), Some((500, 503)));
        for text in ["6xx", "99", "600", "503-500", "5x", "-", "400-", "banana", "+5xx0"] {
            assert_eq!(statuses(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_stamps_or_ages() {
        let at = |text: &str| moment("from", text, 1_000_000).ok();
        assert_eq!(at("10m"), Some(400_000));
        assert_eq!(at("1970-01-01T00:00:05Z"), Some(5_000));
        for text in ["yesterday", "10", "2026-11-15"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn addresses_are_whole_or_end_in_a_star() {
        assert_eq!(address("::ffff:192.0.2.7"), Some(Test::Is("192.0.2.7".to_owned())));
        assert_eq!(address("2001:DB8::1"), Some(Test::Is("2001:db8::1".to_owned())));
        assert_eq!(address("192.0.2.*"), Some(Test::Begins("192.0.2.".to_owned())));
        for text in ["192.0.2.0/24", "*", "192.0.2", "home*"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
