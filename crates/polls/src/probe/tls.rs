//! The TLS handshake, and how long a certificate is still good.

use super::outcome::{Fault, Phase, Verdict};
use super::{Notes, ProbeError, ProbeOptions};
use crate::spec::Certificate;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How handshakes are made, by whether the certificate is checked and whether HTTP follows.
pub(super) struct Tls {
    checked: [TlsConnector; 2],
    unchecked: [TlsConnector; 2],
    /// Whether nobody is trusted, so that no certificate can be checked.
    rootless: bool,
}

impl Tls {
    pub fn new(options: &ProbeOptions) -> Result<Self, ProbeError> {
        let mut roots = RootCertStore::empty();
        // A system without certificates can still poll what needs none.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for root in &options.roots {
            roots.add(root.clone()).map_err(ProbeError)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            let builder = ClientConfig::builder_with_provider(provider.clone());
            builder.with_safe_default_protocol_versions().map_err(ProbeError)
        };
        let rootless = roots.is_empty();
        let anybody = Arc::new(Anybody(provider.clone()));
        let checked = builder()?.with_root_certificates(roots).with_no_client_auth();
        let unchecked =
            builder()?.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth();
        Ok(Tls { checked: pair(checked), unchecked: pair(unchecked), rootless })
    }
}

/// The same for bare TLS and for HTTP.
fn pair(mut config: ClientConfig) -> [TlsConnector; 2] {
    // With a resumed session the server does not show its certificate again, and a new or expired
    // one would go unnoticed.
    config.resumption = Resumption::disabled();
    let mut web = config.clone();
    web.alpn_protocols = vec![b"http/1.1".to_vec()];
    [TlsConnector::from(Arc::new(config)), TlsConnector::from(Arc::new(web))]
}

/// Makes the handshake and notes when the certificate expires.
pub(super) async fn shake(
    tls: &Tls,
    stream: TcpStream,
    name: &ServerName<'static>,
    certificate: &Certificate,
    web: bool,
    notes: &mut Notes,
) -> Result<TlsStream<TcpStream>, Fault> {
    if certificate.verify && tls.rootless {
        let why = "this system has no trusted certificates to check others with";
        return Err(Fault::new(Verdict::Local, why));
    }
    notes.phase = Phase::Shaking;
    let connectors = if certificate.verify { &tls.checked } else { &tls.unchecked };
    let stream =
        connectors[usize::from(web)].connect(name.clone(), stream).await.map_err(|error| {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
                Some(refused) => of_tls(refused, notes),
                None if error.kind() == std::io::ErrorKind::UnexpectedEof => Fault::new(
                    Verdict::Tls,
                    "the other side closed the connection in the handshake",
                ),
                None => Fault::of_io(&error, Verdict::Tls),
            }
        })?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    notes.expires_at_ms = leaf.and_then(expires_at_ms);
    Ok(stream)
}

/// What an error of TLS means.
pub(super) fn of_tls(error: &Error, notes: &mut Notes) -> Fault {
    let Error::InvalidCertificate(wrong) = error else {
        return Fault::new(Verdict::Tls, error.to_string());
    };
    if let CertificateError::ExpiredContext { not_after, .. } = wrong {
        notes.expires_at_ms = i64::try_from(not_after.as_secs() * 1_000).ok();
    }
    let (verdict, detail) = match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (Verdict::Expiry, "the certificate has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (Verdict::Tls, "the certificate is not valid yet")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (Verdict::Tls, "the certificate is for another name")
        }
        CertificateError::UnknownIssuer => {
            (Verdict::Tls, "the certificate is from somebody who is not trusted")
        }
        other => return Fault::new(Verdict::Tls, format!("the certificate is wrong: {other}")),
    };
    Fault::new(verdict, detail)
}

fn expires_at_ms(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    parsed.validity().not_after.timestamp().checked_mul(1_000)
}

/// Whether a certificate is good for long enough from now on.
pub(super) fn good_for(expires_at_ms: Option<i64>, needed: Duration) -> Result<(), Fault> {
    let Some(expires_at_ms) = expires_at_ms else {
        return Err(Fault::new(Verdict::Tls, "the certificate's expiry cannot be read"));
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = expires_at_ms.saturating_sub(now.as_millis() as i64);
    let detail = match left {
        _ if left < 0 => format!("the certificate expired {} ago", about(left.unsigned_abs())),
        _ if left.unsigned_abs() < needed.as_millis() as u64 => {
            let needed = about(needed.as_millis() as u64);
            format!("the certificate expires in {}, sooner than {needed}", about(left as u64))
        }
        _ => return Ok(()),
    };
    Err(Fault::new(Verdict::Expiry, detail))
}

/// A span as people say it.
fn about(millis: u64) -> String {
    match millis / 60_000 {
        minutes if minutes >= 2 * 1_440 => format!("{}d", minutes / 1_440),
        minutes if minutes >= 2 * 60 => format!("{}h", minutes / 60),
        minutes => format!("{minutes}m"),
    }
}

/// Takes any certificate, for endpoints that say `"verify": false`. What the other side signs is
/// not checked either: nothing would follow from it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
