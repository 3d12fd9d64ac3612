//! `skep accounts`: who runs monitors and servers, and how many each may have.

use super::ask::Path;
use super::cells::name;
use super::client::NodeArgs;
use super::entities::{self, Fields, OneArgs, PageArgs, SearchArgs, SomeArgs, limit, put};
use super::output::{self, Output, text};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// What to do with accounts.
#[derive(Subcommand)]
pub enum AccountsVerb {
    /// List accounts, what they have and what they may have
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one account
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Add an account
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArgs),
    /// Change an account
    #[command(after_help = SET_EXAMPLES)]
    Set(AddArgs),
    /// Delete accounts that have neither monitors nor servers
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep accounts ls
  skep accounts ls acme --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep accounts show acme
  skep monitors ls --account acme && skep servers ls --account acme";

const ADD_EXAMPLES: &str = "\
Examples:
  skep accounts add acme --name 'Acme Ltd.'
  skep accounts add globex --monitor-limit 20 --per-server-limit 2

An account that says nothing may register any number of monitors, and have as many active on one
server as `monitors.per_server_limit` says. Needs a key with the scope `admin`.";

const SET_EXAMPLES: &str = "\
Examples:
  skep accounts set acme --per-server-limit 1
  skep accounts set acme --monitor-limit none
  skep accounts set acme --disable           no new monitors; those it has count as paused

What is not given stays as it is. Monitors above a lowered limit leave their servers gradually.
Needs a key with the scope `admin`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep accounts rm globex

Refused while the account has monitors or servers. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    search: SearchArgs,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct AddArgs {
    /// The account's id
    id: String,

    /// What it is called, for people
    #[arg(long)]
    name: Option<String>,

    /// How many monitors it may register; `none` for any number
    #[arg(long, value_name = "COUNT", value_parser = limit, allow_negative_numbers = true)]
    monitor_limit: Option<Value>,

    /// How many of its monitors may be active on one server; `none` for what the settings say
    #[arg(long, value_name = "COUNT", value_parser = limit, allow_negative_numbers = true)]
    per_server_limit: Option<Value>,

    /// Let it register no more monitors, and count those it has as paused
    #[arg(long, conflicts_with = "enable")]
    disable: bool,

    /// Let it take part again
    #[arg(long)]
    enable: bool,

    #[command(flatten)]
    node: NodeArgs,
}

impl AddArgs {
    /// The fields as they are to be, of which `fields` were there before.
    fn over(&self, mut fields: Fields) -> Fields {
        fields.insert("id".to_owned(), json!(self.id));
        put(&mut fields, "name", self.name.as_ref());
        let mut flags = match fields.remove("flags") {
            Some(Value::Object(flags)) => flags,
            _ => Fields::new(),
        };
        let limits = [
            ("monitor_limit", &self.monitor_limit),
            ("monitor_per_server_limit", &self.per_server_limit),
        ];
        for (flag, given) in limits {
            match given {
                None => {}
                Some(Value::Null) => drop(flags.remove(flag)),
                Some(limit) => drop(flags.insert(flag.to_owned(), limit.clone())),
            }
        }
        if self.disable || self.enable {
            flags.insert("monitor_enabled".to_owned(), json!(self.enable));
        }
        fields.insert("flags".to_owned(), Value::Object(flags));
        fields
    }
}

pub fn run(verb: &AccountsVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            AccountsVerb::Ls(arguments) => {
                let path = arguments.search.of(Path::of(&["accounts"]));
                let answer = arguments.node.get(arguments.page.of(path).as_str()).await?;
                entities::print(&answer, output, |answer| {
                    entities::page(answer, "accounts", table);
                })
            }
            AccountsVerb::Show(arguments) => {
                let path = Path::of(&["accounts", &arguments.id]);
                let answer = arguments.node.get(path.as_str()).await?;
                entities::print(&answer, output, one)
            }
            AccountsVerb::Add(arguments) => {
                let fields = arguments.over(Fields::new());
                let path = Path::of(&["accounts"]);
                let answer = entities::create(&arguments.node, &path, fields).await?;
                entities::print(&answer, output, |answer| {
                    output::line(&format!("{} is added", text(answer, "id")));
                })
            }
            AccountsVerb::Set(arguments) => {
                let path = Path::of(&["accounts", &arguments.id]);
                let view: Value = arguments.node.get(path.as_str()).await?;
                let fields = arguments.over(entities::kept(&view, &["name", "flags"]));
                let answer = entities::replace(&arguments.node, &path, fields).await?;
                entities::print(&answer, output, one)
            }
            AccountsVerb::Rm(some) => {
                entities::remove(&some.node, &["accounts"], &some.ids, output).await
            }
        }
    })
}

fn is_enabled(account: &Value) -> bool {
    account["flags"]["monitor_enabled"].as_bool().unwrap_or(true)
}

fn limit_of(account: &Value, flag: &str) -> String {
    account["flags"][flag].as_u64().map_or("-".to_owned(), |limit| limit.to_string())
}

fn table(accounts: &[Value]) {
    output::table(
        &["ID", "NAME", "MONITORS", "MAY HAVE", "ON A SERVER", "SERVERS", "STATE"],
        accounts.iter().map(|account| {
            vec![
                text(account, "id"),
                name(account, "name"),
                text(account, "monitors"),
                limit_of(account, "monitor_limit"),
                limit_of(account, "monitor_per_server_limit"),
                text(account, "servers"),
                if is_enabled(account) { "enabled" } else { "disabled" }.to_owned(),
            ]
        }),
    );
}

fn one(account: &Value) {
    let limit = |flag: &str, none: &str| match limit_of(account, flag) {
        limit if limit == "-" => none.to_owned(),
        limit => limit,
    };
    let state = match is_enabled(account) {
        true => "enabled",
        false => "disabled: no new monitors, and those it has count as paused",
    };
    let rows = [
        ("account", text(account, "id")),
        ("name", entities::or_dash(account, "name")),
        ("state", state.to_owned()),
        ("monitors", text(account, "monitors")),
        ("may register", limit("monitor_limit", "any number")),
        ("active on one server", limit("monitor_per_server_limit", "as the settings say")),
        ("servers", text(account, "servers")),
        ("added", entities::at(account, "created_at")),
        ("changed", entities::at(account, "updated_at")),
    ];
    output::table(&["", ""], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        add: AddArgs,
    }

    fn over(line: &[&str], before: &Value) -> Value {
        let line = Line::try_parse_from([&["add"], line].concat()).expect("fine");
        Value::Object(line.add.over(entities::kept(before, &["name", "flags"])))
    }

    #[test]
    fn what_is_not_given_stays_and_none_takes_a_limit_away() {
        let before = json!({ "name": "Acme", "flags": { "monitor_limit": 9, "own": [1] } });
        let after = over(&["acme", "--monitor-limit", "none", "--per-server-limit", "3"], &before);
        let flags = json!({ "monitor_per_server_limit": 3, "own": [1] });
        assert_eq!(after, json!({ "id": "acme", "name": "Acme", "flags": flags }));
        let after = over(&["acme", "--disable"], &json!({}));
        assert_eq!(after["flags"], json!({ "monitor_enabled": false }));
    }

    #[test]
    fn a_limit_below_zero_is_refused_with_what_would_be_right() {
        let Err(error) = Line::try_parse_from(["add", "acme", "--monitor-limit", "-1"]) else {
            panic!("it was taken");
        };
        assert!(error.to_string().contains("from 0 on"), "{error}");
    }
}
