//! What must hold, and how it is found out from the evidence alone.

use super::evidence::{Accepted, Killed, Micros, Paused, Poll, Token};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A process that goes on after a pause may send what it had checked before the pause within this.
const EXCUSED_AFTER: Micros = 50_000;

/// What the checks of safety found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Pairs of polls of one endpoint at the same time.
    pub overlaps: usize,
    /// Polls under an older grant than one before them.
    pub stale: usize,
    /// Polls, counted above too, of a node that was stopped exactly between check and sending.
    pub declared: usize,
    /// What is not excused.
    pub failures: Vec<String>,
}

/// Polls of one endpoint by their beginning.
pub fn by_endpoint(polls: &[Poll]) -> BTreeMap<&str, Vec<&Poll>> {
    let mut found: BTreeMap<&str, Vec<&Poll>> = BTreeMap::new();
    for poll in polls {
        found.entry(&poll.endpoint).or_default().push(poll);
    }
    for polls in found.values_mut() {
        polls.sort_by_key(|poll| poll.began);
    }
    found
}

/// No endpoint is polled twice at once, by two nodes or by one, and none under an older grant than
/// before.
pub fn polls(polls: &[Poll], pauses: &[Paused]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut offenders: Vec<(&Poll, String)> = Vec::new();
    for (endpoint, polls) in by_endpoint(polls) {
        let mut active: Vec<&Poll> = Vec::new();
        let mut newest: Option<&Poll> = None;
        let mut holders: HashMap<Token, &str> = HashMap::new();
        for poll in polls {
            active.retain(|other| other.ended.is_none_or(|ended| ended > poll.began));
            for other in &active {
                verdict.overlaps += 1;
                let older = if other.token < poll.token { other } else { poll };
                let text = format!("{endpoint}: two at once: {} and {}", show(other), show(poll));
                offenders.push((older, text));
            }
            active.push(poll);
            match newest {
                Some(newest) if poll.token < newest.token => {
                    verdict.stale += 1;
                    let text = format!("{endpoint}: {} after {}", show(poll), show(newest));
                    offenders.push((poll, text));
                }
                _ => newest = Some(poll),
            }
            let holder = holders.entry(poll.token).or_insert(&poll.instance);
            if *holder != poll.instance {
                let text = format!("{endpoint}: the grant of {holder} is used by {}", show(poll));
                verdict.failures.push(text);
            }
        }
    }
    excuse(&mut verdict, offenders, pauses);
    verdict
}

/// A pause excuses one poll, which may have offended more than once.
fn excuse(verdict: &mut Verdict, offenders: Vec<(&Poll, String)>, pauses: &[Paused]) {
    let mut excused: HashMap<usize, &Poll> = HashMap::new();
    for (poll, text) in offenders {
        let pause = pauses.iter().position(|pause| {
            pause.instance == poll.instance
                && (pause.to..=pause.to + EXCUSED_AFTER).contains(&poll.began)
        });
        let fits = pause.is_some_and(|pause| {
            let first = excused.entry(pause).or_insert(poll);
            std::ptr::eq(*first, poll)
        });
        if !fits {
            verdict.failures.push(text);
        }
    }
    verdict.declared = excused.len();
}

fn show(poll: &Poll) -> String {
    let at = |micros: Micros| format!("{:.3}", micros as f64 / 1e6);
    let ended = poll.ended.map_or_else(|| "…".to_owned(), at);
    let (epoch, counter) = poll.token;
    format!("[{} to {ended} s, {epoch}.{counter}, {}]", at(poll.began), poll.instance)
}

/// The database accepted no result under an older grant than before, and none for a slot twice.
pub fn results(results: &[Accepted]) -> Vec<String> {
    let mut failures = Vec::new();
    let mut endpoints: BTreeMap<u64, Vec<&Accepted>> = BTreeMap::new();
    for result in results {
        endpoints.entry(result.endpoint).or_default().push(result);
    }
    for (endpoint, mut results) in endpoints {
        results.sort_by_key(|result| result.ordinal);
        let mut slots = HashSet::new();
        let mut newest = (0, 0);
        for result in results {
            let place = format!("endpoint {endpoint}, result {}", result.ordinal);
            if result.token < newest {
                let (given, newer) = (result.token, newest);
                failures.push(format!("{place}: accepted under {given:?} after {newer:?}"));
            }
            newest = newest.max(result.token);
            if !slots.insert(result.slot) {
                failures.push(format!("{place}: slot {} was accepted twice", result.slot));
            }
        }
    }
    failures
}

