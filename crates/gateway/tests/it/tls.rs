//! Encrypted connections: sessions and fronts over TLS, and handshakes that come to nothing.

use crate::front::Claims;
use crate::kit::{Client, Scene, echo, handshake, read_head, says, worker};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use skep_gateway::{GatewayMetrics, GatewayOptions};
use skep_testkit::certificates::Authority;
use skep_testkit::{PATIENCE, eventually};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CLAIMED: &[u8] = b"GET /claimed HTTP/1.1\r\nHost: gateway\r\n\r\n";
const TLS: fn(&mut GatewayOptions) = |options| {
    options.tls_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
};

/// A front with a certificate for `gateway.test`, and who trusts that.
fn front() -> (Claims, Trusting) {
    let authority = Authority::new();
    let signed = authority.sign("gateway.test", 10);
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).expect("PEM");
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("has versions");
    let mut server = builder.with_no_client_auth().with_single_cert(chain, key).expect("fits");
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM");
    roots.add(root).expect("is a certificate");
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().expect("has versions");
    let client = builder.with_root_certificates(roots).with_no_client_auth();
    (Claims::new(Some(Arc::new(server))), Trusting(client))
}

struct Trusting(ClientConfig);

type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Trusting {
    fn connect(&self, scene: &Scene, protocol: &str) -> Stream {
        let mut config = self.0.clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = "gateway.test".try_into().expect("is a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("is set up");
        let stream = TcpStream::connect(scene.tls_address.expect("listens")).expect("connects");
        stream.set_nodelay(true).expect("sets");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        StreamOwned::new(connection, stream)
    }

    fn session(&self, scene: &Scene) -> Stream {
        let mut client = self.connect(scene, "http/1.1");
        client.write_all(handshake("/", &[]).as_bytes()).expect("sends");
        let head = read_head(&mut client).expect("a head comes");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        client
    }
}

fn echoes(client: &mut Stream, bytes: &[u8]) {
    client.write_all(bytes).expect("sends");
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).expect("comes back");
    assert!(back == bytes);
}

fn wait_for(metrics: &GatewayMetrics, line: &str) {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    eventually(line, || {
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        text.lines().any(|found| found == line).then_some(())
    });
}

#[test]
fn over_tls_a_front_serves_its_own_and_sessions_have_the_rest() {
    let (front, trusting) = front();
    let scene = Scene::with_front(front.clone(), TLS);
    scene.book.add(&worker(echo), 2);
    let mut client = trusting.connect(&scene, "http/1.1");
    client.write_all(CLAIMED).expect("sends");
    assert!(read_head(&mut client).expect("a head comes").starts_with("HTTP/1.1 200 "));
    client.read_exact(&mut [0; 5]).expect("a body comes");
    client.write_all(format!("{}hello", handshake("/", &[])).as_bytes()).expect("sends");
    assert!(read_head(&mut client).expect("a head comes").starts_with("HTTP/1.1 101 "));
    client.read_exact(&mut [0; 5]).expect("what was said early comes back");
    echoes(&mut client, b"more");
    let seen = front.seen.lock().expect("no panic").clone();
    assert!(seen[0].encrypted && !seen[0].http2);
    assert_eq!(seen[0].server_name.as_deref(), Some("gateway.test"));
    assert_eq!(Some(seen[0].local), scene.tls_address);
    wait_for(&scene.metrics, "skep_gateway_tls_handshakes_total{outcome=\"done\"} 1");
}

#[test]
fn a_session_over_tls_carries_much_and_ends_with_a_word() {
    let (front, trusting) = front();
    front.needed.store(false, Ordering::SeqCst);
    let scene = Scene::with_front(front, TLS);
    scene.book.add(&worker(echo), 1);
    let mut client = trusting.session(&scene);
    for round in 0..64_u8 {
        echoes(&mut client, &vec![round; 16 * 1_024]);
    }
    drop(client);
    scene.closed(1);
    scene.book.add(&worker(says(ONCE)), 1);
    scene.book.state().workers[0].slots = 0;
    let mut client = trusting.session(&scene);
    let mut last = Vec::new();
    // An end without a word would be an error.
    client.read_to_end(&mut last).expect("the end is said");
    assert_eq!(last, b"bye");
}

const ONCE: &str = "HTTP/1.1 101 Switching Protocols\r\n\
                    Upgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nbye";

