//! One batch: everything it reads, changes in memory and writes at its end.
//!
//! ```text
//!   State   what is kept between batches: rows used lately, prints. Belongs to one version
//!   Work    one batch: State, the lanes it touched, the messages it took
//!              job ── changes rows ──┬── done ──► the next job
//!                                    └── refused: everything it changed is put back
//!           at the end every row that is not what it was is written, once
//! ```

use super::clock::{micros, time};
use super::later::Laters;
use super::limits::Sharing;
use super::ready::Ready;
use super::rows::{self, DeadRow, GroupRow, LaneRow, PartitionRow, QueueRow};
use super::segments::{Held, Staged};
use super::table::{Entry, Table};
use super::takes::Taken;
use crate::bodies::Bodies;
use crate::ids::{GroupId, PartitionId, QueueId};
use crate::options::{QueueOptions, QueuesOptions};
use crate::prints::Prints;
use crate::store::{QueueInfo, Wake};
use rusqlite::Connection;
use skep_policy::queues::Start;
use skep_policy::{SeededChance, Time};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Partitions kept in memory, twice at most. The others are one look-up away.
const PARTITIONS_HALF: usize = 32_768;
/// Queues kept in memory, and groups, twice at most.
const NAMES_HALF: usize = 4_096;

/// Where one group reads one partition.
pub(super) type LaneKey = (PartitionId, GroupId);

/// What a partition is called: a queue may have a name several times, in different levels.
pub(super) type PartitionName = (QueueId, Arc<str>, u8);

/// What is kept between batches.
pub(super) struct State {
    /// The version of the database that this belongs to; `None` while a batch is at work, so that
    /// one that ends in a panic leaves nothing that counts.
    version: Option<i64>,
    last_id: i64,
    last_now: Time,
    queues: Table<QueueId, QueueRow>,
    queue_names: Table<Arc<str>, QueueId>,
    partitions: Table<PartitionId, PartitionRow>,
    partition_names: Table<PartitionName, PartitionId>,
    groups: Table<GroupId, GroupRow>,
    group_names: Table<(QueueId, Arc<str>), GroupId>,
    pub(super) prints: Prints,
    pub(super) chance: SeededChance,
}

impl State {
    pub(super) fn new(options: &QueuesOptions, seed: u64) -> Self {
        State {
            version: None,
            last_id: 0,
            last_now: Time::ZERO,
            queues: Table::default(),
            queue_names: Table::default(),
            partitions: Table::default(),
            partition_names: Table::default(),
            groups: Table::default(),
            group_names: Table::default(),
            prints: Prints::new(options.dedup_bytes),
            chance: SeededChance::new(seed),
        }
    }

    fn clear(&mut self) {
        self.queues = Table::default();
        self.queue_names = Table::default();
        self.partitions = Table::default();
        self.partition_names = Table::default();
        self.groups = Table::default();
        self.group_names = Table::default();
        self.prints.clear();
    }

    fn age(&mut self) {
        self.partitions.age(PARTITIONS_HALF);
        self.partition_names.age(PARTITIONS_HALF);
        self.queues.age(NAMES_HALF);
        self.queue_names.age(NAMES_HALF);
        self.groups.age(NAMES_HALF);
        self.group_names.age(NAMES_HALF);
    }
}

/// A lane in this batch.
#[derive(Clone, Debug)]
pub(super) struct LaneSlot {
    pub(super) row: LaneRow,
    /// Whether the database has a row of it.
    stored: bool,
    changed: bool,
}

/// What a refused job changed, as it was before.
enum Undo {
    LastId(i64),
    Queue(QueueId, Option<Entry<QueueRow>>),
    QueueName(Arc<str>),
    Partition(PartitionId, Option<Entry<PartitionRow>>),
    PartitionName(PartitionName),
    Group(GroupId, Option<Entry<GroupRow>>),
    GroupName((QueueId, Arc<str>)),
    Lane(LaneKey, Option<LaneSlot>),
    /// So many messages were staged, and the prints may know of more.
    Staged(PartitionId, usize),
}

