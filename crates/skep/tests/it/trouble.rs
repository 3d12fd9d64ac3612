//! What can go wrong at start and later: a clear message, the right exit code, nothing harmed.

use crate::common::{run, skep};
use skep_testkit::{Folder, Node, Postgres, Process, Redis, eventually, free_port, programs};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `skep serve` that is expected to end by itself.
fn serve(folder: &Folder, more: &[&str]) -> (i32, String) {
    let data = folder.join("data").display().to_string();
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", &data];
    arguments.extend(more);
    let (ended, log) = run(folder.path(), &arguments);
    (ended.code, log)
}

#[test]
fn two_nodes_on_one_data_folder_are_refused_by_name() {
    let folder = Folder::new("trouble");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    let (code, log) = serve(&folder, &[]);
    assert_eq!(code, 75, "{log}");
    assert!(log.contains(&format!("in use by process {}", node.process().pid())), "{log}");
    assert!(log.contains("--data"), "{log}");
    assert_eq!(node.get("/health").status, 200);
}

#[test]
fn a_killed_node_leaves_no_lock_behind() {
    let folder = Folder::new("trouble");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    node.process().kill();
    Node::start(skep(), &folder.join("data"), &[]);
}

#[test]
fn a_busy_port_is_named_with_a_way_out() {
    let folder = Folder::new("trouble");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let data = folder.join("data").display().to_string();
    let (ended, log) = run(folder.path(), &["serve", "--listen", &address, "--data", &data]);
    assert_eq!(ended.code, 74, "{log}");
    assert!(log.contains(&address) && log.contains("--listen"), "{log}");
}

#[test]
fn a_data_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new("trouble");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).expect("ours");
    let data = folder.join("data").display().to_string();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data", &data];
    let command = crate::common::command(Path::new("/"), &arguments);
    let process = if rustix::process::geteuid().is_root() {
        // Root may write anywhere, and others may not look into root's folders.
        let copy = Folder::new("program");
        std::fs::copy(skep(), copy.join("skep")).expect("copies");
        let mut command = Command::new(copy.join("skep"));
        command.args(arguments);
        let process = Process::start_as("skep", &command, "KILL", "nobody");
        process.wait();
        process
    } else {
        Process::start("skep", &command, "KILL")
    };
    let (code, log) = (process.wait().code, process.log());
    assert_eq!(code, 74, "{log}");
    assert!(log.contains("cannot be written") && log.contains(&data), "{log}");
}

#[test]
fn a_disk_without_room_is_told_as_such() {
    let folder = Folder::new("trouble");
    let script = "mount -t tmpfs -o size=20k tmpfs \"$2\" || exit 99
        exec \"$1\" serve --listen 127.0.0.1:0 --data \"$2/data\"";
    let mut command = Command::new(programs::require("unshare"));
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(skep()).arg(folder.path());
    let process = Process::start("skep", &command, "KILL");
    let (code, log) = (process.wait().code, process.log());
    assert_eq!(code, 74, "{log}");
    assert!(log.contains("no space left"), "{log}");
}

#[test]
fn a_damaged_database_is_named_and_left_alone() {
    let folder = Folder::new("trouble");
    std::fs::create_dir(folder.join("data")).expect("makes");
    let path = folder.join("data").join("skep.db");
    std::fs::write(&path, "not a database ".repeat(1_000)).expect("writes");
    let (code, log) = serve(&folder, &[]);
    assert_eq!(code, 74, "{log}");
    assert!(log.contains("skep.db is damaged or not a Skep database"), "{log}");
    assert!(std::fs::read_to_string(&path).expect("reads").starts_with("not a database"));
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let folder = Folder::new("trouble");
    let node = Node::start(skep(), &folder.join("data"), &[]);
    assert_eq!(node.stop().code, 0);
    let database = rusqlite::Connection::open(folder.join("data").join("skep.db")).expect("opens");
    let newer = "INSERT INTO skep_migrations (part, number, name, checksum)
                 VALUES ('store', 99, '0099_future', 'x')";
    database.execute(newer, []).expect("inserts");
    drop(database);
    let (code, log) = serve(&folder, &[]);
    assert_eq!(code, 78, "{log}");
    assert!(log.contains("store schema 99") && log.contains("newer skep"), "{log}");
    let data = folder.join("data").display().to_string();
    let (ended, log) = run(folder.path(), &["migrate", "status", "--data", &data]);
    assert_eq!(ended.code, 78, "{log}");
}

