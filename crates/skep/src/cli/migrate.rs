//! `skep migrate`: the schema of the database.

use super::migrate_copy::{self, CopyArgs};
use super::output::{self, Output};
use super::{CliError, Exit, SettingsArgs, small_runtime};
use crate::node::SCHEMAS;
use clap::{Args, Subcommand};
use skep_store::{Database, MigrationStatus};

/// What to do with the schema.
#[derive(Subcommand)]
pub enum MigrateVerb {
    /// Show which changes were applied and which are pending; changes nothing
    Status(MigrateArgs),
    /// Apply what is pending, all of it or nothing; `serve` does the same when it starts
    Up(MigrateArgs),
    /// Copy everything of an embedded node to PostgreSQL, and check that nothing is missing
    Copy(CopyArgs),
}

const EXAMPLES: &str = "\
Examples:
  skep migrate status
  skep migrate up --database postgres://skep@db/skep

Several nodes may do this at once: one applies, the others wait and find it done. A database that a
newer skep has changed is refused with exit code 78.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MigrateArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

pub fn run(verb: &MigrateVerb, output: Output) -> Result<Exit, CliError> {
    let arguments = match verb {
        MigrateVerb::Status(arguments) | MigrateVerb::Up(arguments) => arguments,
        MigrateVerb::Copy(arguments) => return migrate_copy::run(arguments, output),
    };
    let options = arguments.settings.load()?.settings.store_options();
    if matches!(verb, MigrateVerb::Status(_)) && !Database::exists(&options) {
        show(&Database::all_pending(SCHEMAS), output);
        return Ok(Exit::Ok);
    }
    small_runtime()?.block_on(async {
        let database = Database::open(&options)?;
        let result = match verb {
            MigrateVerb::Up(_) => up(&database, output).await,
            _ => database.migration_status(SCHEMAS).await,
        };
        database.close().await;
        show(&result?, output);
        Ok(Exit::Ok)
    })
}

async fn up(
    database: &Database,
    output: Output,
) -> Result<Vec<MigrationStatus>, skep_store::MigrateError> {
    let applied = database.migrate(SCHEMAS).await?;
    if output == Output::Table {
        match applied.len() {
            0 => output::line("nothing was pending"),
            1 => output::line("1 migration was applied"),
            count => output::line(&format!("{count} migrations were applied")),
        }
    }
    database.migration_status(SCHEMAS).await
}

fn show(status: &[MigrationStatus], output: Output) {
    match output {
        Output::Json => output::json(&status),
        Output::Table => output::table(
            &["PART", "MIGRATION", "APPLIED"],
            status.iter().map(|one| {
                let applied = one.applied_at.clone().unwrap_or_else(|| "pending".to_owned());
                vec![one.part.clone(), one.name.clone(), applied]
            }),
        ),
    }
}
