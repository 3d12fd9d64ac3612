//! Rank and state.

use super::*;

fn ranks(case: &Case) -> Vec<u64> {
    case.plan().verdicts.iter().map(|verdict| case.id(verdict.monitor)).collect()
}

#[test]
fn rank_is_healthy_first_then_priority_step_round_trip_and_id() {
    let case = Case::new()
        .with(Status::Candidate, 1..=6)
        .measured([1], ill(5))
        .measured([2], well(50))
        .measured([3], Measured { step: 0.9, ..well(40) })
        .measured([4], well(40))
        .measured([5], Measured { rtt_ms: 39.0, ..well(40) })
        .measured([6], well(40));
    assert_eq!(ranks(&case), [5, 4, 6, 3, 2, 1]);
}

#[test]
fn rank_knows_no_limit_of_priority() {
    let case = Case::new()
        .with(Status::Candidate, 1..=4)
        .measured([1], well(i64::MAX))
        .measured([2], well(0))
        .measured([3], ill(i64::MIN))
        .measured([4], ill(i64::MAX));
    assert_eq!(ranks(&case), [2, 1, 3, 4]);
}

#[test]
fn global_status_comes_before_everything_else() {
    let case = settled()
        .globally(GlobalStatus::Pending, [1])
        .globally(GlobalStatus::Paused, [2])
        .globally(GlobalStatus::Deleted, [3])
        .measured([1, 2, 3], ill(9))
        .of_account(5, 0, [1, 2, 3]);
    assert_eq!(case.state(1), (State::Out, Cause::GloballyPending));
    assert_eq!(case.state(2), (State::Block, Cause::GloballyPaused));
    assert_eq!(case.state(3), (State::Block, Cause::GloballyDeleted));
}

#[test]
fn globally_testing_but_active_here_is_inconsistent_and_leaves_gradually() {
    let mut case = settled().globally(GlobalStatus::Testing, [7]);
    assert_eq!(case.state(7), (State::Out, Cause::Inconsistent));
    let plan = case.review();
    let changes = case.changes(&plan);
    assert_eq!(changes[0], (7, Status::Active, Status::Testing, "2"));
    assert_eq!(case.state(7), (State::Pending, Cause::GloballyTesting));
}

#[test]
fn a_violation_blocks_only_if_it_can_never_become_right() {
    let mut case = settled().of_account(9, 0, [1]).in_network(2, [3]);
    case.monitor(4).account = Some("owner".into());
    case.monitor(5).ip = Some(IpAddr::from([192, 0, 2, 200]));
    assert_eq!(case.state(1), (State::Out, Cause::Violation(Kind::Limit)));
    assert_eq!(case.state(3), (State::Out, Cause::Violation(Kind::Diversity)));
    assert_eq!(case.state(4), (State::Block, Cause::Violation(Kind::Account)));
    assert_eq!(case.state(5), (State::Block, Cause::Violation(Kind::Network)));
}

#[test]
fn unhealthy_and_silent_monitors_are_out_and_unmeasured_ones_are_not() {
    let silent = Measured { health: Health::Silent, count: 0, ..well(1) };
    let case =
        settled().measured([1], ill(1)).measured([2], silent).measured([11], Measured::NOTHING);
    assert_eq!(case.state(1), (State::Out, Cause::Unhealthy(Health::Unhealthy)));
    assert_eq!(case.state(2), (State::Out, Cause::Unhealthy(Health::Silent)));
    assert_eq!(case.state(11), (State::Pending, Cause::Unmeasured));
}

#[test]
fn testing_here_and_globally_is_pending_and_everybody_else_is_in() {
    let case = settled().with(Status::Candidate, [21]).globally(GlobalStatus::Testing, [11, 21]);
    assert_eq!(case.state(11), (State::Pending, Cause::GloballyTesting));
    assert_eq!(case.stay(11), Stay::OnTrial);
    for id in [1, 12, 21] {
        assert_eq!(case.state(id), (State::In, Cause::Fine), "{id}");
    }
}

#[test]
fn words_that_name_no_status_say_which_would_be_right() {
    assert_eq!("new".parse(), Ok(Status::Candidate));
    assert_eq!("paused".parse(), Ok(Status::Paused));
    assert_eq!("deleted".parse(), Ok(GlobalStatus::Deleted));
    let flaw = "idle".parse::<Status>().expect_err("no status").to_string();
    let right = "server_status is idle; it must be candidate, testing, active or paused";
    assert_eq!(flaw, right);
    let flaw = "new".parse::<GlobalStatus>().expect_err("no status").to_string();
    assert!(flaw.starts_with("global_status is new; it must be pending, testing"), "{flaw}");
    assert!("subnet".parse::<Kind>().is_err());
}
