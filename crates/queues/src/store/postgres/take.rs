//! The claims of a batch, in one transaction.

use super::Shared;
use super::blocked::{Freed, FreedColumns};
use super::desk::LaneKey;
use super::levels;
use super::limits::{self, Bound, GrantColumns};
use super::link::{Call, Fail, Link};
use super::marks::Spot;
use super::names::queue_columns;
use super::pick::{Crowd, Found, Locked, Open, Pick, State};
use super::rows::{LaneColumns, lane_columns, micros, runs, time, unsigned};
use super::write::{GROUP_COUNTS, LANES, NOTIFY, notice, passed};
use crate::store::{ClaimJob, Nothing};
use skep_policy::Time;
use skep_policy::queues::Start;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

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

/// How a round looks.
#[derive(Clone, Copy)]
pub(super) struct Round {
    /// At so many times as many lanes as are wanted, because the last round met empty ones.
    pub widen: i64,
    /// Whether claims make do with what has lanes, however much waits beyond the frontier.
    pub makes_do: bool,
    /// A lane to wait for until nobody else has it locked.
    pub wait: Option<LaneKey>,
}

macro_rules! now {
    () => {
        "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    };
}

pub(super) const RESOLVE: &str = concat!(
    "SELECT w.n, g.id, b.created_at, ",
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
     SELECT w.queue, w.name,
            CASE WHEN r.grp IS NOT NULL THEN r.start WHEN w.from_now THEN ",
    now!(),
    " ELSE w.start END, 0, ",
    now!(),
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::boolean[])
         AS w (queue, name, start, from_now)
      LEFT JOIN skep_queue_starts r ON r.grp = w.name
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
        ", p.name, p.tail, p.last_push, r.firsts, r.counts, r.ats, p.level"
    };
}
/// How many columns these are.
pub(super) const OF_LANE: usize = 7;
macro_rules! partition {
    () => {
        " CROSS JOIN LATERAL (
             SELECT p.name, p.level, p.tail, p.last_push FROM skep_queue_partitions p
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
/// Also if its key had no room: somebody asks for this one, whosever turn it is.
pub(super) const TAKE_NAMED: &str = concat!(
    "SELECT ",
    lane_columns!(),
    of_lane!(),
    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (partition, grp, want)
      CROSS JOIN LATERAL (
          SELECT l.* FROM skep_queue_lanes l
          WHERE l.partition = w.partition AND l.grp = w.grp
            AND (l.blocked_key IS NOT NULL OR l.ready_at <= ",
    now!(),
    ") LIMIT 1 FOR UPDATE SKIP LOCKED) l",
    partition!(),
    segments!("AND s.first <= l.cursor + w.want"),
);
/// Higher levels of partitions.
pub(super) const TAKE_HIGHER: &str = concat!(
    "SELECT ",
    lane_columns!(),
    of_lane!(),
    ", w.want FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[])
         AS w (queue, name, level, grp, want)
      CROSS JOIN LATERAL (
          SELECT id FROM skep_queue_partitions
          WHERE queue = w.queue AND name = w.name AND level > w.level) h
      CROSS JOIN LATERAL (
          SELECT l.* FROM skep_queue_lanes l
          WHERE l.partition = h.id AND l.grp = w.grp AND l.ready_at <= ",
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

/// One lane, whatever its state. It is the only lock that is waited for, and the first that is
/// taken, so nobody waits for this transaction while it waits.
const WAIT: &str = "
    SELECT 1 FROM skep_queue_lanes WHERE partition = $1 AND grp = $2 FOR UPDATE";
/// The lane of each group that is or will be ready first.
pub(super) const OLDEST: &str = "
    SELECT w.grp, l.partition, l.ready_at FROM unnest($1::bigint[]) AS w (grp)
    CROSS JOIN LATERAL (
        SELECT partition, ready_at FROM skep_queue_lanes
        WHERE grp = w.grp AND ready_at IS NOT NULL ORDER BY ready_at LIMIT 1) l";

type Key = (Arc<str>, Arc<str>);

impl Shared {
    /// One round of claims: what came of each.
    pub(super) async fn take(
        &self,
        link: &mut Link,
        wants: &[Want<'_>],
        round: Round,
    ) -> Result<Vec<Found>, Fail> {
        let keys: BTreeSet<Key> =
            wants.iter().map(|want| (want.queue.clone(), want.job.group.clone())).collect();
        let unknown: BTreeSet<Key> =
            keys.iter().filter(|key| self.names.group(&key.0, &key.1).is_none()).cloned().collect();
        let missing = match unknown.is_empty() {
            true => BTreeSet::new(),
            false => self.meet(link, &unknown, wants).await?,
        };
        let places = levels::find(&self.names, link, wants, &missing).await?;
        let keys: Vec<Key> = keys.into_iter().filter(|key| !missing.contains(&key.0)).collect();
        let groups: Vec<i64> = keys
            .iter()
            .map(|key| self.names.group(&key.0, &key.1).ok_or(Fail::Stale))
            .collect::<Result<_, _>>()?;
        let mut bound = Bound::default();
        for (key, group) in keys.iter().zip(&groups) {
            if let Some(queue) = self.names.seen_as(&key.0) {
                bound.add(*group, &queue);
            }
        }
        let mut asked: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut named: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for want in wants {
            let Some(group) = self.names.group(&want.queue, &want.job.group) else { continue };
            let batch = i64::from(want.job.batch);
            match &want.partition {
                None => {
                    let lanes = i64::from(want.job.partitions.min(want.job.batch).max(1));
                    let asked = asked.entry(group).or_default();
                    asked.0 = (asked.0 + lanes * round.widen).min(LANES_MAX);
                    asked.1 = asked.1.max(batch);
                }
                Some(partition) => {
                    let place = (want.queue.clone(), partition.clone());
                    for id in places.levels.get(&place).into_iter().flatten() {
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
        let mut calls = vec![Call::Begin];
        if let Some((partition, group)) = &round.wait {
            match bound.has(*group) {
                // Its claims come one by one, and whoever holds their lock must not have to wait.
                true => drop(link.ask(WAIT, vec![partition, group]).await?),
                false => calls.push(Call::Query(WAIT, vec![partition, group])),
            }
        }
        let before = calls.len();
        calls.extend(bound.calls());
        calls.push(Call::Query(RESOLVE, vec![&queue_names, &group_names]));
        calls.push(Call::Query(TAKE, vec![&take_groups, &lanes, &most]));
        if !named.is_empty() {
            let values: super::link::Values<'_> = vec![&named_ids, &named_groups, &named_most];
            calls.push(Call::Query(TAKE_NAMED, values));
            calls.push(Call::Query(NAMED, vec![&named_ids, &named_groups]));
        }
        let answers = link.send(calls).await?;
        let mut answers = answers.into_iter().skip(before);
        let allowances = bound.allowances(&mut answers);
        let mut now = Time::ZERO;
        let mut crowds: HashMap<i64, Crowd> = HashMap::new();
        for row in answers.next().unwrap_or_default() {
            now = now.max(time(row.get(3)));
            let Some(group) = row.get::<_, Option<i64>>(1) else { continue };
            let beyond = row.get::<_, Option<i64>>(2).map(time);
            let queue = self.names.queue(&row, 4);
            crowds.insert(group, Crowd { queue, group, beyond });
        }
        for (key, group) in keys.iter().zip(&groups) {
            if !crowds.contains_key(group) {
                // Deleted or moved: the name stands for another group now.
                self.names.forget_group(&key.0, &key.1);
                return Err(Fail::Stale);
            }
        }
        for crowd in crowds.values() {
            let queue = &crowd.queue;
            if bound.is_stale(crowd.group, queue)
                || queue.levels != 0 && places.flat.contains(&queue.info.name)
            {
                // What has changed is remembered by now.
                return Err(Fail::Stale);
            }
            if queue.limits.is_some() && !allowances.contains_key(&crowd.group) {
                link.undo().await?;
                bound.make(link).await?;
                return Err(Fail::Stale);
            }
        }
        let mut locked = Locked { allowances, ..Locked::default() };
        let mut taken = answers.next().unwrap_or_default();
        taken.sort_by_key(|row| row.get::<_, Option<i64>>(3));
        for row in &taken {
            let want = asked.get(&row.get::<_, i64>(1)).map_or(1, |asked| asked.1);
            let open = Open::read(row, want);
            locked.lines.entry(open.held.group).or_default().push(open.held.key());
            locked.opens.insert(open.held.key(), open);
        }
        for row in answers.next().unwrap_or_default() {
            let open = Open::read(&row, named.values().copied().max().unwrap_or(1));
            locked.opens.entry(open.held.key()).or_insert(open);
        }
        for row in answers.next().unwrap_or_default() {
            let state = State {
                ready_at: row.get::<_, Option<i64>>(2).map(time),
                lease_until: row.get::<_, Option<i64>>(3).map(time),
                last_push: time(row.get(4)),
            };
            locked.states.insert((row.get(0), row.get(1)), state);
        }
        if !self.marks.is_empty() {
            let met = locked.opens.keys().copied().map(Spot::Claim);
            let met: Vec<Spot> = met.chain(groups.iter().copied().map(Spot::Grants)).collect();
            self.marks.remove(&met);
        }
        let auto: BTreeSet<i64> = wants
            .iter()
            .filter(|want| want.job.auto_ack)
            .filter_map(|want| self.names.group(&want.queue, &want.job.group))
            .collect();
        let unmade = levels::lock_higher(link, &crowds, &asked, &mut locked).await?;
        look_again(link, now, &crowds, &auto, &mut locked.opens).await?;
        if !locked.allowances.is_empty() {
            let queues = crowds.iter().map(|(group, crowd)| (*group, crowd.queue.clone()));
            let opens = locked.opens.values_mut();
            let mut lanes: Vec<_> = opens.map(|open| (&mut open.held, open.name.clone())).collect();
            let queues = queues.collect();
            limits::read_keys(link, now, &mut locked.allowances, &queues, &mut lanes).await?;
        }
        let mut picks = Vec::with_capacity(wants.len());
        for want in wants {
            let group = self.names.group(&want.queue, &want.job.group);
            let crowd = group.and_then(|group| crowds.get(&group));
            let Some(crowd) = crowd.filter(|_| !missing.contains(&want.queue)) else {
                let none = Found::Nothing { why: Nothing::NoQueue, next_at: None, now };
                picks.push(Pick::Found(none));
                continue;
            };
            picks.push(match &want.partition {
                None => match unmade.get(&crowd.group).filter(|_| !round.makes_do) {
                    Some(partitions) => {
                        let (queue, partitions) = (crowd.queue.clone(), partitions.clone());
                        Pick::Found(Found::NoLane { queue, group: crowd.group, partitions, now })
                    }
                    None => locked.take_any(now, want, crowd, round.makes_do),
                },
                Some(partition) => {
                    let place = (want.queue.clone(), partition.clone());
                    let levels = places.levels.get(&place).map(Vec::as_slice).unwrap_or_default();
                    Pick::Found(locked.take_named(now, want, crowd, levels))
                }
            });
        }
        let vain = |(group, key, count): (i64, Arc<str>, i64)| {
            let place = groups.iter().position(|one| *one == group)?;
            let (queue, name) = (crowds.get(&group)?.queue.clone(), keys.get(place)?.1.clone());
            Some(Freed { queue, group, name, key, count, at: now })
        };
        let vain = limits::vain(&locked.allowances).into_iter().filter_map(vain).collect();
        let vain = FreedColumns::of(vain);
        let oldest = self.put_back(link, now, &locked, &picks, &vain).await?;
        let found = |pick| match pick {
            Pick::Found(found) => found,
            Pick::Short { group, vain } => match oldest.get(&group) {
                Some((lane, ready_at)) if *ready_at <= now => {
                    Found::Again { lane: *lane, vain, now }
                }
                oldest => {
                    let next_at = oldest.map(|oldest| oldest.1);
                    Found::Nothing { why: Nothing::Empty, next_at, now }
                }
            },
        };
        Ok(picks.into_iter().map(found).collect())
    }

    /// Writes what became of the lanes and commits. Tells which lane is ready first now, for the
    /// groups of claims that got nothing.
    async fn put_back(
        &self,
        link: &mut Link,
        now: Time,
        locked: &Locked,
        picks: &[Pick],
        vain: &FreedColumns,
    ) -> Result<HashMap<i64, (LaneKey, Time)>, Fail> {
        let held = || locked.opens.values().map(|open| &open.held);
        let lanes = LaneColumns::of(held().filter(|held| held.changed()));
        let (groups, settled) = passed(held());
        let short: BTreeSet<i64> = picks
            .iter()
            .filter_map(|pick| match pick {
                Pick::Short { group, .. } => Some(*group),
                Pick::Found(_) => None,
            })
            .collect();
        let short: Vec<i64> = short.into_iter().collect();
        let slot = self.slot();
        let grants = GrantColumns::of(&locked.allowances, now);
        let notice = notice(&vain.queues());
        // What was locked for this claim is not waited for again.
        let mut calls = Vec::new();
        if !lanes.is_empty() {
            calls.push(Call::Query(LANES, lanes.values()));
        }
        calls.extend(grants.call());
        if !vain.is_empty() {
            calls.push(Call::Unhurried);
        }
        let let_go = calls.len();
        calls.extend(vain.calls());
        if let Some(notice) = &notice {
            calls.push(Call::Query(NOTIFY, vec![&super::CHANNEL, notice]));
        }
        if !groups.is_empty() {
            calls.push(Call::Query(GROUP_COUNTS, vec![&slot, &groups, &settled]));
        }
        let before = calls.len();
        if !short.is_empty() {
            calls.push(Call::Query(OLDEST, vec![&short]));
        }
        calls.push(Call::Commit);
        let answers = link.send(calls).await?;
        if !vain.is_empty() {
            self.leave(vain.errands(&answers[let_go], &answers[let_go + 1]));
        }
        let rows = answers.into_iter().nth(before).unwrap_or_default();
        let oldest = rows.iter().map(|row| {
            let group: i64 = row.get(0);
            (group, ((row.get(1), group), time(row.get(2))))
        });
        Ok(oldest.collect())
    }

    /// Learns groups that this node has not seen, and makes those that nobody has. Returns the
    /// queues that are not there.
    pub(super) async fn meet(
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
                let queue = self.names.queue(&row, 4);
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

/// The locks were taken in a snapshot that may be older than what they locked. That does no harm
/// to a claim that finds something, but whoever says that there is nothing has to look again.
async fn look_again(
    link: &mut Link,
    now: Time,
    crowds: &HashMap<i64, Crowd>,
    auto: &BTreeSet<i64>,
    opens: &mut HashMap<LaneKey, Open>,
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
    let keys: Vec<LaneKey> = thin.iter().map(|open| open.held.key()).collect();
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
