//! Which lanes each claim of a batch takes, of those that the batch has locked.

use super::desk::LaneKey;
use super::limits::Allowance;
use super::names::Queue;
use super::rows::{Held, LANE_COLUMNS, level, runs, time, unsigned};
use super::take::Want;
use crate::store::Nothing;
use skep_policy::Time;
use skep_policy::queues::{Backlog, Claim, Run, Span};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Messages of one lane that were taken.
pub(super) struct Taken {
    pub queue: Arc<Queue>,
    pub partition: i64,
    pub name: Arc<str>,
    pub level: u8,
    pub spans: Vec<Span>,
}

/// What came of a claim.
pub(super) enum Found {
    Some {
        lanes: Vec<Taken>,
        until: Time,
        now: Time,
    },
    Nothing {
        why: Nothing,
        next_at: Option<Time>,
        now: Time,
    },
    /// Something is ready, but it was locked: this lane, for one. With `vain` there were others,
    /// which turned out to be empty.
    Again {
        lane: LaneKey,
        vain: bool,
        now: Time,
    },
    /// There are partitions for which the group has no lanes yet.
    Beyond {
        queue: Arc<Queue>,
        group: i64,
        now: Time,
    },
    /// There are no lanes for these partitions yet.
    NoLane {
        queue: Arc<Queue>,
        group: i64,
        partitions: Vec<i64>,
        now: Time,
    },
}

/// What came of a claim for any partition, as far as the locked lanes tell.
pub(super) enum Pick {
    Found(Found),
    /// There was nothing among them; why is told by those that are left.
    Short {
        group: i64,
        vain: bool,
    },
}

/// A group, as claims see it.
pub(super) struct Crowd {
    pub queue: Arc<Queue>,
    pub group: i64,
    /// When the first partition beyond the frontier was made, if there is one.
    pub beyond: Option<Time>,
}

/// A lane with what its partition holds.
pub(super) struct Open {
    pub held: Held,
    pub name: Arc<str>,
    pub level: u8,
    pub runs: Vec<Run>,
    pub tail: u64,
    pub last_push: Time,
    pub want: u32,
    /// Whether a claim has taken from it, or found that it cannot.
    used: bool,
}

/// A lane that was asked for by its partition's name, whether it could be locked or not.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub ready_at: Option<Time>,
    pub lease_until: Option<Time>,
    pub last_push: Time,
}

/// The levels of a partition, by group and the partition's name, the highest first.
pub(super) type Siblings = HashMap<(i64, Arc<str>), Vec<(u8, LaneKey)>>;

/// The lanes that a batch has locked.
#[derive(Default)]
pub(super) struct Locked {
    pub opens: HashMap<LaneKey, Open>,
    /// By group, those that wait longest first.
    pub lines: HashMap<i64, Vec<LaneKey>>,
    pub states: HashMap<LaneKey, State>,
    /// Of queues with levels.
    pub siblings: Siblings,
    /// Of groups with limits.
    pub allowances: HashMap<i64, Allowance>,
}

/// A claim, and what it may have.
struct Taker<'claim> {
    now: Time,
    want: &'claim Want<'claim>,
    queue: &'claim Arc<Queue>,
    until: Time,
    left: u32,
    lanes: Vec<Taken>,
}

/// What came of looking at a lane.
enum Look {
    Took,
    /// It has nothing.
    Empty,
    /// Its key has as much as it may.
    Blocked,
}

impl Open {
    pub(super) fn read(row: &tokio_postgres::Row, want: i64) -> Self {
        let name: &str = row.get(LANE_COLUMNS);
        Open {
            held: Held::read(row),
            name: name.into(),
            tail: unsigned(row.get(LANE_COLUMNS + 1)),
            last_push: time(row.get(LANE_COLUMNS + 2)),
            runs: runs(row, LANE_COLUMNS + 3),
            level: level(row.get(LANE_COLUMNS + 6)),
            want: u32::try_from(want).unwrap_or(u32::MAX),
            used: false,
        }
    }

    /// Takes what is there; nothing if there is nothing.
    fn take(&mut self, now: Time, queue: &Queue, claim: &Claim) -> Vec<Span> {
        let (tail, last_push) = (self.tail, self.last_push);
        let backlog = Backlog { runs: &self.runs, tail, last_push };
        let claimed = self.held.lane.claim(now, &queue.rules, &backlog, claim);
        self.held.set_ready(now, &queue.rules, &self.runs, tail, last_push);
        claimed.spans
    }

