//! Letting go lanes whose key had no room.

use super::limits::{LOCK_WHOLE, wake};
use super::link::{Call, Fail, Link};
use super::marks::LONG_PATIENCE;
use super::names::Queue;
use super::rows::micros;
use super::write::NOTIFY;
use super::{CHANNEL, PostgresQueues, Shared};
use crate::store::Wake;
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio_postgres::Row;

/// Lanes that are let go at a time when the limits of a queue change.
const RESET_MAX: i64 = 1_000;
/// How many are woken for what one lane has settled, at most.
const WAKES_MAX: u64 = 32;

macro_rules! now {
    () => {
        "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
    };
}

pub(super) const LET_GO: &str = "
    UPDATE skep_queue_lanes l SET ready_at = b.ready_at, blocked_key = NULL
     FROM (SELECT b.partition, b.grp, w.key, w.ready_at
           FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[])
               AS w (grp, key, most, ready_at)
           CROSS JOIN LATERAL (
               SELECT partition, grp FROM skep_queue_lanes
               WHERE grp = w.grp AND blocked_key = w.key
               ORDER BY grp, blocked_key, ready_at, partition LIMIT w.most
               FOR UPDATE SKIP LOCKED) b) b
     WHERE l.partition = b.partition AND l.grp = b.grp
     RETURNING l.grp, b.key,
               (SELECT p.name FROM skep_queue_partitions p WHERE p.id = l.partition)";
pub(super) const STILL: &str = "
    SELECT w.grp, w.key FROM unnest($1::bigint[], $2::text[]) AS w (grp, key)
    CROSS JOIN LATERAL (
        SELECT 1 FROM skep_queue_lanes
        WHERE grp = w.grp AND blocked_key = w.key LIMIT 1) b";
/// One, and it is waited for: nobody may do so who holds anything else.
pub(super) const LET_GO_ONE: &str = "
    UPDATE skep_queue_lanes l SET ready_at = $3, blocked_key = NULL
     FROM (SELECT partition, grp FROM skep_queue_lanes
           WHERE grp = $1 AND blocked_key = $2
           ORDER BY grp, blocked_key, ready_at, partition LIMIT 1 FOR UPDATE) b
     WHERE l.partition = b.partition AND l.grp = b.grp
     RETURNING (SELECT p.name FROM skep_queue_partitions p WHERE p.id = l.partition)";
pub(super) const RESET: &str = concat!(
    "UPDATE skep_queue_lanes l SET ready_at = ",
    now!(),
    ", blocked_key = NULL
     FROM (SELECT partition, grp FROM skep_queue_lanes
           WHERE grp = ANY($1) AND blocked_key IS NOT NULL
           ORDER BY partition, grp LIMIT $2 FOR UPDATE) b
     WHERE l.partition = b.partition AND l.grp = b.grp
     RETURNING 1"
);
/// A lane that is leased is ready when its lease ends.
pub(super) const LEASED: &str = concat!(
    "SELECT l.partition, l.grp, l.lease, p.name FROM skep_queue_lanes l
     JOIN skep_queue_partitions p ON p.id = l.partition
     WHERE l.grp = ANY($1) AND l.ready_at > ",
    now!(),
    " AND l.lease IS NOT NULL AND l.lease_until = l.ready_at
     ORDER BY l.partition, l.grp"
);
pub(super) const COUNT_AS: &str = "
    UPDATE skep_queue_lanes l SET leased_key = w.key
    FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[])
        AS w (partition, grp, lease, key)
    WHERE l.partition = w.partition AND l.grp = w.grp AND l.lease = w.lease
      AND l.leased_key IS DISTINCT FROM w.key";
const GROUPS: &str =
    "SELECT id FROM skep_queue_groups WHERE queue = $1 AND NOT deleted ORDER BY id";

/// Lanes of a key that may be let go.
#[derive(Clone)]
pub(super) struct Freed {
    pub queue: Arc<Queue>,
    pub group: i64,
    pub name: Arc<str>,
    pub key: Arc<str>,
    /// So many got room.
    pub count: i64,
    /// When.
    pub at: Time,
}

