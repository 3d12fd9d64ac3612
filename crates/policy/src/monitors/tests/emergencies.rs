//! Nobody is active.

use super::*;

/// In testing: 1, globally only in testing; and a candidate, 2, of the same network.
fn clash() -> Case {
    Case::new()
        .with(Status::Testing, [1])
        .with(Status::Candidate, [2])
        .globally(GlobalStatus::Testing, [1])
        .in_network(1, [2])
}

#[test]
fn an_emergency_may_ignore_networks_and_account_limits() {
    for mut case in [clash(), clash().in_network(2, [2]).of_account(9, 0, [1, 2])] {
        let plan = case.review();
        assert!(plan.emergency);
        assert_eq!(case.changes(&plan), [(2, Status::Candidate, Status::Testing, "5")]);
        assert!(plan.changes[0].emergency);
        let plan = case.review();
        assert_eq!(case.changes(&plan).last().map(|change| change.0), Some(2));
        assert_eq!(plan.after.active, 1);
        assert_eq!(case.review().changes, []);
    }
}

#[test]
fn an_emergency_never_ignores_the_servers_own_subnet_or_account() {
    let mut case = clash();
    case.monitor(2).account = Some("owner".into());
    let plan = case.plan();
    assert_eq!(case.changes(&plan), [(2, Status::Candidate, Status::Paused, "1")]);
}

#[test]
fn an_emergency_never_ignores_capacity() {
    let mut case = clash();
    (case.settings.target_active, case.settings.target_testing) = (1, 1);
    case.settings.globally_active_in_testing = 0;
    case = case.with(Status::Testing, [3]).globally(GlobalStatus::Testing, [3]);
    assert_eq!(case.plan().changes, [], "two places, two are taken");
}

#[test]
fn an_emergency_ends_with_the_first_active_monitor() {
    let case = Case::new().with(Status::Testing, 1..=4).in_network(1, 2..=4);
    let plan = case.plan();
    assert_eq!(case.changes(&plan), [(1, Status::Testing, Status::Active, "3")]);
    assert!(!plan.changes[0].emergency, "the best of a network violates nothing");
}

#[test]
fn emergency_is_judged_after_rule_1() {
    let case = settled().globally(GlobalStatus::Paused, 1..=7);
    let plan = case.plan();
    assert!(plan.emergency);
    assert_eq!((plan.budget.each, plan.after.active), (4, 4));
}

#[test]
fn an_emergency_prefers_whoever_violates_nothing() {
    let case = clash().with(Status::Candidate, [30]);
    let plan = case.plan();
    assert_eq!(case.changes(&plan), [(30, Status::Candidate, Status::Testing, "5")]);
    assert!(!plan.changes[0].emergency);
}
