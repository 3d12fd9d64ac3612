//! What is done to nodes and servers, in an order that follows from a seed.

use super::nodes::{GATEWAY_TTL, NODES, Nodes, Wire};
use super::upstreams::{self, Manner};
use super::weather::{Leave, Who};
use rustix::process::Signal;
use skep_policy::{Chance, SeededChance};
use skep_testkit::pause;
use std::fmt;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A node is killed (SIGKILL) and started again.
    Kill,
    /// A node stands still (SIGSTOP) and goes on.
    Pause,
    /// A node drains (SIGTERM) and is started again.
    Drain,
    /// Every node in turn drains and is started again.
    Roll,
    /// A node's wire to the database is cut.
    CutDatabase,
    /// A node's wire to Redis is cut.
    CutRedis,
    /// The wire on which the others reach a node is cut.
    CutPeers,
    /// What a node and the database tell each other comes late.
    SlowDatabase,
    /// Redis is killed and starts again empty.
    RedisRestart,
    /// Redis is told to forget everything.
    RedisFlush,
    /// Redis answers nobody.
    RedisPause,
    /// Every connection to PostgreSQL is ended.
    PostgresDisconnect,
    /// PostgreSQL is killed and starts again.
    PostgresRestart,
    /// A server that a route leads to ends and comes back.
    UpstreamEnd,
    /// A server that a route leads to answers late or not at all.
    UpstreamSlow,
    /// All servers of a route end and come back.
    UpstreamsAway,
}

/// What only one fault at a time may have: so two nodes of three are always left, and one of the
/// two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// A node or its wires.
    Node,
    /// A server that all nodes use.
    Server,
    /// What routes lead to.
    Upstream,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 16] = [
        Kind::Kill,
        Kind::Pause,
        Kind::Drain,
        Kind::Roll,
        Kind::CutDatabase,
        Kind::CutRedis,
        Kind::CutPeers,
        Kind::SlowDatabase,
        Kind::RedisRestart,
        Kind::RedisFlush,
        Kind::RedisPause,
        Kind::PostgresDisconnect,
        Kind::PostgresRestart,
        Kind::UpstreamEnd,
        Kind::UpstreamSlow,
        Kind::UpstreamsAway,
    ];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::Drain => "drain",
            Kind::Roll => "roll",
            Kind::CutDatabase => "cut-database",
            Kind::CutRedis => "cut-redis",
            Kind::CutPeers => "cut-peers",
            Kind::SlowDatabase => "slow-database",
            Kind::RedisRestart => "redis-restart",
            Kind::RedisFlush => "redis-flush",
            Kind::RedisPause => "redis-pause",
            Kind::PostgresDisconnect => "postgres-disconnect",
            Kind::PostgresRestart => "postgres-restart",
            Kind::UpstreamEnd => "upstream-end",
            Kind::UpstreamSlow => "upstream-slow",
            Kind::UpstreamsAway => "upstreams-away",
        }
    }

    /// The kind of that name.
    pub fn read(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What it needs for itself.
    pub fn concern(self) -> Concern {
        match self {
            Kind::RedisRestart
            | Kind::RedisFlush
            | Kind::RedisPause
            | Kind::PostgresDisconnect
            | Kind::PostgresRestart => Concern::Server,
            Kind::UpstreamEnd | Kind::UpstreamSlow | Kind::UpstreamsAway => Concern::Upstream,
            _ => Concern::Node,
        }
    }

    /// Whether it needs a PostgreSQL or a Redis of one's own.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            Kind::RedisRestart | Kind::RedisFlush | Kind::RedisPause => Some("redis"),
            Kind::PostgresDisconnect | Kind::PostgresRestart => Some("postgres"),
            _ => None,
        }
    }

    /// Whether a node's process ends in it.
    fn ends(self) -> bool {
        matches!(self, Kind::Kill | Kind::Drain | Kind::Roll)
    }
}

/// How a wire is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Connections end, and no new ones are made.
    Ends,
    /// Nothing arrives, and everything at once later.
    Silence,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// Which node, where it is about one.
    pub node: usize,
    /// Which server of a route, where it is about one.
    pub upstream: usize,
    /// How long it lasts, without what starting again takes.
    pub span: Duration,
    pub way: Way,
    /// A node that is not ended.
    pub spared: Option<usize>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, span, .. } = self;
        let node = format!("node-{}", self.node + 1);
        f.write_str(kind.name())?;
        match kind {
            Kind::Kill | Kind::Drain => write!(f, " {node}, back after {span:.1?}"),
            Kind::Pause | Kind::SlowDatabase => write!(f, " {node} for {span:.1?}"),
            Kind::CutDatabase | Kind::CutRedis | Kind::CutPeers => {
                let how = if self.way == Way::Ends { "ended" } else { "silent" };
                write!(f, " {node}, {how} for {span:.1?}")
            }
            Kind::RedisRestart | Kind::PostgresRestart => write!(f, ", back after {span:.1?}"),
            Kind::RedisPause => write!(f, " for {span:.1?}"),
            Kind::UpstreamEnd => {
                write!(f, " {}, back after {span:.1?}", upstreams::name(self.upstream))
            }
            Kind::UpstreamSlow => {
                let how = if self.way == Way::Ends { "late" } else { "silent" };
                write!(f, " {}, {how} for {span:.1?}", upstreams::name(self.upstream))
            }
            Kind::UpstreamsAway => {
                let route = upstreams::ROUTES[upstreams::route_of(self.upstream)];
                write!(f, " {route}, back after {span:.1?}")
            }
            Kind::Roll | Kind::RedisFlush | Kind::PostgresDisconnect => Ok(()),
        }
    }
}

