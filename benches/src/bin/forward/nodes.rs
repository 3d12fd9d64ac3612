//! The node that answers and the node that forwards, each a process.

use crate::Outcome;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use skep_cluster::Secret;
use skep_cluster::forward::plan::Work;
use skep_cluster::forward::{Answer, Forwarder, Hops, Journey, Outgoing, Peer, RequestId, Sending};
use skep_policy::{Clock, Name, Time};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

const SECRET: &[u8] = b"a secret for a benchmark, long enough";
const WINDOW: Duration = Duration::from_secs(30);
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

fn hops(here: &str) -> Outcome<Hops> {
    let here: Name = here.parse()?;
    Ok(Hops::new(here, "bench", Some(Secret::new(SECRET)?), Arc::new(Wall), WINDOW))
}

type Reply = Response<UnsyncBoxBody<Bytes, skep_cluster::forward::AnswerError>>;

fn reply(status: StatusCode, body: Bytes) -> Reply {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
}

/// Serves with a function, on two threads, and says where.
fn serve<F, A>(answer: F) -> Outcome<()>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Reply> + Send + 'static,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answering = answer(request);
                    async move { Ok::<_, Infallible>(answering.await) }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

/// Reads requests, checks the hop if there is one, and answers with so many bytes.
pub fn answer(size: usize) -> Outcome<()> {
    let body = Bytes::from(vec![b'y'; size]);
    let hops = Arc::new(hops("b")?);
    serve(move |request| {
        let (body, hops) = (body.clone(), hops.clone());
        async move {
            let (mut parts, incoming) = request.into_parts();
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            if let Err(forged) = hops.take(&mut parts.headers, LOOPBACK, &parts.method, &path) {
                return reply(StatusCode::FORBIDDEN, forged.to_string().into());
            }
            match incoming.collect().await {
                Ok(_) => reply(StatusCode::OK, body),
                Err(error) => reply(StatusCode::BAD_REQUEST, error.to_string().into()),
            }
        }
    })
}

/// Reads requests, as a node does that must know what they are about, and forwards them.
pub fn forward(url: &str) -> Outcome<()> {
    let forwarder = Forwarder::new(Default::default(), Arc::new(hops("a")?), Arc::new(()))?;
    let peer = forwarder.peer(&"b".parse::<Name>()?, url)?;
    let forwarder = Arc::new(forwarder);
    serve(move |request| {
        let (forwarder, peer) = (forwarder.clone(), peer.clone());
        async move {
            match passed_on(&forwarder, &peer, request).await {
                Ok(answer) => answer.map(BodyExt::boxed_unsync),
                Err(why) => reply(StatusCode::BAD_GATEWAY, why.into()),
            }
        }
    })
}

async fn passed_on(
    forwarder: &Forwarder,
    peer: &Peer,
    request: Request<Incoming>,
) -> Result<Response<Answer>, String> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let path_and_query = parts.uri.into_parts().path_and_query.ok_or("no path")?;
    let outgoing = Outgoing {
        id: RequestId::mint(),
        client: Some(LOOPBACK),
        method: parts.method,
        path_and_query,
        headers: parts.headers,
        body: Sending::whole(body),
    };
    let limits = forwarder.options().limits();
    match forwarder.send(peer, || None, Work::Push, outgoing, limits).await {
        Journey::Answered(answer) => Ok(*answer),
        Journey::Here { why, .. } | Journey::Empty { why } => Err(why.to_string()),
        Journey::TooLarge(why) | Journey::Lost(why) => Err(why),
        Journey::ClientGone => Err("the client is gone".to_owned()),
    }
}
