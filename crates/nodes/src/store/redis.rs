//! The table in Redis: a request is one run of one script.

mod reply;

use super::Hints;
use skep_policy::ownership::{Ask, Caller, PAGE_ROWS, Reply, Request, TOMBSTONES_MAX};
use skep_store::{Lua, Redis, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const NAME: &str = "redis";

/// The table in Redis. Clones share its connection.
#[derive(Clone)]
pub struct RedisTable {
    shared: Arc<Shared>,
}

struct Shared {
    redis: Redis,
    script: Lua,
    keys: [String; 5],
    channel: String,
    tombstones_max: usize,
    calls: AtomicU64,
}

impl RedisTable {
    /// The table of the installation with this id. Several may share a server.
    ///
    /// A connection whose peer has fallen silent is given up after the handle's own `call_timeout`;
    /// one much longer than the limit of [`super::TableStore::ask`] costs renewals.
    pub fn new(redis: &Redis, installation: &str) -> Self {
        // One hash tag: in a cluster all keys are on one server.
        let key = |name: &str| format!("skep:{{{installation}}}:{name}");
        let shared = Shared {
            redis: redis.clone(),
            script: Lua::new(include_str!("redis/table.lua")),
            keys: ["meta", "nodes", "rows", "changes", "tombs"].map(key),
            channel: key("hints"),
            tombstones_max: TOMBSTONES_MAX,
            calls: AtomicU64::new(0),
        };
        RedisTable { shared: Arc::new(shared) }
    }

    /// Remembers fewer forgotten keys, for tests. Counts calls of its own.
    #[must_use]
    pub fn with_tombstones_max(&self, most: usize) -> Self {
        let shared = &self.shared;
        let shared = Shared {
            redis: shared.redis.clone(),
            script: Lua::new(include_str!("redis/table.lua")),
            keys: shared.keys.clone(),
            channel: shared.channel.clone(),
            tombstones_max: most,
            calls: AtomicU64::new(0),
        };
        RedisTable { shared: Arc::new(shared) }
    }

    /// How often it was asked.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(
        &self,
        request: &Request,
        limit: Duration,
    ) -> Result<Reply, StoreError> {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let arguments = self.shared.arguments(request);
        let mut asking = Box::pin(call(self.shared.clone(), arguments));
        let target = || self.shared.redis.target();
        match tokio::time::timeout(limit, &mut asking).await {
            Ok(raw) => reply::read(request, raw?).map_err(|problem| StoreError::Unknown {
                store: NAME,
                cause: format!("the answer of {} makes no sense: {problem}", target()),
            }),
            Err(_) => {
                // The handle gives a silent connection up only for a call that runs into its own
                // limit; the next question needs a new one.
                tokio::spawn(asking);
                let cause = format!("{}: no answer within {limit:?}", target());
                Err(StoreError::Unknown { store: NAME, cause })
            }
        }
    }

    pub(super) fn hints(&self, name: &str) -> Hints {
        Hints::from_server(self.shared.redis.subscribe(&self.shared.channel), name)
    }
}

async fn call(shared: Arc<Shared>, arguments: Vec<String>) -> Result<reply::Raw, StoreError> {
    let asking = shared.redis.script(&shared.script, |call| {
        for key in &shared.keys {
            call.key(key);
        }
        for argument in &arguments {
            call.arg(argument);
        }
    });
    asking.await
}

impl Shared {
    /// In the order in which the script reads them.
    fn arguments(&self, request: &Request) -> Vec<String> {
        let (kind, items) = match &request.ask {
            Ask::Join { .. } => ("join", 0),
            Ask::Tick { .. } => ("tick", 0),
            Ask::Claim(_, keys) => ("claim", keys.len()),
            Ask::Reclaim(_, held) => ("reclaim", 3 * held.len()),
            Ask::Handoff(_, moves) => ("handoff", 3 * moves.len()),
            Ask::Release(_, keys) => ("release", 2 * keys.len()),
            Ask::Forget(_, keys) => ("forget", keys.len()),
            Ask::Expire { .. } => ("expire", 0),
            Ask::EndGrace(_) => ("end-grace", 0),
            Ask::Bye(_) => ("bye", 0),
        };
        let seen = &request.seen;
        let mut list = Vec::with_capacity(16 + items);
        let mut add = |argument: &dyn ToString| list.push(argument.to_string());
        add(&kind);
        add(&seen.epoch.number);
        add(&seen.epoch.tag);
        add(&seen.counter);
        add(&request.nonce);
        add(&self.channel);
        add(&self.tombstones_max);
        add(&PAGE_ROWS);
        add(&request.least);
        match &request.ask {
            Ask::Join { name, instance, weight, status, info } => {
                let parts: [&dyn ToString; 5] = [name, instance, weight, &status.name(), info];
                parts.into_iter().for_each(add);
            }
            Ask::Tick { name, session, weight, status, info, since, floor } => {
                let parts: [&dyn ToString; 7] =
                    [name, session, weight, &status.name(), info, since, floor];
                parts.into_iter().for_each(add);
            }
            Ask::Claim(caller, keys) | Ask::Forget(caller, keys) => {
                add_caller(caller, &mut add);
                keys.iter().for_each(|key| add(key));
            }
            Ask::Reclaim(caller, held) => {
                add_caller(caller, &mut add);
                for (key, token, due) in held {
                    let parts: [&dyn ToString; 3] = [key, &token.epoch, due];
                    parts.into_iter().for_each(&mut add);
                }
            }
            Ask::Handoff(caller, moves) => {
                add_caller(caller, &mut add);
                for (key, target, due) in moves {
                    let parts: [&dyn ToString; 3] = [key, target, due];
                    parts.into_iter().for_each(&mut add);
                }
            }
            Ask::Release(caller, keys) => {
                add_caller(caller, &mut add);
                for (key, due) in keys {
                    add(key);
                    add(due);
                }
            }
            Ask::Expire { session, seq } => {
                add(session);
                add(seq);
            }
            Ask::EndGrace(caller) | Ask::Bye(caller) => add_caller(caller, &mut add),
        }
        list
    }
}

fn add_caller(caller: &Caller, add: &mut impl FnMut(&dyn ToString)) {
    let parts: [&dyn ToString; 3] = [&caller.name, &caller.session, &caller.seq];
    parts.into_iter().for_each(add);
}
