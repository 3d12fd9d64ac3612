//! A gateway as it should be: it knows what it carries, and comes back whenever it cannot know
//! what became of a question.

use super::mutation::Mutation;
use super::plan::{BEAT_MS, PATIENCE_MS, TTL_MS, happens, one_of};
use super::truth::Excuse;
use super::world::{Envelope, Sender, What, World};
use skep_policy::Chance;
use skep_policy::sessions::{
    Answer, Ask, Carried, Checkout, Close, GATEWAY_ID_MAX, GatewayId, NewsKind, Probe, Seat,
    Ticket, Want, WorkerNumber,
};
use std::collections::BTreeMap;

/// Between two times of saying what could not be placed.
const UNPLACED_MS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The table has not been asked yet, or nobody knows.
    Queued,
    Asking,
    Waiting,
    /// It has this program, which has not answered yet.
    Dialing(usize),
    Carrying(usize),
    /// It is over, and the table has yet to hear of it.
    Closing(Close),
}

pub(super) struct Session {
    pub want: Want,
    pub avoid: Option<WorkerNumber>,
    pub state: State,
    pub excuse: Option<Excuse>,
    /// The table may not have counted it in its worker's life.
    pub uncounted: bool,
    pub given_up: bool,
    pub ended_by_operator: bool,
    /// The table has been asked for it more than once.
    pub repeated: bool,
    pub asked: bool,
}

impl Session {
    pub fn program(&self) -> Option<usize> {
        match self.state {
            State::Dialing(program) | State::Carrying(program) => Some(program),
            _ => None,
        }
    }

    /// Whether a seat would be taken.
    pub fn is_wanted(&self) -> bool {
        matches!(self.state, State::Asking | State::Waiting) && !self.given_up
    }
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Session(Ticket),
    /// Joining and beating: the answer has news that are told once.
    News,
    Probe,
}

pub(super) struct Gateway {
    pub id: GatewayId,
    pub link: u64,
    pub alive: bool,
    pub joined: bool,
    pub sessions: BTreeMap<Ticket, Session>,
    pub tickets: Ticket,
    /// Questions without an answer yet.
    pub asked: BTreeMap<u64, About>,
    pub cut_until: u64,
    /// When something last went wrong between it and the table.
    pub disturbed: u64,
    /// Changes when the table cannot know what it gave to this gateway.
    pub era: u64,
    pub connection: u64,
}

impl Gateway {
    pub fn new(id: GatewayId, connection: u64) -> Self {
        Gateway {
            id,
            link: 0,
            alive: true,
            joined: false,
            sessions: BTreeMap::new(),
            tickets: 0,
            asked: BTreeMap::new(),
            cut_until: 0,
            disturbed: 0,
            era: 0,
            connection,
        }
    }
}

impl World {
    pub(super) fn start_gateway(&mut self, slot: usize) {
        let id = self.chance.up_to(GATEWAY_ID_MAX);
        let era = self.gateways[slot].era + 1;
        self.gateways[slot] = Gateway { era, ..Gateway::new(id, self.connection) };
        self.rejoin(slot);
        self.later(BEAT_MS, What::Beat { slot, gateway: id });
    }

    /// What was asked before is void; the table is told everything anew.
    pub(super) fn rejoin(&mut self, slot: usize) {
        let connection = self.connection;
        let told = self.chance.up_to(1) == 0;
        let gateway = &mut self.gateways[slot];
        if !gateway.alive {
            return;
        }
        gateway.connection = connection;
        gateway.link += 1;
        gateway.joined = false;
        gateway.asked.clear();
        let over = |session: &Session| {
            matches!(session.state, State::Closing(_))
                || (session.given_up && session.state == State::Asking)
        };
        gateway.sessions.retain(|_, session| !over(session));
        let (mut carried, mut waiting) = (Vec::new(), Vec::new());
        for (&ticket, session) in &mut gateway.sessions {
            match session.state {
                State::Dialing(program) | State::Carrying(program) => {
                    let worker = self.programs[program].worker;
                    carried.push(Carried {
                        ticket,
                        key: key(ticket).into(),
                        worker: format!("w{worker}").into(),
                        start: program.to_string().into(),
                    });
                }
                State::Waiting => waiting.push(ticket),
                State::Asking => {
                    session.state = State::Queued;
                    if told {
                        waiting.push(ticket);
                    }
                }
                State::Queued | State::Closing(_) => {}
            }
        }
        if self.mutation == Some(Mutation::CarriedUnsaid) {
            carried.clear();
        }
        let (gateway, link, node) = (gateway.id, gateway.link, format!("n{slot}"));
        let join = Ask::Join { gateway, link, node, ttl_ms: TTL_MS, carried, waiting };
        self.send(slot, About::News, join);
    }

