//! `skep backup`: all that a node keeps, as one file.

use super::client::NodeArgs;
use super::output::{self, Output};
use super::signals::Signals;
use super::{CliError, Exit, small_runtime};
use clap::Args;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use serde_json::json;
use skep_store::{BackupError, DataFolder, Database, Header, Packing, StoreOptions, Unpacker};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// A node that says nothing for so long is gone; while it makes the copy it says that it lives.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// So much of a file is read at once.
const READ_BYTES: usize = 256 << 10;

const EXAMPLES: &str = "\
Examples:
  skep backup skep.backup                      of the node on this machine, while it runs
  skep backup - | gzip > skep.backup.gz        to standard output
  skep backup skep.backup --force              over the last one, once the new one is complete
  skep backup stopped.backup --data skep-data  of the folder of a node that does not run
  skep backup --check skep.backup              is it whole, and what is it?

It is a picture of one moment: everything that was answered before is in it, no push is in it by
half, and the node goes on meanwhile. In it: messages, groups, schedules, endpoints, monitors,
routes of the API, hashes of keys, audit and access log, pushes that wait in the node's buffer.
Not in it: the settings file and what it names, above all queues.encryption_key, cluster.secret
and certificates. Only its owner can read the file; keep it so, it has every message. Of a node on
PostgreSQL, use pg_dump. Needs a key with the scope `admin`. A damaged file ends with 65.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupArgs {
    /// The file to write, or to check; - is standard output, or input
    file: PathBuf,

    /// Of a node that does not run: its data folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    data: Option<PathBuf>,

    /// Replace the file if it is there
    #[arg(long, conflicts_with = "check")]
    force: bool,

    /// Look whether the file is whole, and say what it is; writes nothing
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &BackupArgs, output: Output) -> Result<Exit, CliError> {
    if arguments.check {
        return check(&arguments.file, output);
    }
    small_runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            outcome = make(arguments, output) => outcome,
            signal = signals.next() => {
                Err(CliError::new(Exit::No, format!("{signal}: no backup was made")))
            }
        }
    })
}

async fn make(arguments: &BackupArgs, output: Output) -> Result<Exit, CliError> {
    let mut target = Target::prepare(&arguments.file, arguments.force)?;
    let (mut source, database) = match &arguments.data {
        None => {
            let asked = arguments.node.stream_of(Method::POST, "/api/v1/backup");
            (Source::Node(asked.await?, &arguments.node), None)
        }
        Some(folder) => {
            let database = open(folder)?;
            let Database::Sqlite(sqlite) = &database else {
                return Err(CliError::new(Exit::Bug, "a folder is always embedded"));
            };
            let packing = sqlite.backup(target.scratch().as_deref()).await;
            (Source::Folder(packing.map_err(|error| explain(&error, ""))?), Some(database))
        }
    };
    let copied = copy(&mut source, &mut target).await;
    drop(source);
    if let Some(database) = database {
        database.close().await;
    }
    let (header, bytes) = copied?;
    target.finish()?;
    let told = Told { file: &arguments.file, bytes, header: &header };
    match (output, told.file == Path::new("-")) {
        (_, true) => output::note(&told.line()),
        (Output::Json, _) => output::json(&told.json()),
        (Output::Table, _) => {
            output::line(&told.line());
            output::line(
                "not in it: settings, queues.encryption_key, cluster.secret, certificates",
            );
        }
    }
    Ok(Exit::Ok)
}

/// Opens the database of a node that does not run.
pub fn open(folder: &Path) -> Result<Database, CliError> {
    if !DataFolder::database_in(folder).exists() {
        let shown = folder.display();
        let message = format!("--data {shown}: there is no skep.db, so it is no node's folder");
        return Err(CliError::new(Exit::Usage, message));
    }
    Ok(Database::open(&StoreOptions::embedded(folder))?)
}

/// Where a backup comes from.
enum Source<'node> {
    Node(Incoming, &'node NodeArgs),
    Folder(Packing),
}