/// How long the lists of a batch were when a job began.
#[derive(Default)]
struct Marks {
    dead: usize,
    later: usize,
    taken: usize,
    wakes: usize,
}

/// One batch.
pub(super) struct Work<'batch> {
    pub(super) db: &'batch Connection,
    pub(super) state: &'batch mut State,
    pub(super) bodies: &'batch Bodies,
    pub(super) now: Time,
    pub(super) lanes: BTreeMap<LaneKey, LaneSlot>,
    pub(super) ready: HashMap<GroupId, Ready>,
    pub(super) staged: BTreeMap<PartitionId, Staged>,
    pub(super) dead: Vec<DeadRow>,
    pub(super) later: Laters,
    pub(super) taken: Taken,
    pub(super) sharing: Sharing,
    pub(super) wakes: Vec<Wake>,
    pub(super) held: Option<Held>,
    undo: Vec<Undo>,
    marks: Marks,
    version: i64,
    wrote: bool,
}

impl<'batch> Work<'batch> {
    /// Begins a batch. Forgets what is in memory if it is not what the database has.
    pub(super) fn begin(
        db: &'batch Connection,
        state: &'batch mut State,
        bodies: &'batch Bodies,
        now: Time,
    ) -> rusqlite::Result<Self> {
        let sql = "SELECT version, last_id, now FROM skep_queue_clock";
        let (version, last_id, last_now): (i64, i64, i64) = db
            .prepare_cached(sql)?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if state.version.take() != Some(version) {
            state.clear();
            bodies.clear();
        }
        state.last_id = last_id;
        // Every batch has a time of its own: what one pushed is before what begins in the next.
        state.last_now = now.max(state.last_now.max(time(last_now)) + Duration::from_micros(1));
        let now = state.last_now;
        Ok(Work {
            db,
            state,
            bodies,
            now,
            lanes: BTreeMap::new(),
            ready: HashMap::new(),
            staged: BTreeMap::new(),
            dead: Vec::new(),
            later: Laters::default(),
            taken: Taken::default(),
            sharing: Sharing::default(),
            wakes: Vec::new(),
            held: None,
            undo: Vec::new(),
            marks: Marks::default(),
            version,
            wrote: false,
        })
    }

    /// From here on everything can be put back.
    pub(super) fn begin_job(&mut self) {
        self.undo.clear();
        self.taken.begin_job();
        self.marks = Marks {
            dead: self.dead.len(),
            later: self.later.len(),
            taken: self.taken.len(),
            wakes: self.wakes.len(),
        };
    }

    /// Puts back what was changed since [`Work::begin_job`].
    pub(super) fn undo_job(&mut self) {
        self.dead.truncate(self.marks.dead);
        self.later.truncate(self.marks.later);
        self.taken.truncate(self.marks.taken);
        self.wakes.truncate(self.marks.wakes);
        for undo in std::mem::take(&mut self.undo).into_iter().rev() {
            match undo {
                Undo::LastId(id) => self.state.last_id = id,
                Undo::Queue(id, before) => self.state.queues.restore(id, before),
                Undo::QueueName(name) => self.state.queue_names.remove(&name),
                Undo::Partition(id, before) => self.state.partitions.restore(id, before),
                Undo::PartitionName(name) => self.state.partition_names.remove(&name),
                Undo::Group(id, before) => self.state.groups.restore(id, before),
                Undo::GroupName(name) => self.state.group_names.remove(&name),
                Undo::Lane(key, before) => self.put_lane(key, before),
                Undo::Staged(partition, count) => self.unstage(partition, count),
            }
        }
    }

    /// Writes new messages and what they need, so that claims find them.
    pub(super) fn write_messages(&mut self) -> rusqlite::Result<()> {
        self.wake_lanes()?;
        for (_, row, new) in self.state.queues.take_changed() {
            self.wrote = true;
            rows::write_queue(self.db, &row, new)?;
        }
        for (id, row, new) in self.state.partitions.take_changed() {
            self.wrote = true;
            rows::write_partition(self.db, id, &row, new)?;
        }
        self.write_segments()
    }

