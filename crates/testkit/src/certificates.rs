//! Certificates for tests, from an authority of their own.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Somebody who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as PEM.
pub struct Certificate {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// A new one, that nobody trusts yet.
    pub fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = parameters.self_signed(&key).expect("signs").pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    /// What trusts it, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a host, good for so many days from now.
    pub fn sign(&self, host: &str, days: i64) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new([host.to_owned()]).expect("a name");
        let now = time::OffsetDateTime::now_utc();
        parameters.not_before = now - time::Duration::days(400);
        parameters.not_after = now + time::Duration::days(days);
        let certificate = parameters.signed_by(&key, &self.issuer).expect("signs").pem();
        Certificate { certificate, key: key.serialize_pem() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
