//! What the nodes of a cluster know and nobody else does.

use ring::hmac;
use std::fmt;
use subtle::ConstantTimeEq;

/// Bytes that a secret has at least. Shorter ones can be guessed from one recorded datagram.
pub const SECRET_BYTES_MIN: usize = 16;

/// Bytes of a signature.
pub const TAG_BYTES: usize = 32;

/// Signs what nodes say to each other: HMAC-SHA256. Nothing of it is ever shown.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
}

/// A text that cannot be a [`Secret`]. Says how long it is, never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster.secret has {bytes} bytes; give at least {SECRET_BYTES_MIN}, the same on every node, \
     for example from `openssl rand -hex 32`"
)]
pub struct BadSecret {
    /// How many bytes were given.
    pub bytes: usize,
}

impl Secret {
    /// A secret from its bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, BadSecret> {
        let bytes = bytes.as_ref();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(BadSecret { bytes: bytes.len() });
        }
        Ok(Secret { key: hmac::Key::new(hmac::HMAC_SHA256, bytes) })
    }

    /// No secret at all: everybody can make these signatures. They find what was damaged, not what
    /// was forged, so they are for loopback alone.
    pub(crate) fn known_to_all() -> Self {
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, b"everybody knows this one") }
    }

    /// The signature of `parts` for the purpose `context`. A signature for one purpose is none for
    /// another, and where one part ends and the next begins is signed too.
    pub fn sign(&self, context: &str, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let tag = self.over(context, parts).sign();
        let mut bytes = [0; TAG_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Whether `tag` is that signature. Takes equally long wherever it differs.
    pub fn verify(&self, context: &str, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.sign(context, parts).ct_eq(tag).into()
    }

    fn over(&self, context: &str, parts: &[&[u8]]) -> hmac::Context {
        let mut signing = hmac::Context::with_key(&self.key);
        for part in std::iter::once(&context.as_bytes()).chain(parts) {
            signing.update(&(part.len() as u64).to_be_bytes());
            signing.update(part);
        }
        signing
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new("0123456789abcdef").expect("is long enough")
    }

    #[test]
    fn a_signature_is_good_for_its_purpose_and_its_parts_alone() {
        let tag = secret().sign("hop", &[b"ab", b"c"]);
        assert!(secret().verify("hop", &[b"ab", b"c"], &tag));
        assert!(!secret().verify("pulse", &[b"ab", b"c"], &tag));
        assert!(!secret().verify("hop", &[b"a", b"bc"], &tag));
        assert!(!secret().verify("hop", &[b"ab", b"c", b""], &tag));
        let other = Secret::new("0123456789abcdeg").expect("is long enough");
        assert!(!other.verify("hop", &[b"ab", b"c"], &tag));
    }

    #[test]
    fn a_signature_with_any_bit_changed_or_missing_is_refused() {
        let tag = secret().sign("hop", &[b"x"]);
        for bit in 0..TAG_BYTES * 8 {
            let mut wrong = tag;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret().verify("hop", &[b"x"], &wrong), "bit {bit}");
        }
        assert!(!secret().verify("hop", &[b"x"], &tag[..31]));
        assert!(!secret().verify("hop", &[b"x"], &[]));
        assert!(!secret().verify("hop", &[b"x"], &[&tag[..], &[0]].concat()));
    }

    #[test]
    fn it_is_the_published_hmac_of_the_lengths_and_the_parts() {
        // printf '\0\0\0\0\0\0\0\3hop\0\0\0\0\0\0\0\1x' |
        //     openssl dgst -sha256 -hmac 0123456789abcdef
        let hex: String =
            secret().sign("hop", &[b"x"]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "2c265a1b2e9e6434eca83c7cad9be60e821f4e4dc835f2e1d0edd56e50a001da");
    }

    #[test]
    fn a_short_secret_is_refused_without_being_shown() {
        let refused = Secret::new("hunter2").expect_err("is too short").to_string();
        assert!(refused.contains("7 bytes") && refused.contains("at least 16"), "{refused}");
        assert!(!refused.contains("hunter2"));
        assert_eq!(format!("{:?}", secret()), "Secret");
    }
}
