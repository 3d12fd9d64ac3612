//! The table as users meet it, step by step.

use super::*;
use crate::sessions::{
    Budget, Carried, Close, DueBy, Ending, Heartbeat, News, NewsKind, Order, Phase, Policy, Probe,
    Register, Rules, Shape, Standing, Version, Want, WorkerRow,
};

const GATEWAY: GatewayId = 7;

/// A table with one gateway, and a clock.
struct World {
    fleet: Fleet,
    now: u64,
    tickets: u64,
    hints: Vec<Hint>,
}

impl World {
    fn new(rules: Rules) -> Self {
        let mut world = World { fleet: Fleet::new(), now: 1_000, tickets: 0, hints: Vec::new() };
        world.ask(Ask::Configure { kind: "chromium".into(), rules });
        world.join(GATEWAY, 1, &[], &[]);
        world
    }

    fn ask(&mut self, ask: Ask) -> Answer {
        let reply = self.fleet.apply(self.now, &ask);
        self.hints = reply.hints;
        self.fleet.check().expect("counts agree with the records");
        reply.answer
    }

    fn join(
        &mut self,
        gateway: GatewayId,
        link: u64,
        carried: &[Carried],
        waiting: &[Ticket],
    ) -> Answer {
        self.ask(Ask::Join {
            gateway,
            link,
            node: format!("node-{gateway}"),
            ttl_ms: 15_000,
            carried: carried.to_vec(),
            waiting: waiting.to_vec(),
        })
    }

    fn register(&mut self, register: Register) -> u64 {
        match self.ask(Ask::Register(register)) {
            Answer::Registered { incarnation, .. } => incarnation,
            other => panic!("{other:?}"),
        }
    }

    fn workers(&mut self, names: &[&str]) {
        for name in names {
            self.register(worker(name));
        }
    }

    fn heartbeat(&mut self, name: &str, phase: Phase) -> Order {
        let incarnation = self.worker(name).incarnation;
        self.say(Heartbeat { phase, ..heartbeat(name, incarnation) })
    }

    fn say(&mut self, heartbeat: Heartbeat) -> Order {
        match self.ask(Ask::Heartbeat(heartbeat)) {
            Answer::Ordered { order, .. } => order,
            other => panic!("{other:?}"),
        }
    }

