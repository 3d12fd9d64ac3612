//! Queues as tables.

use crate::cli::output::{self, text};
use crate::cli::push::visible;
use serde_json::Value;

/// The group of those who name none, as the API calls it.
const QUEUE_MODE: &str = "__QUEUE_MODE__";

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(value: &Value, field: &str) -> String {
    visible(&text(value, field))
}

pub fn queues(answer: &Value) {
    let queues = list(&answer["queues"]);
    if queues.is_empty() {
        output::line("no queue; `skep push NAME '{}'` makes one");
        return;
    }
    output::table(
        &["NAME", "NAMESPACE", "TASK", "PARTITIONS", "MESSAGES", "PENDING", "DEAD", "SINCE"],
        queues.iter().map(queue_row),
    );
    if !answer["next"].is_null() {
        output::line(&format!("the next with --after {}", name(answer, "next")));
    }
}

fn queue_row(queue: &Value) -> Vec<String> {
    let messages = &queue["messages"];
    vec![
        name(queue, "name"),
        name(queue, "namespace"),
        name(queue, "task"),
        text(queue, "partitions"),
        text(messages, "total"),
        text(messages, "pending"),
        text(messages, "deadLetter"),
        to_the_second(queue, "createdAt"),
    ]
}

pub fn queue(queue: &Value) {
    output::line(&headline(queue));
    output::line("");
    let options = &queue["options"];
    let names = options.as_object().into_iter().flatten().map(|(option, _)| option);
    output::table(
        &["OPTION", "VALUE"],
        names.map(|option| vec![visible(option), name(options, option)]),
    );
    output::line("");
    let groups = list(&queue["consumerGroups"]);
    if groups.is_empty() {
        output::line("no group; the first pop makes one");
    } else {
        let headings = ["GROUP", "PENDING", "LEASED PARTITIONS", "SINCE"];
        output::table(&headings, groups.iter().map(group_row));
    }
    output::line("");
    let partitions = list(&queue["partitions"]);
    if partitions.is_empty() {
        output::line("no partition is shown");
    } else {
        let headings = ["PARTITION", "PUSHED", "LAST PUSH", "ID"];
        output::table(&headings, partitions.iter().map(partition_row));
    }
    if let Some(more) = more_partitions(queue) {
        output::line(&format!("and {more} more; --partitions COUNT shows some of them"));
    }
}

fn headline(queue: &Value) -> String {
    let mut line = name(queue, "name");
    for part in ["namespace", "task"] {
        let value = name(queue, part);
        if !value.is_empty() {
            line.push_str(&format!(", {part} {value}"));
        }
    }
    let totals = &queue["totals"];
    let [total, pending, dead] =
        ["total", "pending", "deadLetter"].map(|field| text(totals, field));
    format!("{line}\n{total} messages, {pending} pending, {dead} dead letters")
}

fn group_row(group: &Value) -> Vec<String> {
    let shown = match group["name"].as_str() {
        Some(QUEUE_MODE) => "(those who name none)".to_owned(),
        _ => name(group, "name"),
    };
    let leased = text(group, "leasedPartitions");
    vec![shown, text(group, "pending"), leased, to_the_second(group, "createdAt")]
}

fn partition_row(partition: &Value) -> Vec<String> {
    vec![
        name(partition, "name"),
        text(partition, "pushed"),
        to_the_second(partition, "lastPushAt"),
        text(partition, "id"),
    ]
}

fn more_partitions(queue: &Value) -> Option<u64> {
    let all = queue["totals"]["partitions"].as_u64()?;
    let more = all.saturating_sub(list(&queue["partitions"]).len() as u64);
    (more > 0).then_some(more)
}

/// A time of the API, which has microseconds.
fn to_the_second(value: &Value, field: &str) -> String {
    match text(value, field).parse::<jiff::Timestamp>() {
        Ok(time) => format!("{time:.0}"),
        Err(_) => name(value, field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown() -> Value {
        json!({
            "name": "shop.orders", "namespace": "shop", "task": "orders",
            "totals": {"partitions": 3, "total": 9, "pending": 4, "deadLetter": 1},
            "partitions": [{
                "id": "p-1", "name": "a\u{1b}b", "pushed": 9,
                "lastPushAt": "2026-07-01T10:00:00.123456Z"
            }],
            "consumerGroups": [
                {"name": "__QUEUE_MODE__", "pending": 4, "leasedPartitions": 2,
                 "createdAt": "2026-07-01T10:00:00.000000Z"},
            ],
        })
    }

    #[test]
    fn a_queue_is_told_in_two_lines() {
        assert_eq!(
            headline(&shown()),
            "shop.orders, namespace shop, task orders\n9 messages, 4 pending, 1 dead letters"
        );
        let plain = json!({"name": "x", "namespace": "", "task": ""});
        assert!(headline(&plain).starts_with("x\n"));
    }

    #[test]
    fn rows_have_what_the_api_says_and_steer_no_terminal() {
        let queue = shown();
        assert_eq!(
            partition_row(&queue["partitions"][0]),
            ["a\\u{1b}b", "9", "2026-07-01T10:00:00Z", "p-1"]
        );
        assert_eq!(
            group_row(&queue["consumerGroups"][0]),
            ["(those who name none)", "4", "2", "2026-07-01T10:00:00Z"]
        );
        assert_eq!(more_partitions(&queue), Some(2));
        assert_eq!(more_partitions(&json!({"totals": {"partitions": 0}})), None);
        let listed = json!({
            "name": "q", "namespace": "", "task": "", "partitions": 2, "createdAt": "odd",
            "messages": {"total": 5, "pending": 3, "deadLetter": 0},
        });
        assert_eq!(queue_row(&listed), ["q", "", "", "2", "5", "3", "0", "odd"]);
    }
}
