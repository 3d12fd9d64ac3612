//! A node's copy of the keys.

use super::key::{KeyRecord, SecretKey};
use super::login::Login;
use super::{Caller, Who};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

/// The keys as the database had them a moment ago.
pub struct Ring {
    keys: HashMap<String, Entry>,
    login_secret: String,
}

struct Entry {
    record: KeyRecord,
    /// When it was used since it was last noted in the database; 0 if it was not.
    used_at_ms: AtomicI64,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such key, or not its secret.
    Wrong,
    /// It was revoked.
    Revoked,
    /// Its time is over.
    Expired,
    /// The login's time is over, or it was not made here.
    LoginOver,
}

impl Ring {
    /// A copy of `keys`, with the uses that `last` has not noted yet.
    pub fn new(keys: Vec<KeyRecord>, login_secret: String, last: Option<&Ring>) -> Self {
        let entry = |record: KeyRecord| {
            let used = last.and_then(|ring| ring.keys.get(&record.id));
            let used_at_ms = used.map_or(0, |entry| entry.used_at_ms.load(Ordering::Relaxed));
            (record.id.clone(), Entry { record, used_at_ms: AtomicI64::new(used_at_ms) })
        };
        Ring { keys: keys.into_iter().map(entry).collect(), login_secret }
    }

    /// Whether no key was ever made. Revoking the last one does not bring that back.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What signs logins.
    pub fn login_secret(&self) -> &str {
        &self.login_secret
    }

    /// What is kept of a key.
    pub fn record(&self, id: &str) -> Option<&KeyRecord> {
        self.keys.get(id).map(|entry| &entry.record)
    }

    /// All keys, oldest first.
    pub fn records(&self) -> Vec<&KeyRecord> {
        let mut records: Vec<_> = self.keys.values().map(|entry| &entry.record).collect();
        records.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        records
    }

    /// Lets a key's owner in.
    pub fn admit_key(&self, text: &str, now_ms: i64) -> Result<Caller, Refusal> {
        let key = SecretKey::parse(text).ok_or(Refusal::Wrong)?;
        let entry = self.keys.get(key.id()).ok_or(Refusal::Wrong)?;
        if !key.is(&entry.record) {
            return Err(Refusal::Wrong);
        }
        let (id, name) = entry.admit(now_ms)?;
        Ok(Caller { who: Who::Key { id, name }, scopes: entry.record.scopes.clone() })
    }

    /// Lets in whoever logged in with a key that is still good.
    pub fn admit_login(&self, cookie: &str, now_ms: i64) -> Result<Caller, Refusal> {
        let login = Login::open(cookie, &self.login_secret, now_ms).ok_or(Refusal::LoginOver)?;
        let entry = self.keys.get(&login.key_id).ok_or(Refusal::LoginOver)?;
        let (id, name) = entry.admit(now_ms)?;
        let who = Who::Login { id, name, csrf: login.csrf, ends_at_ms: login.ends_at_ms };
        Ok(Caller { who, scopes: entry.record.scopes.clone() })
    }

    /// Whether somebody who was let in before would still be.
    pub fn still_admits(&self, who: &Who, now_ms: i64) -> bool {
        let good = |id: &String| {
            let entry = self.keys.get(id);
            entry.is_some_and(|entry| entry.check(now_ms).is_ok())
        };
        match who {
            Who::Key { id, .. } => good(id),
            Who::Login { id, ends_at_ms, .. } => good(id) && now_ms < *ends_at_ms,
            Who::Local | Who::Anyone => self.is_empty(),
        }
    }

    /// Takes back uses that could not be noted.
    pub fn put_back_uses(&self, uses: &[(String, i64)]) {
        for (id, at_ms) in uses {
            if let Some(entry) = self.keys.get(id) {
                entry.used_at_ms.fetch_max(*at_ms, Ordering::Relaxed);
            }
        }
    }

    /// The keys used since the last call, with the time of their last use.
    pub fn take_uses(&self) -> Vec<(String, i64)> {
        let take = |(id, entry): (&String, &Entry)| {
            let at_ms = entry.used_at_ms.swap(0, Ordering::Relaxed);
            (at_ms > 0).then(|| (id.clone(), at_ms))
        };
        self.keys.iter().filter_map(take).collect()
    }
}

impl Entry {
    fn admit(&self, now_ms: i64) -> Result<(String, String), Refusal> {
        self.check(now_ms)?;
        self.used_at_ms.store(now_ms, Ordering::Relaxed);
        Ok((self.record.id.clone(), self.record.name.clone()))
    }

    fn check(&self, now_ms: i64) -> Result<(), Refusal> {
        if self.record.revoked_at_ms.is_some() {
            return Err(Refusal::Revoked);
        }
        if self.record.expires_at_ms.is_some_and(|end| end <= now_ms) {
            return Err(Refusal::Expired);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{NewKey, Scopes};

    fn ring_with(change: impl FnOnce(&mut KeyRecord)) -> (Ring, SecretKey) {
        let scopes: Scopes = "push".parse().expect("is one");
        let (key, mut record) =
            NewKey { name: "ops".to_owned(), scopes, lasts: None }.generate(1_000);
        change(&mut record);
        (Ring::new(vec![record], "secret".to_owned(), None), key)
    }

    #[test]
    fn a_good_key_is_let_in_and_its_use_is_noted_once() {
        let (ring, key) = ring_with(|_| {});
        let caller = ring.admit_key(&key.reveal(), 5_000).expect("is good");
        assert_eq!(caller.actor(), format!("ops ({})", key.id()));
        assert_eq!(ring.take_uses(), [(key.id().to_owned(), 5_000)]);
        assert_eq!(ring.take_uses(), []);
    }

    #[test]
    fn a_bad_key_is_refused_with_its_reason() {
        let (ring, key) = ring_with(|record| record.revoked_at_ms = Some(2_000));
        assert_eq!(ring.admit_key(&key.reveal(), 5_000).unwrap_err(), Refusal::Revoked);
        let (ring, key) = ring_with(|record| record.expires_at_ms = Some(5_000));
        assert!(ring.admit_key(&key.reveal(), 4_999).is_ok());
        assert_eq!(ring.admit_key(&key.reveal(), 5_000).unwrap_err(), Refusal::Expired);
        let stranger = SecretKey::generate();
        assert_eq!(ring.admit_key(&stranger.reveal(), 1).unwrap_err(), Refusal::Wrong);
        assert_eq!(ring.admit_key("potato", 1).unwrap_err(), Refusal::Wrong);
        // The id is no secret; that it exists must not be told to whoever lacks the rest.
        let guessed = stranger.reveal().replace(stranger.id(), key.id());
        assert_eq!(ring.admit_key(&guessed, 9_000).unwrap_err(), Refusal::Wrong);
    }

    #[test]
    fn a_login_ends_with_its_key() {
        let (ring, key) = ring_with(|_| {});
        let cookie = Login::new(key.id(), "secret", 1_000);
        assert!(ring.admit_login(&cookie.seal("secret"), 2_000).is_ok());
        let (ring, other) = ring_with(|record| record.revoked_at_ms = Some(1));
        let cookie = Login::new(other.id(), "secret", 1_000);
        let refused = ring.admit_login(&cookie.seal("secret"), 2_000).unwrap_err();
        assert_eq!(refused, Refusal::Revoked);
    }
}
