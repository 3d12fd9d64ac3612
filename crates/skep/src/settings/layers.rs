//! Where values come from: `skep.toml`, then the environment, then flags, each over the last.

use super::aliases::{Alias, aliases};
use super::routes::{self, FileRoute, ROUTES};
use super::suggest;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The start of every canonical environment name.
pub const PREFIX: &str = "SKEP_";

/// Names that start like settings and are none: the command line's own, and those of test runs.
const NOT_SETTINGS: &[&str] = &["SKEP_CONFIG", "SKEP_URL", "SKEP_API_KEY"];

/// Names that Kubernetes sets by itself for a service called `skep`.
const SERVICE_LINKS: &[&str] = &["SKEP_SERVICE_", "SKEP_PORT", "SKEP_TEST_"];

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it is the built-in value.
    Default,
    /// In a file, at a line.
    File(PathBuf, usize),
    /// In the environment, under this name.
    Environment(String),
    /// On the command line, with this flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// Something that is wrong, or odd, with what was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was set.
    pub origin: Origin,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

/// A value as it was typed. It has no `Debug`, because it may be a password.
pub struct Typed {
    pub text: String,
    pub origin: Origin,
}

/// The values of all layers, the last one set for each key, and what was wrong with them.
#[derive(Default)]
pub struct Layers {
    pub values: BTreeMap<String, Typed>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// The routes of the file.
    pub routes: Vec<FileRoute>,
    /// Where routes are read from again.
    pub file: Option<PathBuf>,
}

impl Layers {
    /// Adds the values of a file.
    pub fn add_file(&mut self, path: &Path, known: &[&str]) {
        self.file = Some(path.to_path_buf());
        match std::fs::read_to_string(path) {
            Ok(text) => self.add_toml(path, &text, known),
            Err(error) => self.problems.push(Problem {
                origin: Origin::File(path.to_path_buf(), 0),
                message: format!("the file cannot be read: {error}"),
            }),
        }
    }

    fn add_toml(&mut self, path: &Path, text: &str, known: &[&str]) {
        let at = |offset: usize| {
            let before = &text.as_bytes()[..offset.min(text.len())];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Origin::File(path.to_path_buf(), line)
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let origin = at(error.span().map_or(0, |span| span.start));
            self.problems.push(Problem { origin, message: error.message().to_owned() });
        }
        self.add_table("", table.get_ref(), known, &at);
    }

