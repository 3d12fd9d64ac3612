//! Nodes that die, hang, restart and break off, and callers that go away.

use crate::forward_kit::*;
use bytes::Bytes;
use http_body_util::BodyExt;
use skep_cluster::forward::{AnswerError, Evidence, FailedKind, ForwardOptions, Limits};
use skep_testkit::Proxy;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};

/// Reads a request's head, says `words`, and closes; for `often` connections.
async fn rude(words: &'static [u8], often: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    tokio::spawn(async move {
        for _ in 0..often {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\n") {
                read.push(stream.read_u8().await.expect("a request comes"));
            }
            stream.write_all(words).await.expect("writes");
        }
    });
    address
}

/// A node that never answers, whether it is asked, and whether its work was dropped.
async fn node_that_hangs() -> (Node, watch::Receiver<bool>, watch::Receiver<bool>) {
    let (told_gone, gone) = tell();
    let (enter, entered) = watch::channel(false);
    let enter = Arc::new(enter);
    let node = Node::start(move |_| {
        let (guard, enter) = (told_gone.guard(), enter.clone());
        async move {
            let _guard = guard;
            enter.send_replace(true);
            std::future::pending().await
        }
    })
    .await;
    (node, entered, gone)
}

/// A node whose one answer has begun, and what gives it more.
async fn node_that_goes_on() -> (Node, mpsc::Sender<Result<Bytes, std::io::Error>>) {
    let (sender, body) = pieces();
    let body = Arc::new(Mutex::new(Some(body)));
    let node = Node::start(move |_| {
        let body = body.lock().expect("nobody panics").take().expect("is asked once");
        async move { hyper::Response::new(body.boxed_unsync()) }
    })
    .await;
    sender.send(Ok(Bytes::from_static(b"first"))).await.expect("is taken");
    (node, sender)
}

#[tokio::test]
async fn a_node_that_does_not_listen_was_surely_not_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    drop(listener);
    let a = A::new();
    let b = a.peer(address);
    let failed = a.forwarder.forward(&b, post("/p?q=1", "x"), LONG).await.err().expect("fails");
    assert_eq!(failed.kind, FailedKind::NotSent);
    assert!(failed.to_string().starts_with(&format!("node b at http://{address}: ")), "{failed}");
    let unsent = failed.unsent.expect("is given back");
    assert_eq!(unsent.path_and_query.as_str(), "/p?q=1");
    assert!(unsent.headers.is_empty(), "as it came: {:?}", unsent.headers);
    assert_eq!(a.heard.all(), [Evidence::Gone]);
    assert_eq!((b.in_flight(), b.now().failed), (0, 1));
}

#[tokio::test]
async fn a_node_that_does_not_accept_is_given_up_after_the_connect_limit() {
    let socket = TcpSocket::new_v4().expect("is there");
    socket.bind("127.0.0.1:0".parse().expect("is an address")).expect("binds");
    let listener = socket.listen(1).expect("listens");
    let address = listener.local_addr().expect("is bound");
    // Whoever comes when the system's queue is full is not answered.
    let mut queue = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queue.push(connected.expect("connects"));
    }
    let a = A::new();
    let b = a.peer(address);
    let limits = Limits { connect: Duration::from_millis(100), total: LONG.total };
    let failed = a.forwarder.forward(&b, get("/"), limits).await.err().expect("fails");
    assert_eq!(failed.kind, FailedKind::NotSent);
    assert!(failed.to_string().ends_with("was not connected within 100.0ms"), "{failed}");
    let limits = Limits { connect: LONG.connect, total: Duration::from_millis(100) };
    let failed = a.forwarder.forward(&b, get("/"), limits).await.err().expect("fails");
    assert_eq!(failed.kind, FailedKind::NotSent, "nothing has left, whatever ended it");
    assert_eq!(a.heard.all(), [Evidence::Gone; 2]);
}

#[tokio::test]
async fn a_node_that_restarted_is_asked_on_a_new_connection() {
    let node = Node::start(async |_| reply(200, "before")).await;
    let address = node.address;
    let a = A::new();
    let b = a.peer(address);
    for _ in 0..10 {
        let answer = a.forwarder.forward(&b, post("/", "x"), LONG).await.expect("answers");
        assert_eq!(text(answer).await, "before");
    }
    node.kill().await;
    let node = Node::start_at(address, async |_| reply(200, "after")).await;
    let answer = a.forwarder.forward(&b, post("/", "x"), LONG).await.expect("answers at once");
    assert_eq!(text(answer).await, "after");
    assert_eq!((node.connections(), b.now().connects), (1, 2));
    assert!(a.heard.all().iter().all(|evidence| *evidence == Evidence::Good));
}

#[tokio::test]
async fn a_connection_that_was_closed_a_moment_ago_is_not_used() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("is bound");
    let (close, told) = std::sync::mpsc::sync_channel::<()>(0);
    let serving = std::thread::spawn(move || {
        let answer = || {
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut read = [0; 4_096];
            assert!(stream.read(&mut read).expect("a request comes") > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("writes");
            stream
        };
        let first = answer();
        told.recv().expect("is told");
        drop(first);
        told.recv().expect("is told");
        drop(answer());
    });
    let a = A::new();
    let b = a.peer(address);
    a.forwarder.forward(&b, get("/"), LONG).await.expect("answers");
    // Nothing is awaited between the end of the connection and the next request, so the runtime
    // had no chance to hear of it.
    close.send(()).expect("listens");
    close.send(()).expect("has closed");
    a.forwarder.forward(&b, get("/"), LONG).await.expect("answers on another connection");
    assert_eq!(b.now().connects, 2);
    serving.join().expect("does not panic");
}