    /// Sends a question, unless the connection turns out to be a new one: then nobody knows what
    /// became of the old one's.
    fn send(&mut self, slot: usize, about: About, ask: Ask) {
        let ignored = self.mutation == Some(Mutation::ReconnectIgnored);
        if self.gateways[slot].connection != self.connection && !ignored {
            return self.rejoin(slot);
        }
        self.requests += 1;
        let request = self.requests;
        let gateway = &mut self.gateways[slot];
        gateway.asked.insert(request, about);
        let (gateway, link) = (gateway.id, gateway.link);
        let from = Sender::Gateway { slot, gateway, link, request };
        self.later(PATIENCE_MS, What::Impatient { slot, gateway, request });
        self.post(Envelope { from, ask, connection: self.connection, late: false });
    }

    pub(super) fn arrive(&mut self, slot: usize, avoid: Option<WorkerNumber>) {
        let want = self.plan.want(&mut self.chance);
        let gateway = &mut self.gateways[slot];
        gateway.tickets += 1;
        let ticket = gateway.tickets;
        let session = Session {
            want,
            avoid,
            state: State::Queued,
            excuse: None,
            uncounted: false,
            given_up: false,
            ended_by_operator: false,
            repeated: false,
            asked: false,
        };
        gateway.sessions.insert(ticket, session);
        self.count("sessions");
        if self.gateways[slot].joined {
            self.ask_for(slot, ticket);
        }
    }

    fn ask_for(&mut self, slot: usize, ticket: Ticket) {
        let wait = self.holding || happens(900, &mut self.chance);
        let gateway = &mut self.gateways[slot];
        let (id, link) = (gateway.id, gateway.link);
        let Some(session) = gateway.sessions.get_mut(&ticket) else { return };
        let again = session.state == State::Waiting;
        (session.repeated, session.asked) = (session.asked, true);
        if !again {
            session.state = State::Asking;
        }
        let checkout = Checkout {
            gateway: id,
            link,
            ticket,
            kind: "k".to_owned(),
            want: session.want.clone(),
            key: key(ticket).into(),
            key_max: 0,
            avoid: session.avoid,
            // Whoever avoids a worker has a first choice already.
            wait: (wait && session.avoid.is_none()) || again,
        };
        self.send(slot, About::Session(ticket), Ask::Checkout(checkout));
    }

    /// The session is over, in this way.
    pub(super) fn close(&mut self, slot: usize, ticket: Ticket, how: Close) {
        let gateway = &mut self.gateways[slot];
        let Some(session) = gateway.sessions.get_mut(&ticket) else { return };
        if let (Some(program), true) = (session.program(), how != Close::Ended) {
            let program = &mut self.programs[program];
            program.counted -= 1;
            program.slack += u32::from(session.uncounted);
        }
        session.state = State::Closing(how);
        // It must not overtake a question about the same session.
        let asked = gateway.asked.values().any(|about| *about == About::Session(ticket));
        if gateway.joined && !asked {
            self.send_close(slot, ticket, how);
        }
    }

    fn send_close(&mut self, slot: usize, ticket: Ticket, how: Close) {
        let gateway = &self.gateways[slot];
        let (gateway, link) = (gateway.id, gateway.link);
        self.send(slot, About::Session(ticket), Ask::Close { gateway, link, ticket, how });
    }

    pub(super) fn beat(&mut self, slot: usize) {
        let gateway = &self.gateways[slot];
        if gateway.joined {
            let (gateway, link) = (gateway.id, gateway.link);
            self.send(slot, About::News, Ask::Beat { gateway, link });
        } else if gateway.asked.is_empty() {
            self.rejoin(slot);
        }
    }

    /// Nobody answered. Whether the question arrived, and when it will, nobody knows.
    pub(super) fn impatient(&mut self, slot: usize, request: u64) {
        if self.gateways[slot].asked.contains_key(&request) {
            self.gateways[slot].disturbed = self.now;
            self.rejoin(slot);
        }
    }