    fn worker(&self, name: &str) -> WorkerRow {
        match self.fleet.look_worker(name) {
            Answer::Workers { mut workers } => workers.remove(0),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn standing(&self, name: &str) -> Standing {
        self.worker(name).standing
    }

    fn checkout(&mut self, key: &str, want: Want) -> (Ticket, Answer) {
        self.tickets += 1;
        let ticket = self.tickets;
        let ask = Checkout { want, key: key.into(), ticket, ..checkout() };
        (ticket, self.ask(Ask::Checkout(ask)))
    }

    /// Begins a session, and says on which worker.
    fn begin(&mut self) -> (Ticket, String) {
        match self.checkout("", Want::default()) {
            (ticket, Answer::Seated(seat)) => (ticket, seat.name.to_string()),
            (_, other) => panic!("{other:?}"),
        }
    }

    fn close(&mut self, ticket: Ticket, how: Close) {
        let link = 1;
        self.ask(Ask::Close { gateway: GATEWAY, link, ticket, how });
    }

    /// A session that begins and ends.
    fn visit(&mut self) -> String {
        let (ticket, worker) = self.begin();
        self.close(ticket, Close::Ended);
        worker
    }

    fn beat(&mut self) -> (Vec<News>, Vec<Probe>) {
        match self.ask(Ask::Beat { gateway: GATEWAY, link: 1 }) {
            Answer::Beaten { news, probes, .. } => (news, probes),
            other => panic!("{other:?}"),
        }
    }

    /// Time passes, and the gateway and these workers live on.
    fn pass(&mut self, millis: u64, alive: &[&str]) -> (Vec<News>, Vec<Probe>) {
        let end = self.now + millis;
        let (mut news, mut probes) = (Vec::new(), Vec::new());
        while self.now < end {
            self.now = (self.now + 1_000).min(end);
            for name in alive {
                self.heartbeat(name, Phase::Serving);
            }
            let (more_news, more_probes) = self.beat();
            news.extend(more_news);
            probes.extend(more_probes);
        }
        (news, probes)
    }
}

fn worker(name: &str) -> Register {
    Register {
        name: name.into(),
        kind: "chromium".into(),
        url: format!("ws://{name}/").into(),
        slots: None,
        shape: Shape::default(),
        start: format!("{name}-1").into(),
        lifetime: 0,
        recycled: true,
        successor: false,
    }
}

fn heartbeat(name: &str, incarnation: u64) -> Heartbeat {
    Heartbeat {
        name: name.into(),
        incarnation,
        phase: Phase::Serving,
        due: None,
        lifetime: 0,
        old_gone: false,
    }
}

fn checkout() -> Checkout {
    Checkout {
        gateway: GATEWAY,
        link: 1,
        ticket: 0,
        kind: "chromium".into(),
        want: Want::default(),
        key: "".into(),
        key_max: 0,
        avoid: None,
        wait: true,
    }
}

fn rules(slots: u32, lifetime_max: u32) -> Rules {
    Rules { slots, lifetime_max, budget: Budget::Count(1), ..Rules::default() }
}

fn seated(answer: &Answer) -> &str {
    match answer {
        Answer::Seated(seat) => &seat.name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sessions_go_to_the_least_loaded_and_among_equals_to_the_longest_serving() {
    let mut world = World::new(rules(5, 50));
    world.workers(&["a", "b", "c"]);
    let begun: Vec<String> = (0..6).map(|_| world.begin().1).collect();
    assert_eq!(begun, ["a", "b", "c", "a", "b", "c"]);
    world.close(5, Close::Ended);
    assert_eq!(world.begin().1, "b");
}

#[test]
fn a_due_worker_is_taken_only_if_nobody_else_is_free() {
    let mut world = World::new(rules(1, 10));
    world.workers(&["a", "b"]);
    let (first, _) = world.begin();
    let (second, _) = world.begin();
    world.close(second, Close::Ended);
    for _ in 0..7 {
        assert_eq!(world.visit(), "b");
    }
    world.close(first, Close::Ended);
    assert_eq!(world.standing("b"), Standing::Restarting, "idle and due, and the budget allows");
    let (_, on) = world.begin();
    assert_eq!(on, "a");
}

#[test]
fn an_idle_due_worker_restarts_and_comes_back_with_a_new_life() {
    let mut world = World::new(rules(5, 10));
    world.workers(&["a"]);
    for _ in 0..7 {
        world.visit();
    }
    assert_eq!(world.standing("a"), Standing::Ready);
    let (last, _) = world.begin();
    assert_eq!(world.standing("a"), Standing::Due);
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::Serve);
    world.close(last, Close::Ended);
    assert_eq!(world.hints, [Hint::Worker(1)]);
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::Restart);
    assert_eq!(world.heartbeat("a", Phase::Restarting), Order::Restart);
    world.now += 500;
    world.register(Register { start: "a-2".into(), ..worker("a") });
    assert_eq!((world.worker("a").lifetime, world.standing("a")), (0, Standing::Ready));
    let Answer::Kinds { kinds } = world.ask(Ask::Kinds) else { panic!() };
    assert_eq!((kinds[0].recycled, kinds[0].out_ms, kinds[0].out), (1, 500, 0));
}

#[test]
fn never_more_than_the_budget_are_out_and_the_rest_are_held() {
    let mut world = World::new(rules(2, 4));
    world.workers(&["a", "b", "c"]);
    let sessions: Vec<Ticket> = (0..6).map(|_| world.begin().0).collect();
    for ticket in sessions {
        world.close(ticket, Close::Ended);
        world.begin();
    }
    let all: Vec<Standing> = ["a", "b", "c"].map(|name| world.standing(name)).to_vec();
    assert_eq!(all, [Standing::Held, Standing::Held, Standing::Held]);
    for ticket in 7..=12 {
        world.close(ticket, Close::Ended);
    }
    let all: Vec<Standing> = ["a", "b", "c"].map(|name| world.standing(name)).to_vec();
    assert_eq!(all, [Standing::Restarting, Standing::Held, Standing::Held]);
    world.register(Register { start: "a-2".into(), ..worker("a") });
    assert_eq!(world.standing("b"), Standing::Restarting);
}

#[test]
fn a_session_waits_for_the_first_slot_that_becomes_free() {
    let mut world = World::new(rules(1, 0));
    world.workers(&["a"]);
    let (first, _) = world.begin();
    let (second, answer) = world.checkout("", Want::default());
    assert_eq!(answer, Answer::Waiting { waiting: 1 });
    let (_, answer) = world.checkout("", Want::default());
    assert_eq!(answer, Answer::Waiting { waiting: 2 });
    world.close(first, Close::Ended);
    assert_eq!(world.hints, [Hint::Gateway(GATEWAY)]);
    let (news, _) = world.beat();
    assert!(matches!(&news[..], [News { ticket, what: NewsKind::Seated(_) }] if *ticket == second));
    assert_eq!(world.beat().0, []);
}

#[test]
fn the_line_is_fair_between_keys() {
    let mut world = World::new(rules(1, 0));
    world.workers(&["a"]);
    let (mut on, _) = world.begin();
    let greedy: Vec<Ticket> = (0..4).map(|_| world.checkout("greedy", Want::default()).0).collect();
    let modest = world.checkout("modest", Want::default()).0;
    let mut served = Vec::new();
    for _ in 0..5 {
        world.close(on, Close::Ended);
        let (news, _) = world.beat();
        on = news[0].ticket;
        served.push(on);
    }
    assert_eq!(served, [greedy[0], modest, greedy[1], greedy[2], greedy[3]]);
}

#[test]
fn what_nobody_could_ever_do_is_refused_at_once_and_says_what_there_is() {
    let mut world = World::new(rules(1, 0));
    let nobody = world.checkout("", Want::default()).1;
    assert_eq!(nobody, Answer::Refused(Refusal::NoWorkers));
    let shape = Shape { labels: ["eu".to_owned()].into(), version: Version::parse("1.62.1") };
    world.register(Register { shape: shape.clone(), ..worker("a") });
    let newer = Want { version: Version::parse("1.65"), ..Want::default() };
    let versions = [Version { major: 1, minor: 62 }].into();
    let refusal = Refusal::NoMatch { labels: shape.labels, versions };
    assert_eq!(world.checkout("", newer).1, Answer::Refused(refusal));
    let fits = Want { version: Version::parse("1.62"), labels: ["eu".to_owned()].into() };
    assert_eq!(seated(&world.checkout("", fits.clone()).1), "a");
    assert_eq!(world.checkout("", fits).1, Answer::Waiting { waiting: 1 });
}

#[test]
fn the_line_and_a_key_have_their_limits() {
    let mut world = World::new(Rules { waiting_max: 1, ..rules(1, 0) });
    world.workers(&["a"]);
    world.begin();
    let impatient = Checkout { ticket: 90, wait: false, ..checkout() };
    assert_eq!(world.ask(Ask::Checkout(impatient)), Answer::Refused(Refusal::Busy));
    let limited = Checkout { ticket: 91, key: "k".into(), key_max: 1, ..checkout() };
    assert_eq!(world.ask(Ask::Checkout(limited.clone())), Answer::Waiting { waiting: 1 });
    let second = Checkout { ticket: 92, ..limited };
    assert_eq!(world.ask(Ask::Checkout(second)), Answer::Refused(Refusal::KeyLimit));
    assert_eq!(world.checkout("", Want::default()).1, Answer::Refused(Refusal::LineFull));
}

#[test]
fn a_worker_that_does_not_answer_is_not_chosen_again_before_it_was_probed() {
    let mut world = World::new(rules(5, 50));
    world.workers(&["a", "b"]);
    let (first, on) = world.begin();
    assert_eq!(on, "a");
    world.close(first, Close::Failed);
    assert_eq!((world.standing("a"), world.worker("a").lifetime), (Standing::Suspect, 0));
    for _ in 0..20 {
        assert_eq!(world.visit(), "b");
    }
    let (_, probes) = world.pass(1_000, &["a", "b"]);
    assert_eq!(probes.len(), 1);
    let Probe { worker, incarnation, .. } = probes[0];
    world.ask(Ask::Probed { worker, incarnation, good: false });
    assert_eq!(world.pass(900, &["a", "b"]).1, [], "the wait doubles");
    let again = world.pass(1_000, &["a", "b"]).1;
    assert_eq!(again.len(), 1);
    world.ask(Ask::Probed { worker, incarnation, good: true });
    assert_eq!(world.standing("a"), Standing::Ready);
}

#[test]
fn asking_again_with_the_same_ticket_changes_nothing() {
    let mut world = World::new(rules(5, 50));
    world.workers(&["a"]);
    let ask = Ask::Checkout(Checkout { ticket: 1, ..checkout() });
    let first = world.ask(ask.clone());
    assert_eq!(seated(&first), seated(&world.ask(ask)));
    assert_eq!((world.worker("a").lifetime, world.worker("a").active), (1, 1));
}

#[test]
fn a_gateway_that_dies_has_its_sessions_taken_back_once() {
    let mut world = World::new(rules(1, 50));
    world.workers(&["a"]);
    world.join(8, 1, &[], &[]);
    let ask = Checkout { gateway: 8, ticket: 1, ..checkout() };
    world.ask(Ask::Checkout(ask));
    let (waiting, _) = world.checkout("", Want::default());
    assert_eq!(world.pass(15_000, &["a"]).0, []);
    let (news, _) = world.pass(2_000, &["a"]);
    assert_eq!(news.iter().map(|one| one.ticket).collect::<Vec<_>>(), [waiting]);
    assert_eq!((world.worker("a").lifetime, world.worker("a").active), (2, 1));
    let back = Ask::Beat { gateway: 8, link: 1 };
    assert_eq!(world.ask(back), Answer::Unknown);
}

#[test]
fn nobody_is_called_dead_by_a_gateway_that_was_away_itself() {
    let mut world = World::new(rules(1, 50));
    world.workers(&["a"]);
    world.join(8, 1, &[], &[]);
    world.ask(Ask::Checkout(Checkout { gateway: 8, ticket: 1, ..checkout() }));
    world.now += 50_000;
    world.beat();
    assert_eq!(world.worker("a").active, 1, "the table was away, not the gateway");
    world.pass(20_000, &["a"]);
    assert_eq!(world.worker("a").active, 0);
}

#[test]
fn a_gateway_that_comes_back_says_what_it_carries() {
    let mut world = World::new(rules(3, 50));
    world.workers(&["a"]);
    let (kept, _) = world.begin();
    world.begin();
    let carried = Carried { ticket: kept, key: "".into(), worker: "a".into(), start: "a-1".into() };
    let joined = Answer::Joined { unplaced: Vec::new() };
    assert_eq!(world.join(GATEWAY, 2, std::slice::from_ref(&carried), &[]), joined);
    assert_eq!((world.worker("a").lifetime, world.worker("a").active), (2, 1));
    let old = Ask::Close { gateway: GATEWAY, link: 1, ticket: kept, how: Close::Ended };
    assert_eq!(world.ask(old), Answer::Replaced, "what was sent before is void");

    let mut empty = World::new(rules(3, 50));
    let unplaced = Answer::Joined { unplaced: vec![kept] };
    assert_eq!(empty.join(GATEWAY, 2, std::slice::from_ref(&carried), &[]), unplaced);
    empty.register(Register { lifetime: 2, ..worker("a") });
    assert_eq!(empty.standing("a"), Standing::Suspect, "gateways are heard first");
    assert_eq!(empty.join(GATEWAY, 3, &[carried], &[]), joined);
    assert_eq!((empty.worker("a").lifetime, empty.worker("a").active), (2, 1));
}

#[test]
fn a_silent_worker_is_lost_and_its_sessions_end() {
    let mut world = World::new(rules(1, 50));
    world.workers(&["a"]);
    let (ticket, _) = world.begin();
    let (news, _) = world.pass(62_000, &[]);
    let end = News { ticket, what: NewsKind::End(Ending::WorkerLost) };
    assert_eq!(news, [end]);
    assert_eq!(world.standing("a"), Standing::Lost);
    world.close(ticket, Close::Ended);
    assert_eq!(world.checkout("", Want::default()).1, Answer::Refused(Refusal::NoWorkers));
    world.heartbeat("a", Phase::Serving);
    assert_eq!(world.begin().1, "a");
}

#[test]
fn a_silent_worker_is_not_chosen_even_before_anybody_noticed() {
    let mut world = World::new(rules(1, 50));
    world.workers(&["a"]);
    world.now += 60_001;
    assert_eq!(world.checkout("", Want::default()).1, Answer::Refused(Refusal::NoWorkers));
}

#[test]
fn a_crash_ends_the_sessions_and_the_next_life_is_a_fresh_one() {
    let mut world = World::new(rules(5, 50));
    world.workers(&["a"]);
    let (ticket, _) = world.begin();
    world.heartbeat("a", Phase::Down);
    assert_eq!(world.standing("a"), Standing::Down);
    assert_eq!(world.beat().0[0].what, NewsKind::End(Ending::WorkerDown));
    world.register(Register { start: "a-2".into(), recycled: false, ..worker("a") });
    let row = world.worker("a");
    assert_eq!((row.active, row.leaving, row.standing), (0, 1, Standing::Ready));
    world.close(ticket, Close::Ended);
    assert_eq!(world.worker("a").leaving, 0);
}

#[test]
fn a_worker_that_can_start_its_successor_first_is_never_out() {
    let mut world = World::new(rules(5, 10));
    world.register(Register { successor: true, ..worker("a") });
    let (long, _) = world.begin();
    for _ in 0..7 {
        world.visit();
    }
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::Succeed);
    assert_eq!(world.begin().1, "a", "it serves on");
    world.register(Register { start: "a-2".into(), successor: true, ..worker("a") });
    let row = world.worker("a");
    assert_eq!((row.active, row.leaving, row.lifetime, row.permit), (0, 2, 0, true));
    assert_eq!(world.begin().1, "a");
    world.close(long, Close::Ended);
    world.close(9, Close::Ended);
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::StopOld);
    let incarnation = world.worker("a").incarnation;
    world.say(Heartbeat { old_gone: true, ..heartbeat("a", incarnation) });
    assert!(!world.worker("a").permit);
}

