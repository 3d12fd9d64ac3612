//! What a lane promises: each promise by name, then all of them under random operations.

use super::*;
use crate::{SeededChance, Time};
use std::time::Duration;

mod properties;

const NOBODY: LeaseId = LeaseId(u128::MAX);

/// A partition and one group's lane in it, with a clock that the test moves.
#[derive(Clone)]
struct Bench {
    lane: Lane,
    rules: Rules,
    runs: Vec<Run>,
    tail: u64,
    last_push: Time,
    now: Time,
    claims: u128,
    chance: SeededChance,
}

impl Bench {
    fn new(rules: Rules) -> Self {
        Bench {
            lane: Lane::default(),
            rules,
            runs: Vec::new(),
            tail: 0,
            last_push: Time::ZERO,
            now: Time::from_millis(1_000_000),
            claims: 0,
            chance: SeededChance::new(7),
        }
    }

    /// With so many messages, pushed together.
    fn with(rules: Rules, count: u32) -> Self {
        let mut bench = Bench::new(rules);
        bench.push(count);
        bench
    }

    fn push(&mut self, count: u32) {
        self.runs.push(Run { first: self.tail + 1, count, at: self.now });
        self.tail += u64::from(count);
        self.last_push = self.now;
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// What a store reads: runs after the cursor, not more than are needed.
    fn claim_as(&mut self, want: u32, auto_settle: bool) -> (LeaseId, Vec<u64>) {
        self.claims += 1;
        let lease = LeaseId(self.claims);
        let until = self.now + self.rules.lease;
        let runs: Vec<Run> =
            self.runs.iter().filter(|run| run.last() > self.lane.cursor).copied().collect();
        let backlog = Backlog { runs: &runs, tail: self.tail, last_push: self.last_push };
        let claim = Claim { want, lease, until, auto_settle };
        let claimed = self.lane.claim(self.now, &self.rules, &backlog, &claim);
        let numbers = |span: &Span| span.first..span.first + u64::from(span.count);
        (lease, claimed.spans.iter().flat_map(numbers).collect())
    }

    fn claim(&mut self, want: u32) -> (LeaseId, Vec<u64>) {
        self.claim_as(want, false)
    }

    /// The numbers that a claim gives, whoever gets them.
    fn take(&mut self, want: u32) -> Vec<u64> {
        self.claim(want).1
    }

    fn settle(&mut self, asks: &[(u64, Verdict, Option<LeaseId>)]) -> Vec<Settled> {
        let ask = |ask: &(u64, Verdict, Option<LeaseId>)| Ask {
            number: Some(ask.0),
            verdict: ask.1,
            lease: ask.2,
            own: Retry::default(),
            after: None,
        };
        let asks: Vec<Ask> = asks.iter().map(ask).collect();
        self.lane.settle(self.now, &self.rules, &asks, &mut self.chance)
    }

    fn say(&mut self, number: u64, verdict: Verdict, lease: Option<LeaseId>) -> Settled {
        self.settle(&[(number, verdict, lease)])[0]
    }

    /// When the lane says that it can be claimed.
    fn ready_at(&self) -> Option<Time> {
        let next = self.runs.iter().find(|run| run.last() > self.lane.cursor).map(|run| run.at);
        self.lane.ready_at(self.now, &self.rules, next, self.last_push)
    }
}

fn completes(lease: LeaseId) -> Ask {
    let (number, lease, own) = (Some(1), Some(lease), Retry::default());
    Ask { number, verdict: Verdict::Completed, lease, own, after: None }
}

fn rules() -> Rules {
    Rules { retry_limit: 2, retry_delay: Duration::ZERO, ..Rules::default() }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn messages_come_in_order_and_across_pushes() {
    let mut bench = Bench::with(rules(), 2);
    bench.push(3);
    let (lease, got) = bench.claim(4);
    assert_eq!(got, [1, 2, 3, 4]);
    assert_eq!(bench.say(4, Verdict::Completed, Some(lease)), Settled::Done { released: true });
    assert_eq!(bench.take(4), [5]);
}

#[test]
fn a_lane_that_is_leased_gives_nothing_to_others() {
    let mut bench = Bench::with(rules(), 2);
    assert_eq!(bench.take(1), [1]);
    assert_eq!(bench.take(1), [0_u64; 0]);
    assert_eq!(bench.ready_at(), Some(bench.now + bench.rules.lease));
}

#[test]
fn the_rest_of_a_claim_stays_leased_until_its_last_message_is_settled() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(2);
    assert_eq!(bench.say(1, Verdict::Completed, Some(lease)), Settled::Done { released: false });
    assert_eq!(bench.take(1), [0_u64; 0]);
    assert_eq!(bench.say(2, Verdict::Completed, Some(lease)), Settled::Done { released: true });
    assert_eq!(bench.ready_at(), Some(bench.now));
    assert_eq!(bench.take(1), [3]);
}

#[test]
fn a_drained_lane_is_never_ready_until_a_push() {
    let mut bench = Bench::with(rules(), 1);
    let (lease, _) = bench.claim(9);
    bench.say(1, Verdict::Completed, Some(lease));
    assert_eq!(bench.ready_at(), None);
    bench.wait(5);
    bench.push(1);
    assert_eq!(bench.ready_at(), Some(bench.now));
}

#[test]
fn what_is_settled_when_handed_out_does_not_come_again() {
    let mut bench = Bench::with(rules(), 3);
    assert_eq!(bench.claim_as(2, true).1, [1, 2]);
    assert_eq!(bench.claim_as(2, true).1, [3]);
    assert_eq!((bench.lane.cursor, bench.lane.lease), (3, None));
}

#[test]
fn a_lease_that_ran_out_gives_its_messages_to_the_next_and_counts_no_failure() {
    let mut bench = Bench::with(rules(), 2);
    let (old, _) = bench.claim(2);
    bench.wait(300_000 - 1);
    assert_eq!(bench.take(2), [0_u64; 0]);
    bench.wait(1);
    assert_eq!(bench.ready_at(), Some(bench.now));
    let (new, got) = bench.claim(2);
    assert_eq!((got, bench.lane.failures), (vec![1, 2], 0));
    assert_eq!(bench.say(2, Verdict::Completed, Some(old)), Settled::Refused(Refusal::Stale));
    assert_eq!(bench.say(2, Verdict::Completed, Some(new)), Settled::Done { released: true });
}

#[test]
fn a_stale_or_foreign_lease_is_refused_and_changes_nothing() {
    let mut bench = Bench::with(rules(), 2);
    let (lease, _) = bench.claim(2);
    bench.say(1, Verdict::Completed, Some(lease));
    let before = bench.lane;
    for verdict in [Verdict::Completed, Verdict::Failed, Verdict::Retry, Verdict::Dead] {
        for number in [1, 2] {
            let said = bench.say(number, verdict, Some(NOBODY));
            assert_eq!(said, Settled::Refused(Refusal::Stale));
        }
    }
    bench.wait(300_000);
    let said = bench.say(2, Verdict::Completed, Some(lease));
    assert_eq!(said, Settled::Refused(Refusal::Stale));
    assert_eq!(bench.lane, before);
}

#[test]
fn without_a_lease_a_word_counts_only_while_nobody_holds_the_lane() {
    let mut bench = Bench::with(rules(), 3);
    assert_eq!(bench.say(1, Verdict::Completed, None), Settled::Done { released: false });
    bench.claim(1);
    assert_eq!(bench.say(2, Verdict::Completed, None), Settled::Refused(Refusal::Held));
    assert_eq!(bench.say(1, Verdict::Completed, None), Settled::Noop);
    bench.wait(300_000);
    assert_eq!(bench.say(2, Verdict::Completed, None), Settled::Done { released: false });
    assert_eq!(bench.take(1), [3]);
}

#[test]
fn settling_an_older_message_later_moves_nothing_back() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(3);
    bench.say(2, Verdict::Completed, Some(lease));
    for verdict in [Verdict::Completed, Verdict::Failed, Verdict::Retry, Verdict::Dead] {
        assert_eq!(bench.say(1, verdict, Some(lease)), Settled::Noop);
    }
    assert_eq!((bench.lane.cursor, bench.lane.failures), (2, 0));
    assert!(bench.lane.live_lease(bench.now).is_some());
}

