//! The whole of it: PostgreSQL, three nodes, agents that measure real targets, and what the
//! selection makes of targets, agents and accounts that change.

use crate::common::{command, skep, until};
use serde_json::{Value, json};
use skep_testkit::{Folder, Node, NtpManner, NtpServer, Postgres, Process, Receiver};
use std::collections::BTreeMap;

/// Short spans and few monitors, so that a test need not wait for long ones.
const SETTINGS: [&str; 21] = [
    "monitors.target_active=3",
    "monitors.target_testing=2",
    "monitors.globally_active_in_testing=1",
    "monitors.floor_active=2",
    "monitors.floor_testing=1",
    "monitors.samples_for_testing=2",
    "monitors.samples_for_active=4",
    "monitors.confirmations=2",
    // Round trips on a busy machine are no reason to replace anybody.
    "monitors.better_by_points=1000",
    "monitors.review_unchanged=400ms",
    "monitors.review_changed=400ms",
    "monitors.review_check=100ms",
    "monitors.measure_active=500ms",
    "monitors.measure_testing=500ms",
    "monitors.measure_candidate=500ms",
    "monitors.look_back=8s",
    "monitors.silent_after=4s",
    "monitors.recheck_after=1s",
    "monitors.review_lease=20s",
    "monitors.samples_keep=1h",
    "log.access=false",
];
const SERVERS: [&str; 3] = ["clock", "clock-2", "web"];

/// Writes down every claim of a server: by whom, and whether somebody else had it at that moment.
const WATCH_CLAIMS: &str = "
    CREATE TABLE seen_claims (server TEXT, by TEXT, taken BOOLEAN);
    CREATE FUNCTION see_claim() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO seen_claims VALUES (NEW.id, NEW.claimed_by,
            OLD.claimed_by IS NOT NULL AND OLD.claimed_until > NEW.claimed_until - 20000);
        RETURN NULL;
    END $$;
    CREATE TRIGGER see_claim AFTER UPDATE ON skep_monitor_servers
        FOR EACH ROW WHEN (NEW.token > OLD.token) EXECUTE FUNCTION see_claim();";

struct World {
    folder: Folder,
    nodes: Vec<Node>,
    admin: String,
    agents: BTreeMap<String, Process>,
}

