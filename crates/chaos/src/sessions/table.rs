//! What the table of sessions says, asked of any node.

use super::roster::Roster;
use serde_json::Value;
use skep_testkit::http;
use std::collections::BTreeMap;
use std::time::Duration;

/// A node that does not answer soon is asked again, or another is.
const LIMIT: Duration = Duration::from_secs(5);

/// Sessions that the table counts, by worker; nothing while it does not answer.
pub fn counted(roster: &Roster, turn: usize) -> Option<BTreeMap<String, usize>> {
    let workers = ask(roster, turn, "/api/v1/sessions/workers")?;
    let count = |worker: &Value| {
        let name = worker["name"].as_str()?.to_owned();
        let both = worker["active"].as_u64()? + worker["leaving"].as_u64()?;
        Some((name, usize::try_from(both).ok()?))
    };
    workers["workers"].as_array()?.iter().map(count).collect()
}

/// Sessions on record, waiting ones too.
pub fn on_record(roster: &Roster, turn: usize) -> Option<usize> {
    let sessions = ask(roster, turn, "/api/v1/sessions")?;
    sessions["sessions"].as_array().map(Vec::len)
}

fn ask(roster: &Roster, turn: usize, path: &str) -> Option<Value> {
    let node = roster.any(turn)?;
    let headers = roster.headers();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let answer = http::send_within(LIMIT, "GET", &format!("{}{path}", node.api), &headers, None);
    let answer = answer.ok().filter(|answer| answer.status == 200)?;
    serde_json::from_str(&answer.body).ok()
}
