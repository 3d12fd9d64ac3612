//! One start of the program, from its process to the last thing it started.

mod guard;
mod output;
mod tree;

pub use output::{Line, Output, Stream};
pub(crate) use output::{Printer, Sink};

use crate::address::{self, PORT};
use crate::machine::{Event, StartId};
use crate::options::{Options, UrlFrom};
use guard::Guard;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashSet;
use std::net::TcpListener;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tree::Tree;

/// In the environment of the program and of everything it starts, so that what has left its
/// process group is still known as its own.
const MARK: &str = "SKEP_WORKER_START";
/// The supervisor's own key, which is none of the program's business.
const KEY: &str = "SKEP_API_KEY";
/// How often to look for what gives no signal: an open port, the end of a process that is not our
/// child.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long processes may take to go after SIGKILL. Only those in the hands of a broken device do.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// How long one attempt to connect may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// A program that runs.
struct Running {
    child: Child,
    ended: Option<ExitStatus>,
    tree: Tree,
    group: Pid,
    guard: Guard,
    readers: JoinSet<()>,
    /// The first URL on its standard output.
    printed: Option<oneshot::Receiver<String>>,
    /// The URL that was given, with its port.
    fixed: Option<String>,
}

/// Starts the program and stays with it until everything of it is gone, because it ended, did not
/// start in time, or `stop` was cancelled. Says how it ended.
pub(crate) async fn live(
    options: &Options,
    start: &StartId,
    sink: &Sink,
    events: &mpsc::Sender<Event>,
    stop: CancellationToken,
) -> String {
    let mut running = match Running::start(options, start, sink).await {
        Ok(running) => running,
        Err(error) => return format!("{} cannot be started: {error}", options.command[0]),
    };
    let how = running.attend(options, start, events, stop).await;
    running.finish().await;
    how
}

impl Running {
    async fn start(options: &Options, start: &StartId, sink: &Sink) -> std::io::Result<Self> {
        let port = if options.wants_port() { Some(free_port()?) } else { None };
        let fill = |text: &str| match port {
            Some(port) => text.replace(PORT, &port.to_string()),
            None => text.to_owned(),
        };
        let mut guard = Guard::start(&format!("{MARK}={start}"))?;
        let mut command = Command::new(&options.command[0]);
        command
            .args(options.command[1..].iter().map(|part| fill(part)))
            .env(MARK, &**start)
            .env_remove(KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(port) = port {
            command.env("PORT", port.to_string());
        }
        let mut child = command.spawn()?;
        let raw = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = raw.ok_or_else(|| std::io::Error::other("the process has no id"))?;
        guard.watch(group).await;
        let mut readers = JoinSet::new();
        let (found, printed) = oneshot::channel();
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(output::pass(stdout, Stream::Stdout, sink.clone(), Some(found)));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(output::pass(stderr, Stream::Stderr, sink.clone(), None));
        }
        let (fixed, printed) = match &options.url_from {
            UrlFrom::Stdout => (None, Some(printed)),
            UrlFrom::Fixed(url) => (Some(fill(url)), None),
        };
        let tree = Tree::new(group, format!("{MARK}={start}"));
        Ok(Running { child, ended: None, tree, group, guard, readers, printed, fixed })
    }

