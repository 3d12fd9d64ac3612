//! An hour in which nothing happens: nothing moves, nobody asks more than once a tick, and whoever
//! is alone does not ask at all.

use skep_policy::Time;
use skep_policy::ownership::{Effect, Event, Key, Member, MemberOptions, Table, Want};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_secs(180);
const HOUR: Duration = Duration::from_secs(3_600);

/// What nodes have done since somebody last asked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    calls: u64,
    moves: u64,
}

fn run(member: &mut Member, table: &mut Table, now: Time, event: Event, done: &mut Done) {
    let mut events = vec![event];
    while let Some(event) = events.pop() {
        let mut effects = Vec::new();
        member.handle(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { id, request } => {
                    done.calls += 1;
                    let clock_ms = i64::try_from(now.as_millis()).expect("fits");
                    let reply = Some(table.apply(&request, clock_ms).0);
                    events.push(Event::Answered { id, reply });
                }
                Effect::Stop { key, .. } => events.push(Event::Stopped { key, due: 0 }),
                Effect::Start(_) | Effect::Lost { .. } => done.moves += 1,
                _ => {}
            }
        }
    }
}

/// Some nodes that want the same keys.
struct World {
    table: Table,
    members: Vec<Member>,
    now: Time,
    done: Done,
}

impl World {
    fn new(table: Table, nodes: u64, keys: usize) -> Self {
        let member = |number| {
            let name = format!("node-{number}");
            Member::new(MemberOptions::new(&name, &format!("{name}-once")), number)
        };
        let members = (0..nodes).map(member).collect();
        let mut world = World { table, members, now: Time::ZERO, done: Done::default() };
        let wanted: Vec<(Key, Option<Want>)> = (0..keys)
            .map(|number| (format!("poll/ep-{number:03}").into(), Some(Want { weight: 1 })))
            .collect();
        world.tell_all(&Event::Wanted { kind: "poll".to_owned(), changes: wanted });
        world
    }

    fn tell_all(&mut self, event: &Event) {
        for member in &mut self.members {
            run(member, &mut self.table, self.now, event.clone(), &mut self.done);
        }
    }

    /// Lets so much time pass, and says what was done since the last time.
    fn pass(&mut self, span: Duration) -> Done {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + STEP;
            self.tell_all(&Event::Wake);
        }
        std::mem::take(&mut self.done)
    }

    fn held(&self) -> Vec<usize> {
        self.members.iter().map(Member::held_count).collect()
    }
}

#[test]
fn in_an_hour_without_faults_nothing_moves_and_each_node_makes_one_call_a_second() {
    for nodes in [1, 3, 7] {
        let mut world = World::new(Table::shared(1), nodes, 200);
        world.pass(SETTLED);
        let held = world.held();
        assert_eq!(held.iter().sum::<usize>(), 200, "{held:?}");
        let ends = held.iter().max().zip(held.iter().min());
        assert!(ends.is_some_and(|(most, least)| most - least <= 1), "{held:?}");
        let done = world.pass(HOUR);
        assert_eq!(done, Done { calls: nodes * HOUR.as_secs(), moves: 0 }, "{nodes} nodes");
    }
}

#[test]
fn in_an_hour_alone_a_node_over_an_embedded_table_makes_no_call() {
    let mut world = World::new(Table::embedded(1), 1, 200);
    let first = world.pass(SETTLED);
    assert_eq!((world.held(), first.moves), (vec![200], 200));
    assert_eq!(world.pass(HOUR), Done::default());
    assert_eq!(world.held(), [200]);
}
