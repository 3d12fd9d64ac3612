//! Taking single messages out.
//!
//! The segment is written again without the message: what stands before it keeps the row, what
//! stands after it gets a row of its own at the same place. Numbers stay as they are.

use super::SqliteQueues;
use super::browse::Look;
use super::clock::{micros, signed};
use super::rows::{self, DeadRow, PartitionRow, QueueRow};
use super::segments::{read_body, run_at_or_before, run_from};
use super::work::Work;
use crate::ids::PartitionId;
use crate::store::Removed;
use crate::store::browse::{Aside, Cut, Piece, damaged};
use rusqlite::{Connection, OptionalExtension, params};
use skep_policy::queues::{Lane, Left, Run};
use skep_store::StoreError;

/// Where a message is that is to be taken out.
struct Spot {
    partition: PartitionId,
    number: u64,
}

impl SqliteQueues {
    /// Takes a message out; with `aside` it becomes a dead letter.
    pub(in crate::store) async fn take_out(
        &self,
        partition: PartitionId,
        transaction: &str,
        aside: Option<Aside>,
    ) -> Result<Option<Removed>, StoreError> {
        let (wanted, now) = (transaction.to_owned(), self.now());
        // Searching is done beside the writer, which looks again at what was found.
        let find = move |db: &Connection| Look::new(db, now).find(partition, &wanted);
        let Some(found) = self.sqlite.read(find).await? else { return Ok(None) };
        let (transaction, spot) =
            (transaction.to_owned(), Spot { partition, number: found.number });
        let take = move |work: &mut Work<'_>| take_out(work, &spot, &transaction, aside);
        Ok(self.write(take).await?.0)
    }
}

impl Work<'_> {
    /// Whether somebody took the message with this number out.
    pub(super) fn was_deleted(
        &self,
        partition: PartitionId,
        number: u64,
    ) -> rusqlite::Result<bool> {
        let mut select = self.db.prepare_cached(DELETED)?;
        let found = select.query_row([partition.0, signed(number)], |row| row.get(0)).optional();
        Ok(found?.unwrap_or(false))
    }
}

