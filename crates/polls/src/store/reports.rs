//! What owners say about their endpoints, guarded by tokens: an owner that lost an endpoint without
//! noticing is refused from the moment its successor has announced itself.

use super::{MOVES_MAX, postgres, sqlite};
use skep_store::{Database, StoreError};
use std::collections::{HashMap, HashSet};

/// A node has become the owner of an endpoint, and says so before its first poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The endpoint.
    pub id: String,
    /// Which one of that name: [`super::Record::born`].
    pub born: i64,
    /// The first half of the token.
    pub epoch: u64,
    /// The second half of the token.
    pub counter: u64,
    /// The owner.
    pub node: String,
    /// The owner before it, if there was one.
    pub from: Option<String>,
    /// Why, as JSON.
    pub reason: String,
    /// When.
    pub at_ms: i64,
}

/// The answer to a [`Grant`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It is the newest: from now on older tokens are refused. With the last result, so that the
    /// owner knows where to go on.
    Current {
        /// The slot of the last result.
        last_slot: Option<i64>,
        /// When that was.
        last_at_ms: Option<i64>,
    },
    /// Somebody with a newer token is there already.
    Older,
    /// The endpoint was deleted, and perhaps created again.
    Gone,
}

/// One result, as a node hands it in and as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The endpoint.
    pub id: String,
    /// Which one of that name: [`super::Record::born`].
    pub born: i64,
    /// The first half of the token.
    pub epoch: u64,
    /// The second half of the token.
    pub counter: u64,
    /// Who polled.
    pub node: String,
    /// Which poll it was. Under one token a slot has one result.
    pub slot: i64,
    /// When the poll began.
    pub at_ms: i64,
    /// Whether the endpoint is well.
    pub ok: bool,
    /// What came of it, in a word.
    pub verdict: String,
    /// The status of the answer, if it has one.
    pub status: Option<u16>,
    /// How long the answer took, if there was one.
    pub latency_us: Option<i64>,
    /// How much too late the poll began.
    pub late_us: i64,
    /// What else there is to say.
    pub detail: Option<String>,
}

/// The answer to a [`ResultRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is kept, now or since an earlier attempt.
    Accepted,
    /// Somebody with a newer token is there; the result is not kept.
    Fenced,
    /// The endpoint was deleted, and perhaps created again; the result is not kept.
    Gone,
}

/// The last result of an endpoint, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The first half of its token.
    pub epoch: u64,
    /// The second half of its token.
    pub counter: u64,
    /// Which poll it was.
    pub slot: i64,
    /// When the poll began.
    pub at_ms: i64,
    /// Whether the endpoint was well.
    pub ok: bool,
    /// What came of it, in a word.
    pub verdict: String,
    /// How long the answer took, if there was one.
    pub latency_us: Option<i64>,
}

/// How an endpoint is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its number.
    pub number: i64,
    /// Which one of its name.
    pub born: i64,
    /// The first half of the newest token.
    pub epoch: u64,
    /// The second half of the newest token.
    pub counter: u64,
    /// Results so far.
    pub results: i64,
    /// Moves so far.
    pub moves: i64,
    /// Failed results in a row up to now.
    pub failures: i64,
    /// The last result.
    pub last: Option<Last>,
    /// When the results turned from good to bad or back; the first one counts.
    pub changed_at_ms: Option<i64>,
}

/// A change of owner, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// When.
    pub at_ms: i64,
    /// The owner from then on.
    pub node: String,
    /// The owner before it, if there was one.
    pub from: Option<String>,
    /// Why, as JSON.
    pub reason: String,
    /// The first half of its token.
    pub epoch: u64,
    /// The second half of its token.
    pub counter: u64,
}

