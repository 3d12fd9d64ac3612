//! Many accounts, monitors, servers and assignments at once, all or none.

use super::book::Book;
use super::pairs::{self, Side};
use super::rows::family;
use super::tx::{Tx, step, values};
use super::{ChangeError, ImportError, Limits, accounts, facts, monitors, servers};
use crate::model::{AssignmentRow, Entity, NewAssignment};
use skep_policy::monitors::Status;
use skep_store::{Database, StoreError};

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// What was not there.
    pub created: Created,
    /// How many were different.
    pub changed: u64,
    /// How many were the same already.
    pub unchanged: u64,
}

/// What was not there before an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// Accounts.
    pub accounts: u64,
    /// Monitors.
    pub monitors: u64,
    /// Servers.
    pub servers: u64,
    /// Assignments that were given; those that come about by themselves do not count.
    pub assignments: u64,
}

/// Creates or replaces all of these, or changes nothing; a dry run changes nothing anyway. Others
/// stay as they are. Accounts come first, then monitors, servers and assignments, whatever the
/// order given.
pub async fn import(
    db: &Database,
    entities: Vec<Entity>,
    limits: Limits,
    now_ms: i64,
    dry_run: bool,
) -> Result<Imported, ImportError> {
    let done: Result<Imported, Halt> =
        async { step!(db, tx => take_all(tx, &entities, limits, now_ms, dry_run)) }.await;
    match done {
        Ok(imported) | Err(Halt::DryRun(imported)) => Ok(imported),
        Err(Halt::Refused(error)) => Err(error),
    }
}

/// Why nothing is kept.
enum Halt {
    DryRun(Imported),
    Refused(ImportError),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Halt::Refused(ImportError::Store(error))
    }
}

async fn take_all<T: Tx>(
    tx: &T,
    entities: &[Entity],
    limits: Limits,
    now_ms: i64,
    dry_run: bool,
) -> Result<Imported, Halt> {
    let turn = |entity: &Entity| match entity {
        Entity::Account(_) => 0,
        Entity::Monitor(_) => 1,
        Entity::Server(_) => 2,
        Entity::Assignment(_) => 3,
    };
    let mut order: Vec<usize> = (0..entities.len()).collect();
    order.sort_by_key(|position| turn(&entities[*position]));
    let mut book = Book::open(tx).await?;
    let mut imported = Imported::default();
    for position in order {
        let took = take(tx, &mut book, &entities[position], limits, now_ms).await;
        match took.map_err(|cause| refused(position, cause))? {
            Took::Created => match entities[position] {
                Entity::Account(_) => imported.created.accounts += 1,
                Entity::Monitor(_) => imported.created.monitors += 1,
                Entity::Server(_) => imported.created.servers += 1,
                Entity::Assignment(_) => imported.created.assignments += 1,
            },
            Took::Changed => imported.changed += 1,
            Took::Unchanged => imported.unchanged += 1,
        }
    }
    book.close(tx).await?;
    if dry_run { Err(Halt::DryRun(imported)) } else { Ok(imported) }
}

fn refused(position: usize, cause: ChangeError) -> Halt {
    Halt::Refused(match cause {
        ChangeError::Store(error) => ImportError::Store(error),
        cause => ImportError::At { position, cause },
    })
}

/// What became of one.
enum Took {
    Created,
    Changed,
    Unchanged,
}

impl Took {
    fn replaced(changed: bool) -> Took {
        if changed { Took::Changed } else { Took::Unchanged }
    }
}

async fn take<T: Tx>(
    tx: &T,
    book: &mut Book,
    entity: &Entity,
    limits: Limits,
    now_ms: i64,
) -> Result<Took, ChangeError> {
    match entity {
        Entity::Account(new) => match accounts::by_id(tx, &new.id).await? {
            Some(present) => {
                let (_, changed) = accounts::replace(tx, book, present, new, now_ms).await?;
                Ok(Took::replaced(changed))
            }
            None => accounts::create(tx, book, new, now_ms).await.map(|_| Took::Created),
        },
        Entity::Monitor(new) => match monitors::live(tx, &new.id).await? {
            Some(present) => {
                let (_, changed) = monitors::replace(tx, book, present, new, now_ms).await?;
                Ok(Took::replaced(changed))
            }
            None => {
                let made = monitors::create(tx, book, new, None, limits, now_ms).await;
                made.map(|_| Took::Created)
            }
        },
        Entity::Server(new) => match servers::by_id(tx, &new.id).await? {
            Some(present) => {
                let (_, changed) = servers::replace(tx, book, present, new, now_ms).await?;
                Ok(Took::replaced(changed))
            }
            None => servers::create(tx, book, new, limits, now_ms).await.map(|_| Took::Created),
        },
        Entity::Assignment(new) => assign(tx, book, new, now_ms).await,
    }
}

