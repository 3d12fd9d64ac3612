//! Around every request: who asks and whether they may, and its limits.

use super::intent::{
    CSRF_TOKEN, changes, check_host, check_intent, check_one_host, cross_site, is_of_other_origin,
};
use super::noted::{Noted, Told, known_length};
use super::problem::{self, Code, Problem};
use super::routes::POP_WAIT_MAX;
use crate::access::{Caller, Refusal, Ring, Scope, Who, now_ms};
use crate::node::{Shared, panic_message};
use crate::settings::{ByteSize, Value};
use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use skep_cluster::forward::{HOP, HopInfo};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// The name of the login's cookie.
pub const COOKIE: &str = "skep_login";

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What callers prove themselves with.
static PROOFS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, API_KEY];

/// What is looked at beside it.
static BESIDE: [HeaderName; 3] = [header::HOST, header::ORIGIN, CSRF_TOKEN];

/// What proxies add.
static FORWARDED: [HeaderName; 5] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-real-ip"),
    header::VIA,
];

/// The largest body of a route that anybody may ask for: whoever is not known does not get much
/// memory.
const PUBLIC_BODY_BYTES_MAX: u64 = 16 << 10;

/// So much of a refused body is read, and for so long.
const READ_AWAY_BYTES_MAX: usize = 1 << 20;
const READ_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// When to ask again a node that is starting.
const STARTS: Duration = Duration::from_secs(1);

/// What a route needs, from its description in the OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Anybody may ask.
    Nothing,
    /// A caller with this scope.
    Scope(Scope),
    /// A caller with one of these scopes.
    Either(Scope, Scope),
}

impl Need {
    /// Reads `none`, the name of a scope, or two with a `|` between them. Whatever else stands
    /// there is for admins alone.
    fn of(text: Option<&str>) -> Self {
        let scope = |text: &str| text.parse().unwrap_or(Scope::Admin);
        match text.map(|text| text.split_once('|').ok_or(text)) {
            Some(Ok((one, other))) => Need::Either(scope(one), scope(other)),
            Some(Err("none")) => Need::Nothing,
            Some(Err(one)) => Need::Scope(scope(one)),
            None => Need::Scope(Scope::Admin),
        }
    }
}

/// The needs of all routes. One that is not described is for admins alone.
pub struct Needs {
    routes: HashMap<String, Vec<(Method, Need)>>,
}

impl Needs {
    /// Reads them from `x-scope` of each operation.
    pub fn read(document: &serde_json::Value) -> Self {
        let mut routes = HashMap::new();
        let paths = document["paths"].as_object().into_iter().flatten();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().into_iter().flatten() {
                let Ok(method) = method.to_ascii_uppercase().parse::<Method>() else { continue };
                let need = Need::of(operation["x-scope"].as_str());
                routes.entry(path.clone()).or_insert_with(Vec::new).push((method, need));
            }
        }
        Needs { routes }
    }

    /// What this one needs.
    pub fn of(&self, method: &Method, route: Option<&str>) -> Need {
        // A path that leads nowhere may be asked for by anybody; the answer tells nothing.
        let Some(route) = route else { return Need::Nothing };
        // HEAD is GET without the body.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let described = self.routes.get(route).into_iter().flatten();
        let need = described.clone().find(|(known, _)| known == method).map(|(_, need)| *need);
        need.unwrap_or(Need::Scope(Scope::Admin))
    }
}

/// The address of whoever opened the connection.
pub fn peer(extensions: &Extensions) -> IpAddr {
    let info = extensions.get::<ConnectInfo<SocketAddr>>();
    info.map_or(IpAddr::from([0, 0, 0, 0]), |info| info.0.ip().to_canonical())
}

/// Handles one request from its head to its answer's.
pub async fn guard(
    State((shared, needs)): State<(Arc<Shared>, Arc<Needs>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let in_flight = shared.traffic.begin();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let address = peer(request.extensions());
    let mut noted = Noted::new(request.method(), request.uri(), request.headers(), address, route);
    let need = needs.of(request.method(), route);
    let believed = take_hop(&shared, &mut request, address);
    if request.extensions().get::<HopInfo>().is_some() {
        noted.is_for_node();
    }

    let body_max = match need {
        Need::Nothing => PUBLIC_BODY_BYTES_MAX,
        Need::Scope(_) | Need::Either(..) => shared.settings.api.body_max.0,
    };
    let admitted = believed
        .and_then(|()| check_one_host(request.uri(), request.headers()))
        .and_then(|()| check_length(body_max, request.headers()))
        .and_then(|()| check_encoding(request.headers()))
        .and_then(|()| admit(&shared, need, (changes(&request), request.headers()), address));
    let caller = admitted.as_ref().ok().and_then(Option::as_ref);
    noted.look(&shared, caller, || {
        let bytes_in = known_length(request.body());
        Told::of(request.headers(), request.uri(), request.version(), bytes_in)
    });
    let mut response = match admitted {
        Err(problem) => {
            read_away(request).await;
            problem.into_response()
        }
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            if need == Need::Nothing {
                let most = PUBLIC_BODY_BYTES_MAX as usize;
                request = request.map(|body| Body::new(Limited::new(body, most)));
            }
            let limit = shared.settings.api.request_timeout + may_wait(route);
            within(limit, noted.id(), next.run(request)).await
        }
    };

    drop(in_flight);
    noted.conclude(&shared, &mut response);
    response
}

