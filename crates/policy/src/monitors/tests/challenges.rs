//! Who replaces whom, and when.

use super::*;

/// Settled, and one in testing (11) has this priority against the worst active one's 100.
fn against_hundred(priority: i64) -> Case {
    settled().measured([7], well(100)).measured([11], well(priority)).measured(12..=15, well(200))
}

#[test]
fn a_challenger_replaces_an_incumbent_after_four_reviews_in_a_row() {
    let mut case = against_hundred(90);
    for reviews in 1..=3 {
        assert_eq!(case.review().changes, []);
        let incumbent = case.place(7) as u32;
        assert_eq!(case.assignment(11).challenge, Some(Challenge { incumbent, reviews }));
    }
    let plan = case.review();
    assert_eq!(
        case.changes(&plan),
        [(7, Status::Active, Status::Testing, "3"), (11, Status::Testing, Status::Active, "3"),]
    );
    assert_eq!((plan.budget.promotions, plan.budget.active_removals), (1, 1));
    assert_eq!(case.assignment(11).challenge, None);
    let partners = [&plan.changes[0], &plan.changes[1]].map(|change| change.partner);
    assert_eq!(partners, [Some(case.place(11) as u32), Some(case.place(7) as u32)]);
}

#[test]
fn one_that_is_clearly_better_is_believed_after_two_reviews() {
    let mut case = against_hundred(75);
    assert_eq!(case.review().changes.len(), 0);
    assert_eq!(case.review().changes.len(), 2);
    let mut case = against_hundred(76);
    let changes: Vec<usize> = (0..4).map(|_| case.review().changes.len()).collect();
    assert_eq!(changes, [0, 0, 0, 2], "24 points are no 25");
}

#[test]
fn one_bad_review_and_a_challenger_begins_again() {
    let mut case = against_hundred(90);
    case.review();
    case.review();
    case = case.measured([11], well(99));
    assert_eq!(case.review().changes, []);
    assert_eq!(case.assignment(11).challenge, None);
    case = case.measured([11], well(90));
    case.review();
    assert_eq!(case.assignment(11).challenge.map(|one| one.reviews), Some(1));
}

#[test]
fn better_is_five_points_and_five_per_cent() {
    let challenges = |mine: i64, others: i64| {
        let mut case = against_hundred(mine).measured([7], well(others));
        case.review();
        case.assignment(11).challenge.is_some()
    };
    assert!(challenges(95, 100));
    assert!(!challenges(96, 100), "4 points");
    assert!(challenges(190, 200) && !challenges(191, 200), "5 per cent of 200 are 10");
    assert!(challenges(15, 20) && !challenges(16, 20), "5 points");
    let mut case = settled().measured(1..=7, well(0)).measured([11], well(0));
    case.review();
    assert_eq!(case.assignment(11).challenge, None, "nothing is better than 0");
}

#[test]
fn healthy_beats_unhealthy_at_once() {
    let mut case = settled().measured([7], ill(100));
    case.settings.floor_active = 7;
    let plan = case.plan();
    assert_eq!(
        case.changes(&plan),
        [(7, Status::Active, Status::Testing, "3"), (11, Status::Testing, Status::Active, "3"),]
    );
}

#[test]
fn the_last_active_one_leaves_only_for_a_replacement() {
    let mut case = Case::new().with(Status::Active, [1]).measured([1], ill(1));
    (case.settings.target_active, case.settings.floor_active) = (1, 1);
    assert_eq!(case.plan().changes, []);
    assert_eq!(case.stay(1), Stay::AtFloor { floor: 1 });
    let case = case.with(Status::Testing, [11]);
    let plan = case.plan();
    assert_eq!((plan.after.active, plan.changes.len()), (1, 2));
}

#[test]
fn a_swap_within_an_account_or_a_network_counts_net() {
    let mut case = settled()
        .with(Status::Candidate, [21])
        .measured([15], well(100))
        .measured([21], well(50))
        .of_account(50, 0, [15, 21])
        .in_network(15, [21]);
    case.settings.confirmations = 1;
    let plan = case.plan();
    assert_eq!(
        case.changes(&plan),
        [
            (15, Status::Testing, Status::Candidate, "5"),
            (21, Status::Candidate, Status::Testing, "5"),
        ]
    );
}

#[test]
fn swaps_stay_within_the_budget_of_both_groups() {
    let mut case = settled().measured(1..=7, well(500)).measured(11..=15, well(10));
    case.settings.confirmations = 1;
    let plan = case.plan();
    assert_eq!((plan.budget.promotions, plan.budget.active_removals), (2, 2));
    assert_eq!(plan.changes.len(), 4);
}

#[test]
fn several_challengers_are_confirmed_side_by_side() {
    let mut case = settled().measured(1..=7, well(500)).measured(11..=15, well(450));
    let swapped: Vec<usize> = (0..6).map(|_| case.review().changes.len() / 2).collect();
    assert_eq!(swapped, [0, 0, 0, 2, 2, 1]);
}

#[test]
fn a_globally_testing_challenger_never_takes_one_of_the_last_four_globally_active_places() {
    let mut case = settled()
        .with(Status::Candidate, [21])
        .globally(GlobalStatus::Testing, [15, 21])
        .measured(11..=14, well(300))
        .measured([15], well(20))
        .measured([21], well(10));
    case.settings.confirmations = 1;
    assert_eq!(case.changes(&case.plan())[0].0, 15, "the other globally testing one");
    case = case.measured([15], well(11));
    assert_eq!(case.plan().changes, []);
}
