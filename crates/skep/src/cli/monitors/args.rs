//! What plan, apply, explain and what-if are given.

use crate::cli::client::NodeArgs;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

const PLAN_EXAMPLES: &str = "\
Examples:
  skep monitors plan                           the fleet: what the next reviews would change
  skep monitors plan ntp-1                     one server, with a reason for every monitor
  skep monitors plan --set target_active=9
  skep monitors plan --snapshot fleet.json     without any node, from a file
  take-snapshot | skep monitors plan --snapshot - --json

A plan is a dry run: nothing is changed, and the same snapshot gives the same plan, to the byte.
Settings have the names of [monitors] in the configuration. The form of a snapshot and of --json is
in docs/monitor-snapshots.md.";

const APPLY_EXAMPLES: &str = "\
Examples:
  skep monitors apply ntp-1                    shows the plan of one server, asks, and makes it
  skep monitors apply --yes                    that of the fleet, without asking
  skep monitors plan --json > plan.json && skep monitors apply --plan plan.json

A plan that was made of an older state of its server is refused; make it again. Needs a key with
the scope `admin`.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  skep monitors explain ntp-1 ams-3
  skep monitors explain ntp-1 ams-3 --snapshot fleet.json
  skep monitors explain ntp-1 ams-3 --json";

const WHAT_IF_EXAMPLES: &str = "\
Examples:
  skep monitors what-if --set target_active=9
  skep monitors what-if --set diversity_v4=16 --set per_server_limit=1
  skep monitors what-if --limit acme=1
  skep monitors what-if --drop-account acme --drop-monitor ams-3
  skep monitors what-if --snapshot fleet.json --set target_active=9 --json

Every server is planned twice, as things are and as supposed, and the plans are compared: one review
ahead, for the whole fleet. Nothing is changed.";

/// A setting and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting(String, Value);

fn setting(text: &str) -> Result<Setting, String> {
    let (name, value) = pair(text).ok_or("it must be NAME=VALUE, as in target_active=9")?;
    let number = serde_json::from_str(value).ok().filter(Value::is_number);
    Ok(Setting(name.to_owned(), number.unwrap_or_else(|| value.into())))
}

fn limit(text: &str) -> Result<(String, u32), String> {
    let right = "it must be ACCOUNT=NUMBER, as in acme=1";
    let (account, limit) = pair(text).ok_or(right)?;
    let limit =
        limit.parse().map_err(|_| format!("{limit:?} is no number of monitors; {right}"))?;
    Ok((account.to_owned(), limit))
}

/// What stands around the last `=`: a setting has none in its value, an account may in its name.
fn pair(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

fn to_map(settings: &[Setting]) -> Map<String, Value> {
    settings.iter().map(|Setting(name, value)| (name.clone(), value.clone())).collect()
}

#[derive(Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct PlanArgs {
    /// Only this server; all if left out
    pub server: Option<String>,

    /// Plan what this file says instead of asking a node; - is standard input
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// With this setting, as in target_active=9; several times for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl PlanArgs {
    /// The settings that were given.
    pub fn settings(&self) -> Map<String, Value> {
        to_map(&self.set)
    }
}

#[derive(Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub struct ApplyArgs {
    /// Only this server; all if left out
    #[arg(conflicts_with = "plan")]
    pub server: Option<String>,

    /// What `skep monitors plan --json` printed; - is standard input
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    #[command(flatten)]
    pub node: NodeArgs,
}

#[derive(Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct ExplainArgs {
    /// The server's id
    pub server: String,

    /// The monitor's id
    pub monitor: String,

    /// Explain what this file says instead of asking a node; - is standard input
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// With this setting, as in target_active=9; several times for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl ExplainArgs {
    /// The settings that were given.
    pub fn settings(&self) -> Map<String, Value> {
        to_map(&self.set)
    }
}

#[derive(Args)]
#[command(after_help = WHAT_IF_EXAMPLES)]
pub struct WhatIfArgs {
    /// Suppose this setting, as in target_active=9; several times for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,

    /// Suppose that this account may have so many monitors active on one server
    #[arg(long = "limit", value_name = "ACCOUNT=NUMBER", value_parser = limit)]
    pub limits: Vec<(String, u32)>,

    /// Suppose that the monitors of this account are not there; several times for several
    #[arg(long = "drop-account", value_name = "ID")]
    pub drop_accounts: Vec<String>,

    /// Suppose that this monitor is not there; several times for several
    #[arg(long = "drop-monitor", value_name = "ID")]
    pub drop_monitors: Vec<String>,

    /// Compare what this file says instead of asking a node; - is standard input
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl WhatIfArgs {
    /// What is supposed, as the API takes it.
    pub fn body(&self) -> Value {
        let limits: Map<String, Value> =
            self.limits.iter().map(|(account, limit)| (account.clone(), json!(limit))).collect();
        json!({
            "set": to_map(&self.set),
            "limits": limits,
            "drop_accounts": self.drop_accounts,
            "drop_monitors": self.drop_monitors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        what_if: WhatIfArgs,
    }

    fn parse(line: &[&str]) -> Result<Value, String> {
        let line = [&["what-if"], line].concat();
        let parsed = Line::try_parse_from(line).map_err(|error| error.to_string());
        parsed.map(|line| line.what_if.body())
    }

    #[test]
    fn what_is_supposed_becomes_the_body_of_a_request() {
        let line = [
            "--set",
            "target_active=9",
            "--set",
            "recheck_after=4h",
            "--limit",
            "a=b=1",
            "--drop-account",
            "acme",
            "--drop-monitor",
            "7",
        ];
        let expected = json!({
            "set": {"target_active": 9, "recheck_after": "4h"},
            "limits": {"a=b": 1},
            "drop_accounts": ["acme"],
            "drop_monitors": ["7"],
        });
        assert_eq!(parse(&line), Ok(expected));
    }

    #[test]
    fn half_of_a_pair_is_refused_with_an_example() {
        for (line, part) in [
            (["--set", "target_active"], "as in target_active=9"),
            (["--set", "=9"], "as in target_active=9"),
            (["--limit", "acme=-1"], "\"-1\" is no number of monitors"),
        ] {
            let error = parse(&line).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
    }
}
