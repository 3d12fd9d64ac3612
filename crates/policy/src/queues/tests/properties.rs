//! Whatever happens to a lane, in whatever order.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Push(u32),
    Claim(u32, bool),
    Settle(Vec<Word>),
    Extend(Whose, u64),
    Release(Whose),
    Seek(u64),
    /// Retention removes the oldest run.
    Remove,
    Wait(u64),
}

/// Messages may bring a limit of their own up to this.
const OWN_LIMIT_MAX: u32 = 2;

/// A word about the message so many after the cursor, or before it.
#[derive(Clone, Debug)]
struct Word {
    offset: i64,
    verdict: Verdict,
    lease: Whose,
    limit: Option<u32>,
    after: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Whose {
    /// The lane's lease, if it has one.
    Current,
    /// The last that settled all of it.
    Ended,
    Foreign,
    Nobody,
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![
        6 => Just(Whose::Current),
        1 => Just(Whose::Ended),
        1 => Just(Whose::Foreign),
        2 => Just(Whose::Nobody),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => Just(Verdict::Completed),
        4 => Just(Verdict::Failed),
        1 => Just(Verdict::Retry),
        1 => Just(Verdict::Dead),
    ]
}

fn word() -> impl Strategy<Value = Word> {
    let limit = prop::option::weighted(0.2, 0..=OWN_LIMIT_MAX);
    let after = prop::option::weighted(0.2, (0_u64..200).prop_map(Duration::from_millis));
    (-2_i64..6, verdict(), whose(), limit, after).prop_map(
        |(offset, verdict, lease, limit, after)| Word { offset, verdict, lease, limit, after },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1_u32..5).prop_map(Event::Push),
        8 => (1_u32..6, prop::bool::weighted(0.1))
            .prop_map(|(want, auto)| Event::Claim(want, auto)),
        8 => vec(word(), 1..5).prop_map(Event::Settle),
        1 => (whose(), 0_u64..400).prop_map(|(whose, millis)| Event::Extend(whose, millis)),
        1 => whose().prop_map(Event::Release),
        1 => (0_u64..20).prop_map(Event::Seek),
        1 => Just(Event::Remove),
        6 => (0_u64..150).prop_map(Event::Wait),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let millis =
        |choices: &'static [u64]| prop::sample::select(choices).prop_map(Duration::from_millis);
    let lifetime = prop::option::weighted(0.4, millis(&[200, 500]));
    (0_u32..4, millis(&[0, 80]), millis(&[0, 0, 50]), millis(&[0, 0, 30]), lifetime).prop_map(
        |(retry_limit, retry_delay, delay, window, lifetime)| Rules {
            lease: Duration::from_millis(100),
            retry_limit,
            retry_delay,
            retry_delay_max: Duration::from_millis(300),
            delay,
            window,
            lifetime,
            floor: Time::ZERO,
        },
    )
}

impl Bench {
    fn id(&self, whose: Whose) -> Option<LeaseId> {
        match whose {
            Whose::Current => self.lane.lease.map(|lease| lease.id).or(Some(NOBODY)),
            Whose::Ended => self.lane.ended.or(Some(NOBODY)),
            Whose::Foreign => Some(NOBODY),
            Whose::Nobody => None,
        }
    }

    /// What a claim should give, said plainly: the first messages that are there and may be had.
    fn due(&self, want: u32) -> Vec<u64> {
        let held = self.lane.lease.is_some_and(|lease| self.now < lease.until);
        let calm = self.last_push + self.rules.window <= self.now;
        if held || self.now < self.lane.not_before_if_it_counts(self) || !calm {
            return Vec::new();
        }
        let ripe = |at: Time| at + self.rules.delay <= self.now;
        self.kept()
            .filter(|(number, _)| *number > self.lane.cursor)
            .take_while(|(_, at)| ripe(*at))
            .map(|(number, _)| number)
            .take(want as usize)
            .collect()
    }

    /// Messages that are there and have not expired.
    fn kept(&self) -> impl Iterator<Item = (u64, Time)> {
        let alive = |at: Time| self.rules.lifetime.is_none_or(|life| at + life >= self.now);
        self.runs
            .iter()
            .filter(move |run| alive(run.at))
            .flat_map(|run| (run.first..=run.last()).map(|number| (number, run.at)))
    }