/// How long after a node was killed each of its endpoints was polled by another; nothing for those
/// that never were. Its endpoints are those whose last poll before was its own.
pub fn takeovers(polls: &[Poll], killed: &Killed) -> Vec<(String, Option<Micros>)> {
    let mut found = Vec::new();
    for (endpoint, polls) in by_endpoint(polls) {
        let before = polls.iter().rev().find(|poll| poll.began <= killed.at);
        if before.is_none_or(|poll| poll.instance != killed.instance) {
            continue;
        }
        let next = polls
            .iter()
            .find(|poll| poll.began > killed.at && poll.instance != killed.instance)
            .map(|poll| poll.began - killed.at);
        found.push((endpoint.to_owned(), next));
    }
    found
}

/// Slots without a result before a result whose poll began between `from` and `to`, in milliseconds
/// since 1970: the endpoint's number and how many. A poll that was given up and begun again has
/// one.
pub fn missed(results: &[Accepted], from: i64, to: i64) -> Vec<(u64, i64)> {
    let mut endpoints: BTreeMap<u64, Vec<&Accepted>> = BTreeMap::new();
    for result in results {
        endpoints.entry(result.endpoint).or_default().push(result);
    }
    let mut missed = Vec::new();
    for (endpoint, mut results) in endpoints {
        results.sort_by_key(|result| result.ordinal);
        for pair in results.windows(2) {
            let between = pair[1].slot - pair[0].slot - 1;
            if between > 0 && (from..=to).contains(&pair[1].at_ms) {
                missed.push((endpoint, between));
            }
        }
    }
    missed
}

