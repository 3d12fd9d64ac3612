//! A database that fails, loses its answers and has full queues, and nodes that die in between.

use super::tests::{damage, message};
use super::*;
use crate::ids::PartitionId;
use crate::record::Records;
use crate::store::{Pushed, WorkError};
use proptest::prelude::*;
use skep_policy::{Chance, SeededChance};
use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, yield_now};

/// How the database takes a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fair,
    /// It is not there.
    Away,
    /// It does what it is told, and nobody hears of it.
    Mute,
    /// It is asked, does nothing, and nobody hears of it.
    Deaf,
}

/// A database that keeps transaction ids by queue and partition.
#[derive(Clone)]
struct Scripted(Arc<Mutex<Script>>);

struct Script {
    weather: Weather,
    /// If set, after how many calls the weather changes, by chance.
    changes: Option<(SeededChance, u64)>,
    kept: BTreeMap<(String, String), Vec<String>>,
    room: HashMap<String, usize>,
    /// So many refusals make some more room.
    refusals_until_room: Option<u64>,
    refusals: u64,
    calls: watch::Sender<u64>,
}

impl Scripted {
    fn new(weather: Weather) -> Self {
        Scripted(Arc::new(Mutex::new(Script {
            weather,
            changes: None,
            kept: BTreeMap::new(),
            room: HashMap::new(),
            refusals_until_room: None,
            refusals: 0,
            calls: watch::Sender::new(0),
        })))
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, weather: Weather) {
        self.script().weather = weather;
    }

    fn kept(&self, queue: &str, partition: &str) -> Vec<String> {
        let key = (queue.to_owned(), partition.to_owned());
        self.script().kept.get(&key).cloned().unwrap_or_default()
    }
}

impl Script {
    fn weather(&mut self) -> Weather {
        if let Some((chance, left)) = &mut self.changes {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let all = [Weather::Fair, Weather::Away, Weather::Mute, Weather::Deaf];
                self.weather = all[chance.up_to(3) as usize];
                *left = 1 + chance.up_to(12);
            }
        }
        self.weather
    }

    fn push(&mut self, messages: &[NewMessage]) -> Result<Vec<Pushed>, WorkError> {
        let known: HashSet<String> = self.kept.values().flatten().cloned().collect();
        let mut new: HashMap<String, usize> = HashMap::new();
        for message in messages.iter().filter(|message| !known.contains(&transaction(message))) {
            *new.entry(message.queue.to_string()).or_default() += 1;
        }
        for (queue, count) in new {
            let waiting: usize =
                self.kept.iter().filter(|((q, _), _)| *q == queue).map(|(_, all)| all.len()).sum();
            let Some(room) = self.room.get_mut(&queue) else { continue };
            if waiting + count > *room {
                self.refusals += 1;
                if self.refusals_until_room.is_some_and(|until| self.refusals.is_multiple_of(until))
                {
                    *room += 4;
                }
                let (waiting, max_size) = (waiting as u64, *room as u64);
                return Err(WorkError::Full { queue: Arc::from(queue), waiting, max_size });
            }
        }
        let keep = |message: &NewMessage| {
            let key = (message.queue.to_string(), message.partition.to_string());
            let transactions = self.kept.entry(key).or_default();
            let duplicate = transactions.contains(&transaction(message));
            if !duplicate {
                transactions.push(transaction(message));
            }
            Pushed { id: message.id, partition: PartitionId(1), duplicate }
        };
        Ok(messages.iter().map(keep).collect())
    }
}

fn transaction(message: &NewMessage) -> String {
    let record = Records::of(&message.record).next().expect("one").expect("is whole");
    record.transaction.into_owned()
}

fn unreachable() -> WorkError {
    let (store, target) = ("postgres", "here".to_owned());
    StoreError::Unreachable { store, target, cause: "it is away".to_owned() }.into()
}

fn unanswered() -> WorkError {
    StoreError::Unknown { store: "postgres", cause: "cut".to_owned() }.into()
}

impl PushTo for Scripted {
    async fn push(&self, messages: Vec<NewMessage>) -> Result<Vec<Pushed>, WorkError> {
        // Others come in between, and whoever is killed here has or has not pushed.
        yield_now().await;
        let answer = {
            let mut script = self.script();
            script.calls.send_modify(|calls| *calls += 1);
            match script.weather() {
                Weather::Fair => script.push(&messages),
                Weather::Away => Err(unreachable()),
                Weather::Mute => script.push(&messages).and_then(|_| Err(unanswered())),
                Weather::Deaf => Err(unanswered()),
            }
        };
        yield_now().await;
        answer
    }
}

