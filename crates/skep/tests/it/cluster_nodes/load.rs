//! Producers and consumers at all three nodes, and a book that knows what may happen to messages.

use super::kit::{NAMES, Trio};
use serde_json::{Value, json};
use skep_testkit::http::{self, Answer};
use skep_testkit::pause;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Keys enough that every node has some.
pub const QUEUES: usize = 6;
const PARTITIONS: usize = 2;
const PRODUCERS: usize = 3;
const CONSUMERS: usize = 9;
/// Short, so that what a dead node had leased comes again soon.
const LEASE: Duration = Duration::from_secs(4);
/// How long a pop waits.
const WAIT: Duration = Duration::from_millis(1_000);
/// What may come on top of a wait: the time of a forwarded request, and that of a busy machine.
const SLACK: Duration = Duration::from_secs(8);
/// Everything must have been consumed so long after the last push.
const REST: Duration = Duration::from_secs(40);
const GROUP: &str = "g";

/// A queue of the load.
pub fn queue(number: usize) -> String {
    format!("load{number}")
}

/// A load that goes on until [`Load::finish`].
pub struct Load {
    book: Arc<Book>,
    producers: Vec<JoinHandle<()>>,
    consumers: Vec<JoinHandle<()>>,
}

/// What came of it.
pub struct Report {
    /// Messages whose push was acknowledged; all of them were consumed.
    pub messages: usize,
    /// Answers that another node made.
    pub forwarded: usize,
    /// Requests without an answer: the node that was asked, and why there was none.
    pub failures: Vec<(usize, String)>,
}

impl Report {
    /// Nothing failed but what a node that is not there, or not ready yet, refused.
    pub fn assert_only_refused(&self) {
        let other: Vec<_> =
            self.failures.iter().filter(|(_, why)| !why.contains("refused")).collect();
        assert!(other.is_empty(), "{other:?}");
    }

    /// Only those who asked this node noticed anything.
    pub fn assert_only_at(&self, place: usize) {
        let elsewhere: Vec<_> = self.failures.iter().filter(|(at, _)| *at != place).collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    }
}

struct Book {
    addresses: Vec<String>,
    state: Mutex<State>,
    turn: AtomicUsize,
    pushing: AtomicBool,
    consuming: AtomicBool,
}

#[derive(Default)]
struct State {
    /// How many of each lane were acknowledged to their producer.
    pushed: BTreeMap<String, u64>,
    /// What consumers got of each lane.
    got: BTreeMap<String, BTreeMap<u64, Vec<Delivery>>>,
    settled: usize,
    forwarded: usize,
    failures: Vec<(usize, String)>,
    /// What must not happen.
    wrong: Vec<String>,
}

#[derive(Clone, Copy)]
struct Delivery {
    asked: Instant,
    /// When it was acknowledged, if that is known.
    acked: Option<Instant>,
    /// Whether it may have been acknowledged.
    settled: bool,
}

impl Load {
    pub fn start(trio: &Trio) -> Self {
        let book = Arc::new(Book {
            addresses: (0..3).map(|place| trio.address(place)).collect(),
            state: Mutex::default(),
            turn: AtomicUsize::new(0),
            pushing: AtomicBool::new(true),
            consuming: AtomicBool::new(true),
        });
        let producers = (0..PRODUCERS).map(|number| {
            let book = book.clone();
            std::thread::spawn(move || book.produce(number))
        });
        let consumers = (0..CONSUMERS).map(|number| {
            let book = book.clone();
            std::thread::spawn(move || book.consume(number))
        });
        let (producers, consumers) = (producers.collect(), consumers.collect());
        let load = Load { book, producers, consumers };
        load.wait_for_more();
        load
    }

    /// Waits until some messages of every queue were consumed from now on.
    pub fn wait_for_more(&self) {
        self.wait_for(60);
    }

    /// Waits until so many more were consumed.
    pub fn wait_for(&self, more: usize) {
        let enough = self.book.lock().settled + more;
        skep_testkit::eventually("messages are consumed", || {
            let state = self.book.lock();
            (state.settled >= enough || !state.wrong.is_empty()).then_some(())
        });
    }

