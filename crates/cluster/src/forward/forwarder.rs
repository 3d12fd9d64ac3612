//! Sends requests to other nodes.

use super::body::{Answer, AnswerError, Collected, Rest, Sending};
use super::exchange::Exchange;
use super::failed::{Evidence, Failed, FailedKind, Witness};
use super::headers::{FORWARDED_BY, HOP, TOOK, remove_hop_by_hop};
use super::hop::{Hops, RequestId};
use super::options::{BadOption, ForwardOptions, Limits};
use super::peer::{BadPeer, Peer};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{HeaderMap, Method, Request, Response};
use skep_policy::Name;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request for another node, as its client sent it.
pub struct Outgoing {
    /// The same however often it is sent.
    pub id: RequestId,
    /// Where its client's connection comes from.
    pub client: Option<IpAddr>,
    pub method: Method,
    pub path_and_query: PathAndQuery,
    /// Its client's; what is about the connection is left out by the forwarder.
    pub headers: HeaderMap,
    pub body: Sending,
}

impl Outgoing {
    /// The same once more, with the same id, unless its body is a stream.
    pub fn again(&self) -> Option<Outgoing> {
        Some(Outgoing {
            id: self.id,
            client: self.client,
            method: self.method.clone(),
            path_and_query: self.path_and_query.clone(),
            headers: self.headers.clone(),
            body: self.body.again()?,
        })
    }
}

/// What a client gave of the headers that a forwarder sets itself.
struct Given {
    host: bool,
    length: Option<HeaderValue>,
}

impl Given {
    fn restore(self, headers: &mut HeaderMap) {
        headers.remove(HOP);
        if !self.host {
            headers.remove(header::HOST);
        }
        if let Some(length) = self.length {
            headers.insert(header::CONTENT_LENGTH, length);
        }
    }
}

/// The connections of this node to all others.
pub struct Forwarder {
    options: Arc<ForwardOptions>,
    hops: Arc<Hops>,
    here: HeaderValue,
    witness: Arc<dyn Witness>,
    peers: Mutex<BTreeMap<Name, Peer>>,
}

impl Forwarder {
    /// Forwards as the node of `hops`.
    pub fn new(
        options: ForwardOptions,
        hops: Arc<Hops>,
        witness: Arc<dyn Witness>,
    ) -> Result<Self, BadOption> {
        options.check()?;
        let here = match HeaderValue::from_str(hops.here().as_str()) {
            Ok(here) => here,
            Err(_) => unreachable!("a name has only visible characters"),
        };
        Ok(Forwarder { options: Arc::new(options), hops, here, witness, peers: Mutex::default() })
    }

    /// The limits it was given.
    pub fn options(&self) -> &ForwardOptions {
        &self.options
    }

    /// The node of this name at this address, the same one for the same name. A new address closes
    /// the free connections to the old one.
    pub fn peer(&self, name: &Name, url: &str) -> Result<Peer, BadPeer> {
        let mut peers = self.lock();
        let trust = self.options.trust.as_ref();
        if let Some(peer) = peers.get(name) {
            peer.move_to(url, trust)?;
            return Ok(peer.clone());
        }
        let most = self.options.peers_max;
        if peers.len() >= most {
            return Err(BadPeer::TooMany { name: name.clone(), most });
        }
        let peer = Peer::new(name.clone(), url, trust)?;
        peers.insert(name.clone(), peer.clone());
        Ok(peer)
    }

    /// All that it knows.
    pub fn peers(&self) -> Vec<Peer> {
        self.lock().values().cloned().collect()
    }

    /// Forgets the others; what is on its way to them may finish.
    pub fn retain(&self, keep: impl Fn(&Name) -> bool) {
        self.lock().retain(|name, peer| {
            let kept = keep(name);
            if !kept {
                peer.forget();
            }
            kept
        });
    }

