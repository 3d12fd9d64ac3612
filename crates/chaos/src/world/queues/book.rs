//! What was pushed and what came of it, and what may not.

use super::super::{Verdict, grouped};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What did not hold is told so often; of more only the first are of use.
const BROKEN_MAX: usize = 20;
/// What was settled so long ago does not come again: no request takes as long, so that even an
/// answer that was held up is here by then.
const REMEMBERED: Duration = Duration::from_secs(90);
/// Messages that are named of those that are lost.
const NAMED_MAX: usize = 10;

/// A partition of a queue for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub group: usize,
    pub lane: usize,
}

/// Everything that producers and consumers were told.
pub struct Book {
    lease: Duration,
    lanes: usize,
    /// How many of each lane were acknowledged to their producer.
    pushed: Vec<u64>,
    /// What consumers got, group by group and lane by lane.
    got: Vec<Got>,
    settled: u64,
    again: u64,
    broken: BTreeSet<String>,
}

#[derive(Default)]
struct Got {
    /// The number that must come next for the first time.
    next: u64,
    /// All below are settled and forgotten.
    done: u64,
    /// Those that are remembered.
    messages: BTreeMap<u64, Vec<Delivery>>,
}

#[derive(Clone, Copy)]
struct Delivery {
    asked: Instant,
    received: Instant,
    /// When it was acknowledged, and whether that is certain.
    settled: Option<(Instant, bool)>,
}

impl Book {
    pub fn new(groups: usize, lanes: usize, lease: Duration) -> Self {
        Book {
            lease,
            lanes,
            pushed: vec![0; lanes],
            got: (0..groups * lanes).map(|_| Got::default()).collect(),
            settled: 0,
            again: 0,
            broken: BTreeSet::new(),
        }
    }

    fn groups(&self) -> u64 {
        (self.got.len() / self.lanes.max(1)) as u64
    }

    /// Something that should never be.
    pub fn broken(&mut self, text: String) {
        if self.broken.len() < BROKEN_MAX {
            self.broken.insert(text);
        }
    }