impl Freed {
    /// Before whoever made room, so that those of a key take turns.
    fn ready(&self) -> i64 {
        micros(self.at) - 1
    }
}

/// What is left to do after a commit. It is no loss if a node dies before: blocked lanes are looked
/// at again in any case, only later.
#[derive(Default)]
pub(super) struct Errands {
    freed: Vec<Freed>,
    wakes: Vec<Wake>,
}

impl Errands {
    pub(super) fn of(wakes: Vec<Wake>) -> Self {
        Errands { freed: Vec::new(), wakes }
    }
}

/// The same as columns, which statements borrow.
#[derive(Default)]
pub(super) struct FreedColumns {
    all: Vec<Freed>,
    groups: Vec<i64>,
    keys: Vec<String>,
    counts: Vec<i64>,
    ready: Vec<i64>,
}

impl FreedColumns {
    pub(super) fn of(all: Vec<Freed>) -> Self {
        FreedColumns {
            groups: all.iter().map(|one| one.group).collect(),
            keys: all.iter().map(|one| one.key.to_string()).collect(),
            counts: all.iter().map(|one| one.count).collect(),
            ready: all.iter().map(Freed::ready).collect(),
            all,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn queues(&self) -> BTreeSet<Arc<str>> {
        self.all.iter().map(|one| one.queue.info.name.clone()).collect()
    }

    /// Waits for claims that have counted already.
    pub(super) fn lock(&self) -> Option<Call<'_>> {
        (!self.is_empty()).then(|| Call::Query(LOCK_WHOLE, vec![&self.groups]))
    }

    pub(super) fn calls(&self) -> Vec<Call<'_>> {
        match self.is_empty() {
            true => Vec::new(),
            false => vec![
                Call::Query(LET_GO, vec![&self.groups, &self.keys, &self.counts, &self.ready]),
                Call::Query(STILL, vec![&self.groups, &self.keys]),
            ],
        }
    }

    /// What is left to do, by the answers to [`FreedColumns::calls`].
    pub(super) fn errands(&self, let_go: &[Row], still: &[Row]) -> Errands {
        let place = |row: &Row| (row.get::<_, i64>(0), row.get::<_, String>(1));
        let mut went: HashMap<(i64, String), i64> = HashMap::new();
        let mut errands = Errands::default();
        for row in let_go {
            *went.entry(place(row)).or_default() += 1;
            let partition = row.get::<_, Option<&str>>(2).unwrap_or_default();
            let of_it = |one: &&Freed| (one.group, &*one.key) == (row.get(0), row.get(1));
            if let Some(one) = self.all.iter().find(of_it) {
                errands.wakes.push(wake(&one.queue, partition.into(), one.name.clone()));
            }
        }
        let still: BTreeSet<(i64, String)> = still.iter().map(place).collect();
        for one in &self.all {
            let place = (one.group, one.key.to_string());
            let count = one.count - went.get(&place).copied().unwrap_or(0);
            if count > 0 && still.contains(&place) {
                errands.freed.push(Freed { count, ..one.clone() });
            }
        }
        errands
    }
}

/// Wakes for what lanes have settled, and the keys that got room by it.
#[derive(Default)]
pub(super) struct Ends {
    pub wakes: Vec<Wake>,
    pub queues: BTreeSet<Arc<str>>,
    freed: BTreeMap<(i64, Arc<str>), Freed>,
}

impl Ends {
    /// Notes that a lane of a group counts for so much less now.
    pub(super) fn add(
        &mut self,
        queue: &Arc<Queue>,
        lane: (i64, &Arc<str>, &Arc<str>),
        freed: (&Arc<str>, u64),
        at: Time,
    ) {
        let (key, count) = freed;
        let (group, name, partition) = lane;
        self.queues.insert(queue.info.name.clone());
        for _ in 0..count.min(WAKES_MAX) {
            self.wakes.push(wake(queue, partition.clone(), name.clone()));
        }
        if queue.limits.as_ref().is_none_or(|limits| limits.key.in_flight.is_none()) {
            return;
        }
        let freed = self.freed.entry((group, key.clone())).or_insert_with(|| Freed {
            queue: queue.clone(),
            group,
            name: name.clone(),
            key: key.clone(),
            count: 0,
            at,
        });
        freed.count += super::rows::signed(count);
    }

