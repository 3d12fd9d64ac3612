//! Reading and writing in PostgreSQL, many rows with each statement.

use super::registry::{Counters, Draft};
use super::reports::{Slot, States, Written};
use super::{CHANNEL, Grant, Last, Move, Record, ResultRow, State, signed, unsigned};
use deadpool_postgres::Transaction;
use skep_store::{Postgres, PostgresClient, StoreError};
use std::collections::HashSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

/// Values of a statement.
type Values<'value> = [&'value (dyn ToSql + Sync)];

/// Runs a query.
pub(super) async fn ask(
    store: &Postgres,
    sql: &str,
    values: &Values<'_>,
) -> Result<Vec<Row>, StoreError> {
    let client = store.client().await?;
    let asking = async {
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, values).await?)
    };
    store.limit(asking).await
}

/// Begins a transaction whose statements each see what was committed before them, whatever the
/// server's default is: that is what one wants after waiting for a lock.
pub(super) async fn begin(client: &mut PostgresClient) -> Result<Transaction<'_>, StoreError> {
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    Ok(transaction.start().await?)
}

async fn query(
    transaction: &Transaction<'_>,
    sql: &str,
    values: &Values<'_>,
) -> Result<Vec<Row>, StoreError> {
    let statement = transaction.prepare_cached(sql).await?;
    Ok(transaction.query(&statement, values).await?)
}

async fn execute(
    transaction: &Transaction<'_>,
    sql: &str,
    values: &Values<'_>,
) -> Result<u64, StoreError> {
    let statement = transaction.prepare_cached(sql).await?;
    Ok(transaction.execute(&statement, values).await?)
}

/// Takes the registry's row, and reads what is there of `ids`.
pub(super) async fn draft(
    transaction: &Transaction<'_>,
    ids: &[String],
) -> Result<Draft, StoreError> {
    let lock = "SELECT version, live, last_number FROM skep_polls FOR UPDATE";
    let locked = query(transaction, lock, &[]).await?;
    let row = locked.first().ok_or_else(no_row)?;
    let counters = Counters { version: row.get(0), live: row.get(1), last_number: row.get(2) };
    let select = "SELECT id, number, born, version, spec, paused, deleted, created_at,
                         updated_at, asked_at
                  FROM skep_poll_endpoints WHERE id = ANY($1)";
    let rows = query(transaction, select, &[&ids]).await?;
    Ok(Draft::new(counters, rows.iter().map(record).collect()))
}

fn no_row() -> StoreError {
    StoreError::Refused { store: "postgres", cause: "skep_polls has no row".to_owned() }
}

/// Writes what changed, tells everybody, and commits.
pub(super) async fn keep(transaction: Transaction<'_>, draft: &Draft) -> Result<(), StoreError> {
    let changed: Vec<&Record> = draft.changed().collect();
    let numbers = |of: fn(&Record) -> i64| changed.iter().map(|one| of(one)).collect::<Vec<_>>();
    let flags = |of: fn(&Record) -> bool| changed.iter().map(|one| of(one)).collect::<Vec<_>>();
    let upsert = "INSERT INTO skep_poll_endpoints
             (id, number, born, version, spec, paused, deleted, created_at, updated_at, asked_at)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[],
                              $6::boolean[], $7::boolean[], $8::bigint[], $9::bigint[],
                              $10::bigint[])
         ON CONFLICT (id) DO UPDATE SET
             number = excluded.number, born = excluded.born, version = excluded.version,
             spec = excluded.spec, paused = excluded.paused, deleted = excluded.deleted,
             created_at = excluded.created_at, updated_at = excluded.updated_at,
             asked_at = excluded.asked_at";
    let values: [&(dyn ToSql + Sync); 10] = [
        &changed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        &numbers(|one| one.number),
        &numbers(|one| one.born),
        &numbers(|one| one.version),
        &changed.iter().map(|one| one.spec.as_str()).collect::<Vec<_>>(),
        &flags(|one| one.paused),
        &flags(|one| one.deleted),
        &numbers(|one| one.created_at_ms),
        &numbers(|one| one.updated_at_ms),
        &numbers(|one| one.asked_at_ms),
    ];
    execute(&transaction, upsert, &values).await?;
    if !draft.begun.is_empty() {
        let (numbers, born): (Vec<i64>, Vec<i64>) = draft.begun.iter().copied().unzip();
        let insert = "INSERT INTO skep_poll_state
                 (number, born, token_epoch, token_counter, results, moves, failures)
             SELECT number, born, 0, 0, 0, 0, 0
             FROM unnest($1::bigint[], $2::bigint[]) AS begun (number, born)";
        execute(&transaction, insert, &[&numbers, &born]).await?;
    }
    if !draft.ended.is_empty() {
        // The state first: that waits for whoever adds a result at this moment.
        for table in ["skep_poll_state", "skep_poll_results", "skep_poll_moves"] {
            let delete = format!("DELETE FROM {table} WHERE number = ANY($1)");
            execute(&transaction, &delete, &[&draft.ended]).await?;
        }
    }
    let Counters { version, live, last_number } = draft.counters;
    let update = "WITH counted AS (
             UPDATE skep_polls SET version = $1, live = $2, last_number = $3 RETURNING version)
         SELECT pg_notify($4, version::text) FROM counted";
    query(&transaction, update, &[&version, &live, &last_number, &CHANNEL]).await?;
    Ok(transaction.commit().await?)
}

