//! One node: its clock, its process, and in it a member and a poller for each endpoint.

use super::agenda::Process;
use super::plan::{ENDPOINTS, SECOND};
use skep_policy::Time;
use skep_policy::ownership::{Member, Token};
use skep_policy::polls::schedule::Due;

/// A clock that runs at its own rate, and can be stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    rate: f64,
    true_base: u64,
    local_base: u64,
}

impl NodeClock {
    pub fn new(rate: f64, offset: u64) -> Self {
        NodeClock { rate, true_base: 0, local_base: offset }
    }

    /// What it shows at a true time. Rates are within a few percent of one, so nothing overflows.
    pub fn at(&self, now: u64) -> Time {
        let passed = now.saturating_sub(self.true_base) as f64 * self.rate;
        Time::from_nanos(self.local_base + passed as u64)
    }

    /// The true time at which it shows at least this.
    pub fn when(&self, local: Time) -> u64 {
        let nanos = local.as_nanos();
        if nanos == u64::MAX {
            return u64::MAX;
        }
        let wait = nanos.saturating_sub(self.local_base) as f64 / self.rate;
        self.true_base + wait as u64 + 2
    }

    /// True nanoseconds that pass while it counts so many.
    pub fn span(&self, local: u64) -> u64 {
        (local as f64 / self.rate) as u64
    }

    /// It stood still from `from` to `to`.
    pub fn stand_still(&mut self, from: u64, to: u64) {
        self.local_base = self.at(from).as_nanos();
        self.true_base = to;
    }
}

/// What a poller is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing, or waiting for its token to be announced.
    Nothing,
    Waiting(Due),
    /// A poll with its permit, about to be sent or sent.
    Polling(i64, Token),
}

/// The work on one endpoint that this process owns or owned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    pub token: Token,
    /// What came with the ownership.
    pub due: i64,
    /// The sink knows of this token.
    pub announced: Option<Token>,
    pub last: Option<i64>,
    pub since_ms: i64,
    pub stopping: bool,
    pub doing: Doing,
    /// Results on their way to the sink: work is over when they are there, or the next owner's
    /// token would overtake them.
    pub unkept: u32,
    /// It has not polled yet under this ownership.
    pub fresh: bool,
}

impl Worker {
    /// Whether nothing is left to finish.
    pub fn is_over(&self) -> bool {
        self.unkept == 0 && !matches!(self.doing, Doing::Polling(..))
    }
}

/// A node.
pub(crate) struct Node {
    pub clock: NodeClock,
    pub life: u32,
    pub member: Option<Member>,
    pub workers: [Option<Worker>; ENDPOINTS],
    /// Each change of mind of a poller takes the next number.
    pub turns: [u32; ENDPOINTS],
    /// When it is to be woken; zero is not at all.
    pub wake_at: u64,
    /// How often it was woken since something else happened to it.
    pub wakes: u32,
    pub held_until: u64,
    /// Requests are lost until then, and answers and hints.
    pub deaf: (u64, u64),
    /// How long it stays away after it has left.
    pub away: u64,
}

impl Node {
    pub fn new(rate: f64, offset: u64) -> Self {
        Node {
            clock: NodeClock::new(rate, SECOND + offset),
            life: 0,
            member: None,
            workers: [None; ENDPOINTS],
            turns: [0; ENDPOINTS],
            wake_at: 0,
            wakes: 0,
            held_until: 0,
            deaf: (0, 0),
            away: SECOND,
        }
    }

    pub fn process(&self, node: usize) -> Process {
        Process { node: node as u8, life: self.life }
    }

    /// Whether this process is the one that lives.
    pub fn is(&self, process: Process) -> bool {
        self.member.is_some() && self.life == process.life
    }

    pub fn end_process(&mut self) {
        self.member = None;
        self.workers = [None; ENDPOINTS];
        for turn in &mut self.turns {
            *turn = turn.wrapping_add(1);
        }
    }

    pub fn cut(&mut self, requests_until: u64, answers_until: u64) {
        self.deaf = (self.deaf.0.max(requests_until), self.deaf.1.max(answers_until));
    }
}
