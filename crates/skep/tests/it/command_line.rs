//! The command line: help, settings, errors and exit codes.

use crate::common::run;
use skep_testkit::{Folder, Node, free_port};

fn in_empty_folder(arguments: &[&str]) -> (i32, String) {
    let folder = Folder::new("cli");
    let (ended, log) = run(folder.path(), arguments);
    (ended.code, log)
}

#[test]
fn the_command_line_holds_together() {
    skep::cli::command().debug_assert();
}

#[test]
fn wrong_usage_ends_with_64_and_help_with_0() {
    for wrong in [&["sevre"][..], &[], &["serve", "--lisen", "x"], &["status", "--output", "xml"]] {
        let (code, log) = in_empty_folder(wrong);
        assert_eq!(code, 64, "{wrong:?}: {log}");
    }
    for right in [&["--help"][..], &["--version"], &["serve", "--help"], &["help", "config"]] {
        assert_eq!(in_empty_folder(right).0, 0, "{right:?}");
    }
    let (_, log) = in_empty_folder(&["sevre"]);
    assert!(log.contains("serve"), "a slip is met with a suggestion: {log}");
}

#[test]
fn config_check_tells_every_problem_and_ends_with_64() {
    let folder = Folder::new("cli");
    let path = folder.join("bad.toml");
    std::fs::write(&path, "databse = 1\n[log]\nlevel = \"loud\"\n[bees]\n").expect("writes");
    let (ended, log) = run(folder.path(), &["config", "check", "bad.toml"]);
    assert_eq!(ended.code, 64);
    assert!(
        log.contains("bad.toml:1: unknown setting `databse`; did you mean `database`?"),
        "{log}"
    );
    assert!(log.contains("bad.toml:3: `log.level` cannot be \"loud\""), "{log}");
    assert!(log.contains("bad.toml:4: unknown setting `bees`"), "{log}");
    let (ended, log) = run(folder.path(), &["config", "check", "bad.toml", "--json"]);
    assert_eq!(ended.code, 64);
    let answer: serde_json::Value = serde_json::from_str(&log).expect("is JSON");
    assert_eq!(
        (answer["ok"].clone(), answer["problems"].as_array().map(Vec::len)),
        (false.into(), Some(3))
    );
    let (ended, log) = run(folder.path(), &["config", "check", "nowhere.toml"]);
    assert_eq!(ended.code, 64);
    assert!(log.contains("nowhere.toml") && log.contains("cannot be read"), "{log}");
    std::fs::write(&path, "[log]\nlevel = \"debug\"\n").expect("writes");
    assert_eq!(run(folder.path(), &["config", "check", "bad.toml"]).0.code, 0);
}

#[test]
fn a_node_with_wrong_settings_does_not_start() {
    let folder = Folder::new("cli");
    std::fs::write(folder.join("skep.toml"), "[api]\nlisten = 5\n").expect("writes");
    let (ended, log) = run(folder.path(), &["serve"]);
    assert_eq!(ended.code, 64);
    assert!(log.contains("skep.toml:2") && log.contains("api.listen"), "{log}");
    assert!(!folder.join("skep-data").exists(), "nothing was made");
}

#[test]
fn config_print_tells_where_each_value_came_from_without_secrets() {
    let folder = Folder::new("cli");
    std::fs::write(folder.join("skep.toml"), "[store.sqlite]\nreaders = 3\n").expect("writes");
    let arguments = ["config", "print", "--json", "--database", "postgres://u:hunter2@h/d"];
    let mut command = crate::common::command(folder.path(), &arguments);
    command.env("SKEP_LOG__LEVEL", "debug");
    let output = command.output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("is text");
    assert!(!text.contains("hunter2"), "{text}");
    let settings: Vec<serde_json::Value> = serde_json::from_str(&text).expect("is JSON");
    let of = |key: &str| {
        let one = settings.iter().find(|one| one["key"] == key).expect(key);
        (one["value"].as_str().expect("text"), one["origin"].as_str().expect("text"))
    };
    assert_eq!(of("store.sqlite.readers"), ("3", "skep.toml:2"));
    assert_eq!(of("log.level"), ("debug", "environment SKEP_LOG__LEVEL"));
    assert_eq!(of("database"), ("postgres://u@h:5432/d", "flag --database"));
    assert_eq!(of("store.redis.call_timeout"), ("3s", "default"));
    assert!(settings.iter().all(|one| one["help"].as_str().is_some_and(|help| !help.is_empty())));
}

#[test]
fn migrate_up_applies_and_status_tells_both_ways() {
    let folder = Folder::new("cli");
    let (ended, log) = run(folder.path(), &["migrate", "status"]);
    assert_eq!(ended.code, 0);
    assert!(log.contains("pending"), "{log}");
    assert!(!folder.join("skep-data").exists(), "looking makes nothing");
    let (ended, log) = run(folder.path(), &["migrate", "up"]);
    assert_eq!(ended.code, 0);
    assert!(log.contains("migrations were applied"), "{log}");
    let (ended, log) = run(folder.path(), &["migrate", "up"]);
    assert_eq!(ended.code, 0);
    assert!(log.contains("nothing was pending"), "{log}");
    let (_, log) = run(folder.path(), &["migrate", "status", "--output", "json"]);
    let status: serde_json::Value = serde_json::from_str(&log).expect("is JSON");
    assert_eq!(status[0]["part"], "store");
    assert!(status[0]["applied_at"].is_string());
}