impl World {
    fn start(database: &str) -> World {
        let folder = Folder::new("monitors");
        let start = |name: &str| {
            let set_name = format!("node.name={name}");
            let mut arguments = vec!["--database", database];
            for setting in SETTINGS.iter().copied().chain([set_name.as_str()]) {
                arguments.extend(["--set", setting]);
            }
            Node::start(skep(), &folder.path().join(name), &arguments)
        };
        let nodes = ["a", "b", "c"].map(start).into();
        let mut world = World { folder, nodes, admin: String::new(), agents: BTreeMap::new() };
        let key = world.post("/api/v1/keys", &json!({ "name": "admin", "scopes": ["admin"] }));
        world.admin = format!("Bearer {}", key["secret"].as_str().expect("a secret"));
        world
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string);
        let headers = [("authorization", self.admin.as_str())];
        let headers = if self.admin.is_empty() { &[][..] } else { &headers };
        let answer = self.nodes[0].send(method, path, headers, body.as_deref());
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.body);
        answer.json()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.send("POST", path, Some(body))
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, None)
    }

    /// Adds a monitor and starts its agent, which knows all nodes.
    fn add_monitor(&mut self, id: &str, account: &str, ip: &str) {
        let wish = json!({ "id": id, "account": account, "ip": ip, "status": "active" });
        let made = self.post("/api/v1/monitors", &wish);
        let key = made["key"].as_str().expect("a key").to_owned();
        let urls: Vec<String> = self.nodes.iter().map(|node| node.url("")).collect();
        let servers = urls.join(",");
        let flags = ["agent", "--server", &servers, "--report-interval", "1s"];
        let mut command = command(self.folder.path(), &flags);
        command.env("SKEP_API_KEY", &key);
        // A node hears of a new key within seconds.
        let bearer = format!("Bearer {key}");
        for node in &self.nodes {
            until("the node knows the key", || {
                let headers = [("authorization", bearer.as_str())];
                node.send("GET", "/api/v1/agent/assignments", &headers, None).status == 200
            });
        }
        self.agents.insert(id.to_owned(), Process::start(id, &command, "KILL"));
    }

    /// What each monitor is to a server.
    fn statuses(&self, server: &str) -> BTreeMap<String, String> {
        let page = self.get(&format!("/api/v1/servers/{server}/monitors"));
        let all = page["assignments"].as_array().cloned().unwrap_or_default();
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| (text(one, "monitor"), text(one, "status"))).collect()
    }

    fn with(&self, server: &str, status: &str) -> Vec<String> {
        let all = self.statuses(server).into_iter();
        all.filter(|(_, found)| found == status).map(|(monitor, _)| monitor).collect()
    }

    fn score(&self, server: &str) -> f64 {
        self.get(&format!("/api/v1/servers/{server}"))["score"].as_f64().unwrap_or_default()
    }

    /// The changes of a server, oldest first.
    fn history(&self, server: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/servers/{server}/history?limit=1000"));
        let mut changes = page["changes"].as_array().cloned().unwrap_or_default();
        changes.sort_by_key(|one| one["id"].as_i64());
        changes
    }

    /// Reviews of all nodes by their results.
    fn reviews(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for node in &self.nodes {
            let headers = [("authorization", self.admin.as_str())];
            let text = node.send("GET", "/metrics", &headers, None).body;
            for line in text.lines() {
                let Some(rest) = line.strip_prefix("skep_monitor_reviews_total{result=\"") else {
                    continue;
                };
                let (result, count) = rest.split_once("\"} ").expect("a result");
                let count: f64 = count.parse().expect("a number");
                *counts.entry(result.to_owned()).or_default() += count as u64;
            }
        }
        counts
    }
}