pub(super) async fn forget_deleted(
    client: &mut PostgresClient,
    older_than_ms: i64,
) -> Result<u64, StoreError> {
    let transaction = begin(client).await?;
    query(&transaction, "SELECT 1 FROM skep_polls FOR UPDATE", &[]).await?;
    let select = "SELECT max(version) FROM skep_poll_endpoints WHERE deleted AND updated_at < $1";
    let newest = query(&transaction, select, &[&older_than_ms]).await?;
    let Some(floor) = newest.first().and_then(|row| row.get::<_, Option<i64>>(0)) else {
        return Ok(0);
    };
    let delete = "DELETE FROM skep_poll_endpoints WHERE deleted AND version <= $1";
    let forgotten = execute(&transaction, delete, &[&floor]).await?;
    let raise = "UPDATE skep_polls SET floor = greatest(floor, $1)";
    execute(&transaction, raise, &[&floor]).await?;
    transaction.commit().await?;
    Ok(forgotten)
}

const STATES: &str = "
    SELECT s.number, s.born, s.token_epoch, s.token_counter, s.results, s.moves, s.failures,
           s.last_epoch, s.last_counter, s.last_slot, s.last_at, s.last_ok, s.last_verdict,
           s.last_latency_us, s.changed_at, e.id
    FROM skep_poll_endpoints e JOIN skep_poll_state s ON s.number = e.number
    WHERE e.id = ANY($1)";

/// The states of those of `ids` that live.
pub(super) async fn states(store: &Postgres, ids: &[String]) -> Result<States, StoreError> {
    let rows = ask(store, STATES, &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get(15), state(row))).collect())
}

/// The same, kept from everybody else until the end of the transaction. Taken in the order of
/// their numbers, so that two who take the same ones do not wait for each other.
pub(super) async fn lock_states(
    transaction: &Transaction<'_>,
    ids: &[String],
) -> Result<States, StoreError> {
    let select = format!("{STATES} ORDER BY s.number FOR UPDATE OF s");
    let rows = query(transaction, &select, &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get(15), state(row))).collect())
}

/// Which of these results are in the rings.
pub(super) async fn known_slots(
    transaction: &Transaction<'_>,
    slots: &[Slot],
) -> Result<HashSet<Slot>, StoreError> {
    if slots.is_empty() {
        return Ok(HashSet::new());
    }
    let numbers: Vec<i64> = slots.iter().map(|slot| slot.0).collect();
    let wanted: Vec<i64> = slots.iter().map(|slot| slot.1).collect();
    let select = "SELECT r.number, r.slot, r.token_epoch, r.token_counter
         FROM (SELECT DISTINCT * FROM unnest($1::bigint[], $2::bigint[])) AS s (number, slot)
         JOIN skep_poll_results r ON r.number = s.number AND r.slot = s.slot";
    let rows = query(transaction, select, &[&numbers, &wanted]).await?;
    let slot = |row: &Row| (row.get(0), row.get(1), unsigned(row.get(2)), unsigned(row.get(3)));
    Ok(rows.iter().map(slot).collect())
}

