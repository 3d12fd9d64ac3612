//! The documentation says what the program does.

use skep::settings::{Layers, aliases, environment_name, resolve};
use skep_store::{CoordinationUrl, Database, DatabaseUrl, Postgres, StoreOptions, Stores};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn document(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn read(name: &str) -> String {
    let path = document(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces what stands between `<!-- NAME -->` and `<!-- end -->`.
fn with_generated(text: &str, name: &str, generated: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).expect("the page has the mark");
    let (_, after) = rest.split_once(end).expect("the page has the end mark");
    format!("{before}{begin}{generated}{end}{after}")
}

/// Compares a page with what it should be; `SKEP_TEST_BLESS=1` writes it instead.
fn check(name: &str, expected: &str) {
    if std::env::var_os("SKEP_TEST_BLESS").is_some() {
        std::fs::write(document(name), expected).expect("writes");
    }
    assert!(
        read(name) == expected,
        "docs/{name} is out of date; run the tests once with SKEP_TEST_BLESS=1"
    );
}

#[test]
fn every_setting_is_in_the_table_of_settings() {
    let loaded = resolve(Layers::default()).expect("the defaults are valid");
    let mut table =
        "| setting | default | environment | what it is for |\n|---|---|---|---|\n".to_owned();
    for one in loaded.settings.effective.iter() {
        let default = if one.default.is_empty() { "" } else { &format!("`{}`", one.default) };
        let bounds = one.expected.split(", from ").nth(1);
        let bounds = bounds.map(|bounds| format!(" From {bounds}.")).unwrap_or_default();
        let help = one.help.replace('|', "\\|");
        let name = environment_name(one.key);
        table.push_str(&format!("| `{}` | {default} | `{name}` | {help}{bounds} |\n", one.key));
    }
    let mut names = "| environment | sets |\n|---|---|\n".to_owned();
    for alias in aliases() {
        names.push_str(&format!("| `{}` | `{}` |\n", alias.name, alias.key));
    }
    let page = with_generated(&read("configuration.md"), "settings", &table);
    check("configuration.md", &with_generated(&page, "aliases", &names));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_in_the_table_of_metrics() {
    let folder = skep_testkit::Folder::new("docs");
    let mut texts = Vec::new();
    for (name, database) in [
        ("embedded", DatabaseUrl::Embedded),
        ("postgres", "postgres://skep@127.0.0.1:1/none".parse().expect("an address")),
    ] {
        let data = folder.join(name);
        let options = StoreOptions { database, ..StoreOptions::embedded(&data) };
        assert!(matches!(options.coordination, CoordinationUrl::Database));
        let stores = Stores::open(&options).expect("opens");
        let traffic = skep::http::Traffic::new();
        let settings = resolve(Layers::default()).expect("the defaults are valid").settings;
        let (_state, ready) = tokio::sync::watch::channel(skep::node::State::Ready);
        let work = skep::work::Work::start(&settings, &stores, "docs", &ready).expect("starts");
        let work = std::sync::Arc::new(work);
        let fleet = skep::fleet::FleetMetrics::default();
        let routes = skep::routes::NodeRoutes::start(&settings, "docs", &work, &stores, &ready);
        let routes = routes.expect("starts");
        let queues = skep::queues::NodeQueues::new(&settings, &stores);
        let cluster = skep::cluster::ClusterPlace::default();
        let metrics = skep::node::Metrics::new(
            &stores,
            &traffic,
            &work,
            &fleet,
            &routes,
            (&queues, &cluster),
        );
        // A metric with labels shows once it has a value.
        traffic.count("GET", "/health", 200, std::time::Duration::ZERO);
        texts.push(metrics.render(std::time::Duration::ZERO, &stores, None));
        assert!(matches!(
            (name, stores.database()),
            ("embedded", Database::Sqlite(_)) | ("postgres", Database::Postgres(Postgres { .. }))
        ));
    }
    let mut table = "| metric | type | what it counts |\n|---|---|---|\n".to_owned();
    let mut seen = BTreeSet::new();
    for text in &texts {
        for (help, kind) in text.lines().zip(text.lines().skip(1)) {
            let Some((name, help)) =
                help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let kind = kind.rsplit(' ').next().unwrap_or_default();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            if seen.insert(name.to_owned()) {
                table.push_str(&format!("| `{name}{suffix}` | {kind} | {help} |\n"));
            }
        }
    }
    check("metrics.md", &with_generated(&read("metrics.md"), "metrics", &table));
}

#[test]
fn the_kept_description_of_the_api_is_the_served_one() {
    check("openapi.json", skep::http::document());
}

#[test]
fn every_route_is_in_the_table_of_scopes() {
    const COLUMNS: [&str; 9] =
        ["none", "read", "push", "pop", "session", "worker", "poll", "agent", "admin"];
    const METHODS: usize = 5;
    type Cells = BTreeMap<String, BTreeSet<String>>;
    let document: serde_json::Value =
        serde_json::from_str(skep::http::document()).expect("is JSON");
    let mut areas: BTreeMap<String, Cells> = BTreeMap::new();
    for (path, operations) in document["paths"].as_object().expect("it has paths") {
        let parts = if path.starts_with("/api/v1/") { 4 } else { 2 };
        let area = path.split('/').take(parts).collect::<Vec<_>>().join("/");
        for (method, operation) in operations.as_object().expect("it has methods") {
            for scope in operation["x-scope"].as_str().unwrap_or("admin").split('|') {
                assert!(COLUMNS.contains(&scope), "{path} needs the unknown scope {scope}");
                let cells = areas.entry(area.clone()).or_default();
                cells.entry(scope.to_owned()).or_default().insert(method.to_uppercase());
            }
        }
    }
    let used = |scope: &&str| areas.values().any(|cells| cells.contains_key(*scope));
    let used: Vec<&str> = COLUMNS.into_iter().filter(used).collect();
    let mut table = "| path".to_owned();
    for scope in &used {
        let name = if *scope == "none" { "no key".to_owned() } else { format!("`{scope}`") };
        table.push_str(&format!(" | {name}"));
    }
    table.push_str(&format!(" |\n|{}\n", "---|".repeat(used.len() + 1)));
    for (area, cells) in &areas {
        table.push_str(&format!("| `{area}`"));
        for scope in &used {
            let methods = cells.get(*scope).map(|found| Vec::from_iter(found.iter().cloned()));
            let methods = methods.unwrap_or_default();
            let all = methods.len() == METHODS;
            let shown = if all { "any".to_owned() } else { methods.join(", ") };
            table.push_str(&format!(" | {shown}"));
        }
        table.push_str(" |\n");
    }
    check("security.md", &with_generated(&read("security.md"), "scopes", &table));
}

#[test]
fn every_error_code_has_its_line_on_the_page_of_errors() {
    let mut table = "| code | status | meaning |\n|---|---|---|\n".to_owned();
    for code in skep::http::CODES {
        let (name, status, title) = (code.name, code.status, code.title);
        table.push_str(&format!("| [`{name}`](errors/{name}.md) | {status} | {title} |\n"));
    }
    check("api.md", &with_generated(&read("api.md"), "errors", &table));
}

#[test]
fn every_kind_that_can_be_explained_is_in_the_table_of_kinds() {
    let folder = skep_testkit::Folder::new("docs");
    let (_, said) = crate::common::run(folder.path(), &["explain", "--json"]);
    let kinds: Vec<serde_json::Value> = serde_json::from_str(&said).expect("is JSON");
    let mut table = "| id | what is explained | for how long |\n|---|---|---|\n".to_owned();
    for kind in kinds {
        let text = |field: &str| kind[field].as_str().expect("text").to_owned();
        let [id, asks, kept] = ["id", "asks", "kept"].map(text);
        table.push_str(&format!("| `{id}` | {asks} | {kept} |\n"));
    }
    check("explain.md", &with_generated(&read("explain.md"), "kinds", &table));
}

#[test]
fn every_exit_code_is_in_the_table_of_exit_codes() {
    use skep::cli::Exit;
    let page = read("command-line.md");
    for exit in [
        Exit::Ok,
        Exit::No,
        Exit::Usage,
        Exit::Data,
        Exit::Unavailable,
        Exit::Bug,
        Exit::System,
        Exit::InUse,
        Exit::Denied,
        Exit::Version,
    ] {
        assert!(page.contains(&format!("| {} |", exit as u8)), "{exit:?} is not documented");
    }
}

#[test]
fn every_verb_is_on_the_page_of_the_command_line() {
    fn visit(command: &clap::Command, path: &str, page: &str) {
        let shown = |inner: &&clap::Command| inner.get_name() != "help" && !inner.is_hide_set();
        for inner in command.get_subcommands().filter(shown) {
            let path = format!("{path} {}", inner.get_name());
            match inner.get_subcommands().next() {
                Some(_) => visit(inner, &path, page),
                None => assert!(page.contains(&format!("`{path}")), "{path} is not documented"),
            }
        }
    }
    visit(&skep::cli::command(), "skep", &read("command-line.md"));
}

/// The headings of a page, as links name them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let prose = text.split("```").step_by(2).collect::<String>();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let named = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(named).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("there are pages");
    let pages = docs.filter_map(|entry| Some(entry.ok()?.path()));
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    for page in pages.chain(top).filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(&page).expect("reads");
        let folder = page.parent().expect("it is in a folder");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains("://") {
                continue;
            }
            let there = if path.is_empty() { page.clone() } else { folder.join(path) };
            assert!(there.exists(), "{}: {link}", page.display());
            let found = anchor.is_empty() || anchors(&there).contains(anchor);
            assert!(found, "{}: {link}: there is no such heading", page.display());
        }
    }
}
