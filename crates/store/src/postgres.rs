//! PostgreSQL: a bounded pool of connections, each call with a limit of time.

use crate::url::PostgresUrl;
use crate::{Health, Hints, StoreError, postgres_listen};
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    Timeouts,
};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::error::DbError;
use tokio_postgres_rustls::MakeRustlsConnect;

pub(crate) const NAME: &str = "postgres";

/// How long a transaction may wait for its client before the server ends it.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(5);

/// Limits of the connections to PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Connections at most; a call that finds all in use waits.
    pub connections_max: usize,
    /// How long a call may wait for a connection, and a new connection may take.
    pub connect_timeout: Duration,
    /// How long the server may work on one statement.
    pub statement_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            connections_max: 16,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// A handle to PostgreSQL. Clones share its connections.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    target: String,
    connect_timeout: Duration,
    statement_timeout: Duration,
    connections: Gauge,
    dial: Arc<postgres_listen::Dial>,
}

/// A connection, given back to the pool when dropped.
pub type PostgresClient = Object;

impl Postgres {
    /// Prepares the pool; connects to nothing yet.
    pub fn new(url: &PostgresUrl, options: &PostgresOptions) -> Result<Self, StoreError> {
        let target = url.to_string();
        let denied = |cause| StoreError::Denied { store: NAME, target: target.clone(), cause };
        let tls = crate::tls::client_config(&url.verify).map_err(denied)?;
        let mut config = url.config.clone();
        config.connect_timeout(options.connect_timeout);
        if config.get_application_name().is_none() {
            config.application_name("skep");
        }
        // A server that vanished without a word is noticed within half a minute.
        config.keepalives_idle(Duration::from_secs(15));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(30));
        let tls = MakeRustlsConnect::new(tls);
        let dial = postgres_listen::Dial {
            config: config.clone(),
            tls: tls.clone(),
            limit: options.connect_timeout,
        };
        let manager = Manager::from_config(
            config,
            tls,
            ManagerConfig { recycling_method: RecyclingMethod::Verified },
        );
        let wait = Some(options.connect_timeout);
        let pool = Pool::builder(manager)
            .max_size(options.connections_max)
            .timeouts(Timeouts { wait, create: wait, recycle: wait })
            .runtime(Runtime::Tokio1)
            .post_create(limit_statements(options.statement_timeout))
            .build()
            .map_err(|error| denied(error.to_string()))?;
        Ok(Postgres {
            pool,
            target,
            connect_timeout: options.connect_timeout,
            statement_timeout: options.statement_timeout,
            connections: Gauge::default(),
            dial: Arc::new(dial),
        })
    }

    /// Listens for what is said on `channels` (`NOTIFY`), on a connection of its own that comes
    /// back by itself. It is outside the pool's limit, because it is never given back.
    ///
    /// Must be called inside a tokio runtime. A pooler in between must keep the session.
    pub fn listen(&self, channels: &[&str]) -> Hints {
        postgres_listen::listen(self.dial.clone(), channels)
    }

    /// Takes a connection from the pool, making one if none is idle. It is asked whether it is
    /// alive first, because the statement of a caller that left may still hang in it.
    pub async fn client(&self) -> Result<PostgresClient, StoreError> {
        // The pool's own limits leave out the first statement of a new connection.
        match tokio::time::timeout(2 * self.connect_timeout, self.pool.get()).await {
            Ok(client) => client.map_err(|error| self.pool_error(&error)),
            Err(_) => Err(StoreError::Unreachable {
                store: NAME,
                target: self.target.clone(),
                cause: format!("no connection within {:?}", 2 * self.connect_timeout),
            }),
        }
    }

    /// Gives `work` on a connection the time that a statement may take and a little more: a server
    /// that hangs does not end its statements by itself.
    pub async fn limit<T, E: From<StoreError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let limit = self.statement_timeout + self.connect_timeout;
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {limit:?}");
            Err(StoreError::Unknown { store: NAME, cause }.into())
        })
    }

    /// Whether the server answers a query now, within `limit`.
    pub async fn health(&self, limit: Duration) -> Health {
        Health::ask(NAME, self.target.clone(), limit, self.ask()).await
    }

    /// The address, without its password.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// One round trip. Fails like any other call would.
    pub async fn ask(&self) -> Result<(), StoreError> {
        let client = self.client().await?;
        let asked = tokio::time::timeout(self.connect_timeout, client.simple_query("SELECT 1"));
        match asked.await {
            Ok(answer) => answer.map(|_| ()).map_err(StoreError::from),
            Err(_) => {
                drop(Object::take(client));
                let cause = format!("no answer within {:?}", self.connect_timeout);
                Err(StoreError::Unknown { store: NAME, cause })
            }
        }
    }

    /// Adds the pool's metrics to a node's registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "skep_postgres_connections",
            "Open connections to PostgreSQL when last scraped",
            self.connections.clone(),
        );
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        self.connections.set(i64::try_from(self.pool.status().size).unwrap_or(i64::MAX));
    }

    /// Closes the pool; later calls get [`StoreError::Closed`].
    pub fn close(&self) {
        self.pool.close();
    }

    fn pool_error(&self, error: &PoolError) -> StoreError {
        let cause = match error {
            PoolError::Closed => return StoreError::Closed { store: NAME },
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                return self.connect_error(error);
            }
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
                format!("all {} connections stayed in use", self.pool.status().max_size)
            }
            other => crate::error::chain(other),
        };
        StoreError::Unreachable { store: NAME, target: self.target.clone(), cause }
    }

    fn connect_error(&self, error: &tokio_postgres::Error) -> StoreError {
        let (store, target, cause) = (NAME, self.target.clone(), crate::error::chain(error));
        if needs_a_person(error) {
            StoreError::Denied { store, target, cause }
        } else {
            StoreError::Unreachable { store, target, cause }
        }
    }
}

