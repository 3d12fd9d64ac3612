//! Carries a node's requests to the table and its wishes to those who work.

use crate::handle::Nodes;
use skep_policy::Time;
use skep_policy::ownership::{Effect, Event, Key, News, NewsKind, Reply, Request};
use skep_store::{StoreError, wall_ms};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The node cannot take part, because another with its name does.
#[derive(Debug, thiserror::Error)]
#[error(
    "another node is called {name:?} and lives (its instance is {instance}); give each node of an \
     installation its own name with the setting node.name, as in --set node.name=web-2"
)]
pub struct NameTaken {
    /// The name.
    pub name: Arc<str>,
    /// The one that has it.
    pub instance: Arc<str>,
}

/// How long giving everything away may take. Nothing is worked on any more by then, so that only
/// the others wait longer.
const LEAVE_LIMIT: Duration = Duration::from_secs(4);

/// What happened to how many keys in one go, and the first of them.
type Told = HashMap<NewsKind, (u64, Option<Key>)>;

type Call = Pin<Box<dyn Future<Output = (u64, Result<Reply, StoreError>)> + Send>>;

/// Takes part until `stop` is cancelled, then gives everything away and leaves. Returns when the
/// node has left; whoever runs it limits how long that may take.
pub async fn run(nodes: Nodes, stop: CancellationToken) -> Result<(), NameTaken> {
    let mut service = Service { to_send: None, store_is_away: false, nodes };
    let mut call: Option<Call> = None;
    let mut hints = service.nodes.inner.store.hints(service.nodes.name());
    let mut leave_by = None;
    service.nodes.tell(Event::Wake);
    loop {
        match service.see_to_effects() {
            Ended::No => {}
            Ended::Left => return Ok(()),
            Ended::NameTaken(taken) => return Err(taken),
        }
        // The member sends nothing while something is on its way.
        call = service.to_send.take().or(call);
        let wait = service.until_wake();
        let answered = async {
            match call.as_mut() {
                Some(call) => call.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (id, answer) = answered => {
                call = None;
                service.answered(id, answer);
            }
            () = hints.next() => service.nodes.tell(Event::Hint),
            () = service.nodes.inner.work.notified() => {}
            () = tokio::time::sleep(wait) => service.nodes.tell(Event::Wake),
            () = stop.cancelled(), if leave_by.is_none() => {
                leave_by = Some(tokio::time::Instant::now() + LEAVE_LIMIT);
                service.nodes.tell(Event::Leave);
            }
            () = until(leave_by) => {
                let left = service.nodes.lock().member.held_count();
                tracing::warn!(
                    keys = left,
                    "left without a word, because the store does not answer; the others take over \
                     when this node's session has run out"
                );
                return Ok(());
            }
        }
    }
}

async fn until(end: Option<tokio::time::Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

enum Ended {
    No,
    Left,
    NameTaken(NameTaken),
}

struct Service {
    nodes: Nodes,
    to_send: Option<Call>,
    store_is_away: bool,
}

impl Service {
    /// Performs what the member wants, in its order.
    fn see_to_effects(&mut self) -> Ended {
        let mut told = Told::new();
        loop {
            let mut state = self.nodes.lock();
            let Some(effect) = state.effects.pop_front() else { break };
            let worker = match &effect {
                Effect::Start(grant) => worker_of(&state.workers, &grant.key),
                Effect::Stop { key, .. } | Effect::Lost { key, .. } => {
                    worker_of(&state.workers, key)
                }
                _ => None,
            };
            drop(state);
            match (effect, worker) {
                (Effect::Send { id, request }, _) => self.send(id, request),
                (Effect::Start(grant), Some(worker)) => worker.start(grant),
                (Effect::Stop { key, reason, leaving }, Some(worker)) => {
                    worker.stop(&key, &reason, leaving);
                }
                (Effect::Stop { key, .. }, None) => self.nodes.stopped(&key, 0),
                (Effect::Lost { key, token, reason }, Some(worker)) => {
                    worker.lost(&key, token, &reason);
                }
                (Effect::Start(_) | Effect::Lost { .. }, None) => {}
                (Effect::News(news), _) => self.tell_news(&news, &mut told),
                (Effect::NameTaken { instance }, _) => {
                    let name = self.nodes.name().clone();
                    return Ended::NameTaken(NameTaken { name, instance });
                }
                (Effect::Left, _) => {
                    say(told);
                    return Ended::Left;
                }
            }
        }
        say(told);
        Ended::No
    }

    fn send(&mut self, id: u64, mut request: Request) {
        request.least = u64::try_from(wall_ms() / 1_000).unwrap_or(0);
        let store = self.nodes.inner.store.clone();
        let limit = self.nodes.timing().call_limit();
        self.to_send = Some(Box::pin(async move { (id, store.ask(&request, limit).await) }));
    }

    fn answered(&mut self, id: u64, answer: Result<Reply, StoreError>) {
        self.nodes.inner.metrics.called(answer.is_ok());
        match &answer {
            Ok(_) if self.store_is_away => {
                self.store_is_away = false;
                tracing::info!("the store of the nodes answers again");
            }
            Err(error) if !self.store_is_away => {
                self.store_is_away = true;
                tracing::warn!(
                    %error,
                    "the store of the nodes does not answer; work goes on while this node trusts \
                     its session"
                );
            }
            _ => {}
        }
        self.nodes.tell(Event::Answered { id, reply: answer.ok() });
    }

    fn until_wake(&self) -> Duration {
        let now = self.nodes.inner.clock.now();
        let wake = self.nodes.lock().member.next_wake();
        // Timers of the runtime stand still while the machine sleeps, so none is long.
        let longest = Duration::from_secs(60);
        if wake == Time::from_nanos(u64::MAX) { longest } else { wake.since(now).min(longest) }
    }

    fn tell_news(&self, news: &News, told: &mut Told) {
        self.nodes.inner.metrics.news(news.kind);
        let (instance, event, reason) = (self.nodes.instance(), news.kind.name(), &news.reason);
        let peer = news.peer.as_deref().unwrap_or_default();
        match (&news.key, news.token) {
            (Some(key), Some(token)) => {
                tracing::debug!(%instance, event, %key, %token, peer, %reason, "lease");
                let entry = told.entry(news.kind).or_default();
                entry.0 += 1;
                entry.1.get_or_insert_with(|| key.clone());
            }
            _ if news.kind == NewsKind::Renewed => {
                tracing::trace!(%instance, event, "lease");
            }
            _ if news.kind == NewsKind::RenewFailed => {
                tracing::debug!(%instance, event, %reason, "lease");
            }
            _ => tracing::info!(%instance, event, peer, %reason, "lease"),
        }
    }
}

fn worker_of(
    workers: &HashMap<&'static str, Arc<dyn crate::Worker>>,
    key: &Key,
) -> Option<Arc<dyn crate::Worker>> {
    workers.get(key.split('/').next().unwrap_or_default()).cloned()
}

/// A line for each kind of news about keys, because thousands may change hands in one go. The debug
/// level has a line for each key.
fn say(told: Told) {
    for (kind, (keys, first)) in told {
        let (event, first) = (kind.name(), first.unwrap_or_else(|| "".into()));
        tracing::info!(event, keys, %first, "leases");
    }
}
