//! Removing what is no longer needed, a little at a time.

use super::link::{Call, Fail, Link};
use super::names::{Queue, queue_columns};
use super::rows::{micros, time, unsigned};
use super::write::{COUNTS, SumColumns, Sums};
use super::{PostgresQueues, Shared};
use crate::store::{Round, Tidied};
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Queues that one round looks at.
const QUEUES_MAX: i64 = 32;
/// Partitions of deleted queues that one round removes.
const PARTITIONS_MAX: i64 = 256;

/// Where the next round goes on: what was looked at and has to stay must not be looked at for ever.
#[derive(Default)]
pub(super) struct Rounds {
    /// The queue that was looked at last.
    queue: i64,
    /// The segment of a queue that was looked at last: time, partition, first number.
    segments: HashMap<i64, (i64, i64, i64)>,
}

pub(super) const QUEUES: &str = concat!(
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, ",
    queue_columns!(),
    " FROM skep_queues q WHERE (q.ages OR q.cleared_at > 0) AND NOT q.deleted AND q.id > $1
      ORDER BY q.id LIMIT $2"
);
pub(super) const OLD: &str = "
    SELECT partition, first, count, at FROM skep_queue_segments
    WHERE queue = $1 AND body IS NOT NULL AND at < $2 AND (at, partition, first) > ($3, $4, $5)
    ORDER BY at, partition, first LIMIT $6";
const GROUPS: &str = "
    SELECT id, start FROM skep_queue_groups WHERE queue = $1 AND NOT deleted";
const CURSORS: &str = "
    SELECT l.partition, l.grp, l.cursor FROM skep_queue_lanes l
    WHERE l.partition = ANY($1) AND l.grp = ANY($2)";
/// What somebody works on: of each partition, from the first message on through the last.
pub(super) const LEASED: &str = "
    SELECT l.partition, min(l.cursor) + 1, max(l.lease_through) FROM skep_queue_lanes l
    WHERE l.partition = ANY($1) AND l.lease_until > $2 GROUP BY l.partition";
const DELETE: &str = "
    DELETE FROM skep_queue_segments s
    USING unnest($1::bigint[], $2::bigint[]) AS w (partition, first)
    WHERE s.partition = w.partition AND s.first = w.first AND s.body IS NOT NULL
    RETURNING s.count";
const HUSK: &str = "
    UPDATE skep_queue_segments s SET body = NULL
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, first)
    WHERE s.partition = w.partition AND s.first = w.first AND s.body IS NOT NULL
    RETURNING s.count";
const HUSKS: &str = "
    DELETE FROM skep_queue_segments s USING (
        SELECT partition, first FROM skep_queue_segments
        WHERE queue = $1 AND body IS NULL AND at < $2 ORDER BY at LIMIT $3) w
    WHERE s.partition = w.partition AND s.first = w.first AND s.body IS NULL
    RETURNING 1";
const DELETED_GROUP: &str = "SELECT id FROM skep_queue_groups WHERE deleted ORDER BY id LIMIT 1";
const GROUP_LANES: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_lanes l USING (
            SELECT partition, grp FROM skep_queue_lanes WHERE grp = $1 LIMIT $2) w
        WHERE l.partition = w.partition AND l.grp = w.grp RETURNING 1)
    SELECT count(*) FROM gone";
pub(super) const GROUP_GRANTS: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_grants g USING (
            SELECT grp, whole, key FROM skep_queue_grants WHERE grp = $1 LIMIT $2) w
        WHERE g.grp = w.grp AND g.whole = w.whole AND g.key = w.key RETURNING 1)
    SELECT count(*) FROM gone";
