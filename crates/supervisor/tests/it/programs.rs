//! Programs that do not behave.

use crate::node::FakeNode;
use crate::worker::{QUIET, Worker, kill, lives, pid_of, script};
use skep_testkit::eventually;
use std::time::{Duration, Instant};

/// Starts one grandchild in the program's group, one in a session of its own with nothing of the
/// program's environment, and one that has lost its parent and its session's leader before anybody
/// looks.
const FAMILY: &str = "sleep 600 & echo near $!; \
                      env -i PATH=\"$PATH\" setsid sh -c 'echo far $$; exec sleep 600' & \
                      setsid sh -c 'sh -c \"echo lost \\$\\$; exec sleep 600\" & exit 0'; \
                      echo ws://127.0.0.1:1/$$; wait";

fn family(worker: &Worker) -> Vec<i32> {
    let family: Vec<i32> =
        ["near ", "far ", "lost "].iter().map(|word| worker.printed_number(word)).collect();
    assert!(family.iter().all(|pid| lives(*pid)), "{family:?}");
    family
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ignores_sigterm_is_killed_at_the_limit() {
    let node = FakeNode::start().await;
    let text = "trap '' TERM; echo ws://127.0.0.1:1/$$; while :; do sleep 600; done";
    let mut options = script(&node, text);
    options.stop_limit = Duration::from_millis(400);
    let worker = Worker::start(options);
    let first = node.registration(1);
    let ordered = Instant::now();
    node.order("restart");
    node.registration(2);
    assert!(ordered.elapsed() >= Duration::from_millis(400));
    assert!(!lives(pid_of(&first)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_program_started_ends_with_it() {
    let node = FakeNode::start().await;
    let mut options = script(&node, FAMILY);
    options.stop_limit = Duration::from_millis(500);
    let worker = Worker::start(options);
    node.registration(1);
    let family = family(&worker);
    worker.stop().await;
    let left: Vec<&i32> = family.iter().filter(|pid| lives(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {family:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_killed_program_started_ends_before_the_next_start() {
    let node = FakeNode::start().await;
    let worker = Worker::start(script(&node, FAMILY));
    let first = node.registration(1);
    let family = family(&worker);
    // Those who keep nothing of the program are its own by having been seen with it.
    let so_far = node.heard("heartbeat").len();
    eventually("a measurement", || (node.heard("heartbeat").len() > so_far + 2).then_some(()));
    kill(pid_of(&first));
    node.registration(2);
    let left: Vec<&i32> = family.iter().filter(|pid| lives(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {family:?}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrapper_that_ends_first_leaves_the_real_program_its_time_to_stop() {
    let node = FakeNode::start().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let done = folder.path().join("done");
    // The shell dies of the signal at once; its child wants to tidy up.
    let text = format!(
        "sh -c 'trap \"sleep 0.5; echo tidy > {}; exit 0\" TERM; echo ws://127.0.0.1:1/$$; \
         while :; do sleep 0.1; done' & wait",
        done.display()
    );
    let worker = Worker::start(script(&node, &text));
    node.registration(1);
    worker.stop().await;
    assert!(done.exists(), "the program was killed while it tidied up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_tells_no_url_is_stopped_and_tried_again() {
    let node = FakeNode::start().await;
    let mut options = script(&node, "echo started $$; exec sleep 600");
    options.start_limit = Duration::from_millis(200);
    let worker = Worker::start(options);
    let first = worker.printed_number("started ");
    eventually("it is tried again", || {
        let lines = worker.lines.lock().expect("lives");
        (lines.iter().filter(|line| line.text.starts_with("started")).count() >= 3).then_some(())
    });
    assert!(!lives(first));
    assert!(node.heard("workers").is_empty());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_prints_without_end_does_not_hold_up_anything() {
    let node = FakeNode::start().await;
    let text = "echo ws://127.0.0.1:1/$$; exec yes";
    let mut options = script(&node, text);
    options.heartbeat_interval = Duration::from_millis(100);
    let stop = skep_supervisor::Stop::default();
    options.output = skep_supervisor::Output::To(std::sync::Arc::new(|_| {}));
    let running = tokio::spawn(skep_supervisor::run(options, stop.clone()));
    node.registration(1);
    let so_far = node.heard("heartbeat").len();
    eventually("it goes on", || (node.heard("heartbeat").len() > so_far + 5).then_some(()));
    stop.signal();
    running.await.expect("does not panic").expect("ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_is_dropped_leaves_nothing_behind() {
    let node = FakeNode::start().await;
    let worker = Worker::start(script(&node, QUIET));
    let pid = pid_of(&node.registration(1));
    worker.drop_it();
    eventually("it is gone", || (!lives(pid)).then_some(()));
}
