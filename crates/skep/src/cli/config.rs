//! `skep config`: what is set, and what is wrong with it.

use super::output::{self, Output};
use super::{CliError, Exit, SettingsArgs};
use crate::settings::check_file;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with settings.
#[derive(Subcommand)]
pub enum ConfigVerb {
    /// Show every setting, its value, where it came from and what it is for
    Print(PrintArgs),
    /// Check a file and tell everything that is wrong with it
    Check(CheckArgs),
}

const PRINT_EXAMPLES: &str = "\
Examples:
  skep config print
  skep config print --config /etc/skep.toml
  SKEP_LOG__LEVEL=debug skep config print --json";

#[derive(Args)]
#[command(after_help = PRINT_EXAMPLES)]
pub struct PrintArgs {
    #[command(flatten)]
    settings: SettingsArgs,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  skep config check skep.toml
  skep config check /etc/skep.toml && systemctl restart skep

Ends with 64 if something is wrong. Environment and flags are not looked at.";

#[derive(Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    /// The file to check
    file: PathBuf,
}

pub fn run(verb: &ConfigVerb, output: Output) -> Result<Exit, CliError> {
    match verb {
        ConfigVerb::Print(arguments) => print(arguments, output),
        ConfigVerb::Check(arguments) => check(arguments, output),
    }
}

fn print(arguments: &PrintArgs, output: Output) -> Result<Exit, CliError> {
    let loaded = arguments.settings.load()?;
    match output {
        Output::Json => output::json(&loaded.settings.effective),
        Output::Table => output::table(
            &["SETTING", "VALUE", "FROM", "WHAT IT IS FOR"],
            loaded.settings.effective.iter().map(|one| {
                vec![
                    one.key.to_owned(),
                    if one.value.is_empty() { "-".to_owned() } else { one.value.clone() },
                    one.origin.clone(),
                    one.help.clone(),
                ]
            }),
        ),
    }
    for warning in &loaded.warnings {
        output::warning(&warning.to_string());
    }
    Ok(Exit::Ok)
}

fn check(arguments: &CheckArgs, output: Output) -> Result<Exit, CliError> {
    let problems = match check_file(&arguments.file) {
        Ok(_) => Vec::new(),
        Err(invalid) => invalid.0,
    };
    match output {
        Output::Json => output::json(&serde_json::json!({
            "file": arguments.file.display().to_string(),
            "ok": problems.is_empty(),
            "problems": problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })),
        Output::Table if problems.is_empty() => {
            output::line(&format!("{}: nothing is wrong", arguments.file.display()));
        }
        Output::Table => {
            for problem in &problems {
                output::error(&problem.to_string());
            }
        }
    }
    Ok(if problems.is_empty() { Exit::Ok } else { Exit::Usage })
}
