//! Which monitors watch which server: accounts, monitors, servers, plans, and what agents say.

mod accounts;
mod agent;
mod import;
mod monitor;
mod overview;
mod planning;
mod servers;
mod views;

pub use overview::{live, newest};

use super::asked::{given, label, named, note};
use super::polls::fleet;
use crate::http::problem::{self, Flaw, Problem};
use crate::node::Shared;
use skep_monitors::store::{ChangeError as Refused, Page};
use skep_monitors::{ChangeError, Monitors, Noun};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;

/// Rows that one answer holds at most.
const PAGE_MAX: u32 = 1_000;

/// Rows of a page if nothing is said.
const PAGE: u32 = 100;

pub fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .merge(overview::routes())
        .merge(accounts::routes())
        .merge(monitor::routes())
        .merge(servers::routes())
        .merge(planning::routes())
        .merge(import::routes())
        .merge(agent::routes())
}

fn handle(shared: &Shared) -> Result<&Monitors, Problem> {
    fleet(shared).map(|fleet| &fleet.monitors)
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Bad(noun, flaws) => {
                let code = match noun {
                    Noun::Account => &problem::E_ACCOUNT_INVALID,
                    Noun::Monitor => &problem::E_MONITOR_INVALID,
                    Noun::Server => &problem::E_SERVER_INVALID,
                };
                let text = skep_monitors::Problem::all(&flaws);
                let flaws = flaws.iter().map(|flaw| of_model(None, flaw)).collect();
                Problem::new(code, text).flaws(flaws)
            }
            ChangeError::Refused(error) => Problem::from(error),
        }
    }
}

impl From<Refused> for Problem {
    fn from(error: Refused) -> Self {
        let text = error.to_string();
        let code = match error {
            Refused::Exists { what: "account", .. } => &problem::E_ACCOUNT_EXISTS,
            Refused::Exists { what: "server", .. } => &problem::E_SERVER_EXISTS,
            Refused::Exists { .. } | Refused::Leaving { .. } => &problem::E_MONITOR_EXISTS,
            Refused::Missing { what: "account", .. } => &problem::E_ACCOUNT_UNKNOWN,
            Refused::Missing { what: "server", .. } => &problem::E_SERVER_UNKNOWN,
            Refused::Missing { .. } => &problem::E_MONITOR_UNKNOWN,
            Refused::UnknownAccount { .. } => {
                return Problem::new(&problem::E_ACCOUNT_UNKNOWN, text).at("account");
            }
            Refused::AccountDisabled { .. } => &problem::E_ACCOUNT_DISABLED,
            Refused::AccountFull { .. } => &problem::E_ACCOUNT_FULL,
            Refused::InUse { .. } => &problem::E_ACCOUNT_IN_USE,
            Refused::TooMany { .. } => &problem::E_MONITORS_MAX,
            Refused::OtherFamily { .. } => &problem::E_IMPORT_INVALID,
            Refused::Store(error) => return Problem::from(error),
        };
        Problem::new(code, text)
    }
}

/// That there is nothing with this id.
fn unknown(noun: Noun, id: &str) -> Problem {
    let (what, id) = (noun.as_str(), skep_monitors::model::cut(id, 80));
    Problem::from(Refused::Missing { what, id })
}

fn of_model(line: Option<usize>, problem: &skep_monitors::Problem) -> Flaw {
    Flaw { line, field: problem.field.clone(), detail: problem.to_string() }
}

fn of_offline(flaw: &skep_monitors::offline::Flaw) -> Flaw {
    Flaw { line: None, field: flaw.path.clone(), detail: flaw.to_string() }
}

fn with_id(body: serde_json::Value, id: &str) -> Result<serde_json::Value, Problem> {
    named(body, "id", id)
}

/// How many rows a page has.
fn page_size(limit: Option<u32>) -> Result<u32, Problem> {
    match limit {
        None => Ok(PAGE),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(limit) => {
            let detail = format!("limit cannot be {limit}, it must be from 1 to {PAGE_MAX}");
            Err(Problem::new(&problem::E_QUERY_INVALID, detail).at("limit"))
        }
    }
}

/// A page of a list.
fn page(
    search: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
) -> Result<Page, Problem> {
    Ok(Page { after: given(after), limit: page_size(limit)?, search: given(search) })
}

/// A parameter that cannot have its value.
fn wrong(field: &str, text: &str, right: &str) -> Problem {
    let shown = skep_monitors::model::cut(text, 60);
    let detail = format!("{field} cannot be {shown:?}, it must be {right}");
    Problem::new(&problem::E_QUERY_INVALID, detail).at(field)
}
