//! A certificate and its key, read from PEM files.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use skep_policy::routes::alerts::ends_soon;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Chains are a few KiB; more is something else.
const FILE_MAX: u64 = 1_024 * 1_024;

/// Where a certificate and its key are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PairFiles {
    /// The certificate, and those that lead from it to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A certificate and its key, which belong together.
#[derive(Clone, Debug)]
pub struct Pair {
    /// What a connection is encrypted with.
    pub certified: Arc<CertifiedKey>,
    /// The hosts it is made for, in lower case, as in `shop.example` and `*.example`.
    pub names: Vec<String>,
    /// When it ends, in milliseconds since 1970.
    pub expires_at_ms: i64,
}

/// Why a pair cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The file is not there, or holds no certificate.
    #[error("{path} cannot be used: {why}; give a certificate as PEM")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file is not there, or holds no key.
    #[error("{path} cannot be used: {why}; give a private key as PEM, without a password")]
    Key {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Both are good, but not for each other; so it is while one of them is being replaced.
    #[error("the key in {key} is not the one of the certificate in {certificate}")]
    Mismatch {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
    },
}

/// What a pair's files look like from outside; another one if they were replaced.
pub type Stamp = [Option<FileStamp>; 2];

/// What a file looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    modified: (i64, i64),
    length: u64,
}

impl PairFiles {
    /// What the files look like now. Certificates are replaced by writing, renaming, links and
    /// mounts; this sees all of those.
    pub fn stamp(&self) -> Stamp {
        let look = |path: &Path| {
            let found: Metadata = std::fs::metadata(path).ok()?;
            Some(FileStamp {
                file: (found.dev(), found.ino()),
                modified: (found.mtime(), found.mtime_nsec()),
                length: found.len(),
            })
        };
        [look(&self.certificate), look(&self.key)]
    }

    /// Reads both. The error says which one is wrong and how.
    pub fn read(&self) -> Result<Pair, PairError> {
        let (certificate, key) = (shown(&self.certificate), shown(&self.key));
        let wrong = |why: String| PairError::Certificate { path: certificate.clone(), why };
        let bytes = read_file(&self.certificate).map_err(|error| wrong(error.to_string()))?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(error.to_string()))?;
        let first = chain.first().ok_or_else(|| wrong("it holds no certificate".to_owned()))?;
        let no_certificate = |_| wrong("it holds something else than a certificate".to_owned());
        let (_, parsed) = X509Certificate::from_der(first).map_err(no_certificate)?;
        let expires_at_ms = parsed.validity().not_after.timestamp().saturating_mul(1_000);
        let names = names(&parsed);
        let wrong = |why: String| PairError::Key { path: key.clone(), why };
        let bytes = read_file(&self.key).map_err(|error| wrong(error.to_string()))?;
        let private =
            PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let signing = ring::default_provider()
            .key_provider
            .load_private_key(private)
            .map_err(|error| wrong(error.to_string()))?;
        let certified = CertifiedKey::new(chain, signing);
        certified.keys_match().map_err(|_| PairError::Mismatch { certificate, key })?;
        Ok(Pair { certified: Arc::new(certified), names, expires_at_ms })
    }

    /// A warning, if the certificate that was read from here ends soon.
    pub fn end_warning(&self, expires_at_ms: i64, now_ms: i64) -> Option<String> {
        let file = self.certificate.display();
        match ends_soon(expires_at_ms, now_ms)? {
            left if left <= 0 => Some(format!("the certificate in {file} has ended")),
            left => Some(format!("the certificate in {file} ends in {} days", left / 86_400_000)),
        }
    }
}

impl PairError {
    /// The field of a route's `tls` that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            PairError::Certificate { .. } => "certificate",
            PairError::Key { .. } | PairError::Mismatch { .. } => "key",
        }
    }
}

impl Pair {
    /// Whether clients that ask for this host will accept it: `shop.example` or `*.example`, in
    /// lower case. `*` is no host in particular.
    pub fn is_for(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let fits =
            |name: &String| name == host || (parent.is_some() && name.strip_prefix("*.") == parent);
        host == "*" || self.names.iter().any(fits)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A whole file. Anything but a file might never come to its end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a pipe would wait for somebody to write into it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    Ok(bytes)
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).collect()
}
