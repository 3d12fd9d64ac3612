//! Three nodes of one database, each of which can be killed, stopped, started anew, or cut off.

use crate::common::{skep, until};
use serde_json::Value;
use skep_testkit::http::{self, Answer};
use skep_testkit::{Folder, Node, Postgres, Proxy, TestDatabase, free_port};
use std::time::Duration;

pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes. They keep their ports when they are started anew.
pub struct Trio {
    nodes: [Option<Node>; 3],
    ports: [u16; 3],
    /// What is between the nodes, if anything is.
    proxies: Vec<Proxy>,
    arguments: Vec<String>,
    pub folder: Folder,
    database: TestDatabase<'static>,
}

impl Trio {
    /// Nodes with these settings that know each other.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(settings, &[], false)
    }

    /// The same with these arguments.
    pub fn start_with(settings: &[&str], arguments: &[&str], proxied: bool) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let quick = ["log.access=false", "cluster.heartbeat=200ms", "cluster.dead_after=2s"];
        let settings = quick.iter().chain(settings).flat_map(|one| ["--set", one]);
        let arguments = settings.chain(arguments.iter().copied()).map(str::to_owned).collect();
        let mut trio = Trio {
            nodes: [None, None, None],
            ports,
            proxies: Vec::new(),
            arguments,
            folder: Folder::new("trio"),
            database: Postgres::shared().database(),
        };
        if proxied {
            // A node that says it is at another address of this machine is reached through what
            // listens there.
            let proxy = |(place, port): (usize, &u16)| {
                Proxy::start_at((&elsewhere(place), *port), ("127.0.0.1", *port))
            };
            trio.proxies = ports.iter().enumerate().map(proxy).collect();
        }
        (0..3).for_each(|place| trio.revive(place));
        trio.wait_until_together();
        trio
    }

    /// Nodes that reach each other's API through proxies only, see [`Trio::proxy`].
    pub fn proxied(settings: &[&str]) -> Self {
        Self::start_with(settings, &[], true)
    }

    /// Starts a node.
    pub fn revive(&mut self, place: usize) {
        let (url, listen) = (self.database.url(), self.address(place));
        let name = format!("node.name={}", NAMES[place]);
        let mut arguments = vec!["--database", &url, "--listen", &listen, "--set", &name];
        let (udp, advertise) = match self.proxies.is_empty() {
            true => ("cluster.listen=127.0.0.1:0".to_owned(), None),
            false => {
                let host = elsewhere(place);
                (format!("cluster.listen={host}:0"), Some(format!("cluster.advertise={host}")))
            }
        };
        arguments.extend(["--set", &udp]);
        if let Some(advertise) = &advertise {
            arguments.extend(["--set", advertise]);
        }
        arguments.extend(self.arguments.iter().map(String::as_str));
        let data = self.folder.join(&format!("n{place}"));
        self.nodes[place] = Some(Node::start(skep(), &data, &arguments));
    }

    /// The node, which must live.
    pub fn node(&self, place: usize) -> &Node {
        self.nodes[place].as_ref().expect("it lives")
    }

    /// Ends a node as a power cut would.
    pub fn kill(&mut self, place: usize) {
        self.nodes[place].take().expect("it lives").process().kill();
    }

    /// Waits for the end of a node that was told to stop.
    pub fn wait_for_end(&mut self, place: usize) {
        let node = self.nodes[place].take().expect("it lives");
        let ended = node.process().wait();
        assert_eq!(ended.code, 0, "{}", node.process().log());
    }

    /// What is in front of a node for the other nodes.
    pub fn proxy(&self, place: usize) -> &Proxy {
        &self.proxies[place]
    }

    /// Where clients reach a node, living or not.
    pub fn address(&self, place: usize) -> String {
        format!("127.0.0.1:{}", self.ports[place])
    }

    pub fn get(&self, place: usize, path: &str) -> Answer {
        self.node(place).get(path)
    }

    pub fn post(&self, place: usize, path: &str, body: &Value) -> Answer {
        self.node(place).send("POST", path, &[], Some(&body.to_string()))
    }

    /// Pushes one message with this payload and expects it to work.
    pub fn push(&self, place: usize, queue: &str, payload: &str) -> Answer {
        let body = serde_json::json!({ "items": [{ "queue": queue, "payload": payload }] });
        let answer = self.post(place, "/api/v1/push", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer
    }

    /// Pops on another thread, with this much time.
    pub fn pop_later(
        &self,
        place: usize,
        path: &str,
        limit: Duration,
    ) -> std::thread::JoinHandle<Result<Answer, String>> {
        let url = format!("http://{}/api/v1/pop/queue/{path}", self.address(place));
        std::thread::spawn(move || http::send_within(limit, "GET", &url, &[], None))
    }

    /// What a node says about the cluster.
    pub fn balance(&self, place: usize) -> Value {
        self.get(place, "/api/v1/cluster/balance").json()
    }

    pub fn status(&self, place: usize) -> Value {
        self.get(place, "/api/v1/cluster/status").json()
    }

    /// What `place` says about `other`.
    pub fn server(&self, place: usize, other: usize) -> Value {
        let servers = self.balance(place)["servers"].as_array().cloned().expect("servers");
        let found = servers.into_iter().find(|one| one["server_id"] == NAMES[other]);
        found.unwrap_or_default()
    }

    /// Where `place` would send a pop of this queue and group.
    pub fn explain(&self, place: usize, queue: &str, group: &str) -> String {
        let path = format!("/api/v1/cluster/explain?queue={queue}&group={group}");
        self.get(place, &path).json()["place"].as_str().expect("a place").to_owned()
    }

    /// Whose key this is, as the first node that lives says.
    pub fn owner(&self, queue: &str, group: &str) -> usize {
        let asked = self.living().next().expect("one lives");
        let owner = self.explain(asked, queue, group);
        NAMES.iter().position(|name| *name == owner).expect("is one of them")
    }

    /// A queue whose pops by this group belong to `place`.
    pub fn queue_of(&self, place: usize, group: &str) -> String {
        let named = (0..200).map(|number| format!("q{number}"));
        let mut owned = named.filter(|queue| self.owner(queue, group) == place);
        owned.next().expect("everybody has one")
    }

    pub fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..3).filter(|place| self.nodes[*place].is_some())
    }

    /// Waits until all that live see each other well.
    pub fn wait_until_together(&self) {
        let count = self.living().count();
        for place in self.living() {
            until("everybody is healthy for everybody", || {
                let servers = self.balance(place)["servers"].as_array().cloned();
                let healthy = |one: &&Value| one["healthy"] == true;
                servers.unwrap_or_default().iter().filter(healthy).count() == count
            });
        }
    }

    /// A number of `/metrics`, or 0; all that begin so together.
    pub fn metric(&self, place: usize, name: &str) -> u64 {
        let text = self.get(place, "/metrics").body;
        let lines = text.lines().filter(|line| line.starts_with(name));
        let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        numbers.sum::<f64>() as u64
    }

    /// What the database has of a partition and the lane of the load's group, and its time.
    pub fn lane(&self, queue: &str, partition: &str) -> String {
        self.database.run(&format!(
            "SELECT json_build_object(
                 'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                 'partition', row_to_json(p), 'lane', row_to_json(l),
                 'segments', (SELECT json_agg(json_build_array(s.first, s.count, s.at))
                              FROM (SELECT * FROM skep_queue_segments WHERE partition = p.id
                                    ORDER BY first DESC LIMIT 4) s),
                 'dead', (SELECT count(*) FROM skep_queue_dead d WHERE d.partition = p.id))
             FROM skep_queues q
             JOIN skep_queue_partitions p ON p.queue = q.id AND p.name = '{partition}'
             LEFT JOIN skep_queue_groups g ON g.queue = q.id AND g.name = 'g' AND NOT g.deleted
             LEFT JOIN skep_queue_lanes l ON l.partition = p.id AND l.grp = g.id
             WHERE q.name = '{queue}' AND NOT q.deleted"
        ))
    }

    /// What the nodes do in the database: who waits for whom, and since when.
    pub fn sessions(&self) -> String {
        self.database.run(
            "SELECT pid, state, wait_event, pg_blocking_pids(pid), now() - xact_start,
                    left(regexp_replace(query, '\\s+', ' ', 'g'), 90)
             FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
    }

    /// Partitions of a queue that somebody has leased.
    pub fn leased(&self, place: usize, queue: &str) -> u64 {
        let answer = self.get(place, &format!("/api/v1/resources/queues/{queue}"));
        if answer.status == 404 {
            return 0;
        }
        let groups = answer.json()["consumerGroups"].as_array().cloned().unwrap_or_default();
        groups.iter().filter_map(|group| group["leasedPartitions"].as_u64()).sum()
    }
}

/// Another address of this machine, for each node its own.
fn elsewhere(place: usize) -> String {
    format!("127.0.0.{}", place + 2)
}

/// The payloads of what was popped.
pub fn payloads(answer: &Answer) -> Vec<String> {
    if answer.status == 204 {
        return Vec::new();
    }
    let messages = answer.json()["messages"].as_array().cloned().unwrap_or_default();
    messages.iter().filter_map(|one| one["data"].as_str().map(str::to_owned)).collect()
}
