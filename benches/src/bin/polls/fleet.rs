//! Fleets of real nodes: lateness, handover, failover.

use crate::Outcome;
use crate::target::{Seen, Target};
use rustix::process::Signal;
use serde_json::json;
use skep::report::Report;
use skep_testkit::{Folder, Node, Postgres, Redis, TestDatabase, eventually, pause};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);

/// Nodes over one database.
pub struct Fleet {
    pub nodes: Vec<Node>,
    database: TestDatabase<'static>,
    coordination: Option<String>,
    folder: Folder,
    more: Vec<String>,
    started: usize,
}

impl Fleet {
    /// Starts nodes, and waits until they take work.
    pub fn start(redis: Option<&Redis>, count: usize, more: &[&str]) -> Self {
        let mut fleet = Fleet {
            nodes: Vec::new(),
            database: Postgres::shared().database(),
            coordination: redis.map(Redis::url),
            folder: Folder::new("polls"),
            more: more.iter().map(ToString::to_string).collect(),
            started: 0,
        };
        for _ in 0..count {
            fleet.add();
        }
        fleet
    }

    /// Starts one more node.
    pub fn add(&mut self) {
        self.started += 1;
        let name = format!("node-{}", self.started);
        let set_name = format!("node.name={name}");
        let url = self.database.url();
        let mut arguments = vec!["--database", &url, "--set", &set_name];
        arguments.extend(["--set", "log.access=false"]);
        if let Some(redis) = &self.coordination {
            arguments.extend(["--coordination", redis]);
        }
        for setting in &self.more {
            arguments.extend(["--set", setting]);
        }
        self.nodes.push(Node::start(&skep_benches::skep(), &self.folder.join(&name), &arguments));
    }

    /// Waits until every endpoint has an owner, and every node its share.
    pub fn wait_until_shared(&self, endpoints: usize) {
        let fair = endpoints as f64 / self.nodes.len() as f64;
        eventually("every node has its share", || {
            let loads = loads(&self.nodes[0]);
            let even = loads.values().all(|load| *load as f64 >= 0.94 * fair - 1.0);
            (loads.values().sum::<usize>() == endpoints && loads.len() == self.nodes.len() && even)
                .then_some(())
        });
    }

    pub fn stop(self) {
        for node in &self.nodes {
            node.stop();
        }
    }
}

fn loads(node: &Node) -> HashMap<String, usize> {
    let nodes = node.get("/api/v1/nodes").json()["nodes"].as_array().cloned().unwrap_or_default();
    let load = |node: &serde_json::Value| {
        let name = node["name"].as_str().unwrap_or_default().to_owned();
        (name, node["owns"]["poll"].as_u64().unwrap_or(0) as usize)
    };
    nodes.iter().map(load).collect()
}

/// Adds endpoints in pieces that fit into a request.
pub fn import(node: &Node, count: usize, url: &str, interval: &str) -> Outcome<()> {
    let numbers: Vec<usize> = (0..count).collect();
    for piece in numbers.chunks(20_000) {
        let line = |number: &usize| {
            json!({ "id": format!("ep-{number:06}"), "url": url, "interval": interval,
                    "timeout": "5s" })
            .to_string()
        };
        let lines: Vec<String> = piece.iter().map(line).collect();
        let answer = node.send("POST", "/api/v1/polls/import", &[], Some(&lines.join("\n")));
        if answer.status != 200 {
            return Err(answer.body.into());
        }
    }
    Ok(())
}

