//! What holds whatever happens: a machine in a world that answers, crashes, forgets and stays
//! silent as it likes.

use super::*;
use crate::wire::{Ordered, Registered};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A world around a machine. It plays by the rules that processes and requests have (a program is
/// gone once, an answer comes once), and by no others.
struct World {
    machine: Machine,
    successor: bool,
    now: Time,
    /// Programs that run, and whether they were told to stop.
    running: BTreeMap<StartId, bool>,
    ready: BTreeSet<StartId>,
    ever: BTreeSet<StartId>,
    call: Option<(u64, Request)>,
    ended: Option<Outcome>,
    /// Whether anything happened that is a reason to stop a program.
    may_stop: bool,
}

impl World {
    fn new(successor: bool, seed: u64) -> Self {
        let rules = Rules {
            heartbeat_interval: Duration::from_secs(5),
            drain_limit: Duration::from_secs(30),
            memory_max: Some(1_000),
            memory_grace: Duration::from_secs(1),
            age_max: Some(Duration::from_secs(100)),
            successor,
        };
        let mut world = World {
            machine: Machine::new(rules, seed, Time::ZERO),
            successor,
            now: Time::ZERO,
            running: BTreeMap::new(),
            ready: BTreeSet::new(),
            ever: BTreeSet::new(),
            call: None,
            ended: None,
            may_stop: false,
        };
        world.perform();
        world
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(effect) = self.machine.effect() {
            assert_eq!(self.ended, None, "{effect:?} after the end");
            match effect {
                Effect::Start(start) => {
                    assert!(self.ever.insert(start.clone()), "a start has an id of its own");
                    self.running.insert(start, false);
                    let most = if self.successor { 2 } else { 1 };
                    assert!(self.running.len() <= most, "{:?}", self.running);
                }
                Effect::StopProgram(start) => {
                    assert!(self.may_stop, "nobody wanted {start} stopped");
                    let told = self.running.get_mut(&start).expect("only what runs is stopped");
                    assert!(!std::mem::replace(told, true), "told to stop twice");
                }
                Effect::Call { call, request } => {
                    if let Request::Register(register) = &request {
                        assert!(self.ready.contains(&register.start), "registered before ready");
                    }
                    self.call = Some((call, request));
                }
                Effect::Tell(news) => assert!(!news.to_string().is_empty()),
                Effect::End(outcome) => {
                    assert!(self.running.is_empty(), "left behind: {:?}", self.running);
                    self.ended = Some(outcome);
                }
            }
        }
        // Something must be able to happen without anybody from outside.
        let alive = self.call.is_some() || self.machine.wake_at().is_some();
        let busy = !self.running.is_empty();
        assert!(self.ended.is_some() || alive || busy, "nothing will ever happen again");
    }

    fn some_program(&self, which: u8) -> Option<StartId> {
        let count = self.running.len();
        (count > 0).then(|| self.running.keys().nth(usize::from(which) % count).cloned())?
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ready(which) => {
                let fresh = self.some_program(*which).filter(|start| !self.ready.contains(start));
                if let Some(start) = fresh {
                    self.ready.insert(start.clone());
                    self.tell(Event::Ready { start, url: "ws://h:1/".to_owned() });
                }
            }
            Step::Gone(which) => {
                if let Some(start) = self.some_program(*which) {
                    self.running.remove(&start);
                    self.tell(Event::Gone { start, how: "gone".to_owned() });
                }
            }
            Step::Measured(which, rss_bytes) => {
                if let Some(start) = self.some_program(*which) {
                    let load = Load { rss_bytes: *rss_bytes, cpu_percent: 0.0 };
                    self.tell(Event::Measured { start, load });
                }
            }
            Step::Answer(kind) => self.answer(*kind),
            Step::Stale(call) => {
                let answer = Err(Failure::Replaced("stale".to_owned()));
                if self.call.as_ref().is_none_or(|(current, _)| current != call) {
                    self.tell(Event::Answered { call: *call, answer });
                }
            }
            Step::Stop => {
                self.may_stop = true;
                self.tell(Event::Stop);
            }
            Step::Pass(millis) => {
                self.now = self.now + Duration::from_millis(*millis);
                self.tell(Event::Wake);
            }
        }
    }

    fn answer(&mut self, kind: u8) {
        let Some((call, request)) = self.call.take() else { return };
        let order = match kind % 12 {
            0..=4 => Order::Serve,
            5 => Order::Restart,
            6 => Order::Succeed,
            7 => Order::StopOld,
            8 if kind > 200 => Order::Leave,
            8 => Order::Restart,
            9 => return self.fail(call, Failure::Forgotten("404".to_owned())),
            10 => return self.fail(call, Failure::Failed("lost".to_owned())),
            _ if kind > 240 => return self.fail(call, Failure::Replaced("409".to_owned())),
            _ => return self.fail(call, Failure::Denied("403".to_owned())),
        };
        let reply = match request {
            Request::Register(_) => Reply::Registered(Registered {
                worker: "w".to_owned(),
                incarnation: call,
                heartbeat_ms: 1_000,
                lifetime_max: None,
                slots: 1,
            }),
            Request::Heartbeat(_) => {
                self.may_stop |= order != Order::Serve;
                let active = u64::from(kind % 2);
                Reply::Ordered(Ordered { order, lifetime: 1, active, leaving: active })
            }
            Request::Drain | Request::Delete => Reply::Done,
        };
        self.tell(Event::Answered { call, answer: Ok(reply) });
    }

    fn fail(&mut self, call: u64, failure: Failure) {
        self.may_stop |= matches!(failure, Failure::Replaced(_));
        self.tell(Event::Answered { call, answer: Err(failure) });
    }

    /// Stops, and lets everything happen that happens by itself.
    fn come_to_an_end(&mut self) {
        self.step(&Step::Stop);
        self.step(&Step::Stop);
        for _ in 0..1_000 {
            if self.ended.is_some() {
                return;
            }
            if let Some(start) = self.some_program(0).filter(|start| self.running[start]) {
                self.running.remove(&start);
                self.tell(Event::Gone { start, how: "stopped".to_owned() });
            } else if let Some(at) = self.machine.wake_at() {
                self.now = self.now.max(at);
                self.tell(Event::Wake);
            }
        }
        panic!("it did not end");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ready(u8),
    Gone(u8),
    Measured(u8, u64),
    Answer(u8),
    Stale(u64),
    Stop,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<u8>().prop_map(Step::Ready),
        3 => any::<u8>().prop_map(Step::Gone),
        1 => (any::<u8>(), 0_u64..2_000).prop_map(|(which, rss)| Step::Measured(which, rss)),
        12 => any::<u8>().prop_map(Step::Answer),
        1 => (0_u64..50).prop_map(Step::Stale),
        4 => (0_u64..40_000).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_happens_programs_are_few_and_the_end_is_clean(
        successor: bool,
        seed: u64,
        before in prop::collection::vec(step(), 0..120),
        after in prop::collection::vec(step(), 0..20),
    ) {
        let mut world = World::new(successor, seed);
        before.iter().for_each(|step| world.step(step));
        world.step(&Step::Stop);
        after.iter().for_each(|step| world.step(step));
        world.come_to_an_end();
    }

    #[test]
    fn a_heartbeat_is_never_far_away_while_a_node_answers(
        seed: u64,
        before in prop::collection::vec(step(), 0..80),
    ) {
        let mut world = World::new(true, seed);
        before.iter().for_each(|step| world.step(step));
        // From now on every program is ready at once and every answer is "serve".
        for _ in 0..50 {
            (0..2).for_each(|which| world.step(&Step::Ready(which)));
            let stopped: Vec<StartId> = world
                .running
                .iter()
                .filter(|(_, told)| **told)
                .map(|(start, _)| start.clone())
                .collect();
            for start in stopped {
                world.running.remove(&start);
                world.tell(Event::Gone { start, how: "stopped".to_owned() });
            }
            world.step(&Step::Answer(0));
            world.step(&Step::Pass(31_000));
        }
        if world.ended.is_none() {
            let (_, request) = world.call.expect("something is being said");
            let Request::Heartbeat(heartbeat) = request else { panic!("{request:?}") };
            prop_assert_eq!(heartbeat.phase, Phase::Serving);
        }
    }
}
