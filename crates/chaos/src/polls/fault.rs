//! What is done to the installation, and in which order, from a seed.

use serde::Serialize;
use skep_policy::ownership::Timing;
use skep_policy::{Chance, SeededChance};
use std::fmt;
use std::time::Duration;

/// One thing that goes wrong. Nodes are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL, and the same node again a while later.
    Kill { node: usize, down: Duration },
    /// SIGTERM, and the same node again a while after it has ended.
    Stop { node: usize, down: Duration },
    /// SIGSTOP, and SIGCONT a while later.
    Pause { node: usize, span: Duration },
    /// SIGSTOP and SIGCONT again and again: the node gets a moment to run between pauses.
    Stutter { node: usize, times: u32, span: Duration, moment: Duration },
    /// Every node in turn is stopped and started again.
    Roll,
    /// Redis is killed and starts again with nothing.
    RedisEmpty { down: Duration },
    /// Redis is killed and starts again with what it had a while before.
    RedisOld { age: Duration, down: Duration },
    /// Redis does not answer, and goes on later.
    RedisPause { span: Duration },
    /// Redis is told to forget everything.
    RedisFlush,
    /// Redis is told to forget the scripts that nodes have sent.
    ScriptFlush,
    /// A node's connections to Redis end, and no new ones are made.
    Cut { node: usize, span: Duration },
    /// A node and Redis hear nothing of each other for a while, and then everything at once.
    Freeze { node: usize, span: Duration },
    /// Redis hears a node, and the node hears the answers only later.
    Mute { node: usize, span: Duration },
    /// What a node and Redis tell each other comes late.
    Delay { node: usize, delay: Duration, span: Duration },
    /// PostgreSQL ends at once and starts again.
    PostgresRestart { down: Duration },
}

/// What a fault needs for itself; two that need the same cannot happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Touched {
    Node(usize),
    Nodes,
    Wire(usize),
    Redis,
    Postgres,
}

impl Fault {
    /// Its kind in a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "kill",
            Fault::Stop { .. } => "stop",
            Fault::Pause { .. } => "pause",
            Fault::Stutter { .. } => "stutter",
            Fault::Roll => "rolling restart",
            Fault::RedisEmpty { .. } => "redis empty",
            Fault::RedisOld { .. } => "redis old copy",
            Fault::RedisPause { .. } => "redis pause",
            Fault::RedisFlush => "redis flushed",
            Fault::ScriptFlush => "scripts flushed",
            Fault::Cut { .. } => "cut",
            Fault::Freeze { .. } => "freeze",
            Fault::Mute { .. } => "mute",
            Fault::Delay { .. } => "delay",
            Fault::PostgresRestart { .. } => "postgres restart",
        }
    }

    fn touches(&self) -> Touched {
        match self {
            Fault::Kill { node, .. }
            | Fault::Stop { node, .. }
            | Fault::Pause { node, .. }
            | Fault::Stutter { node, .. } => Touched::Node(*node),
            Fault::Cut { node, .. }
            | Fault::Freeze { node, .. }
            | Fault::Mute { node, .. }
            | Fault::Delay { node, .. } => Touched::Wire(*node),
            Fault::Roll => Touched::Nodes,
            Fault::RedisEmpty { .. }
            | Fault::RedisOld { .. }
            | Fault::RedisPause { .. }
            | Fault::RedisFlush
            | Fault::ScriptFlush => Touched::Redis,
            Fault::PostgresRestart { .. } => Touched::Postgres,
        }
    }

    fn goes_with(&self, other: &Fault) -> bool {
        let (one, another) = (self.touches(), other.touches());
        let node = |touched| matches!(touched, Touched::Node(_) | Touched::Nodes);
        let all = one == Touched::Nodes || another == Touched::Nodes;
        one != another && !(all && node(one) && node(another))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Fault::Kill { node, down } | Fault::Stop { node, down } => {
                write!(f, " node-{node}, back after {down:.1?}")
            }
            Fault::Pause { node, span }
            | Fault::Cut { node, span }
            | Fault::Freeze { node, span }
            | Fault::Mute { node, span } => write!(f, " node-{node} for {span:.1?}"),
            Fault::Delay { node, delay, span } => {
                write!(f, " node-{node} by {delay:.0?} for {span:.1?}")
            }
            Fault::Stutter { node, times, span, moment } => {
                write!(f, " node-{node}, {times} times {span:.1?}, {moment:.0?} apart")
            }
            Fault::RedisEmpty { down } | Fault::PostgresRestart { down } => {
                write!(f, ", back after {down:.1?}")
            }
            Fault::RedisOld { age, down } => write!(f, " of {age:.1?} ago, back after {down:.1?}"),
            Fault::RedisPause { span } => write!(f, " for {span:.1?}"),
            Fault::Roll | Fault::RedisFlush | Fault::ScriptFlush => Ok(()),
        }
    }
}

/// One or two faults at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What happens.
    pub faults: Vec<Fault>,
    /// Whether everything is well again before the next step; if not, the next comes into it.
    pub settle: bool,
    /// How long until the next step.
    pub rest: Duration,
}

