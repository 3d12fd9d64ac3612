//! Writing what was decided, and the commit.

use super::Shared;
use super::blocked::Ends;
use super::desk::{Desk, Shelf};
use super::later::LaterColumns;
use super::link::{Call, Fail, Link, Values};
use super::rows::{Held, LaneColumns, micros, signed};
use crate::ids::PartitionId;
use crate::store::{SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX, Wake};
use bytes::{Bytes, BytesMut};
use skep_policy::queues::Run;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Longer notices name no queue, which means any.
const NOTICE_MAX: usize = 4_000;

pub(super) const SEGMENTS: &str = "
    INSERT INTO skep_queue_segments (partition, first, count, at, queue, prints, body)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[], $5::bigint[],
                         $6::bytea[], $7::bytea[])";
const PARTITIONS: &str = "
    UPDATE skep_queue_partitions p SET tail = n.tail, last_push = n.last_push
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n (id, tail, last_push)
    WHERE p.id = n.id";
pub(super) const LANES: &str = "
    UPDATE skep_queue_lanes l SET
        cursor = n.cursor, ready_at = n.ready_at, lease = n.lease, lease_until = n.lease_until,
        lease_through = n.lease_through, ended = n.ended, failures = n.failures,
        failed_through = n.failed_through, not_before = n.not_before,
        leased_key = n.leased_key, blocked_key = n.blocked_key
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[],
                $7::bigint[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[],
                $12::text[], $13::text[])
        AS n (partition, grp, cursor, ready_at, lease, lease_until, lease_through, ended, failures,
              failed_through, not_before, leased_key, blocked_key)
    WHERE l.partition = n.partition AND l.grp = n.grp";
pub(super) const COUNTS: &str = "
    INSERT INTO skep_queue_counts AS c (queue, slot, pushed, removed, partitions, dead, later)
    SELECT n.queue, $1, n.pushed, n.removed, n.partitions, n.dead, n.later
    FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[])
        AS n (queue, pushed, removed, partitions, dead, later)
    ORDER BY n.queue
    ON CONFLICT (queue, slot) DO UPDATE SET
        pushed = c.pushed + excluded.pushed, removed = c.removed + excluded.removed,
        partitions = c.partitions + excluded.partitions, dead = c.dead + excluded.dead,
        later = c.later + excluded.later";
pub(super) const GROUP_COUNTS: &str = "
    INSERT INTO skep_queue_group_counts AS c (grp, slot, settled)
    SELECT n.grp, $1, n.settled FROM unnest($2::bigint[], $3::bigint[]) AS n (grp, settled)
    ORDER BY n.grp
    ON CONFLICT (grp, slot) DO UPDATE SET settled = c.settled + excluded.settled";
pub(super) const DEAD: &str = "
    INSERT INTO skep_queue_dead
        (queue, partition, grp, record, created_at, failed_at, failures, error)
    SELECT n.queue, n.partition, n.grp, n.record, n.created_at, $8, n.failures, n.error
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[],
                $7::text[])
        AS n (queue, partition, grp, record, created_at, failures, error)";
const UNMAKE_PARTITIONS: &str = "DELETE FROM skep_queue_partitions WHERE id = ANY($1)";
const UNMAKE_QUEUES: &str = "DELETE FROM skep_queues WHERE id = ANY($1)";
pub(super) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// What is added to a queue's sums.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub pushed: i64,
    pub removed: i64,
    pub partitions: i64,
    pub dead: i64,
    pub later: i64,
}

/// Sums to be added, column by column.
#[derive(Default)]
pub(super) struct SumColumns {
    queues: Vec<i64>,
    pushed: Vec<i64>,
    removed: Vec<i64>,
    partitions: Vec<i64>,
    dead: Vec<i64>,
    later: Vec<i64>,
}

