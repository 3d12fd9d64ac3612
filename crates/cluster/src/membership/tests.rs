//! Two and more nodes that talk over a network made of values.

use super::*;
use proptest::prelude::*;
use skep_policy::{Chance, SeededChance};
use std::collections::BTreeMap;

const HERE: u64 = 500;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn seconds(count: u64) -> Time {
    Time::from_millis(count * 1_000)
}

fn here() -> Membership {
    Membership::new("here", HERE, MembershipOptions::default())
}

fn said(from: &str, incarnation: u64, to: u64, sequence: u64) -> Envelope<'_> {
    let load = Load::default();
    Envelope { from, incarnation, to, sequence, draining: false, load }
}

fn heartbeat() -> Message<'static> {
    Message::Heartbeat(Heartbeat { api: "http://127.0.0.1:6632", ..Heartbeat::default() })
}

fn name(name: &str) -> Arc<str> {
    name.into()
}

fn state(members: &Membership, name: &str) -> Option<State> {
    members.get(name).map(|member| member.state)
}

#[test]
fn a_greeting_is_answered_and_believed_nothing_else() {
    let mut here = here();
    let heard = here.hear(&said("b", 7, 0, 1), &heartbeat(), at(2), seconds(1));
    assert_eq!((heard.verdict, heard.answer), (Verdict::Greeting, Some(7)));
    assert_eq!(state(&here, "b"), Some(State::Met));
    let again = here.hear(&said("b", 7, 0, 2), &heartbeat(), at(2), seconds(1));
    assert_eq!(again.answer, None, "a recorded greeting does not make this node talk");
    let later = here.hear(&said("b", 7, 0, 2), &heartbeat(), at(2), seconds(2));
    assert_eq!(later.answer, Some(7));
}

#[test]
fn a_heartbeat_for_this_life_makes_a_node_live_until_it_is_silent() {
    let mut here = here();
    let heard = here.hear(&said("b", 7, HERE, 1), &heartbeat(), at(2), seconds(1));
    assert_eq!(heard.changes, [Change::Joined(name("b"))]);
    assert_eq!(heard.answer, Some(7), "it should know this node at once");
    let api = here.get("b").map(|member| member.api.clone());
    assert_eq!(api.as_deref(), Some("http://127.0.0.1:6632"));
    for second in 1..=6 {
        assert!(here.tick(seconds(second)).is_empty(), "{second}");
    }
    assert_eq!(here.tick(Time::from_millis(6_001)), [Change::Died(name("b"))]);
    assert_eq!(here.tick(seconds(7)), []);
    let heard = here.hear(&said("b", 7, HERE, 9), &heartbeat(), at(2), seconds(8));
    assert_eq!(heard.changes, [Change::Returned(name("b"))]);
}

#[test]
fn a_heartbeat_for_an_earlier_life_of_this_node_is_no_sign_of_life() {
    let mut here = here();
    let heard = here.hear(&said("b", 7, HERE - 1, 1), &heartbeat(), at(2), seconds(1));
    assert_eq!(heard.verdict, Verdict::Refused(Refusal::Stale));
    assert_eq!(heard.answer, Some(7), "it hears of the restart at once");
    assert_eq!(state(&here, "b"), Some(State::Met));
}

#[test]
fn what_was_heard_before_is_refused_and_what_was_overtaken_is_not() {
    let mut here = here();
    here.hear(&said("b", 7, HERE, 1), &heartbeat(), at(2), seconds(1));
    let mut verdict = |sequence, busy| {
        let mut envelope = said("b", 7, HERE, sequence);
        envelope.load.outstanding = busy;
        let verdict = here.hear(&envelope, &heartbeat(), at(2), seconds(1)).verdict;
        (verdict, here.get("b").expect("is known").load.outstanding)
    };
    assert_eq!(verdict(5, 50), (Verdict::Accepted, 50));
    assert_eq!(verdict(4, 40), (Verdict::Accepted, 50), "what is newer stays");
    let replayed = Verdict::Refused(Refusal::Replayed);
    assert_eq!(verdict(4, 40), (replayed, 50));
    assert_eq!(verdict(5, 55), (replayed, 50));
}

#[test]
fn a_new_life_takes_over_and_the_one_before_is_refused() {
    let mut here = here();
    here.hear(&said("b", 7, HERE, 100), &heartbeat(), at(2), seconds(1));
    let greeted = here.hear(&said("b", 8, 0, 1), &heartbeat(), at(2), seconds(2));
    assert_eq!(greeted.answer, Some(8));
    assert_eq!(here.get("b").map(|member| member.incarnation), Some(7), "it must prove itself");
    let heard = here.hear(&said("b", 8, HERE, 2), &heartbeat(), at(2), seconds(2));
    assert_eq!(heard.changes, [Change::Restarted(name("b"))]);
    let late = here.hear(&said("b", 7, HERE, 101), &heartbeat(), at(2), seconds(2));
    assert_eq!(late.verdict, Verdict::Refused(Refusal::Stale));
    assert!(late.changes.is_empty(), "last words are no second node");
}

