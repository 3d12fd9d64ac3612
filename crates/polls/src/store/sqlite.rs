//! Reading and writing in the embedded database.

use super::registry::{Counters, Draft};
use super::reports::{Slot, States, Written};
use super::{Grant, Last, Move, Record, ResultRow, State, signed, unsigned};
use rusqlite::{Connection, Params, Row, params};
use skep_store::{Sqlite, StoreError};
use std::collections::HashSet;

/// Runs a query beside the writer.
pub(super) async fn ask<T: Send + 'static>(
    store: &Sqlite,
    sql: &'static str,
    values: impl Params + Send + 'static,
    from: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let work = move |db: &Connection| {
        let mut statement = db.prepare_cached(sql)?;
        Ok(statement.query_map(values, from)?.collect::<Result<_, _>>()?)
    };
    store.read(work).await
}

/// What is there of `ids`.
pub(super) fn draft(db: &Connection, ids: &[String]) -> Result<Draft, StoreError> {
    let counters = "SELECT version, live, last_number FROM skep_polls";
    let counters = db.query_row(counters, [], |row| {
        Ok(Counters { version: row.get(0)?, live: row.get(1)?, last_number: row.get(2)? })
    })?;
    let mut select = db.prepare_cached(
        "SELECT id, number, born, version, spec, paused, deleted, created_at, updated_at, asked_at
         FROM skep_poll_endpoints WHERE id = ?1",
    )?;
    let mut records = Vec::new();
    for id in ids {
        for found in select.query_map([id], record)? {
            records.push(found?);
        }
    }
    Ok(Draft::new(counters, records))
}

