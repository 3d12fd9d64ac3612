//! API keys: what they look like, what they allow, how they are checked.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;

const PREFIX: &str = "skep_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// What a key may be used for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything, keys and settings included.
    Admin,
    /// Looking at everything but keys and the audit log.
    Read,
    /// Pushing messages.
    Push,
    /// Popping and acknowledging messages.
    Pop,
    /// Opening sessions through the gateway.
    Session,
    /// Registering as a worker.
    Worker,
    /// Reporting measurements as a monitor.
    Agent,
    /// Managing endpoints that are polled.
    Poll,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 8] = [
        Scope::Admin,
        Scope::Read,
        Scope::Push,
        Scope::Pop,
        Scope::Session,
        Scope::Worker,
        Scope::Agent,
        Scope::Poll,
    ];

    /// Its name, as in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Admin => "admin",
            Scope::Read => "read",
            Scope::Push => "push",
            Scope::Pop => "pop",
            Scope::Session => "session",
            Scope::Worker => "worker",
            Scope::Agent => "agent",
            Scope::Poll => "poll",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Scope::ALL.map(Scope::name).join(", ");
        let found = Scope::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a scope, there are: {names}"))
    }
}

/// A set of scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// These, each once.
    pub fn new(mut scopes: Vec<Scope>) -> Self {
        scopes.sort();
        scopes.dedup();
        Scopes(scopes)
    }

    /// Whether they allow what `needed` allows. `admin` allows everything.
    pub fn allow(&self, needed: Scope) -> bool {
        self.0.contains(&Scope::Admin) || self.0.contains(&needed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|scope| scope.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Scopes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scopes: Result<Vec<Scope>, String> = text
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(Scope::from_str)
            .collect();
        scopes.map(Scopes::new)
    }
}

/// A key as it is kept: everything but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: String,
    pub name: String,
    pub hash: String,
    pub scopes: Scopes,
    pub created_at_ms: i64,
    pub expires_at_ms: Option<i64>,
    pub revoked_at_ms: Option<i64>,
    pub last_used_at_ms: Option<i64>,
}

/// A key as it is given to its owner, once. It prints nothing of itself.
pub struct SecretKey {
    id: String,
    secret: String,
}

impl SecretKey {
    /// A new one, from the system's randomness.
    pub fn generate() -> Self {
        SecretKey { id: format!("k{}", random_hex(ID_BYTES)), secret: random_hex(SECRET_BYTES) }
    }

    /// What somebody sent. `None` if it does not look like a key at all.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let hex = |part: &str, bytes: usize| {
            part.len() == 2 * bytes && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let fits = id.strip_prefix('k').is_some_and(|rest| hex(rest, ID_BYTES));
        (fits && hex(secret, SECRET_BYTES))
            .then(|| SecretKey { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// The part that is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is kept of the secret.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// Whether it is the key that was kept, in a time that does not depend on how much of it fits.
    pub fn is(&self, record: &KeyRecord) -> bool {
        self.hash().as_bytes().ct_eq(record.hash.as_bytes()).into()
    }

    /// The whole key, to be shown once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }
}

/// The text without the secrets of keys in it: people paste keys where they do not belong.
pub fn redact(text: &str) -> Cow<'_, str> {
    if !text.contains(PREFIX) {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(PREFIX);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let id = part[..end].split('_').next().unwrap_or_default();
        shown.push_str(&format!("{PREFIX}{id}_(hidden){}", &part[end..]));
    }
    Cow::Owned(shown)
}

/// So many random bytes, in hexadecimal.
pub fn random_hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // There is nothing a program could do without the system's randomness.
    getrandom::fill(&mut random).expect("the system has randomness");
    hex(&random)
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(key: &SecretKey) -> KeyRecord {
        KeyRecord {
            id: key.id().to_owned(),
            name: "test".to_owned(),
            hash: key.hash(),
            scopes: Scopes::default(),
            created_at_ms: 0,
            expires_at_ms: None,
            revoked_at_ms: None,
            last_used_at_ms: None,
        }
    }

    #[test]
    fn a_key_reads_back_and_fits_only_itself() {
        let (key, other) = (SecretKey::generate(), SecretKey::generate());
        let back = SecretKey::parse(&key.reveal()).expect("it looks like a key");
        assert!(back.is(&record(&key)));
        assert!(!back.is(&record(&other)));
        assert_ne!(key.id(), other.id());
        assert!(!record(&key).hash.contains(&key.secret));
    }

    #[test]
    fn admin_allows_everything_and_the_others_themselves() {
        let admin: Scopes = "admin".parse().expect("is one");
        assert!(Scope::ALL.into_iter().all(|scope| admin.allow(scope)));
        let push: Scopes = "push, pop,push".parse().expect("are some");
        assert_eq!(push.to_string(), "push,pop");
        assert!(push.allow(Scope::Pop) && !push.allow(Scope::Read) && !push.allow(Scope::Admin));
        assert!("push,potato".parse::<Scopes>().unwrap_err().contains("potato"));
    }

    #[test]
    fn a_key_in_a_text_is_hidden_but_for_its_id() {
        let key = SecretKey::generate();
        let text = format!("/api/v1/keys/{0}?x={0}, or {0}.", key.reveal());
        let shown = redact(&text);
        assert!(!shown.contains(&key.secret), "{shown}");
        assert_eq!(shown.matches(key.id()).count(), 3, "{shown}");
        assert_eq!(redact("/health"), "/health");
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_read_without_a_panic(text in ".*") {
            if let Some(key) = SecretKey::parse(&text) {
                prop_assert_eq!(key.reveal(), text);
            }
        }
    }
}
