//! Which keys have been moved away from the first of their ranking, and which should be?
//!
//! ```text
//!   score   0 ─────────── 0.70 ─────────────── 0.90 ────────── 1
//!              keep        │  migrate, with the │   break, if somebody
//!                          │  improvement as    │   is better by the
//!                          │  probability       │   margin
//! ```
//!
//! Every node keeps the same moves: each is a record, and of two records of one key the same one
//! wins on every node, in whatever order and however often they arrive ([`Moves::merge`]).
//!
//! What keeps moves from going on for ever: a key that moved rests for a while; the cluster has a
//! limit a second; a key moves only if its new node then has less than its old one has now; a node
//! that overflows and thereby stays within its bound keeps its keys; and what was moved is taken
//! into account until the scores show it.

use super::decide::{fraction, two_of};
use super::load::unit;
use super::{Options, Overrides, View};
use crate::throttle::{self, Bucket, Verdict};
use crate::{Chance, Decision, Reason, Time};
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why a key was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its owner had much to do, and chance would have it.
    Migrate,
    /// Its owner had far too much to do.
    Break,
}

impl Kind {
    /// The word for it in logs, metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Migrate => "migrate",
            Kind::Break => "break",
        }
    }
}

/// That a key was moved. Small and of one size, to travel in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The hash of the key.
    pub key: u64,
    /// The hash of the name of the node that has it now.
    pub node: u64,
    /// How often the key has been moved; the highest wins.
    pub version: u64,
    /// When it was moved.
    pub moved_at: Time,
    /// When somebody was last known to use it.
    pub used_at: Time,
    /// The hash of the name of the node that moved it.
    pub by: u64,
    /// Why.
    pub kind: Kind,
}

impl Move {
    /// What decides between two records of one key. Nothing else may: a node that has seen both
    /// must agree with one that saw them in the other order.
    fn rank(&self) -> (u64, Time, u64, u64, Kind) {
        (self.version, self.moved_at, self.by, self.node, self.kind)
    }

    /// What follows from both records of one key: the one that ranks higher, with the latest use
    /// that either knows of. Whether that changes this one.
    fn join(&mut self, other: &Move) -> bool {
        let used_at = self.used_at.max(other.used_at);
        let before = *self;
        if self.rank().cmp(&other.rank()) == Ordering::Less {
            *self = *other;
        }
        self.used_at = used_at;
        *self != before
    }
}

/// All moves that a node knows of.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    known: BTreeMap<u64, Move>,
    /// What this node has moved in this second.
    spent: Bucket,
    /// What this node has moved and the scores do not show yet: by node, negative where it left.
    unseen: BTreeMap<u64, f64>,
    unseen_at: Time,
}

/// Where a bound is exceeded, so much of it is made free at once, so that it is rarely done.
const EVICT_PART: usize = 16;
/// 0.75 is above 0.60 by a little more than 0.15, and 0.95 above 0.80 by a little less, where
/// numbers are binary; this much means nothing.
const NOISE: f64 = 1e-9;
/// Less than this is seen.
const SEEN: f64 = 0.001;