/// Writes what changed.
pub(super) fn keep(db: &Connection, draft: &Draft) -> Result<(), StoreError> {
    let mut upsert = db.prepare_cached(
        "INSERT INTO skep_poll_endpoints
             (id, number, born, version, spec, paused, deleted, created_at, updated_at, asked_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (id) DO UPDATE SET
             number = excluded.number, born = excluded.born, version = excluded.version,
             spec = excluded.spec, paused = excluded.paused, deleted = excluded.deleted,
             created_at = excluded.created_at, updated_at = excluded.updated_at,
             asked_at = excluded.asked_at",
    )?;
    for one in draft.changed() {
        upsert.execute(params![
            one.id,
            one.number,
            one.born,
            one.version,
            one.spec,
            one.paused,
            one.deleted,
            one.created_at_ms,
            one.updated_at_ms,
            one.asked_at_ms
        ])?;
    }
    let mut begin = db.prepare_cached(
        "INSERT INTO skep_poll_state
             (number, born, token_epoch, token_counter, results, moves, failures)
         VALUES (?1, ?2, 0, 0, 0, 0, 0)",
    )?;
    for (number, born) in &draft.begun {
        begin.execute([number, born])?;
    }
    for number in &draft.ended {
        for table in ["skep_poll_state", "skep_poll_results", "skep_poll_moves"] {
            let delete = format!("DELETE FROM {table} WHERE number = ?1");
            db.prepare_cached(&delete)?.execute([number])?;
        }
    }
    if !draft.is_unchanged() {
        let Counters { version, live, last_number } = draft.counters;
        db.prepare_cached("UPDATE skep_polls SET version = ?1, live = ?2, last_number = ?3")?
            .execute([version, live, last_number])?;
    }
    Ok(())
}

pub(super) fn forget_deleted(db: &Connection, older_than_ms: i64) -> Result<u64, StoreError> {
    let select = "SELECT max(version) FROM skep_poll_endpoints WHERE deleted AND updated_at < ?1";
    let newest: Option<i64> = db.query_row(select, [older_than_ms], |row| row.get(0))?;
    let Some(floor) = newest else { return Ok(0) };
    let delete = "DELETE FROM skep_poll_endpoints WHERE deleted AND version <= ?1";
    let forgotten = db.execute(delete, [floor])?;
    db.execute("UPDATE skep_polls SET floor = max(floor, ?1)", [floor])?;
    Ok(forgotten as u64)
}

/// The states of those of `ids` that live.
pub(super) fn states(db: &Connection, ids: &[String]) -> Result<States, StoreError> {
    let mut select = db.prepare_cached(
        "SELECT s.number, s.born, s.token_epoch, s.token_counter, s.results, s.moves, s.failures,
                s.last_epoch, s.last_counter, s.last_slot, s.last_at, s.last_ok, s.last_verdict,
                s.last_latency_us, s.changed_at
         FROM skep_poll_endpoints e JOIN skep_poll_state s ON s.number = e.number
         WHERE e.id = ?1",
    )?;
    let mut states = States::with_capacity(ids.len());
    for id in ids {
        for found in select.query_map([id], state)? {
            states.insert(id.clone(), found?);
        }
    }
    Ok(states)
}

/// Which of these results are in the rings.
pub(super) fn known_slots(db: &Connection, slots: &[Slot]) -> Result<HashSet<Slot>, StoreError> {
    let mut known = HashSet::new();
    let mut select = db.prepare_cached(
        "SELECT 1 FROM skep_poll_results
         WHERE number = ?1 AND slot = ?2 AND token_epoch = ?3 AND token_counter = ?4",
    )?;
    for slot in slots {
        if select.exists((slot.0, slot.1, signed(slot.2), signed(slot.3)))? {
            known.insert(*slot);
        }
    }
    Ok(known)
}

pub(super) fn keep_moves(
    db: &Connection,
    states: &States,
    moves: &[Written<'_, Grant>],
) -> Result<(), StoreError> {
    let mut update = db.prepare_cached(
        "UPDATE skep_poll_state SET token_epoch = ?2, token_counter = ?3, moves = ?4
         WHERE number = ?1",
    )?;
    for state in states.values() {
        let (epoch, counter) = (signed(state.epoch), signed(state.counter));
        update.execute([state.number, epoch, counter, state.moves])?;
    }
    let mut insert = db.prepare_cached(
        "INSERT OR REPLACE INTO skep_poll_moves
             (number, place, ordinal, at, node, from_node, reason, token_epoch, token_counter)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for Written { number, place, ordinal, row } in moves {
        insert.execute(params![
            number,
            place,
            ordinal,
            row.at_ms,
            row.node,
            row.from,
            row.reason,
            signed(row.epoch),
            signed(row.counter)
        ])?;
    }
    Ok(())
}

pub(super) fn keep_results(
    db: &Connection,
    states: &States,
    results: &[Written<'_, ResultRow>],
) -> Result<(), StoreError> {
    let mut update = db.prepare_cached(
        "UPDATE skep_poll_state SET
             token_epoch = ?2, token_counter = ?3, results = ?4, failures = ?5, last_epoch = ?2,
             last_counter = ?3, last_slot = ?6, last_at = ?7, last_ok = ?8, last_verdict = ?9,
             last_latency_us = ?10, changed_at = ?11
         WHERE number = ?1",
    )?;
    for state in states.values() {
        let Some(last) = &state.last else { continue };
        update.execute(params![
            state.number,
            signed(state.epoch),
            signed(state.counter),
            state.results,
            state.failures,
            last.slot,
            last.at_ms,
            last.ok,
            last.verdict,
            last.latency_us,
            state.changed_at_ms
        ])?;
    }
    let mut insert = db.prepare_cached(
        "INSERT OR REPLACE INTO skep_poll_results
             (number, place, ordinal, at, slot, ok, verdict, status, latency_us, late_us, detail,
              node, token_epoch, token_counter)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    for Written { number, place, ordinal, row } in results {
        insert.execute(params![
            number,
            place,
            ordinal,
            row.at_ms,
            row.slot,
            row.ok,
            row.verdict,
            row.status,
            row.latency_us,
            row.late_us,
            row.detail,
            row.node,
            signed(row.epoch),
            signed(row.counter)
        ])?;
    }
    Ok(())
}

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        id: row.get(0)?,
        number: row.get(1)?,
        born: row.get(2)?,
        version: row.get(3)?,
        spec: row.get(4)?,
        paused: row.get(5)?,
        deleted: row.get(6)?,
        created_at_ms: row.get(7)?,
        updated_at_ms: row.get(8)?,
        asked_at_ms: row.get(9)?,
    })
}

fn state(row: &Row<'_>) -> rusqlite::Result<State> {
    let last = match row.get::<_, Option<i64>>(9)? {
        None => None,
        Some(slot) => Some(Last {
            epoch: unsigned(row.get(7)?),
            counter: unsigned(row.get(8)?),
            slot,
            at_ms: row.get(10)?,
            ok: row.get(11)?,
            verdict: row.get(12)?,
            latency_us: row.get(13)?,
        }),
    };
    Ok(State {
        number: row.get(0)?,
        born: row.get(1)?,
        epoch: unsigned(row.get(2)?),
        counter: unsigned(row.get(3)?),
        results: row.get(4)?,
        moves: row.get(5)?,
        failures: row.get(6)?,
        last,
        changed_at_ms: row.get(14)?,
    })
}

pub(super) fn result(row: &Row<'_>) -> rusqlite::Result<ResultRow> {
    Ok(ResultRow {
        id: row.get(0)?,
        born: row.get(1)?,
        epoch: unsigned(row.get(2)?),
        counter: unsigned(row.get(3)?),
        node: row.get(4)?,
        slot: row.get(5)?,
        at_ms: row.get(6)?,
        ok: row.get(7)?,
        verdict: row.get(8)?,
        status: row.get(9)?,
        latency_us: row.get(10)?,
        late_us: row.get(11)?,
        detail: row.get(12)?,
    })
}

pub(super) fn one_move(row: &Row<'_>) -> rusqlite::Result<Move> {
    Ok(Move {
        at_ms: row.get(0)?,
        node: row.get(1)?,
        from: row.get(2)?,
        reason: row.get(3)?,
        epoch: unsigned(row.get(4)?),
        counter: unsigned(row.get(5)?),
    })
}