    /// What should never be and was so far.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        self.broken.iter().map(String::as_str)
    }

    /// All numbers of a lane below `count` were acknowledged.
    pub fn pushed(&mut self, lane: usize, count: u64) {
        self.pushed[lane] = count;
    }

    /// A message came, to a pop that was asked and received at these times.
    pub fn received(
        &mut self,
        Lane { group, lane }: Lane,
        number: u64,
        (asked, received): (Instant, Instant),
        name: &dyn Fn(usize) -> String,
    ) {
        let got = &mut self.got[group * self.lanes + lane];
        let mut wrong = Vec::new();
        if number < got.done {
            wrong.push(format!("came again {REMEMBERED:?} after it was acknowledged"));
        } else {
            let before = got.messages.entry(number).or_default();
            if before.is_empty() && number != got.next {
                wrong.push(format!("came where number {} is next", got.next));
            }
            for one in before.iter() {
                // Each was leased between asking and receiving; so they cannot have been a lease
                // apart if not even the outer ends are.
                let apart = (received - one.asked).max(one.received.duration_since(asked));
                if apart < self.lease {
                    wrong.push(format!("came twice within {apart:.1?}"));
                }
                if one.settled.is_some_and(|(at, sure)| sure && at < asked) {
                    wrong.push("came again after it was acknowledged".to_owned());
                }
            }
            self.again += u64::from(!before.is_empty());
            before.push(Delivery { asked, received, settled: None });
            got.next = got.next.max(number + 1);
        }
        for text in wrong {
            self.broken(format!("{} number {number} {text}", name(lane)));
        }
    }

    /// What came to a pop that was asked at this time is acknowledged; `sure` if a node said so
    /// and not only may have. Whether it is the first time for the message.
    pub fn settled(
        &mut self,
        Lane { group, lane }: Lane,
        number: u64,
        asked: Instant,
        sure: bool,
    ) -> bool {
        let got = &mut self.got[group * self.lanes + lane];
        let Some(all) = got.messages.get_mut(&number) else { return false };
        let first = all.iter().all(|one| one.settled.is_none());
        let Some(one) = all.iter_mut().find(|one| one.asked == asked) else { return false };
        one.settled = Some((Instant::now(), sure));
        self.settled += u64::from(first);
        first
    }

    /// Messages that groups have settled so far.
    pub fn settled_so_far(&self) -> u64 {
        self.settled
    }

    /// Messages that groups have yet to settle.
    pub fn waiting(&self) -> u64 {
        let all = self.pushed.iter().sum::<u64>() * self.groups();
        all.saturating_sub(self.settled)
    }

    /// Forgets what was settled long ago, up to the first message that was not.
    pub fn forget(&mut self) {
        for got in &mut self.got {
            while let Some(entry) = got.messages.first_entry() {
                let all = entry.get();
                let old = |one: &Delivery| one.received.elapsed() > REMEMBERED;
                let settled = all.iter().any(|one| one.settled.is_some());
                if !settled || !all.iter().all(old) {
                    break;
                }
                got.done = entry.key() + 1;
                entry.remove();
            }
        }
    }

    /// What was acknowledged to a producer and by no consumer.
    pub fn lost(&self, name: &dyn Fn(usize) -> String) -> Vec<String> {
        let mut lost = Vec::new();
        for (place, got) in self.got.iter().enumerate() {
            let (group, lane) = (place / self.lanes, place % self.lanes);
            let is_open = |number: &u64| {
                let all = got.messages.get(number).into_iter().flatten();
                !all.clone().any(|one| one.settled.is_some())
            };
            let times = |number: u64| (number, got.messages.get(&number).map_or(0, Vec::len));
            let open: Vec<u64> = (got.done..self.pushed[lane]).filter(is_open).collect();
            if !open.is_empty() {
                let named: Vec<_> = open.iter().take(NAMED_MAX).map(|one| times(*one)).collect();
                lost.push(format!(
                    "{} messages of {} were acknowledged and never consumed by group {group}; \
                     number and times handed out: {named:?}",
                    open.len(),
                    name(lane),
                ));
            }
        }
        lost
    }

    /// The verdict over everything.
    pub fn verdict(&self, lost: Vec<String>) -> Verdict {
        let (pushed, waiting) = (self.pushed.iter().sum::<u64>(), self.waiting());
        let mut broken: Vec<String> = self.broken.iter().cloned().collect();
        let twice = broken.iter().filter(|text| text.contains("twice within")).count();
        broken.extend(lost);
        if pushed == 0 {
            broken.push("no message was ever pushed".to_owned());
        }
        let mut done = format!(
            "{} pushed, {} consumed by {} groups, {} lost, {twice} doubled",
            grouped(pushed),
            grouped(self.settled),
            self.groups(),
            grouped(waiting),
        );
        if self.again > 0 {
            done += &format!(", {} came again after a lease", grouped(self.again));
        }
        Verdict { part: "queues", done, broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);
    const LANE: Lane = Lane { group: 0, lane: 1 };

    fn name(lane: usize) -> String {
        format!("lane-{lane}")
    }

    fn book() -> Book {
        Book::new(1, 2, LEASE)
    }

    /// Seconds after the beginning of a test.
    fn at(begun: Instant, asked: u64, received: u64) -> (Instant, Instant) {
        (begun + Duration::from_secs(asked), begun + Duration::from_secs(received))
    }

    fn broken(book: &Book) -> Vec<String> {
        book.verdict(Vec::new()).broken
    }

    #[test]
    fn what_comes_once_and_in_order_is_fine() {
        let (mut book, begun) = (book(), Instant::now());
        book.pushed(1, 2);
        for number in 0..2 {
            book.received(LANE, number, at(begun, number, number), &name);
            assert!(book.settled(LANE, number, at(begun, number, 0).0, true));
        }
        assert_eq!((book.waiting(), book.lost(&name).len()), (0, 0));
        assert_eq!(broken(&book), [""; 0]);
    }

    #[test]
    fn what_comes_out_of_order_is_told() {
        let (mut book, begun) = (book(), Instant::now());
        book.pushed(1, 3);
        book.received(LANE, 0, at(begun, 0, 0), &name);
        book.received(LANE, 2, at(begun, 1, 1), &name);
        assert_eq!(broken(&book), ["lane-1 number 2 came where number 1 is next"]);
    }

    #[test]
    fn what_comes_again_within_a_lease_is_told_and_after_one_is_not() {
        for (again, twice) in [(4, true), (5, false)] {
            let (mut book, begun) = (book(), Instant::now());
            book.pushed(1, 1);
            book.received(LANE, 0, at(begun, 0, 0), &name);
            book.received(LANE, 0, at(begun, again, again), &name);
            assert_eq!(broken(&book).iter().any(|text| text.contains("twice within")), twice);
        }
    }

    #[test]
    fn an_answer_that_was_held_up_is_no_double() {
        let (mut book, begun) = (book(), Instant::now());
        book.pushed(1, 1);
        // Leased at 0 for one whose answer came at 6, and at 5 for another.
        book.received(LANE, 0, at(begun, 5, 5), &name);
        book.received(LANE, 0, at(begun, 0, 6), &name);
        assert_eq!(broken(&book), [""; 0]);
    }

    #[test]
    fn what_comes_again_after_it_was_acknowledged_is_told_if_that_is_certain() {
        for sure in [true, false] {
            let (mut book, begun) = (book(), Instant::now() - Duration::from_secs(60));
            book.pushed(1, 1);
            book.received(LANE, 0, at(begun, 0, 0), &name);
            book.settled(LANE, 0, begun, sure);
            book.received(LANE, 0, at(begun, 61, 61), &name);
            let told = broken(&book);
            assert_eq!(told.iter().any(|text| text.contains("was acknowledged")), sure, "{told:?}");
        }
    }

    #[test]
    fn what_nobody_consumed_is_lost_and_named() {
        let (mut book, begun) = (book(), Instant::now());
        book.pushed(1, 2);
        book.received(LANE, 0, at(begun, 0, 0), &name);
        book.settled(LANE, 0, begun, true);
        assert_eq!(book.waiting(), 1);
        assert!(book.lost(&name)[0].contains("[(1, 0)]"), "{:?}", book.lost(&name));
    }

    #[test]
    fn what_was_forgotten_is_still_known_to_be_done() {
        let (mut book, begun) = (book(), Instant::now() - 2 * REMEMBERED);
        book.pushed(1, 1);
        book.received(LANE, 0, at(begun, 0, 0), &name);
        book.settled(LANE, 0, begun, true);
        book.forget();
        assert_eq!((book.waiting(), book.lost(&name).len()), (0, 0));
        book.received(LANE, 0, at(begun, 170, 170), &name);
        assert!(broken(&book)[0].contains("came again"), "{:?}", broken(&book));
    }
}