/// Announces new owners, each before its first poll; answers in the order given. Doing it twice
/// does no harm.
pub async fn announce(db: &Database, mut grants: Vec<Grant>) -> Result<Vec<Announced>, StoreError> {
    for grant in &mut grants {
        clean(&mut grant.node);
        clean(&mut grant.reason);
        grant.from.iter_mut().for_each(clean);
    }
    let ids = distinct(grants.iter().map(|grant| &grant.id));
    match db {
        Database::Sqlite(store) => {
            let work = move |db: &rusqlite::Connection| {
                let mut moves = Moves::new(sqlite::states(db, &ids)?);
                let answers = moves.announce(&grants);
                sqlite::keep_moves(db, &moves.states, &moves.written(&grants))?;
                Ok(answers)
            };
            store.write(work).await
        }
        Database::Postgres(store) => {
            let mut client = store.client().await?;
            let work = async {
                let transaction = postgres::begin(&mut client).await?;
                let mut moves = Moves::new(postgres::lock_states(&transaction, &ids).await?);
                let answers = moves.announce(&grants);
                postgres::keep_moves(transaction, &moves.states, &moves.written(&grants)).await?;
                Ok(answers)
            };
            store.limit(work).await
        }
    }
}

/// Keeps results, the last `history` of each endpoint; answers in the order given. A result that
/// was kept before is accepted and not kept twice: whoever got no answer can ask again.
pub async fn record(
    db: &Database,
    mut rows: Vec<ResultRow>,
    history: u32,
) -> Result<Vec<Recorded>, StoreError> {
    for row in &mut rows {
        clean(&mut row.node);
        clean(&mut row.verdict);
        row.detail.iter_mut().for_each(clean);
    }
    let ids = distinct(rows.iter().map(|row| &row.id));
    match db {
        Database::Sqlite(store) => {
            let work = move |db: &rusqlite::Connection| {
                let mut results = Results::new(sqlite::states(db, &ids)?, history);
                let known = sqlite::known_slots(db, &results.suspects(&rows))?;
                let answers = results.record(&rows, known);
                sqlite::keep_results(db, &results.states, &results.written(&rows))?;
                Ok(answers)
            };
            store.write(work).await
        }
        Database::Postgres(store) => {
            let mut client = store.client().await?;
            let work = async {
                let transaction = postgres::begin(&mut client).await?;
                let states = postgres::lock_states(&transaction, &ids).await?;
                let mut results = Results::new(states, history);
                let suspects = results.suspects(&rows);
                let known = postgres::known_slots(&transaction, &suspects).await?;
                let answers = results.record(&rows, known);
                let written = results.written(&rows);
                postgres::keep_results(transaction, &results.states, &written).await?;
                Ok(answers)
            };
            store.limit(work).await
        }
    }
}

/// PostgreSQL keeps no text with a zero in it, and an answer from anywhere may have one.
fn clean(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}

fn distinct<'id>(ids: impl Iterator<Item = &'id String>) -> Vec<String> {
    ids.collect::<HashSet<_>>().into_iter().cloned().collect()
}

/// States by the ids of their endpoints.
pub(super) type States = HashMap<String, State>;

/// A place in a ring, how many came before, and which of the rows given goes there.
pub(super) struct Written<'row, R> {
    pub(super) number: i64,
    pub(super) place: i64,
    pub(super) ordinal: i64,
    pub(super) row: &'row R,
}

/// What was accepted: the endpoint's number, how many came before, and its place in the batch.
struct Accepted {
    number: i64,
    ordinal: i64,
    position: usize,
}

/// Of what was accepted, what is still in the rings afterwards; no place is named twice.
fn in_rings<'row, R>(
    accepted: &[Accepted],
    counts: &HashMap<i64, i64>,
    size: i64,
    rows: &'row [R],
) -> Vec<Written<'row, R>> {
    let stays = |one: &&Accepted| counts.get(&one.number).is_some_and(|n| one.ordinal >= n - size);
    let written = |one: &Accepted| Written {
        number: one.number,
        place: one.ordinal % size,
        ordinal: one.ordinal,
        row: &rows[one.position],
    };
    accepted.iter().filter(stays).map(written).collect()
}

struct Moves {
    states: States,
    accepted: Vec<Accepted>,
}

impl Moves {
    fn new(states: States) -> Self {
        Moves { states, accepted: Vec::new() }
    }

