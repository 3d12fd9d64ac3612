//! The gateway's desk: who may have a session, and which worker they get.

use crate::access::{Caller, Who};
use crate::http::{admit_session, gateway_router, refused_code};
use crate::node::{Shared, State};
use crate::routes::NodeFront;
use crate::settings::GatewaySettings;
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use skep_dial::Dialler;
use skep_gateway::{
    Body, BodyError, Checkout, Closed, Credentials, Desk, Gateway, GatewayError, Refusal, Seat,
    WorkerUrl,
};
use skep_policy::sessions::{Close, Version, Want};
use skep_sessions::{Placed, Probing, Refused, Wish};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The desk of one node.
pub struct NodeDesk {
    shared: Arc<Shared>,
    /// Answers those who want no session.
    plain: axum::Router,
}

/// A slot of a worker, for one session.
pub struct NodeSeat {
    placed: Option<Placed>,
    session: String,
    url: WorkerUrl,
    worker: u64,
}

/// Listens. Where no address was asked for and the usual one is taken, any will do.
pub fn bind_gateway(shared: &Arc<Shared>) -> Result<Gateway<NodeDesk, NodeFront>, GatewayError> {
    let settings = &shared.settings.gateway;
    let bind = |listen: SocketAddr| {
        let desk = NodeDesk { shared: shared.clone(), plain: gateway_router(shared) };
        let front = NodeFront(shared.routes.clone());
        let dialler = shared.work.dials.dialler("session");
        Gateway::bind(
            settings.options(listen, dialler),
            desk,
            front,
            shared.gateway_metrics().clone(),
        )
    };
    let Some(wanted) = settings.listen else {
        let usual = GatewaySettings::LISTEN_DEFAULT;
        return bind(usual).or_else(|error| {
            let gateway = bind(SocketAddr::new(usual.ip(), 0))?;
            tracing::warn!(%error, "the gateway listens on {} instead", gateway.address());
            Ok(gateway)
        });
    };
    bind(wanted)
}

/// Serves clients while the node lives.
pub async fn run_gateway(
    shared: Arc<Shared>,
    gateway: Gateway<NodeDesk, NodeFront>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let stopping = async {
        stop.cancelled().await;
        if let Some(fleet) = shared.fleet() {
            fleet.sessions.drain();
        }
    };
    let (served, ()) = tokio::join!(gateway.run(stop.clone()), stopping);
    Ok(served?)
}

impl Desk for NodeDesk {
    type Seat = NodeSeat;

    fn admit(&self, who: &Credentials<'_>) -> Result<skep_gateway::Caller, Refusal> {
        let address = who.peer.to_canonical();
        let caller = admit_session(&self.shared, who.headers, who.key, address)
            .map_err(|problem| problem.for_gateway())?;
        Ok(skep_gateway::Caller { key: key_of(&caller), peer: address })
    }

    async fn checkout(&self, ask: Checkout) -> Result<NodeSeat, Refusal> {
        let mut state = self.shared.state.clone();
        let ready = state.wait_for(|state| !matches!(state, State::Starting(_)));
        let deadline = tokio::time::Instant::from_std(ask.deadline);
        let _ = tokio::time::timeout_at(deadline, ready).await;
        let Some(fleet) = self.shared.fleet() else {
            let cause = "the stores were not reached yet".to_owned();
            return Err(refusal(&Refused::TableAway { cause }));
        };
        let sessions = &fleet.sessions;
        let version = ask.wanted.version.map(|(major, minor)| Version { major, minor });
        let wish = Wish {
            kind: ask.wanted.kind,
            want: Want { labels: ask.wanted.labels.into_iter().collect(), version },
            key: ask.caller.key.unwrap_or_else(|| "".into()),
            avoid: ask.avoid.last().copied(),
            wait: ask.may_wait,
            deadline: ask.deadline.min(Instant::now() + sessions.options().wait_max),
        };
        let placed = sessions.checkout(&wish).await.map_err(|refused| refusal(&refused))?;
        let seat = placed.seat();
        if ask.avoid.contains(&seat.worker) {
            let kind = wish.kind.unwrap_or_default();
            return Err(refusal(&Refused::Busy { kind }));
        }
        // It was checked when the worker registered.
        let url = seat.url.parse::<WorkerUrl>().map_err(|error| {
            let kind = error.to_string();
            refusal(&Refused::NoWorkers { kind })
        })?;
        let (session, worker) = (placed.id().to_owned(), seat.worker);
        Ok(NodeSeat { placed: Some(placed), session, url, worker })
    }

    async fn plain(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let request = request.map(axum::body::Body::new);
        let mut request = axum::extract::Request::from(request);
        request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        let response = match self.plain.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        response.into_response().map(|body| body.map_err(BodyError::from).boxed_unsync())
    }
}

/// Who shares a line and a limit: the key, or nobody in particular.
fn key_of(caller: &Caller) -> Option<Arc<str>> {
    match &caller.who {
        Who::Key { id, .. } | Who::Login { id, .. } => Some(id.as_str().into()),
        Who::Local | Who::Anyone => None,
    }
}

impl Seat for NodeSeat {
    fn session(&self) -> &str {
        &self.session
    }

    fn worker(&self) -> u64 {
        self.worker
    }

    fn url(&self) -> &WorkerUrl {
        &self.url
    }

    async fn told_to_end(&self) -> Arc<str> {
        match &self.placed {
            Some(placed) => placed.told_to_end().await.into(),
            None => std::future::pending().await,
        }
    }

    fn opened(&self) {}

    fn close(mut self, how: Closed) {
        let close = match how {
            Closed::Ended { .. } => Close::Ended,
            Closed::Failed { why } => {
                tracing::warn!(session = self.session, worker = self.worker, why, "did not answer");
                Close::Failed
            }
            Closed::Unused => Close::Unused,
        };
        if let Some(placed) = self.placed.take() {
            placed.close(close);
        }
    }
}

/// A session's refusal as its client reads it.
pub fn refusal(refused: &Refused) -> Refusal {
    let code = refused_code(refused);
    Refusal {
        status: code.status,
        code: code.name,
        title: code.title,
        message: refused.to_string(),
        retry_after_s: refused
            .retry_after()
            .map(|wait| u32::try_from(wait.as_secs().max(1)).unwrap_or(u32::MAX)),
    }
}

/// Asks suspects whether they answer.
pub struct WorkerProber {
    pub limit: Duration,
    pub dialler: Dialler,
}

impl Probing for WorkerProber {
    fn answers(&self, url: Arc<str>) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move {
            match url.parse() {
                Ok(url) => skep_gateway::answers(&self.dialler, &url, self.limit).await,
                Err(_) => false,
            }
        })
    }
}
