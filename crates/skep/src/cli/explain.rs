//! `skep explain`: what an error code means, and why any decision came out as it did.

mod fleet;
mod kinds;
mod queues;
mod requests;
mod selection;
mod told;
mod work;

use super::ask::Path;
use super::cells::list;
use super::client::NodeArgs;
use super::output::{self, Output, text};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use crate::http::CODES;
use crate::settings::nearest;
use clap::Args;
use kinds::{Asked, KINDS, Kind};
use serde_json::Value;
use told::Explanation;

const EXAMPLES: &str = "\
Examples:
  skep explain                                 everything that can be explained
  skep explain E_KEY_MISSING                   an error code
  skep explain poll:shop                       why this node polls it
  skep explain monitor:ntp-1/ams-3             why a monitor is to a server what it is
  skep explain key:orders:mail                 where pops of the queue by the group are served
  skep explain kind:chromium                   which worker a session would get now
  skep explain pool:critical --json
  skep explain error                           all error codes

An id names its kind: poll:shop, session:s-1f2e3d-42, dead:4f1a0c9e55d2b37a. Lists print the ids,
and those of error codes, sessions and requests may stand alone. Every explanation has the same
form: what was decided, when and by whom, the rule with its numbers, everybody who could have been
taken and why they were not, what would change it, and for how long it can be explained. Ends with 1
if there is no such thing, or if it is not kept any more. Needs a key with the scope `read`, for
request: and audit: with the scope `admin`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// An error code, or what is to be explained, as in poll:shop; without one all kinds are listed
    id: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &ExplainArgs, output: Output) -> Result<Exit, CliError> {
    match arguments.id.as_deref() {
        None => list_kinds(output),
        Some(word) if word.eq_ignore_ascii_case("error") => list_codes(output),
        Some(id) => {
            let asked = kinds::parse(id)?;
            if asked.kind == Kind::Error {
                return explain_code(&asked.of, output);
            }
            let asking = explain(&arguments.node, &asked);
            small_runtime()?.block_on(asking)?.print(output);
            Ok(Exit::Ok)
        }
    }
}

async fn explain(node: &NodeArgs, asked: &Asked) -> Result<Explanation, CliError> {
    let of = asked.of.as_str();
    let mut told = match asked.kind {
        Kind::Error => Explanation::default(),
        Kind::Session => work::session(node, of).await?,
        Kind::Wish => work::wish(node, of).await?,
        Kind::Worker => work::worker(node, of).await?,
        Kind::Pool => work::pool(node, of).await?,
        Kind::Scale => work::scale(node, of).await?,
        Kind::Task => work::task(node, of).await?,
        Kind::Dead => work::dead(node, of).await?,
        Kind::Poll => fleet::poll(node, of).await?,
        Kind::Key => fleet::key(node, of).await?,
        Kind::Move => fleet::moved(node, of).await?,
        Kind::Node => fleet::node(node, of).await?,
        Kind::Monitor => selection::monitor(node, of).await?,
        Kind::Server => selection::server(node, of).await?,
        Kind::Change => selection::change(node, of).await?,
        Kind::Letter => queues::letter(node, of).await?,
        Kind::Redrive => queues::redrive(node, of).await?,
        Kind::Message => queues::message(node, of).await?,
        Kind::Route => requests::route(node, of).await?,
        Kind::Event => requests::event(node, of).await?,
        Kind::Request => requests::request(node, of).await?,
        Kind::Audit => requests::audit(node, of).await?,
    };
    told.id = asked.kind.id(of);
    told.kept = asked.kind.described().kept.to_owned();
    Ok(told)
}

/// There is none, or it is not kept any more: with those that are there and are named alike.
fn unknown(kind: Kind, of: &str, known: &[String]) -> CliError {
    let described = kind.described();
    let near = nearest(of, known.iter().map(String::as_str));
    let hint = match near {
        Some(near) => format!("did you mean {}?", kind.id(visible(near))),
        None => format!("kept: {}", described.kept),
    };
    let id = visible(&kind.id(of));
    CliError::new(Exit::No, format!("there is nothing to explain about {id}; {hint}"))
}

/// An id that is two things with a slash between them.
fn two(kind: Kind, of: &str) -> Result<(&str, &str), CliError> {
    of.rsplit_once('/').filter(|(one, other)| !one.is_empty() && !other.is_empty()).ok_or_else(
        || {
            let described = kind.described();
            let (id, form) = (visible(&kind.id(of)), kind.id(described.form));
            CliError::new(Exit::Usage, format!("{id} is not whole; give {form}"))
        },
    )
}

/// A number in an id.
fn number(kind: Kind, of: &str) -> Result<i64, CliError> {
    of.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        let (id, form) = (visible(&kind.id(of)), kind.id(kind.described().form));
        CliError::new(Exit::Usage, format!("{id}: {of:?} is no number; give {form}"))
    })
}

/// The names of what is in a list of the node, for those who mistyped one.
async fn names(node: &NodeArgs, path: &Path, rows: &str, field: &str) -> Vec<String> {
    let answer: Result<Value, CliError> = node.get(path.as_str()).await;
    let answer = answer.unwrap_or_default();
    list(&answer[rows]).iter().map(|one| text(one, field)).collect()
}

fn explain_code(asked: &str, output: Output) -> Result<Exit, CliError> {
    let wanted = asked.to_ascii_uppercase();
    let Some(code) = CODES.iter().find(|code| code.name == wanted) else {
        let names = CODES.iter().map(|code| code.name);
        let near: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        let hint = match nearest(asked, near.iter().map(String::as_str)) {
            Some(name) => format!("did you mean {}?", name.to_ascii_uppercase()),
            None => "`skep explain error` lists all".to_owned(),
        };
        return Err(CliError::new(Exit::Usage, format!("there is no code {asked:?}; {hint}")));
    };
    match output {
        Output::Json => output::json(&serde_json::json!({
            "code": code.name, "status": code.status, "title": code.title, "help": code.help,
        })),
        Output::Table => output::line(code.help.trim_end()),
    }
    Ok(Exit::Ok)
}

fn list_kinds(output: Output) -> Result<Exit, CliError> {
    let id = |one: &kinds::Described| format!("{}:{}", one.word, one.form);
    match output {
        Output::Json => {
            let all = KINDS.iter().map(|one| {
                serde_json::json!({
                    "kind": one.word, "id": id(one), "asks": one.asks, "kept": one.kept,
                })
            });
            output::json(&all.collect::<Vec<_>>());
        }
        Output::Table => {
            let row = |one| vec![id(one), one.asks.to_owned(), one.kept.to_owned()];
            output::table(&["ID", "WHAT IS EXPLAINED", "KEPT"], KINDS.iter().map(row));
        }
    }
    Ok(Exit::Ok)
}

fn list_codes(output: Output) -> Result<Exit, CliError> {
    match output {
        Output::Json => {
            let all = CODES.iter().map(|one| {
                serde_json::json!({
                    "code": one.name, "status": one.status, "title": one.title,
                })
            });
            output::json(&all.collect::<Vec<_>>());
        }
        Output::Table => output::table(
            &["CODE", "STATUS", "MEANING"],
            CODES
                .iter()
                .map(|one| vec![one.name.to_owned(), one.status.to_string(), one.title.to_owned()]),
        ),
    }
    Ok(Exit::Ok)
}
