//! Plans, explanations and what-ifs as tables, whether a node or a snapshot gave them.

use crate::cli::cells::{list, name};
use crate::cli::output::{self, text, when};
use serde_json::Value;

/// Of those who gain or lose on one server so many are named.
const NAMED_MAX: usize = 4;

/// The plans of some servers. One with its states is told in full.
pub fn plans(answer: &Value) {
    match list(&answer["plans"]) {
        [one] if one["states"].is_array() => plan(one),
        some => {
            let changes = some.iter().flat_map(|plan| {
                list(&plan["changes"]).iter().map(move |change| {
                    let mut row = vec![name(plan, "server")];
                    row.extend(change_cells(change));
                    row
                })
            });
            let changes: Vec<Vec<String>> = changes.collect();
            let count = changes.len();
            if count > 0 {
                output::table(&["SERVER", "MONITOR", "FROM", "TO", "RULE", "WHY"], changes);
                output::line("");
            }
            output::line(&told(some, &answer["totals"], count));
        }
    }
}

fn told(plans: &[Value], totals: &Value, changes: usize) -> String {
    let servers = totals["servers"].as_u64().unwrap_or(plans.len() as u64);
    let changing = plans.iter().filter(|plan| !list(&plan["changes"]).is_empty()).count();
    let mut line = format!("{servers} servers, {changing} change, {changes} changes");
    for (field, words) in [
        ("promotions", "up"),
        ("demotions", "down"),
        ("blocked", "blocked"),
        ("below_target", "servers below target after that"),
        ("emergencies", "servers without anybody active"),
    ] {
        if let Some(count) = totals[field].as_u64().filter(|count| *count > 0) {
            line.push_str(&format!(", {count} {words}"));
        }
    }
    line
}

fn change_cells(change: &Value) -> Vec<String> {
    let cells = ["id", "from", "to", "rule", "reason"];
    cells.map(|field| name(change, field)).into()
}

fn plan(plan: &Value) {
    let (before, after) = (&plan["counts_before"], &plan["counts"]);
    let pools = [
        ("active", "active"),
        ("testing", "in testing"),
        ("candidate", "candidates"),
        ("paused", "paused"),
    ];
    let pool = |(field, words): (&str, &str)| {
        let (old, new) = (text(before, field), text(after, field));
        if old == new { format!("{new} {words}") } else { format!("{new} {words} (now {old})") }
    };
    output::line(&format!("{}: {}", name(plan, "server"), pools.map(pool).join(", ")));
    if plan["emergency"] == true {
        output::line("nobody is active who is not blocked: an emergency");
    }
    let changes = list(&plan["changes"]);
    if changes.is_empty() {
        output::line("nothing changes");
    } else {
        output::line("");
        let headings = ["MONITOR", "FROM", "TO", "RULE", "WHY"];
        output::table(&headings, changes.iter().map(change_cells));
    }
    output::line("");
    let state = |state: &Value| {
        ["rank", "id", "status", "state", "reason"].map(|field| name(state, field)).into()
    };
    let headings = ["RANK", "MONITOR", "STATUS", "STATE", "WHY"];
    output::table(&headings, list(&plan["states"]).iter().map(state));
    violations(&plan["violations"]);
}

fn violations(found: &Value) {
    let found = list(found);
    if found.is_empty() {
        return;
    }
    let row = |one: &Value| {
        let for_hours = one["since_hours"].as_f64().map(|hours| format!("{hours} h"));
        let since = one["since"].as_i64().map(when).or(for_hours).unwrap_or_default();
        vec![name(one, "id"), name(one, "kind"), since, name(one, "reason")]
    };
    output::line("");
    output::table(&["MONITOR", "VIOLATES", "SINCE", "WHY"], found.iter().map(row));
}

