//! What a node tells about its cluster.

use crate::addresses::PeerStatus;
use crate::forward::PeerNow;
use crate::handle::{Cluster, Inner, Seen};
use crate::pulse::Pulse;
use crate::views::{
    Affinity, AffinityEntry, Asked, Balance, Breaker, ExplainAsk, Explained, Flow, Forwarding,
    Heartbeats, MoveTotals, Moves, Peer, PeerOrigin, Purpose, QueuePresence, Rejected, Server,
    Status, Wakes, Writes,
};
use skep_policy::breaker::State;
use skep_policy::cluster::{Ask, Member, balance, explain_consumer, explain_producer, score};
use skep_policy::explain::{Kind, would};
use skep_policy::rendezvous::hash_of;
use skep_policy::{Clock as _, Time};
use skep_store::BootClock;
use std::collections::HashMap;

/// Queues whose consumers are told.
const PRESENCE_SHOWN: usize = 1_000;

impl Cluster {
    /// How evenly the nodes are loaded, and what each does.
    pub fn balance(&self) -> Balance {
        let inner = &*self.0;
        let seen = inner.seen.load();
        let members = seen.view.members();
        let told = balance(members, &inner.options.policy);
        let entries = inner.entries(&seen);
        let mut servers: Vec<Server> = members
            .iter()
            .enumerate()
            .map(|(index, member)| inner.server(&seen, index, member, &entries))
            .collect();
        servers.sort_by(|one, other| one.server_id.cmp(&other.server_id));
        let here = inner.options.pulse.name.clone();
        let flows = inner.forwarder.peers().into_iter().map(|peer| peer.now());
        let flows = flows.filter(|peer| peer.forwarded > 0).map(|peer| Flow {
            from: here.clone(),
            to: peer.name.to_string(),
            forwarded: peer.forwarded,
        });
        let ledger = inner.ledger();
        Balance {
            balanced: told.balanced,
            imbalance_score: told.imbalance_score,
            forwarding: inner.forwarding(),
            servers,
            flows: flows.collect(),
            moves: MoveTotals {
                migrations: ledger.totals.migrations,
                breaks: ledger.totals.breaks,
                last_minute: ledger.last_minute(inner.clock.now()),
            },
            here,
        }
    }

    /// How this node takes part.
    pub fn status(&self) -> Status {
        let inner = &*self.0;
        let pulse = inner.pulse.get();
        let counts = pulse.map(Pulse::counts).unwrap_or_default();
        let rejected = |why: &str| counts.heartbeats.rejected.get(why).copied().unwrap_or(0);
        let (presence, total) =
            pulse.map(|pulse| pulse.presence().list(PRESENCE_SHOWN)).unwrap_or_default();
        let named = presence.into_iter().map(|listed| QueuePresence {
            queue: listed.queue.to_string(),
            nodes: listed.nodes.iter().map(ToString::to_string).collect(),
        });
        Status {
            here: inner.options.pulse.name.clone(),
            forwarding: inner.forwarding(),
            writes: if self.forwards_writes() { Writes::Forwarded } else { Writes::Here },
            signed: pulse.is_some_and(Pulse::is_signed),
            udp: pulse.map(|pulse| pulse.local_addr().to_string()),
            peers: pulse.map(Pulse::peers).unwrap_or_default().into_iter().map(told).collect(),
            heartbeats: Heartbeats {
                sent: counts.heartbeats.sent,
                unsent: counts.heartbeats.unsent,
                received: counts.heartbeats.received,
                rejected: Rejected {
                    forged: rejected("forged"),
                    replayed: rejected("replayed"),
                    malformed: rejected("malformed"),
                    version: rejected("version"),
                    stale: rejected("stale"),
                    crowded: rejected("crowded"),
                },
            },
            wakes: Wakes {
                sent: counts.wakes.sent,
                received: counts.wakes.received,
                dropped: counts.wakes.dropped,
            },
            presence: named.collect(),
            presence_total: total as u64,
            draining: pulse.is_some_and(Pulse::is_draining),
        }
    }