#[test]
fn memory_makes_a_worker_due_then_held_then_sent() {
    let mut world = World::new(Rules { drain_max_ms: 10_000, ..rules(5, 0) });
    world.workers(&["a", "b"]);
    let (ticket, _) = world.begin();
    let incarnation = world.worker("a").incarnation;
    let fat = Heartbeat { due: Some(DueBy::Memory), ..heartbeat("a", incarnation) };
    world.say(fat.clone());
    assert_eq!(world.standing("a"), Standing::Due);
    for (seconds, standing) in [(11, Standing::Held), (11, Standing::Draining)] {
        for _ in 0..seconds {
            world.now += 1_000;
            world.say(fat.clone());
            world.heartbeat("b", Phase::Serving);
            world.beat();
        }
        assert_eq!(world.standing("a"), standing);
    }
    world.close(ticket, Close::Ended);
    assert_eq!(world.standing("a"), Standing::Restarting);
}

#[test]
fn a_worker_that_does_not_return_gives_its_permit_back() {
    let mut world = World::new(rules(1, 1));
    world.workers(&["a", "b"]);
    world.visit();
    world.visit();
    assert_eq!((world.standing("a"), world.standing("b")), (Standing::Restarting, Standing::Held));
    let end = world.now + 120_000;
    while world.now < end {
        world.now += 1_000;
        world.heartbeat("a", Phase::Restarting);
        world.heartbeat("b", Phase::Serving);
        world.beat();
    }
    assert_eq!((world.standing("a"), world.standing("b")), (Standing::Down, Standing::Restarting));
}