#[test]
fn a_goodbye_ends_a_life_at_once_and_for_good() {
    let mut here = here();
    here.hear(&said("b", 7, HERE, 1), &heartbeat(), at(2), seconds(1));
    let heard = here.hear(&said("b", 7, HERE, 3), &Message::Goodbye, at(2), seconds(1));
    assert_eq!(heard.changes, [Change::Left(name("b"))]);
    let late = here.hear(&said("b", 7, HERE, 2), &heartbeat(), at(2), seconds(1));
    assert_eq!(late.verdict, Verdict::Refused(Refusal::Stale));
    assert_eq!(state(&here, "b"), Some(State::Left));
    let anew = here.hear(&said("b", 8, HERE, 1), &heartbeat(), at(2), seconds(9));
    assert_eq!(anew.changes, [Change::Restarted(name("b"))]);
}

#[test]
fn draining_is_told_when_it_begins_and_when_it_ends() {
    let mut here = here();
    here.hear(&said("b", 7, HERE, 1), &heartbeat(), at(2), seconds(1));
    for (sequence, draining) in [(2, true), (3, false)] {
        let mut envelope = said("b", 7, HERE, sequence);
        envelope.draining = draining;
        let heard = here.hear(&envelope, &Message::Wake(vec!["q"]), at(2), seconds(1));
        assert_eq!(heard.changes, [Change::Draining(name("b"), draining)]);
    }
}

#[test]
fn two_nodes_of_one_name_are_told_once_and_the_newer_is_heard() {
    let mut here = here();
    let mut doubled = Vec::new();
    for second in 1..=10 {
        for (incarnation, port) in [(7, 2), (8, 3)] {
            let envelope = said("b", incarnation, HERE, second);
            let heard = here.hear(&envelope, &heartbeat(), at(port), seconds(second));
            doubled.extend(
                heard.changes.into_iter().filter(|change| matches!(change, Change::Doubled(_))),
            );
        }
        here.tick(seconds(second));
    }
    let right = Doubled { name: name("b"), newer: Some(at(3)), other: at(2) };
    assert_eq!(doubled, [Change::Doubled(right.clone())]);
    assert_eq!(here.doubled(), [right]);
    assert_eq!(here.get("b").map(|member| member.address), Some(at(3)));
    for second in 11..=80 {
        here.tick(seconds(second));
    }
    assert!(here.doubled().is_empty(), "it is over");
}

#[test]
fn a_node_with_the_name_of_this_one_is_told_and_this_one_knows_itself() {
    let mut here = here();
    let mine = here.hear(&said("here", HERE, 0, 1), &heartbeat(), at(1), seconds(1));
    assert_eq!(mine.verdict, Verdict::Myself);
    let other = here.hear(&said("here", 9, 0, 1), &heartbeat(), at(4), seconds(1));
    let doubled = Doubled { name: name("here"), newer: None, other: at(4) };
    assert_eq!(other.changes, [Change::Doubled(doubled)]);
    assert!(here.members(seconds(1)).is_empty());
}

#[test]
fn a_node_whose_clock_went_back_takes_a_later_life_but_only_while_it_is_new() {
    let mut here = here();
    let heard = here.hear(&said("b", 7, HERE + 40, 1), &heartbeat(), at(2), seconds(1));
    assert_eq!(heard.changes, [Change::Raised(HERE + 41)]);
    assert_eq!(heard.answer, Some(7));
    here.hear(&said("b", 7, HERE + 41, 2), &heartbeat(), at(2), seconds(1));
    let heard = here.hear(&said("b", 7, HERE + 99, 3), &heartbeat(), at(2), seconds(1));
    assert_eq!((heard.changes, here.incarnation()), (vec![], HERE + 41));
}

#[test]
fn a_node_that_slept_itself_does_not_take_the_others_for_dead() {
    let mut here = here();
    here.tick(seconds(1));
    here.hear(&said("b", 7, HERE, 1), &heartbeat(), at(2), seconds(1));
    assert_eq!(here.tick(seconds(60)), [], "the datagrams of a minute are yet to be read");
    let mut died_at = None;
    for second in 61..=70 {
        died_at = died_at.or((!here.tick(seconds(second)).is_empty()).then_some(second));
    }
    assert_eq!(died_at, Some(66));
}

