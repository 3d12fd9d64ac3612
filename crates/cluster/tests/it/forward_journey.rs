//! Requests whose first node does not answer.

use crate::forward_kit::*;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, Request, Response};
use skep_cluster::forward::plan::{POP_PATIENCE, Trouble, Work};
use skep_cluster::forward::{
    Begun, Fingerprint, ForwardOptions, Journey, Limits, Outcomes, OutcomesOptions, Outgoing, Peer,
    Sending,
};
use skep_testkit::Proxy;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    listener.local_addr().expect("is bound")
}

/// A node that does each piece of work once, and remembers.
async fn node_that_remembers(work: Arc<AtomicUsize>) -> Node {
    let outcomes = Outcomes::new(OutcomesOptions::default());
    Node::start(move |request: Request<hyper::body::Incoming>| {
        let (outcomes, work) = (outcomes.clone(), work.clone());
        async move {
            let (mut parts, _) = request.into_parts();
            let path = parts.uri.path_and_query().expect("has one").as_str().to_owned();
            let hops = hops_of("b");
            let hop = hops.take(&mut parts.headers, [127, 0, 0, 1].into(), &parts.method, &path);
            let id = hop.expect("is genuine").expect("is there").id;
            let print = Fingerprint::of(&parts.method, &path, b"");
            match outcomes.begin(id, print, LONG.total).await {
                Begun::First(slot) => {
                    let count = work.fetch_add(1, Ordering::SeqCst) + 1;
                    let kept = slot.keep(reply(200, format!("message {count}"))).await;
                    kept.map(BodyExt::boxed_unsync)
                }
                Begun::Known(outcome) => {
                    let answer = outcome.answer().expect("is remembered");
                    answer.map(|body| body.map_err(|never| match never {}).boxed_unsync())
                }
                _ => reply(409, ""),
            }
        }
    })
    .await
}

fn never() -> Option<Peer> {
    panic!("no other node is to be asked")
}

fn answer(journey: Journey) -> Response<skep_cluster::forward::Answer> {
    match journey {
        Journey::Answered(answer) => *answer,
        Journey::Here { why, .. } => panic!("served here: {why}"),
        Journey::Empty { why } => panic!("empty: {why}"),
        Journey::TooLarge(why) | Journey::Lost(why) => panic!("{why}"),
        Journey::ClientGone => panic!("the client is gone"),
    }
}

#[tokio::test]
async fn when_the_best_node_cannot_be_reached_the_next_best_is_asked() {
    let node = Node::start(async |request: Request<hyper::body::Incoming>| {
        let body = request.into_body().collect().await.expect("comes").to_bytes();
        reply(200, body)
    })
    .await;
    let a = A::new();
    let (b, c) = (a.named("b", nobody().await), a.named("c", node.address));
    for work in [Work::Read, Work::Push, Work::Pop, Work::Settle] {
        let other = || Some(c.clone());
        let journey = a.forwarder.send(&b, other, work, post("/", "body"), a.limits()).await;
        assert_eq!(text(answer(journey)).await, "body", "{work:?}");
    }
    assert_eq!((b.now().failed, c.now().forwarded), (4, 4));
}

#[tokio::test]
async fn when_no_node_can_be_reached_the_request_is_served_here_as_it_came() {
    let a = A::new();
    let (b, c) = (a.named("b", nobody().await), a.named("c", nobody().await));
    for other in [Some(c.clone()), None, Some(b.clone())] {
        let request = post("/api/v1/push", "body");
        let id = request.id;
        let journey = a.forwarder.send(&b, || other, Work::Push, request, a.limits()).await;
        let Journey::Here { request, why } = journey else { panic!("is served here") };
        assert_eq!((request.id, why.to_string().as_str()), (id, "unreachable"));
        assert!(request.headers.is_empty());
        let body = request.body.collect().await.expect("is in memory").to_bytes();
        assert_eq!(body, "body");
    }
    assert_eq!((b.now().fell_back, c.now().fell_back), (3, 0));
}

