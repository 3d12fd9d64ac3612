//! What others hold: push, pop, ack, transaction.

use crate::buffer::{Buffer, Kept};
use crate::cipher::Cipher;
use crate::counting::{self, Counting, Unwritten};
use crate::desk::Desk;
use crate::error::QueueError;
use crate::ids::{PartitionId, tagged};
use crate::inbox::Inbox;
use crate::local::{Local, LocalBuffer};
use crate::metrics::{QueuesMetrics, StoreWork};
use crate::options::QueuesOptions;
use crate::parking::Parking;
use crate::record::{Record, Wishes};
use crate::store::{
    ClaimJob, Claimed, ItemSettled, Job, NotDone, Nothing, Pushed, QueueStore, Round,
    STAT_ROWS_MAX, SettleItem, Step, StepDone, Target, Tidied, TransactionJob, WorkError,
};
use skep_policy::Time;
use skep_policy::queues::{LeaseId, Settled, Start, Verdict};
use skep_store::{MigrateError, StoreError};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

/// The queues of a node. Clones share them.
#[derive(Clone)]
pub struct Queues {
    shared: Arc<Shared>,
}

struct Shared {
    desk: Arc<Desk>,
    local: Local,
    /// Whether nobody gets messages.
    paused: AtomicBool,
    parking: Arc<Parking>,
    metrics: QueuesMetrics,
    parked_max: usize,
    lease_tag: u16,
}

/// A message that somebody pushes.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// Into which queue.
    pub queue: Arc<str>,
    /// Into which partition.
    pub partition: Arc<str>,
    /// JSON.
    pub payload: Arc<[u8]>,
    /// The producer's id of it; without one it gets one.
    pub transaction: Option<Arc<str>>,
    /// What it is part of.
    pub trace: Option<Arc<str>>,
    /// Who pushes, as the server knows it.
    pub producer: Option<Arc<str>>,
    /// What its producer wants for it.
    pub wishes: Wishes,
}

/// What became of a pushed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedItem {
    /// Its id; of one that came again, the id it got the first time.
    pub id: Uuid,
    /// The id its producer knows it by.
    pub transaction: Arc<str>,
    /// Where it is, once it is in the database.
    pub partition: Option<PartitionId>,
    /// What became of it.
    pub status: PushStatus,
}

/// What became of a pushed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushStatus {
    /// It is in its queue.
    Queued,
    /// It had come before.
    Duplicate,
    /// It is on this machine, and will be in its queue when the database is back.
    Buffered,
}

/// Somebody wants messages.
#[derive(Clone, Debug)]
pub struct Pop {
    /// From where.
    pub target: Target,
    /// For whom.
    pub group: Arc<str>,
    /// Where a group begins that is seen for the first time; `None` is with what comes from now.
    pub start: Option<Start>,
    /// At most so many messages.
    pub batch: u32,
    /// From at most so many partitions.
    pub partitions: u32,
    /// Seconds that the lease shall hold, if not the queue's.
    pub lease_seconds: Option<u32>,
    /// Settle what is handed out at once.
    pub auto_ack: bool,
    /// How long to wait if there is nothing.
    pub wait: Option<Duration>,
}

/// What somebody got. If it is dropped before [`Popped::arrived`], it is given back at once.
pub struct Popped {
    claimed: Claimed,
    lease: LeaseId,
    is_paused: bool,
    /// Where to give it back; `None` once it has arrived, or if there is nothing to give back.
    inbox: Option<Arc<Inbox>>,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Push a message.
    Push(NewItem),
    /// Settle one.
    Settle {
        /// For whom.
        group: Arc<str>,
        /// What is said.
        item: SettleItem,
    },
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationDone {
    /// A message was kept, or had come before.
    Pushed(PushedItem),
    /// A message was settled.
    Settled(ItemSettled),
}

impl Queues {
    /// Serves the queues of `store`. In a local buffer pushes are kept while the database is away,
    /// if that is wanted, and while they are held back; [`Queues::replay`] brings them to it.
    pub async fn open(
        store: QueueStore,
        cipher: Option<Cipher>,
        buffer: Option<LocalBuffer>,
        metrics: QueuesMetrics,
        options: &QueuesOptions,
    ) -> Result<Self, MigrateError> {
        let parking = Arc::new(Parking::new(options.parked_max));
        let inbox = Inbox::new(store.clone(), parking.clone(), metrics.clone(), options);
        let desk = Arc::new(Desk::new(store, Arc::new(inbox), cipher));
        let local = Local::open(desk.clone(), buffer).await?;
        let shared = Shared {
            desk,
            local,
            paused: AtomicBool::new(false),
            parking,
            metrics,
            parked_max: options.parked_max,
            lease_tag: options.lease_tag,
        };
        Ok(Queues { shared: Arc::new(shared) })
    }

