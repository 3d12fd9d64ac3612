//! Sessions with the real thing: Playwright clients, Playwright servers under `skep worker`, two
//! gateways, and everything that dies in between.

mod clients;
mod pages;
mod watch;

use crate::common::{command, skep, until};
use clients::{Attempts, Clients};
use pages::Pages;
use rustix::process::{Pid, Signal, kill_process};
use skep_testkit::{Folder, Node, Postgres, Process, Redis, WebSocket, free_port};
use skep_testkit::{playwright, programs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use watch::Watch;

const SLOTS: usize = 2;
const LIFETIME_MAX: usize = 4;

/// Its browser tells every web server which start of which worker it is.
const LAUNCH_SERVER: &str = r"
const { chromium } = require('playwright-core');
const [executablePath, ...flags] = process.argv.slice(2);
chromium
    .launchServer({ executablePath, args: [...flags, `--user-agent=worker-${process.pid}`] })
    .then((server) => console.log(`listening on ${server.wsEndpoint()}`));
";

/// Two nodes, three workers, and the pages that clients look at.
struct Place {
    // First to be dropped: they say goodbye to the nodes.
    workers: Vec<Process>,
    a: Node,
    b: Node,
    redis: Redis,
    pages: Pages,
    start_b: Box<dyn Fn() -> Node>,
    modules: PathBuf,
    folder: Folder,
}

impl Place {
    fn new(database: &str) -> Self {
        let modules = playwright::require();
        let folder = Folder::new("playwright");
        let redis = Redis::start();
        let start = |name: &'static str| {
            let arguments = arguments(name, database, &redis.url());
            let data = folder.join(name);
            move || {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                Node::start(skep(), &data, &arguments)
            }
        };
        let (start_a, start_b) = (start("a"), start("b"));
        let (a, b) = (start_a(), start_b());
        std::fs::write(folder.join("launch-server.js"), LAUNCH_SERVER).expect("writes");
        let workers: Vec<Process> =
            (0..3).map(|number| worker(number, folder.path(), &modules, [&a, &b])).collect();
        workers.iter().for_each(|worker| drop(worker.wait_for_line("registered as")));
        let (start_b, pages) = (Box::new(start_b), Pages::start());
        Place { workers, a, b, redis, pages, start_b, modules, folder }
    }

    /// Starts clients that want `count` sessions, three at a time, from both gateways in turn.
    fn clients(&self, first: usize, count: usize, hold: Duration) -> Clients {
        let gateways = [self.a.gateway(), self.b.gateway()];
        let home = (self.folder.path(), &*self.modules);
        Clients::start(home, &gateways, &self.pages.url(), first..first + count, hold)
    }
}

fn arguments(name: &str, database: &str, redis: &str) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--database", database, "--coordination", redis].map(str::to_owned).to_vec();
    // The same ports after a restart, as a client's list of gateways has them.
    arguments.extend(["--listen".to_owned(), format!("127.0.0.1:{}", free_port())]);
    let settings = [
        format!("node.name={name}"),
        format!("gateway.listen=127.0.0.1:{}", free_port()),
        format!("sessions.slots={SLOTS}"),
        format!("sessions.lifetime_max={LIFETIME_MAX}"),
        "sessions.budget=1".to_owned(),
        "sessions.gateway_ttl=2s".to_owned(),
        "log.access=false".to_owned(),
    ];
    arguments.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
    arguments
}

fn worker(number: usize, folder: &Path, modules: &Path, nodes: [&Node; 2]) -> Process {
    let (name, chromium) = (format!("browser-{number}"), programs::require("chromium"));
    let mut command = command(folder, &["worker", "--kind", "chromium", "--url-from-stdout"]);
    command.args(["--version", playwright::VERSION, "--name", &name]);
    command.args(["--heartbeat-interval", "1s"]);
    for node in nodes {
        command.args(["--server", &node.url("")]);
    }
    command.arg("--").arg(programs::require("node")).arg("launch-server.js").arg(chromium);
    command.args(playwright::CHROMIUM_FLAGS).env("NODE_PATH", modules);
    Process::start(&name, &command, "TERM")
}

