//! Reviews: who may review a server, and what came of it. A claim has a token that is higher than
//! those before it; whoever was overtaken unnoticed is refused.

use super::book::Book;
use super::rows::{self, counter};
use super::tx::{Row, Tx, find, step, values};
use super::{monitors, pairs, servers};
use crate::model::{AssignmentRow, Server, cut};
use skep_policy::monitors::{Kind, Status};
use skep_store::{Database, StoreError};
use std::collections::BTreeMap;

const NODE_CHARS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 1_000;

/// A server that is to be reviewed now, by whoever has this.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The server.
    pub server: Server,
    /// Higher than that of any claim before.
    pub token: i64,
}

/// A plan that is to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// The server's number.
    pub server: i64,
    /// The token of the claim under which it was made; without one nothing is claimed.
    pub fence: Option<i64>,
    /// The server's index that it was made from.
    pub index: i64,
    /// The version of accounts and monitors that it was made from.
    pub roster_version: i64,
    /// What changes.
    pub changes: Vec<Change>,
    /// What is to be remembered; other assignments keep what is remembered of them.
    pub marks: Vec<Mark>,
    /// When the server is due again.
    pub next_review_ms: i64,
    /// Now.
    pub now_ms: i64,
}

/// A monitor that becomes something else to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The monitor's number.
    pub monitor: i64,
    /// What it is.
    pub from: Status,
    /// What it becomes.
    pub to: Status,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// By which rule.
    pub rule: String,
    /// Why.
    pub reason: String,
}

/// What is remembered of an assignment from one review to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The monitor's number.
    pub monitor: i64,
    /// A violation, and since when it lasts.
    pub violation: Option<(Kind, i64)>,
    /// When a paused one was looked at.
    pub last_check_ms: Option<i64>,
    /// The number of the monitor it is about to replace, and at how many reviews in a row.
    pub challenge: Option<(i64, u32)>,
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was carried out.
    Done {
        /// The server's index from now on.
        index: i64,
    },
    /// Somebody else has claimed the server since. Nothing was changed.
    Fenced,
    /// It was made from an older state. Nothing was changed.
    Stale {
        /// The server's index.
        index: i64,
        /// The version of accounts and monitors.
        roster_version: i64,
    },
    /// The server is not there.
    Gone,
}

/// Takes up to so many servers that are due and that nobody else has, the longest due first. They
/// are kept from others for `lease_ms`, or until a plan is applied or they are released.
pub async fn claim(
    db: &Database,
    node: &str,
    now_ms: i64,
    lease_ms: i64,
    limit: u32,
) -> Result<Vec<Claim>, StoreError> {
    let node = cut(node, NODE_CHARS_MAX);
    step!(db, tx => claim_due(tx, &node, now_ms, lease_ms, limit))
}

pub(super) fn claim_sql<T: Tx>() -> String {
    let due = format!(
        "SELECT number FROM skep_monitor_servers
         WHERE NOT paused AND next_review_at <= $1 AND claimed_until <= $1
         ORDER BY next_review_at, number LIMIT $2{}",
        T::SKIP
    );
    format!(
        "UPDATE skep_monitor_servers
         SET token = token + 1, claimed_by = $3, claimed_until = $4
         WHERE number {} RETURNING {}, token",
        T::one_found(&due),
        rows::SERVER
    )
}

async fn claim_due<T: Tx>(
    tx: &T,
    node: &str,
    now_ms: i64,
    lease_ms: i64,
    limit: u32,
) -> Result<Vec<Claim>, StoreError> {
    let until = now_ms.saturating_add(lease_ms);
    let found = tx.query(&claim_sql::<T>(), &values![now_ms, limit, node, until]).await?;
    let one =
        |row: &Row| Ok(Claim { server: rows::server(row)?, token: row.get(rows::SERVER_COLUMNS)? });
    let mut claims = found.iter().map(one).collect::<Result<Vec<_>, StoreError>>()?;
    claims.sort_by_key(|claim| (claim.server.review.next_at_ms, claim.server.number));
    Ok(claims)
}