#[test]
fn whoever_settled_all_may_say_so_again() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(2);
    let call = [(1, Verdict::Completed, Some(lease)), (2, Verdict::Completed, Some(lease))];
    bench.settle(&call);
    let (_, got) = bench.claim(1);
    assert_eq!(got, [3]);
    assert_eq!(bench.settle(&call), [Settled::Noop, Settled::Noop]);
    assert_eq!(bench.say(3, Verdict::Completed, Some(lease)), Settled::Refused(Refusal::Stale));
}

#[test]
fn a_later_completion_in_the_same_call_does_not_skip_a_failure() {
    for verdict in [Verdict::Failed, Verdict::Retry] {
        let mut bench = Bench::with(rules(), 4);
        let (lease, _) = bench.claim(4);
        let lease = Some(lease);
        let said = bench.settle(&[
            (4, Verdict::Completed, lease),
            (2, verdict, lease),
            (1, Verdict::Completed, lease),
            (3, Verdict::Dead, lease),
        ]);
        let overtaken = Settled::Refused(Refusal::Overtaken);
        let again = Settled::Again { at: bench.now };
        assert_eq!(said, [overtaken, again, Settled::Done { released: false }, overtaken]);
        assert_eq!(bench.take(9), [2, 3, 4]);
    }
}