    async fn attend(
        &mut self,
        options: &Options,
        start: &StartId,
        events: &mpsc::Sender<Event>,
        stop: CancellationToken,
    ) -> String {
        let deadline = Instant::now() + options.start_limit;
        let mut is_ready = false;
        let mut measure = tokio::time::interval(options.heartbeat_interval);
        measure.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ready = when_ready(self.printed.take(), self.fixed.take());
        tokio::pin!(ready);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return self.stop(options.stop_limit).await,
                status = self.child.wait() => return self.ended_by_itself(status).await,
                url = &mut ready, if !is_ready => {
                    is_ready = true;
                    let url = address::advertised(&url, options.advertise_host.as_deref());
                    Event::Ready { start: start.clone(), url }
                }
                () = sleep_until(deadline), if !is_ready => {
                    let how = self.stop(options.stop_limit).await;
                    let limit = options.start_limit;
                    return match &options.url_from {
                        UrlFrom::Stdout => {
                            format!("it printed no URL on its standard output in {limit:?}, {how}")
                        }
                        UrlFrom::Fixed(_) => {
                            format!("nobody answered at its URL in {limit:?}, {how}")
                        }
                    };
                }
                _ = measure.tick(), if is_ready => {
                    Event::Measured { start: start.clone(), load: self.tree.load() }
                }
            };
            // Whoever stopped listening has dropped this future too, or is about to.
            let _ = events.send(event).await;
        }
    }

    async fn ended_by_itself(&mut self, status: std::io::Result<ExitStatus>) -> String {
        self.ended = status.as_ref().ok().copied();
        self.kill().await;
        match status {
            Ok(status) => status.to_string(),
            Err(error) => format!("its end cannot be learnt: {error}"),
        }
    }

    /// SIGTERM to the group and then to what left it, SIGKILL for what is left after `limit`.
    async fn stop(&mut self, limit: Duration) -> String {
        // Seen before the first of them ends: later it is harder to tell whose they were.
        self.tree.living();
        // Fails only if there is nobody left to get it.
        let _ = kill_process_group(self.group, Signal::TERM);
        let in_time = timeout(limit, self.wait_until_gone()).await.is_ok();
        if !in_time {
            self.kill().await;
        }
        let status = self.ended.map_or_else(|| "it cannot be killed".to_owned(), |s| s.to_string());
        match in_time {
            true => format!("stopped, {status}"),
            false => format!("killed, because it did not stop in {limit:?}, {status}"),
        }
    }

    async fn wait_until_gone(&mut self) {
        if self.ended.is_none() {
            self.ended = self.child.wait().await.ok();
        }
        // The program has had its time to end what it detached. Nobody else will tell them now.
        let mut told = HashSet::new();
        loop {
            let living = self.tree.living();
            if living.is_empty() {
                return;
            }
            let detached = living.iter().filter(|process| !process.is_in_group(self.group));
            for process in detached {
                if told.insert(process.identity()) {
                    process.signal(Signal::TERM);
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Kills whatever is left, again and again, because the living may start others meanwhile.
    async fn kill(&mut self) {
        let killing = async {
            loop {
                if self.ended.is_none() {
                    // Its number cannot mean another's group before it is waited for.
                    let _ = kill_process_group(self.group, Signal::KILL);
                    self.ended =
                        timeout(LOOK_AGAIN, self.child.wait()).await.ok().and_then(Result::ok);
                }
                let living = self.tree.living();
                if living.is_empty() && self.ended.is_some() {
                    return;
                }
                for process in living {
                    process.signal(Signal::KILL);
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        if timeout(KILL_LIMIT, killing).await.is_err() {
            let left = self.tree.living().len();
            tracing::error!(left, "processes of the program do not end after SIGKILL");
        }
    }

    async fn finish(mut self) {
        self.guard.dismiss().await;
        // Everything that could write is gone, so that what was written is read to its end.
        let read = async { while self.readers.join_next().await.is_some() {} };
        let _ = timeout(CONNECT_LIMIT, read).await;
    }
}

/// The program's URL, as soon as it takes sessions there.
async fn when_ready(printed: Option<oneshot::Receiver<String>>, fixed: Option<String>) -> String {
    if let Some(printed) = printed
        && let Ok(url) = printed.await
    {
        return url;
    }
    if let Some(url) = fixed
        && let Some((host, port)) = address::to_connect(&url)
    {
        loop {
            let connecting = TcpStream::connect((host.as_str(), port));
            if matches!(timeout(CONNECT_LIMIT, connecting).await, Ok(Ok(_))) {
                return url;
            }
            sleep(LOOK_AGAIN).await;
        }
    }
    std::future::pending().await
}

/// A port on loopback that nobody listens on now.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
