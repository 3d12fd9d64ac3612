//! What others do: no table, no budget, whoever reaches its limit goes.

use super::desk::{Desk, Effect, Where};
use super::traffic::Micros;
use super::{Contender, Options};
use skep_policy::{Chance, SeededChance};
use std::collections::{BTreeMap, VecDeque};

struct Worker {
    active: u32,
    lifetime: u32,
    limit: u32,
}

impl Worker {
    fn is_worn_out(&self) -> bool {
        self.lifetime >= self.limit
    }
}

pub(super) struct Plain {
    contender: Contender,
    chance: SeededChance,
    slots: u32,
    lifetime: u32,
    workers: Vec<Worker>,
    line: VecDeque<u64>,
    seats: BTreeMap<u64, usize>,
    turn: usize,
}

impl Plain {
    pub fn new(options: &Options, contender: Contender) -> Self {
        let mut desk = Plain {
            contender,
            chance: SeededChance::new(options.seed ^ 0xBB67_AE85_84CA_A73B),
            slots: options.slots,
            lifetime: options.lifetime,
            workers: Vec::new(),
            line: VecDeque::new(),
            seats: BTreeMap::new(),
            turn: 0,
        };
        for _ in 0..options.workers {
            let limit = desk.limit();
            desk.workers.push(Worker { active: 0, lifetime: 0, limit });
        }
        desk
    }

    fn limit(&mut self) -> u32 {
        if self.contender != Contender::Jitter {
            return self.lifetime;
        }
        let half = self.lifetime / 2;
        let more = self.chance.up_to(u64::from(self.lifetime - half));
        (half + u32::try_from(more).unwrap_or(0)).max(1)
    }

    fn pick(&mut self) -> Option<usize> {
        let workers = &self.workers;
        let is_free = |index: &usize| {
            let worker = &workers[*index];
            worker.active < self.slots && !worker.is_worn_out()
        };
        let mut free = (0..workers.len()).filter(is_free);
        match self.contender {
            Contender::RoundRobin => {
                let count = workers.len();
                let found = (0..count).map(|step| (self.turn + step) % count).find(is_free)?;
                self.turn = found + 1;
                Some(found)
            }
            Contender::Random => {
                let free: Vec<usize> = free.collect();
                let last = free.len().checked_sub(1)?;
                Some(free[self.chance.up_to(last as u64) as usize])
            }
            Contender::Jitter | Contender::Table(_) => {
                let first = free.next()?;
                Some(free.fold(first, |best, one| {
                    if workers[one].active < workers[best].active { one } else { best }
                }))
            }
        }
    }

    fn serve(&mut self, effects: &mut Vec<Effect>) {
        while let Some(&ticket) = self.line.front() {
            let Some(index) = self.pick() else { return };
            self.line.pop_front();
            let worker = &mut self.workers[index];
            worker.active += 1;
            worker.lifetime += 1;
            self.seats.insert(ticket, index);
            effects.push(Effect::Seated { ticket, worker: index });
        }
    }
}

impl Desk for Plain {
    fn open(&mut self, _now: Micros, ticket: u64, effects: &mut Vec<Effect>) {
        self.line.push_back(ticket);
        self.serve(effects);
    }

    fn close(&mut self, _now: Micros, ticket: u64, effects: &mut Vec<Effect>) {
        let Some(index) = self.seats.remove(&ticket) else { return };
        let worker = &mut self.workers[index];
        worker.active -= 1;
        if worker.active == 0 && worker.is_worn_out() {
            effects.push(Effect::Restart { worker: index });
        }
        self.serve(effects);
    }

    fn back(&mut self, _now: Micros, worker: usize, effects: &mut Vec<Effect>) {
        let limit = self.limit();
        self.workers[worker] = Worker { active: 0, lifetime: 0, limit };
        self.serve(effects);
    }

    fn tick(&mut self, _now: Micros, _effects: &mut Vec<Effect>) {}

    fn look(&mut self, _now: Micros, stands: &mut Vec<Where>) {
        let place = |worker: &Worker| match worker.is_worn_out() {
            true => Where::Out,
            false => Where::Serves,
        };
        stands.extend(self.workers.iter().map(place));
    }
}
