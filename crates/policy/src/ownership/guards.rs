//! What keeps two from working on one key, one by one, so that each can be proved necessary.
//!
//! A check that finds nothing proves little. The simulator removes each guard in turn and must see
//! its checker complain; what can be removed unnoticed is either no guard or not tested. Everywhere
//! else all guards stand.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// Trust and silence keep a margin between them.
    Margin,
    /// Trust is shortened and silence lengthened by what clocks may err.
    Drift,
    /// Trust counts from before the renewal was sent, not from when its answer came.
    SendTime,
    /// Nothing is begun after trust has run out.
    TrustEnds,
    /// Only what will be over before trust runs out is begun.
    WorkFits,
    /// A key is given away only after work on it has stopped.
    DrainFirst,
    /// What was held in an earlier epoch is trusted no longer than it was then.
    OldTrust,
    /// What was given away without an answer is not claimed again in a new epoch.
    LimboStaysOut,
    /// A request from before the last renewal is void.
    SequenceCheck,
    /// A silent node is removed only if its number is still the one that was watched.
    ExpireCompares,
    /// A number is never used twice.
    NumbersNeverRepeat,
    /// A store that started anew begins a new epoch.
    RunChange,
    /// A store that knows less than a requester begins a new epoch.
    KnowsLess,
    /// Two epochs with one number are told apart.
    EpochTag,
    /// In a new epoch nobody claims before all trust from before has run out.
    Grace,
    /// The owner of a key announces its token before its first work.
    AnnounceFirst,
    /// Results with an older token are refused.
    TokenCheck,
}

impl Guard {
    /// All of them.
    pub const ALL: [Guard; 17] = [
        Guard::Margin,
        Guard::Drift,
        Guard::SendTime,
        Guard::TrustEnds,
        Guard::WorkFits,
        Guard::DrainFirst,
        Guard::OldTrust,
        Guard::LimboStaysOut,
        Guard::SequenceCheck,
        Guard::ExpireCompares,
        Guard::NumbersNeverRepeat,
        Guard::RunChange,
        Guard::KnowsLess,
        Guard::EpochTag,
        Guard::Grace,
        Guard::AnnounceFirst,
        Guard::TokenCheck,
    ];
}

/// Which guards stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    removed: Option<Guard>,
}

impl Guards {
    /// All but one, for showing what that one is good for.
    pub const fn all_but(guard: Guard) -> Self {
        Guards { removed: Some(guard) }
    }

    /// Whether the guard stands.
    pub fn stands(self, guard: Guard) -> bool {
        self.removed != Some(guard)
    }
}
