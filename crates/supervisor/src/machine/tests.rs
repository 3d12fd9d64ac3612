//! Each path of the machine by hand.

mod stopping;

use super::*;
use crate::wire::{Ordered, Registered};

/// A machine, its clock, and what it wanted done since the last look.
struct Desk {
    machine: Machine,
    now: Time,
}

fn rules() -> Rules {
    Rules {
        heartbeat_interval: Duration::from_secs(5),
        drain_limit: Duration::from_secs(300),
        memory_max: None,
        memory_grace: Duration::from_secs(30),
        age_max: None,
        successor: false,
    }
}

fn failed<T>() -> Result<T, Failure> {
    Err(Failure::Failed("no node answers".to_owned()))
}

fn ordered(order: Order) -> Ordered {
    Ordered { order, lifetime: 3, active: 1, leaving: 0 }
}

impl Desk {
    fn new(rules: Rules) -> Self {
        Desk { machine: Machine::new(rules, 7, Time::ZERO), now: Time::ZERO }
    }

    /// A desk with a program that is up and registered with incarnation 1.
    fn serving(rules: Rules) -> (Self, StartId) {
        let mut desk = Desk::new(rules);
        let start = desk.start_of_program();
        desk.ready(&start);
        desk.register(1);
        assert_eq!(desk.heartbeat().phase, Phase::Serving);
        (desk, start)
    }

    fn successors() -> Rules {
        Rules { successor: true, ..rules() }
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.now);
    }

    fn effects(&mut self) -> Vec<Effect> {
        let all = std::iter::from_fn(|| self.machine.effect());
        all.filter(|effect| !matches!(effect, Effect::Tell(_))).collect()
    }

    /// The only effect.
    fn only(&mut self) -> Effect {
        let mut effects = self.effects();
        assert_eq!(effects.len(), 1, "{effects:?}");
        effects.remove(0)
    }

    /// Lets time pass to the next wake.
    fn wake(&mut self) {
        self.now = self.now.max(self.machine.wake_at().expect("wants to be woken"));
        self.tell(Event::Wake);
    }

    fn start_of_program(&mut self) -> StartId {
        match self.only() {
            Effect::Start(start) => start,
            other => panic!("{other:?}"),
        }
    }

    fn ready(&mut self, start: &StartId) {
        let url = format!("ws://127.0.0.1:1/{start}");
        self.tell(Event::Ready { start: start.clone(), url });
    }

    fn gone(&mut self, start: &StartId) {
        self.tell(Event::Gone { start: start.clone(), how: "exit status: 1".to_owned() });
    }

    fn call(&mut self) -> (u64, Request) {
        match self.only() {
            Effect::Call { call, request } => (call, request),
            other => panic!("{other:?}"),
        }
    }

    /// The only effect, a heartbeat; it stays on its way.
    fn heartbeat(&mut self) -> Heartbeat {
        match self.call() {
            (_, Request::Heartbeat(heartbeat)) => heartbeat,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, call: u64, answer: Result<Reply, Failure>) {
        self.tell(Event::Answered { call, answer });
    }

    /// Answers the request on its way.
    fn reply(&mut self, answer: Result<Reply, Failure>) {
        self.answer(self.machine.talk.last_call(), answer);
    }

    /// Expects a registration and agrees to it.
    fn register(&mut self, incarnation: u64) -> Register {
        let (call, request) = self.call();
        let Request::Register(register) = request else { panic!("{request:?}") };
        self.agree(call, incarnation);
        register
    }

    fn agree(&mut self, call: u64, incarnation: u64) {
        let reply = Registered {
            worker: "w7".to_owned(),
            incarnation,
            heartbeat_ms: 5_000,
            lifetime_max: Some(50),
            slots: 5,
        };
        self.answer(call, Ok(Reply::Registered(reply)));
    }

    fn order(&mut self, order: Order) {
        self.reply(Ok(Reply::Ordered(ordered(order))));
    }
}

#[test]
fn a_program_is_registered_when_it_is_ready_and_then_spoken_of() {
    let mut desk = Desk::new(rules());
    let start = desk.start_of_program();
    desk.ready(&start);
    let register = desk.register(12);
    assert_eq!((&register.start, register.lifetime, register.recycled), (&start, 0, false));
    let heartbeat = desk.heartbeat();
    assert_eq!((heartbeat.incarnation, heartbeat.wait_ms), (12, 5_000));
    assert_eq!((heartbeat.order, heartbeat.old), (Order::Serve, Old::Gone));
}

