//! Who is asked for a worker.

use super::traffic::Micros;

/// What follows from a step, beside its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A session has its worker.
    Seated { ticket: u64, worker: usize },
    /// A worker restarts.
    Restart { worker: usize },
    /// A session was ended before its time.
    Cut { ticket: u64 },
}

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// It takes sessions, or would if it had a slot.
    Serves,
    /// It is worn out and waits for its turn to go.
    Held,
    /// It was sent to restart: it takes nothing until it is back.
    Out,
}

/// Gives sessions their workers.
pub(super) trait Desk {
    /// A session wants a worker; until it is seated it waits.
    fn open(&mut self, now: Micros, ticket: u64, effects: &mut Vec<Effect>);
    /// A session has ended.
    fn close(&mut self, now: Micros, ticket: u64, effects: &mut Vec<Effect>);
    /// A worker has restarted.
    fn back(&mut self, now: Micros, worker: usize, effects: &mut Vec<Effect>);
    /// Half a second has passed.
    fn tick(&mut self, now: Micros, effects: &mut Vec<Effect>);
    /// Where everybody stands.
    fn look(&mut self, now: Micros, stands: &mut Vec<Where>);
}
