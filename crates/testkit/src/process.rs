//! A spawned program: its log kept, waited for by what it prints, ended with the test.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs the program, tells its process id and how it ended, and ends it with the signal `$1` when
/// its own input ends: the test process may be killed, and nobody else would do it.
///
/// The program's own shell tells the id before it becomes the program, so that nothing the program
/// prints gets into that line. `wait` gives 128 + N for a program that signal N ended.
const GUARDIAN: &str = r#"
signal=$1
shift
exec 3<&0
sh -c 'echo "@pid $$"; exec "$@"' child "$@" 3<&- </dev/null &
child=$!
{ read -r _ <&3; kill -s "$signal" "$child"; } 2>/dev/null &
watcher=$!
wait "$child"
code=$?
echo
echo "@exit $code"
kill "$watcher" 2>/dev/null
"#;

/// Lines kept; a program that prints more loses its oldest.
const LINES_MAX: usize = 1_000_000;

/// A running program and what it printed, both streams in one log.
pub struct Process {
    name: String,
    guardian: Child,
    log: Arc<Log>,
    pid: i32,
}

/// How a program ended: its exit code, or 128 + the signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The code, as a shell shows it.
    pub code: i32,
}

#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    dropped: usize,
    pid: Option<i32>,
    ended: Option<Ended>,
    closed: bool,
}

impl Process {
    /// Starts `command` under the name `name`. When the test ends first, it is sent `end_signal`
    /// (`KILL`, `QUIT`, …).
    pub fn start(name: &str, command: &Command, end_signal: &str) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        let other_end = writer.try_clone().expect("a pipe can be cloned");
        let mut guardian = Command::new("sh");
        guardian
            .args(["-c", GUARDIAN, "guardian", end_signal])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(writer)
            .stderr(other_end)
            .process_group(0);
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guardian.env(key, value),
                None => guardian.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            guardian.current_dir(folder);
        }
        Self::guarded(name, guardian, reader)
    }

    /// Like [`Process::start`], as another user of this machine.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn start_as(name: &str, command: &Command, end_signal: &str, user: &str) -> Self {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let entry = users.lines().map(fields).find(|fields| fields.len() > 3 && fields[0] == user);
        let entry = entry.unwrap_or_else(|| panic!("there is no user {user}"));
        let mut through = Command::new("setpriv");
        through.args(["--reuid", &entry[2], "--regid", &entry[3], "--clear-groups"]);
        through.arg(command.get_program()).args(command.get_args());
        Self::start(name, &through, end_signal)
    }

    fn guarded(name: &str, mut guardian: Command, reader: PipeReader) -> Self {
        let child = guardian.spawn().expect("sh can be started");
        // Its copies of the pipe's end must go, or the reader would never see the end.
        drop(guardian);
        let log = Arc::new(Log::default());
        let collected = log.clone();
        std::thread::spawn(move || collect(reader, &collected));
        let pid = log
            .wait(crate::PATIENCE, |state| state.pid)
            .unwrap_or_else(|| panic!("{name} did not start within {:?}", crate::PATIENCE));
        Process { name: name.to_owned(), guardian: child, log, pid }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until a line that contains `text` is printed, and returns it. Lines that were printed
    /// already count.
    ///
    /// # Panics
    /// If the program ends or [`crate::PATIENCE`] is over first; the log is shown.
    pub fn wait_for_line(&self, text: &str) -> String {
        self.wait_for_line_where(text, |line| line.contains(text))
    }

    /// Waits for a line that is as `fits` says, and gives it back.
    ///
    /// # Panics
    /// If it does not come within [`crate::PATIENCE`]; the log is shown.
    pub fn wait_for_line_where(&self, text: &str, fits: impl Fn(&str) -> bool) -> String {
        let mut seen = 0;
        let found = self.log.wait(crate::PATIENCE, |state| {
            let fresh = state.lines.get(seen.max(state.dropped) - state.dropped..);
            let line = fresh.and_then(|lines| lines.iter().find(|line| fits(line)));
            seen = state.dropped + state.lines.len();
            match line {
                Some(line) => Some(Some(line.clone())),
                None if state.closed => Some(None),
                None => None,
            }
        });
        match found {
            Some(Some(line)) => line,
            Some(None) => panic!("{} ended before {text:?}:\n{}", self.name, self.log()),
            None => panic!("{} never printed {text:?}:\n{}", self.name, self.log()),
        }
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// If it does not end within [`crate::PATIENCE`]; the log is shown.
    pub fn wait(&self) -> Ended {
        self.wait_for(crate::PATIENCE)
            .unwrap_or_else(|| panic!("{} did not end:\n{}", self.name, self.log()))
    }

    /// Waits for the program's end, at most `limit`.
    pub fn wait_for(&self, limit: Duration) -> Option<Ended> {
        // The log is closed after the last line, so that it is complete then.
        self.log.wait(limit, |state| state.ended.filter(|_| state.closed))
    }

    /// Everything it printed.
    pub fn log(&self) -> String {
        lock(&self.log.state).lines.join("\n")
    }

    /// Sends a signal: `Signal::TERM`, `Signal::STOP`, `Signal::CONT`, …
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid).expect("a process id is not zero");
        // A program that has ended already needs no signal.
        let _ = kill_process(pid, signal);
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    pub fn kill(&self) -> Ended {
        self.signal(Signal::KILL);
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is stopped would not see the guardian's signal, unless that is KILL.
        self.signal(Signal::CONT);
        drop(self.guardian.stdin.take());
        if self.wait_for(Duration::from_secs(10)).is_none() {
            self.signal(Signal::KILL);
        }
        let _ = self.guardian.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- the end of {}'s log ---\n{}\n---", self.name, tail.join("\n"));
        }
    }
}