    fn add_table(
        &mut self,
        path: &str,
        table: &DeTable<'_>,
        known: &[&str],
        at: &impl Fn(usize) -> Origin,
    ) {
        for (key, value) in table {
            let name: &str = key.get_ref();
            let full = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let origin = at(key.span().start);
            let is_section = known.iter().any(|key| {
                key.strip_prefix(full.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
            match value.get_ref() {
                value if full == ROUTES => match routes::read(value, key.span().start, at) {
                    Ok(routes) => self.routes = routes,
                    Err(problems) => self.problems.extend(problems),
                },
                DeValue::Table(inner) if is_section => self.add_table(&full, inner, known, at),
                _ if is_section => {
                    let message = format!("`{full}` is a section, write `[{full}]`");
                    self.problems.push(Problem { origin, message });
                }
                value if known.contains(&full.as_str()) => match text_of(value) {
                    Some(text) => {
                        self.values.insert(full, Typed { text, origin });
                    }
                    None => {
                        let message = format!("`{full}` holds one value, not {}", value.type_str());
                        self.problems.push(Problem { origin, message });
                    }
                },
                _ => self.unknown(origin, &full, &[known, &[ROUTES]].concat()),
            }
        }
    }

    /// Adds what the environment sets.
    pub fn add_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
        known: &[&str],
    ) {
        let mut canonical = BTreeMap::new();
        let mut found: Vec<(&Alias, String)> = Vec::new();
        for (name, text) in variables {
            if let Some(alias) = aliases().find(|alias| alias.name == name) {
                found.push((alias, text));
            } else if name.starts_with(PREFIX) && !is_not_a_setting(&name) {
                canonical.insert(name, text);
            }
        }
        // The older ones first, so that the newer win.
        found.sort_by_key(|(alias, _)| (!alias.is_older, alias.name));
        for (alias, text) in found {
            self.add_alias(alias, &text);
        }
        // After the aliases, so that the canonical name wins.
        for (name, text) in canonical {
            let key = key_of(&name);
            let origin = Origin::Environment(name);
            if !known.contains(&key.as_str()) {
                self.unknown(origin, &key, known);
                continue;
            }
            let typed = Typed { text, origin: origin.clone() };
            if let Some(Typed { origin: Origin::Environment(alias), .. }) =
                self.values.insert(key, typed)
            {
                let message = format!("it wins over {alias}, which is set too");
                self.warnings.push(Problem { origin, message });
            }
        }
    }

    fn add_alias(&mut self, alias: &Alias, text: &str) {
        let origin = Origin::Environment(alias.name.to_owned());
        let text = (alias.convert)(text);
        let typed = Typed { text, origin: origin.clone() };
        if let Some(Typed { origin: Origin::Environment(older), .. }) =
            self.values.insert(alias.key.to_owned(), typed)
        {
            let message = format!("it wins over {older}, its older name, which is set too");
            self.warnings.push(Problem { origin, message });
        }
    }

    /// Adds what the environment of this process sets.
    pub fn add_own_environment(&mut self, known: &[&str]) {
        let mut readable = Vec::new();
        for (name, text) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match text.into_string() {
                Ok(text) => readable.push((name, text)),
                Err(_) if name.starts_with(PREFIX) && !is_not_a_setting(&name) => {
                    let origin = Origin::Environment(name);
                    let message = "the value is not UTF-8 text".to_owned();
                    self.problems.push(Problem { origin, message });
                }
                Err(_) => {}
            }
        }
        self.add_environment(readable.into_iter(), known);
    }

    /// Adds a value given by a flag of its own, such as `--listen`.
    pub fn add_flag(&mut self, flag: &str, key: &str, text: &str) {
        let origin = Origin::Flag(flag.to_owned());
        self.values.insert(key.to_owned(), Typed { text: text.to_owned(), origin });
    }

    /// Adds a value given as `--set KEY=VALUE`.
    pub fn add_set(&mut self, assignment: &str, known: &[&str]) {
        match assignment.split_once('=') {
            Some((key, text)) if known.contains(&key.trim()) => {
                self.add_flag("--set", key.trim(), text.trim());
            }
            Some((key, _)) if is_a_key(key.trim()) => {
                self.unknown(Origin::Flag("--set".to_owned()), key.trim(), known);
            }
            // Not repeated: it may be an address with its password.
            _ => self.problems.push(Problem {
                origin: Origin::Flag("--set".to_owned()),
                message: "it takes KEY=VALUE, as in log.level=debug".to_owned(),
            }),
        }
    }

    fn unknown(&mut self, origin: Origin, key: &str, known: &[&str]) {
        let hint = match suggest::nearest(key, known.iter().copied()) {
            Some(nearest) => format!("; did you mean `{nearest}`?"),
            None => "; `skep config print` lists all settings".to_owned(),
        };
        self.problems.push(Problem { origin, message: format!("unknown setting `{key}`{hint}") });
    }
}

/// `SKEP_STORE__SQLITE__READERS` is `store.sqlite.readers`.
fn key_of(name: &str) -> String {
    name[PREFIX.len()..].replace("__", ".").to_ascii_lowercase()
}

/// The environment name of a setting.
pub fn environment_name(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

fn is_not_a_setting(name: &str) -> bool {
    NOT_SETTINGS.contains(&name) || SERVICE_LINKS.iter().any(|link| name.starts_with(link))
}

fn is_a_key(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Some(number.to_string()),
            Err(_) => Some(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Array(items) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| text_of(item.get_ref())).collect();
            texts.map(|texts| texts.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
