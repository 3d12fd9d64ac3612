//! `skep migrate copy`: from the embedded store to PostgreSQL.

use super::output::{self, Output};
use super::restore::{has_buffer, restore};
use super::{CliError, Exit, backup, small_runtime};
use crate::node::SCHEMAS;
use clap::Args;
use serde_json::json;
use skep_store::copy::{CopyError, CopyReport, CopyRules, copy, count};
use skep_store::{DataFolder, Database, Postgres, PostgresOptions, PostgresUrl};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What is kept otherwise in PostgreSQL. Who owns what and which worker has which session is in the
/// memory of an embedded node and begins anew; tokens that owners are given must be newer than all
/// that results came with before.
const RULES: &[CopyRules] = &[
    skep_queues::store::COPY,
    CopyRules {
        local: &["skep_ownership_", "skep_session_"],
        after: &["UPDATE skep_ownership_meta SET epoch = greatest(epoch,
                     (SELECT coalesce(max(token_epoch), 0) + 1 FROM skep_poll_state),
                     (SELECT coalesce(max(epoch), 0) + 1 FROM skep_polls))"],
        ..CopyRules::NONE
    },
];

const EXAMPLES: &str = "\
Examples:
  skep migrate copy --from skep-data --to postgres://skep@db/skep --dry-run
  skep migrate copy --from skep-data --to postgres://skep@db/skep
  skep migrate copy --from sqlite:///var/lib/skep/skep.db --to postgres://skep@db/skep
  skep migrate copy --from skep.backup --to postgres://skep@db/skep

Stop the node first, or copy from a backup of it. The target is an empty database; one that a node
has used is refused. Everything is copied in one transaction, read again and compared, a count and
a checksum for each table, and kept only if all are the same (else 1, and nothing was changed).
Groups go on where they were; a message that was leased comes again when its lease is over. Not
copied, because it is in memory: who owns which endpoint, sessions and workers; both are back
within seconds. Then start nodes with --database, and with --data of the old folder where pushes
wait in its buffer.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CopyArgs {
    /// The data folder of a node that does not run, its skep.db as sqlite://PATH, or a backup
    #[arg(long, value_name = "SOURCE")]
    from: String,

    /// An empty database, as postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL", env = "SKEP_DATABASE", hide_env_values = true)]
    to: String,

    /// Only count what there is, and look whether the target could take it; changes nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: &CopyArgs, output: Output) -> Result<Exit, CliError> {
    let url: PostgresUrl = arguments
        .to
        .parse()
        .map_err(|error| CliError::new(Exit::Usage, format!("--to: {error}")))?;
    let options = PostgresOptions { connections_max: 2, ..PostgresOptions::default() };
    let target = Postgres::new(&url, &options)?;
    let source = Source::open(&arguments.from)?;
    let report = small_runtime()?.block_on(async {
        let Database::Sqlite(sqlite) = &source.database else {
            return Err(CliError::new(Exit::Bug, "a folder is always embedded"));
        };
        let done = match arguments.dry_run {
            true => count(sqlite, &target, SCHEMAS, RULES).await,
            false => copy(sqlite, &target, SCHEMAS, RULES).await,
        };
        source.database.close().await;
        target.close();
        done.map_err(|error| explain(&error))
    })?;
    show(&report, arguments.dry_run, output);
    if !report.same {
        let message = "the copy is not the same, so it was not kept: nothing was changed";
        return Err(CliError::new(Exit::No, message));
    }
    if source.buffered > 0 {
        let (count, folder) = (source.buffered, source.folder.display());
        output::warning(&format!(
            "{count} pushes wait in the buffer of {folder}; they go to the new database when a \
             node runs with --data {folder}"
        ));
    }
    if !arguments.dry_run && output == Output::Table {
        output::line(&format!("everything is in {url}; start nodes with --database"));
    }
    Ok(Exit::Ok)
}

/// What is copied, and what has to be there until that is done.
struct Source {
    database: Database,
    folder: PathBuf,
    /// Pushes that are in no table yet.
    buffered: i64,
    _unpacked: Option<TempDir>,
}

