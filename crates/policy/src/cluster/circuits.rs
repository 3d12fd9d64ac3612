//! Which peers are not worth asking now?
//!
//! One [`Breaker`] a peer. Failures that only count, such as slow or bad answers, may be this
//! node's own trouble, and look the same whoever causes them: so never more than half of the peers
//! are out for that alone, but a lone peer can be. A peer that refuses connections is out whatever
//! the others are.

use crate::breaker::{self, Breaker, Change, State};
use crate::{Chance, Decision, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Three failures in a row, out for 5 seconds, one probe, and twice as long each time it fails, up
/// to 5 minutes.
pub const fn breaker_options() -> breaker::Options {
    breaker::Options {
        failures: 3,
        // Above 1: the ratio has no say.
        ratio: 2.0,
        window: Duration::from_secs(10),
        requests_min: u32::MAX,
        open: Duration::from_secs(5),
        open_max: Duration::from_secs(300),
        probes: 1,
    }
}

/// How a request to a peer failed. A client's mistake is no failure, nor is a pop that waited as
/// long as it was asked to and found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no connection to be had: nobody is there.
    Unreachable,
    /// It broke off, answered 502, 503 or 504, or missed the deadline.
    Bad,
}

/// The breakers of all peers.
#[derive(Clone, Debug, Default)]
pub struct Circuits {
    peers: BTreeMap<u64, Circuit>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Circuit {
    breaker: Breaker,
    /// Whether its last failure leaves no doubt.
    gone: bool,
    /// When it opened last.
    opened_at: Time,
    /// Since when it is half open and was not named by [`Circuits::to_probe`].
    half_open_since: Option<Time>,
}

impl Circuit {
    fn is_out_by_count(&self) -> bool {
        matches!(self.breaker.state(), State::Open { .. }) && !self.gone
    }
}

/// A peer whose breaker is half open is asked on purpose, if so long nothing has decided about it.
const PROBE_AFTER: Duration = Duration::from_secs(2);

/// Waits are longer by up to this part, so that nodes do not all try again at once.
const JITTER_PERMILLE: u64 = 200;

impl Circuits {
    /// Keeps the breakers of these peers, by the hashes of their names, and forgets all others.
    pub fn keep(&mut self, peers: impl IntoIterator<Item = u64>) {
        let mut before = std::mem::take(&mut self.peers);
        for peer in peers {
            self.peers.insert(peer, before.remove(&peer).unwrap_or_default());
        }
    }

    /// Begins anew with a peer that has.
    pub fn forget(&mut self, peer: u64) {
        if let Some(circuit) = self.peers.get_mut(&peer) {
            *circuit = Circuit::default();
        }
    }

    /// Whether nobody has failed since its last good answer: another one would change nothing.
    pub fn is_calm(&self) -> bool {
        self.peers.values().all(|circuit| circuit.breaker.is_calm())
    }

    /// Hears how a request that began at `began` ended, and tells what changed. Who is not a peer
    /// (any more) is not heard.
    pub fn note(
        &mut self,
        peer: u64,
        now: Time,
        began: Time,
        outcome: Result<(), Failure>,
        chance: &mut impl Chance,
    ) -> Option<Decision<Change>> {
        let circuit = self.peers.get_mut(&peer)?;
        let mut options = breaker_options();
        if outcome.is_err() {
            let longer = |wait: Duration, by: u64| wait + wait.mul_f64(by as f64 / 1_000.0);
            let by = chance.up_to(JITTER_PERMILLE);
            options.open = longer(options.open, by);
            options.open_max = longer(options.open_max, by);
        }
        let change = circuit.breaker.note(now, began, outcome.is_ok(), &options)?;
        if let Change::Opened { .. } = change.chosen {
            circuit.gone = outcome == Err(Failure::Unreachable);
            circuit.opened_at = now;
        }
        Some(change)
    }

    /// Half opens those whose time has come, and tells which.
    pub fn pass_time(&mut self, now: Time) -> Vec<(u64, Decision<Change>)> {
        let options = breaker_options();
        let circuits = self.peers.iter_mut();
        circuits
            .filter_map(|(&peer, one)| Some((peer, one.breaker.pass_time(now, &options)?)))
            .collect()
    }

    /// Peers whose breakers have been half open for a while: no request that would tell has come
    /// by, and without one they would be out for ever. Whoever calls this asks them something. One
    /// that nothing is heard of even so is named again after as long.
    pub fn to_probe(&mut self, now: Time) -> Vec<u64> {
        let mut named = Vec::new();
        for (&peer, circuit) in &mut self.peers {
            if !matches!(circuit.breaker.state(), State::HalfOpen { .. }) {
                circuit.half_open_since = None;
                continue;
            }
            // A clock that jumped back must not keep it waiting until it has caught up.
            let since = circuit.half_open_since.unwrap_or(now).min(now);
            let is_due = now.since(since) >= PROBE_AFTER;
            circuit.half_open_since = Some(if is_due { now } else { since });
            if is_due {
                named.push(peer);
            }
        }
        named
    }

