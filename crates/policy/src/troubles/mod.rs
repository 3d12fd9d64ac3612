//! What is wrong with an installation, over all its parts?
//!
//! Each part tells what it sees ([`Fact`]); this decides what of it is a trouble, how bad it is,
//! how it is said, and in which order a person should look.
//!
//! | trouble        | bad                                     | worth a look                   |
//! |----------------|-----------------------------------------|--------------------------------|
//! | `store`        | it does not answer                      |                                |
//! | `certificate`  | it has ended, or does within three days | it ends within two weeks       |
//! | `standing`     | this node is not among the others       |                                |
//! | `node`         | not heard of                            | drains                         |
//! | `breaker`      | open: a node gets no requests           | lets one through, to see       |
//! | `lag`          | an hour, and nobody works on it         | a minute                       |
//! | `dead-letters` | some in the last ten minutes            | some wait                      |
//! | `switch`       |                                         | pushes held or pops paused     |
//! | `endpoint`     | failed three times or more              | failed                         |
//! | `below-target` | every server                            | some servers                   |
//! | `workers`      | none is left                            | some missing, or sessions wait |
//! | `errors`       | half of a route's answers are 5xx       | one in twenty                  |
//! | `tasks-failed` |                                         | a pool's alert `dead-letters`  |
//! | another alert  | see [`is_bad`]                          | any other                      |
//!
//! More than [`ALONE_MAX`] of one kind and severity become one line with their number.

mod say;
#[cfg(test)]
mod tests;

use crate::routes::alerts::END_SOON;
use serde::Serialize;
use std::collections::BTreeMap;

/// So many of one kind and severity have a line each.
pub const ALONE_MAX: usize = 3;

/// Tasks of a pool that have failed for good, which its alert calls dead letters.
const TASKS_FAILED: &str = "tasks-failed";

/// From so many milliseconds on a group lags; and is as good as dead, if nobody works for it.
const LAG_MS: i64 = 60_000;
const LAG_DEAD_MS: i64 = 3_600_000;

/// A certificate that ends this soon is worth a look; this soon, it is urgent.
const ENDS_SOON_MS: i64 = END_SOON.as_millis() as i64;
const ENDS_NOW_MS: i64 = 3 * 86_400_000;

/// An endpoint that failed this often in a row did not just hiccup.
const FAILURES_BAD: i64 = 3;

/// Requests of a route before its errors mean something.
const REQUESTS_MIN: u64 = 20;

/// Something that a part sees. Most facts are no trouble.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A store, and what it says if it does not answer.
    Store { store: String, error: Option<String> },
    /// The certificate of this node's port.
    Certificate { ends_ms: i64 },
    /// How this node stands with the others: `inside`, or what else.
    Standing { standing: String },
    /// Another node.
    Node { node: String, alive: bool, draining: bool, heard_ms_ago: u64 },
    /// This node's breaker for another one: `closed`, `open` or `half-open`.
    Breaker { node: String, breaker: String },
    /// A group of consumers. `oldest_ms` is when the oldest message was pushed that it has not
    /// settled, `leased` how many partitions somebody works on.
    Group { queue: String, group: String, pending: u64, oldest_ms: Option<i64>, leased: u64 },
    /// Dead letters of a queue, those of the last ten minutes, and when the first of these came.
    Dead { queue: String, dead: u64, lately: u64, since_ms: Option<i64> },
    /// Pushes are held, or pops are paused.
    Switch { what: Switched, since_ms: Option<i64>, by: Option<String> },
    /// An endpoint whose last poll found something wrong.
    Endpoint { endpoint: String, failures: i64, since_ms: Option<i64>, verdict: String },
    /// Servers with fewer active monitors than they should have, of those that are watched.
    Servers { below: u64, of: u64, since_ms: Option<i64> },
    /// The workers of a kind. `missing` are lost, down or do not answer.
    Workers { kind: String, live: u64, missing: u64, free: u64, waiting: u64 },
    /// What a route answered in the last minute.
    Route { route: String, requests: u64, errors: u64 },
    /// An alert that fires: about a pool, `sessions:KIND` or `routes:NAME`.
    Alert { about: String, alert: String, since_ms: i64, reason: String },
}

/// What somebody switched for all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// Nodes keep what is pushed.
    Pushes,
    /// Nobody gets messages.
    Pops,
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Bad,
    /// Worth a look.
    Warn,
}

/// Something that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// How much it matters.
    pub severity: Severity,
    /// What kind of trouble, in lower case with dashes.
    pub kind: String,
    /// What it is about: a queue, a node, a route. Of several it is nothing.
    pub about: Option<String>,
    /// A second name where one is not enough: the group of a lag.
    pub within: Option<String>,
    /// How many it stands for.
    pub count: usize,
    /// What is wrong, in one sentence.
    pub text: String,
    /// Since when, in milliseconds since 1970, if somebody knows.
    pub since_ms: Option<i64>,
    /// Since when it has been seen, in milliseconds since 1970; see [`Memory`].
    pub seen_ms: Option<i64>,
}