#[test]
fn what_does_not_exist_or_was_not_handed_out_is_unknown() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(2);
    let said = bench.say(3, Verdict::Completed, Some(lease));
    assert_eq!(said, Settled::Refused(Refusal::Unknown));
    let nowhere = Ask { number: None, ..completes(lease) };
    let said = bench.lane.settle(bench.now, &bench.rules, &[nowhere], &mut bench.chance);
    assert_eq!(said, [Settled::Refused(Refusal::Unknown)]);
    assert_eq!(bench.lane.cursor, 0);
}

#[test]
fn a_failure_brings_the_rest_of_the_batch_back_after_the_delay() {
    let mut bench = Bench::with(Rules { retry_delay: millis(1_000), ..rules() }, 4);
    let (lease, _) = bench.claim(3);
    let (done, failed) = (Verdict::Completed, Verdict::Failed);
    let said = bench.settle(&[(1, done, Some(lease)), (2, failed, Some(lease))]);
    let Settled::Again { at } = said[1] else { panic!("{said:?}") };
    let wait = at.since(bench.now);
    assert!(wait >= millis(500) && wait <= millis(1_000), "{wait:?}");
    assert_eq!(bench.ready_at(), Some(at));
    bench.now = at - Duration::from_nanos(1);
    assert_eq!(bench.take(9), [0_u64; 0]);
    bench.now = at;
    assert_eq!(bench.take(9), [2, 3, 4]);
}

#[test]
fn each_failure_waits_longer_and_the_one_after_the_limit_is_a_dead_letter() {
    let rules = Rules { retry_limit: 3, retry_delay: millis(1_000), ..Rules::default() };
    let mut bench = Bench::with(rules, 2);
    for failure in 1..=3_u32 {
        let (lease, got) = bench.claim(1);
        assert_eq!(got, [1]);
        let said = bench.say(1, Verdict::Failed, Some(lease));
        let Settled::Again { at } = said else { panic!("{said:?}") };
        let most = millis(1_000 << (failure - 1));
        assert!((most / 2..=most).contains(&at.since(bench.now)), "{failure}");
        bench.now = at;
    }
    let (lease, _) = bench.claim(1);
    let said = bench.say(1, Verdict::Failed, Some(lease));
    assert_eq!(said, Settled::Dead { failures: 3, released: true });
    assert_eq!((bench.take(1), bench.lane.failures), (vec![2], 0));
}

