//! Gateways come, live and go, and say what they carry.

use super::Fleet;
use super::records::{Id, Session, State, Step};
use crate::sessions::{
    Answer, CLOSINGS_PER_STEP, Carried, Close, Ending, GatewayId, Hint, News, NewsKind,
    TIMERS_PER_BEAT, Ticket,
};
use std::collections::BTreeSet;

/// A gateway.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    pub node: String,
    pub link: u64,
    pub ttl: u64,
    pub heard: u64,
    /// Since when it has been heard without a gap. Who was away cannot tell whether others were.
    pub steady: u64,
    /// Sessions about which it must know something.
    pub news: BTreeSet<Ticket>,
}

impl Fleet {
    /// Whether this is the present link of a gateway that is in.
    pub(super) fn known(&self, gateway: GatewayId, link: u64) -> Result<(), Answer> {
        match self.gateways.get(&gateway) {
            None => Err(Answer::Unknown),
            Some(found) if found.link > link => Err(Answer::Replaced),
            Some(found) if found.link < link => Err(Answer::Unknown),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn join(
        &mut self,
        now: u64,
        id: GatewayId,
        link: u64,
        (node, ttl): (&str, u64),
        carried: &[Carried],
        waiting: &[Ticket],
    ) -> Answer {
        if self.gateways.get(&id).is_some_and(|found| found.link > link) {
            return Answer::Replaced;
        }
        let news = BTreeSet::new();
        let (heard, steady) = (now, now);
        let gateway = Gateway { node: node.to_owned(), link, ttl, heard, steady, news };
        self.gateways.insert(id, gateway);
        let said: BTreeSet<Ticket> =
            carried.iter().map(|one| one.ticket).chain(waiting.iter().copied()).collect();
        for ticket in self.tickets(id) {
            if !said.contains(&ticket) {
                self.close(now, (id, ticket), Close::Ended);
            }
        }
        for &ticket in waiting {
            let is_news = |session: &Session| {
                session.ending.is_some() || matches!(session.state, State::Seated { .. })
            };
            if self.sessions.get(&(id, ticket)).is_some_and(is_news) {
                self.tell(id, ticket);
            }
        }
        let mut unplaced = Vec::new();
        for one in carried {
            if !self.carry(now, id, one) {
                unplaced.push(one.ticket);
            }
        }
        Answer::Joined { unplaced }
    }

    /// A gateway carries this session; whether its worker is known.
    fn carry(&mut self, now: u64, gateway: GatewayId, one: &Carried) -> bool {
        let id = (gateway, one.ticket);
        if let Some(session) = self.sessions.get(&id) {
            if self.agrees(session, one) {
                if session.ending.is_some() {
                    self.tell(gateway, one.ticket);
                }
                return true;
            }
            self.close(now, id, Close::Ended);
        }
        let Some(&number) = self.worker_names.get(&one.worker) else { return false };
        let Some(kind) = self.worker(number).map(|worker| worker.kind) else { return false };
        let drain_max = self.kinds[kind].rules.drain_max_ms;
        let Some(worker) = self.worker_mut(number) else { return false };
        if worker.start != one.start {
            return false;
        }
        worker.active += 1;
        if let Some(permit) = &mut worker.permit
            && matches!(permit.step, Step::Restarting { .. })
        {
            // It was sent away because its gateway was thought dead; perhaps it has not gone yet.
            permit.step = Step::Draining { until: Some(now + drain_max) };
        }
        let (kind, incarnation) = (worker.kind, worker.incarnation);
        let state = State::Seated { worker: number, incarnation, due: false };
        let key = one.key.clone();
        self.count_key(&key);
        self.sessions.insert(id, Session { kind, key, state, since: now, ending: None });
        self.wear(now, number);
        self.touched.push(kind);
        true
    }

    /// Whether the table has the session on the program that its gateway says. It may not: the
    /// table may have been brought back from an old copy.
    fn agrees(&self, session: &Session, one: &Carried) -> bool {
        let State::Seated { worker: number, incarnation, .. } = session.state else {
            return false;
        };
        self.worker(number).is_some_and(|worker| {
            worker.name == one.worker
                && (worker.incarnation == incarnation) == (worker.start == one.start)
        })
    }

    pub(super) fn beat(&mut self, now: u64, id: GatewayId, link: u64) -> Answer {
        if let Err(answer) = self.known(id, link) {
            return answer;
        }
        let Some(gateway) = self.gateways.get_mut(&id) else { return Answer::Unknown };
        if now.saturating_sub(gateway.heard) > gateway.ttl / 2 {
            gateway.steady = now;
        }
        gateway.heard = now;
        let steady_for = now.saturating_sub(gateway.steady);
        let silent = |found: &Gateway| {
            now.saturating_sub(found.heard) > found.ttl && steady_for >= found.ttl
        };
        let dead: Vec<GatewayId> =
            self.gateways.iter().filter(|(_, found)| silent(found)).map(|(&id, _)| id).collect();
        let gone = dead.iter().filter(|&&id| self.drop_gateway(now, id)).count();
        let due: Vec<_> = self
            .timers
            .iter()
            .take_while(|(time, _)| *time <= now)
            .take(TIMERS_PER_BEAT)
            .map(|&(_, number)| number)
            .collect();
        let probes = due.into_iter().filter_map(|number| self.look_after(now, number)).collect();
        self.finish(now);
        let news = self.take_news(id);
        let reaped = u32::try_from(gone).unwrap_or(u32::MAX);
        Answer::Beaten { news, probes, reaped }
    }

    pub(super) fn leave(&mut self, now: u64, id: GatewayId, link: u64) -> Answer {
        if let Err(answer) = self.known(id, link) {
            return answer;
        }
        self.drop_gateway(now, id);
        Answer::Done
    }

    /// Closes what a gateway carried, a step's worth at most; whether that was all. One that had
    /// more stays, silent since ever and under a link that nobody uses, for others to reap.
    fn drop_gateway(&mut self, now: u64, id: GatewayId) -> bool {
        let tickets = self.tickets(id);
        for &ticket in tickets.iter().take(CLOSINGS_PER_STEP) {
            self.close(now, (id, ticket), Close::Ended);
        }
        if tickets.len() <= CLOSINGS_PER_STEP {
            self.gateways.remove(&id);
            return true;
        }
        if let Some(gateway) = self.gateways.get_mut(&id) {
            gateway.heard = 0;
            gateway.link += 1;
        }
        false
    }

    fn tickets(&self, gateway: GatewayId) -> Vec<Ticket> {
        let all = (gateway, 0)..=(gateway, u64::MAX);
        self.sessions.range(all).map(|(&(_, ticket), _)| ticket).collect()
    }

    fn take_news(&mut self, id: GatewayId) -> Vec<News> {
        let Some(gateway) = self.gateways.get_mut(&id) else { return Vec::new() };
        let tickets = std::mem::take(&mut gateway.news);
        let kind_of = |ticket: Ticket| {
            let session = self.sessions.get(&(id, ticket))?;
            match (session.ending, &session.state) {
                (Some(ending), _) => Some(NewsKind::End(ending)),
                (None, &State::Seated { worker, incarnation, due }) => {
                    match self.runs(worker, incarnation) {
                        true => Some(NewsKind::Seated(self.seat_of(worker, due))),
                        false => Some(NewsKind::End(Ending::WorkerRestarted)),
                    }
                }
                (None, State::Waiting { .. }) => None,
            }
        };
        let news = |ticket| Some(News { ticket, what: kind_of(ticket)? });
        tickets.into_iter().filter_map(news).collect()
    }

    pub(super) fn tell(&mut self, gateway: GatewayId, ticket: Ticket) {
        if let Some(found) = self.gateways.get_mut(&gateway) {
            found.news.insert(ticket);
        }
        self.hints.push(Hint::Gateway(gateway));
    }

    /// A session has ended, or was given up.
    pub(super) fn close(&mut self, now: u64, id: Id, how: Close) -> Answer {
        let Some(session) = self.sessions.remove(&id) else { return Answer::Done };
        self.uncount_key(&session.key);
        if let Some(gateway) = self.gateways.get_mut(&id.0) {
            gateway.news.remove(&id.1);
        }
        self.touched.push(session.kind);
        let State::Seated { worker: number, incarnation, .. } = session.state else {
            self.leave_line(id, &session);
            return Answer::Done;
        };
        let Some(worker) = self.worker_mut(number) else { return Answer::Done };
        // It may have become one of another kind since.
        let kind = worker.kind;
        if worker.incarnation == incarnation {
            worker.active -= 1;
            if how != Close::Ended {
                worker.lifetime = worker.lifetime.saturating_sub(1);
            }
            if how == Close::Failed {
                self.suspect(now, number);
            }
        } else {
            worker.leaving -= 1;
        }
        self.touched.push(kind);
        self.wear(now, number);
        self.forget_if_done(number);
        Answer::Done
    }

    /// An operator ends a session.
    pub(super) fn end(&mut self, id: Id) -> Answer {
        let Some(session) = self.sessions.get_mut(&id) else { return Answer::Unknown };
        session.ending.get_or_insert(Ending::Operator);
        self.tell(id.0, id.1);
        Answer::Done
    }
}
