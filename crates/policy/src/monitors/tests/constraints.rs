//! Subnets, accounts, limits, networks.

use super::*;

fn violations(case: &Case, id: u64) -> Vec<Kind> {
    case.verdict(&case.plan(), id).violations().collect()
}

#[test]
fn a_monitor_of_the_servers_subnet_is_paused_at_once_whatever_it_was() {
    let mut case = settled().with(Status::Candidate, [21]);
    for (id, last) in [(1, 9), (11, 10), (21, 11)] {
        case.monitor(id).ip = Some(IpAddr::from([192, 0, 2, last]));
    }
    let plan = case.plan();
    let blocked = plan.changes.iter().filter(|change| change.rule == Rule::Block);
    let mut ids: Vec<u64> = blocked.map(|change| case.id(change.monitor)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 11, 21]);
    assert!(plan.changes.iter().take(3).all(|change| change.to == Status::Paused));
}

#[test]
fn the_next_subnet_and_the_other_family_pass_and_prefixes_can_be_set() {
    let mut case = settled();
    case.monitor(1).ip = Some(IpAddr::from([192, 0, 3, 1]));
    case.monitor(2).ip = Some("2001:db8::1".parse().expect("an address"));
    case.monitor(3).ip = None;
    assert_eq!(case.plan().changes, []);
    case.settings.subnet_v4 = 23;
    assert_eq!(violations(&case, 1), [Kind::Network]);
    case.server.ip = Some("2001:db8:0:ffff::9".parse().expect("an address"));
    assert_eq!(violations(&case, 2), [Kind::Network], "one /48");
    assert_eq!(violations(&case, 1), []);
}

#[test]
fn a_server_without_account_or_address_shares_them_with_nobody() {
    let mut case = settled();
    (case.server.account, case.server.ip) = (None, None);
    case.monitor(1).account = None;
    case.monitor(2).ip = None;
    assert_eq!(case.plan().changes, []);
}

#[test]
fn an_account_may_have_two_active_and_three_together() {
    let case = settled().of_account(50, 2, [1, 2, 11]);
    assert_eq!(case.plan().changes, []);
    let case = settled().of_account(50, 2, [1, 2, 3]);
    assert_eq!([1, 2, 3].map(|id| violations(&case, id).len()), [0, 0, 1], "the worst one");
    let case = settled().of_account(50, 2, [1, 2, 11, 12]);
    assert_eq!([11, 12].map(|id| violations(&case, id).len()), [0, 1], "four together");
    let case = settled().of_account(50, 2, [11, 12, 13, 14]);
    assert_eq!([13, 14].map(|id| violations(&case, id).len()), [0, 1], "four in testing");
}

#[test]
fn candidates_and_monitors_of_nobody_are_under_no_limit() {
    let case = settled().with(Status::Candidate, 21..=24).of_account(50, 1, 21..=24);
    assert_eq!([21, 22, 23, 24].map(|id| violations(&case, id).len()), [0; 4]);
    let mut case = settled();
    for id in 1..=7 {
        case.monitor(id).account = None;
    }
    assert_eq!(case.plan().changes, []);
}

#[test]
fn when_a_limit_is_lowered_the_surplus_leaves_gradually_and_keeps_its_start_time() {
    let mut case = settled().with(Status::Candidate, 21..=29).of_account(50, 1, [1, 2, 3, 4]);
    let began = case.now;
    let plan = case.review();
    assert_eq!(plan.budget.active_removals, 2, "not three at once");
    let stored = case.assignment(4).violation.expect("is stored");
    assert_eq!(stored, Stored { kind: Kind::Limit, since: began });
    case.review();
    let again = case.assignment(4).violation;
    assert!(again.is_none_or(|stored| stored.since == began), "{again:?}");
    for _ in 0..6 {
        case.review();
    }
    let serving = [1, 2, 3, 4].map(|id| case.assignment(id).status.in_service());
    assert_eq!(serving.iter().filter(|serves| **serves).count(), 2, "X + 1 together");
    assert_eq!(case.assignment(1).status, Status::Active);
    assert_eq!(case.plan().after.active, 7);
}

#[test]
fn a_violation_of_another_kind_starts_anew() {
    let mut case = settled().in_network(1, [2]);
    let earlier = Time::from_millis(5);
    case.assignment(2).violation = Some(Stored { kind: Kind::Limit, since: earlier });
    case.settings.floor_active = 7;
    let stored = case.verdict(&case.plan(), 2).violation.expect("clashes");
    assert_eq!(stored, Stored { kind: Kind::Diversity, since: case.now });
    case.assignment(2).violation = Some(Stored { kind: Kind::Diversity, since: earlier });
    assert_eq!(case.verdict(&case.plan(), 2).violation.map(|one| one.since), Some(earlier));
}

#[test]
fn of_a_clash_the_best_ranked_stays_and_is_named_to_the_others() {
    let case = settled().in_network(3, [5, 12]);
    let plan = case.plan();
    assert_eq!(violations(&case, 3), []);
    for id in [5, 12] {
        let verdict = case.verdict(&plan, id);
        assert_eq!(verdict.violations().collect::<Vec<_>>(), [Kind::Diversity]);
        assert_eq!(verdict.peer, Some(case.place(3) as u32));
    }
}

#[test]
fn two_candidates_of_one_network_are_never_promoted_together() {
    let mut case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=13)
        .with(Status::Candidate, [21, 22])
        .in_network(21, [22]);
    let plan = case.review();
    assert_eq!(case.changes(&plan), [(21, Status::Candidate, Status::Testing, "5")]);
    assert_eq!(case.stay(22), Stay::NetworkTaken { peer: case.place(21) as u32 });
    assert_eq!(case.review().changes, []);
}

#[test]
fn a_demotion_frees_its_accounts_place_in_the_same_run() {
    let case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=15)
        .measured([7], ill(7))
        .of_account(50, 1, [7, 11]);
    let plan = case.plan();
    let changes = case.changes(&plan);
    assert!(changes.contains(&(7, Status::Active, Status::Testing, "2")), "{changes:?}");
    assert!(changes.contains(&(11, Status::Testing, Status::Active, "3")), "{changes:?}");
}

#[test]
fn a_promotion_that_would_be_one_too_many_together_is_refused() {
    let case = Case::new()
        .with(Status::Active, 1..=7)
        .with(Status::Testing, 11..=13)
        .with(Status::Candidate, [21])
        .of_account(50, 2, [1, 2, 11, 21]);
    assert_eq!(case.plan().changes, []);
    assert_eq!(case.stay(21), Stay::AccountFull { active: 2, testing: 1, limit: 2 });
}