#[test]
fn without_retries_the_first_failure_is_a_dead_letter() {
    let mut bench = Bench::with(Rules { retry_limit: 0, ..rules() }, 1);
    let (lease, _) = bench.claim(1);
    let said = bench.say(1, Verdict::Failed, Some(lease));
    assert_eq!(said, Settled::Dead { failures: 0, released: true });
}

#[test]
fn a_batch_that_fails_for_the_last_time_fails_as_a_whole() {
    let mut bench = Bench::with(rules(), 3);
    let all = |lease| [1, 2, 3].map(|number| (number, Verdict::Failed, Some(lease)));
    for _ in 0..2 {
        let (lease, _) = bench.claim(3);
        assert_eq!(bench.settle(&all(lease)), [Settled::Again { at: bench.now }; 3]);
    }
    let (lease, _) = bench.claim(3);
    let dead = |released| Settled::Dead { failures: 2, released };
    assert_eq!(bench.settle(&all(lease)), [dead(false), dead(false), dead(true)]);
    assert_eq!(bench.ready_at(), None);
}

#[test]
fn a_message_behind_a_dead_letter_has_failures_of_its_own() {
    let mut bench = Bench::with(Rules { retry_limit: 1, ..rules() }, 2);
    let mut fails = |number| {
        let (lease, got) = bench.claim(1);
        assert_eq!(got, [number]);
        bench.say(number, Verdict::Failed, Some(lease))
    };
    assert!(matches!(fails(1), Settled::Again { .. }));
    assert_eq!(fails(1), Settled::Dead { failures: 1, released: true });
    assert!(matches!(fails(2), Settled::Again { .. }));
    assert_eq!(fails(2), Settled::Dead { failures: 1, released: true });
}

#[test]
fn a_retry_comes_at_once_and_charges_nothing() {
    let mut bench = Bench::with(Rules { retry_delay: millis(1_000), ..rules() }, 1);
    for _ in 0..20 {
        let (lease, got) = bench.claim(1);
        assert_eq!(got, [1]);
        let said = bench.say(1, Verdict::Retry, Some(lease));
        assert_eq!((said, bench.lane.failures), (Settled::Again { at: bench.now }, 0));
    }
}

#[test]
fn a_consumer_may_say_when_it_comes_again() {
    for (verdict, failures) in [(Verdict::Failed, 1), (Verdict::Retry, 0)] {
        let mut bench = Bench::with(Rules { retry_delay: millis(1_000), ..rules() }, 2);
        let (lease, _) = bench.claim(1);
        let ask = Ask { verdict, after: Some(millis(7_000)), ..completes(lease) };
        let said = bench.lane.settle(bench.now, &bench.rules, &[ask], &mut bench.chance);
        let at = bench.now + millis(7_000);
        assert_eq!((said[0], bench.lane.failures), (Settled::Again { at }, failures));
        assert_eq!(bench.ready_at(), Some(at));
        bench.now = at - Duration::from_nanos(1);
        assert_eq!(bench.take(1), [0_u64; 0]);
        bench.now = at;
        let (lease, got) = bench.claim(1);
        assert_eq!(got, [1]);
        assert_eq!(bench.say(1, Verdict::Completed, Some(lease)), Settled::Done { released: true });
        assert_eq!(bench.take(1), [2], "what follows has not to wait");
    }
}

#[test]
fn a_message_may_have_a_limit_and_a_delay_of_its_own() {
    let mut bench = Bench::with(Rules { retry_delay: millis(1_000), ..rules() }, 1);
    let own = Retry { limit: Some(1), delay: Some(millis(60_000)) };
    let mut fails = || {
        let (lease, _) = bench.claim(1);
        let ask = Ask { verdict: Verdict::Failed, own, ..completes(lease) };
        let said = bench.lane.settle(bench.now, &bench.rules, &[ask], &mut bench.chance)[0];
        let before = bench.now;
        if let Settled::Again { at } = said {
            bench.now = at;
        }
        (said, bench.now.since(before))
    };
    assert!(fails().1 >= millis(30_000));
    assert_eq!(fails().0, Settled::Dead { failures: 1, released: true });
}

