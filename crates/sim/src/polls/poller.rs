//! The poller of a node: it follows the grid on the store's clock, asks for leave before each poll,
//! finishes what it began before it says that it has stopped, and announces its token first.

use super::agenda::{Mail, Process, What};
use super::node::{Doing, Worker};
use super::plan::{Fault, MS, between, nanos, once_in};
use super::world::World;
use skep_policy::Chance;
use skep_policy::ownership::{Event, Grant, Guard, Key, Refusal};

impl World {
    fn endpoint(&self, key: &Key) -> usize {
        self.plan.keys.iter().position(|one| one == key).unwrap_or_default()
    }

    pub(super) fn begin_work(&mut self, index: usize, grant: &Grant) {
        let endpoint = self.endpoint(&grant.key);
        let store_ms = self.store_ms(index);
        let announced = !self.guards.stands(Guard::AnnounceFirst);
        let announced = announced.then_some(grant.token);
        let node = &mut self.nodes[index];
        match &mut node.workers[endpoint] {
            Some(worker) if grant.resumed => {
                (worker.token, worker.announced) = (grant.token, announced);
                worker.stopping = false;
            }
            slot => {
                let last = self.plan.grids[endpoint].slot_at(grant.due) - 1;
                *slot = Some(Worker {
                    token: grant.token,
                    due: grant.due,
                    announced,
                    last: (grant.due != 0).then_some(last),
                    since_ms: store_ms,
                    stopping: false,
                    doing: Doing::Nothing,
                    unkept: 0,
                    fresh: true,
                });
                node.turns[endpoint] = node.turns[endpoint].wrapping_add(1);
                self.counts.moves += 1;
            }
        }
        if announced.is_some() {
            self.plan_next(index, endpoint);
        } else {
            let at = self.now + self.delay();
            let process = self.nodes[index].process(index);
            let post = What::Post(process, endpoint as u8, grant.token, Mail::Announce);
            self.agenda.add(at, post);
        }
    }

    fn store_ms(&self, index: usize) -> i64 {
        let member = self.nodes[index].member.as_ref();
        member.and_then(|member| member.store_ms(self.local(index))).unwrap_or(0)
    }

    /// The sink has heard of a token. One it refuses is announced again: perhaps it was too early.
    pub(super) fn heard(
        &mut self,
        process: Process,
        endpoint: usize,
        token: skep_policy::ownership::Token,
        taken: bool,
        last: Option<i64>,
    ) {
        let index = usize::from(process.node);
        let Some(worker) = &mut self.nodes[index].workers[endpoint] else { return };
        if worker.token != token {
            return;
        }
        if !taken {
            let at = self.now + 1_000 * MS;
            let post = What::Post(process, endpoint as u8, token, Mail::Announce);
            return self.agenda.add(at, post);
        }
        worker.announced = Some(token);
        if worker.fresh {
            worker.last = worker.last.max(last);
        }
        if worker.doing == Doing::Nothing {
            self.plan_next(index, endpoint);
        }
    }

    /// Waits for the next slot.
    fn plan_next(&mut self, index: usize, endpoint: usize) {
        let now_ms = self.store_ms(index);
        let grid = self.plan.grids[endpoint];
        let node = &mut self.nodes[index];
        let Some(worker) = &mut node.workers[endpoint] else { return };
        if worker.stopping || matches!(worker.doing, Doing::Polling(..)) {
            return;
        }
        let due = grid.next(now_ms, worker.last, worker.since_ms).chosen;
        worker.doing = Doing::Waiting(due);
        let wait_ms = u64::try_from(due.at_ms - now_ms).unwrap_or(0);
        let at = if wait_ms == 0 { self.now } else { self.after(index, (wait_ms + 1) * MS) };
        self.next_turn(index, endpoint, at, What::Due);
    }

    fn next_turn(
        &mut self,
        index: usize,
        endpoint: usize,
        at: u64,
        what: impl FnOnce(Process, u8, u32) -> What,
    ) {
        let node = &mut self.nodes[index];
        let turn = node.turns[endpoint].wrapping_add(1);
        node.turns[endpoint] = turn;
        let process = node.process(index);
        self.agenda.add(at, what(process, endpoint as u8, turn));
    }

    pub(super) fn due(&mut self, process: Process, endpoint: usize, turn: u32) {
        let index = usize::from(process.node);
        let (now_ms, local) = (self.store_ms(index), self.local(index));
        let node = &mut self.nodes[index];
        let Some(worker) = &mut node.workers[endpoint] else { return };
        let Doing::Waiting(due) = worker.doing else { return };
        if node.turns[endpoint] != turn {
            return;
        }
        if now_ms < due.at_ms {
            // The store's clock was set, or is better known by now.
            return self.plan_next(index, endpoint);
        }
        if let Some(at) = self.last_moment(index, endpoint, due.slot) {
            return self.next_turn(index, endpoint, at, What::Due);
        }
        let node = &mut self.nodes[index];
        let (Some(worker), Some(member)) = (&mut node.workers[endpoint], &node.member) else {
            return;
        };
        match member.permit(local, &self.plan.keys[endpoint], self.plan.timeout) {
            Ok(permit) if worker.announced == Some(permit.token) => {
                worker.doing = Doing::Polling(due.slot, permit.token);
                let lag = self.lag(index);
                self.next_turn(index, endpoint, self.now + lag, What::Send);
            }
            Ok(_) => worker.doing = Doing::Nothing,
            Err(Refusal::TrustEnds) => {
                let at = self.now + between(50 * MS, 200 * MS, &mut self.chance);
                self.next_turn(index, endpoint, at, What::Due);
            }
            Err(_) => worker.doing = Doing::Nothing,
        }
    }

