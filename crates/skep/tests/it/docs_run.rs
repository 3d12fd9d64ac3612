//! Every command in the documentation runs.
//!
//! The `sh` blocks of a page run in their order, in one shell, in an empty folder, with the program
//! on the path and a node of their own; a page that says `skep serve` itself starts its own. What
//! stands in the source of a page and readers do not see:
//!
//! ```text
//!   <!-- not run: why -->         the block below is left out
//!   <!-- run: command -->         run at its place, to make ready or to check
//!   <!-- let NAME: command -->    what it prints stands in for NAME in the blocks below
//! ```
//!
//! Pages name the usual ports and servers. Here each port of this machine that a page names becomes
//! a free one, and PostgreSQL and Redis are the test's own. `curl` fails where the answer is an
//! error, and `ready` waits for the node.

mod page;

use crate::common::{run as command_line, skep};
use page::{Page, Ports, Step};
use skep_testkit::{Folder, Node, Postgres, Process, Redis, programs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a page may take. Nothing takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(150);

/// Blocks that are not run. Each has its reason; one more is a decision.
const LEFT_OUT_MAX: usize = 21;

const POSTGRES: &str = "postgres://skep@127.0.0.1/";
const REDIS: &str = "redis://127.0.0.1";

/// What each page's script begins with.
const PRELUDE: &str = r#"
exec </dev/null
place=start
trap 'echo "@failed $place: $BASH_COMMAND"' ERR
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; wait' EXIT
ready() { until curl "$SKEP_URL/health/ready"; do sleep 0.1; done; }
"#;

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        /// The pages that have a test here.
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            run($page, &read($page)).unwrap_or_else(|error| panic!("{error}"));
        })*
    };
}

