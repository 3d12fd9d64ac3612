//! What a review decided, for every monitor.

use super::facts::{Challenge, Kind, Status, Stored};
use super::score::Health;
use serde::Serialize;

/// What should become of a monitor, before floors, budgets and targets have their say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// May be kept and promoted.
    In,
    /// Should leave, gradually.
    Out,
    /// Must leave at once.
    Block,
    /// Stays what it is.
    Pending,
}

impl State {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::In => "in",
            State::Out => "out",
            State::Block => "block",
            State::Pending => "pending",
        }
    }
}

/// Why a monitor has its state: the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The network has not approved it.
    GloballyPending,
    /// It is paused everywhere.
    GloballyPaused,
    /// It is deleted.
    GloballyDeleted,
    /// It is active here, but only on trial in the network as a whole.
    Inconsistent,
    /// It violates a constraint.
    Violation(Kind),
    /// It does badly, or is silent.
    Unhealthy(Health),
    /// It has not measured yet.
    Unmeasured,
    /// It is on trial here and in the network as a whole.
    GloballyTesting,
    /// Nothing speaks against it.
    Fine,
}

impl Cause {
    /// Its word, short enough to be stored as the reason of a pause.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::GloballyPending => "globally-pending",
            Cause::GloballyPaused => "globally-paused",
            Cause::GloballyDeleted => "globally-deleted",
            Cause::Inconsistent => "inconsistent",
            Cause::Violation(kind) => kind.as_str(),
            Cause::Unhealthy(Health::Silent) => "silent",
            Cause::Unhealthy(_) => "unhealthy",
            Cause::Unmeasured => "unmeasured",
            Cause::GloballyTesting => "globally-testing",
            Cause::Fine => "fine",
        }
    }
}

/// The rule that made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Rule {
    /// Rule 1.
    #[serde(rename = "1")]
    Block,
    /// Rule 2.
    #[serde(rename = "2")]
    Remove,
    /// Rule 1.5.
    #[serde(rename = "1.5")]
    ActiveExcess,
    /// Rule 3.
    #[serde(rename = "3")]
    ToActive,
    /// Rule 5.
    #[serde(rename = "5")]
    ToTesting,
    /// Rule 2.5.
    #[serde(rename = "2.5")]
    TestingExcess,
    /// Rule 6.
    #[serde(rename = "6")]
    Bootstrap,
    /// The re-check of paused ones.
    #[serde(rename = "recheck")]
    Recheck,
}

impl Rule {
    /// All of them, in the order in which they are applied.
    pub const ALL: [Rule; 8] = [
        Rule::Block,
        Rule::Remove,
        Rule::ActiveExcess,
        Rule::ToActive,
        Rule::ToTesting,
        Rule::TestingExcess,
        Rule::Bootstrap,
        Rule::Recheck,
    ];

    /// Its number in the documentation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Block => "1",
            Rule::Remove => "2",
            Rule::ActiveExcess => "1.5",
            Rule::ToActive => "3",
            Rule::ToTesting => "5",
            Rule::TestingExcess => "2.5",
            Rule::Bootstrap => "6",
            Rule::Recheck => "recheck",
        }
    }

    /// What it does, in a few words: few enough for a label of a metric.
    pub const fn reason(self) -> &'static str {
        match self {
            Rule::Block => "blocked",
            Rule::Remove => "gradual removal",
            Rule::ActiveExcess => "active excess",
            Rule::ToActive => "promotion to active",
            Rule::ToTesting => "candidate to testing",
            Rule::TestingExcess => "testing excess",
            Rule::Bootstrap => "bootstrap",
            Rule::Recheck => "constraint resolved",
        }
    }
}

/// One monitor becomes something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place in the roster.
    pub monitor: u32,
    /// What it was.
    pub from: Status,
    /// What it becomes.
    pub to: Status,
    /// By which rule.
    pub rule: Rule,
    /// The other one of a swap, by its place in the roster.
    pub partner: Option<u32>,
    /// Nobody was active, so account limits and the spread over networks were ignored.
    pub emergency: bool,
}