#[tokio::test]
async fn a_stream_that_was_not_begun_is_served_here_and_one_that_was_is_lost() {
    let a = A::new();
    let b = a.peer(nobody().await);
    let stream = |body| Outgoing {
        method: Method::POST,
        body: Sending::stream(body, 1 << 20),
        ..get("/api/v1/push")
    };
    let (sender, body) = pieces();
    let journey = a.forwarder.send(&b, || None, Work::Push, stream(body), a.limits()).await;
    let Journey::Here { request, .. } = journey else { panic!("is served here") };
    sender.send(Ok(Bytes::from_static(b"all"))).await.expect("is wanted");
    drop(sender);
    let body = request.body.collect().await.expect("comes").to_bytes();
    assert_eq!(body, "all");

    // A node that reads some of it and dies.
    let node = Node::start(async |request: Request<hyper::body::Incoming>| {
        let mut body = request.into_body();
        body.frame().await;
        panic!("this node dies (on purpose)")
    })
    .await;
    let c = a.named("c", node.address);
    let (sender, body) = pieces();
    sender.send(Ok(Bytes::from_static(b"some"))).await.expect("is wanted");
    let journey = a.forwarder.send(&c, || None, Work::Push, stream(body), LONG);
    let Journey::Lost(why) = within(journey).await else { panic!("is lost") };
    assert!(why.contains("node c"), "{why}");
}

#[tokio::test]
async fn a_node_that_is_full_or_refuses_is_not_asked_again() {
    let node = Node::start(async |_| reply(503, "draining")).await;
    let spare = Node::start(async |_| reply(200, "spare")).await;
    let a = A::new();
    let (b, c) = (a.named("b", node.address), a.named("c", spare.address));
    for work in [Work::Read, Work::Push, Work::Pop, Work::Settle] {
        let other = || Some(c.clone());
        let journey = a.forwarder.send(&b, other, work, get("/"), a.limits()).await;
        assert_eq!(text(answer(journey)).await, "spare", "{work:?}");
        let journey = a.forwarder.send(&b, || None, work, get("/"), a.limits()).await;
        let Journey::Here { why, .. } = journey else { panic!("is served here") };
        assert_eq!(why.to_string(), "status-503");
    }
    assert_eq!(b.now().forwarded, 8, "it did answer, each time once");

    let hung = Node::start(async |_| std::future::pending().await).await;
    let a = A::with(ForwardOptions { forwards_max: 1, ..Default::default() });
    let b = a.peer(hung.address);
    let waiting = tokio::spawn({
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        async move { forwarder.forward(&b, get("/"), LONG).await.is_ok() }
    });
    eventually("one is on its way", || b.in_flight() == 1).await;
    let journey = a.forwarder.send(&b, never, Work::Pop, get("/"), LONG).await;
    let Journey::Here { why, .. } = journey else { panic!("is served here") };
    assert_eq!(why, Trouble::Busy);
    waiting.abort();
}

#[tokio::test]
async fn a_lost_answer_is_found_again_and_the_work_is_done_once() {
    for work in [Work::Pop, Work::Settle] {
        let done = Arc::new(AtomicUsize::new(0));
        let node = node_that_remembers(done.clone()).await;
        let proxy = Proxy::start(("127.0.0.1", node.address.port()));
        let a = A::new();
        let b = a.peer(([127, 0, 0, 1], proxy.port()).into());
        // A connection is there, the answers on it are held back, and then it is cut.
        let first = a.forwarder.send(&b, never, work, get("/pop"), LONG).await;
        assert_eq!(text(answer(first)).await, "message 1");
        proxy.mute();
        let asking = tokio::spawn({
            let (forwarder, b) = (a.forwarder.clone(), b.clone());
            async move { answer(forwarder.send(&b, never, work, get("/pop"), LONG).await) }
        });
        eventually("the node has done it", || done.load(Ordering::SeqCst) == 2).await;
        proxy.cut();
        proxy.heal();
        let found = within(asking).await.expect("does not panic");
        assert_eq!(text(found).await, "message 2", "{work:?}");
        assert_eq!(done.load(Ordering::SeqCst), 2, "{work:?}");
        assert_eq!(b.now().failed, 1, "one answer was lost");
    }
}

