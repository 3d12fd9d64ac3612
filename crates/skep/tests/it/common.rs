//! What the tests of the program share.

use serde_json::json;
use skep::node::SCHEMAS;
use skep_store::{DataFolder, Database, Postgres, PostgresOptions, Sqlite, SqliteOptions};
use skep_testkit::{Browser, Ended, Folder, Node, Page, Process};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The program.
pub fn skep() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_skep"))
}

/// A command line, without the settings of whoever runs the tests and away from their files.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Node::command(skep());
    command.args(arguments).current_dir(folder);
    command
}

/// Runs a command line to its end; what it printed and how it ended.
pub fn run(folder: &Path, arguments: &[&str]) -> (Ended, String) {
    let process = Process::start("skep", &command(folder, arguments), "KILL");
    (process.wait(), process.log())
}

/// Waits until something is so.
pub fn until(what: &str, check: impl Fn() -> bool) {
    skep_testkit::eventually(what, || check().then_some(()));
}

/// Runs a check on an empty, migrated database of each kind.
pub async fn on_each_database(check: impl AsyncFn(Database)) {
    let folder = Folder::new("database");
    let data = Arc::new(DataFolder::open(folder.path()).expect("locks"));
    let sqlite = Sqlite::open(&data, &SqliteOptions::default()).expect("opens");
    let server = skep_testkit::Postgres::shared().database();
    let url = server.url().parse().expect("an address");
    let postgres = Postgres::new(&url, &PostgresOptions::default()).expect("a pool");
    for database in [Database::Sqlite(sqlite), Database::Postgres(postgres)] {
        database.migrate(SCHEMAS).await.expect("migrates");
        check(database).await;
    }
}

/// A page as somebody sees it who may only read: keys are made, so it asks for one first.
pub fn open_as_reader<'browser>(
    browser: &'browser mut Browser,
    node: &Node,
    path: &str,
) -> Page<'browser> {
    let key = |name: &str, scope: &str, with: &[(&str, &str)]| {
        let body = json!({ "name": name, "scopes": [scope] }).to_string();
        let made = node.send("POST", "/api/v1/keys", with, Some(&body)).json();
        made["secret"].as_str().expect("a secret").to_owned()
    };
    let admin = format!("Bearer {}", key("admin", "admin", &[]));
    let reader = key("reader", "read", &[("authorization", &admin)]);
    let mut page = browser.open(&node.url(path), (1_280, 1_400));
    page.wait_for("document.body.dataset.view === 'login' && document.querySelector('main input')");
    page.eval(&format!(
        "(input => {{ input.value = '{reader}'; input.form.requestSubmit(); }})(
            document.querySelector('main input'))"
    ));
    page
}