/// A node that can be killed and started again.
struct Place {
    folder: TempDir,
    database: Scripted,
    options: SpillOptions,
    limit: u64,
}

struct Running {
    spill: Arc<Spill<Scripted>>,
    replay: JoinHandle<()>,
}

impl Place {
    fn new(weather: Weather) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SpillOptions::default();
        Place { folder, database: Scripted::new(weather), options, limit: 1 << 20 }
    }

    async fn start(&self) -> Running {
        self.start_how(false).await
    }

    /// A node that is told to hold pushes back before anything else.
    async fn start_held(&self) -> Running {
        self.start_how(true).await
    }

    async fn start_how(&self, held: bool) -> Running {
        let buffer = Buffer::open(self.folder.path(), self.limit).await.expect("opens");
        let spill = Arc::new(Spill::new(buffer, self.database.clone(), self.options, 1));
        spill.hold(held);
        let replaying = spill.clone();
        let replay = tokio::spawn(async move { replaying.replay().await });
        Running { spill, replay }
    }
}

impl Running {
    /// What is in the middle of something stays there.
    async fn kill(self) {
        self.replay.abort();
        let _ = self.replay.await;
        self.spill.buffer().close().await;
    }

    async fn push(&self, queue: &str, transaction: &str) -> Result<Kept, SpillError> {
        self.spill.push(vec![message(queue, "a", transaction)]).await
    }

    async fn empty(&self) {
        until("the file is empty", || self.spill.buffer().is_empty()).await;
    }
}

/// Time is virtual here: it passes while nobody has anything to do but the file's own threads.
/// How long those take is the disk's affair, so that patience is by the wall's clock.
async fn until(what: &str, check: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// With a clock that is moved by whoever waits for it.
fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime").block_on(test);
}

#[test]
fn pushes_are_kept_while_the_database_is_away_and_come_there_in_order() {
    run(async {
        let place = Place::new(Weather::Fair);
        let node = place.start().await;
        assert!(matches!(node.push("q", "0").await, Ok(Kept::Pushed(_))));
        place.database.set(Weather::Away);
        for transaction in ["1", "2", "3"] {
            assert_eq!(node.push("q", transaction).await.expect("keeps"), Kept::Buffered);
        }
        assert!(node.spill.is_away());
        assert_eq!(node.push("other", "x").await.expect("keeps"), Kept::Buffered);
        place.database.set(Weather::Fair);
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), ["0", "1", "2", "3"]);
        assert_eq!(place.database.kept("other", "a"), ["x"]);
        until("it is known to be back", || !node.spill.is_away()).await;
        assert!(matches!(node.push("q", "4").await, Ok(Kept::Pushed(_))));
    });
}

#[test]
fn a_push_whose_answer_was_lost_is_there_once() {
    run(async {
        let place = Place::new(Weather::Mute);
        let node = place.start().await;
        assert_eq!(node.push("q", "1").await.expect("keeps"), Kept::Buffered);
        assert_eq!(node.push("q", "2").await.expect("keeps"), Kept::Buffered);
        node.kill().await;
        place.database.set(Weather::Fair);
        let node = place.start().await;
        assert!(node.spill.is_away(), "what waits goes first");
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), ["1", "2"]);
    });
}

#[test]
fn the_file_is_emptied_even_if_the_pushes_never_pause() {
    run(async {
        let place = Place::new(Weather::Away);
        let node = place.start().await;
        let mut producers = JoinSet::new();
        for producer in 0..32 {
            let spill = node.spill.clone();
            producers.spawn(async move {
                let mut number = 0;
                // Until it has gone to the database again by itself.
                loop {
                    assert!(number < 2_000, "the file is never empty");
                    let one = message("q", "a", &format!("{producer}-{number}"));
                    number += 1;
                    if let Kept::Pushed(_) = spill.push(vec![one]).await.expect("is kept") {
                        return number;
                    }
                }
            });
        }
        until("much is kept", || node.spill.buffer().messages() > 100).await;
        place.database.set(Weather::Fair);
        let pushed: usize = producers.join_all().await.into_iter().sum();
        node.empty().await;
        assert_eq!(place.database.kept("q", "a").len(), pushed);
    });
}