impl SumColumns {
    pub(super) fn of(sums: &BTreeMap<i64, Sums>) -> Self {
        let column = |of: fn(&Sums) -> i64| sums.values().map(of).collect();
        SumColumns {
            queues: sums.keys().copied().collect(),
            pushed: column(|sums| sums.pushed),
            removed: column(|sums| sums.removed),
            partitions: column(|sums| sums.partitions),
            dead: column(|sums| sums.dead),
            later: column(|sums| sums.later),
        }
    }

    pub(super) fn values<'value>(&'value self, slot: &'value i16) -> Values<'value> {
        vec![
            slot,
            &self.queues,
            &self.pushed,
            &self.removed,
            &self.partitions,
            &self.dead,
            &self.later,
        ]
    }
}

/// Segments to be kept, column by column.
#[derive(Default)]
struct SegmentColumns {
    partitions: Vec<i64>,
    firsts: Vec<i64>,
    counts: Vec<i32>,
    ats: Vec<i64>,
    queues: Vec<i64>,
    prints: Vec<Vec<u8>>,
    bodies: Vec<Bytes>,
}

impl SegmentColumns {
    /// Cuts a partition's new messages into segments.
    fn add(&mut self, partition: i64, shelf: &Shelf, at: i64) {
        let mut first = shelf.tail + 1;
        let mut rest = shelf.new.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(SEGMENT_MESSAGES_MAX).take_while(|fresh| {
                let alone = bytes == 0;
                bytes += fresh.record.len();
                alone || bytes <= SEGMENT_BYTES_MAX
            });
            let (taken, after) = rest.split_at(fits.count().max(1));
            rest = after;
            let length = taken.iter().map(|fresh| fresh.record.len()).sum();
            let mut body = BytesMut::with_capacity(length);
            let mut prints = Vec::with_capacity(8 * taken.len());
            for fresh in taken {
                body.extend_from_slice(&fresh.record);
                prints.extend_from_slice(&fresh.print.to_le_bytes());
            }
            self.partitions.push(partition);
            self.firsts.push(signed(first));
            self.counts.push(i32::try_from(taken.len()).unwrap_or(i32::MAX));
            self.ats.push(at);
            self.queues.push(shelf.queue.id);
            self.prints.push(prints);
            self.bodies.push(body.freeze());
            first += taken.len() as u64;
        }
    }
}