    fn state(&self) -> State {
        State {
            ready_at: self.held.ready_at,
            lease_until: self.held.lane.lease.map(|lease| lease.until),
            last_push: self.last_push,
        }
    }
}

impl<'claim> Taker<'claim> {
    fn new(now: Time, want: &'claim Want<'claim>, queue: &'claim Arc<Queue>) -> Self {
        let asked = want.job.lease_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let until = now + asked.unwrap_or(queue.rules.lease);
        Taker { now, want, queue, until, left: want.job.batch, lanes: Vec::new() }
    }

    fn wants_more(&self) -> bool {
        self.left > 0 && self.lanes.len() < self.want.job.partitions.max(1) as usize
    }

    fn look(&mut self, open: &mut Open, allowance: Option<&mut Allowance>) -> Look {
        let (lease, auto_settle) = (self.want.job.lease, self.want.job.auto_ack);
        let (now, until) = (self.now, self.until);
        open.used = true;
        let mut claim = Claim { want: self.left, lease, until, auto_settle };
        let spans = match allowance {
            None => {
                open.held.keys.leased = None;
                open.take(now, self.queue, &claim)
            }
            Some(allowance) => {
                let key = allowance.key_of(&open.name);
                match allowance.key_room(now, &key, auto_settle) {
                    Ok(room) => claim.want = claim.want.min(room),
                    Err(next_at) => {
                        open.held.ready_at = Some(next_at);
                        open.held.keys.blocked = Some(key);
                        return Look::Blocked;
                    }
                }
                let spans = open.take(now, self.queue, &claim);
                let count = spans.iter().map(|span| span.count).sum();
                if count == 0 {
                    allowance.gave_nothing(key);
                } else {
                    let leased = Some(until).filter(|_| !auto_settle);
                    allowance.grant(now, &key, count, leased);
                    open.held.keys.leased = leased.and_then(|_| allowance.counts_for(&key));
                }
                spans
            }
        };
        if spans.is_empty() {
            return Look::Empty;
        }
        self.left -= spans.iter().map(|span| span.count).sum::<u32>().min(self.left);
        let (queue, name, level) = (self.queue.clone(), open.name.clone(), open.level);
        self.lanes.push(Taken { queue, partition: open.held.partition, name, level, spans });
        Look::Took
    }

    fn found(self) -> Found {
        Found::Some { lanes: self.lanes, until: self.until, now: self.now }
    }
}

impl Locked {
    /// Takes from the lanes that wait longest; of a partition with levels from the highest.
    /// Partitions beyond the frontier wait too, since they were made: if the next is one of them,
    /// nothing is taken until they have lanes, except by a claim that makes do with what is there.
    pub(super) fn take_any(
        &mut self,
        now: Time,
        want: &Want<'_>,
        crowd: &Crowd,
        makes_do: bool,
    ) -> Pick {
        let (queue, group) = (&crowd.queue, crowd.group);
        let beyond = || Pick::Found(Found::Beyond { queue: queue.clone(), group, now });
        let mut taker = Taker::new(now, want, queue);
        let Locked { opens, lines, siblings, allowances, .. } = self;
        let mut allowance = allowances.get_mut(&group);
        match allowance.as_ref().map(|allowance| allowance.room(now, want.job.auto_ack)) {
            Some(Ok(room)) => taker.left = taker.left.min(room),
            Some(Err(at)) => {
                let next_at = Some(at);
                return Pick::Found(Found::Nothing { why: Nothing::Empty, next_at, now });
            }
            None => {}
        }
        let allowed = allowance.as_deref().filter(|_| crowd.beyond.is_some()).cloned();
        let line = lines.entry(group).or_default();
        let (mut before, mut vain, mut place) = (Vec::new(), false, 0);
        while taker.wants_more() {
            let done = |key: &LaneKey| opens.get(key).is_none_or(|open| open.used);
            while line.get(place).is_some_and(done) {
                place += 1;
            }
            let next = line.get(place).and_then(|key| opens.get(key)?.held.ready_at);
            let first = |made: Time| next.is_none_or(|next| next > made);
            if crowd.beyond.is_some_and(first) && !makes_do {
                for held in before.into_iter().rev() {
                    give_back(held, opens);
                }
                if let (Some(allowance), Some(allowed)) = (allowance, allowed) {
                    *allowance = allowed;
                }
                return beyond();
            }
            let Some(key) = line.get(place).map(|key| highest(*key, opens, siblings)) else {
                break;
            };
            let Some(open) = opens.get_mut(&key) else { break };
            let as_it_was = open.held.clone();
            match taker.look(open, allowance.as_deref_mut()) {
                Look::Took => before.push(as_it_was),
                Look::Blocked => {
                    before.push(as_it_was);
                    vain = true;
                }
                Look::Empty => vain = true,
            }
        }
        if !taker.lanes.is_empty() {
            Pick::Found(taker.found())
        } else if crowd.beyond.is_some() {
            beyond()
        } else {
            Pick::Short { group, vain }
        }
    }

