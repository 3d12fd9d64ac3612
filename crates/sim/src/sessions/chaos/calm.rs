//! After the storm: everything must come right by itself.

use super::faults;
use super::plan::TTL_MS;
use super::worker::Mode;
use super::world::{Envelope, Sender, World};
use skep_policy::sessions::{Answer, Ask, SessionRow, WorkerRow};
use std::collections::BTreeMap;

impl World {
    /// A storm, the calm, and the comparison with the truth.
    pub(super) fn live(&mut self) {
        while self.events < self.plan.storm {
            if !self.step() {
                return;
            }
        }
        self.calm_down();
        if self.pass(1_000) {
            self.undrain_all();
            let _ = self.pass(self.longest()) && self.stand_still() && self.end_all();
        }
    }

    /// Who was away for longest is back by then, suspects have been asked again, and whoever
    /// disappeared is forgotten.
    fn longest(&self) -> u64 {
        let rules = &self.plan.rules;
        2 * (rules.heartbeat_ms + rules.drain_max_ms + TTL_MS) + rules.restart_max_ms + 60_000
    }

    fn calm_down(&mut self) {
        faults::strike_last(self);
        self.faulty = false;
        self.tell(|| "calm".to_owned());
        for slot in 0..self.gateways.len() {
            self.gateways[slot].cut_until = 0;
        }
        for worker in 0..self.workers.len() {
            self.workers[worker].silent_until = 0;
            if self.workers[worker].mode == Mode::Gone {
                self.gone_for_a_while(worker);
            }
        }
    }

    /// Operators let everybody work again, after all they said before has arrived.
    fn undrain_all(&mut self) {
        for worker in 0..self.workers.len() {
            let ask = Ask::Drain { name: format!("w{worker}"), drained: false };
            let from = Sender::Operator;
            self.post(Envelope { from, ask, connection: self.connection, late: false });
        }
    }

    fn pass(&mut self, span: u64) -> bool {
        let until = self.now + span;
        while self.now < until {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Nobody comes and nobody ends; what the table has on record is what is carried.
    fn stand_still(&mut self) -> bool {
        (self.open, self.holding) = (false, true);
        if !self.pass(3_000) {
            return false;
        }
        let until = self.now + 30_000;
        loop {
            let wrong = match self.is_quiet() {
                true => self.compare(),
                false => Some("it does not become quiet".to_owned()),
            };
            let Some(wrong) = wrong else { return true };
            if self.now > until {
                self.fail(format!("after the calm, {wrong}"));
            }
            if !self.step() {
                return false;
            }
        }
    }

    /// Everything ends; then nothing is on record, nobody is out, and everybody serves.
    fn end_all(&mut self) -> bool {
        self.holding = false;
        // One after the other at worst, each with a restart before it.
        let waiting: usize = self.gateways.iter().map(|gateway| gateway.sessions.len()).sum();
        let turn = self.plan.length + self.plan.restart + 3_000;
        let until = self.now + self.longest() + waiting as u64 * turn;
        loop {
            if !self.step() {
                return false;
            }
            match self.at_rest() {
                Ok(()) => return true,
                Err(wrong) if self.now > until => {
                    self.fail(format!("long after everything ended, {wrong}"));
                    return false;
                }
                Err(_) => {}
            }
        }
    }

    fn rows(&mut self) -> (Vec<WorkerRow>, Vec<SessionRow>) {
        let workers = Ask::Workers { from: 1, limit: 1_000 };
        let sessions = Ask::Sessions { after: None, limit: 1_000 };
        let fleet = &mut self.table.fleet;
        match (fleet.apply(self.now, &workers).answer, fleet.apply(self.now, &sessions).answer) {
            (Answer::Workers { workers }, Answer::Sessions { sessions }) => (workers, sessions),
            other => unreachable!("{other:?}"),
        }
    }

    /// What is not as it is on record. News on their way make a difference for a while.
    fn compare(&mut self) -> Option<String> {
        let (workers, sessions) = self.rows();
        let mut on_record = BTreeMap::new();
        for row in sessions {
            let worker = row.worker.map(|(_, name)| name.to_string());
            on_record.insert((row.gateway, row.ticket), worker);
        }
        let mut carried_on: BTreeMap<usize, u32> = BTreeMap::new();
        let mut wrong = None;
        for gateway in self.gateways.iter().filter(|one| one.alive) {
            for (&ticket, session) in &gateway.sessions {
                let truth = session.program().map(|program| self.programs[program].worker);
                if let Some(program) = session.program() {
                    let current = self.workers[self.programs[program].worker].program;
                    if session.excuse.is_some() && current != Some(program) {
                        continue;
                    }
                    *carried_on.entry(program).or_default() += 1;
                }
                let truth = truth.map(|worker| format!("w{worker}"));
                let record = on_record.remove(&(gateway.id, ticket));
                if record.as_ref() != Some(&truth) {
                    wrong = Some(format!("ticket {ticket} is on {truth:?}, on record {record:?}"));
                }
                if session.ended_by_operator && session.program().is_some() {
                    wrong = Some(format!("ticket {ticket} was ended by an operator and goes on"));
                }
            }
        }
        if let Some(left) = on_record.first_key_value() {
            wrong = Some(format!("{left:?} is on record and nowhere else"));
        }
        for row in workers {
            let program = Self::program_of(&row.start);
            let truth = carried_on.get(&program).copied().unwrap_or(0);
            if row.active != truth {
                let name = &row.name;
                wrong = Some(format!("{name} has {} on record and carries {truth}", row.active));
            }
        }
        wrong
    }

    fn at_rest(&mut self) -> Result<(), String> {
        if let Some(slot) = self.gateways.iter().position(|one| !one.sessions.is_empty()) {
            let session = self.gateways[slot].sessions.values().next();
            let state = session.map(|one| one.state);
            return Err(format!("a session of gateway {slot} is {state:?}"));
        }
        let (workers, sessions) = self.rows();
        if let Some(left) = sessions.first() {
            return Err(format!("there is {left:?}"));
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let name = format!("w{number}");
            let Some(row) = workers.iter().find(|row| *row.name == *name) else {
                return Err(format!("{name} is not on record"));
            };
            if !row.standing.is_open() || row.permit || row.active + row.leaving > 0 {
                return Err(format!("{name} is {:?}: {row:?}", worker.mode));
            }
        }
        Ok(())
    }
}
