//! A run that is written out, move by move, for tests that look for the shortest one that fails.

use super::story::Story;
use super::task::{End, Nature, Order, Work};
use super::weather::Weather;
use super::world::{Happened, World};
use super::{Outcome, outcome};
use skep_policy::pools::{Ratio, SharedRules, Tier};
use skep_policy::{SeededChance, Time, backoff};
use skep_pools::Options as PoolsOptions;
use std::time::Duration;

/// How an attempt is ended by a [`Move`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It succeeds.
    Succeeds,
    /// It fails, and may be tried again.
    Fails,
    /// It fails for good.
    FailsForGood,
    /// It panics.
    Panics,
    /// It takes its worker with it.
    Dies,
}

/// Something that happens. Who is meant by a number is one of those there are, counted around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A task comes. It runs until a move ends it.
    Submit {
        /// Its tier.
        tier: Tier,
        /// Its serial key.
        key: Option<u8>,
        /// Whether two attempts may run at once.
        idempotent: bool,
        /// Whether it looks if it should stop.
        listens: bool,
        /// Whether it can be cancelled.
        cancellable: bool,
    },
    /// An attempt ends.
    End(u8, How),
    /// Time passes, in milliseconds.
    Wait(u16),
    /// A worker is woken by nobody in particular.
    Wake(u8),
    /// The timer is woken by nobody in particular.
    WakeTimer,
    /// A worker dies, whatever it does.
    Kill(u8),
    /// A task is cancelled.
    Cancel(u8),
    /// Threads can be started, or cannot.
    Starts(bool),
}

/// How a written run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything comes to rest.
    Rest,
    /// The pools are let go and finish what they have.
    LetGo,
    /// The pools are shut down, and after so many milliseconds stopped.
    ShutDown(u16),
}

/// Plays the moves on small pools, ends them, and checks everything that any run is checked for.
///
/// Three bits of the seed choose the shape: with the first, one helper is always there; with the
/// second, the engine is driven as threads drive it, which wake its timer now and then, and
/// otherwise only as it asks for; with the third, there are no other helpers.
pub fn play(seed: u64, moves: &[Move], ending: Ending) -> Outcome {
    let story = Story::new(seed, Duration::from_millis(100));
    let chance = SeededChance::new(seed);
    let pools = small_pools((seed & 1) as u16, if seed & 4 > 0 { 0 } else { 2 });
    let mut world = World::new(pools, Weather::FAIR, chance, Time::ZERO, story);
    world.obliging = seed & 2 > 0;
    world.open();
    let mut cancellable = Vec::new();
    for one in moves {
        make(&mut world, *one, &mut cancellable);
        // A moment, in which threads start and wake.
        pass(&mut world, Duration::from_millis(1));
        world.check();
        world.check_settled();
    }
    match ending {
        Ending::Rest => world.come_to_rest(),
        Ending::LetGo => world.let_go(),
        Ending::ShutDown(millis) => world.shut_down(Duration::from_millis(millis.into())),
    }
    let accepted = world.ledger.total(|counts| counts.accepted);
    let ended = world.ledger.total(|counts| counts.done + counts.dead + counts.cancelled);
    if accepted != ended && !world.story.is_broken() {
        world.fail(format!("{accepted} tasks were accepted and {ended} ended"));
    }
    world.story.set("accepted", accepted as f64);
    world.story.set("ended", ended as f64);
    outcome(world.close())
}

fn pass(world: &mut World, span: Duration) {
    let until = world.now + span;
    while matches!(world.step(until), Happened::Event | Happened::Input(_)) {}
    world.skip_to(until);
}

fn make(world: &mut World, one: Move, cancellable: &mut Vec<(u32, u64)>) {
    let counted_around = |number: u8, count: usize| usize::from(number) % count.max(1);
    match one {
        Move::Submit { tier, key, idempotent, listens, cancellable: can_be_cancelled } => {
            let order = Order {
                nature: if listens { Nature::Attentive } else { Nature::Deaf },
                key,
                idempotent,
                cancellable: can_be_cancelled && !idempotent,
                ..Order::new(tier, Work::Held)
            };
            if let Some(slot) = world.submit(order)
                && order.cancellable
            {
                cancellable.push((slot, world.ledger.entry(slot).id));
            }
        }
        Move::End(number, how) => {
            let end = match how {
                How::Succeeds => End::Succeeds,
                How::Fails => End::Fails,
                How::FailsForGood => End::FailsForGood,
                How::Panics => End::Panics,
                How::Dies => End::Dies,
            };
            let running = world.running_seats();
            if !running.is_empty() {
                world.end_attempt(running[counted_around(number, running.len())], end);
            }
        }
        Move::Wait(millis) => pass(world, Duration::from_millis(millis.into())),
        Move::Wake(number) => world.wake(counted_around(number, world.seat_count())),
        Move::WakeTimer => world.wake_timer(),
        Move::Kill(number) => {
            if world.seat_count() > 0 {
                world.kill(counted_around(number, world.seat_count()));
            }
        }
        Move::Cancel(number) => {
            if !cancellable.is_empty() {
                let place = counted_around(number, cancellable.len());
                let (slot, id) = cancellable.swap_remove(place);
                world.cancel(slot, id);
            }
        }
        Move::Starts(possible) => world.refuse_starts(if possible { 0 } else { 1_024 }),
    }
}

/// Small pools with short queues and short times, so that few moves reach every limit.
fn small_pools(helpers: u16, more: u16) -> PoolsOptions {
    let mut options = PoolsOptions::new(8);
    for tier in Tier::ALL {
        let own = options.tier_mut(tier);
        (own.rules.min, own.rules.max) = match tier {
            Tier::Critical => (1, 2),
            Tier::High => (2, 3),
            Tier::Normal | Tier::Low => (1, 1),
        };
        (own.rules.up, own.rules.down) = (Ratio::whole(3), Ratio::whole(1));
        own.queue = 4;
        own.idle_timeout = Duration::from_millis(50);
        own.task_timeout = Duration::from_millis(100);
        own.retries = 1;
        let wait = Duration::from_millis(10);
        own.backoff = backoff::Options { base: wait, cap: wait };
    }
    options.shared =
        SharedRules { min: helpers, max: helpers + more, steal_above: 1, background_max: 2 };
    options.shared_idle_timeout = Duration::from_millis(50);
    options.critical_reserve = 1;
    options
}
