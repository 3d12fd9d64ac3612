//! What somebody could do wrong. Each must be noticed, or the checks would be none.

/// Something done wrong, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A worker that reaches its limit restarts without an order.
    RestartsUnasked,
    /// What never began stays on record.
    UndoDropped,
    /// Late messages are taken as if they came from the gateway's newest link.
    LinksIgnored,
    /// Answers to beats get lost, and the gateway goes on as if nothing was in them.
    LostNewsIgnored,
    /// A gateway that missed an answer asks again as a new session.
    NewTicketAfterLostReply,
    /// A gateway that comes back does not say what it carries.
    CarriedUnsaid,
    /// A gateway does not say again what could not be placed.
    UnplacedUnsaid,
    /// A gateway does not come back after the table was put back to an old copy.
    ReconnectIgnored,
    /// A worker that the table has forgotten says it is new.
    LifetimeForgotten,
    /// That a program is gone does not reach the table.
    DeathUntold,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 10] = [
        Mutation::RestartsUnasked,
        Mutation::UndoDropped,
        Mutation::LinksIgnored,
        Mutation::LostNewsIgnored,
        Mutation::NewTicketAfterLostReply,
        Mutation::CarriedUnsaid,
        Mutation::UnplacedUnsaid,
        Mutation::ReconnectIgnored,
        Mutation::LifetimeForgotten,
        Mutation::DeathUntold,
    ];
}
