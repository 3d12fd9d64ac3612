//! Groups: how far each is, where it begins, and its end.

use super::link::{Call, Fail, Link};
use super::moves::NEW_GROUP;
use super::rows::{micros, time, unsigned};
use super::write::NOTIFY;
use super::{CHANNEL, PostgresQueues, Shared};
use crate::store::browse::BrowseError;
use crate::store::groups::{COUNT_MAX, OLDEST_LANES, counted};
use crate::store::{GroupFilter, GroupRow, GroupsPage, Sought};
use skep_policy::queues::Start;
use skep_store::StoreError;
use tokio_postgres::Row;

/// Segments that are looked at in the first partition beyond a group's frontier.
const BEYOND_MAX: i64 = 5_000;

/// Lanes are counted up to $4; the oldest message is looked for in $5 of them, and in $6 segments.
macro_rules! groups {
    ($which:literal) => {
        concat!(
            "SELECT g.id, g.name, q.name, g.start, g.created_at,
                    coalesce(c.pushed, 0)::bigint, coalesce(c.removed, 0)::bigint,
                    coalesce((SELECT sum(n.settled) FROM skep_queue_group_counts n
                              WHERE n.grp = g.id), 0)::bigint,
                    r.count, f.count, f.leased, a.count, least(o.at, b.at)
             FROM skep_queue_groups g
             JOIN skep_queues q ON q.id = g.queue AND NOT q.deleted
             CROSS JOIN LATERAL (
                 SELECT sum(pushed) AS pushed, sum(removed) AS removed FROM skep_queue_counts
                 WHERE queue = q.id) c
             CROSS JOIN LATERAL (
                 SELECT count(*) FROM (
                     SELECT 1 FROM skep_queue_lanes WHERE grp = g.id AND ready_at <= $3
                     LIMIT $4) l) r
             CROSS JOIN LATERAL (
                 SELECT count(*), count(*) FILTER (WHERE l.lease_until > $3) AS leased FROM (
                     SELECT lease_until FROM skep_queue_lanes WHERE grp = g.id AND ready_at > $3
                     ORDER BY ready_at LIMIT $4) l) f
             CROSS JOIN LATERAL (
                 SELECT count(*) FROM (
                     SELECT 1 FROM skep_queue_lanes WHERE grp = g.id LIMIT $4) l) a
             CROSS JOIN LATERAL (
                 SELECT min(s.at) AS at FROM (
                     SELECT partition, cursor FROM skep_queue_lanes
                     WHERE grp = g.id AND ready_at IS NOT NULL ORDER BY ready_at LIMIT $5) l
                 CROSS JOIN LATERAL (
                     SELECT at FROM skep_queue_segments
                     WHERE partition = l.partition AND first > l.cursor - 256
                       AND first + count > l.cursor + 1 AND body IS NOT NULL
                     ORDER BY first LIMIT 1) s) o
             LEFT JOIN LATERAL (
                 SELECT p.id FROM skep_queue_partitions p
                 WHERE p.queue = q.id AND p.id > g.frontier ORDER BY p.queue, p.id LIMIT 1) p
                 ON NOT EXISTS (SELECT 1 FROM skep_queue_lanes l
                                WHERE l.partition = p.id AND l.grp = g.id)
             CROSS JOIN LATERAL (
                 SELECT min(s.at) AS at FROM (
                     SELECT at FROM skep_queue_segments
                     WHERE partition = p.id AND body IS NOT NULL ORDER BY first LIMIT $6) s
                 WHERE g.start IS NULL OR s.at >= g.start) b
             WHERE NOT g.deleted AND ",
            $which,
            " LIMIT $2"
        )
    };
}
pub(super) const ALL: &str = groups!("g.id > $1 ORDER BY g.id");
pub(super) const NAMED: &str = groups!("g.id > $1 AND g.name = $7 ORDER BY g.id");
pub(super) const OF_QUEUE: &str = groups!(
    "g.queue = (SELECT id FROM skep_queues WHERE name = $7 AND NOT deleted) AND $1::bigint >= 0
     AND g.name > $8 ORDER BY g.name"
);
pub(super) const ONE: &str = groups!(
    "g.queue = (SELECT id FROM skep_queues WHERE name = $7 AND NOT deleted) AND g.id > $1
     AND g.name = $8"
);
const REMEMBER_START: &str = "
    INSERT INTO skep_queue_starts (grp, start) VALUES ($1, $2)
    ON CONFLICT (grp) DO UPDATE SET start = excluded.start";
const FORGET_START: &str = "DELETE FROM skep_queue_starts WHERE grp = $1";
const SUBSCRIBE: &str = "
    UPDATE skep_queue_groups g SET start = $3 FROM skep_queues q
    WHERE g.name = $1 AND NOT g.deleted AND q.id = g.queue AND NOT q.deleted
      AND ($2::bigint IS NULL OR q.id = $2)
    RETURNING 1";
const LOCK_QUEUE: &str = "SELECT id FROM skep_queues WHERE name = $1 AND NOT deleted FOR UPDATE";
const END_GROUPS: &str = "
    UPDATE skep_queue_groups g SET deleted = TRUE
    FROM skep_queues q
    WHERE g.name = $1 AND NOT g.deleted AND q.id = g.queue AND NOT q.deleted
      AND ($2::text IS NULL OR q.name = $2)
    RETURNING (SELECT count(*) FROM skep_queue_lanes l WHERE l.grp = g.id), g.queue, g.start";