#[test]
fn what_was_there_when_a_queue_was_cleared_is_not_handed_out() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(1);
    bench.wait(10);
    bench.rules.floor = bench.now;
    bench.push(2);
    assert_eq!(bench.say(1, Verdict::Completed, Some(lease)), Settled::Done { released: true });
    assert_eq!(bench.take(9), [4, 5]);
}

#[test]
fn a_retry_without_a_lease_does_not_shorten_the_delay_of_a_failure() {
    let mut bench = Bench::with(Rules { retry_delay: millis(1_000), ..rules() }, 1);
    let (lease, _) = bench.claim(1);
    let said = bench.say(1, Verdict::Failed, Some(lease));
    assert_eq!(bench.say(1, Verdict::Retry, None), said);
    assert_eq!(said, Settled::Again { at: bench.ready_at().expect("it comes again") });
}

#[test]
fn a_dead_letter_by_word_goes_aside_whatever_its_failures() {
    let mut bench = Bench::with(rules(), 2);
    let (lease, _) = bench.claim(1);
    let said = bench.say(1, Verdict::Dead, Some(lease));
    assert_eq!(said, Settled::Dead { failures: 0, released: true });
    assert_eq!(bench.take(1), [2]);
}

#[test]
fn a_lease_can_be_given_more_time_while_it_holds_and_not_later() {
    let mut bench = Bench::with(rules(), 1);
    let (lease, _) = bench.claim(1);
    bench.wait(299_999);
    let until = bench.now + millis(60_000);
    assert!(!bench.lane.extend(bench.now, NOBODY, until));
    assert!(bench.lane.extend(bench.now, lease, until));
    assert_eq!(bench.ready_at(), Some(until));
    bench.now = until;
    assert!(!bench.lane.extend(bench.now, lease, until + millis(1)));
    assert_eq!(bench.take(1), [1]);
}

#[test]
fn what_never_arrived_is_given_back_at_once_by_its_holder_only() {
    let mut bench = Bench::with(rules(), 2);
    let (lease, _) = bench.claim(2);
    bench.say(1, Verdict::Completed, Some(lease));
    assert!(!bench.lane.release(bench.now, NOBODY));
    assert!(bench.lane.release(bench.now, lease));
    assert!(!bench.lane.release(bench.now, lease));
    assert_eq!((bench.take(2), bench.lane.failures), (vec![2], 0));
}

#[test]
fn a_seek_reads_again_and_ends_every_claim() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(3);
    bench.say(2, Verdict::Completed, Some(lease));
    bench.lane.seek(0);
    assert_eq!(bench.say(3, Verdict::Completed, Some(lease)), Settled::Refused(Refusal::Stale));
    assert_eq!(bench.take(9), [1, 2, 3]);
    bench.lane.seek(3);
    assert_eq!(bench.ready_at(), None);
}

#[test]
fn a_delayed_message_is_not_handed_out_before_it_is_due() {
    let mut bench = Bench::with(Rules { delay: millis(100), ..rules() }, 1);
    let due = bench.now + millis(100);
    bench.wait(40);
    bench.push(1);
    assert_eq!(bench.ready_at(), Some(due));
    bench.now = due - Duration::from_nanos(1);
    assert_eq!(bench.take(9), [0_u64; 0]);
    bench.now = due;
    assert_eq!(bench.take(9), [1]);
}

#[test]
fn a_partition_with_a_window_waits_until_its_pushes_calm_down() {
    let mut bench = Bench::with(Rules { window: millis(100), ..rules() }, 1);
    bench.wait(99);
    bench.push(1);
    bench.wait(99);
    assert_eq!(bench.take(9), [0_u64; 0]);
    assert_eq!(bench.ready_at(), Some(bench.now + millis(1)));
    bench.wait(1);
    assert_eq!(bench.take(9), [1, 2]);
}

