//! Nodes that share a database.

use serde_json::Value;
use skep_benches::Outcome;
use skep_testkit::{Folder, Node, Postgres, TestDatabase, eventually, http};
use std::time::{Duration, Instant};

pub const GROUP: &str = "group";

const NAMES: &[&str] = &["a", "b", "c"];

/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nodes of one database. Each knows all others once it is made.
pub struct Stage<'server> {
    nodes: Vec<Option<Node>>,
    settings: Vec<String>,
    folder: Folder,
    database: TestDatabase<'server>,
}

impl<'server> Stage<'server> {
    /// So many nodes with these settings, `name=value` each.
    pub fn start(server: &'server Postgres, count: usize, settings: &[&str]) -> Self {
        let quiet = ["log.access=false", "log.level=warn", "access_log.enabled=false"];
        let cluster = ["cluster.listen=127.0.0.1:0", "cluster.secret=known to all of the nodes"];
        let settings = quiet.iter().chain(&cluster).chain(settings);
        let mut stage = Stage {
            nodes: (0..count).map(|_| None).collect(),
            settings: settings.flat_map(|one| ["--set".to_owned(), one.to_string()]).collect(),
            folder: Folder::new("cluster"),
            database: server.database(),
        };
        (0..count).for_each(|place| stage.start_node(place));
        stage
    }

    /// Starts a node, and waits until all see each other.
    fn start_node(&mut self, place: usize) {
        let (url, name) = (self.database.url(), format!("node.name={}", NAMES[place]));
        let mut arguments = vec!["--database", &url, "--set", &name];
        arguments.extend(self.settings.iter().map(String::as_str));
        let data = self.folder.join(NAMES[place]);
        let node = Node::start(&skep_benches::skep(), &data, &arguments);
        self.nodes[place] = Some(node);
        let there: Vec<&Node> = self.nodes.iter().flatten().collect();
        for node in &there {
            eventually("every node sees all others", || {
                let servers = balance(node).ok()?["servers"].as_array()?.clone();
                let healthy = |server: &&Value| server["healthy"] == true;
                (servers.iter().filter(healthy).count() == there.len()).then_some(())
            });
        }
    }

    /// Ends a node at once, without a word to anybody.
    pub fn kill(&mut self, place: usize) {
        if let Some(node) = self.nodes[place].take() {
            node.process().kill();
        }
    }

    pub fn address(&self, place: usize) -> Outcome<String> {
        Ok(self.node(place)?.address().to_owned())
    }

    pub fn pids(&self) -> Vec<i32> {
        self.nodes.iter().flatten().map(|node| node.process().pid()).collect()
    }

    fn node(&self, place: usize) -> Outcome<&Node> {
        Ok(self.nodes[place].as_ref().ok_or("the node is not there")?)
    }

    /// Makes a queue whose pops belong to this node, and gives its name.
    pub fn queue_of(&self, place: usize, start: &str) -> Outcome<String> {
        let queue = self.owned(place, start, |name| format!("queue={name}"))?;
        self.make_queue(&queue)?;
        Ok(queue)
    }

    /// A partition of a queue whose pops belong to this node.
    pub fn partition_of(&self, place: usize, queue: &str) -> Outcome<String> {
        self.owned(place, "part", |name| format!("queue={queue}&partition={name}"))
    }

    /// A name with this start for which a pop, given its name as a query, belongs to this node.
    fn owned(&self, place: usize, start: &str, of: impl Fn(&str) -> String) -> Outcome<String> {
        let node = self.node(place)?;
        let mut names = (0..100).map(|number| format!("{start}-{number}"));
        let is_owned = |name: &String| {
            let path = format!("/api/v1/cluster/explain?{}&group={GROUP}&for=pop", of(name));
            node.get(&path).json()["place"] == NAMES[place]
        };
        let found = names.find(is_owned);
        found.ok_or_else(|| format!("node {} owns none of 100 names", NAMES[place]).into())
    }

    /// Makes a queue.
    pub fn make_queue(&self, queue: &str) -> Outcome<()> {
        let node = self.nodes.iter().flatten().next().ok_or("there is no node")?;
        let body = format!("{{\"queue\":\"{queue}\",\"options\":{{}}}}");
        let json = [("content-type", "application/json")];
        let answer = node.send("POST", "/api/v1/configure", &json, Some(&body));
        match answer.status {
            200..300 => Ok(()),
            status => Err(format!("configure: {status} {}", answer.body).into()),
        }
    }

    /// Waits until so many pops wait on a node.
    pub async fn wait_for_polls(&self, place: usize, count: u64) -> Outcome<()> {
        let node = self.node(place)?;
        let began = Instant::now();
        while polls(&balance(node)?) < Some(count) {
            if began.elapsed() > PATIENCE {
                return Err(format!("{count} pops should wait on node {}", NAMES[place]).into());
            }
            // Those that are to wait run on this thread.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// What all nodes have forwarded, and how often they served it themselves after all.
    pub fn forwarded(&self) -> Outcome<(u64, u64)> {
        let mut sums = (0, 0);
        for node in self.nodes.iter().flatten() {
            for server in balance(node)?["servers"].as_array().into_iter().flatten() {
                sums.0 += server["forwarded"].as_u64().unwrap_or(0);
                sums.1 += server["fell_back"].as_u64().unwrap_or(0);
            }
        }
        Ok(sums)
    }
}

/// The pops that wait on the node that was asked.
fn polls(balance: &Value) -> Option<u64> {
    balance["servers"].as_array()?.iter().find(|server| server["here"] == true)?["polls"].as_u64()
}

fn balance(node: &Node) -> Result<Value, String> {
    Ok(http::get(&node.url("/api/v1/cluster/balance"))?.json())
}
