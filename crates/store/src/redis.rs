//! Redis: one multiplexed connection that comes back by itself, and scripts by hash.
//!
//! An error of a call is an **unknown outcome** ([`StoreError::Unknown`]) unless Redis itself
//! answered it: a script whose answer was lost may have run.

use crate::url::RedisUrl;
use crate::{Health, StoreError};
use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation};
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "redis";

/// Limits of the connection to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a call may take, connecting included.
    pub call_timeout: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions {
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
        }
    }
}

/// A handle to Redis. Clones share its connection.
#[derive(Clone)]
pub struct Redis {
    connection: ConnectionManager,
    call_timeout: Duration,
    target: String,
}

/// A Lua script, sent by its hash; the text goes only to a server that does not know it yet.
pub struct Lua {
    script: Script,
}

impl Lua {
    /// A script from its text.
    pub fn new(text: &str) -> Self {
        Lua { script: Script::new(text) }
    }
}

impl Redis {
    /// Prepares the connection; it is made by the first call, and again after it was lost.
    /// Must be called inside a tokio runtime.
    pub fn new(url: &RedisUrl, options: &RedisOptions) -> Result<Self, StoreError> {
        let target = url.to_string();
        let denied = |error: RedisError| StoreError::Denied {
            store: NAME,
            target: target.clone(),
            cause: crate::error::chain(&error),
        };
        let client = Client::open(url.info.clone()).map_err(denied)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.call_timeout))
            // The caller decides whether to try again; a call that waits through several tries
            // would outlive whatever its caller still knows.
            .set_number_of_retries(0);
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(denied)?;
        Ok(Redis { connection, call_timeout: options.call_timeout, target })
    }

    /// Runs one command.
    pub async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        self.within_limit(command.query_async(&mut connection)).await
    }

    /// Runs a script as one atomic step, with the keys and arguments that `fill` adds.
    ///
    /// A server that has forgotten the script (restart, failover, flush) is given its text and
    /// asked again; that is safe, since it has just said that it ran nothing.
    pub async fn script<T: FromRedisValue>(
        &self,
        lua: &Lua,
        fill: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, StoreError> {
        let mut call = lua.script.prepare_invoke();
        fill(&mut call);
        let mut connection = self.connection.clone();
        self.within_limit(call.invoke_async(&mut connection)).await
    }

    /// Whether the server answers now.
    pub async fn health(&self) -> Health {
        let asked = Instant::now();
        let outcome = self.ask().await;
        Health::new(NAME, self.target.clone(), asked.elapsed(), outcome)
    }

    /// The address, without its password.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// One round trip. Fails like any other call would.
    pub async fn ask(&self) -> Result<(), StoreError> {
        self.command::<String>(&::redis::cmd("PING")).await.map(|_| ())
    }

    async fn within_limit<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.classify(&error)),
            Err(_) => Err(StoreError::Unknown {
                store: NAME,
                cause: format!("no answer within {:?}", self.call_timeout),
            }),
        }
    }

    fn classify(&self, error: &RedisError) -> StoreError {
        let (store, target) = (NAME, self.target.clone());
        let cause = crate::error::chain(error);
        match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
                StoreError::Denied { store, target, cause }
            }
            _ if is_denial(error) => StoreError::Denied { store, target, cause },
            ErrorKind::Server(_) if is_passing(error) => {
                StoreError::Unreachable { store, target, cause }
            }
            ErrorKind::Server(_) | ErrorKind::Extension => StoreError::Refused { store, cause },
            _ if error.is_connection_refusal() => StoreError::Unreachable { store, target, cause },
            _ => StoreError::Unknown { store, cause },
        }
    }
}

fn is_denial(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

/// Answers of a server that is coming up or handing over; it has run nothing.
fn is_passing(error: &RedisError) -> bool {
    matches!(
        error.code(),
        Some("LOADING" | "BUSY" | "MASTERDOWN" | "READONLY" | "TRYAGAIN" | "CLUSTERDOWN")
    )
}
