//! Who should own each key: bounded, so that nobody has too much, and sticky, so that little moves.
//!
//! ```text
//!   load   0 ────────── floor ─── share ─── cap ──────────►
//!              gets keys │    left alone     │ gives keys
//! ```
//!
//! * A key that nobody owns, or whose owner is draining, goes to the node it likes best
//!   ([`crate::rendezvous`]) among those with room. If that would leave a node below its floor
//!   that could have been filled, the keys that are on their way anyhow fill it.
//! * Then a node above its cap gives keys away, and one below its floor gets some, exactly as many
//!   as it takes. Such moves are voluntary: the keys were in good hands.
//!
//! Every voluntary move brings loads closer to their bounds and none further away, so moves end,
//! and any part of a plan can be applied and the rest computed anew. The answer depends on the
//! facts alone, not on the order of the nodes. Bounds are whole numbers, so that two machines never
//! round differently.
//!
//! A node that keeps its keys without taking new ones is left out, and its keys with it: the
//! others share the rest. While a node is not yet stable, loads may be anywhere between what is
//! right with it and what is right without it, so its arrival moves nothing twice.

mod planner;
#[cfg(test)]
mod tests;

use crate::Reason;
use crate::rendezvous::{Node, hash_of};
use planner::{Planner, Seat};
use serde::Serialize;
use std::time::Duration;

/// A node that may own keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name, the name's hash, and its weight.
    pub node: Node<'a>,
    /// May it receive keys? True while it is online.
    pub takes: bool,
    /// Does it keep what it has? False while it drains, and then it takes nothing either.
    pub stays: bool,
    /// Has it been here for a while? Until then no key is moved to it that has an owner.
    pub stable: bool,
}

impl<'a> Candidate<'a> {
    /// A node that is online and has been for a while.
    pub fn new(name: &'a str, weight: u32) -> Self {
        let node = Node { name, hash: hash_of(name), weight };
        Candidate { node, takes: true, stays: true, stable: true }
    }

    fn is_seat(&self) -> bool {
        self.takes && self.stays
    }

    fn keeps_apart(&self) -> bool {
        self.stays && !self.takes
    }

    fn weight(&self) -> u64 {
        u64::from(self.node.weight.max(1))
    }
}

/// A key and who owns it. All nodes must give the keys in the same order, that of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// [`hash_of`] its name.
    pub hash: u64,
    /// How much work it is, compared with the others. From 1.
    pub weight: u32,
    /// The index of its owner among the candidates; `None` if it has none, or a dead one.
    pub owner: Option<u32>,
    /// False if it was moved voluntarily a moment ago, and so is not moved voluntarily now.
    pub settled: bool,
}

impl Placed {
    /// A key of weight 1 that is settled.
    pub fn new(hash: u64, owner: Option<u32>) -> Self {
        Placed { hash, weight: 1, owner, settled: true }
    }

    fn load(&self) -> u64 {
        u64::from(self.weight.max(1))
    }
}

/// How far loads may be from their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// In thousandths of a share, above and below it. Less makes loads more even, more makes
    /// fewer keys move.
    pub slack_thousandths: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { slack_thousandths: 50 }
    }
}

/// What a node should have: its part of all work, and how much more or less is as good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Its part by weight.
    pub share: f64,
    /// The same, rounded up. Keys that need an owner fill nodes up to this first: loads that begin
    /// even have all of the slack before anything has to move.
    pub even: u64,
    /// It gives keys away above this.
    pub cap: u64,
    /// It gets keys below this.
    pub floor: u64,
}

impl Bounds {
    /// The bounds of a node of `weight`, where nodes of `weights` together have a load of `total`.
    ///
    /// The share lies between floor and cap, and rounding never puts it outside, so that there is
    /// always room for everything and nobody waits for keys that do not exist.
    pub fn new(total: u64, weight: u64, weights: u64, options: &Options) -> Self {
        let (parts, of) = (u128::from(total) * u128::from(weight), u128::from(weights.max(1)));
        let slack = u128::from(options.slack_thousandths);
        let above = parts * (1_000 + slack) / (of * 1_000);
        let below = (parts * 1_000_u128.saturating_sub(slack)).div_ceil(of * 1_000);
        let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Bounds {
            share: parts as f64 / of as f64,
            even: whole(parts.div_ceil(of)),
            cap: whole(parts.div_ceil(of).max(above)),
            floor: whole((parts / of).min(below)),
        }
    }
}

