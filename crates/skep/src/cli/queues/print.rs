//! Queues as tables.

use crate::cli::cells::{group, list, more, name, rate, second, seconds, to_the_second};
use crate::cli::output::{self, text};
use crate::cli::push::visible;
use serde_json::Value;
use skep_policy::many_of;
use std::collections::BTreeMap;

/// Groups of a partition that are told in its row.
const GROUPS_SHOWN: usize = 3;

pub fn queues(answer: &Value, groups: &[Value]) {
    let queues = list(&answer["queues"]);
    if queues.is_empty() {
        output::line("no queue; `skep push NAME '{}'` makes one");
        return;
    }
    let oldest = oldest(groups);
    output::table(
        &[
            "NAME",
            "NAMESPACE",
            "TASK",
            "PARTITIONS",
            "MESSAGES",
            "PENDING",
            "OLDEST",
            "DELAYED",
            "DEAD",
            "PUSHED/S",
            "POPPED/S",
            "ACKED/S",
            "SINCE",
        ],
        queues.iter().map(|queue| queue_row(queue, &oldest)),
    );
    more(&answer["next"], "--after");
}

/// How long the oldest message of each queue has waited for its slowest group, in seconds.
fn oldest(groups: &[Value]) -> BTreeMap<&str, f64> {
    let mut oldest = BTreeMap::new();
    for group in groups {
        let (queue, lag) = (group["queueName"].as_str(), group["maxTimeLag"].as_f64());
        if let (Some(queue), Some(lag)) = (queue, lag) {
            let longest: &mut f64 = oldest.entry(queue).or_default();
            *longest = longest.max(lag);
        }
    }
    oldest
}

fn queue_row(queue: &Value, oldest: &BTreeMap<&str, f64>) -> Vec<String> {
    let (messages, rates) = (&queue["messages"], &queue["rates"]);
    let waited = queue["name"].as_str().and_then(|name| oldest.get(name));
    let waits = messages["pending"].as_u64() != Some(0);
    vec![
        name(queue, "name"),
        name(queue, "namespace"),
        name(queue, "task"),
        text(queue, "partitions"),
        text(messages, "total"),
        text(messages, "pending"),
        waited.filter(|_| waits).map_or(String::new(), |waited| seconds(&Value::from(*waited))),
        text(messages, "delayed"),
        text(messages, "deadLetter"),
        rate(&rates["pushed"]),
        rate(&rates["popped"]),
        rate(&rates["acked"]),
        to_the_second(queue, "createdAt"),
    ]
}

pub fn queue(queue: &Value) {
    output::line(&headline(queue));
    output::line("");
    options(&queue["options"]);
    output::line("");
    let groups = list(&queue["consumerGroups"]);
    if groups.is_empty() {
        output::line("no group; the first pop makes one");
    } else {
        let headings =
            ["GROUP", "PENDING", "OLDEST", "LEASED PARTITIONS", "WAITING PARTITIONS", "SINCE"];
        output::table(&headings, groups.iter().map(group_row));
    }
    output::line("");
    let partitions = list(&queue["partitions"]);
    if partitions.is_empty() {
        output::line("no partition is shown");
    } else {
        let headings = ["PARTITION", "PRIORITY", "PUSHED", "LAST PUSH", "ID"];
        output::table(&headings, partitions.iter().map(partition_row));
    }
    if let Some(more) = more_partitions(queue) {
        output::line(&format!("and {more} more; --partitions COUNT shows some of them"));
    }
}

/// The options of a queue.
pub fn options(options: &Value) {
    let names = options.as_object().into_iter().flatten().map(|(option, _)| option);
    output::table(
        &["OPTION", "VALUE"],
        names.map(|option| vec![visible(option), name(options, option)]),
    );
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
    let count = |field: &str| totals[field].as_u64().unwrap_or_default();
    let [total, dead] = [("total", "message"), ("deadLetter", "dead letter")]
        .map(|(field, noun)| many_of(count(field), noun));
    line.push_str(&format!("\n{total}, {} pending, {dead}", count("pending")));
    let delayed = totals["delayed"].as_u64().or(queue["messages"]["delayed"].as_u64());
    if let Some(delayed) = delayed.filter(|count| *count > 0) {
        line.push_str(&format!(", {delayed} delayed"));
    }
    if let Some(cleared) = queue["clearedAt"].as_str() {
        line.push_str(&format!("\nall messages were deleted at {}", second(cleared)));
    }
    line
}

fn group_row(of: &Value) -> Vec<String> {
    let more = if of["waitingPartitionsMore"] == true { " and more" } else { "" };
    vec![
        group(of, "name"),
        text(of, "pending"),
        seconds(&of["lagSeconds"]),
        text(of, "leasedPartitions"),
        format!("{}{more}", text(of, "waitingPartitions")),
        to_the_second(of, "createdAt"),
    ]
}

