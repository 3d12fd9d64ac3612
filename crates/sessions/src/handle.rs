//! What a node holds of its sessions.

use crate::choices::{Choice, Choices};
use crate::error::{Refused, TableError};
use crate::history::{History, Series};
use crate::loads::Loads;
use crate::local::{Local, Slot};
use crate::metrics::SessionsMetrics;
use crate::options::SessionsOptions;
use crate::probe::Probing;
use crate::store::TableStore;
use arc_swap::ArcSwap;
use skep_policy::sessions::alerts::Change;
use skep_policy::sessions::{
    Answer, Ask, Close, GATEWAY_ID_MAX, GatewayId, KindRow, Refusal, Seat, SessionRow, Ticket,
    Want, WorkerNumber, WorkerRow,
};
use skep_store::StoreError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};

/// Closings that wait to be told to the table; more make the gateway say everything again.
const CLOSINGS_MAX: usize = 16_384;

/// Alerts that wait to be taken.
const ALERTS_MAX: usize = 256;

/// So long after the table came back workers may still be about to say themselves again, and so
/// often it is looked whether they have.
const COMING_BACK: Duration = Duration::from_secs(30);
const COMING_BACK_LOOK: Duration = Duration::from_millis(100);

/// A node's sessions. Clones are the same.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub options: SessionsOptions,
    pub table: TableStore,
    pub metrics: SessionsMetrics,
    pub probing: Box<dyn Probing>,
    pub gateway: GatewayId,
    pub local: Local,
    /// The present link to the table; none while there is none.
    pub link: watch::Sender<Option<u64>>,
    /// When the last question was asked that the table answered.
    pub heard: watch::Sender<Instant>,
    /// The link with this number is of no use any more.
    pub broken: watch::Sender<u64>,
    pub closings: mpsc::Sender<(Ticket, Close)>,
    pub closings_out: Mutex<Option<mpsc::Receiver<(Ticket, Close)>>>,
    pub listeners: Mutex<BTreeMap<WorkerNumber, Weak<Notify>>>,
    pub draining: AtomicBool,
    pub choices: Choices,
    pub history: History,
    pub kinds: ArcSwap<Vec<KindRow>>,
    pub loads: Loads,
    alerts: Mutex<VecDeque<(String, Change)>>,
    /// When a table that was away was last heard again.
    rejoined: Mutex<Option<Instant>>,
}

impl Shared {
    /// A table that was away is heard again.
    pub fn rejoin(&self) {
        self.metrics.rejoined();
        *self.rejoined.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn rejoined(&self) -> Option<Instant> {
        *self.rejoined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an alert until somebody takes it; the oldest of too many are forgotten.
    pub fn tell_alert(&self, kind: String, change: Change) {
        let mut alerts = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        if alerts.len() == ALERTS_MAX {
            alerts.pop_front();
        }
        alerts.push_back((kind, change));
    }
}

/// What a session asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// None is the kind that the settings name.
    pub kind: Option<String>,
    pub want: Want,
    /// Who asks; empty for anybody.
    pub key: Arc<str>,
    /// A worker that is being tried already.
    pub avoid: Option<WorkerNumber>,
    /// Whether to wait in the line.
    pub wait: bool,
    pub deadline: Instant,
}

/// A slot of a worker. Dropped without [`Placed::close`] it counts as never used.
pub struct Placed {
    sessions: Sessions,
    ticket: Ticket,
    id: String,
    slot: Arc<Slot>,
    seat: Seat,
    closed: bool,
}

impl Sessions {
    /// The sessions of a node. [`crate::run`] must run for anything to happen.
    pub fn new(
        options: SessionsOptions,
        table: TableStore,
        probing: Box<dyn Probing>,
        metrics: SessionsMetrics,
    ) -> Self {
        let (closings, closings_out) = mpsc::channel(CLOSINGS_MAX);
        let shared = Shared {
            options,
            table,
            metrics,
            probing,
            gateway: random_gateway(),
            local: Local::default(),
            link: watch::Sender::new(None),
            heard: watch::Sender::new(Instant::now()),
            broken: watch::Sender::new(0),
            closings,
            closings_out: Mutex::new(Some(closings_out)),
            listeners: Mutex::default(),
            draining: AtomicBool::new(false),
            choices: Choices::default(),
            history: History::default(),
            kinds: ArcSwap::default(),
            loads: Loads::default(),
            alerts: Mutex::default(),
            rejoined: Mutex::default(),
        };
        Sessions { shared: Arc::new(shared) }
    }

    /// What this node was told.
    pub fn options(&self) -> &SessionsOptions {
        &self.shared.options
    }