#[test]
fn of_too_many_nodes_the_longest_gone_is_forgotten_and_none_that_lives() {
    let options = MembershipOptions { members_max: 2, ..MembershipOptions::default() };
    let mut here = Membership::new("here", HERE, options);
    here.hear(&said("a", 1, HERE, 1), &heartbeat(), at(2), seconds(1));
    here.hear(&said("b", 1, HERE, 1), &heartbeat(), at(3), seconds(1));
    let crowded = here.hear(&said("c", 1, HERE, 1), &heartbeat(), at(4), seconds(1));
    assert_eq!(crowded.verdict, Verdict::Refused(Refusal::Crowded));
    here.hear(&said("a", 1, HERE, 2), &Message::Goodbye, at(2), seconds(2));
    let heard = here.hear(&said("c", 1, HERE, 1), &heartbeat(), at(4), seconds(3));
    assert_eq!(heard.verdict, Verdict::Accepted);
    assert_eq!((state(&here, "a"), state(&here, "b")), (None, Some(State::Alive)));
}

/// Three nodes that greet, beat, restart and lose datagrams; an enemy repeats whatever it likes.
struct World {
    nodes: Vec<(Membership, u64)>,
    lives: u64,
    wire: Vec<(usize, String, u64, u64, u64)>,
    recorded: Vec<(usize, String, u64, u64, u64)>,
    accepted: BTreeMap<(usize, u64, String, u64, u64), u32>,
}

const NAMES: [&str; 3] = ["n0", "n1", "n2"];

impl World {
    fn beat(&mut self, node: usize) {
        for other in (0..NAMES.len()).filter(|other| *other != node) {
            let (members, sequence) = &mut self.nodes[node];
            *sequence += 1;
            let to = members.get(NAMES[other]).map_or(0, |member| member.incarnation);
            let sent = (other, NAMES[node].to_owned(), members.incarnation(), to, *sequence);
            self.wire.push(sent);
        }
    }

    fn deliver(
        &mut self,
        (to, from, incarnation, life, sequence): (usize, String, u64, u64, u64),
        now: Time,
    ) {
        let here = self.nodes[to].0.incarnation();
        let envelope = said(&from, incarnation, life, sequence);
        let heard = self.nodes[to].0.hear(&envelope, &heartbeat(), at(1), now);
        if heard.verdict == Verdict::Accepted {
            *self.accepted.entry((to, here, from.clone(), incarnation, sequence)).or_default() += 1;
        }
        self.recorded.push((to, from.clone(), incarnation, life, sequence));
        if let Some(life) = heard.answer {
            let sender = NAMES.iter().position(|name| *name == from).expect("is a node");
            let (members, sequence) = &mut self.nodes[to];
            *sequence += 1;
            let back = (sender, NAMES[to].to_owned(), members.incarnation(), life, *sequence);
            self.wire.push(back);
        }
    }

    fn restart(&mut self, node: usize) {
        self.lives += 1;
        let options = MembershipOptions::default();
        self.nodes[node] = (Membership::new(NAMES[node], self.lives, options), 0);
    }
}

proptest! {
    #[test]
    fn nothing_is_believed_twice_and_once_it_is_quiet_everybody_knows_everybody(
        seed: u64,
        steps in prop::collection::vec(0..10_u8, 0..200),
    ) {
        let mut chance = SeededChance::new(seed);
        let nodes = (0..3).map(|_| (here(), 0)).collect();
        let (wire, recorded) = (Vec::new(), Vec::new());
        let mut world = World { nodes, lives: 0, wire, recorded, accepted: BTreeMap::new() };
        (0..3).for_each(|node| world.restart(node));
        let mut now = Time::ZERO;
        for step in steps {
            now = now + Duration::from_millis(chance.up_to(300));
            let node = chance.up_to(2) as usize;
            match step {
                0..=2 => world.beat(node),
                3..=6 if !world.wire.is_empty() => {
                    let which = chance.up_to(world.wire.len() as u64 - 1) as usize;
                    let sent = world.wire.swap_remove(which);
                    world.deliver(sent, now);
                }
                7 => drop(world.wire.pop()),
                8 if !world.recorded.is_empty() => {
                    let which = chance.up_to(world.recorded.len() as u64 - 1) as usize;
                    let replayed = world.recorded[which].clone();
                    world.deliver(replayed, now);
                }
                9 => world.restart(node),
                _ => {}
            }
        }
        prop_assert!(world.accepted.values().all(|count| *count == 1), "{:?}", world.accepted);
        for _ in 0..4 {
            now = now + Duration::from_secs(1);
            (0..3).for_each(|node| world.beat(node));
            while let Some(sent) = world.wire.pop() {
                world.deliver(sent, now);
            }
        }
        for (node, (members, _)) in world.nodes.iter().enumerate() {
            for (other, (them, _)) in world.nodes.iter().enumerate().filter(|(at, _)| *at != node) {
                let known = members.get(NAMES[other]).expect("is known");
                prop_assert_eq!(known.state, State::Alive);
                prop_assert_eq!(known.incarnation, them.incarnation());
            }
        }
    }
}