fn partition_row(partition: &Value) -> Vec<String> {
    vec![
        name(partition, "name"),
        text(partition, "priority"),
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

pub fn partitions(answer: &Value) {
    let partitions = list(&answer["partitions"]);
    if partitions.is_empty() {
        output::line("no partition");
        return;
    }
    output::table(
        &["PARTITION", "PRIORITY", "PUSHED", "KEPT", "PENDING", "LAST PUSH", "ID"],
        partitions.iter().map(full_partition_row),
    );
    more(&answer["next"], "--after");
}

fn full_partition_row(partition: &Value) -> Vec<String> {
    vec![
        name(partition, "name"),
        text(partition, "priority"),
        text(partition, "pushed"),
        text(partition, "messages"),
        pending_by_group(list(&partition["groups"])),
        to_the_second(partition, "lastPushAt"),
        text(partition, "id"),
    ]
}

/// What groups have not settled, as in `audit 3 (leased), mail 0`.
fn pending_by_group(groups: &[Value]) -> String {
    let told = groups.iter().take(GROUPS_SHOWN).map(|of| {
        let leased = if of["leasedUntil"].is_null() { "" } else { " (leased)" };
        format!("{} {}{leased}", group(of, "name"), text(of, "pending"))
    });
    let mut told: Vec<String> = told.collect();
    if groups.len() > GROUPS_SHOWN {
        told.push(format!("{} more", groups.len() - GROUPS_SHOWN));
    }
    told.join(", ")
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
                "id": "p-1", "name": "a\u{1b}b", "priority": 5, "pushed": 9,
                "lastPushAt": "2026-07-01T10:00:00.123456Z"
            }],
            "consumerGroups": [
                {"name": "__QUEUE_MODE__", "pending": 4, "leasedPartitions": 2,
                 "waitingPartitions": 7, "waitingPartitionsMore": true, "lagSeconds": 61.5,
                 "createdAt": "2026-07-01T10:00:00.000000Z"},
            ],
        })
    }

    #[test]
    fn a_queue_is_told_in_two_lines_and_more_only_if_there_is_more_to_tell() {
        let mut queue = shown();
        let plainly =
            "shop.orders, namespace shop, task orders\n9 messages, 4 pending, 1 dead letter";
        assert_eq!(headline(&queue), plainly);
        queue["totals"]["delayed"] = json!(2);
        queue["clearedAt"] = json!("2026-07-01T10:00:00.123456Z");
        let more = "2 delayed\nall messages were deleted at 2026-07-01T10:00:00Z";
        assert_eq!(headline(&queue), format!("{plainly}, {more}"));
        let plain = json!({"name": "x", "namespace": "", "task": ""});
        assert!(headline(&plain).starts_with("x\n"));
    }

    #[test]
    fn rows_have_what_the_api_says_and_steer_no_terminal() {
        let queue = shown();
        assert_eq!(
            partition_row(&queue["partitions"][0]),
            ["a\\u{1b}b", "5", "9", "2026-07-01T10:00:00Z", "p-1"]
        );
        assert_eq!(
            group_row(&queue["consumerGroups"][0]),
            ["(those who name none)", "4", "61s", "2", "7 and more", "2026-07-01T10:00:00Z"]
        );
        assert_eq!(more_partitions(&queue), Some(2));
        assert_eq!(more_partitions(&json!({"totals": {"partitions": 0}})), None);
    }

    #[test]
    fn the_oldest_message_is_that_of_the_slowest_group() {
        let groups = [
            json!({"name": "a", "queueName": "q", "maxTimeLag": 5}),
            json!({"name": "b", "queueName": "q", "maxTimeLag": 180}),
            json!({"name": "a", "queueName": "other", "maxTimeLag": 1}),
        ];
        let oldest = oldest(&groups);
        let mut listed = json!({
            "name": "q", "namespace": "", "task": "", "partitions": 2, "createdAt": "odd",
            "messages": {"total": 5, "pending": 3, "deadLetter": 0, "delayed": 1},
            "rates": {"pushed": 1.5, "popped": 20.2, "acked": 0.0, "failed": 0.0},
        });
        assert_eq!(
            queue_row(&listed, &oldest),
            ["q", "", "", "2", "5", "3", "3m", "1", "0", "1.50", "20", "0", "odd"]
        );
        listed["messages"]["pending"] = json!(0);
        assert_eq!(queue_row(&listed, &oldest)[6], "", "nothing waits");
    }

    #[test]
    fn a_partition_tells_what_its_groups_have_to_do() {
        let row = full_partition_row(&json!({
            "id": "p", "name": "a", "priority": 5, "pushed": 9, "messages": 4,
            "lastPushAt": null, "groups": [
                {"name": "audit", "pending": 3, "leasedUntil": "2026-07-01T10:00:00Z"},
                {"name": "b", "pending": 0, "leasedUntil": null}, {"name": "c", "pending": 1},
                {"name": "d", "pending": 1}, {"name": "e", "pending": 1},
            ],
        }));
        assert_eq!(row, ["a", "5", "9", "4", "audit 3 (leased), b 0, c 1, 2 more", "", "p"]);
    }
}
