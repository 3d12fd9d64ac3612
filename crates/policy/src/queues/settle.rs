//! What consumers say about what they got.

use super::{Lane, LeaseId, Retry, Rules};
use crate::{Chance, Time};
use std::time::Duration;

/// What a consumer says about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, and with it everything before.
    Completed,
    /// It did not work: again later, or aside if that was once too often.
    Failed,
    /// Not now: again at once, and it does not count as a failure.
    Retry,
    /// Aside, whatever its failures.
    Dead,
}

/// A consumer's word about one message.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The message's number; `None` if there is no such message.
    pub number: Option<u64>,
    /// What is said.
    pub verdict: Verdict,
    /// With which claim it was got, if the consumer says so.
    pub lease: Option<LeaseId>,
    /// What the message says about its failures.
    pub own: Retry,
    /// When it shall come again, if it does; otherwise the rules decide, and after
    /// [`Verdict::Retry`] it is at once.
    pub after: Option<Duration>,
}

/// What came of a consumer's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The cursor is at this message now. With `released` the claim is over.
    Done {
        /// Whether that was the last of its claim.
        released: bool,
    },
    /// It was settled before; nothing changed.
    Noop,
    /// It goes to the dead letters, after so many failures, and the cursor is at it.
    Dead {
        /// How often it had come back after a failure.
        failures: u32,
        /// Whether that was the last of its claim.
        released: bool,
    },
    /// It comes again, not before this time, and so does everything after it.
    Again {
        /// When.
        at: Time,
    },
    /// Nothing changed.
    Refused(Refusal),
}

/// Why a consumer's word does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such message, or it was not handed out with this claim.
    Unknown,
    /// The claim has run out, or it is somebody else's turn.
    Stale,
    /// Somebody works on this partition, and the word came without saying for which claim.
    Held,
    /// A message before it comes again, and so does this one.
    Overtaken,
}

impl Lane {
    /// Settles what one call says about this lane, in the order of the messages, however the call
    /// names them: otherwise a later completion would pass over an earlier failure. The answers are
    /// in the order of the call.
    pub fn settle(
        &mut self,
        now: Time,
        rules: &Rules,
        asks: &[Ask],
        chance: &mut impl Chance,
    ) -> Vec<Settled> {
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by_key(|place| asks[*place].number);
        let mut answers = vec![Settled::Refused(Refusal::Unknown); asks.len()];
        let before = *self;
        let mut again: Option<(u64, Time)> = None;
        for place in order {
            let ask = &asks[place];
            let Some(number) = ask.number else { continue };
            answers[place] = match again {
                Some((from, at)) if number >= from => match (before.fence(now, ask), ask.verdict) {
                    (Some(refusal), _) => Settled::Refused(refusal),
                    (None, Verdict::Failed | Verdict::Retry) => Settled::Again { at },
                    (None, _) => Settled::Refused(Refusal::Overtaken),
                },
                _ => self.settle_one(now, rules, ask, number, &before, chance),
            };
            if let Settled::Again { at } = answers[place] {
                again.get_or_insert((number, at));
            }
        }
        answers
    }

    fn settle_one(
        &mut self,
        now: Time,
        rules: &Rules,
        ask: &Ask,
        number: u64,
        before: &Lane,
        chance: &mut impl Chance,
    ) -> Settled {
        let own_and_over = ask.lease.is_some() && ask.lease == self.ended;
        if number <= self.cursor && (ask.lease.is_none() || own_and_over) {
            return Settled::Noop;
        }
        if let Some(refusal) = self.fence(now, ask) {
            return Settled::Refused(refusal);
        }
        if number <= self.cursor {
            return Settled::Noop;
        }
        let rules = rules.with(&ask.own);
        let lease = self.live_lease(now);
        if lease.is_some_and(|lease| number > lease.through) {
            return Settled::Refused(Refusal::Unknown);
        }
        // By what was so before the call: a batch that fails for the last time fails as a whole.
        let failures = if number <= before.failed_through { before.failures } else { 0 };
        match ask.verdict {
            Verdict::Completed => Settled::Done { released: self.pass(now, number) },
            Verdict::Dead => Settled::Dead { failures, released: self.pass(now, number) },
            Verdict::Failed if failures >= rules.retry_limit => {
                Settled::Dead { failures, released: self.pass(now, number) }
            }
            Verdict::Failed => {
                let through = lease.map_or(number, |lease| lease.through);
                self.failed_through =
                    if failures == 0 { through } else { before.failed_through.min(through) };
                self.failures = failures + 1;
                let wait = ask.after.unwrap_or_else(|| rules.wait_after(self.failures, chance));
                self.not_before = now + wait;
                self.lease = None;
                Settled::Again { at: self.not_before }
            }
            Verdict::Retry => {
                self.lease = None;
                // Without a claim it may come in the delay after a failure, which it does not end.
                let at = now + ask.after.unwrap_or_default();
                if at > now {
                    self.not_before = self.not_before.max(at);
                    // It holds for these, as after a failure, and ends with them.
                    if self.failures == 0 {
                        self.failed_through = lease.map_or(number, |lease| lease.through);
                    }
                }
                Settled::Again { at: at.max(self.not_before) }
            }
        }
    }

    /// Whether the word may count at all.
    fn fence(&self, now: Time, ask: &Ask) -> Option<Refusal> {
        match (ask.lease, self.live_lease(now)) {
            (Some(given), Some(lease)) if given == lease.id => None,
            (Some(_), _) => Some(Refusal::Stale),
            (None, Some(_)) => Some(Refusal::Held),
            (None, None) => None,
        }
    }

    /// Moves the cursor to `number` and tells whether that ended the claim.
    fn pass(&mut self, now: Time, number: u64) -> bool {
        self.advance(number);
        let ended = self.live_lease(now).filter(|lease| lease.through <= number);
        if let Some(lease) = ended {
            self.ended = Some(lease.id);
            self.lease = None;
        }
        ended.is_some()
    }
}