/// Whoever claims holds those of the keys it looks at.
pub(super) const OLD_GRANTS: &str = "
    DELETE FROM skep_queue_grants g USING (
        SELECT grp, whole, key FROM skep_queue_grants
        WHERE expires < (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED) w
    WHERE g.grp = w.grp AND g.whole = w.whole AND g.key = w.key
    RETURNING 1";
const GROUP_SUMS: &str = "DELETE FROM skep_queue_group_counts WHERE grp = $1";
const GROUP: &str = "DELETE FROM skep_queue_groups WHERE id = $1";
const DELETED_QUEUE: &str = "SELECT id FROM skep_queues WHERE deleted ORDER BY id LIMIT 1";
const QUEUE_GROUPS: &str =
    "UPDATE skep_queue_groups SET deleted = TRUE WHERE queue = $1 AND NOT deleted";
const LOCK_PARTITIONS: &str = "
    SELECT id FROM skep_queue_partitions WHERE queue = $1 ORDER BY queue, id LIMIT $2 FOR UPDATE";
const PARTITION_SEGMENTS: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_segments s USING (
            SELECT partition, first FROM skep_queue_segments WHERE partition = ANY($1) LIMIT $2) w
        WHERE s.partition = w.partition AND s.first = w.first
        RETURNING s.count, s.body IS NULL AS husk)
    SELECT count(*), coalesce(sum(count) FILTER (WHERE NOT husk), 0)::bigint FROM gone";
pub(super) const PARTITION_LATER: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_later l USING (
            SELECT id FROM skep_queue_later WHERE partition = ANY($1) LIMIT $2) w
        WHERE l.id = w.id RETURNING 1)
    SELECT count(*) FROM gone";
const PARTITION_LANES: &str = "DELETE FROM skep_queue_lanes WHERE partition = ANY($1)";
const PARTITIONS: &str = "DELETE FROM skep_queue_partitions WHERE id = ANY($1)";
const QUEUE_DEAD: &str = "
    WITH gone AS (
        DELETE FROM skep_queue_dead d USING (
            SELECT id FROM skep_queue_dead WHERE queue = $1 ORDER BY id LIMIT $2) w
        WHERE d.id = w.id RETURNING 1)
    SELECT count(*) FROM gone";
const QUEUE_SUMS: &str = "DELETE FROM skep_queue_counts WHERE queue = $1";
const QUEUE: &str = "DELETE FROM skep_queues WHERE id = $1 AND deleted";

impl PostgresQueues {
    /// One bounded round of removing what is too old or deleted: about so many rows of each kind.
    pub async fn tidy(&self, round: impl Into<Round>) -> Result<Tidied, StoreError> {
        let shared = &*self.shared;
        let limit = i64::from(round.into().rows.max(1));
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let once = shared.links.postgres.limit(shared.tidy_once(&mut link, limit)).await;
            if let Some(tidied) = shared.links.end(link, once, &mut tries).await? {
                return Ok(tidied);
            }
        }
    }
}

impl Shared {
    async fn tidy_once(&self, link: &mut Link, limit: i64) -> Result<Tidied, Fail> {
        let mut tidied = Tidied::default();
        self.tidy_group(link, limit, &mut tidied).await?;
        self.tidy_queue(link, limit, &mut tidied).await?;
        let old = link.ask(OLD_GRANTS, vec![&limit]).await?.len() as u64;
        tidied.rows += old;
        tidied.more |= old >= unsigned(limit);
        let after = self.rounds.lock().unwrap_or_else(PoisonError::into_inner).queue;
        let rows = link.ask(QUEUES, vec![&after, &QUEUES_MAX]).await?;
        let mut left = limit;
        for row in &rows {
            let queue = self.names.queue(row, 1);
            let used = self.tidy_old(link, &queue, time(row.get(0)), left, &mut tidied).await?;
            left -= used;
            if left <= 0 {
                tidied.more = true;
                return Ok(tidied);
            }
            self.rounds.lock().unwrap_or_else(PoisonError::into_inner).queue = queue.id;
        }
        if i64::try_from(rows.len()).unwrap_or(0) < QUEUES_MAX {
            self.rounds.lock().unwrap_or_else(PoisonError::into_inner).queue = 0;
        } else {
            tidied.more = true;
        }
        Ok(tidied)
    }