    /// What comes in seldom is asked of the store itself.
    pub fn store(&self) -> &QueueStore {
        &self.shared.desk.store
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.shared.desk
    }

    pub(crate) fn metrics(&self) -> &QueuesMetrics {
        &self.shared.metrics
    }

    /// Whether payloads can be encrypted.
    pub fn has_key(&self) -> bool {
        self.shared.desk.cipher.is_some()
    }

    /// Pushes that wait on this machine for the database; `None` if there never were any.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.shared.local.buffer()
    }

    /// Brings what was kept on this machine to the database, for ever. Without a buffer it just
    /// waits.
    pub async fn replay(&self) {
        self.shared.local.replay().await;
    }

    /// Holds pushes back, on this machine's disk, or lets them go to the database in the order in
    /// which they came. They are held even if this fails: then there is nothing to keep them in,
    /// and they are refused as long as that is so.
    pub async fn hold(&self, held: bool) -> Result<(), QueueError> {
        self.shared.metrics.maintenance("push", held);
        self.shared.local.hold(held).await?;
        // What became due meanwhile.
        if !held {
            self.keep_soon();
        }
        Ok(())
    }

    /// Whether pushes are held back.
    pub fn is_held(&self) -> bool {
        self.shared.local.is_held()
    }

    /// Lets nobody get messages, or lets everybody again. Pops that wait are answered.
    pub fn pause(&self, paused: bool) {
        self.shared.metrics.maintenance("pop", paused);
        if self.shared.paused.swap(paused, Ordering::SeqCst) != paused {
            self.wake(None);
        }
    }

