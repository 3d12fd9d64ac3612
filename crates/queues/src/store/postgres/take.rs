//! The claims of a batch, in one transaction.

use super::Shared;
use super::link::{Call, Fail, Link};
use super::names::{self, Place, Queue, queue_columns};
use super::rows::{Held, LANE_COLUMNS, LaneColumns, lane_columns, micros, runs, time, unsigned};
use super::write::{GROUP_COUNTS, LANES, passed};
use crate::store::{ClaimJob, Nothing};
use skep_policy::Time;
use skep_policy::queues::{Backlog, Claim, Run, Span, Start};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Lanes that one transaction locks for a group at most.
const LANES_MAX: i64 = 1_024;
/// Segments that are read of a lane with gaps or expired messages at a time.
const LOOK_MAX: i64 = 512;

/// A claim for one queue.
#[derive(Clone)]
pub(super) struct Want<'job> {
    pub job: &'job ClaimJob,
    pub queue: Arc<str>,
    pub partition: Option<Arc<str>>,
}

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
    /// Something is ready, but it was locked, or it turned out to be empty.
    Again {
        group: i64,
        partition: Option<i64>,
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

/// A group, as claims see it.
struct Crowd {
    queue: Arc<Queue>,
    group: i64,
    /// When the first partition beyond the frontier was made, if there is one.
    beyond: Option<Time>,
    /// When its first lane is or was ready.
    oldest: Option<Time>,
}

/// A lane with what its partition holds.
struct Open {
    held: Held,
    name: Arc<str>,
    runs: Vec<Run>,
    tail: u64,
    last_push: Time,
    want: u32,
}

macro_rules! now {
    () => {
        "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    };
}

pub(super) const RESOLVE: &str = concat!(
    "SELECT w.n, g.id, b.created_at,
            (SELECT l.ready_at FROM skep_queue_lanes l WHERE l.grp = g.id
                AND l.ready_at IS NOT NULL ORDER BY l.ready_at LIMIT 1), ",
    now!(),
    ", ",
    queue_columns!(),
    " FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (queue, grp, n)
      CROSS JOIN LATERAL (
          SELECT * FROM skep_queues WHERE name = w.queue AND NOT deleted LIMIT 1) q
      LEFT JOIN LATERAL (
          SELECT id, frontier FROM skep_queue_groups
          WHERE queue = q.id AND name = w.grp AND NOT deleted LIMIT 1) g ON TRUE
      LEFT JOIN LATERAL (
          SELECT p.created_at FROM skep_queue_partitions p
          WHERE p.queue = q.id AND p.id > g.frontier ORDER BY p.queue, p.id LIMIT 1) b ON TRUE"
);
const MAKE_GROUPS: &str = concat!(
    "INSERT INTO skep_queue_groups (queue, name, start, frontier, created_at)
     SELECT w.queue, w.name, CASE WHEN w.from_now THEN ",
    now!(),
    " ELSE w.start END, 0, ",
    now!(),
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::boolean[])
         AS w (queue, name, start, from_now)
      ORDER BY w.queue, w.name
      ON CONFLICT (queue, name) WHERE NOT deleted DO NOTHING"
);
/// The segments after a cursor: all of the next so many numbers, if none is missing.
macro_rules! segments {
    ($more:literal) => {
        concat!(
            "LEFT JOIN LATERAL (
                 SELECT array_agg(s.first) AS firsts, array_agg(s.count) AS counts,
                        array_agg(s.at) AS ats
                 FROM ((SELECT f.* FROM (
                            SELECT s.first, s.count, s.at, s.body IS NOT NULL AS kept
                            FROM skep_queue_segments s
                            WHERE s.partition = l.partition AND s.first <= l.cursor + 1
                            ORDER BY s.first DESC LIMIT 1) f)
                       UNION ALL
                       (SELECT s.first, s.count, s.at, TRUE FROM skep_queue_segments s
                        WHERE s.partition = l.partition AND s.first > l.cursor + 1
                          AND s.body IS NOT NULL ",
            $more,
            ")) s WHERE s.kept) r ON TRUE"
        )
    };
}
macro_rules! of_lane {
    () => {
        ", p.name, p.tail, p.last_push, r.firsts, r.counts, r.ats"
    };
}
macro_rules! partition {
    () => {
        " CROSS JOIN LATERAL (
             SELECT p.name, p.tail, p.last_push FROM skep_queue_partitions p
             WHERE p.id = l.partition LIMIT 1) p "
    };
}
pub(super) const TAKE: &str = concat!(
    "SELECT ",
    lane_columns!(),
    of_lane!(),
    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (grp, lanes, want)
      CROSS JOIN LATERAL (
          SELECT l.* FROM skep_queue_lanes l WHERE l.grp = w.grp AND l.ready_at <= ",
    now!(),
    " ORDER BY l.ready_at LIMIT w.lanes FOR UPDATE SKIP LOCKED) l",
    partition!(),
    segments!("AND s.first <= l.cursor + w.want"),
);
pub(super) const TAKE_NAMED: &str = concat!(
    "SELECT ",
    lane_columns!(),
    of_lane!(),
    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (partition, grp, want)
      CROSS JOIN LATERAL (
          SELECT l.* FROM skep_queue_lanes l
          WHERE l.partition = w.partition AND l.grp = w.grp AND l.ready_at <= ",
    now!(),
    " LIMIT 1 FOR UPDATE SKIP LOCKED) l",
    partition!(),
    segments!("AND s.first <= l.cursor + w.want"),
);
/// Reads again, in a later snapshot than that of the locks, and past gaps.
pub(super) const LOOK: &str = concat!(
    "SELECT l.n, p.tail, p.last_push, r.firsts, r.counts, r.ats
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
         AS l (partition, cursor, most, n)",
    partition!(),
    segments!("ORDER BY s.first LIMIT l.most"),
);
const NAMED: &str = concat!(
    "SELECT l.partition, l.grp, l.ready_at, l.lease_until, p.last_push, ",
    now!(),
    " FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, grp)
      JOIN skep_queue_lanes l ON l.partition = w.partition AND l.grp = w.grp
      JOIN skep_queue_partitions p ON p.id = l.partition"
);

type Key = (Arc<str>, Arc<str>);

impl Shared {
    /// One round of claims: what came of each.
    pub(super) async fn take(
        &self,
        link: &mut Link,
        wants: &[Want<'_>],
        widen: i64,
        patient: bool,
    ) -> Result<Vec<Found>, Fail> {
        let keys: BTreeSet<Key> =
            wants.iter().map(|want| (want.queue.clone(), want.job.group.clone())).collect();
        let unknown: BTreeSet<Key> =
            keys.iter().filter(|key| self.names.group(&key.0, &key.1).is_none()).cloned().collect();
        let missing = match unknown.is_empty() {
            true => BTreeSet::new(),
            false => self.meet(link, &unknown, wants).await?,
        };
        let places: BTreeSet<Place> = wants
            .iter()
            .filter_map(|want| Some((want.queue.clone(), want.partition.clone()?)))
            .filter(|place| !missing.contains(&place.0))
            .collect();
        let places = names::find(&self.names, link, &places).await?;
        let keys: Vec<Key> = keys.into_iter().filter(|key| !missing.contains(&key.0)).collect();
        let groups: Vec<i64> = keys
            .iter()
            .map(|key| self.names.group(&key.0, &key.1).ok_or(Fail::Stale))
            .collect::<Result<_, _>>()?;
        let mut asked: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut named: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for want in wants {
            let Some(group) = self.names.group(&want.queue, &want.job.group) else { continue };
            let batch = i64::from(want.job.batch);
            match &want.partition {
                None => {
                    let lanes = i64::from(want.job.partitions.min(want.job.batch).max(1));
                    let asked = asked.entry(group).or_default();
                    asked.0 = (asked.0 + lanes * widen).min(LANES_MAX);
                    asked.1 = asked.1.max(batch);
                }
                Some(partition) => {
                    let place = (want.queue.clone(), partition.clone());
                    if let Some((_, id)) = places.get(&place) {
                        let most = named.entry((*id, group)).or_default();
                        *most = batch.max(*most);
                    }
                }
            }
        }
        let queue_names: Vec<&str> = keys.iter().map(|key| &*key.0).collect();
        let group_names: Vec<&str> = keys.iter().map(|key| &*key.1).collect();
        let take_groups: Vec<i64> = asked.keys().copied().collect();
        let (lanes, most): (Vec<i64>, Vec<i64>) = asked.values().copied().unzip();
        let (named_ids, named_groups): (Vec<i64>, Vec<i64>) = named.keys().copied().unzip();
        let named_most: Vec<i64> = named.values().copied().collect();
        let mut calls = vec![
            Call::Begin,
            Call::Query(RESOLVE, vec![&queue_names, &group_names]),
            Call::Query(TAKE, vec![&take_groups, &lanes, &most]),
        ];
        if !named.is_empty() {
            let values: super::link::Values<'_> = vec![&named_ids, &named_groups, &named_most];
            calls.push(Call::Query(TAKE_NAMED, values));
            calls.push(Call::Query(NAMED, vec![&named_ids, &named_groups]));
        }
        let answers = link.send(calls).await?;
        let mut answers = answers.into_iter().skip(1);
        let mut now = Time::ZERO;
        let mut crowds: HashMap<i64, Crowd> = HashMap::new();
        for row in answers.next().unwrap_or_default() {
            now = now.max(time(row.get(4)));
            let Some(group) = row.get::<_, Option<i64>>(1) else { continue };
            let beyond = row.get::<_, Option<i64>>(2).map(time);
            let oldest = row.get::<_, Option<i64>>(3).map(time);
            let queue = self.names.queue(&row, 5);
            crowds.insert(group, Crowd { queue, group, beyond, oldest });
        }
        for (key, group) in keys.iter().zip(&groups) {
            if !crowds.contains_key(group) {
                // Deleted or moved: the name stands for another group now.
                self.names.forget_group(&key.0, &key.1);
                return Err(Fail::Stale);
            }
        }
        let mut opens: HashMap<(i64, i64), Open> = HashMap::new();
        let mut lines: HashMap<i64, VecDeque<(i64, i64)>> = HashMap::new();
        let mut taken = answers.next().unwrap_or_default();
        taken.sort_by_key(|row| row.get::<_, Option<i64>>(3));
        for row in &taken {
            let want = asked.get(&row.get::<_, i64>(1)).map_or(1, |asked| asked.1);
            let open = Open::read(row, want);
            lines.entry(open.held.group).or_default().push_back(open.held.key());
            opens.insert(open.held.key(), open);
        }
        for row in answers.next().unwrap_or_default() {
            let open = Open::read(&row, named.values().copied().max().unwrap_or(1));
            opens.entry(open.held.key()).or_insert(open);
        }
        let mut states: HashMap<(i64, i64), State> = HashMap::new();
        for row in answers.next().unwrap_or_default() {
            states.insert(
                (row.get(0), row.get(1)),
                State {
                    ready_at: row.get::<_, Option<i64>>(2).map(time),
                    lease_until: row.get::<_, Option<i64>>(3).map(time),
                    last_push: time(row.get(4)),
                },
            );
        }
        let auto: BTreeSet<i64> = wants
            .iter()
            .filter(|want| want.job.auto_ack)
            .filter_map(|want| self.names.group(&want.queue, &want.job.group))
            .collect();
        look_again(link, now, &crowds, &auto, &mut opens).await?;
        let mut found = Vec::with_capacity(wants.len());
        for want in wants {
            let group = self.names.group(&want.queue, &want.job.group);
            let crowd = group.and_then(|group| crowds.get(&group));
            let Some(crowd) = crowd.filter(|_| !missing.contains(&want.queue)) else {
                found.push(Found::Nothing { why: Nothing::NoQueue, next_at: None, now });
                continue;
            };
            found.push(match &want.partition {
                None => take_any(now, want, crowd, &mut opens, &mut lines, patient),
                Some(partition) => {
                    let place = (want.queue.clone(), partition.clone());
                    let id = places.get(&place).map(|ids| ids.1);
                    take_named(now, want, crowd, id, &mut opens, &states)
                }
            });
        }
        let lanes =
            LaneColumns::of(opens.values().map(|open| &open.held).filter(|held| held.changed()));
        let (groups, settled) = passed(opens.values().map(|open| &open.held));
        let slot = self.slot();
        let mut calls = Vec::new();
        if !lanes.is_empty() {
            calls.push(Call::Query(LANES, lanes.values()));
        }
        if !groups.is_empty() {
            calls.push(Call::Query(GROUP_COUNTS, vec![&slot, &groups, &settled]));
        }
        calls.push(Call::Commit);
        link.send(calls).await?;
        Ok(found)
    }

    /// Learns groups that this node has not seen, and makes those that nobody has. Returns the
    /// queues that are not there.
    async fn meet(
        &self,
        link: &mut Link,
        unknown: &BTreeSet<Key>,
        wants: &[Want<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Fail> {
        let unknown: Vec<&Key> = unknown.iter().collect();
        let queues: Vec<&str> = unknown.iter().map(|key| &*key.0).collect();
        let groups: Vec<&str> = unknown.iter().map(|key| &*key.1).collect();
        for round in 0..2 {
            let mut new: Vec<(i64, &Key)> = Vec::new();
            let mut missing: BTreeSet<Arc<str>> = unknown.iter().map(|key| key.0.clone()).collect();
            for row in link.ask(RESOLVE, vec![&queues, &groups]).await? {
                let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
                let Some(key) = unknown.get(place) else { continue };
                let queue = self.names.queue(&row, 5);
                missing.remove(&key.0);
                self.names.learn_queue(&key.0, queue.id);
                match row.get::<_, Option<i64>>(1) {
                    Some(group) => self.names.learn_group(queue.id, &key.1, group),
                    None => new.push((queue.id, key)),
                }
            }
            if new.is_empty() {
                return Ok(missing);
            }
            if round > 0 {
                break;
            }
            let starts: Vec<Option<Start>> = new.iter().map(|one| start_of(wants, one.1)).collect();
            let ids: Vec<i64> = new.iter().map(|one| one.0).collect();
            let names: Vec<&str> = new.iter().map(|one| &*one.1.1).collect();
            let from_now: Vec<bool> = starts.iter().map(Option::is_none).collect();
            let start = |start: &Option<Start>| match start {
                Some(Start::From(time)) => Some(micros(*time)),
                _ => None,
            };
            let starts: Vec<Option<i64>> = starts.iter().map(start).collect();
            link.ask(MAKE_GROUPS, vec![&ids, &names, &starts, &from_now]).await?;
        }
        Err(Fail::Stale)
    }
}

/// Where the first claim of a group wants it to begin.
fn start_of(wants: &[Want<'_>], key: &Key) -> Option<Start> {
    let of_it = |want: &&Want<'_>| want.queue == key.0 && want.job.group == key.1;
    wants.iter().find(of_it).and_then(|want| want.job.start)
}

struct State {
    ready_at: Option<Time>,
    lease_until: Option<Time>,
    last_push: Time,
}

impl Open {
    fn read(row: &tokio_postgres::Row, want: i64) -> Self {
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

/// The locks were taken in a snapshot that may be older than what they locked. That does no harm
/// to a claim that finds something, but whoever says that there is nothing has to look again.
async fn look_again(
    link: &mut Link,
    now: Time,
    crowds: &HashMap<i64, Crowd>,
    auto: &BTreeSet<i64>,
    opens: &mut HashMap<(i64, i64), Open>,
) -> Result<(), Fail> {
    let thin = |open: &&Open| {
        let Some(crowd) = crowds.get(&open.held.group) else { return false };
        let oldest = crowd.queue.rules.expired_before(now).unwrap_or(Time::ZERO);
        let cursor = open.held.lane.cursor;
        let mut runs = open.runs.iter();
        auto.contains(&crowd.group) || !runs.any(|run| run.last() > cursor && run.at >= oldest)
    };
    let thin: Vec<&Open> = opens.values().filter(thin).collect();
    if thin.is_empty() {
        return Ok(());
    }
    let keys: Vec<(i64, i64)> = thin.iter().map(|open| open.held.key()).collect();
    let ids: Vec<i64> = keys.iter().map(|key| key.0).collect();
    let cursors: Vec<i64> =
        thin.iter().map(|open| super::rows::signed(open.held.lane.cursor)).collect();
    let most: Vec<i64> = thin.iter().map(|open| LOOK_MAX.max(i64::from(open.want) + 1)).collect();
    let rows = link.ask(LOOK, vec![&ids, &cursors, &most]).await?;
    for row in &rows {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        if let Some(open) = keys.get(place).and_then(|key| opens.get_mut(key)) {
            open.tail = unsigned(row.get(1));
            open.last_push = time(row.get(2));
            open.runs = runs(row, 3);
        }
    }
    Ok(())
}

/// Until when a claim holds.
fn until(now: Time, want: &Want<'_>, queue: &Queue) -> Time {
    let asked = want.job.lease_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    now + asked.unwrap_or(queue.rules.lease)
}

/// Takes from the lanes that wait longest.
fn take_any(
    now: Time,
    want: &Want<'_>,
    crowd: &Crowd,
    opens: &mut HashMap<(i64, i64), Open>,
    lines: &mut HashMap<i64, VecDeque<(i64, i64)>>,
    patient: bool,
) -> Found {
    let (queue, group) = (&crowd.queue, crowd.group);
    let ready = crowd.oldest.is_some_and(|oldest| oldest <= now);
    let behind = |made: Time| crowd.oldest.is_none_or(|oldest| oldest > now || oldest > made);
    if crowd.beyond.is_some_and(behind) && !(ready && patient) {
        return Found::Beyond { queue: queue.clone(), group, now };
    }
    let until = until(now, want, queue);
    let (mut left, mut lanes) = (want.job.batch, Vec::new());
    let line = lines.entry(group).or_default();
    while left > 0 && lanes.len() < want.job.partitions.max(1) as usize {
        let Some(key) = line.pop_front() else { break };
        let Some(open) = opens.get_mut(&key) else { continue };
        let (lease, auto_settle) = (want.job.lease, want.job.auto_ack);
        let spans = open.take(now, queue, &Claim { want: left, lease, until, auto_settle });
        if spans.is_empty() {
            continue;
        }
        left -= spans.iter().map(|span| span.count).sum::<u32>().min(left);
        let (queue, name) = (queue.clone(), open.name.clone());
        lanes.push(Taken { queue, partition: key.0, name, spans });
    }
    if !lanes.is_empty() {
        Found::Some { lanes, until, now }
    } else if ready {
        Found::Again { group, partition: None, now }
    } else {
        Found::Nothing { why: Nothing::Empty, next_at: crowd.oldest, now }
    }
}

/// Takes from one partition.
fn take_named(
    now: Time,
    want: &Want<'_>,
    crowd: &Crowd,
    partition: Option<i64>,
    opens: &mut HashMap<(i64, i64), Open>,
    states: &HashMap<(i64, i64), State>,
) -> Found {
    let (queue, group) = (&crowd.queue, crowd.group);
    let Some(partition) = partition else {
        return Found::Nothing { why: Nothing::NoPartition, next_at: None, now };
    };
    let key = (partition, group);
    let Some(state) = states.get(&key) else {
        return Found::NoLane { queue: queue.clone(), group, partition, now };
    };
    let mut state = State { ..*state };
    if let Some(open) = opens.get_mut(&key) {
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
        return Found::Again { group, partition: Some(partition), now };
    } else if next_at.is_some() && state.last_push + queue.rules.window > now {
        Nothing::Window
    } else {
        Nothing::Empty
    };
    Found::Nothing { why, next_at, now }
}
