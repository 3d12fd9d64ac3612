//! Puts a worker where its state says it belongs.

use super::Fleet;
use super::records::{Kind, Placed, Step, Worker};
use crate::sessions::{FORGET_MS, Hint, Order, Policy, Standing, Want, WorkerNumber, is_due, rank};

impl Fleet {
    pub(super) fn worker(&self, number: WorkerNumber) -> Option<&Worker> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.workers.get(index)?.as_ref()
    }

    pub(super) fn worker_mut(&mut self, number: WorkerNumber) -> Option<&mut Worker> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.workers.get_mut(index)?.as_mut()
    }

    /// Whether this is the program that runs.
    pub(super) fn runs(&self, number: WorkerNumber, incarnation: u64) -> bool {
        self.worker(number).is_some_and(|worker| worker.incarnation == incarnation)
    }

    /// Brings everything that is derived from a worker up to date: its place among the others,
    /// the counts of its kind, its timer and its order.
    pub(super) fn settle(&mut self, number: WorkerNumber) {
        let index = usize::try_from(number).unwrap_or(0).wrapping_sub(1);
        let Some(Some(worker)) = self.workers.get_mut(index) else { return };
        let kind = &mut self.kinds[worker.kind];
        let now_placed = place(worker, kind);
        let order = order(worker);
        if order != worker.order {
            worker.order = order;
            self.hints.push(Hint::Worker(number));
        }
        let before = worker.placed.replace(now_placed);
        if before == Some(now_placed) {
            return;
        }
        if let Some(before) = before {
            kind.take_out(number, &before);
        }
        kind.put_in(number, &now_placed);
        let timer_before = before.and_then(|placed| placed.timer);
        if timer_before != now_placed.timer {
            if let Some(time) = timer_before {
                self.timers.remove(&(time, number));
            }
            if let Some(time) = now_placed.timer {
                self.timers.insert((time, number));
            }
        }
    }

    /// Settles every worker of a kind, because its rules or its size changed.
    pub(super) fn settle_all(&mut self, kind: usize) {
        self.kinds[kind].counted = self.kinds[kind].standings.live();
        let members: Vec<WorkerNumber> = self.kinds[kind].members.iter().copied().collect();
        for number in members {
            self.settle(number);
        }
    }

    /// The due points depend on how many workers there are.
    pub(super) fn rewindow(&mut self, kind: usize) {
        let row = &self.kinds[kind];
        let live = row.standings.live();
        if live == row.counted {
            return;
        }
        let moved = row.rules.window(live) != row.rules.window(row.counted);
        self.kinds[kind].counted = live;
        if moved && row_uses_window(&self.kinds[kind]) {
            self.settle_all(kind);
        }
    }

    /// The worker that a session with this want gets, if one is free: the best of those who are
    /// ready, or else of those who are due. Whoever turns out to be silent is lost on the way.
    pub(super) fn pick(
        &mut self,
        now: u64,
        kind: usize,
        want: &Want,
        avoid: Option<WorkerNumber>,
    ) -> Option<WorkerNumber> {
        loop {
            let row = &self.kinds[kind];
            let number = row.best(want, avoid)?;
            let heard = self.worker(number)?.heard;
            if now.saturating_sub(heard) <= row.rules.heartbeat_ms {
                return Some(number);
            }
            self.lose(now, number);
        }
    }
}

fn row_uses_window(kind: &Kind) -> bool {
    kind.rules.lifetime_max != 0 && kind.rules.policy != Policy::LeastLoaded
}

impl Kind {
    /// The best worker that fits, of those who are ready, else of those who are due.
    fn best(&self, want: &Want, avoid: Option<WorkerNumber>) -> Option<WorkerNumber> {
        let fitting = || self.shapes.iter().filter(|row| want.fits(&row.shape));
        let wanted = |found: &&(u64, WorkerNumber)| Some(found.1) != avoid;
        let ready = fitting().filter_map(|row| row.ready.iter().find(wanted)).min();
        let due = || fitting().filter_map(|row| row.due.iter().find(wanted)).min();
        ready.or_else(due).map(|&(_, number)| number)
    }

    fn put_in(&mut self, number: WorkerNumber, placed: &Placed) {
        self.standings.add(placed.standing);
        let shape = &mut self.shapes[placed.shape];
        match placed.standing {
            Standing::Ready => drop(shape.ready.insert((placed.rank, number))),
            Standing::Due => drop(shape.due.insert((placed.rank, number))),
            _ => {}
        }
        if placed.standing.is_live() {
            shape.live += 1;
            self.slots += u64::from(placed.slots);
            self.active += u64::from(placed.active);
        }
        self.free += u64::from(placed.free);
        self.held_idle += u32::from(placed.held_idle);
        self.out += u32::from(placed.permit);
        if placed.ripe {
            self.ripe.insert((u32::MAX - placed.lifetime, number));
        }
    }

