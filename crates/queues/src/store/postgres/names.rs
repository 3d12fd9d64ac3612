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
use skep_policy::queues::Rules;
use std::collections::{BTreeSet, HashMap};
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
    /// The options as they are kept, to see whether they have changed.
    text: String,
}

/// The columns of [`Names::queue`].
macro_rules! queue_columns {
    () => {
        "q.id, q.name, q.namespace, q.task, q.options, q.created_at"
    };
}
pub(super) use queue_columns;

#[derive(Default)]
pub(super) struct Names {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    queues: HashMap<i64, Arc<Queue>>,
    by_name: HashMap<Arc<str>, i64>,
    /// By queue and name.
    partitions: HashMap<i64, HashMap<Arc<str>, i64>>,
    groups: HashMap<i64, HashMap<Arc<str>, i64>>,
    remembered: usize,
}

impl Names {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue's row, from six columns.
    pub(super) fn queue(&self, row: &Row, column: usize) -> Arc<Queue> {
        let (id, text): (i64, &str) = (row.get(column), row.get(column + 4));
        let (namespace, task): (&str, &str) = (row.get(column + 2), row.get(column + 3));
        let mut inner = self.inner();
        if let Some(queue) = inner.queues.get(&id) {
            let info = &queue.info;
            if queue.text == text && &*info.namespace == namespace && &*info.task == task {
                return queue.clone();
            }
        }
        let options: QueueOptions = serde_json::from_str(text).unwrap_or_default();
        let name: Arc<str> = row.get::<_, &str>(column + 1).into();
        let queue = Arc::new(Queue {
            id,
            rules: options.rules(),
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

    /// The partition of these names, with its queue.
    pub(super) fn partition(&self, queue: &str, partition: &str) -> Option<(i64, i64)> {
        let inner = self.inner();
        let queue = *inner.by_name.get(queue)?;
        Some((queue, *inner.partitions.get(&queue)?.get(partition)?))
    }

    pub(super) fn learn_partition(&self, queue: (i64, &Arc<str>), name: &Arc<str>, id: i64) {
        let mut inner = self.inner();
        inner.make_room();
        inner.by_name.insert(queue.1.clone(), queue.0);
        inner.partitions.entry(queue.0).or_default().insert(name.clone(), id);
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

/// Names of a queue and a partition.
pub(super) type Place = (Arc<str>, Arc<str>);

pub(super) const FIND: &str = "
    SELECT w.n, q.id, p.id
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (queue, partition, n)
    CROSS JOIN LATERAL (
        SELECT id FROM skep_queues WHERE name = w.queue AND NOT deleted LIMIT 1) q
    LEFT JOIN LATERAL (
        SELECT id FROM skep_queue_partitions
        WHERE queue = q.id AND name = w.partition LIMIT 1) p ON TRUE";

/// The partitions of these names that there are: queue and partition.
pub(super) async fn find(
    names: &Names,
    link: &mut Link,
    places: &BTreeSet<Place>,
) -> Result<HashMap<Place, (i64, i64)>, Fail> {
    let mut found = HashMap::with_capacity(places.len());
    let mut unknown = Vec::new();
    for place in places {
        match names.partition(&place.0, &place.1) {
            Some(ids) => drop(found.insert(place.clone(), ids)),
            None => unknown.push(place),
        }
    }
    if unknown.is_empty() {
        return Ok(found);
    }
    let queues: Vec<&str> = unknown.iter().map(|place| &*place.0).collect();
    let partitions: Vec<&str> = unknown.iter().map(|place| &*place.1).collect();
    for row in link.ask(FIND, vec![&queues, &partitions]).await? {
        let place = usize::try_from(row.get::<_, i64>(0) - 1).ok().and_then(|n| unknown.get(n));
        if let (Some(place), Some(id)) = (place, row.get::<_, Option<i64>>(2)) {
            let queue: i64 = row.get(1);
            names.learn_partition((queue, &place.0), &place.1, id);
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
    INSERT INTO skep_queue_partitions (queue, name, tail, last_push, created_at)
    SELECT w.queue, w.name, 0, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM unnest($1::bigint[], $2::text[]) AS w (queue, name)
    ON CONFLICT (queue, name) DO NOTHING
    RETURNING id, queue, name";
const FIND_PARTITIONS: &str = "
    SELECT p.id, p.queue, p.name
    FROM unnest($1::bigint[], $2::text[]) AS w (queue, name)
    JOIN skep_queue_partitions p ON p.queue = w.queue AND p.name = w.name";

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
    let new = link.ask(MAKE_PARTITIONS, vec![&queues, &partitions]).await?;
    made.partitions = new.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut rows: HashMap<(i64, String), i64> = HashMap::new();
    for row in link.ask(FIND_PARTITIONS, vec![&queues, &partitions]).await? {
        rows.insert((row.get(1), row.get(2)), row.get(0));
    }
    for (place, queue) in wanted {
        let id = rows.get(&(queue, place.1.to_string())).ok_or(Fail::Stale)?;
        found.insert(place.clone(), (queue, *id));
    }
    Ok(made)
}

pub(super) fn options_text(options: &QueueOptions) -> String {
    serde_json::to_string(options).unwrap_or_else(|_| "{}".to_owned())
}

/// Remembers a queue that was configured, with its default partition.
pub(super) fn learned(names: &Names, queue: &Queue, partition: i64) {
    let default: Arc<str> = crate::store::DEFAULT_PARTITION.into();
    names.learn_partition((queue.id, &queue.info.name), &default, partition);
}