    pub(super) fn freed(&mut self) -> FreedColumns {
        FreedColumns::of(std::mem::take(&mut self.freed).into_values().collect())
    }
}

impl PostgresQueues {
    /// Does what is left to do. Tells who should look.
    pub(super) async fn run_errands(&self) -> Vec<Wake> {
        let errands = std::mem::take(&mut *self.shared.errands());
        let mut wakes = errands.wakes;
        for one in errands.freed {
            for _ in 0..one.count {
                // Seldom, and not worth a place in every future that comes by here.
                match Box::pin(self.shared.let_go_one(&one)).await {
                    Ok(Some(wake)) => wakes.push(wake),
                    Ok(None) => break,
                    // They are looked at again when the first lease of the key ends.
                    Err(error) => {
                        tracing::debug!(%error, "lanes that got room wait for their time");
                        break;
                    }
                }
            }
        }
        wakes
    }
}

impl Shared {
    pub(super) fn errands(&self) -> MutexGuard<'_, Errands> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn leave(&self, errands: Errands) {
        if errands.freed.is_empty() && errands.wakes.is_empty() {
            return;
        }
        let mut left = self.errands();
        left.freed.extend(errands.freed);
        left.wakes.extend(errands.wakes);
    }

    async fn let_go_one(&self, one: &Freed) -> Result<Option<Wake>, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link_within(LONG_PATIENCE).await?;
            let (key, queue, ready) = (&*one.key, &*one.queue.info.name, one.ready());
            let work = async {
                let let_go = Call::Query(LET_GO_ONE, vec![&one.group, &key, &ready]);
                let rows = link.send(vec![Call::Begin, let_go]).await?.pop().unwrap_or_default();
                let notify = Call::Query(NOTIFY, vec![&CHANNEL, &queue]);
                let told = (!rows.is_empty()).then_some(notify).into_iter();
                let end = [Call::Unhurried].into_iter().chain(told).chain([Call::Commit]);
                link.send(end.collect()).await?;
                Ok::<_, Fail>(rows)
            };
            let once = self.links.postgres.limit(work).await;
            if let Some(rows) = self.links.end(link, once, &mut tries).await? {
                let name = |row: &Row| Arc::from(row.get::<_, Option<&str>>(0).unwrap_or_default());
                let partition = rows.first().map(name);
                return Ok(partition.map(|name| wake(&one.queue, name, one.name.clone())));
            }
        }
    }

    /// Lets everything go and counts what is leased anew: the limits of a queue have changed.
    pub(super) async fn reset_limits(&self, queue: &Queue) -> Result<(), StoreError> {
        let rows = self.ask(GROUPS, &[&queue.id]).await?;
        let groups: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let mut tries = 0;
        while !groups.is_empty() {
            let mut link = self.links.link().await?;
            let once = self.links.postgres.limit(reset(&mut link, queue, &groups)).await;
            if self.links.end(link, once, &mut tries).await?.is_some() {
                break;
            }
        }
        Ok(())
    }
}

async fn reset(link: &mut Link, queue: &Queue, groups: &Vec<i64>) -> Result<(), Fail> {
    let leased = link.ask(LEASED, vec![groups]).await?;
    let (mut partitions, mut of_groups) = (Vec::new(), Vec::new());
    let (mut leases, mut keys) = (Vec::new(), Vec::new());
    for row in &leased {
        partitions.push(row.get::<_, i64>(0));
        of_groups.push(row.get::<_, i64>(1));
        leases.push(row.get::<_, super::rows::Uid>(2));
        let name: &str = row.get(3);
        keys.push(queue.limits.as_ref().map(|limits| limits.key_of(name).to_owned()));
    }
    link.ask(COUNT_AS, vec![&partitions, &of_groups, &leases, &keys]).await?;
    while !link.ask(RESET, vec![groups, &RESET_MAX]).await?.is_empty() {}
    let name = &*queue.info.name;
    link.ask(NOTIFY, vec![&CHANNEL, &name]).await?;
    Ok(())
}
