//! Rules of the house that no compiler checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const LINE_COLUMNS_MAX: usize = 100;

/// What each crate of the house may use of the others. A crate that is not named here is one that
/// does: it may use what decides, what remembers, and the two that everybody may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("skep-policy", &[]),
    ("skep-store", &["skep-policy"]),
    ("skep-dial", &["skep-policy"]),
    ("skep-gateway", &["skep-dial", "skep-policy"]),
    ("skep-testkit", &["skep-policy"]),
    ("skep-chaos", &["skep-policy", "skep-store", "skep-testkit"]),
    ("skep-sim", &["skep-policy", "skep-pools"]),
    ("skep-supervisor", &["skep-policy"]),
    ("xtask", &["skep-testkit"]),
    (
        "skep-benches",
        &[
            "skep",
            "skep-cluster",
            "skep-monitors",
            "skep-policy",
            "skep-sessions",
            "skep-store",
            "skep-testkit",
        ],
    ),
];
const DOING_MAY_USE: &[&str] =
    &["skep-dial", "skep-policy", "skep-store", "skep-pools", "skep-nodes"];
const WIRING_MAY_NOT_USE: &[&str] = &["skep-testkit", "skep-benches", "xtask"];

/// The policy crate has no way to do I/O.
const POLICY_MAY_DEPEND_ON: &[&str] = &["libm", "serde", "xxhash-rust"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_path_buf()
}

/// Every file of the house, without what is built and what is hidden.
fn files() -> Vec<PathBuf> {
    fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("reads").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name.starts_with('.') || ["target", "node_modules", "skep-data"].contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                visit(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&root(), &mut found);
    found
}

fn with_ending(ending: &str) -> Vec<(PathBuf, String)> {
    let fits = |path: &PathBuf| path.extension().is_some_and(|found| found == ending);
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("reads");
        (path, text)
    };
    let found: Vec<_> = files().into_iter().filter(fits).map(read).collect();
    assert!(!found.is_empty(), "there is no .{ending} file, so this test looks in the wrong place");
    found
}

fn manifests() -> Vec<(String, toml::Table)> {
    with_ending("toml")
        .into_iter()
        .filter(|(path, _)| path.ends_with("Cargo.toml") && *path != root().join("Cargo.toml"))
        .map(|(path, text)| {
            let table: toml::Table = text.parse().expect("is TOML");
            let name = table["package"]["name"].as_str();
            (name.unwrap_or_else(|| panic!("{}", path.display())).to_owned(), table)
        })
        .collect()
}

fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn no_file_is_too_long_and_no_line_too_wide() {
    for (path, text) in with_ending("rs") {
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines", path.display());
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            let place = format!("{}:{}", path.display(), number + 1);
            assert!(columns <= LINE_COLUMNS_MAX, "{place}: {columns} columns");
        }
    }
}

#[test]
fn no_module_is_an_orphan() {
    let sources: BTreeMap<PathBuf, String> = with_ending("rs").into_iter().collect();
    for path in sources.keys() {
        let stem = path.file_stem().expect("has a name").to_string_lossy().into_owned();
        let folder = path.parent().expect("is in a folder");
        let top = ["main", "lib", "build"].contains(&&*stem);
        let parent_name = folder.file_name().expect("has a name");
        let of_its_own =
            ["bin", "examples", "tests", "benches"].iter().any(|name| parent_name == *name);
        if top || of_its_own {
            continue;
        }
        let (name, home) = if stem == "mod" {
            (parent_name.to_string_lossy().into_owned(), folder.parent().expect("has a parent"))
        } else {
            (stem, folder)
        };
        let parents = [
            home.join("mod.rs"),
            home.join("lib.rs"),
            home.join("main.rs"),
            home.with_extension("rs"),
        ];
        let declared = parents.iter().filter_map(|parent| sources.get(parent)).any(|text| {
            let wanted = format!("mod {name};");
            let mut lines = text.lines().map(|line| {
                line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ")
            });
            lines.any(|line| line == wanted)
        });
        assert!(declared, "{} is declared nowhere", path.display());
    }
}

#[test]
fn dependencies_point_one_way() {
    let manifests = manifests();
    let ours: Vec<&str> = manifests.iter().map(|(name, _)| name.as_str()).collect();
    assert!(ours.contains(&"skep-policy") && ours.contains(&"skep"));
    for (name, manifest) in &manifests {
        for used in dependencies(manifest).iter().filter(|used| ours.contains(&used.as_str())) {
            let special = MAY_USE.iter().find(|(crate_name, _)| crate_name == name);
            let allowed = match special {
                Some((_, allowed)) => allowed.contains(&used.as_str()),
                None if name == "skep" => !WIRING_MAY_NOT_USE.contains(&used.as_str()),
                None => DOING_MAY_USE.contains(&used.as_str()),
            };
            assert!(allowed, "{name} must not use {used}");
        }
    }
}

#[test]
fn the_policy_crate_cannot_do_io() {
    let manifests = manifests();
    let (_, policy) = manifests.iter().find(|(name, _)| name == "skep-policy").expect("is there");
    for used in dependencies(policy) {
        assert!(POLICY_MAY_DEPEND_ON.contains(&used.as_str()), "skep-policy must not use {used}");
    }
}

#[test]
fn those_who_connect_for_others_ask_whether_they_may() {
    let theirs = ["gateway", "polls", "routes"].map(|name| root().join("crates").join(name));
    for (path, text) in with_ending("rs") {
        let is_source = theirs.iter().any(|folder| path.starts_with(folder.join("src")));
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let connects = code.contains("TcpStream::connect(") || code.contains("TcpSocket");
        let place = path.display();
        assert!(!is_source || !connects, "{place} connects by itself; use skep_dial::Dialler");
    }
}

#[test]
fn every_crate_keeps_the_lints_of_the_house() {
    for (name, manifest) in manifests() {
        let kept = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(kept.and_then(toml::Value::as_bool), Some(true), "{name}: [lints] workspace");
    }
}

#[test]
fn every_crate_tells_its_story_first() {
    for (path, text) in with_ending("rs") {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! "), "{} does not say what it is for", path.display());
    }
}

#[test]
fn no_constraint_waits_for_the_commit() {
    for (path, text) in with_ending("sql") {
        // One call's mistake would fail the commit that it shares with others.
        assert!(!text.to_uppercase().contains("DEFERRABLE"), "{}", path.display());
    }
}

#[test]
fn migrations_are_numbered_without_gaps_and_alike_in_both_dialects() {
    let mut numbers: BTreeMap<(PathBuf, String), Vec<String>> = BTreeMap::new();
    for (path, _) in with_ending("sql") {
        let dialect = path.parent().expect("is in a folder");
        let home = dialect.parent().expect("is in a folder").to_path_buf();
        let name = path.file_stem().expect("has a name").to_string_lossy().into_owned();
        let dialect = dialect.file_name().expect("has a name").to_string_lossy().into_owned();
        numbers.entry((home, dialect)).or_default().push(name);
    }
    for ((home, dialect), mut names) in numbers.clone() {
        names.sort();
        for (position, name) in names.iter().enumerate() {
            let expected = format!("{:04}_", position + 1);
            assert!(name.starts_with(&expected), "{}/{dialect}/{name}", home.display());
        }
        let other = if dialect == "sqlite" { "postgres" } else { "sqlite" };
        let mut twin = numbers.get(&(home.clone(), other.to_owned())).cloned().unwrap_or_default();
        twin.sort();
        assert_eq!(names, twin, "{}: the dialects differ", home.display());
    }
}