impl Source {
    fn open(from: &str) -> Result<Self, CliError> {
        let wrong = |why: &str| CliError::new(Exit::Usage, format!("--from {from}: {why}"));
        let path = match from.split_once("://") {
            Some(("sqlite", path)) => Path::new(path),
            Some(_) => return Err(wrong("it must be a folder, a backup, or sqlite://PATH")),
            None => Path::new(from),
        };
        if path.is_dir() {
            return Self::of_folder(path);
        }
        if !path.exists() {
            return Err(wrong("there is nothing of this name"));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if DataFolder::database_in(folder).file_name() == path.file_name() {
            return Self::of_folder(folder);
        }
        Self::of_backup(path)
    }

    fn of_folder(folder: &Path) -> Result<Self, CliError> {
        let database = backup::open(folder)?;
        let buffered = buffered(folder)?;
        Ok(Source { database, folder: folder.to_path_buf(), buffered, _unpacked: None })
    }

    fn of_backup(file: &Path) -> Result<Self, CliError> {
        let unpacked = tempfile::tempdir().map_err(|error| {
            CliError::new(Exit::System, format!("no temporary folder could be made: {error}"))
        })?;
        let restored = restore(file, unpacked.path(), false)?;
        let mut source = Self::of_folder(unpacked.path())?;
        if has_buffer(&restored.header) && source.buffered > 0 {
            let message = format!(
                "{} has {} pushes that wait in the node's buffer and are in no table; restore it \
                 into a folder with `skep restore`, and copy from there",
                file.display(),
                source.buffered
            );
            return Err(CliError::new(Exit::Usage, message));
        }
        source._unpacked = Some(unpacked);
        Ok(source)
    }
}

/// How many pushes wait in a folder's buffer.
fn buffered(folder: &Path) -> Result<i64, CliError> {
    let file = DataFolder::database_in(&DataFolder::buffer_in(folder));
    if !file.exists() {
        return Ok(0);
    }
    let ask = || {
        let db = rusqlite::Connection::open(&file)?;
        db.query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
    };
    ask().map_err(|error: rusqlite::Error| {
        CliError::new(Exit::System, format!("{} cannot be read: {error}", file.display()))
    })
}

fn explain(error: &CopyError) -> CliError {
    let exit = match error {
        CopyError::Store(error) => return error.clone().into(),
        CopyError::Migrate(error) => return error.clone().into(),
        CopyError::Pending { .. } => Exit::Version,
        CopyError::NotEmpty { .. } => Exit::Usage,
        CopyError::Unknown { .. } => Exit::Bug,
    };
    CliError::new(exit, error.to_string())
}

fn show(report: &CopyReport, counted_only: bool, output: Output) {
    if report.mended > 0 {
        output::warning(&format!(
            "{} texts had a character U+0000, which PostgreSQL cannot keep; U+FFFD is in its place",
            report.mended
        ));
    }
    if output == Output::Json {
        let rows: u64 = report.tables.iter().map(|table| table.rows).sum();
        let kept = report.same && !counted_only;
        return output::json(&json!({
            "tables": report.tables, "rows": rows, "same": report.same, "copied": kept,
            "mended": report.mended,
        }));
    }
    if counted_only {
        let rows = report.tables.iter().map(|one| vec![one.table.clone(), one.rows.to_string()]);
        return output::table(&["TABLE", "ROWS"], rows);
    }
    output::table(
        &["TABLE", "ROWS", "COPIED", "CHECKSUM", "SAME"],
        report.tables.iter().map(|one| {
            let same = Some(one.rows) == one.copied && one.checksum == one.copied_checksum;
            vec![
                one.table.clone(),
                one.rows.to_string(),
                one.copied.unwrap_or_default().to_string(),
                one.checksum.as_deref().unwrap_or_default().chars().take(16).collect(),
                if same { "yes" } else { "NO" }.to_owned(),
            ]
        }),
    );
}
