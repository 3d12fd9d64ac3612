//! The same requests, the same answers: each store against the table that describes them all.

use crate::common::Fixture;
use skep_policy::ownership::{
    Answer, Ask, Caller, Epoch, Key, Reply, Request, Seen, Status, Ticked, Token,
};
use skep_policy::{Chance, SeededChance};
use skep_testkit::PATIENCE;
use std::collections::BTreeMap;

/// So few that keys are pushed out all the time.
const TOMBSTONES_MAX: usize = 3;

/// A number that no clock of seconds comes to.
const FAR_AHEAD: u64 = 1 << 40;

const NAMES: [&str; 4] = ["ant", "bee", "cicada|1", "grüne Biene"];

#[tokio::test]
async fn redis_answers_every_request_as_the_table_does() {
    let requests = if is_long() { 1_000_000 } else { 20_000 };
    compare(Fixture::redis(TOMBSTONES_MAX), requests).await;
}

#[tokio::test]
async fn postgres_answers_every_request_as_the_table_does() {
    let requests = if is_long() { 200_000 } else { 3_000 };
    compare(Fixture::postgres(TOMBSTONES_MAX).await, requests).await;
}

/// `SKEP_TEST_LONG=1` asks for the long run; `SKEP_TEST_SEED` repeats one.
fn is_long() -> bool {
    std::env::var_os("SKEP_TEST_LONG").is_some()
}

async fn compare(store: Fixture, requests: u32) {
    let given = std::env::var("SKEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
    println!("SKEP_TEST_SEED={seed}");
    let table = Fixture::memory(TOMBSTONES_MAX);
    let mut crowd = Crowd::new(seed);
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    let mut changed_rows = 0;
    for number in 0..requests {
        if crowd.one_in(2_000) {
            table.start_anew().await;
            store.start_anew().await;
        }
        let request = crowd.request();
        let expected = table.store.ask(&request, PATIENCE).await.expect("answers");
        let mut found = match store.store.ask(&request, PATIENCE).await {
            Ok(reply) => reply,
            Err(error) => panic!("seed {seed}, request {number}: {error}\n{request:#?}"),
        };
        found.clock_ms = expected.clock_ms;
        assert_eq!(found, expected, "seed {seed}, request {number}: {request:#?}");
        *kinds.entry(kind(&expected.answer)).or_default() += 1;
        if let (Answer::Rows(rows), Some(caller)) = (&expected.answer, caller_of(&request.ask)) {
            changed_rows += rows.iter().filter(|row| row.session == caller.session).count();
        }
        crowd.learn(&request, &expected);
    }
    println!("{requests} requests: {kinds:?}, {changed_rows} rows with the caller as owner");
    // A sequence that is refused all the time would prove nothing.
    for kind in ["joined", "held", "ticked", "full", "rows", "stale", "no session", "other epoch"] {
        assert!(kinds.contains_key(kind), "seed {seed}: nothing was ever {kind}: {kinds:?}");
    }
    assert!(kinds["rows"] > requests / 5, "seed {seed}: {kinds:?}");
}

fn kind(answer: &Answer) -> &'static str {
    match answer {
        Answer::OtherEpoch => "other epoch",
        Answer::NoSession => "no session",
        Answer::Stale => "stale",
        Answer::Joined { .. } => "joined",
        Answer::NameHeld { .. } => "held",
        Answer::Ticked(Ticked { full: true, .. }) => "full",
        Answer::Ticked(_) => "ticked",
        Answer::Rows(_) => "rows",
        Answer::Expired(true) => "expired",
        Answer::Expired(false) => "not expired",
        Answer::Done => "done",
    }
}

fn caller_of(ask: &Ask) -> Option<&Caller> {
    match ask {
        Ask::Claim(caller, _)
        | Ask::Reclaim(caller, _)
        | Ask::Handoff(caller, _)
        | Ask::Release(caller, _)
        | Ask::Forget(caller, _)
        | Ask::EndGrace(caller)
        | Ask::Bye(caller) => Some(caller),
        Ask::Join { .. } | Ask::Tick { .. } | Ask::Expire { .. } => None,
    }
}