impl Source<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, CliError> {
        match self {
            Source::Folder(packing) => match packing.next().await {
                Some(Ok(piece)) => Ok(Some(piece.into())),
                Some(Err(error)) => Err(explain(&error, "")),
                None => Ok(None),
            },
            Source::Node(body, node) => loop {
                match tokio::time::timeout(SILENCE_MAX, body.frame()).await {
                    Ok(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                    Ok(Some(Err(_))) | Err(_) => return Err(cut(&node.shown_url())),
                    Ok(None) => return Ok(None),
                }
            },
        }
    }
}

fn cut(url: &str) -> CliError {
    let message = format!("{url} did not send all of it; its log says why. No backup was made");
    CliError::new(Exit::Unavailable, message)
}

/// Passes a backup on and looks at it meanwhile: what it is, and how many bytes.
async fn copy(source: &mut Source<'_>, to: &mut Target) -> Result<(Header, u64), CliError> {
    let mut unpacker = Unpacker::default();
    // Draws itself only on a terminal.
    let progress = indicatif::ProgressBar::new_spinner();
    let mut bytes = 0;
    while let Some(piece) = source.next().await? {
        unpacker.take(&piece, &mut ()).map_err(|error| explain(&error, ""))?;
        to.write(&piece)?;
        bytes += piece.len() as u64;
        progress.set_message(size(bytes));
        progress.tick();
    }
    progress.finish_and_clear();
    match (unpacker.finish(), source) {
        (Ok(header), _) => Ok((header, bytes)),
        (Err(_), Source::Node(_, node)) => Err(cut(&node.shown_url())),
        (Err(error), Source::Folder(_)) => Err(explain(&error, "")),
    }
}

/// Where a backup goes.
enum Target {
    Out,
    /// A file that gets its name when it is complete.
    File {
        unfinished: NamedTempFile,
        name: PathBuf,
        force: bool,
    },
}

impl Target {
    fn prepare(name: &Path, force: bool) -> Result<Self, CliError> {
        if name == Path::new("-") {
            if std::io::stdout().is_terminal() {
                let message = "a backup is no text for a terminal; name a file, or pipe it on";
                return Err(CliError::new(Exit::Usage, message));
            }
            return Ok(Target::Out);
        }
        if name.exists() && !force {
            return Err(taken(name));
        }
        let shown = name.file_name().unwrap_or_default().to_string_lossy();
        // Readable by its owner alone, which is how such files are made.
        let unfinished = tempfile::Builder::new()
            .prefix(&format!(".{shown}."))
            .suffix(".partial")
            .tempfile_in(folder_of(name))
            .map_err(|error| unwritten(name, &error))?;
        Ok(Target::File { unfinished, name: name.to_owned(), force })
    }

    /// Where a copy may be made on the way: beside the file, which needs the room anyway.
    fn scratch(&self) -> Option<PathBuf> {
        match self {
            Target::Out => None,
            Target::File { unfinished, .. } => Some(unfinished.path().with_extension("copy")),
        }
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), CliError> {
        match self {
            Target::Out => {
                let written = std::io::stdout().lock().write_all(piece);
                written.map_err(|error| unwritten(Path::new("standard output"), &error))
            }
            Target::File { unfinished, name, .. } => {
                let written = unfinished.as_file_mut().write_all(piece);
                written.map_err(|error| unwritten(name, &error))
            }
        }
    }

    /// Makes it durable, and gives it its name.
    fn finish(self) -> Result<(), CliError> {
        let Target::File { unfinished, name, force } = self else {
            let flushed = std::io::stdout().lock().flush();
            return flushed.map_err(|error| unwritten(Path::new("standard output"), &error));
        };
        unfinished.as_file().sync_all().map_err(|error| unwritten(&name, &error))?;
        let persisted = match force {
            true => unfinished.persist(&name),
            false => unfinished.persist_noclobber(&name),
        };
        match persisted {
            Ok(_) => {}
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(taken(&name));
            }
            Err(error) => return Err(unwritten(&name, &error.error)),
        }
        let synced = File::open(folder_of(&name)).and_then(|folder| folder.sync_all());
        synced.map_err(|error| unwritten(&name, &error))
    }
}

