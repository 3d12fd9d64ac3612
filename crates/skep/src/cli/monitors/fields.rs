//! What a monitor is: for `skep monitors add` and `skep monitors set`.

use crate::cli::client::NodeArgs;
use crate::cli::entities::{ChangeArgs, Fields, kept, label, put};
use clap::Args;
use serde_json::{Value, json};

pub const ADD_EXAMPLES: &str = "\
Examples:
  skep monitors add ams-3 --ip 192.0.2.7 --account acme
  skep monitors add fra-1 --ip 2001:db8::7 --status testing --label city=fra
  skep monitors add old-1 --ip 192.0.2.9 --no-key

Unless --status says otherwise it is pending: it measures nothing until it is approved with
`skep monitors status`. The key has the scope `agent` and is this monitor's alone. Needs a key with
the scope `admin`.";

pub const SET_EXAMPLES: &str = "\
Examples:
  skep monitors set ams-3 --ip 192.0.2.8
  skep monitors set ams-3 --label city=ams --label rack=     sets the one, takes the other away
  skep monitors set ams-3 --no-account

What is not given stays as it is. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct AddArgs {
    /// The monitor's id
    id: String,

    /// Where it measures from
    #[arg(long, value_name = "ADDRESS")]
    ip: String,

    /// Whose it is
    #[arg(long, value_name = "ID")]
    account: Option<String>,

    /// What the network as a whole thinks of it [default: pending]
    #[arg(long, value_parser = ["pending", "testing", "active", "paused"])]
    status: Option<String>,

    /// Label, as in city=ams; several times for several
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// Make no key for it
    #[arg(long)]
    no_key: bool,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl AddArgs {
    /// The monitor as the API takes it; whether it makes sense is for the node to say.
    pub fn over(&self, mut fields: Fields) -> Fields {
        fields.insert("id".to_owned(), json!(self.id));
        fields.insert("ip".to_owned(), json!(self.ip));
        put(&mut fields, "account", self.account.as_ref());
        put(&mut fields, "status", self.status.as_ref());
        relabel(&mut fields, &self.labels);
        if self.no_key {
            fields.insert("key".to_owned(), json!(false));
        }
        fields
    }
}

#[derive(Args)]
pub struct SetArgs {
    #[command(flatten)]
    pub base: ChangeArgs,

    /// Label, as in city=ams; without a value it is taken away; several times for several
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

impl SetArgs {
    /// The monitor as it is to be, of which `view` is how the node has it now.
    pub fn over(&self, view: &Value) -> Fields {
        let mut fields = kept(view, &["id", "account", "ip", "status", "labels"]);
        self.base.over(&mut fields);
        relabel(&mut fields, &self.labels);
        fields
    }
}

/// Sets the labels that were given, and takes those without a value away.
fn relabel(fields: &mut Fields, given: &[(String, String)]) {
    if given.is_empty() {
        return;
    }
    let mut labels = match fields.remove("labels") {
        Some(Value::Object(labels)) => labels,
        _ => Fields::new(),
    };
    for (name, value) in given {
        match value.as_str() {
            "" => drop(labels.remove(name)),
            value => drop(labels.insert(name.clone(), json!(value))),
        }
    }
    fields.insert("labels".to_owned(), Value::Object(labels));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    enum Line {
        Add(Box<AddArgs>),
        Set(Box<SetArgs>),
    }

    fn fields(line: &[&str], view: &Value) -> Value {
        Value::Object(match Line::try_parse_from([&["monitors"], line].concat()).expect("fine") {
            Line::Add(add) => add.over(Fields::new()),
            Line::Set(set) => set.over(view),
        })
    }

    #[test]
    fn a_monitor_is_added_as_it_was_given() {
        let line = ["add", "a", "--ip", "192.0.2.1", "--label", "city=ams", "--no-key"];
        let expected = json!({ "id": "a", "ip": "192.0.2.1", "labels": { "city": "ams" },
                               "key": false });
        assert_eq!(fields(&line, &Value::Null), expected);
    }

    #[test]
    fn labels_are_set_one_by_one_and_the_rest_stays() {
        let view = json!({ "id": "a", "ip": "192.0.2.1", "account": "acme", "status": "active",
                           "effective_status": "paused",
                           "labels": { "city": "ams", "rack": "7" } });
        let after = fields(&["set", "a", "--label", "rack=", "--label", "os=bsd"], &view);
        let expected = json!({ "id": "a", "ip": "192.0.2.1", "account": "acme",
                               "status": "active", "labels": { "city": "ams", "os": "bsd" } });
        assert_eq!(after, expected);
    }
}
