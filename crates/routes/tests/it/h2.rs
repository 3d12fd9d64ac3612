//! HTTP/2 before a data path of HTTP/1, over real sockets and with a real client.

use http_body_util::{BodyExt, Either, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use skep_routes::{H2Limits, serve_h2};
use skep_testkit::PATIENCE;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const MIB: usize = 1_024 * 1_024;

/// A server of one connection.
struct Scene {
    address: SocketAddr,
    stop: CancellationToken,
    cut: CancellationToken,
    running: JoinHandle<()>,
}

impl Scene {
    async fn new<E>(start: impl Fn(DuplexStream) -> E + Send + Sync + 'static) -> Self
    where
        E: Future<Output = ()> + Send + 'static,
    {
        Self::with(H2Limits::default(), start).await
    }

    async fn with<E>(
        limits: H2Limits,
        start: impl Fn(DuplexStream) -> E + Send + Sync + 'static,
    ) -> Self
    where
        E: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let told = (stop.clone(), cut.clone());
        let running = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            // As if somebody had looked at what it is.
            let mut read = vec![0; 10];
            stream.read_exact(&mut read).await.expect("reads");
            serve_h2((stream, read), (&told.0, &told.1), &limits, start).await;
        });
        Scene { address, stop, cut, running }
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.expect("connects");
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("greets");
        let connection = tokio::spawn(async move { drop(connection.await) });
        Client { sender, connection }
    }

    async fn ended(self) {
        timeout(PATIENCE, self.running).await.expect("ends").expect("no panic");
    }
}

type Sent = Either<Full<Bytes>, Much>;

struct Client {
    sender: SendRequest<Sent>,
    connection: JoinHandle<()>,
}

impl Client {
    async fn send(&mut self, request: Request<Sent>) -> hyper::Result<Response<Incoming>> {
        timeout(PATIENCE, self.sender.send_request(request)).await.expect("is answered")
    }

    async fn get(&mut self, path: &str) -> hyper::Result<String> {
        let response = self.send(get(path)).await?;
        let body = response.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.to_vec()).expect("is text"))
    }
}

fn get(path: &str) -> Request<Sent> {
    let uri = format!("https://shop.example{path}");
    Request::get(uri).body(Either::Left(Full::default())).expect("is a request")
}

/// A data path that is a server of hyper's.
fn served_by<F, B>(
    serve: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> impl Fn(DuplexStream) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    F: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    move |stream| {
        let serve = serve.clone();
        Box::pin(async move {
            let service = service_fn(move |request| {
                let answer = serve(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let server = hyper::server::conn::http1::Builder::new();
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        })
    }
}

/// A body that is there as fast as somebody takes it, and counts what was taken.
struct Much {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl Much {
    fn new(bytes: usize) -> (Self, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        (Much { left: bytes, taken: taken.clone() }, taken)
    }
}

impl Body for Much {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let count = self.left.min(16 * 1_024);
        if count == 0 {
            return Poll::Ready(None);
        }
        self.left -= count;
        self.taken.fetch_add(count, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![7; count])))))
    }
}

/// A few frames.
struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// Waits until a count stands still at something: for as long as anything moves, it does.
async fn settled(count: &AtomicUsize) -> usize {
    let mut last = (0, Instant::now());
    loop {
        let now = count.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        } else if now > 0 && last.1.elapsed() > Duration::from_millis(300) {
            return now;
        }
        tokio::task::yield_now().await;
    }
}

