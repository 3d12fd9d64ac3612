//! Showing the same thing every second.

use super::output::{self, Output};
use super::{CliError, Exit};
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Whether to go on showing it.
#[derive(Args, Clone, Copy)]
pub struct WatchArgs {
    /// Show it every second until interrupted
    #[arg(long)]
    watch: bool,

    /// With --watch, stop after so many times
    #[arg(long, value_name = "COUNT", requires = "watch",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl WatchArgs {
    /// Asks and prints, once or every second: a value for programs, a page for people.
    pub async fn show<T: Serialize>(
        self,
        output: Output,
        ask: impl AsyncFnMut() -> Result<T, CliError>,
        print: impl FnMut(&T),
    ) -> Result<Exit, CliError> {
        self.go(output, self.watch, ask, print).await
    }

    /// The same for what adds up: nothing is wiped off the screen.
    pub async fn follow<T: Serialize>(
        self,
        output: Output,
        ask: impl AsyncFnMut() -> Result<T, CliError>,
        print: impl FnMut(&T),
    ) -> Result<Exit, CliError> {
        self.go(output, false, ask, print).await
    }

    async fn go<T: Serialize>(
        self,
        output: Output,
        replace: bool,
        mut ask: impl AsyncFnMut() -> Result<T, CliError>,
        mut print: impl FnMut(&T),
    ) -> Result<Exit, CliError> {
        if self.watch {
            return every_second(self.count, output, replace, ask, print).await;
        }
        let answer = ask().await?;
        match output {
            Output::Json => output::json(&answer),
            Output::Table => print(&answer),
        }
        Ok(Exit::Ok)
    }
}

/// Asks every second, so many times or until interrupted: a line of JSON each, or a page for
/// people, which replaces the one before on a terminal.
pub async fn every_second<T: Serialize>(
    times: Option<u64>,
    output: Output,
    replace: bool,
    mut ask: impl AsyncFnMut() -> Result<T, CliError>,
    mut print: impl FnMut(&T),
) -> Result<Exit, CliError> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let wipe = replace && std::io::stdout().is_terminal();
    let mut left = times;
    loop {
        ticks.tick().await;
        let answer = ask().await?;
        match output {
            Output::Json => match serde_json::to_string(&answer) {
                Ok(text) => output::line(&text),
                Err(error) => unreachable!("answers are plain values: {error}"),
            },
            Output::Table => {
                if wipe {
                    output::line("\x1b[2J\x1b[H");
                }
                print(&answer);
            }
        }
        left = left.map(|left| left.saturating_sub(1));
        if left == Some(0) || !output::is_delivered() {
            return Ok(Exit::Ok);
        }
    }
}
