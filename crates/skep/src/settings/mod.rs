//! What can be set, and where each value came from.
//!
//! Defaults, then `skep.toml`, then the environment, then flags, each over the one before. Every
//! setting is declared once, in a [`section`] below: its name, its type, its default, its bounds
//! and the line that explains it. The command line, the documentation's table and the error
//! messages all come from that declaration.
//!
//! To add settings: declare a section, add it to [`Settings`], `read` and `keys`, and run the tests
//! with `SKEP_TEST_BLESS=1`, which brings the table in `docs/configuration.md` up to date.

mod aliases;
mod cluster;
mod fleet;
mod layers;
mod monitors;
mod pools;
mod queues;
mod reach;
mod routes;
mod section;
mod sessions;
mod suggest;
mod value;

pub use aliases::{Alias, aliases};
pub use cluster::{ClusterSettings, Host, PeerAddress, Peers, Port};
pub use fleet::{NodesSettings, PollsSettings};
pub use layers::{Layers, Origin, Problem, environment_name};
pub use monitors::MonitorsSettings;
pub use pools::AllPoolSettings;
pub use queues::{EncryptionKey, QueuesSettings, Subscription};
pub use reach::{ReachSettings, host_of_url, reach_flaws};
pub use routes::{FileRoute, Networks, ProxySettings, policy_flaw};
pub use section::Effective;
pub use sessions::{GatewaySettings, SessionsSettings, is_kind};
pub use value::{ByteSize, LogFormat, LogLevel, Origins, Secret, Urls, Value};

pub use suggest::nearest;