/// Gives a claim back; the server is due again then. `false` if somebody else has it by now.
pub async fn release(
    db: &Database,
    server: i64,
    token: i64,
    next_review_ms: i64,
) -> Result<bool, StoreError> {
    step!(db, tx => give_back(tx, server, token, next_review_ms))
}

async fn give_back<T: Tx>(
    tx: &T,
    server: i64,
    token: i64,
    next_review_ms: i64,
) -> Result<bool, StoreError> {
    let update = "UPDATE skep_monitor_servers
         SET claimed_by = NULL, claimed_until = 0, next_review_at = $3
         WHERE number = $1 AND token = $2";
    Ok(tx.run(update, &values![server, token, next_review_ms]).await? > 0)
}

/// Carries a plan out, all of it or nothing.
pub async fn apply(db: &Database, plan: Apply) -> Result<Applied, StoreError> {
    step!(db, tx => carry_out(tx, &plan))
}

async fn carry_out<T: Tx>(tx: &T, plan: &Apply) -> Result<Applied, StoreError> {
    // Accounts and monitors stay as they are until the end.
    let roster_version = Book::share(tx).await?.version;
    let select = format!(
        "SELECT {}, token FROM skep_monitor_servers WHERE number = $1{}",
        rows::SERVER,
        T::LOCK
    );
    let Some(row) = find(tx, &select, &values![plan.server]).await? else {
        return Ok(Applied::Gone);
    };
    let (server, token): (Server, i64) = (rows::server(&row)?, row.get(rows::SERVER_COLUMNS)?);
    if plan.fence.is_some_and(|fence| fence != token) {
        return Ok(Applied::Fenced);
    }
    let stale = Applied::Stale { index: server.index, roster_version };
    if plan.index != server.index || plan.roster_version != roster_version {
        return Ok(stale);
    }
    let mut changes: Vec<&Change> = plan.changes.iter().collect();
    changes.sort_by_key(|change| change.monitor);
    if !changes.is_empty() {
        pairs::hold(tx, changes.iter().map(|change| change.monitor).collect()).await?;
    }
    if !fits(tx, plan, &changes).await? {
        return Ok(stale);
    }
    set_statuses(tx, plan, &changes).await?;
    set_marks(tx, plan).await?;
    remember(tx, plan, &server, &changes).await?;
    finish(tx, plan, !changes.is_empty()).await?;
    let after = servers::by_number(tx, plan.server).await?;
    Ok(after.map_or(Applied::Gone, |server| Applied::Done { index: server.index }))
}

/// Whether the plan speaks of what is there. Takes the assignments it names, in the order of their
/// monitors' numbers.
async fn fits<T: Tx>(tx: &T, plan: &Apply, changes: &[&Change]) -> Result<bool, StoreError> {
    let mut named: Vec<i64> = changes.iter().map(|change| change.monitor).collect();
    named.extend(plan.marks.iter().map(|mark| mark.monitor));
    named.sort_unstable();
    named.dedup();
    let select = format!(
        "SELECT {} FROM skep_monitor_assignments WHERE server = $1 AND monitor {}
         ORDER BY monitor{}",
        rows::ASSIGNMENT,
        T::one_of(2),
        T::LOCK
    );
    let found = tx.query(&select, &values![plan.server, named.clone()]).await?;
    let one = |row: &Row| rows::assignment(row, 0).map(|one| (one.monitor, one));
    let found = found.iter().map(one).collect::<Result<BTreeMap<_, AssignmentRow>, _>>()?;
    let once = changes.windows(2).all(|pair| pair[0].monitor != pair[1].monitor);
    let is = |change: &&Change| {
        change.from != change.to
            && found.get(&change.monitor).is_some_and(|one| one.status == change.from)
    };
    Ok(once && found.len() == named.len() && changes.iter().all(is))
}

