//! An hour in which nothing happens: nothing moves, and nobody asks more than once a tick.

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

#[test]
fn in_an_hour_without_faults_nothing_moves_and_each_node_makes_one_call_a_second() {
    for nodes in [1, 3, 7] {
        let mut table = Table::shared(1);
        let mut members: Vec<Member> = (0..nodes)
            .map(|number| {
                let name = format!("node-{number}");
                Member::new(MemberOptions::new(&name, &format!("{name}-once")), number)
            })
            .collect();
        let wanted: Vec<(Key, Option<Want>)> = (0..200)
            .map(|number| (format!("poll/ep-{number:03}").into(), Some(Want { weight: 1 })))
            .collect();
        let (mut now, mut done) = (Time::ZERO, Done::default());
        for member in &mut members {
            let wanted = Event::Wanted { kind: "poll".to_owned(), changes: wanted.clone() };
            run(member, &mut table, now, wanted, &mut done);
        }
        while now < Time::ZERO + SETTLED {
            now = now + STEP;
            for member in &mut members {
                run(member, &mut table, now, Event::Wake, &mut done);
            }
        }
        let held: Vec<usize> = members.iter().map(Member::held_count).collect();
        assert_eq!(held.iter().sum::<usize>(), 200, "{held:?}");
        assert!(
            held.iter()
                .max()
                .zip(held.iter().min())
                .is_some_and(|(most, least)| { most - least <= 1 })
        );
        done = Done::default();
        while now < Time::ZERO + SETTLED + HOUR {
            now = now + STEP;
            for member in &mut members {
                run(member, &mut table, now, Event::Wake, &mut done);
            }
        }
        assert_eq!(done, Done { calls: nodes * HOUR.as_secs(), moves: 0 }, "{nodes} nodes");
    }
}
