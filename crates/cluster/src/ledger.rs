//! Which keys were moved, and what they are called.

use crate::views;
use crate::wire::MoveRecord;
use skep_policy::cluster::{Kind, Move, Moves, Options, Overrides, View};
use skep_policy::explain::would;
use skep_policy::rendezvous::hash_of;
use skep_policy::{Decision, Time};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// So many moves are told to those who ask.
const LOG_MAX: usize = 1_000;
/// Moves that are told again with each heartbeat, at most.
const REPEATED: usize = 64;
const MINUTE: Duration = Duration::from_secs(60);

/// Everything about keys that people and other nodes ask for.
#[derive(Default)]
pub(crate) struct Ledger {
    pub moves: Moves,
    /// What keys are called.
    names: HashMap<u64, Arc<str>>,
    /// The numbers of each move, to be told again.
    told: HashMap<u64, MoveRecord>,
    log: VecDeque<views::Move>,
    last: u64,
    pub totals: Totals,
    round: u64,
}

/// Moves since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub migrations: u64,
    pub breaks: u64,
}

impl Ledger {
    /// Remembers what a key is called.
    pub fn name(&mut self, key: u64, name: Arc<str>, most: usize) {
        if self.names.len() < most || self.names.contains_key(&key) {
            self.names.insert(key, name);
        }
    }

    /// What a key is called; its hash if nobody has said.
    pub fn name_of(&self, key: u64) -> String {
        self.names.get(&key).map_or_else(|| format!("#{key:016x}"), |name| (**name).to_owned())
    }

    /// Forgets the names of keys that are not used any more.
    pub fn keep_names(&mut self, used: impl Fn(u64) -> bool) {
        let moves = &self.moves;
        self.names.retain(|key, _| used(*key) || moves.get(*key).is_some());
        self.told.retain(|key, _| moves.get(*key).is_some());
    }

    /// Writes down a move of this node's, and gives what the others are told.
    pub fn note_own(
        &mut self,
        view: &View,
        decision: &Decision<Move>,
        name: Arc<str>,
        now: Time,
    ) -> MoveRecord {
        let moved = &decision.chosen;
        let to = view.members().iter().find(|member| member.hash == moved.node);
        let number = |name: &str| decision.reason.ratio(name).unwrap_or_default();
        let here = view.here().name.clone();
        let record = MoveRecord {
            key_hash: moved.key,
            key: name,
            from: here.clone(),
            node: to.map_or_else(|| "".into(), |member| member.name.clone()),
            by: here,
            version: moved.version,
            at: moved.moved_at.as_nanos(),
            used: moved.used_at.as_nanos(),
            kind: code(moved.kind),
            load: number("load"),
            best: number("best"),
            improvement: number("improvement"),
        };
        let (key, from, to) = (&*record.key, &*record.from, &*record.node);
        let reason = &decision.reason;
        match moved.kind {
            Kind::Break => tracing::warn!(key, from, to, %reason, "affinity broken"),
            Kind::Migrate => tracing::info!(key, from, to, %reason, "affinity migrated"),
        }
        self.write(&record, now);
        record
    }

    /// Takes what another node tells. Whether an owner changed by it.
    pub fn merge(&mut self, records: &[MoveRecord], now: Time, options: &Options) -> bool {
        let mut changed = false;
        for record in records {
            let Some(kind) = kind_of(record.kind) else { continue };
            let moved = Move {
                key: record.key_hash,
                node: hash_of(&record.node),
                version: record.version,
                moved_at: Time::from_nanos(record.at),
                used_at: Time::from_nanos(record.used),
                by: hash_of(&record.by),
                kind,
            };
            let before = self.moves.get(record.key_hash).map(|known| (known.node, known.version));
            changed |= self.moves.merge(&[moved], now, options);
            let after = self.moves.get(record.key_hash).map(|known| (known.node, known.version));
            if before != after && after == Some((moved.node, moved.version)) {
                if !record.key.is_empty() {
                    self.name(record.key_hash, record.key.clone(), options.entries_max);
                }
                self.write(record, now);
            }
        }
        changed
    }

    fn write(&mut self, record: &MoveRecord, now: Time) {
        let kind = kind_of(record.kind).unwrap_or(Kind::Migrate);
        match kind {
            Kind::Migrate => self.totals.migrations += 1,
            Kind::Break => self.totals.breaks += 1,
        }
        self.told.insert(record.key_hash, record.clone());
        self.last += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(views::Move {
            seq: self.last,
            explain: String::new(),
            would_change: would::MOVED.to_owned(),
            at_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            key: match record.key.is_empty() {
                true => self.name_of(record.key_hash),
                false => (*record.key).to_owned(),
            },
            from: Some((*record.from).to_owned()).filter(|from| !from.is_empty()),
            to: (*record.node).to_owned(),
            kind: match kind {
                Kind::Migrate => views::MoveKind::Migrate,
                Kind::Break => views::MoveKind::Break,
            },
            load: Some(record.load),
            best: Some(record.best),
            improvement: Some(record.improvement),
            by: (*record.by).to_owned(),
        });
    }

