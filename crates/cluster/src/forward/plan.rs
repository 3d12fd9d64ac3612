//! What follows when another node did not answer.
//!
//! | | surely not sent, 503 | answer lost, 502, 504 | deadline | too many on their way |
//! |---|---|---|---|---|
//! | read | next node, then here | next node, then here | here | here |
//! | push, stamped | next node, then here | next node, then here | here | here |
//! | ack, transaction | next node, then here | the same again, then here | here | here |
//! | pop | next node, then here | the same again, then empty | empty | here |
//!
//! Every node can serve everything, because the store is shared; the question is only what may be
//! done twice. Reading may. A push whose messages have transaction ids may, because the second is
//! recognised. An ack or a transaction may, because it is fenced by its lease; but the node that
//! did it remembers the answer, and that one is better than a refusal. A pop may not: what the
//! first one took is in the answer that was lost, and only the same node can give it again. Whoever
//! gets nothing instead asks again, and so finds it at the latest when the lease ends.

use std::fmt;
use std::time::Duration;

/// How long the node that lost an answer to a pop is asked for it again.
pub const POP_PATIENCE: Duration = Duration::from_secs(1);
/// The same for an ack or a transaction, which can be done here instead.
pub const SETTLE_PATIENCE: Duration = Duration::from_millis(300);
/// The pause before the second time; doubled each time after it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a request does, as far as repeating it is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Read,
    /// Pushes messages that all have transaction ids.
    Push,
    /// Takes messages.
    Pop,
    /// Acknowledges or extends leases, or is a transaction that does.
    Settle,
}

/// Why there is no answer, or none of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Surely nothing of the request has left this node.
    NotSent,
    /// What came of it is not known.
    AnswerLost,
    /// As many as may be are on their way to that node.
    Busy,
    /// It answered 502, 503 or 504.
    Status(u16),
    /// The time is up.
    Deadline,
}

impl Trouble {
    /// An answer of this status is none of use.
    pub const fn of_status(status: u16) -> Option<Trouble> {
        match status {
            502..=504 => Some(Trouble::Status(status)),
            _ => None,
        }
    }

    /// Whether the node may have done the work. A node that answers 503 says that it has not.
    const fn leaves_open(self) -> bool {
        match self {
            Trouble::NotSent | Trouble::Busy => false,
            Trouble::Status(status) => status != 503,
            Trouble::AnswerLost | Trouble::Deadline => true,
        }
    }
}

/// As in the header `X-Fallback`.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NotSent => f.write_str("unreachable"),
            Trouble::AnswerLost => f.write_str("answer-lost"),
            Trouble::Busy => f.write_str("busy"),
            Trouble::Status(status) => write!(f, "status-{status}"),
            Trouble::Deadline => f.write_str("deadline"),
        }
    }
}

/// What has happened to a request so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    /// Nodes that were asked, the one in trouble included.
    pub nodes: u32,
    /// How often the same node was asked again.
    pub again: u32,
    /// How long ago a node was first left that may have done the work.
    pub open_since: Option<Duration>,
}

/// Nodes that are asked at most before this one serves the request itself.
pub const NODES_MAX: u32 = 2;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next best node, or this one if there is no other.
    NextNode,
    /// The same node, with the same id, after this pause.
    Again(Duration),
    /// This node serves it.
    Here,
    /// It is answered as a pop that found nothing.
    Empty,
}

