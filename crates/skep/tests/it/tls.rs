//! The port with TLS: whom clients can trust, and certificates that change.

use crate::common::{command, run, skep};
use skep_testkit::certificates::{Authority, Certificate};
use skep_testkit::{Folder, Node, eventually};
use std::path::PathBuf;

struct Files {
    folder: Folder,
}

impl Files {
    fn new() -> Self {
        Files { folder: Folder::new("tls") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Puts a certificate in place the way deployments do: all at once.
    fn install(&self, certificate: &Certificate) {
        for (name, text) in [("key.pem", &certificate.key), ("cert.pem", &certificate.certificate)]
        {
            std::fs::write(self.path("new"), text).expect("writes");
            std::fs::rename(self.path("new"), self.path(name)).expect("renames");
        }
    }

    fn settings(&self) -> [String; 4] {
        let set = |key: &str, name: &str| format!("{key}={}", self.path(name).display());
        let (certificate, key) =
            (set("api.tls_certificate", "cert.pem"), set("api.tls_key", "key.pem"));
        ["--set".to_owned(), certificate, "--set".to_owned(), key]
    }

    fn start(&self) -> Node {
        let settings = self.settings();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Node::start(skep(), &self.path("data"), &settings)
    }

    /// Asks the node over TLS, trusting this authority alone.
    fn ask(&self, node: &Node, authority: &Authority) -> Result<serde_json::Value, String> {
        std::fs::write(self.path("trusted.pem"), authority.pem()).expect("writes");
        let url = format!("https://{}", node.address().replace("127.0.0.1", "localhost"));
        let mut asking = command(self.folder.path(), &["status", "--json", "--url", &url]);
        asking.env("SSL_CERT_FILE", self.path("trusted.pem")).env_remove("SSL_CERT_DIR");
        let output = asking.output().expect("runs");
        if output.status.success() {
            Ok(serde_json::from_slice(&output.stdout).expect("is JSON"))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

#[test]
fn clients_that_trust_its_authority_are_served_and_others_refuse() {
    let (files, ours, strangers) = (Files::new(), Authority::new(), Authority::new());
    files.install(&ours.sign("localhost", 30));
    let node = files.start();
    let status = files.ask(&node, &ours).expect("is trusted");
    assert!(status["certificate_expires_at"].as_str().is_some_and(|end| end.ends_with('Z')));
    let error = files.ask(&node, &strangers).expect_err("is not trusted");
    assert!(error.contains("certificate") || error.contains("UnknownIssuer"), "{error}");
    assert!(skep_testkit::http::get(&node.url("/health")).is_err(), "it does not speak plainly");
    assert_eq!(node.stop().code, 0);
}

#[test]
fn a_certificate_replaced_while_serving_is_used_and_a_bad_one_is_not() {
    let (files, old, new) = (Files::new(), Authority::new(), Authority::new());
    files.install(&old.sign("localhost", 5));
    let node = files.start();
    node.process().wait_for_line("ends in 4 days");
    files.ask(&node, &old).expect("the old one is served");
    files.install(&new.sign("localhost", 60));
    node.process().wait_for_line("the certificate was replaced");
    files.ask(&node, &new).expect("the new one is served");
    let other = new.sign("localhost", 60);
    std::fs::write(files.path("key.pem"), &other.key).expect("writes");
    node.process().wait_for_line("is not the one of the certificate");
    files.ask(&node, &new).expect("the last good one is served");
    files.install(&other);
    eventually("it recovers", || {
        (node.process().log().matches("the certificate was replaced").count() == 2).then_some(())
    });
    assert_eq!(node.stop().code, 0);
}

#[test]
fn files_that_do_not_fit_end_the_start_with_their_names() {
    let (files, authority) = (Files::new(), Authority::new());
    let (one, other) = (authority.sign("localhost", 5), authority.sign("localhost", 5));
    let settings = files.settings();
    let data = files.path("data").display().to_string();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", &data];
    let serve: Vec<&str> = serve.into_iter().chain(settings.iter().map(String::as_str)).collect();
    let attempt = |expected: &str| {
        let (ended, log) = run(files.folder.path(), &serve);
        assert_eq!(ended.code, 64, "{log}");
        assert!(log.contains(expected), "{log}");
    };
    attempt("cert.pem");
    files.install(&Certificate { certificate: one.certificate.clone(), key: other.key });
    attempt("is not the one of the certificate");
    files.install(&Certificate { certificate: "nothing".to_owned(), key: one.key.clone() });
    attempt("holds no certificate");
    files.install(&Certificate { certificate: one.certificate, key: "nothing".to_owned() });
    attempt("key.pem");
    let half = ["serve", "--data", &data, "--set", "api.tls_key=key.pem"];
    let (ended, log) = run(files.folder.path(), &half);
    assert_eq!(ended.code, 64);
    assert!(log.contains("`api.tls_key` needs `api.tls_certificate`"), "{log}");
}