/// Four nodes that mostly do what nodes do, and now and then what they must not.
struct Crowd {
    chance: SeededChance,
    epoch: Epoch,
    epochs: Vec<Epoch>,
    /// The highest number told in this epoch.
    counter: u64,
    /// The last floor told.
    floor: u64,
    settled: bool,
    /// What each node was told: sessions with their numbers, the newest last.
    told: [Vec<(u64, u64)>; NAMES.len()],
}

impl Crowd {
    fn new(seed: u64) -> Self {
        Crowd {
            chance: SeededChance::new(seed),
            epoch: Epoch::default(),
            epochs: vec![Epoch::default()],
            counter: 0,
            floor: 0,
            settled: false,
            told: Default::default(),
        }
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.chance.up_to(many - 1) == 0
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.chance.up_to(list.len() as u64 - 1) as usize].clone()
    }

    fn request(&mut self) -> Request {
        let mut epoch = self.epoch;
        if self.one_in(40) {
            let epochs = self.epochs.clone();
            epoch = self.pick(&epochs);
        } else if self.one_in(500) {
            epoch.tag ^= 1 << self.chance.up_to(63);
        } else if self.one_in(200) {
            // A requester that remembers only the number.
            epoch.tag = 0;
        } else if self.one_in(500) {
            epoch.number += self.chance.up_to(2);
            epoch.tag = self.chance.bits();
        }
        let counter = match self.chance.up_to(3_000) {
            0..8 => self.counter + self.chance.up_to(20),
            // Up to where a number with a point in it is not exact any more, and a little room.
            8 => self.counter.max(1 << (30 + self.chance.up_to(22))),
            _ => self.chance.up_to(self.counter),
        };
        let seen = Seen { epoch, counter };
        // Beyond what the clocks of the stores say, which is not the same for all of them.
        let ahead = self.epoch.number.max(FAR_AHEAD) + self.chance.up_to(3);
        let least = if self.one_in(3) { ahead } else { 0 };
        Request { seen, nonce: self.chance.bits(), least, ask: self.ask() }
    }

    fn ask(&mut self) -> Ask {
        let who = self.chance.up_to(NAMES.len() as u64 - 1) as usize;
        let caller = self.caller(who);
        if self.told[who].is_empty() || self.one_in(20) {
            let instance = if self.one_in(5) { "other|" } else { "first|ü" };
            let (weight, status, info) = self.of_itself();
            return Ask::Join {
                name: NAMES[who].into(),
                instance: instance.into(),
                weight,
                status,
                info,
            };
        }
        if !self.settled && self.one_in(10) {
            return Ask::EndGrace(caller);
        }
        let count = self.chance.up_to(7) as usize;
        let keys: Vec<Key> = (0..count).map(|_| self.key()).collect();
        match self.chance.up_to(99) {
            0..25 => {
                let (weight, status, info) = self.of_itself();
                let (since, floor) = (self.some_counter(), self.some_floor());
                let Caller { name, session, .. } = caller;
                Ask::Tick { name, session, weight, status, info, since, floor }
            }
            25..48 => Ask::Claim(caller, keys),
            48..60 => {
                let held = |key| {
                    let epoch = (self.epoch.number + 1).saturating_sub(self.chance.up_to(3));
                    (key, Token { epoch, counter: self.chance.bits() }, self.due())
                };
                Ask::Reclaim(caller, keys.into_iter().map(held).collect())
            }
            60..74 => {
                let moves = |key| (key, self.target(), self.due());
                Ask::Handoff(caller, keys.into_iter().map(moves).collect())
            }
            74..84 => {
                let released = |key| (key, self.due());
                Ask::Release(caller, keys.into_iter().map(released).collect())
            }
            84..92 => Ask::Forget(caller, keys),
            92..97 => {
                // Mostly a number from before, which must save the node.
                let from_before = self.one_in(2);
                let told = &self.told[who];
                let (session, seq) = told[if from_before { 0 } else { told.len() - 1 }];
                Ask::Expire { session, seq }
            }
            97 => Ask::Bye(caller),
            _ => Ask::EndGrace(caller),
        }
    }

    fn caller(&mut self, who: usize) -> Caller {
        let name = NAMES[who].into();
        let told = self.told[who].clone();
        let (mut session, mut seq) = told.last().copied().unwrap_or_default();
        match self.chance.up_to(60) {
            0 => session = self.target(),
            1 => seq = self.chance.bits(),
            2 | 3 if !told.is_empty() => (session, seq) = self.pick(&told),
            _ => {}
        }
        Caller { name, session, seq }
    }

    fn of_itself(&mut self) -> (u32, Status, std::sync::Arc<str>) {
        let weight = if self.one_in(9) { self.chance.bits() as u32 } else { 1 };
        let status = match self.chance.up_to(9) {
            0 => Status::Observing,
            1 => Status::Draining,
            _ => Status::Online,
        };
        (weight, status, self.pick(&["", "|", "{\"zone\":\"ä\"}", "'\"\\\n"]).into())
    }

    fn key(&mut self) -> Key {
        match self.chance.up_to(11) {
            0 => "".into(),
            1 => "poll/ü|'\"\\".into(),
            number => format!("poll/{number}").into(),
        }
    }

    /// Mostly a session that is or was.
    fn target(&mut self) -> u64 {
        let who = self.chance.up_to(NAMES.len() as u64 - 1) as usize;
        match self.chance.up_to(15) {
            0 => 0,
            1 => self.chance.bits(),
            _ => self.told[who].last().map_or(1, |(session, _)| *session),
        }
    }

    fn due(&mut self) -> i64 {
        let some = self.chance.bits() as i64;
        self.pick(&[0, 1, -1, i64::MIN, i64::MAX, some])
    }

    fn some_counter(&mut self) -> u64 {
        match self.chance.up_to(4) {
            0 => 0,
            1 => self.counter,
            2 => self.chance.up_to(self.counter + 10),
            _ => self.counter.saturating_sub(self.chance.up_to(30)),
        }
    }

    fn some_floor(&mut self) -> u64 {
        if self.one_in(3) { self.some_counter() } else { self.floor }
    }

    /// Takes note of what the node that asked was told.
    fn learn(&mut self, request: &Request, reply: &Reply) {
        if reply.epoch != self.epoch {
            self.epoch = reply.epoch;
            self.epochs.push(reply.epoch);
            if self.epochs.len() > 8 {
                self.epochs.remove(0);
            }
            self.told = Default::default();
            self.counter = self.counter.max(request.seen.counter);
        }
        self.settled = reply.settled;
        let (name, session, seq) = match (&request.ask, &reply.answer) {
            (Ask::Join { name, .. }, Answer::Joined { session, seq }) => (name, *session, *seq),
            (Ask::Tick { name, session, .. }, Answer::Ticked(Ticked { seq, upto, floor, .. })) => {
                self.counter = self.counter.max(*upto);
                self.floor = *floor;
                (name, *session, *seq)
            }
            (Ask::Bye(caller), Answer::Done) => return self.forget(&caller.name),
            _ => return,
        };
        self.counter = self.counter.max(seq);
        let who = NAMES.iter().position(|one| **one == **name).expect("is one of them");
        // One renewal in thirty is never heard of, as if its answer had been lost.
        if !self.told[who].is_empty() && self.one_in(30) {
            return;
        }
        self.told[who].push((session, seq));
        if self.told[who].len() > 5 {
            self.told[who].remove(0);
        }
    }

    fn forget(&mut self, name: &str) {
        let who = NAMES.iter().position(|one| *one == name).expect("is one of them");
        self.told[who].clear();
    }
}