#[test]
fn postgres_away_at_start_is_waited_for_and_away_later_is_told() {
    let folder = Folder::new("trouble");
    let mut server = Postgres::start();
    let url = format!("postgres://skep@127.0.0.1:{}/postgres", server.port());
    server.kill();
    let settings = ["--database", &url, "--set", "store.retry.cap=200ms"];
    let mut node = Node::start_unready(skep(), &folder.join("data"), &settings);
    let line = node.process().wait_for_line("cannot be reached");
    assert!(line.contains("trying again in") && line.contains("decision=d-"), "{line}");
    let health = node.get("/health");
    assert_eq!((health.status, health.json()["status"].clone()), (503, "starting".into()));
    assert!(health.json()["detail"].as_str().is_some_and(|text| text.contains("127.0.0.1")));
    server.start_again();
    node.wait_until_ready();
    let status = |node: &Node, wanted: &str| {
        eventually(wanted, || {
            let answer = node.get("/health");
            (answer.json()["status"] == wanted).then_some(answer)
        })
    };
    status(&node, "healthy");
    server.kill();
    let health = status(&node, "unhealthy");
    assert_eq!((health.status, health.json()["database"].clone()), (503, "disconnected".into()));
    server.start_again();
    status(&node, "healthy");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn redis_away_at_start_is_waited_for_and_away_later_is_told() {
    let folder = Folder::new("trouble");
    let mut server = Redis::start();
    server.kill();
    let settings = ["--coordination", &server.url(), "--set", "store.retry.cap=200ms"];
    let mut node = Node::start_unready(skep(), &folder.join("data"), &settings);
    node.process().wait_for_line("redis at");
    server.start_again();
    node.wait_until_ready();
    server.kill();
    eventually("unhealthy", || {
        let health = node.get("/health").json();
        (health["status"] == "unhealthy" && health["database"] == "connected").then_some(())
    });
    server.start_again();
    eventually("healthy", || (node.get("/health").status == 200).then_some(()));
}

#[test]
fn a_node_that_waits_for_its_database_stops_at_once() {
    let folder = Folder::new("trouble");
    let url = format!("postgres://skep@127.0.0.1:{}/none", free_port());
    let settings =
        ["--database", &url, "--set", "store.retry.base=1h", "--set", "store.retry.cap=1h"];
    let node = Node::start_unready(skep(), &folder.join("data"), &settings);
    node.process().wait_for_line("cannot be reached");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn a_node_that_waits_for_anothers_migration_stops_at_once() {
    let folder = Folder::new("trouble");
    let database = Postgres::shared().database();
    let mut other = Command::new(programs::require("psql"));
    let lock = "SELECT pg_advisory_lock(x'736b657000000001'::bigint)";
    other.args(["-X", "-q", "-d", &database.url(), "-c", lock, "-c", "SELECT 'locked'"]);
    other.args(["-c", "SELECT pg_sleep(600)"]);
    let other = Process::start("psql", &other, "KILL");
    other.wait_for_line("locked");
    let node = Node::start_unready(skep(), &folder.join("data"), &["--database", &database.url()]);
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("it waits for the lock", || (database.run(waiting) == "1").then_some(()));
    assert_eq!(node.stop().code, 0, "{}", node.process().log());
}

#[test]
fn a_wrong_password_ends_the_start_and_shows_nowhere() {
    let folder = Folder::new("trouble");
    let redis = Redis::start_with_password("right");
    let wrong = redis.url().replace("right", "hunter2");
    let (code, log) = serve(&folder, &["--coordination", &wrong, "--set", "log.level=trace"]);
    assert_eq!(code, 77, "{log}");
    assert!(log.contains("refuses the connection") && !log.contains("hunter2"), "{log}");
    let server = Postgres::shared();
    let missing = format!("postgres://skep:hunter2@127.0.0.1:{}/nowhere", server.port());
    let (code, log) = serve(&folder, &["--database", &missing, "--set", "log.level=trace"]);
    assert_eq!(code, 77, "{log}");
    assert!(log.contains("nowhere") && !log.contains("hunter2"), "{log}");
}

#[test]
fn ten_programs_that_migrate_one_postgres_at_once_all_succeed() {
    let folder = Folder::new("trouble");
    let database = Postgres::shared().database();
    let url = database.url();
    let programs: Vec<Process> = (0..10)
        .map(|number| {
            let data = folder.join(&format!("data-{number}")).display().to_string();
            let arguments = ["migrate", "up", "--database", &url, "--data", &data];
            Process::start("skep", &crate::common::command(folder.path(), &arguments), "KILL")
        })
        .collect();
    let mut applied = 0;
    for program in &programs {
        assert_eq!(program.wait().code, 0, "{}", program.log());
        applied += usize::from(program.log().contains("applied\n"));
    }
    assert_eq!(applied, 1, "one of them did it");
}
