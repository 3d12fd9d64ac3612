//! What the tests of the program share.

use skep_testkit::{Ended, Node, Process};
use std::path::Path;
use std::process::Command;

/// The program.
pub fn skep() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_skep"))
}

/// A command line, without the settings of whoever runs the tests and away from their files.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Node::command(skep());
    command.args(arguments).current_dir(folder);
    command
}

/// Runs a command line to its end; what it printed and how it ended.
pub fn run(folder: &Path, arguments: &[&str]) -> (Ended, String) {
    let process = Process::start("skep", &command(folder, arguments), "KILL");
    (process.wait(), process.log())
}
