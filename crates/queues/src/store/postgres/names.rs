//! What names stand for, as this node remembers it.
//!
//! The numbers behind names never change, but a name can be taken away and given to another queue
//! or group. So whoever uses what is remembered here reads the row in the same transaction too,
//! and if it is not there any more, has it forgotten and begins anew.

use super::link::{Fail, Link};
use super::rows::time;
use crate::ids::QueueId;
use crate::options::QueueOptions;
use crate::store::QueueInfo;
use skep_policy::queues::{Limits, Rules};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::Row;

/// Names that are remembered at most; then all are forgotten.
const REMEMBERED_MAX: usize = 1 << 16;

/// A queue, with what is made of its options.
#[derive(Debug)]
pub(super) struct Queue {
    pub id: i64,
    pub info: QueueInfo,
    pub rules: Rules,
    /// What a group may have of it, if that is limited.
    pub limits: Option<Limits>,
    /// Bit n: it has partitions of level n. Level 0 is not told.
    pub levels: i32,
    /// The options as they are kept, to see whether they have changed.
    text: String,
}

/// The columns of [`Names::queue`].
macro_rules! queue_columns {
    () => {
        "q.id, q.name, q.namespace, q.task, q.options, q.created_at, q.cleared_at, q.levels"
    };
}
pub(super) use queue_columns;
/// How many they are.
pub(super) const QUEUE_COLUMNS: usize = 8;

#[derive(Default)]
pub(super) struct Names {
    inner: Mutex<Inner>,
}

/// The levels of a partition, with their numbers.
type Levels = Vec<(u8, i64)>;

#[derive(Default)]
struct Inner {
    queues: HashMap<i64, Arc<Queue>>,
    by_name: HashMap<Arc<str>, i64>,
    /// By queue and name.
    partitions: HashMap<i64, HashMap<Arc<str>, Levels>>,
    groups: HashMap<i64, HashMap<Arc<str>, i64>>,
    remembered: usize,
}

impl Names {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue's row, from [`QUEUE_COLUMNS`].
    pub(super) fn queue(&self, row: &Row, column: usize) -> Arc<Queue> {
        let (id, text): (i64, &str) = (row.get(column), row.get(column + 4));
        let (namespace, task): (&str, &str) = (row.get(column + 2), row.get(column + 3));
        let (floor, levels) = (time(row.get(column + 6)), row.get(column + 7));
        let mut inner = self.inner();
        if let Some(queue) = inner.queues.get(&id) {
            let info = &queue.info;
            let same = queue.text == text && &*info.namespace == namespace && &*info.task == task;
            if same && queue.rules.floor == floor && queue.levels == levels {
                return queue.clone();
            }
        }
        let options: QueueOptions = serde_json::from_str(text).unwrap_or_default();
        let limits = options.limits();
        let name: Arc<str> = row.get::<_, &str>(column + 1).into();
        let queue = Arc::new(Queue {
            id,
            rules: Rules { floor, ..options.rules() },
            limits: limits.any().then_some(limits),
            levels,
            info: QueueInfo {
                id: QueueId(id),
                name: name.clone(),
                namespace: namespace.into(),
                task: task.into(),
                options: Arc::new(options),
                created_at: time(row.get(column + 5)),
            },
            text: text.to_owned(),
        });
        inner.make_room();
        inner.queues.insert(id, queue.clone());
        inner.by_name.insert(name, id);
        queue
    }

    /// A queue that was seen before.
    pub(super) fn seen(&self, id: i64) -> Option<Arc<Queue>> {
        self.inner().queues.get(&id).cloned()
    }

    /// A queue that was seen before, by its name.
    pub(super) fn seen_as(&self, name: &str) -> Option<Arc<Queue>> {
        let inner = self.inner();
        inner.queues.get(inner.by_name.get(name)?).cloned()
    }

    /// The partition of this place, with its queue.
    pub(super) fn partition(&self, place: &Place) -> Option<(i64, i64)> {
        let inner = self.inner();
        let queue = *inner.by_name.get(&place.0)?;
        let levels = inner.partitions.get(&queue)?.get(&place.1)?;
        Some((queue, levels.iter().find(|one| one.0 == place.2)?.1))
    }

    pub(super) fn learn_partition(&self, queue: i64, place: &Place, id: i64) {
        let mut inner = self.inner();
        inner.make_room();
        inner.by_name.insert(place.0.clone(), queue);
        let names = inner.partitions.entry(queue).or_default();
        let levels = names.entry(place.1.clone()).or_default();
        levels.retain(|one| one.0 != place.2);
        levels.push((place.2, id));
    }

