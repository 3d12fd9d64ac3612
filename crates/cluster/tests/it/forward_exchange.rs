//! One request, one answer.

use crate::forward_kit::*;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request};
use skep_cluster::forward::{
    AnswerError, BadPeer, Evidence, FailedKind, ForwardOptions, HopInfo, Outgoing, Sending,
};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn requests_go_over_the_same_connection() {
    let node = Node::start(async |_| reply(200, "hello")).await;
    let a = A::new();
    let b = a.peer(node.address);
    for _ in 0..20 {
        let answer = a.forwarder.forward(&b, get("/"), LONG).await.expect("answers");
        assert_eq!(text(answer).await, "hello");
    }
    let now = b.now();
    assert_eq!((node.connections(), now.connects, now.free), (1, 1, 1));
    assert_eq!((now.forwarded, now.failed, now.in_flight), (20, 0, 0));
    assert_eq!(a.heard.all(), vec![Evidence::Good; 20]);
}

#[tokio::test]
async fn requests_at_the_same_time_have_a_connection_each_and_only_so_many_are_kept() {
    let gate = Arc::new(tokio::sync::Barrier::new(4));
    let node = Node::start({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.wait().await;
                reply(200, "all are here")
            }
        }
    })
    .await;
    let a = A::with(ForwardOptions { idle_max: 2, ..Default::default() });
    let b = a.peer(node.address);
    let four = (0..4).map(|_| {
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        tokio::spawn(async move { forwarder.forward(&b, get("/"), LONG).await.map(|_| ()) })
    });
    for one in four.collect::<Vec<_>>() {
        within(one).await.expect("does not panic").expect("answers");
    }
    assert_eq!((node.connections(), b.now().free), (4, 2));
}

