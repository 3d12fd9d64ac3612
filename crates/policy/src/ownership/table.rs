//! What all nodes agree on: sessions and who owns what.
//!
//! This is the exact description of every store: the scripts for Redis and the functions for
//! PostgreSQL give the same answers to the same requests, counters included. Where all nodes live
//! in one process it is the store.

use super::guards::{Guard, Guards};
use super::protocol::{
    Answer, Ask, Caller, Epoch, Hint, Key, NodeRow, PAGE_ROWS, Reply, Request, Row, Seen, Status,
    Ticked,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys that are no longer wanted are remembered as forgotten, so that everybody hears of it; the
/// oldest of more than this many are dropped.
pub const TOMBSTONES_MAX: usize = 10_000;

/// The table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Which start of the store this is. A store that keeps what it said across restarts always
    /// gives the same.
    run: u64,
    life: Option<Life>,
    embedded: bool,
    tombstones_max: usize,
    guards: Guards,
}

/// One life of the table, from the loss of the one before to its own.
#[derive(Clone, Debug)]
struct Life {
    epoch: Epoch,
    run: u64,
    settled: bool,
    /// Everything that happens takes the next number: sessions, renewals, changes of rows.
    counter: u64,
    /// Forgotten keys up to this number are not known any more.
    floor: u64,
    nodes: BTreeMap<Arc<str>, Node>,
    rows: BTreeMap<Key, Owned>,
    /// Rows by their last change.
    changes: BTreeMap<u64, Key>,
    /// Forgotten keys by when that was.
    tombstones: BTreeMap<u64, Key>,
}

#[derive(Clone, Debug)]
struct Node {
    row: NodeRow,
    /// It was told that there is nobody else, so it may not be removed before it has heard more.
    alone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Owned {
    session: u64,
    counter: u64,
    due: i64,
}

impl Table {
    /// A store that several processes share, at its start number `run`. It knows nothing yet.
    pub fn shared(run: u64) -> Self {
        let (life, guards) = (None, Guards::default());
        Table { run, life, embedded: false, tombstones_max: TOMBSTONES_MAX, guards }
    }

    /// The store of the nodes of one process. Nobody outside can have trust from before, so keys
    /// may be claimed at once; `epoch` must be higher than that of any earlier process with this
    /// data.
    pub fn embedded(epoch: u64) -> Self {
        let epoch = Epoch { number: epoch, tag: 0 };
        let life = Life { settled: true, ..Life::new(epoch, 0, 0) };
        Table { embedded: true, life: Some(life), ..Table::shared(0) }
    }

    /// Remembers fewer forgotten keys, for tests.
    #[must_use]
    pub fn with_tombstones_max(mut self, most: usize) -> Self {
        self.tombstones_max = most;
        self
    }

    /// A table without one of its guards, for showing what it is good for.
    #[must_use]
    pub fn with_guards(mut self, guards: Guards) -> Self {
        self.guards = guards;
        self
    }

    /// The store's process ended and another began, with what is in here still known.
    pub fn restart(&mut self, run: u64) {
        self.run = run;
    }

    /// Answers a request, as one step. `clock_ms` is the store's wall clock.
    pub fn apply(&mut self, request: &Request, clock_ms: i64) -> (Reply, Hint) {
        let mut hint = Hint::Nobody;
        if self.has_lost_something(&request.seen) {
            self.begin_life(request, clock_ms);
            hint = Hint::All;
        }
        let (embedded, tombstones_max, guards) = (self.embedded, self.tombstones_max, self.guards);
        let Some(life) = &mut self.life else { unreachable!("a life has begun") };
        let joining = matches!(request.ask, Ask::Join { .. });
        let same_life = if guards.stands(Guard::EpochTag) {
            request.seen.epoch == life.epoch
        } else {
            request.seen.epoch.number == life.epoch.number
        };
        let answer = if !joining && !same_life {
            Answer::OtherEpoch
        } else {
            let mut step = Step { life, guards, embedded, tombstones_max, hint: &mut hint };
            step.answer(&request.ask)
        };
        let reply = Reply { epoch: life.epoch, settled: life.settled, clock_ms, answer };
        (reply, hint)
    }

    fn has_lost_something(&self, seen: &Seen) -> bool {
        let Some(life) = &self.life else { return true };
        if self.guards.stands(Guard::RunChange) && life.run != self.run {
            return true;
        }
        if !self.guards.stands(Guard::KnowsLess) {
            return false;
        }
        let Epoch { number, tag } = seen.epoch;
        let twin = number == life.epoch.number && tag != life.epoch.tag && tag != 0;
        number > life.epoch.number
            || (twin && number > 0 && self.guards.stands(Guard::EpochTag))
            || (seen.epoch == life.epoch && seen.counter > life.counter)
    }

