//! Who may do what: keys, logins, the audit log.
//!
//! ```text
//!   Authorization: Bearer KEY ─┐
//!   X-API-Key: KEY ────────────┼─► Access::identify ─► Caller { who, scopes } ─► route's scope?
//!   login cookie ──────────────┤
//!   nothing, from loopback ────┘   (only while no key was ever made)
//! ```
//!
//! The authority for keys is the database. A node works with a copy ([`Ring`]) that it renews every
//! few seconds and after each change of its own, so a key that was revoked on another node is
//! refused here at most [`RENEW_EVERY`] later, plus the time a database that is away stays away.

mod key;
mod login;
mod ring;
mod store;

pub use key::{KeyRecord, Scope, Scopes, SecretKey, hex, random_hex, redact};
pub use login::{LOGIN_LASTS, Login};
pub use ring::{Refusal, Ring};
pub use store::{AuditEntry, Deed, SCHEMA, create_key, list_keys};

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};
use skep_policy::throttle::{self, Bucket, Verdict};
use skep_policy::{Clock, Time};
use skep_store::{Database, StoreError};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often a node renews its copy of the keys.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

/// Failed logins from one address: so many at once, then one at a time.
const FAILED_LOGINS: throttle::Options =
    throttle::Options { burst: 10, every: Duration::from_secs(6) };

/// Addresses whose failed logins are remembered; past that all are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who, for the audit log.
    pub who: Who,
    /// What they may do.
    pub scopes: Scopes,
}

/// How somebody is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By a key that was sent along.
    Key { id: String, name: String },
    /// By a login with a key; changes need its CSRF token.
    Login { id: String, name: String, csrf: String, ends_at_ms: i64 },
    /// By being on this machine, while no key was ever made.
    Local,
    /// Not at all; the node was started with `--insecure`.
    Anyone,
}

impl Caller {
    /// The name in the audit log.
    pub fn actor(&self) -> Cow<'static, str> {
        match &self.who {
            Who::Key { id, name } => Cow::Owned(format!("{name} ({id})")),
            Who::Login { id, name, .. } => Cow::Owned(format!("{name} ({id}, logged in)")),
            Who::Local => Cow::Borrowed("somebody on this machine"),
            Who::Anyone => Cow::Borrowed("anyone"),
        }
    }

    /// Somebody who may do everything.
    pub fn trusted(who: Who) -> Self {
        Caller { who, scopes: Scopes::new(vec![Scope::Admin]) }
    }
}

/// A node's knowledge of who may do what.
pub struct Access {
    ring: ArcSwapOption<Ring>,
    /// Held while the copy is replaced, so that none begun before a change ends after it.
    replacing: tokio::sync::Mutex<()>,
    /// Told whenever the copy was replaced.
    replaced: watch::Sender<()>,
    failed_logins: Mutex<HashMap<IpAddr, Bucket>>,
    clock: Arc<dyn Clock>,
}

/// A key as the API shows it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeyInfo {
    /// The part of the key that is no secret.
    #[schema(example = "k3f9a1c05d2e7")]
    pub id: String,
    /// What it was called when it was made.
    pub name: String,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it was made, in UTC.
    pub created_at: String,
    /// When it ends by itself.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// When it was last used, to about a minute.
    pub last_used_at: Option<String>,
}

impl From<&KeyRecord> for KeyInfo {
    fn from(key: &KeyRecord) -> Self {
        KeyInfo {
            id: key.id.clone(),
            name: key.name.clone(),
            scopes: key.scopes.clone(),
            created_at: timestamp(key.created_at_ms),
            expires_at: key.expires_at_ms.map(timestamp),
            revoked_at: key.revoked_at_ms.map(timestamp),
            last_used_at: key.last_used_at_ms.map(timestamp),
        }
    }
}