/// What follows this trouble.
pub fn next(work: Work, trouble: Trouble, so_far: SoFar) -> Next {
    // Once a node may have done it, a later try that surely did not does not change that.
    let open = so_far.open_since.is_some() || trouble.leaves_open();
    let elsewhere = if so_far.nodes < NODES_MAX { Next::NextNode } else { Next::Here };
    let (patience, then) = match work {
        Work::Pop => (POP_PATIENCE, Next::Empty),
        Work::Settle => (SETTLE_PATIENCE, Next::Here),
        Work::Read | Work::Push => (Duration::ZERO, elsewhere),
    };
    match trouble {
        Trouble::Busy if !open => return Next::Here,
        _ if !open => return elsewhere,
        Trouble::Deadline if work == Work::Pop => return Next::Empty,
        Trouble::Deadline => return Next::Here,
        _ => {}
    }
    let pause = FIRST_PAUSE.saturating_mul(1 << so_far.again.min(8)).min(PAUSE_MAX);
    let waited = so_far.open_since.unwrap_or_default();
    if waited + pause <= patience { Next::Again(pause) } else { then }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Next::{Empty, Here, NextNode};
    use Trouble::{AnswerLost, Busy, Deadline, NotSent, Status};
    use Work::{Pop, Push, Read, Settle};

    const AGAIN: Next = Next::Again(FIRST_PAUSE);

    fn after(nodes: u32) -> SoFar {
        SoFar { nodes, ..SoFar::default() }
    }

    #[test]
    fn every_work_and_every_trouble_at_the_first_node_and_at_the_second() {
        let table = [
            // work, trouble, after the first node, after the second
            (Read, NotSent, NextNode, Here),
            (Read, AnswerLost, NextNode, Here),
            (Read, Busy, Here, Here),
            (Read, Status(502), NextNode, Here),
            (Read, Status(503), NextNode, Here),
            (Read, Status(504), NextNode, Here),
            (Read, Deadline, Here, Here),
            (Push, NotSent, NextNode, Here),
            (Push, AnswerLost, NextNode, Here),
            (Push, Busy, Here, Here),
            (Push, Status(502), NextNode, Here),
            (Push, Status(503), NextNode, Here),
            (Push, Status(504), NextNode, Here),
            (Push, Deadline, Here, Here),
            (Settle, NotSent, NextNode, Here),
            (Settle, AnswerLost, AGAIN, AGAIN),
            (Settle, Busy, Here, Here),
            (Settle, Status(502), AGAIN, AGAIN),
            (Settle, Status(503), NextNode, Here),
            (Settle, Status(504), AGAIN, AGAIN),
            (Settle, Deadline, Here, Here),
            (Pop, NotSent, NextNode, Here),
            (Pop, AnswerLost, AGAIN, AGAIN),
            (Pop, Busy, Here, Here),
            (Pop, Status(502), AGAIN, AGAIN),
            (Pop, Status(503), NextNode, Here),
            (Pop, Status(504), AGAIN, AGAIN),
            (Pop, Deadline, Empty, Empty),
        ];
        for (work, trouble, first, second) in table {
            assert_eq!(next(work, trouble, after(1)), first, "{work:?} {trouble:?} first");
            assert_eq!(next(work, trouble, after(2)), second, "{work:?} {trouble:?} second");
        }
    }

    #[test]
    fn a_pop_that_may_have_been_done_never_leaves_its_node() {
        let troubles = [NotSent, AnswerLost, Busy, Status(502), Status(503), Status(504), Deadline];
        for trouble in troubles {
            for (nodes, again, waited_ms) in [(1, 0, 0), (1, 3, 400), (2, 1, 20), (2, 9, 5_000)] {
                let open_since = Some(Duration::from_millis(waited_ms));
                let what = next(Pop, trouble, SoFar { nodes, again, open_since });
                assert!(matches!(what, Next::Again(_) | Empty), "{trouble:?}: {what:?}");
            }
        }
    }

    #[test]
    fn asking_again_ends_in_about_a_second_for_a_pop_and_sooner_for_an_ack() {
        for (work, patience, then) in [(Pop, POP_PATIENCE, Empty), (Settle, SETTLE_PATIENCE, Here)]
        {
            let mut so_far = SoFar { nodes: 1, again: 0, open_since: None };
            let mut waited = Duration::ZERO;
            let mut troubles = [AnswerLost, NotSent, Busy, Status(503)].into_iter().cycle();
            let last = loop {
                let trouble = troubles.next().expect("they never end");
                let Next::Again(pause) = next(work, trouble, so_far) else {
                    break next(work, trouble, so_far);
                };
                assert!(pause <= PAUSE_MAX);
                waited += pause;
                so_far = SoFar { nodes: 1, again: so_far.again + 1, open_since: Some(waited) };
                assert!(so_far.again < 100, "it never ends");
            };
            assert_eq!(last, then);
            assert!(waited <= patience && so_far.again >= 3, "{work:?}: {so_far:?}");
        }
    }
}
