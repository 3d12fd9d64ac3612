//! Redis: one multiplexed connection that comes back by itself, and scripts by hash.
//!
//! An error of a call is an **unknown outcome** ([`StoreError::Unknown`]) unless Redis itself said
//! that it did nothing: a script whose answer was lost may have run, and one that failed half way
//! has kept what it wrote before.

use crate::hints::{ASK_EVERY, Inbox};
use crate::url::RedisUrl;
use crate::{Health, Hints, StoreError};
use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::io::tcp::TcpSettings;
use ::redis::{Client, Cmd, ErrorKind, FromRedisValue, RedisError, Script, ScriptInvocation};
use futures_util::StreamExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

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
    shared: Arc<Shared>,
}

struct Shared {
    connection: Mutex<ConnectionManager>,
    client: Client,
    config: ConnectionManagerConfig,
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

/// What was asked of Redis, which decides what its error means.
#[derive(Clone, Copy)]
enum Call {
    /// One command: if Redis answers with an error, it did nothing.
    Command,
    /// A script: Redis keeps what it wrote before it failed.
    Script,
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
        // A server that vanished without a word is noticed within half a minute.
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive())
            .set_user_timeout(Duration::from_secs(30));
        let client = Client::open(url.info.clone().set_tcp_settings(tcp)).map_err(denied)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.call_timeout))
            // The caller decides whether to try again; a call that waits through several tries
            // would outlive whatever its caller still knows.
            .set_number_of_retries(0);
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())
            .map_err(denied)?;
        let shared = Shared {
            connection: Mutex::new(connection),
            client,
            config,
            call_timeout: options.call_timeout,
            target,
        };
        Ok(Redis { shared: Arc::new(shared) })
    }

    /// Runs one command.
    pub async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let mut connection = self.connection();
        self.within_limit(Call::Command, command.query_async(&mut connection)).await
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
        let mut connection = self.connection();
        self.within_limit(Call::Script, call.invoke_async(&mut connection)).await
    }

    /// Whether the server answers now, within `limit`.
    pub async fn health(&self, limit: Duration) -> Health {
        Health::ask(NAME, self.shared.target.clone(), limit, self.ask()).await
    }

    /// The address, without its password.
    pub fn target(&self) -> &str {
        &self.shared.target
    }

    /// One round trip. Fails like any other call would.
    pub async fn ask(&self) -> Result<(), StoreError> {
        self.command::<String>(&::redis::cmd("PING")).await.map(|_| ())
    }

    /// Listens for what is said on `channel` (`PUBLISH`), on a connection of its own that comes
    /// back by itself. Must be called inside a tokio runtime.
    pub fn subscribe(&self, channel: &str) -> Hints {
        let (shared, channel) = (self.shared.clone(), channel.to_owned());
        Hints::start(move |inbox| {
            let (shared, channel) = (shared.clone(), channel.clone());
            async move { attend(&shared, &channel, &inbox).await.unwrap_or(()) }
        })
    }

    fn connection(&self) -> ConnectionManager {
        self.shared.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn within_limit<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        let shared = &self.shared;
        match tokio::time::timeout(shared.call_timeout, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if !is_answer_to_the_call(&error) {
                    self.start_afresh();
                }
                Err(self.classify(call, &error))
            }
            Err(_) => {
                self.start_afresh();
                Err(self.unknown(&format!("no answer within {:?}", shared.call_timeout)))
            }
        }
    }

    /// Lets the next call make a new connection. The manager does that by itself only when it sees
    /// the connection drop: it would keep a failed login, and a peer that is silent, for good.
    fn start_afresh(&self) {
        let (client, config) = (self.shared.client.clone(), self.shared.config.clone());
        if let Ok(fresh) = ConnectionManager::new_lazy_with_config(client, config) {
            *self.shared.connection.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    fn classify(&self, call: Call, error: &RedisError) -> StoreError {
        let (store, target) = (NAME, self.shared.target.clone());
        let cause = crate::error::chain(error);
        match error.kind() {
            _ if crate::tls::is_tls_problem(error) => StoreError::Denied { store, target, cause },
            ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => {
                StoreError::Denied { store, target, cause }
            }
            _ if did_not_begin(error, &cause) => StoreError::Busy { store, cause },
            ErrorKind::Server(_) | ErrorKind::Extension => match (call, error.code()) {
                (_, Some("NOAUTH" | "WRONGPASS")) => StoreError::Denied { store, target, cause },
                (Call::Script, _) => self.unknown(&cause),
                (Call::Command, Some("NOPERM")) => StoreError::Denied { store, target, cause },
                (Call::Command, Some("OOM" | "MISCONF" | "NOREPLICAS" | "READONLY")) => {
                    StoreError::Busy { store, cause }
                }
                (Call::Command, _) => StoreError::Refused { store, cause },
            },
            _ if error.is_connection_refusal() => StoreError::Unreachable { store, target, cause },
            _ => self.unknown(&cause),
        }
    }

    fn unknown(&self, cause: &str) -> StoreError {
        StoreError::Unknown { store: NAME, cause: format!("{}: {cause}", self.shared.target) }
    }
}

/// One connection that listens, to its end; the error does not say more than that it ended.
async fn attend(shared: &Shared, channel: &str, inbox: &Inbox) -> Option<()> {
    let limit = shared.call_timeout;
    let connection = timeout(limit, shared.client.get_async_pubsub()).await.ok()?.ok()?;
    let (mut asking, mut messages) = connection.split();
    timeout(limit, asking.subscribe(channel)).await.ok()?.ok()?;
    inbox.connected();
    let ask = async {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            timeout(limit, asking.ping::<::redis::Value>()).await.ok()?.ok()?;
        }
    };
    let hear = async {
        while let Some(message) = messages.next().await {
            let payload = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            inbox.notice(message.get_channel_name(), payload);
        }
    };
    tokio::select! {
        ended = ask => ended,
        () = hear => None,
    }
}

fn keepalive() -> ::redis::io::tcp::socket2::TcpKeepalive {
    ::redis::io::tcp::socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
}

/// Whether the error is what the server said to this call, so that the connection is a good one.
fn is_answer_to_the_call(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
        && !matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        && !error.to_string().contains("max number of clients")
}

/// Answers of a server that is coming up, busy or handing over: it has not begun, not even with a
/// script.
fn did_not_begin(error: &RedisError, cause: &str) -> bool {
    matches!(
        error.code(),
        Some("LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "NOSCRIPT")
    ) || cause.contains("max number of clients")
}