#[test]
fn a_node_that_answers_long_polls_at_once_is_not_asked_in_a_loop() {
    let (mut desk, _) = Desk::serving(rules());
    desk.order(Order::Serve);
    assert_eq!(desk.effects(), []);
    let asleep_until = desk.machine.wake_at().expect("wants to be woken");
    assert_eq!(asleep_until.since(desk.now), Duration::from_millis(200));
    desk.wake();
    desk.heartbeat();
}

#[test]
fn an_ordered_restart_stops_starts_and_registers_as_recycled_with_lifetime_zero() {
    let (mut desk, first) = Desk::serving(rules());
    desk.order(Order::Restart);
    let effects = desk.effects();
    assert_eq!(effects[0], Effect::StopProgram(first.clone()));
    let Effect::Call { request: Request::Heartbeat(heartbeat), .. } = &effects[1] else {
        panic!("{effects:?}")
    };
    assert_eq!((heartbeat.phase, heartbeat.order), (Phase::Restarting, Order::Restart));
    desk.gone(&first);
    let second = desk.start_of_program();
    assert_ne!(first, second);
    desk.ready(&second);
    let register = desk.register(2);
    assert_eq!((register.start, register.lifetime, register.recycled), (second, 0, true));
    assert_eq!(desk.heartbeat().order, Order::Serve);
}

#[test]
fn a_restart_that_fails_again_and_again_is_reported_as_down() {
    let (mut desk, first) = Desk::serving(rules());
    desk.order(Order::Restart);
    desk.gone(&first);
    let starts = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::Start(start) => Some(start),
            _ => None,
        })
    };
    let mut start = starts(desk.effects()).expect("is started");
    for phase in [Phase::Restarting, Phase::Down, Phase::Down] {
        desk.gone(&start);
        assert_eq!(desk.machine.phase(), phase);
        desk.effects();
        desk.wake();
        start = starts(desk.effects()).expect("is started again");
    }
    desk.ready(&start);
    assert!(desk.register(2).recycled);
}

#[test]
fn a_crash_gets_past_the_heartbeat_on_its_way_and_waits_before_the_next_start() {
    let (mut desk, first) = Desk::serving(rules());
    let held_back = desk.machine.talk.last_call();
    desk.gone(&first);
    assert_eq!(desk.heartbeat().phase, Phase::Down);
    let wait = desk.machine.wake_at().expect("waits").since(desk.now);
    assert!(wait <= Duration::from_millis(100), "{wait:?}");
    // The answer that was held back says nothing any more.
    desk.answer(held_back, Ok(Reply::Ordered(ordered(Order::Leave))));
    assert_eq!(desk.effects(), []);
    desk.wake();
    let second = desk.start_of_program();
    desk.ready(&second);
    let register = desk.register(2);
    assert_eq!((register.lifetime, register.recycled), (0, false));
}

#[test]
fn waits_grow_with_crashes_and_a_good_life_makes_them_short_again() {
    let mut desk = Desk::new(rules());
    let mut start = desk.start_of_program();
    for _ in 0..40 {
        desk.gone(&start);
        let wait = desk.machine.wake_at().expect("waits").since(desk.now);
        assert!(wait <= Duration::from_secs(30));
        desk.wake();
        start = desk.start_of_program();
    }
    assert_eq!(desk.machine.main.as_ref().expect("is there").failures, 40);
    desk.ready(&start);
    desk.register(1);
    desk.effects();
    desk.now = desk.now + Duration::from_secs(60);
    desk.gone(&start);
    assert_eq!(desk.machine.main.as_ref().expect("is there").failures, 1);
}

#[test]
fn a_node_that_forgot_is_told_the_same_start_and_the_lifetime_it_had() {
    let (mut desk, start) = Desk::serving(rules());
    desk.reply(Ok(Reply::Ordered(Ordered { lifetime: 17, ..ordered(Order::Serve) })));
    desk.wake();
    desk.heartbeat();
    desk.reply(Err(Failure::Forgotten("404".to_owned())));
    let register = desk.register(9);
    assert_eq!((register.start, register.lifetime, register.recycled), (start, 17, false));
    assert_eq!(desk.heartbeat().incarnation, 9);
}

