//! What holds whatever happens in whatever order.

use super::super::records::State;
use super::super::*;
use crate::sessions::{
    Budget, Candidate, Carried, Close, DueBy, Heartbeat, Order, Phase, Policy, Register, Rules,
    Shape, Version, Want, WorkerRow, scan,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Checkout { gateway: u64, want: u8, key: u8, wait: bool },
    Close { pick: usize, how: Close },
    Beat { gateway: u64 },
    Rejoin { gateway: u64, forget: bool },
    Leave { gateway: u64 },
    Register { worker: u8, new_life: bool, recycled: bool, slots: Option<u32> },
    Heartbeat { worker: u8, phase: Phase, due: Option<DueBy>, old_gone: bool },
    Obey { worker: u8 },
    Remove { worker: u8, by_worker: bool },
    Drain { worker: u8, drained: bool },
    End { pick: usize },
    Probed { worker: u8, good: bool },
    Wait { millis: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let how =
        prop_oneof![8 => Just(Close::Ended), 1 => Just(Close::Unused), 1 => Just(Close::Failed)];
    let phase = prop_oneof![
        8 => Just(Phase::Serving),
        1 => Just(Phase::Restarting),
        1 => Just(Phase::Down),
    ];
    let due = prop_oneof![9 => Just(None), 1 => Just(Some(DueBy::Memory))];
    prop_oneof![
        12 => (1..4_u64, 0..4_u8, 0..3_u8, any::<bool>())
            .prop_map(|(gateway, want, key, wait)| Event::Checkout { gateway, want, key, wait }),
        10 => (any::<usize>(), how).prop_map(|(pick, how)| Event::Close { pick, how }),
        6 => (1..4_u64).prop_map(|gateway| Event::Beat { gateway }),
        1 => (1..4_u64, any::<bool>())
            .prop_map(|(gateway, forget)| Event::Rejoin { gateway, forget }),
        1 => (1..4_u64).prop_map(|gateway| Event::Leave { gateway }),
        3 => (0..6_u8, any::<bool>(), any::<bool>(), prop::option::of(1..4_u32)).prop_map(
            |(worker, new_life, recycled, slots)| {
                Event::Register { worker, new_life, recycled, slots }
            }
        ),
        4 => (0..6_u8, phase, due, any::<bool>()).prop_map(
            |(worker, phase, due, old_gone)| Event::Heartbeat { worker, phase, due, old_gone }
        ),
        6 => (0..6_u8).prop_map(|worker| Event::Obey { worker }),
        1 => (0..6_u8, any::<bool>())
            .prop_map(|(worker, by_worker)| Event::Remove { worker, by_worker }),
        1 => (0..6_u8, any::<bool>())
            .prop_map(|(worker, drained)| Event::Drain { worker, drained }),
        1 => any::<usize>().prop_map(|pick| Event::End { pick }),
        2 => (0..6_u8, any::<bool>()).prop_map(|(worker, good)| Event::Probed { worker, good }),
        4 => prop_oneof![0..2_000_u64, 5_000..70_000_u64].prop_map(|millis| Event::Wait { millis }),
    ]
}

/// Wants that some workers fit.
fn want(number: u8) -> Want {
    let labels = |of: &[&str]| of.iter().map(|&label| label.to_owned()).collect();
    match number {
        0 | 1 => Want::default(),
        2 => Want { labels: labels(&["eu"]), version: None },
        _ => Want { labels: labels(&[]), version: Version::parse("1.62") },
    }
}

fn shape(worker: u8) -> Shape {
    match worker % 3 {
        0 => Shape::default(),
        1 => Shape { labels: ["eu".to_owned()].into(), version: Version::parse("1.62") },
        _ => Shape { labels: ["eu".to_owned()].into(), version: Version::parse("1.65") },
    }
}

struct Random {
    fleet: Fleet,
    rules: Rules,
    now: u64,
    tickets: u64,
    starts: [u32; 6],
    links: [u64; 4],
}

impl Random {
    fn new(rules: Rules) -> Self {
        let mut fleet = Fleet::new();
        let configure = Ask::Configure { kind: "k".into(), rules: rules.clone() };
        fleet.apply(0, &configure);
        let world =
            Random { fleet, rules, now: 1_000_000, tickets: 0, starts: [0; 6], links: [0; 4] };
        (1..4).fold(world, |mut world, gateway| {
            world.rejoin(gateway, true);
            world
        })
    }

    fn rows(&self) -> Vec<WorkerRow> {
        match self.fleet.look_workers(1, 100) {
            Answer::Workers { workers } => workers,
            other => panic!("{other:?}"),
        }
    }

    fn session(&self, pick: usize) -> Option<(u64, u64)> {
        let ids: Vec<_> = self.fleet.sessions.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[pick % ids.len()])
    }

    fn rejoin(&mut self, gateway: u64, forget: bool) {
        let index = usize::try_from(gateway).expect("small");
        self.links[index] += 1;
        let (mut carried, mut waiting) = (Vec::new(), Vec::new());
        for (&(of, ticket), session) in &self.fleet.sessions {
            if of != gateway || forget {
                continue;
            }
            match session.state {
                State::Waiting { .. } => waiting.push(ticket),
                State::Seated { worker, .. } => {
                    let row = self.fleet.worker(worker).expect("is kept");
                    let (worker, start) = (row.name.clone(), row.start.clone());
                    carried.push(Carried { ticket, key: session.key.clone(), worker, start });
                }
            }
        }
        let (link, node) = (self.links[index], "n".into());
        self.apply(&Ask::Join { gateway, link, node, ttl_ms: 15_000, carried, waiting });
    }

    fn apply(&mut self, ask: &Ask) -> Answer {
        let reply = self.fleet.apply(self.now, ask);
        if let Err(wrong) = self.fleet.check() {
            panic!("after {ask:?}: {wrong}");
        }
        reply.answer
    }

    fn worker_name(worker: u8) -> String {
        format!("w{worker}")
    }

    fn find(&self, worker: u8) -> Option<WorkerRow> {
        self.rows().into_iter().find(|row| *row.name == Self::worker_name(worker))
    }

    fn register(&mut self, worker: u8, recycled: bool, slots: Option<u32>) {
        let start = self.starts[usize::from(worker)];
        self.apply(&Ask::Register(Register {
            name: Self::worker_name(worker).into(),
            kind: "k".into(),
            url: "ws://x/".into(),
            slots,
            shape: shape(worker),
            start: start.to_string().into(),
            lifetime: 0,
            recycled,
            successor: worker == 5,
        }));
    }

    /// One event, and everything that must be true of its answer.
    fn take(&mut self, event: &Event) {
        match *event {
            Event::Checkout { gateway, want: number, key, wait } => {
                self.tickets += 1;
                let want = want(number);
                let before = self.rows();
                let link = self.links[usize::try_from(gateway).expect("small")];
                let answer = self.apply(&Ask::Checkout(Checkout {
                    gateway,
                    link,
                    ticket: self.tickets,
                    kind: "k".into(),
                    want: want.clone(),
                    key: format!("key-{key}").into(),
                    key_max: 0,
                    avoid: None,
                    wait,
                }));
                self.judge(&want, &before, &answer);
            }
            Event::Close { pick, how } => {
                let Some((gateway, ticket)) = self.session(pick) else { return };
                let link = self.links[usize::try_from(gateway).expect("small")];
                self.apply(&Ask::Close { gateway, link, ticket, how });
            }
            Event::Beat { gateway } => {
                let link = self.links[usize::try_from(gateway).expect("small")];
                self.apply(&Ask::Beat { gateway, link });
            }
            Event::Rejoin { gateway, forget } => self.rejoin(gateway, forget),
            Event::Leave { gateway } => {
                let link = self.links[usize::try_from(gateway).expect("small")];
                self.apply(&Ask::Leave { gateway, link });
            }
            Event::Register { worker, new_life, recycled, slots } => {
                self.starts[usize::from(worker)] += u32::from(new_life);
                self.register(worker, recycled, slots);
            }
            Event::Heartbeat { worker, phase, due, old_gone } => {
                let Some(row) = self.find(worker) else { return };
                self.apply(&Ask::Heartbeat(Heartbeat {
                    name: row.name.to_string(),
                    incarnation: row.incarnation,
                    phase,
                    due,
                    lifetime: 0,
                    old_gone,
                }));
            }
            Event::Obey { worker } => {
                let Some(row) = self.find(worker) else { return };
                let order = self.fleet.worker(row.number).map(|found| found.order);
                if matches!(order, Some(Order::Restart | Order::Succeed)) {
                    self.starts[usize::from(worker)] += 1;
                    self.register(worker, true, None);
                }
            }
            Event::Remove { worker, by_worker } => {
                self.apply(&Ask::Remove { name: Self::worker_name(worker), by_worker });
            }
            Event::Drain { worker, drained } => {
                self.apply(&Ask::Drain { name: Self::worker_name(worker), drained });
            }
            Event::End { pick } => {
                let Some((gateway, ticket)) = self.session(pick) else { return };
                self.apply(&Ask::End { gateway, ticket });
            }
            Event::Probed { worker, good } => {
                let Some(row) = self.find(worker) else { return };
                let (worker, incarnation) = (row.number, row.incarnation);
                self.apply(&Ask::Probed { worker, incarnation, good });
            }
            Event::Wait { millis } => self.now += millis,
        }
    }

    /// The plain scan over what was there must agree with what the table did.
    fn judge(&self, want: &Want, before: &[WorkerRow], answer: &Answer) {
        let fresh =
            |row: &&WorkerRow| self.now.saturating_sub(row.heard_ms) <= self.rules.heartbeat_ms;
        let candidates: Vec<_> = before.iter().filter(fresh).map(Candidate::from).collect();
        let chosen = scan(&self.rules, want, &candidates).chosen;
        match answer {
            Answer::Seated(seat) => {
                assert_eq!(Some(seat.worker), chosen);
                assert!(seat.active <= seat.slots, "{seat:?}");
                let limit = self.rules.lifetime_max;
                assert!(limit == 0 || seat.lifetime <= limit, "{seat:?}");
            }
            Answer::Waiting { .. } | Answer::Refused(_) => {
                let lost = before.iter().any(|row| !fresh(&row));
                assert!(chosen.is_none() || lost, "{answer:?} while {chosen:?} is free");
            }
            Answer::Unknown => {}
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_count_is_right_and_every_choice_is_the_plain_one(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        lifetime_max in prop_oneof![Just(0_u32), 1..12_u32],
        slots in 1..4_u32,
        budget in 1..3_u32,
        events in prop::collection::vec(event(), 1..150),
    ) {
        let budget = Budget::Count(budget);
        let rules = Rules {
            policy, slots, lifetime_max, budget,
            drain_max_ms: 20_000, restart_max_ms: 30_000, waiting_max: 5,
            ..Rules::default()
        };
        let mut world = Random::new(rules.clone());
        for event in &events {
            world.take(event);
            let Answer::Kinds { kinds } = world.fleet.look_kinds() else { panic!() };
            if policy == Policy::Budgeted {
                prop_assert!(kinds[0].out <= budget.of(6), "{} out", kinds[0].out);
            }
        }
    }
}
