//! `skep explain`: what an error code means and what to do.

use super::output::{self, Output};
use super::{CliError, Exit};
use crate::http::CODES;
use crate::settings::nearest;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  skep explain E_KEY_MISSING
  skep explain                                 all codes";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// An error code, as in E_KEY_MISSING; without one all are listed
    code: Option<String>,
}

pub fn run(arguments: &ExplainArgs, output: Output) -> Result<Exit, CliError> {
    let Some(asked) = &arguments.code else {
        list(output);
        return Ok(Exit::Ok);
    };
    let wanted = asked.to_ascii_uppercase();
    let Some(code) = CODES.iter().find(|code| code.name == wanted) else {
        let names = CODES.iter().map(|code| code.name);
        let near: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        let hint = match nearest(asked, near.iter().map(String::as_str)) {
            Some(name) => format!("did you mean {}?", name.to_ascii_uppercase()),
            None => "`skep explain` lists all".to_owned(),
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

fn list(output: Output) {
    match output {
        Output::Json => {
            let all: Vec<_> = CODES
                .iter()
                .map(|one| {
                    serde_json::json!({
                        "code": one.name, "status": one.status, "title": one.title,
                    })
                })
                .collect();
            output::json(&all);
        }
        Output::Table => output::table(
            &["CODE", "STATUS", "MEANING"],
            CODES
                .iter()
                .map(|one| vec![one.name.to_owned(), one.status.to_string(), one.title.to_owned()]),
        ),
    }
}
