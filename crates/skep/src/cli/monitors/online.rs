//! Plans, explanations and what-ifs of a node, and making a plan's changes.

use super::args::{ApplyArgs, ExplainArgs, PlanArgs, WhatIfArgs};
use super::print;
use crate::cli::ask::{Path, confirm};
use crate::cli::cells::{list, name};
use crate::cli::client::NodeArgs;
use crate::cli::entities;
use crate::cli::output::{self, Output, text};
use crate::cli::polls::read_file;
use crate::cli::{CliError, Exit};
use hyper::Method;
use serde_json::{Map, Value, json};

/// So many servers to a request: each comes with a reason for each of its monitors.
const SERVERS: u32 = 50;
/// So many plans are applied with a request.
const PLANS: usize = 50;

pub async fn plan(arguments: &PlanArgs, output: Output) -> Result<Exit, CliError> {
    let mut body = Map::new();
    if let Some(server) = &arguments.server {
        body.insert("server".to_owned(), json!(server));
    }
    let settings = arguments.settings();
    if !settings.is_empty() {
        body.insert("settings".to_owned(), Value::Object(settings));
    }
    let answer = all_pages(&arguments.node, "plan", "plans", body).await?;
    entities::print(&answer, output, print::plans)
}

pub async fn explain(arguments: &ExplainArgs, output: Output) -> Result<Exit, CliError> {
    if !arguments.set.is_empty() {
        let message = "--set goes with --snapshot; a node explains what it would do as it is set. \
                       `skep monitors what-if --set …` shows what other settings would change";
        return Err(CliError::new(Exit::Usage, message));
    }
    let path = Path::of(&["monitoring", "explain", &arguments.server, &arguments.monitor]);
    let answer = arguments.node.get(path.as_str()).await?;
    entities::print(&answer, output, print::explanation)
}

pub async fn what_if(arguments: &WhatIfArgs, output: Output) -> Result<Exit, CliError> {
    let body = match arguments.body() {
        Value::Object(body) => body,
        _ => Map::new(),
    };
    let answer = all_pages(&arguments.node, "what-if", "servers", body).await?;
    entities::print(&answer, output, print::what_if)
}

/// Asks about one server or, page by page, about all of them.
async fn all_pages(
    node: &NodeArgs,
    what: &str,
    rows: &str,
    mut body: Map<String, Value>,
) -> Result<Value, CliError> {
    let path = Path::of(&["monitoring", what]);
    body.insert("limit".to_owned(), json!(SERVERS));
    let mut whole = Value::Null;
    loop {
        let asked = Some(Value::Object(body.clone()));
        let page: Value = node.call(Method::POST, path.as_str(), asked).await?;
        let next = page["next"].clone();
        whole = match whole {
            Value::Null => page,
            before => joined(before, page, rows),
        };
        if next.is_null() {
            whole.as_object_mut().map(|whole| whole.remove("next"));
            return Ok(whole);
        }
        body.insert("after".to_owned(), next);
    }
}

/// Two pages as one: rows one after the other, counts added up.
fn joined(mut first: Value, mut second: Value, rows: &str) -> Value {
    if let (Some(all), Some(more)) = (first[rows].as_array_mut(), second[rows].as_array_mut()) {
        all.append(more);
    }
    for sum in ["compared", "totals"] {
        if !second[sum].is_null() {
            add_up(&mut first[sum], &second[sum]);
        }
    }
    first
}

/// Adds numbers to numbers, wherever they are.
fn add_up(sum: &mut Value, more: &Value) {
    match (sum, more) {
        (Value::Object(sum), Value::Object(more)) => {
            for (name, value) in more {
                add_up(sum.entry(name.clone()).or_insert(json!(0)), value);
            }
        }
        (sum, Value::Object(more)) => *sum = Value::Object(more.clone()),
        (sum, more) => {
            if let (Some(one), Some(other)) = (sum.as_u64(), more.as_u64()) {
                *sum = json!(one + other);
            }
        }
    }
}

pub async fn apply(arguments: &ApplyArgs, output: Output) -> Result<Exit, CliError> {
    let answer = match &arguments.plan {
        Some(file) => json!({ "plans": plans_of(&read_file(file)?, &file.display().to_string())? }),
        None => {
            let mut body = Map::new();
            if let Some(server) = &arguments.server {
                body.insert("server".to_owned(), json!(server));
            }
            all_pages(&arguments.node, "plan", "plans", body).await?
        }
    };
    let plans: Vec<Value> = list(&answer["plans"]).iter().filter_map(to_apply).collect();
    let changes: usize = plans.iter().map(|plan| list(&plan["changes"]).len()).sum();
    if plans.is_empty() {
        match output {
            Output::Json => output::json(&json!({ "applied": [] })),
            Output::Table => output::line("nothing to change"),
        }
        return Ok(Exit::Ok);
    }
    if output == Output::Table {
        print::plans(&answer);
        output::line("");
    }
    confirm(&format!("making {changes} changes on {} servers", plans.len()), arguments.yes)?;
    let applied = make(&arguments.node, &plans).await?;
    match output {
        Output::Json => output::json(&json!({ "applied": applied })),
        Output::Table => {
            output::line(&format!("{changes} changes made on {} servers", applied.len()));
        }
    }
    Ok(Exit::Ok)
}

