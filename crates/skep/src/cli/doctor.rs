//! `skep doctor`: what would keep a node from working here, and what to do about it.

use super::output::{self, Output};
use super::{CliError, Exit, SettingsArgs, small_runtime};
use crate::access::{list_keys, now_ms};
use crate::http::{Certificate, CertificateFiles};
use crate::node::SCHEMAS;
use crate::settings::Settings;
use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use skep_store::{CoordinationUrl, DataFolder, Database, DatabaseUrl, Redis, StoreError};
use std::net::TcpListener;
use std::path::Path;

/// Fewer open files than this are few for a server.
const FILES_WANTED: u64 = 4_096;
/// Less room than this on the disk is little.
const BYTES_WANTED: u64 = 1 << 30;
/// A clock that differs by more makes logs hard to read and keys end at the wrong time.
const CLOCK_MS_MAX: i64 = 2_000;

const EXAMPLES: &str = "\
Examples:
  skep doctor
  skep doctor --config /etc/skep.toml --json

Looks and changes nothing. Ends with 1 if something would keep a node from working.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

/// What one look found.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    result: Outcome,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    do_this: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok,
    Warning,
    Wrong,
}

fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { check, result: Outcome::Ok, found: found.into(), do_this: None }
}

fn bad(
    check: &'static str,
    result: Outcome,
    found: impl Into<String>,
    do_this: impl Into<String>,
) -> Finding {
    Finding { check, result, found: found.into(), do_this: Some(do_this.into()) }
}

pub fn run(arguments: &DoctorArgs, output: Output) -> Result<Exit, CliError> {
    let settings = arguments.settings.load()?.settings;
    let mut findings =
        vec![ok("settings", format!("{} settings, none wrong", settings.effective.len()))];
    findings.push(data_folder(&settings.place.data));
    findings.push(disk(&settings.place.data));
    findings.push(files());
    findings.push(port(&settings));
    findings.extend(certificate(&settings));
    findings.extend(small_runtime()?.block_on(stores(&settings)));
    match output {
        Output::Json => output::json(&findings),
        Output::Table => output::table(
            &["CHECK", "RESULT", "FOUND", "WHAT TO DO"],
            findings.iter().map(|one| {
                let result = match one.result {
                    Outcome::Ok => "ok",
                    Outcome::Warning => "warning",
                    Outcome::Wrong => "wrong",
                };
                let do_this = one.do_this.clone().unwrap_or_default();
                vec![one.check.to_owned(), result.to_owned(), one.found.clone(), do_this]
            }),
        ),
    }
    let wrong = findings.iter().any(|one| one.result == Outcome::Wrong);
    Ok(if wrong { Exit::No } else { Exit::Ok })
}

/// The folder itself, or the nearest one above it that exists.
fn existing(path: &Path) -> std::path::PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    absolute.ancestors().find(|one| one.exists()).map(Path::to_path_buf).unwrap_or(absolute)
}

fn data_folder(path: &Path) -> Finding {
    let place = existing(path);
    match tempfile::tempfile_in(&place) {
        Ok(_) if place.is_dir() => ok("data folder", format!("{} can be written", place.display())),
        Ok(_) => bad("data folder", Outcome::Wrong, "it is a file", "name a folder with --data"),
        Err(error) => bad(
            "data folder",
            Outcome::Wrong,
            format!("{} cannot be written: {error}", place.display()),
            "give it to the user that runs Skep (chown), or name another with --data",
        ),
    }
}

fn disk(path: &Path) -> Finding {
    match rustix::fs::statvfs(existing(path)) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let shown = format!("{:.1} GB free", free as f64 / 1e9);
            if free >= BYTES_WANTED {
                ok("disk", shown)
            } else {
                bad("disk", Outcome::Warning, shown, "make room before it is full")
            }
        }
        Err(error) => bad("disk", Outcome::Warning, error.to_string(), "look with df"),
    }
}

fn files() -> Finding {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most >= FILES_WANTED {
        return ok("open files", format!("{most} allowed"));
    }
    let todo = "raise it: LimitNOFILE in the systemd unit, or ulimit -Hn";
    bad("open files", Outcome::Warning, format!("only {most} allowed"), todo)
}