use section::{Reader, section};
use skep_policy::{Name, backoff};
use skep_store::{
    CoordinationUrl, DEFAULT_RETRY, DatabaseUrl, PostgresOptions, RedisOptions, SqliteOptions,
    StoreOptions,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file that is read if none is named and it is there.
pub const DEFAULT_FILE: &str = "skep.toml";

section! {
    /// Where the node keeps things.
    pub struct PlaceSettings in "" {
        /// Folder for everything this node keeps on disk; one process at a time.
        data: PathBuf = PathBuf::from("skep-data");
        /// Where lasting data goes: `embedded` (SQLite in the data folder) or a PostgreSQL address,
        /// which several nodes can share.
        database: DatabaseUrl = DatabaseUrl::Embedded;
        /// Where nodes agree on who does what: `database` (the one above) or a Redis address.
        coordination: CoordinationUrl = CoordinationUrl::Database;
    }
}

section! {
    /// Who this node is.
    pub struct NodeSettings in "node" {
        /// Name of this node, unique in its installation; `<hostname>-<API port>` if not set.
        name: Option<Name> = None;
    }
}

section! {
    /// The listener of API and dashboard.
    pub struct ApiSettings in "api" {
        /// Address and port of API and dashboard; port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 6632));
        /// Whether anybody may do anything as long as there is no key, from everywhere.
        insecure: bool = false;
        /// PEM file with the certificate, and those that lead to its authority; with it the port
        /// speaks TLS. Read again when it changes.
        tls_certificate: Option<PathBuf> = None;
        /// PEM file with the certificate's private key.
        tls_key: Option<PathBuf> = None;
        /// Origins whose pages may use the API, separated by commas; none may unless named.
        cors_origins: Origins = Origins::default();
        /// Largest body of a request.
        body_max: ByteSize = ByteSize(16 << 20), in ByteSize(1 << 10)..=ByteSize(1 << 40);
        /// Largest head of a request, all headers together.
        header_max: ByteSize = ByteSize(64 << 10), in ByteSize(8 << 10)..=ByteSize(16 << 20);
        /// How long a client may take to send a request's head; an idle connection is closed after
        /// this time too.
        idle_timeout: Duration = Duration::from_secs(60), in ms(10)..=hours(24);
        /// How long a request may take, from its head to the head of its answer.
        request_timeout: Duration = Duration::from_secs(60), in ms(10)..=hours(24);
        /// Connections at a time; more wait to be accepted.
        connections_max: usize = 20_000, in 1..=1_000_000;
        /// Live streams at a time, one or two for each open dashboard; more are refused.
        streams_max: usize = 256, in 1..=100_000;
    }
}

section! {
    /// The log.
    pub struct LogSettings in "log" {
        /// Which lines are written, also per module: `info,skep_store=debug`.
        level: LogLevel = LogLevel::parse("info").unwrap_or_else(|_| unreachable!("it is one"));
        /// How lines are written: `text` for people, `json` for programs.
        format: LogFormat = LogFormat::Text;
        /// Whether each request is logged.
        access: bool = true;
    }
}

section! {
    /// The access log, in the database and in a file.
    pub struct AccessLogSettings in "access_log" {
        /// Whether requests are kept in the database, those for health, metrics and the dashboard's
        /// own files not.
        enabled: bool = true;
        /// How long they are kept.
        keep: Duration = hours(7 * 24), in ms(1_000)..=hours(10 * 365 * 24);
        /// Entries that may wait to be written; more are dropped and counted.
        waiting_max: usize = 20_000, in 100..=10_000_000;
        /// A file that gets each of them as a line of JSON, kept in the database or not; none if
        /// empty.
        file: Option<PathBuf> = None;
        /// The file is put aside before it gets larger than this.
        file_max: ByteSize = ByteSize(100 << 20), in ByteSize(64 << 10)..=ByteSize(1 << 40);
        /// Files put aside that are kept, `.1` the newest of them.
        files: usize = 5, in 0..=1_000;
    }
}

section! {
    /// Alerts.
    pub struct AlertSettings in "alerts" {
        /// Addresses that are told when an alert fires or ends, separated by commas.
        webhooks: Urls = Urls::default();
        /// What the messages are signed with; needed with `alerts.webhooks`.
        secret: Option<Secret> = None;
    }
}

section! {
    /// Stopping.
    pub struct ShutdownSettings in "shutdown" {
        /// How long requests in progress may take to finish after the node was asked to stop.
        drain_timeout: Duration = Duration::from_secs(30), in Duration::ZERO..=hours(1);
    }
}

section! {
    /// `skep demo`.
    pub struct DemoSettings in "demo" {
        /// Whether this node belongs to a demo: it keeps its story for the dashboard, takes tasks
        /// that only take time, and is one of several nodes also where the database is embedded.
        /// `skep demo` sets it for its own nodes.
        enabled: bool = false;
    }
}

section! {
    /// Limits of the embedded store.
    pub struct SqliteSettings in "store.sqlite" {
        /// Threads that read beside the writer.
        readers: usize = SqliteOptions::default().readers, in 1..=64;
        /// Calls that may wait for the writer, and as many for the readers; more callers wait for
        /// room.
        queue_max: usize = SqliteOptions::default().queue_max, in 1..=1_000_000;
        /// Calls that may share one transaction.
        batch_max: usize = SqliteOptions::default().batch_max, in 1..=100_000;
        /// A transaction takes up no more calls after this time.
        batch_time_max: Duration = SqliteOptions::default().batch_time_max, in ms(1)..=hours(1);
        /// Size that the write-ahead log is cut back to after a burst.
        log_size_max: ByteSize = ByteSize(SqliteOptions::default().log_size_max),
            in ByteSize(1 << 20)..=ByteSize(1 << 40);
    }
}

section! {
    /// Limits of the connections to PostgreSQL.
    pub struct PostgresSettings in "store.postgres" {
        /// Connections at most; a call that finds all in use waits.
        connections_max: usize = PostgresOptions::default().connections_max, in 1..=10_000;
        /// How long a call may wait for a connection, and a new connection may take.
        connect_timeout: Duration = PostgresOptions::default().connect_timeout,
            in ms(10)..=hours(1);
        /// How long the server may work on one statement.
        statement_timeout: Duration = PostgresOptions::default().statement_timeout,
            in ms(10)..=hours(24);
    }
}

section! {
    /// Limits of the connection to Redis.
    pub struct RedisSettings in "store.redis" {
        /// How long connecting may take.
        connect_timeout: Duration = RedisOptions::default().connect_timeout,
            in ms(10)..=hours(1);
        /// How long a call may take, connecting included.
        call_timeout: Duration = RedisOptions::default().call_timeout, in ms(10)..=hours(1);
    }
}

section! {
    /// Waits between attempts to reach a server that is away at start.
    pub struct RetrySettings in "store.retry" {
        /// The most that the first wait can be; each further one doubles.
        base: Duration = DEFAULT_RETRY.base, in ms(1)..=hours(1);
        /// The most that any wait can be.
        cap: Duration = DEFAULT_RETRY.cap, in ms(1)..=hours(1);
    }
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3_600)
}

