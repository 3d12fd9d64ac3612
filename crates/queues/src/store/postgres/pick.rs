//! Which lanes each claim of a batch takes, of those that the batch has locked.

use super::desk::LaneKey;
use super::names::Queue;
use super::rows::{Held, LANE_COLUMNS, runs, time, unsigned};
use super::take::Want;
use crate::store::Nothing;
use skep_policy::Time;
use skep_policy::queues::{Backlog, Claim, Run, Span};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Messages of one lane that were taken.
pub(super) struct Taken {
    pub queue: Arc<Queue>,
    pub partition: i64,
    pub name: Arc<str>,
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
    /// There is no lane for this partition yet.
    NoLane {
        queue: Arc<Queue>,
        group: i64,
        partition: i64,
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
    pub runs: Vec<Run>,
    pub tail: u64,
    pub last_push: Time,
    pub want: u32,
}

/// A lane that was asked for by its partition's name, whether it could be locked or not.
pub(super) struct State {
    pub ready_at: Option<Time>,
    pub lease_until: Option<Time>,
    pub last_push: Time,
}

/// The lanes that a batch has locked.
#[derive(Default)]
pub(super) struct Locked {
    pub opens: HashMap<LaneKey, Open>,
    /// By group, those that wait longest first.
    pub lines: HashMap<i64, VecDeque<LaneKey>>,
    pub states: HashMap<LaneKey, State>,
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
            want: u32::try_from(want).unwrap_or(u32::MAX),
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
}

/// Until when a claim holds.
fn until(now: Time, want: &Want<'_>, queue: &Queue) -> Time {
    let asked = want.job.lease_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    now + asked.unwrap_or(queue.rules.lease)
}

impl Locked {
    /// Takes from the lanes that wait longest. Partitions beyond the frontier wait too, since they
    /// were made: if the next is one of them, nothing is taken until they have lanes, except by a
    /// claim that makes do with what is there.
    pub(super) fn take_any(
        &mut self,
        now: Time,
        want: &Want<'_>,
        crowd: &Crowd,
        makes_do: bool,
    ) -> Pick {
        let (queue, group) = (&crowd.queue, crowd.group);
        let until = until(now, want, queue);
        let (mut left, mut lanes) = (want.job.batch, Vec::new());
        let (mut before, mut vain) = (Vec::new(), false);
        let line = self.lines.entry(group).or_default();
        while left > 0 && lanes.len() < want.job.partitions.max(1) as usize {
            let next = line.front().and_then(|key| self.opens.get(key)?.held.ready_at);
            let first = |made: Time| next.is_none_or(|next| next > made);
            if crowd.beyond.is_some_and(first) && !makes_do {
                for held in before.into_iter().rev() {
                    give_back(held, line, &mut self.opens);
                }
                return Pick::Found(Found::Beyond { queue: queue.clone(), group, now });
            }
            let Some(key) = line.pop_front() else { break };
            let Some(open) = self.opens.get_mut(&key) else { continue };
            let as_it_was = open.held.clone();
            let (lease, auto_settle) = (want.job.lease, want.job.auto_ack);
            let spans = open.take(now, queue, &Claim { want: left, lease, until, auto_settle });
            if spans.is_empty() {
                vain = true;
                continue;
            }
            before.push(as_it_was);
            left -= spans.iter().map(|span| span.count).sum::<u32>().min(left);
            let (queue, name) = (queue.clone(), open.name.clone());
            lanes.push(Taken { queue, partition: key.0, name, spans });
        }
        if !lanes.is_empty() {
            Pick::Found(Found::Some { lanes, until, now })
        } else if crowd.beyond.is_some() {
            Pick::Found(Found::Beyond { queue: queue.clone(), group, now })
        } else {
            Pick::Short { group, vain }
        }
    }

    /// Takes from one partition.
    pub(super) fn take_named(
        &mut self,
        now: Time,
        want: &Want<'_>,
        crowd: &Crowd,
        partition: Option<i64>,
    ) -> Found {
        let (queue, group) = (&crowd.queue, crowd.group);
        let Some(partition) = partition else {
            return Found::Nothing { why: Nothing::NoPartition, next_at: None, now };
        };
        let lane = (partition, group);
        let Some(state) = self.states.get(&lane) else {
            return Found::NoLane { queue: queue.clone(), group, partition, now };
        };
        let mut state = State { ..*state };
        if let Some(open) = self.opens.get_mut(&lane) {
            let until = until(now, want, queue);
            let (lease, auto_settle) = (want.job.lease, want.job.auto_ack);
            let claim = Claim { want: want.job.batch, lease, until, auto_settle };
            let spans = open.take(now, queue, &claim);
            if !spans.is_empty() {
                let (queue, name) = (queue.clone(), open.name.clone());
                let lanes = vec![Taken { queue, partition, name, spans }];
                return Found::Some { lanes, until, now };
            }
            state = State {
                ready_at: open.held.ready_at,
                lease_until: open.held.lane.lease.map(|lease| lease.until),
                last_push: open.last_push,
            };
        }
        let next_at = state.ready_at;
        let why = if state.lease_until.is_some_and(|until| now < until) {
            Nothing::Leased
        } else if next_at.is_some_and(|ready| ready <= now) {
            return Found::Again { lane, vain: false, now };
        } else if next_at.is_some() && state.last_push + queue.rules.window > now {
            Nothing::Window
        } else {
            Nothing::Empty
        };
        Found::Nothing { why, next_at, now }
    }
}

/// Puts a lane back at the head of its line, as it was.
fn give_back(held: Held, line: &mut VecDeque<LaneKey>, opens: &mut HashMap<LaneKey, Open>) {
    let key = held.key();
    if let Some(open) = opens.get_mut(&key) {
        open.held = held;
        line.push_front(key);
    }
}