async fn set_statuses<T: Tx>(tx: &T, plan: &Apply, changes: &[&Change]) -> Result<(), StoreError> {
    let update = "UPDATE skep_monitor_assignments
         SET status = $3, status_since = $4, pause_reason = $5
         WHERE server = $1 AND monitor = $2";
    let row = |change: &&Change| {
        let why = change.pause_reason.as_deref().filter(|_| change.to == Status::Paused);
        let why = why.map(|reason| cut(reason, REASON_CHARS_MAX));
        let status = change.to.as_str();
        values![plan.server, change.monitor, status, plan.now_ms, why.as_ref()].to_vec()
    };
    tx.run_each(update, &changes.iter().map(row).collect::<Vec<_>>()).await?;
    for change in changes {
        let update = format!(
            "UPDATE skep_monitor_monitors
             SET {from} = {from} - 1, {to} = {to} + 1, check_index = check_index + 1
             WHERE number = $1",
            from = counter(change.from),
            to = counter(change.to)
        );
        tx.run(&update, &values![change.monitor]).await?;
    }
    Ok(())
}

async fn set_marks<T: Tx>(tx: &T, plan: &Apply) -> Result<(), StoreError> {
    let update = "UPDATE skep_monitor_assignments
         SET violation = $3, violation_since = $4, last_check = $5, challenge = $6,
             challenge_reviews = $7
         WHERE server = $1 AND monitor = $2";
    let row = |mark: &Mark| {
        values![
            plan.server,
            mark.monitor,
            mark.violation.map(|(kind, _)| kind.as_str()),
            mark.violation.map(|(_, since)| since),
            mark.last_check_ms,
            mark.challenge.map(|(incumbent, _)| incumbent),
            mark.challenge.map(|(_, reviews)| reviews)
        ]
        .to_vec()
    };
    tx.run_each(update, &plan.marks.iter().map(row).collect::<Vec<_>>()).await.map(|_| ())
}

async fn remember<T: Tx>(
    tx: &T,
    plan: &Apply,
    server: &Server,
    changes: &[&Change],
) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let numbers = changes.iter().map(|change| change.monitor).collect();
    let names = monitors::ids(tx, numbers).await?;
    let insert = "INSERT INTO skep_monitor_history
             (at, server, monitor, server_id, monitor_id, from_status, to_status, rule, reason)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let row = |change: &&Change| {
        values![
            plan.now_ms,
            plan.server,
            change.monitor,
            &server.id,
            names.get(&change.monitor).map_or("", String::as_str),
            change.from.as_str(),
            change.to.as_str(),
            &cut(&change.rule, REASON_CHARS_MAX),
            &cut(&change.reason, REASON_CHARS_MAX)
        ]
        .to_vec()
    };
    tx.run_each(insert, &changes.iter().map(row).collect::<Vec<_>>()).await.map(|_| ())
}

/// Writes what the review means for the server itself.
async fn finish<T: Tx>(tx: &T, plan: &Apply, changed: bool) -> Result<(), StoreError> {
    let mut counts = [0_i64; Status::ALL.len()];
    for (place, status) in Status::ALL.into_iter().enumerate() {
        let of = |is: fn(&Change) -> Status| {
            plan.changes.iter().filter(|change| is(change) == status).count() as i64
        };
        counts[place] = of(|change| change.to) - of(|change| change.from);
    }
    let claim = match plan.fence {
        Some(_) => ", claimed_by = NULL, claimed_until = 0",
        None => "",
    };
    let change = match changed {
        true => ", changed_at = $2, check_index = check_index + 1",
        false => "",
    };
    let update = format!(
        "UPDATE skep_monitor_servers
         SET reviewed_at = $2, next_review_at = $3, candidates = candidates + $4,
             testings = testings + $5, actives = actives + $6, pauses = pauses + $7{claim}{change}
         WHERE number = $1"
    );
    let [candidate, testing, active, paused] = counts;
    let values =
        values![plan.server, plan.now_ms, plan.next_review_ms, candidate, testing, active, paused];
    tx.run(&update, &values).await.map(|_| ())
}
