//! When to ask a node again that did not answer as hoped.

use super::link::Failure;
use skep_policy::backoff::{Options, wait_before_attempt};
use skep_policy::{Chance, SeededChance};
use std::time::Duration;

const BACKOFF: Options = Options { base: Duration::from_secs(1), cap: Duration::from_secs(60) };
/// Waits are never shorter, however lucky the draw.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// A key that is not good now may be later: keys are changed while agents run, and a new one is not
/// known to every node at once.
const DENIED: Duration = Duration::from_secs(10);

/// How one kind of question fares.
#[derive(Debug)]
pub struct Pace {
    chance: SeededChance,
    nodes: u32,
    failures: u32,
    said: Option<String>,
}

impl Pace {
    /// Of questions that this many nodes can answer.
    pub fn new(nodes: usize, seed: u64) -> Self {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        Pace { chance: SeededChance::new(seed), nodes, failures: 0, said: None }
    }

    /// How long to wait after this failure: not at all while there are nodes that were not tried,
    /// then longer and longer.
    pub fn failed(&mut self, failure: &Failure) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if !self.failures.is_multiple_of(self.nodes) {
            return Duration::ZERO;
        }
        let round = self.failures / self.nodes;
        match failure {
            Failure::Denied(_) | Failure::Refused(_) => {
                DENIED.saturating_mul(round).min(BACKOFF.cap)
            }
            Failure::Away(_) => {
                wait_before_attempt(round, &BACKOFF, &mut self.chance).chosen.max(WAIT_MIN)
            }
        }
    }

    /// Whether this failure is news.
    pub fn is_news(&mut self, failure: &Failure) -> bool {
        let news = self.said.as_deref() != Some(failure.text());
        if news {
            self.said = Some(failure.text().to_owned());
        }
        news
    }

    /// An answer came. Whether there was a failure that somebody heard of before.
    pub fn answered(&mut self) -> bool {
        self.failures = 0;
        self.said.take().is_some()
    }

    /// A span, a little shorter by chance, so that agents that started together do not stay so.
    pub fn about(&mut self, span: Duration) -> Duration {
        let tenth = u64::try_from(span.as_millis() / 10).unwrap_or(u64::MAX);
        span - Duration::from_millis(self.chance.up_to(tenth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Failure {
        Failure::Away("gone".to_owned())
    }

    #[test]
    fn every_node_is_tried_at_once_and_then_waits_grow_to_a_minute() {
        let mut pace = Pace::new(3, 5);
        let waits: Vec<Duration> = (0..60).map(|_| pace.failed(&away())).collect();
        for (position, wait) in waits.iter().enumerate() {
            assert_eq!(wait.is_zero(), (position + 1) % 3 != 0, "{position}: {wait:?}");
            assert!(*wait <= BACKOFF.cap);
        }
        assert!(waits[2] <= BACKOFF.base);
        assert!(waits[30..].iter().any(|wait| *wait > 10 * BACKOFF.base), "{waits:?}");
        pace.answered();
        assert!(pace.failed(&away()).is_zero());
    }

    #[test]
    fn a_denied_key_is_tried_again_soon_and_then_every_minute() {
        let mut pace = Pace::new(1, 5);
        let denied = Failure::Denied("no".to_owned());
        let waits: Vec<u64> = (0..8).map(|_| pace.failed(&denied).as_secs()).collect();
        assert_eq!(waits, [10, 20, 30, 40, 50, 60, 60, 60]);
    }

    #[test]
    fn a_failure_is_news_once_until_an_answer_or_another() {
        let mut pace = Pace::new(1, 5);
        assert!(!pace.answered(), "nothing was wrong");
        assert_eq!([pace.is_news(&away()), pace.is_news(&away())], [true, false]);
        assert!(pace.is_news(&Failure::Denied("no".to_owned())));
        assert!(pace.answered());
        assert!(pace.is_news(&away()));
    }

    #[test]
    fn agents_do_not_stay_together() {
        let span = Duration::from_secs(60);
        let drawn: Vec<Duration> = (0..20).map(|seed| Pace::new(1, seed).about(span)).collect();
        assert!(drawn.iter().all(|one| (span * 9 / 10..=span).contains(one)), "{drawn:?}");
        assert!(drawn.iter().any(|one| *one != drawn[0]));
    }
}
