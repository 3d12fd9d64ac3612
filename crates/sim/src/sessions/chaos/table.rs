//! The network to the table, and each step of it checked.

use super::mutation::Mutation;
use super::plan::{TTL_MS, happens};
use super::truth::{Excuse, Granted};
use super::world::{Envelope, Sender, What, World};
use skep_policy::Chance;
use skep_policy::sessions::{
    Answer, Ask, Candidate, Close, GatewayId, Hint, KindRow, NewsKind, Phase, Seat, Ticket,
    WorkerNumber,
};

impl World {
    /// Sends a question; the network decides what becomes of it.
    pub(super) fn post(&mut self, letter: Envelope) {
        let delay = 1 + self.chance.up_to(25);
        let bad = self.faulty && happens(self.plan.bad_messages, &mut self.chance);
        let cut = match letter.from {
            Sender::Gateway { slot, .. } => self.gateways[slot].cut_until > self.now,
            Sender::Worker { .. } | Sender::Operator => false,
        };
        if cut {
            return;
        }
        let Sender::Gateway { slot, gateway, link, request } = letter.from else {
            // A supervisor asks again by itself.
            return match (bad, self.chance.up_to(1)) {
                (false, _) => self.later(delay, What::Arrive(letter.into())),
                (true, 0) => {}
                (true, _) => self.later(delay, What::ArriveUnheard(letter.into())),
            };
        };
        if !bad {
            return self.later(delay, What::Arrive(letter.into()));
        }
        self.gateways[slot].disturbed = self.now;
        match self.chance.up_to(3) {
            0 => {}
            1 => {
                let late = 3_000 + self.chance.up_to(20_000);
                self.later(late, What::Arrive(Envelope { late: true, ..letter }.into()));
            }
            2 => {
                self.later(delay, What::ArriveUnheard(letter.into()));
                self.later(delay + 30, What::Unanswered { slot, gateway, link, request });
            }
            _ => {
                // Twice, and once more long after.
                self.later(delay, What::Arrive(letter.clone().into()));
                self.later(delay, What::ArriveUnheard(letter.clone().into()));
                let late = 3_000 + self.chance.up_to(20_000);
                self.later(late, What::Arrive(Envelope { late: true, ..letter }.into()));
            }
        }
    }

    pub(super) fn arrives(&mut self, mut letter: Envelope, heard: bool) {
        if letter.connection != self.connection {
            return;
        }
        if let Sender::Gateway { slot, gateway, link, .. } = letter.from
            && letter.late
        {
            // Only who gave up on a question has one that comes late.
            if self.is_link(slot, gateway, link) {
                return;
            }
            if self.mutation == Some(Mutation::LinksIgnored) && self.is(slot, gateway) {
                relink(&mut letter.ask, self.gateways[slot].link);
            }
            self.count("late");
        }
        let Some(answer) = self.take(&letter) else { return };
        let delay = 1 + self.chance.up_to(25);
        match letter.from {
            _ if !heard || letter.late => {}
            Sender::Gateway { slot, gateway, link, request } => {
                let era = self.gateways[slot].era;
                if self.is_link(slot, gateway, link) {
                    self.grant(slot, gateway, link, era, &letter.ask, &answer);
                }
                self.later(delay, What::Answer { slot, gateway, link, request, era, answer });
            }
            Sender::Worker { worker, turn } => {
                let (table, at) = (self.tables, self.now);
                self.later(delay, What::Tell { worker, turn, table, at, answer });
            }
            Sender::Operator => {}
        }
    }

    /// Notes the seats that are on their way.
    fn grant(
        &mut self,
        slot: usize,
        gateway: GatewayId,
        link: u64,
        era: u64,
        ask: &Ask,
        answer: &Answer,
    ) {
        for (ticket, seat) in seats(ask, answer) {
            let program = Self::program_of(&seat.start);
            self.grants += 1;
            let granted = Granted { slot, gateway, link, ticket, program, era };
            self.granted.insert(self.grants, granted);
        }
    }

