//! Servers that somebody has for a demo or a soak: asked before anything starts, so that a wrong
//! address is told at once, by the flag that has it.

use super::{CliError, Exit};
use crate::settings::Value;
use skep_store::{
    CoordinationUrl, DatabaseUrl, Lua, Postgres, PostgresOptions, Redis, RedisOptions, StoreError,
};

const POSTGRES: &str = "--postgres";
const REDIS: &str = "--redis";

/// Whether they are there, and let us in. With `empty`, whether nobody has used them yet.
///
/// # Errors
/// With what is wrong with one, without its password.
pub async fn check(
    postgres: Option<&str>,
    redis: Option<&str>,
    empty: bool,
) -> Result<(), CliError> {
    if let Some(address) = postgres {
        let Ok(DatabaseUrl::Postgres(url)) = DatabaseUrl::parse(address) else {
            return Err(no_address(POSTGRES, "postgres://USER:PASSWORD@HOST/DATABASE"));
        };
        let server = Postgres::new(&url, &PostgresOptions::default()).map_err(of(POSTGRES))?;
        server.ask().await.map_err(of(POSTGRES))?;
        if empty && has_tables(&server).await.map_err(of(POSTGRES))? {
            return Err(used(POSTGRES, "the database has tables of Skep already"));
        }
        server.close();
    }
    if let Some(address) = redis {
        let Ok(CoordinationUrl::Redis(url)) = CoordinationUrl::parse(address) else {
            return Err(no_address(REDIS, "redis://HOST"));
        };
        let server = Redis::new(&url, &RedisOptions::default()).map_err(of(REDIS))?;
        server.ask().await.map_err(of(REDIS))?;
        let size = Lua::new("return redis.call('DBSIZE')");
        if empty && server.script::<u64>(&size, |_| {}).await.map_err(of(REDIS))? > 0 {
            return Err(used(REDIS, "the database has keys already"));
        }
    }
    Ok(())
}

async fn has_tables(server: &Postgres) -> Result<bool, StoreError> {
    let client = server.client().await?;
    let found = client.query_one("SELECT to_regclass('skep_migrations') IS NOT NULL", &[]).await?;
    found.try_get(0).map_err(StoreError::from)
}

/// The address itself may hold a password.
fn no_address(flag: &str, expected: &str) -> CliError {
    let text = format!("{flag}: this is no address of a server; it takes {expected}");
    CliError::new(Exit::Usage, text)
}

fn used(flag: &str, found: &str) -> CliError {
    let text =
        format!("{flag}: {found}, and would be mixed with what a soak makes; give an empty one");
    CliError::new(Exit::Usage, text)
}

fn of(flag: &'static str) -> impl Fn(StoreError) -> CliError {
    move |error| {
        let CliError { exit, message } = error.into();
        CliError::new(exit, format!("{flag}: {message}"))
    }
}
