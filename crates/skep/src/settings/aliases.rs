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
    Alias { name: "LOG_LEVEL", key: "log.level", convert: str::to_ascii_lowercase },
    Alias { name: "LOG_FORMAT", key: "log.format", convert: str::to_ascii_lowercase },
];
