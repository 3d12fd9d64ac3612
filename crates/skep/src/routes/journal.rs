//! Writes down what the proxy tells: requests to the access log, events to the database.

use super::events::{Events, LiveEvent};
use crate::access::now_ms;
use crate::node::State;
use crate::work::{AccessEntry, AccessLog, when_ready, written};
use skep_pools::{Batch, BatchOptions, Batcher, Pools, Tier};
use skep_routes::store::{NewEvent, RouteStore};
use skep_routes::{Event, Journal, Record};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Events that may wait for a database that is away; more are dropped and counted.
const WAITING_MAX: usize = 10_000;

/// The journal of a node.
pub struct NodeJournal {
    node: String,
    access_log: Option<Arc<AccessLog>>,
    events: Mutex<Events>,
    /// How many there were of each kind and status.
    counts: Mutex<BTreeMap<(&'static str, u16), u64>>,
    to_store: Batcher<NewEvent>,
}

impl NodeJournal {
    /// What is to be written waits until the node is ready.
    pub fn new(
        node: &str,
        pools: &Pools,
        access_log: Option<Arc<AccessLog>>,
        store: &RouteStore,
        state: &watch::Receiver<State>,
    ) -> Self {
        let (store, state) = (store.clone(), state.clone());
        let write = move |batch: Batch<NewEvent>| {
            let (store, state) = (store.clone(), state.clone());
            async move {
                when_ready(&state)?;
                written(store.write_events(batch.to_vec()).await)
            }
        };
        let options = BatchOptions {
            tier: Tier::Critical,
            capacity: WAITING_MAX,
            ..BatchOptions::new("route-events")
        };
        let to_store = Batcher::new(pools, options, write, |event: &NewEvent, failure| {
            let error = &failure.message;
            tracing::error!(route = event.route, kind = event.kind, error, "an event is not kept");
        });
        NodeJournal {
            node: node.to_owned(),
            access_log,
            events: Mutex::default(),
            counts: Mutex::default(),
            to_store,
        }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, event: &LiveEvent) {
        self.to_store.push_or_drop(event.to_store(&self.node, by_chance()));
    }

    /// Tells what was counted for long enough; to be called now and then.
    pub fn pass_time(&self) {
        let due = self.events().due(now_ms());
        due.iter().for_each(|event| self.write(event));
    }

    /// Events after the one with this number, and the number of the newest.
    pub fn after(&self, number: u64) -> (Vec<LiveEvent>, u64) {
        let events = self.events();
        (events.after(number), events.newest())
    }

    /// Events that neither a stream nor the database was told of, or only the stream.
    pub fn dropped(&self) -> u64 {
        let totals = self.to_store.totals();
        self.events().dropped() + totals.dropped + totals.given_up
    }

    /// How many events there were, by kind and status.
    pub fn counts(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes everything that waits.
    pub async fn finish(&self) {
        let due = self.events().due(i64::MAX);
        due.iter().for_each(|event| self.write(event));
        self.to_store.flush().await;
    }
}

impl Journal for NodeJournal {
    fn note(&self, record: Record) {
        let Some(log) = &self.access_log else { return };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        log.note(AccessEntry {
            at_ms: record.at_ms,
            route: record.route,
            host: record.host.into(),
            method: record.method,
            path: record.path.into(),
            status: i64::from(record.status),
            duration_us: signed(record.duration_us),
            address: record.address.map(|address| address.to_string()).unwrap_or_default(),
            actor: "-".to_owned(),
            request_id: record.request_id.into(),
            upstream: record.upstream.unwrap_or_default(),
            bytes_in: signed(record.bytes_in),
            bytes_out: signed(record.bytes_out),
            tries: i64::from(record.tries),
            protocol: record.protocol.into(),
            error: record.error.into(),
            ..AccessEntry::default()
        });
    }

    fn tell(&self, event: Event) {
        let kind = (event.kind, event.status.unwrap_or(0));
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        let now = self.events().take(event);
        if let Some(event) = now {
            self.write(&event);
        }
    }
}

/// A key for an event, so that one that is written again is known.
fn by_chance() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}
