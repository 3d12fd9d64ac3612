//! What is really so, and whether the table may do what it does.

use super::gateway::State;
use super::world::World;
use skep_policy::sessions::{GatewayId, Seat, Ticket};
use std::collections::BTreeSet;

/// One start of a worker's program.
pub(super) struct Program {
    pub worker: usize,
    pub alive: bool,
    pub slots: u32,
    /// Sessions that were handed to it and not undone.
    pub counted: u32,
    /// How many of those the table cannot know of, because it lost its memory.
    pub slack: u32,
    /// Sessions on it that the table did not know of were put on record again.
    pub replaced: bool,
    /// The table has been told that nothing can be begun on it any more.
    pub known_gone: bool,
}

/// Why the table cannot count a session that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// Its gateway was silent for too long and was given up.
    Reaped,
    /// The table forgot everything, then. Whoever is heard in time is heard before workers are
    /// given sessions, so this is an excuse only for a gateway that was disturbed since.
    Forgotten { at: u64 },
    /// The table was put back to an old copy.
    Restored,
}

/// A seat on its way to its gateway.
pub(super) struct Granted {
    pub slot: usize,
    pub gateway: GatewayId,
    pub link: u64,
    pub ticket: Ticket,
    pub program: usize,
    pub era: u64,
}

impl World {
    pub(super) fn fail(&mut self, what: String) {
        if self.broken.is_none() {
            self.broken = Some(what);
        }
    }

    /// Which program a seat or a carried session means.
    pub(super) fn program_of(start: &str) -> usize {
        start.parse().unwrap_or(usize::MAX)
    }

    fn excused(&self, slot: usize, excuse: Option<Excuse>) -> bool {
        match excuse {
            None => false,
            Some(Excuse::Forgotten { at }) => self.gateways[slot].disturbed + 2_000 >= at,
            Some(Excuse::Reaped | Excuse::Restored) => true,
        }
    }

    /// Sessions on a program that the table must know of, but for one.
    pub(super) fn carried_on(&self, program: usize, but: (usize, Ticket)) -> u32 {
        let mut count = 0;
        for (slot, gateway) in self.gateways.iter().enumerate() {
            for (&ticket, session) in &gateway.sessions {
                let on = match session.state {
                    State::Dialing(on) | State::Carrying(on) => on == program,
                    _ => false,
                };
                count +=
                    u32::from(on && (slot, ticket) != but && !self.excused(slot, session.excuse));
            }
        }
        let coming = self.granted.values().filter(|grant| {
            let gateway = &self.gateways[grant.slot];
            grant.program == program
                && (grant.slot, grant.ticket) != but
                && (grant.gateway, grant.link) == (gateway.id, gateway.link)
                && grant.era == gateway.era
                && gateway.alive
                && gateway.sessions.get(&grant.ticket).is_some_and(|session| session.is_wanted())
        });
        // The answer to a question and the news may say the same.
        let coming: BTreeSet<_> = coming.map(|grant| (grant.slot, grant.ticket)).collect();
        count + coming.len() as u32
    }

    /// The table gives this seat away, now.
    pub(super) fn may_seat(&mut self, slot: usize, ticket: Ticket, seat: &Seat, news: bool) {
        let number = Self::program_of(&seat.start);
        let Some(program) = self.programs.get(number) else {
            return self.fail(format!("a seat on {}, which never was", seat.start));
        };
        let limit = self.plan.rules.lifetime_max;
        let worker = program.worker;
        let known = self.gateways[slot].sessions.get(&ticket);
        // Who asks again is told again, and that it is over comes with the news.
        let repeated = known.is_some_and(|session| session.repeated);
        if program.known_gone && !repeated {
            let start = &seat.start;
            return self.fail(format!("ticket {ticket} on program {start}, known to be gone"));
        }
        if news && known.is_some_and(|session| session.ended_by_operator) {
            return self.fail(format!("ticket {ticket} has a seat after an operator ended it"));
        }
        if !known.is_some_and(|session| session.is_wanted()) {
            return;
        }
        let (slots, counted, slack) = (program.slots, program.counted, program.slack);
        let coming = self.granted.values().filter(|one| one.program == number).count() as u32;
        let on = self.carried_on(number, (slot, ticket));
        // What is told again was given away before, and who was put on record since did not count.
        let earlier = (news || repeated) && self.programs[number].replaced;
        if on + 1 > slots && !earlier {
            let wrong = format!("{} sessions on program {number} of w{worker}", on + 1);
            return self.fail(format!("{wrong}, which has {slots} slots"));
        }
        // Some of those on their way will be discarded, so only what has arrived is certain.
        if limit != 0 && counted + 1 > limit + slack {
            let wrong = format!("{} sessions in the life of program {number}", counted + 1);
            self.fail(format!("{wrong}; the limit is {limit}, {coming} more are on their way"));
        }
    }

    /// A program is stopped because the table said so.
    pub(super) fn may_stop(&mut self, program: usize, why: &str) {
        let on = self.carried_on(program, (usize::MAX, 0));
        if on > 0 {
            self.fail(format!("program {program} is told to {why} with {on} sessions on it"));
        }
    }

    /// The table is another one: whatever is carried, it has yet to be told.
    pub(super) fn excuse_all(&mut self, excuse: Excuse, known: impl Fn(usize) -> u32) {
        for gateway in &mut self.gateways {
            gateway.era += 1;
            for session in gateway.sessions.values_mut() {
                if session.program().is_some() {
                    (session.excuse, session.uncounted) = (Some(excuse), true);
                }
                session.ended_by_operator = false;
            }
        }
        for number in 0..self.programs.len() {
            let known = known(number);
            let program = &mut self.programs[number];
            program.slack = program.slack.max(program.counted.saturating_sub(known));
            program.known_gone = false;
        }
    }
}
