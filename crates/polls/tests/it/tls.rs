//! Handshakes and certificates.

use crate::kit::{Guest, Server, answer, poll, ready, trusting};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{ServerConfig, ServerConnection};
use serde_json::{Value, json};
use skep_polls::{Outcome, Prober, Verdict};
use skep_testkit::certificates::{Authority, Certificate};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DAY_MS: i64 = 86_400_000;

/// A server with this certificate that answers every request with 200.
fn secure(certificate: &Certificate) -> Server {
    let chain = vec![CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    Server::start(move |guest: &mut Guest| {
        let mut tls = ServerConnection::new(config.clone()).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut guest.stream);
        let (mut request, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte).is_ok_and(|read| read == 1) {
            request.push(byte[0]);
            if request.ends_with(b"\r\n\r\n") {
                request.clear();
                let _ = stream.write_all(answer(200, "secure").as_bytes());
            }
        }
    })
}

async fn probe(prober: &Prober, value: Value) -> Outcome {
    prober.probe(&ready(value), Duration::MAX, &[]).await
}

fn days_left(outcome: &Outcome) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let at = outcome.certificate_expires_at_ms.expect("a certificate was seen");
    (at - now.as_millis() as i64) as f64 / DAY_MS as f64
}

fn tls_at(server: &Server) -> Value {
    json!({ "kind": "tls", "address": server.address() })
}

fn https_at(server: &Server) -> Value {
    json!({ "url": format!("https://127.0.0.1:{}/", server.port), "expect": { "body": "secure" } })
}

fn with(mut value: Value, field: &str, to: Value) -> Value {
    value[field] = to;
    value
}

#[tokio::test]
async fn a_good_certificate_passes_and_its_end_is_told() {
    let authority = Authority::new();
    let server = secure(&authority.sign("127.0.0.1", 30));
    let prober = trusting(authority.pem());
    for value in [tls_at(&server), https_at(&server)] {
        let outcome = probe(&prober, with(value, "expires_in", json!("14d"))).await;
        assert!(outcome.ok, "{outcome:?}");
        assert!((29.9..30.1).contains(&days_left(&outcome)));
    }
}

#[tokio::test]
async fn a_certificate_that_expires_soon_fails_where_that_is_asked() {
    let authority = Authority::new();
    let server = secure(&authority.sign("127.0.0.1", 5));
    let prober = trusting(authority.pem());
    for value in [tls_at(&server), https_at(&server)] {
        let outcome = probe(&prober, value.clone()).await;
        assert!(outcome.ok, "{outcome:?}");
        let asked = with(value, "expires_in", json!("14d"));
        for verify in [true, false] {
            let outcome = probe(&prober, with(asked.clone(), "verify", json!(verify))).await;
            assert_eq!(outcome.verdict, Verdict::Expiry);
            assert!(outcome.detail.ends_with("sooner than 14d"), "{}", outcome.detail);
        }
    }
}

#[tokio::test]
async fn an_expired_certificate_fails() {
    let authority = Authority::new();
    let server = secure(&authority.sign("127.0.0.1", -3));
    let prober = trusting(authority.pem());
    for value in [tls_at(&server), https_at(&server)] {
        let outcome = probe(&prober, value.clone()).await;
        assert_eq!(outcome.verdict, Verdict::Expiry);
        assert_eq!(outcome.detail, "the certificate has expired");
        assert!((-3.1..-2.9).contains(&days_left(&outcome)));
    }
    // A web server whose certificate nobody asks about is judged by its answer alone.
    let outcome = probe(&prober, with(tls_at(&server), "verify", json!(false))).await;
    assert_eq!(outcome.verdict, Verdict::Expiry);
    assert!(outcome.detail.ends_with("d ago"), "{}", outcome.detail);
    let outcome = probe(&prober, with(https_at(&server), "verify", json!(false))).await;
    assert!(outcome.ok, "{outcome:?}");
}

#[tokio::test]
async fn a_certificate_for_another_name_fails() {
    let authority = Authority::new();
    let server = secure(&authority.sign("shop.example", 30));
    let prober = trusting(authority.pem());
    for value in [tls_at(&server), https_at(&server)] {
        let outcome = probe(&prober, value).await;
        assert_eq!(outcome.verdict, Verdict::Tls);
        assert_eq!(outcome.detail, "the certificate is for another name");
    }
    let named = with(tls_at(&server), "server_name", json!("shop.example"));
    assert!(probe(&prober, named).await.ok);
}

#[tokio::test]
async fn a_certificate_from_a_stranger_or_itself_fails_unless_that_is_fine() {
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let own = Certificate { certificate: own.pem(), key: key.serialize_pem() };
    for certificate in [Authority::new().sign("127.0.0.1", 30), own] {
        let server = secure(&certificate);
        for value in [tls_at(&server), https_at(&server)] {
            let outcome = poll(value.clone()).await;
            assert_eq!(outcome.verdict, Verdict::Tls, "{outcome:?}");
            let outcome = poll(with(value, "verify", json!(false))).await;
            assert!(outcome.ok && outcome.certificate_expires_at_ms.is_some(), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_made_unchecked_does_not_serve_those_who_check() {
    let server = secure(&Authority::new().sign("127.0.0.1", 30));
    let prober = crate::kit::prober();
    let unchecked = with(https_at(&server), "verify", json!(false));
    for _ in 0..2 {
        let outcome = probe(&prober, unchecked.clone()).await;
        assert!(outcome.ok && days_left(&outcome) > 29.0);
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(probe(&prober, https_at(&server)).await.verdict, Verdict::Tls);
}

#[tokio::test]
async fn a_server_that_never_shakes_hands_runs_out_of_time() {
    let server = Server::start(|guest| guest.hold());
    for value in [tls_at(&server), https_at(&server)] {
        let outcome = poll(with(value, "timeout", json!("100ms"))).await;
        assert_eq!(outcome.verdict, Verdict::Timeout);
        assert_eq!(outcome.detail, "time ran out after 100ms, in the TLS handshake");
        server.wait_gone();
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let server = Server::start(|guest| {
        let _ = guest.stream.peek(&mut [0]);
        guest.say(answer(400, "speak plainly"));
        guest.hold();
    });
    let closing = Server::start(|guest| {
        let mut hello = [0; 5];
        let _ = guest.stream.read_exact(&mut hello);
        let length = usize::from(hello[3]) << 8 | usize::from(hello[4]);
        let _ = guest.stream.read_exact(&mut vec![0; length]);
    });
    for server in [&server, &closing] {
        for value in [tls_at(server), https_at(server)] {
            let outcome = poll(value).await;
            assert_eq!(outcome.verdict, Verdict::Tls, "{outcome:?}");
        }
    }
}
