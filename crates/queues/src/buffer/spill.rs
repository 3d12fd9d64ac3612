//! Who pushes to the database and who to the file beside it, and how the one catches up.
//!
//! Three things keep the order of a producer's messages, and keep them from coming twice:
//!
//! * While anything of a queue waits in the file, further pushes to it go there too, behind it.
//! * A push whose outcome is not known goes to the file, and comes to the database again with the
//!   ids it had: one that had arrived is a duplicate there. So does one that was replayed by a
//!   process that died before it could strike it out. Ids are known again for as long as the
//!   queue's window for duplicates says.
//! * What is left at the end is replayed while new pushes wait at the gate, or the file would
//!   never be empty under load.
//!
//! An operator may hold pushes back ([`Spill::hold`]): then all of them go to the file, and none
//! leaves it.

use super::{Buffer, BufferError, Entry, Oldest};
use crate::store::{NewMessage, Pushed, WorkError};
use skep_policy::{SeededChance, backoff};
use skep_store::StoreError;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, RwLock};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Where messages go while it is there.
pub trait PushTo: Send + Sync {
    /// Keeps messages; all of them or none. Whoever gets [`WorkError::Encryption`] here does not
    /// know better: the implementation reads the queue's options again and gives the messages the
    /// form it wants ([`crate::cipher::Cipher::recode`]) before it gives up.
    fn push(
        &self,
        messages: Vec<NewMessage>,
    ) -> impl Future<Output = Result<Vec<Pushed>, WorkError>> + Send;
}

/// Limits of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillOptions {
    /// Messages that are replayed together.
    pub batch_messages: u64,
    /// Bytes that are replayed together.
    pub batch_bytes: u64,
    /// Waits before the database is tried again.
    pub away: backoff::Options,
    /// Waits before a queue is tried again that refused what was kept for it.
    pub refused: backoff::Options,
    /// Whether pushes are kept here while the database is away; if not, only those are that are
    /// held back, and what comes behind them.
    pub when_away: bool,
}

impl Default for SpillOptions {
    fn default() -> Self {
        SpillOptions {
            batch_messages: 2_000,
            batch_bytes: 4 << 20,
            away: skep_store::DEFAULT_RETRY,
            refused: backoff::Options {
                base: Duration::from_secs(1),
                cap: Duration::from_secs(30),
            },
            when_away: true,
        }
    }
}

/// What became of a push. Either way it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is in the database.
    Pushed(Vec<Pushed>),
    /// It is on this machine, and will be in the database.
    Buffered,
}

/// Why a push was not kept, or whether it was is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpillError {
    /// The database refused it, or what waits for one of its queues: it would have to wait behind.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// It was to be kept here and was not.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

/// Pushes to a database that may be away.
pub struct Spill<P> {
    buffer: Buffer,
    database: P,
    options: SpillOptions,
    /// Held shared by whoever decides where a push goes, and alone by who empties the file.
    gate: RwLock<()>,
    state: Mutex<State>,
    /// Tells who replays that pushes are not held back any more.
    released: Notify,
}

struct State {
    away: bool,
    /// Whether everything stays here until somebody says otherwise.
    held: bool,
    refusals: HashMap<Arc<str>, Refusal>,
    chance: SeededChance,
}

/// A queue does not take what waits for it.
struct Refusal {
    error: WorkError,
    attempts: u32,
    again_at: Instant,
}

/// What a round of the replay came to.
enum Round {
    /// Something was done; look again at once.
    Moved,
    /// Nothing can be done before this, unless something comes.
    Idle(Option<Instant>),
}

impl<P: PushTo> Spill<P> {
    /// What is in the buffer already goes to the database first.
    pub fn new(buffer: Buffer, database: P, options: SpillOptions, seed: u64) -> Self {
        // With something to replay it shows soon whether the database is there.
        let away = !buffer.is_empty();
        let chance = SeededChance::new(seed);
        let state = State { away, held: false, refusals: HashMap::new(), chance };
        let (gate, state) = (RwLock::new(()), Mutex::new(state));
        Spill { buffer, database, options, gate, state, released: Notify::new() }
    }

    /// The file.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Whether the database did not answer when it was last asked.
    pub fn is_away(&self) -> bool {
        self.state().away
    }

    /// Holds pushes back, or lets them go. While they are held every push is kept here, and what
    /// is here stays; afterwards it goes to the database in the order in which it came. A push or
    /// a replay that is under way is not called back.
    pub fn hold(&self, held: bool) {
        let before = std::mem::replace(&mut self.state().held, held);
        if before && !held {
            self.released.notify_one();
        }
    }