impl Moves {
    /// None.
    pub fn new() -> Self {
        Moves::default()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Move> {
        self.known.values()
    }

    /// The move of this key.
    pub fn get(&self, key: u64) -> Option<&Move> {
        self.known.get(&key)
    }

    /// At most `most` of them, for telling others; a different part each `round`, so that after
    /// enough rounds everything has been told and what got lost has healed.
    pub fn to_tell(&self, round: u64, most: usize) -> Vec<Move> {
        let parts = self.known.len().div_ceil(most.max(1)).max(1);
        let part = (round % parts as u64) as usize;
        self.known.values().skip(part * most).take(most).copied().collect()
    }

    /// Prepared for a [`View`].
    pub fn overrides(&self) -> Overrides {
        Overrides::new(self.known.values())
    }

    /// Takes what another node knows. Whether anybody's owner changes by it, so that the
    /// [`Overrides`] have to be made again.
    ///
    /// Times ahead of `now` are those of a clock that is wrong, and count as now where they would
    /// keep a record alive.
    pub fn merge(&mut self, records: &[Move], now: Time, options: &Options) -> bool {
        let mut changed = false;
        for record in records {
            let mut record = *record;
            record.used_at = record.used_at.min(now);
            match self.known.get_mut(&record.key) {
                Some(known) => {
                    let node = known.node;
                    known.join(&record);
                    changed |= known.node != node;
                }
                None => {
                    self.known.insert(record.key, record);
                    changed = true;
                }
            }
        }
        self.evict(options.entries_max) | changed
    }

    /// Notes when each key was last used here, forgets those that nobody has used for long, and
    /// tells whether any was forgotten. To be done about once a second.
    pub fn tend(
        &mut self,
        last_used: impl Fn(u64) -> Option<Time>,
        now: Time,
        options: &Options,
    ) -> bool {
        let before = self.known.len();
        self.known.retain(|key, known| {
            let used_at = last_used(*key).map_or(known.used_at, |at| at.max(known.used_at));
            known.used_at = used_at.min(now);
            now.since(known.used_at) <= options.affinity_ttl
        });
        self.known.len() != before
    }

    /// Whether this node, as the owner of this key, should give it to another; and then it is
    /// moved. `share` is the part of this node's work that the key is.
    ///
    /// The reason has the numbers. A break is worth a warning, a migration a note.
    pub fn consider(
        &mut self,
        view: &View,
        key: u64,
        share: f64,
        now: Time,
        chance: &mut impl Chance,
    ) -> Option<Decision<Move>> {
        let options = &view.options;
        if !view.is_hot() || view.owner(key) != Some(0) || self.rests(key, now, options) {
            return None;
        }
        self.see(now, options);
        let here = view.here();
        let load = self.expected(here.hash, here.score);
        let (target, best) = self.target(view, chance)?;
        // What overflows goes with the key, too.
        let served = here.score * unit(share);
        let weight = served / (1.0 - view.overflow(0)).max(SEEN);
        // Nothing is gained if the other then has what this one has now, or if what overflows is
        // enough to keep this one within its bound.
        let contained = view.overflow(0) > 0.0 && load <= view.limit();
        let hot = load >= options.migrate_threshold;
        if !hot || best + weight >= load || (contained && load < options.break_threshold) {
            return None;
        }
        let improvement = load - best;
        let kind = if load >= options.break_threshold {
            (improvement + NOISE >= options.break_margin).then_some(Kind::Break)?
        } else {
            let lucky =
                improvement > options.min_improvement + NOISE && fraction(chance) < improvement;
            lucky.then_some(Kind::Migrate)?
        };
        let every = Duration::from_secs_f64(f64::from(view.movers()) / options.moves_per_second);
        let limit = throttle::Options { burst: 1, every };
        if self.spent.ask(now, &limit).chosen != Verdict::Allowed {
            return None;
        }
        self.spent.spend(now, &limit);
        let target = &view.members()[target];
        *self.unseen.entry(here.hash).or_default() -= served;
        *self.unseen.entry(target.hash).or_default() += weight;
        let moved = Move {
            key,
            node: target.hash,
            version: self.known.get(&key).map_or(0, |known| known.version).saturating_add(1),
            moved_at: now,
            used_at: now,
            by: here.hash,
            kind,
        };
        self.known.insert(key, moved);
        self.evict(options.entries_max);
        let reason = Reason::new(kind.as_str())
            .with("from", here.name.to_string())
            .with("to", target.name.to_string())
            .with("load", load)
            .with("best", best)
            .with("improvement", improvement)
            .with("key_share", unit(share))
            .with("movers", view.movers());
        Some(reason.choose(moved))
    }

    /// Whether a key moved a moment ago. A time far ahead is that of a wrong clock and holds
    /// nothing.
    fn rests(&self, key: u64, now: Time, options: &Options) -> bool {
        let rest = options.key_cooldown;
        self.known
            .get(&key)
            .is_some_and(|known| known.moved_at <= now + rest && now.since(known.moved_at) < rest)
    }

    /// The better of two of those near the least loaded, with the load it will show.
    fn target(&self, view: &View, chance: &mut impl Chance) -> Option<(usize, f64)> {
        let members = view.members();
        let load = |index: usize| self.expected(members[index].hash, members[index].score);
        let others = || view.serving.iter().copied().filter(|&index| index != 0);
        let least = others().map(load).min_by(f64::total_cmp)?;
        let near = others().filter(|&index| load(index) <= least + view.options.forward_threshold);
        let two = two_of(near, chance).into_iter().flatten();
        let best = two.min_by(|&one, &other| load(one).total_cmp(&load(other)))?;
        Some((best, load(best)))
    }

    fn expected(&self, node: u64, score: f64) -> f64 {
        unit(score + self.unseen.get(&node).copied().unwrap_or(0.0))
    }

    /// Scores follow what was moved as slowly as they are smoothed.
    fn see(&mut self, now: Time, options: &Options) {
        let beats = now.since(self.unseen_at).as_secs_f64() / options.heartbeat.as_secs_f64();
        let left = libm::pow(1.0 - options.alpha, beats);
        self.unseen_at = now;
        self.unseen.retain(|_, load| {
            *load *= left;
            load.abs() >= SEEN
        });
    }

    /// Makes room by forgetting what was used longest ago. Whether there was too much.
    fn evict(&mut self, most: usize) -> bool {
        let Some(over) = self.known.len().checked_sub(most + 1) else { return false };
        let count = (over + 1).max(most / EVICT_PART).min(self.known.len() - 1);
        let mut by_use: Vec<(Time, u64)> =
            self.known.values().map(|known| (known.used_at, known.key)).collect();
        by_use.select_nth_unstable(count);
        for (_, key) in &by_use[..count] {
            self.known.remove(key);
        }
        true
    }
}