    /// Removes lanes of a deleted group.
    async fn tidy_group(
        &self,
        link: &mut Link,
        limit: i64,
        tidied: &mut Tidied,
    ) -> Result<(), Fail> {
        let rows = link.ask(DELETED_GROUP, vec![]).await?;
        let Some(group) = rows.first().map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
        let rows = link.ask(GROUP_LANES, vec![&group, &limit]).await?;
        let gone: i64 = rows.first().map_or(0, |row| row.get(0));
        let rows = link.ask(GROUP_GRANTS, vec![&group, &limit]).await?;
        let grants: i64 = rows.first().map_or(0, |row| row.get(0));
        tidied.rows += unsigned(gone + grants);
        tidied.more = true;
        if gone < limit && grants < limit {
            link.ask(GROUP_SUMS, vec![&group]).await?;
            link.ask(GROUP, vec![&group]).await?;
            tidied.rows += 1;
        }
        Ok(())
    }

    /// Removes partitions of a deleted queue. They are locked, because a push that found the queue
    /// a moment before its end may still be under way.
    async fn tidy_queue(
        &self,
        link: &mut Link,
        limit: i64,
        tidied: &mut Tidied,
    ) -> Result<(), Fail> {
        let rows = link.ask(DELETED_QUEUE, vec![]).await?;
        let Some(queue) = rows.first().map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
        tidied.more = true;
        let lock = Call::Query(LOCK_PARTITIONS, vec![&queue, &PARTITIONS_MAX]);
        let answers = link.send(vec![Call::Begin, lock]).await?;
        let locked = answers.into_iter().nth(1).unwrap_or_default();
        let ids: Vec<i64> = locked.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            let dead = link.ask(QUEUE_DEAD, vec![&queue, &limit]).await?;
            let dead: i64 = dead.first().map_or(0, |row| row.get(0));
            tidied.rows += unsigned(dead);
            let mut calls = vec![Call::Query(QUEUE_GROUPS, vec![&queue])];
            if dead < limit {
                calls.push(Call::Query(QUEUE_SUMS, vec![&queue]));
                calls.push(Call::Query(QUEUE, vec![&queue]));
                tidied.rows += 1;
            }
            calls.push(Call::Commit);
            link.send(calls).await?;
            return Ok(());
        }
        let rows = link.ask(PARTITION_SEGMENTS, vec![&ids, &limit]).await?;
        let (gone, messages): (i64, i64) =
            rows.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
        let rows = link.ask(PARTITION_LATER, vec![&ids, &limit]).await?;
        let later: i64 = rows.first().map_or(0, |row| row.get(0));
        tidied.rows += unsigned(gone + later);
        tidied.messages += unsigned(messages + later);
        let mut calls = Vec::new();
        if gone < limit && later < limit {
            calls.push(Call::Query(PARTITION_LANES, vec![&ids]));
            calls.push(Call::Query(PARTITIONS, vec![&ids]));
            tidied.rows += ids.len() as u64;
        }
        calls.push(Call::Commit);
        link.send(calls).await?;
        Ok(())
    }

    /// Removes what is too old. Tells how many segments it looked at.
    async fn tidy_old(
        &self,
        link: &mut Link,
        queue: &Arc<Queue>,
        now: Time,
        limit: i64,
        tidied: &mut Tidied,
    ) -> Result<i64, Fail> {
        let options = &queue.info.options;
        let ago = |seconds: u32| {
            let on = options.retention_enabled && seconds > 0;
            on.then(|| now - Duration::from_secs(u64::from(seconds)))
        };
        // Somebody may be working on what has expired; that takes a lease at most.
        let expired = queue.rules.lifetime.map(|lifetime| now - lifetime - queue.rules.lease);
        let any = ago(options.retention_seconds).max(expired);
        let completed = ago(options.completed_retention_seconds);
        let known = micros(now - options.dedup_window());
        let past = link.ask(HUSKS, vec![&queue.id, &known, &limit]).await?.len();
        tidied.rows += past as u64;
        let past = i64::try_from(past).unwrap_or(0);
        let floor = Some(queue.rules.floor).filter(|floor| *floor > Time::ZERO);
        let Some(cutoff) = any.max(completed).max(floor).map(micros) else { return Ok(past) };
        let (at, partition, first) = {
            let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.segments.get(&queue.id).copied().unwrap_or((i64::MIN, 0, 0))
        };
        let values: super::link::Values<'_> =
            vec![&queue.id, &cutoff, &at, &partition, &first, &limit];
        let old = link.ask(OLD, values).await?;
        let looked = i64::try_from(old.len()).unwrap_or(0);
        {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            match old.last().filter(|_| looked >= limit) {
                Some(last) => {
                    let place = (last.get(3), last.get(0), last.get(1));
                    rounds.segments.insert(queue.id, place);
                }
                None => drop(rounds.segments.remove(&queue.id)),
            }
        }
        if old.is_empty() {
            return Ok(past);
        }
        let consumed = match completed {
            Some(_) => self.consumed(link, queue.id, &old).await?,
            None => HashMap::new(),
        };
        let leased = match floor {
            Some(_) => self.leased(link, now, &old).await?,
            None => HashMap::new(),
        };
        let (mut gone, mut husks) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for row in &old {
            let (partition, first, at): (i64, i64, i64) = (row.get(0), row.get(1), row.get(3));
            let last = first + i64::from(row.get::<_, i32>(2)) - 1;
            let done = |group: &(Option<i64>, i64)| {
                group.1 >= last || group.0.is_some_and(|start| start > at)
            };
            let all = consumed.get(&partition).is_some_and(|groups| groups.iter().all(done));
            // Somebody may be working on what was cleared away.
            let held = leased.get(&partition).is_some_and(|held| held.0 <= last && first <= held.1);
            let over = any.is_some_and(|any| at < micros(any))
                || (!held && floor.is_some_and(|floor| at < micros(floor)))
                || (all && completed.is_some_and(|completed| at < micros(completed)));
            if over {
                let list = if at >= known { &mut husks } else { &mut gone };
                list.0.push(partition);
                list.1.push(first);
            }
        }
        let answers = link
            .send(vec![
                Call::Begin,
                Call::Query(DELETE, vec![&gone.0, &gone.1]),
                Call::Query(HUSK, vec![&husks.0, &husks.1]),
            ])
            .await?;
        let counts = answers.iter().flatten().map(|row| i64::from(row.get::<_, i32>(0)));
        let removed: i64 = counts.sum();
        let sums = BTreeMap::from([(queue.id, Sums { removed, ..Sums::default() })]);
        let (slot, columns) = (self.slot(), SumColumns::of(&sums));
        link.send(vec![Call::Query(COUNTS, columns.values(&slot)), Call::Commit]).await?;
        tidied.messages += unsigned(removed);
        Ok(looked.max(past))
    }

    /// What somebody works on in each partition: the first and the last number.
    async fn leased(
        &self,
        link: &mut Link,
        now: Time,
        old: &[tokio_postgres::Row],
    ) -> Result<HashMap<i64, (i64, i64)>, Fail> {
        let partitions: BTreeSet<i64> = old.iter().map(|row| row.get(0)).collect();
        let partitions: Vec<i64> = partitions.into_iter().collect();
        let rows = link.ask(LEASED, vec![&partitions, &micros(now)]).await?;
        Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
    }

    /// For each partition every group's start, and its cursor: without a lane it has read nothing.
    async fn consumed(
        &self,
        link: &mut Link,
        queue: i64,
        old: &[tokio_postgres::Row],
    ) -> Result<HashMap<i64, Vec<(Option<i64>, i64)>>, Fail> {
        let groups = link.ask(GROUPS, vec![&queue]).await?;
        let mut partitions: Vec<i64> = old.iter().map(|row| row.get(0)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let ids: Vec<i64> = groups.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let mut cursors: HashMap<(i64, i64), i64> = HashMap::new();
        for row in link.ask(CURSORS, vec![&partitions, &ids]).await? {
            cursors.insert((row.get(0), row.get(1)), row.get(2));
        }
        let of_group = |partition: i64, row: &tokio_postgres::Row| {
            let group: i64 = row.get(0);
            let cursor = cursors.get(&(partition, group)).copied();
            // A lane knows better than the start where its group has come to.
            (row.get::<_, Option<i64>>(1).filter(|_| cursor.is_none()), cursor.unwrap_or(0))
        };
        let of_partition = |partition: i64| {
            (partition, groups.iter().map(|row| of_group(partition, row)).collect())
        };
        Ok(partitions.into_iter().map(of_partition).collect())
    }
}