    /// Whether nobody gets messages.
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(Ordering::SeqCst)
    }

    /// Writes down what was done here since the last time. What cannot be written waits for the
    /// next time.
    pub async fn write_stats(&self) -> Result<(), StoreError> {
        let mut unwritten = Unwritten::take(&self.shared.desk.tally);
        while !unwritten.rows.is_empty() {
            let part = unwritten.rows.len().min(STAT_ROWS_MAX);
            self.store().add_stats(&unwritten.rows[..part]).await?;
            unwritten.rows.drain(..part);
        }
        Ok(())
    }

    /// Keeps messages, all or none. They are durable when this returns, and unless they are
    /// [`PushStatus::Buffered`] any pop finds them.
    pub async fn push(&self, items: &[NewItem]) -> Result<Vec<PushedItem>, QueueError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let shared = &self.shared;
        let mut messages = Vec::with_capacity(items.len());
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            let (message, transaction) = shared.desk.message(item)?;
            names.push((message.id, transaction));
            messages.push(message);
        }
        Ok(match shared.local.push(messages).await? {
            Kept::Pushed(pushed) => {
                shared.metrics.pushed(&pushed);
                let both = pushed.iter().zip(names);
                both.map(|(pushed, (_, name))| PushedItem::kept(pushed, name)).collect()
            }
            Kept::Buffered => {
                shared.metrics.buffered(names.len());
                let buffered = |(id, transaction)| {
                    let status = PushStatus::Buffered;
                    PushedItem { id, transaction, partition: None, status }
                };
                names.into_iter().map(buffered).collect()
            }
        })
    }

    /// Hands out messages, waiting for some if asked to.
    pub async fn pop(&self, pop: &Pop) -> Result<Popped, QueueError> {
        if self.is_paused() {
            return Ok(Popped::paused());
        }
        let Some(wait) = pop.wait else { return self.claim(pop, pop.start).await };
        let deadline = Instant::now() + wait;
        let shared = &self.shared;
        let place = shared.parking.wait_for(&pop.target, &pop.group);
        let place = place.ok_or(QueueError::ParkedMax { max: shared.parked_max })?;
        let mut start = pop.start;
        loop {
            place.looks();
            if self.is_paused() {
                return Ok(Popped::paused());
            }
            let popped = self.claim(pop, start).await?;
            let claimed = popped.claimed();
            if !claimed.lanes.is_empty() {
                place.found();
                return Ok(popped);
            }
            if claimed.nothing == Some(Nothing::NoQueue) {
                // Whatever the queue will have came after this group was here.
                start = Some(Start::All);
            }
            let again = claimed.next_at.map(|at| Instant::now() + at.since(claimed.now));
            let until = again.map_or(deadline, |again| again.min(deadline));
            let woken = tokio::time::timeout_at(until, place.woken()).await.is_ok();
            if !woken && until == deadline {
                return Ok(popped);
            }
        }
    }

    /// Settles messages of one group, each by itself.
    pub async fn settle(
        &self,
        group: Arc<str>,
        items: Vec<SettleItem>,
    ) -> Result<Vec<ItemSettled>, QueueError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let verdicts: Vec<Verdict> = items.iter().map(|item| item.verdict).collect();
        let desk = &self.shared.desk;
        let settled = desk.inbox.ask(|answer| Job::Settle { group, items, answer }).await?;
        let mut counting = Counting::new(&desk.tally, counting::now());
        for (verdict, item) in verdicts.into_iter().zip(&settled) {
            self.shared.metrics.settled(&item.settled);
            counting.settled(verdict, item);
        }
        drop(counting);
        Ok(settled)
    }

    /// Pushes and settles, all or nothing.
    pub async fn transaction(
        &self,
        operations: &[Operation],
        required: &[LeaseId],
    ) -> Result<Result<Vec<OperationDone>, NotDone>, QueueError> {
        let (mut steps, mut names) = (Vec::new(), Vec::new());
        for operation in operations {
            match operation {
                Operation::Push(item) => {
                    self.after_what_waits(&item.queue)?;
                    let (message, transaction) = self.shared.desk.message(item)?;
                    names.push(transaction);
                    steps.push(Step::Push(message));
                }
                Operation::Settle { group, item } => {
                    steps.push(Step::Settle { group: group.clone(), item: item.clone() });
                }
            }
        }
        let job = TransactionJob { steps, required: required.to_vec(), takes: Vec::new() };
        let steps = match self.shared.desk.transact(job).await? {
            Ok(steps) => steps,
            Err(not_done) => return Ok(Err(not_done)),
        };
        let (mut names, metrics) = (names.into_iter(), &self.shared.metrics);
        let done = steps.into_iter().map(|step| match step {
            StepDone::Pushed(pushed) => {
                metrics.pushed(&[pushed]);
                let name = names.next().unwrap_or_else(|| Arc::from(""));
                OperationDone::Pushed(PushedItem::kept(&pushed, name))
            }
            StepDone::Settled(item) => {
                metrics.settled(&item.settled);
                OperationDone::Settled(item)
            }
        });
        Ok(Ok(done.collect()))
    }

    /// A transaction is never kept on this machine, so it has to wait for what is, or it would
    /// overtake it.
    pub(crate) fn after_what_waits(&self, queue: &str) -> Result<(), QueueError> {
        if self.is_held() {
            return Err(QueueError::Held);
        }
        match self.buffer() {
            Some(buffer) if buffer.holds(queue) => {
                let cause = format!("pushes to {queue} wait in the local buffer and go first");
                Err(StoreError::Busy { store: "queues", cause }.into())
            }
            _ => Ok(()),
        }
    }

    /// Lets a lease hold for so many seconds from now. `None` if it does not hold any more.
    pub async fn extend(&self, lease: LeaseId, seconds: u32) -> Result<Option<Time>, QueueError> {
        let inbox = &self.shared.desk.inbox;
        Ok(inbox.ask(|answer| Job::Extend { lease, seconds, answer }).await?)
    }

    /// A payload as its producer pushed it.
    pub fn reveal<'record>(
        &self,
        queue: &Arc<str>,
        record: &Record<'record>,
    ) -> Result<Cow<'record, [u8]>, QueueError> {
        if !record.encrypted {
            return Ok(Cow::Borrowed(record.payload));
        }
        let cipher = self.shared.desk.cipher.as_ref();
        let cipher = cipher.ok_or_else(|| WorkError::NoKey { queue: queue.clone() })?;
        Ok(Cow::Owned(cipher.open(record.id, record.payload)?))
    }

    /// Deletes what is past its time.
    pub async fn tidy(&self, round: impl Into<Round>) -> Result<Tidied, StoreError> {
        let tidied = self.store().tidy(round).await?;
        self.shared.metrics.tidied(&tidied);
        counting::removed(&self.shared.desk.tally, tidied.messages);
        Ok(tidied)
    }

    /// Waits until something came to this node that has a time: whoever keeps it should look.
    pub async fn something_to_keep(&self) {
        self.shared.desk.soon.notified().await;
    }

    /// Says that something has a time that had none before, or another.
    pub fn keep_soon(&self) {
        self.shared.desk.soon.notify_one();
    }

    /// Something came to this queue by another node: lets those look who wait for it, as many as
    /// find something.
    pub fn hint(&self, queue: &str) {
        self.shared.parking.hint(queue);
    }

    /// Lets everybody look who waits for something in this queue, or anybody: nobody knows what
    /// came.
    pub fn wake(&self, queue: Option<&str>) {
        self.shared.parking.wake_all(queue);
    }

    /// Tells every queue that something came to by this process, so that other processes can be
    /// told, until `told` says that it wants to hear no more. It must not wait.
    pub fn on_wake(&self, told: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.shared.desk.inbox.on_wake(Arc::new(told));
    }

    /// How many pops wait.
    pub fn parked(&self) -> usize {
        self.shared.parking.count()
    }

    /// What the store has to do.
    pub fn work(&self) -> StoreWork {
        let (waiting_requests, waiting_bytes) = self.shared.desk.inbox.depth();
        let parked = self.shared.parking.count();
        StoreWork { waiting_requests, waiting_bytes, parked, ..self.shared.metrics.done() }
    }

    pub(crate) fn parking(&self) -> &Parking {
        &self.shared.parking
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        let shared = &self.shared;
        let (jobs, bytes) = shared.desk.inbox.depth();
        let buffered = self.buffer().map_or(0, Buffer::messages);
        shared.metrics.waiting(shared.parking.count(), jobs, bytes, buffered);
    }

    async fn claim(&self, pop: &Pop, start: Option<Start>) -> Result<Popped, QueueError> {
        let lease = LeaseId(tagged(Uuid::now_v7(), self.shared.lease_tag).as_u128());
        let job = ClaimJob {
            target: pop.target.clone(),
            group: pop.group.clone(),
            start,
            batch: pop.batch,
            partitions: pop.partitions,
            lease,
            lease_seconds: pop.lease_seconds,
            auto_ack: pop.auto_ack,
        };
        let inbox = &self.shared.desk.inbox;
        let claimed = inbox.ask(|answer| Job::Claim(job, answer)).await?;
        let held = !claimed.lanes.is_empty() && !pop.auto_ack;
        self.shared.metrics.popped(&claimed);
        if !claimed.lanes.is_empty() {
            let mut counting = Counting::new(&self.shared.desk.tally, claimed.now);
            counting.popped(&claimed.lanes, pop.auto_ack);
        }
        let inbox = held.then(|| inbox.clone());
        Ok(Popped { claimed, lease, is_paused: false, inbox })
    }
}

