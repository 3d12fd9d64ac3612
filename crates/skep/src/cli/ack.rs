//! `skep ack`: what became of a message.

use super::client::NodeArgs;
use super::given::pause;
use super::output::{self, Output};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  skep ack --lease=LEASE_ID PARTITION_ID TRANSACTION_ID
  skep ack --lease=LEASE_ID --group=audit PARTITION_ID TRANSACTION_ID
  skep ack --lease=LEASE_ID --status failed --error 'no such customer' PARTITION_ID TRANSACTION_ID
  skep ack --lease=LEASE_ID --status retry --retry-after 30s PARTITION_ID TRANSACTION_ID
  skep ack --lease=LEASE_ID --status dlq PARTITION_ID TRANSACTION_ID

`skep pop` prints the command with its ids. Acknowledging a message acknowledges those before it in
its partition. Without --lease it counts only while nobody holds the partition. Ends with 1 if it is
refused. Needs a key with the scope `pop`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AckArgs {
    /// The message's partition
    partition_id: String,

    /// The message's transaction id
    transaction_id: String,

    /// The lease it was handed out with
    #[arg(long, value_name = "ID")]
    lease: Option<String>,

    /// The group it was handed out to
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// What became of it
    #[arg(long, value_enum, default_value_t)]
    status: Status,

    /// What went wrong; dead letters show it
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// With --status failed or retry: it comes again after so long, as in 30s
    #[arg(long, value_name = "DURATION", value_parser = pause)]
    retry_after: Option<u64>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Status {
    /// Done, and so is everything before it
    #[default]
    Completed,
    /// It comes again after a delay, or is a dead letter if it has failed too often
    Failed,
    /// It comes again at once, and this counts as no failure
    Retry,
    /// It is a dead letter
    Dlq,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Retry => "retry",
            Status::Dlq => "dlq",
        }
    }
}

impl AckArgs {
    fn body(&self) -> Result<Value, CliError> {
        let comes_again = matches!(self.status, Status::Failed | Status::Retry);
        let mut body = json!({
            "partitionId": self.partition_id,
            "transactionId": self.transaction_id,
            "leaseId": self.lease,
            "consumerGroup": self.group,
            "status": self.status.name(),
            "error": self.error,
        });
        match self.retry_after {
            Some(_) if !comes_again => {
                let status = self.status.name();
                let message = format!(
                    "--retry-after goes with --status failed or --status retry; with {status} the \
                     message does not come again"
                );
                return Err(CliError::new(Exit::Usage, message));
            }
            Some(millis) => body["retryAfter"] = json!(millis),
            None => {}
        }
        Ok(body)
    }
}

pub fn run(arguments: &AckArgs, output: Output) -> Result<Exit, CliError> {
    let body = arguments.body()?;
    let asking = arguments.node.call(Method::POST, "/api/v1/ack", Some(body));
    let results: Vec<Value> = small_runtime()?.block_on(asking)?;
    if output == Output::Json {
        output::json(&results);
    }
    let result = results.first().cloned().unwrap_or_default();
    let told = verdict(arguments, &result)?;
    if output == Output::Table {
        output::line(&told);
    }
    Ok(Exit::Ok)
}

/// What came of it, or why nothing did.
fn verdict(arguments: &AckArgs, result: &Value) -> Result<String, CliError> {
    let transaction = visible(&arguments.transaction_id);
    if result["success"] != true {
        let why = match result["error"].as_str() {
            Some(why) => visible(why),
            None => "the node does not say why".to_owned(),
        };
        return Err(CliError::new(Exit::No, format!("{transaction} was refused: {why}")));
    }
    let (queue, partition) = (
        visible(&output::text(result, "queueName")),
        visible(&output::text(result, "partitionName")),
    );
    let place = format!("in partition {partition} of {queue}");
    Ok(if result["noop"] == true {
        format!("{transaction} {place} was settled before; nothing changed")
    } else if result["dlq"] == true {
        format!("{transaction} {place} is a dead letter")
    } else {
        let after = arguments.retry_after.map(|millis| output::span(millis as f64 * 1e3));
        match arguments.status {
            Status::Failed | Status::Retry if after.is_some() => {
                let after = after.unwrap_or_default();
                format!("{transaction} {place} comes again after {after}")
            }
            Status::Failed => format!("{transaction} {place} comes again after a delay"),
            Status::Retry => format!("{transaction} {place} comes again"),
            Status::Completed | Status::Dlq => {
                let over = if result["leaseReleased"] == true { "; the lease is over" } else { "" };
                format!("{transaction} {place} is done{over}")
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn arguments(flags: &[&str]) -> AckArgs {
        let words = [&["skep", "ack"], flags, &["--", "p-1", "-t"]].concat();
        match Cli::try_parse_from(words).map(|cli| cli.verb) {
            Ok(Verb::Ack(arguments)) => arguments,
            Ok(_) => panic!("{flags:?} is another verb"),
            Err(error) => panic!("{flags:?}: {error}"),
        }
    }

    fn told(flags: &[&str], result: &Value) -> Result<String, CliError> {
        verdict(&arguments(flags), result)
    }

    #[test]
    fn a_pause_goes_only_with_what_comes_again() {
        for status in ["failed", "retry"] {
            let arguments = arguments(&["--status", status, "--retry-after", "30s"]);
            assert_eq!(arguments.body().expect("it is right")["retryAfter"], 30_000);
        }
        assert!(arguments(&[]).body().expect("it is right").get("retryAfter").is_none());
        for status in ["completed", "dlq"] {
            let arguments = arguments(&["--status", status, "--retry-after", "30s"]);
            let error = arguments.body().expect_err("it does not come again");
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.message.contains("--status retry"), "{error}");
        }
    }

    #[test]
    fn each_outcome_is_told_apart() {
        let result = |more: Value| {
            let mut result = json!({
                "success": true, "queueName": "orders", "partitionName": "Default", "error": null,
            });
            let more = more.as_object().cloned().unwrap_or_default();
            result.as_object_mut().expect("an object").extend(more);
            result
        };
        let place = "-t in partition Default of orders";
        for (flags, more, expected) in [
            (&[][..], json!({}), "is done"),
            (&[], json!({"leaseReleased": true}), "is done; the lease is over"),
            (&[], json!({"noop": true}), "was settled before; nothing changed"),
            (&["--status", "failed"], json!({}), "comes again after a delay"),
            (&["--status", "failed"], json!({"dlq": true}), "is a dead letter"),
            (&["--status", "retry"], json!({}), "comes again"),
            (&["--status=retry", "--retry-after=30s"], json!({}), "comes again after 30.0s"),
            (&["--status", "dlq"], json!({"dlq": true}), "is a dead letter"),
        ] {
            let told = told(flags, &result(more)).expect("it counts");
            assert_eq!(told, format!("{place} {expected}"));
        }
    }

    #[test]
    fn a_refused_word_is_an_error_with_its_reason() {
        let refused = json!({"success": false, "error": "Invalid or expired lease"});
        let error = told(&["--lease", "l"], &refused).expect_err("refused");
        assert_eq!(error.exit, Exit::No);
        assert_eq!(error.message, "-t was refused: Invalid or expired lease");
        assert_eq!(told(&[], &Value::Null).expect_err("nothing was said").exit, Exit::No);
    }
}