#[test]
fn a_fresh_start_that_is_forgotten_at_once_inherits_no_lifetime_and_is_no_new_one() {
    let (mut desk, first) = Desk::serving(rules());
    desk.order(Order::Restart);
    desk.gone(&first);
    let Some(Effect::Start(second)) = desk.effects().pop() else { panic!("is started") };
    desk.ready(&second);
    desk.register(2);
    desk.heartbeat();
    desk.reply(Err(Failure::Forgotten("404".to_owned())));
    let register = desk.register(3);
    assert_eq!((register.start, register.lifetime, register.recycled), (second, 1, true));
}

#[test]
fn an_ordered_restart_is_not_held_against_a_program_that_crashed_before() {
    let mut desk = Desk::new(rules());
    let mut start = desk.start_of_program();
    for _ in 0..5 {
        desk.gone(&start);
        desk.wake();
        start = desk.start_of_program();
    }
    desk.ready(&start);
    desk.register(1);
    desk.heartbeat();
    desk.order(Order::Restart);
    assert_eq!(desk.machine.phase(), Phase::Restarting);
    desk.gone(&start);
    assert_eq!(desk.machine.phase(), Phase::Restarting);
}

#[test]
fn a_registration_without_an_answer_is_said_again_with_the_same_start() {
    let mut desk = Desk::new(rules());
    let start = desk.start_of_program();
    desk.ready(&start);
    for _ in 0..5 {
        let (call, request) = desk.call();
        assert!(matches!(request, Request::Register(register) if register.start == start));
        desk.answer(call, failed());
        desk.wake();
    }
    assert_eq!(desk.register(1).start, start);
}

#[test]
fn the_old_number_is_never_used_after_a_registration_whose_answer_was_lost() {
    let (mut desk, first) = Desk::serving(rules());
    desk.order(Order::Restart);
    desk.gone(&first);
    let Some(Effect::Start(second)) = desk.effects().pop() else { panic!("is started") };
    desk.ready(&second);
    assert!(matches!(desk.call(), (_, Request::Register(_))));
    // The node may have done it, and would answer 409 to the number of the start before.
    desk.gone(&second);
    assert_eq!(desk.effects(), []);
    desk.wake();
    let third = desk.start_of_program();
    desk.ready(&third);
    assert_eq!(desk.register(3).start, third);
}

#[test]
fn no_failure_of_the_link_touches_the_program() {
    let (mut desk, _) = Desk::serving(rules());
    for _ in 0..200 {
        desk.reply(failed());
        assert_eq!(desk.effects(), []);
        let wait = desk.machine.wake_at().expect("waits").since(desk.now);
        assert!(wait <= Duration::from_secs(5), "{wait:?}");
        desk.wake();
        desk.heartbeat();
    }
}

#[test]
fn a_denied_call_is_repeated_slowly_and_complained_about_once() {
    let (mut desk, _) = Desk::serving(rules());
    let denied = || Err(Failure::Denied("answered 403".to_owned()));
    desk.reply(denied());
    let told: Vec<Effect> = std::iter::from_fn(|| desk.machine.effect()).collect();
    let [Effect::Tell(news)] = &told[..] else { panic!("{told:?}") };
    assert!(news.to_string().contains("scope `worker`"), "{news}");
    let wait = desk.machine.wake_at().expect("waits").since(desk.now);
    assert_eq!(wait, Duration::from_secs(30));
    desk.wake();
    desk.heartbeat();
    desk.reply(denied());
    assert_eq!(desk.machine.effect(), None);
}

#[test]
fn whoever_is_replaced_stops_its_program_and_deletes_nothing() {
    let (mut desk, start) = Desk::serving(rules());
    desk.reply(Err(Failure::Replaced("start x at 10.0.0.9".to_owned())));
    assert_eq!(desk.only(), Effect::StopProgram(start.clone()));
    desk.gone(&start);
    assert_eq!(desk.only(), Effect::End(Outcome::Replaced("start x at 10.0.0.9".to_owned())));
}