/// Writes and commits. Returns who should look.
pub(super) async fn write(
    shared: &Shared,
    link: &mut Link,
    mut desk: Desk,
) -> Result<Vec<Wake>, Fail> {
    let now = desk.now;
    let mut segments = SegmentColumns::default();
    let mut sums: BTreeMap<i64, Sums> = BTreeMap::new();
    let (mut tails, mut pushes) = (Vec::new(), Vec::new());
    let mut partitions = Vec::new();
    for (id, shelf) in desk.shelves.iter().filter(|(_, shelf)| !shelf.new.is_empty()) {
        let at = micros(shelf.at(now));
        segments.add(*id, shelf, at);
        partitions.push(*id);
        tails.push(signed(shelf.tail) + i64::try_from(shelf.new.len()).unwrap_or(0));
        pushes.push(at);
        sums.entry(shelf.queue.id).or_default().pushed +=
            i64::try_from(shelf.new.len()).unwrap_or(0);
    }
    for later in desk.later.all() {
        sums.entry(later.queue).or_default().later += 1;
    }
    let mut unused = Vec::new();
    for (id, queue) in &desk.made.partitions {
        match desk.is_used(*id) {
            true => sums.entry(*queue).or_default().partitions += 1,
            false => unused.push(*id),
        }
    }
    let unused_queues: Vec<i64> =
        desk.made.queues.iter().filter(|id| !sums.contains_key(*id)).copied().collect();
    for dead in &desk.dead {
        sums.entry(dead.queue).or_default().dead += 1;
    }
    let taken = desk.rows.taken(&mut sums);
    let (wakes, notice, mut ends) = ready(&mut desk);
    let freed = ends.freed();
    let lanes = LaneColumns::of(desk.lanes.values().filter(|held| held.changed()));
    let (groups, settled) = passed(desk.lanes.values());
    let slot = shared.slot();
    let columns = SumColumns::of(&sums);
    let dead = DeadColumns::of(&desk);
    let later = LaterColumns::of(desk.later.all());
    let failed_at = micros(now);
    let prints: Vec<&[u8]> = segments.prints.iter().map(Vec::as_slice).collect();
    let bodies: Vec<&[u8]> = segments.bodies.iter().map(|body| &**body).collect();
    let mut calls: Vec<Call<'_>> = freed.lock().into_iter().collect();
    calls.push(Call::Unhurried);
    if !partitions.is_empty() {
        let values: Values<'_> = vec![
            &segments.partitions,
            &segments.firsts,
            &segments.counts,
            &segments.ats,
            &segments.queues,
            &prints,
            &bodies,
        ];
        calls.push(Call::Query(SEGMENTS, values));
        calls.push(Call::Query(PARTITIONS, vec![&partitions, &tails, &pushes]));
    }
    if !lanes.is_empty() {
        calls.push(Call::Query(LANES, lanes.values()));
    }
    let let_go = calls.len();
    calls.extend(freed.calls());
    if !desk.dead.is_empty() {
        calls.push(Call::Query(DEAD, dead.values(&failed_at)));
    }
    if !desk.later.all().is_empty() {
        calls.push(later.call());
    }
    calls.extend(taken.calls());
    if !unused.is_empty() {
        calls.push(Call::Query(UNMAKE_PARTITIONS, vec![&unused]));
    }
    if !unused_queues.is_empty() {
        calls.push(Call::Query(UNMAKE_QUEUES, vec![&unused_queues]));
    }
    if !sums.is_empty() {
        calls.push(Call::Query(COUNTS, columns.values(&slot)));
    }
    if !groups.is_empty() {
        calls.push(Call::Query(GROUP_COUNTS, vec![&slot, &groups, &settled]));
    }
    if let Some(notice) = &notice {
        calls.push(Call::Query(NOTIFY, vec![&super::CHANNEL, notice]));
    }
    calls.push(Call::Commit);
    let answers = link.send(calls).await?;
    if !freed.is_empty() {
        shared.leave(freed.errands(&answers[let_go], &answers[let_go + 1]));
    }
    remember(shared, &desk, &segments);
    Ok(wakes)
}

/// Sets when lanes are ready. Returns who should look on this node, and what is said to others.
fn ready(desk: &mut Desk) -> (Vec<Wake>, Option<String>, Ends) {
    let now = desk.now;
    let mut wakes = Vec::new();
    let mut notices: BTreeSet<Arc<str>> = BTreeSet::new();
    let names: HashMap<(i64, i64), Arc<str>> =
        desk.by_group.iter().map(|((_, name), key)| (*key, name.clone())).collect();
    let mut read: HashSet<i64> = HashSet::new();
    let mut ends = Ends::default();
    for (key, held) in &mut desk.lanes {
        read.insert(key.0);
        let Some(shelf) = desk.shelves.get(&key.0) else { continue };
        let pushed = !shelf.new.is_empty();
        let drained = held.ready_at.is_none();
        let woken = pushed && drained;
        if !held.changed() && !woken {
            continue;
        }
        let mut runs = desk.runs.get(key).cloned().unwrap_or_default();
        let count = u32::try_from(shelf.new.len()).unwrap_or(u32::MAX);
        let (tail, mut last_push) = (shelf.tail + u64::from(count), shelf.last_push);
        if pushed {
            last_push = shelf.at(now);
            runs.push(Run { first: shelf.tail + 1, count, at: last_push });
        }
        held.set_ready(now, &shelf.queue.rules, &runs, tail, last_push);
        if let (Some(freed), Some(name)) = (held.freed(), names.get(key)) {
            ends.add(&shelf.queue, (key.1, name, &shelf.name), freed, now);
        }
        // Given back, or left over when its lease ended: somebody at another node may wait for it
        // too.
        if held.is_sooner() {
            notices.insert(shelf.queue.info.name.clone());
        }
        if held.is_sooner() && !pushed {
            wakes.push(wake(shelf, names.get(key).cloned()));
        }
    }
    for (id, shelf) in desk.shelves.iter().filter(|(_, shelf)| !shelf.new.is_empty()) {
        wakes.push(wake(shelf, None));
        if !read.contains(id) {
            notices.insert(shelf.queue.info.name.clone());
        }
    }
    notices.append(&mut ends.queues);
    wakes.append(&mut ends.wakes);
    (wakes, notice(&notices), ends)
}