/// Says when it is dropped.
struct Dropped(mpsc::Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[tokio::test]
async fn a_stream_is_an_exchange_of_http_1() {
    let scene = Scene::new(served_by(|request: Request<Incoming>| async move {
        assert_eq!(request.version(), Version::HTTP_11);
        let said = format!(
            "{} {} host={:?} cookie={:?} encoding={:?}",
            request.method(),
            request.uri(),
            request.headers().get_all("host").iter().collect::<Vec<_>>(),
            request.headers().get("cookie"),
            request.headers().get("transfer-encoding"),
        );
        let mut response = Response::new(Full::new(Bytes::from(said)));
        let hops = HeaderValue::from_static("x-hop");
        response.headers_mut().insert(header::CONNECTION, hops);
        response.headers_mut().insert("x-hop", HeaderValue::from_static("1"));
        response.headers_mut().insert("x-kept", HeaderValue::from_static("1"));
        response
    }))
    .await;
    let mut client = scene.client().await;
    let mut request = get("/a?b=c");
    request.headers_mut().append(header::COOKIE, HeaderValue::from_static("a=1"));
    request.headers_mut().append(header::COOKIE, HeaderValue::from_static("b=2"));
    let response = client.send(request).await.expect("is answered");
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(!response.headers().contains_key("connection"));
    assert!(!response.headers().contains_key("x-hop"));
    assert_eq!(response.headers()["x-kept"], "1");
    let body = response.into_body().collect().await.expect("comes").to_bytes();
    let expected = "GET /a?b=c host=[\"shop.example\"] cookie=Some(\"a=1; b=2\") encoding=None";
    assert_eq!(std::str::from_utf8(&body).expect("is text"), expected);
}

#[tokio::test]
async fn bodies_and_trailers_go_both_ways() {
    let scene = Scene::new(served_by(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.expect("comes").to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from(body.len()));
        let frames = VecDeque::from([Frame::data(body), Frame::trailers(trailers)]);
        let mut response = Response::new(Frames(frames));
        response.headers_mut().insert(header::TRAILER, HeaderValue::from_static("x-sum"));
        response
    }))
    .await;
    let mut client = scene.client().await;
    for method in [Method::POST, Method::GET] {
        let mut request = get("/").map(|_| Either::Right(Much::new(3 * MIB).0));
        *request.method_mut() = method;
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        let response = client.send(request).await.expect("is answered");
        let body = response.into_body().collect().await.expect("comes");
        assert_eq!(body.trailers().expect("has some")["x-sum"], "3145728");
        let bytes = body.to_bytes();
        assert!(bytes.len() == 3 * MIB && bytes.iter().all(|byte| *byte == 7));
    }
}

#[tokio::test]
async fn an_answer_without_a_body_ends_its_stream() {
    let (finished, mut is_finished) = mpsc::channel(1);
    let start = served_by(|_| async { Response::new(Full::new(Bytes::from("not for HEAD"))) });
    let scene = Scene::new(move |stream| {
        let (serving, finished) = (start(stream), finished.clone());
        async move {
            serving.await;
            let _ = finished.send(()).await;
        }
    })
    .await;
    let mut client = scene.client().await;
    let mut request = get("/");
    *request.method_mut() = Method::HEAD;
    let response = client.send(request).await.expect("is answered");
    assert_eq!(response.headers()["content-length"], "12");
    assert!(response.into_body().collect().await.expect("ends").to_bytes().is_empty());
    // Whoever served it comes to its end, and is not just dropped.
    timeout(PATIENCE, is_finished.recv()).await.expect("comes to its end");
}

#[tokio::test]
async fn many_streams_are_open_at_a_time() {
    const MANY: usize = 100;
    let all_here = Arc::new(tokio::sync::Barrier::new(MANY));
    let scene = Scene::new(served_by(move |request: Request<Incoming>| {
        let all_here = all_here.clone();
        async move {
            all_here.wait().await;
            Response::new(Full::new(Bytes::from(request.uri().to_string())))
        }
    }))
    .await;
    let client = scene.client().await;
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let connection = tokio::spawn(async {});
        let mut client = Client { sender: client.sender.clone(), connection };
        asked.spawn(async move { (number, client.get(&format!("/{number}")).await) });
    }
    while let Some(answered) = asked.join_next().await {
        let (number, body) = answered.expect("no panic");
        assert_eq!(body.expect("is answered"), format!("/{number}"));
    }
}

#[tokio::test]
async fn what_a_slow_upstream_does_not_take_stays_with_the_client() {
    let go_on = Arc::new(Notify::new());
    let gone_on = go_on.clone();
    let scene = Scene::new(served_by(move |request: Request<Incoming>| {
        let go_on = go_on.clone();
        async move {
            go_on.notified().await;
            let body = request.into_body().collect().await.expect("comes").to_bytes();
            Response::new(Full::new(Bytes::from(body.len().to_string())))
        }
    }))
    .await;
    let mut client = scene.client().await;
    let (body, taken) = Much::new(50 * MIB);
    let request = get("/").map(|_| Either::Right(body));
    let answer = tokio::spawn(async move {
        let response = client.sender.send_request(request).await.expect("is answered");
        response.into_body().collect().await.expect("comes").to_bytes()
    });
    let before = settled(&taken).await;
    assert!(before < 4 * MIB, "{before} bytes were taken for somebody who reads nothing");
    gone_on.notify_one();
    assert_eq!(timeout(PATIENCE, answer).await.expect("ends").expect("no panic"), "52428800");
}

