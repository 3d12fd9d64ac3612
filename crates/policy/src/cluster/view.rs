//! What a node knows of the cluster at one moment.

use super::load::{ONE_REQUEST, unit};
use super::{Options, Overrides, Sample, Traffic, score};
use crate::Time;
use crate::rendezvous::{Appeal, Node, Ranking, hash_of};
use std::sync::Arc;
use std::time::Duration;

/// A node, as another sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name, one in the cluster.
    pub name: Arc<str>,
    /// [`hash_of`] its name.
    pub hash: u64,
    /// Where it takes requests.
    pub url: Arc<str>,
    /// Where it stands; near ones are preferred among equals. Empty: anywhere.
    pub zone: Arc<str>,
    /// What it counted last.
    pub sample: Sample,
    /// Its smoothed score, as it announced it.
    pub score: f64,
    /// Whether it was heard lately.
    pub alive: bool,
    /// Whether it is about to stop and takes nothing new.
    pub draining: bool,
    /// Whether this node's breaker lets requests through to it.
    pub admitted: bool,
    /// Requests of this node that were under way to it when its sample came. What is under way
    /// beyond that the sample cannot know of.
    pub in_flight: u32,
}

impl Member {
    /// A node that was just heard and does nothing.
    pub fn new(name: &str, url: &str) -> Self {
        Member {
            name: name.into(),
            hash: hash_of(name),
            url: url.into(),
            zone: "".into(),
            sample: Sample::default(),
            score: 0.0,
            alive: true,
            draining: false,
            admitted: true,
            in_flight: 0,
        }
    }

    /// Whether requests may go there.
    pub const fn serves(&self) -> bool {
        self.alive && !self.draining && self.admitted
    }
}

/// What a node knows of the cluster, prepared for deciding.
#[derive(Clone, Debug)]
pub struct View {
    /// This node first.
    members: Vec<Member>,
    /// The indices of those who serve.
    pub(super) serving: Vec<usize>,
    /// Of those who serve, in the same order.
    ranking: Ranking,
    overrides: Arc<Overrides>,
    /// For each node that keys were moved to its index here, if it serves.
    moved_to: Vec<Option<usize>>,
    /// For each member the part of its keys' requests that goes elsewhere.
    overflow: Vec<f64>,
    /// For each member the score of its newest sample.
    raw: Vec<f64>,
    /// For each member when its sample was first seen.
    sampled_at: Vec<Time>,
    mean: f64,
    /// The lowest score of those who serve.
    pub(super) least: f64,
    limit: f64,
    movers: u32,
    at: Time,
    pub(super) options: Options,
}

/// So many of a ranking are looked up at once.
const NEXT: usize = 4;
/// How fast the overflowing part follows what a node has too much, a second.
const GAIN: f64 = 0.3;
/// However loaded, an owner keeps a few of its requests: otherwise nothing would show that it
/// could take them again.
const OVERFLOW_MAX: f64 = 0.98;
/// A sample that has not changed for so long is taken for a new one; and what lies further apart
/// is not one course of things.
const STEP_MAX: Duration = Duration::from_secs(2);

impl View {
    /// The view of the node `here` at `now`, following the one it had before. The order of the
    /// others does not matter.
    ///
    /// `here` is taken as alive and admitted: it is the one that looks.
    pub fn new(
        here: Member,
        others: Vec<Member>,
        overrides: Arc<Overrides>,
        before: Option<&View>,
        now: Time,
        options: &Options,
    ) -> View {
        let here = Member { alive: true, admitted: true, ..here };
        let members: Vec<Member> = std::iter::once(here)
            .chain(others)
            .map(|member| Member { score: unit(member.score), ..member })
            .collect();
        let serving: Vec<usize> =
            (0..members.len()).filter(|&index| members[index].serves()).collect();
        let nodes: Vec<Node<'_>> = serving
            .iter()
            .map(|&index| &members[index])
            .map(|member| Node { name: &member.name, hash: member.hash, weight: 1 })
            .collect();
        let ranking = Ranking::new(&nodes);
        let find = |hash: &u64| serving.iter().copied().find(|&one| members[one].hash == *hash);
        let moved_to = overrides.nodes().iter().map(find).collect();
        let count = serving.len().max(1) as f64;
        let mean = serving.iter().map(|&index| members[index].score).sum::<f64>() / count;
        let least = serving.iter().map(|&index| members[index].score).fold(1.0, f64::min);
        let hot = |index: &&usize| members[**index].score >= options.migrate_threshold;
        let movers = serving.iter().filter(hot).count().max(1) as u32;
        let mut view = View {
            limit: (options.bound * mean).max(options.bound_floor),
            overflow: vec![0.0; members.len()],
            raw: members.iter().map(|member| score(&member.sample)).collect(),
            sampled_at: vec![now; members.len()],
            members,
            serving,
            ranking,
            overrides,
            moved_to,
            mean,
            least,
            movers,
            at: now,
            options: *options,
        };
        if let Some(before) = before {
            view.follow(before);
        }
        view
    }

    /// All members, this node first.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// This node.
    pub fn here(&self) -> &Member {
        &self.members[0]
    }

    /// When it was made.
    pub fn at(&self) -> Time {
        self.at
    }