    /// Forgets moves of keys that nobody uses. Whether there were any.
    pub fn tend(
        &mut self,
        last_used: impl Fn(u64) -> Option<Time>,
        now: Time,
        options: &Options,
    ) -> bool {
        self.moves.tend(last_used, now, options)
    }

    /// Moves to tell with the next heartbeat, others each time.
    pub fn next_to_tell(&mut self) -> Vec<MoveRecord> {
        self.round += 1;
        let moves = self.moves.to_tell(self.round, REPEATED);
        moves.iter().filter_map(|one| self.record(one)).collect()
    }

    /// All moves, for a node that knows none.
    pub fn all(&self) -> Vec<MoveRecord> {
        self.moves.iter().filter_map(|one| self.record(one)).collect()
    }

    fn record(&self, moved: &Move) -> Option<MoveRecord> {
        let told = self.told.get(&moved.key)?;
        Some(MoveRecord { used: moved.used_at.as_nanos(), ..told.clone() })
    }

    /// Moves after the one with this number.
    pub fn after(&self, seq: u64) -> views::Moves {
        let moves = self.log.iter().filter(|one| one.seq > seq).cloned().collect();
        views::Moves { moves, next: self.last }
    }

    /// Moves of the last minute.
    pub fn last_minute(&self, now: Time) -> u64 {
        let since = now.as_millis().saturating_sub(MINUTE.as_millis() as u64) as i64;
        self.log.iter().rev().take_while(|one| one.at_ms >= since).count() as u64
    }

    /// Prepared for a view.
    pub fn overrides(&self) -> Overrides {
        self.moves.overrides()
    }
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Migrate => 0,
        Kind::Break => 1,
    }
}

/// A kind of a later version is not followed.
fn kind_of(code: u8) -> Option<Kind> {
    match code {
        0 => Some(Kind::Migrate),
        1 => Some(Kind::Break),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn record(key: &str, node: &str, version: u64, seconds: u64) -> MoveRecord {
        MoveRecord {
            key_hash: hash_of(key),
            key: key.into(),
            from: "a".into(),
            node: node.into(),
            by: "a".into(),
            version,
            at: at(seconds).as_nanos(),
            used: at(seconds).as_nanos(),
            kind: 1,
            load: 0.95,
            best: 0.2,
            improvement: 0.75,
        }
    }

    #[test]
    fn a_move_that_is_told_twice_is_written_down_once_and_an_older_one_never() {
        let (mut ledger, options) = (Ledger::default(), Options::default());
        let (first, second) = (record("q:g", "b", 1, 1), record("q:g", "c", 2, 9));
        assert!(ledger.merge(&[second.clone(), second.clone()], at(10), &options));
        assert!(!ledger.merge(&[first, second], at(11), &options));
        let told = ledger.after(0);
        assert_eq!((told.moves.len(), told.next), (1, 1));
        assert_eq!((&*told.moves[0].to, &*told.moves[0].key), ("c", "q:g"));
        assert_eq!((ledger.totals.breaks, ledger.totals.migrations), (1, 0));
        assert!(ledger.after(1).moves.is_empty());
        assert_eq!(ledger.overrides().node_of(hash_of("q:g")), Some(hash_of("c")));
    }

    #[test]
    fn what_is_told_again_says_when_the_key_was_used_last() {
        let (mut ledger, options) = (Ledger::default(), Options::default());
        ledger.merge(&[record("q:g", "b", 1, 1)], at(2), &options);
        let used = |key| (key == hash_of("q:g")).then(|| at(200));
        assert!(!ledger.tend(used, at(250), &options), "it is in use");
        let again = ledger.next_to_tell();
        assert_eq!((again.len(), again[0].used), (1, at(200).as_nanos()));
        assert_eq!(again, ledger.all());
        assert!(ledger.tend(|_| None, at(501), &options), "nobody has used it for 300 s");
        ledger.keep_names(|_| false);
        assert!(ledger.all().is_empty() && ledger.name_of(hash_of("q:g")).starts_with('#'));
    }

    #[test]
    fn kinds_of_a_later_version_are_not_followed_and_the_log_is_bounded() {
        let (mut ledger, options) = (Ledger::default(), Options::default());
        let strange = MoveRecord { kind: 9, ..record("q:g", "b", 1, 1) };
        assert!(!ledger.merge(&[strange], at(2), &options));
        for number in 0..LOG_MAX as u64 + 5 {
            ledger.merge(&[record("q:g", "b", number + 1, 1)], at(100), &options);
        }
        let told = ledger.after(0);
        assert_eq!((told.moves.len(), told.moves[0].seq), (LOG_MAX, 6));
        assert_eq!(ledger.last_minute(at(159)), LOG_MAX as u64);
        assert_eq!(ledger.last_minute(at(161)), 0);
    }
}