#[test]
fn an_operator_keeps_sessions_away_and_ends_and_removes() {
    let mut world = World::new(rules(5, 50));
    world.workers(&["a", "b"]);
    world.ask(Ask::Drain { name: "a".into(), drained: true });
    let (ticket, on) = world.begin();
    assert_eq!((&*on, world.standing("a")), ("b", Standing::Drained));
    world.ask(Ask::End { gateway: GATEWAY, ticket });
    assert_eq!(world.beat().0[0].what, NewsKind::End(Ending::Operator));
    world.ask(Ask::Drain { name: "a".into(), drained: false });
    assert_eq!(world.begin().1, "a");
    world.ask(Ask::Remove { name: "a".into(), by_worker: false });
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::Leave);
    let again = world.ask(Ask::Register(worker("a")));
    assert_eq!(again, Answer::Replaced, "the one that was removed does not come back");
    world.ask(Ask::Remove { name: "a".into(), by_worker: true });
    world.close(2, Close::Ended);
    assert_eq!(world.ask(Ask::Worker { name: "a".into() }), Answer::Unknown);
    world.workers(&["c"]);
    assert_eq!(world.worker("c").number, 1, "the number is free again");
}

#[test]
fn an_older_start_of_a_worker_learns_that_it_was_replaced() {
    let mut world = World::new(rules(5, 50));
    let first = world.register(worker("a"));
    world.register(Register { start: "a-2".into(), recycled: false, ..worker("a") });
    let late = world.ask(Ask::Heartbeat(heartbeat("a", first)));
    assert_eq!(late, Answer::Replaced);
}

