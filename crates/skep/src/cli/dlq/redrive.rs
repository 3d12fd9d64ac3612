//! Dead letters on their way back, many at once.

use super::{RedrivesArgs, RetryArgs};
use crate::cli::ask::Path;
use crate::cli::cells::{list as items, more, name, to_the_second};
use crate::cli::client::NodeArgs;
use crate::cli::output::{self, Output, text};
use crate::cli::push::visible;
use crate::cli::{CliError, Exit};
use hyper::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How often somebody who waits looks.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

impl RetryArgs {
    fn body(&self, queue: &str) -> Value {
        let mut body = json!({ "queue": queue });
        self.filter.told(&mut body);
        if let Some(rate) = self.rate {
            body["rate"] = json!(rate);
        }
        if let Some(target) = &self.target {
            body["target"] = json!(target);
        }
        body
    }
}

pub async fn run(arguments: &RetryArgs, queue: &str, output: Output) -> Result<Exit, CliError> {
    let (path, body) = (Path::of(&["dlq", "redrive"]), arguments.body(queue));
    let made: Value = arguments.node.call(Method::POST, path.as_str(), Some(body)).await?;
    let id = text(&made, "id");
    let last = match arguments.wait {
        true => end_of(&arguments.node, &id).await?,
        false => made,
    };
    match output {
        Output::Json => output::json(&last),
        Output::Table if arguments.wait => output::line(&told(&last)),
        Output::Table => {
            output::line(&format!(
                "{} begins; `skep dlq redrives` tells how it goes",
                visible(&id)
            ));
        }
    }
    let stopped = last["state"] == "stopped";
    Ok(if arguments.wait && stopped { Exit::No } else { Exit::Ok })
}

/// Waits for the end of a redrive.
async fn end_of(node: &NodeArgs, id: &str) -> Result<Value, CliError> {
    let path = Path::of(&["dlq", "redrives", id]);
    // Draws itself only on a terminal.
    let progress = indicatif::ProgressBar::new(0);
    loop {
        let now: Value = node.get(path.as_str()).await?;
        progress.set_length(now["total"].as_u64().unwrap_or(0));
        progress.set_position(now["moved"].as_u64().unwrap_or(0));
        if !now["endedAt"].is_null() {
            progress.finish_and_clear();
            return Ok(now);
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// A redrive that has ended.
fn told(redrive: &Value) -> String {
    let (moved, state) = (text(redrive, "moved"), name(redrive, "state"));
    let place = match redrive["target"].as_str() {
        Some(target) => format!("went to {}", visible(target)),
        None => format!("went back to {}", name(redrive, "queue")),
    };
    format!("{moved} dead letters {place}; it is {state}")
}

pub async fn list(arguments: &RedrivesArgs, output: Output) -> Result<Exit, CliError> {
    if let Some(id) = &arguments.stop {
        let path = Path::of(&["dlq", "redrives", id]);
        let answer: Value = arguments.node.call(Method::DELETE, path.as_str(), None).await?;
        match output {
            Output::Json => output::json(&answer),
            Output::Table => output::line(&format!("{} stops", visible(id))),
        }
        return Ok(Exit::Ok);
    }
    let path = Path::of(&["dlq", "redrives"])
        .with("limit", arguments.limit)
        .and("before", arguments.before.as_ref());
    let answer: Value = arguments.node.get(path.as_str()).await?;
    let redrives = items(&answer["redrives"]);
    match output {
        Output::Json => output::json(&answer),
        Output::Table if redrives.is_empty() => output::line("no redrive"),
        Output::Table => {
            output::table(
                &["ID", "QUEUE", "TARGET", "FILTER", "RATE", "STATE", "MOVED", "BEGAN", "ENDED"],
                redrives.iter().map(row),
            );
            more(&answer["next"], "--before");
        }
    }
    Ok(Exit::Ok)
}

fn row(redrive: &Value) -> Vec<String> {
    let of = redrive["total"].as_u64().map_or(String::new(), |total| format!(" of {total}"));
    let rate = redrive["rate"].as_f64().filter(|rate| *rate > 0.0);
    vec![
        name(redrive, "id"),
        name(redrive, "queue"),
        name(redrive, "target"),
        filter(&redrive["filter"]),
        rate.map_or(String::new(), |rate| format!("{rate}/s")),
        name(redrive, "state"),
        format!("{}{of}", text(redrive, "moved")),
        to_the_second(redrive, "createdAt"),
        to_the_second(redrive, "endedAt"),
    ]
}

/// Only what was asked for.
fn filter(filter: &Value) -> String {
    let fields = filter.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let told = fields.map(|(field, _)| format!("{}={}", visible(field), name(filter, field)));
    told.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_is_told_with_how_far_it_is() {
        let redrive = json!({
            "id": "r-1", "queue": "orders", "target": null, "rate": 50, "state": "running",
            "filter": {"consumerGroup": "audit", "from": null, "error": "time out"},
            "moved": 7, "total": 9, "createdAt": "2026-07-01T00:00:00.5Z", "endedAt": null,
        });
        let row = row(&redrive);
        assert_eq!(row[3], "consumerGroup=audit error=time out");
        assert_eq!(row[4..7], ["50/s", "running", "7 of 9"]);
        assert_eq!(told(&redrive), "7 dead letters went back to orders; it is running");
        let elsewhere = json!({"queue": "q", "target": "mended", "moved": 1, "state": "done"});
        assert_eq!(told(&elsewhere), "1 dead letters went to mended; it is done");
    }
}