#[test]
fn a_removed_worker_stops_its_program_and_ends_well() {
    let (mut desk, start) = Desk::serving(rules());
    desk.order(Order::Leave);
    assert_eq!(desk.only(), Effect::StopProgram(start.clone()));
    desk.gone(&start);
    assert_eq!(desk.only(), Effect::End(Outcome::Left));
}

#[test]
fn a_successor_is_registered_before_the_old_program_is_stopped() {
    let (mut desk, first) = Desk::serving(Desk::successors());
    desk.order(Order::Succeed);
    let effects = desk.effects();
    let Effect::Start(second) = effects[0].clone() else { panic!("{effects:?}") };
    let Effect::Call { request: Request::Heartbeat(heartbeat), .. } = &effects[1] else {
        panic!("{effects:?}")
    };
    assert_eq!((heartbeat.phase, heartbeat.order), (Phase::Serving, Order::Succeed));
    desk.ready(&second);
    let register = desk.register(2);
    assert_eq!((&register.start, register.recycled), (&second, true));
    assert_eq!(desk.heartbeat().old, Old::Running);
    desk.order(Order::StopOld);
    let effects = desk.effects();
    assert_eq!(effects[0], Effect::StopProgram(first.clone()));
    desk.gone(&first);
    let heartbeat = desk.heartbeat();
    assert_eq!((heartbeat.old, heartbeat.order), (Old::Gone, Order::StopOld));
    assert_eq!(heartbeat.phase, Phase::Serving);
}

#[test]
fn a_successor_that_does_not_start_leaves_the_old_program_serving() {
    let (mut desk, _) = Desk::serving(Desk::successors());
    desk.order(Order::Succeed);
    for _ in 0..5 {
        let started = desk.effects().into_iter().find_map(|effect| match effect {
            Effect::Start(start) => Some(start),
            _ => None,
        });
        desk.gone(&started.expect("is started"));
        assert_eq!(desk.machine.phase(), Phase::Serving);
        desk.wake();
    }
}

#[test]
fn a_crash_while_the_successor_starts_leaves_only_the_successor() {
    let (mut desk, first) = Desk::serving(Desk::successors());
    desk.order(Order::Succeed);
    let Effect::Start(second) = desk.effects()[0].clone() else { panic!("is started") };
    desk.gone(&first);
    assert_eq!(desk.heartbeat().phase, Phase::Down);
    desk.ready(&second);
    assert!(!desk.register(2).recycled);
    assert_eq!(desk.heartbeat().old, Old::Gone);
}

#[test]
fn an_order_to_succeed_makes_no_sense_if_no_successor_was_announced() {
    let (mut desk, _) = Desk::serving(rules());
    desk.order(Order::Succeed);
    assert_eq!(desk.effects(), []);
    assert_eq!(desk.machine.order, Order::Serve);
    desk.wake();
    desk.heartbeat();
}

#[test]
fn too_much_memory_is_reported_after_the_grace_and_stays_due() {
    let (mut desk, start) = Desk::serving(Rules { memory_max: Some(100), ..rules() });
    let load = |rss_bytes| Load { rss_bytes, cpu_percent: 2.5 };
    desk.tell(Event::Measured { start: start.clone(), load: load(100) });
    assert_eq!(desk.effects(), []);
    desk.tell(Event::Measured { start: start.clone(), load: load(101) });
    assert_eq!(desk.effects(), [], "it may need that much to start");
    desk.now = desk.now + Duration::from_secs(30);
    desk.tell(Event::Measured { start: start.clone(), load: load(101) });
    let heartbeat = desk.heartbeat();
    assert_eq!((heartbeat.due, heartbeat.rss_bytes), (Some(Due::Memory), 101));
    desk.tell(Event::Measured { start, load: load(5) });
    assert_eq!(desk.effects(), []);
}

#[test]
fn an_aged_program_is_reported_when_its_time_has_come() {
    let (mut desk, _) =
        Desk::serving(Rules { age_max: Some(Duration::from_secs(3_600)), ..rules() });
    assert_eq!(desk.machine.wake_at(), Some(Time::from_millis(3_600_000)));
    desk.wake();
    assert_eq!(desk.heartbeat().due, Some(Due::Age));
}
