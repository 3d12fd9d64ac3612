//! Keeps what decisions go by up to date, while the node lives.

use crate::forward::{Evidence, Outgoing, Peer, RequestId, Sending, Witness};
use crate::handle::{Cluster, Inner, Seen};
use crate::membership::{self, Change, State};
use crate::pulse::{Ears, Pulse};
use crate::wire::{Load, MoveRecord};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method};
use skep_policy::breaker;
use skep_policy::cluster::{Member, Sample, View};
use skep_policy::{Name, Time};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Two snapshots are at least so far apart, however much changes.
const RENEW_EVERY: Duration = Duration::from_millis(10);

/// Takes part until `stop`, and says goodbye.
pub async fn run(cluster: Cluster, stop: CancellationToken) {
    let Some(pulse) = cluster.0.pulse.get().cloned() else { return };
    let pulse_stop = CancellationToken::new();
    let beating = crate::pulse::run(pulse.clone(), pulse_stop.clone());
    let keeping = async {
        stop.run_until_cancelled(keep(&cluster.0, &pulse)).await;
        pulse_stop.cancel();
    };
    tokio::join!(beating, keeping);
}

async fn keep(inner: &Arc<Inner>, pulse: &Pulse) {
    let mut renewed = pulse.watch();
    let mut ticks = tokio::time::interval(inner.options.pulse.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // When each node's sample came, and what was under way to it then.
    let mut heard: HashMap<u64, (Time, u32)> = HashMap::new();
    // Given up with everything else when this ends.
    let mut probes = JoinSet::new();
    loop {
        let tick = tokio::select! {
            _ = ticks.tick() => true,
            _ = renewed.changed() => false,
            () = inner.changed.notified() => false,
            Some(_) = probes.join_next() => false,
        };
        let began = Instant::now();
        if tick {
            inner.measure();
            tend(inner);
            for peer in to_probe(inner) {
                probes.spawn(probe(inner.clone(), peer));
            }
        }
        renew(inner, pulse, &mut heard);
        tokio::time::sleep_until(began + RENEW_EVERY).await;
    }
}

/// What is done once a heartbeat.
fn tend(inner: &Inner) {
    let now = inner.clock.now();
    let seen = inner.seen.load();
    let named = |hash| seen.view.members().iter().find(|member| member.hash == hash);
    inner.breakers.pass_time(now, |hash| named(hash).map(|member| member.name.clone()));
    inner.forwarder.tidy();
    inner.asker.tidy();
    let policy = &inner.options.policy;
    let mut ledger = inner.ledger();
    ledger.tend(|key| inner.uses.get(key).map(|one| one.last), now, policy);
    let used =
        |key| inner.uses.get(key).is_some_and(|one| now.since(one.last) <= policy.affinity_ttl);
    ledger.keep_names(used);
}

/// Nodes that are heard and that nobody asks, because this one is not sure of them.
fn to_probe(inner: &Inner) -> Vec<Peer> {
    let seen = inner.seen.load();
    let of = |hash: u64| {
        let index = seen.view.members().iter().position(|one| one.hash == hash && one.alive)?;
        seen.peers.get(index)?.clone()
    };
    inner.breakers.to_probe(inner.clock.now()).into_iter().filter_map(of).collect()
}

/// Asks a node how it is. Only its breaker hears of it: it is nobody's request.
async fn probe(inner: Arc<Inner>, peer: Peer) {
    let request = Outgoing {
        id: RequestId::mint(),
        client: None,
        method: Method::GET,
        path_and_query: PathAndQuery::from_static("/health"),
        headers: HeaderMap::new(),
        body: Sending::empty(),
    };
    let Ok(asked) = inner.asker.peer(peer.name(), &peer.url()) else { return };
    let began = Instant::now();
    let evidence = match inner.asker.forward(&asked, request, inner.asker.options().limits()).await
    {
        Ok(answer) => Evidence::of_status(answer.status()),
        Err(failed) => failed.evidence(),
    };
    inner.breakers.saw(peer.name().as_str(), evidence, began.elapsed());
}

/// Makes the next snapshot.
fn renew(inner: &Inner, pulse: &Pulse, heard: &mut HashMap<u64, (Time, u32)>) {
    let now = inner.clock.now();
    let members = pulse.members();
    inner.breakers.keep(members.iter().map(|member| member.hash));
    let is_known = |name: &Name| members.iter().any(|member| *member.name == *name.as_str());
    inner.forwarder.retain(is_known);
    inner.asker.retain(is_known);
    heard.retain(|hash, _| members.iter().any(|member| member.hash == *hash));
    let (mut others, mut peers, mut probed) = (Vec::new(), vec![None], vec![false]);
    for member in members.iter() {
        let peer = peer_of(inner, member);
        let under_way = peer.as_ref().map_or(0, Peer::in_flight);
        let known = heard.entry(member.hash).or_insert((member.heard_at, under_way));
        if known.0 != member.heard_at {
            *known = (member.heard_at, under_way);
        }
        probed.push(matches!(inner.breakers.state(member.hash), breaker::State::HalfOpen { .. }));
        others.push(Member {
            name: member.name.clone(),
            hash: member.hash,
            url: member.api.clone(),
            zone: member.zone.clone(),
            sample: sample_of(&member.load),
            score: member.load.score,
            alive: member.state == State::Alive && peer.is_some(),
            draining: member.draining,
            admitted: inner.breakers.admits(member.hash),
            in_flight: known.1,
        });
        peers.push(peer);
    }
    let options = &inner.options.pulse;
    let here = Member {
        zone: options.zone.as_str().into(),
        sample: inner.sample(),
        score: inner.own_score(),
        draining: pulse.is_draining(),
        ..Member::new(&options.name, &options.api)
    };
    let overrides = Arc::new(inner.ledger().overrides());
    let before = inner.seen.load();
    let view = View::new(here, others, overrides, Some(&before.view), now, &inner.options.policy);
    inner.seen.store(Arc::new(Seen { view, peers, probed }));
}

/// The way to a member. One without an address that can be used is seen and not forwarded to.
fn peer_of(inner: &Inner, member: &membership::Member) -> Option<Peer> {
    if member.api.is_empty() {
        return None;
    }
    let name: Name = member.name.parse().ok()?;
    match inner.forwarder.peer(&name, &member.api) {
        Ok(peer) => Some(peer),
        Err(error) => {
            tracing::debug!(%error, "a node is not forwarded to");
            None
        }
    }
}

fn sample_of(load: &Load) -> Sample {
    Sample { outstanding: load.outstanding, polls: load.polls, cpu: load.cpu }
}

/// Hears what the others tell, as long as the node has not gone.
pub(crate) struct Listening(pub Weak<Inner>);

impl Ears for Listening {
    fn load(&self) -> Load {
        let Some(inner) = self.0.upgrade() else { return Load::default() };
        let Sample { outstanding, polls, cpu } = inner.sample();
        Load { outstanding, polls, cpu, score: inner.own_score() }
    }

    fn wake(&self, queue: &str) {
        if let Some(inner) = self.0.upgrade() {
            inner.around.wake(queue);
        }
    }

    fn moved(&self, _from: &str, moves: &[MoveRecord]) {
        let Some(inner) = self.0.upgrade() else { return };
        let now = inner.clock.now();
        if inner.ledger().merge(moves, now, &inner.options.policy) {
            inner.changed.notify_one();
        }
    }

    fn moves_to_repeat(&self) -> Vec<MoveRecord> {
        self.0.upgrade().map(|inner| inner.ledger().next_to_tell()).unwrap_or_default()
    }

    fn changed(&self, change: &Change) {
        let Some(inner) = self.0.upgrade() else { return };
        if let Change::Restarted(name) = change {
            inner.breakers.forget(name);
        }
        if let Change::Joined(name) | Change::Returned(name) | Change::Restarted(name) = change {
            let all = inner.ledger().all();
            if let (Some(pulse), false) = (inner.pulse.get(), all.is_empty()) {
                pulse.tell_moves_to(name, &all);
            }
        }
        inner.changed.notify_one();
    }
}
