//! The documentation says what the program does.

use skep::settings::{Layers, aliases, environment_name, resolve};
use skep_store::{CoordinationUrl, Database, DatabaseUrl, Postgres, StoreOptions, Stores};
use std::path::PathBuf;

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
    for one in &loaded.effective {
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
    let mut seen = std::collections::BTreeSet::new();
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
fn every_error_code_has_its_line_on_the_page_of_errors() {
    let mut table = "| code | status | meaning |\n|---|---|---|\n".to_owned();
    for code in skep::http::CODES {
        let (name, status, title) = (code.name, code.status, code.title);
        table.push_str(&format!("| [`{name}`](errors/{name}.md) | {status} | {title} |\n"));
    }
    check("api.md", &with_generated(&read("api.md"), "errors", &table));
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
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            match inner.get_subcommands().next() {
                Some(_) => visit(inner, &path, page),
                None => assert!(page.contains(&format!("`{path}")), "{path} is not documented"),
            }
        }
    }
    visit(&skep::cli::command(), "skep", &read("command-line.md"));
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
            let path = link.split('#').next().unwrap_or_default();
            let inside = !path.is_empty() && !path.contains("://");
            assert!(!inside || folder.join(path).exists(), "{}: {link}", page.display());
        }
    }
}