/// Whether a failed connection stays failed until somebody changes a password, a name, a right or
/// a certificate. Everything else may pass: servers restart, poolers are full.
fn needs_a_person(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(answer) => {
            let code = answer.code().code();
            // Authorization, no such database, no right to it.
            code.starts_with("28") || code == "3D000" || code == "42501"
        }
        None => crate::tls::is_tls_problem(error) || is_configuration_problem(error),
    }
}

/// Sets the limit on each new connection by a statement, because a pooler in between refuses start
/// parameters it does not know.
fn limit_statements(limit: Duration) -> Hook {
    // A process that is stopped in the middle of a transaction must not hold its locks for long.
    let statement = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        limit.as_millis(),
        IDLE_IN_TRANSACTION.as_millis()
    );
    Hook::async_fn(move |client, _| {
        let statement = statement.clone();
        Box::pin(async move { client.batch_execute(&statement).await.map_err(HookError::Backend) })
    })
}

/// The driver has no kind for these: no password for a server that wants one, TLS asked for and not
/// spoken.
fn is_configuration_problem(error: &tokio_postgres::Error) -> bool {
    let text = crate::error::chain(error);
    text.starts_with("invalid configuration") || text.contains("server does not support TLS")
}

impl From<tokio_postgres::Error> for StoreError {
    /// For errors of a statement on an open connection; those of connecting are told apart by
    /// [`Postgres::client`].
    fn from(error: tokio_postgres::Error) -> Self {
        let (store, cause) = (NAME, crate::error::chain(&error));
        let Some(answer) = error.as_db_error() else {
            return if is_callers_mistake(&cause) {
                StoreError::Refused { store, cause }
            } else {
                StoreError::Unknown { store, cause }
            };
        };
        match answer.code().code() {
            // The connection is gone with it, or the server itself does not know.
            _ if is_fatal(answer) => StoreError::Unknown { store, cause },
            "40003" => StoreError::Unknown { store, cause },
            code if code.starts_with("08") => StoreError::Unknown { store, cause },
            // Conflicts, no room or memory, locks, a standby: the server did nothing, for now.
            code if code.starts_with("40") || code.starts_with("53") => {
                StoreError::Busy { store, cause }
            }
            "55P03" | "25006" => StoreError::Busy { store, cause },
            _ => StoreError::Refused { store, cause },
        }
    }
}

fn is_fatal(answer: &DbError) -> bool {
    use tokio_postgres::error::Severity;
    matches!(answer.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Errors that the driver finds before it sends anything, or in reading an answer.
fn is_callers_mistake(cause: &str) -> bool {
    ["error serializing", "error deserializing", "query returned an unexpected", "invalid column"]
        .iter()
        .any(|start| cause.starts_with(start))
}
