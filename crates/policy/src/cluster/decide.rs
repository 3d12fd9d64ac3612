//! Here or there?

use super::View;
use crate::Chance;
use serde::Serialize;

/// Where a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On this node.
    Here,
    /// On the member with this index in [`View::members`].
    There(usize),
}

impl Place {
    /// The place of the member with this index.
    pub const fn of(index: usize) -> Place {
        if index == 0 { Place::Here } else { Place::There(index) }
    }

    /// The index of the member.
    pub const fn index(self) -> usize {
        match self {
            Place::Here => 0,
            Place::There(index) => index,
        }
    }
}

/// Where a request is served, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Where.
    pub place: Place,
    /// Why there.
    pub rule: Rule,
    /// Who owns the key, where there is a key and an owner.
    pub owner: Option<usize>,
}

/// Why a request is served where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Nobody else serves.
    Alone,
    /// Everybody else was tried or is avoided.
    NobodyLeft,
    /// The key ranks this node first.
    Owner,
    /// The key was moved to this node.
    Moved,
    /// The owner has too much, and this node is as good as any.
    OverflowHere,
    /// The owner has too much, and this one is next in the key's ranking and better by more than
    /// the threshold.
    OverflowNext,
    /// The owner has too much, and so have the others.
    OwnerLeastLoaded,
    /// Consumers wait here.
    ConsumersHere,
    /// Consumers wait there.
    ConsumersThere,
    /// Consumers wait nowhere.
    NoConsumers,
    /// Consumers wait there, but that node has far too much.
    ConsumersOverloaded,
    /// This node is about to stop.
    HereDraining,
}

impl Rule {
    /// Every rule, in the order of their numbers.
    pub const ALL: [Rule; 12] = [
        Rule::Alone,
        Rule::NobodyLeft,
        Rule::Owner,
        Rule::Moved,
        Rule::OverflowHere,
        Rule::OverflowNext,
        Rule::OwnerLeastLoaded,
        Rule::ConsumersHere,
        Rule::ConsumersThere,
        Rule::NoConsumers,
        Rule::ConsumersOverloaded,
        Rule::HereDraining,
    ];

    /// The word for it in logs, metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Alone => "alone",
            Rule::NobodyLeft => "nobody-left",
            Rule::Owner => "owner",
            Rule::Moved => "moved",
            Rule::OverflowHere => "overflow-here",
            Rule::OverflowNext => "overflow-next",
            Rule::OwnerLeastLoaded => "owner-least-loaded",
            Rule::ConsumersHere => "consumers-here",
            Rule::ConsumersThere => "consumers-there",
            Rule::NoConsumers => "no-consumers",
            Rule::ConsumersOverloaded => "consumers-overloaded",
            Rule::HereDraining => "here-draining",
        }
    }
}

/// What only this node knows of its dealings with the others. Any `Fn(usize) -> u32` that counts
/// what is under way will do.
pub trait Traffic {
    /// Requests of this node that are under way to this member now.
    fn in_flight(&self, member: usize) -> u32;

    /// Whether this request must not go there, because it has been there or there is no room.
    fn avoids(&self, _member: usize) -> bool {
        false
    }
}

impl<F: Fn(usize) -> u32> Traffic for F {
    fn in_flight(&self, member: usize) -> u32 {
        self(member)
    }
}

/// The same traffic for a request that has been tried at these members.
#[derive(Clone, Copy, Debug)]
pub struct Avoiding<'a, T> {
    /// What is under way.
    pub traffic: &'a T,
    /// Where it must not go again.
    pub tried: &'a [usize],
}

impl<T: Traffic> Traffic for Avoiding<'_, T> {
    fn in_flight(&self, member: usize) -> u32 {
        self.traffic.in_flight(member)
    }

    fn avoids(&self, member: usize) -> bool {
        self.tried.contains(&member) || self.traffic.avoids(member)
    }
}

/// Where a request for this key is served: by its owner, or where it overflows to.
///
/// Chance decides whether this one is among the part that overflows.
pub fn consumer(view: &View, key: u64, traffic: &impl Traffic, chance: &mut impl Chance) -> Choice {
    if matches!(view.serving[..], [] | [0]) {
        return Choice { place: Place::Here, rule: Rule::Alone, owner: None };
    }
    let moved = view.moved(key).filter(|&index| !traffic.avoids(index));
    let ranked = || view.first(key, |index| !traffic.avoids(index));
    let Some(owner) = moved.or_else(ranked) else {
        return Choice { place: Place::Here, rule: Rule::NobodyLeft, owner: None };
    };
    let rule = if moved.is_some() { Rule::Moved } else { Rule::Owner };
    let stay = Choice { place: Place::of(owner), rule, owner: Some(owner) };
    if !passed_on(view, owner, traffic, chance) {
        return stay;
    }
    let (index, rule) = overflow(view, key, owner, traffic, chance);
    Choice { place: Place::of(index), rule, owner: Some(owner) }
}

