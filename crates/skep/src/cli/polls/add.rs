//! `skep polls add`.

use super::path_of;
use crate::cli::client::NodeArgs;
use crate::cli::output::{self, Output};
use crate::cli::{CliError, Exit};
use crate::http::EndpointView;
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  skep polls add shop --http https://shop.example/health --interval 10s
  skep polls add api --http http://10.0.0.7/ --expect 200-299 --contains ready --label env=prod
  skep polls add db --tcp db.example:5432 --interval 30s --timeout 2s
  skep polls add cert --tls shop.example:443 --expires-in 14d --interval 1h
  skep polls add --file endpoint.json
  skep polls add shop --http https://shop.example/health --replace

Needs a key with the scope `poll`.";

#[derive(Args)]
pub struct AddArgs {
    /// The endpoint's id
    #[arg(required_unless_present = "file")]
    id: Option<String>,

    /// Ask this address over HTTP or HTTPS
    #[arg(long, value_name = "URL", conflicts_with_all = ["tcp", "tls"])]
    http: Option<String>,

    /// Connect to this host and port
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "tls")]
    tcp: Option<String>,

    /// Connect to this host and port, and look at the certificate
    #[arg(long, value_name = "HOST:PORT")]
    tls: Option<String>,

    /// The endpoint as JSON; - is standard input. Flags win over it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// How often, from 1s to 24h
    #[arg(long)]
    interval: Option<String>,

    /// How long a poll may take
    #[arg(long)]
    timeout: Option<String>,

    /// Method of the request
    #[arg(long)]
    method: Option<String>,

    /// Header of the request, as in 'accept: text/plain'; several times for several
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// Body of the request
    #[arg(long)]
    body: Option<String>,

    /// Status that is well, as in 200 or 200-299; several times for several
    #[arg(long, value_name = "STATUS")]
    expect: Vec<String>,

    /// Text that the answer must contain
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,

    /// How long the certificate must be good at least, as in 14d
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,

    /// Do not check who made the certificate
    #[arg(long)]
    no_verify: bool,

    /// How much work it is beside the others
    #[arg(long)]
    weight: Option<u32>,

    /// Label, as in env=prod; several times for several
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,

    /// Push each result to this queue
    #[arg(long, value_name = "QUEUE")]
    publish_to: Option<String>,

    /// Do not poll it yet
    #[arg(long)]
    paused: bool,

    /// Replace the endpoint with this id
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(arguments: &AddArgs, output: Output) -> Result<Exit, CliError> {
    let body = arguments.endpoint()?;
    let (method, path) = match (arguments.replace, body["id"].as_str()) {
        (true, Some(id)) => (Method::PUT, path_of(id, "")),
        _ => (Method::POST, "/api/v1/polls/endpoints".to_owned()),
    };
    let view: EndpointView = arguments.node.call(method, &path, Some(body)).await?;
    match output {
        Output::Json => output::json(&view),
        Output::Table => {
            let id = view.spec["id"].as_str().unwrap_or_default();
            let interval = view.spec["interval"].as_str().unwrap_or_default();
            let when = if arguments.paused { "once resumed" } else { "from now on" };
            output::line(&format!("{id} is polled every {interval} {when}"));
        }
    }
    Ok(Exit::Ok)
}

impl AddArgs {
    /// The endpoint as the API takes it; whether it makes sense is for the node to say.
    fn endpoint(&self) -> Result<Value, CliError> {
        let mut fields = match &self.file {
            None => Map::new(),
            Some(file) => match serde_json::from_slice(&read_file(file)?) {
                Ok(Value::Object(fields)) => fields,
                Ok(_) => return Err(usage(format!("{}: not a JSON object", file.display()))),
                Err(error) => return Err(usage(format!("{}: {error}", file.display()))),
            },
        };
        let address = self.tcp.as_ref().or(self.tls.as_ref());
        let kind = self.tcp.as_ref().map(|_| "tcp").or(self.tls.as_ref().map(|_| "tls"));
        let texts = [
            ("id", &self.id),
            ("url", &self.http),
            ("interval", &self.interval),
            ("timeout", &self.timeout),
            ("method", &self.method),
            ("body", &self.body),
            ("expires_in", &self.expires_in),
            ("publish_to", &self.publish_to),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        if let (Some(address), Some(kind)) = (address, kind) {
            fields.insert("address".to_owned(), json!(address));
            fields.insert("kind".to_owned(), json!(kind));
        }
        if let Some(weight) = self.weight {
            fields.insert("weight".to_owned(), json!(weight));
        }
        if self.no_verify {
            fields.insert("verify".to_owned(), json!(false));
        }
        if self.paused {
            fields.insert("paused".to_owned(), json!(true));
        }
        if !self.headers.is_empty() {
            fields.insert("headers".to_owned(), pairs(&self.headers, ':', "--header")?);
        }
        if !self.labels.is_empty() {
            fields.insert("labels".to_owned(), pairs(&self.labels, '=', "--label")?);
        }
        if !self.expect.is_empty() || self.contains.is_some() {
            let mut expect = Map::new();
            if !self.expect.is_empty() {
                expect.insert("status".to_owned(), json!(self.expect));
            }
            if let Some(text) = &self.contains {
                expect.insert("body".to_owned(), json!(text));
            }
            fields.insert("expect".to_owned(), Value::Object(expect));
        }
        Ok(Value::Object(fields))
    }
}

fn pairs(given: &[String], between: char, flag: &str) -> Result<Value, CliError> {
    let split = |text: &String| match text.split_once(between) {
        Some((name, value)) => Ok((name.trim().to_owned(), json!(value.trim()))),
        None => Err(usage(format!("{flag} {text:?}: give a name and a value with {between:?}"))),
    };
    Ok(Value::Object(given.iter().map(split).collect::<Result<_, _>>()?))
}

fn usage(message: String) -> CliError {
    CliError::new(Exit::Usage, message)
}

/// A file's content, or what comes on standard input for `-`.
pub fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let mut content = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut content).map(|_| ())
    } else {
        std::fs::read(path).map(|read| content = read)
    };
    read.map_err(|error| usage(format!("{} cannot be read: {error}", path.display())))?;
    Ok(content)
}
