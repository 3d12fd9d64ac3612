//! Monitors and the fleet as tables.

use crate::cli::cells::{bars, list, name};
use crate::cli::entities::{at, number, or_dash};
use crate::cli::output::{self, text};
use crate::cli::push::visible;
use serde_json::Value;

pub fn all(monitors: &[Value]) {
    output::table(
        &[
            "ID",
            "ACCOUNT",
            "ADDRESS",
            "STATUS",
            "ACTIVE",
            "TESTING",
            "CANDIDATE",
            "PAUSED",
            "HEARD",
            "AGENT",
        ],
        monitors.iter().map(|monitor| {
            let on = |pool: &str| text(&monitor["assignments"], pool);
            vec![
                text(monitor, "id"),
                or_dash(monitor, "account"),
                text(monitor, "ip"),
                status(monitor),
                on("active"),
                on("testing"),
                on("candidate"),
                on("paused"),
                at(monitor, "seen_at"),
                or_dash(monitor, "agent"),
            ]
        }),
    );
}

/// What it counts as, and why if that is something else than it is.
fn status(monitor: &Value) -> String {
    let (own, counts_as) = (text(monitor, "status"), text(monitor, "effective_status"));
    match counts_as.is_empty() || counts_as == own {
        true => own,
        false => format!("{counts_as}: its account is disabled ({own})"),
    }
}

pub fn one(monitor: &Value) {
    let on = |pool: &str| format!("{} {pool}", text(&monitor["assignments"], pool));
    let labels = monitor["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(name, value)| visible(&format!("{name}={}", value.as_str().unwrap_or_default())))
        .collect();
    let rows = [
        ("monitor", text(monitor, "id")),
        ("account", or_dash(monitor, "account")),
        ("address", text(monitor, "ip")),
        ("status", status(monitor)),
        ("on servers", ["active", "testing", "candidate", "paused"].map(on).join(", ")),
        ("labels", labels.join(", ")),
        ("heard", at(monitor, "seen_at")),
        ("agent", or_dash(monitor, "agent")),
        ("added", at(monitor, "created_at")),
        ("changed", at(monitor, "updated_at")),
    ];
    output::table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
}

/// The servers of a monitor.
pub fn servers(answer: &Value) {
    let found = list(&answer["assignments"]);
    if found.is_empty() {
        return output::line("\nit measures no server");
    }
    output::line("");
    output::table(
        &["SERVER", "STATUS", "SINCE", "SCORE", "LAST SAMPLE", "VIOLATES", "PAUSED BECAUSE"],
        found.iter().map(|one| {
            vec![
                text(one, "server"),
                text(one, "status"),
                at(one, "since"),
                number(one, "score", 1),
                at(one, "last_sample_at"),
                or_dash(&one["violation"], "kind"),
                or_dash(one, "pause_reason"),
            ]
        }),
    );
    if !answer["next"].is_null() {
        output::line(&format!("\nthe next with --after {}", text(answer, "next")));
    }
}

pub fn overview(answer: &Value) {
    let counts = |value: &Value, names: &[&str]| {
        let part = |name: &&str| {
            let count = value[*name].as_u64().unwrap_or(0);
            format!("{count} {}", name.replace('_', " "))
        };
        names.iter().map(part).collect::<Vec<_>>().join(", ")
    };
    let (monitors, servers) = (&answer["monitors"], &answer["servers"]);
    let churn: Vec<u64> =
        list(&answer["churn"]).iter().filter_map(|one| one["changes"].as_u64()).collect();
    let rows = [
        ("servers", counts(servers, &["total", "below_target", "paused", "unreviewed"])),
        ("monitors", counts(monitors, &["active", "testing", "pending", "paused", "deleted"])),
        ("accounts", text(answer, "accounts")),
        (
            "assignments",
            counts(&answer["assignments"], &["active", "testing", "candidate", "paused"]),
        ),
        ("reviews", counts(&answer["reviews"], &["due", "done", "failed"])),
        ("changes", format!("{} [{}]", churn.iter().sum::<u64>(), bars(&churn))),
    ];
    output::table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
}

/// The wrong lines of an import.
pub fn flaws(flaws: &Value) {
    for flaw in list(flaws) {
        let line = flaw["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        output::error(&format!("{line}{}", name(flaw, "detail")));
    }
}

pub fn imported(answer: &Value, dry_run: bool) {
    let count = |value: &Value| match value {
        Value::Object(kinds) => kinds.values().filter_map(Value::as_u64).sum(),
        other => other.as_u64().unwrap_or(0),
    };
    let kinds: Vec<String> = answer["created"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, made)| made.as_u64() != Some(0))
        .map(|(kind, made)| format!("{made} {kind}"))
        .collect();
    let kinds = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
    let (changed, unchanged) = (count(&answer["changed"]), count(&answer["unchanged"]));
    let would = if dry_run { "it would be: " } else { "" };
    output::line(&format!("{would}{kinds} created, {changed} changed, {unchanged} unchanged"));
}