    /// Pushes nothing more, waits until everything was consumed, and looks at what happened.
    pub fn finish(self, trio: &Trio) -> Report {
        self.book.pushing.store(false, Ordering::Relaxed);
        // A push that is under way is acknowledged yet: until then everything that was may have
        // been consumed for a moment, and those who should consume the rest must not go home.
        join(self.producers);
        let pushed = Instant::now();
        while !self.book.is_done() && pushed.elapsed() < REST {
            pause(Duration::from_millis(20));
        }
        // As it is while consumers still ask.
        let lost = self.book.lock().lost();
        let mut told: Vec<String> = lost.iter().map(|one| one.tell(trio)).collect();
        if !told.is_empty() {
            told.push(format!("{:?} after the last push; in the database:", pushed.elapsed()));
            told.push(trio.sessions());
        }
        self.book.consuming.store(false, Ordering::Relaxed);
        join(self.consumers);
        let state = self.book.lock();
        assert!(state.wrong.is_empty(), "{:#?}", state.wrong);
        assert!(told.is_empty(), "acknowledged and never consumed: {}", told.join("\n"));
        Report {
            messages: state.pushed.values().sum::<u64>() as usize,
            forwarded: state.forwarded,
            failures: state.failures.clone(),
        }
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

/// Messages of a lane that were pushed and that nobody has settled.
struct Lost {
    lane: String,
    /// Their numbers, and how often each was handed out.
    messages: Vec<(u64, usize)>,
}

impl Lost {
    /// With what the database has of the lane: whether it is ready, leased, or never had them.
    fn tell(&self, trio: &Trio) -> String {
        let (queue, partition) = self.lane.split_once('/').expect("is a queue and a partition");
        let Lost { lane, messages } = self;
        format!("{lane}, number and times handed out {messages:?}: {}", trio.lane(queue, partition))
    }
}

impl State {
    fn lost(&self) -> Vec<Lost> {
        let mut lost = Vec::new();
        for (lane, count) in &self.pushed {
            let got = self.got.get(lane);
            let settled = |number: &u64| {
                let all = got.and_then(|got| got.get(number)).into_iter().flatten();
                all.clone().any(|one| one.settled)
            };
            let told = |n: u64| (n, got.and_then(|got| got.get(&n)).map_or(0, Vec::len));
            let messages: Vec<_> = (0..*count).filter(|n| !settled(n)).map(told).collect();
            if !messages.is_empty() {
                lost.push(Lost { lane: lane.clone(), messages });
            }
        }
        lost
    }

    fn receive(&mut self, lane: &str, number: u64, asked: Instant) {
        let got = self.got.entry(lane.to_owned()).or_default();
        let first = got.last_key_value().map_or(0, |(last, _)| last + 1);
        let before = got.entry(number).or_default();
        if before.is_empty() && number != first {
            self.wrong.push(format!("{lane}-{number} came where {lane}-{first} is next"));
        }
        for one in before.iter() {
            // It was leased after it was asked for, and handed out again before now.
            let held = one.asked.elapsed();
            if held < LEASE {
                self.wrong.push(format!("{lane}-{number} came twice within {held:?}"));
            }
            if one.acked.is_some_and(|acked| acked < asked) {
                self.wrong.push(format!("{lane}-{number} came again after it was acknowledged"));
            }
        }
        before.push(Delivery { asked, acked: None, settled: false });
    }

    fn settle(&mut self, lane: &str, number: u64, asked: Instant, sure: bool) {
        let all = self.got.get_mut(lane).and_then(|got| got.get_mut(&number));
        let one = all.and_then(|all| all.iter_mut().find(|one| one.asked == asked));
        if let Some(one) = one {
            one.settled = true;
            one.acked = sure.then(Instant::now);
            self.settled += 1;
        }
    }
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    fn is_done(&self) -> bool {
        self.lock().lost().is_empty()
    }

    /// The node that is asked next.
    fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % 3
    }

    /// Sends a request to a node, and writes down what is remarkable about the answer.
    fn ask(&self, place: usize, call: (&str, &str), body: Option<&Value>) -> Option<Answer> {
        let (method, path) = call;
        let wait = if method == "GET" { WAIT } else { Duration::ZERO };
        let url = format!("http://{}{path}", self.addresses[place]);
        let body = body.map(Value::to_string);
        let began = Instant::now();
        let sent = http::send_within(wait + SLACK, method, &url, &[], body.as_deref());
        let took = began.elapsed();
        let mut state = self.lock();
        let answer = match sent {
            Ok(answer) => answer,
            Err(why) => {
                state.failures.push((place, format!("{method} {path}: {why} after {took:?}")));
                return None;
            }
        };
        if answer.status == 503 && answer.body.contains("E_STARTING") {
            // Its port is open before it is ready, for those who ask how it is.
            state.failures.push((place, "refused: it starts".to_owned()));
            return None;
        }
        if !(200..300).contains(&answer.status) {
            let at = NAMES[place];
            state.wrong.push(format!("{path} at {at}: {} {}", answer.status, answer.body));
        }
        let by = answer.header("x-forwarded-by");
        let served = answer.header("x-served-by");
        // At most one hop, so whoever was asked either did it or names the one who did.
        if by.is_empty() && served != NAMES[place] {
            state.wrong.push(format!("{path} at {}: served by {served:?}", NAMES[place]));
        }
        if !by.is_empty() {
            state.forwarded += 1;
            if by != NAMES[place] || served == by || !NAMES.contains(&served) {
                state.wrong.push(format!("{path}: forwarded by {by:?}, served by {served:?}"));
            }
        }
        Some(answer)
    }

    /// Asks one node after the other until one answers; how often it took.
    fn insist(&self, path: &str, body: &Value) -> Option<(Answer, usize)> {
        for tries in 1..60 {
            if let Some(answer) = self.ask(self.next(), ("POST", path), Some(body)) {
                return Some((answer, tries));
            }
            pause(Duration::from_millis(20));
        }
        self.lock().wrong.push(format!("nobody answers {path}"));
        None
    }

    /// Pushes to lanes of its own, one message after the other.
    fn produce(&self, number: usize) {
        let lanes: Vec<(String, String)> = (0..QUEUES * PARTITIONS)
            .filter(|lane| lane % PRODUCERS == number)
            .map(|lane| (queue(lane % QUEUES), format!("p{}", lane / QUEUES)))
            .collect();
        for round in 0.. {
            for (queue, partition) in &lanes {
                if !self.pushing.load(Ordering::Relaxed) {
                    return;
                }
                let lane = format!("{queue}/{partition}");
                let numbers = [2 * round, 2 * round + 1];
                let items = numbers.map(|n: u64| {
                    json!({ "queue": queue, "partition": partition, "payload": n,
                            "transactionId": format!("{lane}-{n}") })
                });
                let Some((answer, _)) = self.insist("/api/v1/push", &json!({ "items": items }))
                else {
                    return;
                };
                let said = answer.json();
                let mut state = self.lock();
                let is_there =
                    |one: &Value| one["status"] == "queued" || one["status"] == "duplicate";
                if !said.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(is_there)) {
                    state.wrong.push(format!("{lane}-{}: {said}", numbers[0]));
                }
                state.pushed.insert(lane, 2 * round + 2);
                drop(state);
                pause(Duration::from_millis(15));
            }
        }
    }

