//! `skep keys`: who may do what.
//!
//! With a node running, its API is asked. Without one the database is opened directly, because the
//! first key must be made before a node may listen beyond this machine.

use super::client::{KeyArgs, NodeArgs};
use super::exit::CliError;
use super::output::{self, Output};
use super::{Exit, SettingsArgs, small_runtime};
use crate::access::{Access, Caller, KeyInfo, SecretKey, Who, list_keys};
use crate::http::{CreateBody, CreatedAnswer, KeysAnswer};
use crate::node::SCHEMAS;
use clap::{Args, Subcommand};
use hyper::Method;
use skep_store::{BootClock, Database, StoreError};
use std::sync::Arc;

/// What to do with keys.
#[derive(Subcommand)]
pub enum KeysVerb {
    /// Make a key; it is shown once
    #[command(alias = "create")]
    Add(CreateArgs),
    /// List keys
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Revoke a key; every node refuses it within seconds
    #[command(alias = "revoke")]
    Rm(RevokeArgs),
}

/// Where the keys are.
#[derive(Args)]
pub struct Place {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Ask this node; without it the database of the settings is opened, or the node that has it
    #[arg(long, value_name = "URL", env = "SKEP_URL", help_heading = "Node")]
    url: Option<String>,

    #[command(flatten)]
    key: KeyArgs,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  skep keys add --name admin --scopes admin
  skep keys add --name ci --scopes push,pop --expires-in 90d
  skep keys add --name grafana --scopes read --url https://skep.example:6632

Scopes: admin (everything), read (looking at everything but keys, logs and the audit log), push,
pop, session, worker, agent, poll.";

#[derive(Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub struct CreateArgs {
    /// What it is called, for people
    #[arg(long)]
    name: String,

    /// What it may be used for, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    scopes: Vec<String>,

    /// How long it lasts, as in 30d or 12h; for ever if left out
    #[arg(long, value_name = "DURATION")]
    expires_in: Option<String>,

    #[command(flatten)]
    place: Place,
}

const LIST_EXAMPLES: &str = "\
Examples:
  skep keys ls
  skep keys ls --json --url https://skep.example:6632";

#[derive(Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    #[command(flatten)]
    place: Place,
}

const REVOKE_EXAMPLES: &str = "\
Examples:
  skep keys rm k3f9a1c05d2e7";

#[derive(Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub struct RevokeArgs {
    /// The key's id, as `skep keys ls` shows it, or the whole key
    id: String,

    #[command(flatten)]
    place: Place,
}

pub fn run(verb: &KeysVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            KeysVerb::Add(arguments) => create(arguments, output).await,
            KeysVerb::Ls(arguments) => list(arguments, output).await,
            KeysVerb::Rm(arguments) => revoke(arguments, output).await,
        }
    })
}

/// The way to the keys.
enum Way {
    Node(NodeArgs),
    Database(Database),
}

impl Place {
    async fn way(&self) -> Result<Way, CliError> {
        let node = |url: String| Way::Node(NodeArgs::new(url, self.key.key.clone()));
        if let Some(url) = &self.url {
            return Ok(node(url.clone()));
        }
        let settings = self.settings.load()?.settings;
        let database = match Database::open(&settings.store_options()) {
            Ok(database) => database,
            Err(StoreError::InUse { .. }) => {
                let scheme = if settings.api.tls_certificate.is_some() { "https" } else { "http" };
                return Ok(node(format!("{scheme}://{}", settings.api.listen)));
            }
            Err(error) => return Err(error.into()),
        };
        database.migrate(SCHEMAS).await?;
        Ok(Way::Database(database))
    }
}

/// Who works on the database directly is whoever can.
fn operator() -> Caller {
    Caller::trusted(Who::Local)
}

const ADDRESS: &str = "command line";

async fn create(arguments: &CreateArgs, output: Output) -> Result<Exit, CliError> {
    let body = CreateBody {
        name: arguments.name.clone(),
        scopes: arguments.scopes.clone(),
        expires_in: arguments.expires_in.clone(),
    };
    let created: CreatedAnswer = match arguments.place.way().await? {
        Way::Node(node) => {
            let body = serde_json::to_value(&body).unwrap_or_default();
            node.call(Method::POST, "/api/v1/keys", Some(body)).await?
        }
        Way::Database(database) => {
            let wrong =
                |problem: crate::http::Problem| CliError::new(Exit::Usage, problem.to_string());
            let new = body.check().map_err(wrong)?;
            let access = Access::new(Arc::new(BootClock));
            let (key, secret) = access.create(&database, new, &operator(), ADDRESS).await?;
            database.close().await;
            CreatedAnswer { key, secret: secret.reveal() }
        }
    };
    match output {
        Output::Json => output::json(&created),
        Output::Table => {
            output::line(&created.secret);
            output::warning(&format!(
                "this is the key of {} ({}); it is not shown again. Programs send it as \
                 `Authorization: Bearer KEY`, the command line reads it from SKEP_API_KEY",
                created.key.name, created.key.id
            ));
        }
    }
    Ok(Exit::Ok)
}

async fn list(arguments: &ListArgs, output: Output) -> Result<Exit, CliError> {
    let keys: Vec<KeyInfo> = match arguments.place.way().await? {
        Way::Node(node) => node.get::<KeysAnswer>("/api/v1/keys").await?.keys,
        Way::Database(database) => {
            let keys = list_keys(&database).await?;
            database.close().await;
            keys.iter().map(KeyInfo::from).collect()
        }
    };
    match output {
        Output::Json => output::json(&keys),
        Output::Table if keys.is_empty() => {
            output::line("there are no keys; `skep keys add` makes one");
        }
        Output::Table => output::table(
            &["NAME", "ID", "SCOPES", "STATE", "CREATED", "LAST USED"],
            keys.iter().map(|key| {
                let state = match (&key.revoked_at, &key.expires_at) {
                    (Some(at), _) => format!("revoked {at}"),
                    (None, Some(at)) => format!("until {at}"),
                    (None, None) => "good".to_owned(),
                };
                let used = key.last_used_at.clone().unwrap_or_else(|| "-".to_owned());
                let (id, name) = (key.id.clone(), key.name.clone());
                vec![name, id, key.scopes.to_string(), state, key.created_at.clone(), used]
            }),
        ),
    }
    Ok(Exit::Ok)
}

async fn revoke(arguments: &RevokeArgs, output: Output) -> Result<Exit, CliError> {
    // Whoever has the whole key at hand may give that.
    let whole = SecretKey::parse(&arguments.id);
    let id = whole.as_ref().map_or(arguments.id.as_str(), SecretKey::id);
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        let message = "that is not a key's id; `skep keys ls` shows them";
        return Err(CliError::new(Exit::Usage, message));
    }
    let revoked: KeyInfo = match arguments.place.way().await? {
        Way::Node(node) => node.call(Method::DELETE, &format!("/api/v1/keys/{id}"), None).await?,
        Way::Database(database) => {
            let access = Access::new(Arc::new(BootClock));
            let revoked = access.revoke(&database, id, &operator(), ADDRESS).await?;
            database.close().await;
            let missing = || CliError::new(Exit::No, format!("there is no key {id}"));
            revoked.ok_or_else(missing)?
        }
    };
    match output {
        Output::Json => output::json(&revoked),
        Output::Table => output::line(&format!("{} ({}) is revoked", revoked.name, revoked.id)),
    }
    Ok(Exit::Ok)
}
