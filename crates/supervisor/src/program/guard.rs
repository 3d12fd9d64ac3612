//! Ends a program whose supervisor was killed.
//!
//! A small shell in a process group of its own waits at the end of a pipe that only the supervisor
//! holds. When the pipe closes without a word, the supervisor is gone, and the shell kills the
//! program's group and every process that carries the program's mark in its environment. The
//! kernel's own signal for this (`PR_SET_PDEATHSIG`) would reach the program alone and not what it
//! started, and could not be asked for without unsafe code.

use rustix::process::Pid;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// `$1` is the mark. The group's number is used once only, since it may mean another's later; the
/// mark never does. Those who were being started in that moment are seen in a later round.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r group
read -r word && exit 0
[ -n "$group" ] && kill -s KILL -- "-$group"
for pause in 0 1 2; do
    sleep "$pause"
    grep -lsF -e "$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        kill -s KILL "$pid"
    done
done
"#;

/// How long it may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// Stands beside one start of the program. Dropping it means being killed: so does it act.
pub(super) struct Guard {
    shell: Child,
    line: Option<ChildStdin>,
}

impl Guard {
    /// Starts it, before there is anything to guard.
    pub(super) fn start(mark: &str) -> std::io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "skep-guard", mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| std::io::Error::other(format!("its guard needs sh: {error}")))?;
        let line = shell.stdin.take();
        Ok(Guard { shell, line })
    }

    /// Tells it the program's group.
    pub(super) async fn watch(&mut self, group: Pid) {
        self.say(&format!("{}\n", group.as_raw_nonzero())).await;
    }

    /// Everything is gone, it may go too.
    pub(super) async fn dismiss(&mut self) {
        self.say("done\n").await;
        self.line = None;
        let _ = timeout(LEAVE_LIMIT, self.shell.wait()).await;
    }

    async fn say(&mut self, words: &str) {
        if let Some(line) = &mut self.line
            && let Err(error) = line.write_all(words.as_bytes()).await
        {
            tracing::warn!(
                %error,
                "the program's guard is gone; if this supervisor is killed, the program stays"
            );
        }
    }
}