    /// Gives a session its worker, waiting in the line if it must and wants to. Dropping the
    /// future gives up its place.
    pub async fn checkout(&self, wish: &Wish) -> Result<Placed, Refused> {
        let shared = &self.shared;
        let kind = wish.kind.clone().unwrap_or_else(|| shared.options.default_kind.clone());
        if shared.draining.load(Ordering::Relaxed) {
            shared.metrics.refused("draining");
            return Err(Refused::Draining);
        }
        let begun = Instant::now();
        let (ticket, slot) = shared.local.begin(&wish.key);
        let mut pending = Pending { sessions: self, ticket, fate: Fate::Forget };
        let found = self.place(&kind, wish, &mut pending, &slot).await;
        match found {
            Ok(seat) => {
                pending.fate = Fate::Keep;
                shared.choices.seated(self, ticket, &kind, &seat, begun.elapsed());
                shared.metrics.chosen(shared.options.rules_of(&kind).policy, &seat);
                Ok(Placed {
                    sessions: self.clone(),
                    ticket,
                    id: self.session_id(ticket),
                    slot,
                    seat,
                    closed: false,
                })
            }
            Err(refused) => {
                shared.choices.refused(self, ticket, &kind, &refused, begun.elapsed());
                shared.metrics.refused(refused.name());
                Err(refused)
            }
        }
    }

    async fn place(
        &self,
        kind: &str,
        wish: &Wish,
        pending: &mut Pending<'_>,
        slot: &Slot,
    ) -> Result<Seat, Refused> {
        let shared = &self.shared;
        let begun = Instant::now();
        let deadline = tokio::time::Instant::from_std(wish.deadline);
        let mut trouble = "there is no answer".to_owned();
        loop {
            let Ok(link) = tokio::time::timeout_at(deadline, self.linked()).await else {
                return Err(Refused::TableAway { cause: trouble });
            };
            pending.fate = Fate::Close;
            let ask = Ask::Checkout(skep_policy::sessions::Checkout {
                gateway: shared.gateway,
                link,
                ticket: pending.ticket,
                kind: kind.to_owned(),
                want: wish.want.clone(),
                key: wish.key.clone(),
                key_max: if wish.key.is_empty() { 0 } else { shared.options.per_key_max },
                avoid: wish.avoid,
                wait: wish.wait,
            });
            let asking = self.ask_through(ask, pending.ticket, link);
            let answered = tokio::time::timeout_at(deadline, asking).await;
            match answered {
                Ok(Ok(Answer::Seated(seat))) => {
                    slot.give(seat.clone());
                    return Ok(seat);
                }
                Ok(Ok(Answer::Waiting { .. })) => {
                    let mut links = shared.link.subscribe();
                    let seated = slot.until(|slot| match (slot.seat(), slot.ending()) {
                        (_, Some(_)) => Some(Err(Refused::Ended)),
                        (Some(seat), None) => Some(Ok(seat.clone())),
                        (None, None) => None,
                    });
                    tokio::select! {
                        found = seated => return found,
                        _ = links.wait_for(|now| *now != Some(link)) => {}
                        () = tokio::time::sleep_until(deadline) => {
                            let (kind, waited) = (kind.to_owned(), begun.elapsed());
                            return Err(Refused::WaitedTooLong { kind, waited });
                        }
                    }
                }
                Ok(Ok(Answer::Refused(refusal))) => {
                    pending.fate = Fate::Forget;
                    if refusal == Refusal::NoWorkers && self.may_come_back(wish, deadline).await {
                        continue;
                    }
                    return Err(self.refusal(kind, wish, refusal));
                }
                Ok(Ok(Answer::Unconfigured)) => {
                    // A kind is known from its first worker on; clients cannot invent any.
                    pending.fate = Fate::Forget;
                    if self.may_come_back(wish, deadline).await {
                        continue;
                    }
                    return Err(Refused::NoWorkers { kind: kind.to_owned() });
                }
                Ok(Ok(_)) => self.broken(link),
                Ok(Err(error)) => {
                    trouble = error.to_string();
                    self.broken(link);
                }
                Err(_) => {
                    self.broken(link);
                    return Err(Refused::TableAway { cause: trouble });
                }
            }
        }
    }

    /// Waits a little and says yes, if workers may be about to come back: a table that was away may
    /// have lost everything, and they say themselves again with their next sign of life.
    async fn may_come_back(&self, wish: &Wish, deadline: tokio::time::Instant) -> bool {
        let lately = |since: &Instant| since.elapsed() < COMING_BACK;
        let again_at = tokio::time::Instant::now() + COMING_BACK_LOOK;
        if !wish.wait
            || again_at >= deadline
            || !self.shared.rejoined().as_ref().is_some_and(lately)
        {
            return false;
        }
        tokio::time::sleep_until(again_at).await;
        true
    }

