//! PostgreSQL and Redis: of one's own, to be broken at will, or given.

use crate::common::lock;
use skep_testkit::{Postgres, Redis, pause};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::time::Duration;

/// Servers that are there already; those that are not given are started.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `postgres://…`, a database for this run alone.
    pub postgres: Option<String>,
    /// `redis://…`, with a number of a database for this run alone.
    pub redis: Option<String>,
}

impl Given {
    /// Whether the addresses are such that a wire can be put before them.
    ///
    /// # Errors
    /// With what is wrong with one, without its password.
    pub fn check(&self) -> Result<(), String> {
        self.postgres.iter().try_for_each(|url| Address::read(url, POSTGRES_PORT).map(drop))?;
        self.redis.iter().try_for_each(|url| Address::read(url, REDIS_PORT).map(drop))
    }
}

const POSTGRES_PORT: u16 = 5432;
const REDIS_PORT: u16 = 6379;

/// The servers of a run.
pub struct Servers {
    database: Server<Postgres>,
    redis: Server<Redis>,
}

enum Server<T> {
    Own(Mutex<T>),
    Given(Address),
}

/// An address whose host and port can be replaced by those of a wire.
struct Address {
    before: String,
    host: String,
    port: u16,
    after: String,
}

impl Servers {
    pub(super) fn start(given: &Given) -> Result<Self, String> {
        let database = match &given.postgres {
            None => Server::Own(Mutex::new(Postgres::start())),
            Some(url) => Server::Given(Address::read(url, POSTGRES_PORT)?),
        };
        let redis = match &given.redis {
            None => Server::Own(Mutex::new(Redis::start())),
            Some(url) => Server::Given(Address::read(url, REDIS_PORT)?),
        };
        Ok(Servers { database, redis })
    }

    pub(super) fn database(&self) -> (&str, u16) {
        match &self.database {
            Server::Own(postgres) => lock(postgres).address(),
            Server::Given(address) => (&address.host, address.port),
        }
    }

    pub(super) fn redis(&self) -> (&str, u16) {
        match &self.redis {
            Server::Own(redis) => lock(redis).address(),
            Server::Given(address) => (&address.host, address.port),
        }
    }

    /// The database's address through a wire.
    pub(super) fn database_url(&self, port: u16) -> String {
        match &self.database {
            Server::Own(_) => format!("postgres://skep@127.0.0.1:{port}/postgres"),
            Server::Given(address) => address.through(port),
        }
    }

    /// Redis's address through a wire.
    pub(super) fn redis_url(&self, port: u16) -> String {
        match &self.redis {
            Server::Own(_) => format!("redis://127.0.0.1:{port}/0"),
            Server::Given(address) => address.through(port),
        }
    }

    /// Kills Redis, which starts again empty after a while.
    pub fn restart_redis(&self, down: Duration) {
        if let Server::Own(redis) = &self.redis {
            let mut redis = lock(redis);
            redis.kill();
            pause(down);
            redis.start_again();
        }
    }

    /// Makes Redis forget everything.
    pub fn flush_redis(&self) -> Result<(), String> {
        match &self.redis {
            Server::Own(redis) => lock(redis).command("FLUSHALL").map(drop),
            Server::Given(_) => Ok(()),
        }
    }

    /// Lets Redis answer nobody for a while.
    pub fn pause_redis(&self, span: Duration) {
        if let Server::Own(redis) = &self.redis {
            let redis = lock(redis);
            redis.pause();
            pause(span);
            redis.resume();
        }
    }

    /// Kills PostgreSQL, which starts again with what was committed after a while.
    pub fn restart_postgres(&self, down: Duration) {
        if let Server::Own(postgres) = &self.database {
            let mut postgres = lock(postgres);
            postgres.kill();
            pause(down);
            postgres.start_again();
        }
    }

    /// Ends every connection to PostgreSQL.
    pub fn disconnect_postgres(&self) {
        if let Server::Own(postgres) = &self.database {
            lock(postgres).run(
                "postgres",
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            );
        }
    }

    pub(super) fn wake(&self) {
        if let Server::Own(redis) = &self.redis {
            lock(redis).resume();
        }
    }
}

impl Address {
    fn read(url: &str, usual_port: u16) -> Result<Self, String> {
        // Without what may be a password.
        let told = url.rsplit('@').next().unwrap_or(url);
        let bad = |why: &str| format!("{told:?} {why}");
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("is no URL"))?;
        if !["postgres", "postgresql", "redis"].contains(&scheme) {
            return Err(bad(
                "must begin with postgres:// or redis://: faults are done by cutting \
                            plain connections, so that it cannot be reached over TLS",
            ));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (format!("{user}@"), address),
            None => (String::new(), authority),
        };
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad("has no good port"))?),
            None => (address, usual_port),
        };
        let found = (host, port).to_socket_addrs().map_err(|error| bad(&error.to_string()))?;
        let found = found.into_iter().find(SocketAddr::is_ipv4);
        let host = found.ok_or_else(|| bad("has no IPv4 address"))?.ip().to_string();
        let (before, after) = (format!("{scheme}://{user}"), after.to_owned());
        Ok(Address { before, host, port, after })
    }

    fn through(&self, port: u16) -> String {
        format!("{}127.0.0.1:{port}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_of_an_address_are_replaced_and_nothing_else() {
        let through = |url, usual| Address::read(url, usual).map(|address| address.through(7));
        let given = "postgres://me:a%40b@127.0.0.1:5433/soak?connect_timeout=3";
        let expected = "postgres://me:a%40b@127.0.0.1:7/soak?connect_timeout=3";
        assert_eq!(through(given, 5432), Ok(expected.to_owned()));
        assert_eq!(through("redis://127.0.0.1", 6379), Ok("redis://127.0.0.1:7".to_owned()));
        assert_eq!(Address::read("redis://127.0.0.1/3", 6379).map(|found| found.port), Ok(6379));
    }

    #[test]
    fn what_cannot_be_cut_is_refused_without_telling_its_password() {
        let refused = |url| Address::read(url, 1).map(|_| ()).expect_err("is refused");
        assert!(refused("rediss://:secret@cache/0").contains("TLS"));
        assert!(!refused("rediss://:secret@cache/0").contains("secret"));
        assert!(refused("127.0.0.1:6379").contains("is no URL"));
        assert!(refused("redis://127.0.0.1:x/0").contains("has no good port"));
    }
}
