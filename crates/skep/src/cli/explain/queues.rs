//! Messages: what became of them, and why some were set aside.

use super::told::{Candidate, Explanation, picked};
use super::{Kind, names, two, unknown};
use crate::cli::CliError;
use crate::cli::ask::Path;
use crate::cli::cells::{group, group_named, list};
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use serde_json::Value;

fn at_ms(value: &Value, field: &str) -> Option<i64> {
    let at: jiff::Timestamp = value[field].as_str()?.parse().ok()?;
    Some(at.as_millisecond())
}

/// Why a message was set aside.
pub async fn letter(node: &NodeArgs, id: &str) -> Result<Explanation, CliError> {
    let Some(letter): Option<Value> = node.find(Path::of(&["dlq", id]).as_str()).await? else {
        let known = names(node, &Path::of(&["dlq"]), "messages", "id").await;
        return Err(unknown(Kind::Letter, id, &known));
    };
    let queue = text(&letter, "queue");
    let path = Path::of(&["resources", "queues", &queue]);
    let options: Option<Value> = node.find(path.as_str()).await?;
    let options = options.unwrap_or_default();
    let limit = options["options"]["retryLimit"].as_u64();
    let retries = letter["retryCount"].as_u64().unwrap_or(0);
    let (rule, why) = match limit {
        Some(limit) if retries >= limit => {
            ("retry-limit", format!("it failed more often than the {limit} retries of its queue"))
        }
        _ => ("set-aside", "its consumer, or an operator, said so".to_owned()),
    };
    let mut numbers = picked(&letter, &["retryCount", "partition", "transactionId"]);
    if let Some(limit) = limit {
        numbers.insert("retryLimit".to_owned(), Value::from(limit));
    }
    let by = group_named(&text(&letter, "consumerGroup"));
    let error = letter["errorMessage"].as_str().unwrap_or("(its consumer said nothing)");
    Ok(Explanation {
        decided: format!("it was set aside from the queue {queue} for the group {by}"),
        by: Some(format!("the group {by}")),
        at_ms: at_ms(&letter, "failedAt"),
        rule: rule.to_owned(),
        why,
        numbers,
        candidates: vec![Candidate::passed_over("the last try", error)],
        see: vec![format!("skep dlq show {id}")],
        ..Explanation::default()
    }
    .unless_as_told(&letter))
}

/// What dead letters went back.
pub async fn redrive(node: &NodeArgs, id: &str) -> Result<Explanation, CliError> {
    let path = Path::of(&["dlq", "redrives", id]);
    let Some(one): Option<Value> = node.find(path.as_str()).await? else {
        let known = names(node, &Path::of(&["dlq", "redrives"]), "redrives", "id").await;
        return Err(unknown(Kind::Redrive, id, &known));
    };
    let queue = text(&one, "queue");
    let target = one["target"].as_str().map_or_else(|| queue.clone(), str::to_owned);
    let state = text(&one, "state");
    let mut numbers = picked(&one, &["moved", "skipped", "total", "rate"]);
    numbers.extend(one["filter"].as_object().cloned().unwrap_or_default());
    Ok(Explanation {
        decided: format!("dead letters of {queue} go to {target}: it is {state}"),
        by: Some(text(&one, "createdBy")),
        at_ms: at_ms(&one, "createdAt"),
        rule: state,
        why: "skipped are those that do not fit its filters, or were gone".to_owned(),
        numbers,
        see: vec!["skep dlq redrives".to_owned(), format!("skep dlq ls {queue}")],
        ..Explanation::default()
    }
    .unless_as_told(&one))
}

/// What became of a message, for each group.
pub async fn message(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    // Transaction ids may have slashes, ids of partitions have none.
    two(Kind::Message, of)?;
    let (partition, transaction) = of.split_once('/').unwrap_or((of, ""));
    let path = Path::of(&["messages", partition, transaction]);
    let Some(one): Option<Value> = node.find(path.as_str()).await? else {
        return Err(unknown(Kind::Message, of, &[]));
    };
    let (queue, status) = (text(&one, "queue"), text(&one, "status"));
    let groups = list(&one["consumerGroups"]).iter().map(|of| {
        let (name, status) = (group(of, "name"), text(of, "status"));
        match status.as_str() {
            "processing" => Candidate::taken(name, "has it leased, and has not settled it"),
            "completed" => Candidate::passed_over(name, "is done with it"),
            _ => Candidate::passed_over(name, "has not got to it: what is before it comes first"),
        }
    });
    Ok(Explanation {
        decided: format!("in the queue {queue} it is {status}"),
        at_ms: at_ms(&one, "createdAt"),
        rule: status,
        numbers: picked(&one, &["partition", "priority", "producerSub"]),
        candidates: groups.collect(),
        see: vec![
            format!("skep messages show {partition} {transaction}"),
            format!("skep traces show {partition} {transaction}"),
        ],
        ..Explanation::default()
    }
    .unless_as_told(&one))
}