    /// Asks for a seat. A question that was sent is always heard to its end, also if nobody wants
    /// to know any more: to close what may be about to begin would leave it open for ever.
    async fn ask_through(&self, ask: Ask, ticket: Ticket, link: u64) -> Result<Answer, StoreError> {
        if let TableStore::Memory(table) = &self.shared.table {
            return Ok(table.step(&ask, None).answer);
        }
        let sessions = self.clone();
        let asking = tokio::spawn(async move {
            let answer = sessions.shared.table.ask(&ask).await;
            let left = !sessions.shared.local.has(ticket);
            match &answer {
                Ok(Answer::Seated(_) | Answer::Waiting { .. }) if left => {
                    sessions.close(ticket, Close::Unused);
                }
                Err(_) if left => sessions.broken(link),
                _ => {}
            }
            answer
        });
        asking.await.unwrap_or_else(|error| {
            let cause = format!("asking for a seat ended early: {error}");
            Err(StoreError::Unknown { store: self.shared.table.name(), cause })
        })
    }

    fn refusal(&self, kind: &str, wish: &Wish, refusal: Refusal) -> Refused {
        let options = &self.shared.options;
        let kind = kind.to_owned();
        match refusal {
            Refusal::NoWorkers => Refused::NoWorkers { kind },
            Refusal::NoMatch { .. } => Refused::NoMatch { kind, want: wish.want.clone(), refusal },
            Refusal::Busy => Refused::Busy { kind },
            Refusal::LineFull => {
                let waiting_max = options.rules_of(&kind).waiting_max;
                Refused::LineFull { kind, waiting_max }
            }
            Refusal::KeyLimit => Refused::KeyLimit { most: options.per_key_max },
        }
    }

