//! Nodes find each other, and agree.

use super::kit::{NAMES, Trio};
use crate::common::until;
use serde_json::json;
use skep_testkit::Redis;

const KEYS: usize = 24;

/// Everybody names the same owner for every key, and sends it there.
fn check_that_all_agree(trio: &Trio) {
    let mut owned = [0; 3];
    for number in 0..KEYS {
        let queue = format!("agreed{number}");
        let said: Vec<String> = (0..3).map(|place| trio.explain(place, &queue, "g")).collect();
        assert!(said.iter().all(|one| *one == said[0]), "{queue}: {said:?}");
        let owner = NAMES.iter().position(|name| *name == said[0]).expect("is a node");
        owned[owner] += 1;
        // Asking for it is what shows it.
        let asked = number % 3;
        let path = format!("/api/v1/pop/queue/{queue}?consumerGroup=g");
        let answer = trio.get(asked, &path);
        assert_eq!(answer.status, 204, "{}", answer.body);
        assert_eq!(answer.header("x-served-by"), NAMES[owner], "{queue}");
        let by = if asked == owner { "" } else { NAMES[asked] };
        assert_eq!(answer.header("x-forwarded-by"), by, "{queue}");
        assert_eq!(answer.header("x-fallback"), "", "{queue}");
    }
    assert!(owned.iter().all(|keys| *keys > 0), "{owned:?}");
    for (place, name) in NAMES.into_iter().enumerate() {
        let balance = trio.balance(place);
        assert_eq!((&balance["here"], &balance["forwarding"]), (&json!(name), &json!("on")));
        let servers = balance["servers"].as_array().expect("servers");
        let names: Vec<&str> = servers.iter().filter_map(|one| one["server_id"].as_str()).collect();
        assert_eq!(names, NAMES, "in order");
        for (other, server) in servers.iter().enumerate() {
            assert_eq!(server["here"], json!(other == place));
            assert_eq!(server["url"], json!(format!("http://{}", trio.address(other))));
            assert_eq!(server["breaker"], json!("closed"));
            let score = server["load_score"].as_f64().expect("a number");
            assert!((0.0..=1.0).contains(&score), "{score}");
        }
        let answer = trio.get(place, "/health");
        assert_eq!(answer.header("x-served-by"), name, "on every answer");
    }
}

#[test]
fn nodes_of_one_database_find_each_other_and_agree_on_every_owner() {
    let trio = Trio::start(&[]);
    check_that_all_agree(&trio);
    for place in 0..3 {
        let status = trio.status(place);
        assert_eq!(status["signed"], json!(false));
        let peers = status["peers"].as_array().expect("peers");
        assert_eq!(peers.len(), 2, "{status}");
        assert!(peers.iter().all(|peer| peer["error"].is_null()), "{status}");
        let beats = &status["heartbeats"];
        assert!(
            beats["sent"].as_u64() > Some(0) && beats["received"].as_u64() > Some(0),
            "{beats}"
        );
        for why in ["forged", "replayed", "malformed", "version"] {
            assert_eq!(beats["rejected"][why], json!(0), "{beats}");
        }
    }
    // The same again from the address of a partition and of a task.
    for what in ["queue=q&partition=p&group=g", "namespace=n&task=t&group=g", "key=any"] {
        let place = |asked: usize| {
            let path = format!("/api/v1/cluster/explain?{what}");
            trio.get(asked, &path).json()["place"].as_str().map(str::to_owned)
        };
        let said = [place(0), place(1), place(2)];
        assert!(said[0].is_some() && said.iter().all(|one| *one == said[0]), "{said:?}");
    }
}

#[test]
fn nodes_that_coordinate_over_redis_and_sign_everything_agree_too() {
    let redis = Redis::start();
    let secret = "cluster.secret=correct horse battery staple";
    let trio = Trio::start_with(&[secret], &["--coordination", &redis.url()], false);
    check_that_all_agree(&trio);
    let status = trio.status(0);
    assert_eq!(status["signed"], json!(true));
    assert!(!status.to_string().contains("correct horse"), "{status}");
    // Nodes that are there go on knowing each other when nobody can be discovered any more.
    redis.kill();
    let before = trio.status(0)["heartbeats"]["received"].as_u64();
    until("heartbeats go on", || trio.status(0)["heartbeats"]["received"].as_u64() > before);
    assert_eq!(trio.balance(1)["servers"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_node_that_is_gone_gives_its_keys_to_others_and_gets_them_back() {
    let mut trio = Trio::start(&[]);
    let queue = trio.queue_of(1, "g");
    let kept: Vec<(String, usize)> = (0..KEYS)
        .map(|number| format!("kept{number}"))
        .map(|queue| (queue.clone(), trio.owner(&queue, "g")))
        .collect();
    trio.kill(1);
    until("its keys are elsewhere", || trio.owner(&queue, "g") != 1);
    until("the others agree", || trio.explain(0, &queue, "g") == trio.explain(2, &queue, "g"));
    for (queue, owner) in kept.iter().filter(|(_, owner)| *owner != 1) {
        assert_eq!(trio.owner(queue, "g"), *owner, "only its own keys moved");
    }
    trio.revive(1);
    trio.wait_until_together();
    until("it has its keys again", || {
        kept.iter().all(|(queue, owner)| trio.owner(queue, "g") == *owner)
    });
    let answer = trio.get(0, &format!("/api/v1/pop/queue/{queue}?consumerGroup=g"));
    assert_eq!(answer.header("x-served-by"), "b");
}