    pub(super) fn learn_queue(&self, name: &Arc<str>, id: i64) {
        self.inner().by_name.insert(name.clone(), id);
    }

    /// The group of these names.
    pub(super) fn group(&self, queue: &str, group: &str) -> Option<i64> {
        let inner = self.inner();
        inner.groups.get(inner.by_name.get(queue)?)?.get(group).copied()
    }

    pub(super) fn learn_group(&self, queue: i64, name: &Arc<str>, id: i64) {
        let mut inner = self.inner();
        inner.make_room();
        inner.groups.entry(queue).or_default().insert(name.clone(), id);
    }

    pub(super) fn forget_group(&self, queue: &str, group: &str) {
        let mut inner = self.inner();
        let Some(id) = inner.by_name.get(queue).copied() else { return };
        if let Some(groups) = inner.groups.get_mut(&id) {
            groups.remove(group);
        }
    }

    pub(super) fn forget_queue(&self, id: i64) {
        let mut inner = self.inner();
        inner.queues.remove(&id);
        inner.partitions.remove(&id);
        inner.groups.remove(&id);
        inner.by_name.retain(|_, queue| *queue != id);
    }
}

impl Inner {
    fn make_room(&mut self) {
        self.remembered += 1;
        if self.remembered > REMEMBERED_MAX {
            *self = Inner::default();
        }
    }
}

/// Names of a queue and a partition, and the partition's level.
pub(super) type Place = (Arc<str>, Arc<str>, u8);

pub(super) const FIND: &str = "
    SELECT w.n, q.id, p.id
    FROM unnest($1::text[], $2::text[], $3::smallint[]) WITH ORDINALITY
        AS w (queue, partition, level, n)
    CROSS JOIN LATERAL (
        SELECT id FROM skep_queues WHERE name = w.queue AND NOT deleted LIMIT 1) q
    LEFT JOIN LATERAL (
        SELECT id FROM skep_queue_partitions
        WHERE queue = q.id AND name = w.partition AND level = w.level LIMIT 1) p ON TRUE";

/// The partitions of these names that there are: queue and partition.
pub(super) async fn find(
    names: &Names,
    link: &mut Link,
    places: &BTreeSet<Place>,
) -> Result<HashMap<Place, (i64, i64)>, Fail> {
    let mut found = HashMap::with_capacity(places.len());
    let mut unknown = Vec::new();
    for place in places {
        match names.partition(place) {
            Some(ids) => drop(found.insert(place.clone(), ids)),
            None => unknown.push(place),
        }
    }
    if unknown.is_empty() {
        return Ok(found);
    }
    let queues: Vec<&str> = unknown.iter().map(|place| &*place.0).collect();
    let partitions: Vec<&str> = unknown.iter().map(|place| &*place.1).collect();
    let levels: Vec<i16> = unknown.iter().map(|place| i16::from(place.2)).collect();
    for row in link.ask(FIND, vec![&queues, &partitions, &levels]).await? {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).ok().and_then(|n| unknown.get(n));
        if let (Some(place), Some(id)) = (place, row.get::<_, Option<i64>>(2)) {
            let queue: i64 = row.get(1);
            names.learn_partition(queue, place, id);
            found.insert((*place).clone(), (queue, id));
        }
    }
    Ok(found)
}

/// What stands before and after the first dot.
pub(super) fn kind_of(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or(("", ""))
}

/// Whether messages of such a queue are ever deleted for their age.
pub(super) fn ages(options: &QueueOptions) -> bool {
    let kept = options.retention_seconds > 0 || options.completed_retention_seconds > 0;
    (options.retention_enabled && kept) || options.rules().lifetime.is_some()
}

const MAKE_QUEUES: &str = "
    INSERT INTO skep_queues (name, namespace, task, options, priority, ages, created_at)
    SELECT w.name, w.namespace, w.task, $4, $5, $6,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM unnest($1::text[], $2::text[], $3::text[]) AS w (name, namespace, task)
    ORDER BY w.name
    ON CONFLICT (name) WHERE NOT deleted DO NOTHING
    RETURNING id";
const LOCK_QUEUES: &str = "
    SELECT id, name FROM skep_queues WHERE name = ANY($1) AND NOT deleted
    ORDER BY id FOR UPDATE";