fn port(settings: &Settings) -> Finding {
    let address = settings.api.listen;
    match TcpListener::bind(address) {
        Ok(_) => ok("port", format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bad(
            "port",
            Outcome::Warning,
            format!("{address} is in use"),
            "if that is not a node that runs already, choose another with --listen",
        ),
        Err(error) => bad(
            "port",
            Outcome::Wrong,
            format!("{address}: {error}"),
            "choose an address of this machine, and a port above 1023, with --listen",
        ),
    }
}

fn certificate(settings: &Settings) -> Option<Finding> {
    let certificate = settings.api.tls_certificate.clone()?;
    let files = CertificateFiles { certificate, key: settings.api.tls_key.clone()? };
    Some(match Certificate::load(files) {
        Ok(loaded) => match loaded.warning(now_ms()) {
            None => ok("certificate", crate::access::timestamp(loaded.expires_at_ms())),
            Some(warning) => bad("certificate", Outcome::Warning, warning, "renew it"),
        },
        Err(error) => bad("certificate", Outcome::Wrong, error, "name two PEM files that fit"),
    })
}

async fn stores(settings: &Settings) -> Vec<Finding> {
    let options = settings.store_options();
    let mut findings = match &settings.place.database {
        DatabaseUrl::Embedded if !DataFolder::database_in(&options.data).exists() => {
            let mut findings = vec![ok("database", "embedded, made at the first start")];
            findings.extend(exposure(settings, 0));
            findings
        }
        _ => match Database::open(&options) {
            Ok(database) => {
                let findings = database_findings(settings, &database).await;
                database.close().await;
                findings
            }
            Err(error @ StoreError::InUse { .. }) => {
                vec![ok("database", format!("embedded; {error}"))]
            }
            Err(error) => vec![store_trouble("database", &error)],
        },
    };
    if let CoordinationUrl::Redis(url) = &settings.place.coordination {
        let asked = match Redis::new(url, &options.redis) {
            Ok(redis) => redis.ask().await,
            Err(error) => Err(error),
        };
        findings.push(match asked {
            Ok(()) => ok("redis", format!("{url} answers")),
            Err(error) => store_trouble("redis", &error),
        });
    }
    findings
}

fn store_trouble(check: &'static str, error: &StoreError) -> Finding {
    let todo = match error {
        StoreError::Denied { .. } => "check user, password, database name and certificate",
        StoreError::Damaged { .. } => "restore a backup, or move the file away to start empty",
        _ if error.is_temporary() => "start it, and check address, port and firewall",
        _ => "the message says what",
    };
    bad(check, Outcome::Wrong, error.to_string(), todo)
}

async fn database_findings(settings: &Settings, database: &Database) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Database::Postgres(postgres) = database {
        match clock_difference_ms(postgres).await {
            Ok(difference) if difference.abs() <= CLOCK_MS_MAX => {
                findings.push(ok("clock", format!("{difference} ms from the database's")));
            }
            Ok(difference) => findings.push(bad(
                "clock",
                Outcome::Warning,
                format!("{difference} ms from the database's"),
                "let both machines follow a time server (chrony, systemd-timesyncd)",
            )),
            Err(error) => return vec![store_trouble("database", &error)],
        }
    }
    match database.migration_status(SCHEMAS).await {
        Ok(status) => {
            let pending = status.iter().filter(|one| one.applied_at.is_none()).count();
            findings.push(ok("database", format!("answers; {pending} migrations pending")));
            if pending == 0 {
                let keys = list_keys(database).await.map_or(0, |keys| keys.len());
                findings.extend(exposure(settings, keys));
            }
        }
        Err(error) => findings.push(bad(
            "database",
            Outcome::Wrong,
            error.to_string(),
            "run the version of skep that the database was made with, or a newer one",
        )),
    }
    findings
}

async fn clock_difference_ms(postgres: &skep_store::Postgres) -> Result<i64, StoreError> {
    let client = postgres.client().await?;
    let select = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let asking = async { Ok::<_, StoreError>(client.query_one(select, &[]).await?.get(0)) };
    let theirs: i64 = postgres.limit(asking).await?;
    Ok(now_ms() - theirs)
}

/// A node that others can reach needs a key.
fn exposure(settings: &Settings, keys: usize) -> Option<Finding> {
    if settings.api.listen.ip().is_loopback() {
        return Some(ok("access", format!("only this machine can reach it; {keys} keys")));
    }
    Some(match (keys, settings.api.insecure) {
        (0, false) => bad(
            "access",
            Outcome::Wrong,
            "others can reach it and there is no key",
            "skep keys add --name admin --scopes admin",
        ),
        (0, true) => bad(
            "access",
            Outcome::Warning,
            "anybody who reaches it may do anything",
            "make a key and leave out --insecure",
        ),
        (keys, _) => ok("access", format!("guarded by {keys} keys")),
    })
}
