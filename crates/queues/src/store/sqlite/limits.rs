//! What a group may have of a queue at once, and how fast.
//!
//! ```text
//!   claim ── room of the queue? ── no ──► nothing, and when to come again
//!               │
//!               └─ lane ── room of its key? ── no ──► blocked: aside until the key may have room
//!                             │
//!                             └─ leased: counts for its key and its queue; rates note it
//!   settle, release ── room again ──► as many blocked lanes of the key as there is room are ready
//! ```
//!
//! What is in flight is read from the leased lanes of the group once in a batch, and then kept in
//! step with every change. Queues without limits do none of this.

use super::clock::{micros, time, unsigned};
use super::rows::{LaneRow, PartitionRow, QueueRow};
use super::work::{LaneKey, Work};
use crate::ids::{GroupId, PartitionId};
use rusqlite::{Connection, OptionalExtension, params};
use skep_policy::Time;
use skep_policy::queues::{Grants, Lane, Limit, Limits, Rate};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// When to look again if it is not known when there is room.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What this batch knows of queues with limits.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    pub(super) flights: HashMap<GroupId, Flight>,
    /// Of each group's queue, and of its keys.
    grants: HashMap<(GroupId, Option<Arc<str>>), GrantsSlot>,
}

#[derive(Debug, Default)]
struct GrantsSlot {
    grants: Grants,
    /// When all of it is too old to count, if it is to be written.
    expires: Option<Time>,
}

/// What one group has in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    lanes: HashMap<PartitionId, Leased>,
    all: Pot,
    keys: HashMap<Arc<str>, Pot>,
}

#[derive(Clone, Debug)]
struct Leased {
    key: Arc<str>,
    until: Time,
    count: u64,
}

/// What counts together.
#[derive(Debug, Default)]
struct Pot {
    count: u64,
    ends: BTreeSet<(Time, PartitionId)>,
}

impl Pot {
    fn add(&mut self, partition: PartitionId, leased: &Leased) {
        self.count += leased.count;
        self.ends.insert((leased.until, partition));
    }

    fn remove(&mut self, partition: PartitionId, leased: &Leased) {
        self.count -= leased.count;
        self.ends.remove(&(leased.until, partition));
    }
}

impl Flight {
    /// Notes a lane as it is now.
    pub(super) fn put(&mut self, partition: PartitionId, row: Option<&LaneRow>, now: Time) {
        if let Some(before) = self.lanes.remove(&partition) {
            self.all.remove(partition, &before);
            if let Some(pot) = self.keys.get_mut(&before.key) {
                pot.remove(partition, &before);
                if pot.ends.is_empty() {
                    self.keys.remove(&before.key);
                }
            }
        }
        let Some(row) = row else { return };
        let (Some(key), Some(lease)) = (&row.leased_key, row.lane.live_lease(now)) else { return };
        let count = lease.through.saturating_sub(row.lane.cursor);
        self.add(partition, Leased { key: key.clone(), until: lease.until, count });
    }

    fn add(&mut self, partition: PartitionId, leased: Leased) {
        self.all.add(partition, &leased);
        self.keys.entry(leased.key.clone()).or_default().add(partition, &leased);
        self.lanes.insert(partition, leased);
    }

    /// How many, and when the first lease ends.
    fn of(&self, key: Option<&Arc<str>>) -> (u64, Option<Time>) {
        let pot = match key {
            None => Some(&self.all),
            Some(key) => self.keys.get(key),
        };
        let first = pot.and_then(|pot| pot.ends.first()).map(|(until, _)| *until);
        (pot.map_or(0, |pot| pot.count), first)
    }
}

/// What may be handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) count: u32,
    /// If nothing: when to look again.
    pub(super) next_at: Time,
}

impl QueueRow {
    /// The row of a lane that has changed.
    pub(super) fn lane_row(
        &self,
        partition: &PartitionRow,
        lane: Lane,
        ready_at: Option<Time>,
        now: Time,
    ) -> LaneRow {
        let limits = self.limits.as_ref().filter(|_| lane.live_lease(now).is_some());
        let leased_key = limits.map(|limits| Arc::from(limits.key_of(&partition.name)));
        LaneRow { lane, ready_at, leased_key, blocked_key: None }
    }
}