/// Believes or refuses what a request says about the node that forwarded it.
fn take_hop(shared: &Shared, request: &mut Request, address: IpAddr) -> Result<(), Problem> {
    let Some(cluster) = shared.cluster.get() else { return Ok(()) };
    if !request.headers().contains_key(HOP) {
        return Ok(());
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    match cluster.hops().take(request.headers_mut(), address, &method, path) {
        Ok(None) => Ok(()),
        Ok(Some(hop)) => {
            request.extensions_mut().insert(hop);
            Ok(())
        }
        Err(forged) => {
            shared.cluster.metrics.refused_hop(forged.as_str());
            let detail = format!("the header {HOP} is not believed: {forged}");
            Err(Problem::new(&problem::E_HOP, detail))
        }
    }
}

/// How long a route may wait before it works.
pub fn may_wait(route: Option<&str>) -> Duration {
    match route.is_some_and(|route| route.starts_with("/api/v1/pop")) {
        true => POP_WAIT_MAX,
        false => Duration::ZERO,
    }
}

/// Waits for a route's answer for so long, and survives its panic.
pub async fn within(limit: Duration, id: &str, route: impl Future<Output = Response>) -> Response {
    let answered = tokio::time::timeout(limit, unless_it_panics(id, "the route", route)).await;
    answered.unwrap_or_else(|_| {
        let detail = format!("it was not finished within {limit:?}");
        Problem::new(&problem::E_TIMEOUT, detail).into_response()
    })
}

/// The answer, or that there is none because something is wrong in the program.
pub async fn unless_it_panics(
    id: &str,
    what: &str,
    answer: impl Future<Output = Response>,
) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        tracing::error!(id, panic = panic_message(panic.as_ref()), "{what} panicked");
        let detail = format!("{what} panicked; the log says more");
        Problem::new(&problem::E_INTERNAL, detail).into_response()
    })
}

/// A body that says itself that it is too large is not waited for.
fn check_length(most: u64, headers: &HeaderMap) -> Result<(), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: u64 = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    if length <= most {
        return Ok(());
    }
    let detail = format!("it has {length} bytes, {} are allowed here", ByteSize(most).show());
    Err(Problem::new(&problem::E_BODY_TOO_LARGE, detail))
}

/// Nothing is decompressed here: a few bytes could become any number. What comes compressed would
/// be taken for what it is not, so it is refused.
fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut named = headers.get_all(header::CONTENT_ENCODING).iter();
    if named.all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let detail = "bodies are read as they are; send it without `Content-Encoding`";
    Err(Problem::new(&problem::E_BODY_ENCODING, detail))
}

/// Reads what is left of a refused request's body, up to a limit: a connection that is closed with
/// unread data is reset, and the client would not see why it was refused.
async fn read_away(request: Request) {
    if request.headers().contains_key(header::EXPECT) {
        // This client waits for the answer before it sends anything.
        return;
    }
    let mut body = Limited::new(request.into_body(), READ_AWAY_BYTES_MAX);
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(READ_AWAY_TIMEOUT, reading).await;
}

/// Finds out who asks, and whether they may.
pub fn admit(
    shared: &Shared,
    need: Need,
    (changes, headers): (bool, &HeaderMap),
    address: IpAddr,
) -> Result<Option<Caller>, Problem> {
    let Some(ring) = shared.access.ring() else {
        return match need {
            Need::Nothing => Ok(None),
            Need::Scope(_) | Need::Either(..) => Err(Problem::new(
                &problem::E_STARTING,
                "there was no connection to the database yet, so nobody can be let in",
            )
            .retry_after(STARTS)),
        };
    };
    let caller = identify(shared, &ring, headers, address);
    if need == Need::Nothing {
        // A wrong key on an open route is no reason to refuse.
        return Ok(caller.ok().flatten());
    }
    let Some(caller) = caller? else {
        return Err(Problem::new(
            &problem::E_KEY_MISSING,
            "send `Authorization: Bearer KEY` or `X-API-Key: KEY`",
        ));
    };
    match need {
        Need::Nothing => {}
        Need::Scope(scope) => check_scope(&caller, scope)?,
        Need::Either(one, other) => {
            if !caller.scopes.allow(one) && !caller.scopes.allow(other) {
                return Err(missing_scope(&caller, &format!("{one}|{other}")));
            }
        }
    }
    check_intent(&caller, changes, headers)?;
    Ok(Some(caller))
}