#[test]
fn a_full_queue_holds_up_no_other_and_takes_no_more_until_it_has_room() {
    run(async {
        let place = Place::new(Weather::Away);
        let node = place.start().await;
        for (queue, transaction) in [("full", "1"), ("full", "2"), ("free", "3"), ("full", "4")] {
            node.push(queue, transaction).await.expect("keeps");
        }
        place.database.script().room.insert("full".to_owned(), 1);
        place.database.set(Weather::Fair);
        until("the other one has left", || !node.spill.buffer().holds("free")).await;
        assert_eq!(place.database.kept("free", "a"), ["3"]);
        until("it is refused", || place.database.script().refusals > 3).await;
        assert!(matches!(node.push("free", "5").await, Ok(Kept::Pushed(_))));
        let refused = node.push("full", "6").await.expect_err("would stand behind");
        assert!(matches!(refused, SpillError::Work(WorkError::Full { .. })), "{refused}");
        place.database.script().room.clear();
        node.empty().await;
        assert!(matches!(node.push("full", "6").await, Ok(Kept::Pushed(_))));
        assert_eq!(place.database.kept("full", "a"), ["1", "2", "4", "6"]);
    });
}

#[test]
fn a_push_that_is_larger_than_its_queue_arrives_in_parts() {
    run(async {
        let place = Place::new(Weather::Away);
        let node = place.start().await;
        let transactions: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let push = transactions.iter().map(|transaction| message("q", "a", transaction)).collect();
        assert_eq!(node.spill.push(push).await.expect("keeps"), Kept::Buffered);
        {
            let mut script = place.database.script();
            script.room.insert("q".to_owned(), 7);
            script.refusals_until_room = Some(5);
        }
        place.database.set(Weather::Fair);
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), transactions);
    });
}

#[test]
fn a_damaged_entry_stays_and_holds_up_only_its_queue() {
    run(async {
        let place = Place::new(Weather::Away);
        let node = place.start().await;
        node.push("broken", "1").await.expect("keeps");
        node.push("whole", "2").await.expect("keeps");
        node.kill().await;
        let buffer = Buffer::open(place.folder.path(), place.limit).await.expect("opens");
        damage(&buffer, "broken").await;
        buffer.close().await;
        place.database.set(Weather::Fair);
        let node = place.start().await;
        until("the whole one has left", || !node.spill.buffer().holds("whole")).await;
        assert_eq!(place.database.kept("whole", "a"), ["2"]);
        assert!(matches!(node.push("whole", "3").await, Ok(Kept::Pushed(_))));
        let refused = node.push("broken", "4").await.expect_err("would stand behind");
        assert!(matches!(refused, SpillError::Work(WorkError::Damaged(_))), "{refused}");
        assert!(node.spill.buffer().holds("broken"));
    });
}

#[test]
fn what_the_file_cannot_take_is_told_and_not_kept() {
    run(async {
        let place = Place { limit: 400, ..Place::new(Weather::Away) };
        let node = place.start().await;
        let mut kept = Vec::new();
        for transaction in ["1", "2", "3", "4", "5"] {
            match node.push("q", transaction).await {
                Ok(_) => kept.push(transaction.to_owned()),
                Err(SpillError::Buffer(BufferError::Full { limit: 400, .. })) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert!((1..5).contains(&kept.len()), "{kept:?}");
        place.database.set(Weather::Fair);
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), kept);
    });
}

#[test]
fn pushes_that_are_held_back_stay_here_and_go_in_order_when_they_are_let_go() {
    run(async {
        let place = Place::new(Weather::Fair);
        let node = place.start().await;
        assert!(matches!(node.push("q", "0").await, Ok(Kept::Pushed(_))));
        node.spill.hold(true);
        for transaction in ["1", "2", "3", "2"] {
            assert_eq!(node.push("q", transaction).await.expect("keeps"), Kept::Buffered);
        }
        assert_eq!(node.push("other", "x").await.expect("keeps"), Kept::Buffered);
        // Whatever would replay has every chance to.
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(place.database.kept("q", "a"), ["0"]);
        assert_eq!(node.spill.buffer().messages(), 5);
        node.spill.hold(false);
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), ["0", "1", "2", "3"]);
        assert_eq!(place.database.kept("other", "a"), ["x"]);
        assert!(matches!(node.push("q", "4").await, Ok(Kept::Pushed(_))));
    });
}

#[test]
fn what_was_held_back_by_a_node_that_died_is_held_by_the_next_and_let_go_once() {
    run(async {
        let place = Place::new(Weather::Fair);
        let node = place.start().await;
        node.spill.hold(true);
        for transaction in ["1", "2"] {
            assert_eq!(node.push("q", transaction).await.expect("keeps"), Kept::Buffered);
        }
        node.kill().await;
        let node = place.start_held().await;
        assert_eq!(node.push("q", "3").await.expect("keeps"), Kept::Buffered);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(place.database.kept("q", "a"), Vec::<String>::new());
        // It gets them and cannot say so; the node dies, and the next one does not know.
        place.database.set(Weather::Mute);
        let calls = *place.database.script().calls.borrow();
        node.spill.hold(false);
        until("it was told", || *place.database.script().calls.borrow() > calls + 1).await;
        node.kill().await;
        place.database.set(Weather::Fair);
        let node = place.start().await;
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), ["1", "2", "3"]);
    });
}