    /// Takes from one partition, the highest of its levels first.
    pub(super) fn take_named(
        &mut self,
        now: Time,
        want: &Want<'_>,
        crowd: &Crowd,
        levels: &[i64],
    ) -> Found {
        let (queue, group) = (&crowd.queue, crowd.group);
        if levels.is_empty() {
            return Found::Nothing { why: Nothing::NoPartition, next_at: None, now };
        }
        let lanes: Vec<LaneKey> = levels.iter().map(|level| (*level, group)).collect();
        let unseen = lanes.iter().filter(|lane| !self.states.contains_key(lane));
        let partitions: Vec<i64> = unseen.map(|lane| lane.0).collect();
        if !partitions.is_empty() {
            return Found::NoLane { queue: queue.clone(), group, partitions, now };
        }
        let mut taker = Taker::new(now, want, queue);
        let mut allowance = self.allowances.get_mut(&group);
        let room = allowance.as_ref().map(|allowance| allowance.room(now, want.job.auto_ack));
        let full = match room {
            Some(Err(at)) => Some(at),
            Some(Ok(room)) => {
                taker.left = taker.left.min(room);
                None
            }
            None => None,
        };
        for lane in lanes.iter().filter(|_| full.is_none()) {
            let open = self.opens.get_mut(lane);
            let free = |open: &&mut Open| open.held.lane.live_lease(now).is_none();
            if let Some(open) = open.filter(free).filter(|_| taker.wants_more()) {
                taker.look(open, allowance.as_deref_mut());
            }
        }
        if !taker.lanes.is_empty() {
            return taker.found();
        }
        let state = |lane: &LaneKey| {
            let open = self.opens.get(lane).map(Open::state);
            Some((*lane, open.or_else(|| self.states.get(lane).copied())?))
        };
        let states: Vec<(LaneKey, State)> = lanes.iter().filter_map(state).collect();
        let leased = |state: &State| state.lease_until.is_some_and(|until| now < until);
        let ready = |state: &State| state.ready_at.is_some_and(|ready| ready <= now);
        let calms =
            |state: &State| state.ready_at.is_some() && state.last_push + queue.rules.window > now;
        let any = |is: &dyn Fn(&State) -> bool| states.iter().find(|one| is(&one.1));
        let next_at = full.or_else(|| states.iter().filter_map(|one| one.1.ready_at).min());
        let why = match (any(&leased), any(&ready).filter(|_| full.is_none()), any(&calms)) {
            (Some(_), ..) => Nothing::Leased,
            (None, Some((lane, _)), _) => {
                return Found::Again { lane: *lane, vain: false, now };
            }
            (None, None, Some(_)) => Nothing::Window,
            (None, None, None) => Nothing::Empty,
        };
        Found::Nothing { why, next_at, now }
    }
}

/// The highest level beside a lane from which nobody has taken yet.
fn highest(key: LaneKey, opens: &HashMap<LaneKey, Open>, siblings: &Siblings) -> LaneKey {
    let Some(open) = opens.get(&key).filter(|_| !siblings.is_empty()) else { return key };
    let Some(beside) = siblings.get(&(key.1, open.name.clone())) else { return key };
    let free = |one: &&(u8, LaneKey)| opens.get(&one.1).is_some_and(|open| !open.used);
    beside.iter().find(free).map_or(key, |one| one.1)
}

/// Lets a lane be as it was.
fn give_back(held: Held, opens: &mut HashMap<LaneKey, Open>) {
    if let Some(open) = opens.get_mut(&held.key()) {
        open.held = held;
        open.used = false;
    }
}