#[test]
fn what_a_slow_reader_left_behind_comes_when_it_reads_again() {
    const MUCH: usize = 16 * 1_024 * 1_024;
    let (front, trusting) = front();
    let scene = Scene::with_front(front, TLS);
    scene.book.add(
        &worker(|mut stream, head| {
            let _ = stream.write_all(crate::kit::SWITCHING.as_bytes());
            let _ = stream.write_all(&vec![7; MUCH]);
            crate::kit::silent(stream, head);
        }),
        1,
    );
    let mut client = trusting.session(&scene);
    // The worker has far more to say than fits between the two; then the last of it must come
    // without anybody saying anything after it.
    let mut all = vec![0; MUCH];
    let mut at = 0;
    while at < MUCH {
        let end = MUCH.min(at + 1_000_000);
        client.read_exact(&mut all[at..end]).expect("it comes");
        at = end;
    }
    assert!(all.iter().all(|byte| *byte == 7));
}

#[test]
fn http_2_is_for_the_front_even_if_it_is_not_needed() {
    let (front, trusting) = front();
    front.needed.store(false, Ordering::SeqCst);
    let scene = Scene::with_front(front.clone(), TLS);
    let mut client = trusting.connect(&scene, "h2");
    client.write_all(CLAIMED).expect("sends");
    assert!(read_head(&mut client).expect("the test's front answers").contains("200"));
    assert!(front.seen.lock().expect("no panic")[0].http2);
}

#[test]
fn garbage_is_no_handshake() {
    let (front, trusting) = front();
    let scene = Scene::with_front(front, TLS);
    scene.book.add(&worker(echo), 1);
    let mut client = Client::connect(scene.tls_address.expect("listens"));
    client.send(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n");
    assert!(client.is_at_end());
    let mut left = Client::connect(scene.tls_address.expect("listens"));
    left.send(&[22, 3, 1]);
    drop(left);
    wait_for(&scene.metrics, "skep_gateway_tls_handshakes_total{outcome=\"failed\"} 2");
    echoes(&mut trusting.session(&scene), b"the next one is served");
}

#[test]
fn a_slow_handshake_is_not_waited_for() {
    let (front, _) = front();
    let scene = Scene::with_front(front, |options| {
        TLS(options);
        options.header_limit = Duration::from_millis(100);
    });
    let mut client = Client::connect(scene.tls_address.expect("listens"));
    client.send(&[22, 3, 1]);
    assert!(client.is_at_end());
    wait_for(&scene.metrics, "skep_gateway_tls_handshakes_total{outcome=\"timeout\"} 1");
    wait_for(&scene.metrics, "skep_gateway_connections 0");
}

#[test]
fn a_handshake_in_progress_does_not_hold_the_end_up() {
    let (front, _) = front();
    let mut scene = Scene::with_front(front, |options| {
        TLS(options);
        options.header_limit = Duration::from_secs(600);
    });
    let _client = Client::connect(scene.tls_address.expect("listens"));
    wait_for(&scene.metrics, "skep_gateway_connections 1");
    let began = Instant::now();
    scene.stop.cancel();
    scene.ended();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn without_a_certificate_an_encrypted_connection_is_closed() {
    let (front, trusting) = front();
    let config = front.tls.lock().expect("no panic").take();
    let scene = Scene::with_front(front.clone(), TLS);
    scene.book.add(&worker(echo), 1);
    assert!(Client::connect(scene.tls_address.expect("listens")).is_at_end());
    wait_for(&scene.metrics, "skep_gateway_tls_handshakes_total{outcome=\"no_certificate\"} 1");
    *front.tls.lock().expect("no panic") = config;
    echoes(&mut trusting.session(&scene), b"now there is one");
}

#[test]
fn both_ports_share_the_limit_on_connections() {
    let (front, trusting) = front();
    let scene = Scene::with_front(front, |options| {
        TLS(options);
        options.connections_max = 1;
    });
    scene.book.add(&worker(echo), 10);
    let mut first = trusting.session(&scene);
    let mut second = Client::connect(scene.tls_address.expect("listens"));
    assert!(second.is_at_end());
    let (head, _) = scene.connect().answer();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    echoes(&mut first, b"goes on");
    wait_for(&scene.metrics, "skep_gateway_refusals_total{code=\"E_CONNECTIONS_MAX\"} 2");
    drop(first);
    wait_for(&scene.metrics, "skep_gateway_connections 0");
    echoes(&mut trusting.session(&scene), b"there is a place again");
}
