//! What the dependencies may be, by `deny.toml`: licences, bans and sources. cargo-deny looks
//! closer where it is installed; this needs nothing but cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_path_buf()
}

/// What a program prints.
fn printed(program: &str, arguments: &[&str]) -> String {
    let command = &mut Command::new(program);
    let output = command.args(arguments).current_dir(root()).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("is text")
}

/// Every package that is built on this machine, as cargo knows it.
fn packages() -> Vec<serde_json::Value> {
    let rustc = printed("rustc", &["-vV"]);
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("has a host");
    let form = ["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform"];
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = printed(&cargo, &[&form[..], &[host]].concat());
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("is JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages
}

fn policy() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("reads");
    text.parse().expect("is TOML")
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be fulfilled with these.
fn fulfilled(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let fits = either(&words, &mut at, allowed);
    fits && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut fits = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= both(words, at, allowed);
    }
    fits
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut fits = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= one(words, at, allowed);
    }
    fits
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let fits = either(words, at, allowed);
        *at += 1;
        return fits;
    }
    // An exception makes another licence of it.
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
        return false;
    }
    allowed.contains(word)
}

#[test]
fn every_licence_is_one_of_the_list() {
    let policy = policy();
    let listed = policy["licenses"]["allow"].as_array().expect("a list");
    let allowed: BTreeSet<&str> = listed.iter().filter_map(toml::Value::as_str).collect();
    let wrong: BTreeMap<String, String> = packages()
        .iter()
        .map(|one| (one["name"].to_string(), one["license"].as_str().unwrap_or("none").to_owned()))
        .filter(|(_, licence)| !fulfilled(licence, &allowed))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for (expression, fits) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("(MIT OR Zlib) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("none", false),
        ("MIT )", false),
    ] {
        assert_eq!(fulfilled(expression, &allowed), fits, "{expression}");
    }
}

#[test]
fn nothing_that_is_banned_is_built_in() {
    let policy = policy();
    let banned = policy["bans"]["deny"].as_array().expect("a list");
    let banned: BTreeSet<&str> = banned.iter().filter_map(|one| one["crate"].as_str()).collect();
    assert!(!banned.is_empty());
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        assert!(!banned.contains(name), "{name} is banned");
    }
}

#[test]
fn everything_comes_from_one_registry_or_from_here() {
    let packages = packages();
    let sources: BTreeSet<&str> =
        packages.iter().filter_map(|one| one["source"].as_str()).collect();
    assert!(sources.iter().all(|source| source.starts_with("registry+")), "{sources:?}");
    assert_eq!(sources.len(), 1, "{sources:?}");
}