    /// When [`Circuits::pass_time`] will have something to do.
    pub fn next_at(&self) -> Option<Time> {
        self.peers.values().filter_map(|circuit| circuit.breaker.next_at()).min()
    }

    /// The state of a peer's breaker, as it counts; one that is kept in by the cap is still open.
    pub fn state(&self, peer: u64) -> State {
        self.peers.get(&peer).map_or(State::Closed, |circuit| circuit.breaker.state())
    }

    /// Whether one more request may go to this peer, while `waiting` are not answered yet.
    ///
    /// Of those that are out by count the half that opened last are asked all the same.
    pub fn admits(&self, peer: u64, waiting: u32) -> bool {
        let Some(circuit) = self.peers.get(&peer) else { return true };
        circuit.breaker.admits(waiting, &breaker_options()) || self.is_beyond_cap(peer, circuit)
    }

    fn is_beyond_cap(&self, peer: u64, circuit: &Circuit) -> bool {
        if !circuit.is_out_by_count() {
            return false;
        }
        let order = (circuit.opened_at, peer);
        let out = self.peers.iter().filter(|(_, one)| one.is_out_by_count());
        let earlier = out.filter(|(peer, one)| (one.opened_at, **peer) < order).count();
        earlier >= (self.peers.len() / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededChance;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(1_000_000 + millis)
    }

    fn circuits(peers: u64) -> Circuits {
        let mut circuits = Circuits::default();
        circuits.keep(1..=peers);
        circuits
    }

    fn fail(circuits: &mut Circuits, peer: u64, millis: u64, how: Failure, times: u32) {
        let mut chance = SeededChance::new(peer ^ millis);
        for _ in 0..times {
            let began = at(millis);
            circuits.note(peer, began + Duration::from_millis(1), began, Err(how), &mut chance);
        }
    }

    /// How long the breaker is open from `millis` on.
    fn wait(circuits: &Circuits, peer: u64, millis: u64) -> Duration {
        match circuits.state(peer) {
            State::Open { until } => until.since(at(millis)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn three_failures_open_for_five_seconds_and_one_good_probe_closes() {
        let mut circuits = circuits(3);
        fail(&mut circuits, 1, 0, Failure::Bad, 2);
        assert!(circuits.admits(1, 100));
        fail(&mut circuits, 1, 1, Failure::Bad, 1);
        assert!(!circuits.admits(1, 0));
        let open = wait(&circuits, 1, 2);
        assert!((5_000..=6_000).contains(&open.as_millis()), "{open:?}");
        let due = circuits.next_at().expect("is open");
        assert_eq!(circuits.pass_time(due - Duration::from_millis(1)), []);
        assert_eq!(circuits.pass_time(due)[0].1.chosen, Change::HalfOpened);
        assert!(circuits.admits(1, 0) && !circuits.admits(1, 1), "one probe");
        let mut chance = SeededChance::new(1);
        let change = circuits.note(1, due, due, Ok(()), &mut chance).expect("closes");
        assert_eq!(change.chosen, Change::Closed);
        assert_eq!(circuits.state(1), State::Closed);
    }

    #[test]
    fn a_half_open_breaker_without_traffic_is_probed_after_a_while_and_again_if_nothing_is_heard() {
        let mut circuits = circuits(3);
        assert!(circuits.to_probe(at(0)).is_empty(), "nobody is half open");
        fail(&mut circuits, 1, 0, Failure::Bad, 3);
        assert!(circuits.to_probe(at(1_000)).is_empty(), "it is open");
        let due = circuits.next_at().expect("is open");
        circuits.pass_time(due);
        let after = |millis: u64| due + Duration::from_millis(millis);
        for (millis, is_named) in
            [(0, false), (1_999, false), (2_000, true), (3_999, false), (4_000, true)]
        {
            let named = circuits.to_probe(after(millis));
            assert_eq!(named == [1_u64], is_named, "{millis} ms later: {named:?}");
        }
        let mut chance = SeededChance::new(1);
        circuits.note(1, after(4_001), after(4_000), Ok(()), &mut chance);
        assert_eq!(circuits.state(1), State::Closed, "the probe's answer closes it");
        assert!(circuits.to_probe(after(9_000)).is_empty());
    }

    #[test]
    fn a_failed_probe_opens_again_and_the_next_one_waits_as_long_as_the_first() {
        let mut circuits = circuits(3);
        fail(&mut circuits, 1, 0, Failure::Unreachable, 3);
        let mut due = circuits.next_at().expect("is open");
        for _ in 0..3 {
            circuits.pass_time(due);
            assert!(circuits.to_probe(due).is_empty());
            let probed = due + PROBE_AFTER;
            assert_eq!(circuits.to_probe(probed), [1_u64]);
            let mut chance = SeededChance::new(1);
            circuits.note(1, probed, probed, Err(Failure::Unreachable), &mut chance);
            assert!(circuits.to_probe(probed).is_empty(), "it is open again");
            due = circuits.next_at().expect("is open");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_does_not_put_a_probe_off() {
        let mut circuits = circuits(3);
        fail(&mut circuits, 1, 3_600_000, Failure::Bad, 3);
        let due = circuits.next_at().expect("is open");
        circuits.pass_time(due);
        assert!(circuits.to_probe(due).is_empty());
        assert!(circuits.to_probe(at(0)).is_empty());
        assert_eq!(circuits.to_probe(at(0) + PROBE_AFTER), [1_u64]);
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_five_minutes() {
        let mut circuits = circuits(3);
        fail(&mut circuits, 1, 0, Failure::Bad, 3);
        for doubling in 1..10_u32 {
            let due = circuits.next_at().expect("is open");
            circuits.pass_time(due);
            let mut chance = SeededChance::new(u64::from(doubling));
            circuits.note(1, due, due, Err(Failure::Bad), &mut chance);
            let open = circuits.next_at().expect("is open").since(due).as_secs_f64();
            let plain = (5.0 * f64::from(1 << doubling)).min(300.0);
            assert!((plain..=plain * 1.2).contains(&open), "{doubling}: {open}");
        }
    }

    #[test]
    fn waits_differ_between_peers() {
        let mut circuits = circuits(8);
        (1..=4).for_each(|peer| fail(&mut circuits, peer, 0, Failure::Unreachable, 3));
        let waits: Vec<Duration> = (1..=4).map(|peer| wait(&circuits, peer, 0)).collect();
        assert!(waits.windows(2).any(|two| two[0] != two[1]), "{waits:?}");
    }

    #[test]
    fn bad_answers_never_put_more_than_half_of_the_peers_out() {
        let mut circuits = circuits(5);
        for peer in 1..=5 {
            fail(&mut circuits, peer, 10 * peer, Failure::Bad, 3);
        }
        let admitted: Vec<u64> = (1..=5).filter(|&peer| circuits.admits(peer, 0)).collect();
        assert_eq!(admitted, [3, 4, 5], "the two that failed first stay out");
    }

    #[test]
    fn a_lone_peer_can_be_out() {
        let mut circuits = circuits(1);
        fail(&mut circuits, 1, 0, Failure::Bad, 3);
        assert!(!circuits.admits(1, 0));
    }

    #[test]
    fn peers_that_are_gone_are_out_however_many_they_are() {
        let mut circuits = circuits(4);
        for peer in 1..=4 {
            fail(&mut circuits, peer, 0, Failure::Unreachable, 3);
        }
        assert!((1..=4).all(|peer| !circuits.admits(peer, 0)));
    }

    #[test]
    fn who_is_no_peer_any_more_is_forgotten_and_who_stays_is_not() {
        let mut circuits = circuits(4);
        fail(&mut circuits, 1, 0, Failure::Bad, 3);
        fail(&mut circuits, 2, 0, Failure::Bad, 3);
        circuits.keep([2, 3, 4]);
        assert!(circuits.admits(1, 0) && !circuits.admits(2, 0));
        fail(&mut circuits, 1, 0, Failure::Bad, 3);
        assert_eq!(circuits.state(1), State::Closed);
    }

    #[test]
    fn it_is_calm_only_when_nobody_has_failed_since_its_last_good_answer() {
        let mut circuits = circuits(3);
        assert!(circuits.is_calm());
        fail(&mut circuits, 1, 0, Failure::Bad, 1);
        fail(&mut circuits, 2, 0, Failure::Bad, 3);
        let mut chance = SeededChance::new(1);
        circuits.note(1, at(9), at(8), Ok(()), &mut chance);
        assert!(!circuits.is_calm(), "the second is still out");
        let due = circuits.next_at().expect("is open");
        circuits.pass_time(due);
        assert!(!circuits.is_calm(), "it must hear of the probe");
        circuits.note(2, due, due, Ok(()), &mut chance);
        assert!(circuits.is_calm());
    }

    #[test]
    fn who_was_started_anew_is_asked_at_once() {
        let mut circuits = circuits(3);
        fail(&mut circuits, 1, 0, Failure::Unreachable, 3);
        assert!(!circuits.admits(1, 0));
        circuits.forget(1);
        assert!(circuits.admits(1, 100) && circuits.is_calm());
    }

    proptest! {
        #[test]
        fn at_least_half_are_admitted_while_nobody_is_gone(
            peers in 1_u64..12, events in prop::collection::vec((0_u64..12, 0_u64..4_000), 0..200),
        ) {
            let mut circuits = circuits(peers);
            let mut millis = 0;
            for (peer, step) in events {
                millis += step;
                circuits.pass_time(at(millis));
                fail(&mut circuits, 1 + peer % peers, millis, Failure::Bad, 1);
                let out = (1..=peers).filter(|&peer| !circuits.admits(peer, 0)).count() as u64;
                prop_assert!(out <= (peers / 2).max(1), "{} of {} are out", out, peers);
            }
        }
    }
}
