//! Values as PostgreSQL has them.

use crate::bodies::BodyKey;
use crate::ids::PartitionId;
use bytes::{BufMut, Bytes, BytesMut};
use skep_policy::Time;
use skep_policy::queues::{Lane, Lease, LeaseId, Rules, Run};
use std::error::Error;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds since 1970.
pub(super) fn micros(time: Time) -> i64 {
    i64::try_from(time.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

/// Of microseconds since 1970.
pub(super) fn time(micros: i64) -> Time {
    Time::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Of a level as it is kept.
pub(super) fn level(level: i16) -> u8 {
    u8::try_from(level).unwrap_or(0)
}

/// A lease's id as a `uuid`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uid(pub u128);

impl ToSql for Uid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

impl<'bytes> FromSql<'bytes> for Uid {
    fn from_sql(_: &Type, bytes: &'bytes [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Uid(u128::from_be_bytes(bytes.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

/// A lane that this transaction has locked.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub partition: i64,
    pub group: i64,
    pub lane: Lane,
    pub ready_at: Option<Time>,
    pub keys: Keys,
    before: (Lane, Option<Time>, Keys),
}

/// What a lane of a queue with limits counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// It is leased, and what its lease has not settled counts for this key. One whose lease has
    /// run out counts until somebody has locked it.
    pub leased: Option<Arc<str>>,
    /// It has something to give, but its key has as much as it may.
    pub blocked: Option<Arc<str>>,
}

/// The columns of [`Held::read`].
macro_rules! lane_columns {
    () => {
        "l.partition, l.grp, l.cursor, l.ready_at, l.lease, l.lease_until, l.lease_through,
         l.ended, l.failures, l.failed_through, l.not_before, l.leased_key, l.blocked_key"
    };
}
pub(super) use lane_columns;
/// How many they are.
pub(super) const LANE_COLUMNS: usize = 13;

impl Held {
    pub(super) fn read(row: &Row) -> Self {
        let id = |column: usize| row.get::<_, Option<Uid>>(column).map(|uid| LeaseId(uid.0));
        let lease = id(4).map(|id| Lease {
            id,
            until: time(row.get::<_, Option<i64>>(5).unwrap_or(0)),
            through: unsigned(row.get::<_, Option<i64>>(6).unwrap_or(0)),
        });
        let lane = Lane {
            cursor: unsigned(row.get(2)),
            lease,
            ended: id(7),
            failures: u32::try_from(row.get::<_, i64>(8)).unwrap_or(u32::MAX),
            failed_through: unsigned(row.get(9)),
            not_before: time(row.get(10)),
        };
        let ready_at = row.get::<_, Option<i64>>(3).map(time);
        let (partition, group) = (row.get(0), row.get(1));
        let key = |column: usize| row.get::<_, Option<&str>>(column).map(Arc::from);
        let keys = Keys { leased: key(11), blocked: key(12) };
        let before = (lane, ready_at, keys.clone());
        Held { partition, group, lane, ready_at, keys, before }
    }

    pub(super) fn key(&self) -> (i64, i64) {
        (self.partition, self.group)
    }

    pub(super) fn changed(&self) -> bool {
        let (lane, ready_at, keys) = &self.before;
        (*lane, *ready_at) != (self.lane, self.ready_at) || *keys != self.keys
    }

    /// The key it counted for when it was read, and by how much less it counts now; or will sooner
    /// than it was thought.
    pub(super) fn freed(&self) -> Option<(&Arc<str>, u64)> {
        let key = self.before.2.leased.as_ref()?;
        let until = |lane: &Lane| lane.lease.map(|lease| lease.until);
        let holds = self.keys.leased.is_some() && until(&self.lane) >= until(&self.before.0);
        let after = if holds { in_flight(&self.lane) } else { 0 };
        let less = in_flight(&self.before.0).saturating_sub(after);
        (less > 0).then_some((key, less))
    }

    /// Messages that its cursor has passed since it was read.
    pub(super) fn advanced(&self) -> i64 {
        signed(self.lane.cursor) - signed(self.before.0.cursor)
    }

    /// Whether somebody who knew when it would be ready should look sooner.
    pub(super) fn is_sooner(&self) -> bool {
        match (self.before.1, self.ready_at) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(now)) => now < before,
        }
    }

    /// Sets when it can next be claimed, by what its partition has. If that is not known because
    /// the message after the cursor is not among `runs`, somebody has to look: at once.
    pub(super) fn set_ready(
        &mut self,
        now: Time,
        rules: &Rules,
        runs: &[Run],
        tail: u64,
        last_push: Time,
    ) {
        let next = runs.iter().find(|run| run.last() > self.lane.cursor).map(|run| run.at);
        let next = match next {
            None if tail > self.lane.cursor => Some(Time::ZERO),
            next => next,
        };
        self.ready_at = self.lane.ready_at(now, rules, next, last_push);
        self.keys.blocked = None;
        if self.lane.live_lease(now).is_none() {
            self.keys.leased = None;
        }
    }
}

/// What its lease has handed out and is not settled.
pub(super) fn in_flight(lane: &Lane) -> u64 {
    lane.lease.map_or(0, |lease| lease.through.saturating_sub(lane.cursor))
}

/// Lanes to be written, column by column.
#[derive(Default)]
pub(super) struct LaneColumns {
    partitions: Vec<i64>,
    groups: Vec<i64>,
    cursors: Vec<i64>,
    ready: Vec<Option<i64>>,
    leases: Vec<Option<Uid>>,
    untils: Vec<Option<i64>>,
    throughs: Vec<Option<i64>>,
    ended: Vec<Option<Uid>>,
    failures: Vec<i64>,
    failed_through: Vec<i64>,
    not_before: Vec<i64>,
    leased: Vec<Option<String>>,
    blocked: Vec<Option<String>>,
}

impl LaneColumns {
    pub(super) fn of<'held>(lanes: impl Iterator<Item = &'held Held>) -> Self {
        let mut columns = LaneColumns::default();
        for held in lanes {
            columns.push(held.partition, held.group, &held.lane, held.ready_at, &held.keys);
        }
        columns
    }

    pub(super) fn push(
        &mut self,
        partition: i64,
        group: i64,
        lane: &Lane,
        ready: Option<Time>,
        keys: &Keys,
    ) {
        self.partitions.push(partition);
        self.groups.push(group);
        self.cursors.push(signed(lane.cursor));
        self.ready.push(ready.map(micros));
        self.leases.push(lane.lease.map(|lease| Uid(lease.id.0)));
        self.untils.push(lane.lease.map(|lease| micros(lease.until)));
        self.throughs.push(lane.lease.map(|lease| signed(lease.through)));
        self.ended.push(lane.ended.map(|id| Uid(id.0)));
        self.failures.push(i64::from(lane.failures));
        self.failed_through.push(signed(lane.failed_through));
        self.not_before.push(micros(lane.not_before));
        self.leased.push(keys.leased.as_deref().map(str::to_owned));
        self.blocked.push(keys.blocked.as_deref().map(str::to_owned));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.partitions,
            &self.groups,
            &self.cursors,
            &self.ready,
            &self.leases,
            &self.untils,
            &self.throughs,
            &self.ended,
            &self.failures,
            &self.failed_through,
            &self.not_before,
            &self.leased,
            &self.blocked,
        ]
    }
}

