//! What goes wrong.

use super::gateway::State;
use super::plan::one_of;
use super::truth::Excuse;
use super::worker::Mode;
use super::world::{Envelope, Sender, Table, What, World};
use skep_policy::Chance;
use skep_policy::sessions::{Answer, Ask, DueBy};

/// Something goes wrong, and the next thing soon.
pub(super) fn strike(world: &mut World) {
    let Some(gap) = world.plan.fault_gap else { return };
    let after = 1 + world.chance.up_to(gap);
    world.later(after, What::Fault);
    if !world.faulty {
        return;
    }
    let worker = world.chance.up_to(world.workers.len() as u64 - 1) as usize;
    let slot = world.chance.up_to(world.gateways.len() as u64 - 1) as usize;
    match world.chance.up_to(63) {
        0..=3 => kill_gateway(world, slot),
        4..=5 => gateway_leaves(world, slot),
        6..=13 => {
            let span = one_of(&[300, 3_000, 6_000, 20_000], &mut world.chance);
            world.count("cut_off");
            let until = world.now + span;
            world.tell(|| format!("gateway {slot} is cut off for {span} ms"));
            let gateway = &mut world.gateways[slot];
            (gateway.cut_until, gateway.disturbed) = (until, until);
        }
        14..=15 => forget(world),
        16..=18 => world.copy = Some(world.table.clone()),
        19 => restore(world),
        20..=25 => {
            world.count("crashes");
            world.tell(|| format!("w{worker} crashes"));
            world.crash(worker);
        }
        26..=28 => {
            world.count("hosts_lost");
            world.tell(|| format!("the host of w{worker} is lost"));
            if world.workers[worker].mode != Mode::Gone {
                world.stop_all(worker);
                world.gone_for_a_while(worker);
            }
        }
        29..=34 => {
            let span = one_of(&[1_000, 6_000, 30_000], &mut world.chance);
            world.count("silences");
            world.tell(|| format!("w{worker} is silent for {span} ms"));
            world.workers[worker].silent_until = world.now + span;
        }
        35..=38 => world.workers[worker].due = Some(DueBy::Memory),
        39..=42 => {
            let drained = !world.workers[worker].drained;
            world.workers[worker].drained = drained;
            operator(world, Ask::Drain { name: format!("w{worker}"), drained });
        }
        43..=44 => operator(world, Ask::Remove { name: format!("w{worker}"), by_worker: false }),
        45..=52 => end_one(world, slot),
        _ => give_up_one(world, slot),
    }
}

/// The last thing that goes wrong may be the worst.
pub(super) fn strike_last(world: &mut World) {
    match world.chance.up_to(5) {
        _ if world.plan.fault_gap.is_none() => {}
        0 => forget(world),
        1 | 2 => restore(world),
        _ => {}
    }
}

fn operator(world: &mut World, ask: Ask) {
    world.count("operator");
    let connection = world.connection;
    world.post(Envelope { from: Sender::Operator, ask, connection, late: false });
}

fn kill_gateway(world: &mut World, slot: usize) {
    world.count("gateways_killed");
    world.tell(|| format!("gateway {slot} dies"));
    let gateway = &mut world.gateways[slot];
    gateway.alive = false;
    gateway.sessions.clear();
    let after = one_of(&[100, 2_000, 15_000], &mut world.chance);
    world.later(after, What::Rises { slot });
}

/// It ends what it carries, says so, and goes.
fn gateway_leaves(world: &mut World, slot: usize) {
    if !world.gateways[slot].alive || !world.gateways[slot].joined {
        return;
    }
    world.count("gateways_left");
    let (gateway, link) = (world.gateways[slot].id, world.gateways[slot].link);
    world.gateways[slot].sessions.clear();
    let from = Sender::Gateway { slot, gateway, link, request: 0 };
    let (ask, connection) = (Ask::Leave { gateway, link }, world.connection);
    world.post(Envelope { from, ask, connection, late: false });
    world.gateways[slot].alive = false;
    world.later(1_000, What::Rises { slot });
}

/// The table loses everything it knew. Connections may live on, as they do when a store is emptied.
fn forget(world: &mut World) {
    world.count("tables_lost");
    world.tell(|| "the table forgets everything".to_owned());
    world.table = Table::default();
    world.copy = None;
    if world.chance.up_to(1) == 0 {
        world.connection += 1;
    }
    let told = known(world);
    world.excuse_all(Excuse::Forgotten { at: world.now }, |program| told[program]);
    excuse_absences(world);
}

/// The table is put back to what it was a while ago. Nobody can do that behind an open connection.
fn restore(world: &mut World) {
    let Some(copy) = world.copy.take() else { return };
    world.count("tables_restored");
    world.tell(|| "the table is put back to an old copy".to_owned());
    world.table = copy;
    world.connection += 1;
    let mut told = known(world);
    let look = Ask::Workers { from: 1, limit: 1_000 };
    if let Answer::Workers { workers } = world.table.fleet.apply(world.now, &look).answer {
        for row in workers {
            let program = World::program_of(&row.start);
            told[program] = told[program].min(row.lifetime);
        }
    }
    world.excuse_all(Excuse::Restored, |program| told[program]);
    excuse_absences(world);
}

/// How many sessions in the life of each program its supervisor knows of.
fn known(world: &World) -> Vec<u32> {
    let mut told = vec![0; world.programs.len()];
    for worker in &world.workers {
        if let Some(program) = worker.program {
            told[program] = worker.told;
        }
    }
    told
}

fn excuse_absences(world: &mut World) {
    world.tables += 1;
    for worker in &mut world.workers {
        worker.away.excused = true;
    }
}

fn any_ticket(world: &mut World, slot: usize) -> Option<u64> {
    let tickets: Vec<_> = world.gateways[slot].sessions.keys().copied().collect();
    let last = tickets.len().checked_sub(1)?;
    Some(tickets[world.chance.up_to(last as u64) as usize])
}

/// An operator ends a session, and must be obeyed if the table says so.
fn end_one(world: &mut World, slot: usize) {
    let Some(ticket) = any_ticket(world, slot) else { return };
    let gateway = world.gateways[slot].id;
    operator(world, Ask::End { gateway, ticket });
}

fn give_up_one(world: &mut World, slot: usize) {
    let Some(ticket) = any_ticket(world, slot) else { return };
    let carried = |state| matches!(state, State::Carrying(_));
    if !carried(world.gateways[slot].sessions[&ticket].state) {
        world.count("gave_up");
        world.give_up(slot, ticket);
    }
}
