//! `skep top`: everything at a glance, refreshed every second.

mod cut;
mod draw;
mod gather;
mod keys;
mod screen;
mod sections;
mod snapshot;
mod view;

use super::client::{KeyArgs, NodeArgs};
use super::output::{self, Output};
use super::signals::Signals;
use super::{CliError, Exit, small_runtime};
use clap::Args;
use gather::Sources;
use keys::Keys;
use screen::Screen;
use snapshot::Snapshot;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use view::{Next, View};

/// From one look at the nodes to the next.
const EVERY: Duration = Duration::from_secs(1);
/// The width of what is printed where there is no terminal.
const PLAIN_WIDTH: usize = 100;

const EXAMPLES: &str = "\
Examples:
  skep top                                     q quits, ? shows the keys
  skep top --once                              prints it once
  skep top --url http://skep-1:6632 --url http://skep-2:6632
  skep top --once --json | jq .sections.queues

Nodes, pools, sessions, queues, polls and monitors, what needs a look first. One node is enough to
ask: it names the others. With several --url those are asked, and the first that answers speaks for
what they share. Where the output is no terminal it is printed once. Ends with 69 if no node
answers. Needs a key with the scope `read`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Print it once and end
    #[arg(long)]
    once: bool,

    /// Address of a node; several times for several
    #[arg(long = "url", value_name = "URL", env = "SKEP_URL", help_heading = "Node",
          default_value = super::client::DEFAULT_URL)]
    urls: Vec<String>,

    #[command(flatten)]
    key: KeyArgs,
}

pub fn run(arguments: &TopArgs, output: Output) -> Result<Exit, CliError> {
    let nodes =
        arguments.urls.iter().map(|url| NodeArgs::new(url.clone(), arguments.key.key.clone()));
    let sources = Sources::new(nodes.collect());
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let runtime = small_runtime()?;
    if arguments.once || output == Output::Json || !terminal {
        return runtime.block_on(once(sources, output));
    }
    runtime.block_on(live(sources))
}

async fn once(mut sources: Sources, output: Output) -> Result<Exit, CliError> {
    let snapshot = sources.look().await;
    if let Some(why) = snapshot.nobody() {
        return Err(CliError::new(Exit::Unavailable, why));
    }
    match output {
        Output::Json => output::json(&snapshot.json()),
        Output::Table => {
            let width = output::terminal_width().map_or(PLAIN_WIDTH, usize::from);
            for line in draw::page(&snapshot, width) {
                output::line(&line.styled());
            }
        }
    }
    Ok(Exit::Ok)
}

async fn live(mut sources: Sources) -> Result<Exit, CliError> {
    let first = sources.look().await;
    // Somebody who asks for what cannot be reached at all is told so, and keeps the screen.
    if let Some(why) = first.nobody() {
        return Err(CliError::new(Exit::Unavailable, why));
    }
    let trouble = |error| CliError::new(Exit::System, format!("cannot use this terminal: {error}"));
    let mut signals = Signals::new()?;
    let mut resized = signal(SignalKind::window_change()).map_err(trouble)?;
    let mut keys = Keys::new().map_err(trouble)?;
    let (sender, mut news) = watch::channel(first);
    let looking = tokio::spawn(look_on(sources, sender));
    let mut view = View::default();
    let mut screen = Screen::enter().map_err(trouble)?;
    let ended = loop {
        let snapshot: Snapshot = news.borrow_and_update().clone();
        view.fit(&snapshot);
        if let Err(error) = screen.show(|size| draw::screen(&snapshot, &view, size)) {
            break Err(trouble(error));
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() {
                break Err(CliError::new(Exit::Bug, "nobody looks at the nodes any more"));
            },
            _ = resized.recv() => {}
            _ = signals.next() => break Ok(Exit::Ok),
            pressed = keys.next() => match pressed {
                Ok(Some(key)) => if view.press(key, &snapshot) == Next::Quit {
                    break Ok(Exit::Ok);
                },
                // The terminal is gone.
                Ok(None) => break Ok(Exit::Ok),
                Err(error) => break Err(trouble(error)),
            },
        }
    };
    looking.abort();
    drop(screen);
    ended
}

/// Looks every second, for as long as somebody wants to know.
async fn look_on(mut sources: Sources, sender: watch::Sender<Snapshot>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if sender.send(sources.look().await).is_err() {
            return;
        }
    }
}