/// A key that should change its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The key's index.
    pub key: usize,
    /// The index of the node that owns it, if any.
    pub from: Option<u32>,
    /// The index of the node that should.
    pub to: u32,
    /// The rule.
    pub why: Why,
    /// The load that the rule looked at, before the move: the giver's if that is above its cap,
    /// and otherwise the receiver's.
    pub load: u64,
    /// The bounds of the node with that load.
    pub bounds: Bounds,
    /// How many nodes that take keys this key likes better than the one that gets it.
    pub rank: u32,
}

/// The rule by which a key changes its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Nobody had it, and it goes to the node it likes best.
    Unowned,
    /// Nobody had it, and those that it likes better were full.
    UnownedOverflow,
    /// Nobody had it, and the one that gets it would have been below its floor.
    UnownedUnderFloor,
    /// Its owner is draining.
    Draining,
    /// Its owner has more than its cap.
    OverCap,
    /// The one that gets it has less than its floor, and its owner more than its own.
    UnderFloor,
}

impl Why {
    /// The rule's stable name.
    pub const fn rule(self) -> &'static str {
        match self {
            Why::Unowned => "unowned",
            Why::UnownedOverflow => "unowned-overflow",
            Why::UnownedUnderFloor => "unowned-under-floor",
            Why::Draining => "draining",
            Why::OverCap => "over-cap",
            Why::UnderFloor => "under-floor",
        }
    }

    /// Was the key in good hands? Then there is time, and only few move at once.
    pub const fn is_voluntary(self) -> bool {
        matches!(self, Why::OverCap | Why::UnderFloor)
    }
}

impl Move {
    /// Why, for log, API and dashboard.
    pub fn reason(&self) -> Reason {
        let reason = Reason::new(self.why.rule())
            .with("load", self.load)
            .with("share", self.bounds.share)
            .with("rank", self.rank);
        match self.why {
            Why::UnderFloor | Why::UnownedUnderFloor => reason.with("floor", self.bounds.floor),
            _ => reason.with("cap", self.bounds.cap),
        }
    }
}

/// The moves that put every key where it should be; none if everything is in its place.
///
/// Moves that cannot wait come first. Of the voluntary ones a node that gives makes the first few
/// of its own ([`allowed_now`]) and then computes anew.
pub fn plan(nodes: &[Candidate<'_>], keys: &[Placed], options: &Options) -> Vec<Move> {
    let mut loads = vec![0_u64; nodes.len()];
    let mut loose = 0_u64;
    for key in keys {
        match key.owner.and_then(|owner| loads.get_mut(owner as usize)) {
            Some(load) => *load += key.load(),
            None => loose += key.load(),
        }
    }
    let facts = || nodes.iter().zip(&loads);
    let weights = nodes.iter().filter(|node| node.is_seat()).map(Candidate::weight).sum();
    let apart: u64 = facts().filter(|(node, _)| node.keeps_apart()).map(|(_, load)| load).sum();
    let total = loads.iter().sum::<u64>() + loose - apart;
    let homeless = loose > 0 || facts().any(|(node, &load)| !node.stays && load > 0);
    let seat = |(index, (node, &load)): (usize, (&Candidate<'_>, &u64))| {
        let bounds = Bounds::new(total, node.weight(), weights, options);
        Seat::new(index as u32, node.weight(), node.stable, load, bounds)
    };
    let mut seats: Vec<Seat> =
        facts().enumerate().filter(|(_, (node, _))| node.is_seat()).map(seat).collect();
    seats.sort_by_key(|seat| nodes[seat.node as usize].node.name);
    if seats.is_empty() {
        return Vec::new();
    }
    if !homeless {
        planner::widen(&mut seats, options);
        if !planner::is_uneven(&seats) {
            return Vec::new();
        }
    }
    Planner::new(nodes, keys, seats, *options).plan()
}

/// How many of the voluntary moves that a node should make it makes now.
///
/// Moving is cheap and not free: each key is without an owner for a moment. So a node gives away
/// `per_second_thousandths` of what it owns (50 is a good number) for each second since it last
/// did, and at least one key. Time in which nothing moved is not saved up beyond a second.
pub fn allowed_now(
    wanted: usize,
    owned: usize,
    per_second_thousandths: u32,
    elapsed: Duration,
) -> usize {
    let millis = elapsed.as_millis().min(1_000);
    let allowed = owned as u128 * u128::from(per_second_thousandths) * millis / 1_000_000;
    wanted.min(usize::try_from(allowed.max(1)).unwrap_or(usize::MAX))
}
