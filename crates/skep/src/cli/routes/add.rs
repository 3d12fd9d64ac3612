//! `skep routes add`.

use super::path_of;
use crate::cli::client::NodeArgs;
use crate::cli::output::{self, Output};
use crate::cli::{CliError, Exit};
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  skep routes add shop --host shop.example --to 10.0.0.1:8080 --to 10.0.0.2:8080
  skep routes add api --host shop.example --path /api --strip-prefix --to api.internal:9000
  skep routes add shop --host shop.example --to 10.0.0.1:8080=3 --to 10.0.0.2:8080 --replace
  skep routes add pages --host pages.example --workers renderers
  skep routes add --file route.json

The file holds a route as JSON, with every field that docs/routes.md lists; flags win over it.
Needs a key with the scope `admin`.";

/// A longer file is no route.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Args)]
pub struct AddArgs {
    /// The route's name
    #[arg(required_unless_present = "file")]
    name: Option<String>,

    /// Whose requests: shop.example, *.example, or * for all
    #[arg(long)]
    host: Option<String>,

    /// What their path begins with
    #[arg(long)]
    path: Option<String>,

    /// Pass the path on without that
    #[arg(long)]
    strip_prefix: bool,

    /// An upstream, with its weight as in 10.0.0.1:8080=2; several times for several
    #[arg(long = "to", value_name = "HOST:PORT[=WEIGHT]", conflicts_with = "workers")]
    upstreams: Vec<String>,

    /// The kind of workers that requests go to, instead of upstreams
    #[arg(long, value_name = "KIND")]
    workers: Option<String>,

    /// Ask each upstream for this path every few seconds whether it is well
    #[arg(long, value_name = "PATH")]
    health: Option<String>,

    /// The route as JSON; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Replace the route of this name, if there is one
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub async fn run(arguments: &AddArgs, output: Output) -> Result<Exit, CliError> {
    let body = arguments.route()?;
    let (method, path) = match (arguments.replace, body["name"].as_str()) {
        (true, Some(name)) => (Method::PUT, path_of(name, "")),
        _ => (Method::POST, "/api/v1/routes".to_owned()),
    };
    let answer: Value = arguments.node.call(method, &path, Some(body)).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let (name, host, path) =
                (&answer["name"], &answer["spec"]["host"], &answer["spec"]["path"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            output::line(&format!("{} serves {}{}", text(name), text(host), text(path)));
        }
    }
    Ok(Exit::Ok)
}

impl AddArgs {
    /// The route: the file's, and flags over it. The node says what is wrong with it.
    fn route(&self) -> Result<Value, CliError> {
        let mut route = match &self.file {
            Some(file) => read(file)?,
            None => Map::new(),
        };
        let texts = [("name", &self.name), ("host", &self.host), ("path", &self.path)];
        for (field, value) in texts.into_iter().chain([("workers", &self.workers)]) {
            if let Some(value) = value {
                route.insert(field.to_owned(), json!(value));
            }
        }
        if self.strip_prefix {
            route.insert("strip_prefix".to_owned(), json!(true));
        }
        if !self.upstreams.is_empty() {
            let upstreams: Result<Vec<Value>, CliError> =
                self.upstreams.iter().map(|text| upstream(text)).collect();
            route.insert("upstreams".to_owned(), Value::Array(upstreams?));
        }
        if let Some(path) = &self.health {
            route.insert("health".to_owned(), json!({ "path": path }));
        }
        Ok(Value::Object(route))
    }
}

fn upstream(text: &str) -> Result<Value, CliError> {
    let Some((address, weight)) = text.rsplit_once('=') else { return Ok(json!(text)) };
    let weight: u32 = weight.parse().map_err(|_| {
        let message = format!("--to {text}: the weight is no number, as in {address}=2");
        CliError::new(Exit::Usage, message)
    })?;
    Ok(json!({ "address": address, "weight": weight }))
}

fn read(file: &Path) -> Result<Map<String, Value>, CliError> {
    let wrong = |what: String| CliError::new(Exit::Usage, format!("{}: {what}", file.display()));
    let mut text = String::new();
    let reading = match file.to_str() {
        Some("-") => std::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text),
        _ => std::fs::File::open(file)
            .and_then(|open| open.take(FILE_BYTES_MAX).read_to_string(&mut text)),
    };
    reading.map_err(|error| wrong(error.to_string()))?;
    match serde_json::from_str(&text) {
        Ok(Value::Object(route)) => Ok(route),
        Ok(_) => Err(wrong("it holds no route; give an object with name, host and so on".into())),
        Err(error) => Err(wrong(format!("it is no JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_may_have_a_weight() {
        assert_eq!(upstream("a:1").expect("fine"), json!("a:1"));
        let weighed = json!({ "address": "[::1]:80", "weight": 3 });
        assert_eq!(upstream("[::1]:80=3").expect("fine"), weighed);
        let wrong = upstream("a:1=much").expect_err("no number").message;
        assert!(wrong.contains("as in a:1=2"), "{wrong}");
    }
}