/// Makes the changes; whatever was made before something was refused is told.
async fn make(node: &NodeArgs, plans: &[Value]) -> Result<Vec<Value>, CliError> {
    let path = Path::of(&["monitoring", "apply"]);
    let mut applied = Vec::new();
    for some in plans.chunks(PLANS) {
        let body = json!({ "plans": some }).to_string().into_bytes();
        let posted = node.post_text::<Value>(path.as_str(), "application/json", body).await?;
        match posted {
            Ok(answer) => applied.extend(list(&answer["applied"]).iter().cloned()),
            Err((error, told)) => {
                if let Some(last) = applied.last() {
                    let (count, last) = (applied.len(), text(last, "server"));
                    output::warning(&format!("{count} servers were changed before, up to {last}"));
                }
                for flaw in list(&told["flaws"]) {
                    output::warning(&name(flaw, "detail"));
                }
                return Err(error);
            }
        }
    }
    Ok(applied)
}

/// What a node must know to make the changes of a plan; nothing if there are none.
fn to_apply(plan: &Value) -> Option<Value> {
    if list(&plan["changes"]).is_empty() {
        return None;
    }
    let fields = ["server", "index", "roster_version", "changes"];
    Some(Value::Object(entities::kept(plan, &fields)))
}

/// The plans of a file: one, several, or what `skep monitors plan --json` printed.
fn plans_of(content: &[u8], file: &str) -> Result<Vec<Value>, CliError> {
    let wrong = |why: &str| {
        let right = "give what `skep monitors plan --json` of a node printed";
        CliError::new(Exit::Data, format!("{file}: {why}; {right}"))
    };
    let read: Value = serde_json::from_slice(content).map_err(|error| wrong(&error.to_string()))?;
    let plans = match read {
        Value::Array(plans) => plans,
        Value::Object(mut whole) => match whole.remove("plans") {
            Some(Value::Array(plans)) => plans,
            Some(_) => return Err(wrong("plans is no list")),
            None => vec![Value::Object(whole)],
        },
        _ => return Err(wrong("it holds no plan")),
    };
    for (place, plan) in plans.iter().enumerate() {
        for field in ["server", "changes"] {
            if plan[field].is_null() {
                return Err(wrong(&format!("plans[{place}].{field} is missing")));
            }
        }
        for field in ["index", "roster_version"] {
            if plan[field].is_null() {
                let why = format!(
                    "plans[{place}].{field} is missing, so nobody can tell whether the plan is \
                     still good; a plan of a snapshot cannot be applied"
                );
                return Err(wrong(&why));
            }
        }
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_one_with_their_counts_added_up() {
        let first = json!({ "servers": [1], "compared": 50, "next": "b",
                            "totals": { "differ": 1, "active": { "before": 7 } } });
        let second = json!({ "servers": [2], "compared": 9, "next": null,
                             "totals": { "differ": 1, "active": { "before": 5 } } });
        let both = joined(first, second, "servers");
        assert_eq!((&both["servers"], &both["compared"]), (&json!([1, 2]), &json!(59)));
        assert_eq!(both["totals"], json!({ "differ": 2, "active": { "before": 12 } }));
    }

    #[test]
    fn a_plan_without_its_state_is_refused_with_its_place() {
        let good = json!({ "server": "a", "index": 1, "roster_version": 2, "changes": [] });
        for text in [json!({ "plans": [good] }), json!([good]), good.clone()] {
            let read = plans_of(text.to_string().as_bytes(), "f").expect("fine");
            assert_eq!(read, std::slice::from_ref(&good));
        }
        for (text, why) in [
            (r#"{"plans": [{"server": "a", "changes": []}]}"#, "plans[0].index is missing"),
            (r#"[{"server": "a"}]"#, "plans[0].changes is missing"),
            (r#"{"plans": 1}"#, "no list"),
            ("7", "no plan"),
            ("{", "EOF"),
        ] {
            let error = plans_of(text.as_bytes(), "plan.json").expect_err("refused");
            assert_eq!(error.exit, Exit::Data);
            assert!(
                error.message.starts_with("plan.json: ") && error.message.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plan_is_sent_without_what_nobody_needs_and_not_at_all_without_changes() {
        let plan = json!({ "server": "a", "index": 1, "roster_version": 2, "states": [1],
                           "changes": [{ "id": "m" }] });
        let sent = to_apply(&plan).expect("it has one");
        assert!(sent.get("states").is_none() && sent["changes"][0]["id"] == "m");
        assert_eq!(to_apply(&json!({ "server": "a", "changes": [] })), None);
    }
}
