//! The rules, one by one.

use super::*;

#[test]
fn rule_1_takes_all_blocked_ones_at_once_and_outside_the_budget() {
    let case = settled().globally(GlobalStatus::Paused, 1..=6);
    let plan = case.plan();
    let blocked = plan.changes.iter().filter(|change| change.rule == Rule::Block).count();
    assert_eq!((blocked, plan.budget.active_removals), (6, 0));
    assert_eq!(plan.budget.each, 3);
    assert_eq!(plan.after.active, 4, "one was left, three came");
}

#[test]
fn the_budget_is_two_or_three_when_troubled_or_four_when_none_is_active() {
    let each = |case: Case| case.plan().budget.each;
    assert_eq!(each(settled()), 2);
    assert_eq!(each(settled().globally(GlobalStatus::Paused, [1])), 2);
    assert_eq!(each(settled().globally(GlobalStatus::Paused, [1, 2])), 3);
    assert_eq!(each(Case::new().with(Status::Active, 1..=4)), 3);
    assert_eq!(each(Case::new().with(Status::Active, 1..=5)), 2);
    assert_eq!(each(Case::new().with(Status::Testing, 1..=5)), 4);
    assert_eq!(each(settled().globally(GlobalStatus::Paused, 1..=7)), 4, "after rule 1");
}

#[test]
fn rule_2_takes_the_worst_first_within_the_budget_and_a_step_at_a_time() {
    let case = settled().measured([2, 5, 6], ill(90)).measured([11, 12, 13], ill(95));
    let plan = case.plan();
    let removed: Vec<_> =
        case.changes(&plan).into_iter().filter(|change| change.3 == "2").collect();
    assert_eq!(
        removed,
        [
            (6, Status::Active, Status::Testing, "2"),
            (5, Status::Active, Status::Testing, "2"),
            (13, Status::Testing, Status::Candidate, "2"),
            (12, Status::Testing, Status::Candidate, "2"),
        ]
    );
    assert_eq!(case.stay(2), Stay::BudgetSpent { budget: 2 });
}

#[test]
fn gradual_removal_leaves_five_active_and_three_testing() {
    let case = Case::new()
        .with(Status::Active, 1..=6)
        .with(Status::Testing, 11..=14)
        .measured(1..=6, ill(50))
        .measured(11..=14, ill(60));
    let plan = case.plan();
    assert_eq!((plan.after.active, plan.budget.active_removals), (5, 1));
    assert_eq!(plan.budget.testing_removals, 2, "one more came down");
    assert_eq!(plan.after.testing, 3);
    assert_eq!(case.stay(1), Stay::AtFloor { floor: 5 });
}

#[test]
fn fewer_active_never_means_that_more_are_removed() {
    let removed = |active: u64| {
        let case = Case::new().with(Status::Active, 1..=active).of_account(9, 1, 1..=5);
        case.plan().budget.active_removals
    };
    let by_size: Vec<u32> = (5..=9).map(removed).collect();
    assert_eq!(by_size, [0, 1, 2, 2, 2]);
}

#[test]
fn rule_1_5_demotes_the_worst_of_too_many_active() {
    let case = Case::new().with(Status::Active, 1..=10).with(Status::Testing, 11..=13);
    let plan = case.plan();
    let changes = case.changes(&plan);
    assert_eq!(
        changes,
        [(10, Status::Active, Status::Testing, "1.5"), (9, Status::Active, Status::Testing, "1.5"),]
    );
}

#[test]
fn removals_by_rule_2_and_rule_1_5_share_one_budget() {
    let case = Case::new().with(Status::Active, 1..=10).measured([3], ill(3));
    let plan = case.plan();
    assert_eq!(plan.budget.active_removals, 2);
    let rules: Vec<&str> = case.changes(&plan).iter().map(|change| change.3).collect();
    assert_eq!(rules, ["2", "1.5"]);
}

#[test]
fn rule_3_fills_active_with_the_best_that_are_ready() {
    let mut case = Case::new().with(Status::Active, 1..=5).with(Status::Testing, 11..=17);
    case = case.globally(GlobalStatus::Testing, [11]);
    case.assignment(12).measured.count = 31;
    case.assignment(14).measured.count = 32;
    let plan = case.plan();
    assert_eq!(
        case.changes(&plan),
        [(13, Status::Testing, Status::Active, "3"), (14, Status::Testing, Status::Active, "3"),]
    );
    assert_eq!(case.stay(12), Stay::TooFewSamples { has: 31, needs: 32 });
    assert_eq!(case.stay(11), Stay::OnTrial);
}

#[test]
fn a_monitor_that_rule_2_demoted_is_not_promoted_in_the_same_run() {
    let mut case = settled().measured([7], ill(7));
    let plan = case.review();
    let of_seven = plan.changes.iter().filter(|change| case.id(change.monitor) == 7).count();
    assert_eq!(of_seven, 1);
    assert_eq!(case.assignment(7).status, Status::Testing);
}

#[test]
fn rule_5_fills_testing_with_healthy_candidates_of_nine_samples() {
    let mut case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=13)
        .with(Status::Candidate, 21..=25)
        .measured([21], ill(1))
        .globally(GlobalStatus::Pending, [22]);
    case.assignment(23).measured.count = 8;
    case.assignment(24).measured.count = 9;
    let plan = case.plan();
    assert_eq!(
        case.changes(&plan),
        [
            (24, Status::Candidate, Status::Testing, "5"),
            (25, Status::Candidate, Status::Testing, "5"),
        ]
    );
    assert_eq!(case.stay(21), Stay::NotEligible);
    assert_eq!(case.stay(22), Stay::NotEligible);
    assert_eq!(case.stay(23), Stay::TooFewSamples { has: 8, needs: 9 });
}

