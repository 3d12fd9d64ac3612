//! Claiming.

use super::groups::remembered_start;
use super::ready::FRONTIER_CHUNKS_MAX;
use super::rows::{GroupRow, LaneRow, PartitionRow, QueueRow, queues_matching};
use super::work::{LaneKey, Work};
use crate::bodies::BodyKey;
use crate::ids::{GroupId, PartitionId};
use crate::store::{ClaimJob, Nothing, Target};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::{Backlog, Claim, Span};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// Lanes that one claim looks at in vain before it gives up for now.
const VAIN_MAX: usize = 256;
/// Lanes that one claim finds without room for their key: others must not wait behind them.
const BLOCKED_MAX: usize = 1_024;

/// What a claim got; the bytes may have to be read yet.
#[derive(Debug)]
pub(super) struct Picked {
    pub(super) lanes: Vec<PickedLane>,
    pub(super) until: Time,
    pub(super) now: Time,
    pub(super) next_at: Option<Time>,
    pub(super) nothing: Option<Nothing>,
}

/// Messages of one partition.
#[derive(Debug)]
pub(super) struct PickedLane {
    pub(super) queue: Arc<str>,
    pub(super) partition: Arc<str>,
    pub(super) id: PartitionId,
    pub(super) level: u8,
    pub(super) spans: Vec<PickedSpan>,
}

/// Messages of one segment.
#[derive(Debug)]
pub(super) struct PickedSpan {
    pub(super) span: Span,
    pub(super) body: Option<Bytes>,
}

impl PickedSpan {
    /// The last number that was handed out.
    pub(super) fn last(&self) -> u64 {
        self.span.first + u64::from(self.span.count.max(1)) - 1
    }
}

impl PickedLane {
    pub(super) fn key(&self, span: &PickedSpan) -> BodyKey {
        (self.id, span.span.run)
    }
}

/// What is asked of one queue for one group.
struct Wish<'job> {
    job: &'job ClaimJob,
    until: Time,
    left: u32,
    /// What the limits of the queue leave.
    room: u32,
}

/// What looking at one lane came to.
enum Look {
    Got(PickedLane),
    Nothing,
    /// It waits for room now.
    Blocked,
}