/// Finds out who wants a session at the gateway, and whether they may. `key` is what they showed
/// there, which may have been in the address.
pub fn admit_session(
    shared: &Shared,
    headers: &HeaderMap,
    key: Option<&str>,
    address: IpAddr,
) -> Result<Caller, Problem> {
    let ring = shared.access.ring().ok_or_else(|| {
        Problem::new(&problem::E_STARTING, "the database was not reached yet").retry_after(STARTS)
    })?;
    let caller = match key {
        Some(key) => ring.admit_key(key, now_ms()).map_err(refuse)?,
        None => identify(shared, &ring, headers, address)?.ok_or_else(|| {
            let detail = "send `Authorization: Bearer KEY`, `X-API-Key: KEY` or `?token=KEY`";
            Problem::new(&problem::E_KEY_MISSING, detail)
        })?,
    };
    check_scope(&caller, Scope::Session)?;
    check_intent(&caller, false, headers)?;
    // A login belongs to the dashboard. Browsers ask nobody before they open a WebSocket, and send
    // the cookie from every port of its host.
    if matches!(caller.who, Who::Login { .. }) && is_of_other_origin(headers) {
        return Err(cross_site());
    }
    Ok(caller)
}

/// Refuses a caller who does not have the scope.
pub fn check_scope(caller: &Caller, scope: Scope) -> Result<(), Problem> {
    if caller.scopes.allow(scope) {
        return Ok(());
    }
    Err(missing_scope(caller, scope.name()))
}

fn missing_scope(caller: &Caller, needed: &str) -> Problem {
    let has = caller.scopes.to_string();
    let detail = format!("it needs the scope `{needed}`, the key has `{has}`");
    Problem::new(&problem::E_SCOPE, detail)
}

fn identify(
    shared: &Shared,
    ring: &Ring,
    headers: &HeaderMap,
    address: IpAddr,
) -> Result<Option<Caller>, Problem> {
    if let Some(key) = sent_key(headers) {
        return ring.admit_key(key, now_ms()).map(Some).map_err(refuse);
    }
    if !ring.is_empty() {
        let login = cookie(headers).map(|cookie| ring.admit_login(cookie, now_ms()));
        return login.transpose().map_err(refuse);
    }
    if shared.settings.api.insecure {
        return Ok(Some(Caller::trusted(Who::Anyone)));
    }
    if !address.is_loopback() {
        return Ok(None);
    }
    check_host(headers, shared.address)?;
    if FORWARDED.iter().any(|name| headers.contains_key(name)) {
        // A proxy on this machine speaks for somebody who may be anywhere.
        return Ok(None);
    }
    Ok(Some(Caller::trusted(Who::Local)))
}

/// What a caller proves itself with, whatever it is worth.
pub fn proof(headers: &HeaderMap) -> &[u8] {
    let proof = PROOFS.iter().find_map(|name| headers.get(name));
    proof.map(HeaderValue::as_bytes).unwrap_or_default()
}

/// All that a caller is known by, for what another node is asked on its behalf.
pub fn known_by(from: &HeaderMap) -> HeaderMap {
    let names = PROOFS.iter().chain(&BESIDE);
    names.filter_map(|name| Some((name.clone(), from.get(name)?.clone()))).collect()
}

fn sent_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|text| {
        let (scheme, key) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| headers.get(API_KEY).map(|value| value.to_str().unwrap_or_default()))
}

/// The login's cookie, if the browser sent one.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

/// Turns a refusal into its problem.
pub fn refuse(refusal: Refusal) -> Problem {
    let (code, detail): (&'static Code, _) = match refusal {
        Refusal::Wrong => (&problem::E_KEY_WRONG, "no key of this installation is like this"),
        Refusal::Revoked => (&problem::E_KEY_REVOKED, "make a new one with `skep keys add`"),
        Refusal::Expired => (&problem::E_KEY_EXPIRED, "make a new one with `skep keys add`"),
        Refusal::LoginOver => (&problem::E_LOGIN_OVER, "log in again"),
    };
    Problem::new(code, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_route_that_panics_or_never_ends_is_answered_for() {
        let good = within(LIMIT, "r-1", async { "fine".into_response() }).await;
        assert_eq!(good.status(), 200);
        let panics = within(LIMIT, "r-2", async { panic!("no honey") }).await;
        assert_eq!(panics.status(), 500);
        let never = within(LIMIT, "r-3", std::future::pending()).await;
        assert_eq!(never.status(), 408);
    }
}