    fn take_out(&mut self, number: WorkerNumber, placed: &Placed) {
        self.standings.remove(placed.standing);
        let shape = &mut self.shapes[placed.shape];
        match placed.standing {
            Standing::Ready => drop(shape.ready.remove(&(placed.rank, number))),
            Standing::Due => drop(shape.due.remove(&(placed.rank, number))),
            _ => {}
        }
        if placed.standing.is_live() {
            shape.live -= 1;
            self.slots -= u64::from(placed.slots);
            self.active -= u64::from(placed.active);
        }
        self.free -= u64::from(placed.free);
        self.held_idle -= u32::from(placed.held_idle);
        self.out -= u32::from(placed.permit);
        if placed.ripe {
            self.ripe.remove(&(u32::MAX - placed.lifetime, number));
        }
    }

    /// Forgets a worker.
    pub(super) fn forget(&mut self, number: WorkerNumber, placed: &Placed) {
        self.take_out(number, placed);
        self.members.remove(&number);
    }
}

/// Everything that follows from a worker's state.
fn place(worker: &Worker, kind: &Kind) -> Placed {
    let rules = &kind.rules;
    let due_at = rules.due_at(worker.number, worker.fresh, kind.counted);
    let due = is_due(rules, due_at, worker.lifetime, worker.due_by.is_some());
    let standing = standing(worker, kind, due);
    let free_slots = worker.slots.saturating_sub(worker.active);
    let life_left = match rules.lifetime_max {
        0 => u32::MAX,
        most => most.saturating_sub(worker.lifetime),
    };
    let stays = !worker.lost && !worker.removed && !worker.down && !worker.drained;
    let can_go = worker.active == 0 || worker.successor;
    let held_idle = standing == Standing::Held && worker.active == 0;
    Placed {
        standing,
        due,
        rank: rank(rules.policy, due, worker.lifetime, worker.active, worker.slots),
        free: if standing.is_open() { free_slots.min(life_left) } else { 0 },
        active: worker.active,
        slots: worker.slots,
        ripe: rules.policy == Policy::Budgeted
            && worker.permit.is_none()
            && stays
            && !worker.is_settling()
            && (due || worker.hold)
            && can_go,
        lifetime: worker.lifetime,
        shape: worker.shape,
        permit: worker.permit.is_some(),
        held_idle,
        timer: timer(worker, kind),
    }
}

fn standing(worker: &Worker, kind: &Kind, due: bool) -> Standing {
    if worker.removed {
        return Standing::Removed;
    }
    if worker.lost {
        return Standing::Lost;
    }
    match worker.permit.map(|permit| permit.step) {
        Some(Step::Restarting { .. }) => return Standing::Restarting,
        Some(Step::Draining { .. }) => return Standing::Draining,
        Some(Step::Succeeding { .. } | Step::Succeeded { .. }) | None => {}
    }
    if worker.down {
        return Standing::Down;
    }
    if worker.drained {
        return Standing::Drained;
    }
    if worker.suspect.is_some() {
        return Standing::Suspect;
    }
    if worker.hold || kind.rules.worn_out(worker.lifetime) {
        return Standing::Held;
    }
    match () {
        () if worker.active >= worker.slots => Standing::Full,
        () if due => Standing::Due,
        () => Standing::Ready,
    }
}

/// When the worker must be looked after, whatever happens.
fn timer(worker: &Worker, kind: &Kind) -> Option<u64> {
    let rules = &kind.rules;
    if worker.lost || worker.removed {
        return Some(worker.heard + rules.heartbeat_ms + FORGET_MS);
    }
    let silent = worker.heard + rules.heartbeat_ms + 1;
    let permit = worker.permit.and_then(|permit| match permit.step {
        Step::Draining { until } | Step::Succeeded { until } => until,
        Step::Restarting { since } | Step::Succeeding { since } => {
            Some(since + rules.restart_max_ms)
        }
    });
    let patience = worker.waiting_since.filter(|_| worker.permit.is_none());
    let patience = patience.map(|since| since + rules.drain_max_ms);
    let probe = worker.suspect.map(|suspect| suspect.probe_at);
    [Some(silent), permit, patience, probe].into_iter().flatten().min()
}

/// What the worker is to do.
fn order(worker: &Worker) -> Order {
    if worker.removed {
        return Order::Leave;
    }
    match worker.permit.map(|permit| permit.step) {
        Some(Step::Restarting { .. }) if !worker.down => Order::Restart,
        Some(Step::Succeeding { .. }) => Order::Succeed,
        Some(Step::Succeeded { .. }) if worker.leaving == 0 => Order::StopOld,
        _ => Order::Serve,
    }
}
