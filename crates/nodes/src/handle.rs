//! What the other parts of a node hold.

use crate::metrics::NodesMetrics;
use crate::options::random;
use crate::store::TableStore;
use serde::Serialize;
use skep_policy::ownership::{
    Effect, Event, Grant, Key, Loads, Member, MemberOptions, Permit, Refusal, Standing, Status,
    Timing, Token, Want,
};
use skep_policy::{Clock, Reason, Time};
use skep_store::wall_ms;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Somebody who works on the keys of one kind. Called in the order of events; must not block.
pub trait Worker: Send + Sync + 'static {
    /// A key is ours. Work on it may begin, each piece with a permit; if the grant is `resumed`,
    /// work goes on under the new token.
    fn start(&self, grant: Grant);

    /// Begin nothing more on a key, finish what is being done, then call [`Nodes::stopped`].
    /// A node that is `leaving` has little time for that.
    fn stop(&self, key: &Key, reason: &Reason, leaving: bool);

    /// A key is no longer ours: whatever is being done on it must end now. Nobody is to be told.
    fn lost(&self, key: &Key, token: Token, reason: &Reason);
}

/// A node among the others. Clones are the same node.
#[derive(Clone)]
pub struct Nodes {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: MemberOptions,
    pub(crate) store: TableStore,
    pub(crate) metrics: NodesMetrics,
    pub(crate) state: Mutex<State>,
    /// The service has something to do.
    pub(crate) work: Notify,
    pub(crate) clock: Arc<dyn Clock>,
}

pub(crate) struct State {
    pub(crate) member: Member,
    /// Effects nobody has seen to yet, in their order.
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) workers: HashMap<&'static str, Arc<dyn Worker>>,
}

/// A key's name, and who owns it now.
pub type Moved = (String, Option<Arc<str>>);

/// A node as the others see it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: Arc<str>,
    /// This start of its program.
    pub instance: Arc<str>,
    /// Whether it is the one that was asked.
    pub here: bool,
    /// What it does with work.
    pub status: Status,
    /// How much work it takes beside the others.
    pub weight: u32,
    /// How long ago its last renewal was first heard of, in milliseconds.
    pub heard_ms: u64,
    /// How many keys of each kind it owns.
    pub owns: Loads,
    /// What it tells about itself.
    pub info: serde_json::Value,
}

/// How this node stands with the others.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Where the table is: `memory`, `redis` or `postgres`.
    pub store: &'static str,
    /// `inside`, `outside`, `name-taken` or `left`.
    pub standing: &'static str,
    /// The table's life.
    pub epoch: u64,
    /// Whether keys may be claimed. They may not right after the table lost something, until all
    /// trust from before has run out.
    pub settled: bool,
    /// How long until they may be claimed at the latest, in milliseconds.
    pub settles_in_ms: Option<u64>,
    /// How long this node still trusts its session without another renewal, in milliseconds; absent
    /// while it is alone, because then nothing can end it.
    pub trust_left_ms: Option<u64>,
    /// Every node.
    pub nodes: Vec<NodeView>,
}

impl Nodes {
    /// A node that will take part in the table in `store` as soon as its service runs.
    pub fn new(
        options: MemberOptions,
        store: TableStore,
        metrics: NodesMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let member = Member::new(options.clone(), random());
        let state = State { member, effects: VecDeque::new(), workers: HashMap::new() };
        let (state, work) = (Mutex::new(state), Notify::new());
        Nodes { inner: Arc::new(Inner { options, store, metrics, state, work, clock }) }
    }

    /// Names the worker for the keys of a kind, which begin with `kind/`. Before its keys are
    /// wanted.
    pub fn register(&self, kind: &'static str, worker: Arc<dyn Worker>) {
        self.lock().workers.insert(kind, worker);
    }

    /// Says which keys of a kind should be owned by somebody, as changes since last time. The first
    /// call of a kind must come with all keys it has: before it nothing of that kind is touched.
    pub fn want(&self, kind: &'static str, changes: Vec<(Key, Option<Want>)>) {
        self.tell(Event::Wanted { kind: kind.to_owned(), changes });
    }

