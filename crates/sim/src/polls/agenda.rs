//! What is to happen, by true time.

use skep_policy::ownership::{Reply, Request, Token};

/// One process of one node: the node's index and which of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub node: u8,
    pub life: u32,
}

/// A request on its way to the store, or its answer on its way back.
#[derive(Clone, Debug)]
pub(crate) struct Letter<T> {
    pub process: Process,
    pub id: u64,
    pub body: T,
}

/// What a poller tells the sink.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mail {
    /// It owns the endpoint now.
    Announce,
    /// The result of a poll for this slot.
    Result(i64),
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum What {
    /// A node's program starts.
    Start(u8),
    /// A member asked to be woken.
    Wake(Process),
    /// A call to the store takes too long.
    GiveUp(Process, u64),
    Arrive(Box<Letter<Request>>),
    Answer(Box<Letter<Reply>>),
    Hint(u8),
    /// A poll is due; `turn` is the poller's decision it belongs to, and an older one is void.
    Due(Process, u8, u32),
    /// A poll that has its permit is sent.
    Send(Process, u8, u32),
    End(Process, u8, u32),
    Post(Process, u8, Token, Mail),
    /// The sink's answer to an announcement: whether it counts, and the last slot it has.
    Heard(Process, u8, Token, bool, Option<i64>),
    /// The sink has a result, or has refused it.
    Kept(Process, u8),
    /// The next fault of the plan.
    Fault(u32),
    /// Something an adversary has prepared.
    Trap(Trap),
}

/// What an adversary prepares for a moment it has chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trap {
    /// Cut the node off for so many nanoseconds.
    Cut(u8, u64),
    /// Hold its process for so long.
    Pause(u8, u64),
    /// The store loses everything it knows.
    Lose,
    /// The store goes back to the copy that was taken for this.
    Restore,
}

/// Everything that is to happen. The first comes out first, and of the same instant what was added
/// first.
#[derive(Default)]
pub(crate) struct Agenda {
    entries: crate::agenda::Agenda<u64, What>,
    added: u64,
}

impl Agenda {
    pub fn add(&mut self, at: u64, what: What) {
        self.added += 1;
        self.entries.add(at, self.added, what);
    }

    pub fn take(&mut self) -> Option<(u64, What)> {
        self.entries.take()
    }
}
