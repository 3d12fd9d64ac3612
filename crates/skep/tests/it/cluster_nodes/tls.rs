//! Nodes with certificates, and whom they forward to.

use crate::common::{command, skep, until};
use serde_json::Value;
use skep_testkit::certificates::Authority;
use skep_testkit::{Folder, Node, Postgres, TestDatabase};

/// Files of certificates, and nodes that have them.
struct Place {
    folder: Folder,
    database: TestDatabase<'static>,
}

impl Place {
    /// Everything here is certified by the authority of `ca.pem`.
    fn new() -> Self {
        let place = Place { folder: Folder::new("tls"), database: Postgres::shared().database() };
        let ours = Authority::new();
        let own = ours.sign("127.0.0.1", 30);
        let strangers = Authority::new();
        for (name, text) in [
            ("ca.pem", ours.pem()),
            ("strangers.pem", strangers.pem()),
            ("cert.pem", &own.certificate),
            ("key.pem", &own.key),
        ] {
            std::fs::write(place.folder.join(name), text).expect("writes");
        }
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A node that believes those whom this file names.
    fn start(&self, name: &str, trusted: &str) -> Node {
        let settings = [
            format!("node.name={name}"),
            format!("api.tls_certificate={}", self.path("cert.pem")),
            format!("api.tls_key={}", self.path("key.pem")),
            format!("cluster.ca={}", self.path(trusted)),
            "cluster.listen=127.0.0.1:0".to_owned(),
            "cluster.heartbeat=200ms".to_owned(),
        ];
        let url = self.database.url();
        let mut arguments = vec!["--database", &url];
        arguments.extend(settings.iter().flat_map(|one| ["--set", one]));
        Node::start(skep(), &self.folder.join(name), &arguments)
    }

    /// Runs a verb against a node; what it says, and how it ended.
    fn ask(&self, node: &Node, arguments: &[&str]) -> (Value, i32) {
        let url = format!("https://{}", node.address());
        let mut asking =
            command(self.folder.path(), &[arguments, &["--json", "--url", &url]].concat());
        asking.env("SSL_CERT_FILE", self.path("ca.pem")).env_remove("SSL_CERT_DIR");
        let output = asking.output().expect("runs");
        let said = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (said, output.status.code().unwrap_or(-1))
    }

    /// What a node says about another.
    fn server(&self, node: &Node, name: &str) -> Value {
        let (balance, _) = self.ask(node, &["cluster", "balance"]);
        let servers = balance["servers"].as_array().cloned().unwrap_or_default();
        servers.into_iter().find(|one| one["server_id"] == name).unwrap_or_default()
    }

    /// A queue whose pops by the group `g` the node would send to this one.
    fn queue_of(&self, node: &Node, name: &str) -> String {
        let mut named = (0..200).map(|number| format!("q{number}"));
        let of_it = |queue: &String| {
            let (said, _) = self.ask(node, &["cluster", "explain", &format!("{queue}:g")]);
            said["place"] == name
        };
        named.find(of_it).expect("it has one")
    }

    /// Pops a message that was pushed; its payload.
    fn pop(&self, node: &Node, queue: &str) -> Value {
        let pop = ["pop", queue, "--group", "g", "--from", "all", "--wait", "20", "--ack"];
        let (said, code) = self.ask(node, &pop);
        assert_eq!(code, 0, "{said}");
        said["messages"][0]["data"].clone()
    }
}

#[test]
fn nodes_with_certificates_forward_to_those_whom_they_trust_and_to_nobody_else() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.start(name, "ca.pem"));
    for (node, other) in [(&a, "b"), (&b, "a")] {
        until("they are healthy for each other", || place.server(node, other)["healthy"] == true);
    }
    let queue = place.queue_of(&a, "b");
    assert_eq!(place.ask(&a, &["push", &queue, "1"]).1, 0);
    assert_eq!(place.pop(&a, &queue), 1);
    let seen = place.server(&a, "b");
    assert_eq!(seen["url"], format!("https://{}", b.address()));
    assert!(seen["forwarded"].as_u64() > Some(0), "{seen}");
    assert_eq!(seen["fell_back"], 0);

    // It has a certificate of the same authority, which it does not trust itself.
    let doubter = place.start("doubter", "strangers.pem");
    until("it has heard of them", || place.server(&doubter, "b")["url"] == seen["url"]);
    let queue = place.queue_of(&doubter, "b");
    assert_eq!(place.ask(&a, &["push", &queue, "2"]).1, 0);
    assert_eq!(place.pop(&doubter, &queue), 2, "it is served all the same");
    let refused = place.server(&doubter, "b");
    assert_eq!(refused["forwarded"], 0, "{refused}");
    assert!(refused["fell_back"].as_u64() > Some(0), "{refused}");
}

#[test]
fn a_file_of_authorities_that_cannot_be_read_is_told_at_the_start() {
    let place = Place::new();
    let arguments = [
        "serve",
        "--database",
        &place.database.url(),
        "--data",
        &place.path("data"),
        "--listen",
        "127.0.0.1:0",
        "--set",
        "gateway.listen=127.0.0.1:0",
        "--set",
        "cluster.ca=/nowhere/ca.pem",
    ];
    let (ended, log) = crate::common::run(place.folder.path(), &arguments);
    assert_ne!(ended.code, 0, "{log}");
    assert!(log.contains("cluster.ca") && log.contains("/nowhere/ca.pem"), "{log}");
}