    /// Work on a key has stopped, as [`Worker::stop`] asked.
    pub fn stopped(&self, key: &Key, due: i64) {
        self.tell(Event::Stopped { key: key.clone(), due });
    }

    /// Whether a piece of work on a key that takes at most `work` may be begun now. Ask right
    /// before it, and let nothing come between.
    pub fn permit(&self, key: &str, work: Duration) -> Result<Permit, Refusal> {
        let state = self.lock();
        state.member.permit(self.inner.clock.now(), key, work)
    }

    /// The wall clock that all nodes agree on, for schedules; this machine's until it is known.
    pub fn store_ms(&self) -> i64 {
        let now = self.inner.clock.now();
        self.lock().member.store_ms(now).unwrap_or_else(wall_ms)
    }

    /// Who owns a key, as far as this node knows.
    pub fn owner_of(&self, key: &str) -> Option<(Arc<str>, Token)> {
        self.lock().member.owner_of(key).map(|(name, token)| (name.clone(), token))
    }

    /// Owners of many keys, in their order.
    pub fn owners_of<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
    ) -> Vec<Option<(Arc<str>, Token)>> {
        let state = self.lock();
        keys.map(|key| state.member.owner_of(key).map(|(name, token)| (name.clone(), token)))
            .collect()
    }

    /// Keys of a kind whose owners have changed after the number `after`: their names, who owns
    /// them now, and the number to ask with next time. Only so many changes are remembered; whoever
    /// wants to know everything asks for the owners.
    pub fn moves_after(&self, kind: &str, after: u64) -> (Vec<Moved>, u64) {
        let state = self.lock();
        let mut newest = after;
        let mut moves = Vec::new();
        for (counter, key, owner) in state.member.changes_after(after) {
            newest = newest.max(counter);
            if let Some(name) = key.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')) {
                moves.push((name.to_owned(), owner.cloned()));
            }
        }
        (moves, newest)
    }

    /// This node's name.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.options.name
    }

    /// This start of the program.
    pub fn instance(&self) -> &Arc<str> {
        &self.inner.options.instance
    }

    /// The spans that ownership rests on.
    pub fn timing(&self) -> &Timing {
        &self.inner.options.timing
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        let now = self.inner.clock.now();
        let state = self.lock();
        self.inner.metrics.refresh(&state.member, now);
    }

    /// How this node and the others stand.
    pub fn overview(&self) -> Overview {
        let now = self.inner.clock.now();
        let state = self.lock();
        let member = &state.member;
        let settled = member.settled();
        let trust = member.trust_until();
        let alone = trust.as_nanos() == u64::MAX;
        let view = |peer: &skep_policy::ownership::Peer| NodeView {
            name: peer.row.name.clone(),
            instance: peer.row.instance.clone(),
            here: peer.row.instance == self.inner.options.instance,
            status: peer.row.status,
            weight: peer.row.weight,
            heard_ms: millis(now.since(peer.heard_at)),
            owns: member.loads_of(peer.row.session).cloned().unwrap_or_default(),
            info: serde_json::from_str(&peer.row.info).unwrap_or_default(),
        };
        Overview {
            store: self.inner.store.name(),
            standing: standing_name(member.standing()),
            epoch: member.epoch().number,
            settled,
            settles_in_ms: (!settled && member.epoch().number > 0)
                .then(|| millis(member.settles_at().since(now))),
            trust_left_ms: (!alone).then(|| millis(trust.since(now))),
            nodes: member.peers().map(view).collect(),
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        self.tell_at(self.inner.clock.now(), event);
    }

    pub(crate) fn tell_at(&self, now: Time, event: Event) {
        let mut effects = Vec::new();
        let mut state = self.lock();
        state.member.handle(now, event, &mut effects);
        state.effects.extend(effects);
        drop(state);
        self.inner.work.notify_one();
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As it is shown.
pub(crate) const fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Outside => "outside",
        Standing::Inside => "inside",
        Standing::NameTaken => "name-taken",
        Standing::Left => "left",
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