#[test]
fn a_buffer_for_held_pushes_takes_none_because_the_database_is_away() {
    run(async {
        let mut place = Place::new(Weather::Away);
        place.options.when_away = false;
        let node = place.start().await;
        let refused = node.push("q", "1").await.expect_err("is away");
        assert!(matches!(refused, SpillError::Work(WorkError::Store(_))), "{refused}");
        node.spill.hold(true);
        assert_eq!(node.push("q", "2").await.expect("keeps"), Kept::Buffered);
        node.spill.hold(false);
        assert_eq!(node.push("q", "3").await.expect("keeps"), Kept::Buffered, "it goes behind");
        assert!(node.push("other", "4").await.is_err());
        place.database.set(Weather::Fair);
        assert!(matches!(node.push("other", "5").await, Ok(Kept::Pushed(_))));
        node.empty().await;
        assert_eq!(place.database.kept("q", "a"), ["2", "3"]);
    });
}

const PRODUCERS: usize = 4;
const PUSHES: usize = 12;

/// Pushes its messages one after the other, and each again and again until it is acknowledged, as
/// clients do; whichever node there is.
async fn produce(producer: usize, mut nodes: watch::Receiver<Option<Arc<Spill<Scripted>>>>) {
    for number in 0..PUSHES {
        let of = |queue: &str, part: usize| {
            message(queue, &format!("p{producer}"), &format!("{producer}-{queue}-{number}-{part}"))
        };
        let push = match number % 3 {
            0 => vec![of("q", 0), of("q", 1)],
            1 => vec![of("tight", 0)],
            _ => vec![of("tight", 0), of("q", 0), of("tight", 1)],
        };
        loop {
            let node = nodes.wait_for(Option::is_some).await.expect("nodes come").clone();
            let node = node.expect("there is one");
            let acknowledged = tokio::select! {
                kept = node.push(push.clone()) => kept.is_ok(),
                _ = nodes.wait_for(Option::is_none) => false,
            };
            if acknowledged {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn storm(seed: u64, limit: u64, restarts: u64) {
    let place = Place { limit, ..Place::new(Weather::Fair) };
    {
        let mut script = place.database.script();
        script.changes = Some((SeededChance::new(seed), 3));
        script.room.insert("tight".to_owned(), 4);
        script.refusals_until_room = Some(3);
    }
    let mut chance = SeededChance::new(seed ^ 0x5eed);
    let mut calls = place.database.script().calls.subscribe();
    let nodes = watch::Sender::new(None);
    let mut producers: JoinSet<()> =
        (0..PRODUCERS).map(|producer| produce(producer, nodes.subscribe())).collect();
    for _ in 0..restarts {
        let node = place.start().await;
        node.spill.hold(chance.up_to(2) == 0);
        nodes.send_replace(Some(node.spill.clone()));
        let last = *calls.borrow_and_update() + 1 + chance.up_to(30);
        // Whatever is under way then is in the middle.
        tokio::select! {
            _ = calls.wait_for(|calls| *calls >= last) => {}
            done = producers.join_next() => done.map_or((), |done| done.expect("does not fail")),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        // Whether they were held or not, it is the other way round for a while.
        node.spill.hold(!node.spill.is_held());
        tokio::time::sleep(Duration::from_millis(chance.up_to(60))).await;
        nodes.send_replace(None);
        node.kill().await;
    }
    let node = place.start().await;
    nodes.send_replace(Some(node.spill.clone()));
    while let Some(done) = producers.join_next().await {
        done.expect("no producer fails");
    }
    place.database.script().changes = None;
    place.database.set(Weather::Fair);
    node.empty().await;
    node.kill().await;
    for producer in 0..PRODUCERS {
        for queue in ["q", "tight"] {
            let parts = |number: usize| match (queue, number % 3) {
                ("q", 0) | ("tight", 2) => 2,
                ("q", 1) | ("tight", 0) => 0,
                _ => 1,
            };
            let name = |number, part| format!("{producer}-{queue}-{number}-{part}");
            let each = |number| (0..parts(number)).map(move |part| name(number, part));
            let expected: Vec<String> = (0..PUSHES).flat_map(each).collect();
            assert_eq!(place.database.kept(queue, &format!("p{producer}")), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_acknowledged_message_arrives_once_and_in_order(
        seed: u64, limit in 600_u64..6_000, restarts in 0_u64..6,
    ) {
        run(storm(seed, limit, restarts));
    }
}
