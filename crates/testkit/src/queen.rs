//! Queen's client for Python, as its users have it, at the one version that tests speak.

use crate::{packages, programs};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that is installed.
pub const VERSION: &str = "2.6.0";

/// What speaks HTTP for it decides how names and bodies look on the wire, so it is pinned too.
const REQUIREMENTS: &[&str] = &["queen-mq==2.6.0", "httpx==0.28.1", "httpcore==1.0.9"];

/// Where Python finds the package, for `PYTHONPATH`. Installs it into the build folder if it is not
/// there; whoever comes meanwhile waits.
///
/// # Errors
/// If it cannot be had; the text says what was tried.
pub fn install() -> Result<PathBuf, String> {
    packages::once("queen", VERSION, "queen/client.py", pip_install)
}

/// A command that runs a Python program with the client at hand, and with nothing else that happens
/// to be installed in front of it.
///
/// # Panics
/// If the client cannot be had.
pub fn command(program: &Path) -> Command {
    let packages = install().unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(programs::require("python3"));
    // No packages of the user, no file of compiled code beside the program, each line at once.
    command.args(["-s", "-B", "-u"]).arg(program).env("PYTHONPATH", packages);
    command.env_remove("QUEEN_SDK_POP_AUTOPILOT").env_remove("QUEEN_CLIENT_LOG");
    command
}

fn pip_install(folder: &Path) -> Result<(), String> {
    let python = programs::find("python3")
        .ok_or("python3 is not installed; `cargo xtask test` installs it")?;
    let mut command = Command::new(python);
    // Only what is built already: a source package would run its own program here.
    command.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    command.args(["--no-warn-conflicts", "--only-binary", ":all:", "--target"]);
    let output = command.arg(folder).args(REQUIREMENTS).output();
    let output = output.map_err(|error| format!("python3 cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "pip could not install queen-mq {VERSION}, which the tests with Queen's client need; it \
         must be there (`cargo xtask test` installs it) and reach its registry once:\n{}",
        said.trim()
    ))
}
