//! The files in `deploy/` are what the programs they are for take, and speak of what there is.

use crate::common::skep;
use serde_json::Value;
use skep::cli::Exit;
use skep::settings::{Layers, environment_name, resolve};
use skep_testkit::{Folder, programs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(path: &str) -> String {
    let path = file(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands in quotes of one kind.
fn quoted(text: &str, quote: char) -> impl Iterator<Item = &str> {
    text.split(quote).skip(1).step_by(2)
}

/// A rule for an alert, as far as it matters here.
#[derive(Default)]
struct Rule {
    name: String,
    expression: String,
    fields: BTreeMap<String, String>,
}

/// The rules, read line by line: the file has one form throughout.
fn rules() -> Vec<Rule> {
    let text = read("prometheus-alerts.yml");
    let mut rules: Vec<Rule> = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("- alert: ") {
            rules.push(Rule { name: name.to_owned(), ..Rule::default() });
            continue;
        }
        let Some(rule) = rules.last_mut() else { continue };
        if line == "expr: >-" {
            rule.expression = lines.next().unwrap_or_default().to_owned();
        } else if let Some((key, value)) = line.split_once(": ") {
            rule.fields.insert(key.to_owned(), value.to_owned());
        }
    }
    assert!(rules.len() > 20, "the rules are not found: there are {}", rules.len());
    rules
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).expect("is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels").clone();
    panels.into_iter().filter(|panel| panel["type"] != "row").collect()
}

fn expressions(panel: &Value) -> Vec<&str> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.filter_map(|target| target["expr"].as_str()).collect()
}

/// The metrics that an expression names: words that are ours or the process's.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("skep_") || word.starts_with("process_"))
}

/// Every metric on the page of metrics; of histograms the series that they have.
fn documented() -> BTreeSet<String> {
    let page = read("../docs/metrics.md");
    let mut names = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        for name in quoted(cells[1], '`') {
            names.insert(name.to_owned());
            if cells[2] == "histogram" {
                names.extend(["bucket", "sum", "count"].map(|end| format!("{name}_{end}")));
            }
        }
    }
    assert!(names.contains("skep_http_request_seconds_bucket"), "the page has another form now");
    names
}

#[test]
fn prometheus_takes_the_rules_for_alerts() {
    let mut promtool = Command::new(programs::require("promtool"));
    let output = promtool.args(["check", "rules"]).arg(file("prometheus-alerts.yml")).output();
    let output = output.expect("promtool starts");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("{} rules found", rules().len())), "{said}");
}

#[test]
fn every_alert_says_what_happened_how_bad_it_is_and_what_to_do() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = &rule.name;
        assert!(names.insert(name.clone()), "{name} is there twice");
        let severity = rule.fields.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        for field in ["summary", "description"] {
            let text = rule.fields.get(field).map_or(0, String::len);
            assert!(text > 20, "{name} has no {field}");
        }
    }
}

#[test]
fn what_alerts_say_to_do_can_be_done() {
    let program = skep::cli::command();
    let mut seen = 0;
    for rule in rules() {
        for advice in quoted(&rule.fields["description"], '`') {
            let Some(words) = advice.strip_prefix("skep ") else { continue };
            let mut command = &program;
            for word in words.split(' ') {
                // Words after the verb are its arguments.
                let Some(inner) = command.find_subcommand(word) else { break };
                command = inner;
            }
            let known = !std::ptr::eq(command, &program);
            assert!(known, "{}: there is no `{advice}`", rule.name);
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} commands are found in the descriptions");
}

#[test]
fn alerts_warn_of_certificates_when_the_node_does() {
    let soon = skep_policy::routes::alerts::END_SOON.as_secs();
    let about: Vec<Rule> =
        rules().into_iter().filter(|rule| rule.expression.contains("_certificate_")).collect();
    assert!(about.len() >= 2, "the rules about certificates are not found");
    // An expression ends with the limit, as in `< 14 * 86400`.
    let limit = |rule: &Rule| -> u64 {
        let text = rule.expression.rsplit('<').next().unwrap_or_default();
        let factors = text.split('*').map(|part| part.trim().parse::<u64>());
        factors.product::<Result<u64, _>>().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    };
    for rule in about {
        assert_eq!(limit(&rule), soon, "{}: {}", rule.name, rule.expression);
    }
}

#[test]
fn every_metric_of_alerts_and_dashboard_exists() {
    let known = documented();
    for rule in rules() {
        for metric in metrics(&rule.expression) {
            assert!(known.contains(metric), "{}: there is no {metric}", rule.name);
        }
        let any = metrics(&rule.expression).next().is_some() || rule.expression.starts_with("up{");
        assert!(any, "{} looks at nothing", rule.name);
    }
    for panel in panels() {
        for expression in expressions(&panel) {
            for metric in metrics(expression) {
                assert!(known.contains(metric), "{}: there is no {metric}", panel["title"]);
            }
        }
    }
}

#[test]
fn every_panel_of_the_dashboard_shows_something_in_a_place_of_its_own() {
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels() {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: the id is there twice");
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 10), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert!(!expressions(&panel).is_empty(), "{title} shows nothing");
        let side = |name: &str| panel["gridPos"][name].as_u64().expect("a place");
        for x in side("x")..side("x") + side("w") {
            assert!(x < 24, "{title} is wider than the page");
            for y in side("y")..side("y") + side("h") {
                assert!(taken.insert((x, y)), "{title} covers another panel");
            }
        }
    }
}