/// Where a request goes that its key's owner should be spared.
///
/// The two next of the ranking that do not pass it on are looked at, because the second choice is
/// what keeps stale loads from sending everything to one node; then this node is preferred unless
/// the better of them is better by more than the threshold. Nobody is chosen who has clearly more
/// to do than the owner; a little more is no reason, because an owner that seems idle for a moment
/// would get back at once all that it was to be spared.
fn overflow(
    view: &View,
    key: u64,
    owner: usize,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> (usize, Rule) {
    let here_serves = view.here().serves() && !traffic.avoids(0);
    let here = view.effective(0, traffic);
    let threshold = view.options.forward_threshold;
    let too_much = view.effective(owner, traffic) + threshold;
    let here_will_do = here_serves && owner != 0 && here < too_much;
    // Mostly nobody can be better by so much, and then nobody has to be looked for.
    if here_will_do && here <= view.least + threshold {
        return (0, Rule::OverflowHere);
    }
    let there = next_with_room(view, key, owner, traffic, chance).filter(|&index| {
        let load = view.effective(index, traffic);
        load < too_much && (!here_serves || load + threshold < here)
    });
    match there {
        Some(index) => (index, Rule::OverflowNext),
        None if here_will_do => (0, Rule::OverflowHere),
        None => (owner, Rule::OwnerLeastLoaded),
    }
}

/// The better of the two next of the key's ranking that do not pass the request on themselves;
/// neither its owner nor this node.
fn next_with_room(
    view: &View,
    key: u64,
    owner: usize,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> Option<usize> {
    let fits = |index: usize| index != owner && index != 0 && !traffic.avoids(index);
    let (mut first, mut after) = (None, None);
    loop {
        let several = view.next(key, after, fits);
        for (_, index) in several.iter().flatten() {
            match first {
                _ if passed_on(view, *index, traffic, chance) => {}
                None => first = Some(*index),
                Some(first) => return Some(better_of(view, first, *index, traffic)),
            }
        }
        // Fewer than could be: that was the end of the ranking.
        let Some((last, _)) = several[several.len() - 1] else { return first };
        after = Some(last);
    }
}

/// Where a write is served: where consumers of its queues wait, so that they hear of it at once.
///
/// `queues_waited_for` tells for a member for how many of the queues that the request names it has
/// consumers. A request is never split: it goes where most of its queues are waited for.
pub fn producer(
    view: &View,
    queues_waited_for: &impl Fn(usize) -> u32,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> Choice {
    let choose = |place, rule| Choice { place, rule, owner: None };
    if matches!(view.serving[..], [] | [0]) {
        return choose(Place::Here, Rule::Alone);
    }
    let usable = |index: usize| index != 0 && !traffic.avoids(index);
    let here_serves = view.here().serves() && !traffic.avoids(0);
    let here = if here_serves { queues_waited_for(0) } else { 0 };
    let others = || view.serving.iter().copied().filter(|&index| usable(index));
    let most = others().map(queues_waited_for).max().unwrap_or(0);
    if here_serves && here >= most {
        let rule = if here == 0 { Rule::NoConsumers } else { Rule::ConsumersHere };
        return choose(Place::Here, rule);
    }
    let candidates = others().filter(|&index| queues_waited_for(index) == most);
    let Some(chosen) = two_choices(view, candidates, traffic, chance) else {
        return choose(Place::Here, Rule::NobodyLeft);
    };
    let load = view.effective(chosen, traffic);
    let lost = load >= view.options.break_threshold;
    let worse = view.effective(0, traffic) + view.options.forward_threshold < load;
    if here_serves && lost && worse {
        return choose(Place::Here, Rule::ConsumersOverloaded);
    }
    let rule = if most > 0 { Rule::ConsumersThere } else { Rule::HereDraining };
    choose(Place::There(chosen), rule)
}

/// The better of two of these that chance picks.
fn two_choices(
    view: &View,
    candidates: impl Iterator<Item = usize>,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> Option<usize> {
    let [first, second] = two_of(candidates, chance);
    let (first, second) = (first?, second);
    Some(second.map_or(first, |second| better_of(view, first, second, traffic)))
}

/// Two of these, each pair as likely as any other.
pub(super) fn two_of(
    candidates: impl Iterator<Item = usize>,
    chance: &mut impl Chance,
) -> [Option<usize>; 2] {
    let mut two = [None; 2];
    for (count, index) in candidates.enumerate() {
        let at = if count < 2 { count as u64 } else { chance.up_to(count as u64) };
        if at < 2 {
            two[at as usize] = Some(index);
        }
    }
    two
}

/// Whoever has less to do; among near-equals one in this node's zone before one elsewhere.
fn better_of(view: &View, first: usize, second: usize, traffic: &impl Traffic) -> usize {
    let loads = [first, second].map(|index| view.effective(index, traffic));
    let near = (loads[0] - loads[1]).abs() <= view.options.forward_threshold;
    let zone = &view.here().zone;
    let at_home = [first, second].map(|one| !zone.is_empty() && view.members()[one].zone == *zone);
    match at_home {
        [true, false] if near => first,
        [false, true] if near => second,
        _ if loads[1] < loads[0] => second,
        _ => first,
    }
}

/// Whether chance has this member pass a request on.
#[inline]
fn passed_on(view: &View, index: usize, traffic: &impl Traffic, chance: &mut impl Chance) -> bool {
    let part = view.passes_on(index, traffic);
    part > 0.0 && fraction(chance) < part
}

/// A number from 0 to below 1.
#[inline]
pub(super) fn fraction(chance: &mut impl Chance) -> f64 {
    (chance.bits() >> 11) as f64 / (1_u64 << 53) as f64
}