/// Bodies of a partition that came with runs: of these the first numbers, and three arrays on what
/// came.
pub(super) fn bodies(
    row: &Row,
    partition: i64,
    column: usize,
) -> impl Iterator<Item = (BodyKey, Bytes)> {
    let firsts = row.get::<_, Option<Vec<i64>>>(column).unwrap_or_default();
    let bodies = row.get::<_, Option<Vec<Option<&[u8]>>>>(column + 3).unwrap_or_default();
    firsts.into_iter().zip(bodies).filter_map(move |(first, body)| {
        Some(((PartitionId(partition), unsigned(first)), Bytes::copy_from_slice(body?)))
    })
}

/// Runs from three arrays, which are null if there is none.
pub(super) fn runs(row: &Row, column: usize) -> Vec<Run> {
    let numbers = |column: usize| row.get::<_, Option<Vec<i64>>>(column).unwrap_or_default();
    let counts = row.get::<_, Option<Vec<i32>>>(column + 1).unwrap_or_default();
    let parts = numbers(column).into_iter().zip(counts).zip(numbers(column + 2));
    let mut runs: Vec<Run> = parts
        .map(|((first, count), at)| Run {
            first: unsigned(first),
            count: u32::try_from(count).unwrap_or(0),
            at: time(at),
        })
        .collect();
    runs.sort_unstable_by_key(|run| run.first);
    runs
}
