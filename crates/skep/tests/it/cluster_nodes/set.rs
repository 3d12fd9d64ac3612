//! Settings of the cluster on real processes.

use super::kit::{NAMES, Trio};
use super::waits::check_that_a_push_wakes_a_pop;
use crate::common::{command, run, skep, until};
use serde_json::json;
use skep_testkit::{Folder, Node, Postgres, Process};

#[test]
fn with_forwarding_off_everything_is_served_where_it_comes_and_wakes_go_on() {
    let trio = Trio::start(&["cluster.forwarding=false"]);
    for number in 0..12 {
        let place = number % 3;
        let path = format!("/api/v1/pop/queue/q{number}?consumerGroup=g");
        let answer = trio.get(place, &path);
        assert_eq!(answer.header("x-served-by"), NAMES[place]);
        assert_eq!(answer.header("x-forwarded-by"), "");
    }
    // The client is at `a`, and so it waits there.
    check_that_a_push_wakes_a_pop(&trio, 0, "woken");
    for place in 0..3 {
        let balance = trio.balance(place);
        assert_eq!(balance["forwarding"], "off");
        assert_eq!(balance["flows"], json!([]));
        assert_eq!(trio.metric(place, "skep_cluster_forwarded_total"), 0);
    }
}

#[test]
fn the_embedded_database_and_a_list_of_peers_do_not_go_together() {
    let folder = Folder::new("alone");
    let data = folder.join("data");
    let data = data.to_str().expect("is text");
    let arguments = [
        "serve",
        "--data",
        data,
        "--listen",
        "127.0.0.1:0",
        "--set",
        "gateway.listen=127.0.0.1:0",
        "--set",
        "cluster.peers=127.0.0.1:6644,127.0.0.1:6654",
    ];
    let (ended, log) = run(folder.path(), &arguments);
    assert_eq!(ended.code, 64, "as other settings that cannot be: {log}");
    for part in ["cluster.peers", "2 other nodes", "--database postgres://"] {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
}

/// Two nodes set up with the old names alone: they find each other by the list, and one of them
/// forwards nothing.
#[test]
fn the_old_names_of_settings_work_on_a_real_node() {
    let (database, folder) = (Postgres::shared().database(), Folder::new("aliases"));
    let ports = [skep_testkit::free_port(), skep_testkit::free_port()];
    let start = |place: usize| {
        let (url, data) = (database.url(), folder.join(NAMES[place]));
        let name = format!("node.name={}", NAMES[place]);
        let arguments = [
            "serve",
            "--database",
            &url,
            "--data",
            data.to_str().expect("is text"),
            "--listen",
            "127.0.0.1:0",
            "--set",
            "gateway.listen=127.0.0.1:0",
            "--set",
            &name,
        ];
        let mut command = command(folder.path(), &arguments);
        let peer = format!("127.0.0.1:{}", ports[1 - place]);
        let port = ports[place].to_string();
        for (name, value) in [
            ("QUEEN_COORDINATOR_ENABLED", if place == 0 { "false" } else { "true" }),
            ("QUEEN_UDP_NOTIFY_PORT", &port),
            ("QUEEN_UDP_PEERS", &peer),
            ("QUEEN_SYNC_SECRET", "correct horse battery staple"),
            ("QUEEN_SYNC_HEARTBEAT_MS", "200"),
            ("QUEEN_SYNC_DEAD_THRESHOLD_MS", "2000"),
            ("QUEEN_COORDINATOR_TIMEOUT_MS", "4000"),
            ("QUEEN_COORDINATOR_FORWARD_THRESHOLD", "0.2"),
            ("QUEEN_AFFINITY_TTL_MS", "60000"),
            ("QUEEN_QUEUE_AFFINITY_THRESHOLD", "20"),
        ] {
            command.env(name, value);
        }
        assert_eq!(command.get_program(), skep());
        let mut node = Node::watch(Process::start("skep", &command, "KILL"));
        node.wait_until_ready();
        node
    };
    let nodes = [start(0), start(1)];
    for node in &nodes {
        until("they see each other", || {
            let balance = node.get("/api/v1/cluster/balance").json();
            balance["servers"]
                .as_array()
                .is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["healthy"] == true))
        });
    }
    let status = nodes.each_ref().map(|node| node.get("/api/v1/cluster/status").json());
    assert_eq!((&status[0]["forwarding"], &status[1]["forwarding"]), (&json!("off"), &json!("on")));
    for (place, status) in status.iter().enumerate() {
        assert_eq!(status["signed"], json!(true));
        assert_eq!(status["udp"], json!(format!("127.0.0.1:{}", ports[place])));
        let listed = format!("127.0.0.1:{}", ports[1 - place]);
        let peers = status["peers"].as_array().expect("peers");
        assert!(peers.iter().any(|peer| peer["address"] == json!(listed)), "{status}");
    }
    let pop = |node: &Node, number: usize| {
        let answer = node.get(&format!("/api/v1/pop/queue/q{number}?consumerGroup=g"));
        answer.header("x-served-by").to_owned()
    };
    assert!((0..20).all(|number| pop(&nodes[0], number) == "a"), "it forwards nothing");
    assert!((0..20).any(|number| pop(&nodes[1], number) == "a"), "it forwards");
}