impl Log {
    /// Waits until `look` finds something; it looks at each change.
    fn wait<T>(&self, limit: Duration, mut look: impl FnMut(&LogState) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = look(&state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn add(&self, line: String) {
        let mut state = lock(&self.state);
        if let Some(pid) = line.strip_prefix("@pid ") {
            state.pid = pid.trim().parse().ok();
        } else if let Some(code) = line.strip_prefix("@exit ") {
            // The guardian begins a new line, in case the program ended in the middle of one.
            if state.lines.last().is_some_and(String::is_empty) {
                state.lines.pop();
            }
            state.ended = code.trim().parse().ok().map(|code| Ended { code });
        } else {
            if state.lines.len() == LINES_MAX {
                state.lines.drain(..LINES_MAX / 2);
                state.dropped += LINES_MAX / 2;
            }
            state.lines.push(line);
        }
        self.changed.notify_all();
    }
}

fn collect(reader: PipeReader, log: &Log) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        log.add(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    lock(&log.state).closed = true;
    log.changed.notify_all();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("shell", &command, "KILL")
    }

    #[test]
    fn it_tells_what_was_printed_and_how_it_ended() {
        let process = shell("echo one; echo two >&2; exit 7");
        assert_eq!(process.wait(), Ended { code: 7 });
        assert_eq!(process.wait_for_line("tw"), "two");
        assert_eq!(process.log().lines().count(), 2);
    }

    #[test]
    fn a_signal_reaches_the_program_itself() {
        let process = shell("echo ready; exec sleep 600");
        process.wait_for_line("ready");
        assert_eq!(process.kill(), Ended { code: 128 + 9 });
    }

    #[test]
    #[should_panic(expected = "ended before \"never\"")]
    fn waiting_for_a_line_stops_at_the_end_of_the_program() {
        shell("echo something else").wait_for_line("never");
    }

    #[test]
    fn dropping_it_ends_the_program() {
        let process = shell("echo ready; exec sleep 600");
        process.wait_for_line("ready");
        let pid = process.pid();
        drop(process);
        let gone = rustix::process::test_kill_process(Pid::from_raw(pid).expect("not zero"));
        assert!(gone.is_err(), "process {pid} is still there");
    }
}