/// A counter of a node, summed over its labels.
fn counter(node: &Node, name: &str) -> f64 {
    let text = node.get("/metrics").body;
    let values = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// 50,000 endpoints every ten seconds over three nodes, with everything on this machine.
pub fn lateness(report: &mut Report) -> Outcome<()> {
    const ENDPOINTS: usize = 50_000;
    let (redis, target) = (Redis::start(), Target::start(false)?);
    let fleet = Fleet::start(Some(&redis), 3, &[]);
    import(&fleet.nodes[0], ENDPOINTS, &target.url, "10s")?;
    fleet.wait_until_shared(ENDPOINTS);
    // Every endpoint has had its turn once.
    pause(2 * INTERVAL);
    let within = "skep_poll_late_seconds_bucket{le=\"0.05\"}";
    let sum = |name: &str| fleet.nodes.iter().map(|node| counter(node, name)).sum::<f64>();
    let bucket = || {
        let of = |node: &Node| {
            let text = node.get("/metrics").body;
            let line = text.lines().find_map(|line| line.strip_prefix(within).map(str::to_owned));
            line.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        fleet.nodes.iter().map(of).sum::<f64>()
    };
    let before = (bucket(), sum("skep_poll_late_seconds_count"), sum("skep_poll_missed_total"));
    let span = Duration::from_secs(60);
    let began = Instant::now();
    pause(span);
    let took = began.elapsed().as_secs_f64();
    let polls = sum("skep_poll_late_seconds_count") - before.1;
    report.figure("late_polls_per_second", polls / took);
    // Polls go on while the nodes are asked one after the other.
    let within = (bucket() - before.0) / polls;
    report.figure("late_within_50ms_percent", 100.0 * within.min(1.0));
    report.figure("late_missed_slots", sum("skep_poll_missed_total") - before.2);
    let sql = "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY late_us) / 1000 \
               FROM skep_poll_results WHERE at > (extract(epoch FROM now()) - 50) * 1000";
    let p99 = fleet.database.run(sql).trim().parse().unwrap_or(f64::NAN);
    report.figure("late_p99_ms", p99);
    fleet.stop();
    Ok(())
}

/// A node with 5,000 endpoints is stopped, and others are killed.
pub fn moves(report: &mut Report) -> Outcome<()> {
    const ENDPOINTS: usize = 15_000;
    let (redis, target) = (Redis::start(), Target::start(true)?);
    let mut fleet = Fleet::start(Some(&redis), 3, &["polls.identify=true"]);
    import(&fleet.nodes[0], ENDPOINTS, &target.url, "10s")?;
    fleet.wait_until_shared(ENDPOINTS);
    pause(2 * INTERVAL);
    target.take();

    let leaving = fleet.nodes.pop().ok_or("a node")?;
    let had = loads(&fleet.nodes[0]).values().copied().min().unwrap_or(0);
    pause(INTERVAL);
    let asked = Instant::now();
    leaving.process().signal(Signal::TERM);
    eventually("all has been handed over", || {
        let loads = loads(&fleet.nodes[0]);
        (loads.len() == 2 && loads.values().sum::<usize>() == ENDPOINTS).then_some(())
    });
    report.figure("stop_handed_over_ms", asked.elapsed().as_secs_f64() * 1e3);
    report.figure("stop_endpoints", had as f64);
    pause(INTERVAL + INTERVAL / 2);
    let seen = target.take();
    report.figure("stop_overlaps", overlaps(&seen) as f64);
    let longest = seen.values().flat_map(|polls| polls.windows(2).map(pause_between)).max();
    report.figure("stop_longest_pause_s", longest.unwrap_or_default().as_secs_f64());
    let holes = "SELECT count(*) FROM (SELECT slot - lag(slot) OVER (PARTITION BY number \
                 ORDER BY slot) AS step FROM skep_poll_results) AS steps WHERE step > 1";
    let missed: f64 = fleet.database.run(holes).trim().parse()?;
    report.figure("stop_missed_slots", missed);

    let mut slowest: f64 = 0.0;
    let mut overlapping = 0;
    for _ in 0..3 {
        fleet.add();
        fleet.wait_until_shared(ENDPOINTS);
        pause(Duration::from_secs(2));
        target.take();
        let victim = fleet.nodes.pop().ok_or("a node")?;
        let killed = Instant::now();
        victim.process().signal(Signal::KILL);
        eventually("the others have all", || {
            let loads = loads(&fleet.nodes[0]);
            (loads.len() == 2 && loads.values().sum::<usize>() == ENDPOINTS).then_some(())
        });
        slowest = slowest.max(killed.elapsed().as_secs_f64());
        overlapping += overlaps(&target.take());
    }
    report.figure("kill_new_owner_s_max", slowest);
    report.figure("kill_overlaps", overlapping as f64);
    fleet.stop();
    Ok(())
}

/// Polls of one endpoint by two nodes within less than half of its interval of each other: polls
/// take a moment and slots are an interval apart, so only two owners at once could do that.
fn overlaps(seen: &HashMap<String, Vec<Seen>>) -> usize {
    let close = |two: &[Seen]| {
        two[0].node != two[1].node && two[1].at.duration_since(two[0].at) < INTERVAL / 2
    };
    seen.values().map(|polls| polls.windows(2).filter(|two| close(two)).count()).sum()
}

fn pause_between(two: &[Seen]) -> Duration {
    two[1].at.duration_since(two[0].at)
}
