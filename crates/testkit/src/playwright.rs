//! Playwright's client and server for Node, at the one version that tests speak.

use crate::{packages, programs};
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
    let proof = "node_modules/playwright-core/package.json";
    let folder = packages::once("playwright", VERSION, proof, npm_install)?;
    Ok(folder.join("node_modules"))
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
