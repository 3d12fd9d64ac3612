//! PostgreSQL when it is there, away, hostile and back.

use skep_store::{Outcome, Postgres, PostgresOptions, StoreError};
use skep_testkit::certificates::Authority;
use skep_testkit::{Proxy, eventually};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

fn connect(url: &str) -> Postgres {
    let options = PostgresOptions { connect_timeout: Duration::from_secs(2), ..Default::default() };
    Postgres::new(&url.parse().expect("an address"), &options).expect("a pool")
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable_and_found_when_it_is_back() {
    let mut server = skep_testkit::Postgres::start();
    let postgres = connect(&format!("postgres://skep@127.0.0.1:{}/postgres", server.port()));
    postgres.ask().await.expect("it is there");
    server.kill();
    // The pooled connection may first be found dead in the middle of a call.
    let _ = postgres.ask().await;
    let error = postgres.ask().await.expect_err("it is away");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    let health = postgres.health(Duration::from_secs(9)).await;
    assert!(!health.ok && health.error.is_some_and(|text| text.contains("cannot be reached")));
    server.start_again();
    postgres.ask().await.expect("it is back");
    assert!(postgres.health(Duration::from_secs(9)).await.ok);
}

#[tokio::test]
async fn what_only_a_person_can_mend_is_denied_without_showing_the_password() {
    let server = skep_testkit::Postgres::start_prepared(&[], |data| {
        let rules = "host all skep 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data.join("pg_hba.conf"), rules).expect("writes");
    });
    server.run("postgres", "CREATE ROLE ann LOGIN PASSWORD 'right'");
    let port = server.port();
    let good = connect(&format!("postgres://ann:right@127.0.0.1:{port}/postgres"));
    good.ask().await.expect("the password is right");
    for url in [
        format!("postgres://ann:hunter2@127.0.0.1:{port}/postgres"),
        format!("postgres://ann@127.0.0.1:{port}/postgres"),
        format!("postgres://skep@127.0.0.1:{port}/nowhere"),
        format!("postgres://skep@127.0.0.1:{port}/postgres?sslmode=require"),
    ] {
        let error = connect(&url).ask().await.expect_err(&url);
        assert!(matches!(error, StoreError::Denied { .. }), "{url}: {error}");
        assert!(!error.is_temporary() && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_in_the_middle_of_a_statement_is_an_unknown_outcome() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let proxy = Proxy::start(server.address());
    let postgres = connect(&database.url_through(proxy.port()));
    database.run("CREATE TABLE jars (honey INTEGER)");
    let client = postgres.client().await.expect("connects");
    let inserting = tokio::spawn(async move {
        let insert = "INSERT INTO jars SELECT 1 FROM pg_sleep(60)";
        client.batch_execute(insert).await.map_err(StoreError::from)
    });
    let name = database.name();
    let running = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = '{name}' AND state = 'active' AND query LIKE 'INSERT%'"
    );
    eventually("the statement runs", || (database.run(&running) == "1").then_some(()));
    proxy.cut();
    let error = inserting.await.expect("ends").expect_err("it was cut");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    proxy.heal();
    postgres.ask().await.expect("a new connection is made");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_within_the_limit() {
    let server = skep_testkit::Postgres::shared();
    let database = server.database();
    let proxy = Proxy::start(server.address());
    let options = PostgresOptions {
        connect_timeout: Duration::from_secs(2),
        statement_timeout: Duration::from_millis(500),
        ..Default::default()
    };
    let url = database.url_through(proxy.port()).parse().expect("an address");
    let postgres = Postgres::new(&url, &options).expect("a pool");
    let client = postgres.client().await.expect("it is there");
    proxy.freeze();
    let asked = std::time::Instant::now();
    let asking = async { client.simple_query("SELECT 1").await.map_err(StoreError::from) };
    let error = postgres.limit(asking).await.expect_err("nothing answers");
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    drop(client);
    let error = postgres.ask().await.expect_err("neither that connection nor a new one");
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(20));
    proxy.heal();
    postgres.ask().await.expect("it answers again");
}

#[tokio::test]
async fn a_statement_that_runs_too_long_is_refused_by_the_server() {
    let database = skep_testkit::Postgres::shared().database();
    let options =
        PostgresOptions { statement_timeout: Duration::from_millis(50), ..Default::default() };
    let url = database.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &options).expect("a pool");
    let client = postgres.client().await.expect("connects");
    let sleeping = client.batch_execute("SELECT pg_sleep(60)").await;
    let error = StoreError::from(sleeping.expect_err("the limit is 50 ms"));
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("statement timeout"), "{error}");
}

#[tokio::test]
async fn a_call_that_finds_every_connection_in_use_is_told_so() {
    let database = skep_testkit::Postgres::shared().database();
    let options = PostgresOptions {
        connections_max: 1,
        connect_timeout: Duration::from_millis(100),
        ..Default::default()
    };
    let url = database.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &options).expect("a pool");
    let mut held = postgres.client().await;
    while held.is_err() {
        // Connecting itself may take longer than this short limit on a busy machine.
        held = postgres.client().await;
    }
    let error = postgres.client().await.map(|_| ()).expect_err("the only one is held");
    assert!(error.to_string().contains("all 1 connections stayed in use"), "{error}");
}

#[tokio::test]
async fn certificates_are_checked_as_the_address_says() {
    let (ours, strangers) = (Authority::new(), Authority::new());
    let signed = ours.sign("localhost", 30);
    let files = skep_testkit::Folder::new("certificates");
    let (ours_file, strangers_file) = (files.join("ours.pem"), files.join("strangers.pem"));
    std::fs::write(&ours_file, ours.pem()).expect("writes");
    std::fs::write(&strangers_file, strangers.pem()).expect("writes");
    let settings = ["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
    let server = skep_testkit::Postgres::start_prepared(&settings, |data| {
        give(data, "server.pem", &signed.certificate);
        give(data, "server.key", &signed.key);
    });
    let base = format!("postgres://skep@localhost:{}/postgres", server.port());
    let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

    for query in ["", "?sslmode=require"] {
        let client = connect(&format!("{base}{query}")).client().await.expect("connects");
        assert!(client.query_one(encrypted, &[]).await.expect("asks").get::<_, bool>(0));
    }
    let verified = format!("{base}?sslmode=verify-full&sslrootcert={}", ours_file.display());
    connect(&verified).ask().await.expect("the authority is ours");

    let foreign = format!("{base}?sslmode=verify-full&sslrootcert={}", strangers_file.display());
    let error = connect(&foreign).ask().await.expect_err("another authority signed it");
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let wrong_name = verified.replace("localhost", "127.0.0.1");
    let error = connect(&wrong_name).ask().await.expect_err("the certificate has another name");
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let missing = format!("{base}?sslmode=verify-full&sslrootcert=/nowhere.pem").parse();
    let error = Postgres::new(&missing.expect("an address"), &PostgresOptions::default());
    let error = error.map(|_| ()).expect_err("no such file");
    assert!(error.to_string().contains("/nowhere.pem"), "{error}");
}

/// Puts a file into the server's folder the way PostgreSQL wants its key: its own, private.
fn give(data: &Path, name: &str, text: &str) {
    let path = data.join(name);
    std::fs::write(&path, text).expect("writes");
    let owner = std::fs::metadata(data).expect("the folder is there");
    std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("is ours");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("is ours");
}