#[tokio::test]
async fn what_a_slow_client_does_not_take_stays_with_the_upstream() {
    let (body, taken) = Much::new(50 * MIB);
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
    let scene = Scene::new(served_by(move |_| {
        let body = body.lock().expect("no panic").take().expect("is asked once");
        async move { Response::new(body) }
    }))
    .await;
    let mut client = scene.client().await;
    let response = client.send(get("/")).await.expect("is answered");
    let before = settled(&taken).await;
    // The client's own window of hyper's default, 2 MiB, is a part of it.
    assert!(before < 4 * MIB, "{before} bytes were taken for somebody who reads nothing");
    let mut body = response.into_body();
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.expect("comes").into_data().expect("is data");
        assert!(data.iter().all(|byte| *byte == 7));
        count += data.len();
    }
    assert_eq!(count, 50 * MIB);
}

#[tokio::test]
async fn a_stream_that_is_given_up_takes_its_exchange_with_it() {
    let (dropped, mut is_dropped) = mpsc::channel(1);
    let (begun, mut has_begun) = mpsc::channel(1);
    let scene = Scene::new(move |mut stream: DuplexStream| {
        let (begun, dropped) = (begun.clone(), Dropped(dropped.clone()));
        async move {
            let _dropped = dropped;
            let mut head = [0; 512];
            let count = stream.read(&mut head).await.expect("reads");
            if head[..count].starts_with(b"GET /body") {
                let start = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
                stream.write_all(start).await.expect("writes");
            }
            begun.send(()).await.expect("the test waits");
            // Somebody who does not look at its client.
            std::future::pending().await
        }
    })
    .await;
    let mut client = scene.client().await;
    let waiting = client.sender.send_request(get("/head"));
    let waiting = tokio::spawn(async move { drop(waiting.await) });
    timeout(PATIENCE, has_begun.recv()).await.expect("is served");
    assert!(is_dropped.try_recv().is_err());
    waiting.abort();
    timeout(PATIENCE, is_dropped.recv()).await.expect("both ends are dropped");
    let response = client.send(get("/body")).await.expect("is answered");
    timeout(PATIENCE, has_begun.recv()).await.expect("is served");
    assert!(is_dropped.try_recv().is_err());
    drop(response);
    timeout(PATIENCE, is_dropped.recv()).await.expect("both ends are dropped");
}

#[tokio::test]
async fn an_early_answer_is_heard_while_much_is_still_to_be_sent() {
    let scene = Scene::new(|mut stream: DuplexStream| async move {
        stream.read_exact(&mut [0; 64]).await.expect("reads");
        let answer =
            b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 7\r\n\r\nno more";
        stream.write_all(answer).await.expect("writes");
    })
    .await;
    let mut client = scene.client().await;
    for _ in 0..20 {
        let request = get("/").map(|_| Either::Right(Much::new(50 * MIB).0));
        let response = client.send(request).await.expect("is answered");
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let body = response.into_body().collect().await.expect("is whole").to_bytes();
        assert_eq!(body, "no more");
    }
}