/// Writes what [`lock_states`] gave and what was decided since, and commits.
pub(super) async fn keep_moves(
    transaction: Transaction<'_>,
    states: &States,
    moves: &[Written<'_, Grant>],
) -> Result<(), StoreError> {
    if moves.is_empty() {
        return Ok(());
    }
    let update = transaction
        .prepare_cached(
            "UPDATE skep_poll_state s SET
                 token_epoch = n.token_epoch, token_counter = n.token_counter, moves = n.moves
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
                 AS n (number, token_epoch, token_counter, moves)
             WHERE s.number = n.number",
        )
        .await?;
    let insert = transaction
        .prepare_cached(
            "INSERT INTO skep_poll_moves
                 (number, place, ordinal, at, node, from_node, reason, token_epoch, token_counter)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],
                                  $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[])
             ON CONFLICT (number, place) DO UPDATE SET
                 ordinal = excluded.ordinal, at = excluded.at, node = excluded.node,
                 from_node = excluded.from_node, reason = excluded.reason,
                 token_epoch = excluded.token_epoch, token_counter = excluded.token_counter",
        )
        .await?;
    let of_states = |of: fn(&State) -> i64| states.values().map(of).collect::<Vec<_>>();
    let updated: [&(dyn ToSql + Sync); 4] = [
        &of_states(|one| one.number),
        &of_states(|one| signed(one.epoch)),
        &of_states(|one| signed(one.counter)),
        &of_states(|one| one.moves),
    ];
    let numbers = |of: fn(&Written<'_, Grant>) -> i64| moves.iter().map(of).collect::<Vec<_>>();
    let inserted: [&(dyn ToSql + Sync); 9] = [
        &numbers(|one| one.number),
        &numbers(|one| one.place),
        &numbers(|one| one.ordinal),
        &numbers(|one| one.row.at_ms),
        &moves.iter().map(|one| one.row.node.as_str()).collect::<Vec<_>>(),
        &moves.iter().map(|one| one.row.from.as_deref()).collect::<Vec<_>>(),
        &moves.iter().map(|one| one.row.reason.as_str()).collect::<Vec<_>>(),
        &numbers(|one| signed(one.row.epoch)),
        &numbers(|one| signed(one.row.counter)),
    ];
    // Both on the way at once.
    tokio::try_join!(
        transaction.execute(&update, &updated),
        transaction.execute(&insert, &inserted)
    )?;
    Ok(transaction.commit().await?)
}