    /// The table takes one step, and everything that must hold is checked.
    fn take(&mut self, letter: &Envelope) -> Option<Answer> {
        let mut ask = letter.ask.clone();
        match (self.mutation, &mut ask) {
            (Some(Mutation::UndoDropped), Ask::Close { how, .. }) if *how == Close::Unused => {
                return Some(Answer::Done);
            }
            (Some(Mutation::DeathUntold), Ask::Heartbeat(heartbeat)) => {
                heartbeat.phase = Phase::Serving;
            }
            _ => {}
        }
        if let Sender::Worker { worker, .. } = letter.from {
            self.excuse_absence(worker);
        }
        let mut reply = self.table.fleet.apply(self.now, &ask);
        if reply.answer == Answer::Unconfigured {
            let (kind, rules) = ("k".to_owned(), self.plan.rules.clone());
            self.table.fleet.apply(self.now, &Ask::Configure { kind, rules });
            reply = self.table.fleet.apply(self.now, &ask);
        }
        self.note(&ask, &reply);
        if let Err(wrong) = self.table.fleet.check() {
            self.fail(format!("after {ask:?}: {wrong}"));
        }
        self.learn(letter, &reply.answer);
        self.nobody_waits_in_vain();
        for hint in reply.hints {
            self.hint(hint);
        }
        Some(reply.answer)
    }

    fn hint(&mut self, hint: Hint) {
        let lost = self.faulty && happens(self.plan.bad_messages, &mut self.chance);
        if lost {
            return;
        }
        let delay = 1 + self.chance.up_to(25);
        match hint {
            Hint::Gateway(id) => {
                let found = self.gateways.iter().position(|one| one.alive && one.id == id);
                if let Some(slot) = found {
                    self.later(delay, What::HintGateway { slot, gateway: id });
                }
            }
            Hint::Worker(number) => {
                if let Some(worker) = self.worker_of(number) {
                    self.later(delay, What::Hinted { worker });
                }
            }
        }
    }

    fn worker_of(&mut self, number: WorkerNumber) -> Option<usize> {
        let look = Ask::Workers { from: number, limit: 1 };
        match self.table.fleet.apply(self.now, &look).answer {
            Answer::Workers { workers } => workers.first()?.name.strip_prefix('w')?.parse().ok(),
            _ => None,
        }
    }

    /// What the simulator learns from a step about what the table knows.
    fn learn(&mut self, letter: &Envelope, answer: &Answer) {
        match (&letter.ask, answer) {
            (Ask::Join { gateway, carried, waiting, .. }, Answer::Joined { unplaced }) => {
                self.table.heard.insert(*gateway, self.now);
                let Sender::Gateway { slot, .. } = letter.from else { return };
                if !self.is(slot, *gateway) {
                    return;
                }
                let said = |ticket| {
                    waiting.contains(ticket) || carried.iter().any(|one| one.ticket == *ticket)
                };
                for (ticket, session) in &mut self.gateways[slot].sessions {
                    // What was not said is over; asked for again, it is another.
                    session.ended_by_operator &= said(ticket);
                }
                for one in carried {
                    let session = self.gateways[slot].sessions.get_mut(&one.ticket);
                    let Some(session) = session.filter(|one| one.program().is_some()) else {
                        continue;
                    };
                    if !unplaced.contains(&one.ticket) {
                        if let (Some(_), Some(program)) = (session.excuse, session.program()) {
                            self.programs[program].replaced = true;
                        }
                        session.excuse = None;
                    } else if session.excuse.is_none() {
                        let ticket = one.ticket;
                        self.fail(format!("ticket {ticket} of gateway {slot} was forgotten"));
                        return;
                    }
                }
            }
            (Ask::Beat { gateway, .. }, Answer::Beaten { reaped, .. }) => {
                self.table.heard.insert(*gateway, self.now);
                if *reaped > 0 {
                    self.reaped(*reaped);
                }
            }
            (Ask::Leave { gateway, .. }, Answer::Done) => drop(self.table.heard.remove(gateway)),
            (Ask::Register(register), Answer::Registered { .. }) => {
                let start = Self::program_of(&register.start);
                if let Sender::Worker { worker, .. } = letter.from {
                    self.workers[worker].away.heard = self.now;
                    // Seats on a predecessor that still runs may have yet to be told.
                    let old = self.workers[worker].old.map(|(old, _)| old);
                    for (number, program) in self.programs.iter_mut().enumerate() {
                        if program.worker == worker {
                            program.known_gone = number != start && Some(number) != old;
                        }
                    }
                }
            }
            (Ask::Heartbeat(heartbeat), Answer::Ordered { .. }) => {
                if let Sender::Worker { worker, .. } = letter.from {
                    self.workers[worker].away.heard = self.now;
                    if let Some(program) = self.workers[worker].program {
                        let gone = heartbeat.phase != Phase::Serving;
                        self.programs[program].known_gone = gone;
                    }
                }
            }
            (Ask::Remove { name, .. }, Answer::Done) => {
                let number = name.strip_prefix('w');
                let worker = number.and_then(|number| number.parse::<usize>().ok());
                if let Some(worker) = worker {
                    let away = &mut self.workers[worker].away;
                    (away.excused, away.revoked) = (true, self.now);
                    for program in self.programs.iter_mut().filter(|one| one.worker == worker) {
                        program.known_gone = true;
                    }
                }
            }
            (Ask::End { gateway, ticket }, Answer::Done) => {
                let found = self.gateways.iter_mut().find(|one| one.alive && one.id == *gateway);
                if let Some(session) = found.and_then(|one| one.sessions.get_mut(ticket)) {
                    session.ended_by_operator = true;
                }
            }
            _ => {}
        }
        if let Sender::Gateway { slot, gateway, link, .. } = letter.from
            && self.is_link(slot, gateway, link)
        {
            for (ticket, seat) in seats(&letter.ask, answer) {
                let news = matches!(answer, Answer::Beaten { .. });
                self.may_seat(slot, ticket, &seat, news);
            }
        }
    }

