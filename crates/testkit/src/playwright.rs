//! Playwright's client and server for Node, at the one version that tests speak.

use crate::programs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that is installed; clients and workers of one test must have the same.
pub const VERSION: &str = "1.62.1";

/// Flags for a Chromium that runs without a screen, as root, and speaks to nobody by itself.
pub const CHROMIUM_FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// Where Node finds the package, for `NODE_PATH`. Installs it into the build folder if it is not
/// there; whoever comes meanwhile waits.
///
/// # Errors
/// If it cannot be had; the text says what was tried.
pub fn install() -> Result<PathBuf, String> {
    let home = build_folder().join("playwright");
    let modules = home.join(VERSION).join("node_modules");
    let there = || modules.join("playwright-core/package.json").is_file();
    if there() {
        return Ok(modules);
    }
    let text = |error: std::io::Error| format!("{}: {error}", home.display());
    std::fs::create_dir_all(&home).map_err(text)?;
    let lock = File::create(home.join("lock")).map_err(text)?;
    lock.lock().map_err(text)?;
    if there() {
        return Ok(modules);
    }
    // Under its final name only when it is complete.
    let fresh = home.join("fresh");
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh).map_err(text)?;
    npm_install(&fresh)?;
    std::fs::rename(&fresh, home.join(VERSION)).map_err(text)?;
    if there() { Ok(modules) } else { Err(format!("npm left nothing in {}", modules.display())) }
}

/// As [`install`], for tests.
///
/// # Panics
/// If it cannot be had.
pub fn require() -> PathBuf {
    install().unwrap_or_else(|error| panic!("{error}"))
}

fn npm_install(folder: &Path) -> Result<(), String> {
    let package = format!("playwright-core@{VERSION}");
    let npm =
        programs::find("npm").ok_or("npm is not installed; `cargo xtask test` installs it")?;
    let mut command = Command::new(npm);
    // No scripts: they would fetch browsers, and the tests have one.
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    let output = command.arg(folder).arg(&package).output();
    let output = output.map_err(|error| format!("npm cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "npm could not install {package}, which the tests with real browsers need; it must reach \
         its registry once:\n{}",
        said.trim()
    ))
}

/// The folder that cargo builds into, from where this program is.
fn build_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // Of each profile, which is a folder below it.
    let profile = program.ancestors().find(|folder| folder.join(".fingerprint").is_dir());
    let build = profile.and_then(Path::parent).map(Path::to_path_buf);
    build.unwrap_or_else(std::env::temp_dir)
}
