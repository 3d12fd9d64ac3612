//! Plans that somebody looked at and sends back to be applied.

use crate::handle::Monitors;
use crate::model::Problem;
use crate::review::{Look, millis};
use crate::store::{self, Applied, Apply, Change};
use serde_json::Value;
use skep_policy::monitors::{Rule, State, Status};
use skep_store::StoreError;
use std::collections::{HashMap, HashSet};

/// Characters of a reason that are kept.
const REASON_MAX: usize = 500;

/// A plan as it was sent. Fields that do not count for applying are not looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PostedPlan {
    /// Its place among those that were sent.
    place: usize,
    /// The server's id.
    pub server: String,
    /// The state of its assignments it was made from.
    pub index: i64,
    /// The state of accounts and monitors it was made from.
    pub roster_version: i64,
    /// What is to change.
    pub changes: Vec<PostedChange>,
}

/// One change of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PostedChange {
    /// The monitor's id.
    pub monitor: String,
    /// What it is.
    pub from: Status,
    /// What it is to be.
    pub to: Status,
    /// By which rule.
    pub rule: Rule,
    /// Why.
    pub reason: String,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Monitors that are something else now.
    pub changes: usize,
    /// The state of the server's assignments now.
    pub index: i64,
}

/// Why nothing of a plan was applied.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is no plan, or not one of a review.
    #[error("{}", Problem::all(.0))]
    Invalid(Vec<Problem>),
    /// There is no such server.
    #[error("there is no server {0:?}")]
    Unknown(String),
    /// It was made from another state than the present one.
    #[error(
        "the plan of server {server} was made from index {} and roster version {}, which are {} \
         and {} by now; make it again",
        .made.0, .made.1, .now.0, .now.1
    )]
    Old {
        /// The server's id.
        server: String,
        /// The index and the version of the roster it was made from.
        made: (i64, i64),
        /// Those of now.
        now: (i64, i64),
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PostedPlan {
    /// Reads one; `place` is its place among those that were sent.
    pub fn parse(value: &Value, place: usize) -> Result<PostedPlan, Vec<Problem>> {
        let mut reader = Reader { at: format!("plans[{place}]"), problems: Vec::new() };
        let server = reader.id(value, "server");
        let index = reader.number(value, "index");
        let roster_version = reader.number(value, "roster_version");
        let mut changes = Vec::new();
        match value.get("changes").and_then(Value::as_array) {
            Some(all) => {
                for (number, change) in all.iter().enumerate() {
                    reader.at = format!("plans[{place}].changes[{number}]");
                    let read = reader.change(change);
                    changes.extend(read);
                }
            }
            None => reader.wrong(value.get("changes"), "changes", "give a list of changes"),
        }
        match (server, index, roster_version) {
            (Some(server), Some(index), Some(roster_version)) if reader.problems.is_empty() => {
                Ok(PostedPlan { place, server, index, roster_version, changes })
            }
            _ => Err(reader.problems),
        }
    }
}

/// Reads fields, and collects what is wrong with them.
struct Reader {
    at: String,
    problems: Vec<Problem>,
}

impl Reader {
    fn wrong(&mut self, value: Option<&Value>, name: &str, right: &str) {
        let field = format!("{}.{name}", self.at);
        self.problems.push(match value {
            Some(value) => Problem::with(&field, value, right),
            None => Problem::at(&field, "is missing", right),
        });
    }

    fn id(&mut self, value: &Value, name: &str) -> Option<String> {
        match value.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) if number.is_u64() => Some(number.to_string()),
            other => {
                self.wrong(other, name, "give an id");
                None
            }
        }
    }

    fn number(&mut self, value: &Value, name: &str) -> Option<i64> {
        let found = value.get(name).and_then(Value::as_i64);
        if found.is_none() {
            self.wrong(value.get(name), name, "give the number that the plan was made with");
        }
        found
    }

    fn status(&mut self, value: &Value, name: &str) -> Option<Status> {
        let found = value.get(name).and_then(Value::as_str).and_then(|word| word.parse().ok());
        if found.is_none() {
            self.wrong(value.get(name), name, "give candidate, testing, active or paused");
        }
        found
    }

    fn change(&mut self, value: &Value) -> Option<PostedChange> {
        let monitor = self.id(value, "id");
        let (from, to) = (self.status(value, "from"), self.status(value, "to"));
        let word = value.get("rule").and_then(Value::as_str);
        let rule = word.and_then(|word| Rule::ALL.into_iter().find(|rule| rule.as_str() == word));
        if rule.is_none() {
            self.wrong(value.get("rule"), "rule", "give 1, 2, 1.5, 3, 5, 2.5, 6 or recheck");
        }
        let reason = match value.get("reason") {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(text)) => Some(crate::model::cut(text, REASON_MAX)),
            other => {
                self.wrong(other, "reason", "give a text, or leave it out");
                None
            }
        };
        if let (Some(from), Some(to)) = (from, to)
            && !is_step(from, to)
        {
            let right = "give a step that a review makes: candidate to testing, testing to active \
                         or back, any of them to paused, or paused to candidate";
            self.wrong(value.get("to"), "to", right);
        }
        Some(PostedChange { monitor: monitor?, from: from?, to: to?, rule: rule?, reason: reason? })
    }
}

/// Whether a review could make of the one the other.
fn is_step(from: Status, to: Status) -> bool {
    use Status::{Active, Candidate, Paused, Testing};
    matches!(
        (from, to),
        (Candidate, Testing | Paused)
            | (Testing, Active | Candidate | Paused)
            | (Active, Testing | Paused)
            | (Paused, Candidate)
    )
}