    /// The mean score of those who serve.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Above this score a node's keys overflow.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The part of the requests for this member's keys that goes elsewhere, from 0 to 1.
    pub fn overflow(&self, index: usize) -> f64 {
        self.overflow[index]
    }

    /// How many members are loaded enough to move keys; at least 1.
    pub fn movers(&self) -> u32 {
        self.movers
    }

    /// Whether this node is loaded enough to ask [`Moves::consider`](super::Moves::consider).
    pub fn is_hot(&self) -> bool {
        self.here().serves() && self.here().score >= self.options.migrate_threshold
    }

    /// Which keys were moved.
    pub fn overrides(&self) -> &Arc<Overrides> {
        &self.overrides
    }

    /// The member that owns this key; `None` if nobody serves.
    pub fn owner(&self, key: u64) -> Option<usize> {
        self.moved(key).or_else(|| Some(self.serving[self.ranking.best(key)?]))
    }

    /// The member that serves and that this key was moved to.
    #[inline]
    pub(super) fn moved(&self, key: u64) -> Option<usize> {
        self.moved_to[self.overrides.get(key)?]
    }

    /// The member whom the key likes best of those whom `fits` lets pass.
    #[inline]
    pub(super) fn first(&self, key: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(Appeal, usize)> = None;
        for (place, &index) in self.serving.iter().enumerate() {
            let appeal = self.ranking.appeal(place, key);
            if best.is_none_or(|(most, _)| appeal > most) && fits(index) {
                best = Some((appeal, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// The next of the key's ranking, in its order: those who are liked less than `after` and whom
    /// `fits` lets pass. A few at once, because each call looks at everybody.
    pub(super) fn next(
        &self,
        key: u64,
        after: Option<Appeal>,
        fits: impl Fn(usize) -> bool,
    ) -> [Option<(Appeal, usize)>; NEXT] {
        let mut best = [None; NEXT];
        for (place, &index) in self.serving.iter().enumerate() {
            let appeal = self.ranking.appeal(place, key);
            let likes = |one: &Option<(Appeal, usize)>| one.is_some_and(|(most, _)| most > appeal);
            if likes(&best[NEXT - 1]) || after.is_some_and(|last| appeal >= last) || !fits(index) {
                continue;
            }
            let at = best.iter().take_while(|one| likes(one)).count();
            best[at..].rotate_right(1);
            best[at] = Some((appeal, index));
        }
        best
    }

    /// A member's score, with what this node has sent it since it said so.
    #[inline]
    pub(super) fn effective(&self, index: usize, traffic: &impl Traffic) -> f64 {
        let member = &self.members[index];
        let since = traffic.in_flight(index).saturating_sub(member.in_flight);
        member.score + ONE_REQUEST * f64::from(since)
    }

    /// The part of requests that a member passes on: what its load calls for in the long run, or
    /// more if it is about to be lost.
    ///
    /// The newest sample counts for the latter: the smoothed score takes seconds to show that a
    /// node has ten times what it can do, and by then that has piled up.
    #[inline]
    pub(super) fn passes_on(&self, index: usize, traffic: &impl Traffic) -> f64 {
        let member = &self.members[index];
        let newest = (self.raw[index] - member.score).max(0.0);
        let load = newest + self.effective(index, traffic);
        let threshold = self.options.break_threshold;
        if load < threshold {
            return self.overflow[index];
        }
        let lost = (load - threshold) / (1.0 - threshold).max(0.01);
        self.overflow[index].max(lost.min(OVERFLOW_MAX))
    }

    /// Corrects the overflowing parts of the view before, once for each new sample.
    ///
    /// The part that a node keeps is changed by a factor, because that changes its load by the same
    /// factor, whether its keys are twice or twenty times what it can take. The aim is the middle
    /// between the mean and the bound, so that what the scores do not tell yet stays within the
    /// bound. The newest sample counts, not the smoothed score: adding up is smoothing enough, and
    /// doing both would make it swing.
    fn follow(&mut self, before: &View) {
        let count = self.serving.len().max(1) as f64;
        let sum: f64 = self.serving.iter().map(|&index| self.raw[index]).sum();
        let aim = (1.0 + (self.options.bound - 1.0) / 2.0) * (sum / count);
        let aim = aim.max(self.options.bound_floor);
        for (index, member) in self.members.iter().enumerate() {
            let same = |one: &Member| one.hash == member.hash;
            let at_same_place = before.members.get(index).is_some_and(same);
            let place = || before.members.iter().position(same);
            let Some(place) = at_same_place.then_some(index).or_else(place) else { continue };
            let step = self.at.since(before.sampled_at[place]);
            let known = &before.members[place];
            let news = known.sample != member.sample || known.score != member.score;
            if !member.serves() || (!news && step < STEP_MAX) {
                self.overflow[index] = before.overflow[place];
                self.sampled_at[index] = before.sampled_at[place];
                continue;
            }
            let load = self.raw[index];
            let excess = (load - aim) / load.max(aim).max(0.01);
            // A score that cannot get much higher says less than it should.
            let gain = if load < self.options.break_threshold { GAIN } else { 2.0 * GAIN };
            let factor = 1.0 - gain * step.min(STEP_MAX).as_secs_f64() * excess;
            let kept = (1.0 - before.overflow[place]) * factor;
            self.overflow[index] = (1.0 - kept).clamp(0.0, OVERFLOW_MAX);
        }
    }
}