    fn begin_life(&mut self, request: &Request, clock_ms: i64) {
        let Request { seen, nonce, least, .. } = request;
        let (number, counter) = self.life.as_ref().map_or((0, 0), |l| (l.epoch.number, l.counter));
        let clock = u64::try_from(clock_ms / 1_000).unwrap_or(0);
        // Who does not know the time does not want it to count.
        let least = if *least == 0 { 0 } else { clock.max(*least) };
        let number = (number.max(seen.epoch.number) + 1).max(least);
        let epoch = Epoch { number, tag: *nonce };
        let mut life = Life::new(epoch, self.run, counter.max(seen.counter));
        life.settled = !self.guards.stands(Guard::Grace);
        self.life = Some(life);
    }
}

impl Life {
    fn new(epoch: Epoch, run: u64, counter: u64) -> Self {
        Life {
            epoch,
            run,
            settled: false,
            counter,
            floor: 0,
            nodes: BTreeMap::new(),
            rows: BTreeMap::new(),
            changes: BTreeMap::new(),
            tombstones: BTreeMap::new(),
        }
    }
}

/// One request being answered.
struct Step<'a> {
    life: &'a mut Life,
    guards: Guards,
    embedded: bool,
    tombstones_max: usize,
    hint: &'a mut Hint,
}

