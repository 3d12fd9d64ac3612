//! Where each contender sends a request.

use super::Contender;
use super::node::Node;
use skep_policy::cluster::{Avoiding, Member, View, consumer};
use skep_policy::{Chance, SeededChance};

/// The index in the node's view of the member that serves.
pub(super) fn route(
    contender: Contender,
    node: &Node,
    key: u64,
    tried: &[usize],
    chance: &mut SeededChance,
) -> usize {
    let view = &node.view;
    let serving: Vec<usize> = (0..view.members().len())
        .filter(|index| view.members()[*index].serves() && !tried.contains(index))
        .collect();
    let any = |chance: &mut SeededChance| {
        let last = serving.len().saturating_sub(1) as u64;
        serving.get(chance.up_to(last) as usize).copied().unwrap_or(0)
    };
    match contender {
        Contender::Skep => {
            let in_flight = |index: usize| node.in_flight[number_of(&view.members()[index])];
            let traffic = Avoiding { traffic: &in_flight, tried };
            consumer(view, key, &traffic, chance).place.index()
        }
        Contender::OwnerOnly => view.owner(key).filter(|owner| !tried.contains(owner)).unwrap_or(0),
        Contender::RoundRobin => 0,
        Contender::Random => any(chance),
        Contender::LeastLoaded => {
            let load = |index: &usize| view.members()[*index].score;
            let least = serving.iter().min_by(|one, other| load(one).total_cmp(&load(other)));
            least.copied().unwrap_or(0)
        }
        Contender::TwoChoices => {
            let (one, other) = (any(chance), any(chance));
            if score(view, other) < score(view, one) { other } else { one }
        }
    }
}

/// Which of the virtual nodes a member is.
pub(super) fn number_of(member: &Member) -> usize {
    member.url.parse().unwrap_or(0)
}

fn score(view: &View, index: usize) -> f64 {
    view.members()[index].score
}