impl Work<'_> {
    /// What of the queue, or of one key, may be handed out now. What is settled when it is handed
    /// out is never in flight.
    pub(super) fn share(
        &mut self,
        limit: &Limit,
        group: GroupId,
        key: Option<&Arc<str>>,
        auto_ack: bool,
    ) -> rusqlite::Result<Share> {
        let mut limit = *limit;
        if auto_ack {
            limit.in_flight = None;
        }
        let (in_flight, first_end) = match limit.in_flight {
            Some(_) => self.flight(group)?.of(key),
            None => (0, None),
        };
        let room = match limit.rate {
            Some(_) => {
                let now = self.now;
                let slot = self.grants(group, key)?;
                limit.room(now, in_flight, &slot.grants)
            }
            None => limit.room(self.now, in_flight, &Grants::default()),
        };
        let next_at = room.next_at.or(first_end).unwrap_or(self.now + UNKNOWN);
        Ok(Share { count: room.count, next_at })
    }

    fn flight(&mut self, group: GroupId) -> rusqlite::Result<&Flight> {
        if !self.sharing.flights.contains_key(&group) {
            let mut flight = Flight::default();
            let mut select = self.db.prepare_cached(FLIGHT)?;
            let mut rows = select.query([group.0, micros(self.now)])?;
            while let Some(row) = rows.next()? {
                let leased = Leased {
                    key: row.get(1)?,
                    until: time(row.get(2)?),
                    count: unsigned(row.get(3)?),
                };
                flight.add(PartitionId(row.get(0)?), leased);
            }
            // Of lanes in memory the database may not have the latest.
            for (key, slot) in self.lanes.iter().filter(|(key, _)| key.1 == group) {
                flight.put(key.0, Some(&slot.row), self.now);
            }
            self.sharing.flights.insert(group, flight);
        }
        Ok(self.sharing.flights.entry(group).or_default())
    }

    fn grants(
        &mut self,
        group: GroupId,
        key: Option<&Arc<str>>,
    ) -> rusqlite::Result<&mut GrantsSlot> {
        let place = (group, key.cloned());
        if !self.sharing.grants.contains_key(&place) {
            let mut select = self.db.prepare_cached(GRANTS)?;
            let values = params![group.0, key.is_none(), key.map_or("", |key| key)];
            let parts = select.query_row(values, |row| row.get::<_, String>(0)).optional()?;
            let parts: Vec<(i64, u32)> = match parts {
                Some(parts) => serde_json::from_str(&parts).map_err(|error| {
                    let text = rusqlite::types::Type::Text;
                    rusqlite::Error::FromSqlConversionFailure(0, text, error.into())
                })?,
                None => Vec::new(),
            };
            let parts = parts.into_iter().map(|(at, count)| (time(at), count));
            let slot = GrantsSlot { grants: Grants::from_parts(parts), expires: None };
            self.sharing.grants.insert(place.clone(), slot);
        }
        Ok(self.sharing.grants.entry(place).or_default())
    }

    /// Notes that so many were handed out.
    pub(super) fn granted(
        &mut self,
        limits: &Limits,
        group: GroupId,
        key: &Arc<str>,
        count: u32,
    ) -> rusqlite::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let now = self.now;
        let mut note = |rate: &Option<Rate>, key| match rate {
            Some(rate) => {
                let slot = self.grants(group, key)?;
                slot.grants.add(now, count, rate);
                slot.expires = Some(now + rate.per);
                Ok(())
            }
            None => Ok::<_, rusqlite::Error>(()),
        };
        note(&limits.queue.rate, None)?;
        note(&limits.key.rate, Some(key))
    }

    /// Puts a lane aside until its key may have room.
    pub(super) fn block(&mut self, lane: LaneKey, row: LaneRow, key: &Arc<str>, until: Time) {
        let blocked = LaneRow {
            // As it will be read again.
            ready_at: Some(time(micros(until))),
            leased_key: None,
            blocked_key: Some(key.clone()),
            ..row
        };
        self.set_lane(lane, blocked);
    }

    /// After something of a lane was settled or given back: who waits for room may look.
    pub(super) fn made_room(
        &mut self,
        queue: &QueueRow,
        partition: &PartitionRow,
        group: (GroupId, &Arc<str>),
    ) -> rusqlite::Result<()> {
        let Some(limits) = queue.limits.clone() else { return Ok(()) };
        let key = Arc::from(limits.key_of(&partition.name));
        self.unblock(queue, &limits, group, &key)?;
        if limits.queue.in_flight.is_some() {
            let first = self.first_ready(group.0, &[])?;
            let first = first.map(|(_, id)| self.partition(id)).transpose()?.flatten();
            self.wake(queue, first.as_ref().unwrap_or(partition), Some(group.1.clone()));
        }
        Ok(())
    }

    /// Lets lanes be claimed again that waited for room of their key: as many as there is room.
    pub(super) fn unblock(
        &mut self,
        queue: &QueueRow,
        limits: &Limits,
        (group, name): (GroupId, &Arc<str>),
        key: &Arc<str>,
    ) -> rusqlite::Result<()> {
        // Room by rate comes with time, and so do they.
        if limits.key.in_flight.is_none() {
            return Ok(());
        }
        let room = self.share(&limits.key, group, Some(key), false)?.count;
        if room == 0 {
            return Ok(());
        }
        for id in self.blocked(group, key, room as usize)? {
            let Some(row) = self.lane((id, group))? else { continue };
            // They have waited longer than the lane that made room.
            let ready_at = Some(self.now - Duration::from_micros(1));
            self.set_lane((id, group), LaneRow { ready_at, blocked_key: None, ..row });
            if let Some(partition) = self.partition(id)? {
                self.wake(queue, &partition, Some(name.clone()));
            }
        }
        Ok(())
    }

    /// Lanes that wait for room of a key, those first that were put aside first: leases end, and
    /// rates allow, the later the later they began.
    fn blocked(
        &self,
        group: GroupId,
        key: &Arc<str>,
        most: usize,
    ) -> rusqlite::Result<Vec<PartitionId>> {
        let now = micros(self.now);
        let waits = |row: &LaneRow| {
            let at = row.ready_at.map(micros).filter(|at| *at > now);
            at.filter(|_| row.blocked_key.as_ref() == Some(key))
        };
        let of_group = self.lanes.iter().filter(|(lane, _)| lane.1 == group);
        let mut found: Vec<(i64, PartitionId)> =
            of_group.filter_map(|(lane, slot)| Some((waits(&slot.row)?, lane.0))).collect();
        let mut select = self.db.prepare_cached(BLOCKED)?;
        let mut rows = select.query(params![group.0, key, now])?;
        let mut read = 0;
        while read < most
            && let Some(row) = rows.next()?
        {
            let id = PartitionId(row.get(1)?);
            if !self.lanes.contains_key(&(id, group)) {
                found.push((row.get(0)?, id));
                read += 1;
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().take(most).map(|(_, id)| id).collect())
    }
}