impl PushedItem {
    pub(crate) fn kept(pushed: &Pushed, transaction: Arc<str>) -> Self {
        let status = if pushed.duplicate { PushStatus::Duplicate } else { PushStatus::Queued };
        PushedItem { id: pushed.id, transaction, partition: Some(pushed.partition), status }
    }
}

impl Popped {
    fn paused() -> Self {
        let claimed = Claimed {
            lanes: Vec::new(),
            until: Time::ZERO,
            now: Time::ZERO,
            next_at: None,
            nothing: None,
        };
        Popped { claimed, lease: LeaseId(0), is_paused: true, inbox: None }
    }

    /// Whether nobody gets messages now.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// What was handed out.
    pub fn claimed(&self) -> &Claimed {
        &self.claimed
    }

    /// The lease it is under.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Says that the consumer has it. Until then nobody else would know that it is lost.
    pub fn arrived(mut self) {
        self.inbox = None;
    }
}

impl Drop for Popped {
    fn drop(&mut self) {
        let Some(inbox) = self.inbox.take() else { return };
        // At shutdown there may be no runtime any more; then the lease runs out by itself.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (answer, _) = oneshot::channel();
        let _ = inbox.submit(Job::Release { lease: self.lease, answer });
    }
}

/// How a settlement is counted.
pub(crate) fn kind_of(settled: &Settled) -> &'static str {
    match settled {
        Settled::Done { .. } => "completed",
        Settled::Noop => "noop",
        Settled::Dead { .. } => "dead",
        Settled::Again { .. } => "again",
        Settled::Refused(_) => "refused",
    }
}