#[test]
fn the_selection_follows_targets_agents_and_accounts_that_change() {
    let database = Postgres::shared().database();
    let mut world = World::start(&database.url());
    database.run(WATCH_CLAIMS);
    let (clock, second) = (NtpServer::start(), NtpServer::start());
    let web = Receiver::start(0, &[200]);
    for account in ["acme", "b", "c", "d", "e"] {
        world.post("/api/v1/accounts", &json!({ "id": account }));
    }
    let targets = [("ntp", clock.address()), ("ntp", second.address()), ("http", web.url())];
    for (place, (id, (kind, target))) in SERVERS.iter().zip(targets).enumerate() {
        let probe = json!({ "kind": kind, "target": target, "timeout": "800ms" });
        let ip = format!("192.0.2.{}", place + 1);
        world.post("/api/v1/servers", &json!({ "id": id, "ip": ip, "probe": probe }));
    }

    // Two of one account and one of another are all there are, so they become active everywhere.
    world.add_monitor("m1", "acme", "10.1.0.1");
    world.add_monitor("m2", "acme", "10.2.0.1");
    world.add_monitor("m3", "b", "10.3.0.1");
    for server in SERVERS {
        until("three are active", || world.with(server, "active") == ["m1", "m2", "m3"]);
    }

    // Others come: they are on trial, and nobody makes room for them without a reason.
    for (id, account, ip) in [
        ("m4", "acme", "10.4.0.1"),
        ("m5", "c", "10.5.0.1"),
        ("m6", "d", "10.6.0.1"),
        ("m7", "e", "10.7.0.1"),
    ] {
        world.add_monitor(id, account, ip);
    }
    for server in SERVERS {
        until("two are in testing", || world.with(server, "testing").len() == 2);
        assert_eq!(world.with(server, "active"), ["m1", "m2", "m3"]);
    }
    until("the scores rise", || SERVERS.iter().all(|server| world.score(server) > 5.0));

    // A target goes bad: its score falls, and its monitors leave no further than the floor. The
    // others do not notice.
    clock.set(NtpManner { silent: true, ..NtpManner::default() });
    until("its score falls", || world.score("clock") < -10.0);
    let active = world.with("clock", "active").len();
    assert!((2..=3).contains(&active), "{active} are active on a server that is away");
    assert!(world.score("clock-2") > 5.0 && world.score("web") > 5.0);
    assert_eq!(world.with("web", "active"), ["m1", "m2", "m3"]);
    let page = world.get("/api/v1/servers/clock/samples?limit=5");
    assert_eq!(page["samples"][0]["error"], "timeout", "{page}");
    assert_eq!(page["samples"][0]["step"], -5.0, "{page}");
    clock.set(NtpManner::default());
    until("it recovers", || world.with("clock", "active").len() == 3);

    // An agent is killed: it is silent, leaves every server, and others take its place.
    let killed = world.agents.remove("m3").expect("an agent");
    killed.kill();
    for server in SERVERS {
        until("the silent one left", || {
            let statuses = world.statuses(server);
            let active = statuses.values().filter(|status| *status == "active").count();
            active == 3 && statuses["m3"] != "active"
        });
    }

    // An account may have one at a server only: the other leaves, and somebody else comes.
    let acme = ["m1", "m2", "m4"];
    let of_acme = |world: &World, server: &str, status: &str| {
        let found = world.with(server, status);
        found.iter().filter(|id| acme.contains(&id.as_str())).count()
    };
    let above = |world: &World| {
        SERVERS.into_iter().filter(|server| of_acme(world, server, "active") > 1).count()
    };
    assert!(above(&world) > 0, "somewhere the account has two, or nothing is to be seen");
    let flags = json!({ "flags": { "monitor_per_server_limit": 1 } });
    world.send("PUT", "/api/v1/accounts/acme", Some(&flags));
    for server in SERVERS {
        until("one is left, and three are active", || {
            let (active, testing) =
                (of_acme(&world, server, "active"), of_acme(&world, server, "testing"));
            active <= 1 && active + testing <= 2 && world.with(server, "active").len() == 3
        });
    }

    // What happened is one story for each monitor, and every node had its part in it.
    let mut reasons = 0;
    for server in SERVERS {
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        for change in world.history(server) {
            let text = |field: &str| change[field].as_str().unwrap_or_default().to_owned();
            let before = now.insert(text("monitor"), text("to"));
            assert_eq!(before.unwrap_or("candidate".to_owned()), text("from"), "{change}");
            reasons += usize::from(text("reason").contains("acme"));
        }
        let known = world.statuses(server);
        assert!(now.iter().all(|(monitor, status)| known[monitor] == *status), "{now:?} {known:?}");
    }
    assert!(reasons > 0, "the account is the reason of some change");
    let reviews = world.reviews();
    assert_eq!(reviews.get("fenced").copied().unwrap_or(0), 0, "{reviews:?}");
    assert_eq!(reviews.get("failed").copied().unwrap_or(0), 0, "{reviews:?}");
    let claims = |sql: &str| database.run(&format!("SELECT {sql} FROM seen_claims"));
    assert_eq!(claims("count(*) FILTER (WHERE taken)"), "0", "two reviews of one server at once");
    assert_eq!(claims("string_agg(DISTINCT by, ' ' ORDER BY by)"), "a b c", "each took part");
    let (claimed, done) = (claims("count(*)"), reviews.values().sum::<u64>());
    assert!(done > 20, "{done} of {claimed} claims: {reviews:?}");

    // A node is killed: agents and reviews go on at the others.
    let gone = world.nodes.remove(0);
    gone.process().kill();
    let last = |world: &World| {
        let page = world.get("/api/v1/servers/web/samples?limit=1");
        page["samples"][0]["at"].as_i64().unwrap_or_default()
    };
    let before = last(&world);
    until("samples go on", || last(&world) > before + 2_000);
    let reviewed = |world: &World| world.get("/api/v1/servers/web")["reviewed_at"].as_i64();
    let before = reviewed(&world);
    until("reviews go on", || reviewed(&world) > before);
    for agent in world.agents.values() {
        agent.signal(rustix::process::Signal::TERM);
    }
    for (id, agent) in &world.agents {
        assert_eq!(agent.wait().code, 0, "{id}: {}", agent.log());
    }
}