    /// The answer did not come, but the question will not arrive any more.
    pub(super) fn unanswered(&mut self, slot: usize, request: u64) {
        let Some(about) = self.gateways[slot].asked.remove(&request) else { return };
        self.gateways[slot].disturbed = self.now;
        let coin = self.chance.up_to(1) == 0;
        let joined = self.gateways[slot].joined;
        let ticket = match about {
            About::Session(ticket) => ticket,
            About::Probe => return,
            About::News => return self.rejoin(slot),
        };
        let state = self.gateways[slot].sessions.get(&ticket).map(|session| session.state);
        if coin && joined {
            match state {
                Some(State::Asking) if self.mutation == Some(Mutation::NewTicketAfterLostReply) => {
                    self.gateways[slot].sessions.remove(&ticket);
                    return self.arrive(slot, None);
                }
                Some(State::Asking | State::Waiting) => return self.ask_for(slot, ticket),
                Some(State::Closing(how)) => return self.send_close(slot, ticket, how),
                _ => {}
            }
        }
        self.rejoin(slot);
    }

    pub(super) fn answered(&mut self, slot: usize, request: u64, era: u64, answer: Answer) {
        let Some(about) = self.gateways[slot].asked.remove(&request) else { return };
        let ticket = match about {
            About::Session(ticket) => ticket,
            About::News => 0,
            About::Probe => return,
        };
        let closing = match self.gateways[slot].sessions.get(&ticket).map(|one| one.state) {
            Some(State::Closing(how)) => Some(how),
            _ => None,
        };
        match answer {
            Answer::Joined { unplaced } => self.joined(slot, &unplaced),
            Answer::Beaten { .. }
                if self.mutation == Some(Mutation::LostNewsIgnored)
                    && happens(128, &mut self.chance) => {}
            Answer::Beaten { news, probes, .. } => {
                for one in news {
                    match one.what {
                        NewsKind::Seated(seat) => self.seated(slot, one.ticket, &seat, era),
                        NewsKind::End(_) => self.told_to_end(slot, one.ticket),
                    }
                }
                for probe in probes {
                    self.probe(slot, probe);
                }
            }
            Answer::Seated(_) | Answer::Waiting { .. } if closing.is_some() => {
                self.send_close(slot, ticket, closing.unwrap_or(Close::Ended));
            }
            Answer::Seated(seat) => self.seated(slot, ticket, &seat, era),
            Answer::Waiting { .. } => self.waits(slot, ticket),
            Answer::Refused(_) => {
                self.count("refused");
                self.gateways[slot].sessions.remove(&ticket);
            }
            Answer::Unknown => self.rejoin(slot),
            Answer::Done if closing.is_some() => {
                self.gateways[slot].sessions.remove(&ticket);
            }
            Answer::Done => {}
            other => self.fail(format!("gateway {slot} is answered {other:?}")),
        }
    }

    fn joined(&mut self, slot: usize, unplaced: &[Ticket]) {
        self.gateways[slot].joined = true;
        let sessions = self.gateways[slot].sessions.iter();
        let states: Vec<_> = sessions.map(|(&ticket, session)| (ticket, session.state)).collect();
        for (ticket, state) in states {
            match state {
                State::Queued | State::Waiting => self.ask_for(slot, ticket),
                State::Closing(how) => self.send_close(slot, ticket, how),
                State::Asking | State::Dialing(_) | State::Carrying(_) => {}
            }
        }
        let gateway = &self.gateways[slot];
        let carried = |ticket| {
            gateway.sessions.get(ticket).is_some_and(|session| session.program().is_some())
        };
        if unplaced.iter().any(carried) && self.mutation != Some(Mutation::UnplacedUnsaid) {
            let (id, link) = (gateway.id, gateway.link);
            self.later(UNPLACED_MS, What::SayAgain { slot, gateway: id, link });
        }
    }

    fn waits(&mut self, slot: usize, ticket: Ticket) {
        let Some(session) = self.gateways[slot].sessions.get_mut(&ticket) else { return };
        if session.state != State::Asking {
            return;
        }
        session.state = State::Waiting;
        self.count("waited");
        if self.gateways[slot].sessions[&ticket].given_up {
            self.close(slot, ticket, Close::Unused);
        }
    }

