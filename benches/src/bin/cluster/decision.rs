//! What a decision costs in process: the key's hash, its owner, whether it overflows, and that the
//! key was used; with a hundred thousand keys moved, and with nodes that have too much.

use skep_policy::cluster::{
    Ask, Kind, Member, Move, Moves, Options, Sample, Uses, View, consumer, producer,
};
use skep_policy::rendezvous::hash_of;
use skep_policy::{SeededChance, Time};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const STEPS: usize = 200_000;
const ROUNDS: usize = 9;
const KEYS: usize = 1_000;
const MOVED: usize = 100_000;

/// Nanoseconds, by what is decided and the number of members.
pub fn run() -> Vec<(String, f64)> {
    let queues: Vec<String> = (0..KEYS).map(|number| format!("orders-{number}")).collect();
    let mut figures = Vec::new();
    for count in [3, 50] {
        let quiet = view(count, 0.4, &Moves::new());
        let moved = view(count, 0.4, &moves(count, &queues));
        let uneven = view(count, 0.75, &Moves::new());
        let mut add = |name: &str, value| figures.push((format!("{name}_ns_{count}"), value));
        add("decision", time(&queues, &quiet));
        add("decision_100000_moved", time(&queues, &moved));
        add("decision_overflowing", time(&queues, &uneven));
        add("decision_for_a_write", time_write(&quiet));
    }
    figures.push(("use_noted_ns".to_owned(), time_use(&queues)));
    figures
}

/// A view after ten seconds in which every third node had this score and the others a little.
fn view(count: usize, score: f64, moves: &Moves) -> View {
    let options = Options::default();
    let overrides = Arc::new(moves.overrides());
    let member = |number: usize| {
        let score = if number % 3 == 1 { score } else { 0.35 };
        let outstanding = (score * 100.0) as u32;
        let sample = Sample { outstanding, polls: 2 * outstanding, cpu: score * 100.0 };
        Member { sample, score, ..Member::new(&format!("node-{number}"), "http://127.0.0.1:1") }
    };
    let mut last: Option<View> = None;
    for second in 0..10 {
        let others = (1..count).map(member).collect();
        let now = Time::from_millis(1_000_000 + second * 1_000);
        let next = View::new(member(0), others, overrides.clone(), last.as_ref(), now, &options);
        last = Some(next);
    }
    let others = (1..count).map(member).collect();
    let now = Time::from_millis(1_010_000);
    View::new(member(0), others, overrides, last.as_ref(), now, &options)
}

/// As many moves as are remembered, those of the keys that are asked for among them.
fn moves(count: usize, queues: &[String]) -> Moves {
    let options = Options::default();
    let ask = |queue| Ask::Queue { queue, group: "mail" }.hash(1, &options);
    let asked = queues.iter().map(|queue| ask(queue));
    let others = (0..MOVED - KEYS).map(|number| hash_of(&format!("other-{number}")));
    let now = Time::from_millis(1_000_000);
    let record = |(number, key): (usize, u64)| Move {
        key,
        node: hash_of(&format!("node-{}", number % count)),
        version: 1,
        moved_at: now,
        used_at: now,
        by: 1,
        kind: Kind::Migrate,
    };
    let records: Vec<Move> = asked.chain(others).enumerate().map(record).collect();
    let mut moves = Moves::new();
    moves.merge(&records, now, &options);
    moves
}

fn time(queues: &[String], view: &View) -> f64 {
    let (options, mut chance) = (Options::default(), SeededChance::new(1));
    measure(|step| {
        let ask = Ask::Queue { queue: &queues[step % KEYS], group: "mail" };
        let key = black_box(ask).hash(1, &options);
        black_box(consumer(view, key, &|_| 0, &mut chance));
    })
}

fn time_write(view: &View) -> f64 {
    let mut chance = SeededChance::new(1);
    measure(|step| {
        let waiting = |index: usize| u32::from((index + step).is_multiple_of(4));
        black_box(producer(view, &waiting, &|_| 0, &mut chance));
    })
}

fn time_use(queues: &[String]) -> f64 {
    let (options, uses) = (Options::default(), Uses::new(MOVED));
    let ask = |queue| Ask::Queue { queue, group: "mail" }.hash(1, &options);
    let keys: Vec<u64> = queues.iter().map(|queue| ask(queue)).collect();
    measure(|step| {
        let now = Time::from_millis(1_000_000 + step as u64 / 100);
        black_box(uses.touch(keys[step % KEYS], now, true));
    })
}

/// Nanoseconds for a step, the median of several rounds.
fn measure(mut step: impl FnMut(usize)) -> f64 {
    let mut rounds: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        (0..STEPS).for_each(&mut step);
        rounds.push(begun.elapsed().as_nanos() as f64 / STEPS as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