    /// Waits for a link to the table.
    async fn linked(&self) -> u64 {
        let mut links = self.shared.link.subscribe();
        let found = links.wait_for(Option::is_some).await.map(|link| *link);
        match found {
            Ok(link) => link.unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// A link is of no use any more: it is not known what became of something that was asked.
    pub(crate) fn broken(&self, link: u64) {
        self.shared.broken.send_if_modified(|worst| {
            let worse = *worst < link;
            *worst = (*worst).max(link);
            worse
        });
    }

    /// Tells the table the rules of a kind.
    pub(crate) async fn configure(&self, kind: &str) -> Result<(), StoreError> {
        let rules = self.shared.options.rules_of(kind).clone();
        self.shared.table.ask(&Ask::Configure { kind: kind.to_owned(), rules }).await?;
        Ok(())
    }

    pub(crate) fn close(&self, ticket: Ticket, how: Close) {
        let shared = &self.shared;
        shared.local.remove(ticket);
        let Some(link) = *shared.link.borrow() else { return };
        if let TableStore::Memory(table) = &shared.table {
            table.step(&Ask::Close { gateway: shared.gateway, link, ticket, how }, None);
        } else if shared.closings.try_send((ticket, how)).is_err() {
            self.broken(link);
        }
    }

    /// Takes no more sessions from now on; those that are open go on.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
    }

    /// Sessions of this gateway, waiting ones too.
    pub fn open(&self) -> usize {
        self.shared.local.len()
    }

    /// All kinds, as they are now.
    pub async fn kinds(&self) -> Result<Vec<KindRow>, TableError> {
        match self.ask(&Ask::Kinds).await? {
            Answer::Kinds { kinds } => Ok(kinds),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }

    /// All kinds, as this node last heard.
    pub fn kinds_heard(&self) -> Arc<Vec<KindRow>> {
        self.shared.kinds.load_full()
    }

    /// Workers with numbers from `from` on.
    pub async fn workers(
        &self,
        from: WorkerNumber,
        limit: usize,
    ) -> Result<Vec<WorkerRow>, TableError> {
        match self.ask(&Ask::Workers { from, limit }).await? {
            Answer::Workers { workers } => Ok(workers),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }

    /// The worker of this name.
    pub async fn worker(&self, name: &str) -> Result<WorkerRow, TableError> {
        match self.ask(&Ask::Worker { name: name.to_owned() }).await? {
            Answer::Workers { mut workers } if workers.len() == 1 => Ok(workers.remove(0)),
            Answer::Unknown => Err(TableError::Unknown(format!("worker {name:?}"))),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }

    /// Sessions after this one, of all gateways.
    pub async fn sessions(
        &self,
        after: Option<(GatewayId, Ticket)>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, TableError> {
        match self.ask(&Ask::Sessions { after, limit }).await? {
            Answer::Sessions { sessions } => Ok(sessions),
            other => Err(nonsense(self.shared.table.name(), &other)),
        }
    }

    /// Ends a session, wherever it is carried.
    pub async fn end(&self, id: &str) -> Result<(), TableError> {
        let unknown = || TableError::Unknown(format!("session {id:?}"));
        let (gateway, ticket) = parse_session_id(id).ok_or_else(unknown)?;
        match self.ask(&Ask::End { gateway, ticket }).await? {
            Answer::Done => Ok(()),
            _ => Err(unknown()),
        }
    }

    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Answer, TableError> {
        Ok(self.shared.table.ask(ask).await?)
    }

    /// The latest choices of this node, newest first.
    pub fn choices(&self) -> Vec<Choice> {
        self.shared.choices.all()
    }

    /// Alerts that began or ended since this was last asked, each with the kind of worker.
    pub fn take_alerts(&self) -> Vec<(String, Change)> {
        let mut alerts = self.shared.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        alerts.drain(..).collect()
    }

    /// The lifetimes of workers over the last minutes, as this node saw them.
    pub fn series(&self) -> Series {
        self.shared.history.series()
    }

    fn session_id(&self, ticket: Ticket) -> String {
        session_id(self.shared.gateway, ticket)
    }

    pub(crate) fn listen_for(&self, worker: WorkerNumber) -> Arc<Notify> {
        let mut listeners = self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = listeners.get(&worker).and_then(Weak::upgrade) {
            return found;
        }
        let fresh = Arc::new(Notify::new());
        listeners.insert(worker, Arc::downgrade(&fresh));
        fresh
    }
}

/// A session's id, for people and programs: `s-`, its gateway and its ticket.
pub fn session_id(gateway: GatewayId, ticket: Ticket) -> String {
    format!("s-{gateway:x}-{ticket}")
}

/// Reads a session's id.
pub fn parse_session_id(id: &str) -> Option<(GatewayId, Ticket)> {
    let (gateway, ticket) = id.strip_prefix("s-")?.split_once('-')?;
    Some((GatewayId::from_str_radix(gateway, 16).ok()?, ticket.parse().ok()?))
}

pub(crate) fn nonsense(store: &'static str, answer: &Answer) -> TableError {
    let cause = format!("an answer that does not belong to the question: {answer:?}");
    TableError::Store(StoreError::Unknown { store, cause })
}

fn random_gateway() -> GatewayId {
    let mut bytes = [0; 8];
    // Without a random device nothing else would work either; the address of a local is better
    // than a constant.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = (std::ptr::from_ref(&bytes).addr() as u64).to_ne_bytes();
    }
    u64::from_ne_bytes(bytes) & GATEWAY_ID_MAX
}

/// A session that has no seat yet. Dropped, it is as if it had never been asked for.
struct Pending<'a> {
    sessions: &'a Sessions,
    ticket: Ticket,
    fate: Fate,
}

/// What becomes of a session that is no longer being placed.
enum Fate {
    /// The table never heard of it, or refused it.
    Forget,
    /// The table may know it.
    Close,
    /// It has its seat.
    Keep,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        match self.fate {
            Fate::Forget => drop(self.sessions.shared.local.remove(self.ticket)),
            Fate::Close => self.sessions.close(self.ticket, Close::Unused),
            Fate::Keep => {}
        }
    }
}

impl Placed {
    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it sits.
    pub fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Waits until the session must be closed, and says why.
    pub async fn told_to_end(&self) -> &'static str {
        self.slot.until(Slot::ending).await
    }

    /// Gives the slot back.
    pub fn close(mut self, how: Close) {
        self.closed = true;
        self.sessions.close(self.ticket, how);
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.closed {
            self.sessions.close(self.ticket, Close::Unused);
        }
    }
}

impl Refused {
    /// A short name, for metrics and machines.
    pub fn name(&self) -> &'static str {
        match self {
            Refused::NoWorkers { .. } => "no-workers",
            Refused::NoMatch { .. } => "no-match",
            Refused::Busy { .. } => "busy",
            Refused::LineFull { .. } => "line-full",
            Refused::WaitedTooLong { .. } => "waited-too-long",
            Refused::KeyLimit { .. } => "key-limit",
            Refused::Ended => "ended",
            Refused::Draining => "draining",
            Refused::TableAway { .. } => "table-away",
        }
    }

    /// When to try again, if that can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refused::NoMatch { .. } | Refused::Ended => None,
            Refused::NoWorkers { .. } | Refused::TableAway { .. } => Some(Duration::from_secs(5)),
            Refused::Busy { .. }
            | Refused::LineFull { .. }
            | Refused::WaitedTooLong { .. }
            | Refused::KeyLimit { .. }
            | Refused::Draining => Some(Duration::from_secs(1)),
        }
    }
}
