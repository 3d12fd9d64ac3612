//! What the proxy does beside carrying requests: checks, the passing of time, and the minutes.

use crate::health::check;
use crate::moment::wall_ms;
use crate::proxy::{Inner, Proxy, tell};
use crate::route::Route;
use crate::store::{MinuteKey, MinuteRow, RouteStore};
use crate::upstream::Upstream;
use skep_policy::routes::rollup::Minute;
use skep_pools::{Failure, Outcome, Task, Tier};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// How often minutes are written, the one that is not over included.
const WRITE_EVERY: u64 = 10;
/// Minutes that may wait for a database that is away; the oldest of more are dropped.
const WAITING_MAX: usize = 10_000;
/// How often old minutes and events are looked for, in seconds.
const TIDY_EVERY: u64 = 600;
/// When that is done first: not at once, since the tables may not be there yet.
const TIDY_FIRST: u64 = 60;
/// How long minutes and events are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// What a check may take beyond its own limit, if there is much else to do.
const CHECK_SLACK: Duration = Duration::from_secs(10);
/// When an upstream without checks is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Does the chores of a proxy until `stop`, and then writes down what is left.
pub async fn run(proxy: Proxy, store: RouteStore, node: &str, stop: CancellationToken) {
    // Rows are replaced by later ones of the same writer; a node that was started again within the
    // minute is another.
    let writer = format!("{node}/{}", wall_ms());
    let ledger = Arc::new(Ledger { store, writer, waiting: Mutex::default() });
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut checks = Checks::default();
    let mut seconds: u64 = 0;
    loop {
        let next = checks.look(&proxy.inner);
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(next) => {}
            () = proxy.inner.changed.notified() => {}
            _ = second.tick() => {
                seconds += 1;
                ledger.collect(&proxy.inner);
                if seconds.is_multiple_of(WRITE_EVERY) {
                    submit(&proxy.inner, Tier::Normal, "route-minutes", &ledger, Chore::Write);
                }
                if seconds % TIDY_EVERY == TIDY_FIRST {
                    submit(&proxy.inner, Tier::Low, "route-retention", &ledger, Chore::Tidy);
                }
            }
        }
    }
    ledger.collect(&proxy.inner);
    if let Err(failure) = ledger.write().await {
        tracing::warn!(error = failure.message, "the last minutes of the routes are not written");
    }
}

/// What is done now and then in a pool.
#[derive(Clone, Copy)]
enum Chore {
    Write,
    Tidy,
}

fn submit(proxy: &Inner, tier: Tier, kind: &'static str, ledger: &Arc<Ledger>, chore: Chore) {
    let ledger = ledger.clone();
    let task = Task::future(kind, move |_| {
        let ledger = ledger.clone();
        async move {
            let done = match chore {
                Chore::Write => ledger.write().await,
                Chore::Tidy => ledger.tidy().await,
            };
            // It comes round again by itself, so there is nothing for anybody to look after.
            if let Err(failure) = done {
                tracing::debug!(error = failure.message, kind, "put off");
            }
            Ok(())
        }
    });
    if let Err(error) = proxy.pools.try_submit(tier, task) {
        tracing::debug!(%error, kind, "put off");
    }
}

/// When each upstream is to be looked at next.
#[derive(Default)]
struct Checks {
    due: HashMap<u64, Instant>,
}

impl Checks {
    /// Does what is due and says when the next thing is.
    fn look(&mut self, proxy: &Arc<Inner>) -> Instant {
        let now = Instant::now();
        let live = proxy.live.load_full();
        let mut known = HashSet::new();
        let mut next = now + LOOK_AGAIN;
        for route in &live.routes {
            for upstream in &route.upstreams {
                known.insert(upstream.id);
                match upstream.next_at() {
                    Some(at) if at <= proxy.moment.at(now) => {
                        proxy.pass_time(&route.name, upstream);
                    }
                    Some(at) => next = next.min(now + at.since(proxy.moment.at(now))),
                    None => {}
                }
                if let Some(health) = &route.spec.health {
                    let due = self.due.entry(upstream.id).or_insert(now);
                    if *due <= now {
                        // Counted from when it was due, so that the pace holds; never a backlog.
                        *due = (*due + health.every).max(now + health.every / 2);
                        submit_check(proxy, route, upstream);
                    }
                    next = next.min(*due);
                }
            }
        }
        self.due.retain(|id, _| known.contains(id));
        next
    }
}