    fn seated(&mut self, slot: usize, ticket: Ticket, seat: &Seat, era: u64) {
        let program = Self::program_of(&seat.start);
        let stale = self.gateways[slot].era != era;
        let now = self.now;
        let gateway = &mut self.gateways[slot];
        let Some(session) = gateway.sessions.get_mut(&ticket) else { return };
        if !matches!(session.state, State::Asking | State::Waiting) {
            return;
        }
        session.state = State::Dialing(program);
        self.programs[program].counted += 1;
        if stale {
            (session.excuse, session.uncounted) = (Some(Excuse::Reaped), true);
            self.programs[program].slack += 1;
            gateway.disturbed = now;
        }
        let (given_up, id) = (session.given_up, gateway.id);
        if given_up {
            return self.close(slot, ticket, Close::Unused);
        }
        let after = 1 + self.chance.up_to(30);
        self.later(after, What::Dialed { slot, gateway: id, ticket, worker: seat.worker });
    }

    pub(super) fn dialed(&mut self, slot: usize, ticket: Ticket, worker: WorkerNumber) {
        let bad = self.faulty && happens(self.plan.bad_dials, &mut self.chance);
        let length = 1 + self.chance.up_to(self.plan.length);
        let gateway = &mut self.gateways[slot];
        let Some(session) = gateway.sessions.get_mut(&ticket) else { return };
        let State::Dialing(program) = session.state else { return };
        if bad || !self.programs[program].alive {
            self.count("dials_failed");
            self.close(slot, ticket, Close::Failed);
            return self.arrive(slot, Some(worker));
        }
        session.state = State::Carrying(program);
        let gateway = gateway.id;
        self.count("carried");
        self.later(length, What::Ends { slot, gateway, ticket });
    }

    pub(super) fn ends(&mut self, slot: usize, ticket: Ticket) {
        let gateway = &self.gateways[slot];
        let Some(session) = gateway.sessions.get(&ticket) else { return };
        match session.state {
            State::Carrying(program) if self.holding && self.programs[program].alive => {
                let gateway = gateway.id;
                self.later(1_000, What::Ends { slot, gateway, ticket });
            }
            State::Carrying(_) => self.close(slot, ticket, Close::Ended),
            _ => {}
        }
    }

    fn told_to_end(&mut self, slot: usize, ticket: Ticket) {
        self.count("told_to_end");
        let Some(session) = self.gateways[slot].sessions.get_mut(&ticket) else { return };
        match session.state {
            State::Carrying(_) => self.close(slot, ticket, Close::Ended),
            State::Dialing(_) | State::Waiting => self.close(slot, ticket, Close::Unused),
            State::Asking => session.given_up = true,
            State::Queued | State::Closing(_) => {}
        }
    }

    /// The client has left.
    pub(super) fn give_up(&mut self, slot: usize, ticket: Ticket) {
        let Some(session) = self.gateways[slot].sessions.get_mut(&ticket) else { return };
        match session.state {
            State::Queued => drop(self.gateways[slot].sessions.remove(&ticket)),
            State::Asking => session.given_up = true,
            State::Waiting | State::Dialing(_) => self.close(slot, ticket, Close::Unused),
            State::Carrying(_) => self.close(slot, ticket, Close::Ended),
            State::Closing(_) => {}
        }
    }

    fn probe(&mut self, slot: usize, probe: Probe) {
        self.count("probes");
        let gateway = self.gateways[slot].id;
        let link = self.gateways[slot].link;
        let after = one_of(&[1, 20, 300], &mut self.chance);
        self.later(after, What::Probed { slot, gateway, link, probe });
    }

    pub(super) fn probed(&mut self, slot: usize, probe: &Probe) {
        let bad = self.faulty && happens(self.plan.bad_dials, &mut self.chance);
        let alive = self.programs.get(Self::program_of(&probe.url)).is_some_and(|one| one.alive);
        let good = alive && !bad;
        let Probe { worker, incarnation, .. } = *probe;
        self.send(slot, About::Probe, Ask::Probed { worker, incarnation, good });
    }
}

/// A few keys share the line.
fn key(ticket: Ticket) -> &'static str {
    ["a", "b", "c"][(ticket % 3) as usize]
}