    /// The table gave gateways up; what they carry it does not know any more.
    fn reaped(&mut self, reaped: u32) {
        let silent = |&heard: &u64| self.now.saturating_sub(heard) > TTL_MS;
        let gone: Vec<_> =
            self.table.heard.iter().filter(|(_, heard)| silent(heard)).map(|(&id, _)| id).collect();
        if gone.len() != reaped as usize {
            self.fail(format!("{reaped} gateways were given up; {} were silent", gone.len()));
        }
        for id in gone {
            self.count("reaped");
            self.table.heard.remove(&id);
            let found = self.gateways.iter_mut().find(|one| one.id == id && one.alive);
            if let Some(gateway) = found {
                gateway.era += 1;
                for session in gateway.sessions.values_mut() {
                    session.ended_by_operator = false;
                    if session.program().is_some() {
                        session.excuse = Some(Excuse::Reaped);
                        *self.counts.entry("reaped_while_carried").or_insert(0) += 1;
                    }
                }
            }
        }
    }

    /// No session is in the line while a slot is free that it could have.
    fn nobody_waits_in_vain(&mut self) {
        let Answer::Kinds { kinds } = self.table.fleet.apply(self.now, &Ask::Kinds).answer else {
            return;
        };
        let waits = |kind: &&KindRow| kind.waiting > 0 && kind.free > 0;
        let Some(kind) = kinds.iter().find(waits) else { return };
        let look = Ask::Workers { from: 1, limit: 1_000 };
        let Answer::Workers { workers } = self.table.fleet.apply(self.now, &look).answer else {
            return;
        };
        let fresh = |heard: u64| self.now.saturating_sub(heard) <= kind.rules.heartbeat_ms;
        let rows = workers.iter().filter(|row| fresh(row.heard_ms));
        let open: Vec<Candidate<'_>> =
            rows.map(Candidate::from).filter(|one| one.standing.is_open()).collect();
        let look = Ask::Sessions { after: None, limit: 1_000 };
        let Answer::Sessions { sessions } = self.table.fleet.apply(self.now, &look).answer else {
            return;
        };
        for row in sessions.iter().filter(|row| row.worker.is_none()) {
            let gateway = self.gateways.iter().find(|one| one.id == row.gateway);
            let session = gateway.and_then(|one| one.sessions.get(&row.ticket));
            let Some(session) = session else { continue };
            if let Some(free) = open.iter().find(|one| session.want.fits(one.shape)) {
                let wrong = format!("ticket {} waits while {} is free", row.ticket, free.name);
                return self.fail(wrong);
            }
        }
    }
}

fn seats(ask: &Ask, answer: &Answer) -> Vec<(Ticket, Seat)> {
    match (ask, answer) {
        (Ask::Checkout(checkout), Answer::Seated(seat)) => vec![(checkout.ticket, seat.clone())],
        (_, Answer::Beaten { news, .. }) => {
            let seats = news.iter().filter_map(|one| match &one.what {
                NewsKind::Seated(seat) => Some((one.ticket, seat.clone())),
                NewsKind::End(_) => None,
            });
            seats.collect()
        }
        _ => Vec::new(),
    }
}

/// Whether an answer has a seat of this session.
pub(super) fn answer_has(answer: &Answer, ticket: Ticket) -> bool {
    match answer {
        Answer::Seated(_) => true,
        Answer::Beaten { news, .. } => news.iter().any(|one| one.ticket == ticket),
        _ => false,
    }
}

fn relink(ask: &mut Ask, newest: u64) {
    match ask {
        Ask::Checkout(checkout) => checkout.link = newest,
        Ask::Join { link, .. }
        | Ask::Beat { link, .. }
        | Ask::Leave { link, .. }
        | Ask::Close { link, .. } => *link = newest,
        _ => {}
    }
}