impl Step {
    /// A fault alone, after which everything gets well again.
    pub fn alone(fault: Fault) -> Self {
        Step { faults: vec![fault], settle: true, rest: Duration::ZERO }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Kill,
    Stop,
    PauseShort,
    PauseLong,
    Stutter,
    Roll,
    RedisEmpty,
    RedisOld,
    RedisPause,
    RedisFlush,
    ScriptFlush,
    Cut,
    Freeze,
    Mute,
    Delay,
    PostgresRestart,
}

const KINDS: [Kind; 16] = [
    Kind::Kill,
    Kind::Stop,
    Kind::PauseShort,
    Kind::PauseLong,
    Kind::Stutter,
    Kind::Roll,
    Kind::RedisEmpty,
    Kind::RedisOld,
    Kind::RedisPause,
    Kind::RedisFlush,
    Kind::ScriptFlush,
    Kind::Cut,
    Kind::Freeze,
    Kind::Mute,
    Kind::Delay,
    Kind::PostgresRestart,
];

/// So many faults from a seed. Every kind comes before one comes again.
pub fn plan(seed: u64, count: usize, nodes: usize, timing: &Timing) -> Vec<Step> {
    let mut dice = Dice { chance: SeededChance::new(seed), nodes, timing: *timing };
    let mut bag: Vec<Kind> = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut left = count;
    while left > 0 {
        let mut faults = vec![dice.draw(&mut bag)];
        if left > 1 && dice.one_in(5) {
            let second = dice.draw(&mut bag);
            if faults[0].goes_with(&second) {
                faults.push(second);
            } else {
                left -= 1;
                steps.push(Step::alone(second));
            }
        }
        left -= faults.len();
        let (settle, rest) = (!dice.one_in(5), dice.between(0.0, 1.5));
        steps.push(Step { faults, settle, rest });
    }
    // What comes last must heal, or nothing could be said about the end.
    if let Some(last) = steps.last_mut() {
        last.settle = true;
    }
    steps
}

struct Dice {
    chance: SeededChance,
    nodes: usize,
    timing: Timing,
}

impl Dice {
    fn one_in(&mut self, count: u64) -> bool {
        self.chance.up_to(count - 1) == 0
    }

    fn between(&mut self, low: f64, high: f64) -> Duration {
        let part = self.chance.up_to(1_000) as f64 / 1_000.0;
        Duration::from_millis((1_000.0 * (low + (high - low) * part)) as u64)
    }

    fn draw(&mut self, bag: &mut Vec<Kind>) -> Fault {
        if bag.is_empty() {
            bag.extend(KINDS);
        }
        let kind = bag.swap_remove(self.chance.up_to(bag.len() as u64 - 1) as usize);
        let node = self.chance.up_to(self.nodes as u64 - 1) as usize;
        let ttl = self.timing.ttl.as_secs_f64();
        // Half of what lasts a while is over before anybody is called dead.
        let (low, high) = if self.one_in(2) { (0.1, 0.9) } else { (1.1, 2.0) };
        let span = self.between(low * ttl, high * ttl);
        let down = self.between(0.1, 2.0 * ttl);
        match kind {
            Kind::Kill => Fault::Kill { node, down },
            Kind::Stop => Fault::Stop { node, down: self.between(0.0, ttl) },
            Kind::PauseShort => Fault::Pause { node, span: self.between(0.1, 0.9 * ttl) },
            Kind::PauseLong => Fault::Pause { node, span: self.between(1.2 * ttl, 2.5 * ttl) },
            Kind::Stutter => Fault::Stutter {
                node,
                times: 3 + self.chance.up_to(7) as u32,
                span: self.between(0.1 * ttl, 0.4 * ttl),
                moment: self.between(0.005, 0.1),
            },
            Kind::Roll => Fault::Roll,
            Kind::RedisEmpty => Fault::RedisEmpty { down: self.between(0.0, 1.5 * ttl) },
            Kind::RedisOld => {
                Fault::RedisOld { age: self.between(0.2, 2.0 * ttl), down: self.between(0.0, ttl) }
            }
            Kind::RedisPause => Fault::RedisPause { span: self.between(0.5, 2.0 * ttl) },
            Kind::RedisFlush => Fault::RedisFlush,
            Kind::ScriptFlush => Fault::ScriptFlush,
            Kind::Cut => Fault::Cut { node, span },
            Kind::Freeze => Fault::Freeze { node, span },
            Kind::Mute => Fault::Mute { node, span },
            Kind::Delay => {
                let delay = self.between(0.02, self.timing.call_limit().as_secs_f64());
                Fault::Delay { node, delay, span }
            }
            Kind::PostgresRestart => Fault::PostgresRestart { down: self.between(0.0, 2.0) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn kinds(steps: &[Step]) -> usize {
        let names = steps.iter().flat_map(|step| step.faults.iter().map(Fault::name));
        names.collect::<HashSet<_>>().len()
    }

    #[test]
    fn a_seed_gives_the_same_plan_with_every_kind_and_as_many_as_asked_for() {
        for seed in 0..200 {
            let steps = plan(seed, 40, 5, &Timing::default());
            assert_eq!(steps, plan(seed, 40, 5, &Timing::default()));
            assert_eq!(steps.iter().map(|step| step.faults.len()).sum::<usize>(), 40);
            assert_eq!(kinds(&steps), 15, "a short pause and a long one have one name");
            assert!(steps.last().is_some_and(|step| step.settle));
        }
        assert_ne!(plan(1, 40, 5, &Timing::default()), plan(2, 40, 5, &Timing::default()));
    }

    #[test]
    fn two_at_once_never_need_the_same_thing() {
        let kill = |node| Fault::Kill { node, down: Duration::ZERO };
        assert!(kill(0).goes_with(&kill(1)) && !kill(1).goes_with(&kill(1)));
        assert!(!Fault::Roll.goes_with(&kill(0)) && Fault::Roll.goes_with(&Fault::RedisFlush));
        let cut = Fault::Cut { node: 0, span: Duration::ZERO };
        assert!(cut.goes_with(&kill(0)) && !cut.goes_with(&cut));
        assert!(!Fault::ScriptFlush.goes_with(&Fault::RedisFlush));
    }
}