/// Faults without end: in each round every kind once, in an order of its own.
pub struct Plan {
    chance: SeededChance,
    kinds: Vec<Kind>,
    round: Vec<Kind>,
}

impl Plan {
    /// The same seed and kinds give the same faults.
    pub fn new(seed: u64, kinds: &[Kind]) -> Self {
        Plan { chance: SeededChance::new(seed), kinds: kinds.to_vec(), round: Vec::new() }
    }

    /// The node whose process lives on when the others' do not, for its memory to be watched.
    pub fn spared(seed: u64) -> usize {
        (seed % NODES as u64) as usize
    }

    /// The next fault; nothing if there are no kinds. `sparing` is a node that is not ended.
    pub fn next(&mut self, sparing: Option<usize>) -> Option<Fault> {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
        }
        let last = self.round.len().checked_sub(1)?;
        let kind = self.round.swap_remove(self.chance.up_to(last as u64) as usize);
        let drawn = self.chance.up_to(NODES as u64 - 1) as usize;
        let node = match sparing {
            Some(spared) if kind.ends() && spared == drawn => (drawn + 1) % NODES,
            _ => drawn,
        };
        // Half of what lasts is over before anybody is called dead.
        let long = self.chance.up_to(1) == 1;
        let part = self.chance.up_to(1_000) as f64 / 1_000.0;
        let between = |low: f64, high: f64| Duration::from_secs_f64(low + (high - low) * part);
        let ttl = GATEWAY_TTL.as_secs_f64();
        let span = match kind {
            Kind::Kill | Kind::Drain => between(0.0, 2.0),
            Kind::RedisRestart | Kind::PostgresRestart => between(0.0, 2.0),
            Kind::SlowDatabase => between(1.0, 4.0),
            _ if long => between(1.1 * ttl, 1.5 * ttl),
            _ => between(0.2, 0.5 * ttl),
        };
        let way = if self.chance.up_to(1) == 1 { Way::Ends } else { Way::Silence };
        let upstream = self.chance.up_to(upstreams::COUNT as u64 - 1) as usize;
        Some(Fault { kind, node, upstream, span, way, spared: sparing })
    }
}

/// How late everything is on a slow wire.
const LATE: Duration = Duration::from_millis(40);
/// How late a server is that answers late.
const UPSTREAM_LATE: Duration = Duration::from_millis(800);
/// Between two nodes of a rolling restart.
const ROLL_REST: Duration = Duration::from_millis(500);

