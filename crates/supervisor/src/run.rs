//! The hands of the machine: processes, requests, the clock.

use crate::link::Link;
use crate::machine::{Effect, Event, Level, Machine, News, Outcome, Rules, StartId};
use crate::options::{BadOptions, Options};
use crate::program::{self, Printer, Sink};
use crate::wire::{Failure, Reply};
use skep_policy::Time;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Events of programs that may wait; a program with news waits with them.
const EVENTS_WAITING_MAX: usize = 64;

/// Stops a supervisor. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    drain: CancellationToken,
    now: CancellationToken,
}

/// Why a supervisor ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The options cannot be worked with.
    #[error(transparent)]
    Options(#[from] BadOptions),
    /// The system did not give what is needed to begin.
    #[error("{what}: {cause}")]
    System {
        /// What is missing.
        what: &'static str,
        /// Why.
        cause: String,
    },
    /// No node will have the worker as it is described.
    #[error("the worker cannot be registered: {why}")]
    Refused {
        /// What the node said.
        why: String,
    },
    /// Another has the name.
    #[error("another worker has the name {name:?}: {who}; give each worker its own with --name")]
    Replaced {
        /// The name.
        name: String,
        /// What the node said.
        who: String,
    },
}

impl Stop {
    /// A first signal: after the last session. A second: at once.
    pub fn signal(&self) {
        if self.drain.is_cancelled() {
            self.now.cancel();
        }
        self.drain.cancel();
    }

    async fn after(&self, signals: u8) {
        match signals {
            0 => self.drain.cancelled().await,
            1 => self.now.cancelled().await,
            _ => std::future::pending().await,
        }
    }
}

type Call = Pin<Box<dyn Future<Output = (u64, Result<Reply, Failure>)> + Send>>;

/// Supervises a program until it is told to stop, an operator removes the worker, or another takes
/// its name. When it returns, everything the program started is gone; when it is dropped, it is
/// being killed.
pub async fn run(options: Options, stop: Stop) -> Result<(), RunError> {
    options.check()?;
    let system = |what: &'static str| {
        move |error: &dyn std::fmt::Display| RunError::System { what, cause: error.to_string() }
    };
    let link = Link::new(&options)
        .map_err(|error| system("the system's certificates cannot be read")(&error))?;
    let seed =
        getrandom::u64().map_err(|error| system("the system gives no random numbers")(&error))?;
    let (sink, printer) =
        Printer::start(&options.output).map_err(|error| system("no thread for output")(&error))?;
    let outcome = Hands::new(options.clone(), link, sink, seed).work(stop).await;
    printer.flush().await;
    match outcome {
        Outcome::Stopped | Outcome::Left => Ok(()),
        Outcome::Replaced(who) => Err(RunError::Replaced { name: options.name, who }),
        Outcome::Refused(why) => Err(RunError::Refused { why }),
    }
}

struct Hands {
    options: Arc<Options>,
    link: Arc<Link>,
    sink: Sink,
    machine: Machine,
    origin: Instant,
    programs: JoinSet<String>,
    /// Which start a task is for, and how to end it.
    tasks: HashMap<Id, (StartId, CancellationToken)>,
    events: mpsc::Receiver<Event>,
    for_programs: mpsc::Sender<Event>,
    call: Option<Call>,
}

impl Hands {
    fn new(options: Options, link: Link, sink: Sink, seed: u64) -> Self {
        let rules = Rules {
            heartbeat_interval: options.heartbeat_interval,
            drain_limit: options.drain_limit,
            memory_max: options.memory_max,
            memory_grace: options.memory_grace,
            age_max: options.age_max,
            successor: options.successor,
        };
        let (for_programs, events) = mpsc::channel(EVENTS_WAITING_MAX);
        Hands {
            options: Arc::new(options),
            link: Arc::new(link),
            sink,
            machine: Machine::new(rules, seed, Time::ZERO),
            origin: Instant::now(),
            programs: JoinSet::new(),
            tasks: HashMap::new(),
            events,
            for_programs,
            call: None,
        }
    }

    async fn work(mut self, stop: Stop) -> Outcome {
        let mut signals = 0;
        loop {
            while let Some(effect) = self.machine.effect() {
                match effect {
                    Effect::Start(start) => self.start(start),
                    Effect::StopProgram(start) => self.stop(&start),
                    Effect::Call { call, request } => {
                        let link = self.link.clone();
                        let future = async move { (call, link.call(&request).await) };
                        self.call = Some(Box::pin(future));
                    }
                    Effect::Tell(news) => tell(&self.options.name, &news),
                    Effect::End(outcome) => return outcome,
                }
            }
            let event = self.event(&stop, &mut signals).await;
            self.machine.handle(event, self.now());
        }
    }

    async fn event(&mut self, stop: &Stop, signals: &mut u8) -> Event {
        let now = self.now();
        let wait = self.machine.wake_at().map(|at| at.since(now));
        let answered = async {
            match self.call.as_mut() {
                Some(call) => call.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.after(*signals) => {
                *signals += 1;
                Event::Stop
            }
            // A program's news come before its end.
            Some(event) = self.events.recv() => event,
            Some(ended) = self.programs.join_next_with_id() => self.gone(ended),
            (call, answer) = answered => {
                self.call = None;
                Event::Answered { call, answer }
            }
            () = pause(wait) => Event::Wake,
        }
    }

    fn start(&mut self, start: StartId) {
        let stop = CancellationToken::new();
        let (options, sink) = (self.options.clone(), self.sink.clone());
        let (events, token, id) = (self.for_programs.clone(), stop.clone(), start.clone());
        let task = self
            .programs
            .spawn(async move { program::live(&options, &id, &sink, &events, token).await });
        self.tasks.insert(task.id(), (start, stop));
    }

    fn stop(&self, start: &StartId) {
        let found = self.tasks.values().find(|(known, _)| known == start);
        if let Some((_, stop)) = found {
            stop.cancel();
        }
    }

    fn gone(&mut self, ended: Result<(Id, String), JoinError>) -> Event {
        let (id, how) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), format!("its supervision failed: {error}")),
        };
        match self.tasks.remove(&id) {
            Some((start, _)) => Event::Gone { start, how },
            None => Event::Wake,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }
}

async fn pause(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

fn tell(worker: &str, news: &News) {
    match news.level() {
        Level::Info => tracing::info!(worker, "{news}"),
        Level::Warn => tracing::warn!(worker, "{news}"),
        Level::Error => tracing::error!(worker, "{news}"),
    }
}
