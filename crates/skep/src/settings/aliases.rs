//! Environment names that people have in their deployments already.

/// Another name for a setting, from the systems that Skep replaces.
pub struct Alias {
    /// The environment variable.
    pub name: &'static str,
    /// The setting it sets.
    pub key: &'static str,
    /// Turns what is written there into what Skep reads, for example a bare number into `…ms`.
    pub convert: fn(&str) -> String,
}

/// All of them. Whoever adds a setting that another system had adds its name here.
pub const ALIASES: &[Alias] = &[
    Alias { name: "LOG_LEVEL", key: "log.level", convert: log_level },
    Alias { name: "LOG_FORMAT", key: "log.format", convert: log_format },
];

/// The names that other systems have for the same levels.
fn log_level(text: &str) -> String {
    match text.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" | "critical" => "error".to_owned(),
        "verbose" => "debug".to_owned(),
        other => other.to_owned(),
    }
}

/// Whatever is not JSON is for people.
fn log_format(text: &str) -> String {
    match text.to_ascii_lowercase().as_str() {
        "console" | "pretty" | "plain" | "logfmt" => "text".to_owned(),
        other => other.to_owned(),
    }
}