    fn announce(&mut self, grants: &[Grant]) -> Vec<Announced> {
        let mut answers = Vec::with_capacity(grants.len());
        for (position, grant) in grants.iter().enumerate() {
            let state = self.states.get_mut(&grant.id).filter(|state| state.born == grant.born);
            let Some(state) = state else {
                answers.push(Announced::Gone);
                continue;
            };
            let (token, newest) = ((grant.epoch, grant.counter), (state.epoch, state.counter));
            if token < newest {
                answers.push(Announced::Older);
                continue;
            }
            if token > newest {
                let (number, ordinal) = (state.number, state.moves);
                self.accepted.push(Accepted { number, ordinal, position });
                (state.epoch, state.counter) = token;
                state.moves += 1;
            }
            answers.push(Announced::Current {
                last_slot: state.last.as_ref().map(|last| last.slot),
                last_at_ms: state.last.as_ref().map(|last| last.at_ms),
            });
        }
        let moved: HashSet<i64> = self.accepted.iter().map(|one| one.number).collect();
        self.states.retain(|_, state| moved.contains(&state.number));
        answers
    }

    fn written<'row>(&self, grants: &'row [Grant]) -> Vec<Written<'row, Grant>> {
        let counts = self.states.values().map(|state| (state.number, state.moves)).collect();
        in_rings(&self.accepted, &counts, MOVES_MAX, grants)
    }
}

/// A result that is perhaps kept already: number, slot, and both halves of its token.
pub(super) type Slot = (i64, i64, u64, u64);

struct Results {
    states: States,
    accepted: Vec<Accepted>,
    history: i64,
}

impl Results {
    fn new(states: States, history: u32) -> Self {
        Results { states, accepted: Vec::new(), history: i64::from(history.max(1)) }
    }

    /// Rows whose slots lie before the last one of the same token: they come again, with others
    /// that were kept together with them, or the slots are counted anew. Only the ring knows.
    fn suspects(&self, rows: &[ResultRow]) -> Vec<Slot> {
        let suspect = |row: &ResultRow| {
            let state = self.states.get(&row.id).filter(|state| state.born == row.born)?;
            let last = state.last.as_ref()?;
            let same_token = (last.epoch, last.counter) == (row.epoch, row.counter);
            (same_token && row.slot < last.slot).then_some((
                state.number,
                row.slot,
                row.epoch,
                row.counter,
            ))
        };
        rows.iter().filter_map(suspect).collect()
    }

    fn record(&mut self, rows: &[ResultRow], mut known: HashSet<Slot>) -> Vec<Recorded> {
        let last = |state: &State| {
            let last = state.last.as_ref()?;
            Some((state.number, last.slot, last.epoch, last.counter))
        };
        known.extend(self.states.values().filter_map(last));
        let mut answers = Vec::with_capacity(rows.len());
        for (position, row) in rows.iter().enumerate() {
            let state = self.states.get_mut(&row.id).filter(|state| state.born == row.born);
            let Some(state) = state else {
                answers.push(Recorded::Gone);
                continue;
            };
            if (row.epoch, row.counter) < (state.epoch, state.counter) {
                answers.push(Recorded::Fenced);
                continue;
            }
            answers.push(Recorded::Accepted);
            let slot = (state.number, row.slot, row.epoch, row.counter);
            if known.insert(slot) {
                let (number, ordinal) = (state.number, state.results);
                self.accepted.push(Accepted { number, ordinal, position });
                state.add(row);
            }
        }
        let written: HashSet<i64> = self.accepted.iter().map(|one| one.number).collect();
        self.states.retain(|_, state| written.contains(&state.number));
        answers
    }

    fn written<'row>(&self, rows: &'row [ResultRow]) -> Vec<Written<'row, ResultRow>> {
        let counts = self.states.values().map(|state| (state.number, state.results)).collect();
        in_rings(&self.accepted, &counts, self.history, rows)
    }
}

impl State {
    fn add(&mut self, row: &ResultRow) {
        if self.last.as_ref().is_none_or(|last| last.ok != row.ok) {
            self.changed_at_ms = Some(row.at_ms);
        }
        self.failures = if row.ok { 0 } else { self.failures + 1 };
        self.results += 1;
        (self.epoch, self.counter) = (row.epoch, row.counter);
        self.last = Some(Last {
            epoch: row.epoch,
            counter: row.counter,
            slot: row.slot,
            at_ms: row.at_ms,
            ok: row.ok,
            verdict: row.verdict.clone(),
            latency_us: row.latency_us,
        });
    }
}
