//! The same decisions, with everything they went by.

use super::decide::{Choice, Place, Traffic, consumer, producer};
use super::{Member, View};
use crate::{Chance, Decision, Reason};

/// An explanation lists so many of those who were passed over.
const EXPLAINED_MAX: usize = 32;

/// [`consumer`], with what it went by.
pub fn explain_consumer(
    view: &View,
    key: u64,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> Decision<Place> {
    let choice = consumer(view, key, traffic, chance);
    let mut reason = Reason::new(choice.rule.as_str());
    if let Some(owner) = choice.owner {
        reason = reason
            .with("owner", view.members()[owner].name.to_string())
            .with("owner_load", view.effective(owner, traffic))
            .with("overflows", view.passes_on(owner, traffic));
    }
    finish(view, choice, reason, traffic, |_| "further-in-ranking")
}

/// [`producer`], with what it went by.
pub fn explain_producer(
    view: &View,
    queues_waited_for: &impl Fn(usize) -> u32,
    traffic: &impl Traffic,
    chance: &mut impl Chance,
) -> Decision<Place> {
    let choice = producer(view, queues_waited_for, traffic, chance);
    let most = queues_waited_for(choice.place.index());
    let reason = Reason::new(choice.rule.as_str()).with("queues_waited_for", most);
    finish(view, choice, reason, traffic, |index| match queues_waited_for(index) {
        0 => "no-consumers",
        fewer if fewer < most => "fewer-consumers",
        _ => "as-good",
    })
}

fn finish(
    view: &View,
    choice: Choice,
    reason: Reason,
    traffic: &impl Traffic,
    why_not: impl Fn(usize) -> &'static str,
) -> Decision<Place> {
    let chosen = choice.place.index();
    let mut reason = reason
        .with("chosen_load", view.effective(chosen, traffic))
        .with("here_load", view.effective(0, traffic))
        .with("better_by_more_than", view.options.forward_threshold)
        .with("mean", view.mean())
        .with("limit", view.limit())
        .with("members", view.members().len() as u64)
        .with("serving", view.serving.len() as u64);
    let others = view.members().iter().enumerate().filter(|(index, _)| *index != chosen);
    for (index, member) in others.clone().take(EXPLAINED_MAX) {
        let rule = out_of_service(member)
            .unwrap_or_else(|| if traffic.avoids(index) { "tried" } else { why_not(index) });
        reason = reason.rejecting(&*member.name, rule);
    }
    let unlisted = others.count().saturating_sub(EXPLAINED_MAX);
    if unlisted > 0 {
        reason = reason.with("unlisted", unlisted as u64);
    }
    reason.choose(choice.place)
}

/// Why a member gets nothing at all, if so.
fn out_of_service(member: &Member) -> Option<&'static str> {
    match member {
        Member { alive: false, .. } => Some("dead"),
        Member { draining: true, .. } => Some("draining"),
        Member { admitted: false, .. } => Some("breaker-open"),
        _ => None,
    }
}