#[test]
fn status_asks_a_node_and_says_so_where_there_is_none() {
    let folder = Folder::new("cli");
    let node =
        Node::start(crate::common::skep(), &folder.join("data"), &["--set", "node.name=hive-2"]);
    let (ended, log) = run(folder.path(), &["status", "--url", &node.url("")]);
    assert_eq!(ended.code, 0, "{log}");
    assert!(log.contains("hive-2") && log.contains("ready"), "{log}");
    let (_, log) = run(folder.path(), &["status", "--json", "--url", &node.url("/")]);
    let answer: serde_json::Value = serde_json::from_str(&log).expect("is JSON");
    assert_eq!(answer["name"], "hive-2");

    let nobody = format!("http://127.0.0.1:{}", free_port());
    let (code, log) = in_empty_folder(&["status", "--url", &nobody]);
    assert_eq!(code, 69, "{log}");
    assert!(log.contains("skep serve") && log.contains(&nobody), "{log}");
    for wrong in ["ftp://me:hunter2@x", "me:hunter2@host"] {
        let (code, log) = in_empty_folder(&["status", "--url", wrong]);
        assert_eq!(code, 64, "{log}");
        assert!(log.contains("http://") && !log.contains("hunter2"), "{log}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let folder = Folder::new("cli");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("opens");
    let mut command = crate::common::command(folder.path(), &["config", "print"]);
    let output = command.stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(74));
    assert!(String::from_utf8_lossy(&output.stderr).contains("could not be written"));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, log) = in_empty_folder(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(log.contains("migrate") && log.contains("completions"), "{shell}: {log}");
    }
}

#[test]
fn a_bench_keeps_the_contract_of_runs() {
    let (code, log) = in_empty_folder(&["bench", "store", "--quick", "--callers", "8", "--json"]);
    assert_eq!(code, 0, "{log}");
    let report: skep::report::Report = serde_json::from_str(&log).expect("keeps the contract");
    assert_eq!((report.name.as_str(), report.ok), ("bench store", true));
    assert!(report.figures["ratio"] > 0.0 && report.failures.is_empty());
    let (code, log) = in_empty_folder(&["bench", "store", "--callers", "0"]);
    assert_eq!(code, 64, "{log}");
    let (code, log) = in_empty_folder(&["bench", "store", "--folder", "/nowhere"]);
    assert_eq!(code, 74, "{log}");
    assert!(log.contains("/nowhere"), "{log}");
}

#[test]
fn the_doctor_finds_trouble_and_says_what_to_do() {
    let folder = Folder::new("cli");
    let listen = format!("127.0.0.1:{}", free_port());
    let doctor = ["doctor", "--json", "--listen", &listen];
    let findings = |more: &[&str], expected: i32| {
        let (ended, log) = run(folder.path(), &[&doctor[..], more].concat());
        assert_eq!(ended.code, expected, "{log}");
        let all: Vec<serde_json::Value> = serde_json::from_str(&log).expect("is JSON");
        move |check: &str| {
            let one = all.iter().find(|one| one["check"] == check).expect(check);
            (one["result"].as_str().expect("text").to_owned(), one.to_string())
        }
    };
    let healthy = findings(&[], 0);
    for check in ["settings", "data folder", "port", "database", "access"] {
        assert_eq!(healthy(check).0, "ok", "{}", healthy(check).1);
    }
    assert!(!folder.join("skep-data").exists(), "looking makes nothing");

    let away = format!("postgres://skep@127.0.0.1:{}/none", free_port());
    let trouble = findings(&["--database", &away, "--data", "/proc/nowhere"], 1);
    for check in ["database", "data folder"] {
        let (result, text) = trouble(check);
        assert_eq!(result, "wrong", "{text}");
        assert!(text.contains("do_this"), "{text}");
    }
    let database = skep_testkit::Postgres::shared().database();
    let url = database.url();
    let fresh = findings(&["--database", &url, "--coordination", "redis://127.0.0.1:1"], 1);
    assert_eq!(fresh("clock").0, "ok");
    assert_eq!(fresh("database").0, "ok");
    assert_eq!(fresh("redis").0, "wrong");
    let (ended, log) = run(folder.path(), &["doctor", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, 1, "{log}");
    assert!(log.contains("skep keys add"), "{log}");
}

#[test]
fn every_error_code_is_explained_and_a_slip_is_met_with_a_suggestion() {
    for code in skep::http::CODES {
        let (ended, text) = in_empty_folder(&["explain", code.name]);
        assert_eq!(ended, 0);
        assert!(text.contains(code.name) && text.contains("What to do"), "{text}");
    }
    let (ended, text) = in_empty_folder(&["explain", "E_KEY_MISING"]);
    assert_eq!(ended, 64);
    assert!(text.contains("did you mean E_KEY_MISSING?"), "{text}");
    let (ended, text) = in_empty_folder(&["explain", "error", "--json"]);
    assert_eq!(ended, 0);
    let all: Vec<serde_json::Value> = serde_json::from_str(&text).expect("is JSON");
    assert_eq!(all.len(), skep::http::CODES.len());
}
