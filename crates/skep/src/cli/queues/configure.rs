//! `skep queues set`: a queue's options.

use super::print;
use crate::cli::client::NodeArgs;
use crate::cli::output::{self, Output};
use crate::cli::push::visible;
use crate::cli::{CliError, Exit};
use crate::settings::Value as Setting;
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  skep queues set orders
  skep queues set orders --set leaseTime=5m --set retryLimit=5
  skep queues set orders --set rateLimit=100 --set ratePeriodSeconds=60
  skep queues set orders --set maxSize=null          the default again
  skep queues set orders --set leaseTime=60 --replace
  skep queues set orders --namespace shop --task orders

Options that are not named stay as they are; with --replace they get their defaults. Times are plain
numbers in the option's unit (leaseTime: seconds, retryDelay: milliseconds), or have one, as in 5m.
Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct ConfigureArgs {
    /// The queue's name; it is made if there is none
    name: String,

    /// An option and its value; several times for several
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = option)]
    options: Vec<(String, Value)>,

    /// What the queue belongs to
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// What the queue is for
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    /// Options that are not named get their defaults
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    node: NodeArgs,
}

/// How an option is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Seconds,
    Millis,
    Truth,
    Text,
}

const OPTIONS: [(&str, Kind); 24] = [
    ("priority", Kind::Number),
    ("leaseTime", Kind::Seconds),
    ("retryLimit", Kind::Number),
    ("retryDelay", Kind::Millis),
    ("retryDelayMax", Kind::Millis),
    ("ttl", Kind::Seconds),
    ("deadLetterQueue", Kind::Truth),
    ("dlqAfterMaxRetries", Kind::Truth),
    ("delayedProcessing", Kind::Seconds),
    ("windowBuffer", Kind::Seconds),
    ("retentionSeconds", Kind::Seconds),
    ("completedRetentionSeconds", Kind::Seconds),
    ("retentionEnabled", Kind::Truth),
    ("encryptionEnabled", Kind::Truth),
    ("maxWaitTimeSeconds", Kind::Seconds),
    ("maxSize", Kind::Number),
    ("dedupWindowSeconds", Kind::Seconds),
    ("maxInFlight", Kind::Number),
    ("rateLimit", Kind::Number),
    ("ratePeriodSeconds", Kind::Seconds),
    ("keyMaxInFlight", Kind::Number),
    ("keyRateLimit", Kind::Number),
    ("keyRatePeriodSeconds", Kind::Seconds),
    ("limitKeySeparator", Kind::Text),
];

/// An option as the API reads it.
fn option(text: &str) -> Result<(String, Value), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("it must be an option and a value, such as leaseTime=60".to_owned());
    };
    let Some((name, kind)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(unknown(name));
    };
    let value = match (kind, value) {
        (_, "null") => Value::Null,
        (Kind::Text, text) => Value::from(text),
        (Kind::Truth, "true") => Value::Bool(true),
        (Kind::Truth, "false") => Value::Bool(false),
        (Kind::Truth, _) => return Err(format!("{name} must be true or false")),
        (kind, text) => Value::from(number(name, *kind, text)?),
    };
    Ok(((*name).to_owned(), value))
}

fn number(name: &str, kind: Kind, text: &str) -> Result<i64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let (unit, right) = match kind {
        Kind::Seconds => (1_000_000_000, "seconds, or a time such as 5m"),
        Kind::Millis => (1_000_000, "milliseconds, or a time such as 30s"),
        _ => return Err(format!("{name} must be a whole number, it cannot be {text:?}")),
    };
    let wrong = || format!("{name} must be a whole number of {right}, it cannot be {text:?}");
    let span = <Duration as Setting>::parse(text).map_err(|_| wrong())?.as_nanos();
    match span % unit {
        0 => i64::try_from(span / unit).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn unknown(name: &str) -> String {
    let near = |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase());
    let best = OPTIONS.iter().max_by(|(a, _), (b, _)| near(a).total_cmp(&near(b)));
    match best.filter(|(known, _)| near(known) > 0.8) {
        Some((known, _)) => format!("there is no option {name:?}; did you mean {known}?"),
        None => {
            let all = OPTIONS.map(|(known, _)| known).join(", ");
            format!("there is no option {name:?}; there are {all}")
        }
    }
}

impl ConfigureArgs {
    fn body(&self) -> Result<Value, CliError> {
        let mut options = Map::new();
        for (name, value) in &self.options {
            if options.insert(name.clone(), value.clone()).is_some() {
                let message = format!("--set {name} is there twice; give each option once");
                return Err(CliError::new(Exit::Usage, message));
            }
        }
        let mut body = json!({ "queue": self.name, "options": options });
        for (field, value) in [("namespace", &self.namespace), ("task", &self.task)] {
            if let Some(value) = value {
                body[field] = json!(value);
            }
        }
        if self.replace {
            body["mode"] = json!("replace");
        }
        Ok(body)
    }
}

pub async fn run(arguments: &ConfigureArgs, output: Output) -> Result<Exit, CliError> {
    let body = Some(arguments.body()?);
    let answer: Value = arguments.node.call(Method::POST, "/api/v1/configure", body).await?;
    for ignored in answer["ignoredOptions"].as_array().into_iter().flatten() {
        let ignored = visible(ignored.as_str().unwrap_or_default());
        output::warning(&format!("the node does not know the option {ignored}"));
    }
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::options(&answer["options"]),
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::queues::QueuesVerb;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn body(more: &[&str]) -> Result<Value, String> {
        let words = [&["skep", "queues", "configure", "orders"], more].concat();
        match Cli::try_parse_from(words).map(|cli| cli.verb) {
            Ok(Verb::Queues(QueuesVerb::Set(arguments))) => {
                arguments.body().map_err(|error| error.message)
            }
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_are_sent_in_their_units() {
        let given = [
            "--set=leaseTime=5m",
            "--set=retryDelay=1500ms",
            "--set=maxSize=null",
            "--set=retentionEnabled=true",
            "--set=limitKeySeparator=:",
            "--set=priority=-3",
            "--task=t",
            "--replace",
        ];
        assert_eq!(
            body(&given).expect("it is right"),
            json!({
                "queue": "orders", "task": "t", "mode": "replace", "options": {
                    "leaseTime": 300, "retryDelay": 1_500, "maxSize": null,
                    "retentionEnabled": true, "limitKeySeparator": ":", "priority": -3,
                },
            })
        );
        assert_eq!(
            body(&[]).expect("nothing to change"),
            json!({"queue": "orders", "options": {}})
        );
    }

    #[test]
    fn a_wrong_option_says_what_would_be_right() {
        for (given, right) in [
            ("leastTime=5", "did you mean leaseTime?"),
            ("colour=red", "there are priority, leaseTime"),
            ("leaseTime", "leaseTime=60"),
            ("leaseTime=1500ms", "a time such as 5m"),
            ("leaseTime=soon", "a whole number of seconds"),
            ("maxSize=5m", "maxSize must be a whole number"),
            ("retentionEnabled=yes", "true or false"),
        ] {
            let error = body(&["--set", given]).expect_err("it is wrong");
            assert!(error.contains(right), "{given}: {error}");
        }
        let twice = body(&["--set=ttl=1", "--set=ttl=2"]).expect_err("twice");
        assert!(twice.contains("ttl is there twice"), "{twice}");
    }
}
