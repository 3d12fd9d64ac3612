//! Is the load spread evenly?

use super::{Member, Options};
use serde::Serialize;

/// How evenly the load is spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Balance {
    /// Whether there is nothing to gain: the scores differ by no more than the forward threshold,
    /// or the highest is within the bound of the lowest.
    pub balanced: bool,
    /// How much higher the highest score is than the lowest, as a part of the lowest; a lowest
    /// below the forward threshold counts as the threshold, so that idle nodes are not infinitely
    /// apart. 0 with fewer than two nodes.
    pub imbalance_score: f64,
}

/// How evenly the load is spread over the members that serve. The dead and the draining are not
/// among them; one that only this node's breaker keeps out is, because the others still use it.
pub fn balance<'a>(members: impl IntoIterator<Item = &'a Member>, options: &Options) -> Balance {
    let serving = members.into_iter().filter(|member| member.alive && !member.draining);
    let mut range: Option<(f64, f64)> = None;
    for member in serving {
        let (low, high) = range.unwrap_or((member.score, member.score));
        range = Some((low.min(member.score), high.max(member.score)));
    }
    let (low, high) = range.unwrap_or((0.0, 0.0));
    // A threshold of zero must not divide by zero.
    let against = low.max(options.forward_threshold).max(0.01);
    let imbalance_score = (high - low) / against;
    // Scores are sums of tenths; that 0.6 - 0.5 is a little above 0.1 means nothing.
    let near = high - low <= options.forward_threshold + 1e-9;
    let balanced = near || imbalance_score <= options.bound - 1.0;
    Balance { balanced, imbalance_score }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[f64]) -> Balance {
        let named = scores.iter().enumerate();
        let members: Vec<Member> = named
            .map(|(index, &score)| Member { score, ..Member::new(&format!("queen-{index}"), "") })
            .collect();
        balance(&members, &Options::default())
    }

    #[test]
    fn the_documented_example_is_balanced_at_fifteen_hundredths() {
        let found = of(&[0.45, 0.52]);
        assert!(found.balanced);
        assert_eq!((found.imbalance_score * 100.0).floor(), 15.0, "{found:?}");
    }

    #[test]
    fn idle_and_lonely_nodes_are_balanced_and_never_infinitely_apart() {
        let even = Balance { balanced: true, imbalance_score: 0.0 };
        assert_eq!(of(&[]), even);
        assert_eq!(of(&[0.7]), even);
        assert_eq!(of(&[0.0, 0.0]), even);
        let idle = of(&[0.0, 0.04]);
        assert!(idle.balanced && (idle.imbalance_score - 0.4).abs() < 1e-9, "{idle:?}");
        assert!(of(&[0.5, 0.6]).balanced);
        assert!(of(&[0.8, 0.99]).balanced, "within the bound");
        assert!(!of(&[0.3, 0.45]).balanced);
    }

    #[test]
    fn the_dead_and_the_draining_do_not_count() {
        let mut members: Vec<Member> = ["a", "b", "c", "d"].map(|one| Member::new(one, "")).into();
        for (member, score) in members.iter_mut().zip([0.4, 0.42, 0.9, 0.0]) {
            member.score = score;
        }
        members[2].alive = false;
        members[3].draining = true;
        assert!(balance(&members, &Options::default()).balanced);
    }
}