#[tokio::test]
async fn an_exchange_that_breaks_off_breaks_its_stream_alone() {
    let scene = Scene::new(|mut stream: DuplexStream| async move {
        let mut head = [0; 512];
        let count = stream.read(&mut head).await.expect("reads");
        let answer = match &head[..count] {
            head if head.starts_with(b"GET /silent") => "",
            head if head.starts_with(b"GET /half") => {
                "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        };
        stream.write_all(answer.as_bytes()).await.expect("writes");
    })
    .await;
    let mut client = scene.client().await;
    assert!(client.get("/silent").await.is_err());
    assert!(client.get("/half").await.is_err());
    assert_eq!(client.get("/whole").await.expect("is answered"), "abc");
}

#[tokio::test]
async fn what_http_1_cannot_say_is_refused() {
    let scene = Scene::new(served_by(|_| async { Response::new(Empty::<Bytes>::new()) })).await;
    let mut client = scene.client().await;
    let mut differs = get("/");
    differs.headers_mut().insert(header::HOST, HeaderValue::from_static("other.example"));
    let response = client.send(differs).await.expect("is answered");
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let body = response.into_body().collect().await.expect("comes").to_bytes();
    let body = std::str::from_utf8(&body).expect("is text");
    assert!(body.contains(":authority and host differ; give one of them"), "{body}");
    let connect = Request::connect("shop.example:443").body(Either::Left(Full::default()));
    let response = client.send(connect.expect("is a request")).await.expect("is answered");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(client.get("/").await.expect("the next one is answered"), "");
}

/// A server whose exchanges last until they are let go, and a client with one of them.
async fn with_one_open() -> (Scene, Client, Arc<Notify>, JoinHandle<hyper::Result<String>>) {
    let (let_go, (begun, mut has_begun)) = (Arc::new(Notify::new()), mpsc::channel(1));
    let wait_for = let_go.clone();
    let scene = Scene::new(served_by(move |_| {
        let (let_go, begun) = (wait_for.clone(), begun.clone());
        async move {
            let _ = begun.try_send(());
            let_go.notified().await;
            Response::new(Full::new(Bytes::from("done")))
        }
    }))
    .await;
    let client = scene.client().await;
    let connection = tokio::spawn(async {});
    let mut same = Client { sender: client.sender.clone(), connection };
    let asked = tokio::spawn(async move { same.get("/").await });
    timeout(PATIENCE, has_begun.recv()).await.expect("is served");
    (scene, client, let_go, asked)
}

#[tokio::test]
async fn when_it_stops_nothing_new_begins_and_what_is_open_is_finished() {
    let (scene, mut client, let_go, asked) = with_one_open().await;
    scene.stop.cancel();
    // What was on its way when the client hears of it may still be taken, and waits.
    let refused = async {
        let moment = Duration::from_millis(20);
        while timeout(moment, client.sender.send_request(get("/"))).await.is_err() {}
    };
    timeout(PATIENCE, refused).await.expect("nothing new begins");
    assert!(!asked.is_finished() && !scene.running.is_finished());
    let_go.notify_one();
    assert_eq!(asked.await.expect("no panic").expect("is answered"), "done");
    scene.ended().await;
    timeout(PATIENCE, client.connection).await.expect("is closed").expect("no panic");
}

#[tokio::test]
async fn when_it_is_cut_everything_ends_at_once() {
    let (scene, _client, _let_go, asked) = with_one_open().await;
    scene.cut.cancel();
    scene.ended().await;
    assert!(asked.await.expect("no panic").is_err());
}

#[tokio::test]
async fn nothing_goes_on_when_it_is_dropped() {
    let (dropped, mut is_dropped) = mpsc::channel(1);
    let (begun, mut has_begun) = mpsc::channel(1);
    let scene = Scene::new(move |stream: DuplexStream| {
        let (begun, kept) = (begun.clone(), (Dropped(dropped.clone()), stream));
        async move {
            begun.send(()).await.expect("the test waits");
            std::future::pending::<()>().await;
            drop(kept);
        }
    })
    .await;
    let mut client = scene.client().await;
    let asked = tokio::spawn(async move { client.get("/").await });
    timeout(PATIENCE, has_begun.recv()).await.expect("is served");
    scene.running.abort();
    timeout(PATIENCE, is_dropped.recv()).await.expect("is dropped");
    assert!(asked.await.expect("no panic").is_err());
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let limits = H2Limits { idle: Duration::from_millis(100), ..H2Limits::default() };
    let start = served_by(|_| async { Response::new(Full::new(Bytes::from("here"))) });
    let scene = Scene::with(limits, start).await;
    let mut client = scene.client().await;
    assert_eq!(client.get("/").await.expect("is answered"), "here");
    scene.ended().await;
    timeout(PATIENCE, client.connection).await.expect("is closed").expect("no panic");
}

#[tokio::test]
async fn whoever_does_not_go_when_told_is_hung_up_on() {
    let scene = Scene::new(served_by(|_| async { Response::new(Empty::<Bytes>::new()) })).await;
    let mut rude = TcpStream::connect(scene.address).await.expect("connects");
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    rude.write_all(greeting).await.expect("sends");
    // Its greeting, so that it is known to be served.
    rude.read_exact(&mut [0; 9]).await.expect("is greeted");
    scene.stop.cancel();
    scene.ended().await;
}