#[test]
fn rule_5_takes_globally_active_candidates_first_while_testing_has_fewer_than_four() {
    let case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=13)
        .with(Status::Candidate, 21..=24)
        .globally(GlobalStatus::Testing, [21, 22]);
    let plan = case.plan();
    let promoted: Vec<u64> = case.changes(&plan).iter().map(|change| change.0).collect();
    assert_eq!(promoted, [23, 21], "23 is the fourth; then by rank");
}

#[test]
fn rule_5_swaps_out_the_worst_globally_testing_one_a_run() {
    let mut case =
        settled().with(Status::Candidate, 21..=24).globally(GlobalStatus::Testing, [11, 12, 13]);
    let plan = case.review();
    assert_eq!(
        case.changes(&plan),
        [
            (13, Status::Testing, Status::Candidate, "5"),
            (21, Status::Candidate, Status::Testing, "5"),
        ]
    );
    assert_eq!((plan.budget.promotions, plan.budget.testing_removals), (1, 1));
    let plan = case.review();
    assert_eq!(case.changes(&plan)[0], (12, Status::Testing, Status::Candidate, "5"));
    assert_eq!(plan.after.globally_active_in_testing, 4);
    assert_eq!(case.review().changes, [], "four are enough");
}

#[test]
fn rule_2_5_demotes_the_worst_of_too_many_in_testing_but_spares_four_globally_active() {
    let case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=17)
        .globally(GlobalStatus::Testing, [11, 12, 13]);
    let plan = case.plan();
    assert_eq!(
        case.changes(&plan),
        [
            (13, Status::Testing, Status::Candidate, "2.5"),
            (12, Status::Testing, Status::Candidate, "2.5"),
        ]
    );
    let case = Case::new().with(Status::Active, 1..=7).with(Status::Testing, 11..=17);
    let demoted: Vec<u64> = case.changes(&case.plan()).iter().map(|change| change.0).collect();
    assert_eq!(demoted, [17, 16]);
}

#[test]
fn testing_may_be_larger_by_each_missing_active_monitor() {
    let mut case = Case::new().with(Status::Active, 1..=5).with(Status::Testing, 11..=17);
    case = case.measured(11..=17, Measured { count: 10, ..well(20) });
    assert_eq!(case.plan().changes, []);
}

#[test]
fn rule_6_fills_an_empty_testing_pool_without_samples_and_outside_the_budget() {
    let mut case = Case::new().with(Status::Candidate, 1..=20);
    case = case.measured(1..=20, Measured::NOTHING);
    let plan = case.review();
    assert_eq!((plan.after.testing, plan.budget.promotions), (12, 0));
    assert!(plan.changes.iter().all(|change| change.rule == Rule::Bootstrap));
    assert_eq!(case.review().changes, []);
}

#[test]
fn rule_6_counts_what_rule_5_promoted_and_respects_the_target() {
    let case = Case::new().with(Status::Active, 1..=7).with(Status::Candidate, 21..=35);
    let plan = case.plan();
    let by = |rule| plan.changes.iter().filter(|change| change.rule == rule).count();
    assert_eq!((by(Rule::ToTesting), by(Rule::Bootstrap)), (2, 3));
    assert_eq!(plan.after.testing, 5);
}

#[test]
fn rule_6_takes_unhealthy_ones_last_and_no_more_than_will_stay() {
    let mut case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Candidate, 21..=29)
        .measured(21..=29, ill(5));
    let plan = case.review();
    assert_eq!(plan.after.testing, 3);
    assert_eq!(case.review().changes, [], "the floor keeps them");
}

#[test]
fn paused_ones_come_back_when_a_re_check_after_eight_hours_finds_the_cause_gone() {
    let mut case = settled().with(Status::Candidate, [21]).globally(GlobalStatus::Paused, [21]);
    let plan = case.review();
    assert_eq!(case.changes(&plan), [(21, Status::Candidate, Status::Paused, "1")]);
    let checked = case.assignment(21).last_check.expect("was looked at");
    assert_eq!(case.stay(21), Stay::StillBlocked);
    case = case.globally(GlobalStatus::Active, [21]);
    case.now = checked + Duration::from_secs(8 * 3_600 - 1);
    assert_eq!(case.stay(21), Stay::RecheckLater);
    case.now = checked + Duration::from_secs(8 * 3_600);
    let plan = case.plan();
    assert_eq!(case.changes(&plan), [(21, Status::Paused, Status::Candidate, "recheck")]);
}

#[test]
fn a_re_check_that_finds_the_cause_still_there_is_noted() {
    let mut case = settled().with(Status::Paused, [21]).globally(GlobalStatus::Deleted, [21]);
    case.review();
    let noted = case.assignment(21).last_check;
    assert!(noted.is_some());
    case.review();
    assert_eq!(case.assignment(21).last_check, noted, "not due yet");
}

#[test]
fn globally_pending_monitors_end_as_candidates() {
    let mut case = settled().with(Status::Candidate, 21..=25).globally(GlobalStatus::Pending, [4]);
    let seen: Vec<Status> = (0..3)
        .map(|_| {
            case.review();
            case.assignment(4).status
        })
        .collect();
    assert_eq!(seen, [Status::Testing, Status::Candidate, Status::Candidate]);
}