    fn consume(&self, number: usize) {
        let mut turn = number;
        while self.consuming.load(Ordering::Relaxed) {
            turn += 1;
            let path = format!(
                "/api/v1/pop/queue/{}?batch=6&partitions=2&wait=true&timeout={}&leaseSeconds={}\
                 &consumerGroup={GROUP}&subscriptionMode=all",
                queue(turn % QUEUES),
                WAIT.as_millis(),
                LEASE.as_secs()
            );
            let asked = Instant::now();
            match self.ask(self.next(), ("GET", &path), None) {
                Some(answer) if answer.status == 200 => self.work_on(&answer.json(), asked),
                Some(_) => {}
                None => pause(Duration::from_millis(20)),
            }
        }
    }

    fn work_on(&self, popped: &Value, asked: Instant) {
        let Some(messages) = popped["messages"].as_array() else { return };
        let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let named = |one: &Value| {
            let lane = format!("{}/{}", text(one, "queue"), text(one, "partition"));
            (lane, one["data"].as_u64().unwrap_or(u64::MAX))
        };
        {
            let mut state = self.lock();
            for (lane, number) in messages.iter().map(named) {
                state.receive(&lane, number, asked);
            }
        }
        let words: Vec<Value> = messages
            .iter()
            .map(|one| {
                json!({ "transactionId": one["transactionId"], "partitionId": one["partitionId"],
                        "leaseId": one["leaseId"], "status": "completed" })
            })
            .collect();
        let body = json!({ "consumerGroup": GROUP, "acknowledgments": words });
        let Some((answer, tries)) = self.insist("/api/v1/ack/batch", &body) else { return };
        let said = answer.json();
        let mut state = self.lock();
        for (place, (lane, number)) in messages.iter().map(named).enumerate() {
            let done = said[place]["success"] == true;
            // One whose first answer was lost may have been done then.
            if done || tries > 1 {
                state.settle(&lane, number, asked, done);
            }
        }
    }
}