    /// Writes everything else, and gives back what to wake.
    pub(super) fn finish(mut self) -> rusqlite::Result<Vec<Wake>> {
        self.write_messages()?;
        for (id, row, new) in self.state.groups.take_changed() {
            self.wrote = true;
            rows::write_group(self.db, id, &row, new)?;
        }
        for (key, slot) in self.lanes.iter().filter(|(_, slot)| slot.changed) {
            self.wrote = true;
            rows::write_lane(self.db, *key, &slot.row, !slot.stored)?;
        }
        for row in &self.dead {
            rows::write_dead(self.db, row)?;
        }
        self.wrote |= self.later.write(self.db)?;
        self.wrote |= self.taken.write(self.db)?;
        self.wrote |= self.sharing.write_grants(self.db)?;
        // A batch that changed nothing costs no sync.
        if self.wrote {
            self.version += 1;
            let sql = "UPDATE skep_queue_clock SET version = ?1, last_id = ?2, now = ?3";
            let now = micros(self.now);
            self.db.prepare_cached(sql)?.execute([self.version, self.state.last_id, now])?;
        }
        self.state.age();
        self.state.version = Some(self.version);
        let mut wakes = std::mem::take(&mut self.wakes);
        wakes.dedup();
        Ok(wakes)
    }

    /// Says that something was written besides.
    pub(super) fn wrote(&mut self) {
        self.wrote = true;
    }

    pub(super) fn next_id(&mut self) -> i64 {
        self.undo.push(Undo::LastId(self.state.last_id));
        self.state.last_id += 1;
        self.state.last_id
    }

    pub(super) fn queue(&mut self, id: QueueId) -> rusqlite::Result<Option<QueueRow>> {
        if let Some(row) = self.state.queues.get(&id) {
            return Ok(Some(row.clone()));
        }
        let found = rows::queue_by_id(self.db, id)?;
        Ok(found.inspect(|row| self.keep_queue(row)))
    }

    pub(super) fn queue_named(&mut self, name: &Arc<str>) -> rusqlite::Result<Option<QueueRow>> {
        if let Some(id) = self.state.queue_names.get(name).copied() {
            return self.queue(id);
        }
        let found = rows::queue_by_name(self.db, name)?;
        Ok(found.inspect(|row| self.keep_queue(row)))
    }

    fn keep_queue(&mut self, row: &QueueRow) {
        // It may be here already, changed and not yet written.
        if self.state.queues.get(&row.info.id).is_none() {
            self.state.queues.put(row.info.id, row.clone());
        }
        self.state.queue_names.put(row.info.name.clone(), row.info.id);
    }

    pub(super) fn change_queue(&mut self, id: QueueId, change: impl FnOnce(&mut QueueRow)) {
        self.undo.push(Undo::Queue(id, self.state.queues.entry(&id)));
        if let Some(row) = self.state.queues.change(&id) {
            change(row);
        }
    }

    /// The queue of this name, made if it is not there.
    pub(super) fn queue_or_new(&mut self, name: &Arc<str>) -> rusqlite::Result<QueueRow> {
        if let Some(row) = self.queue_named(name)? {
            return Ok(row);
        }
        let id = QueueId(self.next_id());
        let (namespace, task) = name.split_once('.').unwrap_or_default();
        let options = Arc::new(QueueOptions::default());
        let row = QueueRow {
            rules: options.rules(),
            limits: None,
            info: QueueInfo {
                id,
                name: name.clone(),
                namespace: namespace.into(),
                task: task.into(),
                options,
                created_at: self.now,
            },
            pushed: 0,
            removed: 0,
            partitions: 0,
            dead: 0,
            later: 0,
            levels: 0,
            newest: PartitionId(0),
            fresh: (Time::ZERO, 0),
        };
        self.undo.push(Undo::Queue(id, None));
        self.undo.push(Undo::QueueName(name.clone()));
        self.state.queues.insert(id, row.clone());
        self.state.queue_names.put(name.clone(), id);
        Ok(row)
    }