impl Step<'_> {
    fn answer(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::Join { name, instance, weight, status, info } => {
                let row = NodeRow {
                    name: name.clone(),
                    instance: instance.clone(),
                    session: 0,
                    seq: 0,
                    weight: *weight,
                    status: *status,
                    info: info.clone(),
                };
                self.join(row)
            }
            Ask::Tick { name, session, weight, status, info, since, floor } => {
                match self.life.nodes.get_mut(name).filter(|node| node.row.session == *session) {
                    None => Answer::NoSession,
                    Some(node) => {
                        let changed = node.row.status != *status || node.row.weight != *weight;
                        (node.row.status, node.row.weight) = (*status, *weight);
                        node.row.info = info.clone();
                        if changed {
                            *self.hint = Hint::All;
                        }
                        self.tick(name, *since, *floor)
                    }
                }
            }
            Ask::Claim(caller, keys) => self.as_caller(caller, |step| {
                keys.iter().map(|key| step.claim(key, caller.session)).collect()
            }),
            Ask::Reclaim(caller, held) => self.as_caller(caller, |step| {
                let reclaim = |(key, token, due): &(Key, super::Token, i64)| {
                    if token.epoch < step.life.epoch.number && step.is_free(key) {
                        step.set(key, caller.session, *due);
                    }
                    step.row(key)
                };
                held.iter().map(reclaim).collect()
            }),
            Ask::Handoff(caller, moves) => self.as_caller(caller, |step| {
                moves
                    .iter()
                    .map(|(key, target, due)| step.hand_off(caller, key, *target, *due))
                    .collect()
            }),
            Ask::Release(caller, keys) => self.as_caller(caller, |step| {
                let release = |(key, due): &(Key, i64)| {
                    if step.owner(key) == Some(caller.session) {
                        step.set(key, 0, *due);
                        *step.hint = Hint::All;
                    }
                    step.row(key)
                };
                keys.iter().map(release).collect()
            }),
            Ask::Forget(caller, keys) => self.as_caller(caller, |step| {
                keys.iter().map(|key| step.forget(key, caller.session)).collect()
            }),
            Ask::Expire { session, seq } => Answer::Expired(self.expire(*session, *seq)),
            Ask::EndGrace(caller) => match self.life.nodes.get(&caller.name) {
                Some(node) if node.row.session == caller.session => {
                    if !self.life.settled {
                        self.life.settled = true;
                        *self.hint = Hint::All;
                    }
                    Answer::Done
                }
                _ => Answer::NoSession,
            },
            Ask::Bye(caller) => {
                let gone = self.as_caller(caller, |_| Vec::new());
                if gone != Answer::Rows(Vec::new()) {
                    return gone;
                }
                self.life.nodes.remove(&caller.name);
                *self.hint = Hint::All;
                Answer::Done
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.life.counter += 1;
        self.life.counter
    }

    fn join(&mut self, mut row: NodeRow) -> Answer {
        let repeats = !self.guards.stands(Guard::NumbersNeverRepeat);
        if let Some(present) = self.life.nodes.get(&row.name) {
            if present.row.instance != row.instance {
                let NodeRow { session, seq, instance, .. } = present.row.clone();
                return Answer::NameHeld { session, seq, instance };
            }
            // Its last question whose answer it has not heard.
            row.session = present.row.session;
            row.seq = if repeats { 1 } else { self.next() };
        } else {
            row.seq = if repeats { 1 } else { self.next() };
            let of_name = || crate::rendezvous::hash_of(&row.name);
            row.session = if repeats { of_name() } else { row.seq };
        }
        let (session, seq) = (row.session, row.seq);
        self.life.nodes.insert(row.name.clone(), Node { row, alone: false });
        *self.hint = Hint::All;
        Answer::Joined { session, seq }
    }

    fn tick(&mut self, name: &Arc<str>, since: u64, known_floor: u64) -> Answer {
        let number = self.next();
        let repeats = !self.guards.stands(Guard::NumbersNeverRepeat);
        let life = &mut *self.life;
        let alone = self.embedded && life.nodes.len() == 1;
        let Some(node) = life.nodes.get_mut(name) else { return Answer::NoSession };
        node.row.seq = if repeats { node.row.seq + 1 } else { number };
        node.alone = alone;
        let seq = node.row.seq;
        let full = known_floor < life.floor && since < life.floor;
        let since = if full { 0 } else { since };
        let row = |(_, key): (&u64, &Key)| life.rows.get(key).map(|owned| owned.row(key));
        let mut rows: Vec<Row> =
            life.changes.range(since + 1..).filter_map(row).take(PAGE_ROWS + 1).collect();
        let more = rows.len() > PAGE_ROWS;
        rows.truncate(PAGE_ROWS);
        let upto = match rows.last() {
            Some(last) if more => last.counter,
            _ => life.counter,
        };
        let nodes = life.nodes.values().map(|node| node.row.clone()).collect();
        let floor = life.floor;
        Answer::Ticked(Ticked { seq, nodes, rows, upto, more, full, floor, alone })
    }

    fn as_caller(&mut self, caller: &Caller, work: impl FnOnce(&mut Self) -> Vec<Row>) -> Answer {
        match self.life.nodes.get(&caller.name) {
            Some(node) if node.row.session == caller.session => {
                if node.row.seq != caller.seq && self.guards.stands(Guard::SequenceCheck) {
                    return Answer::Stale;
                }
                Answer::Rows(work(self))
            }
            _ => Answer::NoSession,
        }
    }

    fn claim(&mut self, key: &Key, session: u64) -> Row {
        if self.life.settled && self.is_free(key) {
            let due = self.life.rows.get(key).map_or(0, |row| row.due);
            self.set(key, session, due);
        }
        self.row(key)
    }

    fn hand_off(&mut self, caller: &Caller, key: &Key, target: u64, due: i64) -> Row {
        let takes = |node: &&Node| node.row.session == target && node.row.status == Status::Online;
        let target = self.life.nodes.values().find(takes).map(|node| node.row.name.clone());
        if let (Some(name), true) = (target, self.owner(key) == Some(caller.session)) {
            let session = self.life.nodes[&name].row.session;
            self.set(key, session, due);
            self.hint.add(name);
        }
        self.row(key)
    }

    fn forget(&mut self, key: &Key, session: u64) -> Row {
        let is_tombstone = self
            .life
            .rows
            .get(key)
            .is_none_or(|row| self.life.tombstones.contains_key(&row.counter));
        if !is_tombstone && (self.owner(key) == Some(session) || self.is_free(key)) {
            self.set(key, 0, 0);
            let life = &mut *self.life;
            life.tombstones.insert(life.rows[key].counter, key.clone());
            while life.tombstones.len() > self.tombstones_max {
                let Some((counter, oldest)) = life.tombstones.pop_first() else { break };
                life.changes.remove(&counter);
                life.rows.remove(&oldest);
                life.floor = counter;
            }
        }
        self.row(key)
    }

    fn expire(&mut self, session: u64, seq: u64) -> bool {
        let compares = self.guards.stands(Guard::ExpireCompares);
        let Some(node) = self.session(session) else { return false };
        if node.alone || (compares && node.row.seq != seq) {
            return false;
        }
        let name = node.row.name.clone();
        self.life.nodes.remove(&name);
        *self.hint = Hint::All;
        true
    }

    fn session(&self, session: u64) -> Option<&Node> {
        self.life.nodes.values().find(|node| node.row.session == session)
    }

    /// The session that the key's row names, living or not.
    fn owner(&self, key: &Key) -> Option<u64> {
        self.life.rows.get(key).map(|row| row.session)
    }

    fn is_free(&self, key: &Key) -> bool {
        self.owner(key).is_none_or(|owner| owner == 0 || self.session(owner).is_none())
    }

    fn set(&mut self, key: &Key, session: u64, due: i64) {
        let counter = self.next();
        let life = &mut *self.life;
        if let Some(before) = life.rows.insert(key.clone(), Owned { session, counter, due }) {
            life.changes.remove(&before.counter);
            life.tombstones.remove(&before.counter);
        }
        life.changes.insert(counter, key.clone());
    }

    fn row(&self, key: &Key) -> Row {
        let none = Owned { session: 0, counter: 0, due: 0 };
        self.life.rows.get(key).copied().unwrap_or(none).row(key)
    }
}

impl Owned {
    fn row(self, key: &Key) -> Row {
        Row { key: key.clone(), session: self.session, counter: self.counter, due: self.due }
    }
}

impl Hint {
    fn add(&mut self, name: Arc<str>) {
        match self {
            Hint::All => {}
            Hint::Nobody => *self = Hint::Nodes(vec![name]),
            Hint::Nodes(names) if names.contains(&name) => {}
            Hint::Nodes(names) => names.push(name),
        }
    }
}