pub(super) fn notice(queues: &BTreeSet<Arc<str>>) -> Option<String> {
    if queues.is_empty() {
        return None;
    }
    let names: Vec<&str> = queues.iter().map(|name| &**name).collect();
    Some(Some(names.join("\n")).filter(|text| text.len() <= NOTICE_MAX).unwrap_or_default())
}

fn wake(shelf: &Shelf, group: Option<Arc<str>>) -> Wake {
    let info = &shelf.queue.info;
    Wake {
        queue: info.name.clone(),
        namespace: info.namespace.clone(),
        task: info.task.clone(),
        partition: shelf.name.clone(),
        group,
    }
}

/// After the commit: what was pushed is likely to be asked for soon.
fn remember(shared: &Shared, desk: &Desk, segments: &SegmentColumns) {
    for (place, (queue, partition)) in &desk.places {
        if desk.is_used(*partition) || !desk.made.partitions.contains_key(partition) {
            shared.names.learn_partition(*queue, place, *partition);
        }
    }
    let mut prints = shared.prints();
    for (id, shelf) in desk.shelves.iter().filter(|(_, shelf)| !shelf.new.is_empty()) {
        let partition = PartitionId(*id);
        let window = shelf.queue.info.options.dedup_window();
        match prints.known_through(partition) {
            None if shelf.tail == 0 => prints.begin(partition, 0),
            Some(known) if known == shelf.tail => {}
            _ => continue,
        }
        let new = shelf.new.iter().map(|fresh| fresh.print);
        prints.add(partition, shelf.tail + 1, new, shelf.at(desk.now), window);
    }
    drop(prints);
    let keys = segments.partitions.iter().zip(&segments.firsts);
    for ((partition, first), body) in keys.zip(&segments.bodies) {
        let first = super::rows::unsigned(*first);
        shared.bodies.put((PartitionId(*partition), first), body.clone());
    }
}

/// Dead letters, column by column.
struct DeadColumns<'desk> {
    queues: Vec<i64>,
    partitions: Vec<i64>,
    groups: Vec<&'desk str>,
    records: Vec<&'desk [u8]>,
    created: Vec<i64>,
    failures: Vec<i64>,
    errors: Vec<Option<&'desk str>>,
}

impl<'desk> DeadColumns<'desk> {
    fn of(desk: &'desk Desk) -> Self {
        let dead = &desk.dead;
        DeadColumns {
            queues: dead.iter().map(|one| one.queue).collect(),
            partitions: dead.iter().map(|one| one.partition).collect(),
            groups: dead.iter().map(|one| &*one.group).collect(),
            records: dead.iter().map(|one| &*one.record).collect(),
            created: dead.iter().map(|one| micros(one.created_at)).collect(),
            failures: dead.iter().map(|one| i64::from(one.failures)).collect(),
            errors: dead.iter().map(|one| one.error.as_deref()).collect(),
        }
    }

    fn values<'value>(&'value self, failed_at: &'value i64) -> Values<'value> {
        vec![
            &self.queues,
            &self.partitions,
            &self.groups,
            &self.records,
            &self.created,
            &self.failures,
            &self.errors,
            failed_at,
        ]
    }
}

/// Groups, and how many messages their lanes have passed.
pub(super) fn passed<'held>(lanes: impl Iterator<Item = &'held Held>) -> (Vec<i64>, Vec<i64>) {
    let mut passed: BTreeMap<i64, i64> = BTreeMap::new();
    for held in lanes.filter(|held| held.advanced() != 0) {
        *passed.entry(held.group).or_default() += held.advanced();
    }
    passed.into_iter().unzip()
}
