//! Environment names that people have in their deployments already.

/// Another name for a setting, from the systems that Skep replaces.
pub struct Alias {
    /// The environment variable.
    pub name: &'static str,
    /// The setting it sets.
    pub key: &'static str,
    /// Turns what is written there into what Skep reads, for example a bare number into `…ms`.
    pub convert: fn(&str) -> String,
    /// A newer name for the same setting is in [`ALIASES`] too, and wins.
    pub is_older: bool,
}

const fn alias(name: &'static str, key: &'static str) -> Alias {
    Alias { name, key, convert: str::to_owned, is_older: false }
}

/// The names of a tier's settings.
macro_rules! tier_aliases {
    ($upper:literal, $lower:literal) => {
        [
            alias(concat!("WORKER_", $upper, "_MIN"), concat!("pools.", $lower, ".min")),
            alias(concat!("WORKER_", $upper, "_MAX"), concat!("pools.", $lower, ".max")),
            alias(concat!("WORKER_", $upper, "_QUEUE"), concat!("pools.", $lower, ".queue")),
            Alias {
                is_older: true,
                ..alias(
                    concat!("WORKER_", $upper, "_TASKS_PER_WORKER"),
                    concat!("pools.", $lower, ".scale_up_ratio"),
                )
            },
            alias(
                concat!("WORKER_", $upper, "_SCALE_UP_RATIO"),
                concat!("pools.", $lower, ".scale_up_ratio"),
            ),
            alias(
                concat!("WORKER_", $upper, "_SCALE_DOWN_RATIO"),
                concat!("pools.", $lower, ".scale_down_ratio"),
            ),
            alias(
                concat!("WORKER_", $upper, "_OVERFLOW_RATIO"),
                concat!("pools.", $lower, ".overflow_ratio"),
            ),
            alias(
                concat!("WORKER_", $upper, "_IDLE_TIMEOUT"),
                concat!("pools.", $lower, ".idle_timeout"),
            ),
            alias(
                concat!("WORKER_", $upper, "_TASK_TIMEOUT"),
                concat!("pools.", $lower, ".task_timeout"),
            ),
            alias(
                concat!("WORKER_", $upper, "_MAX_RETRIES"),
                concat!("pools.", $lower, ".max_retries"),
            ),
        ]
    };
}

/// All of them, by part. Whoever adds a setting that another system had adds its name here.
pub const ALIASES: &[&[Alias]] = &[
    &[
        Alias { convert: log_level, ..alias("LOG_LEVEL", "log.level") },
        Alias { convert: log_format, ..alias("LOG_FORMAT", "log.format") },
    ],
    &tier_aliases!("CRITICAL", "critical"),
    &tier_aliases!("HIGH", "high"),
    &tier_aliases!("NORMAL", "normal"),
    &tier_aliases!("LOW", "low"),
    &[
        alias("WORKER_SHARED_MIN", "pools.shared.min"),
        alias("WORKER_SHARED_MAX", "pools.shared.max"),
        alias("WORKER_SHARED_STEAL_THRESHOLD", "pools.shared.steal_threshold"),
        alias("WORKER_SHARED_IDLE_TIMEOUT", "pools.shared.idle_timeout"),
        alias("WORKER_IDLE_TIMEOUT", "pools.idle_timeout"),
        alias("WORKER_RETRY_BASE", "pools.retry_base"),
        alias("WORKER_BACKGROUND_CPU", "pools.background_processors"),
        alias("WORKER_POOLS_ENABLED", "pools.enabled"),
        alias("WORKER_AUTO_CONFIGURE", "pools.auto_configure"),
    ],
    &[
        alias("MAX_CONCURRENT_SESSIONS", "sessions.slots"),
        alias("MAX_LIFETIME_SESSIONS", "sessions.lifetime_max"),
        alias("DEFAULT_BROWSER_TYPE", "sessions.default_kind"),
        Alias { convert: seconds, ..alias("WORKER_SELECT_TIMEOUT", "sessions.wait_max") },
    ],
    &[
        alias("QUEEN_ENCRYPTION_KEY", "queues.encryption_key"),
        Alias {
            convert: subscription,
            ..alias("DEFAULT_SUBSCRIPTION_MODE", "queues.default_subscription")
        },
    ],
    &[
        alias("QUEEN_COORDINATOR_ENABLED", "cluster.forwarding"),
        alias("QUEEN_COORDINATOR_FORWARD_THRESHOLD", "cluster.forward_threshold"),
        Alias {
            convert: milliseconds,
            ..alias("QUEEN_COORDINATOR_TIMEOUT_MS", "cluster.forward_timeout")
        },
        Alias { convert: milliseconds, ..alias("QUEEN_AFFINITY_TTL_MS", "cluster.affinity_ttl") },
        alias("QUEEN_AFFINITY_MIGRATE_THRESHOLD", "cluster.affinity_migrate_threshold"),
        alias("QUEEN_AFFINITY_BREAK_THRESHOLD", "cluster.affinity_break_threshold"),
        alias("QUEEN_AFFINITY_MIGRATE_MIN_IMPROVEMENT", "cluster.affinity_migrate_min_improvement"),
        alias("QUEEN_QUEUE_AFFINITY_THRESHOLD", "cluster.queue_affinity_threshold"),
        alias("QUEEN_UDP_PEERS", "cluster.peers"),
        alias("QUEEN_UDP_NOTIFY_PORT", "cluster.port"),
        alias("QUEEN_SYNC_SECRET", "cluster.secret"),
        Alias { convert: milliseconds, ..alias("QUEEN_SYNC_HEARTBEAT_MS", "cluster.heartbeat") },
        Alias {
            convert: milliseconds,
            ..alias("QUEEN_SYNC_DEAD_THRESHOLD_MS", "cluster.dead_after")
        },
    ],
];

/// All of them, one after the other.
pub fn aliases() -> impl Iterator<Item = &'static Alias> {
    ALIASES.iter().copied().flatten()
}

/// A bare number is in seconds.
fn seconds(text: &str) -> String {
    with_unit(text, "s")
}

/// A bare number is in milliseconds.
fn milliseconds(text: &str) -> String {
    with_unit(text, "ms")
}

fn with_unit(text: &str, unit: &str) -> String {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if bare { format!("{text}{unit}") } else { text.to_owned() }
}

/// Nothing is everything, as it is there.
fn subscription(text: &str) -> String {
    match text {
        "" => "all".to_owned(),
        "new-only" => "new".to_owned(),
        other => other.to_owned(),
    }
}

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