/// Makes a pair what it was elsewhere. What is not given stays as it is. One that came about by
/// itself in this import counts as changed.
async fn assign<T: Tx>(
    tx: &T,
    book: &mut Book,
    new: &NewAssignment,
    now_ms: i64,
) -> Result<Took, ChangeError> {
    let missing = |what, id: &String| ChangeError::Missing { what, id: id.clone() };
    let server = servers::by_id(tx, &new.server).await?;
    let server = server.ok_or_else(|| missing("server", &new.server))?;
    let monitor = monitors::live(tx, &new.monitor).await?;
    let monitor = monitor.ok_or_else(|| missing("monitor", &new.monitor))?;
    if family(server.ip) != family(monitor.ip) {
        let (server, monitor) = (new.server.clone(), new.monitor.clone());
        return Err(ChangeError::OtherFamily { server, monitor });
    }
    pairs::hold(tx, vec![monitor.number]).await?;
    let present = facts::of_pair(tx, server.number, monitor.number).await?;
    let wanted = wanted(new, present.as_ref(), (server.number, monitor.number), now_ms);
    if present.as_ref() == Some(&wanted) {
        return Ok(Took::Unchanged);
    }
    if let Some(present) = &present {
        count(tx, present, present.status, -1).await?;
    }
    write(tx, &wanted).await?;
    count(tx, &wanted, wanted.status, 1).await?;
    book.server_changed();
    Ok(if present.is_some() { Took::Changed } else { Took::Created })
}

fn wanted(
    new: &NewAssignment,
    present: Option<&AssignmentRow>,
    (server, monitor): (i64, i64),
    now_ms: i64,
) -> AssignmentRow {
    let begun = AssignmentRow {
        server,
        monitor,
        status: new.status,
        status_since_ms: now_ms,
        score: 0.0,
        violation: None,
        pause_reason: None,
        last_check_ms: None,
        challenge: None,
        last_sample_ms: None,
    };
    let before = present.cloned().unwrap_or(begun);
    let since = if before.status == new.status { before.status_since_ms } else { now_ms };
    let violation = match (new.violation, before.violation) {
        // The start of a violation that lasts is kept.
        (Some((kind, None)), Some(known)) if known.0 == kind => Some(known),
        (Some((kind, since)), _) => Some((kind, since.unwrap_or(now_ms))),
        (None, known) => known,
    };
    let reason = new.pause_reason.clone().or_else(|| before.pause_reason.clone());
    AssignmentRow {
        status: new.status,
        status_since_ms: new.since_ms.unwrap_or(since),
        score: new.score.unwrap_or(before.score),
        violation,
        pause_reason: reason.filter(|_| new.status == Status::Paused),
        last_check_ms: new.last_check_ms.or(before.last_check_ms),
        ..before
    }
}

async fn write<T: Tx>(tx: &T, row: &AssignmentRow) -> Result<(), StoreError> {
    let upsert = "INSERT INTO skep_monitor_assignments
             (server, monitor, status, status_since, score, violation, violation_since,
              pause_reason, last_check)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (server, monitor) DO UPDATE SET
             status = excluded.status, status_since = excluded.status_since,
             score = excluded.score, violation = excluded.violation,
             violation_since = excluded.violation_since, pause_reason = excluded.pause_reason,
             last_check = excluded.last_check";
    let values = values![
        row.server,
        row.monitor,
        row.status.as_str(),
        row.status_since_ms,
        row.score,
        row.violation.map(|(kind, _)| kind.as_str()),
        row.violation.map(|(_, since)| since),
        row.pause_reason.as_deref(),
        row.last_check_ms
    ];
    tx.run(upsert, &values).await.map(|_| ())
}

async fn count<T: Tx>(
    tx: &T,
    row: &AssignmentRow,
    status: Status,
    by: i64,
) -> Result<(), StoreError> {
    pairs::add(tx, Side::Servers, vec![row.server], status, by).await?;
    pairs::add(tx, Side::Monitors, vec![row.monitor], status, by).await
}
