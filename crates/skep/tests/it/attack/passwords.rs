//! Passwords of the stores, right and wrong: a node and its commands tell them to nobody, however
//! much they are asked to tell.

use super::kit::{make_key, operations, raw};
use crate::common::{command, skep};
use skep_testkit::{Folder, Node, Postgres, Process, Redis, eventually};
use std::time::Duration;

// Each has a character that is written otherwise in an address, and is searched for as it is
// written, as it is, and by what follows that character.
const REDIS: &str = "pw-of-redis@7c31f0";
const POSTGRES: &str = "pw-of-postgres@55d2ab";
const WRONG: &str = "pw-of-nobody@90be17";

/// As it stands in an address.
fn escaped(password: &str) -> String {
    password.replace('@', "%40")
}

fn search(place: &str, text: &str) {
    for password in [REDIS, POSTGRES, WRONG] {
        let end = password.split('@').nth(1).expect("it has two halves");
        for secret in [password, &escaped(password), end] {
            let found = text.lines().find(|line| line.contains(secret));
            assert!(found.is_none(), "{secret} is in {place}: {}", found.unwrap_or_default());
        }
    }
}

/// A server that asks everybody but the superuser for a password, and a user with one.
fn guarded() -> Postgres {
    let server = Postgres::start_prepared(&[], |data| {
        let rules = "host all skep 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data.join("pg_hba.conf"), rules).expect("writes");
    });
    server.run("postgres", &format!("CREATE ROLE guarded LOGIN PASSWORD '{POSTGRES}'"));
    server.run("postgres", "CREATE DATABASE guarded OWNER guarded");
    server
}

#[test]
fn passwords_of_redis_and_postgres_are_told_to_nobody_whether_they_are_right_or_wrong() {
    let folder = Folder::new("attack-passwords");
    let (server, redis) = (guarded(), Redis::start_with_password(REDIS));
    let database = |password: &str| {
        format!("postgres://guarded:{}@127.0.0.1:{}/guarded", escaped(password), server.port())
    };
    let coordination = |password: &str| {
        format!("redis://:{}@127.0.0.1:{}/0", escaped(password), redis.address().1)
    };
    let settings = |postgres: &str, redis: &str| {
        let stores = ["--database", &database(postgres), "--coordination", &coordination(redis)];
        stores.map(str::to_owned).to_vec()
    };
    let run = |verb: &[&str], stores: &[String], more: &[&str]| {
        let stores = stores.iter().map(String::as_str);
        let words: Vec<&str> =
            verb.iter().copied().chain(stores).chain(more.iter().copied()).collect();
        let process = Process::start("skep", &command(folder.path(), &words), "KILL");
        let ended = process.wait_for(Duration::from_secs(30));
        if ended.is_none() {
            process.kill();
        }
        search(&verb.join(" "), &process.log());
        (ended.map(|ended| ended.code), process.log())
    };

    // Right ones, and everything that a node can be asked.
    let right = settings(POSTGRES, REDIS);
    let data = folder.join("data");
    let (_, admin) = make_key(&data, "admin", &["--database", &database(POSTGRES)]);
    let words: Vec<&str> = right.iter().map(String::as_str).collect();
    let node = Node::start(skep(), &data, &[&words[..], &["--set", "log.level=trace"]].concat());
    let bearer = format!("Bearer {admin}");
    let known = [("authorization", bearer.as_str())];
    let told = node.send("GET", "/api/v1/node", &known, None).body;
    assert!(told.contains("127.0.0.1") && told.contains("guarded"), "it tells where: {told}");
    for one in operations(&node).iter().filter(|one| one.method == "GET" && !one.is_stream()) {
        search(&one.path, &node.send("GET", &one.path, &known, None).body);
    }
    for verb in [&["status"][..], &["explain", "node"], &["nodes", "ls"], &["top", "--once"]] {
        let mut asked = command(folder.path(), verb);
        asked.env("SKEP_URL", node.url("")).env("SKEP_API_KEY", &admin);
        let process = Process::start("skep", &asked, "KILL");
        process.wait();
        search(&verb.join(" "), &process.log());
    }
    let (code, log) = run(&["config", "print"], &right, &[]);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("coordination"), "{log}");
    run(&["doctor"], &right, &[]);

    // They fail, and are wrong from then on.
    let change = format!(
        "AUTH {REDIS}\r\nCONFIG SET requirepass another\r\nCLIENT KILL TYPE pubsub\r\n\
         CLIENT KILL TYPE normal\r\nQUIT\r\n"
    );
    let changed = raw(&format!("127.0.0.1:{}", redis.address().1), change.as_bytes());
    assert!(changed.matches("+OK").count() >= 2, "{changed}");
    eventually("the node notices", || {
        let health = node.get("/health");
        search("health", &health.body);
        (health.status == 503).then_some(())
    });
    server.run("postgres", "ALTER ROLE guarded PASSWORD 'another'");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'";
    server.run("postgres", cut);
    eventually("the node is turned away", || {
        let body = r#"{"items":[{"queue":"a","payload":1}]}"#;
        let answer = node.send("POST", "/api/v1/push", &known, Some(body));
        search("push", &answer.body);
        (answer.status >= 500).then_some(())
    });
    for path in ["/health", "/metrics", "/api/v1/node", "/api/v1/overview", "/api/v1/log"] {
        search(path, &node.send("GET", path, &known, None).body);
    }
    node.process().kill();
    let log = node.process().log();
    assert!(log.contains("TRACE") && log.contains("redis"), "it has told what it does");
    search("the log", &log);
    drop(redis);

    // Wrong from the start.
    let redis = Redis::start_with_password("another");
    let wrong_redis = format!("redis://:{}@127.0.0.1:{}/0", escaped(WRONG), redis.address().1);
    let own = folder.join("other").display().to_string();
    let more = [
        "--data",
        &own,
        "--listen",
        "127.0.0.1:0",
        "--set",
        "log.level=trace",
        "--set",
        "gateway.enabled=false",
    ];
    for (stores, words) in [
        (vec!["--coordination".to_owned(), wrong_redis.clone()], "redis at"),
        (vec!["--database".to_owned(), database(WRONG)], "postgres at"),
    ] {
        let (code, log) = run(&["serve"], &stores, &more);
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {log}");
        assert!(log.contains(words), "{log}");
        let (code, log) = run(&["doctor"], &stores, &["--data", &own]);
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {log}");
    }
}
