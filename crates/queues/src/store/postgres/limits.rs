//! What groups may have at once, and how fast.
//!
//! ```text
//!   claim        lock of the group's grants · what is in flight · lanes of keys without room are
//!                blocked: they are not ready until something of the key ends
//!   settlement   lanes · lock of the group's grants · as many blocked lanes as got room are ready
//! ```
//!
//! Claims of a group with limits come one after the other, by the lock of its row in
//! `skep_queue_grants`. What ends takes the same lock, after its lanes, so that a claim which has
//! just counted it has blocked its lanes by then. Nobody waits for a lane who holds that lock;
//! blocked lanes that somebody has locked are let go after the commit, see [`Errands`].

use super::link::{Call, Fail, Link, Values};
use super::names::Queue;
use super::rows::{Held, in_flight, micros, time, unsigned};
use crate::store::Wake;
use skep_policy::Time;
use skep_policy::queues::{Grants, Limit, Limits, Room};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

/// When to look again at what should have ended by now.
const SOON: Duration = Duration::from_millis(10);

macro_rules! now {
    () => {
        "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    };
}

pub(super) const LOCK_WHOLE: &str = "
    SELECT grp, parts FROM skep_queue_grants
    WHERE grp = ANY($1) AND whole = 1 AND key = '' ORDER BY grp FOR UPDATE";
/// Of all groups of a queue.
pub(super) const LOCK_QUEUE: &str = "
    SELECT 1 FROM skep_queue_grants
    WHERE grp = ANY(ARRAY(SELECT id FROM skep_queue_groups WHERE queue = $1 AND NOT deleted))
      AND whole = 1 AND key = '' ORDER BY grp FOR UPDATE";
/// The group of a name is another one from now on; what its group had lately it still has had.
pub(super) const INHERIT: &str = "
    INSERT INTO skep_queue_grants (grp, whole, key, parts, expires)
    SELECT n.id, g.whole, g.key, g.parts, g.expires
    FROM skep_queue_groups n
    JOIN skep_queue_grants g ON g.grp = $3
    WHERE n.queue = $1 AND n.name = $2 AND NOT n.deleted
    ON CONFLICT (grp, whole, key) DO NOTHING";
const MAKE_WHOLE: &str = "
    INSERT INTO skep_queue_grants (grp, whole, key, parts, expires)
    SELECT id, 1, '', '[]', 9223372036854775807 FROM skep_queue_groups
    WHERE id = ANY($1) AND NOT deleted
    ON CONFLICT (grp, whole, key) DO NOTHING";
/// A lease that has run out still counts while somebody has its lane locked, because that may be
/// the holder, in time to ask for more.
pub(super) const SWEEP: &str = concat!(
    "UPDATE skep_queue_lanes l SET leased_key = NULL
     FROM (SELECT partition, grp FROM skep_queue_lanes
           WHERE grp = ANY($1) AND leased_key IS NOT NULL AND lease_until <= ",
    now!(),
    " FOR UPDATE SKIP LOCKED) w
      WHERE l.partition = w.partition AND l.grp = w.grp"
);
pub(super) const IN_FLIGHT: &str = "
    SELECT grp, sum(greatest(lease_through - cursor, 0))::bigint, min(lease_until)
    FROM skep_queue_lanes WHERE grp = ANY($1) AND leased_key IS NOT NULL GROUP BY grp";
pub(super) const SWEEP_KEYS: &str = concat!(
    "UPDATE skep_queue_lanes l SET leased_key = NULL
     FROM (SELECT x.partition, x.grp FROM unnest($1::bigint[], $2::text[]) AS w (grp, key)
           CROSS JOIN LATERAL (
               SELECT partition, grp FROM skep_queue_lanes
               WHERE grp = w.grp AND leased_key = w.key AND lease_until <= ",
    now!(),
    " FOR UPDATE SKIP LOCKED) x) w
      WHERE l.partition = w.partition AND l.grp = w.grp"
);
pub(super) const KEYS: &str = "
    SELECT w.n, coalesce(f.count, 0)::bigint, f.ends, g.parts
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS w (grp, key, n)
    LEFT JOIN LATERAL (
        SELECT sum(greatest(l.lease_through - l.cursor, 0)) AS count, min(l.lease_until) AS ends
        FROM skep_queue_lanes l WHERE l.grp = w.grp AND l.leased_key = w.key) f ON TRUE
    LEFT JOIN LATERAL (
        SELECT parts FROM skep_queue_grants
        WHERE grp = w.grp AND whole = 0 AND key = w.key LIMIT 1) g ON TRUE";
pub(super) const PUT_GRANTS: &str = "
    INSERT INTO skep_queue_grants AS g (grp, whole, key, parts, expires)
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::bigint[])
    ON CONFLICT (grp, whole, key) DO UPDATE
    SET parts = excluded.parts, expires = excluded.expires";

/// What was used of one limit.
#[derive(Clone, Debug, Default)]
struct Used {
    in_flight: u64,
    /// When the first lease ends.
    ends: Option<Time>,
    grants: Grants,
    /// Whether something was handed out in this round.
    granted: bool,
    /// Lanes blocked in this round.
    blocked: u32,
}

impl Used {
    fn grant(&mut self, now: Time, limit: &Limit, count: u32, until: Option<Time>) {
        if let Some(rate) = &limit.rate {
            self.grants.add(now, count, rate);
            self.granted = true;
        }
        if let Some(until) = until {
            self.in_flight += u64::from(count);
            self.ends = Some(self.ends.map_or(until, |ends| ends.min(until)));
        }
    }

    /// When there may be room, if there is none.
    fn next(&self, now: Time, room: &Room) -> Time {
        room.next_at.or(self.ends).filter(|at| *at > now).unwrap_or(now + SOON)
    }
}

/// What a group may have of its queue, as the claims of a round see it.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    limits: Limits,
    whole: Used,
    keys: HashMap<Arc<str>, Used>,
    /// Lanes that gave nothing although their key has room: others may have their place.
    vain: BTreeMap<Arc<str>, i64>,
}

/// What settles at once is never in flight.
fn limit(limit: &Limit, auto_ack: bool) -> Limit {
    if auto_ack { Limit { in_flight: None, ..*limit } } else { *limit }
}

impl Allowance {
    fn new(limits: &Limits, parts: &str) -> Self {
        let whole = Used { grants: grants_of(parts), ..Used::default() };
        Allowance { limits: limits.clone(), whole, keys: HashMap::new(), vain: BTreeMap::new() }
    }

    /// What may be handed out of the queue: so many, or when.
    pub(super) fn room(&self, now: Time, auto_ack: bool) -> Result<u32, Time> {
        let room =
            limit(&self.limits.queue, auto_ack).room(now, self.whole.in_flight, &self.whole.grants);
        if room.count > 0 { Ok(room.count) } else { Err(self.whole.next(now, &room)) }
    }

    pub(super) fn key_of(&self, partition: &str) -> Arc<str> {
        self.limits.key_of(partition).into()
    }

    /// The key that a lane counts for while it is leased, if that is of interest.
    pub(super) fn counts_for(&self, key: &Arc<str>) -> Option<Arc<str>> {
        let counts = self.limits.queue.in_flight.is_some() || self.limits.key.in_flight.is_some();
        counts.then(|| key.clone())
    }

    /// What may be handed out of a key: so many, or when its next lane shall be looked at. With a
    /// rate, lanes that cannot all have their turn at once are not all looked at at once.
    pub(super) fn key_room(
        &mut self,
        now: Time,
        key: &Arc<str>,
        auto_ack: bool,
    ) -> Result<u32, Time> {
        let limit = limit(&self.limits.key, auto_ack);
        if !limit.any() {
            return Ok(u32::MAX);
        }
        let used = self.keys.entry(key.clone()).or_default();
        let room = limit.room(now, used.in_flight, &used.grants);
        if room.count > 0 {
            return Ok(room.count);
        }
        let turn = match &limit.rate {
            Some(rate) if room.next_at.is_some() => rate.per * (used.blocked / rate.count.max(1)),
            _ => Duration::ZERO,
        };
        used.blocked = used.blocked.saturating_add(1);
        Err(used.next(now, &room) + turn)
    }

    /// Notes that so many were handed out; leased until then, if they are.
    pub(super) fn grant(&mut self, now: Time, key: &Arc<str>, count: u32, until: Option<Time>) {
        self.whole.grant(now, &self.limits.queue, count, until);
        if self.limits.key.any() {
            let used = self.keys.entry(key.clone()).or_default();
            used.grant(now, &self.limits.key, count, until);
        }
    }

    /// Notes that a lane gave nothing.
    pub(super) fn gave_nothing(&mut self, key: Arc<str>) {
        if self.limits.key.any() {
            *self.vain.entry(key).or_default() += 1;
        }
    }

    /// Forgets what a lane had handed out: its lease has run out, and it is locked.
    fn end(&mut self, held: &mut Held) {
        let Some(key) = held.keys.leased.take() else { return };
        let count = in_flight(&held.lane);
        self.whole.in_flight = self.whole.in_flight.saturating_sub(count);
        if let Some(used) = self.keys.get_mut(&key) {
            used.in_flight = used.in_flight.saturating_sub(count);
        }
    }
}

/// The groups of a round that have limits.
#[derive(Default)]
pub(super) struct Bound {
    groups: Vec<i64>,
    /// Of which it counts what is in flight.
    counted: Vec<i64>,
}

impl Bound {
    pub(super) fn add(&mut self, group: i64, queue: &Queue) {
        let Some(limits) = &queue.limits else { return };
        self.groups.push(group);
        if limits.queue.in_flight.is_some() {
            self.counted.push(group);
        }
    }

    pub(super) fn has(&self, group: i64) -> bool {
        self.groups.contains(&group)
    }

    pub(super) fn calls(&self) -> Vec<Call<'_>> {
        let mut calls = Vec::new();
        if !self.groups.is_empty() {
            calls.push(Call::Query(LOCK_WHOLE, vec![&self.groups]));
        }
        if !self.counted.is_empty() {
            calls.push(Call::Query(SWEEP, vec![&self.counted]));
            calls.push(Call::Query(IN_FLIGHT, vec![&self.counted]));
        }
        calls
    }

    /// Whether limits were switched on, or off, or counted otherwise, since this was made.
    pub(super) fn is_stale(&self, group: i64, queue: &Queue) -> bool {
        let counted = queue.limits.as_ref().is_some_and(|limits| limits.queue.in_flight.is_some());
        queue.limits.is_some() && !self.has(group) || counted && !self.counted.contains(&group)
    }

    /// What the groups may have of their queues, of the answers to [`Bound::calls`].
    pub(super) fn allowances(
        &self,
        answers: &mut impl Iterator<Item = Vec<Row>>,
    ) -> HashMap<i64, Allowance> {
        let mut allowances = HashMap::new();
        if !self.groups.is_empty() {
            for row in answers.next().unwrap_or_default() {
                let allowance = Allowance::new(&Limits::default(), row.get(1));
                allowances.insert(row.get::<_, i64>(0), allowance);
            }
        }
        if !self.counted.is_empty() {
            answers.next();
            for row in answers.next().unwrap_or_default() {
                if let Some(allowance) = allowances.get_mut(&row.get::<_, i64>(0)) {
                    allowance.whole.in_flight = unsigned(row.get(1));
                    allowance.whole.ends = row.get::<_, Option<i64>>(2).map(time);
                }
            }
        }
        allowances
    }

    /// Makes the rows that claims of these groups lock.
    pub(super) async fn make(&self, link: &mut Link) -> Result<(), Fail> {
        link.ask(MAKE_WHOLE, vec![&self.groups]).await?;
        Ok(())
    }
}

/// Reads what is used of the keys of these lanes, given with the names of their partitions, and
/// ends leases that have run out.
pub(super) async fn read_keys(
    link: &mut Link,
    now: Time,
    allowances: &mut HashMap<i64, Allowance>,
    queues: &HashMap<i64, Arc<Queue>>,
    lanes: &mut [(&mut Held, Arc<str>)],
) -> Result<(), Fail> {
    allowances.retain(|group, allowance| {
        let limits = queues.get(group).and_then(|queue| queue.limits.as_ref());
        allowance.limits = limits.cloned().unwrap_or_default();
        limits.is_some()
    });
    let mut wanted: BTreeSet<(i64, Arc<str>)> = BTreeSet::new();
    for (held, name) in lanes.iter() {
        let allowance = allowances.get(&held.group).filter(|one| one.limits.key.any());
        wanted.extend(allowance.map(|allowance| (held.group, allowance.key_of(name))));
    }
    if !wanted.is_empty() {
        let wanted: Vec<(i64, Arc<str>)> = wanted.into_iter().collect();
        let groups: Vec<i64> = wanted.iter().map(|one| one.0).collect();
        let keys: Vec<&str> = wanted.iter().map(|one| &*one.1).collect();
        let calls = vec![
            Call::Query(SWEEP_KEYS, vec![&groups, &keys]),
            Call::Query(KEYS, vec![&groups, &keys]),
        ];
        let answers = link.send(calls).await?;
        for row in answers.last().into_iter().flatten() {
            let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            let Some((group, key)) = wanted.get(place) else { continue };
            let used = Used {
                in_flight: unsigned(row.get(1)),
                ends: row.get::<_, Option<i64>>(2).map(time),
                grants: grants_of(row.get::<_, Option<&str>>(3).unwrap_or("[]")),
                ..Used::default()
            };
            if let Some(allowance) = allowances.get_mut(group) {
                allowance.keys.insert(key.clone(), used);
            }
        }
    }
    for (held, _) in lanes {
        let over = held.lane.live_lease(now).is_none();
        if let Some(allowance) = allowances.get_mut(&held.group).filter(|_| over) {
            allowance.end(held);
        }
    }
    Ok(())
}

fn grants_of(parts: &str) -> Grants {
    let parts: Vec<(i64, u32)> = serde_json::from_str(parts).unwrap_or_default();
    Grants::from_parts(parts.into_iter().map(|(at, count)| (time(at), count)))
}

/// What was handed out, to be remembered, column by column.
#[derive(Default)]
pub(super) struct GrantColumns {
    groups: Vec<i64>,
    whole: Vec<i16>,
    keys: Vec<String>,
    parts: Vec<String>,
    expires: Vec<i64>,
}

impl GrantColumns {
    pub(super) fn of(allowances: &HashMap<i64, Allowance>, now: Time) -> Self {
        let mut columns = GrantColumns::default();
        for (group, allowance) in allowances {
            if allowance.whole.granted {
                columns.push(*group, None, &allowance.whole.grants, i64::MAX);
            }
            let per = allowance.limits.key.rate.map_or(Duration::ZERO, |rate| rate.per);
            for (key, used) in allowance.keys.iter().filter(|(_, used)| used.granted) {
                columns.push(*group, Some(key), &used.grants, micros(now + per));
            }
        }
        columns
    }

    fn push(&mut self, group: i64, key: Option<&str>, grants: &Grants, expires: i64) {
        let parts: Vec<(i64, u32)> =
            grants.parts().map(|(at, count)| (micros(at), count)).collect();
        self.groups.push(group);
        self.whole.push(i16::from(key.is_none()));
        self.keys.push(key.unwrap_or_default().to_owned());
        self.parts.push(serde_json::to_string(&parts).unwrap_or_else(|_| "[]".to_owned()));
        self.expires.push(expires);
    }

    pub(super) fn call(&self) -> Option<Call<'_>> {
        let values: Values<'_> =
            vec![&self.groups, &self.whole, &self.keys, &self.parts, &self.expires];
        (!self.groups.is_empty()).then_some(Call::Query(PUT_GRANTS, values))
    }
}

/// Keys whose lanes gave nothing although there was room, by group, and how many lanes.
pub(super) fn vain(allowances: &HashMap<i64, Allowance>) -> Vec<(i64, Arc<str>, i64)> {
    let of_group = |(group, allowance): (&i64, &Allowance)| {
        let keys = allowance.vain.iter();
        keys.map(|(key, count)| (*group, key.clone(), *count)).collect::<Vec<_>>()
    };
    allowances.iter().flat_map(of_group).collect()
}

/// Somebody who waits for something of this queue should look.
pub(super) fn wake(queue: &Queue, partition: Arc<str>, group: Arc<str>) -> Wake {
    Wake {
        queue: queue.info.name.clone(),
        namespace: queue.info.namespace.clone(),
        task: queue.info.task.clone(),
        partition,
        group: Some(group),
    }
}