/// The keys of the unit with their values, by section.
fn unit() -> BTreeMap<String, Vec<(String, String)>> {
    let text = read("skep.service");
    let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("not a setting: {line}"));
        let keys = sections.entry(section.clone()).or_default();
        keys.push((key.to_owned(), value.to_owned()));
    }
    sections
}

#[test]
fn the_unit_of_systemd_keeps_the_node_in_and_lets_it_finish() {
    let unit = unit();
    let sections: Vec<&str> = unit.keys().map(String::as_str).collect();
    assert_eq!(sections, ["Install", "Service", "Unit"]);
    let of = |key: &str| {
        let found = unit["Service"].iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {key}"))
    };
    assert!(of("ExecStart").starts_with("/usr/local/bin/skep serve --config "));
    assert_eq!((of("User"), of("StateDirectory"), of("KillSignal")), ("skep", "skep", "SIGTERM"));
    assert_eq!((of("ProtectSystem"), of("UMask")), ("strict", "0077"));
    for key in ["NoNewPrivileges", "PrivateTmp", "PrivateDevices", "MemoryDenyWriteExecute"] {
        assert_eq!(of(key), "yes", "{key}");
    }
    // What stays wrong is not tried again, and everything else is.
    let stays_wrong = [Exit::Usage, Exit::Denied, Exit::Version].map(|exit| exit as u8).to_vec();
    let never: Vec<u8> =
        of("RestartPreventExitStatus").split(' ').filter_map(|code| code.parse().ok()).collect();
    assert_eq!(never, stays_wrong);
    assert_eq!(of("Restart"), "on-failure");
    // It is killed later than a node that drains is done.
    let settings = resolve(Layers::default()).expect("the defaults are valid").settings;
    let drains = settings.shutdown.drain_timeout + settings.gateway.drain_timeout;
    let limit: u64 = of("TimeoutStopSec").trim_end_matches('s').parse().expect("seconds");
    assert!(limit > drains.as_secs(), "{limit} s are less than {drains:?}");
}

#[test]
fn systemd_takes_the_unit_where_it_is() {
    // Where there is no systemd the test above has read the file all the same.
    let Some(program) = programs::find("systemd-analyze") else { return };
    let folder = Folder::new("unit");
    let path = folder.join("skep.service");
    let program_here = skep().display().to_string();
    let unit = read("skep.service").replace("/usr/local/bin/skep", &program_here);
    std::fs::write(&path, unit).expect("writes");
    let output = Command::new(program).arg("verify").arg(&path).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // An unknown key is told and no failure.
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("skep")).collect();
    assert!(output.status.success() && complaints.is_empty(), "{said}");
}

#[test]
fn every_setting_in_the_files_exists() {
    let loaded = resolve(Layers::default()).expect("the defaults are valid");
    let known: BTreeSet<String> =
        loaded.settings.effective.iter().map(|one| environment_name(one.key)).collect();
    let mut seen = 0;
    for name in ["skep.service", "Dockerfile", "compose.yml"] {
        let text = read(name);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // `SKEP_CLUSTER_SECRET` is compose's own, from the environment of whoever starts it.
        for word in words.filter(|word| word.starts_with("SKEP_") && *word != "SKEP_CLUSTER_SECRET")
        {
            assert!(known.contains(word), "{name}: there is no {word}");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} settings are found");
}