impl Monitors {
    /// Applies a plan as a whole, if it was made from the present state.
    pub async fn apply_plan(&self, posted: &PostedPlan) -> Result<Done, PlanError> {
        let unknown = || PlanError::Unknown(crate::model::cut(&posted.server, 80));
        let server = store::server(&self.inner.db, &posted.server).await?.ok_or_else(unknown)?;
        let look = self.look(server.number).await?.ok_or_else(unknown)?;
        let old = |index, roster_version| PlanError::Old {
            server: posted.server.clone(),
            made: (posted.index, posted.roster_version),
            now: (index, roster_version),
        };
        if (posted.index, posted.roster_version) != (look.index, look.roster_version) {
            return Err(old(look.index, look.roster_version));
        }
        let changes = steps(posted, &look)?;
        let count = changes.len();
        let next = self.settings().next_review(look.now(), count > 0);
        let apply = Apply {
            server: look.server.number,
            fence: None,
            index: posted.index,
            roster_version: posted.roster_version,
            changes,
            marks: Vec::new(),
            next_review_ms: millis(next),
            now_ms: look.now_ms,
        };
        let applied = store::apply(&self.inner.db, apply).await;
        match applied.inspect_err(|_| self.inner.metrics.not_applied(count))? {
            Applied::Done { index } => {
                self.applied(posted);
                Ok(Done { changes: count, index })
            }
            Applied::Stale { index, roster_version } => Err(old(index, roster_version)),
            Applied::Gone | Applied::Fenced => Err(unknown()),
        }
    }

    /// Counts and tells what was put into effect.
    fn applied(&self, posted: &PostedPlan) {
        for change in &posted.changes {
            self.inner.metrics.changed(change.from, change.to, change.rule);
            let (server, monitor) = (&posted.server, &change.monitor);
            let (from, to) = (change.from.as_str(), change.to.as_str());
            let (rule, reason) = (change.rule.as_str(), &change.reason);
            tracing::info!(server, monitor, from, to, rule, reason, "monitor changed by hand");
        }
        self.inner.changed.notify_one();
    }
}

/// The changes as steps of the database, or everything that is wrong with them.
fn steps(posted: &PostedPlan, look: &Look) -> Result<Vec<Change>, PlanError> {
    let (mut problems, mut changes) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let now: HashMap<String, (i64, Status)> = look
        .rows
        .iter()
        .filter_map(|row| {
            let place = look.book.place(row.monitor)?;
            Some((look.book.name(place), (row.monitor, row.status)))
        })
        .collect();
    let plan = look.plan();
    for (number, change) in posted.changes.iter().enumerate() {
        let field = |name: &str| format!("plans[{}].changes[{number}].{name}", posted.place);
        let id = Value::from(change.monitor.clone());
        let Some(&(monitor, status)) = now.get(&change.monitor) else {
            let right = format!("give a monitor of server {}", posted.server);
            problems.push(Problem::with(&field("id"), &id, right).wrong("does not watch it"));
            continue;
        };
        if !seen.insert(monitor) {
            let right = "give each monitor once";
            problems.push(Problem::with(&field("id"), &id, right).wrong("is there twice"));
        }
        if status != change.from {
            let right = format!("it is {status}; make the plan again");
            let from = Value::from(change.from.as_str());
            problems.push(Problem::with(&field("from"), &from, right).wrong("is not its status"));
        }
        // A pause that no rule asks for was somebody's wish.
        let blocked = look.book.place(monitor).and_then(|place| plan.verdict(place));
        let blocked = blocked.filter(|(_, verdict)| verdict.state == State::Block);
        let cause = blocked.map_or("by-hand", |(_, verdict)| verdict.cause.as_str());
        changes.push(Change {
            monitor,
            from: change.from,
            to: change.to,
            pause_reason: (change.to == Status::Paused).then(|| cause.to_owned()),
            rule: change.rule.as_str().to_owned(),
            reason: change.reason.clone(),
        });
    }
    if problems.is_empty() { Ok(changes) } else { Err(PlanError::Invalid(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_is_read_with_the_fields_that_count_and_others_are_let_be() {
        let value = json!({
            "server": "ntp1", "index": 3, "roster_version": 7, "states": [1, 2],
            "changes": [{ "id": 9, "from": "new", "to": "testing", "rule": "5", "reason": "free" }],
        });
        let plan = PostedPlan::parse(&value, 0).expect("is one");
        assert_eq!((plan.index, plan.roster_version), (3, 7));
        let change = &plan.changes[0];
        assert_eq!((change.monitor.as_str(), change.from), ("9", Status::Candidate));
    }

    #[test]
    fn everything_that_is_wrong_with_a_plan_is_told_with_its_place() {
        let value = json!({
            "server": 1.5, "index": "x",
            "changes": [{ "id": "m", "from": "active", "to": "candidate", "rule": "4" },
                        { "id": "m", "from": "idle", "to": "testing", "rule": "5" }],
        });
        let problems = PostedPlan::parse(&value, 2).expect_err("is none");
        let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "plans[2].server",
                "plans[2].index",
                "plans[2].roster_version",
                "plans[2].changes[0].rule",
                "plans[2].changes[0].to",
                "plans[2].changes[1].from"
            ],
            "{problems:?}"
        );
        assert_eq!(PostedPlan::parse(&json!({}), 0).expect_err("is none").len(), 4);
    }
}
