//! The listener's certificate: read from PEM files, and again when they change.

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How often the files are looked at. Certificates are replaced by renaming, by links and by
/// mounts; a look at the files sees all of those.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Before its end, a certificate is warned about for so long.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3_600);

/// The certificate in use.
pub struct Certificate {
    files: Files,
    config: ArcSwap<ServerConfig>,
    expires_at_ms: AtomicI64,
}

/// Where it is kept.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// When the files were last changed, as far as can be seen.
pub type Stamp = [Option<(SystemTime, u64)>; 2];

struct Loaded {
    config: Arc<ServerConfig>,
    expires_at_ms: i64,
}

impl Certificate {
    /// Reads the files. The error says which one is wrong and how.
    pub fn load(files: Files) -> Result<Self, String> {
        let loaded = read(&files)?;
        Ok(Certificate {
            files,
            config: ArcSwap::new(loaded.config),
            expires_at_ms: AtomicI64::new(loaded.expires_at_ms),
        })
    }

    /// What a new connection is encrypted with.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// When it ends, in milliseconds since 1970.
    pub fn expires_at_ms(&self) -> i64 {
        self.expires_at_ms.load(Ordering::Relaxed)
    }

    /// What the files look like from outside.
    pub fn stamp(&self) -> Stamp {
        let look = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        [look(&self.files.certificate), look(&self.files.key)]
    }

    /// Reads the files again. What cannot be used leaves the one in use in place.
    pub fn reload(&self) -> Result<(), String> {
        let loaded = read(&self.files)?;
        self.config.store(loaded.config);
        self.expires_at_ms.store(loaded.expires_at_ms, Ordering::Relaxed);
        Ok(())
    }

    /// A warning, if it ends soon.
    pub fn warning(&self, now_ms: i64) -> Option<String> {
        let left_ms = self.expires_at_ms() - now_ms;
        let warn_ms = i64::try_from(WARN_BEFORE.as_millis()).unwrap_or(i64::MAX);
        let file = self.files.certificate.display();
        match left_ms {
            left if left <= 0 => Some(format!("the certificate in {file} has ended")),
            left if left < warn_ms => {
                Some(format!("the certificate in {file} ends in {} days", left / 86_400_000))
            }
            _ => None,
        }
    }
}

fn read(files: &Files) -> Result<Loaded, String> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| format!("{certificate} cannot be used: {error}"))?;
    let first = chain.first().ok_or_else(|| format!("{certificate} holds no certificate"))?;
    let expires_at_ms = expiry_ms(first)
        .ok_or_else(|| format!("{certificate} holds something else than a certificate"))?;
    let private = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{key} cannot be used: {error}"))?;
    let provider = Arc::new(ring::default_provider());
    let signing = provider
        .key_provider
        .load_private_key(private)
        .map_err(|error| format!("{key} cannot be used: {error}"))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| {
        format!("the key in {key} is not the one of the certificate in {certificate}")
    })?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), expires_at_ms })
}

fn expiry_ms(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp().saturating_mul(1_000))
}
