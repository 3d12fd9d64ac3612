//! Pops: to the node that owns their key.

use super::{Interrupted, send};
use crate::http::routes::POP_WAIT_MAX;
use crate::node::Shared;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use skep_cluster::forward::plan::Work;
use skep_cluster::forward::{FALLBACK, Sending};
use skep_cluster::{Cluster, Waiting};
use skep_policy::cluster::Ask;
use skep_queues::store::QUEUE_MODE;
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// How long a pop waits that does not say.
const WAIT: Duration = Duration::from_secs(30);

/// Less is not worth a journey.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// How long a node that stops still waits at others for what they may find: its clients have to go
/// to other nodes, and it cannot stop before they have their answers.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What a pop asks for, as far as it matters where it is served.
pub(super) struct Popping<'request> {
    queue: Option<Cow<'request, str>>,
    partition: Option<Cow<'request, str>>,
    group: Cow<'request, str>,
    namespace: Cow<'request, str>,
    task: Cow<'request, str>,
    /// How long it waits for messages.
    pub wait: Option<Duration>,
}

impl<'request> Popping<'request> {
    /// Reads it from the address. What is wrong there is for the route to say.
    pub fn of(uri: &'request Uri) -> Option<Self> {
        let rest = uri.path().strip_prefix("/api/v1/pop")?;
        let mut segments = rest.split('/').skip(1);
        let (queue, partition) = match (segments.next(), segments.next()) {
            (Some("queue"), Some(queue)) => {
                let partition = segments.next().filter(|word| *word == "partition");
                (Some(decoded(queue)), partition.and_then(|_| segments.next()).map(decoded))
            }
            _ => (None, None),
        };
        let mut popping = Popping {
            queue,
            partition,
            group: Cow::Borrowed(QUEUE_MODE),
            namespace: Cow::Borrowed(""),
            task: Cow::Borrowed(""),
            wait: None,
        };
        let (mut waits, mut timeout, mut named) = (false, WAIT, false);
        for pair in uri.query().unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() {
                continue;
            }
            match name {
                "consumerGroup" => (popping.group, named) = (decoded(value), true),
                "group" if !named => popping.group = decoded(value),
                "namespace" => popping.namespace = decoded(value),
                "task" => popping.task = decoded(value),
                "wait" => waits = matches!(value, "true" | "1"),
                "timeout" => {
                    timeout = value.parse().map_or(WAIT, Duration::from_millis).min(POP_WAIT_MAX);
                }
                _ => {}
            }
        }
        popping.wait = waits.then_some(timeout);
        Some(popping)
    }

    /// Notes that a consumer is here, for as long as what it gives is kept.
    pub fn waits(&self, cluster: &Cluster) -> Option<Waiting> {
        cluster.waits(self.queue.as_deref(), &self.group)
    }

    /// What decides where it goes.
    pub fn ask(&self) -> Ask<'_> {
        match (&self.queue, &self.partition) {
            (Some(queue), Some(partition)) => {
                Ask::Partition { queue, partition, group: &self.group }
            }
            (Some(queue), None) => Ask::Queue { queue, group: &self.group },
            (None, _) => {
                Ask::Task { namespace: &self.namespace, task: &self.task, group: &self.group }
            }
        }
    }
}