#[test]
fn what_has_expired_is_passed_over_and_nothing_else() {
    let mut bench = Bench::with(Rules { lifetime: Some(millis(100)), ..rules() }, 2);
    bench.wait(60);
    bench.push(2);
    bench.wait(40);
    assert_eq!(bench.clone().take(9), [1, 2, 3, 4], "not later than its lifetime is still due");
    bench.wait(1);
    assert_eq!(bench.take(9), [3, 4]);
    assert_eq!(bench.lane.cursor, 2);
    bench.wait(1_000);
    assert_eq!(bench.lane.cursor, 2, "somebody works on the others");
}

#[test]
fn what_somebody_works_on_does_not_expire() {
    let mut bench = Bench::with(Rules { lifetime: Some(millis(100)), ..rules() }, 1);
    let (lease, _) = bench.claim(1);
    bench.wait(1_000);
    assert_eq!(bench.take(1), [0_u64; 0]);
    let said = bench.say(1, Verdict::Completed, Some(lease));
    assert_eq!(said, Settled::Done { released: true });
}

#[test]
fn messages_that_are_no_longer_kept_are_passed_over() {
    let mut bench = Bench::with(rules(), 2);
    bench.push(2);
    bench.runs.remove(0);
    assert_eq!(bench.take(1), [3]);
    bench.lane.seek(0);
    bench.runs.clear();
    assert_eq!((bench.take(1), bench.lane.cursor), (vec![], 4));
}

#[test]
fn time_that_stands_still_or_jumps_ahead_breaks_no_order() {
    let mut bench = Bench::with(rules(), 3);
    let (lease, _) = bench.claim(1);
    assert_eq!(bench.say(1, Verdict::Completed, Some(lease)), Settled::Done { released: true });
    bench.now = Time::from_nanos(u64::MAX - 1);
    let (lease, got) = bench.claim(1);
    assert_eq!(got, [2]);
    assert_eq!(bench.say(2, Verdict::Completed, Some(lease)), Settled::Done { released: true });
    assert_eq!(bench.take(1), [3]);
}

/// A lane of which 2 to 4 are leased, with `cursor` at 1, after something was taken out.
fn leased_with_gap(leased: Option<u64>, next: Option<u64>) -> Lane {
    let lease = Lease { id: LeaseId(7), until: Time::from_millis(100), through: 4 };
    let mut lane = Lane { lease: Some(lease), ..Lane::beginning_after(1) };
    lane.pass_gap(Time::from_millis(50), &Left { leased, next, tail: 9 });
    lane
}

#[test]
fn a_lease_reaches_to_the_last_message_that_is_left_of_it() {
    let through = |lane: Lane| lane.lease.map(|lease| lease.through);
    assert_eq!(through(leased_with_gap(Some(4), Some(3))), Some(4));
    assert_eq!(through(leased_with_gap(Some(3), Some(2))), Some(3));
    assert_eq!(leased_with_gap(Some(3), Some(3)).cursor, 1, "it moves when that is settled");
}

#[test]
fn a_lease_of_which_nothing_is_left_is_over() {
    for (leased, next, cursor) in [(None, Some(5), 4), (Some(1), Some(7), 6), (Some(1), None, 9)] {
        let lane = leased_with_gap(leased, next);
        assert_eq!((lane.lease, lane.ended, lane.cursor), (None, Some(LeaseId(7)), cursor));
    }
}

#[test]
fn a_lane_that_nobody_works_on_passes_a_gap_and_forgets_what_failed_in_it() {
    let failed = Lane {
        failures: 2,
        failed_through: 2,
        not_before: Time::from_millis(900),
        ..Lane::beginning_after(1)
    };
    for (next, cursor, failures) in [(Some(2), 1, 2), (Some(3), 2, 0), (None, 9, 0)] {
        let mut lane = failed;
        lane.pass_gap(Time::from_millis(50), &Left { leased: None, next, tail: 9 });
        assert_eq!((lane.cursor, lane.failures), (cursor, failures));
    }
}
