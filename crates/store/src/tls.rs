//! How connections to servers are encrypted, and whom they believe.

use crate::url::Verify;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// The client side of TLS for `verify`; the error says which certificates could not be used.
pub(crate) fn client_config(verify: &Verify) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    match verify {
        Verify::Nobody => Ok(builder(provider.clone())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(&provider)))
            .with_no_client_auth()),
        Verify::System => trusting(None).map_err(|cause| format!("{cause} with sslrootcert=FILE")),
        Verify::File(path) => {
            trusting(Some(path.as_path())).map_err(|cause| format!("sslrootcert={cause}"))
        }
    }
}

/// The client side of TLS that believes the authorities in this PEM file, or those of the system.
/// The error says which could not be used.
pub fn trusting(file: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = file.map_or_else(system_roots, roots_in)?;
    let builder = builder(Arc::new(ring::default_provider()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
}

/// Whether an error comes from TLS itself: a certificate that does not verify, a peer that speaks
/// something else. Waiting mends none of these.
pub(crate) fn is_tls_problem(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        if cause.is::<rustls::Error>() || wrapped.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = cause.source();
    }
    false
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match added {
        0 => Err("the system has no certificates to check against; install ca-certificates, or \
                  name a file"
            .to_owned()),
        _ => Ok(roots),
    }
}

fn roots_in(path: &Path) -> Result<RootCertStore, String> {
    let failed = |cause: String| format!("{}: {cause}", path.display());
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// Believes any certificate, as libpq's `prefer` and `require` do: it keeps listeners out, not
/// impostors. `verify-full` is for those.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    fn new(provider: &CryptoProvider) -> Self {
        AnyCertificate { algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
