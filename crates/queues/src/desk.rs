//! Where messages get the form they are kept in, on their way to the store.

use crate::buffer::PushTo;
use crate::cipher::{Cipher, RecodeError};
use crate::counting::{Counting, now};
use crate::handle::NewItem;
use crate::inbox::Inbox;
use crate::record::Record;
use crate::store::{
    Job, NewMessage, NotDone, Pushed, QueueStore, Step, StepDone, TransactionJob, WorkError,
};
use crate::tally::Tally;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use uuid::Uuid;

/// How often a job is tried with its messages in another form, because the encryption of a queue
/// was switched meanwhile.
const FORMS_MAX: usize = 4;

/// Hands messages to the store, in the form that their queues want.
pub(crate) struct Desk {
    pub(crate) store: QueueStore,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) cipher: Option<Cipher>,
    /// What is done here, for those who look at it later.
    pub(crate) tally: Tally,
    /// Told when something came that has a time.
    pub(crate) soon: Notify,
    /// Queues that are known to be encrypted. Whoever is wrong about one is told by the store.
    encrypted: Mutex<HashSet<Arc<str>>>,
}

impl Desk {
    pub(crate) fn new(store: QueueStore, inbox: Arc<Inbox>, cipher: Option<Cipher>) -> Self {
        let (tally, encrypted) = (Tally::default(), Mutex::default());
        Desk { store, inbox, cipher, tally, soon: Notify::new(), encrypted }
    }

    /// The item as it is kept, and the id that its producer knows it by.
    pub(crate) fn message(&self, item: &NewItem) -> Result<(NewMessage, Arc<str>), WorkError> {
        let id = Uuid::now_v7();
        let given = item.transaction.clone();
        let transaction = given.unwrap_or_else(|| Arc::from(Uuid::now_v7().to_string()));
        let record = Record {
            id,
            transaction: Cow::Borrowed(&*transaction),
            trace: item.trace.as_deref().map(Cow::Borrowed),
            producer: item.producer.as_deref().map(Cow::Borrowed),
            wishes: item.wishes,
            encrypted: false,
            payload: &item.payload,
        };
        let (queue, partition) = (item.queue.clone(), item.partition.clone());
        let message = NewMessage::of(queue, partition, &record, record.encode());
        let wanted = self.encrypted().contains(&item.queue);
        Ok((if wanted { self.recode(&message, true)? } else { message }, transaction))
    }

    /// Pushes and settles, all or nothing.
    pub(crate) async fn transact(
        &self,
        mut job: TransactionJob,
    ) -> Result<Result<Vec<StepDone>, NotDone>, WorkError> {
        for _ in 1..FORMS_MAX {
            let copy = job.clone();
            match self.inbox.ask(|answer| Job::Transaction(copy, answer)).await {
                Ok(Ok(done)) => {
                    self.note_steps(&job, &done);
                    return Ok(Ok(done));
                }
                Err(WorkError::Encryption { queue }) => {
                    let encrypted = self.learn(&queue).await?;
                    for step in &mut job.steps {
                        if let Step::Push(message) = step
                            && message.queue == queue
                        {
                            *message = self.recode(message, encrypted)?;
                        }
                    }
                }
                done => return done,
            }
        }
        let copy = job.clone();
        let done = self.inbox.ask(|answer| Job::Transaction(copy, answer)).await?;
        if let Ok(done) = &done {
            self.note_steps(&job, done);
        }
        Ok(done)
    }

    fn note_steps(&self, job: &TransactionJob, done: &[StepDone]) {
        let mut counting = Counting::new(&self.tally, now());
        for both in job.steps.iter().zip(done) {
            match both {
                (Step::Push(message), StepDone::Pushed(pushed)) => {
                    counting.pushed(message, pushed);
                    self.note_time(message);
                }
                (Step::Settle { item, .. }, StepDone::Settled(settled)) => {
                    counting.settled(item.verdict, settled);
                }
                _ => {}
            }
        }
    }

    fn note_time(&self, message: &NewMessage) {
        if message.due.is_some() {
            self.soon.notify_one();
        }
    }

    fn note_pushes(&self, messages: &[NewMessage], pushed: &[Pushed]) {
        messages.iter().for_each(|message| self.note_time(message));
        let mut counting = Counting::new(&self.tally, now());
        messages.iter().zip(pushed).for_each(|(message, one)| counting.pushed(message, one));
    }

    /// Whether the queue is encrypted, from the store itself.
    async fn learn(&self, queue: &Arc<str>) -> Result<bool, WorkError> {
        let info = self.store.queue(queue).await?;
        let wanted = info.is_some_and(|info| info.options.encryption_enabled);
        if wanted {
            self.encrypted().insert(queue.clone());
        } else {
            self.encrypted().remove(queue);
        }
        Ok(wanted)
    }

    fn recode(&self, message: &NewMessage, encrypted: bool) -> Result<NewMessage, WorkError> {
        let cipher = self.cipher.as_ref();
        let cipher = cipher.ok_or_else(|| WorkError::NoKey { queue: message.queue.clone() })?;
        cipher.recode(message, encrypted).map_err(RecodeError::into)
    }

    fn encrypted(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.encrypted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PushTo for Arc<Desk> {
    async fn push(&self, mut messages: Vec<NewMessage>) -> Result<Vec<Pushed>, WorkError> {
        for _ in 1..FORMS_MAX {
            // A copy is cheap: the bytes are shared.
            let copy = messages.clone();
            match self.inbox.ask(|answer| Job::Push(copy, answer)).await {
                Err(WorkError::Encryption { queue }) => {
                    let encrypted = self.learn(&queue).await?;
                    for message in messages.iter_mut().filter(|message| message.queue == queue) {
                        *message = self.recode(message, encrypted)?;
                    }
                }
                done => {
                    let pushed = done?;
                    self.note_pushes(&messages, &pushed);
                    return Ok(pushed);
                }
            }
        }
        let copy = messages.clone();
        let pushed = self.inbox.ask(|answer| Job::Push(copy, answer)).await?;
        self.note_pushes(&messages, &pushed);
        Ok(pushed)
    }
}