#[tokio::test]
async fn a_pop_whose_node_stays_away_is_empty_and_an_ack_is_done_here() {
    for work in [Work::Pop, Work::Settle] {
        let done = Arc::new(AtomicUsize::new(0));
        let node = node_that_remembers(done.clone()).await;
        let proxy = Proxy::start(("127.0.0.1", node.address.port()));
        let a = A::new();
        let b = a.peer(([127, 0, 0, 1], proxy.port()).into());
        proxy.mute();
        let asking = tokio::spawn({
            let (forwarder, b) = (a.forwarder.clone(), b.clone());
            async move { forwarder.send(&b, never, work, get("/pop"), LONG).await }
        });
        eventually("the node has done it", || done.load(Ordering::SeqCst) == 1).await;
        let cut = Instant::now();
        proxy.cut();
        let journey = within(asking).await.expect("does not panic");
        match (work, journey) {
            (Work::Pop, Journey::Empty { why }) => {
                assert!(cut.elapsed() >= POP_PATIENCE / 2, "it was waited for");
                assert_eq!(why, Trouble::AnswerLost, "however it failed after that");
            }
            (Work::Settle, Journey::Here { why, .. }) => assert_eq!(why, Trouble::AnswerLost),
            _ => panic!("{work:?} ended in another way"),
        }
        assert_eq!(done.load(Ordering::SeqCst), 1);
        assert_eq!(b.now().fell_back, 1);
    }
}

#[tokio::test]
async fn a_stamped_push_whose_answer_is_lost_goes_elsewhere() {
    let node = Node::start(async |_| panic!("this node dies (on purpose)")).await;
    let spare = Node::start(async |_| reply(201, "pushed")).await;
    let a = A::new();
    let (b, c) = (a.named("b", node.address), a.named("c", spare.address));
    let journey = a.forwarder.send(&b, || Some(c), Work::Push, post("/", "x"), LONG).await;
    assert_eq!(text(answer(journey)).await, "pushed");
    let journey = a.forwarder.send(&b, || None, Work::Push, post("/", "x"), LONG).await;
    let Journey::Here { why, .. } = journey else { panic!("is served here") };
    assert_eq!(why, Trouble::AnswerLost);
}

#[tokio::test]
async fn all_tries_together_have_the_time_of_one() {
    let node = Node::start(async |_| std::future::pending().await).await;
    let a = A::new();
    let b = a.peer(node.address);
    let limits = Limits { total: Duration::from_millis(150), ..a.limits() };
    for work in [Work::Read, Work::Push, Work::Settle, Work::Pop] {
        let began = Instant::now();
        let journey = a.forwarder.send(&b, never, work, post("/", "x"), limits).await;
        assert!(began.elapsed() >= limits.total);
        match (work, journey) {
            (Work::Pop, Journey::Empty { why }) => assert_eq!(why, Trouble::Deadline),
            (Work::Pop, _) => panic!("a pop that may have been done is not done here"),
            (_, Journey::Here { why, .. }) => assert_eq!(why.to_string(), "deadline"),
            _ => panic!("{work:?} ended in another way"),
        }
    }

    // Answers that are lost again and again end with the time, not with the patience.
    let node = Node::start(async |_| panic!("this node dies (on purpose)")).await;
    let c = a.named("c", node.address);
    let limits = Limits { total: Duration::from_millis(100), ..a.limits() };
    let began = Instant::now();
    let journey = a.forwarder.send(&c, never, Work::Pop, get("/"), limits).await;
    assert!(matches!(journey, Journey::Empty { .. }));
    assert!(began.elapsed() < POP_PATIENCE, "{:?}", began.elapsed());
}