#[test]
fn without_a_budget_whoever_reaches_the_limit_goes() {
    let mut world = World::new(Rules { policy: Policy::LifetimeFirst, ..rules(1, 2) });
    world.workers(&["a", "b"]);
    for _ in 0..4 {
        world.visit();
    }
    let both = [world.standing("a"), world.standing("b")];
    assert_eq!(both, [Standing::Restarting, Standing::Restarting]);
}

#[test]
fn a_worker_that_came_back_worn_out_is_not_sent_before_gateways_were_heard() {
    let mut world = World::new(rules(1, 1));
    world.register(Register { lifetime: 1, ..worker("a") });
    assert_eq!(world.heartbeat("a", Phase::Serving), Order::Serve);
    let carried = Carried { ticket: 1, key: "".into(), worker: "a".into(), start: "a-1".into() };
    world.join(GATEWAY, 2, &[carried], &[]);
    assert_eq!(world.worker("a").active, 1);
    world.ask(Ask::Probed { worker: 1, incarnation: 1, good: true });
    assert_eq!(world.standing("a"), Standing::Held, "it goes when its session has ended");
}

#[test]
fn a_gateway_that_carried_very_much_is_taken_back_in_several_steps() {
    let mut world = World::new(rules(2_000, 0));
    world.workers(&["a"]);
    world.join(8, 1, &[], &[]);
    for ticket in 0..1_200 {
        world.ask(Ask::Checkout(Checkout { gateway: 8, ticket, ..checkout() }));
    }
    assert_eq!(world.ask(Ask::Leave { gateway: 8, link: 1 }), Answer::Done);
    assert_eq!(world.worker("a").active, 700);
    let late = Ask::Close { gateway: 8, link: 1, ticket: 900, how: Close::Ended };
    assert_eq!(world.ask(late), Answer::Replaced);
    world.pass(15_000, &["a"]);
    assert_eq!(world.worker("a").active, 200);
    world.pass(1_000, &["a"]);
    assert_eq!(world.worker("a").active, 0);
}

#[test]
fn a_session_that_was_ended_while_it_waited_ends_also_if_it_is_seated_first() {
    let mut world = World::new(rules(1, 0));
    world.workers(&["a"]);
    let (first, _) = world.begin();
    let (second, _) = world.checkout("", Want::default());
    world.ask(Ask::End { gateway: GATEWAY, ticket: second });
    world.close(first, Close::Ended);
    let end = News { ticket: second, what: NewsKind::End(Ending::Operator) };
    assert_eq!(world.beat().0, [end]);
}

#[test]
fn a_slot_of_a_worker_that_became_another_kind_goes_to_those_who_wait_for_that() {
    let mut world = World::new(rules(1, 0));
    world.ask(Ask::Configure { kind: "firefox".into(), rules: rules(1, 0) });
    world.workers(&["a"]);
    let (first, _) = world.begin();
    world.register(Register { kind: "firefox".into(), ..worker("a") });
    let waits = Checkout { ticket: 90, kind: "firefox".into(), ..checkout() };
    assert_eq!(world.ask(Ask::Checkout(waits)), Answer::Waiting { waiting: 1 });
    world.close(first, Close::Ended);
    assert_eq!(world.beat().0.len(), 1);
}

mod properties;