    /// Whether pushes are held back.
    pub fn is_held(&self) -> bool {
        self.state().held
    }

    /// Keeps messages, in the database or here.
    pub async fn push(&self, messages: Vec<NewMessage>) -> Result<Kept, SpillError> {
        {
            let _open = self.gate.read().await;
            if self.goes_to_buffer(&messages)? {
                return self.keep(&messages).await;
            }
        }
        match self.database.push(messages.clone()).await {
            Ok(pushed) => Ok(Kept::Pushed(pushed)),
            Err(error) if is_away(&error) && self.options.when_away => {
                let _open = self.gate.read().await;
                let kept = self.keep(&messages).await?;
                // Only now, because it is the replay of what was kept that finds the database back.
                self.set_away(true, Some(&error));
                Ok(kept)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn goes_to_buffer(&self, messages: &[NewMessage]) -> Result<bool, WorkError> {
        let state = self.state();
        if state.held {
            return Ok(true);
        }
        let mut held = state.away && self.options.when_away;
        let mut last: Option<&Arc<str>> = None;
        for message in messages.iter().map(|message| &message.queue) {
            if last == Some(message) || !self.buffer.holds(message) {
                continue;
            }
            if let Some(refusal) = state.refusals.get(message) {
                return Err(refusal.error.clone());
            }
            (held, last) = (true, Some(message));
        }
        Ok(held)
    }

    async fn keep(&self, messages: &[NewMessage]) -> Result<Kept, SpillError> {
        self.buffer.keep(messages).await?;
        Ok(Kept::Buffered)
    }

    /// Brings what was kept to the database, for ever. Whoever drops it loses nothing.
    pub async fn replay(&self) {
        let mut failures = 0;
        let mut from = 0;
        loop {
            if self.is_held() {
                self.released.notified().await;
                continue;
            }
            match self.round(&mut from).await {
                Ok(Round::Moved) => failures = 0,
                Ok(Round::Idle(until)) => {
                    failures = 0;
                    let written = self.buffer.written();
                    match until {
                        Some(until) => drop(timeout_at(until, written).await),
                        None => written.await,
                    }
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(%error, failures, "buffered pushes cannot be replayed");
                    sleep_until(self.wait(failures, &self.options.away)).await;
                }
            }
        }
    }

    async fn round(&self, from: &mut i64) -> Result<Round, WorkError> {
        let (resting, due) = self.resting();
        // Those that are tried again stand before everything that was looked at since.
        *from = if due { 0 } else { *from };
        let Oldest { entries, more } = self.oldest(*from, &resting).await?;
        let Some(first) = entries.first() else {
            return self.nothing_found(from, &resting).await;
        };
        *from = first.number;
        // To be kept waiting at the gate by a database that is away would be to be away oneself.
        // Pushes that are being written meanwhile are no reason to leave it open: some always are.
        if self.is_away() || more {
            if !self.deliver_together(&entries).await? {
                self.deliver_each(entries).await?;
            }
            return Ok(Round::Moved);
        }
        let shut = self.gate.write().await;
        loop {
            if self.is_held() {
                return Ok(Round::Moved);
            }
            let Oldest { entries, .. } = self.oldest(*from, &resting).await?;
            if entries.is_empty() {
                return Ok(Round::Moved);
            }
            if !self.deliver_together(&entries).await? {
                // One by one may take long, and is not the last of it.
                drop(shut);
                self.deliver_each(entries).await?;
                return Ok(Round::Moved);
            }
        }
    }

    /// The file has nothing that could be tried. If it should, it was counted wrongly.
    async fn nothing_found(
        &self,
        from: &mut i64,
        resting: &HashMap<Arc<str>, Instant>,
    ) -> Result<Round, WorkError> {
        if self.buffer.entries_beside(resting) > 0 {
            let _shut = self.gate.write().await;
            *from = 0;
            if self.buffer.recount().await? && self.buffer.entries_beside(resting) > 0 {
                return Ok(Round::Moved);
            }
        }
        if self.buffer.is_empty() {
            self.set_away(false, None);
        }
        Ok(Round::Idle(resting.values().min().copied()))
    }

    async fn oldest(
        &self,
        from: i64,
        resting: &HashMap<Arc<str>, Instant>,
    ) -> Result<Oldest, WorkError> {
        let limits = (self.options.batch_messages, self.options.batch_bytes);
        let resting = resting.clone();
        let wanted = move |queue: &str| !resting.contains_key(queue);
        Ok(self.buffer.oldest(from, limits, wanted).await?)
    }

    /// Pushes entries to the database and strikes them out, unless any of them is refused.
    async fn deliver_together(&self, entries: &[Entry]) -> Result<bool, WorkError> {
        let all: Result<Vec<&Vec<NewMessage>>, _> =
            entries.iter().map(|entry| entry.messages.as_ref()).collect();
        let Ok(all) = all else {
            return Ok(false);
        };
        let all = all.into_iter().flatten().cloned().collect();
        match self.answered(self.database.push(all).await)? {
            Ok(_) => self.arrived(entries).await.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Pushes entries to the database one by one and strikes them out. One that is refused rests,
    /// and with it what stands behind it for the same queue.
    async fn deliver_each(&self, entries: Vec<Entry>) -> Result<(), WorkError> {
        let mut refused: HashSet<Arc<str>> = HashSet::new();
        for entry in entries {
            if refused.contains(&entry.queue) {
                continue;
            }
            if self.is_held() {
                break;
            }
            match self.deliver_alone(&entry).await? {
                Ok(()) => self.arrived(&[entry]).await?,
                Err(error) => {
                    self.refused(&entry.queue, error);
                    refused.insert(entry.queue);
                }
            }
        }
        Ok(())
    }

    /// Pushes one entry; in parts if the queue has no room for all of it, because it may be one
    /// that never has. What was in a part that fitted is a duplicate the next time.
    async fn deliver_alone(&self, entry: &Entry) -> Result<Result<(), WorkError>, WorkError> {
        let mut rest = match &entry.messages {
            Ok(messages) => &messages[..],
            Err(damaged) => return Ok(Err((*damaged).into())),
        };
        let mut size = rest.len();
        while !rest.is_empty() {
            size = size.min(rest.len());
            match self.answered(self.database.push(rest[..size].to_vec()).await)? {
                Ok(_) => rest = &rest[size..],
                Err(WorkError::Full { .. }) if size > 1 => size /= 2,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Tells an answer, even if it is a refusal, from none.
    fn answered<T>(&self, answer: Result<T, WorkError>) -> Result<Result<T, WorkError>, WorkError> {
        match answer {
            Err(error) if is_away(&error) => {
                self.set_away(true, Some(&error));
                Err(error)
            }
            answer => {
                self.set_away(false, None);
                Ok(answer)
            }
        }
    }

    async fn arrived(&self, entries: &[Entry]) -> Result<(), WorkError> {
        self.buffer.done(entries).await?;
        let mut state = self.state();
        if !state.refusals.is_empty() {
            entries.iter().for_each(|entry| drop(state.refusals.remove(&entry.queue)));
        }
        Ok(())
    }

    fn refused(&self, queue: &Arc<str>, error: WorkError) {
        tracing::warn!(queue = &**queue, %error, "a buffered push is refused and waits");
        let before = self.state().refusals.get(queue).map_or(0, |refusal| refusal.attempts);
        let attempts = before.saturating_add(1);
        let again_at = self.wait(attempts, &self.options.refused);
        let refusal = Refusal { error, attempts, again_at };
        self.state().refusals.insert(queue.clone(), refusal);
    }

    /// The queues that are not to be tried now, until when, and whether one is to be tried again.
    fn resting(&self) -> (HashMap<Arc<str>, Instant>, bool) {
        let (state, now) = (self.state(), Instant::now());
        let until = |(queue, refusal): (&Arc<str>, &Refusal)| {
            (refusal.again_at > now).then(|| (queue.clone(), refusal.again_at))
        };
        let resting: HashMap<_, _> = state.refusals.iter().filter_map(until).collect();
        let due = resting.len() < state.refusals.len();
        (resting, due)
    }

    fn wait(&self, attempt: u32, options: &backoff::Options) -> Instant {
        let wait = backoff::wait_before_attempt(attempt, options, &mut self.state().chance);
        Instant::now() + wait.chosen
    }

    fn set_away(&self, away: bool, error: Option<&WorkError>) {
        let before = std::mem::replace(&mut self.state().away, away);
        let waiting = self.buffer.messages();
        match (before, away, error) {
            (false, true, Some(error)) if self.options.when_away => {
                tracing::warn!(%error, "the database is away: pushes are kept here meanwhile");
            }
            (true, false, _) if waiting > 0 => {
                tracing::info!(waiting, "the database is back: buffered pushes go there now");
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the database is at fault, and not what was pushed. One that turns us away is away too:
/// whoever mends its password mends that.
fn is_away(error: &WorkError) -> bool {
    match error {
        WorkError::Store(error) => {
            error.is_temporary() || matches!(error, StoreError::Denied { .. })
        }
        _ => false,
    }
}
