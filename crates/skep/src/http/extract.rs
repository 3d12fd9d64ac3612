//! Reading requests, with errors in the API's own form.

use super::guard::peer;
use super::problem::{self, Problem};
use crate::access::{Caller, Who, redact};
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use serde::de::DeserializeOwned;
use std::net::IpAddr;

/// A JSON body.
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Body(value)),
            Err(rejection) => Err(describe(&rejection)),
        }
    }
}

fn describe(rejection: &JsonRejection) -> Problem {
    let detail = rejection.body_text();
    let detail = redact(&detail);
    match rejection {
        JsonRejection::MissingJsonContentType(_) => {
            let detail = "send it with `Content-Type: application/json`";
            Problem::new(&problem::E_BODY_TYPE, detail)
        }
        other if other.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(&problem::E_BODY_TOO_LARGE, "it is larger than is allowed here")
        }
        _ => Problem::new(&problem::E_BODY_INVALID, detail),
    }
}

/// A body as it came, of whatever kind.
pub struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(RawBody(bytes)),
            Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Problem::new(&problem::E_BODY_TOO_LARGE, "it is larger than is allowed here"))
            }
            Err(rejection) => Err(Problem::new(&problem::E_BODY_INVALID, rejection.body_text())),
        }
    }
}

/// The variable parts of the path. What is no escape stands for itself.
pub struct Segments<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Segments(value)),
            Err(rejection) => Err(Problem::field("path", rejection.body_text())),
        }
    }
}

/// The parameters behind the `?`.
pub struct Parameters<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Parameters::of(&parts.uri)
    }
}

impl<T: DeserializeOwned> Parameters<T> {
    /// Those of this address.
    pub fn of(uri: &Uri) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(uri) {
            Ok(Query(value)) => Ok(Parameters(value)),
            Err(rejection) => Err(Problem::new(&problem::E_QUERY_INVALID, rejection.body_text())),
        }
    }
}

/// Who asks, from where. Nobody in particular on a route that anybody may ask for.
pub struct Asker {
    pub caller: Option<Caller>,
    pub address: IpAddr,
}

impl Asker {
    /// Who asks, for the audit log. The guard lets nobody else come to a route with a scope.
    pub fn known(&self) -> Caller {
        self.caller.clone().unwrap_or(Caller { who: Who::Anyone, scopes: Default::default() })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Ok(Asker {
            caller: parts.extensions.get::<Caller>().cloned(),
            address: peer(&parts.extensions),
        })
    }
}