    /// Where a request would go, and why.
    pub fn explain(&self, ask: &ExplainAsk) -> Explained {
        let inner = &*self.0;
        let seen = inner.seen.load();
        let asked = asked(&ask.what);
        let key = match (&ask.what, &asked) {
            (Asked::Key(key), _) => key.clone(),
            (_, Some(asked)) => asked.key(inner.groups_of(asked), &inner.options.policy),
            (_, None) => String::new(),
        };
        let decision = match ask.purpose {
            Purpose::Pop => {
                explain_consumer(&seen.view, hash_of(&key), &**seen, &mut inner.chance())
            }
            Purpose::Push => {
                let queues = [queue_of(&ask.what)];
                let consumers = inner.consumers_of(&seen.view, &queues);
                explain_producer(&seen.view, &consumers, &**seen, &mut inner.chance())
            }
        };
        let place = &seen.view.members()[decision.chosen.index()];
        Explained {
            explain: (ask.purpose == Purpose::Pop).then(|| Kind::Key.id(&key)),
            would_change: would::key(decision.reason.rule).to_owned(),
            key,
            purpose: ask.purpose,
            place: place.name.to_string(),
            here: decision.chosen.index() == 0,
            reason: serde_json::to_value(&decision.reason).unwrap_or_default(),
            text: decision.reason.to_string(),
        }
    }

    /// Which keys belong to which nodes, so many at most.
    pub fn affinity(&self, limit: usize) -> Affinity {
        let inner = &*self.0;
        let (seen, now) = (inner.seen.load(), inner.clock.now());
        let mut uses: Vec<_> = inner.uses.iter(now, inner.options.policy.affinity_ttl).collect();
        let total = uses.len() as u64;
        uses.sort_by_key(|one| std::cmp::Reverse(one.last));
        let ledger = inner.ledger();
        let entries = uses.into_iter().take(limit).map(|one| {
            let owner = seen.view.owner(one.key).map(|owner| &seen.view.members()[owner]);
            let moved = ledger.moves.get(one.key);
            let key = ledger.name_of(one.key);
            AffinityEntry {
                explain: (!key.starts_with('#')).then(|| Kind::Key.id(&key)),
                key,
                node: owner.map(|owner| owner.name.to_string()).unwrap_or_default(),
                moved: moved.is_some_and(|moved| owner.is_some_and(|own| own.hash == moved.node)),
                requests: one.requests,
                assigned_at_ms: millis(moved.map_or(one.since, |moved| moved.moved_at)),
                last_used_ms: now.since(one.last).as_millis() as u64,
            }
        });
        Affinity { entries: entries.collect(), total }
    }

    /// Keys that changed their node after the one with this number.
    pub fn moves(&self, after: u64) -> Moves {
        let mut moves = self.0.ledger().after(after);
        for one in &mut moves.moves {
            // Each node counts for itself, so the number alone names none.
            one.explain = Kind::Move.id_at(&self.0.options.pulse.name, one.seq);
        }
        moves
    }

    /// The names of all nodes that are known, and where their APIs are.
    pub fn members(&self) -> Vec<(String, String)> {
        let seen = self.0.seen.load();
        let members = seen.view.members().iter();
        members.map(|member| (member.name.to_string(), member.url.to_string())).collect()
    }

    /// Brings the gauges up to date, before a scrape.
    pub fn refresh_metrics(&self) {
        let inner = &*self.0;
        let seen = inner.seen.load();
        let entries = inner.entries(&seen).values().sum();
        inner.metrics.refresh(
            inner.own_score(),
            balance(seen.view.members(), &inner.options.policy).imbalance_score,
            entries,
            &inner.forwarder.peers().iter().map(|peer| peer.now()).collect::<Vec<_>>(),
        );
        inner.metrics.remembers(&self.outcomes().now());
    }
}