/// Writes what [`lock_states`] gave and what was decided since, and commits.
pub(super) async fn keep_results(
    transaction: Transaction<'_>,
    states: &States,
    results: &[Written<'_, ResultRow>],
) -> Result<(), StoreError> {
    if results.is_empty() {
        return Ok(());
    }
    let update = transaction
        .prepare_cached(
            "UPDATE skep_poll_state s SET
                 token_epoch = n.token_epoch, token_counter = n.token_counter,
                 results = n.results, failures = n.failures, last_epoch = n.token_epoch,
                 last_counter = n.token_counter, last_slot = n.slot, last_at = n.at,
                 last_ok = n.ok, last_verdict = n.verdict, last_latency_us = n.latency_us,
                 changed_at = n.changed_at
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                         $6::bigint[], $7::bigint[], $8::boolean[], $9::text[], $10::bigint[],
                         $11::bigint[])
                 AS n (number, token_epoch, token_counter, results, failures, slot, at, ok,
                       verdict, latency_us, changed_at)
             WHERE s.number = n.number",
        )
        .await?;
    let insert = transaction
        .prepare_cached(
            "INSERT INTO skep_poll_results
                 (number, place, ordinal, at, slot, ok, verdict, status, latency_us, late_us,
                  detail, node, token_epoch, token_counter)
             SELECT * FROM unnest(
                 $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                 $6::boolean[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[],
                 $11::text[], $12::text[], $13::bigint[], $14::bigint[])
             ON CONFLICT (number, place) DO UPDATE SET
                 ordinal = excluded.ordinal, at = excluded.at, slot = excluded.slot,
                 ok = excluded.ok, verdict = excluded.verdict, status = excluded.status,
                 latency_us = excluded.latency_us, late_us = excluded.late_us,
                 detail = excluded.detail, node = excluded.node,
                 token_epoch = excluded.token_epoch, token_counter = excluded.token_counter",
        )
        .await?;
    let ends: Vec<(&State, &Last)> =
        states.values().filter_map(|state| Some((state, state.last.as_ref()?))).collect();
    let of_states = |of: fn(&State) -> i64| ends.iter().map(|one| of(one.0)).collect::<Vec<_>>();
    let of_last = |of: fn(&Last) -> i64| ends.iter().map(|one| of(one.1)).collect::<Vec<_>>();
    let updated: [&(dyn ToSql + Sync); 11] = [
        &of_states(|one| one.number),
        &of_states(|one| signed(one.epoch)),
        &of_states(|one| signed(one.counter)),
        &of_states(|one| one.results),
        &of_states(|one| one.failures),
        &of_last(|one| one.slot),
        &of_last(|one| one.at_ms),
        &ends.iter().map(|one| one.1.ok).collect::<Vec<_>>(),
        &ends.iter().map(|one| one.1.verdict.as_str()).collect::<Vec<_>>(),
        &ends.iter().map(|one| one.1.latency_us).collect::<Vec<_>>(),
        &ends.iter().map(|one| one.0.changed_at_ms).collect::<Vec<_>>(),
    ];
    let numbers =
        |of: fn(&Written<'_, ResultRow>) -> i64| results.iter().map(of).collect::<Vec<_>>();
    let inserted: [&(dyn ToSql + Sync); 14] = [
        &numbers(|one| one.number),
        &numbers(|one| one.place),
        &numbers(|one| one.ordinal),
        &numbers(|one| one.row.at_ms),
        &numbers(|one| one.row.slot),
        &results.iter().map(|one| one.row.ok).collect::<Vec<_>>(),
        &results.iter().map(|one| one.row.verdict.as_str()).collect::<Vec<_>>(),
        &results.iter().map(|one| one.row.status.map(i64::from)).collect::<Vec<_>>(),
        &results.iter().map(|one| one.row.latency_us).collect::<Vec<_>>(),
        &numbers(|one| one.row.late_us),
        &results.iter().map(|one| one.row.detail.as_deref()).collect::<Vec<_>>(),
        &results.iter().map(|one| one.row.node.as_str()).collect::<Vec<_>>(),
        &numbers(|one| signed(one.row.epoch)),
        &numbers(|one| signed(one.row.counter)),
    ];
    // Both on the way at once.
    tokio::try_join!(
        transaction.execute(&update, &updated),
        transaction.execute(&insert, &inserted)
    )?;
    Ok(transaction.commit().await?)
}

pub(super) fn record(row: &Row) -> Record {
    Record {
        id: row.get(0),
        number: row.get(1),
        born: row.get(2),
        version: row.get(3),
        spec: row.get(4),
        paused: row.get(5),
        deleted: row.get(6),
        created_at_ms: row.get(7),
        updated_at_ms: row.get(8),
        asked_at_ms: row.get(9),
    }
}

fn state(row: &Row) -> State {
    let last = row.get::<_, Option<i64>>(9).map(|slot| Last {
        epoch: unsigned(row.get(7)),
        counter: unsigned(row.get(8)),
        slot,
        at_ms: row.get(10),
        ok: row.get(11),
        verdict: row.get(12),
        latency_us: row.get(13),
    });
    State {
        number: row.get(0),
        born: row.get(1),
        epoch: unsigned(row.get(2)),
        counter: unsigned(row.get(3)),
        results: row.get(4),
        moves: row.get(5),
        failures: row.get(6),
        last,
        changed_at_ms: row.get(14),
    }
}

pub(super) fn result(row: &Row) -> ResultRow {
    let status = row.get::<_, Option<i64>>(9).and_then(|status| u16::try_from(status).ok());
    ResultRow {
        id: row.get(0),
        born: row.get(1),
        epoch: unsigned(row.get(2)),
        counter: unsigned(row.get(3)),
        node: row.get(4),
        slot: row.get(5),
        at_ms: row.get(6),
        ok: row.get(7),
        verdict: row.get(8),
        status,
        latency_us: row.get(10),
        late_us: row.get(11),
        detail: row.get(12),
    }
}

pub(super) fn one_move(row: &Row) -> Move {
    Move {
        at_ms: row.get(0),
        node: row.get(1),
        from: row.get(2),
        reason: row.get(3),
        epoch: unsigned(row.get(4)),
        counter: unsigned(row.get(5)),
    }
}