impl Sharing {
    /// Tells whether there was anything to write.
    pub(super) fn write_grants(&self, db: &Connection) -> rusqlite::Result<bool> {
        let mut wrote = false;
        for ((group, key), slot) in &self.grants {
            let Some(expires) = slot.expires else { continue };
            let parts: Vec<(i64, u32)> =
                slot.grants.parts().map(|(at, count)| (micros(at), count)).collect();
            let parts = serde_json::to_string(&parts)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let name = key.as_deref().unwrap_or("");
            let values = params![group.0, key.is_none(), name, parts, micros(expires)];
            db.prepare_cached(PUT_GRANTS)?.execute(values)?;
            wrote = true;
        }
        Ok(wrote)
    }
}

/// After the limits of a queue have changed: what is leased counts for the keys as they are now,
/// and what waits for room is looked at again.
pub(super) fn limits_changed(
    work: &mut Work<'_>,
    limits: Option<&Limits>,
    group: GroupId,
) -> rusqlite::Result<()> {
    let now = micros(work.now);
    work.db.prepare_cached(UNBLOCK_ALL)?.execute([group.0, now])?;
    let Some(limits) = limits else { return Ok(()) };
    let mut select = work.db.prepare_cached(LEASED)?;
    let leased = select.query_map([group.0, now], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let leased = leased.collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    let mut update = work.db.prepare_cached(REKEY)?;
    for (partition, name) in leased {
        update.execute(params![partition, group.0, limits.key_of(&name)])?;
    }
    Ok(())
}

pub(super) const FLIGHT: &str = "SELECT partition, leased_key, lease_until, lease_through - cursor
    FROM skep_queue_lanes WHERE grp = ?1 AND leased_key IS NOT NULL AND lease_until > ?2";
pub(super) const GRANTS: &str =
    "SELECT parts FROM skep_queue_grants WHERE grp = ?1 AND whole = ?2 AND key = ?3";
const PUT_GRANTS: &str = "INSERT INTO skep_queue_grants (grp, whole, key, parts, expires)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (grp, whole, key) DO UPDATE SET parts = excluded.parts, expires = excluded.expires";
pub(super) const BLOCKED: &str = "SELECT ready_at, partition FROM skep_queue_lanes
    WHERE grp = ?1 AND blocked_key = ?2 AND ready_at > ?3 ORDER BY ready_at, partition";
pub(super) const UNBLOCK_ALL: &str = "UPDATE skep_queue_lanes SET ready_at = ?2, blocked_key = NULL
    WHERE grp = ?1 AND blocked_key IS NOT NULL";
/// A lane that somebody works on is ready when that lease ends.
pub(super) const LEASED: &str = "SELECT l.partition, p.name FROM skep_queue_lanes l
    CROSS JOIN skep_queue_partitions p ON p.id = l.partition
    WHERE l.grp = ?1 AND l.ready_at IS NOT NULL AND l.ready_at > ?2 AND l.lease_until > ?2";
pub(super) const REKEY: &str =
    "UPDATE skep_queue_lanes SET leased_key = ?3 WHERE partition = ?1 AND grp = ?2";
pub(super) const MOVE_GRANTS: &str = "UPDATE skep_queue_grants SET grp = ?2 WHERE grp = ?1";
