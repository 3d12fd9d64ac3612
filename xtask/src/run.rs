//! Running other programs, saying which.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The cargo that runs this.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// The repository.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Runs a step and says what it is, how long it took and whether it worked.
pub fn step(what: &str, command: &mut Command) -> Result<(), String> {
    println!("── {what}: {}", shown(command));
    let started = Instant::now();
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() {
        println!("── {what}: ok after {:.1} s", started.elapsed().as_secs_f64());
        Ok(())
    } else {
        Err(format!("── {what} FAILED ({status}): {}", shown(command)))
    }
}

/// Whether a program is there and answers.
pub fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