    /// Closes free connections that are old or that the other side has closed. To be called every
    /// second or so.
    pub fn tidy(&self) {
        for peer in self.peers() {
            peer.tidy(&self.options);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One exchange: sends the request to this node, and nowhere else. Answers of any status are
    /// answers. Dropping the future, or the answer before its end, closes the connection.
    pub async fn forward(
        &self,
        to: &Peer,
        request: Outgoing,
        limits: Limits,
    ) -> Result<Response<Answer>, Failed> {
        let Some(mut exchange) = Exchange::begin(to, limits, &self.options, &self.witness) else {
            let most = self.options.forwards_max;
            self.witness.saw(to.name().as_str(), Evidence::Nothing, Duration::ZERO);
            return Err(Failed {
                kind: FailedKind::Busy,
                why: format!("{most} requests are on their way to node {}", to.name()),
                unsent: Some(Box::new(request)),
            });
        };
        let (id, client) = (request.id, request.client);
        let target = to.target();
        let (request, given) = self.prepare(to, request, &target.authority);
        match exchange.ask(request, &target, limits.connect).await {
            Ok(response) => self.gather(response, exchange).await,
            Err(unanswered) => {
                let (mut failed, unused) = *unanswered;
                failed.unsent = unused.map(|request| {
                    let (mut parts, body) = request.into_parts();
                    given.restore(&mut parts.headers);
                    let path = parts.uri.into_parts().path_and_query;
                    Box::new(Outgoing {
                        id,
                        client,
                        method: parts.method,
                        path_and_query: path.unwrap_or(PathAndQuery::from_static("/")),
                        headers: parts.headers,
                        body,
                    })
                });
                Err(failed)
            }
        }
    }

    fn prepare(
        &self,
        to: &Peer,
        outgoing: Outgoing,
        authority: &HeaderValue,
    ) -> (Request<Sending>, Given) {
        let Outgoing { id, client, method, path_and_query, mut headers, body } = outgoing;
        remove_hop_by_hop(&mut headers);
        // The length is the body's to say, and nobody is there to be told to continue.
        let length = headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::EXPECT);
        let host = headers.contains_key(header::HOST);
        if !host {
            headers.insert(header::HOST, authority.clone());
        }
        // Replaces whatever a client may have sent.
        let hop = self.hops.make(to.name(), id, client, &method, path_and_query.as_str());
        headers.insert(HOP, hop);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path_and_query);
        *request.headers_mut() = headers;
        (request, Given { host, length })
    }

    /// Reads ahead, so that what breaks early can be asked for again.
    async fn gather(
        &self,
        response: Response<()>,
        mut exchange: Exchange,
    ) -> Result<Response<Answer>, Failed> {
        let (mut parts, ()) = response.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        if let Some(took) = parts.headers.remove(TOOK).as_ref().and_then(micros) {
            exchange.note_hop(took);
        }
        parts.headers.insert(FORWARDED_BY, self.here.clone());
        let ahead_max = self.options.gather_max;
        let hint = exchange.hint();
        if hint.exact() == Some(0) {
            exchange.complete();
            return Ok(Response::from_parts(parts, Answer::whole(bytes::Bytes::new())));
        }
        let large = hint.lower() > ahead_max as u64;
        let mut rest = Rest { exchange, most: self.options.answer_max, passed: 0 };
        let mut read = Collected::default();
        while !large && read.len() < ahead_max {
            match poll_fn(|cx| rest.poll_data(cx)).await {
                None => return Ok(Response::from_parts(parts, Answer::whole(read.into_bytes()))),
                Some(Ok(data)) => read.add(data),
                Some(Err(error)) => {
                    let kind = match &error {
                        AnswerError::Deadline => FailedKind::Deadline,
                        AnswerError::Broken(_) | AnswerError::TooLarge(_) => FailedKind::AnswerLost,
                    };
                    return Err(Failed::new(kind, error.to_string()));
                }
            }
        }
        Ok(Response::from_parts(parts, Answer { ahead: read.into_bytes(), rest: Some(rest) }))
    }
}

fn micros(value: &HeaderValue) -> Option<Duration> {
    Some(Duration::from_micros(value.to_str().ok()?.parse().ok()?))
}
