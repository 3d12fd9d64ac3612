//! Many at once on one table: what is counted stays within what is allowed, and ends at nothing.

use crate::common::Fixture;
use crate::world::{KIND, checkout, worker};
use skep_policy::sessions::{
    Answer, Ask, Budget, Checkout, Close, Heartbeat, NewsKind, Order, PAGE_ROWS, Phase, Register,
    Rules, WorkerRow,
};
use skep_policy::{Chance, SeededChance};
use skep_sessions::TableStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const GATEWAYS: u64 = 8;
const WORKERS: usize = 6;
const SLOTS: u32 = 3;
const LIFETIME_MAX: u32 = 7;
const BUDGET: u32 = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_every_limit_among_many_gateways() {
    crowd(Fixture::memory(), 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_every_limit_among_many_gateways() {
    crowd(Fixture::redis(), 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_every_limit_among_many_gateways() {
    crowd(Fixture::postgres().await, 60).await;
}

async fn ask(store: &TableStore, ask: Ask) -> Answer {
    store.ask(&ask).await.unwrap_or_else(|error| panic!("{}: {error}\n{ask:?}", store.name()))
}

async fn workers(store: &TableStore) -> Vec<WorkerRow> {
    match ask(store, Ask::Workers { from: 1, limit: PAGE_ROWS }).await {
        Answer::Workers { workers } => workers,
        other => panic!("{other:?}"),
    }
}

/// Eight gateways with connections of their own take this many steps each.
async fn crowd(fixture: Fixture, steps: u32) {
    let seed = uuid::Uuid::new_v4().as_u64_pair().1;
    println!("seed {seed}");
    let store = &fixture.store;
    let rules = Rules {
        slots: SLOTS,
        lifetime_max: LIFETIME_MAX,
        budget: Budget::Count(BUDGET),
        ..Rules::default()
    };
    ask(store, Ask::Configure { kind: KIND.to_owned(), rules }).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut around = Vec::new();
    for number in 0..WORKERS {
        let own = fixture.another().await;
        around.push(tokio::spawn(work(own, format!("w{number}"), is_over.clone())));
    }
    around.push(tokio::spawn(watch(fixture.another().await, is_over.clone())));
    let mut gateways = Vec::new();
    for gateway in 1..=GATEWAYS {
        let own = fixture.another().await;
        let chance = SeededChance::new(seed ^ gateway);
        gateways.push(tokio::spawn(carry(own, gateway, chance, steps)));
    }
    let mut seated = 0;
    for gateway in gateways {
        seated += gateway.await.expect("a gateway ends well");
    }
    is_over.store(true, Ordering::Relaxed);
    for one in around {
        one.await.expect("who is around it ends well");
    }
    let Answer::Kinds { kinds } = ask(store, Ask::Kinds).await else { panic!("no kinds") };
    let kind = &kinds[0];
    println!("{seated} sessions, {} workers recycled", kind.recycled);
    assert_eq!((kind.active, kind.waiting), (0, 0));
    assert!(seated > 0 && kind.recycled > 0 && kind.started >= seated, "{seated}: {kind:?}");
    for row in workers(store).await {
        assert_eq!((row.active, row.leaving), (0, 0), "{row:?}");
    }
    let rest = ask(store, Ask::Sessions { after: None, limit: 10 }).await;
    assert_eq!(rest, Answer::Sessions { sessions: Vec::new() });
}

/// A worker that does what it is told, until everything is over.
async fn work(store: TableStore, name: String, is_over: Arc<AtomicBool>) {
    let mut starts = 0;
    while !is_over.load(Ordering::Relaxed) {
        starts += 1;
        let start = format!("{name}-{starts}").into();
        let register = Register { start, recycled: starts > 1, ..worker(&name) };
        let Answer::Registered { incarnation, .. } = ask(&store, Ask::Register(register)).await
        else {
            panic!("{name} is refused")
        };
        let mut order = Order::Serve;
        while order == Order::Serve && !is_over.load(Ordering::Relaxed) {
            let (phase, due, lifetime, old_gone) = (Phase::Serving, None, 0, false);
            let name = name.clone();
            let beat = Heartbeat { name, incarnation, phase, due, lifetime, old_gone };
            match ask(&store, Ask::Heartbeat(beat)).await {
                Answer::Ordered { order: next, active, .. } => {
                    assert!(next != Order::Restart || active == 0, "something is on it");
                    order = next;
                }
                other => panic!("{other:?}"),
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Looks at everything, again and again.
async fn watch(store: TableStore, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        for row in workers(&store).await {
            assert!(row.active <= row.slots && row.lifetime <= LIFETIME_MAX, "{row:?}");
        }
        let Answer::Kinds { kinds } = ask(&store, Ask::Kinds).await else { panic!("no kinds") };
        assert!(kinds[0].out <= BUDGET, "{:?}", kinds[0]);
        assert!(kinds[0].active <= u64::from(SLOTS) * WORKERS as u64, "{:?}", kinds[0]);
        tokio::task::yield_now().await;
    }
}

/// A gateway that begins and ends sessions in any order; how many had a worker.
async fn carry(store: TableStore, gateway: u64, mut chance: SeededChance, steps: u32) -> u64 {
    let (node, ttl_ms) = (format!("node-{gateway}"), 3_600_000);
    let (carried, waiting) = (Vec::new(), Vec::new());
    ask(&store, Ask::Join { gateway, link: 1, node, ttl_ms, carried, waiting }).await;
    let (mut open, mut seated): (Vec<u64>, u64) = (Vec::new(), 0);
    for ticket in 1..=u64::from(steps) {
        // A table in memory never lets anybody else have a turn by itself.
        tokio::task::yield_now().await;
        match chance.up_to(9) {
            0..5 => {
                let wait = chance.up_to(1) == 0;
                let key = format!("key-{}", chance.up_to(2)).into();
                let wish = Checkout { wait, key, ..checkout(gateway, ticket) };
                match ask(&store, Ask::Checkout(wish)).await {
                    Answer::Seated(seat) => {
                        assert!(seat.active <= seat.slots && seat.lifetime <= LIFETIME_MAX);
                        seated += 1;
                        open.push(ticket);
                    }
                    Answer::Waiting { .. } => open.push(ticket),
                    Answer::Refused(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            5..9 if !open.is_empty() => {
                let last = u64::try_from(open.len() - 1).expect("small");
                let ticket = open.swap_remove(usize::try_from(chance.up_to(last)).expect("small"));
                let how = if chance.up_to(5) == 0 { Close::Unused } else { Close::Ended };
                ask(&store, Ask::Close { gateway, link: 1, ticket, how }).await;
            }
            _ => match ask(&store, Ask::Beat { gateway, link: 1 }).await {
                Answer::Beaten { news, .. } => {
                    let seats = news.iter().filter(|one| matches!(one.what, NewsKind::Seated(_)));
                    seated += seats.count() as u64;
                }
                other => panic!("{other:?}"),
            },
        }
    }
    // Half of them end one by one, the others with their gateway.
    for ticket in open.split_off(open.len() / 2) {
        ask(&store, Ask::Close { gateway, link: 1, ticket, how: Close::Ended }).await;
    }
    assert_eq!(ask(&store, Ask::Leave { gateway, link: 1 }).await, Answer::Done);
    seated
}