#[tokio::test]
async fn what_is_about_the_client_travels_and_what_is_about_the_connection_does_not() {
    type Seen = Option<(HeaderMap, Option<HopInfo>)>;
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let node = Node::start({
        let seen = seen.clone();
        move |request: Request<_>| {
            let seen = seen.clone();
            async move {
                let (mut parts, _) = request.into_parts();
                let path = parts.uri.path_and_query().expect("has one").as_str().to_owned();
                let hops = hops_of("b");
                let hop = hops.take(&mut parts.headers, LOOPBACK, &parts.method, &path);
                *seen.lock().expect("nobody panics") =
                    Some((parts.headers, hop.expect("is genuine")));
                let mut answer = reply(200, "x");
                answer.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=9"));
                answer.headers_mut().insert("x-served-by", HeaderValue::from_static("b"));
                answer.headers_mut().insert("skep-took-us", HeaderValue::from_static("0"));
                answer
            }
        }
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    let mut request = Outgoing { client: Some([10, 1, 2, 3].into()), ..get("/api/v1/x?a=%20b") };
    for (name, value) in [
        ("host", "queues.example"),
        ("authorization", "Bearer key"),
        ("cookie", "skep=login"),
        ("connection", "x-private"),
        ("x-private", "1"),
        ("expect", "100-continue"),
        ("skep-hop", "made up by a client"),
    ] {
        request.headers.insert(name, HeaderValue::from_static(value));
    }
    let id = request.id;
    let answer = a.forwarder.forward(&b, request, LONG).await.expect("answers");
    assert_eq!(answer.headers()["x-forwarded-by"], "a");
    assert_eq!(answer.headers()["x-served-by"], "b");
    assert!(!answer.headers().contains_key("keep-alive"));
    assert!(!answer.headers().contains_key("skep-took-us"));
    assert!(b.now().hop_p50_us.is_some(), "the hop was measured");
    let (headers, hop) = seen.lock().expect("nobody panics").take().expect("was asked");
    assert_eq!(hop, Some(HopInfo { from: name("a"), id, client: Some([10, 1, 2, 3].into()) }));
    assert_eq!(headers["host"], "queues.example");
    assert_eq!(headers["authorization"], "Bearer key");
    assert_eq!(headers["cookie"], "skep=login");
    for gone in ["connection", "x-private", "expect", "skep-hop"] {
        assert!(!headers.contains_key(gone), "{gone} was passed on");
    }
}

#[tokio::test]
async fn only_the_nodes_own_trouble_speaks_against_it() {
    let node = Node::start(async |request: Request<_>| {
        reply(request.uri().path()[1..].parse().expect("is a status"), "")
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    for path in ["/200", "/204", "/400", "/404", "/409", "/429", "/500", "/502", "/503", "/504"] {
        let answer = a.forwarder.forward(&b, get(path), LONG).await.expect("is an answer");
        assert_eq!(answer.status().as_str(), &path[1..]);
    }
    let heard = a.heard.all();
    assert_eq!(heard[..7], [Evidence::Good; 7]);
    assert_eq!(heard[7..], [Evidence::Bad; 3]);
}

#[tokio::test]
async fn a_request_streams_while_it_is_still_being_sent() {
    let (first_seen, mut seen) = tokio::sync::watch::channel(0);
    let first_seen = Arc::new(first_seen);
    let node = Node::start(move |request: Request<hyper::body::Incoming>| {
        let first_seen = first_seen.clone();
        async move {
            let mut body = request.into_body();
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame.expect("comes").into_data().expect("is data").len();
                first_seen.send_replace(bytes);
            }
            reply(200, bytes.to_string())
        }
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    let (sender, body) = pieces();
    let request =
        Outgoing { method: Method::POST, body: Sending::stream(body, 1 << 30), ..get("/") };
    let sending = tokio::spawn({
        let forwarder = a.forwarder.clone();
        async move { text(forwarder.forward(&b, request, LONG).await.expect("answers")).await }
    });
    sender.send(Ok(Bytes::from_static(b"first"))).await.expect("is taken");
    within(seen.wait_for(|bytes| *bytes == 5)).await.expect("the node reads as it comes");
    for _ in 0..512 {
        sender.send(Ok(Bytes::from(vec![7; 64 << 10]))).await.expect("is taken");
    }
    drop(sender);
    assert_eq!(within(sending).await.expect("does not panic"), (5 + (32 << 20)).to_string());
}

#[tokio::test]
async fn an_answer_larger_than_what_is_read_ahead_streams() {
    let (sender, body) = pieces();
    let body = Arc::new(Mutex::new(Some(body)));
    let node = Node::start(move |_| {
        let body = body.lock().expect("nobody panics").take().expect("is asked once");
        async move { hyper::Response::new(body.boxed_unsync()) }
    })
    .await;
    let a = A::with(ForwardOptions { gather_max: 1_000, ..Default::default() });
    let b = a.peer(node.address);
    let asking = tokio::spawn({
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        async move { forwarder.forward(&b, get("/"), LONG).await.expect("answers") }
    });
    sender.send(Ok(Bytes::from(vec![1; 1_000]))).await.expect("is taken");
    let answer = within(asking).await.expect("does not panic");
    assert!(!answer.body().is_whole(), "the rest has not even been made");
    assert_eq!(b.in_flight(), 1, "it is on its way until its end");
    let reading = tokio::spawn(async move { answer.into_body().collect().await });
    for _ in 0..512 {
        sender.send(Ok(Bytes::from(vec![7; 64 << 10]))).await.expect("is taken");
    }
    drop(sender);
    let whole = within(reading).await.expect("does not panic").expect("comes whole");
    assert_eq!(whole.to_bytes().len(), 1_000 + (32 << 20));
    assert_eq!((b.in_flight(), b.now().free), (0, 1), "the connection is free again");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_is_not_the_nodes_fault() {
    let node = Node::start(async |request: Request<hyper::body::Incoming>| {
        let read = request.into_body().collect().await;
        reply(if read.is_ok() { 200 } else { 400 }, "")
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    let (sender, body) = pieces();
    let request = Outgoing { method: Method::POST, body: Sending::stream(body, 10), ..get("/") };
    let feeding = tokio::spawn(async move {
        let _ = sender.send(Ok(Bytes::from(vec![1; 10]))).await;
        let _ = sender.send(Ok(Bytes::from(vec![1; 1]))).await;
    });
    let failed = a.forwarder.forward(&b, request, LONG).await.err().expect("is too large");
    feeding.await.expect("does not panic");
    assert_eq!(failed.kind, FailedKind::TooLarge);
    assert_eq!(failed.to_string(), "the body has more than 10 bytes");
    assert_eq!(a.heard.all(), [Evidence::Nothing]);
    assert_eq!(b.now().free, 0, "half a request is no connection for the next one");
}

#[tokio::test]
async fn a_client_that_breaks_off_is_not_the_nodes_fault() {
    let (told_gone, mut gone) = tell();
    let node = Node::start(move |request: Request<hyper::body::Incoming>| {
        let guard = told_gone.guard();
        async move {
            let read = request.into_body().collect().await;
            drop(guard);
            reply(if read.is_ok() { 200 } else { 400 }, "")
        }
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    let (sender, body) = pieces();
    let request = Outgoing { method: Method::POST, body: Sending::stream(body, 100), ..get("/") };
    let feeding = tokio::spawn(async move {
        let _ = sender.send(Ok(Bytes::from_static(b"half of"))).await;
        let _ = sender.send(Err(std::io::Error::other("the client hung up"))).await;
    });
    let failed = a.forwarder.forward(&b, request, LONG).await.err().expect("has no answer");
    feeding.await.expect("does not panic");
    assert_eq!(failed.kind, FailedKind::ClientGone);
    assert!(failed.to_string().contains("the client hung up"), "{failed}");
    assert_eq!(a.heard.all(), [Evidence::Nothing]);
    told(&mut gone).await;
}

#[tokio::test]
async fn an_answer_that_is_too_large_breaks_off() {
    let node = Node::start(async |_| reply(200, vec![7; 10_000])).await;
    let options = ForwardOptions { answer_max: 9_999, gather_max: 100, ..Default::default() };
    let a = A::with(options);
    let b = a.peer(node.address);
    let answer = a.forwarder.forward(&b, get("/"), LONG).await.expect("has a head");
    let error = answer.into_body().collect().await.expect_err("is too large");
    assert_eq!(error, AnswerError::TooLarge(9_999));
    assert_eq!(b.now().free, 0);
}

#[tokio::test]
async fn beyond_the_limit_a_request_comes_back_at_once_as_it_was() {
    let (enter, mut entered) = tokio::sync::watch::channel(0);
    let enter = Arc::new(enter);
    let open = Arc::new(tokio::sync::Notify::new());
    let node = Node::start({
        let open = open.clone();
        move |_| {
            let (open, enter) = (open.clone(), enter.clone());
            async move {
                enter.send_modify(|count| *count += 1);
                open.notified().await;
                reply(200, "")
            }
        }
    })
    .await;
    let a = A::with(ForwardOptions { forwards_max: 2, ..Default::default() });
    let b = a.peer(node.address);
    let two: Vec<_> = (0..2)
        .map(|_| {
            let (forwarder, b) = (a.forwarder.clone(), b.clone());
            tokio::spawn(async move { forwarder.forward(&b, get("/"), LONG).await.is_ok() })
        })
        .collect();
    within(entered.wait_for(|count| *count == 2)).await.expect("both arrive");
    let mut third = post("/third", "body");
    third.headers.insert("content-length", HeaderValue::from_static("4"));
    let failed = a.forwarder.forward(&b, third, LONG).await.err().expect("there is no room");
    assert_eq!(failed.kind, FailedKind::Busy);
    assert_eq!(failed.to_string(), "2 requests are on their way to node b");
    let unsent = failed.unsent.expect("is given back");
    assert_eq!(unsent.path_and_query.as_str(), "/third");
    assert_eq!(unsent.headers["content-length"], "4");
    let body = unsent.body.collect().await.expect("is in memory").to_bytes();
    assert_eq!(body, "body");
    open.notify_waiters();
    for one in two {
        assert!(within(one).await.expect("does not panic"));
    }
    assert_eq!(b.in_flight(), 0);
    let last = tokio::spawn({
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        async move { forwarder.forward(&b, get("/"), LONG).await.is_ok() }
    });
    within(entered.wait_for(|count| *count == 3)).await.expect("there is room again");
    open.notify_waiters();
    assert!(within(last).await.expect("does not panic"));
}

#[tokio::test]
async fn a_node_that_moved_is_found_where_it_is_and_one_that_left_is_forgotten() {
    let old = Node::start(async |_| reply(200, "old")).await;
    let new = Node::start(async |_| reply(200, "new")).await;
    let a = A::with(ForwardOptions { peers_max: 1, ..Default::default() });
    let b = a.peer(old.address);
    let ask = async || text(a.forwarder.forward(&b, get("/"), LONG).await.expect("answers")).await;
    assert_eq!(ask().await, "old");
    let moved = a.peer(new.address);
    assert_eq!(b.now().free, 0, "connections to where it was are closed");
    assert_eq!(ask().await, "new");
    assert_eq!(moved.now().forwarded, 2, "it is the same node");
    let one_more = a.forwarder.peer(&name("c"), "http://127.0.0.1:1");
    let error = one_more.expect_err("is one too many");
    assert_eq!(error, BadPeer::TooMany { name: name("c"), most: 1 });
    a.forwarder.retain(|_| false);
    assert!(a.forwarder.peers().is_empty());
    assert_eq!(ask().await, "new", "what still has its name may finish");
    assert_eq!(b.now().free, 0, "but nothing is kept");
}

#[tokio::test]
async fn free_connections_grow_old() {
    let node = Node::start(async |_| reply(200, "")).await;
    let limit = Duration::from_millis(20);
    let a = A::with(ForwardOptions { idle_limit: limit, ..Default::default() });
    let b = a.peer(node.address);
    a.forwarder.forward(&b, get("/"), LONG).await.expect("answers");
    assert_eq!(b.now().free, 1);
    eventually("it is closed", || {
        a.forwarder.tidy();
        b.now().free == 0
    })
    .await;
}

/// Counts who wakes a task while it runs.
struct FromWithin {
    task: Waker,
    running: AtomicBool,
    count: Arc<AtomicUsize>,
}

impl Wake for FromWithin {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(usize::from(self.running.load(Ordering::SeqCst)), Ordering::SeqCst);
        self.task.wake_by_ref();
    }
}

#[tokio::test]
async fn an_exchange_never_wakes_the_task_that_runs_it() {
    let node = Node::start(async |request: Request<hyper::body::Incoming>| {
        request.into_body().collect().await.expect("comes");
        reply(200, vec![7; 100_000])
    })
    .await;
    let a = A::new();
    let b = a.peer(node.address);
    let count = Arc::new(AtomicUsize::new(0));
    for size in [0, 10, 100_000] {
        let request = post("/", vec![1; size]);
        let mut exchange = pin!(a.forwarder.forward(&b, request, LONG));
        let answered = poll_fn(|cx| {
            let within = Arc::new(FromWithin {
                task: cx.waker().clone(),
                running: AtomicBool::new(true),
                count: count.clone(),
            });
            let waker = Waker::from(within.clone());
            let polled = exchange.as_mut().poll(&mut Context::from_waker(&waker));
            within.running.store(false, Ordering::SeqCst);
            polled
        });
        assert_eq!(text_length(within(answered).await.expect("answers")).await, 100_000);
    }
    assert_eq!(count.load(Ordering::SeqCst), 0, "that would cost the runtime a thread");
}

async fn text_length(answer: hyper::Response<skep_cluster::forward::Answer>) -> usize {
    answer.into_body().collect().await.expect("comes whole").to_bytes().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_exchanges_at_once_none_sleeps_through_its_answer() {
    let node = Node::start(async |request: Request<hyper::body::Incoming>| {
        let (sender, body) = pieces();
        let mut coming = request.into_body();
        tokio::spawn(async move {
            while let Some(Ok(frame)) = coming.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                if sender.send(Ok(data)).await.is_err() {
                    return;
                }
            }
        });
        hyper::Response::new(body.boxed_unsync())
    })
    .await;
    let a = A::with(ForwardOptions { gather_max: 10_000, ..Default::default() });
    let b = a.peer(node.address);
    let many = (0..16).map(|number| {
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        tokio::spawn(async move {
            for round in 0..25 {
                let size = 1 + (number * 7_919 + round * 104_729) % 200_000;
                let request = post("/", vec![number as u8; size]);
                let answer = forwarder.forward(&b, request, LONG).await.expect("answers");
                assert_eq!(text_length(answer).await, size);
            }
        })
    });
    for one in many.collect::<Vec<_>>() {
        within(one).await.expect("every byte comes back");
    }
    assert_eq!(a.heard.all(), vec![Evidence::Good; 16 * 25]);
    assert_eq!(b.in_flight(), 0);
}