impl Work<'_> {
    pub(super) fn claim(&mut self, job: &ClaimJob) -> rusqlite::Result<Picked> {
        match &job.target {
            Target::Queue(name) => match self.queue_named(name)? {
                Some(queue) => self.claim_queue(&queue, job),
                None => Ok(self.nothing(Nothing::NoQueue, None)),
            },
            Target::Partition(name, partition) => match self.queue_named(name)? {
                Some(queue) => self.claim_partition(&queue, partition, job),
                None => Ok(self.nothing(Nothing::NoQueue, None)),
            },
            Target::Matching { namespace, task } => {
                self.claim_matching(namespace.as_deref(), task.as_deref(), job)
            }
        }
    }

    fn nothing(&self, why: Nothing, next_at: Option<Time>) -> Picked {
        Picked { lanes: Vec::new(), until: self.now, now: self.now, next_at, nothing: Some(why) }
    }

    fn group_or_new(
        &mut self,
        queue: &QueueRow,
        job: &ClaimJob,
    ) -> rusqlite::Result<(GroupId, GroupRow)> {
        match self.group_named(queue.info.id, &job.group)? {
            Some(found) => Ok(found),
            None => {
                let start = remembered_start(self.db, &job.group)?.or(job.start);
                Ok(self.new_group(queue, &job.group, start))
            }
        }
    }

    fn wish<'job>(&self, queue: &QueueRow, job: &'job ClaimJob) -> Wish<'job> {
        let seconds = job.lease_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
        let until = self.now + seconds.unwrap_or(queue.rules.lease);
        Wish { job, until, left: job.batch, room: u32::MAX }
    }

    fn claim_queue(&mut self, queue: &QueueRow, job: &ClaimJob) -> rusqlite::Result<Picked> {
        let (group, row) = self.group_or_new(queue, job)?;
        let mut wish = self.wish(queue, job);
        let mut lanes = Vec::new();
        let mut seen = Vec::new();
        let mut no_room = None;
        let (mut vain, mut blocked, mut chunks) = (0, 0, FRONTIER_CHUNKS_MAX);
        let most = usize::try_from(job.partitions.max(1)).unwrap_or(usize::MAX);
        while wish.left > 0 && lanes.len() < most && vain < VAIN_MAX && blocked < BLOCKED_MAX {
            no_room = self.no_room(queue, group, &mut wish)?;
            if no_room.is_some() {
                break;
            }
            self.open_frontier(queue, group, &seen, &mut chunks)?;
            let Some((_, id)) = self.first_ready(group, &seen)? else { break };
            let Some(mut partition) = self.partition(id)? else {
                seen.push(id);
                continue;
            };
            let mut id = id;
            if queue.has_levels() {
                let served = (id, partition);
                (id, partition) = self.highest_ready(queue, served, (group, &row), &seen)?;
            }
            seen.push(id);
            match self.look(queue, (id, group), &partition, &mut wish)? {
                Look::Got(lane) => lanes.push(lane),
                Look::Nothing => vain += 1,
                Look::Blocked => blocked += 1,
            }
        }
        if lanes.is_empty() {
            // There may be more to look at; it is not this claim that shall hold up the others.
            let unseen = chunks == 0 || vain == VAIN_MAX || blocked == BLOCKED_MAX;
            let next_at = match no_room {
                Some(when) => Some(when),
                None if unseen => Some(self.now),
                None => self.next_ready(group)?,
            };
            return Ok(self.nothing(Nothing::Empty, next_at));
        }
        if no_room.is_none() {
            self.pass_room_on(queue, (group, &row), &seen)?;
        }
        Ok(self.picked(lanes, &wish))
    }

    fn picked(&self, lanes: Vec<PickedLane>, wish: &Wish<'_>) -> Picked {
        Picked { lanes, until: wish.until, now: self.now, next_at: None, nothing: None }
    }

    /// If the limits of the queue leave nothing: when to come again.
    fn no_room(
        &mut self,
        queue: &QueueRow,
        group: GroupId,
        wish: &mut Wish<'_>,
    ) -> rusqlite::Result<Option<Time>> {
        let Some(limits) = queue.limits.clone() else { return Ok(None) };
        let share = self.share(&limits.queue, group, None, wish.job.auto_ack)?;
        wish.room = share.count;
        Ok((share.count == 0).then_some(share.next_at))
    }

    /// Whoever was woken because there was room, and left some, wakes the next.
    fn pass_room_on(
        &mut self,
        queue: &QueueRow,
        (group, row): (GroupId, &GroupRow),
        seen: &[PartitionId],
    ) -> rusqlite::Result<()> {
        let limited = queue.limits.as_ref().is_some_and(|it| it.queue.in_flight.is_some());
        if !limited {
            return Ok(());
        }
        let next = match self.first_ready(group, seen)? {
            Some((_, id)) => Some(id),
            None => {
                let frontier = self.group(group)?.map(|row| row.frontier);
                frontier.filter(|frontier| *frontier < queue.newest).map(|_| queue.newest)
            }
        };
        if let Some(id) = next
            && let Some(partition) = self.partition(id)?
        {
            self.wake(queue, &partition, Some(row.name.clone()));
        }
        Ok(())
    }

    fn claim_partition(
        &mut self,
        queue: &QueueRow,
        name: &Arc<str>,
        job: &ClaimJob,
    ) -> rusqlite::Result<Picked> {
        let (group, row) = self.group_or_new(queue, job)?;
        let levels = self.partitions_named(queue, name)?;
        if levels.is_empty() {
            return Ok(self.nothing(Nothing::NoPartition, None));
        }
        let mut wish = self.wish(queue, job);
        let no_room = self.no_room(queue, group, &mut wish)?;
        let (mut why, mut next_at) = (Nothing::Empty, no_room);
        for (id, partition) in levels {
            let key = (id, group);
            let lane = self.lane_or_new(queue, key, &partition, &row)?.lane;
            if no_room.is_none()
                && let Look::Got(lane) = self.look(queue, key, &partition, &mut wish)?
            {
                return Ok(self.picked(vec![lane], &wish));
            }
            let after = self.lane(key)?.and_then(|row| row.ready_at).filter(|_| no_room.is_none());
            let calm = partition.last_push + queue.rules.window <= self.now;
            if lane.live_lease(self.now).is_some() {
                why = Nothing::Leased;
            } else if after.is_some() && !calm && why == Nothing::Empty {
                why = Nothing::Window;
            }
            next_at = next_at.into_iter().chain(after).min();
        }
        Ok(self.nothing(why, next_at))
    }

    /// By priority, and among equals by the lane that waits longest.
    fn claim_matching(
        &mut self,
        namespace: Option<&str>,
        task: Option<&str>,
        job: &ClaimJob,
    ) -> rusqlite::Result<Picked> {
        let mut queues = Vec::new();
        for id in queues_matching(self.db, namespace, task)? {
            queues.extend(self.queue(id)?);
        }
        if queues.is_empty() {
            return Ok(self.nothing(Nothing::NoQueue, None));
        }
        queues.sort_by_key(|queue| Reverse(queue.info.options.priority));
        let mut next_at: Option<Time> = None;
        let same = |one: &QueueRow, next: &QueueRow| {
            one.info.options.priority == next.info.options.priority
        };
        for equals in queues.chunk_by(same) {
            let mut waiting = Vec::new();
            let mut chunks = FRONTIER_CHUNKS_MAX;
            for queue in equals {
                let (group, _) = self.group_or_new(queue, job)?;
                self.open_frontier(queue, group, &[], &mut chunks)?;
                waiting.push((self.first_ready(group, &[])?, queue));
            }
            // Those that have nothing ready are asked too, last: they know when they will.
            waiting.sort_by_key(|(first, _)| (first.is_none(), *first));
            for (_, queue) in waiting {
                let picked = self.claim_queue(queue, job)?;
                if picked.nothing.is_none() {
                    return Ok(picked);
                }
                next_at = next_at.into_iter().chain(picked.next_at).min();
            }
        }
        Ok(self.nothing(Nothing::Empty, next_at))
    }

    /// Takes what one lane has to give, and writes down when it has something next.
    fn look(
        &mut self,
        queue: &QueueRow,
        key: LaneKey,
        partition: &PartitionRow,
        wish: &mut Wish<'_>,
    ) -> rusqlite::Result<Look> {
        let (id, group) = key;
        let Some(row) = self.lane(key)? else { return Ok(Look::Nothing) };
        let mut want = wish.left.min(wish.room);
        let limits = queue.limits.clone().filter(|_| row.lane.live_lease(self.now).is_none());
        let limited = match limits {
            Some(limits) => {
                let name: Arc<str> = limits.key_of(&partition.name).into();
                let share = self.share(&limits.key, group, Some(&name), wish.job.auto_ack)?;
                let waits = row.blocked_key.is_some();
                if share.count == 0 && (waits || row.ready_at.is_some_and(|at| at <= self.now)) {
                    self.block(key, row, &name, share.next_at);
                    return Ok(Look::Blocked);
                }
                want = want.min(share.count);
                Some((limits, name))
            }
            None => None,
        };
        let LaneRow { mut lane, .. } = row;
        let before = lane.cursor;
        let oldest = queue.rules.expired_before(self.now);
        let runs = self.runs(id, partition, before + 1, want, oldest)?;
        let backlog = Backlog { runs: &runs, tail: partition.tail, last_push: partition.last_push };
        let claim = Claim {
            want,
            lease: wish.job.lease,
            until: wish.until,
            auto_settle: wish.job.auto_ack,
        };
        let claimed = lane.claim(self.now, &queue.rules, &backlog, &claim);
        let next = match runs.iter().find(|run| run.last() > lane.cursor) {
            Some(run) => Some(run.at),
            None => self.next_at(id, partition, lane.cursor)?,
        };
        self.pass_end(&mut lane, partition, next);
        let ready_at = lane.ready_at(self.now, &queue.rules, next, partition.last_push);
        self.set_lane(key, queue.lane_row(partition, lane, ready_at, self.now));
        self.count_settled(group, before, lane.cursor);
        let got: u32 = claimed.spans.iter().map(|span| span.count).sum();
        if let Some((limits, name)) = limited {
            self.granted(&limits, group, &name, got)?;
            // What this lane left is for the others.
            self.unblock(queue, &limits, (group, &wish.job.group), &name)?;
        }
        if claimed.spans.is_empty() {
            return Ok(Look::Nothing);
        }
        wish.left -= got.min(wish.left);
        let spans = claimed
            .spans
            .into_iter()
            .map(|span| PickedSpan { body: self.bodies.get((id, span.run)), span });
        Ok(Look::Got(PickedLane {
            queue: queue.info.name.clone(),
            partition: partition.name.clone(),
            id,
            level: partition.level,
            spans: spans.collect(),
        }))
    }

    /// Counts what a group is past, after a cursor moved.
    pub(super) fn count_settled(&mut self, group: GroupId, before: u64, after: u64) {
        if before != after {
            let moved = super::clock::signed(after) - super::clock::signed(before);
            self.change_group(group, |row| row.settled += moved);
        }
    }
}