impl PostgresQueues {
    /// Groups, and how far they are.
    pub async fn groups(&self, filter: GroupFilter) -> Result<GroupsPage, BrowseError> {
        let (after, after_name) = filter.place()?;
        let now = micros(self.shared.clock().await?);
        let (limit, most) = (i64::from(filter.most()), i64::from(COUNT_MAX) + 1);
        let lanes = i64::from(OLDEST_LANES);
        let (queue, group) = (filter.queue.as_deref(), filter.group.as_deref());
        let mut values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
            vec![&after, &limit, &now, &most, &lanes, &BEYOND_MAX];
        let sql = match (&queue, &group) {
            (None, None) => ALL,
            (None, Some(group)) => {
                values.push(group);
                NAMED
            }
            (Some(queue), None) => {
                values.extend([queue as &(dyn tokio_postgres::types::ToSql + Sync), &after_name]);
                OF_QUEUE
            }
            (Some(queue), Some(group)) => {
                values.extend([queue as &(dyn tokio_postgres::types::ToSql + Sync), group]);
                ONE
            }
        };
        let rows = self.shared.ask(sql, &values).await?;
        let next = filter.next(rows.len(), rows.last().map(|row| (row.get(0), row.get(1))));
        Ok(GroupsPage { groups: rows.iter().map(group_of).collect(), next })
    }

    /// Sets where a group begins in partitions that it has not looked at.
    pub async fn subscribe(
        &self,
        group: &str,
        queue: Option<&str>,
        start: Start,
    ) -> Result<Sought, StoreError> {
        let shared = &*self.shared;
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let subscribe = shared.subscribe(&mut link, group, queue, start);
            let once = shared.links.postgres.limit(subscribe).await;
            if let Some(done) = shared.links.end(link, once, &mut tries).await? {
                return Ok(done);
            }
        }
    }

    /// Deletes a group, of one queue or of all. Tells how many partitions it has read.
    pub async fn delete_group(
        &self,
        group: &str,
        queue: Option<&str>,
        keep_start: bool,
    ) -> Result<u64, StoreError> {
        let shared = &*self.shared;
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let delete = shared.delete_group(&mut link, group, queue, keep_start);
            let once = shared.links.postgres.limit(delete).await;
            if let Some(lanes) = shared.links.end(link, once, &mut tries).await? {
                return Ok(lanes);
            }
        }
    }
}

impl Shared {
    async fn subscribe(
        &self,
        link: &mut Link,
        group: &str,
        queue: Option<&str>,
        start: Start,
    ) -> Result<Sought, Fail> {
        let start = match start {
            Start::All => None,
            Start::From(from) => Some(micros(from)),
        };
        let Some(name) = queue else {
            let answers = link
                .send(vec![
                    Call::Begin,
                    Call::Query(REMEMBER_START, vec![&group, &start]),
                    Call::Query(SUBSCRIBE, vec![&group, &None::<i64>, &start]),
                    Call::Query(NOTIFY, vec![&CHANNEL, &""]),
                    Call::Commit,
                ])
                .await?;
            return Ok(Sought::Moved(answers.get(2).map_or(0, |rows| rows.len() as u64)));
        };
        let lock = Call::Query(LOCK_QUEUE, vec![&name]);
        let answers = link.send(vec![Call::Begin, lock]).await?;
        let queue: Option<i64> = answers.last().and_then(|rows| rows.first()).map(|row| row.get(0));
        if queue.is_none() {
            link.undo().await?;
            return Ok(Sought::NoQueue);
        }
        link.send(vec![
            Call::Query(NEW_GROUP, vec![&queue, &group, &start]),
            Call::Query(SUBSCRIBE, vec![&group, &queue, &start]),
            Call::Query(NOTIFY, vec![&CHANNEL, &name]),
            Call::Commit,
        ])
        .await?;
        Ok(Sought::Moved(1))
    }

    async fn delete_group(
        &self,
        link: &mut Link,
        group: &str,
        queue: Option<&str>,
        keep_start: bool,
    ) -> Result<u64, Fail> {
        let end = Call::Query(END_GROUPS, vec![&group, &queue]);
        let answers = link.send(vec![Call::Begin, end]).await?;
        let ended = answers.into_iter().nth(1).unwrap_or_default();
        let begun: Vec<(i64, Option<i64>)> =
            ended.iter().map(|row| (row.get(1), row.get(2))).collect();
        let mut calls = Vec::new();
        if keep_start {
            for (queue, start) in &begun {
                calls.push(Call::Query(NEW_GROUP, vec![queue, &group, start]));
            }
        } else if queue.is_none() {
            calls.push(Call::Query(FORGET_START, vec![&group]));
        }
        calls.push(Call::Commit);
        link.send(calls).await?;
        Ok(ended.iter().map(|row| unsigned(row.get(0))).sum())
    }
}

fn group_of(row: &Row) -> GroupRow {
    let (pushed, removed, settled): (i64, i64, i64) = (row.get(5), row.get(6), row.get(7));
    let count = |column: usize| unsigned(row.get(column));
    let (ready, later, leased) = (count(8), count(9), count(10));
    let (waiting_lanes, more_waiting) = counted(ready + later - leased);
    let (leased_lanes, _) = counted(leased);
    let (lanes, more) = counted(count(11));
    GroupRow {
        queue: row.get::<_, &str>(2).into(),
        group: row.get::<_, &str>(1).into(),
        pending: unsigned(pushed - settled).min(unsigned(pushed - removed)),
        leased_lanes,
        lanes,
        waiting_lanes,
        more_lanes: more || more_waiting || counted(later).1,
        oldest: row.get::<_, Option<i64>>(12).map(time),
        start: row.get::<_, Option<i64>>(3).map(time),
        created_at: time(row.get(4)),
    }
}