impl Inner {
    fn forwarding(&self) -> Forwarding {
        match (self.options.forwarding, self.seen.load().view.members().len()) {
            (false, _) => Forwarding::Off,
            (true, 1) => Forwarding::Alone,
            (true, _) => Forwarding::On,
        }
    }

    /// How many keys belong to each member.
    fn entries(&self, seen: &Seen) -> HashMap<usize, u64> {
        let mut entries = HashMap::new();
        for one in self.uses.iter(self.clock.now(), self.options.policy.affinity_ttl) {
            if let Some(owner) = seen.view.owner(one.key) {
                *entries.entry(owner).or_default() += 1;
            }
        }
        entries
    }

    fn server(
        &self,
        seen: &Seen,
        index: usize,
        member: &Member,
        entries: &HashMap<usize, u64>,
    ) -> Server {
        let here = index == 0;
        let peer: Option<PeerNow> = seen.peers.get(index).and_then(Option::as_ref).map(|p| p.now());
        let state = self.breakers.state(member.hash);
        let known = self.pulse.get().map(|pulse| pulse.members()).unwrap_or_default();
        let known = known.iter().find(|one| one.hash == member.hash);
        let (breaker, reopens) = match state {
            State::Closed => (Breaker::Closed, None),
            State::Open { until } => {
                let left = until.since(self.clock.now()).as_millis() as u64;
                (Breaker::Open, Some(left))
            }
            State::HalfOpen { .. } => (Breaker::HalfOpen, None),
        };
        let sample = if here { self.sample() } else { member.sample };
        let rule = would::node_rule(member.alive, member.draining, breaker.name());
        Server {
            server_id: member.name.to_string(),
            explain: Kind::Node.id(&member.name),
            would_change: would::node(rule).to_owned(),
            url: member.url.to_string(),
            load_score: member.score,
            healthy: member.serves() && breaker == Breaker::Closed,
            alive: member.alive,
            here,
            draining: member.draining,
            zone: member.zone.to_string(),
            in_flight: u64::from(sample.outstanding),
            polls: u64::from(sample.polls),
            cpu: sample.cpu,
            raw_score: score(&sample),
            breaker,
            breaker_reopens_ms: reopens,
            affinity_entries: entries.get(&index).copied().unwrap_or(0),
            forwarded: peer.as_ref().map_or(0, |peer| peer.forwarded),
            fell_back: peer.as_ref().map_or(0, |peer| peer.fell_back),
            hop_p50_us: peer.as_ref().and_then(|peer| peer.hop_p50_us),
            hop_p99_us: peer.as_ref().and_then(|peer| peer.hop_p99_us),
            last_seen_ms: known
                .map_or(0, |one| BootClock.now().since(one.heard_at).as_millis() as u64),
            version: match here {
                true => self.options.pulse.program.clone(),
                false => known.map(|one| one.program.to_string()).unwrap_or_default(),
            },
        }
    }
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn told(peer: PeerStatus) -> Peer {
    Peer {
        name: peer.name.map(|name| name.to_string()),
        address: peer.address,
        origin: match peer.origin {
            "list" => PeerOrigin::Listed,
            _ => PeerOrigin::Discovered,
        },
        resolved: peer.resolved.iter().map(ToString::to_string).collect(),
        error: peer.error,
    }
}

fn asked(what: &Asked) -> Option<Ask<'_>> {
    match what {
        Asked::Key(_) => None,
        Asked::Queue { queue, partition: None, group } => Some(Ask::Queue { queue, group }),
        Asked::Queue { queue, partition: Some(partition), group } => {
            Some(Ask::Partition { queue, partition, group })
        }
        Asked::Task { namespace, task, group } => Some(Ask::Task { namespace, task, group }),
    }
}

/// The queue that a write would name: a key begins with it.
fn queue_of(what: &Asked) -> &str {
    match what {
        Asked::Key(key) => key.split(':').next().unwrap_or_default(),
        Asked::Queue { queue, .. } => queue,
        Asked::Task { .. } => "",
    }
}
