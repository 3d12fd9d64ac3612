//! Doing the faults.

use super::cluster::{Cluster, Member};
use super::evidence::{Killed, Micros, Paused};
use super::fault::Fault;
use crate::common::{lock, panic_text};
use rustix::process::Signal;
use skep_testkit::{Redis, pause};
use std::sync::Mutex;
use std::time::Duration;

/// How long a node that was asked to end may take: its drain, and what the servers that it hands
/// its work to may be away for.
const END_MAX: Duration = Duration::from_secs(30);

/// Between two nodes of a rolling restart.
const ROLL_REST: Duration = Duration::from_millis(500);

/// What the checks must know about the faults.
#[derive(Debug, Default)]
pub struct Notes {
    /// Nodes that were stopped and went on.
    pub pauses: Vec<Paused>,
    /// Nodes that were killed.
    pub kills: Vec<Killed>,
    /// What may cost no slot, and from when to when it went on.
    pub graceful: Vec<(String, Micros, Micros)>,
    /// What went wrong while faults were done.
    pub failures: Vec<String>,
}

/// Does these faults at once, and returns when everything is there again.
pub fn strike(cluster: &Cluster, faults: &[Fault], notes: &Mutex<Notes>) {
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            faults.iter().map(|fault| scope.spawn(|| apply(cluster, fault, notes))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for (fault, ended) in faults.iter().zip(ended) {
        let text = match ended {
            Ok(Ok(())) => continue,
            Ok(Err(text)) => text,
            Err(panic) => panic_text(&*panic),
        };
        lock(notes).failures.push(format!("{fault}: {text}"));
    }
}

fn apply(cluster: &Cluster, fault: &Fault, notes: &Mutex<Notes>) -> Result<(), String> {
    let member = |node: &usize| &cluster.members[*node];
    match fault {
        Fault::Kill { node, down } => {
            let instance = member(node).instance();
            let killed = Killed { instance, at: cluster.stopwatch.now() };
            lock(notes).kills.push(killed);
            member(node).lock().process().kill();
            pause(*down);
            cluster.start_again(*node);
        }
        Fault::Stop { node, down } => {
            stop(member(node))?;
            pause(*down);
            cluster.start_again(*node);
        }
        Fault::Pause { node, span } => hold(cluster, member(node), *span, notes),
        Fault::Stutter { node, times, span, moment } => {
            for _ in 0..*times {
                hold(cluster, member(node), *span, notes);
                pause(*moment);
            }
        }
        Fault::Roll => {
            for (number, member) in cluster.members.iter().enumerate() {
                stop(member)?;
                cluster.start_again(number);
                pause(ROLL_REST);
            }
        }
        Fault::RedisEmpty { down } => {
            let mut redis = lock(&cluster.redis);
            redis.kill();
            pause(*down);
            redis.start_again();
        }
        Fault::RedisOld { age, down } => {
            let mut redis = lock(&cluster.redis);
            redis.keep_copy()?;
            pause(*age);
            redis.kill();
            pause(*down);
            redis.start_again_from_copy();
        }
        Fault::RedisPause { span } => {
            let redis = lock(&cluster.redis);
            redis.pause();
            pause(*span);
            redis.resume();
        }
        Fault::RedisFlush => drop(lock(&cluster.redis).command("FLUSHALL")?),
        Fault::ScriptFlush => drop(lock(&cluster.redis).command("SCRIPT FLUSH")?),
        Fault::Cut { node, span } => on_the_wire(member(node), *span, |member| member.proxy.cut()),
        Fault::Freeze { node, span } => {
            on_the_wire(member(node), *span, |member| member.proxy.freeze());
        }
        Fault::Mute { node, span } => {
            on_the_wire(member(node), *span, |member| member.proxy.mute());
        }
        Fault::Delay { node, delay, span } => {
            on_the_wire(member(node), *span, |member| member.proxy.delay(*delay));
        }
        Fault::PostgresRestart { down } => {
            let mut postgres = lock(&cluster.postgres);
            postgres.kill();
            pause(*down);
            postgres.start_again();
        }
    }
    Ok(())
}

fn hold(cluster: &Cluster, member: &Member, span: Duration, notes: &Mutex<Notes>) {
    let instance = member.instance();
    let from = cluster.stopwatch.now();
    member.lock().process().signal(Signal::STOP);
    pause(span);
    let paused = Paused { instance, from, to: cluster.stopwatch.now() };
    member.lock().process().signal(Signal::CONT);
    lock(notes).pauses.push(paused);
}

fn on_the_wire(member: &Member, span: Duration, weather: impl FnOnce(&Member)) {
    weather(member);
    pause(span);
    member.proxy.heal();
}

fn stop(member: &Member) -> Result<(), String> {
    let node = member.lock();
    node.process().signal(Signal::TERM);
    match node.process().wait_for(END_MAX) {
        Some(ended) if ended.code == 0 => Ok(()),
        Some(ended) => Err(format!("{} ended with code {}", member.name, ended.code)),
        None => Err(format!("{} did not end within {END_MAX:?}", member.name)),
    }
}

/// Lets Redis go on if a fault that broke off left it stopped.
pub fn wake(redis: &Mutex<Redis>) {
    lock(redis).resume();
}
