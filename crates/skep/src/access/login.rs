//! Logging in to the dashboard: a signed cookie that every node of the installation can check.
//!
//! The cookie names the key it was made with and its end. Revoking that key ends the login at once;
//! logging out takes the cookie from the browser.

use super::key::{hex, random_hex};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How long a login lasts.
pub const LOGIN_LASTS: Duration = Duration::from_secs(12 * 3_600);

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The key it was made with.
    pub key_id: String,
    /// What a page must send along with every change, to show that it is ours.
    pub csrf: String,
    /// When it is over.
    pub ends_at_ms: i64,
    nonce: String,
}

impl Login {
    /// A login that begins now.
    pub fn new(key_id: &str, secret: &str, now_ms: i64) -> Self {
        let lasts = i64::try_from(LOGIN_LASTS.as_millis()).unwrap_or(i64::MAX);
        let mut login = Login {
            key_id: key_id.to_owned(),
            csrf: String::new(),
            ends_at_ms: now_ms.saturating_add(lasts),
            nonce: random_hex(16),
        };
        login.csrf = sign(secret, "csrf", &login.content());
        login
    }

    /// The cookie's value.
    pub fn seal(&self, secret: &str) -> String {
        let content = self.content();
        format!("{content}.{}", sign(secret, "login", &content))
    }

    /// Reads a cookie that was sealed with `secret` and is not over.
    pub fn open(cookie: &str, secret: &str, now_ms: i64) -> Option<Self> {
        let (content, signature) = cookie.rsplit_once('.')?;
        let expected = sign(secret, "login", content);
        if !bool::from(expected.as_bytes().ct_eq(signature.as_bytes())) {
            return None;
        }
        let mut parts = content.split('.');
        let (key_id, end, nonce) = (parts.next()?, parts.next()?, parts.next()?);
        let ends_at_ms: i64 = end.parse().ok()?;
        (now_ms < ends_at_ms).then(|| Login {
            key_id: key_id.to_owned(),
            csrf: sign(secret, "csrf", content),
            ends_at_ms,
            nonce: nonce.to_owned(),
        })
    }

    fn content(&self) -> String {
        format!("{}.{}.{}", self.key_id, self.ends_at_ms, self.nonce)
    }
}

/// Signs a text for one purpose, so that a signature for one is none for the other.
fn sign(secret: &str, purpose: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(purpose.as_bytes());
    mac.update(b":");
    mac.update(text.as_bytes());
    hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_login_reads_back_until_its_end() {
        let login = Login::new("k1", "secret", 1_000);
        let cookie = login.seal("secret");
        assert_eq!(Login::open(&cookie, "secret", 1_001), Some(login));
        let end = 1_000 + i64::try_from(LOGIN_LASTS.as_millis()).expect("fits");
        assert!(Login::open(&cookie, "secret", end - 1).is_some());
        assert_eq!(Login::open(&cookie, "secret", end), None);
        assert_eq!(Login::open(&cookie, "another", 1_001), None);
    }

    #[test]
    fn two_logins_have_different_tokens() {
        let (a, b) = (Login::new("k1", "secret", 1), Login::new("k1", "secret", 1));
        assert_ne!(a.csrf, b.csrf);
        assert_ne!(a.seal("secret"), b.seal("secret"));
    }

    proptest! {
        #[test]
        fn no_changed_cookie_is_a_login(place: prop::sample::Index, byte in 32_u8..127) {
            let cookie = Login::new("k1", "secret", 1_000).seal("secret");
            let mut changed = cookie.clone().into_bytes();
            let place = place.index(changed.len());
            prop_assume!(changed[place] != byte);
            changed[place] = byte;
            let changed = String::from_utf8(changed).expect("is ASCII");
            prop_assert_eq!(Login::open(&changed, "secret", 1_001), None);
        }

        #[test]
        fn no_text_panics(text in ".*") {
            prop_assert_eq!(Login::open(&text, "secret", 0), None);
        }
    }
}