fn folder_of(name: &Path) -> &Path {
    match name.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn taken(name: &Path) -> CliError {
    let message = format!("{} is there already; --force replaces it", name.display());
    CliError::new(Exit::Usage, message)
}

fn unwritten(name: &Path, error: &std::io::Error) -> CliError {
    CliError::new(Exit::System, format!("{} cannot be written: {error}", name.display()))
}

/// Looks at a file from its beginning to its end.
fn check(file: &Path, output: Output) -> Result<Exit, CliError> {
    let mut unpacker = Unpacker::default();
    let mut bytes = 0;
    read(file, |piece| {
        bytes += piece.len() as u64;
        unpacker.take(piece, &mut ())
    })?;
    let header = unpacker.finish().map_err(|error| explain(&error, &shown(file)))?;
    let told = Told { file, bytes, header: &header };
    match output {
        Output::Json => output::json(&told.json()),
        Output::Table => output::line(&format!("{}; it is whole", told.line())),
    }
    Ok(Exit::Ok)
}

/// Gives the bytes of a file, or of standard input, to somebody.
pub fn read(
    file: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(), CliError> {
    let unreadable = |error: std::io::Error| {
        CliError::new(Exit::Usage, format!("{} cannot be read: {error}", shown(file)))
    };
    let mut input: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(File::open(file).map_err(unreadable)?),
    };
    let mut room = vec![0; READ_BYTES];
    loop {
        let length = input.read(&mut room).map_err(unreadable)?;
        if length == 0 {
            return Ok(());
        }
        take(&room[..length]).map_err(|error| explain(&error, &shown(file)))?;
    }
}

pub fn shown(file: &Path) -> String {
    match file == Path::new("-") {
        true => "standard input".to_owned(),
        false => file.display().to_string(),
    }
}

/// What went wrong, with whom it is about if that is known.
pub fn explain(error: &BackupError, whom: &str) -> CliError {
    let exit = match error {
        BackupError::Store(error) => return error.clone().into(),
        BackupError::Migrate(error) => return error.clone().into(),
        BackupError::Busy => Exit::Unavailable,
        BackupError::NoRoom { .. } | BackupError::FileLimit { .. } => Exit::System,
        BackupError::NewerFormat { .. } => Exit::Version,
        BackupError::Occupied { .. } => Exit::Usage,
        BackupError::NotABackup
        | BackupError::Cut { .. }
        | BackupError::Damaged { .. }
        | BackupError::Unsound { .. } => Exit::Data,
    };
    let whom = if whom.is_empty() { String::new() } else { format!("{whom}: ") };
    CliError::new(exit, format!("{whom}{error}"))
}

/// A backup, for those who read about it.
struct Told<'backup> {
    file: &'backup Path,
    bytes: u64,
    header: &'backup Header,
}

impl Told<'_> {
    fn line(&self) -> String {
        format!("{} of {}", size(self.bytes), described(self.header))
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "file": self.file.display().to_string(),
            "bytes": self.bytes,
            "installation": self.header.installation,
            "madeAt": output::when(self.header.made_at_ms),
            "madeBy": self.header.made_by,
            "schema": self.header.schema,
            "files": self.header.files,
        })
    }
}

/// What a backup is of.
pub fn described(header: &Header) -> String {
    let installation = match header.installation {
        Some(id) => format!("installation {id}"),
        None => "a node that never started".to_owned(),
    };
    let at = output::when(header.made_at_ms);
    format!("{installation}, made at {at} by skep {}", header.made_by)
}

/// Bytes in a unit that people read.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        few if few < 1e3 => format!("{few} bytes"),
        some if some < 1e6 => format!("{:.1} kB", some / 1e3),
        more if more < 1e9 => format!("{:.1} MB", more / 1e6),
        many => format!("{:.1} GB", many / 1e9),
    }
}