    /// How long it takes from a permit to its poll: hardly anything, and at worst the margin.
    fn lag(&mut self, index: usize) -> u64 {
        let margin = nanos(self.plan.timing.margin);
        if self.plan.means.late && self.now < self.plan.calm && once_in(40, &mut self.chance) {
            let span = between(margin, 2 * nanos(self.plan.timing.ttl), &mut self.chance);
            self.fault(Fault::Pause(index as u8, span));
        }
        match self.plays_on_time(index) || self.plan.adversary && once_in(4, &mut self.chance) {
            true => margin * 9 / 10,
            false => self.chance.up_to(2 * MS),
        }
    }

    pub(super) fn send_poll(&mut self, process: Process, endpoint: usize, turn: u32) {
        let index = usize::from(process.node);
        let node = &mut self.nodes[index];
        let Some(worker) = &mut node.workers[endpoint] else { return };
        let Doing::Polling(slot, token) = worker.doing else { return };
        if node.turns[endpoint] != turn {
            return;
        }
        let timeout = nanos(self.plan.timeout);
        let worst = self.plays_on_time(index);
        let Some(worker) = &mut self.nodes[index].workers[endpoint] else { return };
        let came = std::mem::take(&mut worker.fresh).then_some(worker.due);
        let span = match self.chance.up_to(3) {
            _ if worst => timeout,
            0 => timeout,
            1 => self.chance.up_to(timeout),
            _ => self.chance.up_to(timeout / 10),
        };
        let end = self.after(index, span);
        let late_ms = self.store.clock_ms(self.now) - self.plan.grids[endpoint].time_of(slot);
        let times = (self.now, end);
        self.checks.begin(endpoint, process, token, times, (slot, late_ms), came);
        self.counts.polls += 1;
        self.next_turn(index, endpoint, end, What::End);
    }

    pub(super) fn end_poll(&mut self, process: Process, endpoint: usize, turn: u32) {
        let index = usize::from(process.node);
        let node = &mut self.nodes[index];
        let Some(worker) = &mut node.workers[endpoint] else { return };
        let Doing::Polling(slot, token) = worker.doing else { return };
        if node.turns[endpoint] != turn {
            return;
        }
        worker.last = Some(slot);
        worker.doing = Doing::Nothing;
        worker.unkept += 1;
        let announced = worker.announced == Some(worker.token);
        let at = self.now + self.delay();
        self.agenda.add(at, What::Post(process, endpoint as u8, token, Mail::Result(slot)));
        if announced {
            self.plan_next(index, endpoint);
        }
    }

    /// A result is where it belongs; work that was to be stopped may be over with it.
    pub(super) fn kept(&mut self, process: Process, endpoint: usize) {
        let index = usize::from(process.node);
        let Some(worker) = &mut self.nodes[index].workers[endpoint] else { return };
        worker.unkept = worker.unkept.saturating_sub(1);
        if worker.stopping && worker.is_over() {
            let due = self.due_when_stopped(index, endpoint);
            let key = self.plan.keys[endpoint].clone();
            self.tell(index, Event::Stopped { key, due });
        }
    }

    /// What the next owner is told.
    pub(super) fn due_when_stopped(&mut self, index: usize, endpoint: usize) -> i64 {
        let last = self.nodes[index].workers[endpoint].and_then(|worker| worker.last);
        let due = last.map_or(0, |last| self.plan.grids[endpoint].time_of(last + 1));
        self.checks.stopped(endpoint, due);
        due
    }

    pub(super) fn stop_work(&mut self, index: usize, key: &Key) {
        let endpoint = self.endpoint(key);
        let Some(worker) = &mut self.nodes[index].workers[endpoint] else {
            return self.idle.push(endpoint);
        };
        worker.stopping = true;
        if !matches!(worker.doing, Doing::Polling(..)) {
            worker.doing = Doing::Nothing;
        }
        if worker.is_over() {
            self.idle.push(endpoint);
        }
    }

    pub(super) fn lose_work(&mut self, index: usize, key: &Key) {
        let endpoint = self.endpoint(key);
        let node = &mut self.nodes[index];
        node.workers[endpoint] = None;
        node.turns[endpoint] = node.turns[endpoint].wrapping_add(1);
        let process = node.process(index);
        self.checks.abort(self.now, endpoint, process);
    }
}