/// A pop of a client; `run` serves it here.
pub(super) async fn relay(
    shared: &Shared,
    cluster: &Cluster,
    parts: Parts,
    run: impl AsyncFnOnce(Parts) -> Response,
) -> Response {
    let uri = parts.uri.clone();
    let (Some(popping), Some(path)) = (Popping::of(&uri), uri.path_and_query()) else {
        return run(parts).await;
    };
    let started = Instant::now();
    // What is left of its wait.
    let left = || Some(popping.wait?.saturating_sub(started.elapsed()));
    let last_wait = LAST_WAIT.min(shared.settings.shutdown.drain_timeout / 2);
    if let Some(going) = cluster.place(&popping.ask()) {
        let shortened = || left().and_then(|left| Some((left, with_wait(&uri, left)?)));
        let here = async |mut parts: Parts, _: Sending| {
            let _here = popping.waits(cluster);
            if let Some((_, path)) = shortened() {
                parts.uri = Uri::from(path);
            }
            run(parts).await
        };
        // A node has sent it back after some of its wait: it waits on at another one, or here.
        let later = async |parts: Parts, none: Sending| {
            let waited = started.elapsed() >= WAIT_MIN;
            let moved = shortened().filter(|(left, _)| waited && *left >= WAIT_MIN);
            match (moved, cluster.place_after(&popping.ask(), &going)) {
                (Some((left, path)), Some(going)) => {
                    send(cluster, (&going, Work::Pop, Some(left)), (parts, path, none), here).await
                }
                _ => here(parts, none).await,
            }
        };
        let pop = (parts, path.clone(), Sending::empty());
        let sent = send(cluster, (&going, Work::Pop, popping.wait), pop, later);
        let stopped = async {
            shared.queues.stopping().await;
            tokio::time::sleep(last_wait).await;
        };
        return tokio::select! {
            biased;
            response = sent => response,
            // Its client asks another node. Whatever was found meanwhile goes back.
            () = stopped => StatusCode::NO_CONTENT.into_response(),
            // What it may have been given comes again when the lease ends; asking elsewhere is the
            // client's to decide, as whenever an answer is lost.
            () = cluster.dies(&going), if popping.wait.is_some() => {
                let mut nothing = StatusCode::NO_CONTENT.into_response();
                nothing.headers_mut().insert(FALLBACK, HeaderValue::from_static("node-dead"));
                nothing
            }
        };
    }
    let _here = popping.waits(cluster);
    let again = popping.wait.is_some().then(|| parts.clone());
    let mut response = run(parts).await;
    let interrupted = response.extensions_mut().remove::<Interrupted>().is_some();
    let Some(again) = again.filter(|_| interrupted) else { return response };
    // The node stops; the client waits on at another one.
    let left = left().unwrap_or_default().min(last_wait);
    let moved = (left >= WAIT_MIN).then(|| with_wait(&uri, left)).flatten();
    match (moved, cluster.place(&popping.ask())) {
        (Some(path), Some(going)) => {
            shared.cluster.metrics.handed_over();
            let pop = (again, path, Sending::empty());
            let keep = async |_: Parts, _: Sending| response;
            send(cluster, (&going, Work::Pop, Some(left)), pop, keep).await
        }
        _ => response,
    }
}

/// The same address with another wait.
fn with_wait(uri: &Uri, wait: Duration) -> Option<PathAndQuery> {
    let query = uri.query().unwrap_or_default();
    let kept = query.split('&').filter(|pair| !pair.starts_with("timeout="));
    let kept: Vec<&str> = kept.collect();
    let path = format!("{}?{}&timeout={}", uri.path(), kept.join("&"), wait.as_millis());
    path.parse().ok()
}

/// Text of an address. What is no escape stands for itself.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let (byte, skip) = match escaped {
            Some(byte) => (byte, 3),
            None if *first == b'+' => (b' ', 1),
            None => (*first, 1),
        };
        out.push(byte);
        rest = &rest[skip..];
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str) -> (String, Option<u64>) {
        let uri: Uri = address.parse().expect("is an address");
        let popping = Popping::of(&uri).expect("is a pop");
        let wait = popping.wait.map(|wait| wait.as_millis() as u64);
        (popping.ask().key(1, &skep_policy::cluster::Options::default()), wait)
    }

    #[test]
    fn keys_are_read_from_the_address() {
        let none = format!("orders:{QUEUE_MODE}");
        assert_eq!(key("/api/v1/pop/queue/orders"), (none, None));
        let address = "/api/v1/pop/queue/orders?consumerGroup=mail&wait=true";
        assert_eq!(key(address), ("orders:mail".into(), Some(30_000)));
        let address = "/api/v1/pop/queue/a%20b/partition/p%2F1?group=x+y&wait=1&timeout=250";
        assert_eq!(key(address), ("a b:p/1:x y".into(), Some(250)));
        let address = "/api/v1/pop?namespace=shop&task=t&consumerGroup=&group=g&timeout=9";
        assert_eq!(key(address), ("shop:t:g".into(), None));
        let address = "/api/v1/pop/queue/q?consumerGroup=one&group=other&wait=true&timeout=999999";
        assert_eq!(key(address), ("q:one".into(), Some(120_000)));
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for (text, plain) in [("a%zzb", "a%zzb"), ("%4", "%4"), ("%41%", "A%"), ("ü", "ü")] {
            assert_eq!(decoded(text), plain);
        }
    }

    #[test]
    fn a_wait_is_replaced_and_the_rest_stays() {
        let uri: Uri =
            "/api/v1/pop/queue/q?batch=3&timeout=9000&wait=true".parse().expect("is one");
        let path = with_wait(&uri, Duration::from_millis(1_234)).expect("is a path");
        assert_eq!(path.as_str(), "/api/v1/pop/queue/q?batch=3&wait=true&timeout=1234");
    }
}
