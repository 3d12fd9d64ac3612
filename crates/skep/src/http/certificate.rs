//! The listener's certificate: read from PEM files, and again when they change.

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;
pub use skep_routes::tls::{PairFiles as Files, Stamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How often the files are looked at. Certificates are replaced by renaming, by links and by
/// mounts; a look at the files sees all of those.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The certificate in use.
pub struct Certificate {
    files: Files,
    config: ArcSwap<ServerConfig>,
    expires_at_ms: AtomicI64,
}

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
        self.files.stamp()
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
        self.files.end_warning(self.expires_at_ms(), now_ms)
    }
}

fn read(files: &Files) -> Result<Loaded, String> {
    let pair = files.read().map_err(|error| error.to_string())?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), expires_at_ms: pair.expires_at_ms })
}