/// Everything that can be set, ready to use.
#[derive(Clone, Debug)]
pub struct Settings {
    pub place: PlaceSettings,
    pub node: NodeSettings,
    pub api: ApiSettings,
    pub log: LogSettings,
    pub shutdown: ShutdownSettings,
    pub access_log: AccessLogSettings,
    pub alerts: AlertSettings,
    pub pools: AllPoolSettings,
    pub nodes: NodesSettings,
    pub polls: PollsSettings,
    pub monitors: MonitorsSettings,
    pub gateway: GatewaySettings,
    pub sessions: SessionsSettings,
    pub proxy: ProxySettings,
    pub reach: ReachSettings,
    pub queues: QueuesSettings,
    pub cluster: ClusterSettings,
    pub demo: DemoSettings,
    /// Of the file.
    pub routes: Vec<FileRoute>,
    /// The file, if one was read or would have been.
    pub file: Option<PathBuf>,
    pub sqlite: SqliteSettings,
    pub postgres: PostgresSettings,
    pub redis: RedisSettings,
    pub retry: RetrySettings,
    /// All of them as people read them, with where each came from and without secrets.
    pub effective: Arc<[Effective]>,
}

impl Settings {
    fn read(reader: &mut Reader) -> Self {
        let settings = Settings {
            place: PlaceSettings::read(reader),
            node: NodeSettings::read(reader),
            api: ApiSettings::read(reader),
            log: LogSettings::read(reader),
            shutdown: ShutdownSettings::read(reader),
            access_log: AccessLogSettings::read(reader),
            alerts: AlertSettings::read(reader),
            pools: AllPoolSettings::read(reader),
            nodes: NodesSettings::read(reader),
            polls: PollsSettings::read(reader),
            monitors: MonitorsSettings::read(reader),
            gateway: GatewaySettings::read(reader),
            sessions: SessionsSettings::read(reader),
            proxy: ProxySettings::read(reader),
            reach: ReachSettings::read(reader),
            queues: QueuesSettings::read(reader),
            cluster: ClusterSettings::read(reader),
            demo: DemoSettings::read(reader),
            routes: reader.take_routes(),
            file: reader.layers.file.clone(),
            sqlite: SqliteSettings::read(reader),
            postgres: PostgresSettings::read(reader),
            redis: RedisSettings::read(reader),
            retry: RetrySettings::read(reader),
            effective: Arc::default(),
        };
        settings.check_together(reader);
        settings
    }

