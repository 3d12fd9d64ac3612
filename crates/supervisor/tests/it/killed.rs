//! A supervisor that is killed.

use crate::worker::lives;
use skep_supervisor::{Options, Stop, run};
use skep_testkit::{Process, eventually};
use std::process::Command;

/// Set in the process that plays the supervisor.
const ROLE: &str = "SKEP_TEST_SUPERVISE";

/// Detaches a grandchild, as those who drive browsers do with them, and has another that keeps
/// nothing of its environment.
const PROGRAM: &str = "echo key=${SKEP_API_KEY-none}; echo program $$; \
                       setsid sh -c 'echo detached $$; exec sleep 600' & \
                       env -i PATH=\"$PATH\" sh -c 'echo near $$; exec sleep 600' & \
                       trap '' TERM HUP; while :; do sleep 600; done";

/// Runs in two processes: the test starts itself again, to have a supervisor that it can kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_supervisor_takes_its_program_along() {
    if std::env::var_os(ROLE).is_some() {
        let options = Options::new("shell", ["sh", "-c", PROGRAM]);
        run(options, Stop::default()).await.expect("runs until it is killed");
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("has a name"));
    command
        .args(["--exact", "killed::a_killed_supervisor_takes_its_program_along", "--nocapture"])
        .env(ROLE, "1")
        .env("SKEP_API_KEY", "secret");
    let supervisor = Process::start("supervisor", &command, "KILL");
    let number = |word: &str| -> i32 {
        let line = supervisor.wait_for_line(word);
        line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("is a number")
    };
    let family = [number("program "), number("detached "), number("near ")];
    assert!(family.iter().all(|pid| lives(*pid)));
    assert_eq!(supervisor.wait_for_line("key="), "key=none");
    supervisor.kill();
    eventually("everything is gone", || family.iter().all(|pid| !lives(*pid)).then_some(()));
}
