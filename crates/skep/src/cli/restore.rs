//! `skep restore`: a backup into a data folder, all of it or nothing.

use super::backup::{described, explain, read, shown};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::node::SCHEMAS;
use clap::Args;
use serde_json::json;
use skep_store::{Header, Restored, Restoring};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  skep restore skep.backup --data restored
  skep restore skep.backup --data skep-data --force
  gunzip < skep.backup.gz | skep restore - --data from-a-pipe

The folder must hold no node's data, or --force replaces what it holds; no node may run on it (75).
Everything is checked first: a damaged file ends with 65, one of a newer skep with 78, and the
folder stays as it was. An older schema is brought up to date. If it is killed, the folder has the
old data or the restored, never a mixture. Afterwards give the node its settings again, above all
queues.encryption_key, and start it with `skep serve --data FOLDER`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArgs {
    /// The backup; - is standard input
    file: PathBuf,

    /// Where the node's data is to be
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,

    /// Replace the data of a node that is there
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &RestoreArgs, output: Output) -> Result<Exit, CliError> {
    let restored = restore(&arguments.file, &arguments.data, arguments.force)?;
    let Restored { header, migrated } = &restored;
    let folder = arguments.data.display().to_string();
    match output {
        Output::Json => output::json(&json!({
            "folder": folder,
            "installation": header.installation,
            "madeAt": output::when(header.made_at_ms),
            "madeBy": header.made_by,
            "migrated": migrated,
        })),
        Output::Table => {
            output::line(&format!("{folder} has {}", described(header)));
            if !migrated.is_empty() {
                output::line(&format!("{} migrations were applied", migrated.len()));
            }
            output::line(&format!("start it with: skep serve --data {folder}"));
        }
    }
    Ok(Exit::Ok)
}

/// Restores a backup into a folder.
pub fn restore(file: &Path, folder: &Path, force: bool) -> Result<Restored, CliError> {
    let named = |error| explain(&error, &shown(file));
    let mut restoring = Restoring::begin(folder, force).map_err(|error| explain(&error, ""))?;
    read(file, |piece| restoring.take(piece))?;
    small_runtime()?.block_on(restoring.finish(SCHEMAS)).map_err(named)
}

/// Whether pushes may wait in it that are in no table.
pub fn has_buffer(header: &Header) -> bool {
    header.files.len() > 1
}