    pub(super) fn partition(&mut self, id: PartitionId) -> rusqlite::Result<Option<PartitionRow>> {
        if let Some(row) = self.state.partitions.get(&id) {
            return Ok(Some(row.clone()));
        }
        let found = rows::partition_by_id(self.db, id)?;
        Ok(found.map(|found| self.keep_partition(found).1))
    }

    pub(super) fn partition_named(
        &mut self,
        queue: QueueId,
        name: &Arc<str>,
        level: u8,
    ) -> rusqlite::Result<Option<(PartitionId, PartitionRow)>> {
        let key = (queue, name.clone(), level);
        if let Some(id) = self.state.partition_names.get(&key).copied() {
            return Ok(self.partition(id)?.map(|row| (id, row)));
        }
        let found = rows::partition_by_name(self.db, queue, name, level)?;
        Ok(found.map(|found| self.keep_partition(found)))
    }

    /// Keeps a row that was read, unless a newer one is here; tells which counts.
    pub(super) fn keep_partition(
        &mut self,
        (id, row): (PartitionId, PartitionRow),
    ) -> (PartitionId, PartitionRow) {
        self.state.partition_names.put((row.queue, row.name.clone(), row.level), id);
        if let Some(newer) = self.state.partitions.get(&id) {
            return (id, newer.clone());
        }
        self.state.partitions.put(id, row.clone());
        (id, row)
    }

    pub(super) fn change_partition(
        &mut self,
        id: PartitionId,
        change: impl FnOnce(&mut PartitionRow),
    ) {
        self.undo.push(Undo::Partition(id, self.state.partitions.entry(&id)));
        if let Some(row) = self.state.partitions.change(&id) {
            change(row);
        }
    }

    /// The partition of this name and level, made if it is not there.
    pub(super) fn partition_or_new(
        &mut self,
        queue: QueueId,
        name: &Arc<str>,
        level: u8,
    ) -> rusqlite::Result<(PartitionId, PartitionRow)> {
        if let Some(found) = self.partition_named(queue, name, level)? {
            return Ok(found);
        }
        let id = PartitionId(self.next_id());
        let row = PartitionRow {
            queue,
            name: name.clone(),
            level,
            tail: 0,
            last_push: Time::ZERO,
            created_at: self.now,
        };
        let key = (queue, name.clone(), level);
        self.undo.push(Undo::Partition(id, None));
        self.undo.push(Undo::PartitionName(key.clone()));
        self.state.partitions.insert(id, row.clone());
        self.state.partition_names.put(key, id);
        self.change_queue(queue, |row| {
            row.partitions += 1;
            row.newest = id;
            row.add_level(level);
        });
        Ok((id, row))
    }

    pub(super) fn group(&mut self, id: GroupId) -> rusqlite::Result<Option<GroupRow>> {
        if let Some(row) = self.state.groups.get(&id) {
            return Ok(Some(row.clone()));
        }
        let found = rows::group_by_id(self.db, id)?;
        Ok(found.map(|found| self.keep_group(found).1))
    }

    pub(super) fn group_named(
        &mut self,
        queue: QueueId,
        name: &Arc<str>,
    ) -> rusqlite::Result<Option<(GroupId, GroupRow)>> {
        let key = (queue, name.clone());
        if let Some(id) = self.state.group_names.get(&key).copied() {
            return Ok(self.group(id)?.map(|row| (id, row)));
        }
        let found = rows::group_by_name(self.db, queue, name)?;
        Ok(found.map(|found| self.keep_group(found)))
    }

    fn keep_group(&mut self, (id, row): (GroupId, GroupRow)) -> (GroupId, GroupRow) {
        self.state.group_names.put((row.queue, row.name.clone()), id);
        if let Some(newer) = self.state.groups.get(&id) {
            return (id, newer.clone());
        }
        self.state.groups.put(id, row.clone());
        (id, row)
    }

    pub(super) fn change_group(&mut self, id: GroupId, change: impl FnOnce(&mut GroupRow)) {
        self.undo.push(Undo::Group(id, self.state.groups.entry(&id)));
        if let Some(row) = self.state.groups.change(&id) {
            change(row);
        }
    }