    /// The names of all settings.
    pub fn keys() -> Vec<&'static str> {
        [
            PlaceSettings::KEYS,
            NodeSettings::KEYS,
            ApiSettings::KEYS,
            LogSettings::KEYS,
            ShutdownSettings::KEYS,
            AccessLogSettings::KEYS,
            AlertSettings::KEYS,
            &AllPoolSettings::keys(),
            NodesSettings::KEYS,
            PollsSettings::KEYS,
            MonitorsSettings::KEYS,
            GatewaySettings::KEYS,
            SessionsSettings::KEYS,
            ProxySettings::KEYS,
            ReachSettings::KEYS,
            QueuesSettings::KEYS,
            ClusterSettings::KEYS,
            DemoSettings::KEYS,
            SqliteSettings::KEYS,
            PostgresSettings::KEYS,
            RedisSettings::KEYS,
            RetrySettings::KEYS,
        ]
        .concat()
    }

    fn check_together(&self, reader: &mut Reader) {
        self.nodes.check_together(reader);
        self.cluster.check_together(reader);
        self.monitors.check_together(reader);
        self.reach.check_together(self, reader);
        let sessions = self.sessions.options("");
        for (number, route) in self.routes.iter().enumerate() {
            if let Some(flaw) = policy_flaw(&route.spec, &sessions) {
                let message = format!("routes[{number}].{flaw}");
                reader.layers.problems.push(Problem { origin: route.origin.clone(), message });
            }
        }
        for (set, missing, other) in [
            ("api.tls_certificate", "api.tls_key", self.api.tls_key.is_none()),
            ("api.tls_key", "api.tls_certificate", self.api.tls_certificate.is_none()),
        ] {
            let one = self.api.tls_certificate.is_some() || self.api.tls_key.is_some();
            if one && other {
                reader.conflict(set, format!("`{set}` needs `{missing}` beside it"));
            }
        }
        if !self.alerts.webhooks.0.is_empty() && self.alerts.secret.is_none() {
            let message = "`alerts.webhooks` needs `alerts.secret` beside it, so that whoever gets \
                           a message can see that it is genuine";
            reader.conflict("alerts.webhooks", message.to_owned());
        }
        if self.retry.base > self.retry.cap {
            reader.conflict(
                "store.retry.base",
                format!(
                    "`store.retry.base` ({}) must not be above `store.retry.cap` ({})",
                    self.retry.base.show(),
                    self.retry.cap.show()
                ),
            );
        }
        if self.redis.connect_timeout > self.redis.call_timeout {
            reader.conflict(
                "store.redis.connect_timeout",
                format!(
                    "`store.redis.connect_timeout` ({}) must not be above \
                     `store.redis.call_timeout` ({}), which includes it",
                    self.redis.connect_timeout.show(),
                    self.redis.call_timeout.show()
                ),
            );
        }
    }

    /// What the stores need to know.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            data: self.place.data.clone(),
            database: self.place.database.clone(),
            coordination: self.place.coordination.clone(),
            sqlite: SqliteOptions {
                readers: self.sqlite.readers,
                queue_max: self.sqlite.queue_max,
                batch_max: self.sqlite.batch_max,
                batch_time_max: self.sqlite.batch_time_max,
                log_size_max: self.sqlite.log_size_max.0,
            },
            postgres: PostgresOptions {
                connections_max: self.postgres.connections_max,
                connect_timeout: self.postgres.connect_timeout,
                statement_timeout: self.postgres.statement_timeout,
            },
            redis: RedisOptions {
                connect_timeout: self.redis.connect_timeout,
                call_timeout: self.redis.call_timeout,
            },
            retry: backoff::Options { base: self.retry.base, cap: self.retry.cap },
        }
    }
}

/// What the layers gave: settings to use, and what was odd.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    pub warnings: Vec<Problem>,
}

/// Every problem that was found. None of the settings may be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", list(.0))]
pub struct Invalid(pub Vec<Problem>);

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Turns layers into settings, or says everything that is wrong with them.
pub fn resolve(layers: Layers) -> Result<Loaded, Invalid> {
    let mut reader = Reader { layers, effective: Vec::new() };
    let mut settings = Settings::read(&mut reader);
    let Reader { layers: Layers { problems, warnings, .. }, effective } = reader;
    if problems.is_empty() {
        settings.effective = effective.into();
        Ok(Loaded { settings, warnings })
    } else {
        Err(Invalid(problems))
    }
}

/// The routes of a file alone. Nothing else of it is used, but whatever is wrong with it is told:
/// a file with which a node would not start is not half believed.
pub fn routes_of_file(path: &Path) -> Result<Vec<FileRoute>, Invalid> {
    let mut layers = Layers::default();
    layers.add_file(path, &Settings::keys());
    if layers.problems.is_empty() { Ok(layers.routes) } else { Err(Invalid(layers.problems)) }
}

/// The settings of one file alone.
pub fn check_file(path: &Path) -> Result<Loaded, Invalid> {
    let mut layers = Layers::default();
    layers.add_file(path, &Settings::keys());
    resolve(layers)
}

#[cfg(test)]
mod tests;