/// The longest time between the beginnings of two polls of one endpoint, of those gaps that ended
/// between `from` and `to`, with its endpoint. What goes on at `to` counts as if it ended then.
pub fn longest_gap(polls: &[Poll], from: Micros, to: Micros) -> Option<(String, Micros)> {
    let mut longest: Option<(String, Micros)> = None;
    for (endpoint, polls) in by_endpoint(polls) {
        let began = polls.iter().map(|poll| poll.began);
        let mut began: Vec<Micros> = began.filter(|began| *began <= to).collect();
        began.push(to);
        let gaps = began.windows(2).filter(|pair| pair[1] >= from).map(|pair| pair[1] - pair[0]);
        if let Some(gap) = gaps.max()
            && longest.as_ref().is_none_or(|(_, found)| gap > *found)
        {
            longest = Some((endpoint.to_owned(), gap));
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in milliseconds.
    fn poll(instance: &str, token: Token, began: u64, ended: u64) -> Poll {
        Poll {
            endpoint: "shop".to_owned(),
            instance: instance.to_owned(),
            token,
            began: began * 1_000,
            ended: Some(ended * 1_000),
            answered: true,
        }
    }

    fn paused(instance: &str, from: u64, to: u64) -> Paused {
        Paused { instance: instance.to_owned(), from: from * 1_000, to: to * 1_000 }
    }

    fn accepted(ordinal: u64, slot: i64, token: Token) -> Accepted {
        Accepted { endpoint: 1, ordinal, slot, token, node: "a".to_owned(), at_ms: 0 }
    }

    #[test]
    fn polls_one_after_another_under_growing_grants_are_fine() {
        let log = [
            poll("a", (1, 1), 0, 300),
            poll("b", (1, 2), 300, 500),
            poll("b", (1, 2), 1_000, 1_200),
            poll("a", (2, 1), 2_000, 2_300),
        ];
        assert_eq!(polls(&log, &[]), Verdict::default());
    }

    #[test]
    fn two_nodes_at_once_are_found_in_whatever_order_they_were_written_down() {
        let mut log = vec![poll("b", (1, 2), 299, 500), poll("a", (1, 1), 0, 300)];
        for _ in 0..2 {
            let verdict = polls(&log, &[]);
            assert_eq!((verdict.overlaps, verdict.stale, verdict.failures.len()), (1, 0, 1));
            assert!(verdict.failures[0].contains("shop: two at once"), "{verdict:?}");
            log.reverse();
        }
        // A long one that several short ones came after.
        let log =
            [poll("a", (1, 1), 0, 900), poll("a", (1, 1), 100, 200), poll("b", (1, 2), 500, 600)];
        assert_eq!(polls(&log, &[]).overlaps, 2);
    }

    #[test]
    fn one_node_twice_at_once_is_found() {
        let log = [poll("a", (1, 1), 0, 300), poll("a", (1, 1), 200, 400)];
        assert_eq!(polls(&log, &[]).failures.len(), 1);
    }

    #[test]
    fn a_poll_that_never_ended_overlaps_whatever_comes_later() {
        let endless = Poll { ended: None, ..poll("a", (1, 1), 0, 0) };
        assert_eq!(polls(&[endless, poll("b", (1, 2), 5_000, 5_100)], &[]).overlaps, 1);
    }

    #[test]
    fn endpoints_do_not_disturb_each_other() {
        let other = Poll { endpoint: "db".to_owned(), ..poll("b", (1, 2), 100, 200) };
        assert_eq!(polls(&[other, poll("a", (1, 1), 0, 300)], &[]), Verdict::default());
    }

    #[test]
    fn an_older_grant_after_a_newer_one_is_found() {
        let log = [poll("b", (2, 1), 0, 100), poll("a", (1, 9), 1_000, 1_100)];
        let verdict = polls(&log, &[]);
        assert_eq!((verdict.overlaps, verdict.stale, verdict.failures.len()), (0, 1, 1));
    }

    #[test]
    fn a_grant_that_two_nodes_use_is_found() {
        let log = [poll("a", (1, 1), 0, 100), poll("b", (1, 1), 1_000, 1_100)];
        assert!(polls(&log, &[]).failures[0].contains("is used by"));
    }

    #[test]
    fn one_poll_right_after_a_pause_is_excused_and_no_other() {
        let stale = |began| poll("a", (1, 1), began, began + 300);
        let newer = poll("b", (1, 2), 5_000, 5_300);
        let pauses = [paused("a", 1_000, 5_100)];
        let verdict = polls(&[newer.clone(), stale(5_149)], &pauses);
        assert_eq!((verdict.overlaps, verdict.stale, verdict.declared), (1, 1, 1));
        assert_eq!(verdict.failures, Vec::<String>::new());

        let late = polls(&[newer.clone(), stale(5_151)], &pauses);
        assert_eq!((late.failures.len(), late.declared), (2, 0));
        let another = polls(&[newer.clone(), stale(5_120)], &[paused("c", 1_000, 5_100)]);
        assert_eq!(another.failures.len(), 2);
        let elsewhere = Poll { endpoint: "db".to_owned(), ..stale(5_130) };
        let newer_there = Poll { endpoint: "db".to_owned(), ..newer.clone() };
        let twice = polls(&[newer, stale(5_120), newer_there, elsewhere], &pauses);
        assert_eq!((twice.declared, twice.failures.len()), (1, 2));
    }

    #[test]
    fn results_in_order_and_once_for_a_slot_are_fine() {
        let log = [accepted(2, 9, (2, 1)), accepted(0, 7, (1, 1)), accepted(1, 8, (1, 5))];
        assert_eq!(results(&log), Vec::<String>::new());
    }

    #[test]
    fn a_result_under_an_older_grant_is_found() {
        let found = results(&[accepted(0, 7, (1, 5)), accepted(1, 8, (1, 4))]);
        assert!(found.len() == 1 && found[0].contains("accepted under"), "{found:?}");
    }

    #[test]
    fn a_slot_that_was_accepted_twice_is_found() {
        let found = results(&[accepted(0, 7, (1, 1)), accepted(1, 7, (1, 2))]);
        assert!(found.len() == 1 && found[0].contains("slot 7"), "{found:?}");
    }

    #[test]
    fn the_next_poll_of_another_node_is_the_takeover() {
        let log = [
            poll("a", (1, 1), 0, 100),
            poll("a", (1, 1), 1_000, 1_100),
            poll("b", (1, 2), 6_000, 6_100),
        ];
        let killed = |instance: &str, at: u64| Killed { instance: instance.to_owned(), at };
        let taken = takeovers(&log, &killed("a", 1_500_000));
        assert_eq!(taken, [("shop".to_owned(), Some(4_500_000))]);
        assert_eq!(takeovers(&log, &killed("b", 1_500_000)), []);
        assert_eq!(takeovers(&log, &killed("b", 7_000_000)), [("shop".to_owned(), None)]);
    }

    #[test]
    fn a_gap_counts_from_poll_to_poll_or_to_the_end() {
        let log = [poll("a", (1, 1), 0, 100), poll("a", (1, 1), 1_000, 1_100)];
        let gap = |from, to| longest_gap(&log, from, to).map(|(_, gap)| gap);
        assert_eq!(gap(0, 1_500_000), Some(1_000_000));
        assert_eq!(gap(1_200_000, 2_500_000), Some(1_500_000));
    }

    #[test]
    fn a_hole_in_the_slots_is_found_in_its_time() {
        let at = |ordinal, slot: i64| Accepted {
            at_ms: slot * 1_000,
            ..accepted(ordinal, slot, (1, 1))
        };
        let log = [at(0, 7), at(1, 8), at(2, 11), at(3, 12)];
        assert_eq!(missed(&log, 0, 20_000), [(1, 2)]);
        assert_eq!(missed(&log, 0, 10_000), []);
        assert_eq!(missed(&log, 12_000, 20_000), []);
    }
}