    /// Makes a group that begins at `start`, or now.
    pub(super) fn new_group(
        &mut self,
        queue: &QueueRow,
        name: &Arc<str>,
        start: Option<Start>,
    ) -> (GroupId, GroupRow) {
        let id = GroupId(self.next_id());
        let start = match start {
            None => Some(self.now),
            Some(Start::All) => None,
            Some(Start::From(from)) => Some(time(micros(from))),
        };
        // Whoever begins now is past everything there is, without looking at each partition.
        let past = start.is_some_and(|start| start >= self.now);
        let settled = if past { queue.pushed_before(self.now) } else { 0 };
        let row = GroupRow {
            queue: queue.info.id,
            name: name.clone(),
            start,
            frontier: PartitionId(0),
            settled: super::clock::signed(settled),
            lanes: 0,
            created_at: self.now,
            counted: None,
        };
        let key = (row.queue, name.clone());
        self.undo.push(Undo::Group(id, None));
        self.undo.push(Undo::GroupName(key.clone()));
        self.state.groups.insert(id, row.clone());
        self.state.group_names.put(key, id);
        (id, row)
    }

    /// Groups of this queue that are not written yet.
    pub(super) fn new_groups(&self, queue: QueueId) -> impl Iterator<Item = &GroupRow> {
        self.state.groups.new_rows().filter(move |row| row.queue == queue)
    }

    /// Forgets what is known of a queue, because it is being deleted or changed from outside.
    pub(super) fn forget_queue(&mut self, id: QueueId, name: &str) {
        self.state.queues.remove(&id);
        self.state.queue_names.remove(name);
    }

    /// Forgets what is known of a group, because it is being deleted.
    pub(super) fn forget_group(&mut self, id: GroupId, row: &GroupRow) {
        self.state.groups.remove(&id);
        self.state.group_names.remove(&(row.queue, row.name.clone()));
    }

    /// Forgets a partition that is being deleted.
    pub(super) fn forget_partition(&mut self, id: PartitionId, row: &PartitionRow) {
        self.state.partitions.remove(&id);
        self.state.partition_names.remove(&(row.queue, row.name.clone(), row.level));
        self.state.prints.forget(id);
    }

    pub(super) fn note_staged(&mut self, partition: PartitionId, count: usize) {
        self.undo.push(Undo::Staged(partition, count));
    }

    /// The lane, if there is one.
    pub(super) fn lane(&mut self, key: LaneKey) -> rusqlite::Result<Option<LaneRow>> {
        if let Some(slot) = self.lanes.get(&key) {
            return Ok(Some(slot.row.clone()));
        }
        let found = rows::lane(self.db, key.0, key.1)?;
        Ok(found.inspect(|row| self.keep_lane(key, row.clone())))
    }

    /// Keeps a lane that was read.
    pub(super) fn keep_lane(&mut self, key: LaneKey, row: LaneRow) {
        self.put_lane(key, Some(LaneSlot { row, stored: true, changed: false }));
    }

    pub(super) fn set_lane(&mut self, key: LaneKey, row: LaneRow) {
        let before = self.lanes.get(&key);
        if before.is_some_and(|slot| slot.row == row) {
            return;
        }
        let stored = before.is_some_and(|slot| slot.stored);
        self.undo.push(Undo::Lane(key, before.cloned()));
        self.put_lane(key, Some(LaneSlot { row, stored, changed: true }));
    }

    /// Every change of a lane comes by here, so that [`Ready`] and what is in flight are in step.
    fn put_lane(&mut self, key: LaneKey, slot: Option<LaneSlot>) {
        if let Some(flight) = self.sharing.flights.get_mut(&key.1) {
            flight.put(key.0, slot.as_ref().map(|slot| &slot.row), self.now);
        }
        if let Some(ready) = self.ready.get_mut(&key.1) {
            if let Some(before) = self.lanes.get(&key) {
                ready.remove(before.row.ready_at, key.0);
            }
            if let Some(slot) = &slot {
                ready.insert(slot.row.ready_at, key.0, self.now);
            }
        }
        match slot {
            Some(slot) => drop(self.lanes.insert(key, slot)),
            None => drop(self.lanes.remove(&key)),
        }
    }
}