/// Does a fault, and returns when the last thing that was broken is there again.
///
/// # Errors
/// If a node did not end as it should.
///
/// # Panics
/// If something does not start again.
pub fn strike(nodes: &Nodes, fault: &Fault) -> Result<(), String> {
    let Fault { kind, node, span, .. } = *fault;
    let (place, servers) = (&nodes.place, nodes.servers());
    match kind {
        Kind::Kill => {
            place.set_down(node, true);
            place.weather.leaves(Who::Node(node), Leave::Killed);
            nodes.kill(node);
            pause(span);
            nodes.revive(node);
            place.weather.returns(Who::Node(node));
            place.set_down(node, false);
        }
        Kind::Drain => renew(nodes, node, span)?,
        Kind::Roll => {
            for node in (0..NODES).filter(|node| Some(*node) != fault.spared) {
                renew(nodes, node, Duration::ZERO)?;
                pause(ROLL_REST);
            }
        }
        Kind::Pause => {
            place.set_down(node, true);
            place.weather.leaves(Who::Node(node), Leave::Paused);
            let _cut_off = CutOff::begin(nodes, span);
            nodes.signal(node, Signal::STOP);
            pause(span);
            place.weather.resumes();
            nodes.signal(node, Signal::CONT);
            place.weather.returns(Who::Node(node));
            place.set_down(node, false);
        }
        Kind::CutDatabase => {
            place.set_down(node, true);
            cut(nodes, fault, Wire::Database);
            place.set_down(node, false);
        }
        Kind::CutRedis => {
            place.set_down(node, true);
            let _cut_off = CutOff::begin(nodes, span);
            cut(nodes, fault, Wire::Redis);
            place.set_down(node, false);
        }
        // Its own clients notice nothing.
        Kind::CutPeers => cut(nodes, fault, Wire::Peers),
        Kind::SlowDatabase => {
            let wire = nodes.wire(node, Wire::Database);
            wire.delay(LATE);
            pause(span);
            wire.heal();
        }
        Kind::RedisRestart => {
            place.weather.forgotten();
            servers.restart_redis(span);
            place.weather.forgotten();
        }
        Kind::RedisFlush => {
            place.weather.forgotten();
            servers.flush_redis()?;
        }
        Kind::RedisPause => {
            let _cut_off = CutOff::begin(nodes, span);
            servers.pause_redis(span);
        }
        Kind::PostgresDisconnect => {
            place.weather.leaves(Who::Database, Leave::Stopped);
            servers.disconnect_postgres();
            place.weather.returns(Who::Database);
        }
        Kind::PostgresRestart => {
            place.weather.leaves(Who::Database, Leave::Killed);
            servers.restart_postgres(span);
            place.weather.returns(Who::Database);
        }
        Kind::UpstreamEnd => {
            let one = || std::iter::once(fault.upstream);
            place.upstreams.set(one(), Manner::Gone)?;
            pause(span);
            place.upstreams.set(one(), Manner::Well)?;
        }
        Kind::UpstreamSlow => {
            let one = || std::iter::once(fault.upstream);
            let manner = match fault.way {
                Way::Ends => Manner::Slow(UPSTREAM_LATE),
                Way::Silence => Manner::Silent,
            };
            place.upstreams.set(one(), manner)?;
            pause(span);
            place.upstreams.set(one(), Manner::Well)?;
        }
        Kind::UpstreamsAway => {
            let route = upstreams::route_of(fault.upstream);
            let all = || upstreams::of_route(route);
            place.weather.leaves(Who::Route(route), Leave::Killed);
            place.upstreams.set(all(), Manner::Gone)?;
            pause(span);
            place.upstreams.set(all(), Manner::Well)?;
            place.weather.returns(Who::Route(route));
        }
    }
    Ok(())
}

/// A node drains, ends and comes back.
fn renew(nodes: &Nodes, node: usize, span: Duration) -> Result<(), String> {
    nodes.place.set_down(node, true);
    nodes.place.weather.leaves(Who::Node(node), Leave::Stopped);
    let drained = nodes.drain(node);
    pause(span);
    nodes.revive(node);
    nodes.place.weather.returns(Who::Node(node));
    nodes.place.set_down(node, false);
    drained.map_err(|why| format!("{}: {why}", nodes.name(node)))
}

fn cut(nodes: &Nodes, fault: &Fault, wire: Wire) {
    let wire = nodes.wire(fault.node, wire);
    match fault.way {
        Way::Ends => wire.cut(),
        Way::Silence => wire.freeze(),
    }
    pause(fault.span);
    wire.heal();
}

/// A gateway that is away from the table of sessions for so long that others may think it dead,
/// told before and after.
struct CutOff<'a>(Option<&'a Nodes>);

impl<'a> CutOff<'a> {
    fn begin(nodes: &'a Nodes, span: Duration) -> Self {
        // A beat may have been due at once.
        let nodes = (span >= GATEWAY_TTL / 3).then_some(nodes);
        nodes.inspect(|nodes| nodes.place.weather.cut_off());
        CutOff(nodes)
    }
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        self.0.inspect(|nodes| nodes.place.weather.cut_off());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn faults(seed: u64, count: usize, sparing: Option<usize>) -> Vec<Fault> {
        let mut plan = Plan::new(seed, &Kind::ALL);
        (0..count).filter_map(|_| plan.next(sparing)).collect()
    }

    #[test]
    fn a_seed_gives_the_same_faults_and_each_kind_once_a_round() {
        for seed in 0..100 {
            let round = faults(seed, Kind::ALL.len(), None);
            assert_eq!(round, faults(seed, Kind::ALL.len(), None));
            let kinds: HashSet<Kind> = round.iter().map(|fault| fault.kind).collect();
            assert_eq!(kinds.len(), Kind::ALL.len());
        }
        assert_ne!(faults(1, 16, None), faults(2, 16, None));
        assert_eq!(Plan::new(1, &[]).next(None), None);
    }

    #[test]
    fn a_spared_node_is_never_ended() {
        for fault in faults(7, 1_000, Some(1)).iter().filter(|fault| fault.kind.ends()) {
            assert!(fault.node != 1 && fault.spared == Some(1), "{fault}");
        }
        let paused = |fault: &Fault| fault.kind == Kind::Pause && fault.node == 1;
        assert!(faults(7, 1_000, Some(1)).iter().any(paused), "it is broken in other ways");
    }

    #[test]
    fn every_kind_has_a_name_that_is_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::read(kind.name()), Some(kind));
        }
        assert_eq!(Kind::read("earthquake"), None);
    }
}