#[test]
fn browsers_wear_out_one_at_a_time_and_whoever_dies_takes_only_its_own_sessions_along() {
    let database = Postgres::shared().database();
    let mut place = Place::new(&database.url());
    let watch = Watch::start(&place.a);
    another_version_is_refused_at_once(&place);

    let calm = place.clients(0, 14, Duration::ZERO).wait();
    assert_eq!(calm.failed(), [], "in good weather nobody fails");
    assert!(watch.recycled() >= 2, "14 sessions wear out workers: {}", watch.told());

    // Short enough for some to begin and long enough for some to be open in each of the next.
    let hold = Duration::from_millis(700);
    let clients = place.clients(100, 6, hold);
    clients.wait_for_open_at(place.b.gateway());
    place.b.process().kill();
    let without_b = clients.wait();
    assert!(!without_b.failed().is_empty(), "sessions of a killed gateway end");
    let of_b = |failed: &&clients::Failed| failed.gateway == place.b.gateway();
    let others: Vec<_> = without_b.failed().iter().filter(|failed| !of_b(failed)).collect();
    assert!(others.is_empty(), "and nobody else's: {others:?}");
    until("the dead gateway's sessions are taken back", || watch.active() == 0);
    place.b = (place.start_b)();

    let clients = place.clients(200, 5, hold);
    let victim = skep_testkit::eventually("a worker has a session", || place.pages.busiest());
    kill_process(Pid::from_raw(victim).expect("is not zero"), Signal::KILL).expect("it runs");
    let without_worker = clients.wait();
    let failed = without_worker.failed();
    assert!((1..=SLOTS).contains(&failed.len()), "only what it carried fails: {failed:?}");
    until("a new program has taken its place", || watch.standing("ready") == 3);
    for (start, sessions) in place.pages.sessions() {
        assert!(sessions.len() <= LIFETIME_MAX, "worker {start} served {sessions:?}");
    }

    redis_is_restarted_under_open_sessions(&mut place, hold);
    until("nothing is left", || watch.active() == 0 && open_sessions(&place.a) == 0);
    until("everybody is well", || watch.standing("ready") == 3);
    assert!(place.pages.most_at_once() <= SLOTS, "no browser ever had more than its slots");
    assert_eq!(watch.trouble(), BTreeSet::new());
    assert!(watch.recycled() >= 4, "{}", watch.told());
    println!("{}", watch.told());
    place.workers.iter().for_each(|worker| worker.signal(Signal::TERM));
    for worker in &place.workers {
        assert_eq!(worker.wait().code, 0, "{}", worker.log());
    }
}

fn another_version_is_refused_at_once(place: &Place) {
    let agent = [("User-Agent", "Playwright/1.65.0 (x64; debian 12) node/20.0")];
    // The machine may be busy; a gateway that made such a client wait would do so each time.
    let tries = (0..5).map(|_| {
        let begun = Instant::now();
        let refused = WebSocket::connect(place.a.gateway(), "/", &agent);
        assert_eq!(refused.status(), 404);
        let (took, refusal) = (begun.elapsed(), refused.refusal());
        assert_eq!(refusal["code"], "E_WORKERS_UNFIT");
        let detail = refusal["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("1.65") && detail.contains("1.62"), "{detail}");
        took
    });
    let fastest = tries.min().expect("there were some");
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
}

/// What is open goes on; who comes while nobody knows any worker tries again.
fn redis_is_restarted_under_open_sessions(place: &mut Place, hold: Duration) {
    let clients = place.clients(300, 6, hold);
    clients.wait_for_open_at(place.a.gateway());
    let open_before = clients.attempts().open();
    place.redis.kill();
    place.redis.start_again();
    let attempts: Attempts = clients.wait();
    let failed: BTreeSet<usize> = attempts.numbers_that_failed();
    let cut: Vec<_> = failed.intersection(&open_before).collect();
    assert!(cut.is_empty(), "these were open and were cut: {cut:?}: {:?}", attempts.failed());
}

fn open_sessions(node: &Node) -> usize {
    node.get("/api/v1/sessions").json()["sessions"].as_array().map_or(usize::MAX, Vec::len)
}
