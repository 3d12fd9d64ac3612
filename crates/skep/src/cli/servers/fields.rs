//! What a server is: for `skep servers add` and `skep servers set`.

use crate::cli::client::NodeArgs;
use crate::cli::entities::{ChangeArgs, Fields, kept, put};
use clap::Args;
use serde_json::{Value, json};

pub const ADD_EXAMPLES: &str = "\
Examples:
  skep servers add ntp-1 --ip 192.0.2.17                          NTP at the address, port 123
  skep servers add ntp-2 --ip 192.0.2.18 --ntp time.example:1123 --account acme
  skep servers add web-1 --ip 192.0.2.19 --http https://www.example/ --timeout 3s
  skep servers add db-1 --ip 2001:db8::5 --tcp [2001:db8::5]:5432 --paused

Every monitor of the same address family that is globally testing or active becomes a candidate.
Needs a key with the scope `admin`.";

pub const SET_EXAMPLES: &str = "\
Examples:
  skep servers set ntp-1 --ip 192.0.2.30
  skep servers set web-1 --http https://www.example/health --expect-status 204
  skep servers set ntp-1 --no-account

What is not given stays as it is. Needs a key with the scope `admin`.";

/// How it is measured.
#[derive(Args)]
pub struct ProbeArgs {
    /// Ask this host and port for the time
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["http", "tcp"])]
    ntp: Option<String>,

    /// Ask this address over HTTP or HTTPS
    #[arg(long, value_name = "URL", conflicts_with = "tcp")]
    http: Option<String>,

    /// Connect to this host and port
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<String>,

    /// How long an answer may take, from 100ms to 30s [default: 5s]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,

    /// The status that is well, of HTTP [default: 200 to 399]
    #[arg(long, value_name = "STATUS")]
    expect_status: Option<u16>,
}

impl ProbeArgs {
    /// The probe as it is to be, of which `probe` was there before.
    fn over(&self, mut probe: Fields) -> Fields {
        let kinds = [("ntp", &self.ntp), ("http", &self.http), ("tcp", &self.tcp)];
        for (kind, target) in kinds {
            let Some(target) = target else { continue };
            if probe.get("kind") != Some(&json!(kind)) {
                probe.remove("expect_status");
            }
            probe.insert("kind".to_owned(), json!(kind));
            probe.insert("target".to_owned(), json!(target));
        }
        put(&mut probe, "timeout", self.timeout.as_ref());
        if let Some(status) = self.expect_status {
            probe.insert("expect_status".to_owned(), json!(status));
        }
        probe.entry("kind").or_insert_with(|| json!("ntp"));
        probe
    }

    fn has_target(&self) -> bool {
        self.ntp.is_some() || self.http.is_some() || self.tcp.is_some()
    }
}

#[derive(Args)]
pub struct AddArgs {
    /// The server's id
    id: String,

    /// Its address
    #[arg(long, value_name = "ADDRESS")]
    ip: String,

    /// Whose it is
    #[arg(long, value_name = "ID")]
    account: Option<String>,

    #[command(flatten)]
    probe: ProbeArgs,

    /// Do not measure it yet
    #[arg(long)]
    paused: bool,

    #[command(flatten)]
    pub node: NodeArgs,
}

impl AddArgs {
    /// The server as the API takes it; whether it makes sense is for the node to say.
    pub fn over(&self, mut fields: Fields) -> Fields {
        fields.insert("id".to_owned(), json!(self.id));
        fields.insert("ip".to_owned(), json!(self.ip));
        put(&mut fields, "account", self.account.as_ref());
        let probe = self.probe.over(Fields::new());
        fields.insert("probe".to_owned(), Value::Object(probe));
        if self.paused {
            fields.insert("paused".to_owned(), json!(true));
        }
        fields
    }
}

#[derive(Args)]
pub struct SetArgs {
    #[command(flatten)]
    pub base: ChangeArgs,

    #[command(flatten)]
    probe: ProbeArgs,
}

impl SetArgs {
    /// The server as it is to be, of which `view` is how the node has it now.
    pub fn over(&self, view: &Value) -> Fields {
        let mut fields = kept(view, &["id", "ip", "account", "paused"]);
        let mut probe = kept(&view["probe"], &["kind", "target", "expect_status"]);
        if let Some(ms) = view["probe"]["timeout_ms"].as_u64() {
            probe.insert("timeout".to_owned(), json!(format!("{ms}ms")));
        }
        if let (Some(ip), false) = (&self.base.ip, self.probe.has_target()) {
            moved(&mut probe, view["ip"].as_str().unwrap_or_default(), ip);
        }
        fields.insert("probe".to_owned(), Value::Object(self.probe.over(probe)));
        self.base.over(&mut fields);
        fields
    }
}

/// A target that was the server's own address follows it.
fn moved(probe: &mut Fields, before: &str, now: &str) {
    let target = probe.get("target").and_then(Value::as_str).unwrap_or_default();
    let bracketed = |ip: &str| if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let rest = match target.strip_prefix(&bracketed(before)) {
        _ if target == before => Some(""),
        Some(rest) if rest.starts_with(':') => Some(rest),
        _ => None,
    };
    if let Some(rest) = rest {
        let target = format!("{}{rest}", bracketed(now));
        probe.insert("target".to_owned(), json!(target));
    }
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
        Value::Object(match Line::try_parse_from([&["servers"], line].concat()).expect("fine") {
            Line::Add(add) => add.over(Fields::new()),
            Line::Set(set) => set.over(view),
        })
    }

    #[test]
    fn a_server_is_asked_for_the_time_unless_it_says_otherwise() {
        let found = fields(&["add", "a", "--ip", "192.0.2.1"], &Value::Null);
        assert_eq!(found, json!({ "id": "a", "ip": "192.0.2.1", "probe": { "kind": "ntp" } }));
        let line = ["add", "a", "--ip", "::1", "--http", "http://a/", "--expect-status", "204"];
        let probe = json!({ "kind": "http", "target": "http://a/", "expect_status": 204 });
        assert_eq!(fields(&line, &Value::Null)["probe"], probe);
    }

    #[test]
    fn what_is_not_given_stays_and_a_target_that_was_its_address_follows() {
        let probe = json!({ "kind": "ntp", "target": "192.0.2.1:123", "timeout_ms": 3000 });
        let view = json!({ "id": "a", "ip": "192.0.2.1", "account": "acme", "probe": probe,
                           "paused": true, "score": 20 });
        let after = fields(&["set", "a", "--ip", "2001:db8::1"], &view);
        let probe = json!({ "kind": "ntp", "target": "[2001:db8::1]:123", "timeout": "3000ms" });
        let expected = json!({ "id": "a", "ip": "2001:db8::1", "account": "acme",
                               "paused": true, "probe": probe });
        assert_eq!(after, expected);
        let after = fields(&["set", "a", "--tcp", "b:80", "--no-account"], &view);
        assert_eq!(after["probe"]["kind"], "tcp");
        assert_eq!(after["account"], Value::Null);
    }

    #[test]
    fn a_target_elsewhere_stays_where_it_is() {
        let view = json!({ "id": "a", "ip": "192.0.2.1",
                           "probe": { "kind": "tcp", "target": "192.0.2.10:80" } });
        let after = fields(&["set", "a", "--ip", "192.0.2.2"], &view);
        assert_eq!(after["probe"]["target"], "192.0.2.10:80");
    }
}
