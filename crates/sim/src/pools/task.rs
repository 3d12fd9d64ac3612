//! A virtual task: what is asked for, and how its attempts go.

use super::weather::Weather;
use skep_policy::pools::Tier;
use skep_policy::{Chance, SeededChance, Time};
use skep_pools::engine::{Claim, Ended, Patience};
use skep_pools::{Failure, Options};
use std::time::Duration;

/// What kind of code a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A future: it is dropped when its time is over or somebody cancels it.
    Future,
    /// Blocking code that looks now and then whether it should stop.
    Attentive,
    /// Blocking code that never looks.
    Deaf,
}

impl Nature {
    pub fn kind(self) -> &'static str {
        match self {
            Nature::Future => "future",
            Nature::Attentive => "attentive",
            Nature::Deaf => "deaf",
        }
    }
}

/// How long a task works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// As the weather has it.
    Drawn,
    /// For this long, and succeeds.
    For(Duration),
    /// Until this time, or if that has passed a moment, and succeeds.
    Until(Time),
    /// Until somebody ends it.
    Held,
}

/// A task that somebody wants done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub tier: Tier,
    pub patience: Patience,
    pub nature: Nature,
    pub work: Work,
    pub timeout: Option<Duration>,
    pub retries: Option<u32>,
    pub start_within: Option<Duration>,
    pub key: Option<u8>,
    pub idempotent: bool,
    pub busy: Option<bool>,
    pub cancellable: bool,
}

impl Order {
    /// A plain task.
    pub fn new(tier: Tier, work: Work) -> Self {
        Order {
            tier,
            patience: Patience::None,
            nature: Nature::Attentive,
            work,
            timeout: None,
            retries: None,
            start_within: None,
            key: None,
            idempotent: false,
            busy: None,
            cancellable: false,
        }
    }

    pub fn timeout(&self, options: &Options) -> Duration {
        self.timeout.unwrap_or(options.tier(self.tier).task_timeout)
    }

    pub fn retries(&self, options: &Options) -> u32 {
        self.retries.unwrap_or(options.tier(self.tier).retries)
    }

    /// Whether it counts as keeping a processor busy: a background task that says so, or is of
    /// blocking code.
    pub fn is_busy_background(&self) -> bool {
        let busy = self.busy.unwrap_or(self.nature != Nature::Future);
        busy && matches!(self.tier, Tier::Normal | Tier::Low)
    }
}

/// How an attempt ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeds,
    Fails,
    FailsForGood,
    Panics,
    /// Takes its worker with it.
    Dies,
    /// Notices that it should stop.
    Stops,
}

/// What an attempt is going to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub end: End,
    /// `None`: it hangs until somebody ends it.
    pub at: Option<Time>,
}

impl Plan {
    pub fn of(
        order: &Order,
        claim: &Claim,
        now: Time,
        weather: &Weather,
        chance: &mut SeededChance,
    ) -> Self {
        let deadline = claim.context.deadline();
        let plan = match order.work {
            Work::For(span) => Plan { end: End::Succeeds, at: Some(now + span) },
            Work::Until(time) => {
                Plan { end: End::Succeeds, at: Some(time.max(now + Duration::from_millis(1))) }
            }
            Work::Held => Plan { end: End::Succeeds, at: None },
            Work::Drawn => weather.plan(order, now, deadline, chance),
        };
        match plan.at {
            // The worker of a future wakes up at its deadline by itself.
            _ if order.nature != Nature::Future => plan,
            Some(at) if at < deadline => plan,
            _ => Plan { end: End::Stops, at: Some(deadline + weather.wake_late.draw(chance)) },
        }
    }

    /// What the worker tells the engine; `None` if it cannot tell anything any more.
    pub fn ended(self, nature: Nature, claim: &Claim, now: Time) -> Option<Ended> {
        let stopped =
            || if now >= claim.context.deadline() { Ended::TimedOut } else { Ended::Cancelled };
        let told = nature != Nature::Future && claim.context.is_cancelled();
        let failed = |failure| if told { stopped() } else { Ended::Returned(Err(failure)) };
        Some(match self.end {
            End::Succeeds => Ended::Returned(Ok(())),
            End::Fails => failed(Failure { message: String::new(), retry: true }),
            End::FailsForGood => failed(Failure { message: String::new(), retry: false }),
            End::Panics => Ended::Panicked(String::new()),
            End::Stops => stopped(),
            End::Dies => return None,
        })
    }
}

/// One of `choices`, each as likely.
pub(crate) fn one_of<T: Copy>(choices: &[T], chance: &mut SeededChance) -> T {
    choices[chance.up_to(choices.len() as u64 - 1) as usize]
}