impl Access {
    /// Knows nobody yet; see [`Access::renew`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Access {
            ring: ArcSwapOption::empty(),
            replacing: tokio::sync::Mutex::new(()),
            replaced: watch::Sender::new(()),
            failed_logins: Mutex::new(HashMap::new()),
            clock,
        }
    }

    /// The copy of the keys; nothing before the database was reached for the first time.
    pub fn ring(&self) -> Option<Arc<Ring>> {
        self.ring.load_full()
    }

    /// Renews the copy of the keys.
    pub async fn renew(&self, database: &Database) -> Result<(), StoreError> {
        let _replacing = self.replacing.lock().await;
        let last = self.ring();
        let secret = match &last {
            Some(ring) => ring.login_secret().to_owned(),
            None => store::secret(database, "login").await?,
        };
        let keys = list_keys(database).await?;
        // Keys are never deleted. A database that has lost them must not open the door.
        if keys.is_empty() && last.as_ref().is_some_and(|ring| !ring.is_empty()) {
            tracing::error!("the database has no keys any more; those known before still count");
            return Ok(());
        }
        self.replace(keys, secret);
        Ok(())
    }

    fn replace(&self, keys: Vec<KeyRecord>, secret: String) {
        self.ring.store(Some(Arc::new(Ring::new(keys, secret, self.ring().as_deref()))));
        self.replaced.send_replace(());
    }

    /// Waits until whoever this is may not be here any more: the key was revoked or has ended, the
    /// login is over, or a first key was made and this machine is not trusted any more.
    pub async fn until_refused(&self, caller: Option<&Caller>) {
        let Some(caller) = caller else { return std::future::pending().await };
        let mut replaced = self.replaced.subscribe();
        loop {
            if self.ring().is_some_and(|ring| !ring.still_admits(&caller.who, now_ms())) {
                return;
            }
            if replaced.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes a key and tells it, once.
    pub async fn create(
        &self,
        database: &Database,
        new: NewKey,
        caller: &Caller,
        address: &str,
    ) -> Result<(KeyInfo, SecretKey), StoreError> {
        let now = now_ms();
        let (key, record) = new.generate(now);
        let deed = Deed {
            at_ms: now,
            actor: caller.actor().into_owned(),
            address: address.to_owned(),
            action: "key.create",
            target: record.id.clone(),
            detail: format!("{}: {}", record.name, record.scopes),
        };
        let _replacing = self.replacing.lock().await;
        create_key(database, record.clone(), deed).await?;
        // Nothing can fail after the commit: the key is told, and known here at once.
        self.change(|keys| keys.push(record.clone()));
        Ok((KeyInfo::from(&record), key))
    }

    /// Revokes a key; `None` if there is none with this id.
    pub async fn revoke(
        &self,
        database: &Database,
        id: &str,
        caller: &Caller,
        address: &str,
    ) -> Result<Option<KeyInfo>, StoreError> {
        let now = now_ms();
        let deed = Deed {
            at_ms: now,
            actor: caller.actor().into_owned(),
            address: address.to_owned(),
            action: "key.revoke",
            target: id.to_owned(),
            detail: String::new(),
        };
        let replacing = self.replacing.lock().await;
        let revoked = store::revoke_key(database, id, deed).await?;
        if revoked {
            self.change(|keys| {
                let of_id = keys.iter_mut().filter(|key| key.id == id);
                of_id.for_each(|key| key.revoked_at_ms = Some(now));
            });
        }
        drop(replacing);
        if let Some(info) = self.ring().and_then(|ring| ring.record(id).map(KeyInfo::from)) {
            return Ok(Some(info));
        }
        // Another node made it a moment ago, or there is no copy here.
        let keys = list_keys(database).await?;
        Ok(keys.iter().find(|key| key.id == id).map(KeyInfo::from))
    }

    /// Applies a change that was committed to the copy. Without a copy there is nothing to change.
    fn change(&self, change: impl FnOnce(&mut Vec<KeyRecord>)) {
        let Some(ring) = self.ring() else { return };
        let mut keys: Vec<KeyRecord> = ring.records().into_iter().cloned().collect();
        change(&mut keys);
        self.replace(keys, ring.login_secret().to_owned());
    }

    /// Notes in the database when keys were last used.
    pub async fn note_uses(&self, database: &Database) -> Result<(), StoreError> {
        let Some(ring) = self.ring() else { return Ok(()) };
        let used = ring.take_uses();
        if used.is_empty() {
            return Ok(());
        }
        let noted = store::touch_keys(database, used.clone()).await;
        if noted.is_err() {
            // For the next time.
            ring.put_back_uses(&used);
        }
        noted
    }

    /// Writes down what somebody did.
    pub async fn record(
        &self,
        database: &Database,
        (caller, address): (&Caller, &str),
        action: &'static str,
        (target, detail): (&str, &str),
    ) -> Result<(), StoreError> {
        let deed = Deed {
            at_ms: now_ms(),
            actor: caller.actor().into_owned(),
            address: address.to_owned(),
            action,
            target: target.to_owned(),
            detail: detail.to_owned(),
        };
        store::record(database, deed).await
    }

    /// Writes down what somebody did, if the database can be reached: what concerns this node alone
    /// must work without it.
    pub async fn try_record(
        &self,
        database: &Database,
        (caller, address): (&Caller, &str),
        action: &'static str,
        (target, detail): (&str, &str),
    ) {
        let recorded = self.record(database, (caller, address), action, (target, detail)).await;
        if let Err(error) = recorded {
            let actor = caller.actor();
            tracing::warn!(%error, %actor, action, target, "the audit log missed this");
        }
    }

    /// The audit log, newest first.
    pub async fn audit_page(
        &self,
        database: &Database,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        store::audit_page(database, before, limit).await
    }

    /// How long an address has to wait before its failed logins are looked at again, if it must.
    pub fn login_wait(&self, address: IpAddr) -> Option<Duration> {
        let buckets = self.failed_logins.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.get(&network_of(address))?;
        match bucket.ask(self.clock.now(), &FAILED_LOGINS).chosen {
            Verdict::Allowed => None,
            Verdict::Wait(wait) => Some(wait),
        }
    }

    /// Counts a failed login.
    pub fn note_failed_login(&self, address: IpAddr) {
        let now: Time = self.clock.now();
        let mut buckets = self.failed_logins.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= ADDRESSES_MAX {
            buckets.retain(|_, bucket| !bucket.is_fresh(now));
        }
        if buckets.len() >= ADDRESSES_MAX {
            // So many at once are one attacker; whoever is forgotten is one of theirs.
            buckets.clear();
        }
        buckets.entry(network_of(address)).or_default().spend(now, &FAILED_LOGINS);
    }
}

/// Whoever has one address of an IPv6 network has 2^64 of them.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            IpAddr::from(u128::from(v6).wrapping_shr(64).wrapping_shl(64).to_be_bytes())
        }
    }
}

/// What somebody wants a key for.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub name: String,
    pub scopes: Scopes,
    pub lasts: Option<Duration>,
}

impl NewKey {
    /// The key itself and what is kept of it.
    pub fn generate(self, now_ms: i64) -> (SecretKey, KeyRecord) {
        let key = SecretKey::generate();
        let lasts_ms = |lasts: Duration| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let record = KeyRecord {
            id: key.id().to_owned(),
            name: self.name,
            hash: key.hash(),
            scopes: self.scopes,
            created_at_ms: now_ms,
            expires_at_ms: self.lasts.map(|lasts| now_ms.saturating_add(lasts_ms(lasts))),
            revoked_at_ms: None,
            last_used_at_ms: None,
        };
        (key, record)
    }
}

/// The wall clock, in milliseconds since 1970: for what people read and for expiry.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Milliseconds since 1970 as people write it, in UTC.
pub fn timestamp(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map(|time| format!("{time:.3}")).unwrap_or_default()
}