/// What is wrong, the worst first; of what is equally bad, what began last, because that is what
/// has changed.
pub fn troubles(facts: &[Fact], now_ms: i64) -> Vec<Trouble> {
    let mut kinds: BTreeMap<(Severity, String), Vec<Trouble>> = BTreeMap::new();
    for trouble in facts.iter().filter_map(|fact| judge(fact, now_ms)) {
        kinds.entry((trouble.severity, trouble.kind.clone())).or_default().push(trouble);
    }
    let mut found: Vec<Trouble> = kinds.into_values().flat_map(together).collect();
    found.sort_by(|a, b| {
        let order = |one: &Trouble| (one.severity, std::cmp::Reverse(one.since_ms));
        order(a).cmp(&order(b)).then_with(|| (&a.kind, &a.about).cmp(&(&b.kind, &b.about)))
    });
    found
}

/// Many of a kind as one.
fn together(found: Vec<Trouble>) -> Vec<Trouble> {
    if found.len() <= ALONE_MAX {
        return found;
    }
    let (count, since_ms) = (found.len(), found.iter().filter_map(|one| one.since_ms).min());
    let Some(first) = found.into_iter().next() else { return Vec::new() };
    let text = say::many(&first, count);
    vec![Trouble { about: None, within: None, count, text, since_ms, ..first }]
}

/// Whether a fact is a trouble, and which.
fn judge(fact: &Fact, now_ms: i64) -> Option<Trouble> {
    use Severity::{Bad, Warn};
    let bad_if = |bad: bool| if bad { Bad } else { Warn };
    let (severity, kind, about, since_ms) = match fact {
        Fact::Store { store, error } => {
            error.as_ref()?;
            (Bad, "store", Some(store), None)
        }
        Fact::Certificate { ends_ms } => {
            let left = ends_ms.saturating_sub(now_ms);
            if left >= ENDS_SOON_MS {
                return None;
            }
            (bad_if(left < ENDS_NOW_MS), "certificate", None, None)
        }
        Fact::Standing { standing } => {
            if standing == "inside" {
                return None;
            }
            (Bad, "standing", None, None)
        }
        Fact::Node { node, alive, draining, heard_ms_ago } => {
            if *alive && !draining {
                return None;
            }
            let ago = i64::try_from(*heard_ms_ago).unwrap_or(i64::MAX);
            let since = (!alive).then(|| now_ms.saturating_sub(ago));
            (bad_if(!alive), "node", Some(node), since)
        }
        Fact::Breaker { node, breaker } => {
            if breaker == "closed" {
                return None;
            }
            (bad_if(breaker == "open"), "breaker", Some(node), None)
        }
        Fact::Group { queue, pending, oldest_ms, leased, .. } => {
            let oldest = oldest_ms.filter(|_| *pending > 0)?;
            let lag = now_ms.saturating_sub(oldest);
            if lag < LAG_MS {
                return None;
            }
            (bad_if(lag >= LAG_DEAD_MS && *leased == 0), "lag", Some(queue), Some(oldest))
        }
        Fact::Dead { queue, dead, lately, since_ms } => {
            if *dead == 0 {
                return None;
            }
            (bad_if(*lately > 0), "dead-letters", Some(queue), *since_ms)
        }
        Fact::Switch { since_ms, .. } => (Warn, "switch", None, *since_ms),
        Fact::Endpoint { endpoint, failures, since_ms, .. } => {
            if *failures == 0 {
                return None;
            }
            (bad_if(*failures >= FAILURES_BAD), "endpoint", Some(endpoint), *since_ms)
        }
        Fact::Servers { below, of, since_ms } => {
            if *below == 0 {
                return None;
            }
            (bad_if(below >= of), "below-target", None, *since_ms)
        }
        Fact::Workers { kind, live, missing, free, waiting } => {
            if *missing == 0 && (*waiting == 0 || *free > 0) && (*live > 0 || *waiting == 0) {
                return None;
            }
            (bad_if(*live == 0), "workers", Some(kind), None)
        }
        Fact::Route { route, requests, errors } => {
            if *requests < REQUESTS_MIN || errors.saturating_mul(20) < *requests {
                return None;
            }
            (bad_if(errors.saturating_mul(2) >= *requests), "errors", Some(route), None)
        }
        Fact::Alert { about, alert, since_ms, reason } => {
            // Not to be counted among the queues.
            let kind = if alert == "dead-letters" { TASKS_FAILED } else { alert };
            (bad_if(is_bad(alert, reason)), kind, Some(about), Some(*since_ms))
        }
    };
    let within = match fact {
        Fact::Group { group, .. } => Some(group.clone()),
        _ => None,
    };
    let text = say::one(fact, now_ms);
    let (kind, about) = (kind.to_owned(), about.cloned());
    Some(Trouble { severity, kind, about, within, count: 1, text, since_ms, seen_ms: None })
}

/// Whether an alert means that something does not work: a queue that will refuse tasks, workers
/// that are not replaced, a route with nowhere to go.
pub fn is_bad(alert: &str, reason: &str) -> bool {
    matches!(alert, "queue-depth" | "stuck") || reason.starts_with("no-upstream-left")
}

/// Remembers since when troubles have been seen: not all facts say since when they are so.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    first_ms: BTreeMap<(String, Option<String>, Option<String>), i64>,
}

impl Memory {
    /// Notes in the troubles since when each has been seen, and forgets what is over.
    pub fn stamp(&mut self, troubles: &mut [Trouble], now_ms: i64) {
        let before = std::mem::take(&mut self.first_ms);
        for trouble in troubles {
            let key = (trouble.kind.clone(), trouble.about.clone(), trouble.within.clone());
            let first = before.get(&key).copied().unwrap_or(now_ms);
            trouble.seen_ms = Some(first);
            self.first_ms.insert(key, first);
        }
    }
}