fn take_out(
    work: &mut Work<'_>,
    spot: &Spot,
    transaction: &str,
    aside: Option<Aside>,
) -> Result<Option<Removed>, StoreError> {
    let id = spot.partition;
    let Some(partition) = work.partition(id)? else { return Ok(None) };
    let Some(queue) = work.queue(partition.queue)? else { return Ok(None) };
    let run = run_at_or_before(work.db, id, spot.number)?;
    let Some(run) = run.filter(|run| run.last() >= spot.number) else { return Ok(None) };
    let Some(body) = read_body(work.db, id, run.first)? else { return Ok(None) };
    let (row, place, prints): (i64, Option<i64>, Vec<u8>) = work
        .db
        .prepare_cached(ROW)?
        .query_row([id.0, signed(run.first)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let cut = Cut::of(&run, &prints, &body, spot.number, transaction)
        .map_err(|error| damaged(id.0, run.first, error))?;
    let Some(cut) = cut else { return Ok(None) };
    write_cut(work, id, &run, row, place.unwrap_or(row), &cut)?;
    remember_print(work, &queue, id, &run, spot.number, &cut)?;
    let failures = pass_gap(work, &queue, (id, &partition), spot.number, aside.as_ref())?;
    work.change_queue(queue.info.id, |queue| {
        queue.removed += 1;
        queue.dead += u64::from(aside.is_some());
    });
    if let Some(aside) = aside {
        work.dead.push(DeadRow {
            queue: queue.info.id,
            partition: id,
            group: aside.group,
            created_at: run.at,
            failed_at: work.now,
            failures,
            error: aside.error,
            record: cut.record.clone(),
        });
    }
    Ok(Some(Removed {
        queue: queue.info.name,
        partition: partition.name,
        number: spot.number,
        at: run.at,
        record: cut.record,
    }))
}

fn write_cut(
    work: &mut Work<'_>,
    id: PartitionId,
    run: &Run,
    row: i64,
    place: i64,
    cut: &Cut,
) -> rusqlite::Result<()> {
    let db = work.db;
    let keep = |piece: &Piece| {
        db.prepare_cached(KEEP)?.execute(params![
            row,
            signed(piece.first),
            piece.count,
            piece.prints,
            &piece.body[..]
        ])
    };
    match (cut.before.count, cut.after.count) {
        (0, 0) => drop(db.prepare_cached(REMOVE)?.execute([row])?),
        (_, 0) => drop(keep(&cut.before)?),
        (0, _) => drop(keep(&cut.after)?),
        _ => {
            keep(&cut.before)?;
            let after = &cut.after;
            db.prepare_cached(CUT)?.execute(params![
                id.0,
                signed(after.first),
                after.count,
                micros(run.at),
                after.prints,
                &after.body[..],
                place
            ])?;
        }
    }
    work.wrote();
    work.held = None;
    // If this is never committed, the next batch sees it by the version.
    work.bodies.forget((id, run.first));
    for piece in [&cut.before, &cut.after].into_iter().filter(|piece| piece.count > 0) {
        work.bodies.put((id, piece.first), piece.body.clone());
    }
    Ok(())
}

/// The transaction id is known for its window, as if the message were there.
fn remember_print(
    work: &mut Work<'_>,
    queue: &QueueRow,
    id: PartitionId,
    run: &Run,
    number: u64,
    cut: &Cut,
) -> rusqlite::Result<()> {
    let expires = run.at + queue.info.options.dedup_window();
    if expires > work.now {
        let values = params![id.0, signed(number), micros(run.at), micros(expires), &cut.print[..]];
        work.db.prepare_cached(HUSK)?.execute(values)?;
    } else {
        let print = cut.print.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        work.state.prints.lose(id, print, number);
    }
    Ok(())
}

/// Lets lanes pass the gap. Tells how often the message had come back, for the group that sets it
/// aside.
fn pass_gap(
    work: &mut Work<'_>,
    queue: &QueueRow,
    (id, partition): (PartitionId, &PartitionRow),
    number: u64,
    aside: Option<&Aside>,
) -> rusqlite::Result<u32> {
    let mut failures = 0;
    for (group, row) in rows::lanes_of(work.db, id, false)? {
        // Deleted groups leave their lanes behind for a while.
        let Some(group_row) = work.group(group)? else { continue };
        let (before, was_ready) = (row.lane, row.ready_at);
        if aside.is_some_and(|aside| aside.group == group_row.name)
            && (before.cursor + 1..=before.failed_through).contains(&number)
        {
            failures = before.failures;
        }
        if before.cursor >= number {
            continue;
        }
        let lane = pass(work, id, partition, before)?;
        work.keep_lane((id, group), row);
        if lane == before {
            continue;
        }
        let next = work.next_at(id, partition, lane.cursor)?;
        let ready_at = lane.ready_at(work.now, &queue.rules, next, partition.last_push);
        // One that waits keeps its turn.
        let kept =
            was_ready.filter(|was| before.live_lease(work.now).is_none() && *was <= work.now);
        let ready_at = ready_at.map(|at| if at <= work.now { kept.unwrap_or(at) } else { at });
        work.set_lane((id, group), queue.lane_row(partition, lane, ready_at, work.now));
        work.count_settled(group, before.cursor, lane.cursor);
        if before.live_lease(work.now).is_some() {
            work.made_room(queue, partition, (group, &group_row.name))?;
        }
        let freed = before.live_lease(work.now).is_some() && lane.live_lease(work.now).is_none();
        if freed && ready_at.is_some() {
            work.wake(queue, partition, Some(group_row.name));
        }
    }
    Ok(failures)
}

fn pass(
    work: &Work<'_>,
    id: PartitionId,
    partition: &PartitionRow,
    mut lane: Lane,
) -> rusqlite::Result<Lane> {
    let leased = match lane.lease {
        None => None,
        Some(lease) => {
            run_at_or_before(work.db, id, lease.through)?.map(|run| run.last().min(lease.through))
        }
    };
    let next = run_from(work.db, id, lane.cursor + 1)?;
    let next = next.map(|run| run.first.max(lane.cursor + 1));
    lane.pass_gap(work.now, &Left { leased, next, tail: partition.tail });
    Ok(lane)
}

pub(super) const ROW: &str =
    "SELECT id, place, prints FROM skep_queue_segments WHERE partition = ?1 AND first = ?2";
const KEEP: &str =
    "UPDATE skep_queue_segments SET first = ?2, count = ?3, prints = ?4, body = ?5 WHERE id = ?1";
const REMOVE: &str = "DELETE FROM skep_queue_segments WHERE id = ?1";
const CUT: &str = "INSERT INTO skep_queue_segments
        (partition, first, count, at, prints, body, place)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const HUSK: &str = "INSERT INTO skep_queue_husks
        (partition, first, count, at, expires, prints, deleted)
    VALUES (?1, ?2, 1, ?3, ?4, ?5, 1)";
pub(super) const DELETED: &str =
    "SELECT deleted FROM skep_queue_husks WHERE partition = ?1 AND first = ?2";
