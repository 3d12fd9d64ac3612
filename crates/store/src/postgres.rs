//! PostgreSQL: a bounded pool of connections, each call with a limit of time.

use crate::url::PostgresUrl;
use crate::{Health, StoreError};
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    Timeouts,
};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres_rustls::MakeRustlsConnect;

pub(crate) const NAME: &str = "postgres";

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
    connections: Gauge,
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
        let manager = Manager::from_config(
            config,
            MakeRustlsConnect::new(tls),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let wait = Some(options.connect_timeout);
        let pool = Pool::builder(manager)
            .max_size(options.connections_max)
            .timeouts(Timeouts { wait, create: wait, recycle: wait })
            .runtime(Runtime::Tokio1)
            .post_create(limit_statements(options.statement_timeout))
            .build()
            .map_err(|error| denied(error.to_string()))?;
        let connect_timeout = options.connect_timeout;
        Ok(Postgres { pool, target, connect_timeout, connections: Gauge::default() })
    }

    /// Takes a connection from the pool, making one if none is idle.
    pub async fn client(&self) -> Result<PostgresClient, StoreError> {
        self.pool.get().await.map_err(|error| self.pool_error(&error))
    }

    /// Whether the server answers a query now.
    pub async fn health(&self) -> Health {
        let asked = Instant::now();
        let outcome = self.ask().await;
        Health::new(NAME, self.target.clone(), asked.elapsed(), outcome)
    }

    /// The address, without its password.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// One round trip, within the time that connecting may take. Fails like any other call would.
    pub async fn ask(&self) -> Result<(), StoreError> {
        let client = self.client().await?;
        match tokio::time::timeout(self.connect_timeout, client.simple_query("SELECT 1")).await {
            Ok(answer) => answer.map(|_| ()).map_err(StoreError::from),
            Err(_) => {
                // A connection that hangs would hang its next user too.
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
        let passes = error.as_db_error().is_none_or(|answer| comes_back(answer.code()));
        if passes && !is_certificate_problem(error) && !is_configuration_problem(error) {
            StoreError::Unreachable { store, target, cause }
        } else {
            StoreError::Denied { store, target, cause }
        }
    }
}

/// Sets the limit on each new connection by a statement, because a pooler in between refuses start
/// parameters it does not know.
fn limit_statements(limit: Duration) -> Hook {
    let statement = format!("SET statement_timeout = {}", limit.as_millis());
    Hook::async_fn(move |client, _| {
        let statement = statement.clone();
        Box::pin(async move { client.batch_execute(&statement).await.map_err(HookError::Backend) })
    })
}

/// States in which a server turns connections away for a while.
fn comes_back(code: &SqlState) -> bool {
    *code == SqlState::TOO_MANY_CONNECTIONS || is_going_away(code)
}

fn is_going_away(code: &SqlState) -> bool {
    [SqlState::CANNOT_CONNECT_NOW, SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN]
        .contains(code)
}

fn is_certificate_problem(error: &tokio_postgres::Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let tls = cause
            .downcast_ref::<std::io::Error>()
            .and_then(|io| io.get_ref())
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if tls.is_some() || cause.is::<rustls::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// The driver has no kind for these: a missing password, TLS asked for and not spoken.
fn is_configuration_problem(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("invalid configuration") || text.starts_with("error performing TLS handshake")
}

impl From<tokio_postgres::Error> for StoreError {
    /// For errors of a statement on an open connection; those of connecting are told apart by
    /// [`Postgres::client`].
    fn from(error: tokio_postgres::Error) -> Self {
        let cause = crate::error::chain(&error);
        match error.as_db_error() {
            // The server said no, so it knows what it did: nothing.
            Some(answer) if !is_going_away(answer.code()) => {
                StoreError::Refused { store: NAME, cause }
            }
            // Shutting down in the middle, a cut connection: nobody knows.
            _ => StoreError::Unknown { store: NAME, cause },
        }
    }
}