const MAKE_PARTITIONS: &str = "
    INSERT INTO skep_queue_partitions (queue, name, level, tail, last_push, created_at)
    SELECT w.queue, w.name, w.level, 0, 0,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM unnest($1::bigint[], $2::text[], $3::smallint[]) AS w (queue, name, level)
    ON CONFLICT (queue, name, level) DO NOTHING
    RETURNING id, queue, level";
const FIND_PARTITIONS: &str = "
    SELECT p.id, p.queue, p.name, p.level
    FROM unnest($1::bigint[], $2::text[], $3::smallint[]) AS w (queue, name, level)
    JOIN skep_queue_partitions p
        ON p.queue = w.queue AND p.name = w.name AND p.level = w.level";
/// Tells of levels that a queue had not; its row is locked.
const LEARN_LEVELS: &str = "
    UPDATE skep_queues q SET levels = q.levels | w.bits
    FROM unnest($1::bigint[], $2::integer[]) AS w (queue, bits)
    WHERE q.id = w.queue AND q.levels & w.bits <> w.bits";

/// What a transaction has made so far, to be taken away again if nothing needs it.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub queues: BTreeSet<i64>,
    /// With their queues.
    pub partitions: HashMap<i64, i64>,
}

/// Makes what is not there, in an open transaction that has locked nothing yet, and adds it to
/// `found`. Locks the queues of it, and those named by `also`.
pub(super) async fn make(
    link: &mut Link,
    missing: &[Place],
    also: &[Arc<str>],
    found: &mut HashMap<Place, (i64, i64)>,
) -> Result<Made, Fail> {
    let mut made = Made::default();
    let names: BTreeSet<&str> = missing.iter().map(|place| &*place.0).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let (namespaces, tasks): (Vec<&str>, Vec<&str>) =
        names.iter().map(|name| kind_of(name)).unzip();
    let options = QueueOptions::default();
    let text = options_text(&options);
    let values: super::link::Values<'_> =
        vec![&names, &namespaces, &tasks, &text, &options.priority, &false];
    // In the order of their names, and before any lock: two who make the same do not cross.
    made.queues = link.ask(MAKE_QUEUES, values).await?.iter().map(|row| row.get(0)).collect();
    let all: Vec<&str> = names.iter().copied().chain(also.iter().map(|name| &**name)).collect();
    let locked = link.ask(LOCK_QUEUES, vec![&all]).await?;
    let ids: HashMap<&str, i64> = locked.iter().map(|row| (row.get(1), row.get(0))).collect();
    let wanted: Vec<(&Place, i64)> = missing
        .iter()
        .map(|place| ids.get(&*place.0).map(|id| (place, *id)).ok_or(Fail::Stale))
        .collect::<Result<_, _>>()?;
    let queues: Vec<i64> = wanted.iter().map(|one| one.1).collect();
    let partitions: Vec<&str> = wanted.iter().map(|one| &*one.0.1).collect();
    let levels: Vec<i16> = wanted.iter().map(|one| i16::from(one.0.2)).collect();
    let new = link.ask(MAKE_PARTITIONS, vec![&queues, &partitions, &levels]).await?;
    made.partitions = new.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut bits: BTreeMap<i64, i32> = BTreeMap::new();
    for row in new.iter().filter(|row| row.get::<_, i16>(2) > 0) {
        *bits.entry(row.get(1)).or_default() |= 1 << row.get::<_, i16>(2);
    }
    if !bits.is_empty() {
        let (ids, bits): (Vec<i64>, Vec<i32>) = bits.into_iter().unzip();
        link.ask(LEARN_LEVELS, vec![&ids, &bits]).await?;
    }
    let mut rows: HashMap<(i64, String, i16), i64> = HashMap::new();
    for row in link.ask(FIND_PARTITIONS, vec![&queues, &partitions, &levels]).await? {
        rows.insert((row.get(1), row.get(2), row.get(3)), row.get(0));
    }
    for (place, queue) in wanted {
        let row = (queue, place.1.to_string(), i16::from(place.2));
        let id = rows.get(&row).ok_or(Fail::Stale)?;
        found.insert(place.clone(), (queue, *id));
    }
    Ok(made)
}

pub(super) fn options_text(options: &QueueOptions) -> String {
    serde_json::to_string(options).unwrap_or_else(|_| "{}".to_owned())
}

/// Remembers a queue that was configured, with its default partition.
pub(super) fn learned(names: &Names, queue: &Queue, partition: i64) {
    let place = (queue.info.name.clone(), crate::store::DEFAULT_PARTITION.into(), 0);
    names.learn_partition(queue.id, &place, partition);
}