fn submit_check(proxy: &Arc<Inner>, route: &Arc<Route>, upstream: &Arc<Upstream>) {
    let health = route.spec.health.as_ref();
    let limit = health.map_or(LOOK_AGAIN, |health| health.timeout) + CHECK_SLACK;
    // One that is still on its way when the next is due is as good as that one.
    let Some(checking) = upstream.begin_check() else { return };
    let checking = Arc::new(checking);
    let (proxy_held, route, upstream) = (proxy.clone(), route.clone(), upstream.clone());
    let task = Task::future("health-check", move |_| {
        let (proxy, route, upstream) = (proxy_held.clone(), route.clone(), upstream.clone());
        let checking = checking.clone();
        async move {
            let _checking = checking;
            let checked = check(&route, &upstream, &proxy.moment, &proxy.options.dialler).await;
            upstream.note_check(checked.as_ref().err().cloned());
            if let Some(decision) = upstream.tell_check(proxy.moment.now(), checked.is_ok()) {
                tell(&*proxy.journal, &route.name, &upstream, "health", &decision);
            }
            Ok(())
        }
    });
    let task = task.timeout(limit).retries(0);
    if let Err(error) = proxy.pools.try_submit(Tier::High, task) {
        tracing::debug!(%error, "a check is left out");
    }
}

/// The minutes that are not written yet, or not over yet.
struct Ledger {
    store: RouteStore,
    writer: String,
    waiting: Mutex<BTreeMap<(i64, Arc<str>), Pending>>,
}

#[derive(Default)]
struct Pending {
    minute: Minute,
    changed: bool,
}

impl Ledger {
    /// Takes in what every route has done since the last time.
    fn collect(&self, proxy: &Inner) {
        let at_ms = wall_ms();
        // What ended within the last second belongs to the minute in which most of it lies.
        let minute = (at_ms - 500).div_euclid(60_000);
        let live = proxy.live.load_full();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for route in &live.routes {
            let done = route.tally.take(at_ms);
            if done.requests() > 0 {
                let pending = waiting.entry((minute, route.name.clone())).or_default();
                pending.minute.merge(&done);
                pending.changed = true;
            }
        }
        while waiting.len() > WAITING_MAX {
            waiting.pop_first();
        }
    }

    /// Writes what has changed; minutes that are over are then forgotten.
    async fn write(&self) -> Outcome {
        let now = wall_ms().div_euclid(60_000);
        let rows: Vec<MinuteRow> = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.retain(|(minute, _), pending| pending.changed || *minute >= now - 1);
            let changed = waiting.iter_mut().filter(|(_, pending)| pending.changed);
            changed.map(|(key, pending)| self.row(key, pending)).take(1_000).collect()
        };
        if rows.is_empty() {
            return Ok(());
        }
        let keys: Vec<(i64, Arc<str>)> =
            rows.iter().map(|row| (row.key.minute, Arc::from(row.key.route.as_str()))).collect();
        self.store.add_minutes(rows).await.map_err(|error| {
            // Written again with the next: what is there already is replaced.
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for key in keys {
                if let Some(pending) = waiting.get_mut(&key) {
                    pending.changed = true;
                }
            }
            Failure::retryable(error)
        })
    }

    fn row(&self, key: &(i64, Arc<str>), pending: &mut Pending) -> MinuteRow {
        pending.changed = false;
        let minute = &pending.minute;
        let (at, route) = key;
        let (route, node) = (route.to_string(), self.writer.clone());
        MinuteRow {
            key: MinuteKey { minute: *at, route, node },
            answers: minute.answers,
            refused: minute.refused,
            bytes_in: minute.bytes_in,
            bytes_out: minute.bytes_out,
            histogram: minute.latency.to_bytes(),
        }
    }

    /// Forgets what is old.
    async fn tidy(&self) -> Outcome {
        let kept_ms = i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
        let before = wall_ms() - kept_ms;
        while self.store.forget_before(before.div_euclid(60_000)).await? {}
        while self.store.forget_events_before(before).await? {}
        Ok(())
    }
}