#[tokio::test]
async fn free_connections_to_a_dead_node_are_closed_by_tidying() {
    let node = Node::start(async |_| reply(200, "")).await;
    let a = A::new();
    let b = a.peer(node.address);
    a.forwarder.forward(&b, get("/"), LONG).await.expect("answers");
    a.forwarder.tidy();
    assert_eq!(b.now().free, 1, "a good one is kept");
    node.kill().await;
    eventually("it is closed", || {
        a.forwarder.tidy();
        b.now().free == 0
    })
    .await;
}

#[tokio::test]
async fn whatever_breaks_after_the_request_left_is_a_lost_answer() {
    let halves: [&[u8]; 6] = [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"this is not HTTP at all\r\n\r\n",
    ];
    for half in halves {
        let a = A::new();
        let b = a.peer(rude(half, 1).await);
        let failed = within(a.forwarder.forward(&b, get("/"), LONG)).await.err().expect("fails");
        let said = String::from_utf8_lossy(half);
        assert_eq!(failed.kind, FailedKind::AnswerLost, "{said:?}: {failed}");
        assert!(failed.unsent.is_none(), "it may have been done");
        assert_eq!(a.heard.all(), [Evidence::Bad], "{said:?}");
        assert_eq!((b.in_flight(), b.now().free), (0, 0));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_after_its_head_was_passed_on_breaks_off() {
    let a = A::with(ForwardOptions { gather_max: 2, ..Default::default() });
    let b = a.peer(rude(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", 1).await);
    let answer = a.forwarder.forward(&b, get("/"), LONG).await.expect("has a head");
    let error = within(answer.into_body().collect()).await.expect_err("breaks");
    assert!(matches!(error, AnswerError::Broken(_)), "{error}");
    assert_eq!(a.heard.all(), [Evidence::Bad], "told once, at the end");
}

#[tokio::test]
async fn a_cut_while_a_node_works_is_a_lost_answer_and_the_node_hears_of_it() {
    let (node, mut entered, mut gone) = node_that_hangs().await;
    let proxy = Proxy::start(("127.0.0.1", node.address.port()));
    let a = A::new();
    let b = a.peer(([127, 0, 0, 1], proxy.port()).into());
    let asking = tokio::spawn({
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        async move { forwarder.forward(&b, get("/"), LONG).await.err().map(|failed| failed.kind) }
    });
    within(entered.wait_for(|entered| *entered)).await.expect("the node is asked");
    proxy.cut();
    assert_eq!(within(asking).await.expect("does not panic"), Some(FailedKind::AnswerLost));
    told(&mut gone).await;
}

#[tokio::test]
async fn a_node_that_hangs_is_given_up_at_the_deadline_and_hears_of_it() {
    let (node, _, mut gone) = node_that_hangs().await;
    let a = A::new();
    let b = a.peer(node.address);
    let began = Instant::now();
    let limits = Limits { total: Duration::from_millis(100), ..a.limits() };
    let failed = a.forwarder.forward(&b, get("/"), limits).await.err().expect("hangs");
    assert_eq!(failed.kind, FailedKind::Deadline);
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(a.heard.all(), [Evidence::Bad]);
    assert_eq!(b.in_flight(), 0);
    told(&mut gone).await;
}

#[tokio::test]
async fn an_answer_that_never_ends_is_broken_off_at_the_deadline() {
    let (node, sender) = node_that_goes_on().await;
    let a = A::with(ForwardOptions { gather_max: 1, ..Default::default() });
    let b = a.peer(node.address);
    let limits = Limits { total: Duration::from_millis(300), ..a.limits() };
    let answer = a.forwarder.forward(&b, get("/"), limits).await.expect("has a head");
    let error = within(answer.into_body().collect()).await.expect_err("does not end");
    assert_eq!(error, AnswerError::Deadline);
    assert_eq!(a.heard.all(), [Evidence::Bad]);
    within(sender.closed()).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_the_wait_of_the_other_node() {
    let (node, mut entered, mut gone) = node_that_hangs().await;
    let a = A::new();
    let b = a.peer(node.address);
    let asking = tokio::spawn({
        let (forwarder, b) = (a.forwarder.clone(), b.clone());
        async move { forwarder.forward(&b, get("/"), LONG).await.is_ok() }
    });
    within(entered.wait_for(|entered| *entered)).await.expect("the node is asked");
    assert_eq!(b.in_flight(), 1);
    asking.abort();
    told(&mut gone).await;
    assert_eq!(b.in_flight(), 0);
    assert_eq!(a.heard.all(), [Evidence::Nothing], "that says nothing about the node");
}

#[tokio::test]
async fn a_caller_that_stops_reading_ends_the_answer_of_the_other_node() {
    let (node, sender) = node_that_goes_on().await;
    let a = A::with(ForwardOptions { gather_max: 1, ..Default::default() });
    let b = a.peer(node.address);
    let answer = a.forwarder.forward(&b, get("/"), LONG).await.expect("has a head");
    drop(answer);
    within(sender.closed()).await;
    assert_eq!((b.in_flight(), b.now().free), (0, 0));
    assert_eq!(a.heard.all(), [Evidence::Good], "it did answer");
}