/// Why a monitor is to a server what it is.
pub fn explanation(answer: &Value) {
    let [monitor, server] = ["monitor", "server"].map(|field| name(answer, field));
    let [status, becomes] = ["status", "becomes"].map(|field| name(answer, field));
    let outcome = if status == becomes {
        format!("stays {status}")
    } else {
        format!("is {status} and becomes {becomes}")
    };
    output::line(&format!("monitor {monitor} {outcome} on server {server}"));
    let measured = &answer["measured"];
    let number = |field: &str| measured[field].as_f64().unwrap_or(0.0);
    let mut rows = vec![
        ("why", name(answer, "reason")),
        ("what would change it", name(answer, "would_change")),
        ("rank", format!("{} of {}", text(answer, "rank"), text(answer, "of"))),
        ("state", format!("{}: {}", name(answer, "state"), name(answer, "cause"))),
        (
            "measured",
            format!(
                "{}, priority {:.0}, mean step {:.2}, {:.1} ms, {:.0} samples",
                name(measured, "health"),
                number("priority"),
                number("step"),
                number("rtt_ms"),
                number("count"),
            ),
        ),
        ("changes of a sort in a run", text(answer, "budget")),
    ];
    if let Some(rule) = answer["rule"].as_str() {
        rows.insert(1, ("rule", rule.to_owned()));
    }
    let width = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, value) in rows {
        output::line(&format!("  {label:width$}  {value}"));
    }
    violations(&answer["violations"]);
    let flips = list(&answer["would_flip"]);
    if !flips.is_empty() {
        output::line("");
        let row = |flip: &Value| vec![name(flip, "if"), name(flip, "becomes")];
        output::table(&["IF", "IT BECOMES"], flips.iter().map(row));
    }
}

/// What would be different.
pub fn what_if(answer: &Value) {
    let servers = list(&answer["servers"]);
    if !servers.is_empty() {
        let headings = ["SERVER", "ACTIVE", "TESTING", "CHANGES", "GAIN", "LOSE"];
        output::table(&headings, servers.iter().map(difference));
        output::line("");
    }
    let totals = &answer["totals"];
    let compared = text(answer, "compared");
    output::line(&match servers.len() {
        0 => format!("{compared} servers compared, none would be different"),
        count => format!("{compared} servers compared, {count} would be different"),
    });
    let three = |field: &str| {
        let [before, after, what_if] =
            ["before", "after", "what_if"].map(|which| text(&totals[field], which));
        format!("{before} now, {after} after the plan, {what_if} as supposed")
    };
    let two = |field: &str| {
        let [planned, what_if] = ["planned", "what_if"].map(|which| text(&totals[field], which));
        format!("{planned} planned, {what_if} as supposed")
    };
    for (label, told) in [
        ("active", three("active")),
        ("in testing", three("testing")),
        ("servers below target", three("below_target")),
        ("changes", two("changes")),
        ("violations", two("violations")),
    ] {
        output::line(&format!("  {label:20}  {told}"));
    }
}

fn difference(one: &Value) -> Vec<String> {
    let pool = |field: &str| {
        let of = |which: &str| text(&one["counts"][which], field);
        let (after, what_if) = (of("after"), of("what_if"));
        if after == what_if { after } else { format!("{after} -> {what_if}") }
    };
    let changes = &one["changes"];
    let changes = format!("{} -> {}", text(changes, "planned"), text(changes, "what_if"));
    let [gains, loses] = ["gains", "loses"].map(|field| shifts(list(&one[field])));
    vec![name(one, "server"), pool("active"), pool("testing"), changes, gains, loses]
}

fn shifts(found: &[Value]) -> String {
    let shift = |one: &Value| {
        let to = if one["what_if"].is_null() { "gone".to_owned() } else { name(one, "what_if") };
        format!("{} ({to})", name(one, "id"))
    };
    let mut named: Vec<String> = found.iter().take(NAMED_MAX).map(shift).collect();
    if found.len() > NAMED_MAX {
        named.push(format!("{} more", found.len() - NAMED_MAX));
    }
    named.join(", ")
}
