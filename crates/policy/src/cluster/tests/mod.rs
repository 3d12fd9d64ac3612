//! What holds for every cluster, and every number that is promised.

mod decisions;
mod moves;

use super::*;
use crate::rendezvous::hash_of;
use crate::{SeededChance, Time};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

fn at(millis: u64) -> Time {
    Time::from_millis(1_000_000_000 + millis)
}

fn key(number: usize) -> u64 {
    hash_of(&format!("orders-{number}:mail"))
}

/// A member whose sample says what its score says.
fn member(name: &str, score: f64) -> Member {
    let sample = Sample { outstanding: 0, polls: (score * 200.0) as u32, cpu: score * 100.0 };
    let sample = Sample { outstanding: (score * 100.0) as u32, ..sample };
    Member { sample, score, ..Member::new(name, &format!("http://{name}:6632")) }
}

/// Members that are called node-0 and so on.
fn members(scores: &[f64]) -> Vec<Member> {
    let named = scores.iter().enumerate();
    named.map(|(index, score)| member(&format!("node-{index}"), *score)).collect()
}

/// What the member at this index sees.
fn seen_from(members: &[Member], index: usize, moves: &Moves) -> View {
    let mut others = members.to_vec();
    let here = others.remove(index);
    let overrides = Arc::new(moves.overrides());
    View::new(here, others, overrides, None, at(0), &Options::default())
}

fn view(scores: &[f64]) -> View {
    seen_from(&members(scores), 0, &Moves::new())
}

fn none(_: usize) -> u32 {
    0
}

/// The first key that this member owns.
fn key_of(view: &View, index: usize) -> u64 {
    (0..).map(key).find(|&key| view.owner(key) == Some(index)).expect("there is one")
}

fn name_of(view: &View, place: Place) -> &str {
    &view.members()[place.index()].name
}

/// The view after `seconds` in which nothing changed.
fn after(view: View, seconds: u64) -> View {
    (1..=seconds).fold(view, |view, second| {
        let mut others = view.members().to_vec();
        let here = others.remove(0);
        let (overrides, options) = (view.overrides().clone(), Options::default());
        View::new(here, others, overrides, Some(&view), at(second * 1_000), &options)
    })
}

fn any_member(number: usize) -> impl Strategy<Value = Member> {
    let zone = prop::sample::select(vec!["", "a", "b"]);
    let flags = (prop::bool::weighted(0.7), prop::bool::weighted(0.3), prop::bool::weighted(0.7));
    (prop::num::f64::ANY, 0.0..=1.0_f64, flags, zone, 0_u32..50).prop_map(
        move |(wild, tame, (alive, draining, admitted), zone, in_flight)| {
            let score = if number.is_multiple_of(2) { tame } else { wild };
            let zone = zone.into();
            let plain = member(&format!("node-{number}"), tame);
            Member { score, alive, draining, admitted, zone, in_flight, ..plain }
        },
    )
}

fn any_members() -> impl Strategy<Value = Vec<Member>> {
    (1_usize..9).prop_flat_map(|count| (0..count).map(any_member).collect::<Vec<_>>())
}

/// Records of a few keys and nodes, so that they meet.
fn any_move() -> impl Strategy<Value = Move> {
    let times = (0_u64..1_000, 0_u64..1_000);
    let kind = prop::sample::select(vec![Kind::Migrate, Kind::Break]);
    (0_usize..6, 0_usize..4, 1_u64..4, times, 0_usize..4, kind).prop_map(
        |(number, node, version, (moved, used), by, kind)| Move {
            key: key(number),
            node: hash_of(&format!("node-{node}")),
            version,
            moved_at: at(moved),
            used_at: at(used),
            by: hash_of(&format!("node-{by}")),
            kind,
        },
    )
}

fn chance(seed: u64) -> SeededChance {
    SeededChance::new(seed)
}

const TTL: Duration = Duration::from_secs(300);
