//! Plans, explanations and what-ifs of a snapshot: no node is needed.

use super::args::{ExplainArgs, PlanArgs, WhatIfArgs};
use super::print;
use crate::cli::output::{self, Output};
use crate::cli::polls::read_file;
use crate::cli::{CliError, Exit};
use serde_json::{Map, Value, json};
use skep_monitors::flips::flips;
use skep_monitors::offline::{Flaw, Fleet, PlanDocument, PlanTotals, Plans, Watched, WhatIf};
use std::path::Path;

pub fn plan(arguments: &PlanArgs, file: &Path, output: Output) -> Result<Exit, CliError> {
    let fleet = read(file, &arguments.settings())?;
    let one = match &arguments.server {
        Some(server) => Some(fleet.server(server).map_err(|flaw| nobody(file, &flaw))?),
        None => fleet.servers().first().filter(|_| fleet.servers().len() == 1),
    };
    match (output, one) {
        (Output::Json, Some(one)) => output::json(&Plans::one(&fleet, one)),
        (Output::Json, None) => output::json_in_pieces(&Plans::all(&fleet)),
        (Output::Table, Some(one)) => print::plans(&json!({ "plans": [document(&fleet, one)] })),
        (Output::Table, None) => print::plans(&changes(&fleet)),
    }
    Ok(Exit::Ok)
}

pub fn explain(arguments: &ExplainArgs, file: &Path, output: Output) -> Result<Exit, CliError> {
    let fleet = read(file, &arguments.settings())?;
    let (server, monitor) = (&arguments.server, &arguments.monitor);
    let explained = fleet.explain(server, monitor).map_err(|flaw| nobody(file, &flaw))?;
    let watched = fleet.server(server).map_err(|flaw| nobody(file, &flaw))?;
    let (roster, plan) = (fleet.roster(watched), fleet.plan(watched));
    let place = roster.find(&explained.monitor).unwrap_or_default();
    let Watched { server, assignments, .. } = watched;
    let would_flip = flips(roster, server, assignments, fleet.now(), &plan, place);
    let mut answer = json!(explained);
    answer["would_flip"] = json!(would_flip);
    if !fleet.is_dated() {
        for violation in answer["violations"].as_array_mut().into_iter().flatten() {
            violation.as_object_mut().map(|violation| violation.remove("since"));
        }
    }
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::explanation(&answer),
    }
    Ok(Exit::Ok)
}

pub fn what_if(arguments: &WhatIfArgs, file: &Path, output: Output) -> Result<Exit, CliError> {
    let what_if = WhatIf::parse(&arguments.body()).map_err(|flaws| usage(&flaws))?;
    if what_if.is_empty() {
        let message = "what if what? Give --set, --limit, --drop-account or --drop-monitor";
        return Err(CliError::new(Exit::Usage, message));
    }
    let fleet = read(file, &Map::new())?;
    let compared = fleet.what_if(&what_if).map_err(|flaws| usage(&flaws))?;
    match output {
        Output::Json => output::json_in_pieces(&compared),
        Output::Table => print::what_if(&json!(compared)),
    }
    Ok(Exit::Ok)
}

fn name(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => file.display().to_string(),
    }
}

fn read(file: &Path, set: &Map<String, Value>) -> Result<Fleet, CliError> {
    let content = read_file(file)?;
    Fleet::read(&content, set).map_err(|refused| {
        let mut lines = refused.lines(&name(file));
        let of_file = |flaw: &Flaw| !flaw.path.starts_with("set.");
        if refused.broken.is_none() && !refused.flaws.iter().any(of_file) {
            return CliError::new(Exit::Usage, lines.join("\n"));
        }
        lines.push("E_SNAPSHOT_INVALID: see `skep explain E_SNAPSHOT_INVALID`".to_owned());
        CliError::new(Exit::Data, lines.join("\n"))
    })
}

fn nobody(file: &Path, flaw: &Flaw) -> CliError {
    CliError::new(Exit::Usage, format!("{}: {flaw}", name(file)))
}

fn usage(flaws: &[Flaw]) -> CliError {
    let lines: Vec<String> = flaws.iter().map(ToString::to_string).collect();
    CliError::new(Exit::Usage, lines.join("\n"))
}

fn document(fleet: &Fleet, watched: &Watched) -> Value {
    let (roster, plan) = (fleet.roster(watched), fleet.plan(watched));
    let dated = fleet.is_dated();
    json!(PlanDocument::new(&plan, roster, &watched.server, fleet.now(), dated))
}

/// What changes in a fleet; nobody reads the states of thousands of servers in a table.
fn changes(fleet: &Fleet) -> Value {
    let (mut plans, mut totals) = (Vec::new(), PlanTotals::default());
    for watched in fleet.servers() {
        let plan = fleet.plan(watched);
        totals.add(&plan, fleet.settings());
        if !plan.changes.is_empty() {
            let changes = plan.changes_view(fleet.roster(watched));
            plans.push(json!({ "server": watched.server.id, "changes": changes }));
        }
    }
    json!({ "plans": plans, "totals": totals })
}
