//! Packages of other languages, installed once into the build folder and found there afterwards.

use std::fs::File;
use std::path::{Path, PathBuf};

/// The folder `NAME/VERSION` below the build folder, in which `proof` is a file. If it is not
/// there, `install` is given an empty folder to fill; whoever comes meanwhile waits.
///
/// # Errors
/// What `install` says, or that it left no `proof`.
pub(crate) fn once(
    name: &str,
    version: &str,
    proof: &str,
    install: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let home = build_folder().join(name);
    let folder = home.join(version);
    let there = || folder.join(proof).is_file();
    if there() {
        return Ok(folder);
    }
    let text = |error: std::io::Error| format!("{}: {error}", home.display());
    std::fs::create_dir_all(&home).map_err(text)?;
    let lock = File::create(home.join("lock")).map_err(text)?;
    lock.lock().map_err(text)?;
    if there() {
        return Ok(folder);
    }
    // Under its final name only when it is complete.
    let fresh = home.join("fresh");
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh).map_err(text)?;
    install(&fresh)?;
    std::fs::rename(&fresh, &folder).map_err(text)?;
    if there() { Ok(folder) } else { Err(format!("no {proof} in {}", folder.display())) }
}

/// The folder that cargo builds into, from where this program is.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // Of each profile, which is a folder below it.
    let profile = program.ancestors().find(|folder| folder.join(".fingerprint").is_dir());
    let build = profile.and_then(Path::parent).map(Path::to_path_buf);
    build.unwrap_or_else(std::env::temp_dir)
}
