//! A gateway's life among the others: it says that it lives, hears what is new, probes, and says
//! everything again whenever it cannot know what became of a question.

use crate::handle::Sessions;
use crate::history::WORKERS_MAX;
use crate::options::CutOff;
use crate::pace::Pace;
use crate::store::{Heard, TableStore};
use skep_policy::sessions::alerts::Watch;
use skep_policy::sessions::{Answer, Ask, Close, Hint, Probe, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// The first and the longest wait before a table that is away is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Closings told to the table at a time.
const CLOSING_AT_ONCE: usize = 64;
/// How often a gateway may say everything again only because a worker is not known.
const UNPLACED_FOR: Duration = Duration::from_secs(60);
/// How much of its lease a gateway trusts: others count from when they heard it, by their clock.
const TRUSTED_SHARE: f64 = 0.9;
/// How long the last words may take.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Takes part until `stop`. Sessions that are still open then are given up.
pub async fn run(sessions: Sessions, stop: CancellationToken) {
    let closings = {
        let mut out = sessions.shared.closings_out.lock().unwrap_or_else(PoisonError::into_inner);
        out.take()
    };
    let Some(closings) = closings else { return };
    let ended = CancellationToken::new();
    let closer = tokio::spawn(close_all(sessions.clone(), closings, ended.clone()));
    let mut life = Life {
        hints: sessions.shared.table.hints(),
        sessions,
        link: 0,
        unplaced: None,
        pace: Pace::default(),
        began: Instant::now(),
        watches: BTreeMap::new(),
        incarnations: BTreeMap::new(),
    };
    let watch = tokio::spawn(watch_lease(life.sessions.clone(), ended.clone()));
    stop.run_until_cancelled(life.live()).await;
    ended.cancel();
    // What is not told by then, others find out: a table that is away must not hold up the end.
    let _ = tokio::time::timeout(LEAVE_LIMIT, async { tokio::join!(closer, watch) }).await;
    life.leave().await;
}

struct Life {
    sessions: Sessions,
    hints: crate::store::Hints,
    link: u64,
    /// Since when some sessions' workers are not known.
    unplaced: Option<Instant>,
    pace: Pace,
    began: Instant,
    watches: BTreeMap<String, Watch>,
    /// Each worker's program and its sessions, to see lives end.
    incarnations: BTreeMap<u64, (u64, u32)>,
}

impl Life {
    async fn live(&mut self) {
        let mut ticks = tokio::time::interval(self.sessions.options().beat_every());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut broken = self.sessions.shared.broken.subscribe();
        self.join().await;
        self.configure().await;
        loop {
            let heard = tokio::select! {
                heard = self.hints.next() => Some(heard),
                _ = ticks.tick() => None,
                _ = broken.changed() => {
                    if *broken.borrow_and_update() >= self.link {
                        self.join().await;
                    }
                    continue;
                }
            };
            match heard {
                Some(Heard::Hint(Hint::Worker(number))) => self.wake(Some(number)),
                Some(Heard::Hint(Hint::Gateway(id))) if id == self.sessions.shared.gateway => {
                    self.beat().await;
                }
                Some(Heard::Hint(Hint::Gateway(_))) => {}
                Some(Heard::Missed) => {
                    self.wake(None);
                    self.beat().await;
                }
                None => {
                    self.beat().await;
                    self.observe().await;
                }
            }
        }
    }

    /// Says everything this gateway has, under a new link, until the table has heard it.
    async fn join(&mut self) {
        let shared = self.sessions.shared.clone();
        shared.link.send_replace(None);
        let mut wait = RETRY_FIRST;
        loop {
            self.link += 1;
            let (carried, waiting) = shared.local.all();
            let said: Vec<Ticket> =
                carried.iter().map(|one| one.ticket).chain(waiting.iter().copied()).collect();
            let ask = Ask::Join {
                gateway: shared.gateway,
                link: self.link,
                node: shared.options.node.clone(),
                ttl_ms: u64::try_from(shared.options.gateway_ttl.as_millis()).unwrap_or(u64::MAX),
                carried,
                waiting,
            };
            let asked = Instant::now();
            match shared.table.ask(&ask).await {
                Ok(Answer::Joined { unplaced }) => {
                    if self.link > 1 {
                        shared.rejoin();
                    }
                    shared.heard.send_replace(asked);
                    shared.metrics.uncounted(unplaced.len());
                    self.unplaced = match (unplaced.is_empty(), self.unplaced) {
                        (true, _) => None,
                        (false, since) => since.or(Some(asked)),
                    };
                    shared.link.send_replace(Some(self.link));
                    // Whatever ended while this was being said must be said to have ended.
                    for ticket in said {
                        if !shared.local.has(ticket) {
                            self.sessions.close(ticket, Close::Ended);
                        }
                    }
                    return;
                }
                Ok(other) => {
                    tracing::warn!(?other, "the table of sessions does not let this gateway in");
                }
                Err(error) => {
                    tracing::warn!(%error, "the table of sessions is away; trying again");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn beat(&mut self) {
        let shared = self.sessions.shared.clone();
        let again = self.unplaced.is_some_and(|since| since.elapsed() < UNPLACED_FOR);
        if again {
            self.join().await;
        }
        let ask = Ask::Beat { gateway: shared.gateway, link: self.link };
        let asked = Instant::now();
        match shared.table.ask(&ask).await {
            Ok(Answer::Beaten { news, probes, reaped }) => {
                shared.heard.send_replace(asked);
                shared.metrics.reaped(reaped);
                shared.local.hear(news);
                for probe in probes {
                    tokio::spawn(answer_probe(self.sessions.clone(), probe));
                }
            }
            Ok(_) => {
                tracing::warn!("the table of sessions has forgotten this gateway");
                self.join().await;
            }
            Err(error) => {
                tracing::warn!(%error, "the table of sessions did not answer");
                self.join().await;
            }
        }
    }

    /// Kinds that the table knows get the rules of this node's settings: whoever starts last says
    /// what holds.
    async fn configure(&self) {
        let shared = &self.sessions.shared;
        let Ok(Answer::Kinds { kinds }) = shared.table.ask(&Ask::Kinds).await else { return };
        for row in kinds {
            if row.rules == *shared.options.rules_of(&row.kind) {
                continue;
            }
            let kind = &row.kind;
            match self.sessions.configure(kind).await {
                Ok(()) => tracing::info!(kind, "the rules of a kind of worker have changed"),
                Err(error) => tracing::warn!(kind, %error, "the rules of a kind stay as they were"),
            }
        }
    }

    /// Wakes whoever waits for this worker's orders, or everybody.
    fn wake(&self, number: Option<u64>) {
        let mut listeners =
            self.sessions.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|_, listener| listener.strong_count() > 0);
        for (worker, listener) in listeners.iter() {
            if number.is_none_or(|number| number == *worker)
                && let Some(listener) = listener.upgrade()
            {
                listener.notify_waiters();
            }
        }
    }

    /// Looks at the fleet, for metrics and the dashboard.
    async fn observe(&mut self) {
        let shared = self.sessions.shared.clone();
        let Ok(Answer::Kinds { kinds }) = shared.table.ask(&Ask::Kinds).await else { return };
        let now = Instant::now();
        let mut any = false;
        // Not the wall's clock: a jump of it is no reason to call for anybody.
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for row in &kinds {
            let needed = self.pace.out_needed(now, row);
            shared.metrics.kind(row, needed);
            let watch = self.watches.entry(row.kind.clone()).or_default();
            for change in watch.observe(now_ms, row, needed) {
                shared.tell_alert(row.kind.clone(), change);
            }
            any |= row.standings.0.iter().any(|&count| count > 0);
        }
        shared.kinds.store(Arc::new(kinds));
        if !any && self.incarnations.is_empty() {
            return;
        }
        let ask = Ask::Workers { from: 1, limit: WORKERS_MAX };
        let Ok(Answer::Workers { workers }) = shared.table.ask(&ask).await else { return };
        let mut seen = BTreeMap::new();
        for row in &workers {
            if let Some(&(incarnation, lifetime)) = self.incarnations.get(&row.number)
                && incarnation != row.incarnation
            {
                shared.metrics.life_ended(lifetime);
            }
            seen.insert(row.number, (row.incarnation, row.lifetime));
        }
        self.incarnations = seen;
        shared.history.take(skep_store::wall_ms(), &workers);
    }

    async fn leave(&mut self) {
        let shared = self.sessions.shared.clone();
        shared.link.send_replace(None);
        let ask = Ask::Leave { gateway: shared.gateway, link: self.link };
        let left = tokio::time::timeout(LEAVE_LIMIT, shared.table.ask(&ask)).await;
        if !matches!(left, Ok(Ok(Answer::Done))) {
            tracing::warn!("this gateway could not say that it goes; others will notice");
        }
    }
}

/// A gateway that nobody has heard for longer than its lease may be thought dead, and what it
/// carries given to others. Where that must not be, its sessions end before.
async fn watch_lease(sessions: Sessions, ended: CancellationToken) {
    let options = sessions.options();
    if options.cut_off == CutOff::Keep {
        return;
    }
    let trust = options.gateway_ttl.mul_f64(TRUSTED_SHARE);
    let mut heard = sessions.shared.heard.subscribe();
    loop {
        let until = tokio::time::Instant::from_std(*heard.borrow_and_update() + trust);
        tokio::select! {
            () = ended.cancelled() => return,
            changed = heard.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep_until(until) => {
                sessions.shared.local.end_all("cut-off");
                let back = ended.run_until_cancelled(heard.changed()).await;
                if !matches!(back, Some(Ok(()))) {
                    return;
                }
            }
        }
    }
}

async fn answer_probe(sessions: Sessions, probe: Probe) {
    let Probe { worker, incarnation, url } = probe;
    let good = sessions.shared.probing.answers(url).await;
    let ask = Ask::Probed { worker, incarnation, good };
    if let Err(error) = sessions.shared.table.ask(&ask).await {
        tracing::warn!(worker, %error, "could not say whether a worker answers");
    }
}

/// Tells the table which sessions ended, many at a time, until `ended` and nothing is left.
async fn close_all(
    sessions: Sessions,
    mut closings: mpsc::Receiver<(Ticket, Close)>,
    ended: CancellationToken,
) {
    if matches!(sessions.shared.table, TableStore::Memory(_)) {
        return;
    }
    let mut telling = JoinSet::new();
    loop {
        let closing = tokio::select! {
            closing = closings.recv(), if telling.len() < CLOSING_AT_ONCE => closing,
            Some(_) = telling.join_next() => continue,
            () = ended.cancelled() => break,
        };
        let Some((ticket, how)) = closing else { break };
        telling.spawn(tell_closed(sessions.clone(), ticket, how));
    }
    while let Ok((ticket, how)) = closings.try_recv() {
        telling.spawn(tell_closed(sessions.clone(), ticket, how));
    }
    while telling.join_next().await.is_some() {}
}

async fn tell_closed(sessions: Sessions, ticket: Ticket, how: Close) {
    let shared = &sessions.shared;
    // Without a link it is said by leaving it out of what is carried, when there is one again.
    let Some(link) = *shared.link.borrow() else { return };
    let ask = Ask::Close { gateway: shared.gateway, link, ticket, how };
    match shared.table.ask(&ask).await {
        Ok(Answer::Done) => {}
        Ok(_) | Err(_) => sessions.broken(link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryTable, Probing, SessionsMetrics, SessionsOptions};
    use std::pin::Pin;

    struct Nobody;

    impl Probing for Nobody {
        fn answers(&self, _: Arc<str>) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
            Box::pin(std::future::ready(false))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_was_cut_off_ends_its_sessions_and_can_still_stop() {
        let options = SessionsOptions { cut_off: CutOff::End, ..SessionsOptions::new("n") };
        let table = TableStore::Memory(MemoryTable::new());
        let sessions = Sessions::new(options, table, Box::new(Nobody), SessionsMetrics::default());
        let (_, slot) = sessions.shared.local.begin(&"key".into());
        let ended = CancellationToken::new();
        let watch = tokio::spawn(watch_lease(sessions.clone(), ended.clone()));
        assert_eq!(slot.until(|slot| slot.ending()).await, "cut-off");
        ended.cancel();
        watch.await.expect("nobody has to be heard for it to end");
    }
}