    fn asks(&self, words: &[Word]) -> Vec<Ask> {
        let exists =
            |number: &u64| self.runs.iter().any(|run| (run.first..=run.last()).contains(number));
        let ask = |word: &Word| Ask {
            number: self.lane.cursor.checked_add_signed(word.offset).filter(exists),
            verdict: word.verdict,
            lease: self.id(word.lease),
            own: Retry { limit: word.limit, delay: None },
            after: word.after,
        };
        words.iter().map(ask).collect()
    }
}

impl Lane {
    /// A delay is over for good once what had failed has expired or was removed.
    fn not_before_if_it_counts(&self, bench: &Bench) -> Time {
        let next = bench.kept().map(|(number, _)| number).find(|number| *number > self.cursor);
        match next {
            Some(next) if next > self.failed_through => Time::ZERO,
            _ => self.not_before,
        }
    }
}

fn check_claim(bench: &mut Bench, want: u32, auto: bool) -> Result<(), TestCaseError> {
    let (before, due) = (bench.lane, bench.due(want));
    let (lease, got) = bench.claim_as(want, auto);
    let after = bench.lane;
    prop_assert_eq!(&got, &due, "exactly what is due, in order, nothing skipped");
    prop_assert!(after.cursor >= before.cursor, "a cursor never goes back");
    let live = before.live_lease(bench.now);
    match (got.last(), live) {
        (None, Some(_)) => prop_assert_eq!(after, before, "the holder is not disturbed"),
        (Some(_), Some(_)) => prop_assert!(false, "two live leases"),
        (Some(last), None) if auto => {
            prop_assert_eq!((after.cursor, after.lease), (*last, None));
        }
        (Some(last), None) => {
            let held = Some((lease, *last));
            prop_assert_eq!(after.live_lease(bench.now).map(|now| (now.id, now.through)), held);
        }
        (None, None) => {}
    }
    let passed =
        if auto { got.first().map_or(after.cursor, |first| first - 1) } else { after.cursor };
    let lost = bench.kept().find(|(number, _)| *number > before.cursor && *number <= passed);
    prop_assert!(lost.is_none(), "{:?} was skipped though it could be handed out", lost);
    Ok(())
}

fn check_settle(bench: &mut Bench, words: &[Word]) -> Result<(), TestCaseError> {
    let (before, asks, now) = (bench.lane, bench.asks(words), bench.now);
    let chance = bench.chance.clone();
    let rules = bench.rules;
    let answers = bench.lane.settle(now, &rules, &asks, &mut bench.chance);
    let after = bench.lane;
    prop_assert_eq!(answers.len(), asks.len());
    prop_assert!(after.cursor >= before.cursor, "a cursor never goes back");
    let live = before.live_lease(now).map(|lease| lease.id);
    let mut reached = before.cursor;
    for (ask, answer) in asks.iter().zip(&answers) {
        let fenced = match ask.lease {
            Some(lease) => live != Some(lease),
            // Unless an earlier word of the call has ended the claim.
            None => live.is_some() && after.ended != live,
        };
        let refused = matches!(answer, Settled::Refused(_) | Settled::Noop);
        prop_assert!(refused || !fenced, "{:?} counted: {:?}", ask, answer);
        prop_assert!(ask.number.is_some() || *answer == Settled::Refused(Refusal::Unknown));
        if let Settled::Done { .. } | Settled::Dead { .. } = answer {
            let handed_out = before.live_lease(now).filter(|lease| Some(lease.id) == ask.lease);
            let through = handed_out.map_or(u64::MAX, |lease| lease.through);
            prop_assert!(ask.number <= Some(through), "it was not handed out");
            reached = reached.max(ask.number.unwrap_or(0));
        }
        if let Settled::Dead { failures, .. } = answer {
            prop_assert!(*failures <= rules.retry_limit.max(OWN_LIMIT_MAX));
        }
        if let (Settled::Again { .. }, Some(number)) = (answer, ask.number) {
            prop_assert!(number > after.cursor, "what comes again is not passed");
        }
    }
    prop_assert_eq!(after.cursor, reached, "the cursor is where the answers say");
    if answers.iter().all(|answer| matches!(answer, Settled::Refused(_) | Settled::Noop)) {
        prop_assert_eq!(after, before, "who is refused changes nothing");
    }
    let again = answers.iter().find_map(|answer| match answer {
        Settled::Again { at } => Some(*at),
        _ => None,
    });
    if let Some(at) = again {
        prop_assert!(after.live_lease(now).is_none(), "what comes again is not leased");
        let mut early = bench.clone();
        early.now = at - Duration::from_nanos(1);
        let first = early.kept().map(|(number, _)| number).find(|number| *number > after.cursor);
        let counts = first.is_some_and(|first| first <= after.failed_through);
        prop_assert!(at <= now || !counts || early.take(1).is_empty(), "not before its time");
        let mut due = bench.clone();
        due.now = at.max(bench.last_push + rules.window);
        let next = due.kept().find(|(number, _)| *number > after.cursor);
        if let Some((number, pushed)) = next.filter(|(_, pushed)| *pushed + rules.delay <= due.now)
        {
            prop_assert_eq!(due.take(1), vec![number], "pushed at {}", pushed);
        }
    }
    check_order(bench, before, &asks, &answers, chance)?;
    // Without a lease nobody can tell a failure that is told twice from two failures.
    let fenced = asks.iter().all(|ask| ask.lease.is_some());
    let free = asks.iter().all(|ask| ask.lease.is_none() && ask.verdict != Verdict::Failed);
    if fenced || free {
        bench.lane.settle(now, &rules, &asks, &mut SeededChance::new(1));
        prop_assert_eq!(bench.lane, after, "the same call again changes nothing");
    }
    Ok(())
}

/// However a call orders its words, each gets the same answer.
fn check_order(
    bench: &Bench,
    before: Lane,
    asks: &[Ask],
    answers: &[Settled],
    mut chance: SeededChance,
) -> Result<(), TestCaseError> {
    let mut numbers: Vec<u64> = asks.iter().filter_map(|ask| ask.number).collect();
    numbers.sort_unstable();
    if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    let turned: Vec<Ask> = asks.iter().rev().copied().collect();
    let mut lane = before;
    let mut said = lane.settle(bench.now, &bench.rules, &turned, &mut chance);
    said.reverse();
    prop_assert_eq!(said.as_slice(), answers);
    prop_assert_eq!(lane, bench.lane);
    Ok(())
}

fn check_ready(bench: &Bench) -> Result<(), TestCaseError> {
    let there = bench.runs.iter().any(|run| run.last() > bench.lane.cursor);
    let Some(ready) = bench.ready_at() else {
        prop_assert!(!there, "a lane with messages is never drained");
        return Ok(());
    };
    prop_assert!(ready >= bench.now);
    if ready > bench.now {
        let mut early = bench.clone();
        early.now = ready - Duration::from_nanos(1);
        let next = early.kept().map(|(number, _)| number).find(|n| *n > bench.lane.cursor);
        // What expires on the way or was removed takes its delay along: the lane may be ready
        // sooner than it said.
        let unchanged = next.is_some_and(|next| {
            bench.lane.failed_through == 0 || next <= bench.lane.failed_through
        }) && next
            == bench
                .runs
                .iter()
                .find(|run| run.last() > bench.lane.cursor)
                .map(|run| run.first.max(bench.lane.cursor + 1));
        prop_assert!(!unchanged || early.take(1).is_empty(), "ready before {}", ready);
    }
    let mut due = bench.clone();
    due.now = ready;
    let kept = due.kept().find(|(number, _)| *number > bench.lane.cursor);
    if kept.is_some_and(|(_, at)| at + bench.rules.delay <= ready) && there {
        // Behind a lease there may be a window or a delay; whoever comes too early is told so.
        let later = due.ready_at().is_some_and(|then| then > ready);
        prop_assert!(!due.take(1).is_empty() || later, "not ready at {}", ready);
    }
    Ok(())
}

fn happen(bench: &mut Bench, event: &Event) -> Result<(), TestCaseError> {
    let before = bench.lane;
    match event {
        Event::Push(count) => bench.push(*count),
        Event::Claim(want, auto) => check_claim(bench, *want, *auto)?,
        Event::Settle(words) => check_settle(bench, words)?,
        Event::Extend(whose, more) => {
            let id = bench.id(*whose).unwrap_or(NOBODY);
            let held = before.live_lease(bench.now).is_some_and(|lease| lease.id == id);
            let until = bench.now + Duration::from_millis(*more);
            prop_assert_eq!(bench.lane.extend(bench.now, id, until), held);
            prop_assert!(held || bench.lane == before);
        }
        Event::Release(whose) => {
            let id = bench.id(*whose).unwrap_or(NOBODY);
            let held = before.live_lease(bench.now).is_some_and(|lease| lease.id == id);
            prop_assert_eq!(bench.lane.release(bench.now, id), held);
            prop_assert!(held || bench.lane == before);
        }
        Event::Seek(to) => {
            bench.lane.seek((*to).min(bench.tail));
            prop_assert!(bench.lane.live_lease(bench.now).is_none());
        }
        Event::Remove if bench.runs.is_empty() => {}
        Event::Remove => drop(bench.runs.remove(0)),
        Event::Wait(millis) => bench.wait(*millis),
    }
    let lane = bench.lane;
    prop_assert!(matches!(event, Event::Seek(_)) || lane.cursor >= before.cursor);
    prop_assert!(lane.cursor <= bench.tail);
    prop_assert!(lane.failures <= bench.rules.retry_limit.max(OWN_LIMIT_MAX));
    prop_assert!(lane.failures == 0 || lane.failed_through > 0);
    prop_assert!(lane.failures == 0 || lane.failed_through > lane.cursor);
    check_ready(bench)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_keeps_its_promises(rules in any_rules(), events in vec(event(), 1..60)) {
        let mut bench = Bench::new(rules);
        for event in &events {
            happen(&mut bench, event)?;
        }
    }

    #[test]
    fn a_message_that_always_fails_is_a_dead_letter_at_the_failure_after_the_limit(
        limit in 0_u32..8, wants in vec(1_u32..6, 8), count in 1_u32..8, others in any::<u64>(),
    ) {
        let mut bench = Bench::with(Rules { retry_limit: limit, ..rules() }, count);
        let mut chance = SeededChance::new(others);
        for (failures, want) in (0..=limit).zip(wants.iter().cycle()) {
            let (lease, got) = bench.claim(*want);
            prop_assert_eq!(got[0], 1);
            // Others of the batch may fail with it: they are behind it, so they change nothing.
            let mut also = |number: u64| number == 1 || crate::Chance::bits(&mut chance) & 1 == 0;
            let fails = got.iter().filter(|number| also(**number));
            let call: Vec<_> = fails.map(|n| (*n, Verdict::Failed, Some(lease))).collect();
            let said = bench.settle(&call)[0];
            if failures < limit {
                prop_assert!(matches!(said, Settled::Again { .. }), "{} {:?}", failures, said);
            } else {
                prop_assert!(
                    matches!(said, Settled::Dead { failures, .. } if failures == limit),
                    "{:?}", said
                );
            }
        }
    }

    #[test]
    fn everything_is_read_exactly_once_by_those_who_complete_what_they_get(
        pushes in vec(1_u32..9, 1..20), wants in vec(1_u32..12, 1..10),
    ) {
        let mut bench = Bench::new(rules());
        let (mut read, mut wants) = (Vec::new(), wants.iter().cycle());
        for count in pushes {
            bench.push(count);
            let (lease, got) = bench.claim(*wants.next().unwrap_or(&1));
            let last = *got.last().expect("something is there");
            bench.say(last, Verdict::Completed, Some(lease));
            read.extend(got);
        }
        while let (lease, got) = bench.claim(7) && let Some(last) = got.last() {
            bench.say(*last, Verdict::Completed, Some(lease));
            read.extend(got);
        }
        prop_assert_eq!(read, (1..=bench.tail).collect::<Vec<_>>());
    }
}
