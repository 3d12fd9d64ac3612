//! `skep completions`: what the shell needs to complete commands.

use super::{CliError, Exit, command, output};
use clap::Args;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  skep completions bash > /etc/bash_completion.d/skep
  skep completions zsh > ~/.zfunc/_skep
  skep completions fish > ~/.config/fish/completions/skep.fish";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "skep", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Ok)
}