pages! {
    the_commands_of_the_readme_run: "README.md",
    the_commands_about_the_access_log_run: "docs/access-log.md",
    the_commands_about_clusters_run: "docs/cluster.md",
    the_commands_for_those_who_come_from_elsewhere_run: "docs/coming-from.md",
    the_commands_of_top_and_explain_run: "docs/explain.md",
    the_commands_about_monitors_run: "docs/monitors.md",
    the_commands_about_snapshots_of_monitors_run: "docs/monitor-snapshots.md",
    the_commands_about_nodes_run: "docs/nodes.md",
    the_commands_about_operating_run: "docs/operating.md",
    the_commands_about_polls_run: "docs/polls.md",
    the_commands_about_pools_run: "docs/pools.md",
    the_commands_about_running_queues_run: "docs/queue-operations.md",
    the_commands_about_queues_run: "docs/queues.md",
    the_commands_about_routes_run: "docs/routes.md",
    the_commands_about_security_run: "docs/security.md",
    the_commands_about_sessions_run: "docs/sessions.md",
    the_commands_of_the_tour_run: "docs/tour.md",
    the_commands_about_workers_run: "docs/workers.md",
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The README and the pages of the documentation, with what they contain.
fn all_pages() -> Vec<(String, Page)> {
    let docs = std::fs::read_dir(root().join("docs")).expect("there are pages");
    let names = docs.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pages = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let mut pages: Vec<String> = pages.chain(["README.md".to_owned()]).collect();
    pages.sort();
    let parse = |name: String| {
        let page = Page::parse(&name, &read(&name)).unwrap_or_else(|error| panic!("{error}"));
        (name, page)
    };
    pages.into_iter().map(parse).collect()
}

/// Runs what a page says.
fn run(name: &str, text: &str) -> Result<(), String> {
    let page = Page::parse(name, text)?;
    let folder = Folder::new("docs-run");
    let mut ports = Ports::of(&page);
    let postgres = page.names(POSTGRES).then(Postgres::start);
    let redis = page.names(REDIS).then(Redis::start);
    let servers = |text: String| {
        let text = match &postgres {
            Some(server) => {
                text.replace(POSTGRES, &format!("postgres://skep@127.0.0.1:{}/", server.port()))
            }
            None => text,
        };
        match &redis {
            Some(server) => text.replace(REDIS, server.url().trim_end_matches("/0")),
            None => text,
        }
    };
    if let Some(server) = &postgres {
        server.run("postgres", "CREATE DATABASE skep");
    }

    let mut script = PRELUDE.to_owned();
    if !page.starts_with("skep serve") {
        script.push_str("skep serve > node.log 2>&1 &\nready\n");
    }
    for (line, command) in page.commands() {
        let command = servers(ports.rewrite(&command));
        script.push_str(&format!("place={name}:{line}\n{command}\n"));
    }
    std::fs::write(folder.join("page.sh"), script).expect("writes");
    std::fs::write(folder.join(".curlrc"), "fail\nsilent\nshow-error\n").expect("writes");

    let process = start(name, folder.path(), &mut ports);
    let ended = process.wait_for(LIMIT).map(|ended| ended.code);
    if ended == Some(0) {
        return Ok(());
    }
    let log = process.log();
    let failed = log.lines().find(|line| line.starts_with("@failed")).unwrap_or("it did not end");
    let node = std::fs::read_to_string(folder.join("node.log")).unwrap_or_default();
    Err(format!("{name}, {ended:?}, {failed}\n{log}\n--- node.log ---\n{node}"))
}

/// Starts the script of a page, under a program that ends it and all it has started in time.
fn start(name: &str, folder: &Path, ports: &mut Ports) -> Process {
    let (api, gateway) = (ports.free_for(page::API), ports.free_for(page::GATEWAY));
    let mut command = Node::command(&programs::require("timeout"));
    let limit = (LIMIT.as_secs() - 20).to_string();
    command.args(["--kill-after=5", &limit, "bash", "-eu", "page.sh"]).current_dir(folder);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let ours = [skep().to_path_buf(), programs::require("psql"), programs::require("curl")];
    let ours = ours.iter().filter_map(|program| program.parent()).map(Path::to_path_buf);
    let path = std::env::join_paths(ours.chain(std::env::split_paths(&usual)));
    command.env("PATH", path.expect("folders without colons")).env("HOME", folder);
    command.env("SKEP_API__LISTEN", format!("127.0.0.1:{api}"));
    command.env("SKEP_GATEWAY__LISTEN", format!("127.0.0.1:{gateway}"));
    command.env("SKEP_CLUSTER__LISTEN", "127.0.0.1:0");
    command.env("SKEP_URL", format!("http://127.0.0.1:{api}"));
    Process::start(name, &command, "TERM")
}

#[test]
fn every_page_with_commands_is_run() {
    for (name, page) in all_pages() {
        let runs = page.commands().next().is_some();
        let has_test = PAGES.contains(&name.as_str());
        assert!(!runs || has_test, "{name} has commands: give it a line in `pages!`");
        assert!(runs || !has_test, "{name} has no commands to run");
    }
}

#[test]
fn a_block_that_is_not_run_says_why() {
    let mut left_out = Vec::new();
    let mut blocks = 0;
    for (name, page) in all_pages() {
        for (line, step) in &page.steps {
            match step {
                Step::LeftOut(why) => left_out.push(format!("{name}:{line}: {why}")),
                Step::Block(_) => blocks += 1,
                Step::Run(_) | Step::Let { .. } => {}
            }
        }
    }
    let list = left_out.join("\n");
    println!("{blocks} blocks are run, {} are not:\n{list}", left_out.len());
    assert!(blocks > 2 * left_out.len(), "too much of the documentation is not run:\n{list}");
    assert!(left_out.len() <= LEFT_OUT_MAX, "{} blocks are not run:\n{list}", left_out.len());
}

#[test]
fn the_settings_files_on_the_pages_have_nothing_wrong() {
    let folder = Folder::new("docs-settings");
    let mut files = 0;
    for (name, _) in all_pages() {
        let text = read(&name);
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            std::fs::write(folder.join("skep.toml"), block).expect("writes");
            let (ended, said) = command_line(folder.path(), &["config", "check", "skep.toml"]);
            assert_eq!(ended.code, 0, "{name}: {said}\nin:\n{block}");
            files += 1;
        }
    }
    assert!(files > 4, "only {files} settings files are found");
}

#[test]
fn a_command_that_fails_is_told_with_its_place() {
    let page = "# Page\n\n```sh\nskep status\nskep explain E_NONSENSE\n```\n";
    let error = run("page.md", page).expect_err("there is no such code");
    assert!(error.contains("@failed page.md:3: skep explain E_NONSENSE"), "{error}");
}

#[test]
fn an_answer_that_is_an_error_fails_its_page() {
    let page = "```sh\ncurl localhost:6632/api/v1/nothing\n```\n";
    let error = run("page.md", page).expect_err("there is nothing");
    assert!(error.contains("@failed page.md:1: curl") && error.contains("404"), "{error}");
}

#[test]
fn hidden_commands_run_at_their_place_and_lend_their_output() {
    let page = "<!-- run: echo one > here -->\n<!-- let NAME: cat here -->\n\
                ```sh\ntest NAME = one\ntest 'NAMES' = NAMES\n```\n";
    run("page.md", page).unwrap_or_else(|error| panic!("{error}"));
}