/// Why a monitor stays what it is: the first thing in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// It is active, as it should be.
    Serving,
    /// It is on trial, and stays there while the network as a whole tests it.
    OnTrial,
    /// It should leave, but the floor of its pool was reached.
    AtFloor {
        /// Removal leaves so many.
        floor: u32,
    },
    /// It should leave, but nobody could become active without it.
    KeptForEmergency,
    /// It is paused, and what paused it still holds.
    StillBlocked,
    /// It is paused, what paused it is gone, but the re-check is not due.
    RecheckLater,
    /// Its state keeps it out of any promotion.
    NotEligible,
    /// It needs more samples.
    TooFewSamples {
        /// It has so many.
        has: u32,
        /// It needs so many.
        needs: u32,
    },
    /// Its account has as many as it may here.
    AccountFull {
        /// How many others of the account are active.
        active: u32,
        /// How many others of the account are in testing.
        testing: u32,
        /// How many may be active; one more together.
        limit: u32,
    },
    /// Another one of its network watches this server.
    NetworkTaken {
        /// The other, by its place in the roster.
        peer: u32,
    },
    /// The pool above is full, and it is not better than any there by the margin.
    PoolFull {
        /// The worst one there, if any.
        worst: Option<u32>,
    },
    /// It is better than one above, but not for long enough.
    Challenging,
    /// It should move, but this run has changed enough.
    BudgetSpent {
        /// So many changes a group.
        budget: u32,
    },
}

/// Whether a monitor changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It does: the change at this place of [`Plan::changes`].
    Changes(u32),
    /// It does not.
    Stays(Stay),
}

/// What was found about one monitor, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its place in the roster.
    pub monitor: u32,
    /// What it was to the server before the run.
    pub status: Status,
    /// What should become of it.
    pub state: State,
    /// Why.
    pub cause: Cause,
    /// All constraints it violates, as a set of bits in the order of [`Kind::ALL`].
    kinds: u8,
    /// Who causes its violation of diversity, by its place in the roster.
    pub peer: Option<u32>,
    /// Whether it changes, or why not.
    pub outcome: Outcome,
    /// Whom it is about to replace: what the next review must be told.
    pub challenge: Option<Challenge>,
    /// The violation to store: the first it has, with the time it began.
    pub violation: Option<Stored>,
    /// Whether it is paused and was looked at: now is then to be stored as its last check.
    pub checked: bool,
}

impl Verdict {
    pub(super) fn new(monitor: u32, status: Status, kinds: u8) -> Self {
        Verdict {
            monitor,
            status,
            state: State::In,
            cause: Cause::Fine,
            kinds,
            peer: None,
            outcome: Outcome::Stays(Stay::NotEligible),
            challenge: None,
            violation: None,
            checked: false,
        }
    }

    /// All constraints it violates.
    pub fn violations(&self) -> impl Iterator<Item = Kind> + use<> {
        let kinds = self.kinds;
        Kind::ALL.into_iter().filter(move |kind| kinds & bit(*kind) != 0)
    }
}

pub(super) const fn bit(kind: Kind) -> u8 {
    1 << kind as u8
}

/// How many changes each group may have, and has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// So many each.
    pub each: u32,
    /// Active ones that were demoted.
    pub active_removals: u32,
    /// Testing ones that were demoted.
    pub testing_removals: u32,
    /// Promotions, without those of rule 6.
    pub promotions: u32,
}

/// How many monitors are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Active.
    pub active: u32,
    /// In testing.
    pub testing: u32,
    /// Candidates.
    pub candidate: u32,
    /// Paused.
    pub paused: u32,
    /// Those in testing that are globally active and not on their way out.
    pub globally_active_in_testing: u32,
}

/// The outcome of a review of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What changes, in the order in which it was decided.
    pub changes: Vec<Change>,
    /// Every monitor, best first: its place here is its rank.
    pub verdicts: Vec<Verdict>,
    /// The pools before.
    pub before: Counts,
    /// The pools after.
    pub after: Counts,
    /// What was spent.
    pub budget: Budget,
    /// Whether nobody was active once the blocked ones were gone.
    pub emergency: bool,
}

impl Plan {
    /// The rank and the verdict of a monitor, by its place in the roster. Ranks begin at 1.
    pub fn verdict(&self, monitor: u32) -> Option<(usize, &Verdict)> {
        let found = self.verdicts.iter().position(|verdict| verdict.monitor == monitor)?;
        Some((found + 1, &self.verdicts[found]))
    }

    /// What a monitor becomes, or stays.
    pub fn status_after(&self, verdict: &Verdict) -> Status {
        match verdict.outcome {
            Outcome::Changes(place) => self.changes[place as usize].to,
            Outcome::Stays(_) => verdict.status,
        }
    }
}
